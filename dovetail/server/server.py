"""The server that a user builds: a name, and functions registered as tools, resources and prompts.

A server holds nothing that is bound to an event loop, so it may run on several event loops at once.
`handlers.py` defines how a server answers requests, and `runnable.py` how it is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from weakref import ref

from msgspec.structs import replace

from ..aio import run_on_loop
from ..connection.extension import Extension
from ..connection.middleware import Middleware, compose
from ..errors import ConfigError
from ..limits import DEFAULT, Limits
from ..ports import Bus, Call, ChangeListener, Guard, Redact
from ..protocol.base import Icon, Implementation, Meta
from ..protocol.resources import UriParams
from ..protocol.tools import Tool
from ..text import closest_name
from .caching import Cache
from .capabilities import CapabilityChoices
from .context import Context
from .handlers import Handlers
from .prompts import Completers, compile_prompt
from .rates import NETWORK, Rates
from .resources import app_resource, check_unused, compile_resource
from .tools import RegisteredTool, compile_tool

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from os import PathLike
    from pathlib import Path

    from ..backend import Backend
    from ..connection.instrumentation import Attributes
    from ..extensions.tasks.api import ServerTasks, TasksOption
    from ..extensions.tasks.settings import TaskSupport
    from .files import FileWatcher
    from .options import (
        AppOptions,
        PromptOptions,
        ResourceOptions,
        ServerOptions,
        ToolChangeOptions,
        ToolOptions,
    )
    from .skills import Skills

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Completable(Protocol[P, R_co]):
    """The function that a prompt or resource decorator returns: the original function, with a
    method to complete its arguments."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""

    def complete(
        self, argument: str, values: Sequence[str | Mapping[str, Any]] | None = None
    ) -> Callable[[F], F]:
        """Complete an argument. Decorate a function that is called with the typed text, or pass a
        list.

        Args:
            argument: The name of the argument.
            values: The values to choose from, if no function is decorated. Each value is a string,
                or a dict with the key "value"; other keys, such as "description", are not sent.
        """


class Server(Handlers):
    """An MCP server.

    Register functions with `@server.tool`, `@server.resource` and `@server.prompt`, then call
    `run()` (stdio or HTTP) or mount `asgi()`.

        server = Server("weather", version="1.0.0")

        @server.tool
        async def forecast(city: str, days: int = 3) -> Forecast: ...

        server.run()

    You can add and remove components at any time, from any thread; clients are notified.

    Args:
        name: The name by which programs identify the server.
        version: The version of the server (default: "0.0.0").
        title: The name of the server, as shown to people.
        description: The purpose of the server.
        website_url: A page about the server.
        icons: Icons for the server that a client may show.
        instructions: Instructions for using the server, which clients may pass to the model. Assign
            to `server.instructions` to change them for clients that connect later.
        page_size: The number of items per page of a list (default: None, all items on one page).
        cache: How long clients may keep results, for all methods or by method name (default:
            results are not cached).
        lifespan: An async context manager function that is entered before the first request and
            exited after the last. It may accept the server as its argument. The value that it
            yields becomes `ctx.state`.
        middleware: Async functions with the parameters `(call, next)` that wrap every request,
            outermost first.
        limits: The limits on queues, sizes, times and counts.
        auth: The guard that authenticates callers over HTTP, such as `Bearer`, `ApiKeys` or
            `Provider` from `dovetail.auth` (default: None, anyone may call).
        rates: How many requests a caller may make (default: generous limits for callers from the
            network; None means no limit).
        mask_errors: Whether to hide the text of unexpected exceptions from clients. The text of
            a `ToolError` is always sent.
        redact: A function that is applied to all outgoing text, such as `redact_secrets`. Its
            result must depend on the text only.
        capabilities: Whether to declare "tools", "resources", "prompts" and "completions" (default:
            each kind is declared if anything of this kind is registered when a client connects).
            True declares a kind even if it has no components yet, False omits it even if it has
            some, and a dict declares it with exactly these options, such as `{"listChanged":
            True}`. A declared kind without components is served as empty lists. A kind that is
            omitted is still served if it has components.
        experimental: Experimental capabilities to declare.
        extensions: The protocol extensions to offer.
        tasks: Where tasks are stored: the path of an SQLite file, a store, or `TaskSettings`
            (default: in memory).
        revisions: The protocol revisions to serve, by date (default: all).
        resume: How a handler that asked a question continues in the stateless era. "live" (the
            default) keeps the handler waiting in this process if possible; "replay" always runs it
            again with the answers.
        single_use: Whether the answers to a question are accepted only once in the stateless era
            (default: False; a client that lost the reply may send them again).
        backend: The backend that all processes of this server share: a URL such as
            "redis://cache:6379/0", or a `Backend` (default: the URL in `DOVETAIL_BACKEND`, if any).
        backend_required: Whether the server refuses to start while its backend is away (default:
            False; it serves alone until the backend is back).

    Raises:
        ConfigError: A setting is not valid.
    """

    _instructions: str | None = None

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        instructions: str | None = None,
        page_size: int | None = None,
        cache: Cache | Mapping[str, Cache] | None = None,
        lifespan: Callable[..., AbstractAsyncContextManager[Any]] | None = None,
        middleware: Sequence[Middleware] = (),
        limits: Limits = DEFAULT,
        auth: Guard | None = None,
        rates: Rates | None = NETWORK,
        mask_errors: bool = False,
        redact: Redact | None = None,
        capabilities: CapabilityChoices | None = None,
        experimental: dict[str, Any] | None = None,
        extensions: Sequence[Extension] = (),
        tasks: TasksOption = None,
        revisions: Sequence[str] | None = None,
        resume: Literal["live", "replay"] = "live",
        single_use: bool = False,
        backend: str | Backend | None = None,
        backend_required: bool = False,
    ) -> None:
        if page_size is not None and page_size < 1:
            raise ConfigError("page_size must be at least 1")
        info = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        super().__init__(
            info,
            capabilities=capabilities,
            experimental=experimental,
            page_size=page_size,
            mask_errors=mask_errors,
            cache=cache,
            middleware=middleware,
            limits=limits,
            auth=auth,
            rates=rates,
            redact=redact,
            extensions=extensions,
            revisions=revisions,
            resume=resume,
            single_use=single_use,
            backend=backend,
            backend_required=backend_required,
        )
        if instructions is not None:  # a subclass may have a property
            self.instructions = instructions
        self._lifespan = lifespan
        self._watcher: FileWatcher | None = None
        self._skills: Skills | None = None
        self._offers_apps = False
        self._http_apis: list[Any] = []
        """The HTTP APIs that tools call (`openapi/api.py`)."""
        self._tasks_option = tasks
        self.tasks: ServerTasks | None = None
        """The tasks of this server; None until a tool that may run as a task is registered."""
        self._buses: list[tuple[ref[AbstractEventLoop], ref[Bus]]] = []
        """The bus of each event loop, for a task tool that is registered while the server runs."""

    @classmethod
    def from_openapi(
        cls,
        document: Mapping[str, Any] | str | PathLike[str],
        *,
        base_url: str | None = None,
        credentials: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        search: bool | None = None,
        name: str | None = None,
        **options: Unpack[ServerOptions],
    ) -> Self:
        """Create a server whose tools are the operations of an HTTP API, from its description in
        OpenAPI 3.0, 3.1 or 3.2. It needs the extra `http`.

            server = Server.from_openapi("petstore.json", base_url="https://pets.example.com/v1")

        Args:
            document: The description: a dict, the path of a JSON or YAML file, or a URL. A URL is
                read before this method returns.
            base_url: Where the paths of the API begin. All requests, and your credentials, are
                sent there and nowhere else (default: the first server in the description, if the
                description was read from a URL with the same origin).
            credentials: The value for each of the description's `securitySchemes` to use, by the
                name of the scheme: an API key, a token, or "user:password".
            headers: HTTP headers that are sent with each request.
            include: Patterns of the operations to offer: a method ("GET"), a path ("/pets/*"),
                both ("GET /pets/*"), a tag ("tag:pets"), or an operation id ("list*") (default:
                all). An operation with `x-mcp: false` in the description is never offered.
            exclude: Patterns of operations that are not offered.
            search: Whether to offer the three tools `search`, `describe` and `call` instead of one
                tool for each operation (default: if there are more than 40 operations).
            name: The name of the server (default: the title of the API).
            **options: The other options of `Server`, such as `auth` for the callers of this
                server. `limits.timeout` limits the time of a request
                to the API, and `limits.incoming` the size of the description and of a reply.

        Raises:
            ConfigError: The description cannot be read or is not supported, or an option is not
                valid.
            SchemaError: The arguments of an operation cannot be described by a JSON schema.
        """
        from importlib import import_module

        parts = import_module("dovetail.openapi").load_api(
            document,
            base_url=base_url,
            credentials=credentials or {},
            headers=headers or {},
            include=include,
            exclude=exclude,
            search=search,
            limits=options.get("limits", DEFAULT),
        )
        server = cls(name or parts.name, **{**parts.options, **options})
        for function, tool_options in parts.tools:
            tool = server._compile_tool(function, tool_options)
            server.add_tool(replace(tool, api=parts.api))
        return server

    def __repr__(self) -> str:
        counts = [
            f"{count} {kind}" if count == 1 else f"{count} {kind}s"
            for kind, count in (
                ("tool", len(self._tools)),
                ("resource", len(self._resources)),
                ("resource template", len(self._templates)),
                ("prompt", len(self._prompts)),
            )
            if count
        ]
        about = f"{type(self).__name__} {self.name!r} {self.info.version}"
        return f"<{about}: {', '.join(counts) or 'empty'}>"

    @property
    def instructions(self) -> str | None:
        """Instructions for using the server, for a client that connects now, and those of mounted
        servers. Assign to it to replace the server's own."""
        own = self._instructions
        return own if self._mounts is None else self._mounts.add_instructions(own)

    @instructions.setter
    def instructions(self, text: str | None) -> None:
        self._instructions = text

    def mount(
        self,
        other: Any,
        *,
        prefix: str = "",
        tools: Mapping[str, ToolChangeOptions] | None = None,
    ) -> None:
        """Serve another server as a part of this one: its tools, prompts, resources, templates and
        completions.

            server.mount(weather, prefix="weather")     # a tool becomes weather__forecast

        Names of this server win over the same names of a mounted one, and those of a server that
        was mounted earlier over those of a later one. Components that the other server adds later
        are served, too. Its instructions, health and metrics become a part of this server's. Mount
        servers before you run this one.

        Args:
            other: A `Server` object, or any other target of a client: a URL, a script, or a command
                as a list.
            prefix: What the names of its tools and prompts begin with, followed by `__` (default:
                names stay as they are). A URI stays as it is, unless another server has the same
                one: then it becomes `prefix+uri`, or is left out if there is no prefix.
            tools: How clients see tools of the other server, by its own names. Each value has the
                options of `RegisteredTool.with_`, except `wrap`. A hidden value is a JSON value,
                not a function.

        Raises:
            ConfigError: The prefix is in use or not valid, `other` is not a target, or an option in
                `tools` is not valid. A change that does not fit a tool is logged, and the tool is
                left out.
        """
        if self._mounts is None:
            from importlib import import_module

            self._mounts = import_module("dovetail.gateway.mounts").Mounts(self)
        if self._networked and self.guard is None and isinstance(other, Server):
            other._require_servable()
        self._mounts.mount(other, prefix, tools or {})

    # tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self, name: str | None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[[F], F]: ...
    def tool(self, function_or_name: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Register a function as a tool: `@server.tool`, or with options `@server.tool(title=…)`.

        The parameters of the function become the input schema, the return annotation becomes the
        output schema, and the docstring becomes the descriptions. An `async def` function runs on
        the event loop, and a `def` function on a worker thread. A parameter that is annotated with
        `Context` is not shown to the model.

        Args:
            function_or_name: The function, or the name of the tool (see `name`).
            name: The name of the tool (default: the name of the function).
            title: The display name.
            description: A description of the tool for the model (default: the docstring).
            annotations: Hints such as `{"readOnlyHint": True}`; they are not binding.
            icons: Icons that a client may show.
            meta: The `_meta` of the listed tool.
            schema: A JSON schema for the arguments that replaces the generated schema. The function
                receives the arguments unchanged.
            output_schema: A JSON schema for results that replaces the generated schema. Results are
                validated against it.
            timeout: The time after which the call fails, in seconds (default: no limit).
            isolate: "process" runs each call in a child process, which can be killed. A list is the
                command of a sandbox, such as `["bwrap", …]`, that starts the child process.
            scopes: The scopes that a caller's token needs. Other callers do not see the tool.
            task: Whether clients may ("optional") or must ("required") run the tool as a task
                (default: None, the tool never runs as a task).
            resumable: Whether a task may be run again from its beginning after a crash.
            ui: The URI of the app that shows the results.
            visibility: Who may call the tool: "model", "app" or both (the default).

        Returns:
            The function itself, or a decorator if options are passed.

        Raises:
            ConfigError: The name is already in use, or an option is not valid.
            SchemaError: A parameter cannot be described by a JSON schema.
        """
        return decorate(self.add_tool, function_or_name, options)

    def add_tool(
        self, function: Callable[..., Any] | RegisteredTool, /, **options: Unpack[ToolOptions]
    ) -> None:
        """Register a function as a tool, or add a tool of this or another server.

            server.add_tool(api.get_tool("searchIssues").with_(name="find_issues"))

        A tool of another server becomes a tool of this one: it gets the context of this server, and
        its `ctx.state` is what the lifespan of this server yields.

        Args:
            function: The function, or any other callable, or a tool (see `get_tool`).
            **options: The options of `@server.tool`. A tool takes none: use its `with_`.

        Raises:
            ConfigError: The name is already in use, or an option is not valid.
            SchemaError: A parameter cannot be described by a JSON schema.
        """
        tool = self._prepare_tool(function, options)
        self._tools.add(tool.name, tool)

    def get_tool(self, name: str) -> RegisteredTool:
        """Return a tool of this server. Its `with_` returns a changed copy.

        Args:
            name: The name of the tool. A mounted server has its own tools.

        Raises:
            ConfigError: There is no such tool.
        """
        tool = self._tools.get(name)
        if tool is None:
            close = closest_name(name, self._tools.snapshot.items)
            hint = f". Did you mean {close!r}?" if close else ""
            raise ConfigError(f"There is no tool {name!r}{hint}")
        return tool

    def replace_tool(self, name: str, tool: RegisteredTool) -> None:
        """Put another tool in the place of one, and notify clients once.

            server.replace_tool("search", server.get_tool("search").with_(hide={"limit": 20}))

        Args:
            name: The name of the tool that is replaced.
            tool: The new tool, which may have another name.

        Raises:
            ConfigError: There is no such tool, or the new name is already in use.
        """
        Server.get_tool(self, name)  # a subclass may have an async one
        prepared = self._prepare_tool(tool, {})
        self._tools.replace(name, prepared.name, prepared)

    def _prepare_tool(
        self, function: Callable[..., Any] | RegisteredTool, options: ToolOptions
    ) -> RegisteredTool:
        """Return a tool that is about to be added, and offer what it needs."""
        if isinstance(function, RegisteredTool):
            if options:
                raise ConfigError(
                    f"{function.name!r} is a tool already, so it takes no options. Change it with "
                    "with_(…)."
                )
            tool = function
        else:
            tool = self._compile_tool(function, options)
        if "ui" in (tool.definition.meta or ()):
            self._offer_apps(tool.definition)
        if tool.task is not None:
            self._offer_tasks()
        if tool.api is not None and tool.api not in self._http_apis:
            self._http_apis.append(tool.api)
        return self._check_enforceable(tool)

    def _compile_tool(self, function: Callable[..., Any], options: ToolOptions) -> RegisteredTool:
        _check_options("tool", options)
        return compile_tool(function, Context, options)

    def remove_tool(self, name: str) -> None:
        """Remove a tool and notify clients.

        Args:
            name: The name of the tool.

        Raises:
            ConfigError: There is no such tool.
        """
        self._tools.remove(name)

    # resources

    def resource(
        self, uri: str, /, **options: Unpack[ResourceOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]:
        """Register a function as a resource, or as a template if the URI has `{variables}`.

        The function returns text, bytes, `File`, `Image`, contents, or any value that can be sent
        as JSON. The function of a template has the template's variables as parameters.

        Args:
            uri: The URI, such as "config://app", or a URI template, such as
                "users://{user_id}/profile" (RFC 6570; `{+path}` may contain slashes).
            name: The name of the resource (default: the name of the function).
            title: The display name.
            description: A description of the resource (default: the docstring).
            mime_type: The MIME type of the contents (default: derived from the function's return
                value).
            size: The size of the contents in bytes, if known.
            icons: Icons that a client may show.
            annotations: The audience, importance and modification time of the resource.
            meta: The `_meta` of the listed resource.
            cache: How long clients may keep the contents (default: the `Server(cache=…)` setting).
            scopes: The scopes that a caller's token needs. Other callers do not see the resource.

        Returns:
            A decorator that returns the function, with `.complete` to complete its variables.

        Raises:
            ConfigError: The URI is already in use or malformed, or an option is not valid.
            SchemaError: The variables and the function's parameters differ.
        """
        if not isinstance(uri, str):
            raise ConfigError('A resource requires a URI: @server.resource("config://app")')

        def decorate(function: Callable[P, R]) -> Completable[P, R]:
            return self.add_resource(function, uri, **options)

        return decorate

    def add_resource(
        self, function: Callable[P, R], uri: str, /, **options: Unpack[ResourceOptions]
    ) -> Completable[P, R]:
        """Register a function as a resource, or as a template if the URI has `{variables}`.

        Args:
            function: The function that returns the contents.
            uri: The URI or URI template.
            **options: The options of `@server.resource`.

        Returns:
            The function, with `.complete` to complete its variables.

        Raises:
            ConfigError: The URI is already in use or malformed, or an option is not valid.
            SchemaError: The variables and the function's parameters differ.
        """
        _check_options("resource", options)
        resource = self._check_enforceable(compile_resource(function, uri, options))
        registry = self._resources if resource.template is None else self._templates
        registry.add(uri, resource)
        return _completable(function, resource.completers)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or template and notify clients.

        Args:
            uri: The URI or URI template of the resource.

        Raises:
            ConfigError: There is no such resource, or a tool or a skill uses it.
        """
        registry = self._templates if "{" in uri else self._resources
        if self._offers_apps:
            check_unused(uri, self._tools, lambda view: self._find(view) is registry.get(uri))
        if self._skills is not None and self._skills.holds(uri):
            raise ConfigError(f"{uri} is part of a skill; remove the skill with remove_skill")
        registry.remove(uri)
        if self._watcher is not None:
            self._watcher.remove(uri)

    def add_file(
        self,
        path: str | Path,
        /,
        *,
        uri: str | None = None,
        watch: bool = False,
        **options: Unpack[ResourceOptions],
    ) -> None:
        """Serve a file as a resource. The file is read each time a client requests it.

        Args:
            path: The path of the file.
            uri: The URI of the file (default: its `file://` URI).
            watch: Whether to notify subscribers when the file changes. The file is polled every
                `Limits.watch_interval` seconds.
            **options: The options of `@server.resource`.

        Raises:
            ConfigError: There is no such file, or the URI is already in use.
        """
        from .files import file_resource, file_states

        function, uri, defaults = file_resource(path, uri)
        self.add_resource(function, uri, **cast("ResourceOptions", {**defaults, **options}))
        if watch:
            self._file_watcher.add(uri, file_states(path, uri))

    def add_directory(
        self,
        path: str | Path,
        /,
        *,
        uri: str,
        hidden: bool = False,
        watch: bool = False,
        **options: Unpack[ResourceOptions],
    ) -> None:
        """Serve the files in a directory, and a listing of these files, as resources.

        No URI leads outside the directory, whether through `..` or through a link.

        Args:
            path: The path of the directory.
            uri: The URI of the directory, such as "docs://".
            hidden: Whether to serve files whose names start with a dot.
            watch: Whether to notify subscribers when a file changes. All files are polled every
                `Limits.watch_interval` seconds.
            **options: The options of `@server.resource`.

        Raises:
            ConfigError: There is no such directory, or the URI is already in use or malformed.
        """
        from pathlib import Path

        from .files import Directory, directory_resources, directory_states

        directory = Directory(Path(path), hidden=hidden)
        for function, place, defaults in directory_resources(directory, uri):
            merged = cast("ResourceOptions", {**defaults, **options})
            resource = self.add_resource(function, place, **merged)
        resource.complete("path")(lambda value: directory.names())  # the last one is the template
        if watch:
            self._file_watcher.add(place, directory_states(directory, uri))

    @property
    def _file_watcher(self) -> FileWatcher:
        from .files import FileWatcher

        with self._lock:
            if self._watcher is None:
                self._watcher = FileWatcher(self._on_file_change, self.limits)
                self._watcher.set_running(bool(self._listeners))
            return self._watcher

    def _on_file_change(self, uri: str) -> None:
        self._notify("notifications/resources/updated", UriParams(uri=uri), local=True)

    def _set_listeners(self, listeners: tuple[ChangeListener, ...]) -> None:
        super()._set_listeners(listeners)
        if self._watcher is not None:
            self._watcher.set_running(bool(listeners))

    # prompts

    @overload
    def prompt(self, function: Callable[P, R], /) -> Completable[P, R]: ...
    @overload
    def prompt(
        self, name: str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...
    def prompt(self, function_or_name: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Register a function as a prompt: `@server.prompt`, or `@server.prompt(title=…)`.

        The parameters of the function become the arguments of the prompt. The function returns a
        string, a `Message`, or a list of strings and messages.

        Args:
            function_or_name: The function, or the name of the prompt (see `name`).
            name: The name of the prompt (default: the name of the function).
            title: The display name.
            description: A description of the prompt (default: the docstring).
            icons: Icons that a client may show.
            meta: The `_meta` of the listed prompt.
            scopes: The scopes that a caller's token needs. Other callers do not see the prompt.

        Returns:
            The function itself, with `.complete` to complete its arguments, or a decorator if
            options are passed.

        Raises:
            ConfigError: The name is already in use, or an option is not valid.
            SchemaError: A parameter has a type to which strings cannot be converted.
        """
        return decorate(self.add_prompt, function_or_name, options)

    def add_prompt(
        self, function: Callable[P, R], /, **options: Unpack[PromptOptions]
    ) -> Completable[P, R]:
        """Register a function as a prompt.

        Args:
            function: The function that returns the messages.
            **options: The options of `@server.prompt`.

        Returns:
            The function, with `.complete` to complete its arguments.

        Raises:
            ConfigError: The name is already in use, or an option is not valid.
        """
        _check_options("prompt", options)
        prompt = self._check_enforceable(compile_prompt(function, options))
        self._prompts.add(prompt.definition.name, prompt)
        return _completable(function, prompt.completers)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt and notify clients.

        Args:
            name: The name of the prompt.

        Raises:
            ConfigError: There is no such prompt.
        """
        self._prompts.remove(name)

    # apps

    def app(self, uri: str, /, **options: Unpack[AppOptions]) -> Callable[[F], F]:
        """Register a function that returns an HTML document as an app (MCP Apps).

        Tools refer to the app with `ui=`, and clients that support apps show it with the results of
        the tools.

        Args:
            uri: The URI of the app, such as "ui://weather/view".
            name: The name of the app (default: the name of the function).
            title: The display name.
            description: A description of the app (default: the docstring).
            icons: Icons that a client may show.
            meta: The `_meta` of the listed resource.
            scopes: The scopes that a caller's token needs. Other callers do not see the app.
            size: The size of the document in bytes, if known.
            annotations: The audience, importance and modification time of the app.
            cache: How long clients may keep the document (default: the `Server(cache=…)` setting).
            connect_domains: Origins that the app may connect to.
            resource_domains: Origins that the app may load scripts, styles, images and fonts from.
            frame_domains: Origins that the app may embed in frames.
            base_uri_domains: Origins that the app may use as its base URI.
            permissions: The permissions that the app needs: "camera", "microphone", "geolocation"
                or "clipboardWrite".
            domain: The origin from which the client should serve the app.
            prefers_border: Whether the client should draw a border around the app.

        Returns:
            A decorator that returns the function.

        Raises:
            ConfigError: The URI is already in use or malformed, or an option is not valid.
        """

        def decorate(function: F) -> F:
            self.add_app(uri, function, **options)
            return function

        return decorate

    def add_app(
        self,
        uri: str,
        html: str | Path | Callable[..., Any],
        /,
        **options: Unpack[AppOptions],
    ) -> None:
        """Register an app (MCP Apps).

        Args:
            uri: The URI of the app, such as "ui://weather/view".
            html: The HTML document, a path to it, or a function that returns it.
            **options: The options of `@server.app`.

        Raises:
            ConfigError: The URI is already in use or malformed, `html` is not an HTML document, or
                an option is not valid.
        """
        function, resource_options = app_resource(uri, html, dict(options))
        self._offer_apps()
        self.add_resource(function, uri, **cast("ResourceOptions", resource_options))

    def _offer_apps(self, tool: Tool | None = None) -> None:
        """Declare the extension for apps; raise ConfigError if a tool refers to an app that is not
        registered."""
        from ..extensions.apps.settings import apps_extension, get_view_uri

        if (
            self._strict_apps
            and tool is not None
            and (uri := get_view_uri(tool)) is not None
            and self._find(uri) is None
        ):
            raise ConfigError(
                f"Tool {tool.name!r}: there is no app {uri!r} yet; register it before its tools"
            )
        with self._lock:
            if not self._offers_apps:
                self.add_extension(
                    apps_extension(
                        lambda name: _meta_of(self._tools.get(name)),
                        lambda uri: _meta_of(self._find(uri)),
                        strict=self._strict_apps,
                    )
                )
                self._offers_apps = True

    # skills

    def add_skill(
        self,
        folder: str | Path,
        /,
        *,
        uri: str | None = None,
        dynamic: bool = False,
        hidden: bool = False,
        cache: Cache | None = None,
        scopes: Sequence[str] | str = (),
    ) -> str:
        """Serve a folder with a SKILL.md file as a skill. The folder is read once, when you call
        this method, and kept in memory.

        Args:
            folder: The path of the folder.
            uri: The URI of the folder (default: "skill://" followed by the name of the skill).
            dynamic: Whether to read files other than SKILL.md only when a client requests them.
                Clients cannot verify such files.
            hidden: Whether to serve files whose names start with a dot.
            cache: How long clients may keep the files (default: the `Server(cache=…)` setting).
            scopes: The scopes that a caller's token needs. Other callers do not see the skill.

        Returns:
            The URI of the skill's SKILL.md.

        Raises:
            ConfigError: The folder is not a skill or is too large, or the URI is already in use.
        """
        from .skills import Skills, load_skill

        skill = load_skill(
            folder,
            uri=uri,
            dynamic=dynamic,
            hidden=hidden,
            cache=cache,
            scopes=scopes,
            limits=self.limits,
        )
        with self._lock:
            if self._skills is None:
                skills = Skills(self._resources, self._caching, self._page_size, self.limits)
                self.add_extension(skills.extension)
                self._skills = skills
        self._skills.registry.add(skill.definition.uri, self._check_enforceable(skill))
        added: list[str] = []
        try:
            for function, place, options in self._skills.parts(skill):
                self.add_resource(function, place, **cast("ResourceOptions", options))
                added.append(place)
        except BaseException:  # something else is served at that URI
            self._skills.registry.remove(skill.definition.uri)
            for place in added:
                self.remove_resource(place)
            raise
        return skill.definition.uri

    def remove_skill(self, uri: str) -> None:
        """Remove a skill with all its files and notify clients.

        Args:
            uri: The URI of the skill's SKILL.md, as returned by `add_skill`.

        Raises:
            ConfigError: There is no such skill.
        """
        from .skills import template

        if self._skills is None:
            raise ConfigError(f"There is no skill {uri!r}")
        self._skills.registry.remove(uri)
        self.remove_resource(template(uri))
        self.remove_resource(uri)

    # tasks

    def _offer_tasks(self) -> None:
        from ..extensions.tasks.api import CORE_CAPABILITY, ServerTasks, task_settings
        from ..extensions.tasks.manager import TaskManager
        from ..extensions.tasks.settings import FORBIDDEN

        def support_of(tool: str) -> TaskSupport | None:
            entry = self._tools.get(tool)
            return None if entry is None else entry.task or FORBIDDEN

        if self.tasks is None:
            manager = TaskManager(
                self, task_settings(self._tasks_option), support_of, self._continue_task,
                self._notify, slots=lambda: self.task_slots,
                stop_with_lifespan=self._lifespan is not None,
            )  # fmt: skip
            for find_loop, find_bus in self._buses:
                if (loop := find_loop()) is not None and (bus := find_bus()) is not None:
                    run_on_loop(loop, manager.connect_bus, bus)
            self.tasks = ServerTasks(manager)
            self.add_extension(self.tasks.extension)
            self._task_capability = CORE_CAPABILITY
            self.add_handlers(self.tasks.core_handlers)

    async def _continue_task(self, call: Call) -> Any:
        """Run the call of a task whose original call no longer exists, with the extensions that run
        inside the tasks extension."""
        assert self.tasks is not None
        name = call.method.name
        return await compose(
            self.extensions.layers_inside(self.tasks.extension, name), self._inner_handlers[name]
        )(call)

    def run_worker(
        self, *, health: int | str | None = None, keys: Sequence[str | bytes] | None = None
    ) -> None:
        """Run the tasks of this server until the process is stopped, without serving clients.

        Tasks wait in the shared backend until a process with a free slot runs them (`task_slots`).

        Args:
            health: The port on which to answer health checks (`/health`) and serve metrics
                (`/metrics`), at 127.0.0.1, or "HOST:PORT"; "0.0.0.0:8001" for all addresses, where
                everyone who can reach the port can read them (default: no port is opened).
            keys: The keys of the server, as in `run` (default: those in `DOVETAIL_KEYS`).

        Raises:
            ConfigError: The server has no backend, or it is away, or none of its tools can run as
                a task, or `health` is not an address.
        """
        self._keys = keys if keys is not None else self._keys
        if not self.backend:
            raise ConfigError(
                "A worker needs the backend that it shares with its server: --backend redis://…, "
                "DOVETAIL_BACKEND or Server(backend=…)"
            )
        if self.tasks is None:
            raise ConfigError("A worker would have nothing to do: no tool has task=…")
        if not self.tasks.manager.store.queued or not self.task_slots:
            reason = "task_slots is 0" if self.tasks.manager.store.queued else "tasks=… is set"
            raise ConfigError(f"A worker would receive no tasks from the backend, because {reason}")
        from ..serve.worker import run_worker

        self._backend_required = True
        run_worker(self, self.lifespan, health)

    def series(self) -> Mapping[str, Mapping[Attributes, float | list[float]]]:
        """Return the metrics of the backend, of mounted servers and of tasks."""
        own = super().series()
        return own if self.tasks is None else {**own, **self.tasks.series()}

    def connect_bus(self, bus: Bus) -> None:
        """Use the bus that connects the processes of the server, in the current event loop.

        Args:
            bus: The bus.
        """
        from asyncio import get_running_loop

        super().connect_bus(bus)
        self._buses = [pair for pair in self._buses if pair[0]() is not None]
        self._buses.append((ref(get_running_loop()), ref(bus)))
        if self.tasks is not None:
            self.tasks.manager.connect_bus(bus)

    def begin_shutdown(self) -> None:
        """Take no more tasks in the current event loop, and let other processes continue those that
        can be resumed."""
        super().begin_shutdown()
        if self.tasks is not None:
            self.tasks.manager.scheduler.drain()

    def _inner_lifespan(self) -> AbstractAsyncContextManager[Any]:
        own = super()._inner_lifespan()
        if self._mounts is not None:
            own = self._mounts.run_with(own)
        for api in self._http_apis:
            own = api.run_with(own)
        return own if self.tasks is None else self.tasks.manager.lifespan(own)

    def _find_refusal(self) -> str:
        is_open = self._mounts is not None and self.guard is None
        return self._refusal or (self._mounts._find_refusal() if is_open else "")

    def _prepare_for_network(
        self, options: Mapping[str, Any], *, single_process: bool = True
    ) -> None:
        one_process = single_process and (options.get("workers") or 1) == 1
        if not one_process and self.tasks is not None and not self.tasks.manager.store.shared:
            raise ConfigError(
                "The processes of a server must share their tasks. Store tasks in a file: "
                'Server(tasks="tasks.db"), or name a backend: Server(backend="redis://…")'
            )
        super()._prepare_for_network(options, single_process=single_process)


def _meta_of(component: Any) -> Meta | None:
    return None if component is None else component.definition.meta


def decorate(add: Callable[..., Any], function_or_name: Any, options: Mapping[str, Any]) -> Any:
    """Apply a decorator in either form: bare, or with options (the name may come first)."""
    if callable(function_or_name):
        add(function_or_name, **options)
        return function_or_name
    if function_or_name is not None:
        options = {"name": function_or_name, **options}

    def decorate(function: F) -> F:
        add(function, **options)
        return function

    return decorate


def _check_options(kind: str, options: Mapping[str, Any]) -> None:
    if not options:
        return
    from . import options as declared

    known = getattr(declared, f"{kind.title()}Options").__annotations__
    for name in options.keys() - known.keys():
        close = closest_name(name, known)
        hint = f"did you mean {close}=?" if close else f"its options are {', '.join(known)}"
        raise ConfigError(f"@server.{kind} has no option {name}=; {hint}")


def _completable(function: Callable[P, R], completers: Completers) -> Completable[P, R]:
    def complete(argument: str, values: Sequence[str] | None = None) -> Callable[[F], F]:
        if values is not None:
            completers.add(argument, values)

        def decorate(source: F) -> F:
            completers.add(argument, source)
            return source

        return decorate

    try:
        function.complete = complete  # type: ignore[attr-defined]
    except AttributeError:
        pass  # attributes of a bound method cannot be set
    return cast("Completable[P, R]", function)
