"""The client for code without async: a portal into an event loop on a thread of its own. No second
client class.

Every coroutine method of `Client` can be called plainly; the call waits for its result. Callbacks
run on the portal's thread.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, ConnectionClosed
from ..extensions.skills.reader import Skill
from .subscriptions import Subscription
from .task_handle import TaskHandle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeVar, overload

    from ..connection.connection import OnProgress
    from ..extensions.apps.view import View
    from ..extensions.skills.wire import SkillEntry
    from ..protocol.base import Implementation
    from ..protocol.content import ResourceContents
    from ..protocol.lifecycle import ServerCapabilities
    from ..protocol.prompts import GetPromptResult, Prompt
    from ..protocol.resources import Resource, ResourceTemplate
    from ..protocol.tools import Tool, ToolResult
    from ..protocol.utilities import Completion, Level
    from .callbacks import AnyRequest
    from .client import Client
    from .task_handle import TaskUpdate
    from .tool_results import TypedToolResult

    T = TypeVar("T")


class BlockingSubscription:
    """One thing to hear of; `close()`, or `with`, ends it."""

    def __init__(self, portal: "BlockingClient", handle: Subscription) -> None:
        self._portal, self._handle = portal, handle

    def close(self) -> None:
        """Hear no more of it."""
        self._portal._wait(self._handle.close())

    def __enter__(self) -> "BlockingSubscription":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BlockingTask:
    """A task whose calls wait (`TaskHandle`)."""

    def __init__(self, portal: "BlockingClient", handle: TaskHandle) -> None:
        self._portal, self._handle = portal, handle

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        """What it is picked up again by; empty where the server answered at once."""
        return self._handle.id

    def status(self) -> "TaskUpdate":
        """How the task stands now."""
        return self._portal._wait(self._handle.status())  # type: ignore[no-any-return]

    def updates(self) -> "Iterator[TaskUpdate]":
        """How the task stands, and whenever that changes, until it is over."""
        updates = self._handle.updates()

        async def another() -> "TaskUpdate | None":
            return await anext(updates, None)

        try:
            while (update := self._portal._wait(another())) is not None:
                yield update
        finally:
            self._portal._wait(updates.aclose())

    def result(self, timeout: float | None = None, *, raise_on_error: bool = True) -> "ToolResult":
        """What the tool gave; after `timeout` seconds TimedOut. The task goes on either way."""
        work = self._handle.result(timeout, raise_on_error=raise_on_error)
        return self._portal._wait(work)  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Ask the server to end the task."""
        self._portal._wait(self._handle.cancel())

    def questions(self) -> "dict[str, AnyRequest]":
        """What the task asks now and nobody has answered yet, by key."""
        return self._portal._wait(self._handle.questions())  # type: ignore[no-any-return]

    def answer(self, key: str, value: Any) -> None:
        """Answer a question of a task that is `manual`."""
        self._portal._wait(self._handle.answer(key, value))


class BlockingSkill:
    """A skill whose calls wait (`Skill`)."""

    def __init__(self, portal: "BlockingClient", skill: Skill) -> None:
        self._portal, self._skill = portal, skill

    def __getattr__(self, name: str) -> Any:
        return getattr(self._skill, name)

    def read(self, path: str) -> "ResourceContents":
        """A file of the skill, by its path in it."""
        return self._portal._wait(self._skill.read(path))  # type: ignore[no-any-return]

    def list(self, path: str = "") -> "Sequence[str]":
        """What lies in a directory of the skill."""
        return self._portal._wait(self._skill.list(path))  # type: ignore[no-any-return]


class BlockingClient:
    """A client whose calls wait. `with Client(target).blocking() as client:`"""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event
        self._thread: threading.Thread

    async def _portal(self, ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._end.wait()

    def __enter__(self) -> "BlockingClient":
        ready = threading.Event()
        run = partial(asyncio.run, self._portal(ready))
        self._thread = threading.Thread(target=run, name="dovetail-portal", daemon=True)
        self._thread.start()
        ready.wait()
        try:
            self._wait(self._client.connect())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation, and the thread."""
        if self._loop is not None:
            try:
                self._wait(self._client.close())
            finally:
                self._stop()

    def _stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            work.close()
            raise ConnectionClosed("This client is closed; use it inside `with`")
        if threading.current_thread() is self._thread:
            work.close()
            raise ConfigError(
                "A callback cannot wait for the thread it runs on; hand the call to another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here cancels the call at the server
            raise

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if inspect.iscoroutinefunction(value):
            return self._waiting(value)
        if callable(value) and self._loop is not None:
            return self._on_loop(value)
        return value

    def _waiting(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = self._wait(method(*args, **kwargs))
            wrap = BLOCKING_TYPES.get(type(given))
            return given if wrap is None else wrap(self, given)

        return call

    def _on_loop(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return self._waiting(run)

    if TYPE_CHECKING:
        # What type checkers see: the calls of Client, without `async`.
        state: str
        revision: str
        server_info: Implementation | None
        capabilities: ServerCapabilities
        instructions: str | None

        def ping(self, timeout: float | None = None) -> None: ...
        def list_tools(self, *, fresh: bool = False) -> list[Tool]: ...
        def list_resources(self, *, fresh: bool = False) -> list[Resource]: ...
        def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]: ...
        def list_prompts(self, *, fresh: bool = False) -> list[Prompt]: ...
        @overload
        def call_tool(
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
        def call_tool(
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
        def call_tool(self, name: str, arguments: Any = None, **options: Any) -> Any: ...
        def start_tool(
            self,
            name: str,
            arguments: Any = None,
            *,
            ttl: float | None = None,
            timeout: float | None = None,
            manual: bool = False,
            meta: dict[str, Any] | None = None,
        ) -> BlockingTask: ...
        def task(self, id: str, *, manual: bool = False) -> BlockingTask: ...
        def read_resource(
            self, uri: str, *, timeout: float | None = None, fresh: bool = False
        ) -> list[ResourceContents]: ...
        def list_skills(self, *, fresh: bool = False) -> list[SkillEntry]: ...
        def get_skill(self, uri: str, *, fresh: bool = False) -> SkillEntry: ...
        def read_skill(self, skill: str | SkillEntry) -> BlockingSkill: ...
        def read_app(self, target: str | Tool) -> View: ...
        def get_prompt(
            self,
            name: str,
            arguments: Mapping[str, Any] | None = None,
            *,
            timeout: float | None = None,
        ) -> GetPromptResult: ...
        def complete(
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
        ) -> Completion: ...
        def set_log_level(self, level: Level) -> None: ...
        def subscribe(self, uri: str, callback: Callable[[str], Any]) -> BlockingSubscription: ...
        def on_change(self, kind: str, callback: Callable[[str], Any]) -> BlockingSubscription: ...


BLOCKING_TYPES: dict[type, Callable[[BlockingClient, Any], Any]] = {
    Subscription: BlockingSubscription,
    TaskHandle: BlockingTask,
    Skill: BlockingSkill,
}
"""What has coroutines of its own, and what waits for them."""
