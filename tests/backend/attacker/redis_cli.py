"""Somebody who can read and write everything in Redis, but has none of the server's keys."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.backend.redis_server import RedisServer


class Attacker:
    """A user of redis-cli.

    Args:
        server: The Redis that they reach.
        prefix: What the keys of the server under attack begin with.
    """

    def __init__(self, server: RedisServer, prefix: str = "") -> None:
        self.server, self.prefix = server, prefix
        self._copies = 0

    def run(self, *command: str, data: bytes | None = None) -> bytes:
        """Run a command and return its reply. `data` is its last argument."""
        options = ["-p", str(self.server.port), *(["-x"] if data is not None else [])]
        done = subprocess.run(
            ["redis-cli", *options, *command], input=data or b"", capture_output=True, check=True
        )
        assert not done.stdout.startswith((b"ERR", b"WRONGTYPE")), done.stdout
        return done.stdout.removesuffix(b"\n")

    def keys(self, kind: str = "") -> list[str]:
        """The keys of a kind, such as "ended", in full."""
        pattern = self.prefix.replace("{", "[{]") + (f"{kind}:*" if kind else "*")
        return sorted(self.run("KEYS", pattern).decode().split())

    def copy(self, source: str, to: str) -> None:
        """Put a value at another key."""
        assert self.run("COPY", source, to, "REPLACE") == b"1"

    def keep(self, key: str) -> str:
        """Keep a copy of a value, and return the key of the copy."""
        self._copies += 1
        self.copy(key, copy := f"copy{self._copies}")
        return copy

    def swap(self, one: str, other: str) -> None:
        """Exchange two values."""
        kept = self.keep(one)
        self.copy(other, one)
        self.copy(kept, other)

    @contextmanager
    def watching(self, file: Path) -> Iterator[Path]:
        """Write down every command that Redis runs."""
        with file.open("wb") as output:
            command = ["redis-cli", "-p", str(self.server.port), "MONITOR"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
            try:
                while b"OK" not in file.read_bytes():
                    time.sleep(0.01)
                yield file
                self.run("ECHO", "the end")
                while b"the end" not in file.read_bytes():
                    time.sleep(0.01)
            finally:
                process.kill()
                process.wait()
