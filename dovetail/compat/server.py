"""The server classes of FastMCP and the official SDK, built on `Server`. They have the same run
methods, and the same parameters in the same order."""

import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..errors import ConfigError, InvalidParams
from ..ports import Call
from ..protocol.base import ListChangedParams
from ..protocol.tools import ToolResult
from ..protocol.utilities import CompleteResult, Completion
from ..server.options import CommonToolOptions, ResourceOptions, Transport
from ..server.resources import not_found
from ..server.server import Completable, Server
from ..server.service import _check_guard
from ..server.tools import RegisteredTool, content_block, make_any_result, make_error_result
from .components import unpack
from .context import CompatContext
from .instead import INSTEAD, missing_attribute, refuse_options
from .listing import Listing

if TYPE_CHECKING:
    from ..serve.app import App

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Options = dict[str, Any]
TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse",
}  # fmt: skip
SETTINGS: Options = {
    "host": "127.0.0.1", "port": 8000, "streamable_http_path": "/mcp", "sse_path": "/sse",
    "message_path": "/messages/", "json_response": False, "stateless_http": False,
    "log_level": None, "warn_on_duplicate_tools": True, "warn_on_duplicate_resources": True,
    "warn_on_duplicate_prompts": True, "dependencies": (), "debug": False, "event_store": None,
    "transport_security": None, "request_state_security": None, "retry_interval": None,
}  # fmt: skip
"""The attributes of `settings`, which the constructor accepts as options. The message path,
`dependencies`, `debug` and the event store have no effect."""
APP_TYPE = "text/html;profile=mcp-app"
CLIENT_HEADERS = frozenset({"accept", "accept-encoding", "connection", "user-agent"})
"""The headers that every httpx client sends."""
OWN_OPTIONS: Options = dict.fromkeys((
    "tools", "auth", "token_verifier", "middleware", "on_duplicate", "include_tags", "exclude_tags",
    "providers", "transforms",
))  # fmt: skip
RENAMED = {
    "mask_error_details": "mask_errors", "list_page_size": "page_size", "cache_hints": "cache",
}  # fmt: skip
SERVER_OPTIONS = frozenset(Server.__init__.__kwdefaults__ or ()) - {"auth", "middleware"}
"""The options of `Server`, which are also accepted."""


class CompatOptions(ResourceOptions, total=False):
    """The options of `FastMCP.resource` and `FastMCP.prompt`."""

    tags: Iterable[str] | None
    enabled: bool
    auth: Any
    app: Any
    version: str | int | None


class CompatToolOptions(CommonToolOptions, total=False):
    """The options of `FastMCP.tool`."""

    structured_output: bool | None
    task: bool | Literal["optional", "required"] | None
    run_in_thread: bool
    exclude_args: Sequence[str] | None
    tags: Iterable[str] | None
    enabled: bool
    auth: Any
    app: Any
    version: str | int | None


class HintingMeta(type):
    """The metaclass that raises a helpful error for a missing class attribute."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise missing_attribute(cls.__name__, name)


class FastMCP(Listing, Server, metaclass=HintingMeta):
    """A server with the API of FastMCP.

    Args:
        name: The name of the server (default: "FastMCP").
        instructions: How to use the server; clients may pass this text to the model.
        website_url: A page about the server.
        icons: Icons that clients may show for the server.
        **more: The options of `dovetail.Server`; the settings of FastMCP and the official SDK, such
            as host, port and stateless_http; and tools, providers, transforms, auth,
            token_verifier, middleware, mask_error_details, list_page_size, on_duplicate,
            include_tags and exclude_tags.

    Raises:
        ConfigError: An option is unknown. The message says what to use instead.
    """

    context_type = CompatContext
    default_name = "FastMCP"
    _strict_apps, _prefixes_in_path = False, True
    __class_getitem__ = classmethod(lambda cls, item: cls)
    session_manager = SimpleNamespace(run=nullcontext)
    """An object whose `run()` does nothing, because the first request starts everything."""
    _base_url: Any = None
    _auth: Any = ...
    _resource_security: Any = None

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        **more: Any,
    ) -> None:
        from .dependencies import in_context

        self.settings = SimpleNamespace(**{key: more.pop(key, SETTINGS[key]) for key in SETTINGS})
        chooses_auth = not {"auth", "token_verifier"}.isdisjoint(more)
        own = {key: more.pop(key, default) for key, default in OWN_OPTIONS.items()}
        options = {key: more.pop(key) for key in SERVER_OPTIONS & more.keys()}
        options |= {new: more.pop(old) for old, new in RENAMED.items() if old in more}
        options |= {"website_url": website_url, "icons": icons, "instructions": instructions}
        options |= {"version": str(options["version"])} if options.get("version") else {}
        if more.get("strict_input_validation"):
            raise ConfigError(
                "strict_input_validation=True is not supported: a string that contains a number is "
                "accepted as a number"
            )
        given = {key: value for key, value in more.items() if value is not False}
        refuse_options(given, type(self).__name__)
        middleware, is_sdk = own["middleware"] or (), self._chain_kind == "RequestChain"
        adapted = [one for one in middleware if is_sdk or hasattr(type(one), "on_message")]
        options["middleware"] = [one for one in middleware if one not in adapted]
        options = {key: value for key, value in options.items() if value is not None}
        super().__init__(name or self.default_name, **options)
        if chooses_auth:
            self._set_auth(own["auth"], own["token_verifier"])
        self.answer = in_context(self, self.answer)
        self.dependencies, self._routes = list(self.settings.dependencies or ()), list[Any]()
        self._securities: Options = {}
        self._start_listing(own["on_duplicate"], own["include_tags"], own["exclude_tags"])
        for one in adapted:
            self.add_middleware(one)
        for function in own["tools"] or ():
            self.add_tool(function)
        for provider in (*(own["providers"] or ()), *(own["transforms"] or ())):
            self.add_provider(provider)

        for name in [name for name in dir(type(self)) if re.fullmatch(r"_\w+_mcp", name)]:
            if getattr(type(self), name) is not getattr(FastMCP, name, None):
                getattr(self._mcp_server, name[1:-4])()(getattr(self, name))

    @property
    def auth(self) -> Any:
        """The authentication over HTTP, or None. You can set it until the server is served."""
        return None if self._auth is ... else self._auth

    @auth.setter
    def auth(self, auth: Any) -> None:
        self._set_auth(auth)

    def _set_auth(self, auth: Any, verifier: Any = None) -> None:
        from .auth import make_guard

        self.guard, self._auth = _check_guard(make_guard(auth, verifier)), auth
        self._base_url = getattr(auth, "base_url", None)
        self._refusal = getattr(auth, "refusal", "")
        if self._check_scopes not in self._admissions:
            self._admissions += (self._check_scopes,)

    async def _call_tool_mcp(self, key: str, arguments: Any = None) -> Any:
        """Call a tool; a subclass may override this, and `_list_tools_mcp`, to filter tools."""
        raw = Raw(msgspec.json.encode(arguments or {}))
        return await self._ask("tools/call", name=key, arguments=raw)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in ("version", "title", "description", "website_url", "icons"):
                return getattr(self.info, name)
            raise missing_attribute(type(self).__name__, name)

    @classmethod
    def from_openapi(cls, openapi_spec: Any, client: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Create a server whose tools are the operations of an HTTP API.

        Args:
            openapi_spec: The description of the API.
            client: An `httpx.AsyncClient`, whose base URL and headers are used.
            **options: The options of `dovetail.Server.from_openapi`.
        """
        if client is not None:
            if getattr(client, "auth", None) is not None:
                raise ConfigError(f"from_openapi: {INSTEAD['from_openapi']}")
            sent = {
                key: value for key, value in client.headers.items() if key not in CLIENT_HEADERS
            }
            options = {"base_url": str(client.base_url), "headers": sent} | options
        return super().from_openapi(openapi_spec, **options)

    def mount(  # type: ignore[override]
        self, server: Any, prefix: Any = None, *, namespace: str | None = None, **options: Any
    ) -> None:
        """Serve another server as a part of this one; see `dovetail.Server.mount`.

        Args:
            server: The server, or any other target of a client.
            prefix: What the names of its tools and prompts begin with.
            namespace: FastMCP's newer name for `prefix`.
            **options: `tools`, as in `dovetail.Server.mount`.
        """
        if isinstance(server, str) and isinstance(prefix, Server):  # the order of FastMCP 2.8
            server, prefix = prefix, server
        tools = options.pop("tools", None)
        refuse_options({key: value or None for key, value in options.items()}, "mount()")
        super().mount(server, prefix=namespace or prefix or "", tools=tools)

    def add_provider(self, provider: Any, namespace: str = "") -> None:
        """Add the components of a provider, or those that a transform makes.

        Args:
            provider: A `LocalProvider`, another server, `PromptsAsTools()` or `ResourcesAsTools()`.
            namespace: What the names of its components begin with.
        """
        if isinstance(provider, Server):
            self.mount(provider, namespace)
        elif not hasattr(provider, "provide"):
            raise ConfigError(f"A {type(provider).__name__} is not supported; use add_tool(), …")
        elif namespace:
            self.mount(type(self)(namespace, providers=[provider]), namespace)
        else:
            provider.provide(self)

    add_transform = add_provider

    async def import_server(self, *args: Any, **options: Any) -> None:
        """Serve another server as a part of this one, like `mount`.

        Args:
            *args: The server and the prefix.
            **options: The same by name.
        """
        self.mount(*args, **options)

    @classmethod
    def as_proxy(cls, target: Any, **options: Any) -> Any:
        """Create a server that relays everything to another one.

        Args:
            target: A server, or any other target of a client.
            **options: The options of the class, such as `name`.
        """
        proxy = cls(**options)
        proxy.mount(target)
        return proxy

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
            **options: The options of `dovetail.Server.tool`, and those of FastMCP and the SDK.
        """
        return super().tool(function_or_name, **options)

    def resource(
        self, uri: str, **options: Unpack[CompatOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]:
        """Register a function as a resource, or as a template if the URI has `{variables}`.

        Args:
            uri: The URI or URI template; `{path*}` may contain slashes.
            **options: The options of `dovetail.Server.resource`, and those of FastMCP and the SDK.
        """
        return super().resource(uri, **cast("ResourceOptions", options))

    @overload
    def prompt(self, function: Callable[P, R], /) -> Completable[P, R]: ...
    @overload
    def prompt(
        self, name: str | None = None, /, **options: Unpack[CompatOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...
    def prompt(self, function_or_name: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt: `@mcp.prompt`, `@mcp.prompt()`, `@mcp.prompt("name")`.

        Args:
            function_or_name: The function, or the name of the prompt.
            **options: The options of `dovetail.Server.prompt`, and those of FastMCP and the SDK.
        """
        return super().prompt(function_or_name, **options)

    def _register(self, kind: str, component: Any, address: Any = None, /, **options: Any) -> Any:
        """Register a function or a component; the address is the name of a tool or the URI."""
        key: Any = address or (getattr(component, "key", "") if kind == "resource" else None)
        given = {
            name: value
            for name, value in {"name": None if kind == "resource" else key, **options}.items()
            if value is not None or name == "output_schema"
        }
        function, own = unpack(component, given)
        if isinstance(function, RegisteredTool):
            return super().add_tool(function, **own)
        if not callable(function):
            raise ConfigError(f"add_{kind}() accepts a function, not a {type(function).__name__}")
        is_template = kind == "resource" and "{" in key
        function = self._adapt_options("template" if is_template else kind, function, own)
        if kind == "resource":
            default = APP_TYPE if key.startswith("ui://") else "text/plain"
            own["mime_type"] = own.get("mime_type") or default
            uri = re.sub(r"{(\w+)\*}", r"{+\1}", key)
            self._securities[uri] = own.pop("security", None) or self._resource_security
            return super().add_resource(function, uri, **own)
        return getattr(super(), f"add_{kind}")(function, **own)

    add_tool = partialmethod(_register, "tool")
    add_resource = partialmethod(_register, "resource")
    add_prompt = partialmethod(_register, "prompt")

    def _adapt_options(self, kind: str, function: Any, own: Options) -> Any:
        """Give the options the names that `Server` uses; tags and versions go into the `_meta`.
        Return the function without its dependencies."""
        from .dependencies import in_anyio_thread, inject

        owner = str(own.get("name") or getattr(function, "__name__", "A component"))
        about = {"tags": sorted(own.pop("tags", ())), "version": own.pop("version", None)}
        meta = dict(own.get("meta") or {})
        if about := {key: value for key, value in about.items() if value}:
            own["meta"] = meta = {**meta, "fastmcp": {**meta.get("fastmcp", {}), **about}}
        if app := own.pop("app", None):
            from .fastmcp_apps import to_settings

            own["meta"] = {**meta, "ui": to_settings(app)}
        if own.pop("enabled", True) is False:
            self.disable(names={owner}, components={kind})
        if own.get("task") in (True, False):
            own["task"] = "optional" if own["task"] else None
        if (auth := own.pop("auth", None)) is not None:
            from .auth import scopes_of

            own["scopes"] = [*own.get("scopes", ()), *scopes_of(auth, owner)]
        if own.pop("run_in_thread", True) is False:
            raise ConfigError("run_in_thread=False: write the function as `async def`")
        refuse_options({"serializer": own.pop("serializer", None)}, owner)
        if "from_thread" in getattr(getattr(function, "__code__", None), "co_names", ()):
            function = in_anyio_thread(function)
        return inject(function, own.pop("exclude_args", ()))

    def _compile_tool(self, function: Callable[..., Any], options: Any) -> RegisteredTool:
        structured = options.pop("structured_output", None)
        tool = super()._compile_tool(function, options)
        if "prefab_ui" in sys.modules:
            from .fastmcp_apps import add_view

            tool = add_view(self, tool)
        if structured is not False and options.get("output_schema", ...) is not None:
            return replace(tool, make_result=partial(_make_listed_result, tool.make_result))
        definition = replace(tool.definition, output_schema=None)
        return replace(tool, definition=definition, make_result=_make_unstructured_result)

    def _match(self, uri: str) -> Any:
        resource, values = super()._match(uri)
        security = self._securities.get(resource.template.text) if resource.template else None
        if security is not None and (name := security.validate(values)):
            raise not_found(uri, f"{name} must not be such a path")
        return resource, values

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
        if function is None:
            return self.completion

        async def answer(call: Call) -> CompleteResult:
            found = await function(call.params.ref, call.params.argument, call.params.context)
            own = isinstance(found, Completion)
            return CompleteResult(completion=found if own else Completion(values=[*(found or ())]))

        self.add_handlers({"completion/complete": answer})
        self._capability_choices.setdefault("completions", {})
        return function

    def custom_route(self, path: str, methods: list[str], **options: Any) -> Callable[[F], F]:
        """Answer requests to another path with an async function that receives a Starlette request.
        These requests are not authenticated.

        Args:
            path: The path.
            methods: The HTTP methods.
            **options: Other options of Starlette's `Route`.
        """
        from starlette.routing import Route

        def decorate(handler: F) -> F:
            self._routes.append(Route(path, handler, methods=methods, **options))
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
        self, transport: str | None = None, mount_path: str | None = None, **options: Any
    ) -> None:
        """Serve until the client disconnects (stdio), or until the process is stopped.

        Args:
            transport: "stdio" (the default), "streamable-http" (or "http"), or "sse".
            mount_path: Only "/" is supported.
            **options: host, port, path, log_level, stateless_http, json_response, allowed_hosts,
                allowed_origins, show_banner, and the options of `dovetail.Server.run`.
        """
        quiet = options.pop("show_banner", None) is False
        kind, own = self._run_options(transport, mount_path, options)
        super().run(kind, **{"quiet": quiet, **own})

    async def run_async(
        self, transport: str | None = None, show_banner: Any = None, **options: Any
    ) -> None:
        """Serve in the running event loop.

        Args:
            transport: "stdio" (the default), "streamable-http" (or "http"), or "sse".
            show_banner: Has no effect, because there is no banner.
            **options: The options of `run`.
        """
        kind, own = self._run_options(transport, options.pop("mount_path", None), options)
        await super().run_async(kind, **own)

    run_stdio_async = run_async
    run_http_async = partialmethod(run_async, "http")
    run_streamable_http_async = partialmethod(run_async, "streamable-http")
    run_sse_async = partialmethod(run_async, "sse")

    def _run_options(self, transport: Any, mount_path: Any, options: Options) -> Any:
        kind = TRANSPORTS.get(transport or "stdio")
        if kind is None:
            raise ConfigError(
                f"Unknown transport {transport!r}; use one of {', '.join(TRANSPORTS)}"
            )
        if (level := self._take(options, "log_level")) is not None:
            import logging

            logging.basicConfig(level=level.upper())
        if kind == "stdio":
            return kind, options
        own = {key: self._take(options, key) for key in ("host", "port")}
        return kind, own | self._http_options(kind, mount_path, options)

    def _prepare_for_network(self, options: Any, **more: Any) -> None:
        if self._auth is ... and (name := os.environ.get("FASTMCP_SERVER_AUTH")):
            raise ConfigError(
                f"FASTMCP_SERVER_AUTH={name} is set, but has no effect here. Pass auth=… to "
                f"{type(self).__name__}; auth=None serves everyone."
            )
        super()._prepare_for_network(options, **more)

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

    streamable_http_app = http_app

    def sse_app(self, mount_path: str | None = None, **options: Any) -> "App":
        """Return an ASGI application that serves this server over HTTP+SSE (2024-11-05).

        Args:
            mount_path: Has no effect.
            **options: The options of `http_app`.
        """
        return self.http_app(transport="sse", **options)

    def _take(self, options: Options, *names: str) -> Any:
        """Return the first of the options that is set, or else the setting."""
        found = [options.pop(name, None) for name in names]
        found.append(getattr(self.settings, names[-1], None))
        return next((value for value in found if value is not None), None)

    def _http_options(self, kind: str, mount_path: str | None, options: Options) -> Options:
        if mount_path not in (None, "/"):
            raise ConfigError("mount_path= is not supported: mount http_app() at that path")
        take = partial(self._take, options)
        path = take("path", "sse_path" if kind == "sse" else "streamable_http_path")
        own: Options = {
            "path": "" if path == "/" else path,
            "sessions": not take("stateless", "stateless_http"),
            "json_only": bool(take("json_response")),
            "hosts": [*(take("allowed_hosts", "hosts") or ())],
            "origins": [*(take("allowed_origins", "origins") or ())],
        }
        if (security := take("transport_security")) is not None:
            own = {**own, **{key: own[key] + more for key, more in read_security(security).items()}}
        if self._base_url is not None:
            own["public_url"] = str(self._base_url).rstrip("/") + path
        if (states := take("request_state_security")) is not None and states.keys:
            own["keys"] = states.keys
        if (milliseconds := take("retry_interval")) is not None:
            self.limits = replace(self.limits, retry=milliseconds / 1000)
        take("message_path")
        if take("event_store") is not None:
            self._warn("event_store= has no effect: Dovetail itself resumes streams")
        if self._routes:
            from starlette.routing import Router

            own["routes"] = Router(self._routes)
        passed = ("workers", "certfile", "keyfile", "keys", "events", "public_url")
        own |= {key: options.pop(key) for key in passed if key in options}
        refuse_options(options, f"{type(self).__name__} over HTTP")
        return own


class SDKFastMCP(FastMCP):
    """A server with the API of release 1 of the official SDK, and the options of `FastMCP`."""

    _duplicates = "keep"

    def _compile_tool(self, function: Callable[..., Any], options: Any) -> RegisteredTool:
        tool = super()._compile_tool(function, options)
        return replace(tool, make_result=partial(_make_flat_result, tool.make_result))

    async def _call_tool(self, call: Call) -> Any:
        name = call.params.name
        try:
            result = await super()._call_tool(call)
        except InvalidParams:
            if self._tools.get(name) is not None:
                raise
            return make_error_result(f"Unknown tool: {name}")
        if type(result) is ToolResult and result.is_error:
            text = f"Error executing tool {name}: {result.text}"
            return make_error_result(text.removesuffix(f": {name} failed"))  # what is masked
        return result

    get_prompt = Listing.render_prompt

    def _returned(self, result: ToolResult) -> Any:
        data = result.structured_content
        return result.content if data is None else (result.content, data)


class MCPServer(SDKFastMCP):
    """A server with the API of release 2 of the official SDK.

    Args:
        name: The name of the server (default: "mcp-server").
        title: The display name of the server.
        description: What the server is for.
        instructions: How to use the server; clients may pass this text to the model.
        website_url: A page about the server.
        icons: Icons that clients may show for the server.
        version: The version of the server.
        **more: The options of `FastMCP`; and extensions, cache_hints, resource_security and
            subscriptions.
    """

    default_name = "mcp-server"
    _returned = Listing._returned
    _chain_kind = "RequestChain"

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
        from .resources import InMemorySubscriptionBus, ResourceSecurity, forward_events

        about: Options = {"title": title, "description": description, "version": version}
        extensions, bus = more.pop("extensions", None), more.pop("subscriptions", None)
        self._resource_security = more.pop("resource_security", None) or ResourceSecurity()
        about["mask_errors"] = more.pop("mask_errors", True)
        super().__init__(name, instructions, website_url, icons, **about, **more)
        if isinstance(bus, InMemorySubscriptionBus):
            forward_events(bus, self)
        else:
            refuse_options({"subscriptions": bus or None}, "MCPServer")
        if extensions:
            from .extension import apply_extension

            for extension in extensions:
                apply_extension(self, extension)


@asynccontextmanager
async def _app_lifespan(app: "App", outer: Any) -> AsyncIterator[None]:
    """The lifespan of a mounted application. If it is not used, the application starts at the first
    request and is closed when the event loop ends."""
    await app.start()
    try:
        yield
    finally:
        await app.close()


def read_security(settings: Any) -> dict[str, list[str]]:
    """Return the hosts and origins that `TransportSecuritySettings` allow."""
    if not settings.enable_dns_rebinding_protection:
        return {"hosts": ["*"], "origins": []}
    hosts = [host.removesuffix(":*") for host in settings.allowed_hosts]
    return {"hosts": hosts, "origins": [*settings.allowed_origins]}


class ReturnedError(ToolResult):
    """A result that says that a tool failed, and that the tool itself has returned."""


def _make_flat_result(make_result: Callable[[Any], ToolResult], value: Any) -> ToolResult:
    """Return a result with one block for each item of a list, as the official SDK does."""
    result = make_result(value)
    if isinstance(value, ToolResult) and value.is_error:
        return ReturnedError(**{name: getattr(value, name) for name in value.__struct_fields__})
    if type(value) is list or type(value) is tuple:
        return replace(result, content=[content_block(item) for item in _flatten(value)])
    return result


def _flatten(value: Any) -> list[Any]:
    if type(value) is list or type(value) is tuple:
        return [inner for item in value for inner in _flatten(item)]
    return [] if value is None else [value]


def _make_listed_result(make_result: Callable[[Any], ToolResult], value: Any) -> ToolResult:
    """Return a result without content for an empty list, as FastMCP does."""
    result = make_result(value)
    return replace(result, content=[]) if isinstance(value, list | tuple) and not value else result


def _make_unstructured_result(value: Any) -> ToolResult:
    return replace(make_any_result(value), structured_content=None)
