"""Servers and gateways on ports of this machine, and what arrives there."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from dovetail import Context, Server
from dovetail.auth import ApiKeys
from dovetail.gateway.gateway import Gateway
from tests.behaviour.web import on_a_port

ANN, BOB = "ann-has-a-long-key", "bob-has-a-long-key"
REVISION = "2026-07-28"
KEYS = ApiKeys({ANN: "ann", BOB: "bob"})


class Recorder:
    """An ASGI application that keeps the headers of all requests."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.requests: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.requests.append(
                {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            )
        await self._app(scope, receive, send)

    @property
    def calls(self) -> list[dict[str, str]]:
        """The headers of the tool calls, in the stateless era."""
        return [one for one in self.requests if one.get("mcp-method") == "tools/call"]


@asynccontextmanager
async def recorded(server: Server) -> AsyncIterator[tuple[str, Recorder]]:
    """Serve a server, and return its URL and what arrives there."""
    app = server.asgi("/mcp", hosts="*")
    recorder = Recorder(app)
    async with on_a_port(recorder) as place:
        yield f"http://{place}/mcp", recorder


@asynccontextmanager
async def served(source: Mapping[str, Any], **options: Any) -> AsyncIterator[tuple[Gateway, str]]:
    """Serve a gateway over HTTP, and return it with its URL."""
    gateway = Gateway(source, **options)
    async with on_a_port(gateway.asgi("/mcp", hosts="*")) as place:
        yield gateway, f"http://{place}/mcp"


def headers_of(key: str, **more: str) -> dict[str, str]:
    """Return the headers of a caller with this key."""
    return {"X-Api-Key": key, **{name.replace("_", "-"): value for name, value in more.items()}}


def post(
    url: str, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Send one request of the stateless era, and return the status and the decoded reply."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    place = urlsplit(url)
    connection = HTTPConnection(place.netloc, timeout=30)
    own = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": method,
    }
    if "name" in params:
        own["Mcp-Name"] = params["name"]
    try:
        connection.request("POST", place.path, json.dumps(message), {**own, **(headers or {})})
        reply = connection.getresponse()
        return reply.status, json.loads(
            reply.read().decode().removeprefix("event: message\n").removeprefix("data: ")
        )
    finally:
        connection.close()


def asking_server(revision: str, events: list[str] | None = None) -> Server:
    """Return a server whose tool asks, and record when it is called and when it is cancelled."""
    server = Server("up", revisions=[revision])
    happened = [] if events is None else events

    @server.tool
    async def order(ctx: Context, what: str = "tea") -> str:
        happened.append("called")
        try:
            answer = await ctx.elicit("How much?", int)
        except asyncio.CancelledError:
            happened.append("cancelled")
            raise
        return f"{answer.data} {what}"

    return server


ORDER = {"name": "up__order", "arguments": {"what": "tea"}}


async def ask_order(url: str, key: str | None = None) -> tuple[str, str]:
    """Start a call, and return the key of its question and its state."""
    headers = None if key is None else headers_of(key)
    _, reply = await asyncio.to_thread(post, url, "tools/call", ORDER, headers)
    (question,) = reply["result"]["inputRequests"]
    return question, reply["result"]["requestState"]


def answer_to(question: str, state: str, **changed: Any) -> dict[str, Any]:
    """Return the params with which a caller goes on with a call."""
    given = {"action": "accept", "content": {"value": 3}}
    return {**ORDER, "inputResponses": {question: given}, "requestState": state, **changed}
