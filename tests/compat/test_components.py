"""Tools, prompts, resources and templates as objects."""

from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.compat import (
    FastMCP,
    FileResource,
    FunctionResource,
    FunctionTool,
    Prompt,
    Resource,
    ResourceTemplate,
    SDKFastMCP,
    TextResource,
    Tool,
    components,
    require_scopes,
)
from dovetail.errors import ConfigError


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


async def test_a_tool_is_made_of_a_function_and_can_be_added() -> None:
    tool = Tool.from_function(
        add, name="plus", title="Plus", tags={"math"}, annotations={"readOnlyHint": True}
    )
    assert isinstance(tool, Tool)
    assert isinstance(tool, FunctionTool)
    assert (tool.name, tool.title, tool.description, tool.key) == (
        "plus",
        "Plus",
        "Add two numbers.",
        "plus",
    )
    assert tool.parameters == tool.inputSchema == tool.input_schema
    assert tool.parameters["required"] == ["a"]
    assert (tool.output_schema or {})["required"] == ["result"]
    assert (tool.tags, tool.enabled, tool.fn, tool(2, 3)) == ({"math"}, True, add, 5)
    assert type(tool.to_mcp_tool(name="other")).__name__ == "Tool"
    result = await tool.run({"a": 1})
    assert (result.structuredContent, result.content[0].text) == ({"result": 2}, "2")
    server = FastMCP("s", tools=[tool])
    server.add_tool(Tool.from_tool(tool, name="sum", description="Sums."))
    async with Client(server) as client:
        listed = {each.name: each for each in await client.list_tools()}
        assert (listed["plus"].title, listed["sum"].description) == ("Plus", "Sums.")
        assert listed["sum"].annotations == {"readOnlyHint": True}
        assert (await client.call_tool("sum", {"a": 1})).data == 2


async def test_a_changed_copy_is_another_tool() -> None:
    server = FastMCP("s")
    server.add_tool(Tool.from_function(add).model_copy(update={"name": "other"}))
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["other"]


async def test_a_registered_tool_is_wrapped() -> None:
    server = FastMCP("s")
    server.tool(add, name="plus")
    (registered,) = server._tools
    tool = components.wrap(registered, server)
    assert (tool.name, tool.fn, tool.server) == ("plus", add, server)
    assert (await tool.run({"a": 1, "b": 1})).structured_content == {"result": 2}


async def test_a_class_with_its_own_run_is_a_tool() -> None:
    class Echo(Tool):  # type: ignore[misc, valid-type]
        async def run(self, arguments: dict[str, Any]) -> str:
            return f"{self.name} {arguments['text']}"

    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    server = FastMCP("s")
    server.add_tool(Echo(name="echo", description="Echo.", parameters=schema))
    async with Client(server) as client:
        (tool,) = await client.list_tools()
        assert (tool.name, tool.input_schema) == ("echo", schema)
        assert (await client.call_tool("echo", {"text": "a"})).text == "echo a"


def test_a_definition_without_a_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="Tool has no function"):
        FastMCP("s").add_tool(Tool(name="a", inputSchema={}))


async def test_prompts_and_resources_are_made_of_functions(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from a file")
    prompt = Prompt.from_function(greet, name="hello", tags={"a"})
    assert (await prompt.render({"name": "Ada"})).messages[0].content.text == "Hello Ada"
    template = ResourceTemplate.from_template(greet, uri_template="hello://{name}")
    assert (template.uriTemplate, await template.read(name="Ada")) == (
        "hello://{name}",
        "Hello Ada",
    )
    resource = Resource.from_function(lambda: "called", uri="x://called", name="called")
    assert isinstance(resource, FunctionResource)
    assert (resource.key, await resource.read()) == ("x://called", "called")
    server = FastMCP("s")
    server.add_prompt(prompt)
    server.add_resource(template)
    server.add_resource(resource)
    server.add_resource(TextResource(uri="x://text", name="text", text="as it is"))
    server.add_resource(FileResource(uri="x://file", name="file", path=tmp_path / "a.txt"))
    async with Client(server) as client:
        assert [each.name for each in await client.list_resources()] == ["called", "text", "file"]
        uris = ("hello://Ada", "x://called", "x://text", "x://file")
        read = [(await client.read_resource(uri))[0].text for uri in uris]
        assert read == ["Hello Ada", "called", "as it is", "from a file"]
        assert (await client.get_prompt("hello", {"name": "Bo"})).messages[0].text == "Hello Bo"


async def test_the_argument_model_of_a_tool_can_be_inspected_and_its_schema_replaced() -> None:
    server = SDKFastMCP("s")

    @server.tool()
    def double(number: int) -> int:
        return 2 * number

    tool = server._tool_manager.get_tool("double")
    model = tool.fn_metadata.arg_model
    assert [*model.model_fields] == ["number"]
    schema = model.model_json_schema(by_alias=True)
    assert schema["properties"]["number"]["type"] == "integer"
    tool.parameters = {**schema, "description": "Strict."}
    async with Client(server) as client:
        (listed,) = await client.list_tools()
    assert listed.input_schema["description"] == "Strict."


async def test_a_component_of_another_server_keeps_its_scopes() -> None:
    source, admin = FastMCP("source"), require_scopes("admin")
    source.tool("close", auth=admin, timeout=9)(lambda: "closed")
    source.resource("a://b", auth=admin)(lambda: "secret")
    source.resource("a://{name}", auth=admin)(greet)
    source.prompt("ask", auth=admin)(lambda: "secret")
    server = FastMCP("s")
    tool = await source.get_tool("close")
    server.add_tool(tool)
    changed = Tool.from_tool(tool, name="end", title="End", annotations={"readOnlyHint": True})
    server.add_tool(Tool.from_tool(changed, description="Ends it."))
    server.add_resource(await source.get_resource("a://b"))
    server.add_resource(await source.get_resource_template("a://{name}"))
    server.add_prompt(await source.get_prompt("ask"))
    registries = [*server._registries["resources"], server._tools, server._prompts]
    found = {key: one.scopes for each in registries for key, one in each.snapshot.items.items()}
    assert found == dict.fromkeys(("a://b", "a://{name}", "close", "end", "ask"), ("admin",))
    assert Server.get_tool(server, "end").timeout == 9
    with pytest.raises(ConfigError, match="is a tool already, so it takes no options"):
        Tool.from_tool(tool, auth=None, tags={"a"})
    async with Client(server) as client:
        end = next(each for each in await client.list_tools() if each.name == "end")
        assert (end.title, end.description) == ("End", "Ends it.")
        assert end.annotations == {"readOnlyHint": True}
        assert (await client.call_tool("end")).data == "closed"


async def test_a_component_of_another_server_keeps_its_hidden_arguments() -> None:
    source, server = FastMCP("source"), FastMCP("s")
    source.add_tool(add)
    source.replace_tool("add", Server.get_tool(source, "add").with_(hide={"b": lambda: 5}))
    tool = await source.get_tool("add")
    server.add_tool(tool)
    server.add_tool(Tool.from_tool(tool, name="plus"))
    async with Client(server) as client:
        for each in await client.list_tools():
            assert list(each.input_schema["properties"]) == ["a"]
            assert (await client.call_tool(each.name, {"a": 1})).data == 6
