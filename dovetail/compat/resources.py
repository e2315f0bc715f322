"""Settings for resources in release 2 of the official SDK: cache hints, checks of the values in a
template, and the events that subscribers are notified of."""

import re
from collections.abc import Callable, Mapping, Set
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, defstruct

from ..logs import get_logger
from ..protocol.uri_template import UriTemplate as ProtocolUriTemplate
from ..server.caching import Cache

PathEscapeError = type("PathEscapeError", (ValueError,), {"__doc__": "A path leads elsewhere."})
ResourceUpdated: Any = defstruct("ResourceUpdated", [("uri", str)], frozen=True)
ToolsListChanged, ResourcesListChanged, PromptsListChanged = (
    defstruct(f"{kind.capitalize()}ListChanged", [], namespace={"kind": kind}, frozen=True)
    for kind in ("tools", "resources", "prompts")
)


def CacheHint(ttl_ms: int = 0, scope: Literal["private", "public"] = "private") -> Cache:
    """How long clients may keep the results of a method, in milliseconds."""
    return Cache(ttl_ms / 1000, scope)


def contains_path_traversal(value: str) -> bool:
    """Return whether a relative path leads above the folder in which it begins."""
    depths = [0]
    for part in value.replace("\\", "/").split("/"):
        depths.append(depths[-1] + {"..": -1, ".": 0, "": 0}.get(part, 1))
    return min(depths) < 0


def is_absolute_path(value: str) -> bool:
    """Return whether a path begins at a root or with a drive, on any system."""
    return re.match(r"[/\\]|[A-Za-z]:", value) is not None


def safe_join(base: str | Path, *parts: str) -> Path:
    """Return a path below a folder, or raise PathEscapeError. Links are followed."""
    root = Path(base).resolve()
    if not any("\0" in part or is_absolute_path(part) for part in parts):
        path = root.joinpath(*parts).resolve()
        if path.is_relative_to(root):
            return path
    raise PathEscapeError(f"{'/'.join(parts)!r} leads out of {root}")


class ResourceSecurity(Struct, frozen=True):
    """The checks of the values in a template. Dovetail itself refuses `..` and null bytes."""

    reject_path_traversal: bool = True
    reject_absolute_paths: bool = True
    reject_null_bytes: bool = True
    exempt_params: Set[str] = frozenset()

    def __post_init__(self) -> None:
        if not (self.reject_path_traversal and self.reject_null_bytes):
            get_logger("server").warning("Values with `..` and null bytes are always refused")

    def validate(self, params: Mapping[str, Any]) -> str | None:
        """Return the name of the first value that must be refused, or None."""
        for name, value in params.items() if self.reject_absolute_paths else ():
            values = value if isinstance(value, list) else [value]
            if name not in self.exempt_params and any(map(is_absolute_path, values)):
                return name
        return None


class CompatUriTemplate(ProtocolUriTemplate):
    """A URI template."""

    parse = classmethod(lambda cls, template, **limits: cls(template))
    variable_names = property(lambda self: list(self.variables))

    def __str__(self) -> str:
        return self.text


class InMemorySubscriptionBus:
    """Passes events on to its listeners."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[Any], None]] = {}

    async def publish(self, event: Any) -> None:
        """Call all listeners with an event."""
        for listener in [*self._listeners.values()]:
            listener(event)

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], Any]:
        """Add a listener, and return the function that removes it."""
        token = object()
        self._listeners[token] = listener
        return partial(self._listeners.pop, token, None)


def ListenHandler(bus: Any, **limits: int) -> Any:
    """Return the bus: the server itself has the handler and its limits."""
    return bus


def forward_events(bus: Any, server: Any) -> None:
    """Notify the clients of a server of the events on a bus."""

    def notify(event: Any) -> None:
        if isinstance(event, ResourceUpdated):
            server.notify_resource_updated(event.uri)
        else:
            server.notify_list_changed(event.kind)

    bus.subscribe(notify)


UriTemplate = CompatUriTemplate
