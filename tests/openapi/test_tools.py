"""The tools that a description becomes: names, schemas, hints, and which operations are offered."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail import Server
from dovetail.errors import ConfigError, ToolError
from dovetail.openapi.names import tool_names
from dovetail.protocol.tools import MAX_NAME_CHARS
from dovetail.testing import pair

from .stage import PETSTORE, minimal, petstore, stage

BASE = "https://a.example"


def load(document: Any, **options: Any) -> Server:
    return Server.from_openapi(document, base_url=BASE, **options)


def names(server: Server) -> list[str]:
    return [tool.definition.name for tool in server._tools]


def schema_of(schema: Any, version: str = "3.1.0", **schemas: Any) -> dict[str, Any]:
    """What a schema of a body becomes: the input schema."""
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    document = minimal({"/a": {"post": {"operationId": "a", "requestBody": body}}}, version)
    document["components"] = {"schemas": schemas}
    found: dict[str, Any] = load(document)._http_apis[0].input_schema("a")
    return found


# names


def test_a_name_is_the_operation_id_or_the_method_and_the_path() -> None:
    assert tool_names(
        [
            ("listPets", "GET", "/pets"),
            ("repos/list for org", "GET", "/repos"),
            (None, "PUT", "/pets/{id}/photo"),
            (None, "GET", "/"),
            ("7up", "GET", "/7"),
        ]
    ) == ["listPets", "repos_list_for_org", "put_pets_id_photo", "get", "_7up"]


def test_a_long_name_ends_in_a_digest_and_stays_the_same() -> None:
    long = "a" * 100
    first, second = tool_names([(long + "1", "GET", "/1"), (long + "2", "GET", "/2")])
    assert len(first) == len(second) == MAX_NAME_CHARS and first != second
    assert tool_names([("b", "GET", "/b"), (long + "2", "GET", "/2")])[1] == second


def test_operations_with_the_same_id_have_different_names_that_do_not_depend_on_the_order() -> None:
    two = [("list", "GET", "/a"), ("List", "GET", "/b"), ("other", "GET", "/c")]
    found = tool_names(two)
    assert len({name.lower() for name in found}) == 3 and found[2] == "other"
    assert tool_names(two[::-1]) == found[::-1]


# descriptions and hints


async def test_tools_are_described_and_have_hints() -> None:
    async with stage() as one:
        tools = {tool.name: tool for tool in await one.client.list_tools()}
    assert tools["listPets"].title == "List pets"
    assert tools["listPets"].description == "Return the pets of the store, page by page."
    assert tools["createPet"].description == "Add a pet" and tools["createPet"].title is None
    assert tools["put_pets_id"].description == "PUT /pets/{id}"
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert hints["listPets"] and hints["listPets"].read_only_hint is True
    assert hints["hasPet"] and hints["hasPet"].read_only_hint is True
    assert hints["deletePet"] and hints["deletePet"].destructive_hint is True
    assert hints["put_pets_id"] and hints["put_pets_id"].idempotent_hint is True
    assert hints["createPet"] is None
    assert "internal" not in tools
    assert (one.server.name, one.server.info.version) == ("Petstore", "1.2.0")


def test_the_options_of_a_server_win() -> None:
    server = load(petstore(), name="pets", version="2")
    assert (server.name, server.info.version) == ("pets", "2")


# schemas


async def test_oneof_keeps_its_discriminator_and_exactly_one_alternative_matches() -> None:
    async with stage() as one:
        schema = await one.schema("createPet")
        assert schema["properties"]["body"]["discriminator"] == {
            "propertyName": "kind",
            "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
        }
        assert len(schema["properties"]["body"]["oneOf"]) == 2
        assert not (await one.call("createPet", body={"kind": "dog", "name": "Rex"})).is_error
        assert one.stub.received[0].values["body"] == {"kind": "dog", "name": "Rex"}
        assert (await one.call("createPet", body={"kind": "bird"})).is_error
        assert (await one.call("createPet", body={"name": "Rex"})).is_error


def test_alternatives_that_name_their_values_are_left_alone() -> None:
    branch = {"type": "object", "properties": {"kind": {"enum": ["CAT"]}}}
    schema = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}],
        "discriminator": {"propertyName": "kind"},
    }
    assert schema_of(schema, Cat=branch)["properties"]["body"]["oneOf"] == [{"$ref": "#/$defs/Cat"}]


@pytest.mark.parametrize(
    "old, new",
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"allOf": [{"type": "string"}], "nullable": True, "description": "d"},
            {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}], "description": "d"},
        ),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True},
         {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": False},
         {"type": "integer", "minimum": 1}),
        ({"type": "string", "example": "x", "xml": {}, "x-order": 1}, {"type": "string"}),
    ],
)  # fmt: skip
def test_keywords_of_3_0_become_json_schema(old: Any, new: Any) -> None:
    assert schema_of(old, "3.0.3")["properties"]["body"] == new


def test_mistakes_in_a_schema_do_not_make_the_tool_unusable() -> None:
    schema = {
        "type": "object",
        "required": True,
        "properties": {
            "a": {"type": "string", "required": True, "pattern": "(?=x)y", "maxLength": "10"},
            "b": {"type": "date"},
            "$ref": {"type": "string"},
            "readOnly": {"enum": []},
        },
    }
    assert schema_of(schema)["properties"]["body"] == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {},
            "$ref": {"type": "string"},
            "readOnly": {},
        },
    }


def test_recursive_schemas_are_kept_and_the_same_name_in_two_files_is_kept_apart(
    tmp_path: Path,
) -> None:
    for name in ("x", "y"):
        tree = {"Node": {"type": "object", "properties": {name: {"$ref": "#/Node"}}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    schema = {"type": "object", "properties": {n: {"$ref": f"{n}.json#/Node"} for n in ("x", "y")}}
    body = {"content": {"application/json": {"schema": schema}}}
    (tmp_path / "api.json").write_text(
        json.dumps(minimal({"/a": {"post": {"operationId": "a", "requestBody": body}}}))
    )
    found = load(tmp_path / "api.json")._http_apis[0].input_schema("a")
    assert found["$defs"] == {
        "Node": {"type": "object", "properties": {"x": {"$ref": "#/$defs/Node"}}},
        "Node_2": {"type": "object", "properties": {"y": {"$ref": "#/$defs/Node_2"}}},
    }


async def test_parameters_with_the_same_name_are_different_arguments() -> None:
    parameters = [
        {"name": "id", "in": "query", "schema": {"type": "integer"}},
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "body", "in": "query", "schema": {"type": "string"}},
    ]
    document = minimal({"/a/{id}": {"get": {"operationId": "a", "parameters": parameters}}})
    async with stage(document) as one:
        await one.call("a", id=1, id_path="x", body_query="y")
        values = {"query id": 1, "path id": "x", "query body": "y"}
        assert one.stub.received[0].values == values


async def test_a_parameter_that_only_the_path_names_is_an_argument() -> None:
    async with stage(minimal({"/a/{id}": {"get": {"operationId": "a"}}})) as one:
        assert (await one.schema("a"))["required"] == ["id"]
        assert not (await one.call("a", id=7)).is_error
        assert one.stub.received[0].raw_path == "/a/7"


# other versions and formats


def test_methods_of_3_2_are_offered() -> None:
    paths = {
        "/a": {
            "query": {"operationId": "ask"},
            "additionalOperations": {"LINK": {"operationId": "link"}},
        }
    }
    assert names(load(minimal(paths, "3.2.0"))) == ["ask", "link"]
    for method in ("CONNECT", "A B", "A\r\nB"):
        with pytest.raises(ConfigError, match="method"):
            load(minimal({"/a": {"additionalOperations": {method: {}}}}, "3.2.0"))


def test_a_description_may_be_yaml(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.0.3\n"
        "info: {title: Notes, version: 1.0.0}\n"
        "paths:\n"
        "  /notes/{id}:\n"
        "    get:\n"
        "      operationId: getNote\n"
        "      responses:\n"
        "        200: {description: A note}\n"
        "        404: {description: There is no such note}\n"
    )
    server = load(file)
    assert names(server) == ["getNote"]
    assert server._http_apis[0].operations["getNote"].replies["404"] == "There is no such note"
    file.write_text("a: [1\n")
    with pytest.raises(ConfigError, match=r"line 2, column 1"):
        load(file)


# which operations


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"include": ["tag:store"]}, ["placeOrder", "readFile"]),
        ({"include": "DELETE"}, ["deletePet"]),
        ({"include": ["/pets"]}, ["listPets", "createPet"]),
        ({"include": ["GET /pets*"], "exclude": ["*Photo"]}, ["listPets", "getPet"]),
        ({"include": ["get*", "put_pets_id"]}, ["getPet", "put_pets_id", "getPhoto"]),
    ],
)
def test_operations_are_chosen_by_tag_path_method_and_name(
    options: dict[str, Any], expected: list[str]
) -> None:
    assert names(load(petstore(), **options)) == expected


def test_a_pattern_that_matches_nothing_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"'tag:shop'. matches no operation"):
        load(petstore(), include=["tag:shop"])
    with pytest.raises(ConfigError, match="no operations"):
        load(petstore(), exclude=["/*"])


def test_x_mcp_decides_at_the_nearest_place() -> None:
    paths = {
        "/a": {"get": {"operationId": "a"}, "post": {"operationId": "b", "x-mcp": True}},
        "/b": {
            "x-mcp": True,
            "get": {"operationId": "c"},
            "post": {"operationId": "d", "x-mcp": False},
        },
    }
    assert names(load(minimal(paths) | {"x-mcp": False})) == ["b", "c"]
    assert names(load(minimal(paths))) == ["a", "b", "c"]


# large APIs


def large(count: int) -> dict[str, Any]:
    return minimal(
        {
            f"/things{i}/{{id}}": {
                "get": {
                    "operationId": f"getThing{i}",
                    "summary": f"Read thing number {i}" + (" with bananas" if i == 7 else ""),
                    "parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}],
                }
            }
            for i in range(count)
        }
    )


def test_more_than_40_operations_become_three_tools() -> None:
    assert len(names(load(large(40)))) == 40
    assert names(load(large(41))) == ["search", "describe", "call"]
    assert len(names(load(large(41), search=False))) == 41
    assert names(load(large(1), search=True)) == ["search", "describe", "call"]


async def test_operations_are_found_described_and_called() -> None:
    async with stage(large(41)) as one:
        assert "search" in (one.client.instructions or "")
        found = (await one.call("search", query="bananas")).data["operations"]
        assert found == [
            {
                "name": "getThing7",
                "request": "GET /things7/{id}",
                "summary": "Read thing number 7 with bananas",
            }
        ]
        described = (await one.call("describe", name="getThing7")).data
        assert described["input_schema"]["properties"] == {"id": {"type": "integer"}}
        result = await one.call("call", name="getThing7", arguments={"id": 3})
        assert result.data == {"operation": "getThing7"}
        assert one.stub.received[0].values == {"path id": 3}
        for arguments in ({}, {"id": "x"}, {"id": 1, "other": 2}):
            bad = await one.call("call", name="getThing7", arguments=arguments)
            assert bad.is_error and "not valid" in bad.text
        with pytest.raises(ToolError, match="Did you mean 'getThing7'"):
            await one.client.call_tool("describe", {"name": "getThingg7"})
        assert one.stub.count == 1


# other tools


async def test_a_server_of_an_api_may_have_tools_of_its_own() -> None:
    server = load(PETSTORE)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with pair(server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_a_server_of_an_api_can_be_mounted() -> None:
    async with stage() as one:
        outer = Server("outer")
        outer.mount(one.server, prefix="pets")
        async with pair(outer) as client:
            await client.call_tool("pets__getPet", {"id": "7"})
        assert one.stub.received[0].raw_path == "/pets/7"
