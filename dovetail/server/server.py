"""The server that a user builds: a name, and functions registered as tools, resources and prompts.

It holds nothing bound to an event loop, so one server may run on several at once. Transports and asyncio are loaded when
it is run, not when it is defined. What the layers below see of it is `ports.Service`.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from msgspec.structs import replace

from ..connection.extension import Extension, Extensions
from ..connection.middleware import Middleware, Observer, compose
from ..connection.stateless import signed
from ..errors import CannotAsk, ConfigError, InternalError, InvalidParams, MethodNotFound, NotFound, ProtocolError, ToolError
from ..limits import DEFAULT, Limits
from ..ports import Answer, Call, Caller, Channel, Guard, HttpRequest, HttpResponse, Listener, Network, Principal, Redact
from ..protocol.base import Icon, Implementation, Meta, Params
from ..protocol.capabilities import ListCapability, ResourcesCapability, ServerCapabilities
from ..protocol.completion import CompleteResult, PromptReference
from ..protocol.content import Annotations, ResourceContents
from ..protocol.elicitation import ElicitationCompleteParams
from ..protocol.lifecycle import InputRequired
from ..protocol.lists import ListChangedParams
from ..protocol.methods import METHODS, Method
from ..protocol.prompts import GetPromptResult
from ..protocol.resources import ReadResourceResult, UriParams
from ..protocol.tools import ToolAnnotations, ToolResult
from ..revisions import ALL, BY_NAME, Revision
from . import prompts, resources, scopes, tools
from .caching import Cache, Caching, took_a_round
from .completions import Completers
from .context import Context
from .guards.rates import NETWORK, Limiter, Rates
from .pagination import encoded_page, page
from .registry import Registry, Snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from ..extensions.tasks.tasks import Tasks
    from ..extensions.tasks.terms import Terms
    from ..protocol.mirrors import Mirror
    from ..sealing import KeyRing
    from ..serve.app import App
    from .forms import Form
    from .skills import Skills
    from .tasking import Given as TasksGiven
    from .watching import Watch

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E")
AnyFunction = Callable[..., Any]


Admission = Callable[[Method, Any, Caller], None]
"""Looks at a request before it begins; raises what refuses it."""
TRANSPORTS = ("stdio", "http", "sse", "websocket")
GUARD = ("admit", "respond", "challenge")
UNGUARDED = "There are scopes=, but over HTTP nobody would ask for a token: say who is let in, with Server(auth=…)"


class Completable(Protocol[P, R_co]):
    """A prompt or template function: the function as it was, and a way to complete its arguments."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself."""

    def complete(self, argument: str, values: Sequence[str] | None = None) -> Callable[[F], F]:
        """Complete this argument from the decorated function, or from a list of values."""


class Server:
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
            raise ConfigError(f'resume={resume!r}: a call that asked goes on "live" where it can, or always by "replay"')
        if page_size is not None and page_size < 1:
            raise ConfigError("page_size must be at least 1")
        self.info = Implementation(
            name=name, version=version, title=title, description=description, website_url=website_url, icons=icons
        )
        self.instructions = instructions
        self.limits = limits
        self.guard = _guard(auth)
        self.redact = redact
        self.replay = resume == "replay"
        self.revisions = ALL if revisions is None else _revisions(revisions)
        self.capabilities = ServerCapabilities(
            tools=ListCapability(list_changed=True),
            resources=ResourcesCapability(subscribe=True, list_changed=True),
            prompts=ListCapability(list_changed=True),
            completions={},
            logging={},
            experimental=experimental,
        )
        self.extensions = Extensions()
        self._page_size = page_size
        self._observers = tuple(layer for layer in middleware if isinstance(layer, Observer))
        self._changed = set[str]() if len(self._observers) == len(middleware) else set(METHODS)
        """The methods whose results somebody may look into and change; others go out as they were encoded."""
        self._caching = Caching(cache, self._changed)
        self._mask = mask_errors
        self._lifespan = lifespan
        self._keys: Sequence[str | bytes] | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._unwatched: frozenset[Listener] = frozenset()
        """Those that do not hear of what is watched."""
        self._watch: Watch | None = None
        self._skills: Skills | None = None
        self._tasks_given = tasks
        self.tasks: Tasks | None = None
        """What it does about tasks, once it has a tool that may run as one."""
        self._lock = threading.Lock()
        self._tools: Registry[tools.Entry] = Registry("tool", self._announce("tools"))
        self._resources: Registry[resources.Entry] = Registry("resource", self._announce("resources"))
        self._templates: Registry[resources.TemplateEntry] = Registry("template", self._announce("resources"))
        self._prompts: Registry[prompts.Entry] = Registry("prompt", self._announce("prompts"))
        self._core: dict[str, Answer] = {
            "server/discover": self._discover,
            "tools/list": self._lists("tools/list", self._tools, "tools"),
            "tools/call": self._call_tool,
            "resources/list": self._lists("resources/list", self._resources, "resources"),
            "resources/templates/list": self._lists("resources/templates/list", self._templates, "resource_templates"),
            "resources/read": self._read_resource,
            "prompts/list": self._lists("prompts/list", self._prompts, "prompts"),
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }
        self._handlers = dict(self._core)
        self._used: dict[str, Callable[[Any], Any]] = {
            "tools/call": lambda params: self._tools.get(params.name),
            "resources/read": lambda params: self._at(params.uri),
            "resources/subscribe": lambda params: self._at(params.uri),
            "prompts/get": lambda params: self._prompts.get(params.name),
        }
        self._needed: tuple[Any, tuple[str, ...]] = ((), ())
        self._networked = False
        self.limiter = None if rates is None else Limiter(rates)
        counted = () if self.limiter is None else (self.limiter.admit,)
        permitted = () if auth is None else (self._permit,)
        self._admissions: tuple[Admission, ...] = (*counted, *permitted)
        self.answer: Answer = compose(middleware, self._dispatch)
        for extension in extensions:
            self.add_extension(extension)

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
        entry = tools.entry(function, name=name, **options)
        if options.get("ui") or options.get("visibility"):
            self._with_apps(entry.listed.name, options.get("ui"))
        if entry.task is not None:
            self._with_tasks()
        self._tools.add(entry.listed.name, self._enforceable(entry))

    def remove_tool(self, name: str) -> None:
        """Take a tool out again; clients are told."""
        self._tools.remove(name)

    def mirrors(self, tool: str) -> "tuple[Mirror, ...]":
        """The parameters of a tool that are repeated in HTTP headers."""
        entry = self._tools.now.items.get(tool)
        return () if entry is None else entry.mirrors

    def asks(self, call: Call) -> bool:
        """Whether what answers this call is able to ask its client: a tool has to take a context for that."""
        if call.name != "tools/call":
            return True
        entry = self._tools.now.items.get(call.params.name)
        return entry is not None and entry.signature.context is not None

    def form(self, message: str, schema: Any) -> "Form":
        """The form that a schema is, to be put to a user with this message."""
        from .forms import Form

        return Form.of(schema).labelled(message)

    async def _call_tool(self, call: Call) -> ToolResult | InputRequired:
        entry = self._tools.now.items.get(call.params.name)
        if entry is None:
            raise InvalidParams(f"Unknown tool: {call.params.name}")
        context = Context(call, self) if entry.signature.context else None
        result = await tools.call_tool(entry, call, context, self.limits, self._mask)
        if "tools/call" not in self._changed or isinstance(result, InputRequired):
            return result
        return tools.opened(result)

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
    def resource(self, uri: str, /, **options: Any) -> Callable[[Callable[P, R]], Completable[P, R]]: ...
    def resource(self, uri: str, /, **options: Any) -> Any:
        """Register a function as a resource, or as a template where the URI has `{variables}`."""
        if not isinstance(uri, str):
            raise ConfigError('A resource needs its URI: @server.resource("config://app")')

        def decorate(function: Callable[P, R]) -> Completable[P, R]:
            return self.add_resource(function, uri, **options)

        return decorate

    def add_resource(self, function: Callable[P, R], uri: str, /, **options: Any) -> Completable[P, R]:
        """Register a function as a resource, with the options of `@server.resource`."""
        entry = self._enforceable(resources.entry(function, uri, **options))
        if isinstance(entry, resources.TemplateEntry):
            self._templates.add(uri, entry)
        else:
            self._resources.add(uri, entry)
        return _completable(function, entry.completers)

    def remove_resource(self, uri: str) -> None:
        """Take a resource or template out again; clients are told."""
        (self._templates if "{" in uri else self._resources).remove(uri)
        if self._watch is not None:
            self._watch.drop(uri)

    def add_file(self, path: "str | Path", /, *, uri: str | None = None, watch: bool = False, **options: Any) -> None:
        """Serve a file as a resource; it is read anew each time. With `watch`, subscribers are told when it changes."""
        from .served_files import file_resource, file_states

        function, uri, about = file_resource(path, uri)
        self.add_resource(function, uri, **(about | options))
        if watch:
            self._watched.add(uri, file_states(path, uri))

    def add_directory(
        self, path: "str | Path", /, *, uri: str, hidden: bool = False, watch: bool = False, **options: Any
    ) -> None:
        """Serve what lies in a directory, under a URI such as `docs://`; there is no way out of it. With `watch`,
        subscribers are told when a file in it changes."""
        from .served_files import directory_resources, directory_states

        for function, place, about, complete in directory_resources(path, uri, hidden):
            made = self.add_resource(function, place, **(about | options))
            if complete is not None:
                made.complete("path")(complete)
        if watch:
            self._watched.add(place, directory_states(path, uri, hidden))

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
        """Register a function that gives an HTML document as an app, for tools to point to with `ui=`. The other options are
        those of a resource."""

        def decorate(function: F) -> F:
            self.add_app(uri, function, **options)
            return function

        return decorate

    def add_app(self, uri: str, html: "str | Path | AnyFunction", /, **options: Any) -> None:
        """Register an app, with the options of `@server.app`: its document, a path to it, or a function that gives it."""
        from .apps import app_resource

        function, about = app_resource(uri, html, options)
        self.add_resource(function, uri, **about)
        self._with_apps()

    def _with_apps(self, tool: str = "", uri: str | None = None) -> None:
        """Offer apps from now on; and see to it that the one is there that a tool points to."""
        from ..extensions.apps.offering import offering
        from ..extensions.apps.settings import ID

        if uri is not None and self._at(uri) is None:
            raise ConfigError(f"Tool {tool!r}: there is no app {uri!r} yet; register it before the tools that point to it")
        if not any(extension.id == ID for extension in self.extensions):
            self.add_extension(offering(lambda name: _meta_of(self._tools.get(name)), lambda uri: _meta_of(self._at(uri))))

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
        """Serve a folder with a SKILL.md as a skill; returns the URI of that file. It is read now, and kept. `dynamic`: its
        other files are read when they are asked for, and clients cannot verify them."""
        from . import skills

        entry = skills.entry(folder, uri=uri, dynamic=dynamic, hidden=hidden, cache=cache, scopes=scopes, limits=self.limits)
        with self._lock:
            if self._skills is None:
                offered = skills.Skills(self._resources, self._caching, self._page_size, self.limits)
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

    def notify_resource_updated(self, uri: str) -> None:
        """Tell all who subscribed to this resource that it changed. Works anywhere, from any thread."""
        self._tell("notifications/resources/updated", UriParams(uri=uri))

    @property
    def _watched(self) -> "Watch":
        from .watching import Watch

        with self._lock:
            if self._watch is None:
                self._watch = Watch(self._noticed, self.limits)
                self._watch.run(bool(self._listeners))
            return self._watch

    async def _read_resource(self, call: Call) -> ReadResourceResult | InputRequired:
        entry, values = self._found(call.params.uri)
        contents = await self._read(entry, values, call.params.uri, call)
        if isinstance(contents, InputRequired):
            return contents
        personal = entry.signature.context is not None
        hints = {} if took_a_round(call) else self._caching.hints("resources/read", entry.cache, personal)
        if entry.scopes and hints:
            hints["cache_scope"] = "private"
        return ReadResourceResult(contents=contents, **hints)

    async def read(self, uri: str, call: Call) -> list[ResourceContents]:
        """The contents of a resource, on behalf of a call to something else."""
        entry, values = self._found(uri)
        scopes.check(entry, call.principal, f"Resource {uri}")
        contents = await self._read(entry, values, uri, call)
        if isinstance(contents, InputRequired):
            raise InternalError(f"Resource {uri} asks by itself, which only works when a client reads it")
        return contents

    def _at(self, uri: str) -> resources.Entry | resources.TemplateEntry | None:
        """What is found under a URI, if anything is."""
        found = self._resources.get(uri)
        if found is not None:
            return found
        matched = resources.match(list(self._templates), uri)
        return None if matched is None else matched[0]

    def _found(self, uri: str) -> tuple[resources.Entry | resources.TemplateEntry, dict[str, Any]]:
        """What is read under a URI, with the values of its variables."""
        entry = self._resources.get(uri)
        found = (entry, {}) if entry is not None else resources.match(list(self._templates), uri)
        if found is None:
            raise resources.not_found(uri)
        return found

    async def _read(
        self, entry: resources.Entry | resources.TemplateEntry, values: dict[str, Any], uri: str, call: Call
    ) -> list[ResourceContents] | InputRequired:
        context = Context(call, self)
        args, kwargs = resources.bind(entry, values, uri, context)
        try:
            value = await self._run(entry, args, kwargs, f"Resource {uri}")
        except NotFound as error:
            error.data = {"uri": uri} if error.data is None else error.data
            raise
        return value if isinstance(value, InputRequired) else resources.contents(value, uri, entry.mime_type)

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
        entry = self._enforceable(prompts.entry(function, **options))
        self._prompts.add(entry.listed.name, entry)
        return _completable(function, entry.completers)

    def remove_prompt(self, name: str) -> None:
        """Take a prompt out again; clients are told."""
        self._prompts.remove(name)

    async def _get_prompt(self, call: Call) -> GetPromptResult | InputRequired:
        entry = self._prompts.get(call.params.name)
        if entry is None:
            raise InvalidParams(f"Unknown prompt: {call.params.name}")
        args, kwargs = prompts.bind(entry, call.params.arguments or {}, Context(call, self))
        value = await self._run(entry, args, kwargs, f"Prompt {call.params.name}")
        return value if isinstance(value, InputRequired) else prompts.result(entry, value)

    # completions

    async def _complete(self, call: Call) -> CompleteResult:
        from .running import threads

        reference, argument, context = call.params.ref, call.params.argument, call.params.context
        chosen = (context.arguments if context else None) or {}
        owner = self._completed(reference, call.principal)
        known = {parameter.name for parameter in owner.signature.parameters}
        if argument.name not in known:
            raise InvalidParams(f"There is no argument {argument.name!r} to complete; there are {sorted(known)}")
        return await owner.completers.complete(argument.name, argument.value, chosen, threads(self.limits).run)

    def _completed(
        self, reference: Any, principal: Principal | None
    ) -> prompts.Entry | resources.Entry | resources.TemplateEntry:
        found: prompts.Entry | resources.Entry | resources.TemplateEntry | None
        if isinstance(reference, PromptReference):
            found, what = self._prompts.get(reference.name), f"prompt: {reference.name}"
        else:
            found, what = (
                self._templates.get(reference.uri) or self._at(reference.uri),
                f"resource template: {reference.uri}",
            )
        if found is None or not scopes.may(found, principal):
            raise InvalidParams(f"Unknown {what}")
        return found

    # pages that users are sent to

    def check_url(self, url: str, user: str | None) -> str:
        """At a page that `ctx.bind_url` made the URL of: the id of its question, if `user` (the visitor's id, as the page
        itself knows it) is who was asked; UrlRefused if not. Takes the URL or its ticket."""
        from ..connection.visiting import check

        return check(self.ring, url, self.name, user)

    def elicitation_complete(self, id: str) -> None:
        """Tell the client whose user was sent to a page that they are done there. Works anywhere, from any thread."""
        self._tell("notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=id))

    @property
    def ring(self) -> "KeyRing":
        """What tickets are sealed with: the `keys` that it is served with, else those that any server has."""
        from ..sealing import key_ring

        return key_ring(self._keys)

    # tasks

    def _with_tasks(self) -> None:
        """Run tools as tasks from now on, where they say so."""
        from .tasking import tasking

        if self.tasks is None:
            self.tasks = tasking(
                self, self._tasks_given, lambda name: _terms_of(self._tools.get(name)), self._call_tool, self._tell,
                ends=self._lifespan is not None,
            )  # fmt: skip
            self._handlers |= self.tasks.handlers

    # extensions

    def add_extension(self, extension: Extension) -> None:
        """Give it one more extension. Clients that are connected in the handshake era do not hear of it any more."""
        self.extensions.add(extension)
        self.capabilities.extensions = self.extensions.declared
        self._handlers |= extension.handlers
        for name, layer in extension.around.items():
            self._handlers[name] = compose(self.extensions.around(name), self._core.get(name, _locally))
            self._changed |= frozenset(() if isinstance(layer, Observer) else (name,))
        if self.extensions.admit not in self._admissions:
            self._admissions += (self.extensions.admit,)

    def observe(self, observer: Observer) -> None:
        """Let one more look at every call, from outside of all middleware, and at every request that is refused."""
        self._observers += (observer,)
        self.answer = compose([observer], self.answer)

    def parted(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """A session of the handshake era has ended, after so many seconds."""
        for observer in self._observers:
            observer.parted("server", caller.revision, network, seconds)

    # running

    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until the client goes away (stdio), or until stopped: "http", "sse" or "websocket", with the options of
        `asgi` and `host`, `port`, `path`, `workers`, `certfile`, `keyfile`."""
        if transport not in TRANSPORTS:
            raise ConfigError(f"There is no transport {transport!r}; there are {', '.join(TRANSPORTS)}")
        if transport == "stdio" and options:
            raise ConfigError(f"stdio takes no options, but got {', '.join(options)}")
        if "DOVETAIL_ISOLATED" in os.environ:
            return  # this is the child process of an isolated tool, which only wants the tool
        if transport == "stdio":
            from ..serve.stdio import run_stdio

            run_stdio(self, self.lifespan)
        else:
            from ..serve.http import run_http

            self._go_online(options)
            run_http(self, self.lifespan, transport, options)

    def asgi(self, path: str = "", **options: Any) -> "App":
        """An ASGI application that serves every revision over HTTP, to be run by any ASGI server or mounted in any other.
        The options are those of `dovetail.serve.app.Options`: docs/guides/http.md has them all."""
        from ..serve.app import App, Options

        self._go_online(options)
        return App(self, self.lifespan, Options.of(path=path, **options))

    async def handle(self, request: HttpRequest, **options: Any) -> HttpResponse:
        """Answer one HTTP request and leave nothing running: for serverless functions. Replies are JSON."""
        from ..serve.serverless import handle

        self._go_online(options)
        return await handle(self, self.lifespan, request, options)

    async def serve(self, channel: Channel) -> None:
        """Hold one conversation over a channel of your own, until the other side ends it."""
        from ..serve import serve

        await serve(self, channel, self.lifespan, grace=self.limits.shutdown)

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """What is entered before the first request and left after the last; its value is `ctx.state`."""
        return self._own_lifespan() if self.tasks is None else self.tasks.keeper.living(self._own_lifespan())

    def _own_lifespan(self) -> AbstractAsyncContextManager[Any]:
        if self._lifespan is None:
            from contextlib import nullcontext

            return nullcontext()
        from inspect import signature

        takes_server = bool(signature(self._lifespan).parameters)
        return self._lifespan(self) if takes_server else self._lifespan()

    def listen(self, listener: Listener, *, watched: bool = True) -> Callable[[], None]:
        """Tell `listener` of every change from now on, of those in files only where it wants what is `watched`; returns what
        ends it."""
        with self._lock:
            self._heard_by((*self._listeners, listener))
            self._unwatched |= frozenset(() if watched else (listener,))

        def end() -> None:
            with self._lock:
                self._heard_by(tuple(one for one in self._listeners if one is not listener))
                self._unwatched -= {listener}

        return end

    def _heard_by(self, listeners: tuple[Listener, ...]) -> None:
        self._listeners = listeners
        if self._watch is not None:
            self._watch.run(bool(listeners))

    # who may use what

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that something here takes."""
        now: tuple[Snapshot[Any], ...] = (self._tools.now, self._resources.now, self._templates.now, self._prompts.now)
        if self._needed[0] != now:
            self._needed = now, tuple(sorted(frozenset[str]().union(*(scopes.needed(one) for one in now))))
        return self._needed[1]

    def tells(self, principal: Principal | None, method: str, params: Any) -> bool:
        """Whether somebody may know of a change: of resources that they may not read, they hear nothing."""
        if principal is None or not isinstance(params, UriParams) or not self.scopes:
            return True
        entry = self._at(params.uri)
        return entry is None or scopes.may(entry, principal)

    def _permit(self, method: Method, params: Any, caller: Caller) -> None:
        find = self._used.get(method.name)
        if find is not None and caller.principal is not None and self.scopes:
            entry = find(params)
            if entry is not None:
                scopes.check(entry, caller.principal, method.name)

    def _enforceable(self, entry: E) -> E:
        """The same, unless it has scopes that nobody would ask for."""
        if self._networked and self.guard is None and scopes.union([entry]):
            raise ConfigError(UNGUARDED)
        return entry

    def _go_online(self, options: Mapping[str, Any]) -> None:
        """From here on strangers may call."""
        self._keys = options.get("keys", self._keys)
        if (options.get("workers") or 1) > 1 and self.tasks is not None and not self.tasks.keeper.store.shared:
            raise ConfigError('Several processes have to share their tasks: keep them in a file, Server(tasks="tasks.db")')
        if self.guard is None and self.scopes:
            raise ConfigError(UNGUARDED)
        self._networked = True

    def admit(self, method: Method, params: Any, caller: Caller) -> None:
        """Whether this request may begin at all."""
        try:
            for admission in self._admissions:
                admission(method, params, caller)
        except ProtocolError as refusal:
            for observer in self._observers:
                observer.refused(method, params, caller, refusal)
            raise

    async def _discover(self, call: Call) -> Any:
        assert call.local is not None
        return replace(await call.local(call), **self._caching.hints("server/discover"))

    async def _dispatch(self, call: Call) -> Any:
        handler = self._handlers.get(call.method.name, call.local)
        if handler is None:
            raise MethodNotFound(f"There is no method {call.name!r} here")
        return await handler(call)

    def _lists(self, method: str, registry: Registry[Any], field: str) -> Answer:
        """What answers a list: a page, as ready bytes unless middleware wants to look at it."""
        result: Any = METHODS[method].result

        def make(entries: list[Any], cursor: str | None) -> Any:
            hints = self._caching.hints(method)
            if hints and scopes.needed(registry.now):
                hints["cache_scope"] = "private"
            return result(**{field: [entry.listed for entry in entries], "next_cursor": cursor}, **hints)

        async def answer(call: Call) -> Any:
            seen = scopes.view(registry.now, call.principal)
            if method in self._changed:
                return page(call, seen, self._page_size, make)
            return encoded_page(call, seen, self._page_size, make, self._signed)

        return answer

    def _signed(self, result: Any, revision: Revision) -> Any:
        return signed(result, self.info, revision) if revision.stateless else result

    async def _run(self, entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Any:
        from .running import run_function

        signature = entry.signature
        try:
            return await run_function(signature.function, signature.is_async, args, kwargs, self.limits)
        except (ProtocolError, CannotAsk):
            raise
        except ToolError as error:
            raise InternalError(str(error)) from None
        except BaseException as error:
            if type(error).__name__ == "CancelledError":
                raise
            raise InternalError(tools.explain(what, error, self._mask)) from None

    def _announce(self, kind: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        def changed(came: dict[str, Any], went: dict[str, Any]) -> None:
            if self._listeners:  # what is not for everybody is not named
                added = [entry.listed for entry in came.values() if not entry.scopes]
                params = ListChangedParams(added=added, removed=[name for name, entry in went.items() if not entry.scopes])
                self._tell(f"notifications/{kind}/list_changed", params)

        return changed

    def _noticed(self, uri: str) -> None:
        """A file that is watched has changed. The other processes of this server see it by themselves."""
        for listener in self._listeners:
            if listener not in self._unwatched:
                listener("notifications/resources/updated", UriParams(uri=uri))

    def _tell(self, method: str, params: Params) -> None:
        for listener in self._listeners:
            listener(method, params)


def _guard(given: Any) -> Guard | None:
    """What was given as `auth=`, if it is a guard; else what to write instead."""
    if given is None or (not isinstance(given, type) and all(hasattr(given, part) for part in GUARD)):
        return cast("Guard | None", given)
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    raise ConfigError(
        f'auth= takes a guard, not {what}: Bearer(jwt("https://issuer.example")), Provider(users={{…}}) or ApiKeys({{…}})'
    )


def _meta_of(entry: Any) -> Meta | None:
    return None if entry is None else entry.listed.meta


def _terms_of(entry: tools.Entry | None) -> "Terms | None":
    from ..extensions.tasks.terms import FORBIDDEN

    return None if entry is None else entry.task or FORBIDDEN


async def _locally(call: Call) -> Any:
    """Let the connection answer what only it can."""
    assert call.local is not None
    return await call.local(call)


def _revisions(names: Sequence[str]) -> tuple[Revision, ...]:
    unknown = [name for name in names if name not in BY_NAME]
    if unknown or not names:
        raise ConfigError(f"Unknown revisions {unknown}; there are {', '.join(BY_NAME)}")
    return tuple(revision for revision in BY_NAME.values() if revision.name in names)


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
