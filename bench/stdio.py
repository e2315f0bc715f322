"""Drives a stdio server with raw bytes: how long until it is ready, calls per second in turn and 64 at a time, memory."""

import json
import os
import subprocess
import sys
import time
from typing import Any

WINDOW = 64


class Driver:
    """A server process, and the plainest client there can be."""

    def __init__(self, command: list[str]) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdin and self.process.stdout
        self.sink, self.source = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.rest = b""
        self.lines: list[bytes] = []

    def line(self) -> bytes:
        while not self.lines:
            chunk = os.read(self.source, 1 << 20)
            if not chunk:
                raise SystemExit("the server closed its output")
            *whole, self.rest = (self.rest + chunk).split(b"\n")
            self.lines = whole[::-1]
        return self.lines.pop()

    def send(self, message: dict[str, Any]) -> None:
        os.write(self.sink, json.dumps(message).encode() + b"\n")

    def greet(self) -> float:
        info = {"name": "bench", "version": "0"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.line()
        ready = time.perf_counter() - self.started
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return ready

    def in_turn(self, count: int) -> float:
        begun = time.perf_counter()
        for id in range(1, count + 1):
            os.write(self.sink, call(id))
            self.line()
        return count / (time.perf_counter() - begun)

    def at_once(self, count: int) -> float:
        begun = time.perf_counter()
        sent = done = 0
        os.write(self.sink, b"".join(call(10**6 + n) for n in range(WINDOW)))
        sent = WINDOW
        while done < count:
            self.line()
            done += 1
            if sent < count:
                os.write(self.sink, call(10**6 + sent))
                sent += 1
        return count / (time.perf_counter() - begun)

    def memory(self) -> float:
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


def call(id: int) -> bytes:
    arguments = b'{"a":%d,"b":2}' % id
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add","arguments":%b}}\n' % (id, arguments)


def measure(command: list[str], count: int) -> dict[str, float]:
    """All figures of one server."""
    driver = Driver(command)
    figures = {"ready_s": driver.greet()}
    driver.in_turn(50)
    figures["in_turn_per_s"] = driver.in_turn(count)
    figures["at_once_per_s"] = driver.at_once(2 * count)
    figures["memory_mib"] = driver.memory()
    driver.stop()
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[2:], int(sys.argv[1]))))
