"""The server classes of FastMCP and the official SDK, built on `Server`. They have the same run
methods, and the same parameters in the same order."""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from ..errors import ConfigError
from ..ports import Call
from ..protocol.base import ListChangedParams
from ..protocol.tools import ToolResult
from ..protocol.utilities import CompleteResult, Completion
from ..server.options import CommonToolOptions, ComponentOptions, ResourceOptions, Transport
from ..server.server import Completable, Server
from ..server.tools import RegisteredTool, make_any_result
from .context import CompatContext
from .instead import INSTEAD, missing_attribute, refuse_options

if TYPE_CHECKING:
    from ..serve.app import App

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Options = dict[str, Any]
TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "sse": "sse",
}
SETTINGS: Options = {
    "host": "127.0.0.1",
    "port": 8000,
    "streamable_http_path": "/mcp",
    "sse_path": "/sse",
    "message_path": "/messages/",
    "json_response": False,
    "stateless_http": False,
    "log_level": None,
    "warn_on_duplicate_tools": True,
    "warn_on_duplicate_resources": True,
    "warn_on_duplicate_prompts": True,
    "dependencies": (),
}
"""The attributes of `settings`, which the constructor accepts as options. The message path has no
effect, because the server tells clients where to post messages. The last four also have no effect:
two components with the same name are always an error, and dependencies concern only a command
line."""
SERVER_OPTIONS = frozenset(Server.__init__.__kwdefaults__ or ()) - {"auth"}
"""The options of `Server`, which are also accepted."""


class CompatToolOptions(CommonToolOptions, total=False):
    """The options of `FastMCP.tool`."""

    structured_output: bool | None
    tags: Iterable[str] | None
    task: bool | Literal["optional", "required"] | None
    run_in_thread: bool


class CompatResourceOptions(ResourceOptions, total=False):
    """The options of `FastMCP.resource`."""

    tags: Iterable[str] | None


class CompatPromptOptions(ComponentOptions, total=False):
    """The options of `FastMCP.prompt`."""

    tags: Iterable[str] | None


class HintingMeta(type):
    """The metaclass that raises a helpful error for a missing class attribute."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise missing_attribute(cls.__name__, name)


class FastMCP(Server, metaclass=HintingMeta):
    """A server with the API of FastMCP and of release 1 of the official SDK.

    Args:
        name: The name of the server (default: "FastMCP").
        instructions: How to use the server; clients may pass this text to the model.
        website_url: A page about the server.
        icons: Icons that clients may show for the server.
        tools: Functions to register as tools.
        auth: The guard that authenticates callers, from `dovetail.auth`.
        mask_error_details: Whether to hide the text of unexpected exceptions from clients.
        list_page_size: The number of items per page of a list (default: all items on one page).
        on_duplicate: Only "error" is supported: two components with the same name are an error.
        strict_input_validation: Only False is supported: a string that contains a number is
            accepted as a number.
        **more: The options of `dovetail.Server`, and the settings of FastMCP and the official SDK:
            host, port, log_level, stateless_http, json_response, streamable_http_path, sse_path, ….

    Raises:
        ConfigError: An option is unknown. The message says what to use instead.
    """

    context_type = CompatContext
    default_name = "FastMCP"

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        auth: Any = None,
        mask_error_details: bool | None = None,
        list_page_size: int | None = None,
        on_duplicate: str | None = None,
        strict_input_validation: bool | None = None,
        **more: Any,
    ) -> None:
        self.settings = SimpleNamespace(
            **{key: more.pop(key, value) for key, value in SETTINGS.items()}
        )
        options = {
            key: more.pop(key) for key in SERVER_OPTIONS & more.keys() if more[key] is not None
        }
        options |= {"mask_errors": True} if mask_error_details else {}
        options |= {} if list_page_size is None else {"page_size": list_page_size}
        if on_duplicate not in (None, "error"):
            raise ConfigError(
                f"on_duplicate={on_duplicate!r} is not supported: two components with the same "
                'name are always an error, as with "error"'
            )
        if strict_input_validation:
            raise ConfigError(
                "strict_input_validation=True is not supported: a string that contains a number is "
                "accepted as a number"
            )
        refuse_options(
            {key: value for key, value in more.items() if value is not False}, type(self).__name__
        )
        super().__init__(
            name or self.default_name,
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            auth=auth,
            **options,
        )
        self.dependencies, self._routes = list(self.settings.dependencies), list[Any]()
        for function in tools or ():
            self.add_tool(function)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(type(self).__name__, name)

    @classmethod
    def from_openapi(cls, document: Any = None, **options: Any) -> Any:
        """Create a server whose tools are the operations of an HTTP API.

        Args:
            document: The description of the API.
            **options: The options of `dovetail.Server.from_openapi`.

        Raises:
            ConfigError: The options are those of FastMCP, whose client knows where the API is.
        """
        if document is None or "client" in options:
            raise ConfigError(f"from_openapi: {INSTEAD['from_openapi']}")
        return super().from_openapi(document, **options)

    # components

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self, name: str | None = None, /, **options: Unpack[CompatToolOptions]
    ) -> Callable[[F], F]: ...
    def tool(self, function_or_name: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool: `@mcp.tool`, `@mcp.tool()`, `@mcp.tool("name", …)`.

        Args:
            function_or_name: The function, or the name of the tool.
            **options: The options of `dovetail.Server.tool`, and `tags`, `structured_output` and
                `task=True`.
        """
        return super().tool(function_or_name, **options)

    def add_tool(
        self,
        function: Callable[..., Any] | RegisteredTool,
        name: str | None = None,
        /,
        **options: Unpack[CompatToolOptions],
    ) -> None:
        """Register a function as a tool.

        Args:
            function: The function, or a tool (`get_tool`).
            name: The name of the tool (default: the name of the function).
            **options: The options of `@mcp.tool`.
        """
        if isinstance(function, RegisteredTool):
            super().add_tool(function)
            return
        own = _component_options(_check_callable(function, "add_tool"), options)
        task = own.pop("task", None)
        if own.pop("run_in_thread", True) is False:
            raise ConfigError(
                "run_in_thread=False: write the function as `async def`, which runs on the event "
                "loop"
            )
        if task:
            own["task"] = "optional" if task is True else task
        super().add_tool(function, **({"name": name} | own))

    def _compile_tool(self, function: Callable[..., Any], options: Any) -> RegisteredTool:
        structured = options.pop("structured_output", None)
        tool = super()._compile_tool(function, options)
        if structured is not False and options.get("output_schema", ...) is not None:
            return tool
        definition = replace(tool.definition, output_schema=None)
        return replace(tool, definition=definition, make_result=_make_unstructured_result)

    def resource(
        self, uri: str, /, **options: Unpack[CompatResourceOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]:
        """Register a function as a resource, or as a template if the URI has `{variables}`.

        Args:
            uri: The URI or URI template; `{path*}` may contain slashes.
            **options: The options of `dovetail.Server.resource`, and `tags`.
        """
        return super().resource(uri, **cast("ResourceOptions", options))

    def add_resource(
        self,
        function: Callable[P, R],
        uri: str = "",
        /,
        **options: Unpack[CompatResourceOptions],
    ) -> Completable[P, R]:
        """Register a function as a resource, or as a template if the URI has `{variables}`.

        Args:
            function: The function.
            uri: The URI or URI template; `{path*}` may contain slashes.
            **options: The options of `@mcp.resource`.
        """
        own = _component_options(_check_callable(function, "add_resource"), options)
        own.setdefault("mime_type", "text/plain")
        return super().add_resource(function, re.sub(r"{(\w+)\*}", r"{+\1}", uri), **own)

    @overload
    def prompt(self, function: Callable[P, R], /) -> Completable[P, R]: ...
    @overload
    def prompt(
        self, name: str | None = None, /, **options: Unpack[CompatPromptOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...
    def prompt(self, function_or_name: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt: `@mcp.prompt`, `@mcp.prompt()`, `@mcp.prompt("name")`.

        Args:
            function_or_name: The function, or the name of the prompt.
            **options: The options of `dovetail.Server.prompt`, and `tags`.
        """
        return super().prompt(function_or_name, **options)

    def add_prompt(
        self, function: Callable[P, R], /, **options: Unpack[CompatPromptOptions]
    ) -> Completable[P, R]:
        """Register a function as a prompt.

        Args:
            function: The function.
            **options: The options of `@mcp.prompt`.
        """
        own = _component_options(_check_callable(function, "add_prompt"), options)
        return super().add_prompt(function, **own)

    @overload
    def completion(self, function: F, /) -> F: ...
    @overload
    def completion(self, function: None = None, /) -> Callable[[F], F]: ...
    def completion(self, function: Any = None, /) -> Any:
        """Register the function that completes all arguments of all prompts and templates.

        Args:
            function: An async function that receives the reference, the argument, and the arguments
                chosen so far.
        """

        def decorate(handler: Any) -> Any:
            async def answer(call: Call) -> CompleteResult:
                found = await handler(call.params.ref, call.params.argument, call.params.context)
                values = (
                    found if isinstance(found, Completion) else Completion(values=list(found or ()))
                )
                return CompleteResult(completion=values)

            self.add_handlers({"completion/complete": answer})
            self._capability_choices.setdefault("completions", {})
            return handler

        return decorate if function is None else decorate(function)

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[F], F]:
        """Answer requests to another path with an async function that receives a Starlette request.
        These requests are not authenticated.

        Args:
            path: The path.
            methods: The HTTP methods.
            name: The name of the Starlette route.
            include_in_schema: Passed on to Starlette.
        """
        from starlette.routing import Route

        def decorate(handler: F) -> F:
            self._routes.append(
                Route(
                    path, handler, methods=methods, name=name, include_in_schema=include_in_schema
                )
            )
            return handler

        return decorate

    def notify_list_changed(self, kind: str) -> None:
        """Notify clients that a list has changed.

        Args:
            kind: "tools", "resources" or "prompts".
        """
        self._notify(f"notifications/{kind}/list_changed", ListChangedParams())

    # running

    def run(
        self,
        transport: str | None = None,
        mount_path: str | None = None,
        *,
        show_banner: Any = None,
        **options: Any,
    ) -> None:
        """Serve until the client disconnects (stdio), or until the process is stopped.

        Args:
            transport: "stdio" (the default), "streamable-http" (or "http"), or "sse".
            mount_path: Only "/" is supported.
            show_banner: If False, the URL is not printed. There is never a banner.
            **options: host, port, path, log_level, stateless_http, json_response, allowed_hosts,
                allowed_origins, and the options of `dovetail.Server.run`.
        """
        kind, own = self._run_options(transport, mount_path, options)
        super().run(kind, **{"quiet": show_banner is False, **own})

    def _run_options(
        self, transport: str | None, mount_path: str | None, options: Options
    ) -> tuple[Transport, Any]:
        kind = TRANSPORTS.get(transport or "stdio")
        if kind is None:
            raise ConfigError(
                f"Unknown transport {transport!r}; use one of {', '.join(TRANSPORTS)}"
            )
        level = options.pop("log_level", None) or self.settings.log_level
        if level is not None:
            import logging

            logging.basicConfig(level=level.upper())
        if kind == "stdio":
            return kind, options
        host, port = (
            _or_default(options.pop(key, None), getattr(self.settings, key))
            for key in ("host", "port")
        )
        return kind, {"host": host, "port": port, **self._http_options(kind, mount_path, options)}

    async def run_async(
        self,
        transport: str | None = None,
        show_banner: Any = None,
        mount_path: str | None = None,
        **options: Any,
    ) -> None:
        """Serve in the running event loop.

        Args:
            transport: "stdio" (the default), "streamable-http" (or "http"), or "sse".
            show_banner: Has no effect, because there is no banner.
            mount_path: Only "/" is supported.
            **options: The options of `run`.
        """
        kind, own = self._run_options(transport, mount_path, options)
        await super().run_async(kind, **own)

    run_stdio_async = run_async
    run_http_async = partialmethod(run_async, "http")
    run_streamable_http_async = partialmethod(run_async, "streamable-http")
    run_sse_async = partialmethod(run_async, "sse")

    def http_app(
        self, path: str | None = None, *, transport: str = "http", **options: Any
    ) -> "App":
        """Return an ASGI application that serves this server. You can pass its `.lifespan` to the
        application that mounts it, but this is optional.

        Args:
            path: The endpoint path (default: "/mcp" or "/sse").
            transport: "http" (or "streamable-http"), or "sse".
            **options: stateless_http, json_response, allowed_hosts, allowed_origins, ….
        """
        kind = TRANSPORTS.get(transport)
        if kind not in ("http", "sse"):
            raise ConfigError(f"Unknown transport {transport!r}; use 'http' or 'sse'")
        own = self._http_options(kind, None, {"path": path, **options})
        if kind == "sse":
            own |= {"sse": own["path"], "path": "/mcp"}
        app = self.asgi(**own)
        setattr(app, "lifespan", partial(_app_lifespan, app))
        return app

    def streamable_http_app(self, **options: Any) -> "App":
        """Return an ASGI application that serves this server.

        Args:
            **options: The options of `http_app`.
        """
        return self.http_app(**options)

    def sse_app(self, mount_path: str | None = None, **options: Any) -> "App":
        """Return an ASGI application that serves this server over HTTP+SSE (2024-11-05).

        Args:
            mount_path: Has no effect.
            **options: The options of `http_app`.
        """
        return self.http_app(transport="sse", **options)

    @property
    def session_manager(self) -> "SessionManager":
        """An object whose `run()` does nothing, because the first request starts everything that is
        needed."""
        return SessionManager()

    def _http_options(self, kind: str, mount_path: str | None, options: Options) -> Options:
        if mount_path not in (None, "/"):
            raise ConfigError(
                "mount_path= is not supported: mount http_app() at that path in your own "
                "application"
            )
        setting = f"{'sse' if kind == 'sse' else 'streamable_http'}_path"
        path = (
            options.pop("path", None)
            or options.pop(setting, None)
            or getattr(self.settings, setting)
        )
        options.pop("message_path", None)
        stateless = _or_default(options.pop("stateless", None), self.settings.stateless_http)
        stateless = _or_default(options.pop("stateless_http", None), stateless)
        own: Options = {
            "path": "" if path == "/" else path,
            "sessions": not stateless,
            "json_only": bool(
                _or_default(options.pop("json_response", None), self.settings.json_response)
            ),
            "hosts": options.pop("allowed_hosts", None) or options.pop("hosts", ()),
            "origins": options.pop("allowed_origins", None) or options.pop("origins", ()),
        }
        if self._routes:
            from starlette.routing import Router

            own["routes"] = Router(self._routes)
        own |= {
            key: options.pop(key)
            for key in ("workers", "certfile", "keyfile", "keys", "events")
            if key in options
        }
        refuse_options(options, f"{type(self).__name__} over HTTP")
        return own


class MCPServer(FastMCP):
    """A server with the API of release 2 of the official SDK.

    Args:
        name: The name of the server (default: "mcp-server").
        title: The display name of the server.
        description: What the server is for.
        instructions: How to use the server; clients may pass this text to the model.
        website_url: A page about the server.
        icons: Icons that clients may show for the server.
        version: The version of the server.
        **more: The options of `FastMCP`.
    """

    default_name = "mcp-server"

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        version: str = "",
        **more: Any,
    ) -> None:
        about: Options = {"title": title, "description": description, "version": version}
        super().__init__(name, instructions, website_url, icons, **about, **more)


class SessionManager:
    """A replacement for the session manager that applications must run with the official SDK."""

    def run(self) -> AbstractAsyncContextManager[None]:
        """Do nothing."""
        return nullcontext()


@asynccontextmanager
async def _app_lifespan(app: "App", outer: Any) -> AsyncIterator[None]:
    """The lifespan of a mounted application. If it is not used, the application starts at the first
    request and is closed when the event loop ends."""
    await app.start()
    try:
        yield
    finally:
        await app.close()


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _check_callable(function: Any, method: str) -> Callable[..., Any]:
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise ConfigError(f"{method}() accepts a function, not a {type(function).__name__}")


def _component_options(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Return a component's options under the names that `Server` uses; tags go into its `_meta`."""
    own = dict(options)
    tags = own.pop("tags", None)
    if tags:
        own["meta"] = {**(own.get("meta") or {}), "fastmcp": {"tags": sorted(tags)}}
    if own.get("auth") is not None:
        raise ConfigError(
            f"{getattr(function, '__name__', function)} has no option auth=; use scopes=[…]"
        )
    refused = ("version", "enabled", "exclude_args", "serializer", "app", "security", "auth")
    refuse_options(
        {key: own.pop(key) for key in refused if key in own},
        getattr(function, "__name__", "A component"),
    )
    return own


def _make_unstructured_result(value: Any) -> ToolResult:
    return replace(make_any_result(value), structured_content=None)
