"""One tool, for measuring."""

from dovetail import Server

server = Server("bench")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
