"""Replicas and workers of one server, as real processes on one Redis."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.backend.redis_server import RedisServer
from tests.faults.raw_http import Connection, request
from tests.ports import free_port
from tests.transports.http.raw import Site

ROOT = Path(__file__).parents[2]
KEY = "a key for the tests of replicas"
START_SECONDS = 60.0
LIMITS = {"backend_timeout": 5, "keepalive": 60, "stream_after": 0.2, "task_lease": 2}
"""A deadline that a busy machine meets, and short times where a test waits for them."""
_names = count(1)


class Member:
    """One process: a replica, or a worker if it has no port.

    Args:
        command: The command. "PORT" in it is replaced.
        env: Variables in addition to those of this process.
        log: Where to write its output.
    """

    def __init__(self, command: Sequence[str], env: dict[str, str], log: Path) -> None:
        self.port = free_port()
        self._command = [part.replace("PORT", str(self.port)) for part in command]
        self._env, self._log = env, log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        """Start the process. `wait_until_ready` waits until it serves."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self._env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.health() is None:
            assert self._process is not None and self._process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.02)

    def health(self) -> dict[str, Any] | None:
        """What /health says; None if nobody listens."""
        try:
            with Connection(self.port) as connection:
                reply = connection.ask(request("GET", {}, path="/health"))
                found: dict[str, Any] = json.loads(reply.body)
                return found
        except (OSError, AssertionError):
            return None

    def output(self) -> str:
        """What it logged so far, in all of its lives."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def restart(self) -> None:
        """Start again, on the same port."""
        self.start()
        self.wait_until_ready()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM. Returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(START_SECONDS)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        if self.is_running:
            self.kill()  # also ends a paused process


class Cluster:
    """Replicas and workers of one server.

    Args:
        redis: The Redis that they share.
        folder: Where they write.
        replicas: The number of replicas.
        workers: The number of workers (`dovetail worker`).
        name: The name of the server (default: one that no other cluster has).
        url: The URL of the backend (default: that of `redis`).
        keys: The value of DOVETAIL_KEYS.
        options: Options of `server.run`.
        env: More variables.
        program: The module that runs the server.
        replica_slots: How many tasks each replica runs (default: the default limit).
        **limits: Limits other than those in `LIMITS`.
    """

    def __init__(
        self,
        redis: RedisServer,
        folder: Path,
        replicas: int = 3,
        workers: int = 0,
        *,
        name: str | None = None,
        url: str | None = None,
        keys: str = KEY,
        options: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        program: str = "tests.replicas.program",
        replica_slots: int | None = None,
        **limits: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.redis, self.folder = redis, folder
        self.name = name or f"cluster{next(_names)}"
        self.prefix = f"{{dovetail:{self.name}}}:"
        self.deeds = folder / "deeds"
        self.deeds.mkdir(exist_ok=True)
        self.env = {
            "DOVETAIL_BACKEND": url or redis.url,
            "DOVETAIL_KEYS": keys,
            "NAME": self.name,
            "DEEDS": str(self.deeds),
            "LIMITS": json.dumps(LIMITS | limits),
            "OPTIONS": json.dumps(options or {}),
            **(env or {}),
        }
        path = program.replace(".", "/") + ".py"
        serve = [sys.executable, "-m", program, "PORT"]
        if replica_slots is not None:
            serve.append(str(replica_slots))
        work = [sys.executable, "-m", "dovetail", "worker", path, "--health", "PORT"]
        self.replicas = [self._member(serve, f"replica{n}") for n in range(replicas)]
        self.workers = [self._member(work, f"worker{n}") for n in range(workers)]

    def _member(self, command: Sequence[str], name: str) -> Member:
        return Member(command, self.env, self.folder / f"{name}.log")

    @property
    def members(self) -> list[Member]:
        return [*self.replicas, *self.workers]

    @property
    def ports(self) -> list[int]:
        return [one.port for one in self.replicas]

    @asynccontextmanager
    async def sites(self) -> AsyncIterator[list[Site]]:
        """Each replica alone, for requests without our client."""
        sites = [Site(port) for port in self.ports]
        try:
            yield sites
        finally:
            for writer in [writer for site in sites for writer in site.open]:
                writer.transport.abort()
            await asyncio.sleep(0)  # until they are closed

    def start(self) -> None:
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait_until_ready()

    def repair(self) -> None:
        """Start all members again that were killed or stopped."""
        ended = [member for member in self.members if not member.is_running]
        for member in ended:
            member.start()
        for member in ended:
            member.wait_until_ready()

    def close(self) -> None:
        for member in self.members:
            member.close()

    def done(self, tag: str) -> list[str]:
        """The deeds with this tag."""
        path = self.deeds / tag
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def done_once(self, tag: str) -> list[str]:
        """The deeds with this tag that must not be done again by another process."""
        return [line for line in self.done(tag) if " by " not in line]

    async def until_done(self, tag: str, what: str) -> None:
        """Wait for a deed that begins with these words."""
        while not any(line.startswith(what) for line in self.done(tag)):
            await asyncio.sleep(0.01)

    def redis_keys(self) -> list[str]:
        """The keys of this server in Redis, without what they all begin with."""
        found = self.redis.keys(self.prefix.replace("{", "[{]") + "*")
        return [key.decode().removeprefix(self.prefix) for key in found]


@contextmanager
def running(redis: RedisServer, folder: Path, *args: Any, **options: Any) -> Iterator[Cluster]:
    """A cluster for a while. Its output is shown if a test fails."""
    cluster = Cluster(redis, folder, *args, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        for member in cluster.members:
            print(member.output(), end="")
