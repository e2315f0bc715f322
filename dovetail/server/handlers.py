"""How a server answers: what is registered with it, who may use it, and the calls that come.

This half of a server is what the layers below see (`ports.Service`); the other half, `server.py`,
is what a user builds it with. It holds nothing bound to an event loop.
"""

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from ..connection.extension import Extensions
from ..connection.middleware import Middleware, Observer, compose
from ..connection.stateless import sign_result
from ..errors import (
    CannotAsk,
    ConfigError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    NotFound,
    ProtocolError,
    ToolError,
)
from ..limits import Limits
from ..ports import Call, Caller, CallHandler, ChangeListener, Guard, Network, Principal
from ..protocol.base import Implementation, ListChangedParams, Params
from ..protocol.content import ResourceContents
from ..protocol.lifecycle import InputRequired, ServerCapabilities
from ..protocol.methods import METHODS, Method
from ..protocol.prompts import GetPromptResult
from ..protocol.resources import ReadResourceResult, UriParams
from ..protocol.tools import ToolResult
from ..protocol.utilities import CompleteResult, PromptReference
from ..revisions import Revision
from .caching import Caching, asked_the_client
from .context import Context
from .guards.rates import RateLimiter, Rates
from .prompts import RegisteredPrompt, bind_arguments, make_prompt_result
from .registry import (
    Registry,
    Snapshot,
    make_encoded_page,
    make_page,
    may_use,
    require_scopes,
    scopes_in,
    union_of_scopes,
    visible_to,
)
from .resources import (
    AnyResource,
    RegisteredResource,
    RegisteredTemplate,
    bind_variables,
    make_contents,
    match_template,
    not_found,
)
from .tools import RegisteredTool, call_tool, decode_structured, describe_failure

if TYPE_CHECKING:
    from ..protocol.header_params import HeaderParam
    from ..sealing import KeyRing
    from .forms import Form
    from .served_files import FileWatcher

E = TypeVar("E")
Admission = Callable[[Method, Any, Caller], None]
"""Looks at a request before it begins; raises what refuses it."""
UNGUARDED = (
    "There are scopes=, but over HTTP nobody would ask for a token: say who is let "
    "in, with Server(auth=…)"
)


class Handlers:
    """What is registered, and what becomes of calls to it."""

    context_type: type[Context] = Context
    """What its handlers are given as context."""

    def __init__(
        self,
        info: Implementation,
        capabilities: ServerCapabilities,
        *,
        limits: Limits,
        guard: Guard | None,
        rates: Rates | None,
        cache: Any,
        middleware: Sequence[Middleware],
        page_size: int | None,
        mask_errors: bool,
    ) -> None:
        self.info, self.capabilities, self.limits, self.guard = info, capabilities, limits, guard
        self.extensions = Extensions()
        self._page_size, self._mask = page_size, mask_errors
        self._observers = tuple(layer for layer in middleware if isinstance(layer, Observer))
        self._changed = set[str]() if len(self._observers) == len(middleware) else set(METHODS)
        """The methods whose results somebody may look into and change; others go out as they were
        encoded."""
        self._varied = set(self._changed)
        """The methods whose results may be others for another caller."""
        self._caching = Caching(cache, self._varied)
        self._keys: Sequence[str | bytes] | None = None
        self._lock = threading.Lock()
        self._listeners: tuple[ChangeListener, ...] = ()
        self._unwatched: frozenset[ChangeListener] = frozenset()
        """Those that do not hear of what is watched."""
        self._watch: FileWatcher | None = None
        self._tools: Registry[RegisteredTool] = Registry("tool", self._announce("tools"))
        self._resources: Registry[RegisteredResource] = Registry(
            "resource", self._announce("resources")
        )
        self._templates: Registry[RegisteredTemplate] = Registry(
            "template", self._announce("resources")
        )
        self._prompts: Registry[RegisteredPrompt] = Registry("prompt", self._announce("prompts"))
        self._inner: dict[str, CallHandler] = {
            "server/discover": self._discover,
            "tools/list": self._lists("tools/list", self._tools, "tools"),
            "tools/call": self._call_tool,
            "resources/list": self._lists("resources/list", self._resources, "resources"),
            "resources/templates/list": self._lists(
                "resources/templates/list", self._templates, "resource_templates"
            ),
            "resources/read": self._read_resource,
            "prompts/list": self._lists("prompts/list", self._prompts, "prompts"),
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }
        """What answers each method; what is not here, the connection answers."""
        self._handlers = dict(self._inner)
        """The same with all that extensions wrap around it."""
        self._used: dict[str, Callable[[Any], Any]] = {
            "tools/call": lambda params: self._tools.get(params.name),
            "resources/read": lambda params: self._find(params.uri),
            "resources/subscribe": lambda params: self._find(params.uri),
            "prompts/get": lambda params: self._prompts.get(params.name),
        }
        self._needed: tuple[Any, tuple[str, ...]] = ((), ())
        self._networked = False
        self.limiter = None if rates is None else RateLimiter(rates)
        counted = () if self.limiter is None else (self.limiter.admit,)
        permitted = () if guard is None else (self._permit,)
        self._admissions: tuple[Admission, ...] = (*counted, *permitted)
        self.answer: CallHandler = compose(middleware, self._dispatch)

    # what the layers below ask

    def header_params(self, tool: str) -> "tuple[HeaderParam, ...]":
        """The parameters of a tool that are repeated in HTTP headers."""
        entry = self._tools.now.items.get(tool)
        return () if entry is None else entry.mirrors

    def can_ask(self, call: Call) -> bool:
        """Whether what answers this call is able to ask its client: a tool has to take a context
        for that."""
        if call.name != "tools/call":
            return True
        entry = self._tools.now.items.get(call.params.name)
        return entry is not None and entry.signature.context is not None

    def make_form(self, message: str, schema: Any) -> "Form":
        """The form that a schema is, to be put to a user with this message."""
        from .forms import Form

        return Form.of(schema).labelled(message)

    def observe(self, observer: Observer) -> None:
        """Let one more look at every call, from outside of all middleware, and at every request
        that is refused."""
        self._observers += (observer,)
        self.answer = compose([observer], self.answer)

    def session_ended(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """A session of the handshake era has ended, after so many seconds."""
        for observer in self._observers:
            observer.session_ended("server", caller.revision, network, seconds)

    @property
    def ring(self) -> "KeyRing":
        """What tickets are sealed with: the `keys` that it is served with, else those that any
        server has."""
        from ..sealing import key_ring

        return key_ring(self._keys)

    def admit(self, method: Method, params: Any, caller: Caller) -> None:
        """Whether this request may begin at all."""
        try:
            for admission in self._admissions:
                admission(method, params, caller)
        except ProtocolError as refusal:
            for observer in self._observers:
                observer.request_refused(method, params, caller, refusal)
            raise

    def _permit(self, method: Method, params: Any, caller: Caller) -> None:
        find = self._used.get(method.name)
        if find is not None and caller.principal is not None and self.scopes:
            entry = find(params)
            if entry is not None:
                require_scopes(
                    entry,
                    caller.principal,
                    getattr(params, method.named) if method.named else method.name,
                )

    def _check_enforceable(self, entry: E) -> E:
        """The same, unless it has scopes that nobody would ask for."""
        if self._networked and self.guard is None and union_of_scopes([entry]):
            raise ConfigError(UNGUARDED)
        return entry

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that something here takes."""
        now: tuple[Snapshot[Any], ...] = (
            self._tools.now,
            self._resources.now,
            self._templates.now,
            self._prompts.now,
        )
        if self._needed[0] != now:
            self._needed = (
                now,
                tuple(sorted(frozenset[str]().union(*(scopes_in(one) for one in now)))),
            )
        return self._needed[1]

    def may_notify(self, principal: Principal | None, method: str, params: Any) -> bool:
        """Whether somebody may know of a change: of resources that they may not read, they hear
        nothing."""
        if principal is None or not isinstance(params, UriParams) or not self.scopes:
            return True
        entry = self._find(params.uri)
        return entry is None or may_use(entry, principal)

    # changes

    def add_listener(self, listener: ChangeListener, *, watched: bool = True) -> Callable[[], None]:
        """Tell `listener` of every change from now on, of those in files only where it wants what
        is `watched`; returns what ends it."""
        with self._lock:
            self._heard_by((*self._listeners, listener))
            self._unwatched |= frozenset(() if watched else (listener,))

        def end() -> None:
            with self._lock:
                self._heard_by(tuple(one for one in self._listeners if one is not listener))
                self._unwatched -= {listener}

        return end

    def _heard_by(self, listeners: tuple[ChangeListener, ...]) -> None:
        self._listeners = listeners
        if self._watch is not None:
            self._watch.set_running(bool(listeners))

    def _announce(self, kind: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        def changed(came: dict[str, Any], went: dict[str, Any]) -> None:
            if self._listeners:  # what is not for everybody is not named
                added = [entry.listed for entry in came.values() if not entry.scopes]
                params = ListChangedParams(
                    added=added, removed=[name for name, entry in went.items() if not entry.scopes]
                )
                self._tell(f"notifications/{kind}/list_changed", params)

        return changed

    def _tell(self, method: str, params: Params) -> None:
        for listener in self._listeners:
            listener(method, params)

    # calls

    def _dispatch(self, call: Call) -> Awaitable[Any]:
        return self._handlers.get(call.method.name, _locally)(call)

    def _answer_with(
        self, handlers: Mapping[str, CallHandler], wrapped: Iterable[str] = ()
    ) -> None:
        """Answer with these from now on. All that extensions wrap around them, and around what else
        is `wrapped`, stays so, whichever came first."""
        self._inner |= handlers
        for name in {*handlers, *wrapped}:
            self._handlers[name] = compose(
                self.extensions.layers.get(name, ()), self._inner.get(name, _locally)
            )

    async def _discover(self, call: Call) -> Any:
        assert call.protocol_handler is not None
        return replace(await call.protocol_handler(call), **self._caching.hints("server/discover"))

    def _lists(self, method: str, registry: Registry[Any], field: str) -> CallHandler:
        """What answers a list: a page, as ready bytes unless middleware wants to look at it."""
        result: Any = METHODS[method].result

        def make(entries: list[Any], cursor: str | None) -> Any:
            hints = self._caching.hints(method)
            if hints and scopes_in(registry.now):
                hints["cache_scope"] = "private"
            return result(
                **{field: [entry.listed for entry in entries], "next_cursor": cursor}, **hints
            )

        async def answer(call: Call) -> Any:
            seen = visible_to(call.principal, registry.now)
            if method in self._changed:
                return make_page(call, seen, self._page_size, make)
            return make_encoded_page(call, seen, self._page_size, make, self._signed)

        return answer

    def _signed(self, result: Any, revision: Revision) -> Any:
        return sign_result(result, self.info, revision) if revision.stateless else result

    async def _call_tool(self, call: Call) -> ToolResult | InputRequired:
        entry = self._tools.now.items.get(call.params.name)
        if entry is None:
            raise InvalidParams(f"Unknown tool: {call.params.name}")
        context = self.context_type(call, self) if entry.signature.context else None
        result = await call_tool(entry, call, context, self.limits, self._mask)
        if "tools/call" not in self._changed or isinstance(result, InputRequired):
            return result
        return decode_structured(result)

    async def _read_resource(self, call: Call) -> ReadResourceResult | InputRequired:
        entry, values = self._found(call.params.uri)
        contents = await self._read(entry, values, call.params.uri, call)
        if isinstance(contents, InputRequired):
            return contents
        personal = entry.signature.context is not None
        hints = (
            {}
            if asked_the_client(call)
            else self._caching.hints("resources/read", entry.cache, personal)
        )
        if entry.scopes and hints:
            hints["cache_scope"] = "private"
        return ReadResourceResult(contents=contents, **hints)

    async def read(self, uri: str, call: Call) -> list[ResourceContents]:
        """The contents of a resource, on behalf of a call to something else."""
        entry, values = self._found(uri)
        require_scopes(entry, call.principal, f"Resource {uri}")
        contents = await self._read(entry, values, uri, call)
        if isinstance(contents, InputRequired):
            raise InternalError(
                f"Resource {uri} asks by itself, which only works when a client reads it"
            )
        return contents

    def _find(self, uri: str) -> AnyResource | None:
        """What is found under a URI, if anything is."""
        found = self._resources.get(uri)
        if found is not None:
            return found
        matched = match_template(self._templates.now, uri)
        return None if matched is None else matched[0]

    def _found(self, uri: str) -> tuple[AnyResource, dict[str, Any]]:
        """What is read under a URI, with the values of its variables."""
        entry = self._resources.get(uri)
        found = (entry, {}) if entry is not None else match_template(self._templates.now, uri)
        if found is None:
            raise not_found(uri)
        return found

    async def _read(
        self,
        entry: AnyResource,
        values: dict[str, Any],
        uri: str,
        call: Call,
    ) -> list[ResourceContents] | InputRequired:
        context = self.context_type(call, self)
        args, kwargs = bind_variables(entry, values, uri, context)
        try:
            value = await self._run(entry, args, kwargs, f"Resource {uri}")
        except NotFound as error:
            error.data = {"uri": uri} if error.data is None else error.data
            raise
        return (
            value
            if isinstance(value, InputRequired)
            else make_contents(value, uri, entry.listed.mime_type)
        )

    async def _get_prompt(self, call: Call) -> GetPromptResult | InputRequired:
        entry = self._prompts.get(call.params.name)
        if entry is None:
            raise InvalidParams(f"Unknown prompt: {call.params.name}")
        args, kwargs = bind_arguments(
            entry, call.params.arguments or {}, self.context_type(call, self)
        )
        value = await self._run(entry, args, kwargs, f"Prompt {call.params.name}")
        return value if isinstance(value, InputRequired) else make_prompt_result(entry, value)

    async def _complete(self, call: Call) -> CompleteResult:
        reference, argument, context = call.params.ref, call.params.argument, call.params.context
        chosen = (context.arguments if context else None) or {}
        owner = self._completed(reference, call.principal)
        known = {parameter.name for parameter in owner.signature.parameters}
        if argument.name not in known:
            raise InvalidParams(
                f"There is no argument {argument.name!r} to complete; there are {sorted(known)}"
            )
        return await owner.completers.complete(argument.name, argument.value, chosen, self.limits)

    def _completed(
        self, reference: Any, principal: Principal | None
    ) -> RegisteredPrompt | AnyResource:
        found: RegisteredPrompt | AnyResource | None
        if isinstance(reference, PromptReference):
            found, what = self._prompts.get(reference.name), f"prompt: {reference.name}"
        else:
            found, what = (
                self._templates.get(reference.uri) or self._find(reference.uri),
                f"resource template: {reference.uri}",
            )
        if found is None or not may_use(found, principal):
            raise InvalidParams(f"Unknown {what}")
        return found

    async def _run(
        self, entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any], what: str
    ) -> Any:
        from .execution import run_function

        signature = entry.signature
        try:
            return await run_function(
                signature.function, signature.is_async, args, kwargs, self.limits
            )
        except (ProtocolError, CannotAsk):
            raise
        except ToolError as error:
            raise InternalError(str(error)) from None
        except BaseException as error:
            if type(error).__name__ == "CancelledError":
                raise
            raise InternalError(describe_failure(what, error, self._mask)) from None


async def _locally(call: Call) -> Any:
    """Let the connection answer what only it can."""
    if call.protocol_handler is None:
        raise MethodNotFound(f"There is no method {call.name!r} here")
    return await call.protocol_handler(call)
