"""Values that an attacker swaps, moves, makes up, puts back and deletes: each counts as missing, or
is the value that was there before."""

import secrets

import pytest

from dovetail.backend import Backend
from dovetail.errors import BackendAway
from tests.auth.provider_kit import Agent, decoded, provider, refused, returned
from tests.backend.conftest import MakeBackend
from tests.backend.redis_server import RedisServer
from tests.system import needs_redis

from .redis_cli import Attacker

pytestmark = needs_redis


@pytest.fixture
def backend(make_backend: MakeBackend) -> Backend:
    return make_backend()


@pytest.fixture
def attacker(shared_redis: RedisServer, backend: Backend) -> Attacker:
    return Attacker(shared_redis, backend.prefix)


async def test_rows_that_were_swapped_count_as_missing(
    backend: Backend, attacker: Attacker, caplog: pytest.LogCaptureFixture
) -> None:
    rows = backend.rows("secret")
    await rows.put("one", b"1", 60)
    await rows.put("two", b"2", 60)
    one, two = attacker.keys("secret")
    attacker.swap(one, two)
    assert [await rows.get("one"), await rows.get("two")] == [None, None]
    assert not await rows.change("one", b"2", b"3", 60)
    assert await rows.take("one") is None
    assert len([line for line in caplog.messages if "did not seal it" in line]) == 1
    await backend.close()


async def test_a_row_of_one_kind_is_not_one_of_another(
    backend: Backend, attacker: Attacker
) -> None:
    await backend.rows("cheap").put("same", b"1", 60)
    [key] = attacker.keys("cheap")
    attacker.copy(key, key.replace("cheap", "precious"))
    assert await backend.rows("precious").get("same") is None
    await backend.close()


async def test_a_row_of_one_server_is_not_one_of_another(
    backend: Backend, attacker: Attacker, make_backend: MakeBackend
) -> None:
    other = make_backend(name="another server")
    await other.rows("secret").put("same", b"theirs", 60)
    attacker.copy(f"{other.prefix}secret:same", f"{backend.prefix}secret:same")
    assert await backend.rows("secret").get("same") is None
    for one in (backend, other):
        await one.close()


@pytest.mark.parametrize("length", [0, 1, 30, 100, 10_000])
async def test_a_row_that_was_made_up_counts_as_missing(
    backend: Backend, attacker: Attacker, length: int
) -> None:
    rows = backend.rows("secret")
    attacker.run("SET", f"{backend.prefix}secret:one", data=secrets.token_bytes(length))
    assert await rows.get("one") is None
    assert await rows.take("one") is None
    assert await rows.add("one", b"ours", 60)
    await backend.close()


async def test_every_changed_bit_makes_a_row_count_as_missing(
    backend: Backend, attacker: Attacker
) -> None:
    rows = backend.rows("secret")
    await rows.put("one", b"1", 60)
    [key] = attacker.keys("secret")
    for bit in range(0, 8 * int(attacker.run("STRLEN", key)), 37):
        was = attacker.run("GETBIT", key, str(bit)).decode()
        attacker.run("SETBIT", key, str(bit), "1" if was == "0" else "0")
        assert await rows.get("one") is None
        attacker.run("SETBIT", key, str(bit), was)
    assert await rows.get("one") == b"1"
    await backend.close()


async def test_an_old_value_can_be_put_back_and_a_row_can_be_deleted(
    backend: Backend, attacker: Attacker
) -> None:
    """What an attacker can do, as documented."""
    rows = backend.rows("secret")
    await rows.put("one", b"old", 60)
    [key] = attacker.keys("secret")
    kept = attacker.keep(key)
    await rows.put("one", b"new", 60)
    attacker.copy(kept, key)
    assert await rows.get("one") == b"old"
    attacker.run("DEL", key)
    assert await rows.get("one") is None
    await backend.close()


async def test_a_key_of_another_type_costs_a_request_and_nothing_more(
    backend: Backend, attacker: Attacker
) -> None:
    attacker.run("SADD", f"{backend.prefix}secret:one", "a set")
    rows = backend.rows("secret")
    with pytest.raises(BackendAway):
        await rows.get("one")
    await rows.put("two", b"2", 60)
    assert await rows.get("two") == b"2"
    assert backend.state == "connected"
    await backend.close()


async def test_a_provider_ignores_rows_that_were_swapped(
    backend: Backend, attacker: Attacker
) -> None:
    guard = provider(storage=None)
    guard.use_backend(backend)
    agent = Agent(guard)
    client = (await agent.register())["client_id"]
    ada = await agent.tokens(client)
    agent.cookies = {}
    way_back = await agent.approve(agent.wish(client), "bob", "builder")
    bob = decoded(await agent.redeem(client, returned(way_back)["code"]))
    for kind, tokens in (("grant", "refresh_token"), ("access", "access_token")):
        rows = attacker.keys(f"provider:{kind}")
        assert len(rows) == 2, attacker.keys()
        attacker.swap(*rows)
        for theirs in (ada, bob):
            if kind == "grant":
                refused(await agent.refresh(client, theirs[tokens]), "invalid_grant")
            else:
                assert await agent.who(theirs[tokens]) is None
        attacker.swap(*rows)
    caller = await agent.who(bob["access_token"])
    assert caller is not None and caller.id == "bob"
    await backend.close()


async def test_a_revoked_grant_can_be_put_back(backend: Backend, attacker: Attacker) -> None:
    """What an attacker can do, as documented: values are rolled back, with all that belongs to
    them."""
    guard = provider(storage=None)
    guard.use_backend(backend)
    agent = Agent(guard)
    client = (await agent.register())["client_id"]
    tokens = await agent.tokens(client)
    kept = {key: attacker.keep(key) for key in attacker.keys("provider")}
    await agent.form("/revoke", {"client_id": client, "token": tokens["refresh_token"]})
    assert await agent.who(tokens["access_token"]) is None
    for key, copy in kept.items():
        attacker.copy(copy, key)
    assert await agent.who(tokens["access_token"]) is not None
    assert decoded(await agent.refresh(client, tokens["refresh_token"]))["access_token"]
    await backend.close()
