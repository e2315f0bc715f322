"""The middleware of FastMCP and the official SDK, as one adapter on Dovetail's own."""

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import CannotAsk, InternalError, ProtocolError, ToolError
from ..logs import get_logger
from ..ports import Call, Caller, CallHandler, PendingAdmission
from ..protocol.base import Result
from ..protocol.decoding import plain
from ..protocol.lifecycle import InitializeParams
from ..protocol.raw import RawObject, encode_raw, encode_typed
from ..protocol.tools import ToolResult
from ..server.tools import describe_failure, make_error_result
from .components import Component, wrap
from .context import describe_caller
from .dependencies import ASKING
from .request import ServerRequestContext, make_request_context, make_result

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
HOOKS = {
    "initialize": "on_initialize", "server/discover": "on_discover", "tools/call": "on_call_tool",
    "tools/list": "on_list_tools", "resources/list": "on_list_resources",
    "resources/read": "on_read_resource", "prompts/get": "on_get_prompt",
    "resources/templates/list": "on_list_resource_templates", "prompts/list": "on_list_prompts",
}  # fmt: skip
LISTS = {
    "tools/list": "tools", "resources/list": "resources",
    "resources/templates/list": "resource_templates", "prompts/list": "prompts",
}  # fmt: skip
FIELDS = {
    "tools/call": ("name", "arguments"), "prompts/get": ("name", "arguments"),
    "resources/read": ("uri",),
}  # fmt: skip
"""The fields of a message that middleware may change."""


class MiddlewareContext(Struct, Generic[T], kw_only=True):
    """A request on its way to the server, whose `message` may be changed."""

    message: T
    method: str | None = None
    fastmcp_context: Any = None
    source: str = "client"
    type: str = "request"
    timestamp: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))

    def copy(self, **changes: Any) -> "MiddlewareContext[T]":
        """Return a copy with changes."""
        return replace(self, **changes)


class CallNext(Protocol[T, R_co]):
    """The function that passes a request on and returns its result."""

    def __call__(self, context: MiddlewareContext[T]) -> Awaitable[R_co]: ...


class Middleware:
    """Wraps every request. Override the hooks that you need: each receives the request and the
    function that passes it on."""

    async def __call__(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        for name in (HOOKS.get(context.method or ""), f"on_{context.type}", "on_message"):
            if name is not None:
                call_next = _bind(getattr(self, name), call_next)
        return await call_next(context)

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        """Wrap every message."""
        return await call_next(context)

    on_request = on_notification = on_initialize = on_discover = on_call_tool = on_message
    on_list_tools = on_list_resources = on_list_resource_templates = on_list_prompts = on_message
    on_read_resource = on_get_prompt = on_message


def _bind(hook: Callable[..., Any], call_next: Any) -> Any:
    return lambda context: hook(context, call_next)


class ToolFailed(ToolError):
    """A tool failed, as middleware sees it."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.text)
        self.result = result


class MiddlewareChain:
    """Dovetail middleware that runs FastMCP's."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.items: list[Any] = []

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        page: Any = None

        async def innermost(context: MiddlewareContext[Any]) -> Any:
            nonlocal page
            self._write(call, context.message)
            result = page = await next(call)
            if call.name in LISTS:
                return [
                    self._component(call.name, one) for one in getattr(result, LISTS[call.name])
                ]
            if isinstance(result, ToolResult) and result.is_error:
                raise ToolFailed(result)
            return result

        context, message = self._server.context_type(call, self._server), call.params
        if call.name == "tools/call":
            raw = message.arguments
            message = replace(message, arguments=(msgspec.json.decode(raw) if raw else None) or {})
        request = MiddlewareContext[Any](message=message, method=call.name, fastmcp_context=context)
        result = await self._run(call.name, request, innermost)
        if call.name in LISTS and page is not None and isinstance(result, Sequence):
            definitions = [
                one.to_mcp_tool() if isinstance(one, Component) else one for one in result
            ]
            setattr(page, LISTS[call.name], definitions)
            return page
        return result

    async def initialize(self, caller: Caller, pending: PendingAdmission | None) -> None:
        """Run the middleware for the `initialize` request of a new session; an error refuses it."""
        if pending is not None:
            await pending()
        params = describe_caller(caller)

        async def innermost(context: Any) -> None:
            return None

        await self._run("initialize", self._describe_session(caller, params), innermost)

    def _describe_session(self, caller: Caller, params: InitializeParams) -> Any:
        """Return the `initialize` request as middleware sees it."""
        return MiddlewareContext(message=SimpleNamespace(params=params), method="initialize")

    async def _run(self, method: str, request: Any, innermost: Any) -> Any:
        chain = innermost
        for item in reversed(self.items):
            chain = _bind(item, chain)
        try:
            return await chain(request)
        except (ProtocolError, CannotAsk):
            raise
        except Exception as error:
            own = isinstance(error, ToolError)
            text = str(error) if own else describe_failure(method, error, self._server._mask_errors)
            if method != "tools/call":
                raise InternalError(text) from None
            return getattr(error, "result", None) or make_error_result(text)

    def _write(self, call: Call, message: Any) -> None:
        """Pass changes of a message on to the server, and check the scopes again."""
        fields = {name: getattr(message, name) for name in FIELDS.get(call.name, ())}
        if call.name == "tools/call":
            fields["arguments"] = Raw(msgspec.json.encode(fields["arguments"] or {}))
        if "uri" in fields:
            fields["uri"] = str(fields["uri"])
        call.params = replace(call.params, **fields)
        self._server._require_scopes(call)

    def _component(self, method: str, definition: Any) -> Any:
        """Return a listed definition as a component, if this server has it."""
        key = getattr(definition, "uri", None) or getattr(definition, "uri_template", None)
        kind = LISTS[method].removeprefix("resource_")
        found = self._server._items(kind).get(key or definition.name)
        return definition if found is None else wrap(found, self._server)


class RequestChain(MiddlewareChain):
    """Dovetail middleware that runs the functions `(ctx, call_next)` of release 2 of the official
    SDK. They see params and results as dicts, but no calls that the program itself makes."""

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        if ASKING.get() is self._server:
            return await next(call)
        received = bytes(call.raw_params) or encode_typed(call.params)
        given, sent, outcome = plain(received), b"", None

        async def innermost(context: Any) -> Any:
            nonlocal sent, outcome
            if context.params != plain(received):
                call.raw_params = encode_raw(context.params)
                call.params = call.revision.lift_params(call.method, call.raw_params)
                self._server._require_scopes(call)
            outcome = await next(call)
            if not isinstance(outcome, Result | RawObject):
                return outcome
            sent = encode_typed(outcome.fields if type(outcome) is RawObject else outcome)
            return plain(sent)

        context = make_request_context(self._server.context_type(call, self._server), given)
        value = await self._run(call.name, context, innermost)
        unchanged = sent and isinstance(value, dict) and value == plain(sent)
        return outcome if unchanged else make_result(call.method, value)

    def _describe_session(self, caller: Caller, params: InitializeParams) -> Any:
        return ServerRequestContext(
            session=None, lifespan_context=caller.state, method="initialize", request_id=0,
            protocol_version=caller.revision.name, params=plain(encode_typed(params)),
        )  # fmt: skip


class LoggingMiddleware(Middleware):
    """Logs each request and how long it took."""

    def __init__(self, *, logger: Any = None, **format: Any) -> None:
        self._log = logger or get_logger("middleware")

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        start, outcome = time.perf_counter(), "failed"
        try:
            result = await call_next(context)
            outcome = "completed"
            return result
        finally:
            took = (time.perf_counter() - start) * 1000
            self._log.info("Request %s %s in %.2f ms", context.method, outcome, took)


class ErrorHandlingMiddleware(Middleware):
    """Logs each error, and calls a function with the error and the request."""

    def __init__(self, *, logger: Any = None, error_callback: Any = None, **format: Any) -> None:
        self._log, self._callback = logger or get_logger("middleware"), error_callback

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        try:
            return await call_next(context)
        except Exception as error:
            self._log.error("Error in %s: %s: %s", context.method, type(error).__name__, error)
            if self._callback is not None:
                self._callback(error, context)
            raise


TimingMiddleware = StructuredLoggingMiddleware = DetailedTimingMiddleware = LoggingMiddleware
