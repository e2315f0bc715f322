"""How a changed copy of a tool differs in its arguments: pure functions on schemas and values.

`with_` of a registered tool (`tools.py`) and `tools.with` of a gateway (`gateway/transforms.py`)
both make an `ArgumentChange`. It is checked once, when the copy is made, and then applied to the
schema. For each call, it turns the arguments of a caller into those of the original tool.

A hidden argument is always there. So a rule of the schema that depends on it, such as
`dependentRequired` or an alternative with a constant, is decided when the copy is made.

The values of hidden arguments are never part of a message.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import Raw, Struct

from ..errors import ConfigError, InvalidParams, SchemaError, ToolError
from ..logs import get_logger
from ..schema import Schema, TypeMismatch, Unencodable, encode
from ..schema.validation import compile
from ..text import closest_name, one_line, quote
from .signature import Bound, decode_object

Arrange: TypeAlias = Callable[[dict[str, Any], Any], Bound]
"""Returns the positional and keyword arguments of a function for arguments that were checked."""

MAX_NESTED_REFS = 20
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_DEFINITIONS = ("$defs", "definitions")
_MAPS = ("properties", "patternProperties", "dependentSchemas", *_DEFINITIONS)
"""Keywords whose keys are names, and whose values are schemas."""
_DATA = ("const", "enum", "default", "examples", "required", "dependentRequired")
"""Keywords whose values are not schemas."""


class FreshValue(Struct, frozen=True, eq=False):
    """A hidden argument whose value is made for each call."""

    make: Callable[[], Any]
    read: Callable[[Any], Any]
    """Returns the value as the tool takes it, or raises ConfigError."""

    async def get(self) -> Any:
        """Return the value for a call.

        Raises:
            ToolError: It could not be made, or does not fit the tool.
        """
        try:
            value = self.make()
            value = await value if isawaitable(value) else value
        except ToolError:
            raise
        except Exception:
            get_logger("server").exception("A function in hide= failed")
            raise ToolError(
                "A hidden argument of this tool could not be computed. The log of the server has "
                "the reason."
            ) from None
        try:
            return self.read(value)
        except ConfigError as problem:
            raise ToolError(str(problem)) from None


async def get_fresh(value: Any) -> Any:
    """Return an argument, whose value may have to be made first."""
    return await value.get() if type(value) is FreshValue else value


class ArgumentChange(Struct, frozen=True, eq=False):
    """What is different about the arguments of a changed tool. Names are those before the change.

    Attributes:
        owner: The name of the tool before the change, for messages.
        hide: The values of arguments that callers do not see. A function makes a value per call.
        rename: The new names of arguments.
        defaults: The values of arguments that callers leave out.
    """

    owner: str
    hide: Mapping[str, Any] = {}
    rename: Mapping[str, str] = {}
    defaults: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"<ArgumentChange of {self.owner}>"  # without the hidden values

    def __bool__(self) -> bool:
        return bool(self.hide or self.rename or self.defaults)

    def to_caller(self, name: str) -> str:
        """Return the name of an argument that callers use."""
        return self.rename.get(name, name)

    def check(self, known: Iterable[str]) -> None:
        """Check the names.

        Args:
            known: The arguments of the tool.

        Raises:
            ConfigError: There is no such argument, or two changes contradict each other.
        """
        names = list(known)
        for option in ("hide", "rename", "defaults"):
            value = getattr(self, option)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise self._error(f"{option}= must be a dict whose keys are names of arguments")
            for name in value:
                if name not in names:
                    raise self._unknown(option, name, names)
        for name in self.hide:
            for option in ("rename", "defaults"):
                if name in getattr(self, option):
                    raise self._error(f"hide= and {option}= both name {quote(name)}. Choose one.")
        for name, new in self.rename.items():
            if not isinstance(new, str) or not new:
                raise self._error(f"rename= must give {quote(name)} a new name, as a string")
        seen: dict[str, str] = {}
        for name in (one for one in names if one not in self.hide):
            other = seen.setdefault(self.to_caller(name), name)
            if other != name:
                raise self._error(
                    f"{quote(other)} and {quote(name)} would both be called "
                    f"{quote(self.to_caller(name))}. Its arguments are {_list(names)}."
                )

    def _unknown(self, option: str, name: str, names: list[str]) -> ConfigError:
        close = closest_name(name, names)
        hint = f" Did you mean {quote(close)}?" if close else ""
        known = f"Its arguments are {_list(names)}." if names else "It has no arguments."
        return self._error(
            f"{option}= names {quote(name)}, but there is no such argument. {known}{hint}"
        )

    def _error(self, text: str) -> ConfigError:
        return ConfigError(f"Tool {quote(self.owner)}: {text}")

    def read_hidden(self, name: str, read: Callable[[Raw], Any]) -> Callable[[], Any]:
        """Return a function that returns the value of a hidden argument for a call.

        Args:
            name: The name of the argument.
            read: Converts a JSON value; raises ValueError if it does not fit.

        Raises:
            ConfigError: The value does not fit.
        """
        value = self.hide[name]

        def read_value(value: Any) -> Any:
            with suppress(ValueError, Unencodable):  # their messages contain the value
                return read(Raw(encode(value)))
            raise self._error(
                f"the value of the hidden argument {quote(name)} does not fit the tool"
            )

        if callable(value):
            fresh = FreshValue(value, read_value)
            return lambda: fresh
        read_value(value)
        data = Raw(encode(value))
        return lambda: read(data)

    def read_default(self, name: str, read: Callable[[Raw], Any]) -> Any:
        """Return the default value of an argument.

        Args:
            name: The name of the argument.
            read: Converts a JSON value; raises ValueError if it does not fit.

        Raises:
            ConfigError: The value does not fit.
        """
        try:
            return read(Raw(encode(self.defaults[name])))
        except (ValueError, Unencodable) as problem:
            reason = (
                "; ".join(problem.sentences("")) if isinstance(problem, TypeMismatch) else problem
            )
            raise self._error(f"the default of {quote(name)} does not fit: {reason}") from None


class SchemaArguments:
    """The arguments of a tool whose schema is not made from its function. They are checked by the
    schema, and passed on as they are.

    Args:
        name: The name of the tool, for messages.
        schema: The JSON schema of the arguments.
        arrange: Returns what to call the function with.
        reserved: Names that callers may not use, even if the schema accepts any name.

    Raises:
        SchemaError: The schema cannot be used.
    """

    def __init__(
        self, name: str, schema: Schema, arrange: Arrange, reserved: frozenset[str] = frozenset()
    ) -> None:
        if schema.get("type") != "object":
            raise SchemaError(f'Tool {name!r}: an input schema must have "type": "object"')
        self.name, self.schema = name, schema
        self._arrange, self._reserved = arrange, reserved
        self._validator = compile(schema)

    def bind(self, raw: bytes | Raw, context: object | None = None) -> Bound:
        """Check JSON arguments, and return the positional and keyword arguments of the function.

        Args:
            raw: The arguments.
            context: The context of the call.

        Raises:
            InvalidParams: The arguments do not fit.
        """
        return self.bind_object(decode_object(raw, self.name), context)

    def bind_object(self, values: dict[str, Any], context: object | None = None) -> Bound:
        """Do the same with arguments that were decoded."""
        self.check(values)
        return self._arrange(values, context)

    def check(self, values: dict[str, Any]) -> None:
        """Raise InvalidParams if arguments do not fit."""
        problems = self._validator.problems(values)
        if not problems and not self._reserved.isdisjoint(values):
            known = ", ".join(argument_names(self.schema)) or "none"
            problems = [
                f"`{name}` is not an argument of {self.name}: it accepts {known}"
                for name in values
                if name in self._reserved
            ]
        if problems:
            raise InvalidParams("; ".join(problems), parameter="arguments")

    def repaired(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return arguments that were checked as the function would receive them."""
        return values

    def changed(self, name: str, change: ArgumentChange) -> "SchemaArguments":
        """Return the arguments after a change.

        Args:
            name: The new name of the tool.
            change: The change.

        Raises:
            ConfigError: The change does not fit the tool.
        """
        change.check(argument_names(self.schema))
        to_tool, inner = make_mapping(self.schema, change), self._arrange
        schema = change_schema(self.schema, change)
        names = set(argument_names(schema))
        reserved = self._reserved.union(change.hide, change.rename) - names
        return SchemaArguments(
            name, schema, lambda values, context: inner(to_tool(values), context), reserved
        )


def make_mapping(
    schema: Schema, change: ArgumentChange
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that turns the arguments of a caller into those of the original tool.

    Args:
        schema: The schema before the change.
        change: The change.

    Raises:
        ConfigError: A value does not fit the schema.
    """
    back = {new: old for old, new in change.rename.items()}
    hidden = {name: change.read_hidden(name, _reader(schema, name)) for name in change.hide}
    defaults = {n: change.read_default(n, _reader(schema, n)) for n in change.defaults}

    def to_tool(values: Mapping[str, Any]) -> dict[str, Any]:
        mapped = {back.get(name, name): value for name, value in values.items()}
        return {**defaults, **mapped, **{name: make() for name, make in hidden.items()}}

    return to_tool


def _reader(schema: Schema, name: str) -> Callable[[Raw], Any]:
    """Return a function that decodes the value of an argument, and raises ValueError if it does not
    fit the schema."""
    schema = _inline_ref(schema, schema)
    kept = ("$schema", "properties", *_DEFINITIONS)
    validator = compile({key: value for key, value in schema.items() if key in kept})

    def read(raw: Raw) -> Any:
        value = msgspec.json.decode(raw)
        if problems := validator.problems({name: value}):
            raise ValueError("; ".join(problems))
        return value

    return read


# --------------------------------------------------------------------------------------------------
# schemas


def argument_names(schema: Schema) -> list[str]:
    """Return the names of the arguments that a schema declares.

    Args:
        schema: The schema of all arguments.
    """
    return list(dict.fromkeys(_names(schema, schema, 0)))


def _names(node: Any, root: Schema, depth: int) -> Iterator[str]:
    if not isinstance(node, dict) or depth > MAX_NESTED_REFS:
        return
    node = _inline_ref(node, root)
    yield from _dict(node.get("properties"))
    for inner in _parts(node):
        yield from _names(inner, root, depth + 1)


def _parts(node: Schema) -> list[Any]:
    """Return the subschemas that apply to the same value."""
    parts = [one for key in _LISTS for one in node.get(key) or ()]
    parts += [node[key] for key in _SINGLE if key in node]
    return [*parts, *_dict(node.get("dependentSchemas")).values()]


def change_schema(schema: Schema, change: ArgumentChange) -> Schema:
    """Return the schema of the arguments after a change.

    Args:
        schema: The schema before the change, which has been compiled once.
        change: The change.

    Raises:
        ConfigError: The change does not fit the schema.
    """
    change.check(argument_names(schema))
    if not change:
        return schema
    root = _hoist_refs(schema)
    changed = _change(root, root, change, 0)
    if changed is False:
        raise change._error("the hidden values contradict the schema of the tool")
    shown = _drop_unused(_show_defaults(changed, change))
    for key in ("examples", "default"):
        if key in shown:
            shown[key] = _change_data(shown[key], change)
    return shown


def _change(node: Any, root: Schema, change: ArgumentChange, depth: int) -> Any:
    """Return a schema of all arguments, or a part of one, after a change. False if the hidden
    values do not match it."""
    if not isinstance(node, dict) or depth > MAX_NESTED_REFS:
        return node
    node = dict(_inline_ref(node, root))
    properties = _dict(node.get("properties"))
    if not all(_fits(name, properties, root, change) for name in change.hide):
        return False
    if properties:
        visible = {n: one for n, one in properties.items() if n not in change.hide}
        node["properties"] = {change.to_caller(name): one for name, one in visible.items()}
    node = _decide_dependencies(node, change)
    if "required" in node:
        required = [n for n in node.pop("required") if n not in (*change.hide, *change.defaults)]
        node |= {"required": list(map(change.to_caller, required))} if required else {}
    for key in ("minProperties", "maxProperties"):
        if isinstance(node.get(key), int):
            node[key] = max(0, node[key] - len(change.hide))
    return _change_parts(node, root, change, depth)


def _change_parts(node: Schema, root: Schema, change: ArgumentChange, depth: int) -> Any:
    for key in _LISTS:
        if key in node:
            parts = [_change(one, root, change, depth + 1) for one in node[key]]
            if key == "allOf" and any(one is False for one in parts):
                return False
            node[key] = [one for one in parts if one is not False] or [False]
    for key in _SINGLE:
        if key in node:
            node[key] = _change(node[key], root, change, depth + 1)
    if schemas := _dict(node.get("dependentSchemas")):
        node["dependentSchemas"] = {
            change.to_caller(name): _change(one, root, change, depth + 1)
            for name, one in schemas.items()
        }
    return node


def _decide_dependencies(node: Schema, change: ArgumentChange) -> Schema:
    """Apply what a schema requires if an argument is there, for the hidden ones, which always
    are."""
    required = dict(_dict(node.get("dependentRequired")))
    schemas = dict(_dict(node.get("dependentSchemas")))
    for name in change.hide:
        if name in required:
            node["required"] = [*dict.fromkeys([*node.get("required", ()), *required.pop(name)])]
        if name in schemas:
            node["allOf"] = [*node.get("allOf", ()), schemas.pop(name)]
    renamed = {
        change.to_caller(name): [change.to_caller(one) for one in needed if one not in change.hide]
        for name, needed in required.items()
    }
    for key, value in (("dependentRequired", renamed), ("dependentSchemas", schemas)):
        if key in node:
            node |= {key: value}
            if not value:
                del node[key]
    return node


def _fits(name: str, properties: Schema, root: Schema, change: ArgumentChange) -> bool:
    """Return whether the value of a hidden argument matches a part of the schema. A value that is
    made for each call is taken to match."""
    if name not in properties or callable(change.hide[name]):
        return True
    definitions = {key: root[key] for key in _DEFINITIONS if key in root}
    try:
        validator = compile({"properties": {name: properties[name]}, **definitions})
        value = msgspec.json.decode(encode(change.hide[name]))
    except (SchemaError, Unencodable):
        return True
    return not validator.problems({name: value})


def _show_defaults(schema: Schema, change: ArgumentChange) -> Schema:
    properties = dict(_dict(schema.get("properties")))
    for name, value in change.defaults.items():
        shown = properties.get(change.to_caller(name))
        default = msgspec.json.decode(encode(value))
        properties[change.to_caller(name)] = {**_dict(shown), "default": default}
    return {**schema, "properties": properties} if properties else schema


def _change_data(value: Any, change: ArgumentChange) -> Any:
    """Return example arguments after a change."""
    if isinstance(value, list):
        return [_change_data(one, change) for one in value]
    if not isinstance(value, dict):
        return value
    return {change.to_caller(n): one for n, one in value.items() if n not in change.hide}


# references


def _inline_ref(node: Schema, root: Schema) -> Schema:
    """Return a schema with the contents of what it refers to in place of the reference."""
    for _ in range(MAX_NESTED_REFS):
        target = _resolve(node.get("$ref"), root)
        if target is None:
            break
        rest = {key: value for key, value in node.items() if key != "$ref"}
        if target.keys() & rest.keys() <= {"title", "description", "type"}:
            node = {**target, **rest}
        else:
            node = {**rest, "allOf": [target, *rest.get("allOf", ())]}
    return node


def _resolve(ref: Any, root: Schema) -> Schema | None:
    """Return the schema that a reference inside a document points to."""
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    target: Any = root
    for step in map(_unescape, ref[2:].split("/")):
        if isinstance(target, list) and step.isdigit() and int(step) < len(target):
            target = target[int(step)]
        elif isinstance(target, dict) and step in target:
            target = target[step]
        else:
            return None
    return target if isinstance(target, dict) else None


def _unescape(step: str) -> str:
    return unquote(step).replace("~1", "/").replace("~0", "~")


def _hoist_refs(schema: Schema) -> Schema:
    """Return a schema that refers only to definitions. Other places, such as `#/properties/a`, may
    be gone after the change."""
    added: dict[str, Any] = {}

    def change(node: Schema) -> Schema:
        ref = node.get("$ref")
        target = schema if ref == "#" else _resolve(ref, schema)
        if target is None or str(ref).startswith(("#/$defs/", "#/definitions/")):
            return node
        name = re.sub(r"\W+", "_", f"at{str(ref)[1:]}")
        if name not in added:
            added[name] = True  # it may refer to itself
            added[name] = _rewrite(target, change)
        return {**node, "$ref": f"#/$defs/{name}"}

    hoisted: Schema = _rewrite(schema, change)
    return {**hoisted, "$defs": {**_dict(hoisted.get("$defs")), **added}} if added else hoisted


def _rewrite(node: Any, change: Callable[[Schema], Schema]) -> Any:
    """Return a copy of a schema in which each subschema was changed."""
    if isinstance(node, list):
        return [_rewrite(one, change) for one in node]
    if not isinstance(node, dict):
        return node
    copy: Schema = {}
    for key, value in change(node).items():
        if key in _MAPS and isinstance(value, dict):
            copy[key] = {name: _rewrite(one, change) for name, one in value.items()}
        else:
            copy[key] = value if key in _DATA else _rewrite(value, change)
    return copy


def _drop_unused(schema: Schema) -> Schema:
    """Return a schema without the definitions that nothing refers to any more."""
    used: set[tuple[str, str]] = set()

    def note(node: Schema) -> Schema:
        _, key, name, *_ = [*str(node.get("$ref", "")).split("/"), "", "", ""]
        place = key, _unescape(name)
        if key in _DEFINITIONS and place not in used:
            used.add(place)
            _rewrite(_dict(schema.get(key)).get(place[1]), note)
        return node

    _rewrite({key: value for key, value in schema.items() if key not in _DEFINITIONS}, note)
    kept = dict(schema)
    for key in _DEFINITIONS:
        if key in kept:
            kept[key] = {n: one for n, one in _dict(kept[key]).items() if (key, n) in used}
            if not kept[key]:
                del kept[key]
    return kept


def _dict(value: Any) -> Schema:
    return value if isinstance(value, dict) else {}


def _list(names: Iterable[str]) -> str:
    return one_line(", ".join(names))
