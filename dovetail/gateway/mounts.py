"""`server.mount(other, prefix="…")`: other servers as a part of this one.

What is mounted is a gateway without an endpoint of its own. The server answers what it has itself,
and gives everything else to the gateway, which relays it. So a name of the server always wins over
the same name of a mounted one.

A mounted `Server` object runs in this process, and its scopes hold: a caller needs them as if the
components were the server's own.
"""

import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from ..client.client import Client
from ..config import ServerSettings
from ..config.settings import MAX_PREFIX_CHARS, read_changes
from ..databases import MEMORY
from ..errors import ConfigError, MethodNotFound
from ..extensions.apps.settings import shows_apps
from ..ports import Call, CallHandler, NoBackend, Principal
from ..protocol.base import Params
from ..protocol.lifecycle import InputRequired
from ..protocol.methods import METHODS
from ..protocol.raw import RawObject, encode_raw, encode_typed, split_object
from ..protocol.utilities import PromptReference
from ..server.handlers import Handlers
from ..server.registry import may_use, require_scopes
from .catalog import LISTS, Item, ListHints
from .gateway import Gateway
from .lists import CORE_LISTS, KIND_BY_METHOD, MergedItem, hint_fields
from .naming import Kind, UpstreamName
from .upstream import UpstreamServer
from .upstreams import Source, describe_target, unknown_name

if TYPE_CHECKING:
    from ..backend import Backend

_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|")
RELAYED = (
    "tools/call", "prompts/get", "resources/read", "completion/complete", "resources/subscribe",
)  # fmt: skip
CHANGEABLE = frozenset({"name", "arguments", "uri", "ref", "argument", "context"})
"""The params that are relayed as middleware leaves them. All others are relayed as received."""


class Mounts(Gateway):
    """The servers that are mounted in another server.

    Args:
        server: The server that they are a part of.
    """

    def __init__(self, server: Handlers) -> None:
        super().__init__(
            Source(entries=(), many_plain=True, in_path=server._prefixes_in_path),
            name=server.name,
            store=MEMORY,
            limits=server.limits,
            rates=None,
        )
        self._server = server
        # The server's own tasks would not know the ids.
        self.tasks.calls.is_enabled = self.lists.has_tasks = False
        self._targets: dict[str, Any] = {}
        inner = server._inner_handlers
        handlers: dict[str, CallHandler] = {
            method: self._own_or_mounted(inner[method], self._inner_handlers[method])
            for method in RELAYED
        }
        handlers |= {method: self._both_lists(inner[method]) for method in CORE_LISTS}
        handlers |= {"subscriptions/listen": self._listen, "logging/setLevel": self._set_level}
        server._decoded_methods |= set(CORE_LISTS)
        server.add_handlers(handlers)

    @property
    def backend(self) -> "Backend | NoBackend":
        """The backend of the server that they are a part of."""
        return self._server.backend

    def mount(self, target: Any, prefix: str, tools: Mapping[str, Any]) -> None:
        """Add a server.

        Args:
            target: A `Server`, or any other target of a client.
            prefix: What the names of its tools and prompts begin with; empty for none.
            tools: The changes to its tools, by its own names.

        Raises:
            ConfigError: The prefix is in use or not valid, the target or a change is not valid, or
                a server would contain itself.
        """
        if not _PREFIX.fullmatch(prefix) or len(prefix) > MAX_PREFIX_CHARS:
            raise ConfigError(
                f"prefix={prefix!r}: use letters, digits, _ and -, beginning with a letter or _, "
                f"at most {MAX_PREFIX_CHARS} characters"
            )
        if target is self._server or (isinstance(target, Handlers) and _contains(target, self)):
            raise ConfigError("A server cannot be mounted in itself")
        if prefix in self.upstreams.servers:
            raise ConfigError(f"The prefix {prefix!r} is already in use. Choose another one.")
        if not isinstance(target, Handlers):
            Client(target)  # raises ConfigError now, and not when the server is started
        name = first = prefix or getattr(target, "name", None) or "server"
        while not prefix and name in self.upstreams.servers:
            name = f"{first}-{len(self.upstreams.servers) + 1}"
        settings = ServerSettings(
            prefix=prefix, tools=read_changes(tools), pin="off", max_tokens=sys.maxsize
        )
        self.upstreams.add(replace(describe_target(name, target), settings=settings))
        self._targets[name] = target

    @asynccontextmanager
    async def run_with(self, lifespan: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Run the mounted servers inside a lifespan."""
        async with lifespan as state, self.lifespan():
            yield state

    # what clients and operators are told

    def add_instructions(self, own: str | None) -> str | None:
        """Return the instructions of the server and of the mounted ones.

        Args:
            own: Those of the server itself.
        """
        mounted = [
            f"# {server.name}\n\n{server.catalog.instructions}"
            for server in self.upstreams.servers.values()
            if server.catalog.instructions
        ]
        return "\n\n".join([*([own] if own else ()), *mounted]) or None

    # calls

    def is_own(self, call: Call) -> bool:
        """Return whether the server itself answers a call."""
        server, params = self._server, call.params
        if call.name == "tools/call":
            return server._tools.get(params.name) is not None
        if call.name == "prompts/get":
            return server._prompts.get(params.name) is not None
        if call.name == "completion/complete":
            ref = params.ref
            if isinstance(ref, PromptReference):
                return server._prompts.get(ref.name) is not None
            return server._templates.get(ref.uri) is not None or server._find(ref.uri) is not None
        if call.name == "resources/subscribe":
            return server._can_change(params.uri, call.principal)
        return call.name != "resources/read" or server._find(params.uri) is not None

    def _own_or_mounted(self, own: CallHandler, mounted: CallHandler) -> CallHandler:
        async def answer(call: Call) -> Any:
            is_own, may_change = self.is_own(call), call.name in self._server._decoded_methods
            if not is_own and (may_change or not call.raw_params):
                _update_raw_params(call)
            result = await (own if is_own else mounted)(call)
            return result.decode() if may_change and type(result) is RawObject else result

        return answer

    def _both_lists(self, own: CallHandler) -> CallHandler:
        """Return a handler that adds the mounted items to the last page of the server's own."""

        async def answer(call: Call) -> Any:
            kind = KIND_BY_METHOD[call.name]
            field = LISTS[kind].field
            try:
                page = await own(call)
            except MethodNotFound:  # it has none of this kind itself
                items: list[Any] = []
                own_hints = None
            else:
                own_hints = ListHints(page.ttl_ms or 0, page.cache_scope == "public")
                if page.next_cursor is not None:
                    return page
                items = getattr(page, _python_name(field))
            await self.upstreams.wait_for_catalogs()
            taken = self._server._items(kind)
            apps = not self._server._strict_apps or shows_apps(call.caller.capabilities)
            mounted = self.lists.visible(kind, call.principal, apps=apps).items
            shows = self._server._mounted_filter() or (lambda *mounted: True)
            parts = [encode_typed(item) for item in items]
            parts += [
                bytes(one.raw)
                for name, one in mounted.items()
                if name not in taken and shows(kind, name, one.item)
            ]
            fields: dict[str, Any] = {field: Raw(b"[" + b",".join(parts) + b"]")}
            fields |= hint_fields(self._combine_hints(kind, own_hints))
            return RawObject(METHODS[call.name].result, fields)  # type: ignore[arg-type]

        return answer

    def _combine_hints(self, kind: Kind, own: ListHints | None) -> ListHints | None:
        """Return how long callers may keep a list of the server's own items and mounted ones."""
        mounted = self.lists.hints(kind)
        hints = own if mounted is None else mounted.combined(own)
        return ListHints(hints.ttl_ms) if hints is not None and self.scopes else hints

    async def _find(self, call: Call, kind: Kind, name: str) -> UpstreamName:
        found = await super()._find(call, kind, name)
        shows = self._server._mounted_filter()
        if shows is not None:
            item = self._find_item(kind, found)
            if item is not None and item.kind == "templates":  # a template has rules of its own
                shown = self.upstreams.names.to_caller("templates", found.server, item.name)
                is_shown = shows("templates", shown or name, item)
            else:
                is_shown = shows(kind, name, item)
            if not is_shown:
                raise unknown_name(kind, name)
        return found

    def _find_item(self, kind: Kind, found: UpstreamName) -> Item | None:
        """Return what a server lists under a name or URI, or the template that matches the URI."""
        catalog = self.upstreams.servers[found.server].catalog
        item = catalog.items(kind).get(found.name)
        if item is not None or kind in ("tools", "prompts"):
            return item
        matches = self.upstreams.names._matches
        templates = (one for one in catalog.templates.values() if matches((one.name,), found.name))
        return catalog.resources.get(found.name) or next(templates, None)

    async def _relay(
        self, call: Call, kind: Kind, found: UpstreamName, changed: Mapping[str, Any]
    ) -> RawObject | InputRequired:
        component = self._component(kind, found)
        if component is not None:
            require_scopes(component, call.principal, found.name)
        return await super()._relay(call, kind, found, changed)

    async def _check_subscription(self, call: Call, uri: str) -> None:
        await super()._check_subscription(call, uri)
        component = self.find_component("resources", uri)
        if component is not None:
            require_scopes(component, call.principal, uri)

    async def _start_for(self, call: Call, uri: str) -> bool:
        if self._server._can_change(uri, call.principal):
            return True  # it is the server's own
        return await super()._start_for(call, uri)

    async def _can_subscribe(self, call: Call, uri: str) -> bool:
        if self._server._can_change(uri, call.principal):
            return True
        return await super()._can_subscribe(call, uri)

    # scopes

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the mounted `Server` objects require."""
        servers = [target for target in self._targets.values() if isinstance(target, Handlers)]
        return tuple(sorted({scope for server in servers for scope in server.scopes}))

    def find_component(self, kind: Kind, name: str) -> Any:
        """Return the component of a mounted `Server` object, or None."""
        names = self.upstreams.names
        found = names.from_caller(kind, name)
        if found is None and kind == "templates":  # as `UpstreamSet.resolve` does
            found = names.from_caller("resources", name)
        return None if found is None else self._component(kind, found)

    def _component(self, kind: Kind, found: UpstreamName) -> Any:
        target = self._targets[found.server]
        if not isinstance(target, Handlers):
            return None
        component = target._items(kind).get(found.name)
        if component is None and kind in ("resources", "templates"):  # a completion may name either
            component = target._find(found.name)
        if component is None and target._mounts is not None:
            return target._mounts.find_component(kind, found.name)
        return component

    def _is_visible(self, principal: Principal | None, kind: Kind, one: MergedItem) -> bool:
        component = self._component(kind, UpstreamName(one.server.name, one.item.name))
        if component is not None and not may_use(component, principal):
            return False
        return super()._is_visible(principal, kind, one)

    # what belongs to the server

    @property
    def _is_masked(self) -> bool:
        return self._server._networked

    def _asks_as(self, server: UpstreamServer) -> str:
        return "" if isinstance(self._targets[server.name], Handlers) else server.name

    def _notify(self, method: str, params: Params, *, local: bool = False) -> None:
        self._server._notify(method, params, local=local)

    def count_subscriptions(self, started: Iterable[str], ended: Iterable[str]) -> None:
        """Count subscriptions together with those of the server."""
        self._server.count_subscriptions(started, ended)


def _update_raw_params(call: Call) -> None:
    received = split_object(call.raw_params) if call.raw_params else {}
    current = split_object(encode_typed(call.params))
    kept = {name: raw for name, raw in received.items() if name not in CHANGEABLE}
    call.raw_params = encode_raw(kept | {key: current[key] for key in CHANGEABLE & {*current}})


def _contains(server: Handlers, mounts: Mounts) -> bool:
    if server._mounts is None:
        return False
    targets = server._mounts._targets.values()
    return server._mounts is mounts or any(
        target is mounts._server or (isinstance(target, Handlers) and _contains(target, mounts))
        for target in targets
    )


def _python_name(field: str) -> str:
    return "resource_templates" if field == "resourceTemplates" else field
