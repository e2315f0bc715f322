"""The two classes of the peers, as a coat over `Server`: their parameters in their order, and their
ways to run."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..ports import Call
from ..protocol.base import ListChangedParams
from ..protocol.tools import ToolResult
from ..protocol.utilities import CompleteResult, Completion
from ..server.results import finish_any
from ..server.server import Server
from .context import Context
from .instead import lacks, refuse

if TYPE_CHECKING:
    from ..serve.app import App

Options = dict[str, Any]
TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}
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
"""What `settings` has, and a constructor takes. Where messages are posted to, clients are told; of
the last four none changes what a server does: two components of one name are an error here, and
dependencies are for a command line."""
OURS = frozenset(Server.__init__.__kwdefaults__ or ()) - {"auth"}
"""What a `Server` takes is taken here too."""


class Lacking(type):
    """Says of the class, too, what to use for a method that is not here."""

    def __getattr__(cls, name: str) -> Any:
        raise lacks(cls.__name__, name)


class FastMCP(Server, metaclass=Lacking):
    """A server as FastMCP, or release 1 of the official SDK, makes it."""

    context_type = Context
    unnamed = "FastMCP"

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
        given = {key: more.pop(key) for key in OURS & more.keys() if more[key] is not None}
        given |= {"mask_errors": True} if mask_error_details else {}
        given |= {} if list_page_size is None else {"page_size": list_page_size}
        if on_duplicate not in (None, "error"):
            raise ConfigError(
                f'on_duplicate={on_duplicate!r}: two of one name are an error here, as with "error"'
            )
        if strict_input_validation:
            raise ConfigError(
                "strict_input_validation=True: a text that holds a number is taken for one "
                "where one is wanted"
            )
        refuse(
            {key: value for key, value in more.items() if value is not False}, type(self).__name__
        )
        super().__init__(
            name or self.unnamed,
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            auth=auth,
            **given,
        )
        self.dependencies, self._routes = list(self.settings.dependencies), list[Any]()
        for function in tools or ():
            self.add_tool(function)

    def __getattr__(self, name: str) -> Any:
        raise lacks(type(self).__name__, name)

    # components

    def tool(self, first: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool: `@mcp.tool`, `@mcp.tool()`, `@mcp.tool("name", …)`."""
        return super().tool(first, **options)

    def add_tool(
        self, function: Callable[..., Any], /, name: str | None = None, **options: Any
    ) -> None:
        """Register a function as a tool, with the options of `@mcp.tool`."""
        given = _component(_callable(function, "add_tool"), options)
        structured, task = given.pop("structured_output", None), given.pop("task", None)
        if given.pop("run_in_thread", True) is False:
            raise ConfigError(
                "run_in_thread=False: write it as `async def`, which runs on the event loop"
            )
        if structured is False or given.get("output_schema", ...) is None:
            function = _unstructured(function)
        if task:
            given["task"] = "optional" if task is True else task
        super().add_tool(function, name=name, **given)

    def add_resource(self, function: Callable[..., Any], uri: str = "", /, **options: Any) -> Any:
        """Register a function as a resource, or as a template where the URI has `{variables}`;
        `{path*}` takes slashes."""
        given = _component(_callable(function, "add_resource"), options)
        given.setdefault("mime_type", "text/plain")
        return super().add_resource(function, re.sub(r"{(\w+)\*}", r"{+\1}", uri), **given)

    def add_prompt(self, function: Callable[..., Any], /, **options: Any) -> Any:
        """Register a function as a prompt, with the options of `@mcp.prompt`."""
        return super().add_prompt(
            function, **_component(_callable(function, "add_prompt"), options)
        )

    def completion(self, function: Any = None, /) -> Any:
        """Complete all arguments with one function of the reference, the argument and what was
        chosen before."""

        def decorate(handler: Any) -> Any:
            async def answer(call: Call) -> CompleteResult:
                found = await handler(call.params.ref, call.params.argument, call.params.context)
                values = (
                    found if isinstance(found, Completion) else Completion(values=list(found or ()))
                )
                return CompleteResult(completion=values)

            self._answer_with({"completion/complete": answer})
            return handler

        return decorate if function is None else decorate(function)

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[Any], Any]:
        """Answer at a path beside the endpoint, with an async function of Starlette's request. No
        guard stands before it."""
        from starlette.routing import Route

        def decorate(handler: Any) -> Any:
            self._routes.append(
                Route(
                    path, handler, methods=methods, name=name, include_in_schema=include_in_schema
                )
            )
            return handler

        return decorate

    def tell_changed(self, kind: str) -> None:
        """Tell clients that a list changed: tools, resources or prompts."""
        self._tell(f"notifications/{kind}/list_changed", ListChangedParams())

    # running

    def run(
        self,
        transport: str | None = None,
        mount_path: str | None = None,
        *,
        show_banner: Any = None,
        **options: Any,
    ) -> None:
        """Serve until told to stop: over "stdio", "streamable-http" (or "http"), or "sse"."""
        kind, given = self._running(transport, mount_path, options)
        super().run(kind, **given)

    def _running(
        self, transport: str | None, mount_path: str | None, options: Options
    ) -> tuple[str, Options]:
        """The transport and its options, by our names."""
        kind = TRANSPORTS.get(transport or "stdio")
        if kind is None:
            raise ConfigError(
                f"There is no transport {transport!r}; there are {', '.join(TRANSPORTS)}"
            )
        level = options.pop("log_level", None) or self.settings.log_level
        if level is not None:
            import logging

            logging.basicConfig(level=level.upper())
        if kind == "stdio":
            return kind, options
        host, port = (
            _given(options.pop(key, None), getattr(self.settings, key)) for key in ("host", "port")
        )
        return kind, {"host": host, "port": port, **self._http(kind, mount_path, options)}

    async def run_async(
        self,
        transport: str | None = None,
        show_banner: Any = None,
        mount_path: str | None = None,
        **options: Any,
    ) -> None:
        """The same, in the loop that is running."""
        kind, given = self._running(transport, mount_path, options)
        await super().run_async(kind, **given)

    run_stdio_async = run_async
    run_http_async = partialmethod(run_async, "http")
    run_streamable_http_async = partialmethod(run_async, "streamable-http")
    run_sse_async = partialmethod(run_async, "sse")

    def http_app(
        self, path: str | None = None, *, transport: str = "http", **options: Any
    ) -> "App":
        """An ASGI application with this server in it. Its `.lifespan` may be handed on, and need
        not."""
        kind = TRANSPORTS.get(transport)
        if kind not in ("http", "sse"):
            raise ConfigError(f"There is no application for the transport {transport!r}")
        given = self._http(kind, None, {"path": path, **options})
        if kind == "sse":
            given |= {"sse": given["path"], "path": "/mcp"}
        app = self.asgi(**given)
        setattr(app, "lifespan", partial(_living, app))
        return app

    def streamable_http_app(self, **options: Any) -> "App":
        """An ASGI application with this server in it."""
        return self.http_app(**options)

    def sse_app(self, mount_path: str | None = None, **options: Any) -> "App":
        """An ASGI application with this server in it, for clients of the old SSE transport."""
        return self.http_app(transport="sse", **options)

    @property
    def session_manager(self) -> "SessionManager":
        """What has to be run beside an application elsewhere; here the first request starts all
        there is."""
        return SessionManager()

    def _http(self, kind: str, mount_path: str | None, options: Options) -> Options:
        """The options of HTTP, by our names."""
        if mount_path not in (None, "/"):
            raise ConfigError(
                "mount_path=: mount http_app() in an application of your own, at that path"
            )
        usual = f"{'sse' if kind == 'sse' else 'streamable_http'}_path"
        path = (
            options.pop("path", None) or options.pop(usual, None) or getattr(self.settings, usual)
        )
        options.pop("message_path", None)
        stateless = _given(options.pop("stateless", None), self.settings.stateless_http)
        stateless = _given(options.pop("stateless_http", None), stateless)
        given: Options = {
            "path": "" if path == "/" else path,
            "sessions": not stateless,
            "json_only": bool(
                _given(options.pop("json_response", None), self.settings.json_response)
            ),
            "hosts": options.pop("allowed_hosts", None) or options.pop("hosts", ()),
            "origins": options.pop("allowed_origins", None) or options.pop("origins", ()),
        }
        if self._routes:
            from starlette.routing import Router

            given["routes"] = Router(self._routes)
        ours = {
            key: options.pop(key)
            for key in ("workers", "certfile", "keyfile", "keys", "events")
            if key in options
        }
        refuse(options, f"{type(self).__name__} over HTTP")
        return given | ours


class MCPServer(FastMCP):
    """A server as release 2 of the official SDK makes it."""

    unnamed = "mcp-server"

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
    """Stands in for what the official SDK has to be told to run."""

    def run(self) -> AbstractAsyncContextManager[None]:
        """Nothing: there is nothing to run."""
        return nullcontext()


@asynccontextmanager
async def _living(app: "App", outer: Any) -> AsyncIterator[None]:
    """The life of an application that another one mounts. Without it the first request starts it,
    and the loop ends it."""
    await app.start()
    try:
        yield
    finally:
        await app.close()


def _given(value: Any, usual: Any) -> Any:
    """What was said, even if that is no; else what is usual."""
    return usual if value is None else value


def _callable(function: Any, what: str) -> Callable[..., Any]:
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise ConfigError(f"{what}() takes a function, not a {type(function).__name__}")


def _component(function: Callable[..., Any], options: Mapping[str, Any]) -> Options:
    """The options of a component by our names: tags are told in its `_meta`, as FastMCP does."""
    given = dict(options)
    tags = given.pop("tags", None)
    if tags:
        given["meta"] = {**(given.get("meta") or {}), "fastmcp": {"tags": sorted(tags)}}
    if given.get("auth") is not None:
        raise ConfigError(f"{getattr(function, '__name__', function)}: auth=; use scopes=[…]")
    refused = ("version", "enabled", "exclude_args", "serializer", "app", "security", "auth")
    refuse(
        {key: given.pop(key) for key in refused if key in given},
        getattr(function, "__name__", "A component"),
    )
    return given


def _unstructured(function: Callable[..., Any]) -> Callable[..., Any]:
    """A tool whose results are content and nothing else."""
    from ..server.signature import wrapped

    return wrapped(
        function, lambda value: ToolResult(content=finish_any(value).content), ToolResult, Context
    )
