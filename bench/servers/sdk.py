"""The same tool on the official SDK: on stdio, or with an era and a port on HTTP."""

import sys

from mcp.server import MCPServer

server = MCPServer("bench")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    if len(sys.argv) > 1:
        era, port = sys.argv[1], int(sys.argv[2])
        server.run(transport="streamable-http", port=port, stateless_http=era == "stateless", json_response=True)
    else:
        server.run(transport="stdio")
