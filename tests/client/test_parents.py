"""Which request of a client a server's question or log message belongs to."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, ElicitRequest, LogEntry, SampleRequest, Server
from dovetail.errors import TimedOut
from dovetail.transports.http.client import channel as http
from tests.behaviour.web import first_era_only, on_a_port
from tests.transports.http.scripted import Asked, Scripted, old

HANDSHAKE = ["2025-03-26", "2025-06-18", "2025-11-25"]
STATELESS = "2026-07-28"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
DONE = {"content": [{"type": "text", "text": "done"}]}

SERVER = '''
import asyncio
from msgspec import Struct
from dovetail import Context, Server

server = Server("asks", version="1")
arrived: list[str] = []
both = asyncio.Event()

class Name(Struct):
    name: str = "Ann"

@server.tool
async def ask(who: str, how: str, ctx: Context) -> str:
    """Ask when two calls are running."""
    if who not in arrived:
        arrived.append(who)
    if len(arrived) == 2:
        both.set()
    await both.wait()
    await ctx.info(who)
    if how == "elicit":
        await ctx.elicit(who, Name)
    elif how == "sample":
        await ctx.sample(who)
    else:
        await ctx.list_roots()
    await ctx.info(who)
    return who

if __name__ == "__main__":
    server.run()
'''


def make_server() -> Server:
    scope: dict[str, Any] = {"__name__": "asks"}
    exec(compile(SERVER, "asks.py", "exec"), scope)
    server = scope["server"]
    assert isinstance(server, Server)
    return server


class Seen:
    """What the callbacks of a client see: the text of each question or log message, with its
    parent."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, Any]] = []
        self.logs: list[tuple[str, Any]] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        def on_elicit(request: ElicitRequest) -> bool:
            self.questions.append((request.message, request.parent))
            return True

        def on_sample(request: SampleRequest) -> str:
            self.questions.append((request.messages[0].text, request.parent))
            return "text"

        def on_ask(request: Any) -> Any:
            if request.method == "roots/list":
                self.questions.append(("roots", request.parent))
            return request

        def on_log(entry: LogEntry) -> None:
            self.logs.append((entry.data, entry.parent))

        return {
            "on_elicit": on_elicit, "on_sample": on_sample, "on_ask": on_ask, "on_log": on_log,
            "roots": [],
        }  # fmt: skip

    async def two_calls(self, client: Client, how: str = "elicit") -> None:
        await asyncio.gather(
            *(
                client.request(
                    "tools/call",
                    {"name": "ask", "arguments": {"who": who, "how": how}},
                    parent=f"parent of {who}",
                )
                for who in "AB"
            )
        )


@asynccontextmanager
async def over(transport: str, folder: Path, **options: Any) -> AsyncIterator[Client]:
    """A client of the server, over a real transport."""
    if transport == "stdio":
        file = folder / "asks.py"
        file.write_text(SERVER, encoding="utf-8")
        async with Client([sys.executable, str(file)], **options) as client:
            yield client
        return
    app = make_server().asgi(path="/mcp", sse=True, websocket=True)
    async with on_a_port(first_era_only(app)) as address:
        url = {"http": f"http://{address}/mcp", "websocket": f"ws://{address}/ws"}
        async with Client(url.get(transport, f"http://{address}/sse"), **options) as client:
            yield client


OWN = {("A", "parent of A"), ("B", "parent of B")}
UNKNOWN = {("A", None), ("B", None)}


@pytest.mark.parametrize("how", ["elicit", "sample", "roots"])
@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_over_http_a_question_belongs_to_the_request_on_whose_stream_it_came(
    revision: str, how: str, tmp_path: Path
) -> None:
    if how == "elicit" and revision == "2025-03-26":
        pytest.skip("this revision has no elicitation")
    seen = Seen()
    async with over("http", tmp_path, revision=revision, **seen.callbacks) as client:
        await seen.two_calls(client, how)
    named = {("roots", parent) for _, parent in OWN} if how == "roots" else OWN
    assert set(seen.questions) == named
    assert len(seen.questions) == 2
    assert set(seen.logs) == OWN
    assert len(seen.logs) == 4


@pytest.mark.parametrize("transport", ["http", "websocket", "stdio"])
async def test_in_the_stateless_era_a_question_belongs_to_the_request_that_it_answers(
    transport: str, tmp_path: Path
) -> None:
    seen = Seen()
    async with over(transport, tmp_path, revision=STATELESS, **seen.callbacks) as client:
        await seen.two_calls(client)
    assert set(seen.questions) == OWN
    assert {(text, parent) for text, parent in seen.logs} == (
        OWN if transport == "http" else UNKNOWN
    ), "other transports have no stream for each request"


@pytest.mark.parametrize("transport", ["websocket", "stdio", "sse"])
async def test_where_the_transport_cannot_tell_there_is_no_parent(
    transport: str, tmp_path: Path
) -> None:
    seen = Seen()
    async with over(transport, tmp_path, revision="handshake", **seen.callbacks) as client:
        how = "sample" if client.revision == "2024-11-05" else "elicit"
        await seen.two_calls(client, how)
    assert set(seen.questions) == UNKNOWN
    assert set(seen.logs) == UNKNOWN


def question(id: int, text: str) -> dict[str, Any]:
    params = {"message": text, "requestedSchema": FORM}
    return {"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}


def message(text: str) -> dict[str, Any]:
    params = {"level": "info", "data": text}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


async def test_a_stream_that_was_resumed_still_belongs_to_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "RETRY_SECONDS", 0.01)

    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.stream()
            await asked.event(message("before"), id=1)
            await asked.cut()
        elif asked.rpc == "GET" and asked.headers.get("last-event-id") == "1":
            await asked.stream()
            await asked.event(question(7, "resumed"), id=2)
            await server.until("a reply")
            await asked.event(server.heard("tools/call")[0].reply(DONE), id=3)
            await asked.hung_up.wait()
        elif asked.rpc == "a reply":
            await asked.answer(202)
        elif asked.rpc == "GET":
            await asked.answer(405)
        else:
            await old(asked)

    seen = Seen()
    async with (
        Scripted(script) as server,
        Client(server.url, revision="handshake", **seen.callbacks) as client,
    ):
        await client.request("tools/call", {"name": "x"}, parent="mine")
    assert seen.questions == [("resumed", "mine")]
    assert seen.logs == [("before", "mine")]


async def test_what_comes_on_the_notification_stream_belongs_to_no_request() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "GET":
            await asked.stream()
            await server.until("tools/call")
            await asked.event(message("elsewhere"))
            await asked.event(question(7, "elsewhere"))
            await asked.hung_up.wait()
        elif asked.rpc == "tools/call":
            await asked.stream()
            await server.until("a reply")
            await asked.event(asked.reply(DONE))
            await asked.end()
        elif asked.rpc == "a reply":
            await asked.answer(202)
        else:
            await old(asked)

    seen = Seen()
    async with (
        Scripted(script) as server,
        Client(server.url, revision="handshake", **seen.callbacks) as client,
    ):
        await client.request("tools/call", {"name": "x"}, parent="mine")
    assert seen.questions == [("elsewhere", None)]
    assert seen.logs == [("elsewhere", None)]


async def test_while_a_question_is_open_only_the_request_that_it_belongs_to_has_more_time() -> None:
    async def script(asked: Asked) -> None:
        if asked.rpc == "tools/call":
            await asked.stream()
            if asked.message["params"]["name"] == "asks":
                await asked.event(question(7, "?"))
                await server.until("a reply")
                await asked.event(asked.reply(DONE))
                await asked.end()
            else:
                await asked.hung_up.wait()
        elif asked.rpc == "a reply" or asked.rpc == "notifications/cancelled":
            await asked.answer(202)
        else:
            await old(asked)

    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def think(request: ElicitRequest) -> bool:
        is_asked.set()
        await may_answer.wait()
        return True

    async with (
        Scripted(script) as server,
        Client(server.url, revision="handshake", on_elicit=think) as client,
    ):
        silent, asks = (
            asyncio.create_task(client.request("tools/call", {"name": name}, timeout=1))
            for name in ("silent", "asks")
        )
        await is_asked.wait()
        with pytest.raises(TimedOut):
            await silent
        await asyncio.sleep(0.2)
        assert not asks.done(), "although it had no more time than the other"
        may_answer.set()
        assert (await asks).text == "done"
