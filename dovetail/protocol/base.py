"""The base classes for all protocol types, and the types that all features share.

`Wire` is a closed object: unknown fields from a peer are dropped. Attribute names are snake_case,
and wire names are camelCase. An optional field is `X | None = None`, and None is omitted on the
wire. Some peers send nulls, which decode to None.

`Open` is an object that peers may extend (annotations, capabilities). An `Open` object is a dict in
wire form with typed attributes for the known keys, so nothing is lost.
`Annotations(last_modified="…")["lastModified"]` is the same value as its `.last_modified`.

This module also defines the `_meta` keys that the protocol itself uses.
https://modelcontextprotocol.io/specification/2026-07-28/basic#meta
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self, dataclass_transform, get_type_hints

import msgspec
from msgspec import Struct, field

Meta = dict[str, Any]


class Wire(Struct, rename="camel", omit_defaults=True, repr_omit_defaults=True):
    """A closed protocol object, whose unknown fields are dropped."""


class Params(Wire, kw_only=True):
    """The fields that every request and notification may have in addition to its own.

    Attributes:
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    meta: Meta | None = field(name="_meta", default=None)


class Result(Wire, kw_only=True):
    """The fields that every result may have in addition to its own.

    Attributes:
        result_type: The kind of result, such as `input_required` (stateless era only).
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    result_type: str | None = None
    meta: Meta | None = field(name="_meta", default=None)


class EmptyResult(Result, kw_only=True):
    """A result without content."""


def camel(name: str) -> str:
    """Return the wire name of an attribute."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


class _KnownKey:
    """A descriptor for one known key of an `Open` object."""

    def __init__(self, name: str) -> None:
        self.key = camel(name)

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance.get(self.key)

    def __set__(self, instance: Any, value: Any) -> None:
        if value is None:
            instance.pop(self.key, None)
        else:
            instance[self.key] = value


@dataclass_transform(kw_only_default=True)
class Open(dict[str, Any]):
    """A JSON object that keeps unknown keys.

    Args:
        **fields: The fields, by attribute name or by wire name; a field that is None is omitted.
    """

    __slots__ = ()
    known: ClassVar[dict[str, str]] = {}
    """The wire name for each attribute name."""

    def __init_subclass__(cls) -> None:
        names = [name for name in cls.__annotations__ if not name.startswith("_")]
        cls.known = {name: camel(name) for name in names}
        for name in names:
            setattr(cls, name, _KnownKey(name))

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        for name, value in fields.items():
            if value is not None:
                self[self.known.get(name, name)] = value

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Copy a dict in wire form, or another instance.

        Args:
            values: The dict or instance.
        """
        copy = cls()
        copy.update(values)
        return copy

    @classmethod
    def lift(cls, value: Any) -> Self:
        """Decode a JSON object. Known keys are checked, and dropped if their value is null. Unknown
        keys are kept.

        Args:
            value: The object, in wire form.
        """
        if not isinstance(value, dict):
            raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
        lifted = cls.of(value)
        for name, type_ in _types(cls).items():
            key = cls.known[name]
            if key in lifted:
                checked = msgspec.convert(lifted[key], type_, dec_hook=open_hook)
                if checked is None:
                    del lifted[key]
                else:
                    lifted[key] = checked
        return lifted


@cache
def _types(cls: type[Open]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {name: hints[name] for name in cls.known}


def open_hook(type_: type, value: Any) -> Any:
    """Decode `Open` types. This function is the `dec_hook` of every msgspec decoder for protocol
    types."""
    if isinstance(type_, type) and issubclass(type_, Open):
        return type_.lift(value)
    raise NotImplementedError(f"Cannot decode {type_!r}")


class Icon(Wire):
    """A picture for a user interface.

    Treat the picture as untrusted: only `https:` and `data:` URLs are safe to show.

    Attributes:
        src: The URL of the picture, or a `data:` URI.
        mime_type: The media type, if the server states one.
        sizes: The sizes that the picture is made for, such as `48x48`, or `any`.
        theme: The background that the picture is made for: `light` or `dark`.
    """

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: str | None = None


class Implementation(Wire, kw_only=True):
    """The name and version that a client or server reports about itself. Do not trust this
    information.

    Attributes:
        name: The name that programs use.
        version: The version of the program, not of the protocol.
        title: The name shown to people instead of `name`.
        description: A description of the program.
        website_url: The URL of a page with more information.
        icons: The pictures that a user interface may show.
    """

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = PREFIX + "protocolVersion"
CLIENT_INFO = PREFIX + "clientInfo"
CLIENT_CAPABILITIES = PREFIX + "clientCapabilities"
SERVER_INFO = PREFIX + "serverInfo"
LOG_LEVEL = PREFIX + "logLevel"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"
HOP_META = frozenset(
    (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, SERVER_INFO, LOG_LEVEL, SUBSCRIPTION_ID)
)
"""The keys that describe the two sides of one connection, so a relay does not pass them on."""
PROGRESS_TOKEN = "progressToken"
OWN_META = HOP_META | {PROGRESS_TOKEN}
"""The keys of a relayed request that each connection sets for itself."""
TRACE_CONTEXT = ("traceparent", "tracestate", "baggage")
"""The keys for the W3C trace context. Apart from the progress token, these are the only keys
without a prefix."""


class CacheHints(Result, kw_only=True):
    """Hints about how long a result may be cached, and by whom (stateless era only). A malformed
    hint is ignored, and the result remains valid.

    Attributes:
        ttl_ms: How long the result stays fresh, in milliseconds.
        cache_scope: `public`, or `private` if the result is only for the user who sent the request.
    """

    ttl_ms: Any = None
    cache_scope: Any = None


class ListParams(Params, kw_only=True):
    """A request for one page of a list.

    Attributes:
        cursor: The `next_cursor` of the previous page. An empty string is a valid cursor.
    """

    cursor: str | None = None


class ListChangedParams(Params, kw_only=True):
    """A notification that a list has changed. Only the draft dialect includes the changes.

    Attributes:
        added: The new items (draft dialect).
        removed: The names of the removed items (draft dialect).
    """

    added: list[Any] | None = None
    removed: list[str] | None = None
