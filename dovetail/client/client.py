"""The client: one class, every call of the protocol, typed.

It owns its conversation, not the task that opened it: enter it here, close it there. A conversation that breaks is opened
anew in the background, with backoff, and subscriptions are sent again. Lists and reads are simply asked again; a tool call
that may have arrived is not, unless the caller said so or the server is trusted and says that it is safe.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from msgspec import Raw
from msgspec.structs import replace

from .. import __version__, connect
from ..connection.calling import Calling, Silent, wanted
from ..connection.connection import Connection, OnProgress, run_callback
from ..connection.heartbeat import heartbeat
from ..connection.middleware import Middleware, compose
from ..connection.outgoing import Outgoing
from ..errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    DovetailError,
    InvalidRequest,
    ProtocolError,
    TimedOut,
    ToolError,
)
from ..limits import DEFAULT, Limits
from ..ports import Call, Caller
from ..protocol.base import Implementation, Params
from ..protocol.capabilities import ServerCapabilities
from ..protocol.completion import (
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceReference,
)
from ..protocol.content import ResourceContents
from ..protocol.lifecycle import InputRequiredResult
from ..protocol.lists import ListParams
from ..protocol.logging import SEVERITY, Level, LogParams, SetLevelParams
from ..protocol.methods import METHODS
from ..protocol.prompts import GetPromptParams, GetPromptResult, Prompt
from ..protocol.resources import ReadResourceParams, Resource, ResourceTemplate
from ..protocol.tools import CallToolParams, Tool, ToolResult
from ..shapes import Shape
from .callbacks import Callbacks, OnElicit, OnSample, as_root
from .subscriptions import Handle, Subscriptions
from .typed import Typed, typed
from .validation import Validation

if TYPE_CHECKING:
    from .blocking import Blocking

log = logging.getLogger("dovetail.client")

T = TypeVar("T")
_eras: dict[str, bool] = {}
"""Which servers have been found to want the handshake, by their door's key; bounded."""
ANY = Shape(Any)


class Client:
    """A connection to one server."""

    def __init__(
        self,
        target: Any,
        *,
        server: str | None = None,
        revision: str | None = None,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        roots: Iterable[Any] | None = None,
        on_log: Callable[[LogParams], Any] | None = None,
        on_progress: OnProgress | None = None,
        on_stderr: Callable[[str], None] | None = None,
        middleware: Sequence[Middleware] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float | None = None,
        limits: Limits = DEFAULT,
        trusted: bool = False,
        validate: str = "warn",
        experimental: dict[str, Any] | None = None,
        info: Implementation | None = None,
    ) -> None:
        self._limits = limits
        self._timeout = limits.timeout if timeout is None else timeout
        self._door = connect.door(target, server=server, env=env, cwd=cwd, limits=limits, on_stderr=on_stderr)
        self._wanted = wanted(revision)
        self._on_log = on_log
        self._on_progress = on_progress
        self._info = info or Implementation(name="dovetail", version=__version__)
        self._callbacks = Callbacks(on_elicit, on_sample, roots, experimental)
        self._trusted = trusted
        self._validation = Validation(validate, limits)
        self._level: str | None = "debug" if on_log is not None else None
        self._state = "new"
        self._calling: Calling | None = None
        self._opening: asyncio.Task[Calling] | None = None
        self._failures = 0
        self._leaving: set[asyncio.Task[None]] = set()
        self._subscriptions = Subscriptions(self)
        self._pinger: asyncio.Task[None] | None = None
        self._send = compose(middleware, self._innermost) if middleware else None

    # opening and closing

    async def __aenter__(self) -> "Client":
        try:
            await self.connect()
        except BaseException:
            await self.close()  # whoever did not get in does not get out either
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the conversation; `async with` does it for you."""
        if self._state == "closed":
            raise ConnectionClosed("This client was closed; make a new one")
        await self._ready(self._timeout)

    async def close(self) -> None:
        """End the conversation. May be called twice, and from any task."""
        self._become("closed")
        if self._pinger is not None:
            self._pinger.cancel()
        self._subscriptions.end()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        calling, self._calling = self._calling, None
        if calling is not None:
            if "shutdown" in (calling.revision.methods if calling.revision else ()):
                await self._say_goodbye(calling)
            await calling.connection.close()
        if self._leaving:
            await asyncio.wait(self._leaving)

    def blocking(self) -> "Blocking":
        """The same client for code without async: `with Client(target).blocking() as client:`."""
        from .blocking import Blocking

        return Blocking(self)

    async def _say_goodbye(self, calling: Calling) -> None:
        try:
            await calling.request(METHODS["shutdown"], None, timeout=self._limits.shutdown)
            calling.notify("exit")
        except DovetailError:
            pass

    @property
    def timeout(self) -> float:
        """How long a request may take by default."""
        return self._timeout

    @property
    def calling_now(self) -> Calling | None:
        """The conversation, where there is one."""
        return self._calling

    async def calling(self) -> Calling:
        """The conversation, opened first where there is none."""
        return await self._ready(self._timeout)

    async def _ready(self, timeout: float | None) -> Calling:
        """The conversation, opened first where there is none."""
        if self._state == "closed":
            raise ConnectionClosed(f"The client of {self._door.name} is closed")
        if self._calling is not None:
            return self._calling
        try:
            return await asyncio.wait_for(asyncio.shield(self._opening or self._begin()), timeout)
        except TimeoutError as problem:
            if isinstance(problem, DovetailError):
                raise
            raise TimedOut(f"{self._door.name}: no connection within {timeout:g} s") from None
        except asyncio.CancelledError:
            if self._state == "closed":
                raise ConnectionClosed(f"The client of {self._door.name} is closed") from None
            raise

    def _begin(self) -> "asyncio.Task[Calling]":
        self._opening = asyncio.get_running_loop().create_task(self._open_patiently())
        self._opening.add_done_callback(self._opened)
        return self._opening

    def _opened(self, task: "asyncio.Task[Calling]") -> None:
        self._opening = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.debug("Could not open %s: %s", self._door.name, task.exception())
        elif self._calling is None and self._state == "reconnecting":
            self._begin()  # it was lost again before it was quite ready

    async def _open_patiently(self) -> Calling:
        """Open; where it worked before, again and again with growing pauses."""
        again = self._state in ("connected", "reconnecting")
        self._become("reconnecting" if again else "connecting")
        while True:
            if again:
                await asyncio.sleep(min(5.0, 0.1 * (2 ** (self._failures - 1) - 1)) * random.uniform(0.5, 1.0))
            try:
                calling = await self._open()
                break
            except DovetailError as problem:
                self._failures += 1
                passing = isinstance(problem, ConnectFailed | ConnectionClosed | TimedOut)
                if not passing or not again or self._failures > self._limits.restarts:
                    self._become("disconnected")
                    raise
        self._calling = calling
        self._become("connected")
        await self._subscriptions.renew(calling)
        if self._limits.ping_interval is not None and self._pinger is None:
            self._pinger = asyncio.get_running_loop().create_task(heartbeat(self.ping, self._dead, self._limits))
        return calling

    async def _open(self) -> Calling:
        undecided = len({revision.stateless for revision in self._wanted}) == 2
        key = self._door.key if undecided else None  # who wants one era learns nothing of what the server prefers
        probe = not (key is not None and _eras.get(key))
        try:
            calling = await self._greet(probe)
        except Silent:
            if not self._door.again:
                raise ConnectFailed(f"{self._door.name} does not answer") from None
            # It died of the probe, or is deaf to it: a server of the handshake era. A fresh one is greeted the old way.
            calling = await self._greet(probe=False)
        if key is not None:
            if len(_eras) > 1000:
                _eras.clear()
            _eras[key] = calling.revision is not None and not calling.revision.stateless
        return calling

    async def _greet(self, probe: bool) -> Calling:
        channel = await self._door.open()
        connection = Connection(channel, self._limits, Outgoing(self._limits.outgoing))
        callbacks = self._callbacks
        calling = Calling(connection, self._info, callbacks.capabilities, callbacks.answers, self._heard, self._ended)
        calling.log_level = self._level
        try:
            await calling.open(self._wanted, probe=probe, probe_timeout=self._limits.probe_timeout, timeout=self._timeout)
            if self._level is not None and calling.revision is not None and calling.revision.set_level:
                await self._set_level(calling, self._level)
        except BaseException as problem:
            await asyncio.shield(self._let_go(connection))
            if not probe and self._door.key is not None:
                _eras.pop(self._door.key, None)
            if isinstance(problem, ConnectionClosed):
                raise ConnectFailed(f"{self._door.name}: {problem}") from None
            raise
        return calling

    def _let_go(self, connection: Connection) -> "asyncio.Task[None]":
        """Close what is of no more use, in a task of its own that `close` waits for."""
        task = asyncio.get_running_loop().create_task(connection.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _set_level(self, calling: Calling, level: str) -> None:
        if calling.server_capabilities.logging is not None:
            params = SetLevelParams(level=cast(Level, level))
            try:
                await calling.request(METHODS["logging/setLevel"], params, timeout=self._timeout)
            except ProtocolError as problem:
                log.warning("%s offers logging, but refuses a level: %s", self._door.name, problem)

    def _ended(self, calling: Calling, reason: Exception | None) -> None:
        if self._calling is not calling:
            return
        self._calling = None
        if self._state == "closed":
            return
        self._let_go(calling.connection)
        self._failures += 1
        again = self._door.again and self._failures <= self._limits.restarts
        self._become("reconnecting" if again else "disconnected")
        log.warning("Lost %s: %s", self._door.name, reason or "it closed the connection")
        if again and self._opening is None:
            self._begin()

    async def _dead(self) -> None:
        if self._calling is not None:
            await self._calling.connection.close(ConnectionClosed(f"{self._door.name} does not answer pings"))

    def _become(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._subscriptions.state(state)

    # what it knows

    @property
    def state(self) -> str:
        """new, connecting, connected, reconnecting, disconnected or closed."""
        return self._state

    @property
    def revision(self) -> str:
        """The revision of the protocol that is spoken."""
        name: str = self._now().name
        return name

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version."""
        return self._calling.server_info if self._calling else None

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self._calling.server_capabilities if self._calling else ServerCapabilities()

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        return self._calling.instructions if self._calling else None

    def _now(self) -> Any:
        if self._calling is None or self._calling.revision is None:
            raise ConnectionClosed(f"{self._door.name} is not connected")
        return self._calling.revision

    # asking

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        safe: bool = True,
    ) -> Any:
        """Any request of the vocabulary, by name. `safe`: it may be asked again where the connection broke."""
        limit = self._timeout if timeout is None else timeout
        on_progress = on_progress or self._on_progress
        attempts = rounds = 0
        while True:
            calling = await self._ready(limit)
            try:
                result = await self._once(calling, method, params, limit, on_progress)
            except ConnectionClosed as problem:
                attempts += 1
                if not safe or self._state == "closed" or not self._door.again or attempts > self._limits.restarts:
                    raise ConnectionClosed(f"{method}: {problem}") from None
                continue
            self._failures = 0
            if not isinstance(result, InputRequiredResult):
                return result
            rounds += 1
            if rounds > self._limits.rounds:
                raise InvalidRequest(f"{method}: the server asked {rounds} times in a row without an answer of its own")
            responses = await self._callbacks.respond(result, calling.spoken, self)
            params = replace(params, input_responses=responses or None, request_state=result.request_state)

    async def _once(self, calling: Calling, method: str, params: Any, timeout: float, on_progress: OnProgress | None) -> Any:
        row = METHODS[method]
        if self._send is None:
            return await calling.request(row, params, timeout=timeout, on_progress=on_progress)
        assert calling.revision is not None
        call = Call(0, row, Params() if params is None else params, Caller(calling.revision), self)
        call.local = lambda made: calling.request(row, made.params, timeout=timeout, on_progress=on_progress)
        return await self._send(call)

    async def _innermost(self, call: Call) -> Any:
        assert call.local is not None
        return await call.local(call)

    async def ping(self, timeout: float | None = None) -> None:
        """Ask whether the server is there."""
        limit = self._timeout if timeout is None else timeout
        await self._ping(await self._ready(limit), limit)

    async def _ping(self, calling: Calling, timeout: float) -> None:
        assert calling.revision is not None
        name = "ping" if "ping" in calling.revision.methods else "server/discover"
        await calling.request(METHODS[name], None, timeout=timeout)

    async def _pages(self, method: str, field: str) -> list[Any]:
        """All pages of a list. Cursors that repeat, or never end, are the server's mistake."""
        items: list[Any] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._limits.pages):
            result = await self.request(method, None if cursor is None else ListParams(cursor=cursor))
            items += getattr(result, field)
            cursor = result.next_cursor
            if cursor is None:
                return items
            if cursor in seen:
                raise InvalidRequest(f"{method}: the server gave the cursor {cursor!r} twice, so its list never ends")
            seen.add(cursor)
        raise InvalidRequest(f"{method}: the server's list has more than {self._limits.pages} pages")

    async def list_tools(self) -> list[Tool]:
        """All tools of the server."""
        tools: list[Tool] = await self._pages("tools/list", "tools")
        self._validation.learn(tools)
        return tools

    async def list_resources(self) -> list[Resource]:
        """All resources of the server."""
        return await self._pages("resources/list", "resources")

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates of the server."""
        return await self._pages("resources/templates/list", "resource_templates")

    async def list_prompts(self) -> list[Prompt]:
        """All prompts of the server."""
        return await self._pages("prompts/list", "prompts")

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        type: None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        raise_on_error: bool = True,
        retry: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> ToolResult: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        type: type[T],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        raise_on_error: bool = True,
        retry: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> Typed[T]: ...
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        type: Any = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        raise_on_error: bool = True,
        retry: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> ToolResult | Typed[Any]:
        """Call a tool. `type=` makes `.data` of that type. A tool that fails raises ToolError."""
        await self._validation.prepare(name, self)
        encoded = Raw(ANY.encode({} if arguments is None else arguments))
        params = CallToolParams(name=name, arguments=encoded, meta=meta)
        safe = retry or (self._trusted and self._validation.repeatable(name))
        result: ToolResult = await self.request("tools/call", params, timeout=timeout, on_progress=on_progress, safe=safe)
        if result.is_error:
            if raise_on_error:
                raise ToolError(result.text or f"{name} failed", result)
            return result
        self._validation.check(name, result)
        return result if type is None else typed(result, type)

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> list[ResourceContents]:
        """What a resource holds."""
        result = await self.request("resources/read", ReadResourceParams(uri=uri), timeout=timeout)
        return result.contents  # type: ignore[no-any-return]

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """A prompt, filled in. Arguments that are no strings are sent as JSON, which is how the server reads them."""
        strings = {key: _as_string(value) for key, value in (arguments or {}).items()}
        params = GetPromptParams(name=name, arguments=strings or None)
        return await self.request("prompts/get", params, timeout=timeout)  # type: ignore[no-any-return]

    async def complete(
        self,
        *,
        prompt: str | None = None,
        resource: str | None = None,
        argument: str,
        value: str = "",
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Completion:
        """Values for an argument of a prompt, or for a variable of a resource template."""
        if (prompt is None) == (resource is None):
            raise ConfigError("complete() takes either prompt= or resource=")
        reference = PromptReference(prompt) if prompt is not None else ResourceReference(cast(str, resource))
        params = CompleteParams(
            ref=reference,
            argument=CompletionArgument(argument, value),
            context=CompletionContext(dict(context)) if context else None,
        )
        result: CompleteResult = await self.request("completion/complete", params, timeout=timeout)
        return result.completion

    async def set_log_level(self, level: Level) -> None:
        """From now on, only log messages of this level and worse."""
        if level not in SEVERITY:
            raise ConfigError(f"{level!r} is no log level; the levels are {', '.join(SEVERITY)}")
        self._level = level
        calling = await self._ready(self._timeout)
        calling.set_level(level)
        if calling.revision is not None and calling.revision.set_level:
            await self.request("logging/setLevel", SetLevelParams(level=level))

    # hearing

    async def set_roots(self, roots: Iterable[Any]) -> None:
        """Replace the roots; the server is told where its revision has a way to."""
        if self._callbacks.roots is None:
            raise ConfigError("This client was made without roots=, so it never declared that it has any")
        self._callbacks.roots[:] = [as_root(one) for one in roots]
        if self._calling is not None:
            self._calling.notify("notifications/roots/list_changed")

    async def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Handle:
        """Hear of changes to a resource: `callback(uri)`. Close the handle to stop."""
        return await self._subscriptions.subscribe(uri, callback)

    def on_change(self, kind: str, callback: Callable[[str], Any]) -> Handle:
        """Hear of changes to a list (`tools`, `resources`, `prompts`) or of this client's `state`: `callback(kind)`."""
        return self._subscriptions.on_change(kind, callback)

    def _heard(self, method: str, params: Any) -> None:
        if method == "notifications/message":
            if self._on_log is not None:
                self.callback(self._on_log, params)
            return
        self._subscriptions.heard(method, params)

    def callback(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function of the user's, sync or async; its errors are logged and end nothing."""
        run_callback(function, *args)


def _as_string(value: Any) -> str:
    return value if isinstance(value, str) else ANY.encode(value).decode()
