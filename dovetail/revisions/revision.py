"""A protocol revision as a value.

All code uses one set of types, which covers all revisions (`protocol/`). A revision defines how to
*lower* a message to the form that its peers understand. Fields that the revision lacks are dropped
(`absent`), and content that it lacks becomes the closest kind that it has (`instead`). Fields that
the revision requires are filled in (`stamp`), and errors receive its codes. The opposite direction,
the *lift*, is simply decoding into the common types.

`lower(value)` looks up a function by the value's type. The function is built once, by walking the
type's fields, and is None if nothing ever changes. In a revision that has all of its fields,
lowering a tool result therefore costs one dictionary lookup.

If the messages of a dialect have a different shape, a `Dialect` defines each method's own name, and
functions that convert its params and results. Code outside this folder checks a property
(`revision.batching`), never a date.
"""

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from ..errors import BY_CODE, DovetailError, InvalidParams, NotFound, ProtocolError, ToolError
from ..jsonrpc.messages import encode
from ..protocol.base import Open, open_hook
from ..protocol.content import KINDS
from ..protocol.methods import Method

Conversion = Callable[[Any], Any]
FieldNames = Mapping[type, tuple[str, ...]]
BAD_ARGUMENTS = 4001
"""The error code for invalid params in the draft dialect."""


class Dialect(Struct, frozen=True, eq=False, kw_only=True):
    """A revision's own spelling of one method. Lifts accept decoded JSON, and lowerings produce
    it."""

    name: str = ""
    """The method's name on the wire, if it differs."""
    lift_params: Conversion | None = None
    lower_params: Conversion | None = None
    lift_result: Conversion | None = None
    lower_result: Conversion | None = None


class Revision(Struct, frozen=True, eq=False, kw_only=True):
    """One revision, with its properties, its methods, and its changes to outgoing messages."""

    name: str
    """The name that this library uses for the revision. `version` is its name on the wire."""
    version: str = ""

    stateless: bool = False
    """Requests contain the version and capabilities, and there is no handshake and no session."""
    batching: bool = False
    """The revision accepts JSON-RPC batches."""
    unnamed_errors: bool = False
    """An error reply to an unreadable message has no id. In other revisions, its id is null."""
    set_level: bool = True
    """The log level is set for the connection. In other revisions, each request contains its own
    level, and a request without a level logs nothing."""
    progress_by_id: bool = False
    """Progress notifications contain the request's id instead of a token."""
    tool_errors: bool = True
    """Invalid arguments lead to a tool result that the model can read. In other revisions, they
    lead to an error."""
    paging: bool = True
    """Lists have pages."""
    priming: bool = False
    """An event stream may begin with an empty event, so that it can be resumed before it sends
    anything."""
    pings: bool = True
    """Each side may ping the other at regular intervals."""
    sampling_parts: bool = False
    """Tools and context in sampling are declared separately."""
    result_type: str | None = None
    """The `result_type` of a complete result, if results have a type."""
    cancelled_result: Any = None
    """The error code that acknowledges a cancelled call, or None if the call is not answered."""

    methods: frozenset[str]
    """The revision's methods, by the names that this library uses."""
    dialects: Mapping[str, Dialect] = {}
    """The methods that the revision spells differently."""
    absent: FieldNames = {}
    """The fields that the revision lacks, by type."""
    instead: Mapping[type, Conversion] = {}
    """The conversions for types that the revision lacks, or has in another shape."""
    stamp: Mapping[type, Mapping[str, Any]] = {}
    """The fields that the revision requires, with the values to fill in."""
    codes: Mapping[type[ProtocolError], int] = {}
    """The error codes that differ from those in the newest revision."""
    retired: Mapping[int, int] = {}
    """The error codes that may no longer be sent, and their replacements."""

    _steps: dict[type, Conversion | None] = {}

    def lower(self, value: Any) -> Any:
        """Return `value` in this revision's form: the same object if nothing changes, otherwise a
        copy."""
        kind = type(value)
        try:
            step = self._steps[kind]
        except KeyError:
            step = self._steps[kind] = _build_lowering(self, kind)
        return value if step is None else step(value)

    def lift_params(self, method: Method, raw: Any) -> Any:
        """Decode the params of a request or notification."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lift_params:
            return dialect.lift_params(_plain(bytes(raw) or b"{}"))
        return decode(raw, method.params)

    def lower_params(self, method: Method, params: Any) -> Any:
        """Lower params for sending."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lower_params:
            return dialect.lower_params(params)
        return self.lower(params)

    def lift_result(self, method: Method, raw: Any) -> Any:
        """Decode the result of a method."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lift_result:
            return dialect.lift_result(_plain(raw))
        return decode(raw, method.result)

    def lower_result(self, method: Method, result: Any) -> Any:
        """Lower a result for sending."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lower_result:
            return dialect.lower_result(result)
        return self.lower(result)

    def wire_name(self, name: str) -> str:
        """Return the wire name of a method."""
        dialect = self.dialects.get(name)
        return (dialect and dialect.name) or name

    def code(self, error: ProtocolError) -> int:
        """Return the wire code of an error."""
        return self.codes.get(type(error)) or self.retired.get(error.code, error.code)


def error_from_wire(method: str, code: int, message: str, data: Any) -> DovetailError:
    """Return the exception for an error that a peer sent in reply to `method`.

    The code for a missing resource is -32002 up to the last handshake revision. Since then, it is
    -32602, with the URI of the resource. Some servers send -32001, and some report a failed tool as
    -32002.
    """
    if method in ("resources/read", "resources/subscribe") and (
        code in (-32002, -32001) or (code == -32602 and _names_uri(data))
    ):
        return NotFound(code, message, data)
    if method == "tools/call" and code == -32002:
        return ToolError(message)
    if code == BAD_ARGUMENTS:
        return InvalidParams(code, message, data)
    return BY_CODE.get(code, ProtocolError)(code, message, data)


def _names_uri(data: Any) -> bool:
    return isinstance(data, dict) and "uri" in data


def evolve(
    before: Revision,
    name: str,
    *,
    adds: FieldNames = {},  # noqa: B006  (read only)
    drops: FieldNames = {},  # noqa: B006
    kinds: tuple[type, ...] = (),
    instead: Mapping[type, Conversion] = {},
    methods: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    **facts: Any,
) -> Revision:
    """Return the next revision, given the features that it adds, drops or supports in part, and the
    properties that change."""
    absent = {type_: set(names) for type_, names in before.absent.items()}
    for type_, names in adds.items():
        absent[type_] -= set(names)
    for type_, names in drops.items():
        absent.setdefault(type_, set()).update(names)
    changed: dict[str, Any] = {
        "absent": {type_: tuple(sorted(names)) for type_, names in absent.items() if names},
        "instead": {type_: step for type_, step in before.instead.items() if type_ not in kinds}
        | dict(instead),
        "methods": (before.methods | set(methods)) - set(without),
    }
    return replace(before, **({"name": name, "version": name, "_steps": {}} | changed | facts))


def decode(raw: Any, type_: Any) -> Any:
    """Decode raw bytes as a protocol type. Absent params count as an empty object."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_, dec_hook=open_hook).decode
    try:
        return decoder(raw)
    except (msgspec.DecodeError, RecursionError) as problem:
        return _decode_repaired(raw, decoder, problem)


def _decode_repaired(raw: Any, decoder: Callable[[Any], Any], problem: Exception) -> Any:
    if not bytes(raw) or bytes(raw) == b"null":
        return decoder(b"{}")
    try:
        repaired = _repair(_plain(raw))
        if repaired is None:
            raise problem
        return decoder(encode(repaired))
    except RecursionError:  # the codec accepted it with fewer calls on the stack
        raise msgspec.ValidationError("Nested too deeply") from None


_decoders: dict[Any, Callable[[Any], Any]] = {}
_plain = msgspec.json.Decoder().decode


def _repair(value: Any) -> Any:
    """Convert values that violate every revision, but that some peers send, to the closest valid
    form. Returns None if there is nothing to repair.

    Content of an unknown kind becomes OtherContent, completion values that are objects become their
    value, and a null for `isError` counts as absent.
    """
    if not isinstance(value, dict):
        return None
    repaired = _known_kinds(value)
    if "isError" in repaired and repaired["isError"] is None:
        del repaired["isError"]
    if isinstance(messages := value.get("messages"), list):
        repaired["messages"] = [
            _known_kinds(one) if isinstance(one, dict) else one for one in messages
        ]
    if isinstance(completion := value.get("completion"), dict) and isinstance(
        values := completion.get("values"), list
    ):
        texts = [item.get("value") if isinstance(item, dict) else item for item in values]
        repaired["completion"] = completion | {"values": texts}
    return repaired if repaired != value else None


def _known_kinds(holder: dict[str, Any]) -> dict[str, Any]:
    content = holder.get("content")
    if isinstance(content, list):
        return holder | {"content": [_known_kind(block) for block in content]}
    return holder | ({"content": _known_kind(content)} if isinstance(content, dict) else {})


def _known_kind(block: Any, nests: bool = True) -> Any:
    if not isinstance(block, dict):
        return block
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        return {"type": "dovetail/other", "value": block}
    if nests and kind == "tool_result" and isinstance(parts := block.get("content"), list):
        return block | {"content": [_known_kind(part, nests=False) for part in parts]}
    return block


def _build_lowering(
    revision: Revision, kind: type, _open: frozenset[type] = frozenset()
) -> Conversion | None:
    """Build the lowering for one type. Returns None if its values never change."""
    instead: Conversion | None = _lookup(revision.instead, kind)
    if issubclass(kind, Open):
        return _build_open_lowering(revision, kind, _open)
    if not issubclass(kind, Struct):
        return instead
    names = tuple(field.name for field in fields(kind))
    absent = tuple(name for name in _lookup(revision.absent, kind) or () if name in names)
    stamp = tuple((_lookup(revision.stamp, kind) or {}).items())
    hints = get_type_hints(kind)
    # Do not lower the parts of a dropped field: that would bring it back.
    inner = tuple(
        name
        for name in names
        if name not in absent and _needs_lowering(revision, hints[name], _open | {kind})
    )
    if instead is None and not absent and not stamp and not inner:
        return None
    lower = revision.lower

    def step(value: Any) -> Any:
        if instead is not None:
            substitute = instead(value)
            if type(substitute) is not kind:
                return lower(substitute)
            value = substitute
        changed: dict[str, Any] = {}
        for name in absent:
            if getattr(value, name) is not None:
                changed[name] = None
        for name, needed in stamp:
            if getattr(value, name) is None:
                changed[name] = needed
        for name in inner:
            before = getattr(value, name)
            after = _lower_items(before, lower)
            if after is not before:
                changed[name] = after
        return replace(value, **changed) if changed else value

    return step


def _lower_items(value: Any, lower: Conversion) -> Any:
    """Apply `lower` to a field, which is one value, a list or a mapping. Returns the same object if
    nothing changed."""
    if type(value) is list:
        after = [lower(item) for item in value]
        return value if after == value else after
    if type(value) is dict:
        mapped = {key: lower(item) for key, item in value.items()}
        return value if mapped == value else mapped
    return lower(value)


def _needs_lowering(revision: Revision, hint: Any, open_: frozenset[type]) -> bool:
    """Return whether a field of this type can hold a value that this revision changes."""
    origin = get_origin(hint)
    if origin in (list, dict, Union, UnionType):
        return any(_needs_lowering(revision, arg, open_) for arg in get_args(hint))
    if not isinstance(hint, type) or not issubclass(hint, (Struct, Open)) or hint in open_:
        return False
    related = [hint, *hint.__subclasses__()]
    return any(
        _lookup(revision.instead, kind) or _build_lowering(revision, kind, open_)
        for kind in related
    )


def _lookup(table: Mapping[type, Any], kind: type) -> Any:
    """Return the entry for a type or its closest base."""
    return next((table[base] for base in kind.__mro__ if base in table), None)


def _build_open_lowering(
    revision: Revision, kind: type[Open], open_: frozenset[type]
) -> Conversion | None:
    """Build the lowering for an Open object, whose keys are in wire form and whose unknown keys are
    kept."""
    hints = get_type_hints(kind)
    absent = frozenset(kind.known[name] for name in _lookup(revision.absent, kind) or ())
    inner = tuple(
        key
        for name, key in kind.known.items()
        if _needs_lowering(revision, hints[name], open_ | {kind})
    )
    if not absent and not inner:
        return None
    lower = revision.lower

    def step(value: Any) -> Any:
        after = {key: lower(value[key]) for key in inner if key in value}
        if absent.isdisjoint(value) and all(after[key] is value[key] for key in after):
            return value
        return kind.of(
            {key: after.get(key, item) for key, item in value.items() if key not in absent}
        )

    return step
