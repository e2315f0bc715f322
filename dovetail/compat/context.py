"""The context with the API of FastMCP and the official SDK, on top of `dovetail.Context`."""

from collections.abc import Mapping
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec

from ..ports import Caller
from ..protocol.base import Implementation
from ..protocol.client_features import CreateMessageResult, ElicitResult, ListRootsResult
from ..protocol.lifecycle import InitializeParams
from ..protocol.utilities import SEVERITY
from ..revisions import decode
from ..server.context import Context, Elicited, Flush, must_await
from .instead import missing_attribute
from .types import ReadPart, ReadParts

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from ..server.sampling import Conversation, Sampled

    # FastMCP and the official SDK define different type parameters for Context; here they are
    # accepted and ignored.
    A = TypeVarWithDefault("A", default=Any)
    B = TypeVarWithDefault("B", default=Any)
    C = TypeVarWithDefault("C", default=Any)
else:
    A, B, C = TypeVar("A"), TypeVar("B"), TypeVar("C")

RULES = object()
"""The key of the rules in the state of a session."""
LEVELS: tuple[Any, ...] = (*SEVERITY,)
"""The log levels. This is not a dict, because messages are looked up in it and may not be
hashable."""
ANSWERS = {"action": ElicitResult, "roots": ListRootsResult, "model": CreateMessageResult}
"""The types of answers, each by a field that only it has."""


class CompatContext(Context[Any], Generic[A, B, C]):
    """The context of a call, with all the features of `dovetail.Context`.

    Args:
        call: The call to answer.
        server: The server that answers it.

    Attributes:
        debug: Log at the level "debug".
        info: Log at the level "info".
        warning: Log at the level "warning".
        error: Log at the level "error".
        enable_components: Show components to this session, by `names`, `tags` and `components`.
        disable_components: Hide components from this session.
    """

    __slots__ = ()

    def __class_getitem__(cls, item: Any) -> "type[CompatContext]":
        return cls  # Context[ServerSession, AppContext]: only for type checkers

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("Context", name)

    @property
    def fastmcp(self) -> Any:
        """The server."""
        return self._server

    mcp_server = fastmcp

    @property
    def request_id(self) -> str:
        """The id of the request, as text."""
        return str(super().request_id)

    @property
    def client_id(self) -> str | None:
        """The `client_id` from the request's `_meta`, if there is one."""
        return self.meta.get("client_id")

    protocol_version, client_capabilities = Context.revision, Context.capabilities
    lifespan_context = Context.state

    @property
    def input_responses(self) -> Mapping[str, Any] | None:  # type: ignore[override]
        """The answers to the questions that the function has returned; None on the first run."""
        answers = self._call.input_responses.items()
        return {key: _read_answer(answer) for key, answer in answers} or None

    @property
    def request_context(self) -> "CompatContext":
        """This context, which has the attributes of a request context."""
        return self

    @property
    def request(self) -> Any:
        """The HTTP request as a Starlette request, or None on other transports."""
        from .dependencies import make_http_request

        return make_http_request(self)

    @property
    def transport(self) -> str:
        """Either "stdio" or "streamable-http", which stands for all transports over HTTP."""
        return "streamable-http" if self.headers else "stdio"

    @property
    def session(self) -> "CompatSession":
        """The messages that a server can send to its client in addition to the answer."""
        return CompatSession(self)

    @property
    def session_id(self) -> str:
        """The id of the session; in the stateless era, it differs for each request."""
        from uuid import uuid4

        own = self._call.origin.caller.session_id
        return own or str(self._session_state.setdefault(None, uuid4().hex))

    def set_state(self, key: str, value: Any, **ignored: Any) -> Flush:
        """Keep a value for the later requests of this session, in this process.

        Args:
            key: The key.
            value: The value.
            **ignored: Other options of FastMCP, which have no effect.
        """
        self._session_state[key] = value
        return Flush(self._call)

    @must_await
    async def get_state(self, key: str, default: Any = None) -> Any:
        """Return a value that `set_state` has kept.

        Args:
            key: The key.
            default: The value to return if there is none.
        """
        return self._session_state.get(key, default)

    def delete_state(self, key: str) -> Flush:
        """Forget a value that `set_state` has kept.

        Args:
            key: The key.
        """
        self._session_state.pop(key, None)
        return Flush(self._call)

    async def _add_rule(self, shows: bool, match_all: bool = False, **wanted: Any) -> None:
        self._server._add_rule(shows, state=self._session_state, **wanted)

    enable_components: Any = partialmethod(_add_rule, True)
    disable_components: Any = partialmethod(_add_rule, False)

    async def reset_visibility(self) -> None:
        """Show this session the same components as all others."""
        self._session_state.pop(RULES, None)

    @property
    def _session_state(self) -> dict[Any, Any]:
        state: dict[Any, Any] = self._server._session_state(self._call)
        return state

    def log(
        self, *texts: Any, level: Any = None, data: Any = None, message: Any = None, **more: Any
    ) -> Flush:
        """Send a log message to the client: `log("info", text)`, or `log(text, "info")`.

        Args:
            *texts: The level and the message, in any order; then the logger and `extra`.
            level: The severity, from "debug" to "emergency" (default: "info").
            data: The message; `data` is the official SDK's name for it.
            message: The message; `message` is FastMCP's name for it.
            **more: `logger` or `logger_name`, and fields to add to the message.
        """
        positional = [*texts[:2], *(text for text in (data, message) if text is not None)]
        text = positional.pop()
        more |= dict(zip(("logger_name", "extra"), texts[2:], strict=False))
        first, second = more.pop("logger_name", None), more.pop("logger", None)
        extra = more.pop("extra", None) or more
        level = level or (positional[0] if positional else "info")
        # In FastMCP, the message comes first and the level is optional.
        if level not in LEVELS and text in (None, *LEVELS):
            level, text = text or "info", level
        return super().log(level, {"message": text, **extra} if extra else text, first or second)

    debug: Any = partialmethod(log, "debug")
    info: Any = partialmethod(log, "info")
    warning: Any = partialmethod(log, "warning")
    error: Any = partialmethod(log, "error")

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Flush:
        """Report progress, if the client asked for progress updates.

        Args:
            progress: How much work is done.
            total: How much work there is in total, if known.
            message: A human-readable description of the current step.
        """
        return self.progress(progress, total, message)

    def _notify_changed(self, kind: str) -> Flush:
        self._server.notify_list_changed(kind)
        return Flush(self._call)

    notify_tools_changed = partialmethod(_notify_changed, "tools")
    notify_resources_changed = partialmethod(_notify_changed, "resources")
    notify_prompts_changed = partialmethod(_notify_changed, "prompts")

    @must_await
    async def read_resource(self, uri: Any) -> ReadParts:  # type: ignore[override]
        """Read a resource from the same server, as parts with `.content` and `.mime_type`.

        Args:
            uri: The URI of the resource.
        """
        return read_parts(await super().read_resource(str(uri)))

    @must_await
    async def elicit(
        self, message: str, response_type: Any = None, *, schema: Any = None, **more: Any
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        Args:
            message: The question to show to the user.
            response_type: A class with plain fields, a plain type, or a list of choices.
            schema: The official SDK's name for `response_type`.
            **more: The other options of `dovetail.Context.elicit`.
        """
        form = response_type if schema is None else schema
        return await super().elicit(
            message, Literal[tuple(form)] if isinstance(form, list) else form, **more
        )

    @must_await
    async def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, **more: Any
    ) -> Elicited[None]:
        """Ask the user to visit a page.

        Args:
            message: The reason for the visit, which is shown to the user.
            url: The URL of the page.
            elicitation_id: Identifies the visit (default: a random id).
            **more: `key`, `timeout` and `on_progress`, as in `dovetail.Context.elicit_url`.
        """
        return await super().elicit_url(message, url, id=elicitation_id, **more)

    @must_await
    async def sample(
        self, messages: "Conversation", *, max_tokens: int = 512, **options: Any
    ) -> "Sampled":
        """Ask the client's model for the next message in a conversation; its text is `.text`.

        Args:
            messages: A string, or a list of messages.
            max_tokens: The maximum length of the reply, in tokens.
            **options: The options of `dovetail.Context.sample`.
        """
        return await super().sample(messages, max_tokens=max_tokens, **options)

    async def close_sse_stream(self) -> None:
        """Do nothing: Dovetail decides when a client has to poll for the result."""

    close_standalone_sse_stream = close_sse_stream


def _read_answer(raw: Any) -> Any:
    fields = msgspec.json.decode(raw)
    kind = next((ANSWERS[name] for name in ANSWERS if name in fields), None)
    return fields if kind is None else decode(raw, kind)


def describe_caller(caller: Caller) -> InitializeParams:
    """Return what a client said about itself."""
    version, info = caller.revision.version, cast("Implementation", caller.info)
    return InitializeParams(
        protocol_version=version, capabilities=caller.capabilities, client_info=info
    )


def read_parts(contents: Any) -> ReadParts:
    """Return the contents of a resource as parts with `.content` and `.mime_type`."""
    return ReadParts(
        ReadPart(part.data if part.text is None else part.text, part.mime_type) for part in contents
    )


class CompatSession:
    """The messages that a server can send to its client in addition to the answer, with the names
    of the official SDK.

    Args:
        context: The context of the call.
    """

    __slots__ = ("_context",)

    def __init__(self, context: CompatContext) -> None:
        self._context = context

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("ServerSession", name)

    async def create_message(
        self, messages: "Conversation", *, max_tokens: int, **options: Any
    ) -> CreateMessageResult:
        """Ask the client's model for the next message in a conversation.

        Args:
            messages: A string, or a list of messages.
            max_tokens: The maximum length of the reply, in tokens.
            **options: The options of `dovetail.Context.sample`.
        """
        options.pop("related_request_id", None)
        return (await self._context.sample(messages, max_tokens=max_tokens, **options)).result

    client_capabilities = property(
        lambda self: self._context.capabilities, doc="The capabilities that the client declared."
    )

    @property
    def client_params(self) -> InitializeParams:
        """What the client said about itself."""
        return describe_caller(self._context._call.caller)

    async def elicit(
        self,
        message: str,
        requested_schema: Any = None,
        related_request_id: Any = None,
        **more: Any,
    ) -> Any:
        """Ask the user to fill in a form.

        Args:
            message: The question to show to the user.
            requested_schema: The JSON schema of the form.
            related_request_id: Has no effect: messages belong to the call that is answered.
            **more: `requestedSchema`, which is the same in release 1.
        """
        answer = await self._context.elicit(message, requested_schema or more["requestedSchema"])
        return ElicitResult(action=answer.action, content=answer.data)

    elicit_form = elicit

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str, related_request_id: Any = None
    ) -> Any:
        """Ask the user to visit a page.

        Args:
            message: The reason for the visit, which is shown to the user.
            url: The URL of the page.
            elicitation_id: Identifies the visit.
            related_request_id: Has no effect: messages belong to the call that is answered.
        """
        answer = await self._context.elicit_url(message, url, elicitation_id)
        return ElicitResult(action=answer.action)

    async def send_elicit_complete(
        self, elicitation_id: str, related_request_id: Any = None
    ) -> None:
        """Notify the client that its user has finished on a page.

        Args:
            elicitation_id: The id of the visit.
            related_request_id: Has no effect: messages belong to the call that is answered.
        """
        self._context.elicitation_complete(elicitation_id)

    async def report_progress(self, *progress: Any, **more: Any) -> None:
        """Report progress, if the client asked for progress updates.

        Args:
            *progress: The arguments of `Context.report_progress`.
            **more: The same by name.
        """
        await self._context.report_progress(*progress, **more)

    async def send_progress_notification(self, token: Any = None, *args: Any, **more: Any) -> None:
        """Report progress, if the client asked for progress updates.

        Args:
            token: Has no effect: progress belongs to the call that is being answered.
            *args: The arguments of `report_progress`.
            **more: The same by name.
        """
        ignored = ("progress_token", "related_request_id")
        given = {key: value for key, value in more.items() if key not in ignored}
        await self._context.report_progress(*args, **given)

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification to the client.

        Args:
            notification: The notification.
            related_request_id: Has no effect: messages belong to the call that is answered.
        """
        method, params = notification.method, notification.params
        if method == "notifications/message":  # only from the level that the client asked for
            await self._context.log(params.level, params.data, logger=params.logger)
        elif method == "notifications/resources/updated":
            await self.send_resource_updated(params.uri)
        elif method.endswith("/list_changed"):
            await self._send_list_changed(method.split("/")[1])
        else:
            self._context._emit(method, params)

    async def list_roots(self) -> ListRootsResult:
        """Return the directories that the client wants the server to work in."""
        return ListRootsResult(roots=await self._context.list_roots())

    async def send_log_message(
        self, level: Any, data: Any, logger: str | None = None, **ignored: Any
    ) -> None:
        """Send a log message to the client.

        Args:
            level: The severity, from "debug" to "emergency".
            data: The message.
            logger: The name of the logger, if there are several.
            **ignored: Other arguments of the official SDK; they have no effect.
        """
        await self._context.log(level, data, logger=logger)

    async def send_resource_updated(self, uri: Any) -> None:
        """Notify all subscribers of a resource that it has changed.

        Args:
            uri: The URI of the resource.
        """
        await self._context.notify_resource_updated(str(uri))

    async def _send_list_changed(self, kind: str) -> None:
        self._context.fastmcp.notify_list_changed(kind)

    send_tool_list_changed = partialmethod(_send_list_changed, "tools")
    send_resource_list_changed = partialmethod(_send_list_changed, "resources")
    send_prompt_list_changed = partialmethod(_send_list_changed, "prompts")
