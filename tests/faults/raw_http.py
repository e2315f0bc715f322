"""HTTP by hand: requests as bytes, replies as they come, and server processes to send them to."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from dovetail.protocol.base import CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
SECONDS = 30
OLD, NEW = "2025-11-25", "2026-07-28"
META = {PROTOCOL_VERSION: NEW, CLIENT_CAPABILITIES: {}, LOG_LEVEL: "info"}
INFO = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INFO}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}

Headers = dict[str, str]


def request(method: str, headers: Headers, body: bytes = b"", path: str = "/mcp") -> bytes:
    """The bytes of a request."""
    usual = {"Host": "127.0.0.1", "Accept": "application/json, text/event-stream"}
    if method == "POST":
        usual |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [f"{name}: {value}\r\n" for name, value in (usual | headers).items()]
    return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1") + body


def post(message: Any, session: str | None = None, path: str = "/mcp", **headers: str) -> bytes:
    """A message of the handshake era."""
    belongs = {} if session is None else {"Mcp-Session-Id": session}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request("POST", belongs | named, json.dumps(message).encode(), path)


def get(session: str, last: str | None = None, path: str = "/mcp") -> bytes:
    """A GET for a stream, or for the rest of one."""
    return request(
        "GET",
        {"Mcp-Session-Id": session} | ({} if last is None else {"Last-Event-ID": last}),
        path=path,
    )


def delete(session: str) -> bytes:
    """The end of a session."""
    return request("DELETE", {"Mcp-Session-Id": session})


def call(tool: str, id: Any = 1, **arguments: Any) -> dict[str, Any]:
    """A tools/call of the handshake era."""
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def modern(method: str, id: Any = 1, path: str = "/mcp", **params: Any) -> bytes:
    """A request of the stateless era."""
    headers = {"MCP-Protocol-Version": NEW, "Mcp-Method": method} | (
        {"Mcp-Name": params["name"]} if "name" in params else {}
    )
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": META}}
    return request("POST", headers, json.dumps(message).encode(), path)


def modern_call(tool: str, id: Any = 1, path: str = "/mcp", **arguments: Any) -> bytes:
    """A tools/call of the stateless era."""
    return modern("tools/call", id, path, name=tool, arguments=arguments)


def listen(*uris: str) -> bytes:
    """A subscription of the stateless era: to these resources, and to the list of tools."""
    return modern(
        "subscriptions/listen",
        1,
        notifications={"toolsListChanged": True, "resourceSubscriptions": list(uris)},
    )


class Reply(NamedTuple):
    """The answer to one request, complete."""

    status: int
    headers: Headers
    body: bytes

    @property
    def message(self) -> Any:
        """The JSON in it: the body, or the last event's data."""
        if self.headers.get("content-type") == "text/event-stream":
            return events(self.body)[-1][1]
        return json.loads(self.body)

    @property
    def result(self) -> Any:
        """What a tool returned."""
        result = self.message["result"]
        assert not result.get("isError"), result
        structured = result.get("structuredContent") or {"result": None}
        return structured.get("result", structured)

    @property
    def error(self) -> str:
        """What is wrong, in words."""
        return str(self.message["error"]["message"])


def events(text: bytes) -> list[tuple[str | None, Any]]:
    """Ids and messages of the events in a stream; priming events and comments are left out."""
    found = []
    for block in text.replace(b"\r\n", b"\n").split(b"\n\n"):
        fields = [line.partition(b": ")[::2] for line in block.split(b"\n")]
        data = b"\n".join(value for name, value in fields if name == b"data")
        if data:
            found.append(
                (
                    next((value.decode() for name, value in fields if name == b"id"), None),
                    json.loads(data),
                )
            )
    return found


class Connection:
    """One TCP connection."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.file = self.socket.makefile("rb")
        self.early: list[tuple[str | None, Any]] = []
        """Events that came together with the one before."""

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, *, abruptly: bool = False) -> None:
        """Leave; abruptly is with a reset."""
        if abruptly:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> "Connection":
        """Send bytes as they are."""
        self.socket.sendall(data)
        return self

    def ask(self, data: bytes) -> Reply:
        """Send a request and wait for all of the answer."""
        return self.send(data).reply()

    def head(self) -> tuple[int, Headers]:
        """The status and the headers of an answer."""
        line = self.file.readline()
        assert line, "the connection was closed"
        headers = {}
        while (field := self.file.readline().strip()) != b"":
            name, _, value = field.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split()[1]), headers

    def reply(self) -> Reply:
        """One answer, complete."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            return Reply(status, headers, b"".join(iter(self.chunk, b"")))
        return Reply(status, headers, self.file.read(int(headers.get("content-length", 0))))

    def chunk(self) -> bytes:
        """The next chunk of a stream; nothing at its end. A stream that breaks off is an error."""
        line = self.file.readline()
        assert line, "the stream broke off"
        data = self.file.read(int(line, 16))
        assert self.file.readline() == b"\r\n", "the stream broke off"
        return data

    def rest(self) -> list[tuple[str | None, Any]]:
        """The events up to the end of the stream, which must be an end in good order."""
        before, self.early = self.early, []
        return before + events(b"".join(iter(self.chunk, b"")))

    def event(self) -> tuple[str | None, Any]:
        """The next event of a stream. Several may come in one chunk."""
        while not self.early:
            chunk = self.chunk()
            assert chunk, "the stream has ended"
            self.early = events(chunk)
        return self.early.pop(0)

    def ended(self) -> bool:
        """Wait for the other side to close, whatever else it says before."""
        try:
            while self.file.read(65536):
                pass
        except ConnectionResetError:
            pass
        return True


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until something is the case."""
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


class Program:
    """A server process, and how to talk to it."""

    def __init__(
        self, port: int | None = None, command: list[str] | None = None, path: str = "/mcp",
        options: dict[str, Any] | None = None, env: dict[str, str] | None = None, **limits: Any,
    ) -> None:  # fmt: skip
        self.path = path
        self.port = free_port() if port is None else port
        self._alone = command is None and "workers" not in (options or {})
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        given = {name: value for name, value in os.environ.items() if name != "DOVETAIL_KEYS"}
        settings = {
            "LIMITS": json.dumps({"keepalive": 60} | limits),
            "OPTIONS": json.dumps(options or {}),
        }
        command = (
            [sys.executable, "-m", "tests.faults.http_program", str(self.port)]
            if command is None
            else command
        )
        arguments = [part.replace("PORT", str(self.port)) for part in command]
        self.popen = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env=given | settings | (env or {}),
            stderr=self.stderr,
            stdin=subprocess.DEVNULL,
        )
        until(self._listens, "the server does not start")

    def _listens(self) -> bool:
        assert self.popen.poll() is None, self.said()
        try:
            with self.connect() as connection:
                return connection.ask(request("GET", {}, path="/health")).status == 200
        except (ConnectionError, AssertionError):
            return False

    def said(self) -> str:
        """What came on stderr."""
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def connect(self, **options: Any) -> Connection:
        """A new connection."""
        return Connection(self.port, **options)

    def ask(self, data: bytes) -> Reply:
        """One request on a connection of its own."""
        with self.connect() as connection:
            return connection.ask(data)

    def tool(self, name: str, **arguments: Any) -> Any:
        """What a tool returns to a client of the stateless era."""
        return self.ask(modern_call(name, 1, self.path, **arguments)).result

    def session(self) -> str:
        """The id of a new session, ready for use."""
        with self.connect() as connection:
            return opened(connection, self.path)

    def terminate(self) -> int:
        """End it in good order; returns the exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(SECONDS)

    def close(self) -> None:
        """End it, whatever it takes: without a word where it has no workers to end."""
        if self.popen.poll() is None:
            (self.popen.kill if self._alone else self.popen.terminate)()
            try:
                self.popen.wait(5)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self.stderr.close()


def opened(connection: Connection, path: str = "/mcp") -> str:
    """Open a session on this connection."""
    session = connection.ask(post(INITIALIZE, None, path)).headers["mcp-session-id"]
    assert connection.ask(post(INITIALIZED, session, path)).status == 202
    return session


@contextmanager
def running(*args: Any, **options: Any) -> Iterator[Program]:
    """A server process for a while."""
    program = Program(*args, **options)
    try:
        yield program
    finally:
        program.close()
