"""Talk to a server over stdio with nothing but JSON, so that no library stands between the two
servers that are compared.

`describe` starts a command, lists what the server has, and returns it as plain data. With
`calls=True`, it also calls every tool, reads every resource and gets every prompt.
"""

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from .arguments import make_arguments

PROTOCOL_VERSION = "2025-11-25"
LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
METHOD_NOT_FOUND = -32601
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
ANSWERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "elicitation/create": lambda params: {
        "action": "accept",
        **_make_content(params.get("requestedSchema")),
    },
    "sampling/createMessage": lambda params: {
        "role": "assistant",
        "content": {"type": "text", "text": "a sample"},
        "model": "example",
        "stopReason": "endTurn",
    },
    "roots/list": lambda params: {"roots": [{"uri": "file:///example", "name": "example"}]},
    "ping": lambda params: {},
}
"""The answers to requests of the server, always the same."""
STDERR_TAIL = 4000


def _make_content(schema: Any) -> dict[str, Any]:
    return {} if schema is None else {"content": make_arguments(schema)}


class ServerFailed(Exception):
    """The server did not start, or did not answer in time."""


class StdioServer:
    """A running server, and the requests that have been sent to it.

    Args:
        command: The program and its arguments.
        env: The environment.
        cwd: The working directory.
        timeout: The seconds to wait for an answer.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, timeout: float
    ) -> None:
        self._timeout = timeout
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the server
        self._process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the response, with `result` or `error`."""
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params or {}})
        until = time.monotonic() + self._timeout
        while True:
            message = self._receive(until)
            if "method" in message:
                self._answer(message)
            elif message.get("id") == self._last_id:
                return message

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._send({"method": method})

    def _answer(self, message: dict[str, Any]) -> None:
        """Answer a request of the server, such as a question to the user."""
        if "id" in message:
            make = ANSWERS.get(message["method"])
            error = {"code": METHOD_NOT_FOUND, "message": "Not supported"}
            answer = (
                {"error": error} if make is None else {"result": make(message.get("params") or {})}
            )
            self._send({"id": message["id"], **answer})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            self._process.stdin.write(data + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ServerFailed(self._explain("ended")) from None

    def _receive(self, until: float) -> dict[str, Any]:
        while True:
            try:
                line = self._lines.get(timeout=max(0, until - time.monotonic()))
            except queue.Empty:
                raise ServerFailed(self._explain("did not answer in time")) from None
            if not line:
                raise ServerFailed(self._explain("ended"))
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a print of the program
            if isinstance(message, dict):
                return message

    def _explain(self, what: str) -> str:
        self._stderr.seek(0)
        tail = self._stderr.read()[-STDERR_TAIL:].decode(errors="replace").strip()
        return f"{what}\n{tail}"


def describe(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    *,
    calls: bool = False,
    timeout: float = 20,
) -> dict[str, Any]:
    """Start a server and return what it lists and, with `calls`, what it answers.

    Args:
        command: The program and its arguments.
        env: The environment.
        cwd: The working directory.
        calls: Whether to call tools, read resources and get prompts.
        timeout: The seconds to wait for each answer.

    Raises:
        ServerFailed: The server ended or did not answer.
    """
    with StdioServer(command, env, cwd, timeout) as server:
        about = _initialize(server)
        lists = {key: _list_all(server, key, method) for key, method in LISTS.items()}
        answers = _ask_everything(server, lists) if calls else {}
    return {"about": about, **lists, "answers": answers}


def _initialize(server: StdioServer) -> dict[str, Any]:
    params = {
        "protocolVersion": PROTOCOL_VERSION,
        "capabilities": CAPABILITIES,
        "clientInfo": {"name": "moving", "version": "1"},
    }
    response = server.request("initialize", params)
    if "result" not in response:
        raise ServerFailed(f"refused initialize\n{response['error']}")
    server.notify("notifications/initialized")
    result = response["result"]
    return {
        "name": result.get("serverInfo", {}).get("name"),
        "instructions": result.get("instructions"),
    }


def _list_all(server: StdioServer, key: str, method: str) -> list[dict[str, Any]]:
    """Return all pages of a list; empty if the server does not have the method."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(1000):
        response = server.request(method, {} if cursor is None else {"cursor": cursor})
        if "error" in response:
            if response["error"].get("code") == METHOD_NOT_FOUND:
                return []
            raise ServerFailed(f"{method} failed\n{response['error']}")
        items += response["result"].get(key, [])
        cursor = response["result"].get("nextCursor")
        if cursor is None:
            return items
    raise ServerFailed(f"{method} has no end\n")


def _ask_everything(
    server: StdioServer, lists: dict[str, list[dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    requests: dict[str, tuple[str, dict[str, Any]]] = {}
    for tool in lists["tools"]:
        arguments = make_arguments(tool["inputSchema"])
        name = tool["name"]
        requests[f"tool {name}"] = ("tools/call", {"name": name, "arguments": arguments})
    for resource in lists["resources"]:
        requests[f"resource {resource['uri']}"] = ("resources/read", {"uri": resource["uri"]})
    for prompt in lists["prompts"]:
        given = {each["name"]: "example" for each in prompt.get("arguments") or []}
        name = prompt["name"]
        requests[f"prompt {name}"] = ("prompts/get", {"name": name, "arguments": given})
    answers: dict[str, dict[str, Any]] = {}
    for key, (method, params) in requests.items():
        response = server.request(method, params)
        answers[key] = {name: response[name] for name in ("result", "error") if name in response}
    return answers
