"""A server over stdio that lists what is in a file, valid or not. Tests start it as a program:

    python raw_server.py FILE

FILE is a JSON object with the raw JSON of `tools`, `templates` and the `content` of each result,
the number of announced changes before each result (`flood`), and how long its lists may be kept, in
milliseconds (`ttl`). The methods of all requests are
written to a file with the same name and the suffix `.log`, and the last call to one with `.call`.
"""

import json
import sys
from pathlib import Path
from typing import Any

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {}}


def answer(method: str, given: dict[str, Any]) -> str:
    if method == "initialize":
        return json.dumps(
            {
                "protocolVersion": "2025-11-25",
                "capabilities": CAPABILITIES,
                "serverInfo": {"name": "raw", "version": "1"},
            }
        )
    if method in LISTS:
        field = LISTS[method]
        return f'{{"{field}": {given.get(field, "[]")}, "ttlMs": {given.get("ttl", "0")}}}'
    return f'{{"content": {given.get("content", "[]")}}}'


def main(path: Path) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        method, given = message["method"], json.loads(path.read_text())
        given["resourceTemplates"] = given.get("templates", "[]")
        with path.with_suffix(".log").open("a") as log:
            log.write(f"{method}\n")
        if method == "tools/call":
            path.with_suffix(".call").write_text(line)
            change = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            sys.stdout.write(f"{json.dumps(change)}\n" * int(given.get("flood", "0")))
        if method not in LISTS and method not in ("initialize", "tools/call"):
            reply = '"error": {"code": -32601, "message": "unknown"}'
        else:
            reply = f'"result": {answer(method, given)}'
        sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {json.dumps(message["id"])}, {reply}}}\n')
        sys.stdout.flush()


main(Path(sys.argv[1]))
