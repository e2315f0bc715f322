"""The server that a user builds: a name, and functions registered as tools, resources and prompts.

It holds nothing bound to an event loop, so one server may run on several at once. Transports and
asyncio are loaded when it is run, not when it is defined. How it answers is in `answering.py`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from ..connection.extension import Extension
from ..connection.middleware import Middleware, Observer, compose
from ..errors import ConfigError
from ..limits import DEFAULT, Limits
from ..ports import Call, Channel, Guard, HttpRequest, HttpResponse, Redact
from ..protocol.base import Icon, Implementation, Meta, Params
from ..protocol.client_features import ElicitationCompleteParams
from ..protocol.content import Annotations
from ..protocol.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ..protocol.methods import METHODS
from ..protocol.resources import UriParams
from ..protocol.tools import Tool, ToolAnnotations
from ..revisions import ALL, BY_NAME, Revision
from . import prompts, resources, tools
from .answering import UNGUARDED, Answering
from .caching import Cache
from .completions import Completers
from .guards.rates import NETWORK, Rates
from .registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from ..extensions.tasks.tasks import Tasks
    from ..extensions.tasks.terms import Terms
    from ..serve.app import App
    from .skills import Skills
    from .tasking import Given as TasksGiven
    from .watching import Watch

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])
AnyFunction = Callable[..., Any]

TRANSPORTS = ("stdio", "http", "sse", "websocket")
GUARD = ("admit", "respond", "challenge")


class Completable(Protocol[P, R_co]):
    """A prompt or template function: the function as it was, and a way to complete its
    arguments."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself."""

    def complete(self, argument: str, values: Sequence[str] | None = None) -> Callable[[F], F]:
        """Complete this argument from the decorated function, or from a list of values."""


class Server(Answering):
    """An MCP server."""

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
        experimental: dict[str, Any] | None = None,
        extensions: Sequence[Extension] = (),
        tasks: "TasksGiven" = None,
        revisions: Sequence[str] | None = None,
        resume: str = "live",
    ) -> None:
        if resume not in ("live", "replay"):
            raise ConfigError(
                f'resume={resume!r}: a call that asked goes on "live" where it can, or always '
                'by "replay"'
            )
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
            _capabilities(experimental),
            limits=limits,
            guard=_guard(auth),
            rates=rates,
            cache=cache,
            middleware=middleware,
            page_size=page_size,
            mask_errors=mask_errors,
        )
        self.instructions = instructions
        self.redact = redact
        self.replay = resume == "replay"
        self.revisions = ALL if revisions is None else _revisions(revisions)
        self._lifespan = lifespan
        self._skills: Skills | None = None
        self._apps = False
        self._tasks_given = tasks
        self.tasks: Tasks | None = None
        """What it does about tasks, once it has a tool that may run as one."""
        for extension in extensions:
            self.add_extension(extension)
        self._caching.check(self.extensions.every())

    @property
    def name(self) -> str:
        """The server's name."""
        return self.info.name

    # tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        name: str | None = None,
        /,
        *,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | dict[str, Any] | None = None,
        icons: list[Icon] | None = None,
        meta: Meta | None = None,
        schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        timeout: float | None = None,
        isolate: str | None = None,
        scopes: Sequence[str] | str = (),
        task: Literal["optional", "required"] | None = None,
        resumable: bool = False,
        ui: str | None = None,
        visibility: Sequence[str] | str | None = None,
    ) -> Callable[[F], F]: ...
    def tool(self, first: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool: `@server.tool`, or `@server.tool(title=…)`."""
        return _decorate(self.add_tool, first, options)

    def add_tool(
        self,
        function: AnyFunction,
        /,
        *,
        name: str | None = None,
        **options: Any,
    ) -> None:
        """Register a function as a tool, with the options of `@server.tool`."""
        entry = tools.entry(function, name=name, **_known("tool", tools.entry, options))
        if "ui" in (entry.listed.meta or ()):
            self._with_apps(entry.listed)
        if entry.task is not None:
            self._with_tasks()
        self._tools.add(entry.listed.name, self._enforceable(entry))

    def remove_tool(self, name: str) -> None:
        """Take a tool out again; clients are told."""
        self._tools.remove(name)

    # resources

    @overload
    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: list[Icon] | None = None,
        annotations: Annotations | dict[str, Any] | None = None,
        meta: Meta | None = None,
        cache: Cache | None = None,
        scopes: Sequence[str] | str = (),
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...
    @overload
    def resource(
        self, uri: str, /, **options: Any
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...
    def resource(self, uri: str, /, **options: Any) -> Any:
        """Register a function as a resource, or as a template where the URI has `{variables}`."""
        if not isinstance(uri, str):
            raise ConfigError('A resource needs its URI: @server.resource("config://app")')

        def decorate(function: Callable[P, R]) -> Completable[P, R]:
            return self.add_resource(function, uri, **options)

        return decorate

    def add_resource(
        self, function: Callable[P, R], uri: str, /, **options: Any
    ) -> Completable[P, R]:
        """Register a function as a resource, with the options of `@server.resource`."""
        entry = self._enforceable(
            resources.entry(function, uri, **_known("resource", resources.entry, options))
        )
        if isinstance(entry, resources.TemplateEntry):
            self._templates.add(uri, entry)
        else:
            self._resources.add(uri, entry)
        return _completable(function, entry.completers)

    def remove_resource(self, uri: str) -> None:
        """Take a resource or template out again; clients are told."""
        registry: Registry[Any] = self._templates if "{" in uri else self._resources
        if self._apps:
            from .apps import check_unused

            check_unused(uri, self._tools, lambda view: self._at(view) is registry.get(uri))
        if self._skills is not None and self._skills.holds(uri):
            raise ConfigError(
                f"{uri} belongs to a skill, which is taken out as a whole with remove_skill"
            )
        registry.remove(uri)
        if self._watch is not None:
            self._watch.drop(uri)

    def add_file(
        self, path: "str | Path", /, *, uri: str | None = None, watch: bool = False, **options: Any
    ) -> None:
        """Serve a file as a resource; it is read anew each time. With `watch`, subscribers are told
        when it changes."""
        from .served_files import file_resource, file_states

        function, uri, about = file_resource(path, uri)
        self.add_resource(function, uri, **(about | options))
        if watch:
            self._watched.add(uri, file_states(path, uri))

    def add_directory(
        self,
        path: "str | Path",
        /,
        *,
        uri: str,
        hidden: bool = False,
        watch: bool = False,
        **options: Any,
    ) -> None:
        """Serve what lies in a directory, under a URI such as `docs://`; there is no way out of it.
        With `watch`, subscribers are told when a file in it changes."""
        from .served_files import directory_resources, directory_states

        for function, place, about, complete in directory_resources(path, uri, hidden):
            made = self.add_resource(function, place, **(about | options))
            if complete is not None:
                made.complete("path")(complete)
        if watch:
            self._watched.add(place, directory_states(path, uri, hidden))

    def notify_resource_updated(self, uri: str) -> None:
        """Tell all who subscribed to this resource that it changed. Works anywhere, from any
        thread."""
        self._tell("notifications/resources/updated", UriParams(uri=uri))

    @property
    def _watched(self) -> "Watch":
        from .watching import Watch

        with self._lock:
            if self._watch is None:
                self._watch = Watch(self._noticed, self.limits)
                self._watch.run(bool(self._listeners))
            return self._watch

    def _noticed(self, uri: str) -> None:
        """A file that is watched has changed. The other processes of this server see it by
        themselves."""
        for listener in self._listeners:
            if listener not in self._unwatched:
                listener("notifications/resources/updated", UriParams(uri=uri))

    # prompts

    @overload
    def prompt(self, function: Callable[P, R], /) -> Completable[P, R]: ...
    @overload
    def prompt(
        self,
        name: str | None = None,
        /,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        meta: Meta | None = None,
        scopes: Sequence[str] | str = (),
    ) -> Callable[[Callable[P, R]], Completable[P, R]]: ...
    def prompt(self, first: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt: `@server.prompt`, or `@server.prompt(title=…)`."""
        return _decorate(self.add_prompt, first, options)

    def add_prompt(self, function: Callable[P, R], /, **options: Any) -> Completable[P, R]:
        """Register a function as a prompt, with the options of `@server.prompt`."""
        entry = self._enforceable(
            prompts.entry(function, **_known("prompt", prompts.entry, options))
        )
        self._prompts.add(entry.listed.name, entry)
        return _completable(function, entry.completers)

    def remove_prompt(self, name: str) -> None:
        """Take a prompt out again; clients are told."""
        self._prompts.remove(name)

    # apps

    @overload
    def app(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        connect_domains: Sequence[str] = (),
        resource_domains: Sequence[str] = (),
        frame_domains: Sequence[str] = (),
        base_uri_domains: Sequence[str] = (),
        permissions: Sequence[str] = (),
        domain: str | None = None,
        prefers_border: bool | None = None,
    ) -> Callable[[F], F]: ...
    @overload
    def app(self, uri: str, /, **options: Any) -> Callable[[F], F]: ...
    def app(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Register a function that gives an HTML document as an app, for tools to point to with
        `ui=`. The other options are those of a resource."""

        def decorate(function: F) -> F:
            self.add_app(uri, function, **options)
            return function

        return decorate

    def add_app(self, uri: str, html: "str | Path | AnyFunction", /, **options: Any) -> None:
        """Register an app, with the options of `@server.app`: its document, a path to it, or a
        function that gives it."""
        from .apps import app_resource

        function, about = app_resource(uri, html, options)
        self._with_apps()
        self.add_resource(function, uri, **about)

    def _with_apps(self, tool: Tool | None = None) -> None:
        """Offer apps from now on; and see to it that the one is there that a tool points to."""
        from ..extensions.apps.offering import offering
        from ..extensions.apps.settings import resource_uri

        if tool is not None and (uri := resource_uri(tool)) is not None and self._at(uri) is None:
            raise ConfigError(
                f"Tool {tool.name!r}: there is no app {uri!r} yet; register it before its tools"
            )
        with self._lock:
            if not self._apps:
                self.add_extension(
                    offering(
                        lambda name: _meta_of(self._tools.get(name)),
                        lambda uri: _meta_of(self._at(uri)),
                    )
                )
                self._apps = True

    # skills

    def add_skill(
        self,
        folder: "str | Path",
        /,
        *,
        uri: str | None = None,
        dynamic: bool = False,
        hidden: bool = False,
        cache: Cache | None = None,
        scopes: Sequence[str] | str = (),
    ) -> str:
        """Serve a folder with a SKILL.md as a skill; returns the URI of that file. It is read now,
        and kept. `dynamic`: its other files are read when they are asked for, and clients cannot
        verify them."""
        from . import skills

        entry = skills.entry(
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
                offered = skills.Skills(
                    self._resources, self._caching, self._page_size, self.limits
                )
                self.add_extension(offered.extension)
                self._skills = offered
        self._skills.registry.add(entry.listed.uri, self._enforceable(entry))
        added: list[str] = []
        try:
            for function, place, options in self._skills.parts(entry):
                self.add_resource(function, place, **options)
                added.append(place)
        except BaseException:  # something else is served there
            self._skills.registry.remove(entry.listed.uri)
            for place in added:
                self.remove_resource(place)
            raise
        return entry.listed.uri

    def remove_skill(self, uri: str) -> None:
        """Take a skill out again, with all its files; clients are told that resources changed."""
        from .skills import template

        if self._skills is None:
            raise ConfigError(f"There is no skill {uri!r}")
        self._skills.registry.remove(uri)
        self.remove_resource(template(uri))
        self.remove_resource(uri)

    # pages that users are sent to

    def check_url(self, url: str, user: str | None) -> str:
        """At a page that `ctx.bind_url` made the URL of: the id of its question, if `user` (the
        visitor's id, as the page itself knows it) is who was asked; UrlRefused if not. Takes the
        URL or its ticket."""
        from ..connection.visiting import check

        return check(self.ring, url, self.name, user)

    def elicitation_complete(self, id: str) -> None:
        """Tell the client whose user was sent to a page that they are done there. Works anywhere,
        from any thread."""
        self._tell(
            "notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=id)
        )

    # tasks

    def _with_tasks(self) -> None:
        """Run tools as tasks from now on, where they say so."""
        from .tasking import tasking

        if self.tasks is None:
            self.tasks = tasking(
                self, self._tasks_given, lambda name: _terms_of(self._tools.get(name)),
                self._go_on, self._tell, ends=self._lifespan is not None,
            )  # fmt: skip
            self._answer_with(self.tasks.handlers)

    async def _go_on(self, call: Call) -> Any:
        """Answer the call that a task began with, where it is not there any more: by the same
        chain, inside of tasks."""
        assert self.tasks is not None
        name = call.method.name
        return await compose(self.extensions.inside(self.tasks.extension, name), self._inner[name])(
            call
        )

    # extensions

    def add_extension(self, extension: Extension) -> None:
        """Give it one more extension. Clients that are connected in the handshake era do not hear
        of it any more."""
        self.extensions.add(extension)
        self.capabilities.extensions = self.extensions.declared
        cacheable = {method.name for method in extension.methods if method.cacheable}
        handlers = dict(extension.handlers)
        handlers |= {
            name: self._caching.hinting(name, handlers[name])
            for name in cacheable & handlers.keys()
        }
        self._answer_with(handlers, wrapped={*extension.around, *extension.instead})
        opened = {
            name for name, layer in extension.around.items() if not isinstance(layer, Observer)
        }
        self._changed |= opened
        self._varied |= {*opened, *extension.instead}
        if self.extensions.admit not in self._admissions:
            self._admissions += (self.extensions.admit,)

    def notify(self, method: str, params: Params) -> None:
        """Tell all who declared an extension what it has a notification for: in the handshake era
        each client, in the other those that listen to changes. Works anywhere, from any thread."""
        row = None if method in METHODS else self.extensions.find(method, None)
        if row is None or row.result is not None or row.sender == "client":
            raise ConfigError(
                f"{method!r} is no notification that an extension of this server sends"
            )
        self._tell(method, params)

    # running

    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until the client goes away (stdio), or until stopped: "http", "sse" or "websocket",
        with the options of `asgi` and `host`, `port`, `path`, `workers`, `certfile`, `keyfile`."""
        _check_transport(transport, options)
        if "DOVETAIL_ISOLATED" in os.environ:
            return  # this is the child process of an isolated tool, which only wants the tool
        if transport == "stdio":
            from ..serve.stdio import run_stdio

            run_stdio(self, self.lifespan)
        else:
            from ..serve.http import run_http

            self._go_online(options)
            run_http(self, self.lifespan, transport, options)

    async def run_async(self, transport: str = "stdio", **options: Any) -> None:
        """`run`, in a loop that is running already: until the client goes away, or this is
        cancelled. Signals are yours, and there are no `workers`."""
        _check_transport(transport, options)
        if transport == "stdio":
            from ..serve.stdio import serve_stdio

            await serve_stdio(self, self.lifespan)
        else:
            from ..serve.http import serve_http

            self._go_online(options)
            await serve_http(self, self.lifespan, transport, options)

    def asgi(self, path: str = "", **options: Any) -> "App":
        """An ASGI application that serves every revision over HTTP, to be run by any ASGI server or
        mounted in any other. The options are those of `dovetail.serve.options.Options`:
        docs/guides/http.md has them all."""
        from ..serve.app import App
        from ..serve.options import ServeOptions

        self._go_online(options)
        return App(self, self.lifespan, ServeOptions.create(path=path, **options))

    async def handle(self, request: HttpRequest, **options: Any) -> HttpResponse:
        """Answer one HTTP request and leave nothing running: for serverless functions. Replies are
        JSON."""
        from ..serve.serverless import handle

        self._go_online(options, alone=False)
        return await handle(self, self.lifespan, request, options)

    async def serve(self, channel: Channel) -> None:
        """Hold one conversation over a channel of your own, until the other side ends it."""
        from ..serve import serve_channel

        await serve_channel(self, channel, self.lifespan, grace=self.limits.shutdown)

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """What is entered before the first request and left after the last; its value is
        `ctx.state`."""
        return (
            self._own_lifespan()
            if self.tasks is None
            else self.tasks.keeper.living(self._own_lifespan())
        )

    def _own_lifespan(self) -> AbstractAsyncContextManager[Any]:
        if self._lifespan is None:
            from contextlib import nullcontext

            return nullcontext()
        from inspect import signature

        takes_server = bool(signature(self._lifespan).parameters)
        return self._lifespan(self) if takes_server else self._lifespan()

    def _go_online(self, options: Mapping[str, Any], *, alone: bool = True) -> None:
        """From here on strangers may call. `alone`: the next request comes to this process too."""
        self._keys = options.get("keys", self._keys)
        alone = alone and (options.get("workers") or 1) == 1
        if not alone and self.tasks is not None and not self.tasks.keeper.store.shared:
            raise ConfigError(
                "Several processes have to share their tasks: keep them in a file, "
                'Server(tasks="tasks.db")'
            )
        if self.guard is None and self.scopes:
            raise ConfigError(UNGUARDED)
        self._networked = True


def _capabilities(experimental: dict[str, Any] | None) -> ServerCapabilities:
    """Everything, always, since whatever there is may come while it runs."""
    return ServerCapabilities(
        tools=ListCapability(list_changed=True),
        resources=ResourcesCapability(subscribe=True, list_changed=True),
        prompts=ListCapability(list_changed=True),
        completions={},
        logging={},
        experimental=experimental,
    )


def _guard(given: Any) -> Guard | None:
    """What was given as `auth=`, if it is a guard; else what to write instead."""
    if given is None or (
        not isinstance(given, type) and all(hasattr(given, part) for part in GUARD)
    ):
        return cast("Guard | None", given)
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    raise ConfigError(
        f'auth= takes a guard, not {what}: Bearer(jwt("https://issuer.example")), '
        f"Provider(users={{…}}) or ApiKeys({{…}})"
    )


def _meta_of(entry: Any) -> Meta | None:
    return None if entry is None else entry.listed.meta


def _terms_of(entry: tools.Entry | None) -> "Terms | None":
    from ..extensions.tasks.terms import FORBIDDEN

    return None if entry is None else entry.task or FORBIDDEN


def _revisions(names: Sequence[str]) -> tuple[Revision, ...]:
    unknown = [name for name in names if name not in BY_NAME]
    if unknown or not names:
        raise ConfigError(f"Unknown revisions {unknown}; there are {', '.join(BY_NAME)}")
    return tuple(revision for revision in BY_NAME.values() if revision.name in names)


def _check_transport(transport: str, options: Mapping[str, Any]) -> None:
    if transport not in TRANSPORTS:
        raise ConfigError(f"There is no transport {transport!r}; there are {', '.join(TRANSPORTS)}")
    if transport == "stdio" and options:
        raise ConfigError(f"stdio takes no options, but got {', '.join(options)}")


def _decorate(add: Callable[..., Any], first: Any, options: dict[str, Any]) -> Any:
    """Both forms of a decorator: bare, or with options (the name may come first)."""
    if callable(first):
        add(first, **options)
        return first
    if first is not None:
        options = {"name": first, **options}

    def decorate(function: F) -> F:
        add(function, **options)
        return function

    return decorate


def _known(kind: str, entry: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a decorator, where it has all of them."""
    takes = entry.__kwdefaults__
    for name in options.keys() - takes.keys():
        from difflib import get_close_matches

        close = get_close_matches(name, takes, n=1)
        hint = f"did you mean {close[0]}=?" if close else f"it takes {', '.join(takes)}"
        raise ConfigError(f"@server.{kind} takes no {name}=; {hint}")
    return options


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
        pass  # a bound method takes no attributes
    return cast("Completable[P, R]", function)
