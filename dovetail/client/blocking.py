"""The client for code without async: a portal to an event loop on its own thread.

Every coroutine method of `Client` can be called as a plain function, which waits for the result.
There is no second client class to keep in step: methods are looked up on the `Client`. Callbacks
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
from ..extensions.skill_reader import Skill
from .subscriptions import Subscription
from .task_handle import TaskHandle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Concatenate, Generic, ParamSpec, TypeVar, overload

    from ..connection.connection import OnProgress
    from ..protocol.base import Implementation
    from ..protocol.content import ResourceContents
    from ..protocol.lifecycle import ServerCapabilities
    from ..protocol.tools import ToolResult
    from .callbacks import AnyRequest
    from .client import Client
    from .task_handle import TaskUpdate
    from .tool_results import TypedToolResult

    P = ParamSpec("P")
    T = TypeVar("T")

    class _Blocking(Generic[P, T]):
        """A method of Client without `async`, as type checkers see it."""

        def __init__(
            self, method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]
        ) -> None: ...
        def __get__(self, instance: object, owner: object = None) -> Callable[P, T]: ...

    class _BlockingReturning(Generic[P, T]):
        """The same, if the result has a blocking form too."""

        def __init__(
            self, method: Callable[Concatenate[Client, P], Any], result: type[T]
        ) -> None: ...
        def __get__(self, instance: object, owner: object = None) -> Callable[P, T]: ...


class BlockingSubscription:
    """A subscription; `close()`, or leaving its `with` block, ends it."""

    def __init__(self, portal: "BlockingClient", handle: Subscription) -> None:
        self._portal, self._handle = portal, handle

    def close(self) -> None:
        """Unsubscribe."""
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
    """A task whose methods wait for their result; see `TaskHandle`."""

    def __init__(self, portal: "BlockingClient", handle: TaskHandle) -> None:
        self._portal, self._handle = portal, handle

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        """The id of the task; empty if the server answered directly."""
        return self._handle.id

    def status(self) -> "TaskUpdate":
        """Return the current status of the task."""
        return self._portal._wait(self._handle.status())  # type: ignore[no-any-return]

    def updates(self) -> "Iterator[TaskUpdate]":
        """Yield the status of the task whenever it changes, until it is over."""
        updates = self._handle.updates()

        async def another() -> "TaskUpdate | None":
            return await anext(updates, None)

        try:
            while (update := self._portal._wait(another())) is not None:
                yield update
        finally:
            self._portal._wait(updates.aclose())

    def result(self, timeout: float | None = None, *, raise_on_error: bool = True) -> "ToolResult":
        """Wait for the result of the tool. The task goes on if this times out.

        Args:
            timeout: Seconds to wait (default: no limit). TimedOut is raised after that.
            raise_on_error: Whether to raise ToolError if the tool fails.
        """
        work = self._handle.result(timeout, raise_on_error=raise_on_error)
        return self._portal._wait(work)  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Ask the server to cancel the task."""
        self._portal._wait(self._handle.cancel())

    def questions(self) -> "dict[str, AnyRequest]":
        """Return the open questions of the task, by key."""
        return self._portal._wait(self._handle.questions())  # type: ignore[no-any-return]

    def answer(self, key: str, value: Any) -> None:
        """Answer a question of a task that is `manual`.

        Args:
            key: The key of the question.
            value: What `on_elicit` or `on_sample` would return.
        """
        self._portal._wait(self._handle.answer(key, value))


class BlockingSkill:
    """A skill whose methods wait for their result; see `Skill`."""

    def __init__(self, portal: "BlockingClient", skill: Skill) -> None:
        self._portal, self._skill = portal, skill

    def __getattr__(self, name: str) -> Any:
        return getattr(self._skill, name)

    def read(self, path: str) -> "ResourceContents":
        """Return a file of the skill.

        Args:
            path: The path of the file in the skill.
        """
        return self._portal._wait(self._skill.read(path))  # type: ignore[no-any-return]

    def list(self, path: str = "") -> "Sequence[str]":
        """Return what is in a directory of the skill.

        Args:
            path: The path of the directory (default: the skill itself).
        """
        return self._portal._wait(self._skill.list(path))  # type: ignore[no-any-return]


class BlockingClient:
    """A client whose methods wait for their result: `with Client(target).blocking() as client:`."""

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
        """Close the connection and end the thread."""
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
                "A callback runs on the thread that serves this client, so it cannot wait for "
                "it; make "
                "the call in another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here cancels the call at the server
            raise

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._client)[1:]}"

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
        state: str
        revision: str
        server_info: Implementation | None
        capabilities: ServerCapabilities
        instructions: str | None

        request = _Blocking(Client.request)
        notify = _Blocking(Client.notify)
        ping = _Blocking(Client.ping)
        log_out = _Blocking(Client.log_out)
        list_tools = _Blocking(Client.list_tools)
        list_resources = _Blocking(Client.list_resources)
        list_resource_templates = _Blocking(Client.list_resource_templates)
        list_prompts = _Blocking(Client.list_prompts)
        read_resource = _Blocking(Client.read_resource)
        list_skills = _Blocking(Client.list_skills)
        get_skill = _Blocking(Client.get_skill)
        read_app = _Blocking(Client.read_app)
        get_prompt = _Blocking(Client.get_prompt)
        complete = _Blocking(Client.complete)
        set_log_level = _Blocking(Client.set_log_level)
        set_roots = _Blocking(Client.set_roots)
        start_tool = _BlockingReturning(Client.start_tool, BlockingTask)
        task = _BlockingReturning(Client.task, BlockingTask)
        read_skill = _BlockingReturning(Client.read_skill, BlockingSkill)
        subscribe = _BlockingReturning(Client.subscribe, BlockingSubscription)
        on_change = _BlockingReturning(Client.on_change, BlockingSubscription)

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


BLOCKING_TYPES: dict[type, Callable[[BlockingClient, Any], Any]] = {
    Subscription: BlockingSubscription,
    TaskHandle: BlockingTask,
    Skill: BlockingSkill,
}
"""Types with coroutine methods, and the types that wait for them."""
