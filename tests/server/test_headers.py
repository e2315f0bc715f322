"""Tool parameters that are mirrored into HTTP headers: the note, the keyword in the schema, and
what calls say in them."""

import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field

from dovetail import Context, Header, Server
from dovetail.errors import SchemaError
from dovetail.protocol.header_params import HeaderParam, find_header_params
from dovetail.server.tools import compile_tool
from dovetail.testing import Tape, pair
from tests.spec import REVISIONS, check_tape


class Zone(Enum):
    NORTH = "north"
    SOUTH = "south"


class Place(msgspec.Struct):
    region: Annotated[str, Header("Region")]
    zone: Annotated[str, Header("Zone")] | None = None


class Model(BaseModel):
    region: Annotated[str, Header("Region")]
    zone: Annotated[str | None, Header("Zone")] = None


def property_(hint: Any, *default: Any) -> dict[str, Any]:
    """The schema of a parameter with this annotation, which must be a mirror."""

    def tool(it: hint) -> None: ...

    tool.__defaults__ = default
    made = compile_tool(tool, Context, {})
    assert [(mirror.name, mirror.path) for mirror in made.header_params] == [("It", ("it",))]
    found: dict[str, Any] = made.definition.input_schema["properties"]["it"]
    return found


def refused(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        Server("s").add_tool(function, **options)
    return str(caught.value)


# --------------------------------------------------------------------------------------------------
# the note


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Annotated[str, Header("It")], {"type": "string"}),
        (Annotated[int, Header("It")], {"type": "integer"}),
        (Annotated[bool, Header("It")], {"type": "boolean"}),
        (Annotated[Zone, Header("It")], {"type": "string", "enum": ["north", "south"]}),
        (Annotated[Literal["a", "b"], Header("It")], {"type": "string", "enum": ["a", "b"]}),
        (Annotated[str, "Where.", Header("It")], {"type": "string", "description": "Where."}),
        (Annotated[int, msgspec.Meta(ge=1), Header("It")], {"type": "integer", "minimum": 1}),
        (
            Annotated[str, Header("It"), msgspec.Meta(extra_json_schema={"x-a": 1})],
            {"type": "string", "x-a": 1},
        ),
        (
            Annotated[str, Field(description="Where."), Header("It")],
            {"type": "string", "description": "Where."},
        ),
        (Annotated[int, Header("It"), Field(ge=1)], {"type": "integer", "minimum": 1}),
    ],
)
def test_the_keyword_stands_beside_the_type(hint: Any, schema: dict[str, Any]) -> None:
    assert property_(hint) == schema | {"x-mcp-header": "It"}


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[str | None, Header("It")],
        Annotated[str, Header("It")] | None,
        None | Annotated[str, Header("It")],
        Annotated[str | None, Field(), Header("It")],
        Annotated[str, Field(), Header("It")] | None,
    ],
)
def test_an_optional_one_is_listed_as_a_plain_type_since_clients_leave_out_other_tools(
    hint: Any,
) -> None:
    assert property_(hint, None) == {"type": "string", "x-mcp-header": "It"}


def test_a_default_is_told() -> None:
    assert property_(Annotated[int, Header("It")], 3) == {
        "type": "integer",
        "default": 3,
        "x-mcp-header": "It",
    }
    by_field = property_(Annotated[int | None, Header("It")], Field(3, ge=1))
    assert by_field == {"type": "integer", "minimum": 1, "default": 3, "x-mcp-header": "It"}


def test_a_shared_definition_is_written_in_place() -> None:
    def tool(
        it: Annotated[Zone, Field(title="A"), Header("It")],
        other: Annotated[Zone, Field(title="B")],
    ) -> None: ...

    made = compile_tool(tool, Context, {})
    assert [mirror.path for mirror in made.header_params] == [("it",)]
    assert made.definition.input_schema["properties"]["it"]["type"] == "string"
    assert made.definition.input_schema["properties"]["other"]["$ref"] == "#/$defs/Zone"


@pytest.mark.parametrize("kind", [Place, Model])
def test_a_field_of_an_object_can_be_mirrored(kind: Any) -> None:
    def tool(where: kind) -> None: ...

    assert compile_tool(tool, Context, {}).header_params == (
        HeaderParam("Region", ("where", "region"), "string"),
        HeaderParam("Zone", ("where", "zone"), "string"),
    )


def test_a_schema_that_was_given_stays_as_it_is() -> None:
    given = {
        "type": "object",
        "properties": {"n": {"type": "integer", "x-mcp-header": "N", "title": "N"}},
    }
    made = compile_tool(lambda n: n, Context, {"name": "tool", "schema": given})
    assert made.definition.input_schema is given
    assert made.header_params == (HeaderParam("N", ("n",), "integer"),)


def test_an_ordinary_tool_has_none_and_loads_nothing_for_it() -> None:
    code = """if True:
        import sys
        from dovetail import Context
        from dovetail.server.tools import compile_tool
        def tool(x: int, y: str = "") -> str: ...
        assert compile_tool(tool, Context, {}).header_params == ()
        assert "dovetail.protocol.header_params" not in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_tool_is_listed_and_called_in_every_revision(revision: str) -> None:
    server, tape = Server("s"), Tape()

    @server.tool
    def where(
        region: Annotated[str, Header("Region")], zone: Annotated[str | None, Header("Zone")] = None
    ) -> str:
        return f"{region}/{zone}"

    async with pair(server, revision=revision, record=tape) as client:
        (listed,) = await client.list_tools()
        assert listed.input_schema["properties"]["region"] == {
            "type": "string",
            "x-mcp-header": "Region",
        }
        assert (await client.call_tool("where", {"region": "north"})).text == "north/None"
        assert (
            await client.call_tool("where", {"region": "north", "zone": None})
        ).text == "north/None"
    check_tape(tape, revision)


# --------------------------------------------------------------------------------------------------
# wrong use


def a_number(x: Annotated[float, Header("X")]) -> None: ...
def a_list(x: Annotated[list[str], Header("X")]) -> None: ...
def a_choice(x: Annotated[str | int, Header("X")]) -> None: ...
def anything(x: Annotated[Any, Header("X")]) -> None: ...
def inside_a_list(x: list[Annotated[str, Header("X")]]) -> None: ...
def shared(a: Place, b: Place) -> None: ...
def twice(x: Annotated[str, Header("Same")], y: Annotated[str, Header("same")]) -> None: ...
def nameless(x: Annotated[str, Header]) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (a_number, "Tool 'a_number': 'x' cannot be sent in the header 'X': its type "
                   "must be string, integer or "
                   "boolean, not number"),
        (a_list, "Tool 'a_list': 'x' cannot be sent in the header 'X': its type must be "
                 "string, integer or "
                 "boolean, not array"),
        (a_choice, "Tool 'a_choice': 'x' cannot be sent in the header 'X': its type "
                   "must be string, integer or "
                   "boolean"),
        (anything, "Tool 'anything': 'x' cannot be sent in the header 'X': its type "
                   "must be string, integer or "
                   "boolean"),
        (inside_a_list, "Tool 'inside_a_list': 'x.items' cannot be sent in the header "
                        "'X': it must be reachable through properties alone, without "
                 "$ref, arrays or alternatives"),
        (shared, "Tool 'shared': '$defs.Place.region' cannot be sent in the header "
                 "'Region': it must be reachable through properties alone, without "
                 "$ref, arrays or alternatives"),
        (twice, "Tool 'twice': 'x' and 'y' cannot use the same header 'same'"),
        (nameless, 'nameless cannot have the parameter x: Header requires a header name, '
                   'such as Header("Region")'),
    ],
)  # fmt: skip
def test_wrong_use_is_refused_at_registration(function: Any, problem: str) -> None:
    assert refused(function) == problem


@pytest.mark.parametrize("name", ["", " ", "A B", "A:B", "Ä", "A\r\nX: y", "A\x00", "(A)", None, 3])
def test_a_name_that_no_header_can_have_is_refused(name: Any) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": name}}}
    told = (
        f"Tool 'tool': 'x' cannot be sent in the header {str(name)!r}: a header "
        "name consists of letters"
    )
    assert refused(lambda x: x, name="tool", schema=schema).startswith(told)


# --------------------------------------------------------------------------------------------------
# schemas from elsewhere

MARKED = {"type": "string", "x-mcp-header": "X"}


@pytest.mark.parametrize(
    "schema",
    [
        MARKED,
        {"items": MARKED},
        {"prefixItems": [MARKED]},
        {"anyOf": [{"properties": {"x": MARKED}}]},
        {"not": {"properties": {"x": MARKED}}},
        {"if": {}, "then": {"properties": {"x": MARKED}}},
        {"$defs": {"A": MARKED}, "properties": {"x": {"$ref": "#/$defs/A"}}},
        {"definitions": {"A": {"properties": {"x": MARKED}}}},
        {"patternProperties": {"x": MARKED}},
        {"additionalProperties": MARKED},
        {"properties": {"x": {"anyOf": [MARKED, {"type": "null"}]}}},
        {"properties": {"x": {"items": {"properties": {"y": MARKED}}}}},
        {"properties": {"x": MARKED | {"type": ["string", "null"]}}},
        {"properties": {"x": MARKED | {"type": "null"}}},
        {"properties": {"x": {"x-mcp-header": "X"}}},
        {"properties": {"x": MARKED, "y": {"properties": {"z": MARKED | {"x-mcp-header": "x"}}}}},
    ],
)
def test_a_keyword_in_the_wrong_place_spoils_the_tool(schema: dict[str, Any]) -> None:
    with pytest.raises(
        SchemaError, match=r"cannot be sent in the header|cannot use the same header"
    ):
        find_header_params({"type": "object"} | schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        None,
        [],
        {"properties": {"x-mcp-header": {"type": "string"}}},
        {"default": {"x-mcp-header": "X"}, "examples": [MARKED], "const": MARKED, "enum": [MARKED]},
        {"example": MARKED, "x-of-ours": {"properties": {"x": MARKED}}},
        {"properties": [MARKED], "required": "x", "items": 3},
    ],
)
def test_what_only_looks_like_it_is_none(schema: Any) -> None:
    assert find_header_params(schema) == ()


def test_a_schema_deeper_than_the_stack_is_read() -> None:
    schema: dict[str, Any] = MARKED
    for _ in range(3000):
        schema = {"properties": {"x": schema}}
    (mirror,) = find_header_params(schema)
    assert len(mirror.path) == 3000


# --------------------------------------------------------------------------------------------------
# what a call says


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"where": {"region": "north"}}, "north"),
        ({"where": {"region": ""}}, ""),
        ({"where": {"region": None}}, None),
        ({"where": {"zone": "north"}}, None),
        ({"where": None}, None),
        ({"where": "region"}, None),
        ({"region": "north"}, None),
        ({}, None),
        (None, None),
        (["where"], None),
    ],
)
def test_a_value_is_read_at_its_very_path(arguments: Any, value: Any) -> None:
    mirror = HeaderParam("Region", ("where", "region"), "string")
    assert mirror.value(arguments) == value
    assert mirror.header == b"mcp-param-region"
