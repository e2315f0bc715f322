"""JSON Schema checks: what they say, what they refuse, and that nothing hostile gets through to the
engine."""

import socket
import sys
import threading
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dovetail.errors import SchemaError
from dovetail.limits import Limits
from dovetail.schema.validation import SchemaMismatch, compile

NEWEST = "https://json-schema.org/draft/2020-12/schema"
DRAFT_07 = "http://json-schema.org/draft-07/schema"


def nested(levels: int, leaf: Any = None, key: str | None = None) -> Any:
    value = leaf
    for _ in range(levels):
        value = [value] if key is None else {key: value}
    return value


def definitions(target: str = "a0", **named: Any) -> dict[str, Any]:
    return {"$defs": named, "$ref": f"#/$defs/{target}"}


# --------------------------------------------------------------------------------------------------
# words


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (
            {"properties": {"days": {"type": "integer"}}},
            {"days": "three"},
            '`$.days`: "three" is not of type "integer"',
        ),
        (
            {"items": {"items": {"minimum": 3}}},
            [[], [3, 1]],
            "`$[1][1]`: 1 is less than the minimum of 3",
        ),
        ({"properties": {"a b": {"const": 1}}}, {"a b": 2}, '`$["a b"]`: 1 was expected'),
        ({"required": ["city"]}, {}, '`$`: "city" is a required property'),
        (
            {"properties": {"a": {"additionalProperties": False}}},
            {"a": {"x": 1}},
            "`$.a`: no properties are allowed here",
        ),
        (
            {"properties": {"a": True}, "additionalProperties": False},
            {"x": 1},
            "`$`: Additional properties are not allowed ('x' was unexpected)",
        ),
        ({"enum": ["a", "b"]}, "c", '`$`: "c" is not one of "a" or "b"'),
        ({"pattern": "^a+$"}, "b", '`$`: "b" does not match "^a+$"'),
        (False, 1, "`$`: nothing is allowed here"),
        ({"items": False}, [1], "`$[0]`: nothing is allowed here"),
        # alternatives: the reason of the one that was meant
        (
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "x",
            '`$`: "x" is not of type "integer" or of type "null"',
        ),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            ["a", 1],
            '`$[1]`: 1 is not of type "string"',
        ),
        (
            {
                "oneOf": [
                    {"properties": {"kind": {"const": kind}}, "required": [kind]}
                    for kind in ("a", "b")
                ]
            },
            {"kind": "b"},
            '`$`: "b" is a required property',
        ),
        (
            {
                "oneOf": [
                    {"properties": {"kind": {"const": kind}}, "required": [kind]}
                    for kind in ("a", "b")
                ]
            },
            {"kind": "c", "a": 1, "b": 1},
            '`$.kind`: "c" is not "a" or "b"',
        ),
        (
            {"anyOf": [{"required": ["a"]}, {"properties": {"b": {"items": {"type": "string"}}}}]},
            {"b": [1]},
            '`$.b[0]`: 1 is not of type "string"',
        ),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
            2,
            "`$`: 2 is valid under more than one of the schemas listed in the 'oneOf' keyword",
        ),
        (
            {"anyOf": [{"minimum": 5}, {"multipleOf": 2}]},
            3,
            "`$`: 3 is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
    ],
)
def test_a_problem_names_the_place_and_what_is_wrong(schema: Any, value: Any, words: str) -> None:
    assert compile(schema).problems(value) == [words]


def test_a_value_that_matches_has_no_problems() -> None:
    validator = compile(
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    )
    assert validator.problems({"n": 1}) == []
    validator.check({"n": 1})


def test_several_problems_come_together_up_to_a_bound() -> None:
    validator = compile({"items": {"type": "integer"}})
    assert len(validator.problems(["a"] * 20)) == 5
    assert len(validator.problems(["a"] * 20, at_most=2)) == 2


def test_check_raises_all_problems_in_one_error() -> None:
    with pytest.raises(SchemaMismatch, match=r'`\$\[0\]`: "a" .*; `\$\[1\]`: "b"') as caught:
        compile({"items": {"type": "integer"}}).check(["a", "b"])
    assert isinstance(caught.value, ValueError)
    assert len(caught.value.problems) == 2


def test_a_long_value_is_cut_and_the_reason_kept() -> None:
    (problem,) = compile({"type": "integer"}).problems("x" * 100_000)
    assert len(problem) < 400
    assert problem.endswith('is not of type "integer"')


def test_format_is_an_annotation() -> None:
    for dialect in (NEWEST, DRAFT_07):
        assert compile({"$schema": dialect, "format": "email"}).problems("not an address") == []


@pytest.mark.parametrize("value", [b"x", object(), {1: 2}, {"a": {2, 3}}, "\ud800"])
def test_what_json_does_not_have_is_a_problem(value: Any) -> None:
    (problem,) = compile({"type": "integer"}).problems(value)
    assert problem.startswith("`$`: ")


def test_numbers_beyond_64_bits_are_explained() -> None:
    (problem,) = compile({"anyOf": [{"type": "string"}, {"type": "null"}]}).problems(10**400)
    assert problem.endswith('is not of type "string" or of type "null"')


# --------------------------------------------------------------------------------------------------
# dialects


def test_without_a_dialect_it_is_the_newest() -> None:
    assert compile({"prefixItems": [{"type": "string"}]}).problems([1])


@pytest.mark.parametrize("end", ["", "#"])
def test_both_dialects_are_known_by_their_name(end: str) -> None:
    assert compile({"$schema": NEWEST + end, "prefixItems": [{"type": "string"}]}).problems([1])
    assert compile({"$schema": DRAFT_07 + end, "items": [{"type": "string"}]}).problems([1])
    assert compile(
        {
            "$schema": DRAFT_07 + end,
            "definitions": {"a": {"$id": "#n", "type": "null"}},
            "$ref": "#n",
        }
    ).problems(1)


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-04/schema#", "https://example.com/own", "", 7, ["x"]]
)
def test_any_other_dialect_is_refused_by_name(dialect: Any) -> None:
    for schema in ({"$schema": dialect}, {"properties": {"a": {"$schema": dialect}}}):
        with pytest.raises(SchemaError) as caught:
            compile(schema)
        assert repr(dialect) in str(caught.value)
        assert NEWEST in str(caught.value)
        assert DRAFT_07 in str(caught.value)


# --------------------------------------------------------------------------------------------------
# references

ELSEWHERE = [
    "http://127.0.0.1:{port}/x",
    "https://example.com/x#/a",
    "file:///etc/passwd",
    "other.json",
    "//host/x",
    "urn:x:y",
    "",
]


@pytest.mark.parametrize("ref", ELSEWHERE)
@pytest.mark.parametrize(
    "around",
    [
        lambda ref: {"$ref": ref},
        lambda ref: {"$dynamicRef": ref},
        lambda ref: {"$defs": {"unused": {"items": {"$ref": ref}}}},
        lambda ref: {"definitions": {"unused": {"not": {"$ref": ref}}}},
        lambda ref: {"properties": {"a": {"anyOf": [True, {"$ref": ref}]}}},
        lambda ref: {"dependentSchemas": {"a": {"$ref": ref}}},
        lambda ref: {"contentSchema": {"$ref": ref}},
        lambda ref: {"x-own": {"deep": {"$ref": ref}}, "$ref": "#/x-own/deep"},
        lambda ref: {"$schema": DRAFT_07, "dependencies": {"a": {"$ref": ref}}},
        lambda ref: {"$id": "http://example.com/", "$ref": ref},
    ],
)
def test_a_reference_to_elsewhere_is_refused_by_name_and_nobody_is_called(
    around: Any, ref: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        ref = ref.format(port=listener.getsockname()[1])
        with pytest.raises(SchemaError, match=r"[rR]ef`: .* is not a local reference") as caught:
            compile(around(ref))
        assert repr(ref) in str(caught.value)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_reference_within_data_is_data() -> None:
    assert (
        compile({"enum": [{"$ref": "http://x"}], "default": {"$ref": "http://x"}}).problems(
            {"$ref": "http://x"}
        )
        == []
    )
    assert (
        compile(
            {"properties": {"$ref": {"type": "string"}, "$schema": {"type": "string"}}}
        ).problems({"$ref": "x"})
        == []
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a b/c~": {"type": "null"}}, "$ref": "#/$defs/a%20b~1c~0"},
        {"$defs": {"a": {"$anchor": "here", "type": "null"}}, "$ref": "#here"},
        {"$defs": {"a": {"$dynamicAnchor": "here", "type": "null"}}, "$dynamicRef": "#here"},
        {
            "allOf": [True, {"type": "null"}],
            "not": {"$ref": "#/allOf/0"},
            "anyOf": [{"$ref": "#/allOf/1"}],
        },
        {"x-own": {"type": "null"}, "$ref": "#/x-own"},
        {
            "$defs": {"a": {"$id": "inner", "$defs": {"b": {"type": "null"}}, "$ref": "#/$defs/b"}},
            "$ref": "#/$defs/a",
        },
    ],
)
def test_references_within_the_schema_are_followed(schema: Any) -> None:
    assert compile(schema).problems("x") != []


@pytest.mark.parametrize("ref", ["#/$defs/no", "#no", "#/allOf/1", "#/allOf/x", "#/type/x"])
def test_a_reference_to_nothing_is_refused_by_name(ref: str) -> None:
    with pytest.raises(SchemaError, match="does not exist") as caught:
        compile({"type": "object", "allOf": [{"$ref": ref}]})
    assert ref in str(caught.value)


@pytest.mark.parametrize("dialect", [NEWEST, DRAFT_07, DRAFT_07 + "#"])
def test_the_schema_of_schemas_is_on_board(dialect: str) -> None:
    validator = compile({"$schema": dialect, "properties": {"schema": {"$ref": dialect}}})
    assert validator.problems({"schema": {"type": "object"}}) == []
    assert validator.problems({"schema": {"type": 7}}) != []
    assert "levels deep" in validator.problems({"schema": nested(100_000, {}, "not")})[0]


# -------------------------------------------------------------------------------------------------
# invalid schemas


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "integr"}, "#/type"),
        ({"properties": {"a": {"minLength": -1}}}, "#/properties/a/minLength"),
        ({"properties": []}, "#/properties"),
        ({"$defs": {"a": {"required": "x"}}}, "#/$defs/a/required"),
        ({"$ref": 5}, "#/$ref"),
        ({"$schema": DRAFT_07, "items": {"type": "x"}}, "#/items/type"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_place(schema: Any, place: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile(schema)
    assert f"`{place}`" in str(caught.value)


@pytest.mark.parametrize("schema", [None, [], "string", 3])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="object or a boolean"):
        compile(schema)


@pytest.mark.parametrize(
    "schema",
    [{"default": object()}, {"default": {1: 2}}, {"const": nested(10_000)}, {"title": "\ud800"}],
)
def test_a_schema_that_is_no_json_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="cannot be used"):
        compile(schema)


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {}
    schema["items"] = schema
    with pytest.raises(SchemaError):
        compile(schema)


# --------------------------------------------------------------------------------------------------
# bounds


def test_nesting_is_bounded_and_the_place_named() -> None:
    limits = Limits(schema_depth=8)
    compile(nested(7, {}, "items"), limits)
    with pytest.raises(SchemaError, match=r"schema_depth\): #/items/items"):
        compile(nested(8, {}, "items"), limits)
    with pytest.raises(SchemaError, match="schema_depth"):
        compile(nested(100_000, {}, "items"))


def test_nesting_through_references_is_bounded() -> None:
    chain = {f"a{i}": {"items": {"$ref": f"#/$defs/a{i + 1}"}} for i in range(2000)}
    with pytest.raises(SchemaError, match="references are followed"):
        compile(definitions(**chain, a2000={}))


def test_a_bound_that_python_cannot_follow_is_an_error_all_the_same() -> None:
    with pytest.raises(SchemaError, match="nested too deeply"):
        compile(nested(50_000, {}, "items"), Limits(schema_depth=1_000_000, schema_nodes=1_000_000))


def test_subschemas_are_bounded() -> None:
    limits = Limits(schema_nodes=100)
    compile({"properties": {f"p{i}": {} for i in range(99)}}, limits)
    with pytest.raises(SchemaError, match="more than 100 subschemas"):
        compile({"properties": {f"p{i}": {} for i in range(100)}}, limits)
    with pytest.raises(SchemaError, match="more than 100 subschemas"):
        compile({"$defs": {f"p{i}": {} for i in range(100)}}, limits)


def doubling(keyword: str, levels: int, wrap: Any = lambda ref: ref) -> dict[str, Any]:
    named = {f"a{i}": {keyword: [wrap({"$ref": f"#/$defs/a{i + 1}"})] * 2} for i in range(levels)}
    return definitions(**named, **{f"a{levels}": {"type": "string"}})


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize(
    "wrap", [lambda ref: ref, lambda ref: {"properties": {"x": ref}}, lambda ref: {"items": ref}]
)
def test_work_that_doubles_with_each_definition_is_refused(keyword: str, wrap: Any) -> None:
    compile(doubling(keyword, 4, wrap))
    with pytest.raises(SchemaError, match="schema_nodes"):
        compile(doubling(keyword, 15, wrap))


def test_the_same_definition_for_many_properties_is_no_extra_work() -> None:
    named = {
        f"a{i}": {"properties": {name: {"$ref": f"#/$defs/a{i + 1}"} for name in "bcdefghijk"}}
        for i in range(15)
    }
    assert compile(definitions(**named, a15={"type": "string"})).problems(nested(15, 1, "k")) != []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"if": {"$ref": "#"}},
        {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
        definitions("a", a={"anyOf": [{"$ref": "#/$defs/b"}]}, b={"not": {"$ref": "#/$defs/a"}}),
        # Each edge of this circle is first seen from within a part.
        definitions(
            "s",
            s={"items": {"$ref": "#/$defs/f"}, "not": {"$ref": "#/$defs/g"}},
            f={"items": {"$ref": "#/$defs/g"}, "$ref": "#/$defs/s"},
            g={"$ref": "#/$defs/f"},
        ),
    ],
)
def test_a_schema_that_runs_in_a_circle_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="circular"):
        compile(schema)


# --------------------------------------------------------------------------------------------------
# hostile


def seconds(check: Any) -> float:
    began = time.process_time()
    check()
    return time.process_time() - began


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(.*)*b", "^(?:x?a?b?){300}$"])
def test_a_hostile_pattern_does_not_freeze(pattern: str) -> None:
    validator = compile({"pattern": pattern, "patternProperties": {pattern: True}})
    assert seconds(lambda: validator.problems("a" * 50_000 + "!")) < 5
    assert seconds(lambda: validator.problems({"a" * 50_000 + "!": 1})) < 5


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", r"(a)\1", "(", "((a{100}){100}){100}", "(?:x?a?b?){2000}", "(?<=a)b"]
)
def test_a_pattern_that_needs_backtracking_or_too_much_room_is_refused_with_its_place(
    pattern: str,
) -> None:
    with pytest.raises(SchemaError, match="`#/properties/a/pattern`: this pattern"):
        compile({"properties": {"a": {"pattern": pattern}}})
    with pytest.raises(SchemaError, match=r"`#/patternProperties/.*`: this pattern"):
        compile({"patternProperties": {pattern: {}}})


def test_thousands_of_large_patterns_are_refused_together() -> None:
    compile({"pattern": "[a-z]{500}"})
    with pytest.raises(SchemaError, match="pattern"):
        compile({"anyOf": [{"pattern": f"[a-z]{{500}}{i}"} for i in range(5000)]})
    compile({"anyOf": [{"pattern": f"^[a-z]+{i}$"} for i in range(5000)]})


TREE = definitions(
    "n", n={"properties": {"v": {"type": "integer"}, "kids": {"items": {"$ref": "#/$defs/n"}}}}
)


@pytest.mark.parametrize("levels", [300, 10_000, 100_000])
@pytest.mark.parametrize(
    "schema",
    [TREE, {"items": {"$ref": "#"}}, {"type": "string"}, {"enum": [1]}, {"uniqueItems": True}],
)
def test_a_value_without_bottom_is_a_problem_or_fine_but_never_a_crash(
    schema: Any, levels: int
) -> None:
    validator = compile(schema)
    for value in (nested(levels), nested(levels, 1, "kids"), [nested(levels), nested(levels)]):
        assert all(isinstance(problem, str) for problem in validator.problems(value))
    assert "nested more than" in compile(TREE).problems(nested(levels, 1, "kids"))[0]


def test_deep_recursion_stays_within_a_small_stack() -> None:
    # Sixty schemas for each level of the value, which is as deep as it may be, in a thread of half
    # a megabyte.
    named = {
        f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"type": "object"}]} for i in range(28)
    }
    validator = compile(definitions(**named, a28={"properties": {"x": {"$ref": "#/$defs/a0"}}}))
    found: list[list[str]] = []

    def check() -> None:
        deepest = next(
            levels
            for levels in range(1000)
            if "levels deep" in str(validator.problems(nested(levels, {}, "x")))
        )
        found.append(validator.problems(nested(deepest - 1, {}, "x")))
        found.append(validator.problems(nested(deepest - 2, {"x": 1}, "x")))

    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found[0] == []
    assert 'is not of type "object"' in found[1][0]


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_recursive_schema_with_alternatives_answers_at_once(keyword: str) -> None:
    part = {"properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"]}
    validator = compile(definitions("n", n={keyword: [part, {**part, "title": "b"}]}))
    assert validator.problems({}) != []
    assert validator.problems(nested(2, {}, "x"))[0].startswith(
        "`$.x.x`" if keyword == "allOf" else "`$"
    )
    assert seconds(lambda: validator.problems(nested(100, {}, "x"))) < 1


def test_a_recursive_schema_that_comes_back_by_many_ways_answers_at_once() -> None:
    named = {
        f"a{i}": {
            "anyOf": [{"unevaluatedItems": {"$ref": f"#/$defs/a{k}"}} for k in range(5)],
            "type": "array",
        }
        for i in range(5)
    }
    validator = compile(definitions(**named))
    assert seconds(lambda: validator.problems(nested(30, 1))) < 5
    for keyword, many in (("items", 20), ("unevaluatedItems", 9)):
        named = {
            f"a{i}": {"anyOf": [{keyword: {"$ref": f"#/$defs/a{k}"}} for k in range(many)]}
            for i in range(many)
        }
        with pytest.raises(SchemaError, match="schema_nodes"):
            compile(definitions(**named))


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_what_is_gone_over_again_at_each_definition_is_refused(keyword: str) -> None:
    def chain(length: int) -> dict[str, Any]:
        named = {
            f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}], keyword: False}
            for i in range(length)
        }
        return definitions(
            **named, **{f"a{length}": {"properties": {"x": True}, "prefixItems": [True]}}
        )

    validator = compile(chain(5))
    assert validator.problems([1]) == validator.problems({"x": 1}) == []
    with pytest.raises(SchemaError, match="schema_nodes"):
        compile(chain(15))


def test_a_valid_part_with_exponential_reasons_does_not_hide_a_simple_one() -> None:
    part = {"properties": {"x": {"$ref": "#/$defs/n"}}}
    last = {"properties": {"y": False}}
    validator = compile(
        {"$defs": {"n": {"allOf": [part, part]}}, "allOf": [{"$ref": "#/$defs/n"}, last]}
    )
    assert seconds(lambda: validator.problems({**nested(100, {}, "x"), "y": 1})) < 1
    assert validator.problems({"x": {}, "y": 1}) == ["`$.y`: nothing is allowed here"]


@pytest.mark.parametrize(
    "items",
    [{"type": "integer"}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}],
    ids=["plain", "alternatives"],
)
def test_a_million_wrong_items_are_one_problem(items: Any) -> None:
    validator = compile({"properties": {"rows": {"items": items}}})
    for rows in (["x"] * 300_000, [1] * 300_000 + ["x"]):
        problems: list[str] = []
        assert (
            seconds(
                lambda rows=rows, problems=problems: problems.extend(
                    validator.problems({"rows": rows})
                )
            )
            < 5
        )
        (problem,) = problems
        assert problem.startswith(f"`$.rows[{rows.index('x')}]`: ")


def test_alternatives_over_a_million_wrong_items_are_one_problem() -> None:
    validator = compile({"anyOf": [{"items": {"type": "integer"}}, {"items": {"type": "null"}}]})
    for size in (100_000, 1_000_000):
        problems: list[str] = []
        assert (
            seconds(
                lambda size=size, problems=problems: problems.extend(
                    validator.problems(["x"] * size)
                )
            )
            < 1
        )
        assert problems == [
            "`$`: does not match the schema; the value is too large or too deeply nested to "
            "locate the problem"
        ]


def test_a_giant_string_is_not_copied_for_each_reason() -> None:
    validator = compile({"allOf": [{"maxLength": i} for i in range(1, 2000)]})
    assert seconds(lambda: validator.problems("x" * 5_000_000)) < 5


def test_giant_names_are_not_copied_for_each_subschema() -> None:
    for wrong in ({"type": "x"}, {"$ref": "x" * 1_000_000}, {"$ref": "#" + "x" * 1_000_000}):
        with pytest.raises(SchemaError) as caught:
            compile(
                {
                    "properties": {
                        "x" * 1_000_000: {"properties": {str(i): {**wrong} for i in range(5000)}}
                    }
                }
            )
        assert len(str(caught.value)) < 1000


# --------------------------------------------------------------------------------------------------
# properties

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYWORDS = st.sampled_from(
    [
        "$ref",
        "$id",
        "$schema",
        "$defs",
        "$anchor",
        "$dynamicRef",
        "$dynamicAnchor",
        "type",
        "properties",
        "items",
        "allOf",
        "anyOf",
        "not",
        "if",
        "then",
        "pattern",
        "patternProperties",
        "enum",
        "required",
        "dependencies",
        "prefixItems",
    ]
)
WORDS = st.sampled_from(
    ["#", "#/$defs/a", "#/items", "#a", "a", NEWEST, DRAFT_07, "string", "object", "array"]
)
SCHEMAS = st.recursive(
    JSON | WORDS,
    lambda inner: (
        st.dictionaries(KEYWORDS | st.just("a"), inner, max_size=4) | st.lists(inner, max_size=3)
    ),
    max_leaves=15,
)


@given(SCHEMAS, JSON)
def test_any_schema_is_refused_in_order_or_checks_any_value(schema: Any, value: Any) -> None:
    try:
        validator = compile(schema)
    except SchemaError:
        return
    assert all(problem.startswith("`$") for problem in validator.problems(value))


@given(JSON)
def test_a_value_matches_itself_as_a_constant(value: Any) -> None:
    assert compile({"const": value}).problems(value) == []


def test_the_engine_is_loaded_when_it_is_needed() -> None:
    import subprocess

    code = "import sys, dovetail.schema.validation; assert 'jsonschema_rs' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
