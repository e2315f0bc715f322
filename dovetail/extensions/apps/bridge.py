"""The host's end of the conversation with a view, without the window in between.

    bridge = Bridge(client, view, send, ViewHost(name="chat", on_link=ask_the_user))
    reply = await bridge.handle(message)        # from the view's window; post the reply
    result = await bridge.call({"city": "Oslo"})   # also notifies the view

A view runs code of the server's author. It may call the tools of that server that are meant for
apps, and read its resources. Everything else is up to the host, which grants it by giving
`ViewHost` a function. Nothing that a view sends makes `handle` raise, and nothing is sent to a view
before it says that it is ready. The policy of each view, and every request it makes, is logged to
`dovetail.extensions`.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx#communication-protocol
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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
from ...jsonrpc import codec
from ...jsonrpc.messages import Error, ErrorResponse, Notification, Request, Response
from ...net import why_not_openable
from ...protocol.resources import ReadResourceParams, ReadResourceResult
from ...protocol.tools import CallToolParams, Tool, ToolResult
from ...revisions import APPS as REVISION
from ...revisions import HANDSHAKE
from .settings import visible
from .view import View

if TYPE_CHECKING:
    import asyncio
    import logging

Json: TypeAlias = dict[str, Any]
Mode = Literal["inline", "fullscreen", "pip"]
DENIED = -32000
"""The code for what the host, or its user, does not want."""
IN_FLIGHT = 64
"""Messages of one view being dealt with at once. What comes on top is refused, and not heard where
it is a notification."""
LARGEST = 100_000
"""The most pixels that a view may want to be."""
TEARDOWN = 1
"""The id of the one request that a view is sent."""


class ViewHost(Struct, frozen=True, kw_only=True, eq=False):
    """What a host does for its views. All functions may be async; those that allow something return
    whether they do."""

    name: str
    version: str = "0.0.0"
    context: Mapping[str, Any] = {}
    """What views are told at their beginning, in wire form: `theme`, `locale`,
    `containerDimensions`, …"""
    on_call: Callable[[Tool, Json], Any] | None = None
    """Whether a view may make this call. All are allowed that the tool's visibility allows, unless
    it is given."""
    on_link: Callable[[str], Any] | None = None
    """Ask the user about a link, and open it."""
    on_message: Callable[[str, Any], Any] | None = None
    """Put what a view says (role and content) into the conversation."""
    on_model_context: Callable[[Json], Any] | None = None
    """Keep what a model should know of a view's state, instead of what was kept before."""
    on_display_mode: Callable[[Mode], Any] | None = None
    """Show a view inline, fullscreen or as a picture in a picture; returns how it is shown now,
    where that has changed."""
    on_size: Callable[[float | None, float | None], Any] | None = None
    """Make room: the width and height that a view would like to have."""
    on_log: Callable[[Json], Any] | None = None
    """Hear what a view logs: `level`, `data`, `logger`."""


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
    """One view's conversation with its host."""

    def __init__(
        self, client: Any, view: View, send: Callable[[Json], None], host: ViewHost
    ) -> None:
        self.view, self.host = view, host
        self.context: Json = {"displayMode": "inline", **host.context}
        """What the view knows of where it is shown."""
        self._client, self._send = client, send
        self._able: list[Any] | None = None
        """The display modes that the view says it has."""
        self._begun = self._ready = False
        self._told: list[str] = []
        self._waiting: list[Json] = []
        self._flying = 0
        self._left: asyncio.Event | None = None
        """Whether the view has come to its end, once it was told to."""
        _log().info(
            "%r: shown with the policy %r, and allowed %r",
            view.uri,
            view.content_security_policy,
            view.allow,
        )

    # what comes from the view

    async def handle(self, message: Any) -> Json | None:
        """Take a message of the view; its answer, where it gets one."""
        try:
            came = codec.decode(codec.encode(message))
        except (codec.Malformed, TypeError, ValueError, RecursionError) as error:
            failure = error.failure if isinstance(error, codec.Malformed) else None
            return _wire(
                failure or ErrorResponse(None, Error(InvalidRequest.code, "This is no message"))
            )
        self._flying += 1
        try:
            if isinstance(came, Request):
                return _wire(await self._answer(came))
            if isinstance(came, Notification):
                await self._hear(came)
        finally:
            self._flying -= 1
        if (
            isinstance(came, Response | ErrorResponse)
            and came.id == TEARDOWN
            and self._left is not None
        ):
            self._left.set()
        return None

    async def _answer(self, request: Request) -> Response | ErrorResponse:
        try:
            if self._flying > IN_FLIGHT:
                raise Overloaded(
                    f"This view has {IN_FLIGHT} requests under way; wait for one of them"
                )
            if request.method not in _REQUESTS:
                raise MethodNotFound(f"This host has no {request.method} for views")
            type_, answer, named = _REQUESTS[request.method]
            if not self._begun and request.method not in ("ui/initialize", "ping"):
                raise InvalidRequest(f"{request.method} came before ui/initialize")
            params = _params(request, type_)
            _log().info(
                "%r: asks for %s %.200r", self.view.uri, request.method, getattr(params, named, "")
            )
            return Response(request.id, await answer(self, params))
        except ProtocolError as error:
            return ErrorResponse(request.id, Error(error.code, error.message, error.data))
        except DovetailError as error:
            return ErrorResponse(request.id, Error(DENIED, str(error)))
        except Exception:
            _log().exception("The host failed at %s", request.method)
            return ErrorResponse(request.id, Error(-32603, f"The host failed at {request.method}"))

    async def _hear(self, notification: Notification) -> None:
        if notification.method not in _NOTIFICATIONS or self._flying > IN_FLIGHT:
            return
        type_, hear = _NOTIFICATIONS[notification.method]
        try:
            await hear(self, _params(notification, type_))
        except ProtocolError:
            pass  # nobody waits for an answer to what makes no sense
        except Exception:
            _log().exception("The host failed at %s", notification.method)

    async def _initialize(self, params: _Initialize) -> Json:
        self._begun = True
        able = params.app_capabilities.get("availableDisplayModes")
        self._able = able if isinstance(able, list) else None
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
        # Asked for each time, though the client may still have the answer: a tool may have come,
        # gone or changed since.
        tools: list[Tool] = await self._client.list_tools()
        tool = next((one for one in tools if one.name == params.name), None)
        if tool is None or not visible(tool, "app"):
            raise InvalidParams(f"There is no tool {params.name!r} for apps")
        arguments = _decoded(params.arguments or b"{}", Json, "tools/call")
        if self.host.on_call is not None and not await _outcome(self.host.on_call(tool, arguments)):
            raise ProtocolError(DENIED, "The call was denied")
        return await self._called(params.name, arguments)

    async def _called(self, name: str, arguments: Json) -> ToolResult:
        result: ToolResult = await self._client.call_tool(name, arguments, raise_on_error=False)
        return HANDSHAKE[-1].lower(result)  # type: ignore[no-any-return]

    async def _read(self, params: ReadResourceParams) -> ReadResourceResult:
        result = ReadResourceResult(contents=await self._client.read_resource(params.uri))
        return HANDSHAKE[-1].lower(result)  # type: ignore[no-any-return]

    async def _open_link(self, params: _Link) -> Json:
        if why_not_openable(params.url) is not None:
            raise ProtocolError(DENIED, "Invalid URL")
        return await self._allowed(self.host.on_link, "Link opening denied", params.url)

    async def _message(self, params: _ViewMessage) -> Json:
        return await self._allowed(
            self.host.on_message, "Message sending denied", params.role, params.content
        )

    async def _model_context(self, params: _ModelContext) -> Json:
        return await self._allowed(
            self.host.on_model_context, "Context update denied", msgspec.to_builtins(params)
        )

    async def _allowed(self, function: Callable[..., Any] | None, refusal: str, *args: Any) -> Json:
        if function is None or not await _outcome(function(*args)):
            raise ProtocolError(DENIED, refusal)
        return {}

    async def _display_mode(self, params: _DisplayMode) -> Json:
        function, modes = self.host.on_display_mode, self.modes
        if function is not None and params.mode in modes:
            shown = await _outcome(function(params.mode))
            self.context["displayMode"] = shown if shown in modes else self.context["displayMode"]
        return {"mode": self.context["displayMode"]}

    async def _initialized(self, _: Any) -> None:
        if self._begun and not self._ready:
            self._ready = True
            for message in self._waiting:
                self._send(message)
            self._waiting.clear()

    async def _size(self, params: _Size) -> None:
        sizes = (params.width, params.height)
        if self.host.on_size is not None and all(
            one is None or 0 <= one <= LARGEST for one in sizes
        ):
            await _outcome(self.host.on_size(*sizes))

    async def _logged(self, params: Json) -> None:
        if self.host.on_log is not None:
            await _outcome(self.host.on_log(params))

    # what goes to the view

    @property
    def modes(self) -> list[Any]:
        """The display modes that the host has (`availableDisplayModes` of its context) and the view
        too, if it says so. It "MUST NOT" be shown in others."""
        offered = self.context.get("availableDisplayModes", ())
        return [mode for mode in offered if self._able is None or mode in self._able]

    async def call(self, arguments: Json | None = None) -> ToolResult:
        """Call the tool whose view this is, and tell the view of it."""
        if self.view.tool is None:
            raise ConfigError(
                f"{self.view.uri} was read by its URI; read the view of a tool to call that tool"
            )
        self.tool_input(arguments or {})
        try:
            result = await self._called(self.view.tool.name, arguments or {})
        except BaseException as error:
            self.tool_cancelled(
                str(error) if isinstance(error, DovetailError) else "The call was cancelled"
            )
            raise
        self.tool_result(result)
        return result

    def tool_input_partial(self, arguments: Json) -> None:
        """As much of the arguments as a model has written so far; only a view that is ready hears
        of it."""
        if self._ready and not self._told:
            self._tell("tool-input-partial", {"arguments": arguments})

    def tool_input(self, arguments: Json) -> None:
        """The arguments of the call that the view is shown for."""
        self._once("tool-input", {"arguments": arguments}, after=[])

    def tool_result(self, result: ToolResult) -> None:
        """What came of that call."""
        self._once("tool-result", _wire(HANDSHAKE[-1].lower(result)), after=["tool-input"])

    def tool_cancelled(self, reason: str) -> None:
        """Nothing came of that call."""
        self._once("tool-cancelled", {"reason": reason}, after=["tool-input"])

    def change_context(self, **changes: Any) -> None:
        """Something about where the view is shown is different now; names as on the wire, such as
        `theme`."""
        mode = changes.get("displayMode", self.context["displayMode"])
        if mode not in (*self.modes, self.context["displayMode"]):
            raise ConfigError(
                f"{self.view.uri} cannot be shown {mode!r}; what host and view both have is "
                f"{self.modes}"
            )
        self.context |= changes
        if self._ready:
            self._tell("host-context-changed", changes)

    async def teardown(self, reason: str = "", timeout: float = 2.0) -> None:
        """Tell the view that it comes to its end, and give it time to say that it is done."""
        if not self._ready:
            return
        import asyncio

        if self._left is None:
            self._left = asyncio.Event()
            params = {"reason": reason}
            self._send(
                {
                    "jsonrpc": "2.0",
                    "id": TEARDOWN,
                    "method": "ui/resource-teardown",
                    "params": params,
                }
            )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._left.wait(), timeout)

    def _once(self, name: str, params: Json, after: list[str]) -> None:
        if self._told != after:
            told = " and ".join(self._told) or "nothing"
            raise ConfigError(
                f"{name} cannot be told to a view now, which was told {told}; each call has a "
                "view of its own"
            )
        self._told.append(name)
        self._tell(name, params)

    def _tell(self, name: str, params: Json) -> None:
        message = {"jsonrpc": "2.0", "method": f"ui/notifications/{name}", "params": params}
        if self._ready:
            self._send(message)
        else:
            self._waiting.append(message)


_REQUESTS: dict[str, tuple[Any, Callable[[Bridge, Any], Awaitable[Any]], str]] = {
    # the type of the params, what answers, and which of the params is named in the log
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
    "ui/notifications/initialized": (Json, Bridge._initialized),
    "ui/notifications/size-changed": (_Size, Bridge._size),
    "notifications/message": (Json, Bridge._logged),
}


def _params(message: Request | Notification, type_: Any) -> Any:
    return _decoded(message.params or b"{}", type_, message.method)


def _decoded(raw: Raw | bytes, type_: Any, method: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=type_)
    except msgspec.MsgspecError as problem:
        raise InvalidParams(f"{method}: {problem}") from None


def _wire(value: Any) -> Json:
    """A value as the JSON that a window can be posted."""
    return msgspec.json.decode(codec.encode(value), type=Json)


async def _outcome(value: Any) -> Any:
    return await value if isawaitable(value) else value


def _log() -> "logging.Logger":
    import logging

    return logging.getLogger("dovetail.extensions")
