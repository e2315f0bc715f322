"""A server on stdio with tools that run as tasks: `python -m tests.backend.task_server DATE`."""

import asyncio
import sys

from dovetail import Context, Server


def make_server(revision: str) -> Server:
    server = Server("up", revisions=[revision], rates=None)

    @server.tool(task="optional")
    async def work(text: str = "done") -> str:
        return text

    @server.tool(task="optional")
    async def work_long() -> None:
        await asyncio.Event().wait()

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", str)
        return str(answer.data)

    @server.tool
    async def plain() -> str:
        return "plain"

    @server.tool
    async def order(ctx: Context, what: str = "tea") -> str:
        answer = await ctx.elicit("How much?", int)
        return f"{answer.data} {what}"

    @server.tool
    async def order_two(ctx: Context) -> str:
        first = await ctx.elicit("How much tea?", int)
        second = await ctx.elicit("How much milk?", int)
        return f"{first.data} tea, {second.data} milk"

    return server


if __name__ == "__main__":
    make_server(sys.argv[1]).run()
