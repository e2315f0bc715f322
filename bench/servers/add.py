"""One tool, for measuring: on stdio, or with a port on HTTP."""

import sys

from dovetail import Server

server = Server("bench")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[1]))
    else:
        server.run()
