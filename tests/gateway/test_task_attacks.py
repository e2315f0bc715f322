"""What callers and servers cannot do to others, or to the gateway, with tasks."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import Client, Server
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.tasks.forms import TaskToken
from dovetail.ports import Call, Caller
from dovetail.protocol.methods import METHODS
from dovetail.protocol.tasks import DetailedTask, TaskStatusParams
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import BY_NAME

from .serving import ANN, BOB, KEYS, headers_of, recorded, served
from .test_tasks import CORE, EXT, LIMITS, OPTIONS, gateway_of, make_server, new_task, scripted

COUNTING = """
import json, sys

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def reply(message, **result):
    send(id=message["id"], result=result)

tasks = {"requests": {"tools": {"call": {}}}}
related = {"io.modelcontextprotocol/related-task": {"taskId": "1"}}
name, waiting = "", None
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    state = {"taskId": "1", "status": "working", "createdAt": "now", "lastUpdatedAt": "now",
             "ttl": 60000, "statusMessage": "for " + name}
    if method == "initialize":
        reply(message, protocolVersion="2025-11-25", capabilities={"tools": {}, "tasks": tasks},
              serverInfo={"name": "counting", "version": "1"})
    elif method == "tools/list":
        listed = {"inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
        reply(message, tools=[{"name": name, **listed} for name in ("work", "ask")])
    elif method == "tools/call" and message["params"]["name"] == "work":
        name = message["params"]["arguments"]["name"]
        reply(message, task={**state, "statusMessage": "for " + name})
    elif method == "tasks/get":
        reply(message, **state)
    elif method in ("tasks/result", "tools/call"):
        waiting = message
        schema = {"type": "object", "properties": {"value": {"type": "string"}}}
        send(id="question", method="elicitation/create", params={
            "_meta": related, "message": "for " + name, "requestedSchema": schema})
    elif message.get("id") == "question":
        text = json.dumps(message.get("result", message.get("error")))
        reply(waiting, content=[{"type": "text", "text": text}])
    elif method and "id" in message:
        reply(message)
"""


async def test_tasks_of_two_processes_with_the_same_id_are_kept_apart(tmp_path: Path) -> None:
    """Each caller has a process of its own, and both processes count their tasks from 1."""
    script = tmp_path / "counting.py"
    script.write_text(COUNTING)
    entry = {"command": sys.executable, "args": [str(script)]}
    asked: dict[str, list[str]] = {"ann": [], "bob": []}

    async with served({"mcpServers": {"up": entry}}, auth=KEYS, **OPTIONS) as (_, url):

        def connect(name: str, key: str) -> Client:
            def answer(request: Any) -> Any:
                asked[name].append(request.message)
                return {"value": f"from {name}"}

            return Client(url, revision=CORE, headers=headers_of(key), on_elicit=answer)

        async with connect("ann", ANN) as ann, connect("bob", BOB) as bob:
            first = await ann.start_tool("up__work", {"name": "ann"})
            second = await bob.start_tool("up__work", {"name": "bob"})
            assert (await first.status()).message == "for ann"
            assert (await second.status()).message == "for bob"
            texts = [(await one.result()).text for one in (first, second)]
    assert ["from ann" in texts[0], "from bob" in texts[1]] == [True, True]
    assert asked == {"ann": ["for ann"], "bob": ["for bob"]}


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("caller", [CORE, EXT])
async def test_a_question_of_a_task_does_not_reach_a_caller_who_did_not_start_it(
    tmp_path: Path, caller: str, started: bool
) -> None:
    """All callers share a connection. The server asks something about the task of ann, or about one
    of an earlier run, while it answers a call of bob."""
    script = tmp_path / "counting.py"
    script.write_text(COUNTING)
    settings = {"share": "all", "capabilities": ["elicitation"]}
    entry = {"command": sys.executable, "args": [str(script)], "dovetail": settings}
    seen: list[Any] = []

    def answer(request: Any) -> Any:
        seen.append(request.message)
        return {"value": "x"}

    async with served({"mcpServers": {"up": entry}}, auth=KEYS, **OPTIONS) as (_, url):
        ann = Client(url, revision=CORE, headers=headers_of(ANN))
        bob = Client(url, revision=caller, headers=headers_of(BOB), on_elicit=answer, tasks=False)
        async with ann, bob:
            if started:
                await ann.start_tool("up__work", {"name": "ann"})
            result = await bob.call_tool("up__ask", {})
    assert seen == []
    assert "is not known" in result.text


async def test_what_is_remembered_of_a_task_is_small() -> None:
    """A server may write as much as it likes into a task, as often as it likes."""
    long = "x" * 1_000_000

    def answer(call: Call) -> dict[str, Any]:
        times = {"createdAt": long, "lastUpdatedAt": long}
        return new_task(CORE, **times, statusMessage=long)

    gateway = Gateway(scripted(CORE, answer), **OPTIONS)
    async with gateway.lifespan(), Client(gateway, revision=CORE) as client:
        await client.start_tool("work")
        known = gateway.tasks._context.known
        (task,) = known._all.values()
        server = gateway.upstreams.servers["server"]

        def size() -> int:
            return len(repr(task.state))

        assert size() < 5000
        result = await client.request("tasks/list", {})
        assert len(result.tasks) == 1
        assert size() < 5000
        params = TaskStatusParams(
            task_id="1",
            status="working",
            created_at=long,
            last_updated_at=long,
            ttl=None,
            status_message=long,
        )
        gateway.tasks.notifications.on_notification(server, server.client, params)
        assert size() < 5000


async def test_the_arguments_of_a_call_are_not_kept_as_long_as_its_task_runs() -> None:
    async with gateway_of(CORE) as (gateway, connect), connect(EXT) as ann:
        await ann.start_tool("up__work_long")
        (task,) = gateway.tasks._context.known._all.values()
        held = task.asks
        assert held is not None and not isinstance(held, Call)
        assert not bytes(held.call.raw_params)
        assert not bytes(held.request.raw_params)


async def test_the_gateway_does_not_wait_for_tasks_that_it_has_forgotten() -> None:
    """A caller may start any number of tasks that never end."""
    limits = replace(LIMITS, tasks_each=2)
    async with gateway_of(CORE, limits=limits) as (gateway, connect), connect(EXT) as ann:
        for _ in range(6):
            await ann.start_tool("up__work_long")
        background = gateway.tasks._context.background
        while len(background) > 2:
            await asyncio.sleep(0.02)
        assert len(gateway.tasks._context.known) == 2


async def test_many_notifications_cause_few_requests() -> None:
    async with recorded(make_server(CORE)) as (up, recorder):
        source = {"mcpServers": {"up": {"url": up}}}
        async with served(source, auth=KEYS, **OPTIONS) as (gateway, url):
            async with Client(url, revision=EXT, headers=headers_of(ANN)) as ann:
                task = await ann.start_tool("up__work_long")
                listening = asyncio.ensure_future(ann.remote_tasks.listen([task.id]))
                notifications = gateway.tasks.notifications
                while task.id not in notifications._listened:
                    await asyncio.sleep(0.02)
                server, context = gateway.upstreams.servers["up"], gateway.tasks._context
                (known,) = context.known._all.values()
                before, running = len(recorder.requests), len(context.background)
                params = TaskStatusParams(
                    task_id=known.token.id,
                    status="input_required",
                    created_at="",
                    last_updated_at="",
                    ttl=None,
                )
                for _ in range(1000):
                    notifications.on_notification(server, server.client, params)
                assert len(context.background) <= running + 1
                while known.is_announcing or known.has_changed:
                    await asyncio.sleep(0.02)
                assert len(recorder.requests) - before < 10
                listening.cancel()
                await asyncio.wait([listening])


async def test_a_server_that_does_not_answer_does_not_delay_the_list_of_tasks() -> None:
    async def never(call: Call, call_next: Any) -> Any:
        if call.name == "tasks/get":
            await asyncio.Event().wait()
        return await call_next(call)

    silent = make_server(CORE, middleware=[never])
    async with recorded(silent) as (one, _), recorded(make_server(CORE)) as (two, _):
        source = {"mcpServers": {"one": {"url": one}, "two": {"url": two}}}
        async with served(source, auth=KEYS, **OPTIONS) as (gateway, url):
            async with Client(url, revision=CORE, headers=headers_of(ANN)) as ann:
                for name in ("one", "two"):
                    await ann.start_tool(f"{name}__work_long")
                # Only now, because the servers may take longer to start.
                gateway.tasks._context.limits = replace(LIMITS, catalog_wait=1)
                async with asyncio.timeout(30):  # a request may take twice as long
                    listed = await ann.request("tasks/list", {})
    assert [task.status for task in listed.tasks] == ["working", "working"]


async def test_callers_without_authentication_are_counted_by_address() -> None:
    limits = replace(LIMITS, tasks_each=2)
    gateway = Gateway(Server("up"), **{**OPTIONS, "limits": limits})
    context, server = gateway.tasks._context, gateway.upstreams.servers["server"]
    state = DetailedTask(
        task_id="x", status="working", created_at="", last_updated_at="", ttl_ms=None
    )

    def start(id: str, address: str) -> None:
        caller = Caller(BY_NAME[EXT], address=address)
        call = Call(1, METHODS["tools/call"], CallToolParams(name="x"), caller, None)
        token = TaskToken("server", "", id, "", "work", "", None)
        context.remember(server, call, token, id, state)

    start("of the victim", "203.0.113.1")
    for number in range(10):
        start(f"{number}", "203.0.113.2")
    assert context.find(server, "", "of the victim") is not None
    assert len(context.known) == 3


@pytest.mark.parametrize("id", ["a\r\nX-Evil: 1\r\n\r\n", "\u202e\x1b[2K", "ä" * 1024])
@pytest.mark.parametrize("upstream", [CORE, EXT])
@pytest.mark.parametrize("caller", [CORE, EXT])
async def test_an_id_that_would_end_a_header_is_only_an_id(
    upstream: str, caller: str, id: str
) -> None:
    """In the stateless era, the id of a task is also sent in a header, in both directions."""
    async with recorded(scripted(upstream, lambda _: new_task(upstream, id))) as (up, recorder):
        source = {"mcpServers": {"up": {"url": up}}}
        async with served(source, auth=KEYS, **OPTIONS) as (_, url):
            async with Client(url, revision=caller, headers=headers_of(ANN)) as ann:
                task = await ann.start_tool("up__work")
                assert task.id.isascii()
                assert task.id.isprintable()
                assert (await task.status()).status == "working"
    assert not any("x-evil" in one for one in recorder.requests)
