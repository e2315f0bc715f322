"""What every declaration of the vocabulary is made of.

`Wire` is a closed object: its fields are known, unknown ones from a peer are dropped. Attributes
are snake_case, the wire is camelCase. An optional field is `X | None = None` and absent on the wire
when None, because peers send nulls too.

`Open` is an object that peers may add to (annotations, capabilities): a dict in wire form, so
nothing is lost on the way through, with typed attributes for the fields we know.
`Annotations(last_modified="…")["lastModified"]` is the same value as its `.last_modified`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform, get_type_hints

import msgspec
from msgspec import Struct, field

Meta = dict[str, Any]


class Wire(Struct, rename="camel", omit_defaults=True):
    """A closed object of the protocol."""


class Params(Wire, kw_only=True):
    """What every request and notification may carry besides its own fields."""

    meta: Meta | None = field(name="_meta", default=None)


class Result(Wire, kw_only=True):
    """What every result may carry besides its own fields. `result_type` exists in the stateless era
    only."""

    result_type: str | None = None
    meta: Meta | None = field(name="_meta", default=None)


class EmptyResult(Result, kw_only=True):
    """Done; nothing to tell."""


def camel(name: str) -> str:
    """The wire's spelling of an attribute."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


class _Known:
    """The attribute that reads and writes one known key of an Open object."""

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
    """A JSON object that keeps what it does not know."""

    __slots__ = ()
    known: ClassVar[dict[str, str]] = {}
    """Attribute name to wire name."""

    def __init_subclass__(cls) -> None:
        names = [name for name in cls.__annotations__ if not name.startswith("_")]
        cls.known = {name: camel(name) for name in names}
        for name in names:
            setattr(cls, name, _Known(name))

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        for name, value in fields.items():
            if value is not None:
                self[self.known.get(name, name)] = value

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From a dict in wire form, or one of its own kind."""
        made = cls()
        made.update(values)
        return made

    @classmethod
    def lift(cls, value: Any) -> Self:
        """From the wire: known fields are checked and nulls among them dropped, unknown ones kept
        as they are."""
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


_type_cache: dict[type, dict[str, Any]] = {}


def _types(cls: type[Open]) -> dict[str, Any]:
    types = _type_cache.get(cls)
    if types is None:
        hints = get_type_hints(cls)
        types = _type_cache[cls] = {name: hints[name] for name in cls.known}
    return types


def open_hook(type_: type, value: Any) -> Any:
    """msgspec's `dec_hook` for all decoders of the vocabulary."""
    if isinstance(type_, type) and issubclass(type_, Open):
        return type_.lift(value)
    raise NotImplementedError(f"No way to decode {type_!r}")


class Icon(Wire):
    """A picture for a user interface. Treat it as untrusted: only `https:` and `data:` are safe to
    show."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: str | None = None


class Implementation(Wire, kw_only=True):
    """The name and version of a client or server; self-reported, never to be trusted."""

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
PROGRESS_TOKEN = "progressToken"
TRACE_CONTEXT = ("traceparent", "tracestate", "baggage")
"""The only other keys without a prefix: W3C's, by their own names."""


class CacheHints(Result, kw_only=True):
    """How long, and by whom, a result may be kept; the stateless era only. A hint that makes no
    sense spoils no result."""

    ttl_ms: Any = None
    cache_scope: Any = None


class ListParams(Params, kw_only=True):
    """Asks for a page of a list; an empty string is a cursor like any other."""

    cursor: str | None = None


class ListChangedParams(Params, kw_only=True):
    """A list changed. Only the draft dialect tells what came and went."""

    added: list[Any] | None = None
    removed: list[str] | None = None
