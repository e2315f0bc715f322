"""The output schema of a tool, and what it sends, for return types that are not plain data."""

from typing import Annotated, Any, ClassVar

import pytest
from msgspec import Struct

from dovetail import Context, InputRequired, Server, TextContent, ToolResult
from dovetail.errors import ToolError
from dovetail.testing import pair


class Status(Struct):
    code: int


class Profile:
    """A user."""

    kind: ClassVar[str] = "user"
    name: str
    email: str | None = None
    tags: list[str] = []
    _secret: str

    def __init__(self, name: str) -> None:
        self.name, self._secret, self.other = name, "s", "not annotated"


class Untyped:
    pass


class Unknown:
    part: Untyped


async def describe(function: Any, *arguments: Any) -> tuple[Any, Any]:
    server = Server("s")
    server.add_tool(function)
    async with pair(server) as client:
        (tool,) = await client.list_tools()
        return tool.output_schema, await client.call_tool(tool.name, *arguments)


async def test_annotated_results_are_described_and_validated_by_the_model() -> None:
    def check(code: Any) -> Annotated[ToolResult, Status]:
        return ToolResult(content=[TextContent("said")], structured_content={"code": code})

    schema, result = await describe(check, {"code": 3})
    assert schema["properties"] == {"code": {"type": "integer"}}
    assert (result.text, result.structured_content) == ("said", {"code": 3})
    with pytest.raises(ToolError, match="does not match its output schema"):
        await describe(check, {"code": "three"})


async def test_an_error_is_not_validated() -> None:
    def fail() -> Annotated[ToolResult, Status]:
        return ToolResult(content=[TextContent("no")], is_error=True)

    with pytest.raises(ToolError, match="no"):
        await describe(fail)


async def test_questions_are_not_part_of_the_schema() -> None:
    async def ask(ctx: Context) -> int | InputRequired:
        return 3

    async def only_ask(ctx: Context) -> InputRequired | ToolResult:
        return ToolResult(content=[])

    schema, result = await describe(ask)
    assert (schema["properties"], result.data) == ({"result": {"type": "integer"}}, 3)
    assert (await describe(only_ask))[0] is None


async def test_a_plain_class_is_described_by_its_public_annotations() -> None:
    def get() -> Profile:
        return Profile("Ada")

    schema, result = await describe(get)
    assert (schema["description"], schema["required"]) == ("A user.", ["name"])
    assert schema["properties"] == {
        "name": {"type": "string"},
        "email": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    assert result.structured_content == {"name": "Ada", "email": None, "tags": []}


@pytest.mark.parametrize("kind", [Untyped, Unknown])
async def test_a_class_that_cannot_be_described_has_no_schema(kind: type) -> None:
    def get() -> Any:
        return "text"

    get.__annotations__["return"] = kind
    assert (await describe(get))[0] is None
