"""What a program does with its own server: list, get and call components, and hide some of them."""

from collections.abc import Awaitable
from contextlib import nullcontext
from functools import partial, partialmethod
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..aio import LruDict
from ..errors import CannotAsk, ConfigError, NotFound
from ..ports import Call, Caller, CallHandler, Network, PendingAdmission
from ..protocol.methods import METHODS, Method
from ..protocol.raw import RawObject
from ..protocol.tools import ToolResult
from ..server.registry import FilteredRegistry, may_use, require_scopes
from ..server.server import Server
from ..server.tools import decode_structured
from .components import wrap
from .context import RULES, read_parts

METHOD_BY_KIND = {
    "tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list",
    "templates": "resources/templates/list",
}  # fmt: skip
CONDITIONS = dict.fromkeys(("names", "keys", "tags", "components")).keys()
"""By what `enable` and `disable` choose components."""
LOW_LEVEL = frozenset(
    """add_request_handler call_tool completion get_prompt list_prompts list_resource_templates
    list_resources list_tools read_resource request_handlers set_logging_level subscribe_resource
    unsubscribe_resource""".split()  # noqa: SIM905
)
"""The attributes of the low-level server inside a server: mostly decorators of handlers."""


class NoClient:
    """The connection of a call that has no client."""

    headers: dict[str, str] = {}
    header_params = headers

    async def drain(self) -> None:
        """Return at once."""

    def __getattr__(self, name: str) -> Any:
        raise CannotAsk("There is no client: the program itself made this call")


class MiddlewareHost(Server):
    """A server that runs the middleware of the other libraries in one chain."""

    _chain: Any = None
    _chain_kind = "MiddlewareChain"

    @property
    def middleware(self) -> list[Any]:
        """The middleware, outermost first. You can change this list."""
        if self._chain is None:
            from . import middleware

            self._chain = getattr(middleware, self._chain_kind)(self)
            self.admit = self._admit  # type: ignore[method-assign]
            self._decoded_methods |= set(METHODS)
            self._personal_methods |= set(METHODS)
        return self._chain.items  # type: ignore[no-any-return]

    def _dispatch(self, call: Call) -> Awaitable[Any]:
        answer = self._find_handler(call)
        return answer(call) if self._chain is None else self._chain(call, answer)

    def _find_handler(self, call: Call) -> CallHandler:
        return super()._dispatch

    def _admit(self, method: Method, params: Any, caller: Caller) -> PendingAdmission | None:
        """Let middleware refuse a session."""
        pending = super().admit(method, params, caller)
        if method.name != "initialize":
            return pending
        return partial(self._chain.initialize, caller, pending)

    def _require_scopes(self, call: Call) -> None:
        """Raise Forbidden if a call that the program made or changed needs more scopes."""
        find = self._find_by_method.get(call.name)
        key: Any = getattr(call.params, "uri", None) or getattr(call.params, "name", "")
        if find is not None and (component := find(key)) is not None:
            require_scopes(component, call.principal, key)


class Listing(MiddlewareHost):
    """The methods with which a program uses its own server."""

    _registry_type = FilteredRegistry
    _inner: Any = None
    _duplicates = "warn"
    _has_session_rules = False

    def _start_listing(self, on_duplicate: str | None, include: Any, exclude: Any) -> None:
        on_duplicate = on_duplicate or self._duplicates
        if on_duplicate not in ("warn", "replace", "ignore", "error", "keep"):
            raise ConfigError(
                f'on_duplicate={on_duplicate!r}: use "warn", "replace", "ignore" or "error"'
            )
        self._states: LruDict[Caller, dict[Any, Any]] = LruDict(self.limits.sessions)
        self._rules: tuple[Any, ...] = ()
        self._overrides: dict[str, CallHandler] = {}
        if include is not None:
            self.enable(tags=include, only=True)
        if exclude is not None:
            self.disable(tags=exclude)

        def replaces(kind: str, name: str) -> bool:
            if on_duplicate in ("warn", "keep"):
                self._warn(f"The {kind} {name!r} already exists")
            return on_duplicate in ("warn", "replace")

        registries: tuple[Any, ...] = sum(self._registries.values(), ())
        for registry in registries:
            registry.find_rules, registry.shows = self._find_rules, _shows
            if on_duplicate != "error":
                registry.on_duplicate = replaces

    # middleware and sessions

    def add_middleware(self, middleware: Any) -> None:
        """Wrap every request in one more middleware, inside those that exist.

        Args:
            middleware: The middleware.
        """
        from .middleware import Middleware

        if getattr(type(middleware), "on_notification", None) not in (None, Middleware.on_message):
            self._warn(f"{type(middleware).__name__}.on_notification is never called")
        self.middleware.append(middleware)

    def _dispatch(self, call: Call) -> Awaitable[Any]:
        if self._has_session_rules:  # it may call what was hidden when it was admitted
            self._require_scopes(call)
        return super()._dispatch(call)

    def _find_handler(self, call: Call) -> CallHandler:
        """Return the handler of a method. The program's own calls have those of the server, so
        that a handler in `_overrides` can call them."""
        from .dependencies import ASKING

        own = super()._find_handler(call)
        return own if ASKING.get() is self else self._overrides.get(call.name, own)

    def can_ask(self, call: Call) -> bool:
        """Return True: a tool without a context parameter can call `get_context()`."""
        return True

    def session_ended(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """Forget the state of a session."""
        super().session_ended(caller, network, seconds)
        self._forget(caller)

    def _forget(self, caller: Caller) -> None:
        self._states.pop(caller)
        for target in {} if self._mounts is None else self._mounts._targets.values():
            if isinstance(target, Listing):
                target._forget(caller)

    def _session_state(self, call: Call) -> dict[Any, Any]:
        caller = call.origin.caller
        if (found := self._states.get(caller)) is None:
            found = self._states[caller] = {}
            if caller.revision.stateless and call.task is not None:  # the caller of one request
                call.task.add_done_callback(lambda task: self._states.pop(caller))
        return found

    # visibility

    def _warn(self, text: str) -> None:
        from ..logs import get_logger

        get_logger("server").warning(text)

    def _add_rule(
        self, shows: bool, *, state: Any = None, only: bool = False, **wanted: Any
    ) -> None:
        """Show or hide components, in the session with this state or in all sessions."""
        if unknown := [key for key in wanted.keys() - CONDITIONS if wanted[key] is not None]:
            raise ConfigError(f"{unknown[0]}= is not supported; use {', '.join(CONDITIONS)}")
        conditions = frozenset(
            (key, frozenset(each)) for key, each in wanted.items() if each is not None
        )
        rule = (shows, only, conditions)
        if state is None:
            self._rules += (rule,)
        else:
            state[RULES], self._has_session_rules = (*state.get(RULES, ()), rule), True
        for kind in self._registries:
            self._on_list_change(kind, {}, {})

    enable = partialmethod(_add_rule, True)
    disable = partialmethod(_add_rule, False)

    def _find_rules(self) -> tuple[Any, ...]:
        """Return the rules of this server and of the session of the current call."""
        if not self._has_session_rules:
            return self._rules
        call = self._current_call()
        state = None if call is None else self._states.get(call.origin.caller)
        return (*self._rules, *(state or {}).get(RULES, ()))

    def _mounted_filter(self) -> Any:
        rules = self._find_rules()
        return partial(_shows_mounted, rules) if rules else None

    # calls from this process

    def _current_call(self) -> Call | None:
        """Return the call that this server is answering, if there is one."""
        from .dependencies import CURRENT

        current = CURRENT.get()
        return current[0] if current and current[1] is self else None

    async def _ask(self, method: str, **params: Any) -> Any:
        """Answer a request of this process, like one of the client that is being answered."""
        from .dependencies import ASKING, CURRENT

        current, row = CURRENT.get(), METHODS[method]
        asked = row.params(**params)
        if (call := self._current_call()) is not None:
            call = replace(call, method=row, params=asked, raw_params=Raw())
        else:
            newest = next(each for each in reversed(self.revisions) if not each.dialects)
            caller = Caller(revision=newest, log_level=None)
            call = Call(id=0, method=row, params=asked, caller=caller, connection=NoClient())
        self._require_scopes(call)
        idle = self._mounts is not None and not self._mounts.upstreams.is_running
        async with self._mounts.lifespan() if idle else nullcontext():
            token = ASKING.set(self)
            try:
                result = await self.answer(call)
                return result.decode() if type(result) is RawObject else result
            finally:
                ASKING.reset(token)
                CURRENT.set(current)

    async def _list(self, kind: str, **ignored: Any) -> list[Any]:
        method, known, call = METHOD_BY_KIND[kind], self._items(kind), self._current_call()
        if method not in self._decoded_methods:
            user = None if call is None else call.principal
            return [wrap(one, self) for one in known.values() if may_use(one, user)]
        page = await self._ask(method)  # middleware or a mounted server may change it
        field = "resource_templates" if kind == "templates" else kind
        return [
            wrap(known.get(_key(one)) or _without_function(one), self)
            for one in getattr(page, field)
        ]

    async def _get_all(self, kind: str) -> dict[str, Any]:
        return {_key(one): one for one in await self._list(kind)}

    async def _get(self, kind: str, name: Any, *more: Any, **ignored: Any) -> Any:
        found = (await self._get_all(kind)).get(str(name))
        if found is None:
            raise NotFound(f"Unknown {kind[:-1]}: {str(name)!r}")
        return found

    list_tools = partialmethod(_list, "tools")
    list_resources = partialmethod(_list, "resources")
    list_resource_templates = partialmethod(_list, "templates")
    list_prompts = partialmethod(_list, "prompts")
    get_tools = partialmethod(_get_all, "tools")
    get_resources = partialmethod(_get_all, "resources")
    get_resource_templates = partialmethod(_get_all, "templates")
    get_prompts = partialmethod(_get_all, "prompts")
    get_tool = partialmethod(_get, "tools")
    get_resource = partialmethod(_get, "resources")
    get_resource_template = partialmethod(_get, "templates")
    get_prompt = partialmethod(_get, "prompts")

    async def call_tool(self, name: str, arguments: Any = None, **ignored: Any) -> Any:
        """Call a tool of this server, through its middleware; raise ToolError if it fails.

        Args:
            name: The name of the tool.
            arguments: The arguments, as a dict.
            **ignored: A context and other options, which have no effect.
        """
        from .middleware import ToolFailed

        raw = Raw(msgspec.json.encode(arguments or {}))
        result = await self._ask("tools/call", name=name, arguments=raw)
        if result.is_error:
            raise ToolFailed(result)
        return self._returned(decode_structured(result))

    def _returned(self, result: ToolResult) -> Any:
        """Return the result of a tool as `call_tool` does."""
        return result

    async def read_resource(self, uri: Any, **ignored: Any) -> Any:
        """Read a resource of this server.

        Args:
            uri: The URI.
            **ignored: A context and other options, which have no effect.
        """
        return read_parts((await self._ask("resources/read", uri=str(uri))).contents)

    async def render_prompt(self, name: str, arguments: Any = None, **ignored: Any) -> Any:
        """Return the messages of a prompt of this server.

        Args:
            name: The name of the prompt.
            arguments: The arguments, as a dict.
            **ignored: Other options, which have no effect.
        """
        return await self._ask("prompts/get", name=name, arguments=arguments)

    def get_context(self) -> Any:
        """Return the context of the current call, or raise RuntimeError."""
        from .dependencies import get_context

        return get_context()

    _mcp_server = _lowlevel_server = property(lambda self: InnerView(self, low_level=True))
    _tool_manager = _resource_manager = _prompt_manager = property(lambda self: InnerView(self))


def _without_function(definition: Any) -> Any:
    """Return an entry for a component of a mounted server."""
    return SimpleNamespace(definition=definition, signature=SimpleNamespace(function=None))


def _key(one: Any) -> str:
    return str(getattr(one, "uri", None) or getattr(one, "uri_template", None) or one.name)


def _shows(rules: tuple[Any, ...], kind: str, name: str, component: Any) -> bool:
    """Return whether a component is shown. The last rule that it matches decides."""
    definition, shown = component.definition, True
    has_uri = kind in ("resource", "template")
    own = {
        "names": {name, definition.name} if has_uri else {name},
        "keys": {f"{kind}:{name}", f"{kind}:{name}@"},
        "tags": {*((definition.meta or {}).get("fastmcp") or {}).get("tags", ())},
        "components": {kind},
    }
    for shows, only, conditions in rules:
        matches = all(own[key] & values for key, values in conditions)
        shown = shows if matches else shown and not only
    return shown


def _shows_mounted(rules: tuple[Any, ...], kind: str, name: str, item: Any) -> bool:
    """Return whether a mounted component is shown. One that is malformed is not."""
    unlisted = SimpleNamespace(definition=SimpleNamespace(name=name, meta=None))
    try:
        return _shows(rules, kind.removesuffix("s"), name, item or unlisted)
    except (msgspec.MsgspecError, AttributeError, TypeError):
        return False


class Removable(dict[str, Any]):
    """Components by name; what is removed here, the server removes, too."""

    registry: FilteredRegistry

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a component."""
        if name in self:
            self.registry.remove(name)
        return super().pop(name, *default)

    __delitem__ = pop


def _low_level(server: Any) -> Any:
    """Return the low-level server that registers handlers for this server."""
    if server._inner is None:
        server._inner = import_module("dovetail.compat.lowlevel").LowLevelServer(server.name)
        server._inner.add_handlers = server._overrides.update
        server._inner.add_extension = server.add_extension
    return server._inner


class InnerView:
    """The server and the managers inside the other libraries, as far as programs use them:
    `list_tools()`, `get_tool(name)`, `_tools`, `version`, and so on."""

    def __init__(self, server: Any, low_level: bool = False) -> None:
        self.__dict__.update(_server=server, _low_level=low_level)

    def __getattr__(self, name: str) -> Any:
        verb, _, kind = name.partition("_")
        plural = kind if kind.endswith("s") else f"{kind}s"
        if self._low_level and name in LOW_LEVEL:
            return getattr(_low_level(self._server), name)
        if verb not in ("", "list", "get") or plural not in METHOD_BY_KIND:
            return getattr(self._server, name)
        items = self._server._items(plural).items()
        found = Removable((key, wrap(one, self._server)) for key, one in items)
        found.registry = getattr(self._server, f"_{plural}")
        if verb == "list":
            return lambda: [*found.values()]
        if verb == "get" and kind == plural:
            return getattr(self._server, name)
        return (lambda key, *ignored: found.get(str(key))) if verb else found

    @property
    def request_context(self) -> Any:
        """The context of the current call, or None."""
        from .dependencies import find_context

        return find_context()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "instructions":
            self._server.instructions = value
        elif name in ("name", "version"):
            self._server.info = replace(self._server.info, **{name: value})
        else:
            raise AttributeError(f"{name} of the server cannot be changed")
