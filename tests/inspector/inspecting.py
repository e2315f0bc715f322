"""An inspector without a browser: its state, its operations, and its application through ASGI."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dovetail import Client
from dovetail.inspector import make_policy
from dovetail.inspector.app import InspectorApp
from dovetail.inspector.events import to_fields
from dovetail.inspector.files import load_files
from dovetail.inspector.login import NO_LOGIN, LoginTarget
from dovetail.inspector.operations import run_operation
from dovetail.inspector.state import InspectorSettings, InspectorState
from dovetail.serve.plain_app import Asgi

TOKEN = "the-token"
HOST = "127.0.0.1:4711"
SECONDS = 20


class Inspecting:
    """An inspector of one target."""

    def __init__(self, state: InspectorState) -> None:
        self.state = state

    async def do(self, name: str, /, **fields: Any) -> Any:
        """Run an operation as the page does, with JSON on both sides."""
        return json.loads(await run_operation(name, self.state, json.dumps(fields).encode()))

    def events(self, *kinds: str, after: int = 0) -> list[dict[str, Any]]:
        """Return the events so far."""
        found: list[dict[str, Any]] = []
        while after < self.state.events.last:
            data, after = self.state.events.read_after(after)
            lines = [line for line in data.decode().split("\n") if line.startswith("data: ")]
            found += [json.loads(line.removeprefix("data: ")) for line in lines]
        return [event for event in found if not kinds or event["kind"] in kinds]

    async def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for an event with these fields, which may have happened already."""
        async with asyncio.timeout(SECONDS):
            while True:
                last = self.state.events.last
                for event in self.events(kind):
                    if all(event.get(name) == value for name, value in fields.items()):
                        return event
                await self.state.events.wait_after(last, SECONDS)

    async def finish(self, call: str) -> dict[str, Any]:
        """Wait for the end of a call."""
        async with asyncio.timeout(SECONDS):
            while True:
                last = self.state.events.last
                record = self.state.calls.records[call]
                if record.status != "running":
                    return to_fields(record)
                await self.state.events.wait_after(last, SECONDS)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and wait for the end."""
        started = await self.do("call", tool=tool, arguments=json.dumps(arguments))
        return await self.finish(started["call"])


@asynccontextmanager
async def inspecting(
    target: Any,
    *,
    wait: bool = True,
    roots: tuple[Path, ...] = (),
    login: LoginTarget | str = NO_LOGIN,
    show_secrets: bool = False,
    **options: Any,
) -> AsyncIterator[Inspecting]:
    """Inspect a target, once its lists have been read."""
    settings = InspectorSettings(
        target="target",
        make_client=lambda **more: Client(target, **{**options, **more}),
        roots=roots,
        login=login,
        show_secrets=show_secrets,
    )
    state = InspectorState(settings)
    state.open()
    found = Inspecting(state)
    try:
        if wait:
            await found.until("lists")
        yield found
    finally:
        await state.close()


class Reply(NamedTuple):
    """The answer to an HTTP request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def page_folder(folder: Path) -> Path:
    """Write the smallest page."""
    (folder / "panels").mkdir(parents=True)
    (folder / "vendor").mkdir()
    (folder / "vendor.json").write_text('[{"saved_as": "lib.mjs"}]')
    (folder / "vendor" / "lib.mjs").write_text("export {}")
    (folder / "panels" / "tools.js").write_text("export {}")
    (folder / "index.html").write_text('<script type="importmap">{"imports": {}}</script>')
    return folder


def make_app(state: InspectorState, folder: Path) -> InspectorApp:
    return InspectorApp(state, make_policy("127.0.0.1", 4711, TOKEN), load_files(folder))


async def request(
    app: Asgi,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    on_chunk: Callable[[bytes], bool] | None = None,
    server: tuple[str, int] = ("127.0.0.1", 4711),
) -> Reply:
    """Send a request through ASGI. `on_chunk` sees each piece of the body; the client disconnects
    when it returns True."""
    leaving = asyncio.Event()
    started: dict[str, Any] = {}
    chunks: list[bytes] = []
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body}
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
            return
        chunks.append(message.get("body", b""))
        if on_chunk is not None and on_chunk(chunks[-1]):
            leaving.set()

    all_headers = {"host": HOST, **(headers or {})}
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "server": server,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
    }
    async with asyncio.timeout(SECONDS):
        await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in started["headers"]}
    return Reply(started["status"], found, b"".join(chunks))


BEARER = {"authorization": f"Bearer {TOKEN}"}
POST = BEARER | {"content-type": "application/json"}
