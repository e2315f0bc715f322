"""A server for the tests of rates and audit, over any transport; on stdio it is a process of its
own, whose settings are the words of its command line: `python -m tests.server.guarded '<rates as
JSON>' <audit file>`."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from dovetail import AuditRecord, Client, Context, Rate, Rates, Server, audit
from dovetail.ports import HttpRequest, HttpResponse, Principal, PublicUrl
from tests.behaviour.web import App, on_a_port

TRANSPORTS = {"memory": None, "stdio": None, "http": "http://{}/mcp", "websocket": "ws://{}/ws"}


def build(rates: dict[str, Any] | None = None, file: Path | None = None, **options: Any) -> Server:
    """The server. `rates` are those of `Rates`, as JSON has them; records go to the file, a line
    each."""
    if rates is not None:
        options["rates"] = msgspec.convert(rates, Rates)
    if file is not None:
        options["middleware"] = [audit(writer(file))]
    server = Server("guarded", version="1", **options)

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    async def ask(times: int, ctx: Context) -> int:
        total = 0
        for number in range(times):
            answer = await ctx.elicit(f"Question {number}?", int)
            total += answer.data or 0
        return total

    @server.tool
    async def fail(secret: str) -> str:
        raise ValueError(f"{secret} is wrong")

    @server.tool
    async def chatter(lines: int, ctx: Context) -> str:
        for number in range(lines):
            ctx.info(number)
        return "done"

    @server.resource("data://{key}")
    def data(key: str) -> str:
        return key

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    greet.complete("name", ["Ada", "Bo"])
    return server


def placed(app: App) -> App:
    """The application, with each request coming from where its `X-From` says, as a proxy that is
    trusted has it."""

    async def told(scope: Any, receive: Any, send: Any) -> None:
        where = dict(scope.get("headers", ())).get(b"x-from")
        await app(
            scope if where is None else {**scope, "client": (where.decode(), 1)}, receive, send
        )

    return told


class Door:
    """A guard that believes whatever name it is told."""

    async def admit(self, request: HttpRequest, site: PublicUrl) -> Principal | HttpResponse:
        return Principal(request.headers["authorization"], client="app", scopes=("look",))

    async def respond(self, request: HttpRequest, site: PublicUrl) -> HttpResponse | None:
        return None

    def challenge(
        self, site: PublicUrl, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        return {}


def writer(file: Path) -> Callable[[AuditRecord], None]:
    def write(record: AuditRecord) -> None:
        with file.open("ab") as out:
            out.write(msgspec.json.encode(record) + b"\n")

    return write


@asynccontextmanager
async def over(
    transport: str,
    revision: str,
    rates: dict[str, Any] | None = None,
    file: Path | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """A client of that server."""
    url = TRANSPORTS[transport]
    if url is not None:
        async with on_a_port(build(rates, file).asgi(path="/mcp", websocket=True)) as address:
            async with Client(url.format(address), revision=revision, **options) as client:
                yield client
        return
    words = ["-m", "tests.server.guarded", json.dumps(rates), str(file or "")]
    target: Any = build(rates, file) if transport == "memory" else [sys.executable, *words]
    async with Client(
        target, revision=revision, cwd=None if transport == "memory" else ROOT, **options
    ) as client:
        yield client


ROOT = Path(__file__).parents[2]
SLOW = {"count": 0.001, "burst": 2}
"""Two, and then none for a thousand seconds."""
assert msgspec.convert(SLOW, Rate).at_once == 2

if __name__ == "__main__":
    build(json.loads(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2] else None).run()
