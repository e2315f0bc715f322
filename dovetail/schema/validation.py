"""Validate values against JSON schemas from other programs. Only this module imports jsonschema_rs.

Both the schema and the value may be hostile, but the engine, though fast, trusts both of them. So a
schema is surveyed first, as a graph whose edges are subschemas and references:

- Its nesting, its number of subschemas, and the *work* that it causes for one value must be
  bounded. Twenty definitions that each refer to the next one twice cause a million checks of the
  same value, so references are followed when the work is counted. A circular reference counts once,
  because the engine remembers the schemas that it has visited. A circular reference that applies to
  the same value (`{"$ref": "#"}`) is meaningless and is refused.
- It must be complete, because other documents are never fetched.

The engine decides whether a value is valid in time that is linear in the size of the value. But the
engine recurses into the value, and a stack overflow would end the process. So if the schema is
recursive, the depth of the value is checked first. Explaining a failure can be very expensive:
gigabytes of errors for a long list, or exponential time for a recursive schema with alternatives.
So the engine is asked for reasons only if finding them is cheap.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
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
"""The accepted values of `$schema`, starting with the default, and the engine's class for each
value."""

_SAME_VALUE = (
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies",
)  # fmt: skip
"""Keywords with subschemas that apply to the value itself."""
_OTHER_PARTS = ("properties", "prefixItems", "items")
"""Keywords with subschemas that each apply to a different part of the value."""
_ANY_PARTS = (
    "additionalItems", "contains", "patternProperties", "additionalProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
"""Keywords with subschemas that apply to parts of the value, possibly to the same part."""
_CHECKING: dict[str, Callable[[Iterable[int]], int]] = {
    **dict.fromkeys((*_SAME_VALUE, *_ANY_PARTS), sum),
    **dict.fromkeys(_OTHER_PARTS, max),
}
"""Keywords with subschemas that are checked, and the way in which their work adds up."""
_REEVALUATING = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords that make the engine check the other keywords of the same schema again."""
_MANY_PARTS = {"items", *_ANY_PARTS}
"""Keywords that apply to any number of parts."""
_CONTAINERS = ("$defs", "definitions", "contentSchema")
"""Keywords with subschemas that only references use."""
_BY_NAME = {
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
}
"""Keywords whose subschemas have names."""

_MAX_RECURSION: Final = 2048
"""The number of recursion steps that fit into half a megabyte of stack."""
_MAX_DEPTH: Final = 250
"""The number of nesting levels in a value beyond which the engine gives up."""
_MAX_PATTERN_BYTES: Final = 128 * KIB
"""The size limit for one compiled pattern. Matching time is linear in the length of the string and
in this size (up to 3 µs per character)."""
_MAX_ALL_PATTERNS_BYTES: Final = 8 * MIB
"""The size limit for all compiled patterns together."""
_MAX_ERRORS: Final = 100_000
"""The limit on errors that the engine produces to find reasons; producing this many takes about a
second."""


class SchemaMismatch(ValueError):
    """A value that does not match its schema. `.problems` holds one sentence for each problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _Cost(Struct, frozen=True):
    """The cost of checking a value against a schema."""

    work: int
    """How many times the schema checks the value and, along any one path, its parts."""
    ways: int
    """How many times the schema refers back to itself; if more than once, the cost of finding
    reasons is exponential in the depth."""
    first: float
    """Finding the first reason is cheap if the total cost of all reasons does not exceed this
    value."""
    deepest: int | None
    """How many levels a value may have if the schema is recursive."""
    patterns: int
    """The number of regular expressions in the schema."""


class Validator(Struct, frozen=True, eq=False):
    """A compiled schema."""

    _engine: Any
    _cost: _Cost

    def problems(self, value: Any, at_most: int = 5) -> list[str]:
        """Return the problems in the value and their paths, in words that a model can act on."""
        deepest = self._cost.deepest
        try:
            if deepest is not None and any(islice(_levels(value), deepest, None)):
                return [f"`$`: is nested more than {deepest} levels deep"]
            if self._engine.is_valid(value):
                return []
            reasons = [reason for error in self._errors(value) for reason in _reasons(error)]
        except (ValueError, TypeError, OverflowError) as error:
            # The engine's own limits: depth, types that JSON does not have, half a surrogate pair.
            return [f"`$`: cannot be checked: {error}"]
        words = list(dict.fromkeys(f"`{_place(path)}`: {message}" for path, message in reasons))
        return words[:at_most] or [
            "`$`: does not match the schema; the value is too large or too deeply nested to "
            "locate the problem"
        ]

    def check(self, value: Any) -> None:
        """Raise SchemaMismatch if the value does not match."""
        problems = self.problems(value)
        if problems:
            raise SchemaMismatch(problems)

    def _errors(self, value: Any) -> list[Any]:
        """Return all reasons from the engine, only the first reason, or none, depending on their
        cost."""
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
    """Compile a schema; raise a SchemaError that names the part that cannot be used."""
    import jsonschema_rs

    if not isinstance(schema, dict | bool):
        raise SchemaError(
            f"A JSON schema must be an object or a boolean, not {type(schema).__name__}"
        )
    engine = getattr(jsonschema_rs, _DIALECTS[_dialect(schema)])
    cost = _SchemaSurvey(schema, limits).cost()
    size = min(_MAX_PATTERN_BYTES, max(8 * KIB, _MAX_ALL_PATTERNS_BYTES // max(cost.patterns, 1)))
    try:
        compiled = engine(
            schema,
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=size
            ),  # an engine that never backtracks
            retriever=_refuse_network,
            validate_formats=False,
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(_message(error)) from None
    except (ValueError, TypeError, OverflowError, jsonschema_rs.ReferencingError) as error:
        raise SchemaError(f"The JSON schema cannot be used: {error}") from None
    return Validator(compiled, cost)


@lru_cache(1024)
def is_usable_pattern(pattern: str) -> bool:
    """Return whether a regular expression can be matched in linear time, so that a schema may have
    it.

    Args:
        pattern: The regular expression.
    """
    try:
        compile({"pattern": pattern})
    except SchemaError:
        return False
    return True


def _dialect(schema: Schema) -> str:
    given = schema.get("$schema") if isinstance(schema, dict) else None
    name = next(iter(_DIALECTS)) if given is None else str(given).removesuffix("#")
    if name not in _DIALECTS:
        raise SchemaError(
            f"The JSON Schema dialect {given!r} is not supported; use one of {', '.join(_DIALECTS)}"
        )
    return name


def _refuse_network(uri: str) -> Any:
    # A second line of defence: the survey has already refused every schema that leads here.
    raise ValueError(f"The document {uri} is not fetched")


# --------------------------------------------------------------------------------------------------
# the survey


class _SchemaSurvey:
    """A walk through a schema, which raises SchemaError if the schema is unbounded or
    incomplete."""

    def __init__(self, schema: Schema, limits: Limits) -> None:
        self.limits = limits
        self.schema = schema
        self.nodes: dict[int, dict[str, Any]] = {}
        """The subschemas by identity."""
        self.roots: dict[int, Any] = {}
        """For each subschema, the root of its references: the whole schema, or an enclosing
        subschema with its own $id."""
        self.anchors: dict[tuple[int, str], list[Any]] = {}
        """Subschemas by root and name."""
        self.weights: dict[int, tuple[int, int, bool]] = {}
        """For each subschema, the work that it causes, the number of its references back to itself,
        and whether it applies to any number of parts."""
        self.same: dict[int, list[int]] = {}
        """Edges to subschemas that check the same value."""
        self.path: set[int] = set()
        self.height = 0
        self.recursive = False

    def cost(self) -> _Cost:
        """Return the cost of the schema. Raise SchemaError if it is unbounded."""
        self.walk(self.schema, self.schema, (None, "#"))
        try:
            work, _, _ = self.weigh(self.schema)
        except RecursionError:
            raise SchemaError(
                "The JSON schema is nested too deeply; lower limits.schema_depth to find the place"
            ) from None
        if work > self.limits.schema_nodes:
            raise SchemaError(
                "When its references are followed, the JSON schema checks a value more than "
                f"{self.limits.schema_nodes:,} times (limits.schema_nodes); refer to large "
                "definitions less often"
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
        # If the first error is that no alternative fits, it holds all errors of each alternative.
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
        """Visit each subschema: count it, check its depth, and collect its references."""
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
                        f"`{_pointer((place, keyword))}`: {_shorten(ref)!r} is not a local "
                        "reference, and other documents are not fetched; put its target under "
                        "$defs and refer to #/$defs/…"
                    )
            for keyword in (*_CHECKING, *_CONTAINERS):
                for name, inner in _inside(keyword, node):
                    waiting.append((inner, root, ((place, keyword), name), depth + 1))

    def weigh(self, node: Any) -> tuple[int, int, bool]:
        """Return the weight of a subschema, including the targets of its references."""
        if not isinstance(node, dict):
            return 1, 0, False
        if id(node) in self.path:
            self.recursive = True
            return 1, 1, True
        if id(node) not in self.weights:
            self.path.add(id(node))
            self.height = max(self.height, len(self.path))
            self.bound(len(self.path), (None, "when its references are followed"))
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
        """Return the targets of a subschema's references; for a dynamic reference, all possible
        targets."""
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
        """Return the subschema that a reference such as `#/$defs/a` or `#name` points to within the
        root."""
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
                f"The JSON schema refers to {_shorten(ref)!r}, which does not exist"
            ) from None
        # A reference may point to a part that is not under any keyword for subschemas.
        self.walk(target, root, (None, ref))
        return target

    def bound(self, depth: int, place: "_Place") -> None:
        if depth > self.limits.schema_depth:
            most = f"{self.limits.schema_depth} levels deep (limits.schema_depth)"
            raise SchemaError(f"The JSON schema is nested more than {most}: {_pointer(place)}")

    def no_circles(self) -> None:
        """Refuse a schema that checks a value by checking the same value again."""
        from graphlib import CycleError, TopologicalSorter

        try:
            TopologicalSorter(self.same).prepare()
        except CycleError as error:
            circle = (self.nodes.get(key, {}) for key in error.args[1])
            ref = next(
                (ref for node in circle if (ref := node.get("$ref") or node.get("$dynamicRef"))),
                "#",
            )
            why = f"{_shorten(ref)!r} refers back to itself without descending into the value"
            raise SchemaError(f"The JSON schema is circular: {why}") from None


_METASCHEMA: Final[dict[str, Any]] = {}
"""A stand-in for the metaschema, which is built into the engine and recursive in several ways."""
_METASCHEMA.update(items=_METASCHEMA, contains=_METASCHEMA, anyOf=[{"items": _METASCHEMA}])


def _metaschema(ref: str) -> bool:
    return ref.removesuffix("#") in _DIALECTS


def _inside(keyword: str, node: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return the subschemas that a keyword holds, each with its name or index."""
    held = node.get(keyword)
    if isinstance(held, list):
        return list(enumerate(held))
    if isinstance(held, dict) and keyword in _BY_NAME:
        return list(held.items())
    return [] if held is None else [(None, held)]


_Place: TypeAlias = tuple[Any, Any]
"""A place in a schema: a pair of the enclosing place and the last step. A place is formatted only
if needed, because names may be long."""


def _pointer(place: _Place | None) -> str:
    steps = []
    while place is not None:
        place, step = place
        steps.append(step)
    return _shorten("/".join(str(step) for step in reversed(steps) if step is not None))


# --------------------------------------------------------------------------------------------------
# in words


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield a value, then its parts, then the parts of its parts."""
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
    """Turn an error into paths and sentences. If no alternative fits, explain why the most likely
    one does not."""
    branches = getattr(error.kind, "context", None)
    if branches and all(branches):
        exclusions = [
            [inner for inner in branch if _adds_detail(inner, error)] for branch in branches
        ]
        candidates = [
            branch for branch, excluding in zip(branches, exclusions, strict=True) if not excluding
        ]
        depths = [min(len(inner.instance_path) for inner in branch) for branch in candidates]
        if depths.count(max(depths, default=0)) == 1:
            # The only candidate, or the one that failed furthest down.
            return [
                reason
                for inner in candidates[depths.index(max(depths))]
                for reason in _reasons(inner)
            ]
        first = [excluding[0] for excluding in exclusions if excluding]
        if not candidates and all(
            exclusion.instance_path == first[0].instance_path for exclusion in first
        ):
            expected = dict.fromkeys(
                text
                for exclusion in first
                for text in _DETAIL_KEYWORDS[exclusion.kind.name](exclusion.kind)
            )
            return [
                (
                    first[0].instance_path,
                    f"{_shorten(_json(first[0].instance))} is not {' or '.join(expected)}",
                )
            ]
    if error.kind.name == "falseSchema":
        # The engine's own message is about schemas, and its path names the object, not the
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
"""Keywords that distinguish alternatives, and the expected value for each keyword."""


def _adds_detail(inner: Any, error: Any) -> bool:
    """Return whether this error shows, by a type or a constant such as "kind", that the alternative
    is meant for other values."""
    down = len(inner.instance_path) - len(error.instance_path)
    return inner.kind.name in _DETAIL_KEYWORDS and down <= (inner.kind.name == "const")


def _message(error: Any) -> str:
    """Return a sentence that says why a schema cannot be used."""
    path, problem = _reasons(error)[0]
    if error.kind.name == "format":
        problem = (
            "this pattern cannot be used. Patterns are matched in linear time, so look-around, "
            "back-references and very large patterns are not supported (use maxLength for long "
            "strings)"
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
