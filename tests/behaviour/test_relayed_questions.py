"""Questions that pass through a relay, from a server of either era to a caller of either era."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Root, Server
from tests.behaviour.relaying import Relay
from tests.behaviour.web import on_a_port

STATELESS = "2026-07-28"
REVISIONS = ["2024-11-05", "2025-06-18", "2025-11-25", STATELESS]
KINDS = ["form", "page", "sample", "roots"]

UPSTREAM = '''
import asyncio, os, sys
from dovetail import Context, Server

server = Server("upstream", version="1", revisions=[sys.argv[1]] if len(sys.argv) > 1 else None)
arrived, all_here = set(), asyncio.Event()

@server.tool
async def ask(who: str, kind: str, callers: int, ctx: Context) -> str:
    """Ask the caller something while others are asked, too."""
    arrived.add(who)
    if len(arrived) == callers:
        all_here.set()
    await all_here.wait()
    if kind == "form":
        answer = await ctx.elicit(f"Who is {who}?", str)
        return f"{who} is {answer.data}"
    if kind == "page":
        answer = await ctx.elicit_url(f"Page of {who}", f"https://example.com/{who}")
        return f"{who} is {answer.action}"
    if kind == "sample":
        return f"{who} is {(await ctx.sample(f'Who is {who}?')).text}"
    roots = await ctx.list_roots()
    return f"{who} is {roots[0].name}"

if __name__ == "__main__":
    server.run()
'''


def make_upstream(revision: str) -> Server:
    scope: dict[str, Any] = {"__name__": "upstream"}
    arguments, sys.argv = sys.argv, ["upstream.py", revision]
    try:
        exec(compile(UPSTREAM, "upstream.py", "exec"), scope)
    finally:
        sys.argv = arguments
    server: Server = scope["server"]
    return server


@asynccontextmanager
async def relayed(transport: str, revision: str, folder: Path) -> AsyncIterator[tuple[str, Relay]]:
    """The URL of a relay in front of a server that speaks one revision."""
    if transport == "stdio":
        file = folder / "upstream.py"
        file.write_text(UPSTREAM, encoding="utf-8")
        relay = Relay(Client([sys.executable, str(file), revision], revision=revision))
        async with relay.client, on_a_port(relay.asgi(path="/mcp")) as address:
            yield f"http://{address}/mcp", relay
        return
    async with on_a_port(make_upstream(revision).asgi(path="/mcp")) as upstream:
        relay = Relay(Client(f"http://{upstream}/mcp", revision=revision))
        async with relay.client, on_a_port(relay.asgi(path="/mcp")) as address:
            yield f"http://{address}/mcp", relay


def answers(who: str) -> dict[str, Any]:
    """A caller that answers every question about itself, and no other."""

    def on_elicit(request: Any) -> Any:
        assert who in request.message
        return True if request.mode == "url" else {"value": f"caller {who}"}

    def on_sample(request: Any) -> str:
        assert request.messages[0].text == f"Who is {who}?"
        return f"caller {who}"

    return {
        "on_elicit": on_elicit,
        "on_sample": on_sample,
        "roots": lambda request: [Root("file:///x", f"caller {who}")],
    }


def can_be_asked(kind: str, *revisions: str) -> bool:
    oldest = {"form": "2025-06-18", "page": "2025-11-25"}.get(kind, "")
    return all(revision >= oldest for revision in revisions)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caller", REVISIONS)
@pytest.mark.parametrize("upstream", REVISIONS[1:])
async def test_over_http_two_callers_are_asked_at_once_and_each_answers_for_itself(
    upstream: str, caller: str, kind: str, tmp_path: Path
) -> None:
    if not can_be_asked(kind, upstream, caller):
        pytest.skip("one side does not have this question")
    async with relayed("http", upstream, tmp_path) as (url, relay):
        async with (
            Client(url, revision=caller, **answers("A")) as one,
            Client(url, revision=caller, **answers("B")) as other,
        ):
            done = await asyncio.gather(
                *(
                    client.call_tool("ask", {"who": who, "kind": kind, "callers": 2})
                    for client, who in ((one, "A"), (other, "B"))
                )
            )
        said = {"page": "accept"}
        assert [result.text for result in done] == [
            f"{who} is {said.get(kind, f'caller {who}')}" for who in "AB"
        ]
        assert None not in relay.parents, "it was never guessed"
        assert bool(relay.parents) == (upstream != STATELESS)
        assert not relay.open


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caller", REVISIONS)
@pytest.mark.parametrize("upstream", ["2024-11-05", "2025-11-25", STATELESS])
async def test_over_stdio_one_caller_is_asked(
    upstream: str, caller: str, kind: str, tmp_path: Path
) -> None:
    if not can_be_asked(kind, upstream, caller):
        pytest.skip("one side does not have this question")
    async with relayed("stdio", upstream, tmp_path) as (url, relay):
        async with Client(url, revision=caller, **answers("A")) as client:
            result = await client.call_tool("ask", {"who": "A", "kind": kind, "callers": 1})
        assert result.text == ("A is accept" if kind == "page" else "A is caller A")
        assert set(relay.parents) <= {None}
