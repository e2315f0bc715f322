"""A bulletin board over the old SSE transport."""

import os

from mcp.server.fastmcp import Context, FastMCP

mcp = FastMCP("bulletin", log_level="ERROR")
mcp.settings.port = int(os.environ["PORT"])
board: list[str] = []


@mcp.tool()
async def post(text: str, ctx: Context) -> int:
    board.append(text)
    await ctx.session.send_resource_list_changed()
    return len(board)


@mcp.resource("board://all")
def everything() -> str:
    return "\n".join(board)


if __name__ == "__main__":
    mcp.run(transport="sse")
