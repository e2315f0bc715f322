"""A real Redis server on a free port of the loopback interface, for one test or one test run."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import redis

from tests.ports import free_port

START_SECONDS = 30.0


class RedisServer:
    """A server process. `stop` ends only this process.

    Args:
        folder: Where the server writes its files.
        *options: Options of redis-server, such as "--requirepass", "secret".
        password: The password that clients need.
        program: The server program, such as "valkey-server".
        sentinel: Whether this is a sentinel, with the file `sentinel.conf` in its folder.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        password: str | None = None,
        program: str = "redis-server",
        sentinel: bool = False,
    ) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder, self._options, self._password = folder, options, password
        self.program, self._is_sentinel = program, sentinel
        """The server program. A replica needs the same one as its master."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [self.program, "--save", "", "--repl-diskless-sync-delay", "0"]
        if self._is_sentinel:
            command = ["redis-sentinel", str(self._folder / "sentinel.conf")]
        command += ["--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--dir", str(self._folder), "--loglevel", "warning"]
        if self._password is not None:
            command += ["--requirepass", self._password]
        output = (self._folder / "log.txt").open("ab")
        with output:
            self._process = subprocess.Popen(
                [*command, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.run("PING")
                return
            except redis.ConnectionError:
                assert self._process.poll() is None, (self._folder / "log.txt").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def run(self, *command: Any) -> Any:
        """Send a command as an administrator, or an attacker, would."""
        client = redis.Redis(port=self.port, password=self._password, protocol=2)
        with client:
            return client.execute_command(*command)

    def keys(self, pattern: str = "*") -> list[bytes]:
        found: list[bytes] = self.run("KEYS", pattern)
        return sorted(found)

    def command_counts(self) -> dict[str, int]:
        """How often each command ran, from INFO commandstats. From version 7.2 on, redis-py names
        itself on each new connection, also those of `run`; that does not count."""
        stats: dict[str, Any] = self.run("INFO", "commandstats")
        stats.pop("cmdstat_client|setinfo", None)
        return {name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in stats.items()}

    @contextmanager
    def monitoring(self) -> Iterator[Callable[[], list[str]]]:
        """Record commands. Returns a function that returns those that clients have sent, without
        those that scripts have called."""
        client = redis.Redis(port=self.port, password=self._password, protocol=2)
        with client, client.monitor() as monitor:

            def recorded() -> list[str]:
                end = f"ECHO {time.monotonic_ns()}"
                self.run(*end.split())
                found = takewhile(lambda one: one["command"] != end, monitor.listen())
                return [one["command"] for one in found if one["client_type"] != "lua"]

            yield recorded

    @contextmanager
    def listening(self, pattern: str) -> Iterator[Callable[[], tuple[str, bytes]]]:
        """Subscribe to channels. Returns a function that returns the next message."""
        client = redis.Redis(port=self.port, password=self._password, protocol=2)
        with client, client.pubsub(ignore_subscribe_messages=True) as subscription:
            subscription.psubscribe(pattern)
            subscription.get_message(timeout=START_SECONDS)

            def receive() -> tuple[str, bytes]:
                while (message := subscription.get_message(timeout=START_SECONDS)) is None:
                    pass
                return message["channel"].decode(), message["data"]

            yield receive

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Kill the server. `start` starts it again, on the same port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def redis_server(
    folder: Path, *options: str, password: str | None = None, program: str = "redis-server"
) -> Iterator[RedisServer]:
    server = RedisServer(folder, *options, password=password, program=program)
    try:
        server.start()
        yield server
    finally:
        server.stop()
