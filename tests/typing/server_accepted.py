"""What users of a server write and type checkers accept. This file is checked, not run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

from dovetail import (
    Cache,
    CallNext,
    Context,
    HttpRequest,
    Image,
    Message,
    RegisteredTool,
    Server,
    TextContent,
    ToolResult,
)


@dataclass
class Person:
    name: str


@dataclass
class AppState:
    users: dict[int, str]


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[AppState]:
    yield AppState({})


server = Server("shop", version="1.0.0", lifespan=lifespan, cache=Cache(ttl=60), resume="replay")
Server("shop", capabilities={"tools": True, "prompts": False, "resources": {"subscribe": True}})


# Decorators keep the type of the function.


@server.tool
async def add(a: int, b: int = 2) -> int:
    return a + b


@server.tool("named", title="A title", annotations={"readOnlyHint": True}, timeout=5)
def by_position(a: int) -> str:
    return str(a)


@server.tool(name="also_named", isolate="process", task="optional", scopes="a b")
def by_keyword(a: int) -> str:
    return str(a)


@server.tool()
def without_options() -> ToolResult:
    return ToolResult(content=[TextContent("x")])


async def use_tools() -> None:
    assert_type(await add(1), int)
    assert_type(by_position(1), str)
    assert_type(by_keyword(1), str)
    assert_type(without_options(), ToolResult)


@server.resource("config://app", mime_type="application/json", cache=Cache(ttl=1))
def config() -> dict[str, Any]:
    return {}


@server.resource("users://{user_id}/profile", name="profile")
async def profile(user_id: int, ctx: Context[AppState]) -> str:
    assert_type(ctx.state, AppState)
    return ctx.state.users[user_id]


@profile.complete("user_id")
def user_ids(value: str, chosen: dict[str, str]) -> list[str]:
    return [value]


@server.prompt
def review(code: str, language: str = "python") -> str:
    return code


@server.prompt(name="chat", title="Chat")
def chat(topic: str) -> list[Message]:
    return [
        Message("user", "text"),
        Message("assistant", TextContent("text")),
        Message("user", Image(path="a.png")),
    ]


review.complete("language", ["python", "rust"])
assert_type(review("x"), str)
assert_type(config(), dict[str, Any])


@server.app("ui://view", connect_domains=["https://example.com"])
def view() -> str:
    return "<!doctype html>"


server.add_tool(add, name="other", meta={"a": 1})
server.add_resource(config, "config://other", mime_type="text/plain")
server.add_prompt(review, name="other")
server.add_file(Path("a.txt"), watch=True, title="A file")
server.add_directory("docs", uri="docs://", hidden=True)
server.add_app("ui://other", Path("a.html"), prefers_border=True)
uri: str = server.add_skill("skills/pdf", dynamic=True)


# The context.


async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Person)
    if not answer:
        assert_type(answer.data, None)
        return "nobody"
    assert_type(answer.data, Person)
    by_action = await ctx.elicit("Really?", bool, key="really")
    if by_action.action == "accept":
        assert_type(by_action.data, bool)
    choice = await ctx.elicit("Which?", Literal["a", "b"])
    page = await ctx.elicit_url("Log in", ctx.bind_url("https://example.com"), id="1")
    reply = await ctx.sample(
        ["Hello", Message("user", "Hi"), ["a", Image(data=b"x")], TextContent("x")],
        system_prompt="Be brief",
        max_tokens=10,
        model_preferences=["small", "large"],
        include_context="thisServer",
        tools=[add],
        tool_choice="auto",
    )
    again = await ctx.sample([reply, "And now?"])
    ctx.info("not awaited")
    await ctx.progress(1, 2, "half")
    assert_type(await ctx.once("key", lambda: 1), int)
    return answer.data.name + reply.text + again.text + str(choice) + str(bool(page))


def plain_context(ctx: Context) -> Any:
    return ctx.state


# Changed tools.


async def wrap(arguments: dict[str, Any], call_next: CallNext) -> str:
    return (await call_next(arguments)).text


async def wrap_with_context(arguments: dict[str, Any], call_next: CallNext, ctx: Context) -> Any:
    return await call_next(arguments)


async def make_token() -> str:
    return "token"


changed = server.get_tool("add").with_(
    name="plus", hide={"a": 1, "key": make_token}, rename={"b": "c"}, defaults={"b": 2}, wrap=wrap
)
assert_type(changed, RegisteredTool)
server.add_tool(changed.with_(wrap=wrap_with_context, output_schema={"type": "object"}))
server.replace_tool("add", changed)
server.mount(server, prefix="p", tools={"add": {"name": "plus", "hide": {"a": 1}}})


# Running.


def run() -> None:
    server.run()
    server.run("http", host="127.0.0.1", port=8000, path="/mcp", workers=2, hosts=["*"])
    server.run("sse", port=0, ready=print)
    server.asgi("/mcp", sse=True, websocket="/ws", public_url="https://example.com", sessions=False)


async def run_async() -> None:
    await server.run_async("websocket", port=0)
    await server.handle(HttpRequest(method="POST", path="/mcp"), json_only=True)
