"""Servers in a few lines of plain Python, as wrong as a test wants them to be.

`fake(folder, code)` gives the command. The code can use what PRELUDE defines: it reads requests
with `receive()`, answers with `reply(request, result)`, and `serve(**handlers)` does the ordinary
rest; START is the number of this start. Starts and received messages are written to files in
`folder`, which outlive the server; `starts()` and `heard()` read them.
"""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

PRELUDE = """
import json, os, signal, sys, time

FOLDER = sys.argv[1]
with open(FOLDER + "/starts", "a") as file:
    print(os.getpid(), file=file)
with open(FOLDER + "/starts") as file:
    START = len(file.readlines())
HEARD = open(FOLDER + "/heard", "a", buffering=1)
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}

def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    HEARD.write(line)
    return json.loads(line)

def say(line):
    sys.stdout.write(line + "\\n")
    sys.stdout.flush()

def send(**message):
    say(json.dumps({"jsonrpc": "2.0", **message}))

def reply(request, result):
    send(id=request["id"], result=result)

def text(request, words, **more):
    reply(request, {"content": [{"type": "text", "text": words}], **more})

def greet(request):
    info = {"name": "fake", "version": "0"}
    reply(request, {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": info})

def answer(request, handlers):
    method = request.get("method")
    name = request.get("params", {}).get("name") if method == "tools/call" else method
    if "id" not in request or method is None:
        return
    if name in handlers:
        handlers[name](request)
    elif method == "initialize":
        greet(request)
    elif method == "tools/call":
        text(request, "done")
    elif method in ("ping", "resources/subscribe", "logging/setLevel"):
        reply(request, {})
    else:
        send(id=request["id"], error={"code": -32601, "message": "no such method"})

def serve(**handlers):
    handlers = {name.replace("__", "/"): handler for name, handler in handlers.items()}
    while True:
        answer(receive(), handlers)
"""  # noqa: E501


def fake(folder: Path, code: str) -> list[str]:
    script = folder / "fake.py"
    script.write_text(PRELUDE + textwrap.dedent(code))
    return [sys.executable, str(script), str(folder)]


def starts(folder: Path) -> list[int]:
    """The process ids of all starts, in order."""
    path = folder / "starts"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def heard(folder: Path, method: str | None = None) -> list[Any]:
    """What all starts of the server received, or what of it is of this method."""
    path = folder / "heard"
    messages = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [message for message in messages if method is None or message.get("method") == method]
