"""JSON Schema checks for schemas that come from elsewhere: the only door to jsonschema_rs.

Both the schema and the value may be hostile, and the engine, fast as it is, trusts them. So a
schema is surveyed before it gets there, as a graph whose edges are subschemas and references:

- It must be bounded: nesting, subschemas, and the *work* that it makes of one value. Twenty
  definitions that refer to the next one twice are a million checks of the same value, so work is
  counted with references followed. Where a reference leads back, the engine remembers what it has
  seen, so that counts once; but not if it leads back to the same value (`{"$ref": "#"}`), which
  means nothing and is refused.
- It must be whole: nothing is ever fetched.

The engine answers yes or no in time linear in the value. It recurses with the value, though, on a
stack that overflows without mercy, so with a recursive schema the depth of a value is looked at
first. And it says *why not* without looking at the cost: gigabytes of errors for a long list,
exponential time for a recursive schema with alternatives. So it is asked for reasons only where
they are cheap.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ..errors import SchemaError
from ..limits import DEFAULT, KIB, MIB, Limits

Schema: TypeAlias = dict[str, Any] | bool

_DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
}
"""What `$schema` may say, the default first, and the engine's class for it."""

_SAME_VALUE: dict[str, Callable[[Iterable[int]], int]] = {
    "allOf": sum, "anyOf": sum, "oneOf": sum, "not": sum, "if": sum, "then": sum, "else": sum,
    "dependentSchemas": sum, "dependencies": sum,
}  # fmt: skip
"""The keywords that hold subschemas for the value itself, and how much work those are together."""
_PARTS: dict[str, Callable[[Iterable[int]], int]] = {
    "properties": max, "prefixItems": max, "items": max, "additionalItems": sum, "contains": sum,
    "patternProperties": sum, "additionalProperties": sum, "propertyNames": sum,
    "unevaluatedItems": sum, "unevaluatedProperties": sum,
}  # fmt: skip
"""Those for parts of it, each for another part (max) or maybe for the same (sum)."""
_CHECKING = {**_SAME_VALUE, **_PARTS}
_REEVALUATING = ("unevaluatedItems", "unevaluatedProperties")
"""Those for which the engine goes over the others of the same schema again, to see what they have
checked."""
_MANY_PARTS = _PARTS.keys() - {"properties", "prefixItems"}
"""Those for any number of parts."""
_CONTAINERS = ("$defs", "definitions", "contentSchema")
"""Those that hold subschemas for others to refer to."""
_BY_NAME = {
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
}
"""Those whose subschemas have names."""

_MAX_RECURSION: Final = 2048
"""Steps of recursion for which half a megabyte of stack is enough."""
_MAX_DEPTH: Final = 250
"""Levels of a value beyond which the engine itself gives up."""
_MAX_PATTERN_BYTES: Final = 128 * KIB
"""Bytes that a compiled pattern may take. Matching is linear in the string but also in this: up to
3 µs a character."""
_MAX_ALL_PATTERNS_BYTES: Final = 8 * MIB
"""Bytes that all patterns together may take, though each may have 8 KiB."""
_MAX_ERRORS: Final = 100_000
"""Errors that the engine may make up in search of reasons, which takes it some second."""


class SchemaMismatch(ValueError):
    """A value that does not match its schema; `.problems` says why, a sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _Cost(Struct, frozen=True):
    """What a schema makes of a value."""

    work: int
    """How often it checks the value and, on any one way down, its parts."""
    ways: int
    """How often it comes back to itself from there; if more than once, reasons are exponential in
    the depth."""
    first: float
    """The effort for all reasons up to which the first one is cheap."""
    deepest: int | None
    """How many levels a value may have, where the schema is recursive."""
    patterns: int
    """How many regular expressions it has."""


class Validator:
    """A compiled schema."""

    __slots__ = ("_cost", "_engine")

    def __init__(self, engine: Any, cost: _Cost) -> None:
        self._engine = engine
        self._cost = cost

    def problems(self, value: Any, at_most: int = 5) -> list[str]:
        """What is wrong with the value, and where, in words that a model can act on; nothing if it
        is fine."""
        deepest = self._cost.deepest
        try:
            if deepest is not None and any(islice(_levels(value), deepest, None)):
                return [f"`$`: nested more than {deepest} levels deep"]
            if self._engine.is_valid(value):
                return []
            reasons = [reason for error in self._errors(value) for reason in _reasons(error)]
        except (ValueError, TypeError, OverflowError) as error:
            # The engine's own limits: depth, types that JSON does not have, half a surrogate pair.
            return [f"`$`: cannot be checked: {error}"]
        words = list(dict.fromkeys(f"`{_place(path)}`: {message}" for path, message in reasons))
        return words[:at_most] or [
            "`$`: does not match the schema; it is too large or too deep to say where"
        ]

    def check(self, value: Any) -> None:
        """Raise Mismatch unless the value matches."""
        problems = self.problems(value)
        if problems:
            raise SchemaMismatch(problems)

    def _errors(self, value: Any) -> list[Any]:
        """The engine's reasons, as far as they are cheap."""
        import jsonschema_rs

        effort = 0
        for depth, level in enumerate(islice(_levels(value), _MAX_DEPTH)):
            size = len(level) + sum(len(part) // 32 for part in level if isinstance(part, str))
            effort += size * self._cost.work * self._cost.ways**depth
            if effort > 20 * _MAX_ERRORS:
                break
        if effort <= _MAX_ERRORS:
            return list(self._engine.iter_errors(value))
        if effort <= self._cost.first:
            try:
                self._engine.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [error]
        return []


def compile(schema: Schema, limits: Limits = DEFAULT) -> Validator:
    """A validator for the schema, or SchemaError naming the part of it that cannot be used."""
    import jsonschema_rs

    if not isinstance(schema, dict | bool):
        raise SchemaError(f"A JSON schema is an object or a boolean, not {type(schema).__name__}")
    engine = getattr(jsonschema_rs, _DIALECTS[_dialect(schema)])
    cost = _SchemaSurvey(schema, limits).cost()
    size = min(_MAX_PATTERN_BYTES, max(8 * KIB, _MAX_ALL_PATTERNS_BYTES // max(cost.patterns, 1)))
    try:
        compiled = engine(
            schema,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=size
            ),  # the engine that never backtracks
            retriever=_refuse_network,
            validate_formats=False,
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(_message(error)) from None
    except (ValueError, TypeError, OverflowError, jsonschema_rs.ReferencingError) as error:
        raise SchemaError(f"The JSON schema cannot be used: {error}") from None
    return Validator(compiled, cost)


def _dialect(schema: Schema) -> str:
    given = schema.get("$schema") if isinstance(schema, dict) else None
    name = next(iter(_DIALECTS)) if given is None else str(given).removesuffix("#")
    if name not in _DIALECTS:
        raise SchemaError(
            f"The JSON Schema dialect {given!r} is not supported; use one of {', '.join(_DIALECTS)}"
        )
    return name


def _refuse_network(uri: str) -> Any:
    # A second line of defence: the survey has already refused whatever leads here.
    raise ValueError(f"{uri} is not fetched")


# --------------------------------------------------------------------------------------------------
# the survey


class _SchemaSurvey:
    """A walk through a schema that finds it bounded and whole, or raises."""

    def __init__(self, schema: Schema, limits: Limits) -> None:
        self.limits = limits
        self.schema = schema
        self.nodes: dict[int, dict[str, Any]] = {}
        """The subschemas, by identity."""
        self.roots: dict[int, Any] = {}
        """For each the one that its references count from: the whole, or one around it with an $id
        of its own."""
        self.anchors: dict[tuple[int, str], list[Any]] = {}
        """Subschemas by root and name."""
        self.weights: dict[int, tuple[int, int, bool]] = {}
        """For each its work, its ways, and whether it is for any number of parts of a value."""
        self.same: dict[int, list[int]] = {}
        """From each to those that check the same value."""
        self.path: set[int] = set()
        self.height = 0
        self.recursive = False

    def cost(self) -> _Cost:
        """What the schema makes of a value; SchemaError if that is without bounds."""
        self.walk(self.schema, self.schema, (None, "#"))
        try:
            work, _, _ = self.weigh(self.schema)
        except RecursionError:
            raise SchemaError(
                "The JSON schema is nested too deeply; a lower limits.schema_depth tells where"
            ) from None
        if work > self.limits.schema_nodes:
            raise SchemaError(
                f"The JSON schema checks a value more than {self.limits.schema_nodes:,} "
                "times, its references followed "
                "(limits.schema_nodes): refer to large definitions less often"
            )
        self.no_circles()
        nodes = [self.nodes[key] for key in self.weights]
        ways = max([1, *(ways for _, ways, _ in self.weights.values())])
        branches = [
            branch
            for node in nodes
            for keyword in ("anyOf", "oneOf")
            for _, branch in _inside(keyword, node)
        ]
        # If the first error is that no alternative fits, it holds all errors of each.
        first = inf if ways == 1 and not branches else 20 * _MAX_ERRORS
        return _Cost(
            work=work,
            ways=ways,
            first=0 if any(self.weigh(branch)[2] for branch in branches) else first,
            deepest=min(_MAX_DEPTH, _MAX_RECURSION // self.height) if self.recursive else None,
            patterns=sum(
                ("pattern" in node) + len(_inside("patternProperties", node)) for node in nodes
            ),
        )

    def walk(self, schema: Any, root: Any, place: "_Place") -> None:
        """Look at each subschema where it stands: how many, how deep, and what it refers to."""
        waiting = [(schema, root, place, 1)]
        while waiting:
            node, root, place, depth = waiting.pop()
            if not isinstance(node, dict) or id(node) in self.nodes:
                continue
            self.bound(depth, place)
            self.nodes[id(node)] = node
            if len(self.nodes) > self.limits.schema_nodes:
                most = f"{self.limits.schema_nodes:,} subschemas (limits.schema_nodes)"
                raise SchemaError(f"The JSON schema has more than {most}")
            _dialect(node)
            if isinstance(own := node.get("$id"), str) and not own.startswith("#"):
                root = node
            self.roots[id(node)] = root
            for keyword in ("$id", "$anchor", "$dynamicAnchor"):
                if isinstance(name := node.get(keyword), str):
                    self.anchors.setdefault((id(root), name.removeprefix("#")), []).append(node)
            for keyword in ("$ref", "$dynamicRef"):
                if (
                    isinstance(ref := node.get(keyword), str)
                    and not ref.startswith("#")
                    and not _metaschema(ref)
                ):
                    raise SchemaError(
                        f"`{_pointer((place, keyword))}`: {_shorten(ref)!r} is not followed, "
                        "since nothing is fetched; "
                        "put what it names under $defs and refer to #/$defs/…"
                    )
            for keyword in (*_CHECKING, *_CONTAINERS):
                for name, inner in _inside(keyword, node):
                    waiting.append((inner, root, ((place, keyword), name), depth + 1))

    def weigh(self, node: Any) -> tuple[int, int, bool]:
        """The weight of a subschema, its references followed."""
        if not isinstance(node, dict):
            return 1, 0, False
        if id(node) in self.path:
            self.recursive = True
            return 1, 1, True
        if id(node) not in self.weights:
            self.path.add(id(node))
            self.height = max(self.height, len(self.path))
            self.bound(len(self.path), (None, "with its references followed"))
            self.weights[id(node)] = self.weigh_parts(node)
            self.path.remove(id(node))
        return self.weights[id(node)]

    def weigh_parts(self, node: dict[str, Any]) -> tuple[int, int, bool]:
        self.nodes[id(node)] = node
        work, ways, many = 1, 0, False
        times = 3 if any(keyword in node for keyword in _REEVALUATING) else 1
        parts = {keyword: [inner for _, inner in _inside(keyword, node)] for keyword in _CHECKING}
        parts["allOf"] += self.targets(node)
        for keyword, together in _CHECKING.items():
            weights = [self.weigh(part) for part in parts[keyword]]
            if weights:
                work += times * together(weight[0] for weight in weights)
                ways += times * together(weight[1] for weight in weights)
                many |= keyword in _MANY_PARTS or any(weight[2] for weight in weights)
        self.same[id(node)] = [id(part) for keyword in _SAME_VALUE for part in parts[keyword]]
        return work, ways, many

    def targets(self, node: dict[str, Any]) -> list[Any]:
        """What a subschema refers to; for a dynamic reference all that it may turn out to be."""
        root = self.roots.get(id(node), self.schema)
        targets = []
        if isinstance(ref := node.get("$ref"), str):
            targets.append(_METASCHEMA if _metaschema(ref) else self.resolve(root, ref))
        if isinstance(ref := node.get("$dynamicRef"), str):
            targets += [
                named
                for (_, name), nodes in self.anchors.items()
                for named in nodes
                if name == ref[1:]
            ]
            targets += (
                [] if targets else [_METASCHEMA if _metaschema(ref) else self.resolve(root, ref)]
            )
        return targets

    def resolve(self, root: Any, ref: str) -> Any:
        """The subschema of the root that a reference like `#/$defs/a` or `#name` means."""
        from urllib.parse import unquote

        pointer = unquote(ref[1:])
        target = root
        try:
            if pointer and not pointer.startswith("/"):
                return self.anchors[id(root), pointer][0]
            for step in pointer.split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                target = target[int(step)] if isinstance(target, list) else target[step]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaError(
                f"The JSON schema refers to {_shorten(ref)!r}, but there is nothing"
            ) from None
        # A reference may make a subschema of what no keyword holds.
        self.walk(target, root, (None, ref))
        return target

    def bound(self, depth: int, place: "_Place") -> None:
        if depth > self.limits.schema_depth:
            most = f"{self.limits.schema_depth} levels deep (limits.schema_depth)"
            raise SchemaError(f"The JSON schema is nested more than {most}: {_pointer(place)}")

    def no_circles(self) -> None:
        """Refuse what checks a value by checking the same value."""
        from graphlib import CycleError, TopologicalSorter

        try:
            TopologicalSorter(self.same).prepare()
        except CycleError as error:
            circle = (self.nodes.get(key, {}) for key in error.args[1])
            ref = next(
                (ref for node in circle if (ref := node.get("$ref") or node.get("$dynamicRef"))),
                "#",
            )
            why = f"{_shorten(ref)!r} leads back without going into the value"
            raise SchemaError(f"The JSON schema runs in a circle: {why}") from None


_METASCHEMA: Final[dict[str, Any]] = {}
"""Stands for the schema of schemas, which the engine has on board: recursive, by more than one
way."""
_METASCHEMA.update(items=_METASCHEMA, contains=_METASCHEMA, anyOf=[{"items": _METASCHEMA}])


def _metaschema(ref: str) -> bool:
    return ref.removesuffix("#") in _DIALECTS


def _inside(keyword: str, node: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The subschemas that a keyword holds, each with its name or number in there."""
    held = node.get(keyword)
    if isinstance(held, list):
        return list(enumerate(held))
    if isinstance(held, dict) and keyword in _BY_NAME:
        return list(held.items())
    return [] if held is None else [(None, held)]


_Place: TypeAlias = tuple[Any, Any]
"""The place around it, and the last step to it. Spelled out only where it is needed: names may be
long."""


def _pointer(place: _Place | None) -> str:
    steps = []
    while place is not None:
        place, step = place
        steps.append(step)
    return _shorten("/".join(str(step) for step in reversed(steps) if step is not None))


# --------------------------------------------------------------------------------------------------
# in words


def _levels(value: Any) -> Iterator[list[Any]]:
    """The value, then the parts of it, then theirs."""
    level = [value]
    while level:
        yield level
        level = [
            part
            for whole in level
            if isinstance(whole, dict | list | tuple)
            for part in (whole.values() if isinstance(whole, dict) else whole)
        ]


def _reasons(error: Any) -> list[tuple[list[str | int], str]]:
    """An error as places and sentences: where no alternative fits, what is wrong with the one that
    was meant."""
    branches = getattr(error.kind, "context", None)
    if branches and all(branches):
        telling = [[inner for inner in branch if _adds_detail(inner, error)] for branch in branches]
        meant = [branch for branch, tellers in zip(branches, telling, strict=True) if not tellers]
        depths = [min(len(inner.instance_path) for inner in branch) for branch in meant]
        if depths.count(max(depths, default=0)) == 1:
            # The only one, or the one that went wrong furthest down.
            return [
                reason for inner in meant[depths.index(max(depths))] for reason in _reasons(inner)
            ]
        first = [tellers[0] for tellers in telling if tellers]
        if not meant and all(teller.instance_path == first[0].instance_path for teller in first):
            expected = dict.fromkeys(
                text for teller in first for text in _DETAIL_KEYWORDS[teller.kind.name](teller.kind)
            )
            return [
                (
                    first[0].instance_path,
                    f"{_shorten(_json(first[0].instance))} is not {' or '.join(expected)}",
                )
            ]
    if error.kind.name == "falseSchema":
        # The engine's own words speak of schemas; and its place is that of the object, not the
        # property.
        what = (
            "no properties are"
            if error.schema_path[-1:] == ["additionalProperties"]
            else "nothing is"
        )
        return [(error.instance_path, f"{what} allowed here")]
    return [(error.instance_path, _shorten(error.message))]


_DETAIL_KEYWORDS: dict[str, Callable[[Any], list[str]]] = {
    "type": lambda kind: [f'of type "{name}"' for name in kind.types],
    "const": lambda kind: [_json(kind.expected_value)],
    "enum": lambda kind: [_json(option) for option in kind.options],
}
"""The keywords that tell alternatives apart, and what each expects."""


def _adds_detail(inner: Any, error: Any) -> bool:
    """Whether this says that the alternative is for other values: by their type, or a constant such
    as their "kind"."""
    down = len(inner.instance_path) - len(error.instance_path)
    return inner.kind.name in _DETAIL_KEYWORDS and down <= (inner.kind.name == "const")


def _message(error: Any) -> str:
    """What is wrong with a schema, as a sentence."""
    path, problem = _reasons(error)[0]
    if error.kind.name == "format":
        problem = (
            "this pattern cannot be used. Patterns are matched in linear time: they have no "
            "look-around and no "
            "back-references, and must not be too large (use maxLength for long strings)"
        )
    return (
        f"The JSON schema cannot be used: `{_shorten('/'.join(['#', *map(str, path)]))}`: {problem}"
    )


def _place(path: list[str | int]) -> str:
    return "$" + "".join(
        f".{step}" if str(step).isidentifier() else f"[{_json(step)}]" for step in path
    )


def _json(value: Any) -> str:
    from json import dumps

    return dumps(value, ensure_ascii=False, default=str)


def _shorten(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:100]} … {text[-190:]}"
