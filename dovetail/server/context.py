"""The call that a handler is answering, and the actions that the handler can take during the call.

Request the context with an annotation: `async def forecast(city: str, ctx: Context)`. The parameter
may have any name, and the model never sees it. `ctx.info(…)` and `ctx.progress(…)` send a message
immediately and may be called from worker threads. Await their result to wait for a client that
reads slowly.

A handler can ask the user (with a form or a web page), ask the model, and request the roots.

    answer = await ctx.elicit("Who are you?", Person)        # answer.action, answer.data
    reply = await ctx.sample("Summarise this: …")            # reply.text
    roots = await ctx.list_roots()

Asking works the same way in every revision that supports the type of question. In other revisions,
or if the client did not declare the capability, CannotAsk is raised. In the stateless era, a
handler that asks a question may be run again from its beginning in another process, with the
answers so far. Everything before the question then runs again, except steps in `await
ctx.once("charge", fn)`. Only an `async def` handler can ask questions.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    overload,
)

import msgspec
from msgspec import Struct

from ..aio import run_on_loop
from ..jsonrpc.messages import Id
from ..ports import Call, Principal
from ..protocol.base import Implementation, Params
from ..protocol.client_features import (
    CreateMessageResult,
    ElicitationCompleteParams,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    Root,
)
from ..protocol.content import ResourceContents
from ..protocol.lifecycle import ClientCapabilities, ProgressParams
from ..protocol.utilities import SEVERITY, Level, LogParams

if TYPE_CHECKING:
    from pathlib import Path

    # Only type checkers see the default, which makes a plain `Context` a `Context[Any]`; at run
    # time it would need Python 3.13 or a dependency.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from ..connection.connection import OnProgress
    from ..protocol.client_features import ToolChoice
    from ..protocol.tools import Tool
    from .sampling import Conversation, IncludeContext, Preferences, Sampled

    State = TypeVarWithDefault("State", default=Any)
else:
    State = TypeVar("State")

P = ParamSpec("P")
T = TypeVar("T")


class Flush(Struct, eq=False):
    """The result of sending a message. Await it to wait until the output buffer has room; this is
    optional."""

    call: Call

    def __await__(self) -> Generator[Any, None, None]:
        return self.call.connection.drain().__await__()  # type: ignore[no-any-return]


class MustAwait(Coroutine[Any, Any, T]):
    """A coroutine that raises an error if it is used as a result, for example as a condition.

    `if ctx.elicit("Really?", bool):` would be true without asking anyone, because every coroutine
    is truthy. This coroutine raises an error that names the missing `await`.
    """

    __slots__ = ("_inner", "_name")

    def __init__(self, inner: Coroutine[Any, Any, T], name: str) -> None:
        self._inner, self._name = inner, name

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in the coroutine."""
        return self._inner.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def __bool__(self) -> NoReturn:
        raise TypeError(self._advice())

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(self._advice())

    def _advice(self) -> str:
        self.close()
        return f"There is no answer yet; write `await ctx.{self._name}(…)` in an `async def`"


def must_await(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make an `async def` return coroutines that fail if they are used without `await`."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return MustAwait(function(*args, **kwargs), function.__name__)

    return wrapper


class Accepted(Struct, Generic[T], frozen=True):
    """The user accepted. This object evaluates to True.

    Attributes:
        action: Always "accept".
        data: The answer; None for a URL.
    """

    action: ClassVar[Literal["accept"]] = "accept"
    data: T

    def __bool__(self) -> Literal[True]:
        return True


class Declined(Struct, frozen=True):
    """The user declined to answer. This object evaluates to False.

    Attributes:
        action: Always "decline".
        data: Always None.
    """

    action: ClassVar[Literal["decline"]] = "decline"
    data: ClassVar[None] = None

    def __bool__(self) -> Literal[False]:
        return False


class Cancelled(Struct, frozen=True):
    """The user closed the form without answering. This object evaluates to False.

    Attributes:
        action: Always "cancel".
        data: Always None.
    """

    action: ClassVar[Literal["cancel"]] = "cancel"
    data: ClassVar[None] = None

    def __bool__(self) -> Literal[False]:
        return False


Elicited: TypeAlias = Accepted[T] | Declined | Cancelled
"""The user's response, with `.action` and `.data`. Type checkers know that `.data` is the answer
after `if answer:` and after `if answer.action == "accept":`."""


def read_answer(
    result: ElicitResult, read_data: Callable[[Any], Any] | None = None
) -> Elicited[Any]:
    """Return the user's response. `read_data` reads the content of a form's answer; the answer to a
    URL request has no content."""
    if result.action == "accept":
        return Accepted(None if read_data is None else read_data(result.content))
    return Declined() if result.action == "decline" else Cancelled()


class Context(Generic[State]):
    """The call that a handler is answering, with details about the caller and methods to notify and
    ask the client.

    To receive the context, annotate a parameter of a tool, resource or prompt function with
    `Context`. `Context[AppState]` names the type that the server's lifespan yields, so that type
    checkers know the type of `ctx.state`; at run time it is the same as `Context`.

    Args:
        call: The call being answered.
        server: The server that answers the call.
    """

    __slots__ = ("_call", "_server")

    def __init__(self, call: Call, server: Any) -> None:
        self._call = call
        self._server = server

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Context cannot be sent to another process")

    def __repr__(self) -> str:
        return f"<Context of {self._call.name}, request {self._call.id!r}>"

    # about the call

    @property
    def request_id(self) -> Id:
        """The id of the request."""
        return self._call.id

    @property
    def revision(self) -> str:
        """The protocol revision that the client uses."""
        return self._call.caller.revision.name

    @property
    def client(self) -> Implementation | None:
        """The name and version of the client, as the client reports them."""
        return self._call.caller.info

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that the client declared."""
        return self._call.caller.capabilities

    @property
    def shows_apps(self) -> bool:
        """Whether the client can show tool views (MCP Apps). Otherwise, users see only the text."""
        from ..extensions.apps.settings import shows_apps

        return shows_apps(self._call.caller.capabilities)

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request; empty on other transports."""
        return self._call.origin.connection.headers  # type: ignore[no-any-return]

    @property
    def user(self) -> Principal | None:
        """The authenticated caller; None if the server has no `auth=`."""
        return self._call.principal or self._call.caller.principal

    @property
    def state(self) -> State:
        """The value that the server's lifespan yielded; None if there is no lifespan."""
        return self._call.caller.state  # type: ignore[no-any-return]

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled or timed out, so that nobody is waiting for the answer.
        Check this property in long loops in a plain `def` function, which cannot be stopped from
        outside."""
        return self._call.cancelled or self._call.timed_out

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._call.params.meta or {}

    # logging and progress

    def log(self, level: Level, data: Any, logger: str | None = None) -> Flush:
        """Send a log message to the client, if the client requested messages at this level.

        Args:
            level: The severity, from "debug" to "emergency".
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).

        Returns:
            An awaitable that waits for a client that reads slowly; awaiting it is optional.
        """
        wanted = self._call.caller.log_level
        if wanted is not None and SEVERITY[level] >= wanted:
            limiter = self._server.limiter
            dropped = 0 if limiter is None else limiter.log(self._call)
            if dropped:
                text = f"{dropped} log messages were dropped: the rate limit was exceeded"
                self._emit(
                    "notifications/message", LogParams(level=level, data=text, logger="dovetail")
                )
            if dropped is not None:
                self._emit(
                    "notifications/message", LogParams(level=level, data=data, logger=logger)
                )
        return Flush(self._call)

    def debug(self, data: Any, logger: str | None = None) -> Flush:
        """Log details for debugging.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> Flush:
        """Log general information.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("info", data, logger)

    def notice(self, data: Any, logger: str | None = None) -> Flush:
        """Log a normal but significant event.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("notice", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> Flush:
        """Log a possible problem.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> Flush:
        """Log an error.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("error", data, logger)

    def critical(self, data: Any, logger: str | None = None) -> Flush:
        """Log the failure of a part of the system.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("critical", data, logger)

    def alert(self, data: Any, logger: str | None = None) -> Flush:
        """Log that immediate action is needed.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("alert", data, logger)

    def emergency(self, data: Any, logger: str | None = None) -> Flush:
        """Log that the system is unusable.

        Args:
            data: The message, as text or any value that can be sent as JSON.
            logger: The name of the logger (optional).
        """
        return self.log("emergency", data, logger)

    def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> Flush:
        """Report progress, if the client requested progress notifications.

        Args:
            done: The amount of work completed. It should increase with each report.
            total: The total amount of work, if known.
            message: A description of the current step, as shown to the user.

        Returns:
            An awaitable that waits for a client that reads slowly; awaiting it is optional.
        """
        if self._call.progress is not None:
            params = ProgressParams(progress_token=0, progress=done, total=total, message=message)
            self._run_on_loop(self._send_progress, params)
        return Flush(self._call)

    report_progress = progress

    # the server and the connection

    def notify_resource_updated(self, uri: str) -> Flush:
        """Notify all subscribers of a resource that it has changed.

        Args:
            uri: The URI of the resource.

        Returns:
            An awaitable that waits for a client that reads slowly; awaiting it is optional.
        """
        self._server.notify_resource_updated(uri)
        return Flush(self._call)

    @must_await
    async def read_resource(self, uri: str) -> list[ResourceContents]:
        """Read a resource on the same server.

        Args:
            uri: The URI of the resource; it may match a template.

        Raises:
            NotFound: There is no such resource.
            Forbidden: The caller's token lacks the scopes that the resource requires.
        """
        contents: list[ResourceContents] = await self._server.read(uri, self._call)
        return contents

    async def detach(self) -> None:
        """Answer the call with a task now, and continue in the background as that task.

        Questions asked before this point are answered while the client waits. Nothing happens if
        the call cannot become a task or is already a task.
        """
        if self._call.detach is not None:
            self._call = await self._call.detach(self._call)

    def close_stream(self) -> None:
        """Close the HTTP connection in the middle of the call, to free it during a long wait. The
        client reconnects automatically and receives the rest of the response. This works only over
        HTTP in the handshake era; otherwise, it does nothing.
        """
        self._run_on_loop(self._call.connection.close_stream, self._call)

    # asking the client

    @overload
    async def elicit(
        self,
        message: str,
        response_type: type[T],
        *,
        key: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[T]: ...
    @overload
    async def elicit(
        self,
        message: str,
        response_type: Any = None,
        *,
        key: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[Any]: ...
    @must_await
    async def elicit(
        self,
        message: str,
        response_type: Any = None,
        *,
        key: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        Args:
            message: The question, as shown to the user.
            response_type: The type of the answer: a class with plain fields (a dataclass, a
                pydantic model, a TypedDict, …), a single plain type such as `bool` or `Literal["a",
                "b"]`, or a JSON schema as a dict. None asks only for consent.
            key: Identifies the question if the handler is run again (default: derived from the
                question). A key is needed only if the same question is asked twice.
            timeout: How long to wait for the answer, in seconds (default: `Limits.ask_time`). After
                that, the question is cancelled. Progress extends the timeout, up to
                `Limits.ask_time`. In the stateless era, the timeout has no effect, except in a
                task.
            on_progress: Called with each progress update from the client (`.progress`, `.total` and
                `.message`). This function is not called in the stateless era or in tasks.

        Returns:
            The user's response. The response is true if the user accepted; `.data` is then the
            typed answer.

        Raises:
            CannotAsk: The client cannot show forms.
            SchemaError: A form cannot ask for this type.
            ConfigError: The form asks for a secret. Use `elicit_url` for secrets.
            InvalidParams: The client sent an answer that does not fit the form.
            TimedOut: There was no answer within `timeout` seconds.
        """
        from .forms import Form

        form = Form.of(response_type).labelled(message)
        params = ElicitParams(message=message, mode="form", requested_schema=form.schema)
        result: ElicitResult = await self._ask(params, key, timeout, on_progress)
        return read_answer(result, form.accept)

    @must_await
    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Elicited[None]:
        """Ask the user to visit a page, which may ask for secrets that the client must not see.

        An accepted request means that the user agreed to visit the page, not that they have
        finished there. When they have finished, call `elicitation_complete(id)`.

        Args:
            message: The reason to visit the page, as shown to the user.
            url: The URL of the page. `bind_url` creates a URL that only this user can use.
            id: Identifies the visit (default: a random id).
            key: Identifies the question if the handler is run again (default: derived from the
                question).
            timeout: How long to wait for the answer, in seconds (default: `Limits.ask_time`). After
                that, the question is cancelled. Progress extends the timeout, up to
                `Limits.ask_time`. In the stateless era, the timeout has no effect, except in a
                task.
            on_progress: Called with each progress update from the client (`.progress`, `.total` and
                `.message`). This function is not called in the stateless era or in tasks.

        Returns:
            The user's response, which is true if they accepted.

        Raises:
            CannotAsk: The client cannot direct its user to a page.
            TimedOut: There was no answer within `timeout` seconds.
        """
        if id is None:
            from secrets import token_urlsafe

            id = token_urlsafe(16)
        params = ElicitParams(message=message, mode="url", url=url, elicitation_id=id)
        result: ElicitResult = await self._ask(params, key, timeout, on_progress)
        return read_answer(result)

    def bind_url(self, url: str, id: str | None = None) -> str:
        """Return the URL with a signed ticket for the calling user.

        The page passes the URL to `server.check_url` to find out whether its visitor is that user.
        The ticket is valid for `Limits.state_life` seconds.

        Args:
            url: The URL of the page.
            id: The id that was passed to `elicit_url`; `check_url` returns it (default: a random
                id).
        """
        from secrets import token_urlsafe

        from ..connection.url_elicitation import bind_url

        server, principal = self._server, self.user
        user = None if principal is None else principal.id
        return bind_url(
            server.ring, url, server.name, user, id or token_urlsafe(16), server.limits.state_life
        )

    def elicitation_complete(self, id: str) -> None:
        """Notify the client that its user has finished on the `elicit_url` page, if the revision
        supports this notification.

        Args:
            id: The id that was passed to `elicit_url`.
        """
        if id in self._call.caller.elicitation_ids:
            self._emit(
                "notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=id)
            )
        else:
            self._server.elicitation_complete(id)

    @must_await
    async def sample(
        self,
        messages: Conversation,
        *,
        key: str | None = None,
        system_prompt: str | None = None,
        max_tokens: int = 1000,
        model_preferences: Preferences | None = None,
        temperature: float | None = None,
        stop_sequences: Iterable[str] | None = None,
        metadata: dict[str, Any] | None = None,
        include_context: IncludeContext | None = None,
        tools: Iterable[Tool | Mapping[str, Any] | Callable[..., Any]] | None = None,
        tool_choice: ToolChoice | Mapping[str, Any] | str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Sampled:
        """Ask the client's model for the next message in a conversation.

        Args:
            messages: A string, or a list of strings, content, `Message`s and previous replies. A
                list inside the list is one message with several blocks. A message without a role
                comes from the user.
            key: Identifies the question if the handler is run again (default: derived from the
                question).
            system_prompt: Instructions for the model. The client may change or omit them.
            max_tokens: The maximum length of the reply, in tokens.
            model_preferences: Model names, best first, or a `ModelPreferences` object or dict.
            temperature: How random the reply is; its range depends on the model.
            stop_sequences: Strings that end the reply.
            metadata: Settings that are passed on to the model provider unchanged.
            include_context: Whether the client adds context from its servers to the prompt.
            tools: Tools that the model may use: functions, `Tool` values, or dicts. The tools are
                not called; the reply's `.tool_uses` lists the calls that the model requests.
            tool_choice: Whether the model may ("auto"), must ("required") or must not ("none") use
                a tool.
            timeout: How long to wait for the answer, in seconds (default: `Limits.ask_time`). After
                that, the question is cancelled. Progress extends the timeout, up to
                `Limits.ask_time`. In the stateless era, the timeout has no effect, except in a
                task.
            on_progress: Called with each progress update from the client (`.progress`, `.total` and
                `.message`). This function is not called in the stateless era or in tasks.

        Returns:
            The reply, with `.text`, `.content`, `.tool_uses`, `.model` and `.stop_reason`.

        Raises:
            CannotAsk: The client does not support sampling.
            ConfigError: The request is not valid.
            TimedOut: There was no answer within `timeout` seconds.
        """
        from .sampling import Sampled, make_request

        params = make_request(
            messages,
            Context,
            system_prompt=system_prompt,
            max_tokens=max_tokens,
            model_preferences=model_preferences,
            temperature=temperature,
            stop_sequences=stop_sequences,
            metadata=metadata,
            include_context=include_context,
            tools=tools,
            tool_choice=tool_choice,
        )
        result: CreateMessageResult = await self._ask(params, key, timeout, on_progress)
        return Sampled(result)

    @must_await
    async def list_roots(
        self, *, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> list[Root]:
        """Return the directories and files that the client asks the server to work in.

        If the client notifies its servers of changes, the list is cached until the next
        notification.

        Args:
            timeout: How long to wait for the answer, in seconds (default: `Limits.ask_time`). After
                that, the question is cancelled. Progress extends the timeout, up to
                `Limits.ask_time`. In the stateless era, the timeout has no effect, except in a
                task.
            on_progress: Called with each progress update from the client (`.progress`, `.total` and
                `.message`). This function is not called in the stateless era or in tasks.

        Raises:
            CannotAsk: The client does not support roots.
            TimedOut: There was no answer within `timeout` seconds.
        """
        caller = self._call.caller
        if caller.roots is not None:
            return list(caller.roots)
        changes_before = caller.roots_generation
        result: ListRootsResult = await self._ask(Params(), None, timeout, on_progress)
        declared = caller.capabilities.roots
        notifies = (
            not caller.revision.stateless and declared is not None and declared.get("listChanged")
        )
        if notifies and caller.roots_generation == changes_before:
            caller.roots = tuple(result.roots)
        return result.roots

    @must_await
    async def inside_roots(self, path: str | os.PathLike[str]) -> bool:
        """Return whether a path is inside the client's roots, after links and `..` are resolved.

        Args:
            path: A path on this machine; it need not exist.

        Raises:
            CannotAsk: The client does not support roots.
        """
        from .root_paths import is_inside

        return is_inside(await self.list_roots(), path)

    @must_await
    async def resolve_in_roots(self, path: str | os.PathLike[str]) -> Path:
        """Resolve a path that must be inside the client's roots. Use only the returned path from
        then on.

        Args:
            path: A path on this machine; it need not exist.

        Returns:
            The real path, without links and `..`.

        Raises:
            ToolError: The path is outside the roots.
            CannotAsk: The client does not support roots.
        """
        from .root_paths import resolve

        return resolve(await self.list_roots(), path)

    @must_await
    async def once(self, key: str, function: Callable[[], Awaitable[T] | T]) -> T:
        """Run a function only once, even if the handler is run again because it asked a question.

        Args:
            key: Identifies the step within the handler.
            function: The `def` or `async def` function to run. It cannot ask questions.

        Returns:
            The value that the function returned the first time, which must be serializable as JSON.
        """
        from ..connection.input_requests import once

        return await once(self._call, key, function)  # type: ignore[no-any-return]

    def once_key(self, key: str) -> str:
        """Return a token for a step that is the same every time this handler runs, and different
        for every other call or task.

        Pass it as an idempotency key to a service that supports them. `once` cannot know whether a
        step that was interrupted by a crash has taken effect, but that service can.

        Args:
            key: Identifies the step within the handler.
        """
        from ..connection.input_requests import once_key

        return once_key(self._call, key)

    # for handlers that return InputRequired

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """The answers to the questions in `InputRequired`, as plain JSON values by key; empty on
        the first run."""
        return {
            key: msgspec.json.decode(answer) for key, answer in self._call.input_responses.items()
        }

    @property
    def request_state(self) -> str | None:
        """The state that was returned with `InputRequired`, unchanged."""
        return self._call.request_state or None

    async def _ask(
        self,
        params: Params,
        key: str | None,
        timeout: float | None,
        on_progress: OnProgress | None,
    ) -> Any:
        # imports asyncio, which importing Server must not
        from ..connection.input_requests import ask, decode_answer, question_method

        method = question_method(params)
        answer = await ask(
            self._call, method, params, key, timeout=timeout, on_progress=on_progress
        )
        return decode_answer(answer, method)

    def _send_progress(self, params: ProgressParams) -> None:
        if not self._call.finished:
            self._call.progress.update(params)

    def _emit(self, method: str, params: Any) -> None:
        self._run_on_loop(self._call.connection.notify, self._call, method, params)

    def _run_on_loop(self, function: Callable[..., None], *args: Any) -> None:
        run_on_loop(self._call.connection.loop, function, *args)
