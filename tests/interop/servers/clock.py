"""A clock over HTTP, with its settings in the constructor, as release 1 of the SDK has them."""

import os

from mcp.server.fastmcp import FastMCP

mcp = FastMCP(
    "clock",
    port=int(os.environ["PORT"]),
    stateless_http=True,
    json_response=True,
    log_level="ERROR",
)


@mcp.tool()
def at(hour: int, minute: int = 0) -> str:
    """A time of day."""
    return f"{hour:02}:{minute:02}"


@mcp.resource("clock://zone")
def zone() -> str:
    return "UTC"


if __name__ == "__main__":
    mcp.run(transport="streamable-http")
