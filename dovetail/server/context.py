"""What a handler knows of the call it answers, and may do while it does.

Ask for it by annotation: `async def forecast(city: str, ctx: Context)`. The name of the parameter
is free and the model never sees it. `ctx.info(…)` and `ctx.progress(…)` send at once and may be
called from worker threads; awaiting what they return waits for a client that reads slowly.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any

from ..jsonrpc.messages import Id
from ..ports import Call, Principal
from ..protocol.base import Implementation
from ..protocol.content import ResourceContents
from ..protocol.lifecycle import ClientCapabilities, ProgressParams
from ..protocol.utilities import SEVERITY, Level, LogParams
from .questions import Questions
from .unawaited import unawaited


class Room:
    """Awaits room in the way out; need not be awaited."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, None]:
        return self._call.connection.drain().__await__()  # type: ignore[no-any-return]


class Context(Questions):
    """One call, as its handler sees it."""

    __slots__ = ("_call", "_server")

    def __init__(self, call: Call, server: Any) -> None:
        self._call = call
        self._server = server

    # who and what

    @property
    def request_id(self) -> Id:
        """The id of the request."""
        return self._call.id

    @property
    def revision(self) -> str:
        """The revision of the protocol that the client speaks."""
        return self._call.caller.revision.name

    @property
    def client(self) -> Implementation | None:
        """The client's name and version, as it says itself."""
        return self._call.caller.info

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client says that it can do."""
        return self._call.caller.capabilities

    @property
    def shows_apps(self) -> bool:
        """Whether the client shows the views of tools; where it does not, text is all that a user
        gets."""
        from ..extensions.apps.settings import shows

        return shows(self._call.caller.capabilities)

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request; empty on other transports."""
        return self._call.connection.headers  # type: ignore[no-any-return]

    @property
    def user(self) -> Principal | None:
        """Who is calling, where the transport authenticates."""
        return self._call.principal or self._call.caller.principal

    @property
    def state(self) -> Any:
        """What the server's lifespan gave."""
        return self._call.caller.state

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more; worth asking in a long loop of a plain
        function."""
        return self._call.cancelled or self._call.late

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._call.params.meta or {}

    # what it may tell

    def log(self, level: Level, data: Any, logger: str | None = None) -> Room:
        """Send a log message to the client, if it wants this level."""
        wanted = self._call.caller.log_level
        if wanted is not None and SEVERITY[level] >= wanted:
            limiter = self._server.limiter
            dropped = 0 if limiter is None else limiter.log(self._call)
            if dropped:
                lost = f"{dropped} log messages were dropped here: they were too many"
                self._emit(
                    "notifications/message", LogParams(level=level, data=lost, logger="dovetail")
                )
            if dropped is not None:
                self._emit(
                    "notifications/message", LogParams(level=level, data=data, logger=logger)
                )
        return Room(self._call)

    def debug(self, data: Any, logger: str | None = None) -> Room:
        """Log in detail."""
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> Room:
        """Log what is going on."""
        return self.log("info", data, logger)

    def notice(self, data: Any, logger: str | None = None) -> Room:
        """Log what is normal but worth a look."""
        return self.log("notice", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> Room:
        """Log what may become a problem."""
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> Room:
        """Log what went wrong."""
        return self.log("error", data, logger)

    def critical(self, data: Any, logger: str | None = None) -> Room:
        """Log that a part failed."""
        return self.log("critical", data, logger)

    def alert(self, data: Any, logger: str | None = None) -> Room:
        """Log that somebody must act now."""
        return self.log("alert", data, logger)

    def emergency(self, data: Any, logger: str | None = None) -> Room:
        """Log that nothing works any more."""
        return self.log("emergency", data, logger)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> Room:
        """Tell how far the work has come, if the client asked to be told."""
        if self._call.progress is not None:
            params = ProgressParams(progress_token=0, progress=done, total=total, message=message)
            self._on_loop(self._progressed, params)
        return Room(self._call)

    report_progress = progress

    async def detach(self) -> None:
        """From here on, let the client go: the call is answered with a task, and goes on as one.
        What is asked before is asked while the client waits. Nothing happens where this is no call
        that could be a task, or is one already."""
        if self._call.detach is not None:
            self._call = await self._call.detach(self._call)

    def notify_resource_updated(self, uri: str) -> Room:
        """Tell all who subscribed to this resource that it changed."""
        self._server.notify_resource_updated(uri)
        return Room(self._call)

    def close_stream(self) -> None:
        """Let the client go for now, in the middle of the call: it comes back for the rest by
        itself. Saves a connection during a long wait. Only HTTP in the handshake era has this;
        elsewhere nothing happens."""
        self._on_loop(self._call.connection.close_stream, self._call)

    @unawaited
    async def read_resource(self, uri: str) -> list[ResourceContents]:
        """Read a resource of this very server."""
        contents: list[ResourceContents] = await self._server.read(uri, self._call)
        return contents

    def _progressed(self, params: ProgressParams) -> None:
        if not self._call.over:
            self._call.progress.update(params)

    def _emit(self, method: str, params: Any) -> None:
        self._on_loop(self._call.connection.emit, self._call, method, params)

    def _on_loop(self, function: Callable[..., None], *args: Any) -> None:
        import asyncio  # loaded long since; kept out of the import of Server

        loop = self._call.connection.loop
        if asyncio._get_running_loop() is loop:
            function(*args)
        else:
            try:
                loop.call_soon_threadsafe(function, *args)
            except RuntimeError:
                pass  # the loop is closed: nobody is left to be told
