"""The host side of the conversation with a view, independent of the window that shows the view.

    bridge = Bridge(client, view, send, ViewHost(name="chat", on_link=ask_the_user))
    reply = await bridge.handle(message)        # from the view's window; post the reply
    result = await bridge.call({"city": "Oslo"})   # also notifies the view

A view runs code written by the server's author. A view may read that server's resources, and call
the tools that the server offers to apps. The host grants everything else by passing functions to
`ViewHost`. `handle` never raises, whatever a view sends, and nothing is sent to a view before it
reports that it is ready. Each view's policy and all its requests are logged to
`dovetail.extensions`.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx#communication-protocol
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ...errors import (
    ConfigError,
    DovetailError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    ProtocolError,
)
from ...jsonrpc import messages
from ...jsonrpc.messages import Error, ErrorResponse, Notification, Request, Response
from ...logs import get_logger
from ...net import why_not_openable
from ...protocol.resources import ReadResourceParams, ReadResourceResult
from ...protocol.tools import CallToolParams, Tool, ToolResult
from ...revisions import APPS as REVISION, HANDSHAKE
from .settings import visible
from .view import View

log = get_logger("extensions")

Json: TypeAlias = dict[str, Any]
Mode = Literal["inline", "fullscreen", "pip"]
DENIED = -32000
"""The error code for requests that the host or its user denies."""
MAX_IN_FLIGHT = 64
"""The maximum number of messages from one view that are handled at the same time. Further requests
are refused, and further notifications are dropped."""
MAX_PIXELS = 100_000
"""The largest width and height that a view may request."""
TEARDOWN_ID = 1
"""The id of the only request that the host sends to a view."""


class ViewHost(Struct, frozen=True, kw_only=True, eq=False):
    """The features that a host offers to its views. Each is a function, which may be async.

    A view cannot use a feature that has no function. A function that decides about a request
    returns whether it granted the request.
    """

    name: str
    """The name of the host, as shown to views."""
    version: str = "0.0.0"
    """The version of the host, as shown to views."""
    context: Mapping[str, Any] = {}
    """The initial `hostContext` of a view, in wire form: `theme`, `locale`,
    `containerDimensions`, …"""
    on_call: Callable[[Tool, Json], Any] | None = None
    """Returns whether a view may call this tool with these arguments (default: yes, if the tool's
    visibility allows the call)."""
    on_link: Callable[[str], Any] | None = None
    """Opens a URL if the user agrees, and returns whether the URL was opened."""
    on_message: Callable[[str, Any], Any] | None = None
    """Adds a message from the view (role and content) to the conversation, and returns whether the
    message was added."""
    on_model_context: Callable[[Json], Any] | None = None
    """Replaces the view state that the model sees, and returns whether the state was stored."""
    on_display_mode: Callable[[Mode], Any] | None = None
    """Shows the view inline, in fullscreen or as picture-in-picture, and returns the new mode if
    the mode changed."""
    on_size: Callable[[float | None, float | None], Any] | None = None
    """Called with the width and height that the view requests, in pixels."""
    on_log: Callable[[Json], Any] | None = None
    """Called with a log message from the view (`level`, `data` and `logger`)."""


class _Initialize(Struct, rename="camel"):
    protocol_version: str
    app_capabilities: Json = {}
    app_info: Json = {}


class _Link(Struct):
    url: str


class _ViewMessage(Struct):
    role: Literal["user"]
    content: Json | list[Json]


class _ModelContext(Struct, rename="camel", omit_defaults=True):
    content: list[Json] = []
    structured_content: Json = {}


class _DisplayMode(Struct):
    mode: Mode


class _Size(Struct):
    width: float | None = None
    height: float | None = None


class Bridge:
    """The host side of the conversation with one view.

    Args:
        client: The `Client` that is connected to the view's server.
        view: The view, as returned by `client.read_app`.
        send: A function that posts a message to the view's window.
        host: The features that the host offers to the view.
    """

    def __init__(
        self, client: Any, view: View, send: Callable[[Json], None], host: ViewHost
    ) -> None:
        self.view, self.host = view, host
        self.context: Json = {"displayMode": "inline", **host.context}
        """The view's current `hostContext`."""
        self._client, self._send = client, send
        self._view_modes: list[Any] | None = None
        """The display modes that the view supports; None if the view does not declare any."""
        self._initialized = self._ready = False
        self._sent: list[str] = []
        """The notifications about the tool call that have already been sent."""
        self._queue: list[Json] = []
        """Messages for a view that is not ready yet."""
        self._in_flight = 0
        self._torn_down: asyncio.Event | None = None
        """Set when the view answers `ui/resource-teardown`."""
        log.info(
            "Showing %r with policy %r and permissions %r",
            view.uri,
            view.content_security_policy,
            view.allow,
        )

    # messages from the view

    async def handle(self, message: Any) -> Json | None:
        """Handle a message from the view, and return the reply to post, if any. Never raises.

        Args:
            message: The data that the view's window posted.
        """
        try:
            received = messages.decode(messages.encode(message))
        except (messages.Malformed, TypeError, ValueError, RecursionError) as error:
            failure = error.failure if isinstance(error, messages.Malformed) else None
            return _wire(
                failure
                or ErrorResponse(
                    None, Error(InvalidRequest.code, "The message is not valid JSON-RPC")
                )
            )
        self._in_flight += 1
        try:
            if isinstance(received, Request):
                return _wire(await self._answer(received))
            if isinstance(received, Notification):
                await self._receive(received)
        finally:
            self._in_flight -= 1
        if (
            isinstance(received, Response | ErrorResponse)
            and received.id == TEARDOWN_ID
            and self._torn_down is not None
        ):
            self._torn_down.set()
        return None

    async def _answer(self, request: Request) -> Response | ErrorResponse:
        try:
            if self._in_flight > MAX_IN_FLIGHT:
                raise Overloaded(
                    f"This view has {MAX_IN_FLIGHT} requests in flight; wait until one of them "
                    "finishes"
                )
            if request.method not in _REQUESTS:
                raise MethodNotFound(f"This host does not offer {request.method} to views")
            type_, answer, log_field = _REQUESTS[request.method]
            if not self._initialized and request.method not in ("ui/initialize", "ping"):
                raise InvalidRequest(f"{request.method} was sent before ui/initialize")
            params = _params(request, type_)
            log.info(
                "View %r requests %s %.200r",
                self.view.uri,
                request.method,
                getattr(params, log_field, ""),
            )
            return Response(request.id, await answer(self, params))
        except ProtocolError as error:
            return ErrorResponse(request.id, Error(error.code, error.message, error.data))
        except DovetailError as error:
            return ErrorResponse(request.id, Error(DENIED, str(error)))
        except Exception:
            log.exception("The host failed to handle %s", request.method)
            return ErrorResponse(
                request.id, Error(-32603, f"The host failed to handle {request.method}")
            )

    async def _receive(self, notification: Notification) -> None:
        if notification.method not in _NOTIFICATIONS or self._in_flight > MAX_IN_FLIGHT:
            return
        type_, handle = _NOTIFICATIONS[notification.method]
        try:
            await handle(self, _params(notification, type_))
        except ProtocolError:
            pass  # a notification has no answer
        except Exception:
            log.exception("The host failed to handle %s", notification.method)

    async def _initialize(self, params: _Initialize) -> Json:
        self._initialized = True
        modes = params.app_capabilities.get("availableDisplayModes")
        self._view_modes = modes if isinstance(modes, list) else None
        if self.view.tool is not None:
            self.context["toolInfo"] = {"tool": _wire(HANDSHAKE[-1].lower(self.view.tool))}
        return {
            "protocolVersion": REVISION,
            "hostInfo": {"name": self.host.name, "version": self.host.version},
            "hostCapabilities": self._capabilities(),
            "hostContext": self.context,
        }

    def _capabilities(self) -> Json:
        granted: Json = {
            "openLinks": self.host.on_link and {},
            "message": self.host.on_message and {"text": {}},
            "updateModelContext": self.host.on_model_context
            and {"text": {}, "structuredContent": {}},
            "logging": self.host.on_log and {},
        }
        always: Json = {"serverTools": {}, "serverResources": {}, "sandbox": self.view.granted}
        return always | {name: value for name, value in granted.items() if value is not None}

    async def _ping(self, _: Any) -> Json:
        return {}

    async def _call_tool(self, params: CallToolParams) -> ToolResult:
        # List the tools each time (the client may have cached them): one may have changed since.
        tools: list[Tool] = await self._client.list_tools()
        tool = next((tool for tool in tools if tool.name == params.name), None)
        if tool is None or not visible(tool, "app"):
            raise InvalidParams(
                f"No tool named {params.name!r} is available to apps", parameter="name"
            )
        arguments = _decoded(params.arguments or b"{}", Json, "tools/call")
        if self.host.on_call is not None and not await _await_result(
            self.host.on_call(tool, arguments)
        ):
            raise ProtocolError(DENIED, "The call was denied")
        return await self._call(params.name, arguments)

    async def _call(self, name: str, arguments: Json) -> ToolResult:
        result: ToolResult = await self._client.call_tool(name, arguments, raise_on_error=False)
        return HANDSHAKE[-1].lower(result)  # type: ignore[no-any-return]

    async def _read(self, params: ReadResourceParams) -> ReadResourceResult:
        result = ReadResourceResult(contents=await self._client.read_resource(params.uri))
        return HANDSHAKE[-1].lower(result)  # type: ignore[no-any-return]

    async def _open_link(self, params: _Link) -> Json:
        if why_not_openable(params.url) is not None:
            raise ProtocolError(DENIED, "Invalid URL")
        return await self._allowed(self.host.on_link, "Opening the link was denied", params.url)

    async def _message(self, params: _ViewMessage) -> Json:
        return await self._allowed(
            self.host.on_message, "Sending the message was denied", params.role, params.content
        )

    async def _model_context(self, params: _ModelContext) -> Json:
        return await self._allowed(
            self.host.on_model_context,
            "Updating the context was denied",
            msgspec.to_builtins(params),
        )

    async def _allowed(self, function: Callable[..., Any] | None, refusal: str, *args: Any) -> Json:
        if function is None or not await _await_result(function(*args)):
            raise ProtocolError(DENIED, refusal)
        return {}

    async def _display_mode(self, params: _DisplayMode) -> Json:
        function, modes = self.host.on_display_mode, self.modes
        if function is not None and params.mode in modes:
            shown = await _await_result(function(params.mode))
            self.context["displayMode"] = shown if shown in modes else self.context["displayMode"]
        return {"mode": self.context["displayMode"]}

    async def _on_initialized(self, _: Any) -> None:
        if self._initialized and not self._ready:
            self._ready = True
            for message in self._queue:
                self._send(message)
            self._queue.clear()

    async def _size(self, params: _Size) -> None:
        sizes = (params.width, params.height)
        if self.host.on_size is not None and all(
            size is None or 0 <= size <= MAX_PIXELS for size in sizes
        ):
            await _await_result(self.host.on_size(*sizes))

    async def _log_message(self, params: Json) -> None:
        if self.host.on_log is not None:
            await _await_result(self.host.on_log(params))

    # messages to the view

    @property
    def modes(self) -> list[Any]:
        """The display modes in which the view may be shown.

        These are the `availableDisplayModes` of the host's context that the view also supports.
        """
        offered = self.context.get("availableDisplayModes", ())
        return [mode for mode in offered if self._view_modes is None or mode in self._view_modes]

    async def call(self, arguments: Json | None = None) -> ToolResult:
        """Call this view's tool, and notify the view of the tool's input and result.

        Args:
            arguments: The arguments for the tool (default: none).

        Raises:
            ConfigError: The view was read by its URI and does not belong to a tool.
        """
        if self.view.tool is None:
            raise ConfigError(
                f"{self.view.uri} was read by its URI, so it has no tool to call. Read the view "
                "by the tool's name instead"
            )
        self.tool_input(arguments or {})
        try:
            result = await self._call(self.view.tool.name, arguments or {})
        except BaseException as error:
            self.tool_cancelled(
                str(error) if isinstance(error, DovetailError) else "The call was cancelled"
            )
            raise
        self.tool_result(result)
        return result

    def tool_input_partial(self, arguments: Json) -> None:
        """Notify the view of the arguments that the model has written so far.

        Args:
            arguments: The incomplete arguments. They are dropped if the view is not ready.
        """
        if self._ready and not self._sent:
            self._notify("tool-input-partial", {"arguments": arguments})

    def tool_input(self, arguments: Json) -> None:
        """Notify the view of the arguments of the tool call that it shows.

        Args:
            arguments: The complete arguments.
        """
        self._notify_once("tool-input", {"arguments": arguments}, after=[])

    def tool_result(self, result: ToolResult) -> None:
        """Notify the view of the result of the tool call.

        Args:
            result: The result, even if it is an error.
        """
        self._notify_once("tool-result", _wire(HANDSHAKE[-1].lower(result)), after=["tool-input"])

    def tool_cancelled(self, reason: str) -> None:
        """Notify the view that the tool call has no result.

        Args:
            reason: The reason, as plain text.
        """
        self._notify_once("tool-cancelled", {"reason": reason}, after=["tool-input"])

    def change_context(self, **changes: Any) -> None:
        """Change the host context, and notify the view as soon as it is ready.

        Args:
            changes: The changed fields, under their wire names, such as `theme`.

        Raises:
            ConfigError: The view cannot be shown in that `displayMode`.
        """
        mode = changes.get("displayMode", self.context["displayMode"])
        if mode not in (*self.modes, self.context["displayMode"]):
            raise ConfigError(
                f"{self.view.uri} cannot be shown in the mode {mode!r}; the host and the view "
                f"both support {self.modes}"
            )
        self.context |= changes
        if self._initialized:  # otherwise, the answer to ui/initialize contains the changes
            self._notify("host-context-changed", changes)

    async def teardown(self, reason: str = "", timeout: float = 2.0) -> None:
        """Notify the view that it will be removed, and wait until it is ready to be removed.

        Args:
            reason: The reason, as plain text.
            timeout: How long to wait, in seconds.
        """
        if not self._ready:
            return
        if self._torn_down is None:
            self._torn_down = asyncio.Event()
            params, method = {"reason": reason}, "ui/resource-teardown"
            self._send({"jsonrpc": "2.0", "id": TEARDOWN_ID, "method": method, "params": params})
        with suppress(TimeoutError):
            await asyncio.wait_for(self._torn_down.wait(), timeout)

    def _notify_once(self, name: str, params: Json, after: list[str]) -> None:
        if self._sent != after:
            sent = " and ".join(self._sent) or "nothing"
            raise ConfigError(
                f"{name} cannot follow {sent}: a view shows only one call. Read a new view for "
                "each call"
            )
        self._sent.append(name)
        self._notify(name, params)

    def _notify(self, name: str, params: Json) -> None:
        message = {"jsonrpc": "2.0", "method": f"ui/notifications/{name}", "params": params}
        if self._ready:
            self._send(message)
        else:
            self._queue.append(message)


_REQUESTS: dict[str, tuple[Any, Callable[[Bridge, Any], Awaitable[Any]], str]] = {
    # method: type of the params, handler, and the field of the params that is logged
    "ui/initialize": (_Initialize, Bridge._initialize, "app_info"),
    "ping": (Json, Bridge._ping, ""),
    "tools/call": (CallToolParams, Bridge._call_tool, "name"),
    "resources/read": (ReadResourceParams, Bridge._read, "uri"),
    "ui/open-link": (_Link, Bridge._open_link, "url"),
    "ui/message": (_ViewMessage, Bridge._message, "role"),
    "ui/update-model-context": (_ModelContext, Bridge._model_context, ""),
    "ui/request-display-mode": (_DisplayMode, Bridge._display_mode, "mode"),
}
_NOTIFICATIONS: dict[str, tuple[Any, Callable[[Bridge, Any], Awaitable[None]]]] = {
    "ui/notifications/initialized": (Json, Bridge._on_initialized),
    "ui/notifications/size-changed": (_Size, Bridge._size),
    "notifications/message": (Json, Bridge._log_message),
}


def _params(message: Request | Notification, type_: Any) -> Any:
    return _decoded(message.params or b"{}", type_, message.method)


def _decoded(raw: Raw | bytes, type_: Any, method: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=type_)
    except msgspec.MsgspecError as problem:
        raise InvalidParams.from_decoding(method, problem) from None


def _wire(value: Any) -> Json:
    """Convert a value to JSON that can be posted to a window."""
    return msgspec.json.decode(messages.encode(value), type=Json)


async def _await_result(value: Any) -> Any:
    return await value if isawaitable(value) else value
