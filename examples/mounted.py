"""A web application that contains a server: FastAPI for ordinary clients and MCP for models, on one
port.

`pip install "dovetail-mcp[http]" fastapi`, then run `python examples/mounted.py`. `/stock/nails`
is an ordinary route, and MCP clients find the server at `http://127.0.0.1:8000/mcp/`:

    dovetail call http://127.0.0.1:8000/mcp/ reserve item=nails count=2
"""

from typing import Any

from dovetail import Server, ToolError

STOCK = {"nails": 500, "hammers": 3}

server = Server("shop", version="1.0.0")


@server.tool
async def reserve(item: str, count: int = 1) -> int:
    """Reserve items. Return how many are left."""
    if STOCK.get(item, 0) < count:
        raise ToolError(f"Cannot reserve {count} of {item!r}: only {STOCK.get(item, 0)} left.")
    STOCK[item] -= count
    return STOCK[item]


def application() -> Any:
    """Return the application. Dovetail does not require FastAPI, so it is imported here."""
    try:
        from fastapi import FastAPI
    except ImportError:
        raise SystemExit("This example needs FastAPI: pip install fastapi") from None

    app = FastAPI()

    @app.get("/stock/{item}")
    async def stock(item: str) -> dict[str, int]:
        return {item: STOCK.get(item, 0)}

    app.mount("/mcp", server.asgi())  # the only line that MCP needs
    return app


if __name__ == "__main__":
    try:
        import uvicorn
    except ImportError:
        raise SystemExit("This example needs uvicorn: pip install 'dovetail-mcp[http]'") from None

    # uvicorn waits for open streams when it stops, so limit the wait.
    uvicorn.run(application(), port=8000, timeout_graceful_shutdown=2)
