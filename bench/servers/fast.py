"""The same server on FastMCP."""

import os
import sys
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.tools import Tool

transport, port, tools, *rest = sys.argv[1:]
variant = rest[0] if rest else ""
more = variant in ("more", "large")


def verifier() -> Any:
    """Return what checks tokens, if they are required."""
    if variant not in ("api_key", "jwt"):
        return None
    from fastmcp.server.auth.providers.jwt import JWTVerifier, StaticTokenVerifier

    if variant == "api_key":
        return StaticTokenVerifier(
            {os.environ["BENCH_API_KEY"]: {"client_id": "ada", "scopes": []}}
        )
    return JWTVerifier(
        public_key=os.environ["BENCH_PUBLIC_KEY"],
        issuer=os.environ["BENCH_ISSUER"],
        audience=os.environ["BENCH_AUDIENCE"],
    )


server = FastMCP("bench", auth=verifier())


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def echo(text: str) -> str:
    """Return the text."""
    return text


async def count(times: int, ctx: Context) -> int:
    """Report progress this many times."""
    for done in range(times):
        await ctx.report_progress(done, times)
    return times


tool = Tool.from_function(add)
server.add_tool(tool)
for number in range(1, int(tools)):
    server.add_tool(
        tool.model_copy(update={"name": f"add_{number}"})
    )  # making each from the function takes 5 ms
if more:
    server.tool(echo)
    server.tool(count)

if __name__ == "__main__":
    if transport == "stdio":
        server.run(transport="stdio", show_banner=False, log_level="ERROR")
    else:
        server.run(
            transport="http",
            port=int(port),
            show_banner=False,
            log_level="ERROR",
            json_response=variant != "more",  # which sends progress notifications
        )
