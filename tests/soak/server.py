"""The server of the soak: on stdio, or with a port over HTTP in both eras, as the old pair and over
WebSocket.

What outlives a client that has vanished is given a short life here, so that what is left at the end
of a round is only what should be.
"""

import asyncio
import logging
import sys

from dovetail import Context, Limits, Server, ToolError

from .gauges import here

LIMITS = Limits(
    session_idle=2,
    session_life=20,
    event_life=2,
    parked_time=2,
    state_life=20,
    task_life=2,
    task_poll=0.05,
    stream_after=0.2,
    keepalive=1,
    progress_interval=0.001,
    threads=4,
)


def build() -> Server:
    server = Server("soak", limits=LIMITS)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def on_a_thread(a: int, b: int) -> int:
        return a * b

    @server.tool
    async def fail(text: str) -> None:
        raise ToolError(text)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(ctx: Context) -> None:
        """Say that it began, then be there for longer than anybody listens, but not into the next
        round."""
        await ctx.info("begun")
        await asyncio.sleep(3)

    @server.tool
    async def count(times: int, ctx: Context) -> int:
        for done in range(times):
            await ctx.progress(done, times)
            await ctx.info(f"{done} done")
        return times

    @server.tool
    async def ask(ctx: Context) -> str:
        who = await ctx.elicit("Who?", str)
        once = await ctx.once("greet", lambda: "Hello")
        said = await ctx.sample(f"Greet {who.data}")
        return f"{once} {who.data}: {said.text}"

    @server.tool
    async def touch(uri: str) -> None:
        server.notify_resource_updated(uri)

    @server.tool(task="optional")
    async def work(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "worked"

    @server.tool
    async def change(name: str) -> None:
        """Have a tool come and go."""
        server.add_tool(add, name=name)
        server.remove_tool(name)

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return f"About {name}"

    @server.prompt
    async def letter(to: str) -> str:
        return f"Dear {to}"

    @letter.complete("to")
    def people(value: str) -> list[str]:
        return [name for name in ("Ann", "Bob") if name.startswith(value)]

    @server.tool
    async def gauges() -> dict[str, int]:
        """What this process holds."""
        return here()

    return server


if __name__ == "__main__":
    logging.disable()  # what goes wrong on purpose is not worth a line
    if len(sys.argv) > 1:
        build().run("http", port=int(sys.argv[1]), sse=True, websocket=True)
    else:
        build().run()
