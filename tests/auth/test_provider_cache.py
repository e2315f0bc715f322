"""A provider caches the tokens that it has read, and refuses one that was revoked at once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.auth import KnownClient, Provider
from dovetail.auth.provider.storage import SqliteStorage, row_key
from dovetail.errors import Overloaded
from dovetail.ports import HttpRequest, HttpResponse, Principal
from tests.auth.provider_kit import BASE, Agent, decoded

SECRET = "hush hush, said the vault"
DELETE = """
import asyncio, sys
from dovetail.auth.provider.storage import SqliteStorage
asyncio.run(SqliteStorage(sys.argv[1]).delete(sys.argv[2]))
"""


def make_agent(storage: Any) -> Agent:
    return Agent(Provider(clients=[KnownClient(id="cron", secret=SECRET)], storage=storage))


async def fetch_token(agent: Agent) -> str:
    form = {"grant_type": "client_credentials", "client_id": "cron", "client_secret": SECRET}
    token: str = decoded(await agent.form("/token", form))["access_token"]
    return token


def with_token(token: str) -> HttpRequest:
    return HttpRequest(
        method="POST", path="/mcp", url=f"{BASE}/mcp", headers={"authorization": f"Bearer {token}"}
    )


async def admitted(agent: Agent, token: str) -> Principal | HttpResponse:
    return await agent.provider.admit(with_token(token), agent.site)


def admitted_now(agent: Agent, token: str) -> Principal | None:
    return agent.provider.admit_now(with_token(token), agent.site)


async def make_cached_token(agent: Agent) -> str:
    token = await fetch_token(agent)
    assert admitted_now(agent, token) is None
    assert isinstance(await admitted(agent, token), Principal)
    assert admitted_now(agent, token) is not None
    return token


async def check_refused(agent: Agent, token: str) -> None:
    assert admitted_now(agent, token) is None
    answer = await admitted(agent, token)
    assert isinstance(answer, HttpResponse) and answer.status == 401


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == "memory" else str(tmp_path / "provider.sqlite")


async def test_a_token_that_this_process_revokes_is_refused_at_once(storage: str) -> None:
    agent = make_agent(storage)
    token = await make_cached_token(agent)
    form = {"token": token, "client_id": "cron", "client_secret": SECRET}
    assert (await agent.form("/revoke", form)).status == 200
    await check_refused(agent, token)


async def test_a_token_that_another_process_revokes_is_refused_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "provider.sqlite")
    agent = make_agent(path)
    revoked, other = await make_cached_token(agent), await fetch_token(agent)
    assert isinstance(await admitted(agent, revoked), Principal)
    assert admitted_now(agent, revoked) is not None
    command = [sys.executable, "-c", DELETE, path, row_key("access", BASE, revoked)]
    subprocess.run(command, check=True)
    await check_refused(agent, revoked)
    assert isinstance(await admitted(agent, other), Principal)
    assert admitted_now(agent, other) is not None


async def test_a_token_that_another_provider_on_the_file_revokes_is_refused_at_once(
    tmp_path: Path,
) -> None:
    first, second = (make_agent(tmp_path / "provider.sqlite") for _ in range(2))
    token = await make_cached_token(first)
    form = {"token": token, "client_id": "cron", "client_secret": SECRET}
    assert (await second.form("/revoke", form)).status == 200
    await check_refused(first, token)


async def test_the_version_of_a_storage_changes_with_its_rows_only(tmp_path: Path) -> None:
    own, other = (SqliteStorage(tmp_path / "rows.sqlite") for _ in range(2))
    far = 4e9
    versions = [own.version()]
    assert await own.get("a:1") is None
    assert own.version() == versions[-1]
    await own.add("grant:1", b"x", far)
    versions.append(own.version())
    await own.add("access:1", b"x", far, "grant:1")
    versions.append(own.version())
    await other.change("access:1", b"x", b"y", far)
    versions.append(own.version())
    await other.delete("grant:1")
    versions.append(own.version())
    own.close()
    versions.append(own.version())
    assert len(set(versions)) == len(versions)


async def test_a_storage_that_cannot_be_read_is_not_trusted(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = SqliteStorage(storage)
    agent = make_agent(rows)
    token = await make_cached_token(agent)

    def fail(*args: Any) -> Any:
        raise Overloaded("The storage is not available now; try again later")

    monkeypatch.setattr(rows, "_do", fail)
    monkeypatch.setattr(rows, "_open", fail)
    assert admitted_now(agent, token) is None
    answer = await admitted(agent, token)
    assert isinstance(answer, HttpResponse) and answer.status == 503


async def test_a_storage_without_versions_is_read_for_every_request() -> None:
    rows = SqliteStorage(":memory:")

    class Plain:
        get, add, change, take, delete = rows.get, rows.add, rows.change, rows.take, rows.delete

    agent = make_agent(Plain())
    token = await fetch_token(agent)
    assert isinstance(await admitted(agent, token), Principal)
    assert admitted_now(agent, token) is None
