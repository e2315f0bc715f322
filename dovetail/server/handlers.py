"""The part of a server that answers requests: its components, and one handler per method.

The other part, `server.py`, is the interface for users. `service.py` has what a server shares with
services that have no components. No part holds anything that is bound to an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from msgspec.structs import replace

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
from ..ports import Call, Caller, CallHandler, Network, Principal
from ..protocol.base import Implementation, ListChangedParams
from ..protocol.content import ResourceContents
from ..protocol.lifecycle import InputRequired, ServerCapabilities
from ..protocol.methods import METHODS, Method
from ..protocol.prompts import GetPromptResult
from ..protocol.resources import ReadResourceResult, ResourcesChangedParams, UriParams
from ..protocol.tools import ToolResult
from ..protocol.utilities import CompleteResult, PromptReference
from .caching import asked_the_client
from .capabilities import DEFAULTS, CapabilityChoices, resolve_choices
from .context import Context
from .prompts import RegisteredPrompt, bind_arguments, make_prompt_result
from .registry import (
    Registry,
    Snapshot,
    encode_page,
    may_use,
    require_scopes,
    scopes_in,
    select_page,
    union_of_scopes,
    visible_to,
)
from .resources import (
    RegisteredResource,
    bind_variables,
    has_below,
    is_parent,
    make_contents,
    match_template,
    not_found,
)
from .runnable import UNGUARDED, RunnableService
from .service import answer_in_connection
from .tools import RegisteredTool, call_tool, decode_structured, describe_failure

if TYPE_CHECKING:
    from ..connection.instrumentation import Attributes
    from ..protocol.header_params import HeaderParam
    from .options import ServiceOptions

Component = TypeVar("Component")


class Handlers(RunnableService):
    """The components of a server, and the handlers for its methods."""

    context_type: type[Context] = Context
    """The class of the context that functions receive."""
    _registry_type: type[Registry[Any]] = Registry
    _strict_apps = True
    """Whether clients that do not show apps see neither apps nor the tools that are only for them,
    an app must be registered before its tools, and its tools always return text."""
    _prefixes_in_path = False
    """Whether what is mounted is called `prefix_name` and `scheme://prefix/path`, as in FastMCP."""

    def __init__(
        self,
        info: Implementation,
        *,
        capabilities: CapabilityChoices | None,
        experimental: dict[str, Any] | None,
        page_size: int | None,
        mask_errors: bool,
        **options: Unpack[ServiceOptions],
    ) -> None:
        super().__init__(info, **options)
        self._capability_choices = resolve_choices(capabilities)
        self._experimental = experimental
        self._task_capability: dict[str, Any] | None = None
        self._page_size, self._mask_errors = page_size, mask_errors
        self._mounts: Any = None
        """The mounted servers (`gateway/mounts.py`), or None."""
        make, notify = self._registry_type, self._on_list_change
        notify_resources = partial(notify, "resources")
        self._tools: Registry[RegisteredTool] = make("tool", partial(notify, "tools"))
        self._resources: Registry[RegisteredResource] = make("resource", notify_resources)
        self._templates: Registry[RegisteredResource] = make("template", notify_resources)
        self._prompts: Registry[RegisteredPrompt] = make("prompt", partial(notify, "prompts"))
        self._registries: dict[str, tuple[Registry[Any], ...]] = {
            "tools": (self._tools,),
            "resources": (self._resources, self._templates),
            "prompts": (self._prompts,),
        }
        """The components of each kind."""
        list_handler = self._list_handler
        self.add_handlers(
            {
                "tools/list": list_handler("tools/list", self._tools, "tools"),
                "tools/call": self._call_tool,
                "resources/list": list_handler("resources/list", self._resources, "resources"),
                "resources/templates/list": list_handler(
                    "resources/templates/list", self._templates, "resource_templates"
                ),
                "resources/read": self._read_resource,
                "resources/subscribe": self._subscribe,
                "resources/unsubscribe": self._unsubscribe,
                "subscriptions/listen": self._listen,
                "prompts/list": list_handler("prompts/list", self._prompts, "prompts"),
                "prompts/get": self._get_prompt,
                "completion/complete": self._complete,
            }
        )
        self._find_by_method: dict[str, Callable[[str], Any]] = {
            "tools/call": self._tools.get,
            "resources/read": self._find,
            "resources/subscribe": self._find,
            "prompts/get": self._prompts.get,
        }
        """For each method, the function that finds a component by its name or URI."""
        self._scopes_cache: tuple[Any, tuple[str, ...]] = ((), ())
        if self.guard is not None:
            self._admissions += (self._check_scopes,)

    # what the layers below use

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that this server declares to a client that connects now: those of all
        registered kinds, unless `Server(capabilities=…)` says otherwise."""
        declared = {
            kind: self._capability_choices.get(kind, options)
            for kind, options in DEFAULTS.items()
            if kind in self._capability_choices or self._has(kind)
        }
        return ServerCapabilities(
            **declared,
            experimental=self._experimental,
            tasks=self._task_capability,
            extensions=self.extensions.declared,
        )

    def _has(self, kind: str) -> bool:
        """Return whether anything of this kind is registered, no matter who may use it."""
        if self._mounts is not None and self._mounts.capabilities.get(kind) is not None:
            return True
        if kind == "completions":
            return any(each.completers.sources for each in (*self._prompts, *self._templates))
        return kind == "logging" or any(map(len, self._registries[kind]))

    def _items(self, kind: str) -> dict[str, Any]:
        """Return the components of a kind of list: tools, prompts, resources or templates."""
        registry: Registry[Any] = getattr(self, f"_{kind}")
        return registry.snapshot.items

    def _mounted_filter(self) -> Callable[[str, str, Any], bool] | None:
        """Return a function that says whether the current caller sees a mounted component, by its
        kind, its name and its entry in a catalog; None if the caller sees all."""
        return None

    def _check_offered(self, kind: str) -> None:
        """Raise MethodNotFound if a kind is neither declared nor registered. A kind whose
        components were removed still counts: clients may have been told that it exists."""
        was_used = any(registry.was_used for registry in self._registries.get(kind, ()))
        if not (was_used or self._has(kind) or self._capability_choices.get(kind) is not None):
            raise MethodNotFound(f"This server has no {kind}")

    def health(self) -> Mapping[str, Any]:
        """Return the answer of the health check, with the state of each mounted server."""
        own = super().health()
        return own if self._mounts is None else {**own, **self._mounts.health()}

    def masked_health(self) -> Mapping[str, Any]:
        """Return the same without the reasons why mounted servers failed, as far as these may
        contain secrets."""
        own = self.health()
        if self._mounts is None or "servers" not in own:
            return own
        return {**own, "servers": self._mounts.masked_health()["servers"]}

    def series(self) -> Mapping[str, Mapping[Attributes, float | list[float]]]:
        """Return the metrics of each mounted server."""
        own = super().series()
        return own if self._mounts is None else {**own, **self._mounts.series()}

    def header_params(self, tool: str) -> tuple[HeaderParam, ...]:
        """Return the tool parameters that HTTP requests repeat in their headers."""
        found = self._tools.snapshot.items.get(tool)
        if found is None and self._mounts is not None:
            mounted: tuple[HeaderParam, ...] = self._mounts.header_params(tool)
            return mounted
        return () if found is None else found.header_params

    def can_ask(self, call: Call) -> bool:
        """Return whether the handler of this call can ask questions. A tool needs a context in
        order to ask."""
        if call.name != "tools/call":
            return True
        tool = self._tools.snapshot.items.get(call.params.name)
        if tool is None:
            return self._mounts is not None
        return tool.uses_context

    def can_replay(self, call: Call) -> bool:
        """Return whether the handler of this call may be run again. A call to a mounted server is
        never sent twice."""
        return self._mounts is None or bool(self._mounts.is_own(call))

    def session_ended(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """Notify the observers, and close the connections of this caller to mounted servers."""
        super().session_ended(caller, network, seconds)
        if self._mounts is not None:
            self._mounts.session_ended(caller, network, seconds)

    def roots_changed(self, caller: Caller) -> None:
        """Notify the mounted servers."""
        if self._mounts is not None:
            self._mounts.roots_changed(caller)

    def _report_subscriptions(self, uri: str, active: bool) -> None:
        super()._report_subscriptions(uri, active)
        if self._mounts is not None and self._find(uri) is None:
            self._mounts.on_subscriptions(uri, active)

    def _check_scopes(self, method: Method, params: Any, caller: Caller) -> None:
        find = self._find_by_method.get(method.name)
        if find is not None and caller.principal is not None and self.scopes:
            name = getattr(params, "uri", None) or params.name
            component = find(name)
            if component is not None:
                require_scopes(component, caller.principal, name)

    def _check_enforceable(self, component: Component) -> Component:
        """Return the component; raise ConfigError if it has scopes but callers are not
        authenticated."""
        if self._networked and self.guard is None and union_of_scopes([component]):
            raise ConfigError(UNGUARDED)
        return component

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that the components require."""
        now: tuple[Snapshot[Any], ...] = (
            self._tools.snapshot,
            self._resources.snapshot,
            self._templates.snapshot,
            self._prompts.snapshot,
        )
        if self._scopes_cache[0] != now:
            self._scopes_cache = (
                now,
                tuple(sorted(frozenset[str]().union(*map(scopes_in, now)))),
            )
        if self._mounts is not None:
            return tuple(sorted({*self._scopes_cache[1], *self._mounts.scopes}))
        return self._scopes_cache[1]

    def may_notify(self, principal: Principal | None, method: str, params: Any) -> bool:
        """Return whether a caller may be notified of a change. A caller is not notified of
        resources that it may not read."""
        if principal is None or not self.scopes:
            return True
        uris = [params.uri] if isinstance(params, UriParams) else []
        if isinstance(params, ResourcesChangedParams):
            uris = params.updated
        found = map(self._find, uris)
        return all(resource is None or may_use(resource, principal) for resource in found)

    # changes

    def _on_list_change(self, kind: str, added: dict[str, Any], removed: dict[str, Any]) -> None:
        # Components with scopes are not named, because not every caller may see them.
        if self._listeners:
            params = ListChangedParams(
                added=[each.definition for each in added.values() if not each.scopes],
                removed=[name for name, each in removed.items() if not each.scopes],
            )
            self._notify(f"notifications/{kind}/list_changed", params)

    # calls

    def _list_handler(self, method: str, registry: Registry[Any], field: str) -> CallHandler:
        """Create the handler for a list method. The handler returns an encoded page, or a result if
        middleware may change it."""
        result_type: Any = METHODS[method].result
        kind = METHODS[method].capability

        def make_result(call: Call, visible: Snapshot[Any]) -> Any:
            components, cursor = select_page(call, visible, self._page_size)
            hints = self._caching.hints(method, restricted=bool(scopes_in(registry.snapshot)))
            items = [component.definition for component in components]
            return result_type(**{field: items}, next_cursor=cursor, **hints)

        def make_signed_result(call: Call, visible: Snapshot[Any]) -> Any:
            result, revision = make_result(call, visible), call.revision
            if not revision.stateless:
                return result
            return sign_result(result, revision.lower(self.info), revision)

        async def answer(call: Call) -> Any:
            if not registry.was_used:
                self._check_offered(kind)
            visible = visible_to(call.principal, registry.snapshot)
            if method in self._decoded_methods:
                return make_result(call, visible)
            return encode_page(
                call, visible, lambda: make_signed_result(call, visible), self.redact
            )

        return answer

    async def _call_tool(self, call: Call) -> ToolResult | InputRequired:
        tool = self._tools.snapshot.items.get(call.params.name)
        if tool is None:
            self._check_offered("tools")
            raise InvalidParams(f"Unknown tool: {call.params.name}", parameter="name")
        context = self.context_type(call, self) if tool.uses_context else None
        result = await call_tool(tool, call, context, self.limits, self._mask_errors)
        if "tools/call" not in self._decoded_methods or isinstance(result, InputRequired):
            return result
        return decode_structured(result)

    async def _read_resource(self, call: Call) -> ReadResourceResult | InputRequired:
        try:
            resource, values = self._match(call.params.uri)
        except NotFound:
            self._check_offered("resources")
            raise
        contents = await self._read(resource, values, call.params.uri, call)
        if isinstance(contents, InputRequired):
            return contents
        if asked_the_client(call):
            return ReadResourceResult(contents=contents)
        hints = self._caching.hints(
            "resources/read",
            resource.cache,
            personal=resource.signature.context is not None,
            restricted=bool(resource.scopes),
        )
        return ReadResourceResult(contents=contents, **hints)

    async def _subscribe(self, call: Call) -> Any:
        self._check_offered("resources")
        if not self._can_change(call.params.uri, call.principal):
            raise not_found(call.params.uri)
        return await answer_in_connection(call)

    async def _unsubscribe(self, call: Call) -> Any:
        self._check_offered("resources")
        return await answer_in_connection(call)

    async def _listen(self, call: Call) -> Any:
        """Remove nonexistent resources from a request to listen. The acknowledgement names the
        remaining resources."""
        wanted = call.params.notifications
        uris = wanted.resource_subscriptions or ()
        if 0 < len(uris) <= self.limits.subscriptions:  # more are refused
            kept = [uri for uri in uris if self._can_change(uri, call.principal)]
            wanted = replace(wanted, resource_subscriptions=kept or None)
            call.params = replace(call.params, notifications=wanted)
        return await answer_in_connection(call)

    def _can_change(self, uri: str, principal: Principal | None) -> bool:
        """Return whether a caller can subscribe to a URI. The caller must be able to use a resource
        at the URI or below it, or a template that matches."""
        resource = self._find(uri)
        if resource is not None:
            return may_use(resource, principal)
        return has_below(uri, visible_to(principal, self._resources.snapshot)) or any(
            is_parent(uri, template)
            for template in visible_to(principal, self._templates.snapshot).items
        )

    async def read(self, uri: str, call: Call) -> list[ResourceContents]:
        """Read a resource for a handler that answers another call.

        Args:
            uri: The URI of the resource.
            call: The call that is being answered.

        Raises:
            NotFound: There is no such resource.
            Forbidden: The caller may not read it.
        """
        resource, values = self._match(uri)
        require_scopes(resource, call.principal, f"Resource {uri}")
        contents = await self._read(resource, values, uri, call)
        if isinstance(contents, InputRequired):
            raise InternalError(
                f"Resource {uri} returned InputRequired, which works only when a client reads the "
                "resource"
            )
        return contents

    def _find(self, uri: str) -> RegisteredResource | None:
        try:
            return self._match(uri)[0]
        except NotFound:
            return None

    def _match(self, uri: str) -> tuple[RegisteredResource, dict[str, Any]]:
        """Return the resource or template for a URI, with the values of its variables."""
        resource = self._resources.get(uri)
        found = (resource, {}) if resource else match_template(self._templates.snapshot, uri)
        if found is None:
            raise not_found(uri)
        return found

    async def _read(
        self,
        resource: RegisteredResource,
        values: dict[str, Any],
        uri: str,
        call: Call,
    ) -> list[ResourceContents] | InputRequired:
        context = self.context_type(call, self)
        args, kwargs = bind_variables(resource, values, uri, context)
        try:
            value = await self._run(resource, args, kwargs, f"Resource {uri}")
        except NotFound as error:
            error.data = {"uri": uri} if error.data is None else error.data
            raise
        return (
            value
            if isinstance(value, InputRequired)
            else make_contents(value, uri, resource.definition.mime_type)
        )

    async def _get_prompt(self, call: Call) -> GetPromptResult | InputRequired:
        prompt = self._prompts.get(call.params.name)
        if prompt is None:
            self._check_offered("prompts")
            raise InvalidParams(f"Unknown prompt: {call.params.name}", parameter="name")
        args, kwargs = bind_arguments(
            prompt, call.params.arguments or {}, self.context_type(call, self)
        )
        value = await self._run(prompt, args, kwargs, f"Prompt {call.params.name}")
        return value if isinstance(value, InputRequired) else make_prompt_result(prompt, value)

    async def _complete(self, call: Call) -> CompleteResult:
        self._check_offered("completions")
        reference, argument, context = call.params.ref, call.params.argument, call.params.context
        chosen = (context.arguments if context else None) or {}
        owner = self._find_completable(reference, call.principal)
        return await owner.completers.complete(argument.name, argument.value, chosen, self.limits)

    def _find_completable(
        self, reference: Any, principal: Principal | None
    ) -> RegisteredPrompt | RegisteredResource:
        found: RegisteredPrompt | RegisteredResource | None
        if isinstance(reference, PromptReference):
            found, what = self._prompts.get(reference.name), f"prompt: {reference.name}"
        else:
            found, what = (
                self._templates.get(reference.uri) or self._find(reference.uri),
                f"resource template: {reference.uri}",
            )
        if found is None or not may_use(found, principal):
            raise InvalidParams(f"Unknown {what}", parameter="ref")
        return found

    async def _run(
        self, component: Any, args: tuple[Any, ...], kwargs: dict[str, Any], what: str
    ) -> Any:
        from .execution import run_function

        signature = component.signature
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
            raise InternalError(describe_failure(what, error, self._mask_errors)) from None
