"""FastMCP servers that are mounted in one another."""

from typing import Any

from dovetail.compat import FastMCP, Middleware
from dovetail.testing import pair


def make_child() -> FastMCP:
    child = FastMCP("child")

    @child.tool
    def who(tenant: str = "nobody") -> str:
        return tenant

    @child.prompt
    def greet(name: str = "nobody") -> str:
        return f"Hello {name}"

    return child


async def test_middleware_changes_the_arguments_of_mounted_tools() -> None:
    class Tenant(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            context.message.arguments = {"tenant": "ada"}
            return await call_next(context)

    outer = FastMCP("outer", middleware=[Tenant()])
    outer.mount(make_child(), namespace="c")
    async with pair(outer) as client:
        assert (await client.call_tool("c_who", {"tenant": "eve"})).data == "ada"


async def test_a_tool_uses_mounted_components_with_arguments() -> None:
    outer = FastMCP("outer")
    outer.mount(make_child(), namespace="c")

    @outer.tool
    async def both() -> list[str]:
        called = await outer.call_tool("c_who", {"tenant": "ada"})
        prompt = await outer.render_prompt("c_greet", {"name": "Ada"})
        return [called.text, prompt.messages[0].content.text]

    async with pair(outer) as client:
        assert (await client.call_tool("both")).data == ["ada", "Hello Ada"]
