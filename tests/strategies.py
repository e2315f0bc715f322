"""Any value of the vocabulary, for hypothesis, made from the declarations themselves.

`models(kind)` reads the fields of a Struct or an Open object and builds a strategy from their
types. Where a type says less than the protocol does (a string that is a URI, a number from 0 to 1),
`LEGAL` has the strategy for the field, by name or by type and name. What is legal in one revision
only is left to the tables of that revision: the point is that lowering makes any of these values
right for it. Two things no lowering can mend are left out: content of unknown kinds, and forms or
answers that an older revision has no words for.
"""

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import FieldInfo, fields, replace

from dovetail.jsonrpc.messages import encode
from dovetail.protocol import (
    base,
    client_features,
    content,
    lifecycle,
    prompts,
    resources,
    tools,
    utilities,
)
from dovetail.protocol.base import Open, Wire
from dovetail.protocol.methods import Method
from dovetail.protocol.raw import RawObject
from dovetail.revisions import STATELESS, Revision

MODULES = (base, client_features, content, lifecycle, prompts, resources, tools, utilities)
KINDS = sorted(
    {
        kind
        for module in MODULES
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, (Struct, Open))
        and kind not in (Wire, Open, RawObject)
    },
    key=lambda kind: kind.__name__,
)
"""Every type of the vocabulary."""

TEXT = st.text(max_size=8)
NAMES = st.text(min_size=1, max_size=8)
INTEGERS = st.integers(-(2**53), 2**53)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SHARES = st.floats(0, 1)
SCALARS = st.none() | st.booleans() | INTEGERS | NUMBERS | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=2)
NAMED_OBJECTS = st.dictionaries(NAMES, OBJECTS, max_size=2)
_PATHS = st.text("abcXYZ019-._~", min_size=1, max_size=6)
URIS = st.builds(
    "{}://{}/{}".format, st.sampled_from(["https", "file", "x-app"]), st.just("host"), _PATHS
)
TEMPLATES = st.builds("x-app://{}/{{{}}}".format, _PATHS, st.sampled_from(["id", "path*", "a,b"]))
BASE64 = st.binary(max_size=6).map(lambda data: b64encode(data).decode())
TOKENS = INTEGERS | NAMES
METAS = st.one_of(
    OBJECTS, st.builds(lambda rest, token: rest | {"progressToken": token}, OBJECTS, TOKENS)
)
TASKS = st.fixed_dictionaries({}, optional={"ttl": INTEGERS})
SUBSCHEMAS = st.sampled_from(
    [{"type": "string"}, {"type": "integer", "minimum": 0}, {}, {"anyOf": [{}, {"type": "null"}]}]
)
OBJECT_SCHEMAS = st.builds(
    lambda properties, rest: {"type": "object", "properties": properties, **rest},
    st.dictionaries(NAMES, SUBSCHEMAS, max_size=2),
    st.sampled_from(
        [
            {},
            {"required": ["a"]},
            {"additionalProperties": False},
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        ]
    ),
)
SCHEMAS = OBJECT_SCHEMAS | st.sampled_from(
    [{}, {"type": "array"}, {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}]
)
FORM_FIELDS = st.sampled_from(
    [
        {"type": "string", "title": "A"},
        {"type": "number", "minimum": 0},
        {"type": "boolean"},
        {"type": "string", "enum": ["a"]},
    ]
)
FORMS = st.dictionaries(NAMES, FORM_FIELDS, max_size=2).map(
    lambda each: {"type": "object", "properties": each}
)

TASK_CAPABILITIES = st.sampled_from([{}, {"list": {}, "cancel": {}}])

LEGAL: dict[Any, SearchStrategy[Any]] = {
    "uri": URIS,
    "src": URIS,
    "website_url": URIS,
    "uri_template": TEMPLATES,
    (utilities.ResourceReference, "uri"): TEMPLATES,
    (content.ImageContent, "data"): BASE64,
    (content.AudioContent, "data"): BASE64,
    (content.TextResourceContents, "blob"): st.none(),
    (content.BlobResourceContents, "blob"): BASE64,
    (content.BlobResourceContents, "text"): st.none(),
    "priority": SHARES,
    "cost_priority": SHARES,
    "speed_priority": SHARES,
    "intelligence_priority": SHARES,
    "meta": METAS,
    "task": TASKS,
    "input_schema": OBJECT_SCHEMAS,
    "output_schema": SCHEMAS,
    "theme": st.sampled_from(["light", "dark"]),
    "task_support": st.sampled_from(["forbidden", "optional", "required"]),
    "include_context": st.sampled_from(["none", "thisServer", "allServers"]),
    (client_features.ToolChoice, "mode"): st.sampled_from(["auto", "none", "required"]),
    "cache_scope": st.sampled_from(["public", "private"]),
    "ttl_ms": st.integers(0, 2**53),
    "result_type": st.none(),  # the revision's to say
    (tools.CallToolParams, "arguments"): OBJECTS.map(lambda value: Raw(encode(value))),
    (client_features.ElicitResult, "content"): st.dictionaries(
        NAMES, INTEGERS | NUMBERS | TEXT | st.booleans(), max_size=2
    ),
    (lifecycle.CancelledParams, "request_id"): TOKENS,
    "input_responses": st.dictionaries(NAMES, st.deferred(lambda: _answers()), max_size=2),
    "input_requests": st.dictionaries(NAMES, st.deferred(lambda: _questions()), max_size=2),
    "experimental": NAMED_OBJECTS,
    "extensions": NAMED_OBJECTS,
    (lifecycle.ClientCapabilities, "tasks"): TASK_CAPABILITIES,
    (lifecycle.ServerCapabilities, "tasks"): TASK_CAPABILITIES,
}
ALWAYS = {(lifecycle.CancelledParams, "request_id")}
"""Fields that are optional in the vocabulary, but required by some revision without a value to
stamp."""

ENVELOPE = {base.PROTOCOL_VERSION: STATELESS[-1].version, base.CLIENT_CAPABILITIES: {}}
"""What each request of the stateless era carries in its `_meta`."""


@cache
def models(kind: Any) -> SearchStrategy[Any]:
    """Values of this type of the vocabulary."""
    if special := _SPECIAL.get(kind):
        return special()
    if issubclass(kind, Open):
        hints = get_type_hints(kind)
        known = {name: _legal(kind, name, hints[name]) for name in kind.known}
        return st.builds(
            lambda known, unknown: kind.of(kind(**known) | unknown),
            st.fixed_dictionaries(known),
            _UNKNOWN,
        )
    hints = get_type_hints(kind)
    return st.builds(kind, **{one.name: _field(kind, one, hints[one.name]) for one in fields(kind)})


_UNKNOWN = st.dictionaries(st.sampled_from(["x-one", "x-two"]), JSON, max_size=1)


def _field(kind: type, field: FieldInfo, hint: Any) -> SearchStrategy[Any]:
    strategy = _legal(kind, field.name, hint)
    optional = field.default is not NODEFAULT and (kind, field.name) not in ALWAYS
    return st.just(field.default) | strategy if optional else strategy


def _legal(kind: type, name: str, hint: Any) -> SearchStrategy[Any]:
    for parent in kind.__mro__:
        if (parent, name) in LEGAL:
            return LEGAL[parent, name]
    return LEGAL[name] if name in LEGAL else _typed(hint)


@cache
def _typed(hint: Any) -> SearchStrategy[Any]:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([_typed(arg) for arg in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is list:
        return st.lists(_typed(args[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(NAMES, _typed(args[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, (Struct, Open)):
        return st.deferred(lambda: models(hint))
    return _PLAIN[hint]


_PLAIN: dict[Any, SearchStrategy[Any]] = {
    str: TEXT,
    int: INTEGERS,
    float: NUMBERS,
    bool: st.booleans(),
    Any: JSON,
    type(None): st.none(),
}


def _forms() -> SearchStrategy[Any]:
    return st.builds(
        client_features.ElicitParams,
        message=TEXT,
        mode=st.sampled_from([None, "form"]),
        requested_schema=FORMS,
        task=st.none() | TASKS,
        meta=st.none() | METAS,
    )


def _elicitations() -> SearchStrategy[Any]:
    by_url = st.builds(
        client_features.ElicitParams,
        message=TEXT,
        mode=st.just("url"),
        url=URIS,
        elicitation_id=NAMES,
    )
    return _forms() | by_url


def _listened() -> SearchStrategy[Any]:
    metas = st.builds(lambda rest, id: rest | {base.SUBSCRIPTION_ID: id}, OBJECTS, TOKENS)
    return st.builds(utilities.ListenResult, meta=metas)


_SPECIAL: dict[type, Callable[[], SearchStrategy[Any]]] = {
    client_features.ElicitParams: _elicitations,
    utilities.ListenResult: _listened,
    content.ResourceContents: lambda: (
        models(content.TextResourceContents) | models(content.BlobResourceContents)
    ),
    content.OtherContent: st.nothing,
}


def _questions() -> SearchStrategy[Any]:
    """What a server of the stateless era asks inside a result."""
    kinds = {
        "elicitation/create": client_features.ElicitParams,
        "sampling/createMessage": client_features.CreateMessageParams,
    }
    asked = [st.tuples(st.just(name), models(kind)) for name, kind in kinds.items()]
    return st.one_of(asked).map(
        lambda ask: {"method": ask[0], "params": STATELESS[-1].lower(ask[1])}
    )


def _answers() -> SearchStrategy[Any]:
    """What a client answers inside the next request."""
    kinds = (
        client_features.ElicitResult,
        client_features.CreateMessageResult,
        client_features.ListRootsResult,
    )
    return st.one_of([models(kind) for kind in kinds]).map(
        lambda result: Raw(encode(STATELESS[-1].lower(result)))
    )


def said_in(revision: Revision, method: Method, params: Any) -> Any:
    """Params as a peer of this revision would say them, before lowering; None where the revision
    has no words for them."""
    if (
        isinstance(params, client_features.ElicitParams)
        and params.url
        and "url" in revision.absent.get(client_features.ElicitParams, ())
    ):
        return None
    if revision.stateless and method.result is not None:
        return replace(params, meta={**(params.meta or {}), **ENVELOPE})
    return params
