"""The parameters of a function, as a JSON schema for the model and a decoder for the arguments.

A function is inspected once, when it is registered. Its parameters become the fields of a struct,
with generated field names so that a parameter may have any name. For a call, msgspec decodes the
raw arguments in one pass, and `bind` returns the `args` and `kwargs` for the function. Parameters
with pydantic types stay raw in that pass and are decoded later.

If decoding fails, each argument is converted separately, so that the error lists all problems in
words that a model can act on. Mistakes that models are known to make are repaired at every depth if
the meaning is clear (`"[1, 2]"` for a list, `"3"` or 3.0 for an integer), but never where a string
is accepted.
"""

import copy
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import replace

from ..errors import InvalidParams, SchemaError
from ..schema import (
    Schema,
    Shape,
    TypeMismatch,
    decoder,
    default_schema,
    describe_value,
    flatten_header_params,
    from_default,
    inline_definitions,
    merge_definitions,
)

if TYPE_CHECKING:
    from .transform import ArgumentChange

Bound: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and keyword arguments of a call."""

_POSITIONAL_ONLY, _KEYWORD_ONLY = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
_STARRED: dict[Any, tuple[str, str]] = {
    inspect.Parameter.VAR_POSITIONAL: ("*", "list[Any]"),
    inspect.Parameter.VAR_KEYWORD: ("**", "dict[str, Any]"),
}
# From Python 3.14 on, annotations are evaluated when they are read. Names that exist only for type
# checkers must not raise then.
_LAZILY: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    import annotationlib

    _LAZILY["format"] = annotationlib.Format.FORWARDREF

_ATOMS = (type(None), bool, int, float, str, bytes)
_astuple = msgspec.structs.astuple
_parse = msgspec.json.Decoder().decode


class Parameter(Struct, frozen=True, eq=False):
    """A parameter. The original `annotation` is kept, so that other modules can read their metadata
    from it."""

    name: str
    annotation: Any
    shape: Shape
    required: bool
    default: Any
    description: str | None


class Signature:
    """A compiled function. If a signature is `free`, its schema comes from elsewhere: the function
    may have any parameters, its annotations are ignored, and its arguments are passed through
    `pass_on`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        context_type: type | None = None,
        free: bool = False,
        name: str | None = None,
    ) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", None) or _name(function)
        self.is_async = is_async(function)
        inner = inspect.unwrap(_code(function))
        hints = read_hints(function, self.name, context_type)
        self.returns = hints.get("return", Any)
        """The return annotation; Any if there is none."""
        self.description, descriptions = read_docstring(_docstring(function, inner))
        """The docstring, without the part about parameters."""
        declared = _parameters(function, self.name)
        _refuse_unbound_method(function, declared)
        context = _find_context(self.name, declared, hints, context_type)
        self.context = context.name if context else None
        """The name of the parameter that receives the Context."""
        # The position of the context among the positional arguments; None if it is passed by name.
        self._context_at = (
            declared.index(context) if context and context.kind is not _KEYWORD_ONLY else None
        )
        if not free:
            _refuse_starred(self.name, declared)
        arguments = [
            parameter
            for parameter in declared
            if parameter is not context and parameter.kind not in _STARRED
        ]
        self.parameters = tuple(
            _make_parameter(
                self.name,
                parameter,
                Any if free else hints.get(parameter.name, Any),
                descriptions.get(parameter.name),
            )
            for parameter in arguments
        )
        self._keywords = [each.name for each in arguments if each.kind is _KEYWORD_ONLY]
        self._positional_only = [each.name for each in declared if each.kind is _POSITIONAL_ONLY]
        self._plain = not context and not self._keywords
        self._hidden: list[tuple[int, Callable[[], Any]]] = []
        """The arguments that callers do not see: their position among all arguments, and a function
        that returns the value."""
        self._compile_decoder()

    def _compile_decoder(self) -> None:
        self._decode = _make_decoder(self.name, self.parameters)
        self._undecoded = [
            (index, parameter.shape)
            for index, parameter in enumerate(self.parameters)
            if parameter.shape.native is Raw
        ]

    def changed(self, name: str, change: "ArgumentChange") -> "Signature":
        """Return the signature of the same function for callers who see its arguments differently.

        Args:
            name: The name of the changed tool.
            change: What is different.

        Raises:
            ConfigError: The change does not fit the function.
        """
        change.check(parameter.name for parameter in self.parameters)
        other = copy.copy(self)
        other.__dict__.pop("schema", None)  # it is cached
        taken = [index for index, _ in self._hidden]
        total = len(self.parameters) + len(taken)
        places = [index for index in range(total) if index not in taken]
        hidden, visible = list(self._hidden), []
        for index, parameter in zip(places, self.parameters, strict=True):
            if parameter.name in change.hide:
                hidden.append((index, change.read_hidden(parameter.name, parameter.shape.decode)))
            else:
                visible.append(_change_parameter(parameter, change))
        other.name, other.parameters = name, tuple(visible)
        other._hidden = sorted(hidden, key=lambda one: one[0])
        other._plain = self._plain and not hidden
        other._compile_decoder()
        return other

    @property
    def is_generator(self) -> bool:
        """Whether the function yields its results."""
        code = _code(self.function)
        return inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)

    @cached_property
    def schema(self) -> Schema:
        """The JSON schema of the arguments."""
        defs: dict[str, Schema] = {}
        properties = {}
        for parameter in self.parameters:
            schema = merge_definitions(*parameter.shape.parts, into=defs)
            properties[parameter.name] = schema
            if parameter.description:
                schema["description"] = parameter.description
            if not parameter.required:
                schema |= default_schema(parameter.default)
        required = [parameter.name for parameter in self.parameters if parameter.required]
        root: Schema = {"type": "object", "properties": properties}
        if required:
            root["required"] = required
        root["additionalProperties"] = False
        return flatten_header_params(inline_definitions(root, defs))

    def bind(self, raw: bytes | Raw, context: object | None = None) -> Bound:
        """Convert JSON arguments to the function's positional and keyword arguments. Raise
        InvalidParams, which lists all problems, if the arguments do not fit."""
        try:
            values = _astuple(self._decode(raw))
            if self._undecoded:
                values = self._decode_rest(values)
        except Exception:  # also errors of users' classes; converting one by one tells which
            values = self._convert(decode_object(raw, self.name))
        return (values, {}) if self._plain else self._arrange(values, context)

    def bind_object(self, values: Mapping[str, Any], context: object | None = None) -> Bound:
        """Convert decoded arguments to the function's positional and keyword arguments. Raise
        InvalidParams if they do not fit."""
        return self._arrange(self._convert(values), context)

    def repaired(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that were checked without the mistakes that `bind` repairs."""
        return {
            parameter.name: parameter.shape.repair(values[parameter.name])
            for parameter in self.parameters
            if parameter.name in values
        }

    def bind_values(self, values: Mapping[str, Any], context: object | None = None) -> Bound:
        """Convert decoded values to the function's positional and keyword arguments. Strings are
        converted to the declared types."""
        return self._arrange(self._convert(values, strings=True), context)

    def pass_on(self, values: Mapping[str, Any], context: object | None = None) -> Bound:
        """Return the function's positional and keyword arguments for values that were validated
        elsewhere, without converting them."""
        rest = dict(values)
        if self.context:
            rest[self.context] = context
        return tuple(rest.pop(name) for name in self._positional_only if name in rest), rest

    def _decode_rest(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        decoded = list(values)
        for i, shape in self._undecoded:
            if type(values[i]) is Raw:  # not the default
                decoded[i] = shape.decode(values[i])
        return tuple(decoded)

    def _arrange(self, values: tuple[Any, ...], context: object | None) -> Bound:
        if self._hidden:
            everything = list(values)
            for index, make in self._hidden:
                everything.insert(index, make())
            values = tuple(everything)
        count = len(values) - len(self._keywords)
        args, kwargs = values[:count], dict(zip(self._keywords, values[count:], strict=True))
        if self._context_at is not None:
            args = (*args[: self._context_at], context, *args[self._context_at :])
        elif self.context:
            kwargs[self.context] = context
        return args, kwargs

    def _convert(self, values: Mapping[str, Any], strings: bool = False) -> tuple[Any, ...]:
        """Convert each argument separately, to collect all problems."""
        converted, problems = [], []
        for parameter in self.parameters:
            name, shape = parameter.name, parameter.shape
            if name not in values:
                converted.append(parameter.default)
                problems += [f"`{name}` is missing"] if parameter.required else []
                continue
            try:
                converted.append(_convert_or_repair(shape, values[name], strings))
            except TypeMismatch as mismatch:
                problems += mismatch.sentences(name)
            except Exception as error:
                problems.append(f"`{name}` is not valid: {error or type(error).__name__}")
        known = [parameter.name for parameter in self.parameters]
        takes = f"it accepts {', '.join(known)}" if known else "it accepts none"
        problems += [
            f"`{name}` is not an argument of {self.name}: {takes}"
            for name in values
            if name not in known
        ]
        if problems:
            raise InvalidParams("; ".join(problems), parameter="arguments")
        return tuple(converted)


def _refuse_unbound_method(function: Callable[..., Any], declared: list[inspect.Parameter]) -> None:
    """Raise SchemaError for a function in a class body that expects an instance as its first
    argument."""
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    owner = owner.rpartition(".")[2]
    if (
        inspect.isfunction(function)
        and owner not in ("", "<locals>")
        and declared
        and declared[0].name in ("self", "cls")
        and declared[0].annotation is inspect.Parameter.empty
    ):
        instance = owner.lower()
        raise SchemaError(
            f"{owner}.{name} is a method and cannot be called without an object. Register the "
            f"method of an object instead: {instance} = {owner}(…), and then, for a tool, "
            f"server.tool({instance}.{name}). Or make it a static method"
        )


def _convert_or_repair(shape: Shape, value: Any, strings: bool) -> Any:
    """Convert an argument; if it does not fit, repair strings where the schema does not accept
    strings."""
    try:
        return shape.convert(value, strings=strings or not shape.accepts_string)
    except TypeMismatch as mismatch:
        repaired = shape.repair(value)
        if repaired == value:
            raise
        try:
            return shape.convert(repaired)
        except TypeMismatch:
            raise mismatch from None


def decode_object(raw: bytes | Raw, name: str) -> dict[str, Any]:
    """Decode the arguments of a call into a dict. Missing arguments and null count as an empty
    object."""
    try:
        values = _parse(raw) if raw else None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidParams(
            f"The arguments of {name} are not valid JSON: {error}", parameter="arguments"
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidParams(
            f"The arguments of {name} must be an object, got {describe_value(values)}",
            parameter="arguments",
        )
    return values


# ------------------------------------------------------------------------------------------------
# reading a function


def _code(function: Any) -> Any:
    """Return the function that partials, methods or callable objects wrap."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, (staticmethod, classmethod)) or inspect.ismethod(function):
            function = function.__func__
        elif isinstance(function, type):
            return function.__init__  # type: ignore[misc]
        elif (
            inspect.isroutine(function)
            or hasattr(function, "__wrapped__")
            or not callable(function)
        ):
            return function
        else:
            function = type(function).__call__


def is_async(function: Any) -> bool:
    """Return whether calling a function, or another callable, returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_code(function))


def _name(function: Any) -> str:
    if isinstance(function, functools.partial):
        return getattr(function.func, "__name__", None) or _name(function.func)
    return type(function).__name__


def _docstring(function: Any, inner: Any) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function.__doc__
    # A callable object may be described at its __call__ or at its class.
    return inner.__doc__ or (None if inspect.isroutine(function) else type(function).__doc__)


def _parameters(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters that a caller can pass, without the parameters that a partial has
    bound."""
    lazily = {"annotation_format": _LAZILY["format"]} if _LAZILY else {}
    try:
        parameters = inspect.signature(function, **lazily).parameters
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"{name} cannot be used, because its parameters cannot be read: {error}"
        ) from error
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return [parameter for parameter in parameters.values() if parameter.name not in bound]


def read_hints(function: Any, name: str, context_type: type | None) -> dict[str, Any]:
    """Return the annotations of a function, as types."""
    inner = inspect.unwrap(_code(function))
    try:
        try:
            return get_type_hints(inner, include_extras=True)
        except NameError:
            return get_type_hints(
                inner, localns=_surroundings(inner, context_type), include_extras=True, **_LAZILY
            )
    except NameError as error:
        raise SchemaError(
            f"{name} has an annotation that refers to {error.name}, which is not defined"
        ) from error
    except TypeError:  # a builtin, which has no annotations
        return {}
    except SyntaxError as error:
        raise SchemaError(f"{name} has an annotation that is not a type: {error.text}") from error


def _surroundings(inner: Any, context_type: type | None) -> dict[str, Any]:
    """Return names that annotations may use besides globals: the Context, even if it was imported
    only for type checkers, and the local variables of enclosing functions."""
    names: dict[str, Any] = {}
    if context_type and context_type.__name__ not in inner.__globals__:
        names[context_type.__name__] = context_type
    around = inner.__qualname__.rpartition(".<locals>.")[0].rpartition(".")[2]
    frame = inspect.currentframe()
    while frame:
        if frame.f_code.co_name == around and frame.f_globals is inner.__globals__:
            names |= frame.f_locals
            break
        frame = frame.f_back
    for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    return names


def is_context(hint: Any, context_type: type | None) -> bool:
    """Return whether a parameter with this annotation receives the Context."""
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    if get_origin(hint) in (Union, UnionType):
        return any(is_context(arg, context_type) for arg in get_args(hint))
    cls = get_origin(hint) or hint
    return context_type is not None and isinstance(cls, type) and issubclass(cls, context_type)


def _find_context(
    name: str,
    parameters: list[inspect.Parameter],
    hints: dict[str, Any],
    context_type: type | None,
) -> inspect.Parameter | None:
    """Return the parameter that receives the Context."""
    contexts = [each for each in parameters if is_context(hints.get(each.name), context_type)]
    if len(contexts) > 1:
        raise SchemaError(
            f"{name} has two context parameters, {contexts[0].name} and {contexts[1].name}; "
            "remove one"
        )
    return contexts[0] if contexts else None


def _refuse_starred(name: str, parameters: list[inspect.Parameter]) -> None:
    for parameter in parameters:
        if parameter.kind in _STARRED:
            stars, instead = _STARRED[parameter.kind]
            raise SchemaError(
                f"{name} cannot have {stars}{parameter.name}, because no schema can describe it; "
                f"declare each parameter, or write `{parameter.name}: {instead}`"
            )


def _make_parameter(
    function: str, parameter: inspect.Parameter, hint: Any, description: str | None
) -> Parameter:
    empty = parameter.default is inspect.Parameter.empty
    annotation, default = from_default(hint, NODEFAULT if empty else parameter.default)
    try:
        shape = Shape(annotation)
    except SchemaError as error:
        raise SchemaError(
            f"{function} cannot have the parameter {parameter.name}: {error}"
        ) from error
    return Parameter(
        parameter.name,
        annotation,
        shape,
        default is NODEFAULT,
        default,
        shape.description or description,
    )


def _change_parameter(parameter: Parameter, change: "ArgumentChange") -> Parameter:
    name = parameter.name
    renamed = replace(parameter, name=change.to_caller(name))
    if name not in change.defaults:
        return renamed
    default = change.read_default(name, parameter.shape.decode)
    return replace(renamed, required=False, default=default)


def _make_decoder(name: str, parameters: tuple[Parameter, ...]) -> Callable[[bytes | Raw], Any]:
    """Create the decoder that turns raw arguments into a struct with one field per parameter."""
    fields: list[Any] = []
    for index, parameter in enumerate(parameters):
        default = () if parameter.required else (_exact_default(parameter.default),)
        fields.append((f"a{index}", parameter.shape.native, *default))
    names = {f"a{index}": parameter.name for index, parameter in enumerate(parameters)}
    struct = msgspec.defstruct(name, fields, rename=names, kw_only=True, forbid_unknown_fields=True)
    return decoder(struct).decode


def _exact_default(default: Any) -> Any:
    """Create a field default that is exactly this object; msgspec copies lists and rejects some
    other defaults."""
    return default if type(default) in _ATOMS else msgspec.field(default_factory=lambda: default)


# --------------------------------------------------------------------------------------------------
# docstrings

_SECTIONS = {
    "Args",
    "Arguments",
    "Params",
    "Parameters",
    "Keyword Args",
    "Keyword Arguments",
    "Other Parameters",
}
# Most docstrings need none of these patterns, so they are compiled when they are first used: 1.2 ms
# of the start of a server.
_RULE = r"-{3,}\s*"
_GOOGLE_ENTRY = r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)"
_NUMPY_ENTRY = r"\*{0,2}(\w+(?:,\s*\w+)*)\s*(?::.*)?()"
_REST_ENTRY = r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
_REST_TYPE = r":type\s+\w+\s*:.*"


def read_docstring(text: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the description of the function, and of each parameter, from a docstring in Google,
    NumPy or reST style."""
    lines = inspect.cleandoc(text or "").splitlines()
    other_lines: list[str] = []
    descriptions: dict[str, str] = {}
    position = 0

    def block(ends: Callable[[int], bool]) -> list[str]:
        nonlocal position
        start = position
        while position < len(lines) and not ends(position):
            position += 1
        return lines[start:position]

    def outdented(i: int) -> bool:
        return lines[i][:1].strip() != ""

    def ruled(i: int) -> bool:
        return i + 1 < len(lines) and outdented(i) and bool(re.fullmatch(_RULE, lines[i + 1]))

    while position < len(lines):
        line, index = lines[position], position
        heading = line.rstrip()
        position += 1
        if heading in _SECTIONS and ruled(index):
            position += 1
            descriptions |= _entries(block(ruled), _NUMPY_ENTRY)
        elif heading.endswith(":") and heading[:-1] in _SECTIONS:
            descriptions |= _entries(block(outdented), _GOOGLE_ENTRY)
        elif line.startswith(":") and (
            re.fullmatch(_REST_ENTRY, line) or re.fullmatch(_REST_TYPE, line)
        ):
            descriptions |= _entries(
                [line, *block(lambda i: outdented(i) or not lines[i])], _REST_ENTRY
            )
        else:
            other_lines.append(line)
    description = "\n".join(other_lines).strip()
    if "\n\n\n" in description:
        description = re.sub(r"\n{3,}", "\n\n", description)
    return description or None, descriptions


def _entries(lines: list[str], pattern: str) -> dict[str, str]:
    """Return the description of each name. An entry starts at the margin; lines that are indented
    or do not look like an entry continue the previous entry."""
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    entries: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        entry = re.fullmatch(pattern, line[margin:])
        if entry:
            names = re.split(r",\s*", entry[1])
        for name in names:
            entries.setdefault(name, []).append(entry[2] if entry else line.strip())
    texts = {name: " ".join(" ".join(text).split()) for name, text in entries.items()}
    return {name: text for name, text in texts.items() if text}
