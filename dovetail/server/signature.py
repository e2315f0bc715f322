"""A Python function as what it takes: a JSON schema for the model, a decoder for what the model
sends.

A function is looked at once, when it is registered. Its parameters become the fields of a struct,
under names of our own so that a parameter may be called anything, and a call is one pass of msgspec
over the raw arguments: `bind` gives the very `args` and `kwargs` to call the function with. A
parameter of pydantic is left raw in that pass and decoded after it.

Only when that fails are the arguments taken apart. Each is then converted by itself, so that all
problems can be told at once, in words that a model can act on; and what models are known to send is
repaired where it can mean one thing only: `"[1, 2]"` for a list, `"3"` or 3.0 for an integer, never
where the parameter could be a string.
"""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Raw, Struct

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

Bound: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""What to call the function with."""

_POSITIONAL_ONLY, _KEYWORD_ONLY = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
_STARRED: dict[Any, tuple[str, str]] = {
    inspect.Parameter.VAR_POSITIONAL: ("*", "list[Any]"),
    inspect.Parameter.VAR_KEYWORD: ("**", "dict[str, Any]"),
}
# From Python 3.14 on annotations are evaluated when asked for; names that only a type checker sees
# must not raise then.
_LAZILY: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    import annotationlib

    _LAZILY["format"] = annotationlib.Format.FORWARDREF

_ATOMS = (type(None), bool, int, float, str, bytes)
_astuple = msgspec.structs.astuple
_parse = msgspec.json.Decoder().decode


class Parameter(Struct, frozen=True, eq=False):
    """One argument. `annotation` is as written, so that others can read their own notes in it."""

    name: str
    annotation: Any
    shape: Shape
    required: bool
    default: Any
    description: str | None


class Signature:
    """A function, compiled; made by `Signature.of`."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        listed: list[inspect.Parameter],
        context: inspect.Parameter | None,
    ) -> None:
        self.function = function
        self.name = name
        self.is_async = _is_async(function)
        self.yields = any(
            check(_code(function))
            for check in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        )
        """Whether it is a generator."""
        self.parameters: tuple[Parameter, ...] = ()
        self.context = context.name if context else None
        """The parameter that is given the Context."""
        self.returns: Any = Any
        """The return annotation; Any if there is none."""
        self.description: str | None = None
        """The docstring, without what it says about parameters."""
        self._keywords = [
            one.name for one in listed if one.kind is _KEYWORD_ONLY and one is not context
        ]
        self._positional_only = [one.name for one in listed if one.kind is _POSITIONAL_ONLY]
        # Where the context goes among the positional arguments; None if it goes by name.
        self._context_at = (
            listed.index(context) if context and context.kind is not _KEYWORD_ONLY else None
        )
        self._plain = not context and not self._keywords
        self._decode: Callable[[bytes | Raw], Any]
        self._later: list[tuple[int, Shape]]

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        context_type: type | None = None,
        free: bool = False,
        name: str | None = None,
    ) -> "Signature":
        """Compile a function. A `free` one has its schema from elsewhere: it may take anything, its
        annotations are not looked into, and its arguments go through `pass_on`."""
        name = name or getattr(function, "__name__", None) or _name(function)
        inner = inspect.unwrap(_code(function))
        hints = _hints(inner, name, context_type)
        listed = _listed(function, name)
        contexts = [one for one in listed if _is_context(hints.get(one.name), context_type)]
        starred = [one for one in listed if one.kind in _STARRED]
        if len(contexts) > 1:
            raise SchemaError(
                f"{name} takes the context twice: as {contexts[0].name} and as {contexts[1].name}"
            )
        if starred and not free:
            stars, instead = _STARRED[starred[0].kind]
            given = starred[0].name
            raise SchemaError(
                f"{name} cannot take {stars}{given}: no schema can tell a model what to send; "
                "name each parameter, "
                f"or take `{given}: {instead}`"
            )

        self = cls(function, name, listed, contexts[0] if contexts else None)
        self.returns = hints.get("return", Any)
        self.description, told = read_docstring(_docstring(function, inner))
        named = [one for one in listed if one not in starred and one not in contexts]
        self.parameters = tuple(
            _parameter(name, one, Any if free else hints.get(one.name, Any), told.get(one.name))
            for one in named
        )
        self._decode = _decoder(name, self.parameters)
        self._later = [
            (i, one.shape) for i, one in enumerate(self.parameters) if one.shape.native is Raw
        ]
        return self

    @cached_property
    def schema(self) -> Schema:
        """The JSON schema of the arguments."""
        defs: dict[str, Schema] = {}
        properties = {}
        for one in self.parameters:
            schema = properties[one.name] = merge_definitions(*one.shape.parts, into=defs)
            if one.description:
                schema["description"] = one.description
            if not one.required:
                schema |= default_schema(one.default)
        required = [one.name for one in self.parameters if one.required]
        root = {"type": "object", "properties": properties} | (
            {"required": required} if required else {}
        )
        return flatten_header_params(
            inline_definitions(root | {"additionalProperties": False}, defs)
        )

    def bind(self, raw: bytes | Raw, context: object | None = None) -> Bound:
        """The call that these JSON arguments ask for; InvalidParams where the function does not
        take them."""
        try:
            values = _astuple(self._decode(raw))
            if self._later:
                values = self._decoded(values)
        except (
            Exception
        ):  # also whatever the author's own classes raise: one by one, they are told apart
            values = self._collect(decode_object(raw, self.name))
        return (values, {}) if self._plain else self._arranged(values, context)

    def bind_values(
        self, values: Mapping[str, Any], context: object | None = None, *, strings: bool = True
    ) -> Bound:
        """The same for values that are decoded already; with `strings`, text may spell out any
        type."""
        return self._arranged(self._collect(values, strings), context)

    def pass_on(self, values: Mapping[str, Any], context: object | None = None) -> Bound:
        """The same for values that were checked elsewhere, as they are."""
        rest = dict(values)
        if self.context:
            rest[self.context] = context
        return tuple(rest.pop(name) for name in self._positional_only if name in rest), rest

    def _decoded(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        decoded = list(values)
        for i, shape in self._later:
            if type(values[i]) is Raw:  # and not the default
                decoded[i] = shape.decode(values[i])
        return tuple(decoded)

    def _arranged(self, values: tuple[Any, ...], context: object | None) -> Bound:
        count = len(values) - len(self._keywords)
        args, kwargs = values[:count], dict(zip(self._keywords, values[count:], strict=True))
        if self._context_at is not None:
            args = (*args[: self._context_at], context, *args[self._context_at :])
        elif self.context:
            kwargs[self.context] = context
        return args, kwargs

    def _collect(self, values: Mapping[str, Any], strings: bool = False) -> tuple[Any, ...]:
        """Each argument by itself, to tell all that is wrong."""
        collected, problems = [], []
        for one in self.parameters:
            if one.name not in values:
                collected.append(one.default)
                problems += [f"`{one.name}` is missing"] if one.required else []
                continue
            try:
                lax = strings or not one.shape.accepts_string
                collected.append(one.shape.convert(values[one.name], strings=lax))
            except TypeMismatch as mismatch:
                problems += mismatch.sentences(one.name)
            except Exception as error:
                problems.append(f"`{one.name}` is not valid: {error or type(error).__name__}")
        known = [one.name for one in self.parameters]
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        problems += [
            f"`{name}` is not an argument of {self.name}: {takes}"
            for name in values
            if name not in known
        ]
        if problems:
            raise InvalidParams("; ".join(problems))
        return tuple(collected)


def decode_object(raw: bytes | Raw, name: str) -> dict[str, Any]:
    """The arguments of a call as a plain dict. None at all, null, and an object inside a string
    will do."""
    try:
        values = _parse(raw) if raw else None
        if isinstance(values, str) and values.lstrip()[:1] == "{":
            values = _parse(values.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidParams(f"The arguments of {name} are not valid JSON: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidParams(
            f"The arguments of {name} must be an object, got {describe_value(values)}"
        )
    return values


def wrapped(
    function: Callable[..., Any], finish: Callable[[Any], Any], returns: Any, context_type: type
) -> Callable[..., Any]:
    """A function that takes the same, and gives what `finish` makes of the result, which is of the
    type `returns`."""
    inner = inspect.unwrap(_code(function))

    async def later(value: Any) -> Any:
        return finish(await value)

    def plain(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        return later(value) if inspect.isawaitable(value) else finish(value)

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return finish(await function(*args, **kwargs))

    made: Any = awaited if _is_async(function) else plain
    made.__name__ = name = getattr(function, "__name__", None) or type(function).__name__
    made.__doc__ = _docstring(function, inner)
    made.__signature__ = inspect.Signature(_listed(function, name))
    made.__annotations__ = {**_hints(inner, name, context_type), "return": returns}
    return made  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------
# reading a function


def _code(function: Any) -> Any:
    """The function proper: inside partials, methods and objects that can be called."""
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


def _is_async(function: Any) -> bool:
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
    # An object that can be called may be described at its __call__ or at its class.
    return inner.__doc__ or (None if inspect.isroutine(function) else type(function).__doc__)


def _listed(function: Any, name: str) -> list[inspect.Parameter]:
    """The parameters that a caller can give; those that a partial has bound are settled."""
    lazily = {"annotation_format": _LAZILY["format"]} if _LAZILY else {}
    try:
        parameters = inspect.signature(function, **lazily).parameters
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"{name} cannot be used: its parameters cannot be read ({error})"
        ) from error
    settled = function.keywords if isinstance(function, functools.partial) else {}
    return [one for one in parameters.values() if one.name not in settled]


def _hints(inner: Any, name: str, context_type: type | None) -> dict[str, Any]:
    """The annotations of a function, as types."""
    try:
        try:
            return get_type_hints(inner, include_extras=True)
        except NameError:
            return get_type_hints(
                inner, localns=_surroundings(inner, context_type), include_extras=True, **_LAZILY
            )
    except NameError as error:
        raise SchemaError(
            f"{name} has an annotation that names {error.name}, which is not defined there"
        ) from error
    except TypeError:  # a builtin, which has no annotations
        return {}
    except SyntaxError as error:
        raise SchemaError(f"{name} has an annotation that is no type: {error.text}") from error


def _surroundings(inner: Any, context_type: type | None) -> dict[str, Any]:
    """Names that annotations may use besides globals: the Context, even if it was imported for type
    checkers only, and the locals of the functions around, taken from the stack and the closure."""
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


def _is_context(hint: Any, context_type: type | None) -> bool:
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    if get_origin(hint) in (Union, UnionType):
        return any(_is_context(arg, context_type) for arg in get_args(hint))
    cls = get_origin(hint) or hint
    return context_type is not None and isinstance(cls, type) and issubclass(cls, context_type)


def _parameter(function: str, one: inspect.Parameter, hint: Any, told: str | None) -> Parameter:
    annotation, default = from_default(
        hint, NODEFAULT if one.default is inspect.Parameter.empty else one.default
    )
    try:
        shape = Shape(annotation)
    except SchemaError as error:
        raise SchemaError(f"{function} cannot take {one.name}: {error}") from error
    return Parameter(
        one.name, annotation, shape, default is NODEFAULT, default, shape.description or told
    )


def _decoder(name: str, parameters: tuple[Parameter, ...]) -> Callable[[bytes | Raw], Any]:
    """From the raw arguments to a struct of them."""
    fields: list[Any] = []
    for i, one in enumerate(parameters):
        fields.append(
            (f"a{i}", one.shape.native, *(() if one.required else (_always(one.default),)))
        )
    names = {f"a{i}": one.name for i, one in enumerate(parameters)}
    struct = msgspec.defstruct(name, fields, rename=names, kw_only=True, forbid_unknown_fields=True)
    return decoder(struct).decode


def _always(default: Any) -> Any:
    """A field's default that is this very object; msgspec copies a list and refuses some others."""
    return default if type(default) in _ATOMS else msgspec.field(default_factory=lambda: default)


# --------------------------------------------------------------------------------------------------
# docstrings

_SECTION = r"(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters)"
_GOOGLE = re.compile(_SECTION + r":\s*")
_NUMPY = re.compile(_SECTION + r"\s*")
_RULE = re.compile(r"-{3,}\s*")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:,\s*\w+)*)\s*(?::.*)?()")
_REST_ENTRY = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
)
_REST_TYPE = re.compile(r":type\s+\w+\s*:.*")


def read_docstring(text: str | None) -> tuple[str | None, dict[str, str]]:
    """What a docstring says of the function and of each parameter; in the style of Google, NumPy or
    reST."""
    lines = inspect.cleandoc(text or "").splitlines()
    kept: list[str] = []
    about: dict[str, str] = {}
    at = 0

    def block(ends: Callable[[int], bool]) -> list[str]:
        nonlocal at
        start = at
        while at < len(lines) and not ends(at):
            at += 1
        return lines[start:at]

    def outdented(i: int) -> bool:
        return lines[i][:1].strip() != ""

    def ruled(i: int) -> bool:
        return i + 1 < len(lines) and outdented(i) and bool(_RULE.fullmatch(lines[i + 1]))

    while at < len(lines):
        line, here = lines[at], at
        at += 1
        if _NUMPY.fullmatch(line) and ruled(here):
            at += 1
            about |= _entries(block(ruled), _NUMPY_ENTRY)
        elif _GOOGLE.fullmatch(line):
            about |= _entries(block(outdented), _GOOGLE_ENTRY)
        elif _REST_ENTRY.fullmatch(line) or _REST_TYPE.fullmatch(line):
            about |= _entries([line, *block(lambda i: outdented(i) or not lines[i])], _REST_ENTRY)
        else:
            kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() or None, about


def _entries(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Each name with its text: an entry starts at the margin; what is indented, or looks like none,
    continues it."""
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    entries: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        entry = pattern.fullmatch(line[margin:])
        if entry:
            names = re.split(r",\s*", entry[1])
        for name in names:
            entries.setdefault(name, []).append(entry[2] if entry else line.strip())
    texts = {name: " ".join(" ".join(text).split()) for name, text in entries.items()}
    return {name: text for name, text in texts.items() if text}
