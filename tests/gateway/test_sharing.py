"""Which callers share a connection to a server: `share`, `stateful`, and callers without a name."""

from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from tests.gateway.programs import entry, write_server

from .serving import ANN, BOB, KEYS, headers_of, served

SESSION, STATELESS = "2025-11-25", "2026-07-28"
SERVERS = pytest.mark.parametrize("server", [SESSION, STATELESS])


async def pids(url: str, revision: str, callers: str, **options: Any) -> list[str]:
    """Call a server twice as each caller (`a`, `b`, or `-` for no name), and return the processes
    that answered, as letters in the order of their first answer."""
    seen: dict[int, str] = {}
    found = []
    for one in callers:
        key = {"a": ANN, "b": BOB}.get(one)
        headers = {} if key is None else headers_of(key)
        async with Client(url, revision=revision, headers=headers, **options) as client:
            for _ in range(2):
                pid = (await client.call_tool("up__pid")).data
                found.append(seen.setdefault(pid, "xyzuvw"[len(seen)]))
    return found


def source_of(folder: Path, server: str, **settings: Any) -> dict[str, Any]:
    return {"mcpServers": {"up": entry(write_server(folder, "up", revisions=[server]), **settings)}}


@SERVERS
@pytest.mark.parametrize("caller", [SESSION, STATELESS])
@pytest.mark.parametrize(("share", "expected"), [("all", "xxxxxx"), ("user", "xxxxyy")])
async def test_callers_share_a_connection_as_the_entry_says(
    tmp_path: Path, server: str, caller: str, share: str, expected: str
) -> None:
    async with served(source_of(tmp_path, server, share=share), auth=KEYS) as (_, url):
        assert await pids(url, caller, "aab") == list(expected)


@pytest.mark.parametrize(
    ("server", "caller", "expected"),
    [
        (STATELESS, SESSION, "xxxxxx"),
        (STATELESS, STATELESS, "xxxxxx"),
        (SESSION, SESSION, "xxyyzz"),  # it has subscriptions, so it keeps state
        (SESSION, STATELESS, "xxxxyy"),
    ],
)
async def test_the_default_is_the_widest_that_is_safe(
    tmp_path: Path, server: str, caller: str, expected: str
) -> None:
    async with served(source_of(tmp_path, server), auth=KEYS) as (_, url):
        assert await pids(url, caller, "aab") == list(expected)


@SERVERS
async def test_each_session_has_a_connection_of_its_own(tmp_path: Path, server: str) -> None:
    async with served(source_of(tmp_path, server, share="caller"), auth=KEYS) as (_, url):
        assert await pids(url, SESSION, "aab") == list("xxyyzz")


@pytest.mark.parametrize("share", ["user", "caller"])
async def test_without_a_name_each_session_is_a_user(tmp_path: Path, share: str) -> None:
    async with served(source_of(tmp_path, STATELESS, share=share)) as (_, url):
        assert await pids(url, SESSION, "--") == list("xxyy")


@SERVERS
@pytest.mark.parametrize("callers", [(KEYS, "aab", "xxxxyy"), (None, "--", "xyzu")])
async def test_what_a_stateful_server_keeps_is_never_seen_by_another_caller(
    tmp_path: Path, server: str, callers: Any
) -> None:
    auth, names, expected = callers
    async with served(source_of(tmp_path, server, stateful=True), auth=auth) as (gateway, url):
        assert await pids(url, STATELESS, names) == list(expected)
        if auth is None:  # what each call left is closed
            assert gateway.upstreams.servers["up"].connections == 1
