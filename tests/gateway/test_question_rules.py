"""What the servers of a gateway may do without a call of a caller: start, and ask questions."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Server
from dovetail.errors import InvalidParams, ProtocolError, ToolError, UrlRequired
from dovetail.gateway.gateway import Gateway
from dovetail.server.audit import AuditRecord, audit
from tests.gateway.programs import PATIENT, entry, write_server

from .serving import ANN, BOB, KEYS, headers_of, recorded, served

UPSTREAMS = ["2025-11-25", "2026-07-28"]
CALLERS = ["2025-11-25", "2026-07-28"]
ALLOW = {"effect": "allow"}
each_pair = pytest.mark.parametrize(
    ("upstream", "caller"), [(one, other) for one in UPSTREAMS for other in CALLERS]
)


def asking_server(revision: str) -> Server:
    """A server that asks for whatever it is told to ask for."""
    server = Server("up", revisions=[revision])

    @server.tool
    async def ask_model(ctx: Context, tokens: int, context: Any = None) -> str:
        return (await ctx.sample("Who?", max_tokens=tokens, include_context=context)).text

    @server.tool
    async def ask_user(ctx: Context) -> str:
        return (await ctx.elicit("How much?", int)).action

    @server.tool
    async def ask_both(ctx: Context) -> str:
        model, user = await asyncio.gather(
            ctx.sample("Who?", max_tokens=500), ctx.elicit("How much?", int)
        )
        return f"{user.data} {model.text}"

    @server.tool
    async def log_in() -> str:
        raise UrlRequired("Log in", url="https://example.com/log-in")

    @server.tool
    async def can(ctx: Context) -> list[str]:
        return sorted(ctx.capabilities)

    @server.tool
    async def show_roots(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    return server


class Asked:
    """A caller, and what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[Any] = []
        self.forms: list[Any] = []

    def client(self, url: str, revision: str, **options: Any) -> Client:
        def sample(request: Any) -> str:
            self.prompts.append(request)
            return "me"

        sample.context = True  # type: ignore[attr-defined]

        def elicit(request: Any) -> Any:
            self.forms.append(request)
            return {"value": 1}

        return Client(url, revision=revision, on_sample=sample, on_elicit=elicit, **options)


def source_of(up: str, **settings: Any) -> dict[str, Any]:
    return {"mcpServers": {"up": {"url": up, "dovetail": settings}}}


@each_pair
async def test_a_server_without_sampling_is_not_told_of_a_model_and_cannot_use_it(
    upstream: str, caller: str
) -> None:
    asked = Asked()
    async with recorded(asking_server(upstream)) as (up, _):
        async with (
            served(source_of(up, sampling=False)) as (_, url),
            asked.client(url, caller) as client,
        ):
            assert "sampling" not in (await client.call_tool("up__can")).data
            with pytest.raises((ToolError, ProtocolError), match="sampling"):
                await client.call_tool("up__ask_model", {"tokens": 10})
            assert (await client.call_tool("up__ask_user")).text == "accept"
    assert asked.prompts == []


@each_pair
@pytest.mark.parametrize("kind", ["sampling", "elicitation"])
async def test_a_rule_denies_a_kind_of_question(upstream: str, caller: str, kind: str) -> None:
    asked, records = Asked(), list[AuditRecord]()
    policy = {"rule": [ALLOW, {"effect": "deny", "kind": kind}]}
    options: Mapping[str, Any] = {"policy": policy, "middleware": [audit(records.append)]}
    async with recorded(asking_server(upstream)) as (up, _):
        async with (
            served(source_of(up), **options) as (_, url),
            asked.client(url, caller) as client,
        ):
            calls: list[tuple[str, dict[str, Any]]] = [
                ("ask_model", {"tokens": 10}), ("ask_user", {})
            ]  # fmt: skip
            denied, allowed = calls if kind == "sampling" else calls[::-1]
            with pytest.raises((ToolError, ProtocolError), match="rule 2 of the policy"):
                await client.call_tool(f"up__{denied[0]}", denied[1])
            if kind == "elicitation" and upstream < "2026":  # later revisions have no such error
                with pytest.raises(ProtocolError, match="rule 2 of the policy"):
                    await client.call_tool("up__log_in")
            await client.call_tool(f"up__{allowed[0]}", allowed[1])
    assert len(asked.prompts) + len(asked.forms) == 1
    record = next(one for one in records if one.method == kind)
    assert (record.outcome, record.rule, record.server) == ("denied", "rule 2 of the policy", "up")


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_rule_about_one_caller_denies_the_questions_of_its_calls(upstream: str) -> None:
    policy = {"rule": [ALLOW, {"effect": "deny", "kind": "sampling", "principal": "bob"}]}
    async with recorded(asking_server(upstream)) as (up, _):
        async with served(source_of(up), policy=policy, auth=KEYS) as (_, url):
            for key, expected in ((ANN, 1), (BOB, 0)):
                asked = Asked()
                async with asked.client(url, "2026-07-28", headers=headers_of(key)) as client:
                    call = client.call_tool("up__ask_model", {"tokens": 10})
                    await asyncio.gather(call, return_exceptions=True)
                assert len(asked.prompts) == expected


@each_pair
@pytest.mark.parametrize("context", ["thisServer", "allServers"])
@pytest.mark.parametrize("alone", [True, False])
async def test_a_prompt_is_limited_to_its_tokens_and_its_server(
    upstream: str, caller: str, alone: bool, context: str
) -> None:
    asked = Asked()
    async with recorded(asking_server(upstream)) as (up, _):
        source = source_of(up, maxTokens=100)
        if not alone:  # the context of the caller's server would be that of both
            source["mcpServers"]["two"] = {"url": up}
        async with served(source) as (_, url), asked.client(url, caller) as client:
            for tokens in (50, 5000):
                arguments = {"tokens": tokens, "context": context}
                await client.call_tool("up__ask_model", arguments)
    assert [one.max_tokens for one in asked.prompts] == [50, 100]
    expected = "thisServer" if alone and context == "thisServer" else None
    assert [one.include_context for one in asked.prompts] == [expected, expected]


@each_pair
@pytest.mark.parametrize("has_model", [True, False])
async def test_the_model_of_a_gateway_answers_for_callers_that_have_none(
    upstream: str, caller: str, has_model: bool
) -> None:
    asked, own = Asked(), list[Any]()

    def model(request: Any) -> str:
        own.append(request)
        return "the gateway"

    async with recorded(asking_server(upstream)) as (up, _):
        async with served(source_of(up, maxTokens=100), on_sample=model) as (_, url):
            client = asked.client(url, caller)
            if not has_model:
                client = Client(url, revision=caller, on_elicit=lambda _: {"value": 2})
            async with client:
                result = await client.call_tool("up__ask_model", {"tokens": 5000})
                assert result.text == ("me" if has_model else "the gateway")
                both = await client.call_tool("up__ask_both")
                assert both.text == ("1 me" if has_model else "2 the gateway")
                assert "sampling" in (await client.call_tool("up__can")).data
    assert len(own) == (0 if has_model else 2)
    assert all((one.max_tokens, one.target) == (100, "up") for one in own)


ASKS_REGARDLESS = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "raw", "version": "1"}})
    elif method == "tools/list":
        tools = [{"name": "ask", "inputSchema": {"type": "object"}}]
        send(id=id, result={"tools": tools})
    elif method == "tools/call":
        called, content = id, {"type": "text", "text": "Who?"}
        send(id="q", method="sampling/createMessage", params={
            "messages": [{"role": "user", "content": content}], "maxTokens": 10,
            "includeContext": sys.argv[1]})
    elif id == "q":
        send(id=called, result={"content": [message["result"]["content"]]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "unknown"})
"""
"""A server that asks for context although no client declares that it adds some."""


@pytest.mark.parametrize("context", ["thisServer", "allServers"])
async def test_the_model_of_a_gateway_is_not_asked_for_context(
    tmp_path: Path, context: str
) -> None:
    own: list[Any] = []

    def model(request: Any) -> str:
        own.append(request)
        return "the gateway"

    (tmp_path / "up.py").write_text(ASKS_REGARDLESS)
    up = {"command": sys.executable, "args": [str(tmp_path / "up.py"), context]}
    gateway = Gateway({"mcpServers": {"up": up}}, on_sample=model, limits=PATIENT)
    async with Client(gateway) as client:
        assert (await client.call_tool("up__ask")).text == "the gateway"
    assert [one.include_context for one in own] == [None]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_the_model_of_a_gateway_follows_the_rules(upstream: str) -> None:
    own: list[Any] = []

    def model(request: Any) -> str | None:
        own.append(request)
        return None  # refused

    policy = {"rule": [ALLOW, {"effect": "deny", "kind": "sampling", "principal": "bob"}]}
    async with recorded(asking_server(upstream)) as (up, _):
        options: dict[str, Any] = {"policy": policy, "auth": KEYS, "on_sample": model}
        async with served(source_of(up), **options) as (_, url):
            for key, expected in ((ANN, "rejected sampling"), (BOB, "rule 2 of the policy")):
                async with Client(url, headers=headers_of(key)) as client:
                    with pytest.raises((ToolError, ProtocolError), match=expected):
                        await client.call_tool("up__ask_model", {"tokens": 10})
    assert len(own) == 1


@pytest.mark.parametrize("upstream", ["2025-11-25", "2026-07-28"])
async def test_why_the_model_of_a_gateway_failed_is_not_told(upstream: str) -> None:
    told: list[str] = []
    server = Server("up", revisions=[upstream])

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            return (await ctx.sample("Who?", max_tokens=10)).text
        except ToolError as error:
            told.append(str(error))
            raise

    def fail(request: Any) -> str:
        raise ValueError("Incorrect key: secret")

    gateway = Gateway(server, on_sample=fail, store=":memory:")
    async with Client(gateway) as client:
        with pytest.raises((ToolError, ProtocolError)) as failure:
            await client.call_tool("ask")
    assert "secret" not in " ".join([*told, str(failure.value)])


async def test_roots_that_change_are_never_those_that_a_server_remembers(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("ann", "bob", "later")]
    for folder in folders:
        folder.mkdir()
    ann, bob, later = folders
    async with recorded(asking_server("2025-11-25")) as (up, _):
        async with (
            served(source_of(up)) as (_, url),
            Client(url, revision="2025-11-25", roots=[ann]) as one,
            Client(url, revision="2025-11-25", roots=[bob]) as other,
        ):
            assert (await one.call_tool("up__show_roots")).text == ann.as_uri()
            assert (await other.call_tool("up__show_roots")).text == bob.as_uri()
            await one.set_roots([later])
            assert (await one.call_tool("up__show_roots")).text == later.as_uri()


# starting


async def test_a_rule_denies_to_start_a_server(tmp_path: Path) -> None:
    servers = {name: entry(write_server(tmp_path, name)) for name in ("one", "two")}
    rule = {"effect": "deny", "kind": "start", "server": "two"}
    gateway = Gateway(
        {"mcpServers": servers}, policy={"rule": [ALLOW, rule]}, store=":memory:", limits=PATIENT
    )
    async with gateway.lifespan(), Client(gateway) as client:
        await gateway.upstreams.servers["one"].start()
        assert {tool.name[:5] for tool in await client.list_tools()} == {"one__"}
        two = gateway.upstreams.servers["two"]
        assert (two.state, two.connections) == ("refused", 0)
        assert two.error == "rule 2 of the policy does not allow starting the server 'two'"
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await client.call_tool("two__echo", {"text": "x"})


async def test_a_rule_denies_to_reach_a_server() -> None:
    async with recorded(asking_server("2026-07-28")) as (up, recorder):
        policy = {"rule": [ALLOW, {"effect": "deny", "kind": "reach"}]}
        async with served(source_of(up), policy=policy) as (gateway, _):
            assert gateway.upstreams.servers["up"].state == "refused"
    assert recorder.requests == []


async def test_a_policy_that_is_read_again_stops_and_starts_servers(tmp_path: Path) -> None:
    source = {"mcpServers": {"one": entry(write_server(tmp_path, "one"))}}
    policy: dict[str, Any] = {"rule": [ALLOW]}
    gateway = Gateway(source, policy=policy, store=":memory:", limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        one = gateway.upstreams.servers["one"]
        await one.start()
        assert await client.list_tools()
        policy["rule"].append({"effect": "deny", "server": "one"})
        await gateway.reload()
        async with asyncio.timeout(30):
            while one.state != "refused":
                await asyncio.sleep(0.01)
        assert await client.list_tools(fresh=True) == []
        assert one.connections == 0
        policy["rule"].pop()
        await gateway.reload()
        await one.start()
        assert await client.list_tools(fresh=True)
