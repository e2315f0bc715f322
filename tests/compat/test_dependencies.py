"""The current call without a context parameter, dependencies, and the state of a session."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from dovetail import Client
from dovetail.compat import (
    Context,
    CurrentContext,
    CurrentHeaders,
    Depends,
    FastMCP,
    get_access_token,
    get_context,
    get_http_headers,
    get_http_request,
    get_server,
)
from dovetail.errors import ToolError
from dovetail.testing import pair
from tests.behaviour.web import on_a_port


async def test_the_context_is_current_while_a_call_is_answered() -> None:
    server = FastMCP("s")

    @server.tool
    def on_a_thread() -> list[Any]:
        return [get_context().request_id, get_server().name, get_access_token()]

    @server.tool
    async def asks() -> str:
        return str((await get_context().elicit("Who?", str)).data)

    for revision in ("stateless", "handshake"):
        async with pair(server, revision=revision, on_elicit=lambda _: {"value": "Ada"}) as client:
            id, name, token = (await client.call_tool("on_a_thread")).data
            assert (bool(id), name, token) == (True, "s", None)
            assert (await client.call_tool("asks")).data == "Ada"
    with pytest.raises(RuntimeError, match="no active context"):
        get_context()
    with pytest.raises(RuntimeError, match="no active context"):
        get_http_request()
    assert get_http_headers() == {}


async def test_the_headers_of_a_request() -> None:
    server = FastMCP("s")

    @server.tool
    async def headers(ctx: Context) -> list[Any]:
        request = get_http_request()
        assert ctx.request_context.request.headers == request.headers
        return [
            get_http_headers(),
            get_http_headers(include_all=True),
            get_http_headers(include={"authorization"}),
            request.headers["X-Tenant"],
            ctx.transport,
        ]

    async with on_a_port(server.http_app()) as site:
        sent = {"X-Tenant": "acme", "Authorization": "Bearer mine"}
        async with Client(f"http://{site}/mcp", headers=sent) as client:
            few, all_of_them, chosen, tenant, transport = (await client.call_tool("headers")).data
    assert few["x-tenant"] == tenant == "acme"
    assert "authorization" not in few and "content-length" not in few
    assert all_of_them["authorization"] == chosen["authorization"] == "Bearer mine"
    assert transport == "streamable-http"


async def test_there_is_no_request_on_other_transports() -> None:
    server = FastMCP("s")

    @server.tool
    def request(ctx: Context) -> str:
        assert (ctx.request_context.request, ctx.transport) == (None, "stdio")
        return str(get_http_request())

    async with pair(server) as client:
        with pytest.raises(ToolError, match="no active HTTP request"):
            await client.call_tool("request")


async def test_a_dependency_is_hidden_from_the_model_and_resolved_in_each_call() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def database() -> AsyncIterator[str]:
        events.append("open")
        yield "db"
        events.append("close")

    @contextmanager
    def cursor(db: str = Depends(database)) -> Iterator[str]:
        yield f"cursor of {db}"

    async def user() -> str:
        return "ada"

    server = FastMCP("s")

    @server.tool
    def find(
        what: str,
        db: str = Depends(database),
        cursor: str = Depends(cursor),
        user: str = Depends(user),
        ctx=CurrentContext(),  # noqa: B008
        headers: dict[str, str] = CurrentHeaders(),  # noqa: B008
    ) -> list[Any]:
        events.append("call")
        return [what, db, cursor, user, ctx.fastmcp.name, headers]

    async with pair(server) as client:
        (tool,) = await client.list_tools()
        assert list(tool.input_schema["properties"]) == ["what"]
        for _ in range(2):
            found = (await client.call_tool("find", {"what": "x"})).data
            assert found == ["x", "db", "cursor of db", "ada", "s", {}]
    assert events == ["open", "call", "close"] * 2


async def test_parameters_that_are_bytes_accept_text() -> None:
    server = FastMCP("s")

    @server.tool
    def size(data: bytes, more: bytes = b"ab") -> list[int]:
        """Count.

        Args:
            data: The data.
        """
        return [len(data), len(more)]

    async with pair(server) as client:
        (tool,) = await client.list_tools()
        wanted = {"type": "string", "format": "binary", "description": "The data."}
        assert (tool.description, tool.input_schema["properties"]["data"]) == ("Count.", wanted)
        assert (await client.call_tool("size", {"data": "é!"})).data == [3, 2]


async def test_excluded_arguments_keep_their_defaults() -> None:
    server = FastMCP("s")

    @server.tool(exclude_args=["secret"])
    def tool(a: int, secret: str = "own") -> str:
        return f"{a} {secret}"

    async with pair(server) as client:
        assert list((await client.list_tools())[0].input_schema["properties"]) == ["a"]
        assert (await client.call_tool("tool", {"a": 1})).data == "1 own"


def counting() -> FastMCP:
    server = FastMCP("s")

    @server.tool
    async def count(ctx: Context) -> list[Any]:
        number = (await ctx.get_state("number") or 0) + 1
        await ctx.set_state("number", number)
        return [number, await ctx.get_state("number"), ctx.session_id]

    @server.tool
    async def forget(ctx: Context) -> Any:
        await ctx.delete_state("number")
        return await ctx.get_state("number", "nothing")

    return server


async def test_state_belongs_to_a_session() -> None:
    server = counting()
    async with pair(server, revision="handshake") as first:
        assert (await first.call_tool("count")).data[:2] == [1, 1]
        number, _, session = (await first.call_tool("count")).data
        assert number == 2
        async with pair(server, revision="handshake") as second:
            other = (await second.call_tool("count")).data
            assert other[0] == 1 and other[2] != session
        assert (await first.call_tool("forget")).data == "nothing"
        assert (await first.call_tool("count")).data == [1, 1, session]
    assert len(server._states) == 0


async def test_state_ends_with_the_request_in_the_stateless_era() -> None:
    server = counting()
    async with pair(server, revision="stateless") as client:
        assert (await client.call_tool("count")).data[:2] == [1, 1]
        assert (await client.call_tool("count")).data[:2] == [1, 1]
    assert len(server._states) == 0


async def test_state_belongs_to_a_session_over_http() -> None:
    async with on_a_port(counting().http_app()) as site:
        async with Client(f"http://{site}/mcp", revision="handshake") as client:
            assert [(await client.call_tool("count")).data[0] for _ in range(3)] == [1, 2, 3]
        async with Client(f"http://{site}/mcp", revision="handshake") as client:
            assert (await client.call_tool("count")).data[0] == 1
