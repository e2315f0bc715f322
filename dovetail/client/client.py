"""The client: one class, every call of the protocol, typed.

It owns its conversation (`link.py`), not the task that opened it: enter it here, close it there.
Where the conversation breaks, lists and reads are simply asked again; a tool call that may have
arrived is not, unless the caller said so or the server is trusted and says that it is safe. How it
asks is in `asking.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from msgspec import Raw

from .. import __version__
from ..connection.client_session import ClientSession, wanted
from ..connection.connection import OnProgress
from ..connection.extension import Extension, Extensions
from ..connection.middleware import Middleware, Observer
from ..connection.notifications import run_callback
from ..errors import (
    ConfigError,
    HeaderMismatch,
    InvalidRequest,
    MethodNotFound,
    ToolError,
)
from ..limits import DEFAULT, Limits
from ..ports import Credentials, Network
from ..protocol.base import Implementation
from ..protocol.content import ResourceContents
from ..protocol.prompts import GetPromptParams, GetPromptResult, Prompt
from ..protocol.resources import ReadResourceParams, Resource, ResourceTemplate
from ..protocol.tasks import EXTENSION
from ..protocol.tools import CallToolParams, Tool, ToolResult
from ..protocol.utilities import (
    SEVERITY,
    CompleteParams,
    Completion,
    CompletionArgument,
    CompletionContext,
    Level,
    LogParams,
    PromptReference,
    ResourceReference,
    SetLevelParams,
)
from ..revisions import Revision
from . import targets as connect
from .caching import ResponseCache, SharedCache
from .callbacks import Callbacks, OnAnswer, OnAsk, OnElicit, OnSample
from .completions import Completer
from .reconnect import ServerLink
from .requests import ANY, Requester
from .subscriptions import Subscription, Subscriptions
from .task_handle import TaskHandle
from .tasks import RemoteTasks
from .tool_results import ResultValidator, TypedToolResult, convert_result

if TYPE_CHECKING:
    from ..extensions.apps.view import View
    from ..extensions.skills.reader import Skill
    from ..extensions.skills.wire import SkillEntry
    from .blocking import BlockingClient

T = TypeVar("T")


class Client(Requester):
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
        on_ask: OnAsk | None = None,
        on_answer: OnAnswer | None = None,
        on_log: Callable[[LogParams], Any] | None = None,
        on_progress: OnProgress | None = None,
        on_stderr: Callable[[str], None] | None = None,
        middleware: Sequence[Middleware] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Credentials | str | None = None,
        verify: Any = True,
        proxy: str | None = None,
        long_polling: bool = False,
        timeout: float | None = None,
        limits: Limits = DEFAULT,
        cache: bool | SharedCache = True,
        trusted: bool = False,
        validate: str = "warn",
        experimental: dict[str, Any] | None = None,
        extensions: Sequence[Extension] = (),
        tasks: bool = True,
        info: Implementation | None = None,
    ) -> None:
        self._on_log, self._trusted, self._validation = (
            on_log,
            trusted,
            ResultValidator(validate, limits),
        )
        had = _extensions(extensions, auth)
        started, reached = (
            connect.ProcessOptions(env, cwd, on_stderr),
            connect.HttpOptions(headers, verify, proxy, long_polling, auth),
        )
        door = connect.resolve_target(target, server, limits, started, reached)
        callbacks = Callbacks(
            on_elicit, on_sample, roots, experimental,
            on_ask=on_ask, on_answer=on_answer, target=door.name, tasks=tasks, limits=limits,
        )  # fmt: skip
        link = ServerLink(
            door,
            wanted(revision),
            info or Implementation(name="dovetail", version=__version__),
            callbacks,
            limits,
            limits.timeout if timeout is None else timeout,
            on_notification=self._heard,
            on_open=self._renew,
            on_state=self._changed,
            extensions=had,
        )
        link.level = "debug" if on_log is not None else None
        cached = ResponseCache(cache, door.cache_key, limits, had)
        super().__init__(
            link,
            callbacks,
            cached,
            had,
            middleware=middleware,
            on_progress=on_progress,
            limits=limits,
        )
        self._subscriptions = Subscriptions(link, self.request, limits)
        self._tasks = RemoteTasks(link, self.request, self._checked, callbacks, limits, tasks)
        if tasks and EXTENSION not in (had.declared or {}):
            had.add(self._tasks.extension)
        self._completing = Completer(cached)
        self._observers = [layer for layer in middleware if isinstance(layer, Observer)]
        self._session: tuple[Revision, Network | None, float] | None = None

    # opening and closing

    async def __aenter__(self) -> "Client":
        try:
            await self.connect()
        except BaseException:
            await self.close()  # whoever did not get in does not get out either
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the conversation; `async with` does it for you."""
        await self._link.get_session(self._link.timeout)

    async def close(self) -> None:
        """End the conversation. May be called twice, and from any task."""
        self._subscriptions.cancel_all()
        self._cached.close()
        await self._tasks.close()
        self._callbacks.client_tasks.close()
        await self._link.close()

    async def log_out(self) -> bool:
        """Forget the login to this server, and have it ended by who gave it. Whether that is done:
        not every authorization server can be asked to, and then it ends by itself."""
        forget = getattr(self._link.target.credentials, "forget", None)
        return forget is not None and bool(await forget())

    def blocking(self) -> "BlockingClient":
        """The same client for code without async: `with Client(target).blocking() as client:`."""
        from .blocking import BlockingClient

        return BlockingClient(self)

    # asking

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """All tools of the server. `fresh`, here and below: whatever is cached, ask the server."""
        tools: list[Tool] = await self._list_all("tools/list", "tools", fresh)
        self._validation.set_tools(tools)
        return tools

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """All resources of the server."""
        return await self._list_all("resources/list", "resources", fresh)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """All resource templates of the server."""
        return await self._list_all("resources/templates/list", "resource_templates", fresh)

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """All prompts of the server."""
        return await self._list_all("prompts/list", "prompts", fresh)

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
    ) -> TypedToolResult[T]: ...
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
    ) -> ToolResult | TypedToolResult[Any]:
        """Call a tool. `type=` makes `.data` of that type. A tool that fails raises ToolError."""
        await self._validation.ensure_known(name, self)
        safe = retry or (self._trusted and self._validation.is_repeatable(name))
        result, task = await self._called(
            _call_of(name, arguments, meta), timeout, on_progress, safe
        )
        if task is not None:
            result = await self._tasks.wait_as_call(task, timeout, on_progress or self._on_progress)
        self._checked(name, result, raise_on_error)
        return result if type is None or result.is_error else convert_result(result, type)

    async def start_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        manual: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> TaskHandle:
        """Call a tool without waiting for its result, where the server makes a task of the call;
        the handle is done at once where it does not. `ttl`: seconds that the task is to be kept,
        where the revision lets a client say so. `manual`: its questions are not for the callbacks,
        but for `handle.answer`."""
        await self._validation.ensure_known(name, self)
        await self._link.get_session(self._link.timeout if timeout is None else timeout)
        if self._tasks.supports_core and self._validation.task_support(name) is None:
            await self.list_tools()
        params = _call_of(name, arguments, meta)
        result, task = await self._called(
            params, timeout, None, False, ("required", "optional"), ttl, manual
        )
        handle = task or self._tasks.finished(result)
        handle.tool = name
        return handle

    def task(self, id: str, *, manual: bool = False) -> TaskHandle:
        """A task that was begun before, by this client or by another of the same user, by its
        id."""
        return self._tasks.handle(id, manual)

    async def _called(
        self,
        params: CallToolParams,
        timeout: float | None,
        on_progress: OnProgress | None,
        safe: bool,
        supports: tuple[str, ...] = ("required",),
        ttl: float | None = None,
        manual: bool = False,
    ) -> tuple[Any, TaskHandle | None]:
        """Make a call, and get its result or the task that it became. `supports` are the tools that
        are called as tasks, in the core form."""
        for again in (False, True):
            tasked = (
                self._tasks.supports_core and self._validation.task_support(params.name) in supports
            )
            sent, token = self._tasks.as_task(params, ttl) if tasked else (params, "")
            try:
                result = await self._request_with_rounds(
                    "tools/call", sent, timeout=timeout, on_progress=on_progress, safe=safe
                )
                break
            except (HeaderMismatch, MethodNotFound, InvalidRequest) as refusal:
                if again or not (
                    isinstance(refusal, HeaderMismatch)
                    or (self._tasks.supports_core and not tasked)
                ):
                    raise
                await self.list_tools(
                    fresh=True
                )  # what it wants, in headers or as a task, has changed, or was never known
                if (
                    not isinstance(refusal, HeaderMismatch)
                    and self._validation.task_support(params.name) not in supports
                ):
                    raise
        task = self._tasks.started(result, token, manual)
        return (
            result if task is not None else await self._finish_extension_result(params, result)
        ), task

    def _checked(self, name: str, result: ToolResult, raise_on_error: bool) -> ToolResult:
        """A result, if the tool did not fail, or that is fine too."""
        if not result.is_error:
            self._validation.check(name, result)
        elif raise_on_error:
            raise ToolError(result.text or f"{name or 'The tool'} failed", result)
        return result

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, fresh: bool = False
    ) -> list[ResourceContents]:
        """What a resource holds."""
        result = await self.request(
            "resources/read", ReadResourceParams(uri=uri), timeout=timeout, fresh=fresh
        )
        return result.contents  # type: ignore[no-any-return]

    async def list_skills(self, *, fresh: bool = False) -> "list[SkillEntry]":
        """The entries of all skills that the server lists; nothing of them is read. One with a
        `problem` cannot be."""
        from ..extensions.skills.reader import list_skills

        return await list_skills(self, self._limits, fresh)

    async def get_skill(self, uri: str, *, fresh: bool = False) -> "SkillEntry":
        """The entry of the skill whose SKILL.md has this URI, whether it is listed or not."""
        from ..extensions.skills.reader import get_skill

        return await get_skill(self, uri, self._limits, fresh)

    async def read_skill(self, skill: "str | SkillEntry") -> "Skill":
        """A skill, by its URI or entry: verified against the entry, or else SkillRefused. Its other
        files are read when they are wanted (docs/guides/skills.md)."""
        from ..extensions.skills.reader import read_skill

        return await read_skill(self, skill, self._limits)

    async def read_app(self, target: str | Tool) -> "View":
        """The view of a tool, or that under a `ui://` URI, for a host to show
        (docs/guides/apps.md)."""
        from ..extensions.apps.view import read_view

        return await read_view(self, target)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """A prompt, filled in. Arguments that are no strings are sent as JSON, which is how the
        server reads them."""
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
        debounce: float = 0,
        cache: float = 0,
    ) -> Completion:
        """Values for an argument of a prompt, or for a variable of a resource template. While
        somebody types: `debounce` waits so many seconds for a later call, whose answer all get that
        wait; `cache` keeps answers for so many."""
        if (prompt is None) == (resource is None):
            raise ConfigError("complete() takes either prompt= or resource=")
        reference = (
            PromptReference(prompt)
            if prompt is not None
            else ResourceReference(cast(str, resource))
        )
        params = CompleteParams(
            ref=reference,
            argument=CompletionArgument(argument, value),
            context=CompletionContext(dict(context)) if context else None,
        )
        ask = partial(self.request, "completion/complete", params, timeout=timeout)
        return (await self._completing.complete(params, ask, debounce, cache)).completion

    async def set_log_level(self, level: Level) -> None:
        """From now on, only log messages of this level and worse."""
        if level not in SEVERITY:
            raise ConfigError(f"{level!r} is no log level; the levels are {', '.join(SEVERITY)}")
        self._link.level = level
        calling = await self._link.get_session(self._link.timeout)
        calling.set_level(level)
        if calling.agreed_revision.set_level:
            await self.request("logging/setLevel", SetLevelParams(level=level))

    # hearing

    async def set_roots(self, roots: Iterable[Any]) -> None:
        """Replace the roots; the server is told where its revision has a way to."""
        self._callbacks.set_roots(roots)
        if self._link.session is not None:
            self._link.session.notify("notifications/roots/list_changed")

    async def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Subscription:
        """Hear of changes to a resource: `callback(uri)`. Close the handle to stop."""
        return await self._subscriptions.subscribe(uri, callback)

    def on_change(self, kind: str, callback: Callable[[str], Any]) -> Subscription:
        """Hear of changes to a list (`tools`, `resources`, `prompts`) or of this client's `state`:
        `callback(kind)`."""
        return self._subscriptions.on_change(kind, callback)

    def _heard(self, method: str, params: Any) -> None:
        if method == "notifications/message":
            if self._on_log is not None:
                run_callback(self._on_log, params)
            return
        if method in ("notifications/progress", "notifications/tasks/status"):
            self._tasks.on_notification(method, params)
            return
        if method == "notifications/tools/list_changed":
            self._validation.clear()
        self._cached.on_notification(method, params)
        self._subscriptions.on_notification(method, params)

    async def _renew(self, calling: ClientSession) -> None:
        self._validation.clear()
        self._cached.on_open()
        await self._subscriptions.restore(calling)

    def _changed(self, state: str) -> None:
        self._subscriptions.notify_state(state)
        if self._observers:
            self._observe(state == "connected")

    def _observe(self, connected: bool) -> None:
        """Tell who looks on of a session of the handshake era, at its end."""
        if self._session is not None:
            revision, network, began = self._session
            for observer in self._observers:
                observer.session_ended("client", revision, network, monotonic() - began)
        calling, self._session = self._link.session, None
        if connected and calling is not None and not calling.agreed_revision.stateless:
            self._session = calling.agreed_revision, self.network, monotonic()


def _extensions(given: Sequence[Extension], auth: Any) -> Extensions:
    """Those that were given, and those that the credentials belong to."""
    ids = {extension.id for extension in given}
    return Extensions(
        [*given, *(Extension(id=id) for id in getattr(auth, "extensions", ()) if id not in ids)]
    )


def _call_of(name: str, arguments: Any, meta: dict[str, Any] | None) -> CallToolParams:
    return CallToolParams(
        name=name, arguments=Raw(ANY.encode({} if arguments is None else arguments)), meta=meta
    )


def _as_string(value: Any) -> str:
    return value if isinstance(value, str) else ANY.encode(value).decode()
