"""The low-level server of the official SDK, its session manager and its transports.

Release 1 registers handlers with decorators, `@server.list_tools()`, and release 2 with arguments,
`Server("name", on_list_tools=…)`. Both become handlers of a `dovetail.Server`, so they are served
in every revision and over every transport.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import cache, partial
from inspect import signature
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import CannotAsk, ConfigError, InternalError, ProtocolError, UrlRequired
from ..ports import Call
from ..protocol import CompleteResult, Completion, ServerCapabilities
from ..protocol.base import Wire
from ..protocol.header_params import find_header_params
from ..protocol.lifecycle import InputRequired
from ..protocol.methods import METHODS
from ..protocol.tools import ToolResult
from ..schema.validation import compile as compile_schema
from ..server.capabilities import DEFAULTS
from ..server.resources import make_contents
from ..server.server import Server
from ..server.service import answer_in_connection
from ..server.tools import describe_failure, make_error_result
from . import types
from .context import CompatContext
from .instead import missing_attribute, refuse_options
from .listing import MiddlewareHost
from .request import make_request_context, make_result, read_tool_params
from .resources import forward_events
from .server import FastMCP, _app_lifespan, read_security

HANDLERS = {
    "list_tools": "ListTools", "call_tool": "CallTool name arguments",
    "list_resources": "ListResources", "list_resource_templates": "ListResourceTemplates",
    "read_resource": "ReadResource uri", "subscribe_resource": "Subscribe uri",
    "unsubscribe_resource": "Unsubscribe uri", "list_prompts": "ListPrompts",
    "get_prompt": "GetPrompt name arguments", "completion": "Complete ref argument context",
    "set_logging_level": "SetLevel level",
}  # fmt: skip
"""For each decorator: the request, and the params that the function accepts."""
UNUSED = ("progress_notification", "on_progress", "on_roots_list_changed", "on_ping")
"""The handlers that are accepted, but not called, because Dovetail handles these messages."""
IN_CONNECTION = ("resources/subscribe", "resources/unsubscribe", "logging/setLevel")
LISTS = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts",
         "resources/templates/list": "resource_templates", "resources/read": "contents",
}  # fmt: skip
ABOUT = (
    "version", "instructions", "website_url", "icons", "lifespan", "title", "description", "cache",
)  # fmt: skip
"""The arguments of the constructor in the order of release 1, and those that release 2 adds."""
LIST_TOOLS = types.ListToolsRequest
_request: ContextVar[Any] = ContextVar("request")
ReadResourceContents = types.ReadPart


class Attributes(SimpleNamespace):
    """An object that has the attributes that it is created with."""

    __class_getitem__ = classmethod(lambda cls, item: cls)


NotificationOptions = InitializationOptions = RequestContext = Attributes


class RequestHandlers(dict[Any, Any]):
    """The handlers by request type; assigning one registers it."""

    def __init__(self, server: "LowLevelServer") -> None:
        self._server = server

    def __setitem__(self, request_type: Any, handler: Any) -> None:
        super().__setitem__(request_type, handler)
        method, answer = types.REQUESTS[request_type.__name__], self._server._answer
        hinting = self._server._caching.hinting(method, partial(answer, request_type))
        self._server.add_handlers({method: hinting})


class LowLevelServer(MiddlewareHost):
    """The low-level server of the official SDK."""

    context_type, _options, _chain_kind = CompatContext, None, "RequestChain"
    notify_list_changed = FastMCP.notify_list_changed
    __class_getitem__ = classmethod(lambda cls, item: cls)

    def __init__(self, name: str, *about: Any, **more: Any) -> None:
        more |= dict(zip(ABOUT, about, strict=False)) | {"cache": more.pop("cache_hints", None)}
        bus, middleware = more.pop("on_subscriptions_listen", None), more.pop("middleware", None)
        super().__init__(name, **{key: more.pop(key) for key in ABOUT if more.get(key)})
        self.request_handlers, self._listed = RequestHandlers(self), dict[str, Any]()
        self._input_schema = more.pop("get_tool_input_schema", None) or (lambda name: None)
        for key in [key for key in more if key[:3] == "on_"]:
            if (handler := more.pop(key)) is not None and key not in UNUSED:
                self._register(key.removeprefix("on_"), handler, with_context=True)
        refuse_options({key: value for key, value in more.items() if value}, "Server")
        if bus is not None:
            forward_events(bus, self)
        if middleware:
            self.middleware.extend(middleware)

    def __getattr__(self, name: str) -> Any:
        if name in self.info.__struct_fields__:
            return getattr(self.info, name)
        if name not in HANDLERS and name not in UNUSED:
            raise missing_attribute("Server", name)
        return lambda **options: partial(self._register, name, **options)

    def _register(
        self, name: str, function: Any, validate_input: bool = True, with_context: bool = False
    ) -> Any:
        if name not in HANDLERS:
            if name in UNUSED:
                return function
            raise ConfigError(f"Server has no option on_{name}=")
        stem, *fields = HANDLERS[name].split()

        async def handle(request: Any) -> Any:
            if with_context:
                return await function(self.request_context, request.params)
            given = [_url(request.params, field) for field in fields]
            if name == "call_tool":
                return await self._call_listed_tool(function, validate_input, *given)
            if not given and signature(function).parameters:
                given = [request]
            return await function(*given)

        self.request_handlers[getattr(types, f"{stem}Request")] = handle
        return function

    def add_request_handler(self, method: str, params_type: Any, handler: Any) -> None:
        """Register a handler of release 2 for a method."""
        stems = {
            types.REQUESTS[f"{line.split()[0]}Request"]: name for name, line in HANDLERS.items()
        }
        if method not in stems:
            from .extension import MethodBinding, add_methods

            id = f"dovetail.compat/{method.replace('/', '.')}"
            add_methods(self, id, [MethodBinding(method, params_type, handler)], silent=True)
            return
        self._register(stems[method], handler, with_context=True)

    request_context = property(lambda self: _request.get())
    can_ask = _can_change = lambda self, *_: True  # type: ignore[assignment]

    def header_params(self, tool: str) -> Any:
        """Return the tool parameters that HTTP requests repeat in their headers."""
        return find_header_params(self._input_schema(tool) or {})

    async def _answer(self, request_type: Any, call: Call) -> Any:
        context = self.context_type(call, self)
        params = read_tool_params(call) if call.name == "tools/call" else call.params
        if call.method.asks:
            answers, state = context.input_responses, context.request_state
            params = replace(params, input_responses=answers, request_state=state)
        token = _request.set(make_request_context(context, params))
        try:
            request = request_type.kind(method=call.name, params=params)
            value = await self.request_handlers[request_type](request)
            if request_type is LIST_TOOLS:
                self._listed = {}  # a schema may have changed
            if call.name in IN_CONNECTION:
                return await answer_in_connection(call)
            return _make_result(call, value)
        except (ProtocolError, CannotAsk):
            raise
        except Exception as error:
            raise InternalError(describe_failure(call.name, error, self._mask_errors)) from None
        finally:
            _request.reset(token)

    async def _call_listed_tool(
        self, function: Any, validate: bool, name: str, arguments: Any
    ) -> ToolResult:
        try:
            tool = await self._find_listed(name) if validate else None
            if tool and (problem := _problem("Input", tool.input_schema, arguments or {})):
                return problem
            result = _make_tool_result(await function(name, arguments or {}))
            if not tool or result.is_error or tool.output_schema is None:
                return result
            return _problem("Output", tool.output_schema, result.structured_content) or result
        except (UrlRequired, CannotAsk):
            raise
        except Exception as error:
            return make_error_result(describe_failure(name, error, self._mask_errors))

    async def _find_listed(self, name: str) -> Any:
        if name not in self._listed and (handler := self.request_handlers.get(LIST_TOOLS)):
            found = await handler(LIST_TOOLS())
            self._listed = {tool.name: tool for tool in getattr(found, "tools", found)}
        return self._listed.get(name)

    def get_capabilities(
        self, notification_options: Any = None, experimental_capabilities: Any = None
    ) -> ServerCapabilities:
        """Return the capabilities of the registered handlers."""
        methods = [METHODS[types.REQUESTS[each.__name__]] for each in self.request_handlers]
        handled = {method.capability for method in methods}
        declared: dict[str, Any] = {kind: {} for kind in DEFAULTS if kind in (*handled, "logging")}
        for kind in declared.keys() & {"tools", "resources", "prompts"}:
            changed = getattr(notification_options, f"{kind}_changed", False)
            declared[kind] = {"listChanged": changed}
        if "resources.subscribe" in handled:
            declared.setdefault("resources", {})["subscribe"] = True
        return ServerCapabilities.lift({"experimental": experimental_capabilities, **declared})

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self.get_capabilities() if self._options is None else self._options.capabilities

    def create_initialization_options(self, *options: Any, **more: Any) -> Attributes:
        """Return what the server says about itself."""
        about = {"server_name": self.name, "server_version": self.info.version}
        capabilities = self.get_capabilities(*options, **more)
        return InitializationOptions(capabilities=capabilities, **about)

    def streamable_http_app(
        self, streamable_http_path: str = "/mcp", host: Any = None, **options: Any
    ) -> Any:
        """Return an ASGI application that serves this server."""
        return self.asgi(streamable_http_path, **_http_options(options))

    async def run(  # type: ignore[override]
        self, read: Any, write: Any, initialization_options: Any = None, *_: Any, **ignored: Any
    ) -> None:
        """Serve one client over the streams of `stdio_server()` or `connect_sse(…)`."""
        if not isinstance(read, Attributes):
            raise ConfigError("run() accepts only the streams of stdio_server() and connect_sse()")
        self._options = options = initialization_options
        if options is not None:
            self.info.name, self.info.version = options.server_name, options.server_version
            self.instructions = getattr(options, "instructions", None) or self.instructions
        await read.serve(self)


def _url(params: Any, field: str) -> Any:
    """Return a field of the params; a URI is pydantic's type, if the server uses pydantic."""
    value, pydantic = getattr(params, field), sys.modules.get("pydantic")
    return _url_type(pydantic.AnyUrl)(value) if pydantic and field == "uri" else value


@cache
def _url_type(base: Any) -> Any:
    """Return a URL type whose values equal the text of the same URL, as resources have it."""
    equal = {"__eq__": lambda self, other: str(self) == str(other), "__hash__": base.__hash__}
    return type("Url", (base,), equal)


def _problem(what: str, schema: Any, value: Any) -> ToolResult | None:
    problems = "; ".join(compile_schema(schema).problems(value))
    return make_error_result(f"{what} validation error: {problems}") if problems else None


def _make_result(call: Call, value: Any) -> Any:
    kind: Any = METHODS[call.name].result
    if kind is CompleteResult and not isinstance(value, CompleteResult):
        return kind(completion=value or Completion(values=[]))
    if call.name not in LISTS or isinstance(value, Wire | InputRequired):
        return make_result(call.method, value)
    if call.name == "resources/read":
        parts = [types.ReadPart(value)] if isinstance(value, str | bytes) else list(value)
        made = [make_contents(part.content, call.params.uri, part.mime_type) for part in parts]
        value = [replace(one, meta=part.meta) for (one,), part in zip(made, parts, strict=True)]
    return kind(**{LISTS[call.name]: list(value)})


def _make_tool_result(value: Any) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, dict):
        text = msgspec.json.format(msgspec.json.encode(value)).decode()
        value = [types.TextContent(text=text)], value
    content, structured = value if isinstance(value, tuple) else (value, None)
    return ToolResult(content=list(content), structured_content=structured)


@asynccontextmanager
async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[Any]:
    """Yield the two streams with which `run` serves standard input and output."""
    refuse_options({"stdin": stdin, "stdout": stdout}, "stdio_server()")
    stream = Attributes(serve=lambda server: server.run_async("stdio"))
    yield stream, stream


class SseServerTransport:
    """HTTP+SSE (2024-11-05), to be mounted in your own application."""

    def __init__(self, endpoint: str, security_settings: Any = None) -> None:
        self._endpoint = endpoint
        self._options = _http_options({"security_settings": security_settings})
        self._app: Any = None

    @asynccontextmanager
    async def connect_sse(self, scope: Any, receive: Any, send: Any) -> AsyncIterator[Any]:
        """Yield the two streams with which `run` serves a client."""

        async def serve(server: Server) -> None:
            if self._app is None:
                self._app = server.asgi("/mcp", sse="/sse", **self._options)
                message = scope.get("root_path", "").rstrip("/") + self._endpoint
                self._app.paths = replace(self._app.paths, message=message)
            await self._app({**scope, "path": "/sse", "root_path": ""}, receive, send)

        stream = Attributes(serve=serve)
        yield stream, stream

    async def handle_post_message(self, scope: Any, receive: Any, send: Any) -> None:
        """Accept a message from a client."""
        state = await self._app.start()
        await self._app._routes._post_sse(state, self._endpoint, scope, receive, send)


class StreamableHTTPSessionManager:
    """Streamable HTTP, to be mounted in your own application."""

    def __init__(self, app: Server, event_store: Any = None, **options: Any) -> None:
        self._app = app.asgi(**_http_options({"event_store": event_store, **options}))

    def run(self) -> AbstractAsyncContextManager[None]:
        """Serve until the block ends."""
        return _app_lifespan(self._app, None)

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        await self._app({**scope, "path": "", "root_path": ""}, receive, send)


def _http_options(options: dict[str, Any]) -> dict[str, Any]:
    settings = options.pop("security_settings", None) or options.pop("transport_security", None)
    stateless = options.pop("stateless", False) or options.pop("stateless_http", False)
    own: dict[str, Any] = {"json_only": options.pop("json_response", False)}
    refuse_options({key: value for key, value in options.items() if value}, "The HTTP transport")
    own |= {} if settings is None else read_security(settings)
    return {**own, "sessions": not stateless}
