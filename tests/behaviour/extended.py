"""A server with an extension of its own, and a client's part of it. Run as a script it serves on
stdio.

Its methods begin with `greetings/`, which is how the oracle (`tests/spec.py`) knows that they are
in no schema.
"""

from typing import Any

from dovetail import Context, Server, TextContent, ToolResult
from dovetail.extensions import (
    EmptyResult,
    Extension,
    Method,
    Params,
    Result,
    ResultKind,
    has_declared,
    notify,
)

ID = "com.example/greetings"
LATE = "com.example/late"


class SayParams(Params, kw_only=True):
    name: str
    spoken_loud: bool = False


class SayResult(Result, kw_only=True):
    text: str


class Heard(Params, kw_only=True):
    text: str


class Greeting(Result, kw_only=True):
    """A result of another kind: `finish` makes the tool's result of it."""

    greeting: str


SAY = Method("greetings/say", "client", SayParams, SayResult)
HEARD = Method("notifications/greetings/heard", "server", Heard)
TOLD = Method("notifications/greetings/told", "client", Heard)
RECALL = Method("greetings/recall", "client", Params, SayResult)
ANNOUNCE = Method("greetings/announce", "client", Heard, EmptyResult)
FREE = Method("greetings/free", "client", Params, EmptyResult)
LATER = Method("greetings/later", "client", Params, EmptyResult)


def build(**options: Any) -> Server:
    """The server."""
    told: list[str] = []

    async def say(call: Any) -> SayResult:
        text = f"hello {call.params.name}"
        notify(call, HEARD.name, Heard(text=text))
        return SayResult(text=text.upper() if call.params.spoken_loud else text)

    async def hear(call: Any) -> None:
        told.append(f"{call.params.text} in {call.revision.name}")

    async def recall(call: Any) -> SayResult:
        return SayResult(text=", ".join(told))

    async def announce(call: Any) -> EmptyResult:
        for word in call.params.text.split():
            server.notify(HEARD.name, Heard(text=word))
        return EmptyResult()

    async def done(call: Any) -> EmptyResult:
        return EmptyResult()

    async def greet(call: Any, next: Any) -> Any:
        result = await next(call)
        notify(call, HEARD.name, Heard(text="somebody calls"))
        if call.params.name == "greet" and call.revision.stateless and has_declared(call, ID):
            return Greeting(result_type="greeting", greeting=result.structured_content["result"])
        return result

    greetings = Extension(
        id=ID,
        settings={"languages": ["en"]},
        methods=[SAY, HEARD, TOLD, RECALL, ANNOUNCE],
        handlers={SAY.name: say, TOLD.name: hear, RECALL.name: recall, ANNOUNCE.name: announce},
        around={"tools/call": greet},
    )
    free = Extension(
        id="com.example/free", methods=[FREE], handlers={FREE.name: done}, mutual=False
    )
    late = Extension(id=LATE, methods=[LATER], handlers={LATER.name: done}, handshake=False)
    server = Server("extended", extensions=[greetings, free, late], **options)

    @server.tool
    async def greet_(name: str) -> str:
        return f"good day, {name}"

    @server.tool("greet")
    async def greet_too(name: str, ctx: Context) -> str:
        return f"good day, {name}"

    return server


def part(heard: list[str] | None = None, **more: Any) -> list[Extension]:
    """The client's part."""

    async def hear(call: Any) -> None:
        if heard is not None:
            heard.append(call.params.text)

    async def finish(client: Any, params: Any, result: Greeting) -> Any:
        said = await client.request(SAY.name, {"name": result.greeting})
        return ToolResult(content=[TextContent(said.text)])

    greetings = Extension(
        id=ID,
        methods=[SAY, HEARD, TOLD, RECALL, ANNOUNCE],
        handlers={HEARD.name: hear},
        kinds={"greeting": ResultKind(Greeting, finish)},
        **more,
    )
    free = Extension(id="com.example/free", methods=[FREE])
    return [greetings, free, Extension(id=LATE, methods=[LATER], handshake=False)]


if __name__ == "__main__":
    build().run()
