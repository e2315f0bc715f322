"""An application that another server runs: the same call for each library, `http_app()`."""

import os

import uvicorn
from fastmcp import FastMCP

mcp = FastMCP("mounted")


@mcp.tool
def double(value: int) -> int:
    return value * 2


app = mcp.http_app(path="/mcp", stateless_http=True)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ["PORT"]), log_level="error")
