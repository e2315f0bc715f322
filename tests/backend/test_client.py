"""Connections to Redis: deadlines, the breaker, restarts, scripts, passwords, replicas."""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail.backend.redis import client as module
from dovetail.backend.redis.address import parse_address
from dovetail.backend.redis.client import MAX_CONNECTIONS, RedisClient
from dovetail.backend.redis.scripts import CHANGE_ROW
from dovetail.errors import BackendAway, Overloaded
from tests.clock import awake_time
from tests.ports import free_port
from tests.system import needs_redis, needs_sentinel

from .redis_server import RedisServer, redis_server

pytestmark = needs_redis
PATIENT = 20.0


@asynccontextmanager
async def connected(
    redis: RedisServer | str, timeout: float = PATIENT
) -> AsyncIterator[RedisClient]:
    url = redis if isinstance(redis, str) else redis.url
    client = RedisClient(parse_address(url), timeout)
    try:
        yield client
    finally:
        await client.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def open_sockets(redis: RedisServer) -> int:
    clients: bytes | str = redis.run("CLIENT", "LIST")
    return len(str(clients).split("id=")) - 2  # without the one that asks


# commands


async def test_a_command_is_answered(shared_redis: RedisServer) -> None:
    async with connected(shared_redis) as client:
        assert client.state == "away"
        assert await client.run("SET", "key", b"\0\xff") == b"OK"
        assert await client.run("GET", "key") == b"\0\xff"
        assert await client.pipeline([("INCR", "n"), ("INCRBY", "n", 5), ("GET", "none")]) == [
            *(1, 6, None)
        ]
        assert client.state == "connected"
        assert (client.stats.commands, client.stats.errors) == (5, 0)
        assert client.stats.seconds > 0


async def test_many_commands_at_once_share_a_few_connections(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        replies = await asyncio.gather(*(client.run("ECHO", str(n)) for n in range(2000)))
        assert replies == [b"%d" % n for n in range(2000)]
        assert open_sockets(own_redis) <= MAX_CONNECTIONS
    await until(lambda: open_sockets(own_redis) == 0)


async def test_a_caller_that_is_cancelled_does_not_disturb_others(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        for _ in range(20):
            tasks = [asyncio.create_task(client.run("ECHO", str(n))) for n in range(50)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            replies = await asyncio.gather(*tasks, return_exceptions=True)
            assert replies[1::2] == [b"%d" % n for n in range(1, 50, 2)]


async def test_a_large_value_is_sent_and_read(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        value = b"x" * 20_000_000
        await client.run("SET", "key", value)
        assert await client.run("GET", "key") == value


async def test_a_command_that_blocks_does_not_hold_up_others(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        blocked = [
            asyncio.create_task(client.run("BLPOP", f"list {n}", 30, block=30)) for n in range(3)
        ]
        await client.run("PING")
        await until(lambda: b"blocked_clients:3" in raw_info(own_redis))
        for n in range(3):
            assert await client.run("LPUSH", f"list {n}", "x") == 1
        assert [reply[1] for reply in await asyncio.gather(*blocked)] == [b"x"] * 3


def raw_info(redis: RedisServer) -> bytes:
    with socket.create_connection(("127.0.0.1", redis.port)) as raw:
        raw.sendall(b"INFO clients\r\n")
        return raw.recv(65536)


async def test_an_error_is_one_kind_of_error_and_the_connection_stays(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(own_redis) as client:
        await client.run("SET", "key", "text")
        for _ in range(5):
            with pytest.raises(BackendAway) as caught:
                await client.run("INCR", "key")
        assert caught.value.retry_after == 1
        assert isinstance(caught.value, Overloaded) and caught.value.code == Overloaded.code
        assert client.state == "connected" and client.stats.errors == 5
        assert await client.run("GET", "key") == b"text"
    assert len([one for one in caplog.records if "refused 'INCR'" in one.message]) == 1


async def test_redis_out_of_memory_refuses_writes_and_still_answers_reads(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory", "1mb") as redis:
        async with connected(redis) as client:
            with pytest.raises(BackendAway):
                for n in range(100):
                    await client.run("SET", f"key {n}", b"x" * 100_000)
            assert await client.run("GET", "none") is None
            assert client.state == "connected"


def test_any_event_loop_may_use_a_client(own_redis: RedisServer) -> None:
    client = RedisClient(parse_address(own_redis.url), PATIENT)

    async def use() -> None:
        assert await client.run("INCR", "n") > 0

    for _ in range(3):
        asyncio.run(use())
    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert own_redis.run("GET", "n") == b"7"
    assert len(client._pools) <= 5  # those of closed loops are forgotten


# scripts


async def test_a_script_that_redis_forgot_is_sent_again(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        for _ in range(2):
            await client.run("SET", "row", "old")
            assert await client.run_script(CHANGE_ROW, ["row"], b"old", b"new", 0) == 1
            replies = await client.pipeline(
                [
                    CHANGE_ROW.call(["row"], b"new", b"newer", 0),
                    ("GET", "row"),
                    CHANGE_ROW.call(["row"], b"new", b"x", 0),
                ]
            )
            assert replies in ([1, b"newer", 0], [1, b"new", 0])
            own_redis.run("SCRIPT", "FLUSH")
        counts = own_redis.command_counts()
        assert counts["evalsha"] == 6 and 2 <= counts["eval"] <= 4


# deadlines and the breaker


async def test_a_hung_redis_costs_one_deadline_once(own_redis: RedisServer) -> None:
    async with connected(own_redis, timeout=0.5) as client:
        await until_connected(client)
        own_redis.pause()
        started = time.monotonic()
        with pytest.raises(BackendAway) as caught:
            await client.run("PING")
        assert time.monotonic() - started > 0.4 and caught.value.sent
        assert client.state == "away"
        started = awake_time()
        for _ in range(200):
            with pytest.raises(BackendAway) as caught:
                await client.run("PING")
        assert awake_time() - started < 0.4 and not caught.value.sent
        assert caught.value.retry_after is not None and caught.value.retry_after >= 1
        own_redis.resume()
        await until(lambda: client.state == "connected")
        assert await client.run("ECHO", "x") == b"x"


async def until_connected(client: RedisClient) -> None:
    """Open a connection, on a machine that may be slow."""
    while True:
        try:
            await client.run("PING")
            return
        except BackendAway:
            await asyncio.sleep(0.01)


async def test_while_redis_hangs_all_callers_wait_at_the_same_time(own_redis: RedisServer) -> None:
    async with connected(own_redis, timeout=1.0) as client:
        await until_connected(client)
        own_redis.pause()
        started = awake_time()
        got = await asyncio.gather(
            *(client.run("PING") for _ in range(500)), return_exceptions=True
        )
        assert awake_time() - started < 1.9
        assert {type(one) for one in got} == {BackendAway}
        own_redis.resume()


async def test_a_blocked_event_loop_does_not_count_against_redis(own_redis: RedisServer) -> None:
    async with connected(own_redis, timeout=1.0) as client:
        await until_connected(client)
        own_redis.pause()
        running = asyncio.create_task(client.run("ECHO", "x"))
        await asyncio.sleep(0.05)
        own_redis.resume()
        time.sleep(1.5)  # as a handler would that blocks
        assert await running == b"x"


async def test_a_restarted_redis_is_found_again(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dovetail")
    async with connected(own_redis) as client:
        await asyncio.gather(*(client.run("PING") for _ in range(20)))
        own_redis.stop()
        for _ in range(5):
            with pytest.raises(BackendAway):
                await client.run("PING")
        assert client.state == "away"
        own_redis.start()
        started = time.monotonic()
        await until(lambda: client.state == "connected")
        assert time.monotonic() - started < 5
        assert await client.run("ECHO", "x") == b"x"
    lines = [one.message for one in caplog.records if one.name == "dovetail.backend"]
    where = f"Redis at {own_redis.url}"
    assert [lines[0], lines[2]] == [f"Connected to {where}", f"{where} is back"]
    assert "is away" in lines[1] and len(lines) == 3


async def test_a_restart_between_two_commands_goes_unnoticed(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        for _ in range(3):
            assert await client.run("ECHO", "x") == b"x"
            own_redis.stop()
            own_redis.start()
            await asyncio.sleep(0.01)
        assert await client.run("ECHO", "x") == b"x"
        assert client.stats.errors == 0


async def test_one_lost_connection_does_not_open_the_breaker(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        await client.run("PING")
        blocked = asyncio.create_task(client.run("BLPOP", "list", 30, block=30))
        await until(lambda: b"blocked_clients:1" in raw_info(own_redis))
        own_redis.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(BackendAway):
            await blocked
        assert client.state == "connected"
        assert await client.run("ECHO", "x") == b"x"


async def test_closing_while_redis_is_away_ends_the_attempts(own_redis: RedisServer) -> None:
    own_redis.stop()
    async with connected(own_redis) as client:
        assert not await client.connect(0.05)
        await client.close()
        assert client._trial is not None and client._trial.done()
        own_redis.start()
        with pytest.raises(BackendAway):  # it starts another attempt
            await client.run("PING")
        await until(lambda: client.state == "connected")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_finds_redis_by_itself(own_redis: RedisServer) -> None:
    client = RedisClient(parse_address(own_redis.url), PATIENT)

    async def child() -> None:
        while True:
            try:
                await client.run("INCR", "child")
                return
            except BackendAway:
                await asyncio.sleep(0.01)

    async def parent() -> None:
        await client.run("INCR", "parent")
        own_redis.stop()
        assert not await client.connect(0)
        own_redis.start()
        pid = os.fork()
        if not pid:
            asyncio._set_running_loop(None)
            try:
                asyncio.run(asyncio.wait_for(child(), 60))
            finally:
                os._exit(0)
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            await asyncio.sleep(0.01)

    asyncio.run(parent())
    assert own_redis.run("GET", "child") == b"1"


@contextmanager
def silent_server() -> Iterator[int]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_at_the_start_redis_is_tried_for_a_while() -> None:
    async with connected(f"redis://127.0.0.1:{free_port()}", timeout=0.2) as client:
        started = time.monotonic()
        assert not await client.connect(0.5)
        assert 0.1 < time.monotonic() - started < 5
        assert client.state == "away"
    with silent_server() as port:
        async with connected(f"redis://127.0.0.1:{port}", timeout=0.2) as client:
            assert not await client.connect(0.3)


async def test_a_redis_that_starts_late_is_found(own_redis: RedisServer) -> None:
    own_redis.stop()
    async with connected(own_redis) as client:
        connecting = asyncio.create_task(client.connect(60))
        await asyncio.sleep(0.05)
        own_redis.start()
        assert await connecting
        assert client.state == "connected"


async def test_what_is_not_redis_is_away() -> None:
    async def chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(chat, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with connected(f"redis://127.0.0.1:{port}", timeout=5) as client:
            assert not await client.connect(0.2)
            with pytest.raises(BackendAway):
                await client.run("PING")


async def test_commands_do_not_pile_up_without_bound(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 100)
    async with connected(own_redis) as client:
        got = await asyncio.gather(
            *(client.run("PING") for _ in range(200)), return_exceptions=True
        )
        assert got.count(b"PONG") == 100
        assert {type(one) for one in got} == {bytes, BackendAway}


async def test_closing_ends_what_waits(own_redis: RedisServer) -> None:
    async with connected(own_redis) as client:
        await client.run("PING")
        own_redis.pause()
        waiting = [asyncio.create_task(client.run("PING")) for _ in range(300)]
        await asyncio.sleep(0.01)
        await client.close()
        got = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in got} == {BackendAway}
        own_redis.resume()
        assert await client.run("PING") == b"PONG"


# passwords


async def test_a_wrong_password_is_reported_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with redis_server(tmp_path, password="correct horse") as redis:
        url = f"redis://:correct%20horse@127.0.0.1:{redis.port}"
        async with connected(url) as client:
            assert await client.connect(10)
            assert await client.run("PING") == b"PONG"
        for login in ("", ":hunter2@", "somebody:hunter2@"):
            async with connected(f"redis://{login}127.0.0.1:{redis.port}") as client:
                assert not await client.connect(0.1)
                with pytest.raises(BackendAway) as caught:
                    await client.run("PING")
                assert "hunter2" not in f"{caught.value!r}"
    assert "is away" in caplog.text
    assert "hunter2" not in caplog.text and "correct horse" not in caplog.text


# replicas and sentinels


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_server(folder / "master") as master:
        options = ["--replicaof", "127.0.0.1", str(master.port)]
        with redis_server(folder / "replica", *options) as replica:
            while replica.run("ROLE")[3] != b"connected":
                time.sleep(0.05)
            yield master, replica


async def test_a_durable_write_waits_for_a_replica(tmp_path: Path) -> None:
    with replicated(tmp_path) as (master, replica):
        async with connected(f"{master.url}?wait=1", timeout=5) as client:
            for n in range(20):
                await client.run("SET", "key", n, durable=True)
                assert replica.run("GET", "key") == b"%d" % n
    with redis_server(tmp_path / "alone") as alone:
        async with connected(f"{alone.url}?wait=1", timeout=1.5) as client:
            await until_connected(client)
            with pytest.raises(BackendAway):
                await client.run("SET", "key", 1, durable=True)
            assert await client.run("SET", "key", 1) == b"OK"
            assert client.state == "connected"


async def test_a_replica_is_not_written_to(tmp_path: Path) -> None:
    with replicated(tmp_path) as (_, replica):
        async with connected(replica) as client:
            for _ in range(3):
                with pytest.raises(BackendAway):
                    await client.run("SET", "key", 1)


async def test_a_connection_to_a_former_master_is_not_used_again(tmp_path: Path) -> None:
    with replicated(tmp_path) as (master, replica):
        async with connected(master) as client:
            former = await client.run("CLIENT", "ID")
            assert await client.run("CLIENT", "ID") == former
            replica.run("REPLICAOF", "NO", "ONE")
            master.run("REPLICAOF", "127.0.0.1", replica.port)
            with pytest.raises(BackendAway):
                await client.run("SET", "key", 1)
            assert await client.run("CLIENT", "ID") != former


@needs_sentinel
async def test_sentinels_name_the_master_and_its_successor(tmp_path: Path) -> None:
    with replicated(tmp_path) as (master, replica):
        with sentinels(tmp_path, master) as ports:
            hosts = ",".join(f"127.0.0.1:{port}" for port in [free_port(), *ports])
            async with connected(f"redis+sentinel://{hosts}/main", timeout=3) as client:
                assert await client.connect(30)
                await client.run("SET", "key", 1)
                assert master.run("GET", "key") == b"1"
                master.stop()
                while True:
                    try:
                        await client.run("SET", "key", 2)
                        break
                    except BackendAway:
                        await asyncio.sleep(0.05)
                assert replica.run("GET", "key") == b"2"
            async with connected(f"redis+sentinel://{hosts}/other", timeout=3) as client:
                assert not await client.connect(0.1)


@contextmanager
def sentinels(folder: Path, master: RedisServer) -> Iterator[list[int]]:
    started: list[RedisServer] = []
    try:
        for n in range(3):
            place = folder / f"sentinel {n}"
            place.mkdir()
            (place / "sentinel.conf").write_text(
                f"sentinel monitor main 127.0.0.1 {master.port} 2\n"
                "sentinel down-after-milliseconds main 500\n"
                "sentinel failover-timeout main 5000\n"
            )
            one = RedisServer(place, sentinel=True)
            started.append(one)
            one.start()
        while any(len(one.run("SENTINEL", "SENTINELS", "main")) < 2 for one in started):
            time.sleep(0.05)
        while any(len(one.run("SENTINEL", "REPLICAS", "main")) < 1 for one in started):
            time.sleep(0.05)
        yield [one.port for one in started]
    finally:
        for one in started:
            one.stop()


# TLS


def write_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


@pytest.mark.parametrize(
    ("name", "trusted", "reachable"),
    [("localhost", True, True), ("localhost", False, False), ("example.org", True, False)],
    ids=["valid", "unknown issuer", "another host"],
)
async def test_tls_checks_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, trusted: bool, reachable: bool
) -> None:
    certificate, key = write_certificate(tmp_path, name)
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    options += ["--tls-ca-cert-file", str(certificate)]
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with redis_server(tmp_path / "redis", *options):
        async with connected(f"rediss://localhost:{port}") as client:
            assert await client.connect(10 if reachable else 0.1) is reachable
            if reachable:
                assert await client.run("PING") == b"PONG"
