"""The client for synchronous code: it runs an event loop on a separate thread.

Every coroutine method of `Client` can be called as a plain function, which waits for the result.
Methods are looked up on `Client`, so the two interfaces cannot diverge. Callbacks run on the thread
of the event loop.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ConfigError, ConnectionClosed
from ..extensions.skill_reader import Skill
from .subscriptions import Subscription
from .task_handle import TaskHandle

T = TypeVar("T")

if TYPE_CHECKING:
    from typing import Concatenate, Generic, ParamSpec, overload

    from ..connection.connection import OnProgress
    from ..jsonrpc.messages import Id
    from ..protocol.base import Implementation
    from ..protocol.lifecycle import ServerCapabilities
    from ..protocol.tools import ToolResult
    from .client import Client
    from .open_call import OnRequestId
    from .task_handle import TaskUpdate
    from .tool_results import TypedToolResult

    P = ParamSpec("P")

    class _Blocking(Generic[P, T]):
        """A method without `async`, as type checkers see it."""

        def __init__(
            self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
        ) -> None: ...
        def __get__(self, instance: object, owner: object = None) -> Callable[P, T]: ...

    class _BlockingReturning(Generic[P, T]):
        """A method without `async` whose result also has a blocking form."""

        def __init__(self, method: Callable[Concatenate[Any, P], Any], result: type[T]) -> None: ...
        def __get__(self, instance: object, owner: object = None) -> Callable[P, T]: ...


class _BlockingProxy:
    """A wrapper around an object from a client; its methods wait for their result."""

    def __init__(self, client: "BlockingClient", wrapped: Any) -> None:
        self._client, self._wrapped = client, wrapped

    def __repr__(self) -> str:
        return repr(self._wrapped)

    def __getattr__(self, name: str) -> Any:
        return self._client._make_blocking(getattr(self._wrapped, name))


class BlockingSubscription(_BlockingProxy):
    """A subscription. End the subscription with `close()`, or by leaving its `with` block."""

    if TYPE_CHECKING:
        close = _Blocking(Subscription.close)

    def __enter__(self) -> "BlockingSubscription":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class BlockingTask(_BlockingProxy):
    """A task whose methods wait for their result; see `TaskHandle`. `updates()` is a plain
    iterator."""

    if TYPE_CHECKING:
        id: str
        status = _Blocking(TaskHandle.status)
        result = _Blocking(TaskHandle.result)
        cancel = _Blocking(TaskHandle.cancel)
        questions = _Blocking(TaskHandle.questions)
        answer = _Blocking(TaskHandle.answer)

        def updates(self) -> Iterator[TaskUpdate]: ...


class BlockingSkill(_BlockingProxy):
    """A skill whose methods wait for their result; see `Skill`."""

    if TYPE_CHECKING:
        read = _Blocking(Skill.read)
        list = _Blocking(Skill.list)


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

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and stop the thread."""
        if self._loop is None:
            return
        try:
            self._wait(self._client.close())
        finally:
            loop, self._loop = self._loop, None
            loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise ConnectionClosed(
                "This client is closed. Use a client only inside its `with` block."
            )
        if threading.current_thread() is self._thread:
            work.close()
            raise ConfigError(
                "A callback runs on this client's own thread, so it cannot wait for a call; "
                "make the call from another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here cancels the call on the server
            raise

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._client)[1:]}"

    def __getattr__(self, name: str) -> Any:
        return self._make_blocking(getattr(self._client, name))

    def _make_blocking(self, value: Any) -> Any:
        """Wrap a method in a function that runs it in the event loop and waits for its result.
        Return any other value unchanged."""
        if inspect.isasyncgenfunction(value):
            return partial(self._iterate, value)
        if inspect.iscoroutinefunction(value) or (callable(value) and self._loop is not None):
            return partial(self._call, value)
        return value

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            result = method(*args, **kwargs)
            return await result if asyncio.iscoroutine(result) else result

        result = self._wait(run())
        proxy = BLOCKING_TYPES.get(type(result))
        return result if proxy is None else proxy(self, result)

    def _iterate(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
        items = method(*args, **kwargs)

        async def next_item() -> Any:
            return await anext(items, None)

        try:
            while (item := self._wait(next_item())) is not None:
                yield item
        finally:
            self._wait(items.aclose())

    if TYPE_CHECKING:
        state: str
        revision: str
        server_info: Implementation | None
        capabilities: ServerCapabilities
        instructions: str | None

        request = _Blocking(Client.request)
        relay = _Blocking(Client.relay)
        notify = _Blocking(Client.notify)
        ping = _Blocking(Client.ping)
        revisions = _Blocking(Client.revisions)
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

        def cancel_request(self, request_id: Id, reason: str | None = None) -> bool: ...

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
            on_request_id: OnRequestId | None = None,
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
            on_request_id: OnRequestId | None = None,
        ) -> TypedToolResult[T]: ...
        def call_tool(self, name: str, arguments: Any = None, **options: Any) -> Any: ...


BLOCKING_TYPES: dict[type, type[_BlockingProxy]] = {
    Subscription: BlockingSubscription,
    TaskHandle: BlockingTask,
    Skill: BlockingSkill,
}
"""Types with coroutine methods, and their blocking wrappers."""
