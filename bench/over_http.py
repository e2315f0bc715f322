"""Drives an HTTP server with raw bytes over keep-alive connections: calls per second, and how long one takes.

The driver is the plainest that there can be: each connection sends the next request when it has read the whole answer to
the one before. It needs a core of its own; on a machine with fewer than two its figures mean nothing.
"""

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from typing import Any

try:
    from uvloop import run
except ImportError:
    run = asyncio.run

LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
SESSION = re.compile(rb"\r\nmcp-session-id: (\S+)\r\n", re.IGNORECASE)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
}


def post(port: int, message: dict[str, Any], **headers: str) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def call(port: int, number: int, session: str | None) -> bytes:
    params: dict[str, Any] = {"name": "add", "arguments": {"a": 40, "b": 2}}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    if session is not None:
        return post(port, message, MCP_Protocol_Version="2025-06-18", Mcp_Session_Id=session)
    params["_meta"] = META
    return post(port, message, MCP_Protocol_Version="2026-07-28", Mcp_Method="tools/call", Mcp_Name="add")


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, load: "Load") -> None:
        self.load, self.buffer, self.begun = load, b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        request = self.load.next()
        if request is not None:
            self.begun = time.perf_counter()
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.complete():
            self.load.took.append(time.perf_counter() - self.begun)
            self.load.wrong += not self.buffer.startswith(b"HTTP/1.1 200")
            self.buffer = b""
            self.send()

    def complete(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = LENGTH.search(self.buffer, 0, end + 2)
        if length is not None:
            return len(self.buffer) >= end + 4 + int(length[1])
        return self.buffer.endswith(b"0\r\n\r\n")


class Load:
    """Requests for as long as there is time."""

    def __init__(self, port: int, seconds: float, session: str | None) -> None:
        self.until = time.perf_counter() + seconds
        self.session, self.number = session, 0
        self.took: list[float] = []
        self.wrong = 0
        self.template = call(port, 7_777_777, session)

    def next(self) -> bytes | None:
        if time.perf_counter() > self.until:
            return None
        self.number += 1
        return self.template.replace(b"7777777", b"%07d" % (self.number + 1_000_000), 1)


async def drive(port: int, seconds: float, connections: int, session: str | None) -> dict[str, float]:
    load = Load(port, seconds, session)
    begun = time.perf_counter()
    loop = asyncio.get_running_loop()
    opened = [await loop.create_connection(lambda: Connection(load), "127.0.0.1", port) for _ in range(connections)]
    await asyncio.sleep(seconds + 0.2)
    for transport, _ in opened:
        transport.close()
    took = sorted(load.took)
    if not took or load.wrong:
        raise SystemExit(f"{load.wrong} of {len(took)} answers were not what they should be")
    rate = len(took) / (min(time.perf_counter() - begun, seconds))
    return {"per_s": rate, "p50_ms": 1000 * took[len(took) // 2], "p99_ms": 1000 * took[int(len(took) * 0.99)]}


def greet(port: int) -> str:
    """A session of the handshake era."""
    info = {"name": "bench", "version": "0"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(post(port, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
        answer = connection.recv(65536)
        found = SESSION.search(answer)
        session = found[1].decode() if found else ""
        connection.sendall(post(port, {"jsonrpc": "2.0", "method": "notifications/initialized"}, Mcp_Session_Id=session))
        connection.recv(65536)
    return session


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(command: list[str], connections: int, stateless: bool, seconds: float = 3.0) -> dict[str, float]:
    """Start a server (`command` and a port), drive it, stop it."""
    port = free_port()
    process = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        session = None if stateless else greet(port)
        run(drive(port, 0.5, connections, session))  # warm
        return run(drive(port, seconds, connections, session))  # type: ignore[no-any-return]
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    print(measure(sys.argv[3:], int(sys.argv[1]), sys.argv[2] == "stateless"))
