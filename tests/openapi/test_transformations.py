"""Tools of an API that a server changes with `with_`."""

import pytest

from dovetail import Server
from dovetail.errors import ConfigError
from dovetail.testing import pair

from .stage import minimal
from .stub import ApiStub, serving

DOCUMENT = minimal(
    {
        "/issues": {
            "get": {
                "operationId": "searchIssues",
                "summary": "Search issues.",
                "parameters": [
                    {"name": "q", "in": "query", "required": True, "schema": {"type": "string"}},
                    {
                        "name": "per_page",
                        "in": "query",
                        "schema": {"type": "integer", "maximum": 100},
                    },
                    {
                        "name": "X-Key",
                        "in": "header",
                        "required": True,
                        "schema": {"type": "string"},
                    },
                ],
                "responses": {"200": {"description": "OK"}},
            }
        }
    }
)
SECRET = "sk-hidden-0123456789"


async def test_an_operation_becomes_a_tool_of_another_server() -> None:
    stub = ApiStub(DOCUMENT)
    async with serving(stub.handle) as origin:
        api = Server.from_openapi(DOCUMENT, base_url=origin)
        server = Server("issues")
        server.add_tool(
            api.get_tool("searchIssues").with_(
                name="find_issues",
                hide={"per_page": 20, "X-Key": lambda: SECRET},
                rename={"q": "query"},
            )
        )
        async with pair(server) as client:
            [tool] = await client.list_tools()
            result = await client.call_tool("find_issues", {"query": "open"})
            wrong = await client.call_tool("find_issues", {"q": "x"}, raise_on_error=False)
    assert list(tool.input_schema["properties"]) == ["query"]
    assert tool.input_schema["required"] == ["query"]
    assert not result.is_error and wrong.is_error and "query" in wrong.text
    [request] = stub.received
    assert request.raw_path.endswith("?q=open&per_page=20") and SECRET in repr(request.headers)
    assert SECRET not in repr(tool) + result.text + wrong.text


async def test_a_tool_of_an_api_is_replaced_in_place() -> None:
    stub = ApiStub(DOCUMENT)
    async with serving(stub.handle) as origin:
        api = Server.from_openapi(DOCUMENT, base_url=origin)
        tool = api.get_tool("searchIssues")
        api.replace_tool("searchIssues", tool.with_(defaults={"per_page": 5}, hide={"X-Key": "k"}))
        async with pair(api) as client:
            await client.call_tool("searchIssues", {"q": "x"})
    assert stub.received[0].raw_path.endswith("?q=x&per_page=5")


def test_a_hidden_value_has_to_fit_the_description() -> None:
    api = Server.from_openapi(DOCUMENT, base_url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="the hidden argument 'per_page' does not fit") as caught:
        api.get_tool("searchIssues").with_(hide={"per_page": 12345})
    assert "12345" not in str(caught.value)
