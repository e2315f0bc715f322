"""The same server on the official SDK."""

import os
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool

transport, port, tools, *rest = sys.argv[1:]
variant = rest[0] if rest else ""
more = variant in ("more", "large")


class KeyVerifier:
    """Accepts one token."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if token != os.environ["BENCH_API_KEY"]:
            return None
        return AccessToken(token=token, client_id="ada", scopes=[])


def authenticated() -> dict[str, Any]:
    """Require a token."""
    url = f"http://127.0.0.1:{port}"
    settings = AuthSettings(
        issuer_url=url, resource_server_url=f"{url}/mcp", validate_token_resource=False
    )
    return {"auth": settings, "token_verifier": KeyVerifier()}


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
copies = [
    tool.model_copy(update={"name": f"add_{number}"}) for number in range(1, int(tools))
]  # making each takes 3 ms
options = authenticated() if variant == "api_key" else {}
server = MCPServer("bench", log_level="ERROR", tools=[tool, *copies], **options)
if more:
    server.add_tool(echo)
    server.add_tool(count)

if __name__ == "__main__":
    if transport == "stdio":
        server.run(transport="stdio")
    else:
        server.run(
            transport="streamable-http",
            port=int(port),
            json_response=variant != "more",  # which sends progress notifications
            max_sessions=None,  # its default of 10,000 would just be reached
        )
