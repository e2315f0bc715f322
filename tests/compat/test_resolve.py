"""Parameters that `Resolve` provides, in both eras."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from dovetail.compat import (
    AcceptedElicitation,
    Context,
    CurrentContext,
    Depends,
    Elicit,
    ElicitationResult,
    FastMCP,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
    SamplingMessage,
    TextContent,
)
from dovetail.compat.types import CreateMessageResult, ListRootsResult
from dovetail.errors import ConfigError, MissingCapability, ToolError
from dovetail.protocol import Root
from dovetail.testing import pair

eras = pytest.mark.parametrize(
    ("revision", "replay"), [("handshake", False), ("stateless", False), ("stateless", True)]
)
checked: list[str] = []


class Stock(BaseModel):
    copies: int


class Backorder(BaseModel):
    confirm: bool


async def check_stock(title: str) -> Stock:
    checked.append(title)
    return Stock(copies=7 if title == "Dune" else 0)


def confirm_backorder(
    title: str, stock: Annotated[Stock, Resolve(check_stock)], ctx: Context
) -> Backorder | Elicit[Backorder]:
    if stock.copies:
        return Backorder(confirm=True)
    return Elicit(f"{ctx.fastmcp.name}: order {title} anyway?", Backorder)


def suggest(title: str) -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=title))
    return Sample([message], max_tokens=5)


def bookshop() -> MCPServer:
    server = MCPServer("shop")

    @server.tool()
    async def order(
        title: str,
        stock: Annotated[Stock, Resolve(check_stock)],
        backorder: Annotated[Backorder, Resolve(confirm_backorder)],
    ) -> str:
        return f"{title} {stock.copies} {backorder.confirm}"

    @server.tool()
    def decide(
        title: str, backorder: Annotated[ElicitationResult[Backorder], Resolve(confirm_backorder)]
    ) -> str:
        accepted = isinstance(backorder, AcceptedElicitation)
        return f"{backorder.action} {accepted and backorder.data.confirm}"

    @server.tool()
    async def recommend(
        title: str,
        said: Annotated[CreateMessageResult, Resolve(suggest)],
        roots: Annotated[ListRootsResult, Resolve(ListRoots)],
    ) -> str:
        return f"{said.content.text} {roots.roots[0].uri}"

    return server


@eras
async def test_a_resolver_provides_a_value_and_asks_only_if_it_must(
    revision: str, replay: bool
) -> None:
    asked: list[str] = []

    def answer(request: Any) -> dict[str, bool]:
        asked.append(request.message)
        return {"confirm": True}

    options = {"revision": revision, "replay": replay}
    async with pair(bookshop(), on_elicit=answer, **options) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools["order"].input_schema["properties"]) == ["title"]
        checked.clear()
        assert (await client.call_tool("order", {"title": "Dune"})).data == "Dune 7 True"
        assert (checked, asked) == (["Dune"], [])
        assert (await client.call_tool("order", {"title": "Emma"})).data == "Emma 0 True"
        assert asked == ["shop: order Emma anyway?"]


@eras
async def test_a_declined_question_fails_unless_the_tool_wants_the_decision(
    revision: str, replay: bool
) -> None:
    options = {"revision": revision, "replay": replay}
    async with pair(bookshop(), on_elicit=lambda _: False, **options) as client:
        with pytest.raises(ToolError, match="confirm_backorder was not answered"):
            await client.call_tool("order", {"title": "Emma"})
        assert (await client.call_tool("decide", {"title": "Emma"})).data == "decline False"
        assert (await client.call_tool("decide", {"title": "Dune"})).data == "accept True"


@eras
async def test_a_resolver_asks_the_model_and_for_the_roots(revision: str, replay: bool) -> None:
    options = {"revision": revision, "replay": replay, "roots": [Root("file:///books")]}
    async with pair(bookshop(), on_sample=lambda _: "Persuasion", **options) as client:
        said = (await client.call_tool("recommend", {"title": "Emma"})).data
        assert said == "Persuasion file:///books"


async def test_a_client_that_cannot_be_asked() -> None:
    async with pair(bookshop(), revision="stateless") as client:
        with pytest.raises(MissingCapability, match="elicitation"):
            await client.call_tool("order", {"title": "Emma"})


def needs_itself(value: Annotated[int, Resolve(lambda: 1)]) -> int:
    return value


needs_itself.__annotations__["value"] = Annotated[int, Resolve(needs_itself)]


def wants_more(other: str) -> str:
    return other


@pytest.mark.parametrize(
    ("resolver", "said"),
    [(needs_itself, "needs itself"), (wants_more, "wants_more has the parameter other, which")],
)
def test_a_resolver_that_cannot_work_is_refused_at_once(resolver: Any, said: str) -> None:
    def tool(title: str, value: Annotated[str, Resolve(resolver)]) -> str:
        return value

    with pytest.raises(ConfigError, match=said):
        MCPServer("s").add_tool(tool)


async def test_a_dependency_of_fastmcp_may_be_an_annotation_and_receive_the_context() -> None:
    def name(ctx: Context = CurrentContext()) -> str:  # noqa: B008
        return str(ctx.fastmcp.name)

    server = FastMCP("s")

    @server.tool
    async def who(name: Annotated[str, Depends(name)]) -> str:
        return name

    async with pair(server) as client:
        assert (await client.call_tool("who")).data == "s"
