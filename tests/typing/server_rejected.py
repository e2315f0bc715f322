"""What users of a server may write by mistake and type checkers reject, in each line that ends with
`# error`. This file is checked, not run."""

from dataclasses import dataclass

from dovetail import Cache, Context, Message, Server


@dataclass
class Person:
    name: str


server = Server("shop", resume="dead")  # error
Server("shop", instruction="x")  # error
Server("shop", capabilities={"tool": True})  # error
Cache(ttl="long")  # error
Message("system", "text")  # error
Message("user", 1)  # error


@server.tool(titel="x")  # error
def misspelled() -> None: ...


@server.tool(isolate="thread")  # error
def wrong_value() -> None: ...


@server.tool
def add(a: int) -> int:
    return a


add("1")  # error


@server.resource("config://app", mimetype="text/plain")  # error
def config() -> str:
    return ""


@server.prompt(mime_type="text/plain")  # error
def wrong_option(code: str) -> str:
    return code


@server.prompt
def review(code: str) -> str:
    return code


review(1)  # error
server.add_tool(add, nam="other")  # error
server.get_tool("add").with_(nam="other")  # error
server.get_tool("add").with_(rename={"a": 1})  # error
server.get_tool("add").with_(wrap=len)  # error
server.replace_tool("add", add)  # error
server.mount(server, tools={"add": {"wrap": 1}})  # error
server.app("ui://view", mime_type="text/html")  # error

server.run("htpp")  # error
server.run("http", prot=1)  # error
server.run("http", port="8000")  # error
server.asgi(prot=1)  # error
server.asgi(host="127.0.0.1")  # error


async def run() -> None:
    await server.run_async("htpp")  # error


async def ask(ctx: Context[Person]) -> None:
    answer = await ctx.elicit("Who are you?", Person)
    print(answer.data.name)  # error
    if not answer:
        print(answer.data.name)  # error
    elif answer.data.name:
        print(answer.data.age)  # error
    print(ctx.state.age)  # error
    await ctx.sample("Hello", max_token=1)  # error
    await ctx.sample("Hello", include_context="all")  # error
    await ctx.sample(1)  # error
    ctx.log("loud", "x")  # error
