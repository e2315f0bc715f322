"""A protocol revision as a value.

All code uses one set of types, which covers all revisions (`protocol/`). A revision defines how to
*lower* a message to the form that its peers understand. Fields that the revision lacks are dropped
(`absent`), and content that it lacks becomes the closest kind that it has (`instead`). Fields that
the revision requires are filled in (`stamp`), and errors receive its codes. The opposite direction,
the *lift*, is simply decoding into the common types.

`lower(value)` looks up a function by the value's type. The function is built once, by walking the
type's fields, and is None if nothing ever changes (`lowering.py`). In a revision that has all of
its fields, lowering a tool result therefore costs one dictionary lookup. A `RawObject` is lowered
without decoding the fields that do not change (`raw_lowering.py`).

If the messages of a dialect have a different shape, a `Dialect` defines each method's own name, and
functions that convert its params and results. Code outside this folder checks a property
(`revision.batching`), never a date.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import BY_CODE, DovetailError, InvalidParams, NotFound, ProtocolError, ToolError
from ..jsonrpc.messages import encode
from ..protocol.decoding import decode, plain
from ..protocol.methods import Method
from ..protocol.raw import RawObject
from .lowering import Conversion, FieldRule, build_lowering
from .raw_lowering import RawLowering

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
    instead: Mapping[type, Conversion | FieldRule] = {}
    """The conversions for types that the revision lacks, or has in another shape."""
    stamp: Mapping[type, Mapping[str, Any]] = {}
    """The fields that the revision requires, with the values to fill in."""
    codes: Mapping[type[ProtocolError], int] = {}
    """The error codes that differ from those in the newest revision."""
    retired: Mapping[int, int] = {}
    """The error codes that may no longer be sent, and their replacements."""

    lowerings: dict[type, Conversion | None] = {}
    """How values of each type are lowered, as far as it is known; None if they never change."""

    def lower(self, value: Any) -> Any:
        """Return `value` in this revision's form: the same object if nothing changes, otherwise a
        copy. A RawObject becomes the dict to encode."""
        kind = type(value)
        try:
            step = self.lowerings[kind]
        except KeyError:
            build = RawLowering if kind is RawObject else build_lowering
            step = self.lowerings[kind] = build(self, kind)
        return value if step is None else step(value)

    def lift_params(self, method: Method, raw: Any) -> Any:
        """Decode the params of a request or notification."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lift_params:
            return dialect.lift_params(plain(bytes(raw) or b"{}"))
        return decode(raw, method.params)

    def lower_params(self, method: Method, params: Any) -> Any:
        """Lower params for sending."""
        return self.lower_message(method, params)[1]

    def lower_message(self, method: Method, params: Any) -> tuple[str, Any]:
        """Return the wire name of a method, and its params lowered for sending."""
        name = method.name
        dialect = self.dialects.get(name)
        if dialect is None:
            return name, self.lower(params)
        lower = dialect.lower_params
        return dialect.name or name, lower(_as_typed(params)) if lower else self.lower(params)

    def lift_result(self, method: Method, raw: Any) -> Any:
        """Decode the result of a method."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lift_result:
            return dialect.lift_result(plain(raw))
        return decode(raw, method.result)

    def lift_raw_result(self, method: Method, raw: Raw) -> Raw:
        """Return the result of a method, still raw, in the form of the newest revision. Only a
        dialect has another form."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lift_result:
            return Raw(encode(dialect.lift_result(plain(raw))))
        return raw

    def lower_result(self, method: Method, result: Any) -> Any:
        """Lower a result for sending."""
        dialect = self.dialects.get(method.name)
        if dialect and dialect.lower_result:
            return dialect.lower_result(_as_typed(result))
        return self.lower(result)

    def wire_name(self, name: str) -> str:
        """Return the wire name of a method."""
        dialect = self.dialects.get(name)
        return (dialect and dialect.name) or name

    def code(self, error: ProtocolError) -> int:
        """Return the wire code of an error."""
        return self.codes.get(type(error)) or self.retired.get(error.code, error.code)


def _as_typed(value: Any) -> Any:
    return value.decode() if type(value) is RawObject else value


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
    instead: Mapping[type, Conversion | FieldRule] = {},
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
    return replace(before, **({"name": name, "version": name, "lowerings": {}} | changed | facts))
