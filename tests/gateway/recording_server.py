"""A server that records everything that it receives: each message, and the headers with which it
came. Tests start it as a program, one process per kind of upstream server:

    python -m tests.gateway.recording_server TRANSPORT REVISION RECORD [PORT]

Each line of the file RECORD is a JSON object with the `pid` of the process and either a `message`
with its `headers`, or an `event`: of a tool, or the method of an HTTP request. Over a network, the
program prints its address, and runs until its stdin is closed. SIGUSR1 adds a tool, and SIGUSR2
updates the resource `note://one`. As long as the file RECORD.down exists, a new process does not
answer.
"""

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dovetail import Context, Limits, NotFound, ProtocolError, Server, ToolAnnotations, ToolError
from dovetail.connection.input_requests import QUESTIONS
from dovetail.ports import Call, Channel, Incoming, OnClose, Receive
from dovetail.protocol import RawObject, ToolResult
from dovetail.transports.stdio import StdioChannel
from tests.behaviour.web import App, first_era_only, on_a_port

NEW = Raw(b'{"n":9007199254740993,"digits":123456789012345678901234567890,"price":1.10,"a":[{}]}')
"""A value that only a copy of its bytes preserves."""
QUESTION = {
    "elicitation/create": {
        "message": "Which size?",
        "requestedSchema": {"type": "object", "properties": {}},
    },
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}],
        "maxTokens": 10,
    },
    "roots/list": {},
}
encode = msgspec.json.encode


class Recorder:
    """Writes records to a file that several processes share."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **record: Any) -> None:
        os.write(self._file, encode({"pid": os.getpid(), **record}) + b"\n")


class RecordedChannel:
    """A channel that records what it receives."""

    def __init__(self, channel: Channel, recorder: Recorder) -> None:
        self._channel, self._recorder = channel, recorder

    def start(self, receive: Receive, ended: OnClose) -> None:
        def record(data: Incoming) -> None:
            if isinstance(data, bytes):
                self._recorder.write(message=Raw(data), headers={})
            receive(data)

        self._channel.start(record, ended)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def recorded_app(app: App, recorder: Recorder) -> App:
    """An ASGI application that records what it receives."""

    async def recording(scope: Any, receive: Any, send: Any) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        if scope["type"] in ("http", "websocket"):
            recorder.write(event=scope.get("method", "connection"), headers=headers)
        body = bytearray()

        async def record() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                body.extend(message.get("body", b""))
                if body and not message.get("more_body"):
                    recorder.write(message=Raw(bytes(body)), headers=headers)
            elif message["type"] == "websocket.receive":
                data = message.get("text") or message["bytes"]
                data = data.encode() if isinstance(data, str) else data
                recorder.write(message=Raw(data), headers=headers)
            return message

        await app(scope, record, send)

    return recording


class Point(Struct):
    x: int
    y: int


class Size(Struct):
    size: str


def build(revision: str, recorder: Recorder) -> Server:
    """Return the server."""

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, grow)
        loop.add_signal_handler(signal.SIGUSR2, server.notify_resource_updated, "note://one")
        yield

    async def answer_raw(call: Call, call_next: Any) -> Any:
        """Answer two tools by hand: one with unknown fields, and one that asks whatever its client
        declared."""
        name = getattr(call.params, "name", None) if call.name == "tools/call" else None
        if name == "raw":
            fields = {
                "content": Raw(b'[{"type":"text","text":"done","x-new":%b}]' % bytes(NEW)),
                "structuredContent": NEW,
                "x-new": NEW,
            }
            return RawObject(ToolResult, fields)
        if name == "rude":
            return await ask_rudely(call)
        return await call_next(call)

    server = Server(
        "recording",
        version="1",
        instructions="Use it with care.",
        revisions=[revision],
        lifespan=lifespan,
        middleware=[answer_raw],
        limits=Limits(progress_interval=0),
        rates=None,
    )

    added = itertools.count()

    def grow() -> None:
        server.add_tool(add, name=f"added_{next(added)}")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def raw(n: int = 0) -> str:
        raise AssertionError("answered by the middleware")

    @server.tool
    async def rude(method: str) -> str:
        raise AssertionError("answered by the middleware")

    @server.tool
    def point(x: int, y: int) -> Point:
        return Point(x, y)

    @server.tool
    async def fail(kind: str) -> str:
        if kind == "tool":
            raise ToolError("as it is")
        raise ProtocolError(1234, "closed on Sundays", {"open": "Monday"})

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        for step in range(1, count + 1):
            await ctx.progress(step, count, f"step {step}")
            await asyncio.sleep(0)
        return "done"

    @server.tool
    async def talk(ctx: Context) -> str:
        for level in ("debug", "info", "error"):
            await ctx.log(level, f"a {level}", logger="talker")  # type: ignore[arg-type]
        return "said"

    @server.tool
    async def wait() -> str:
        recorder.write(event="waiting")
        try:
            await asyncio.Event().wait()
        finally:
            recorder.write(event="cancelled")
        return "never"

    @server.tool
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)
        return f"ordered {answer.data.size}" if answer.data else answer.action

    @server.tool
    async def visit(ctx: Context) -> str:
        answer = await ctx.elicit_url("Please sign in.", "https://example.com/sign-in", id="visit")
        ctx.elicitation_complete("visit")
        return answer.action

    @server.tool
    async def ask_model(ctx: Context, text: str) -> str:
        return f"the model says {(await ctx.sample(text, max_tokens=10)).text}"

    @server.tool
    async def show_roots(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    @server.tool(task="optional")
    async def work(ctx: Context, text: str = "worked", fail: bool = False) -> str:
        recorder.write(event="working")
        await ctx.progress(1, 2, "half of it")
        if fail:
            raise ToolError(text)
        return text

    @server.tool(task="optional")
    async def work_long() -> str:
        return await wait()

    @server.tool(task="optional")
    async def work_asking(ctx: Context) -> str:
        return f"the model says {(await ctx.sample('Who?', max_tokens=10)).text}"

    @server.tool(task="required")
    async def work_alone(ctx: Context) -> str:
        return f"alone: {(await ctx.sample('Who?', max_tokens=10)).text}"

    @server.tool
    async def die(status: int) -> str:
        recorder.write(event="dying")
        os._exit(status)

    @server.tool
    async def hold(number: int) -> int:
        """Return the number, but in the first process only after a very long time."""
        if not os.path.exists(f"{recorder.path}.killed"):
            await asyncio.sleep(600)
        return number

    def survive() -> str:
        """Die the first time, and survive the second."""
        if not os.path.exists(f"{recorder.path}.died"):
            open(f"{recorder.path}.died", "w").close()
            os._exit(4)
        return "alive"

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def die_once() -> str:
        return survive()

    @server.resource("mortal://once")
    async def mortal() -> str:
        return survive()

    @server.tool
    async def ask_often(ctx: Context, count: int) -> str:
        for number in range(count):
            await ctx.sample(f"question {number}", max_tokens=10)
        return "answered"

    @server.resource("note://one")
    def one() -> str:
        return "text"

    @server.resource("item://{number}")
    async def item(number: int) -> str:
        raise NotFound(f"no item {number}")

    @server.prompt
    def hello(name: str) -> str:
        return f"hello {name}"

    hello.complete("name", ["Ada", "Alan", "Grace"])
    return server


async def ask_rudely(call: Call) -> Any:
    """Ask a question without a look at what the client declared."""
    method = msgspec.json.decode(call.raw_params)["arguments"]["method"]
    params = {"method": method, "params": QUESTION[method]}
    if call.revision.stateless:
        fields = {"resultType": Raw(b'"input_required"'), "requestState": Raw(b'"state"')}
        return RawObject(ToolResult, {**fields, "inputRequests": Raw(encode({"q": params}))})
    row = QUESTIONS[method]
    question = RawObject.parse(row.params, encode(QUESTION[method]))
    try:
        answer = await call.connection.ask(call, row, question, None)
    except ToolError as problem:
        return RawObject(ToolResult, {"content": text(f"refused: {problem}")})
    return RawObject(ToolResult, {"content": text(f"answered: {bytes(answer).decode()}")})


def text(value: str) -> Raw:
    return Raw(encode([{"type": "text", "text": value}]))


async def serve_http(server: Server, recorder: Recorder, port: int) -> None:
    app = server.asgi(path="/mcp", sse=True, websocket=True)
    async with on_a_port(recorded_app(first_era_only(app), recorder), port) as address:
        print(address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main(transport: str, revision: str, path: str, port: str = "0") -> None:
    while os.path.exists(f"{path}.down"):
        time.sleep(0.02)
    recorder = Recorder(path)
    server = build(revision, recorder)
    if transport == "stdio":
        channel = RecordedChannel(StdioChannel(server.limits), recorder)
        asyncio.run(server.serve(channel))  # type: ignore[arg-type]
    else:
        asyncio.run(serve_http(server, recorder, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
