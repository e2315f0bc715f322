"""A form for every schema: what is filled in arrives at the server as JSON, exactly."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page

from .actions import call, choose, has, open_tool, repeated_arguments
from .harness import inspected
from .raw_server import object_of, tool, write_server

TREE = {
    "$ref": "#/$defs/a~1b~0c",
    "$defs": {
        "a/b~c": object_of(["name"], name={"type": "string"}, child={"$ref": "#/$defs/a~1b~0c"})
    },
}
SHAPE = {
    "oneOf": [
        object_of(["kind", "radius"], kind={"const": "circle"}, radius={"type": "number"}),
        object_of(["kind", "side"], kind={"const": "square"}, side={"type": "number"}),
    ]
}

NAMED = {"$anchor": "size", "enum": ["S", "M"]}


def nest(depth: int) -> dict[str, Any]:
    """Return a schema of required objects in objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = object_of(["a"], a=schema)
    return schema


SCHEMAS: dict[str, Any] = {
    "empty_values": object_of(
        text={"type": "string"}, maybe={"type": ["string", "null"]}, other={"type": "string"}
    ),
    "big_integer": object_of(["n"], n={"type": "integer", "minimum": 0}, x={"type": "number"}),
    "mixed_enum": object_of(pick={"enum": [1, "1", None, True, {"a": [1]}, 12345678901234567890]}),
    "constant": object_of(["version"], version={"const": 2}, name={"type": "string"}),
    "tree": TREE,
    "shape": object_of(["shape"], shape=SHAPE),
    "root_union": {
        "type": "object",
        "properties": {"always": {"type": "string"}},
        "anyOf": [
            object_of(["by_id"], by_id={"type": "integer"}),
            object_of(["by_name"], by_name={"type": "string"}),
        ],
    },
    "all_of": {
        "allOf": [
            object_of(["a"], a={"type": "string"}),
            {"$ref": "#/$defs/b"},
        ],
        "$defs": {"b": object_of(["b"], b={"type": "integer", "allOf": [{"minimum": 3}]})},
    },
    "union": object_of(value={"anyOf": [{"type": "string"}, {"type": "integer"}]}),
    "nullable": object_of(note={"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    "tuple": object_of(
        pair={
            "type": "array",
            "prefixItems": [{"type": "string"}, {"type": "integer"}],
            "items": {"type": "boolean"},
        }
    ),
    "patterns": {
        "type": "object",
        "patternProperties": {"^n_": {"type": "integer"}, "^s_": {"type": "string"}},
        "additionalProperties": False,
    },
    "booleans": object_of(anything=True, nothing=False, empty={}),
    "deep": nest(50),
    "wide": object_of([], **{f"field_{n:04}": {"type": "string"} for n in range(2000)}),
    "endless": {**object_of(["me"], me={"$ref": "#"})},
    "lost_reference": object_of(x={"$ref": "#/$defs/nowhere"}, y={"$ref": "https://e.example/s"}),
    "loop": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "true": True,
    "no_schema": {},
    "anchor": {**object_of(x={"$ref": "#size"}), "$defs": {"a": [], "b": NAMED}},
    "two_of_itself": object_of(["l", "r"], l={"$ref": "#"}, r={"$ref": "#"}),
    "very_long": object_of(["text"], text={"type": "string", "minLength": 10**12}),
    "required_true": {**object_of(a={"type": "string"}), "required": True},
    "wrong_groups": {
        "type": "object",
        "allOf": [{"properties": 5, "patternProperties": 5, "required": 5}, {"properties": "x"}],
    },
    "wrong": {"type": 7, "properties": [], "required": "all", "enum": None, "allOf": {}},
    "__proto__": object_of(__proto__={"type": "string"}, constructor={"type": "string"}),
}


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    """Return a server with a tool for each schema."""
    return write_server(tmp_path, [tool(name, schema) for name, schema in SCHEMAS.items()])


async def fill_and_call(page: Page, name: str, /, **fields: str) -> Any:
    await open_tool(page, name)
    for field, text in fields.items():
        await page.fill(f"#arguments--{field}", text)
    await call(page)
    return await repeated_arguments(page)


async def test_unset_null_and_the_empty_string_are_three_different_values(schemas: Path) -> None:
    async with inspected(schemas) as page:
        await open_tool(page, "empty_values")
        await page.click('[aria-label="Special values of text"] button', text='""')
        await page.click('[aria-label="Special values of maybe"] button', text="null")
        await call(page)
        assert await repeated_arguments(page) == {"text": "", "maybe": None}
        await page.click('[aria-label="Special values of text"] button', text="not set")
        await page.fill("#arguments--other", "x\ny")
        await call(page)
        assert await repeated_arguments(page) == {"maybe": None, "other": "x\ny"}


async def test_numbers_keep_every_digit(schemas: Path) -> None:
    async with inspected(schemas) as page:
        sent = await fill_and_call(
            page, "big_integer", n="123456789012345678901234567890", x="1.10"
        )
        assert sent == {"n": 123456789012345678901234567890, "x": 1.1}
        await page.fill("#arguments--n", "12a")
        await page.says("document.activeElement.blur()")
        await page.click(".middle .actions button", text="n: This is not an integer.")
        assert await page.says("document.activeElement.id") == "arguments--n"
        assert await page.says("document.querySelector('[data-key=c]').disabled")


async def test_choices_constants_and_unions(schemas: Path) -> None:
    async with inspected(schemas) as page:
        await open_tool(page, "mixed_enum")
        for label, value in [("1", 1), ('"1"', "1"), ("null", None), ('{"a":[1]}', {"a": [1]})]:
            await choose(page, "#arguments--pick", label)
            await call(page)
            assert await repeated_arguments(page) == {"pick": value}
        assert await fill_and_call(page, "constant", name="n") == {"version": 2, "name": "n"}

        await open_tool(page, "shape")
        await choose(page, "#arguments--shape-variant", 'kind: "square"')
        await page.fill("#arguments--shape--side", "1.5")
        await call(page)
        assert await repeated_arguments(page) == {"shape": {"kind": "square", "side": 1.5}}

        await open_tool(page, "union")
        await choose(page, "#arguments--value-variant", "integer")
        await page.fill("#arguments--value", "7")
        await call(page)
        assert await repeated_arguments(page) == {"value": 7}

        await open_tool(page, "root_union")
        await choose(page, "#arguments-variant", "with by_name")
        await page.fill("#arguments--always", "a")
        await page.fill("#arguments--by_name", "b")
        await call(page)
        assert await repeated_arguments(page) == {"always": "a", "by_name": "b"}

        assert await fill_and_call(page, "nullable", note="5") == {"note": 5}


async def test_an_example_is_shown_in_its_own_variant(schemas: Path) -> None:
    async with inspected(schemas) as page:
        for name, field, label, expected in (
            ("shape", "arguments--shape", 'kind: "square"', 'kind: "circle"'),
            ("root_union", "arguments", "with by_name", "with by_id"),
        ):
            await open_tool(page, name)
            await choose(page, f"#{field}-variant", label)
            shown = f"document.querySelector('#{field}-variant').selectedOptions[0].text"
            assert await page.says(shown) == label
            await page.click(".middle button.quiet", text="Fill in an example")
            assert await page.until(f"{shown} === {json.dumps(expected)}")


async def test_references_recursion_and_joined_schemas(schemas: Path) -> None:
    async with inspected(schemas) as page:
        await open_tool(page, "tree")
        await page.fill("#arguments--name", "root")
        await page.click("button.add", text="Add child")
        await page.fill("#arguments--child--name", "leaf")
        await call(page)
        assert await repeated_arguments(page) == {"name": "root", "child": {"name": "leaf"}}
        assert await fill_and_call(page, "all_of", a="x", b="4") == {"a": "x", "b": 4}
        await open_tool(page, "anchor")
        await choose(page, "#arguments--x", "M")
        await call(page)
        assert await repeated_arguments(page) == {"x": "M"}


async def test_tuples_and_keys_that_match_a_pattern(schemas: Path) -> None:
    async with inspected(schemas) as page:
        await open_tool(page, "tuple")
        await page.click("button.add", text="Add pair")
        for _ in range(3):
            await page.click("button.add", text="Add item")
        await page.fill("#arguments--pair--0", "x")
        await page.fill("#arguments--pair--1", "2")
        await choose(page, "#arguments--pair--2", "true")
        await call(page)
        assert await repeated_arguments(page) == {"pair": ["x", 2, True]}

        await open_tool(page, "patterns")
        await page.fill("#arguments-new", "n_a")
        await page.click(".add-key button")
        await page.fill("#arguments--n_a", "3")
        await page.fill("#arguments-new", "x")
        assert await page.until("document.querySelector('.add-key button').disabled")
        await call(page)
        assert await repeated_arguments(page) == {"n_a": 3}


async def test_schemas_that_allow_everything_nothing_or_make_no_sense(schemas: Path) -> None:
    async with inspected(schemas) as page:
        await open_tool(page, "booleans")
        assert await page.until(has("The schema allows no value here."))
        assert await fill_and_call(page, "booleans", anything='{"a": [1]}', empty="2") == {
            "anything": {"a": [1]},
            "empty": 2,
        }
        for name in (
            *("lost_reference", "loop", "true", "no_schema", "wrong", "endless"),
            *("required_true", "wrong_groups"),
        ):
            await open_tool(page, name)
            await call(page)
        assert await fill_and_call(page, "required_true", a="b") == {"a": "b"}
        assert await fill_and_call(page, "__proto__", __proto__="p", constructor="c") == {
            "__proto__": "p",
            "constructor": "c",
        }


async def test_2000_fields_and_50_levels_stay_usable(schemas: Path) -> None:
    async with inspected(schemas) as page:
        await open_tool(page, "wide")
        assert await page.says("document.querySelectorAll('.middle .field').length") < 100
        await page.fill(".middle input[type=search]", "field_1999")
        await page.fill("#arguments--field_1999", "last")
        await call(page)
        assert await repeated_arguments(page) == {"field_1999": "last"}

        await open_tool(page, "deep")
        await page.click(".middle button.quiet", text="Fill in an example")
        await page.until(f"document.querySelector('#arguments{'--a' * 50}')")
        await page.fill("#arguments" + "--a" * 50, "deep")
        await call(page)
        assert json.dumps(await repeated_arguments(page)).count('"a"') == 50
        await page.says("document.querySelector('.middle').scrollTo(0, 0)")
        to_result = "document.querySelector('.middle .actions button:has(.pill.done)')"
        await page.until(to_result)
        await page.says(f"{to_result}.click()")
        await page.until(f"{to_result} === null")
        top = "document.querySelector('.result').getBoundingClientRect().top"
        assert 0 < await page.says(top) < 700, "the result is in view"


async def test_json_can_be_edited_instead_and_errors_have_a_line_and_a_column(
    schemas: Path,
) -> None:
    async with inspected(schemas) as page:
        await open_tool(page, "big_integer")
        await page.fill("#arguments--n", "12345678901234567890")
        await page.click(".segments button", text="JSON")
        assert await page.until("document.querySelector('#arguments-json').value") == (
            '{\n  "n": 12345678901234567890\n}'
        )
        await page.fill("#arguments-json", '{\n  "n": 1,\n  oops\n}')
        assert await page.until(has("Line 3, column 3: expected a key in double quotes"))
        assert await page.says("document.querySelector('[data-key=c]').disabled")
        await page.fill("#arguments-json", '{"n": -5, "more": [1.0]}')
        assert await page.until(
            "document.querySelector('.problems')?.innerText.includes('minimum')"
        )
        await page.click(".segments button", text="Form")
        await call(page)
        assert await repeated_arguments(page) == {"n": -5, "more": [1.0]}


async def test_every_schema_can_be_filled_in_with_an_example(schemas: Path) -> None:
    async with inspected(schemas) as page:
        for name in SCHEMAS:
            await open_tool(page, name)
            await page.click(".middle button.quiet", text="Fill in an example")
            assert await page.says(f"{has('cannot be shown')}") is False, name
