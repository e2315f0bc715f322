"""The low-level server of the official SDK, its session manager and its transports.

Release 1 registers handlers with decorators, `@server.list_tools()`; release 2 with arguments,
`Server("name", on_list_tools=…)`. Both become handlers of a `dovetail.Server`, so they are served
in every revision and over every transport.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from ..errors import ConfigError, InternalError, ProtocolError, UrlRequired
from ..ports import Call
from ..protocol.base import EmptyResult, Wire
from ..protocol.lifecycle import ServerCapabilities
from ..protocol.methods import METHODS
from ..protocol.resources import ReadResourceResult
from ..protocol.tools import ToolResult
from ..protocol.utilities import CompleteResult, Completion
from ..server.capabilities import DEFAULTS
from ..server.resources import make_contents
from ..server.server import Server
from ..server.service import answer_in_connection
from ..server.tools import describe_failure, make_error_result
from . import types
from .context import CompatContext, CompatSession
from .instead import missing_attribute, refuse_options
from .server import FastMCP

HANDLERS = {
    "list_tools": ("ListTools", lambda params: ()),
    "call_tool": ("CallTool", lambda params: (params.name, params.arguments or {})),
    "list_resources": ("ListResources", lambda params: ()),
    "list_resource_templates": ("ListResourceTemplates", lambda params: ()),
    "read_resource": ("ReadResource", lambda params: (_url(params.uri),)),
    "subscribe_resource": ("Subscribe", lambda params: (_url(params.uri),)),
    "unsubscribe_resource": ("Unsubscribe", lambda params: (_url(params.uri),)),
    "list_prompts": ("ListPrompts", lambda params: ()),
    "get_prompt": ("GetPrompt", lambda params: (params.name, params.arguments)),
    "completion": ("Complete", lambda params: (params.ref, params.argument, params.context)),
    "set_logging_level": ("SetLevel", lambda params: (params.level,)),
}
"""For each decorator: the request, and the arguments of the function."""
IN_CONNECTION = ("resources/subscribe", "resources/unsubscribe", "logging/setLevel")
"""The methods that the connection also has to know about."""
NOTIFICATIONS = ("progress_notification", "on_progress", "on_roots_list_changed")
_request: ContextVar[Any] = ContextVar("request")


class MetaAttributes(dict[str, Any]):
    """The `_meta` of a request, whose keys are also attributes."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class NotificationOptions(NamedTuple):
    """The lists whose changes a server announces."""

    prompts_changed: bool = False
    resources_changed: bool = False
    tools_changed: bool = False


class InitializationOptions(Wire, kw_only=True):
    """What a server says about itself to a new client."""

    server_name: str
    server_version: str
    capabilities: ServerCapabilities
    instructions: str | None = None
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Any] | None = None


class ReadResourceContents(NamedTuple):
    """One part of a resource."""

    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None


class RequestHandlers(dict[type, Callable[..., Any]]):
    """The handlers by request type; assigning one registers it."""

    def __init__(self, server: "LowLevelServer") -> None:
        self._server = server

    def __setitem__(self, request_type: type, handler: Callable[..., Any]) -> None:
        super().__setitem__(request_type, handler)
        method = types.REQUESTS[request_type.__name__.removesuffix("Request")]
        self._server.add_handlers({method: partial(self._server._answer, request_type)})


class LowLevelServer(Server):
    """The low-level server of the official SDK.

    Args:
        name: The name of the server.
        version: The version of the server.
        instructions: How to use the server; clients may pass this text to the model.
        website_url: A page about the server.
        icons: Icons that clients may show for the server.
        lifespan: An async context manager function that is entered before the first request.
        **more: `title`, `description`, and the handlers of release 2, such as `on_list_tools`.
    """

    context_type = CompatContext
    notify_list_changed = FastMCP.notify_list_changed

    def __class_getitem__(cls, item: Any) -> "type[LowLevelServer]":
        return cls  # Server[AppContext]: only for type checkers

    def __init__(
        self,
        name: str,
        version: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        lifespan: Any = None,
        **more: Any,
    ) -> None:
        about = {key: more.pop(key) for key in ("title", "description") if key in more}
        super().__init__(
            name,
            version=version or "0.0.0",
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            lifespan=lifespan,
            **about,
        )
        self.request_handlers = RequestHandlers(self)
        self.notification_handlers: dict[str, Any] = {}
        self.options: InitializationOptions | None = None
        self._listed: dict[str, Any] = {}
        handlers = {key: more.pop(key) for key in [*more] if key[:3] == "on_" and more[key]}
        refuse_options(more, "Server")
        for key, handler in handlers.items():
            if key in NOTIFICATIONS:
                self.notification_handlers[key] = handler
            elif key != "on_ping":
                self._register(key.removeprefix("on_"), handler, with_context=True)

    def __getattr__(self, name: str) -> Any:
        if name in ("version", "title", "description", "website_url", "icons"):
            return getattr(self.info, name)
        if name in HANDLERS or name in NOTIFICATIONS:
            return partial(_decorate, self, name)
        raise missing_attribute("Server", name)

    def _register(
        self, name: str, function: Any, validate_input: bool = True, with_context: bool = False
    ) -> None:
        if name not in HANDLERS:
            raise ConfigError(f"Server has no option on_{name}=")
        stem, arguments = HANDLERS[name]

        async def handle(request: Any) -> Any:
            if with_context:
                return await function(self.request_context, request.params)
            given = arguments(request.params)
            if name == "call_tool":
                return await self._call_listed_tool(function, validate_input, *given)
            accepts_request = not given and function.__code__.co_argcount > 0
            return await function(*((request,) if accepts_request else given))

        self.request_handlers[getattr(types, f"{stem}Request")] = handle

    # calls

    @property
    def request_context(self) -> Any:
        """The request that is being answered: session, meta, lifespan_context, request_id; raise
        LookupError if there is none."""
        return _request.get()

    def can_ask(self, call: Call) -> bool:
        """Return True: any handler can ask the client."""
        return True

    def _can_change(self, uri: str, principal: Any) -> bool:
        return True

    async def _answer(self, request_type: Any, call: Call) -> Any:
        context, params = CompatContext(call, self), call.params
        if call.name == "tools/call":
            raw = bytes(memoryview(params.arguments)) or b"null"
            params = types.OWN["CallToolParams"](
                name=params.name, arguments=msgspec.json.decode(raw), meta=params.meta
            )
        meta = None if params.meta is None else MetaAttributes(params.meta)
        token = _request.set(
            SimpleNamespace(
                session=CompatSession(context),
                meta=meta,
                lifespan_context=context.state,
                request_id=call.id,
                request=None,
                protocol_version=call.revision.name,
                method=call.name,
                params=params,
            )
        )
        try:
            request = request_type.kind(method=call.name, params=params)
            value = await self.request_handlers[request_type](request)
            return await self._make_result(call, value)
        except ProtocolError:
            raise
        except Exception as error:
            raise InternalError(describe_failure(call.name, error, self._mask_errors)) from None
        finally:
            _request.reset(token)

    async def _make_result(self, call: Call, value: Any) -> Any:
        kind: Any = METHODS[call.name].result
        if call.name in IN_CONNECTION:
            return await answer_in_connection(call)
        if isinstance(value, Wire):
            return CompleteResult(completion=value) if isinstance(value, Completion) else value
        if kind is ReadResourceResult:
            return kind(contents=_make_parts(value, call.params.uri))
        if kind is CompleteResult:
            return kind(completion=Completion(values=list(value or ())))
        if value is None:
            return EmptyResult()
        field = next(each for each in kind.__struct_fields__ if each in LIST_FIELDS)
        return kind(**{field: list(value)})

    async def _call_listed_tool(
        self, function: Any, validate: bool, name: str, arguments: Any
    ) -> ToolResult:
        try:
            tool = await self._find_listed(name) if validate else None
            if tool is not None and (problems := _problems(tool.input_schema, arguments)):
                return make_error_result(f"Input validation error: {problems}")
            result = _make_tool_result(await function(name, arguments))
            schema = tool and not result.is_error and tool.output_schema
            if schema and (problems := _problems(schema, result.structured_content)):
                return make_error_result(f"Output validation error: {problems}")
            return result
        except UrlRequired:
            raise
        except Exception as error:
            return make_error_result(describe_failure(name, error, self._mask_errors))

    async def _find_listed(self, name: str) -> Any:
        handler = self.request_handlers.get(types.ListToolsRequest)
        if name not in self._listed and handler is not None:
            found = await handler(types.ListToolsRequest())
            self._listed = {tool.name: tool for tool in getattr(found, "tools", found)}
        return self._listed.get(name)

    # what clients are told

    def get_capabilities(
        self, notification_options: Any = None, experimental_capabilities: Any = None
    ) -> ServerCapabilities:
        """Return the capabilities of the registered handlers.

        Args:
            notification_options: The lists whose changes the server announces.
            experimental_capabilities: Experimental capabilities to declare.
        """
        handled = {METHODS[name].capability for name in self._handled}
        declared: dict[str, Any] = {kind: {} for kind in DEFAULTS if kind in handled}
        for kind in declared.keys() & {"tools", "resources", "prompts"}:
            changed = getattr(notification_options, f"{kind}_changed", False)
            declared[kind] = {"listChanged": changed}
        if "resources.subscribe" in handled:
            declared.setdefault("resources", {})["subscribe"] = True
        return ServerCapabilities.lift(
            {"logging": {}, **declared, "experimental": experimental_capabilities or None}
        )

    @property
    def _handled(self) -> list[str]:
        return [
            types.REQUESTS[each.__name__.removesuffix("Request")] for each in self.request_handlers
        ]

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self.get_capabilities() if self.options is None else self.options.capabilities

    def create_initialization_options(
        self, notification_options: Any = None, experimental_capabilities: Any = None, **more: Any
    ) -> InitializationOptions:
        """Return what the server says about itself.

        Args:
            notification_options: The lists whose changes the server announces.
            experimental_capabilities: Experimental capabilities to declare.
            **more: Other options of release 2; they have no effect.
        """
        return InitializationOptions(
            server_name=self.name,
            server_version=self.info.version,
            capabilities=self.get_capabilities(notification_options, experimental_capabilities),
            instructions=self.instructions,
        )

    async def run(  # type: ignore[override]
        self, read: Any, write: Any, initialization_options: Any = None, *more: Any, **ignored: Any
    ) -> None:
        """Serve one client.

        Args:
            read: The first stream of `stdio_server()` or `connect_sse(…)`.
            write: The second stream.
            initialization_options: What the server says about itself.
            *more: Other arguments of the SDK; they have no effect.
            **ignored: Other arguments of the SDK; they have no effect.
        """
        if not hasattr(read, "serve"):
            raise ConfigError("run() accepts only the streams of stdio_server() and connect_sse()")
        self.options = options = initialization_options
        if options is not None:
            self.info.name, self.info.version = options.server_name, options.server_version
            self.instructions = options.instructions or self.instructions
        await read.serve(self)


LIST_FIELDS = ("tools", "resources", "resource_templates", "prompts")


def _decorate(server: LowLevelServer, name: str, /, **options: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        if name in NOTIFICATIONS:
            server.notification_handlers[name] = function
        else:
            server._register(name, function, **options)
        return function

    return decorate


def _url(uri: str) -> Any:
    """Return the URL as pydantic's type, if the server uses pydantic."""
    if "pydantic" not in sys.modules:
        return uri
    from pydantic import AnyUrl

    return AnyUrl(uri)


def _problems(schema: Any, value: Any) -> str:
    from ..schema.validation import compile

    return "; ".join(compile(schema).problems(value))


def _make_tool_result(value: Any) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    content, structured = value, None
    if isinstance(value, tuple) and len(value) == 2:
        content, structured = value
    elif isinstance(value, dict):
        text = msgspec.json.format(msgspec.json.encode(value)).decode()
        content, structured = [types.TextContent(text=text)], value
    return ToolResult(content=list(content), structured_content=structured)


def _make_parts(value: Any, uri: str) -> list[Any]:
    if isinstance(value, str | bytes):
        return make_contents(value, uri, None)
    parts = []
    for part in value:
        (made,) = make_contents(part.content, uri, part.mime_type)
        made.meta = getattr(part, "meta", None)
        parts.append(made)
    return parts


# ------------------------------------------------------------------------------------------------
# transports


class StdioStream:
    """A stream that stands for standard input and output."""

    async def serve(self, server: LowLevelServer) -> None:
        """Serve the client on standard input and output."""
        await server.run_async("stdio")


@asynccontextmanager
async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[Any]:
    """Yield the two streams with which `run` serves standard input and output.

    Args:
        stdin: Must be None.
        stdout: Must be None.
    """
    refuse_options({"stdin": stdin, "stdout": stdout}, "stdio_server()")
    yield StdioStream(), StdioStream()


class SseStream(NamedTuple):
    """A stream that stands for the event stream of one client."""

    transport: "SseServerTransport"
    request: Any

    async def serve(self, server: LowLevelServer) -> None:
        """Serve the client until it disconnects."""
        scope, receive, send = self.request
        transport, root = self.transport, scope.get("root_path", "").rstrip("/")
        if transport.app is None:
            transport.app = server.asgi("/mcp", sse="/sse", **transport.options)
            message = root + "/" + transport.endpoint.lstrip("/")
            transport.app.paths = msgspec.structs.replace(transport.app.paths, message=message)
        await transport.app({**scope, "path": "/sse", "root_path": ""}, receive, send)


class SseServerTransport:
    """HTTP+SSE (2024-11-05), to be mounted in your own application.

    Args:
        endpoint: The path to which clients post messages.
        security_settings: The hosts and origins that are allowed.
    """

    def __init__(self, endpoint: str, security_settings: Any = None) -> None:
        self.endpoint, self.options = endpoint, _allowed(security_settings)
        self.app: Any = None

    @asynccontextmanager
    async def connect_sse(self, scope: Any, receive: Any, send: Any) -> AsyncIterator[Any]:
        """Yield the two streams with which `run` serves a client.

        Args:
            scope: The ASGI scope.
            receive: The ASGI receive function.
            send: The ASGI send function.
        """
        stream = SseStream(self, (scope, receive, send))
        yield stream, stream

    async def handle_post_message(self, scope: Any, receive: Any, send: Any) -> None:
        """Accept a message from a client.

        Args:
            scope: The ASGI scope.
            receive: The ASGI receive function.
            send: The ASGI send function.
        """
        state, path = await self.app.start(), self.app.paths.message
        await self.app._routes._post_sse(state, path, scope, receive, send)


class StreamableHTTPSessionManager:
    """Streamable HTTP, to be mounted in your own application.

    Args:
        app: The server.
        event_store: Must be None; events are kept in memory.
        json_response: Whether to answer every POST with a single JSON body.
        stateless: Whether clients receive no session.
        security_settings: The hosts and origins that are allowed.
        **more: Must be None.
    """

    def __init__(
        self,
        app: Server,
        event_store: Any = None,
        json_response: bool = False,
        stateless: bool = False,
        security_settings: Any = None,
        **more: Any,
    ) -> None:
        refuse_options({"event_store": event_store, **more}, "StreamableHTTPSessionManager")
        self.app = app.asgi(
            json_only=json_response, sessions=not stateless, **_allowed(security_settings)
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve until the block ends."""
        await self.app.start()
        try:
            yield
        finally:
            await self.app.close()

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request.

        Args:
            scope: The ASGI scope.
            receive: The ASGI receive function.
            send: The ASGI send function.
        """
        await self.app({**scope, "path": "", "root_path": ""}, receive, send)


def _allowed(settings: Any) -> Any:
    if settings is None:
        return {}
    if not settings.enable_dns_rebinding_protection:
        return {"hosts": ["*"], "origins": ["*"]}
    return {"hosts": settings.allowed_hosts, "origins": settings.allowed_origins}
