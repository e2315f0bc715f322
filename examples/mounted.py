"""A web application with a server in it: FastAPI for people's programs, MCP for models, on one
port.

`pip install "dovetail-mcp[http]" fastapi`, then `python examples/mounted.py`. `/stock/nails`
answers as always, and a client finds the server at `http://127.0.0.1:8000/mcp/`:

    dovetail call http://127.0.0.1:8000/mcp/ reserve item=nails count=2
"""

from typing import Any

from dovetail import Server, ToolError

STOCK = {"nails": 500, "hammers": 3}

server = Server("shop", version="1.0.0")


@server.tool
async def reserve(item: str, count: int = 1) -> int:
    """Put items aside; returns how many are left."""
    if STOCK.get(item, 0) < count:
        raise ToolError(f"There are {STOCK.get(item, 0)} of {item!r}, not {count}.")
    STOCK[item] -= count
    return STOCK[item]


def application() -> Any:
    """The application. FastAPI is not needed by Dovetail, so it is looked for here."""
    try:
        from fastapi import FastAPI
    except ImportError:
        raise SystemExit("This example needs FastAPI: pip install fastapi") from None

    app = FastAPI()

    @app.get("/stock/{item}")
    async def stock(item: str) -> dict[str, int]:
        return {item: STOCK.get(item, 0)}

    app.mount("/mcp", server.asgi())  # all that it takes
    return app


if __name__ == "__main__":
    try:
        import uvicorn
    except ImportError:
        raise SystemExit("This example needs uvicorn: pip install 'dovetail-mcp[http]'") from None

    # uvicorn waits for open streams when it stops. Limit how long.
    uvicorn.run(application(), port=8000, timeout_graceful_shutdown=2)
