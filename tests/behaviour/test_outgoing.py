"""Everything that leaves passes one filter: it can be encoded, is valid UTF-8, is bounded, and
secrets are taken out."""

import functools
import json
from random import Random
from typing import Any

import pytest
from msgspec import Raw

from dovetail import Context, Limits, ProtocolError, Server, ToolError, redact_secrets
from dovetail.connection.encode import MessageEncoder
from dovetail.connection.extension import Extension
from dovetail.jsonrpc.messages import Response
from dovetail.ports import Call, CallHandler
from dovetail.protocol.tools import ListToolsResult, Tool
from dovetail.server.redaction import _apply_rules, is_clean_json
from dovetail.testing import Tape, pair
from tests.behaviour.conftest import Talk

SECRETS = [
    "Authorization: Bearer abcdefghijklmnop",
    "sk-proj-abcdefghijklmnopqrstuvwx",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "postgres://user:hunter22@db/x",
    'password="hunter22"',
    "api_key: hunter22abc",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "pa\N{LATIN SMALL LETTER LONG S}sword=hunter22",
    "pwd=abc",
]
ORDINARY = [
    "the basic idea",
    "a password is needed",
    "https://example.com/a:b",
    "SGVsbG8gd29ybGQhIFRoaXMgaXMgYmFzZTY0IQ==",
]


@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_credential_is_taken_out(text: str) -> None:
    assert "[redacted]" in redact_secrets(text)
    assert "hunter22" not in redact_secrets(text)


PARTS = [
    *SECRETS,
    *ORDINARY,
    *(
        "Bearer",
        "basic ",
        "sk_",
        "rk-",
        "k-",
        "npm_",
        "hf-",
        "xoxb-",
        "glpat-",
        "eyJ",
        ".",
        ":",
        "=",
    ),
    *(
        "abcdefghijklmnopqrst",
        "client_secret",
        "client-secret=",
        "passwd:",
        "Token",
        "secret key: ",
    ),
    *(
        "AIza" + "x" * 35,
        "://",
        "@",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        '"',
        "\\",
        "\n",
        "/",
        "é",
        " ",
    ),
]


def test_the_search_for_signs_misses_nothing_that_the_rules_find() -> None:
    random = Random(7)
    for _ in range(20_000):
        text = "".join(random.choices(PARTS, k=random.randint(1, 4)))
        redacted = _apply_rules(text)
        assert redact_secrets(text) == redacted
        for ensure_ascii in (True, False):
            data = json.dumps({"text": text}, ensure_ascii=ensure_ascii).encode()
            assert redacted == text or not is_clean_json(data)


@pytest.mark.parametrize(
    "data", [rb'"p\u0077d=hunter22"', rb'"postgres:\/\/user:hunter22@db"', '"paſsword=x"'.encode()]
)
def test_a_document_whose_escapes_may_hide_something_is_not_called_clean(data: bytes) -> None:
    assert not is_clean_json(data)


def test_a_document_without_signs_is_clean() -> None:
    assert is_clean_json(rb'{"text":"a \"quoted\" word\n","rows":[1,2]}')


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redact_secrets(text) == text


@pytest.mark.requirement("logging-secrets")
async def test_results_errors_and_logs_are_redacted(in_memory: Talk) -> None:
    server = Server("leaky", redact=redact_secrets)

    @server.tool
    async def leak(how: str, ctx: Context) -> Any:
        ctx.info({"header": "Bearer abcdefghijklmnop"})
        if how == "error":
            raise ValueError("password=hunter22")
        if how == "protocol":
            raise ProtocolError(1, "password=hunter22", {"url": "redis://u:hunter22@h"})
        return {"key": "password=hunter22"}

    logs: list[Any] = []
    async with in_memory(server, on_log=lambda entry: logs.append(entry.data)) as client:
        assert "hunter22" not in str(await client.call_tool("leak", {"how": "result"}))
        with pytest.raises(ToolError):
            await client.call_tool("leak", {"how": "error"})
        with pytest.raises(ProtocolError):
            await client.call_tool("leak", {"how": "protocol"})
    everything = b"".join(data for who, data in in_memory.tape.entries if who == "server")
    assert b"hunter22" not in everything
    assert logs[0] == {"header": "Bearer [redacted]"}


async def test_lists_are_redacted_once_until_they_change(in_memory: Talk) -> None:
    seen: list[str] = []

    def redact(text: str) -> str:
        seen.append(text)
        return text.replace("hunter22", "[redacted]")

    server = Server("leaky", redact=redact)
    server.tool(name="first", description="The password is hunter22.")(lambda: "")
    async with in_memory(server) as client:
        for _ in range(2):
            (first,) = await client.list_tools(fresh=True)
            assert first.description == "The password is [redacted]."
        assert seen.count("The password is hunter22.") == 2  # to look, and to replace
        server.tool(name="second", description="It is still hunter22.")(lambda: "")
        _, second = await client.list_tools(fresh=True)
        assert second.description == "It is still [redacted]."


async def test_a_list_that_replaces_the_own_one_is_redacted(in_memory: Talk) -> None:
    async def replace_list(call: Call, next: CallHandler) -> Any:
        await next(call)
        tool = Tool(name="other", description="password=hunter22", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool])

    other = Extension(id="com.example/other", instead={"tools/list": replace_list})
    server = Server("leaky", redact=redact_secrets, extensions=[other])
    server.tool(name="own")(lambda: "")
    async with in_memory(server) as client:
        (tool,) = await client.list_tools()
        assert tool.description == "password=[redacted]"


def test_both_of_two_equal_keys_are_redacted() -> None:
    encoder = MessageEncoder(1000, redact_secrets)
    raw = Raw(b'{"text":"password=hunter22","text":"fine"}')
    assert b"hunter22" not in encoder.encode(Response(1, raw))


async def test_a_result_that_contains_nothing_to_redact_is_sent_as_it_is(in_memory: Talk) -> None:
    server = Server("clean", redact=redact_secrets)
    value = {"hunter22": ["a", 1, None, {"text": 'with "quotes" and \\ and é'}], "n": 1.5}
    server.tool(name="look")(lambda: value)
    async with in_memory(server) as client:
        assert json.loads((await client.call_tool("look")).text) == value


@pytest.mark.requirement("stdio-utf8")
async def test_a_lone_surrogate_is_replaced_and_nothing_is_lost(in_memory: Talk) -> None:
    server = Server("odd")

    @server.tool
    async def odd(ctx: Context) -> str:
        ctx.info("log \ud800!")
        return "text \udfff!"

    @server.tool
    async def worse() -> None:
        raise ValueError("error \ud800!")

    logs: list[Any] = []
    async with in_memory(server, on_log=lambda entry: logs.append(entry.data)) as client:
        assert (await client.call_tool("odd")).text == "text \ufffd!"
        assert logs == ["log \ufffd!"]
        with pytest.raises(ToolError, match="error \ufffd!"):
            await client.call_tool("worse")


async def test_what_cannot_be_written_is_an_error_that_says_why(in_memory: Talk) -> None:
    server = Server("odd")

    @server.tool
    def thing() -> Any:
        return object()

    @server.tool
    def knot() -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return loop

    async with in_memory(server) as client:
        with pytest.raises((ToolError, ProtocolError), match="object"):
            await client.call_tool("thing")
        with pytest.raises((ToolError, ProtocolError), match=r"deep|itself"):
            await client.call_tool("knot")


async def test_a_result_over_the_limit_is_an_error_with_both_sizes(in_memory: Talk) -> None:
    server = Server("big", limits=Limits(outgoing=1000))

    @server.tool
    async def big() -> str:
        return "x" * 2000

    async with in_memory(server) as client:
        with pytest.raises(ProtocolError, match=r"bytes long; the limit is 1000") as caught:
            await client.call_tool("big")
        assert not -32768 <= caught.value.code <= -32000
        await client.ping()


async def test_a_rule_that_fails_does_not_let_the_secret_out() -> None:
    def broken(text: str) -> str:
        if "hunter" in text:
            raise RuntimeError("oops")
        return text

    server = Server("s", redact=broken)

    @server.tool
    async def secret() -> str:
        return "hunter22"

    tape = Tape()
    async with pair(server, revision="2025-06-18", record=tape) as client:
        with pytest.raises((ProtocolError, ToolError)):
            await client.call_tool("secret")
    assert b"hunter22" not in b"".join(data for who, data in tape.entries if who == "server")


def test_a_rule_that_wraps_redact_secrets_sees_every_message() -> None:
    @functools.wraps(redact_secrets)
    def hide(text: str) -> str:
        return redact_secrets(text).replace("ACME-1234", "[hidden]")

    assert MessageEncoder(1000, hide).encode({"result": "ACME-1234"}) == b'{"result":"[hidden]"}'
