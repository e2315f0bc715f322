"""`dovetail backend check`, and the warnings of a server about the settings of Redis."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dovetail import Client, Server
from dovetail.backend.factory import prefix_of
from dovetail.backend.redis.address import parse_address
from dovetail.backend.redis.checks import Check, RedisFacts, check_redis
from dovetail.backend.redis.client import RedisClient
from tests.cli.conftest import dovetail
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY, PATIENT
from .redis_server import RedisServer, redis_server

pytestmark = needs_redis
URL = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", KEY)


async def found(url: str, name: str | None = None) -> dict[str, Check]:
    prefix = None if name is None else prefix_of(name)
    checks = await check_redis(parse_address(url), PATIENT.backend_timeout, prefix)
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks}


def statuses(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.status for name, check in checks.items()}


async def test_everything_is_checked(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as redis:
        checks = await found(redis.url, "shop")
        assert redis.keys() == []
    assert statuses(checks) == dict.fromkeys(
        ("reachable", "version", "persistence", "eviction", "clock", "scripts", "replicas")
        + ("access", "keys"),
        "ok",
    )
    assert "loses no acknowledged write" in checks["persistence"].text


@pytest.mark.parametrize(
    ("options", "status", "part"),
    [
        ("--save '' --appendonly no", "failed", "loses everything, including tasks"),
        ("--save '60 1'", "warning", "only snapshots (RDB)"),
        ("--appendonly yes", "ok", "the last second. To lose none, set: appendfsync always"),
        ("--appendonly yes --appendfsync no", "warning", "30 seconds"),
    ],
)
async def test_persistence_says_what_a_kill_can_lose(
    tmp_path: Path, options: str, status: str, part: str
) -> None:
    import shlex

    with redis_server(tmp_path, *shlex.split(options)) as redis:
        check = (await found(redis.url))["persistence"]
    assert check.status == status
    assert part in check.text


async def test_a_cache_is_not_a_backend(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory-policy", "allkeys-lru") as redis:
        check = (await found(redis.url))["eviction"]
    assert check.status == "failed"
    assert "Set: maxmemory-policy noeviction" in check.text


@pytest.mark.parametrize(
    ("info", "status", "text"),
    [
        ("redis_version:6.2.14", "failed", "Redis 6.2.14 is too old. Install Redis 7.0 or later"),
        ("redis_version:7.0.0", "ok", "Redis 7.0.0"),
        ("redis_version:10.1", "ok", "Redis 10.1"),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1",
            "ok",
            "Valkey 8.0.1",
        ),
        ("redis_version:next", "failed", "Redis next is too old. Install Redis 7.0 or later"),
        ("", "warning", "unknown, because INFO is not allowed"),
    ],
)
def test_versions(info: str, status: str, text: str) -> None:
    check = next(RedisFacts(info, {}).check_settings())
    assert (check.status, check.text) == (status, text)


@pytest.mark.parametrize(
    ("info", "wait", "status", "part"),
    [
        ("role:master\nconnected_slaves:0", 0, "ok", "none"),
        ("role:master\nconnected_slaves:2", 0, "warning", "Add ?wait=1 to the URL"),
        ("role:master\nconnected_slaves:2", 1, "ok", "2. Important writes wait for 1"),
        ("role:master\nconnected_slaves:1", 2, "failed", "?wait=2 makes important writes wait"),
        ("role:slave\nconnected_slaves:0", 0, "failed", "Name its master"),
        ("", 1, "warning", "unknown"),
        ("role:master\nconnected_slaves:many", 0, "warning", "unknown"),
    ],
)
def test_replicas(info: str, wait: int, status: str, part: str) -> None:
    check = RedisFacts(info, {}).check_replicas(wait)
    assert check.status == status
    assert part in check.text


async def test_a_replica_is_counted(own_redis: RedisServer, tmp_path: Path) -> None:
    replica_of = ("--replicaof", "127.0.0.1", str(own_redis.port))
    with redis_server(tmp_path / "replica", *replica_of, program=own_redis.program) as replica:
        while replica.run("ROLE")[3] != b"connected":
            await asyncio.sleep(0.05)
        while (await found(own_redis.url))["replicas"].text == "none":
            await asyncio.sleep(0.05)
        checks = await found(own_redis.url + "?wait=1", "shop")
        assert checks["replicas"].status == checks["access"].status == "ok"
        assert (await found(replica.url))["replicas"].status == "failed"


async def test_what_may_not_be_read_is_unknown_and_not_an_error(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.run("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info", "-config")
    url = f"redis://app:secret@127.0.0.1:{own_redis.port}/0"
    checks = await found(url, "shop")
    unknown = ("version", "persistence", "eviction", "replicas")
    assert statuses(checks) == dict.fromkeys(
        ("reachable", "clock", "scripts", "access", "keys"), "ok"
    ) | dict.fromkeys(unknown, "warning")
    assert all("unknown" in checks[name].text for name in unknown)
    await start_and_stop(url)
    assert [one for one in caplog.records if one.levelno > logging.INFO] == []


async def test_missing_rights_are_named(own_redis: RedisServer) -> None:
    rules = ("~{dovetail:shop}:*", "&{dovetail:shop}:*", "+@all")
    own_redis.run("ACL", "SETUSER", "app", "on", ">secret", *rules)
    url = f"redis://app:secret@127.0.0.1:{own_redis.port}/0"
    assert (await found(url, "shop"))["access"].status == "ok"
    other = (await found(url, "other"))["access"]
    assert other.status == "failed"
    assert other.text.startswith("SET to {dovetail:other}:*: ")
    own_redis.run("ACL", "SETUSER", "app", "resetchannels")
    assert "PUBLISH" in (await found(url, "shop"))["access"].text
    own_redis.run("ACL", "SETUSER", "app", "-@scripting")
    checks = await found(url)
    assert (checks["scripts"].status, checks["clock"].status) == ("failed", "warning")


async def test_a_password_that_is_wrong_is_reported_at_once_and_not_shown(tmp_path: Path) -> None:
    with redis_server(tmp_path, password="secret") as redis:
        url = f"redis://:wrong-one@127.0.0.1:{redis.port}/0"
        began = time.monotonic()
        checks = await found(url)
        assert time.monotonic() - began < PATIENT.backend_timeout / 2
        missing = await found(f"redis://127.0.0.1:{redis.port}/0")
    assert checks["reachable"].status == "failed"
    assert "wrong-one" not in checks["reachable"].text
    assert checks["reachable"].text.endswith("Check the user and the password in the URL")
    assert "Add the password to the URL" in missing["reachable"].text


async def test_what_to_do_about_a_url_that_does_not_fit(own_redis: RedisServer) -> None:
    async def text(url: str) -> str:
        checks = await check_redis(parse_address(url), timeout=3.0)  # most of them try for as long
        return checks[0].text

    port = own_redis.port
    assert "Remove it from the URL" in await text(f"redis://:needless@127.0.0.1:{port}")
    assert "write redis:// in the URL" in await text(f"rediss://127.0.0.1:{port}")
    assert "Check the host in the URL" in await text("redis://nowhere.invalid")
    assert "Check that Redis is running" in await text(f"redis://127.0.0.1:{free_port()}")


# warnings of a server


async def start_and_stop(url: str) -> None:
    """Run a server until it has checked the settings of Redis."""
    server = Server("shop", backend=url, limits=PATIENT)
    async with Client(server):
        assert server.backend
        while any("warn_about_settings" in repr(task) for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage()
        for one in caplog.records
        if one.name == "dovetail.backend" and one.levelno == logging.WARNING
    ]


async def test_a_server_warns_once_about_settings_that_lose_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, "--maxmemory-policy", "volatile-lru") as redis:
        server = Server("shop", backend=redis.url, limits=PATIENT)
        for _ in range(2):
            async with Client(server):
                while any("warn_about_settings" in repr(task) for task in asyncio.all_tasks()):
                    await asyncio.sleep(0.01)
    where = f"Redis at redis://127.0.0.1:{redis.port}/0"
    first, second = warnings(caplog)
    assert first.startswith(f"{where}: persistence: off.")
    assert first.endswith("Set: appendonly yes")
    assert second.startswith(f"{where}: eviction: volatile-lru.")


async def test_of_several_workers_only_the_first_warns(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_WORKER", "2")
    await start_and_stop(own_redis.url)
    assert warnings(caplog) == []
    monkeypatch.setenv("DOVETAIL_WORKER", "1")
    await start_and_stop(own_redis.url)
    assert len(warnings(caplog)) == 1


async def test_the_warnings_come_when_redis_does(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_redis.stop()
    server = Server("shop", backend=own_redis.url)
    async with Client(server):
        assert server.backend.state == "away"
        own_redis.start()
        while not any("persistence: off" in text for text in warnings(caplog)):
            await asyncio.sleep(0.05)


async def test_a_slow_answer_does_not_delay_the_start(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dovetail.backend.redis import checks

    asked = asyncio.Event()

    async def never(client: RedisClient) -> RedisFacts:
        asked.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(checks, "read_facts", never)
    async with Client(Server("shop", backend=own_redis.url, limits=PATIENT)) as client:
        await asked.wait()
        await client.ping()


# the command


@contextmanager
def well_configured(folder: Path) -> Iterator[RedisServer]:
    with redis_server(folder, "--appendonly", "yes", password="pass word") as redis:
        redis.url = f"redis://:pass%20word@127.0.0.1:{redis.port}/0"
        yield redis


def test_the_command_prints_a_line_for_each_check(tmp_path: Path) -> None:
    with well_configured(tmp_path) as redis:
        done = dovetail("backend", "check", redis.url, "--name", "shop")
        assert (done.code, done.err) == (0, "")
        first, *lines = done.out.splitlines()
        assert first == f"redis://127.0.0.1:{redis.port}/0"
        assert [line.split()[:2] for line in lines] == [
            [name, "ok"]
            for name in ("reachable", "version", "persistence", "eviction", "clock", "scripts")
            + ("replicas", "access", "keys")
        ]
        by_variable = dovetail("backend", "check", "--json", DOVETAIL_BACKEND=redis.url)
    assert by_variable.json["ok"] is True
    assert {check["status"] for check in by_variable.json["checks"]} == {"ok"}
    assert "pass" not in done.out + by_variable.out


def test_the_exit_code_says_whether_a_check_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOVETAIL_KEYS")
    with well_configured(tmp_path) as redis:
        done = dovetail("backend", "check", redis.url)
        assert (done.code, done.failure) == (1, "This backend is not ready: keys")
        assert "DOVETAIL_KEYS is not set" in done.out
        assert "Generate one with: python -c" in done.out
        done = dovetail("backend", "check", redis.url, "--json")
    assert (done.code, done.json["ok"]) == (1, False)


def test_the_url_may_follow_an_option(tmp_path: Path) -> None:
    with well_configured(tmp_path) as redis:
        done = dovetail("backend", "check", "--name", "shop", redis.url)
    assert (done.code, done.err) == (0, "")
    assert "to {dovetail:shop}:*" in done.out


def test_a_redis_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    done = dovetail("backend", "check", f"redis://:secret@127.0.0.1:{free_port()}/0")
    assert (done.code, done.failure) == (1, "This backend is not ready: reachable")
    assert "Connect call failed" in done.out
    assert "secret" not in done.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["check"], "Name the URL of Redis"),
        (["check", "redis+cluster://:secret@host"], "Cluster is not supported"),
        (["check", "http://:secret@host"], "must start with one of"),
        (["redis://:secret@host"], "invalid choice: 'redis://:***@host'"),
        (["check", "redis://host", "redis://:secret:a/b@host"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line(words: list[str], part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_BACKEND", raising=False)
    done = dovetail("backend", *words)
    assert done.code == 2
    assert part in done.failure
    assert "secret" not in done.err
