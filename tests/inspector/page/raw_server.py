"""A server that says exactly what a test wants it to say, without checking anything.

It answers over stdio. `tools/call` returns the result that belongs to the tool, or repeats the
arguments as text.
"""

import json
from pathlib import Path
from typing import Any

SCRIPT = """
import json, sys
from pathlib import Path

said = json.loads(Path(__file__).with_name("said.json").read_text("utf-8"))


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()


def answer(method, params):
    if method == "initialize":
        said["revision"] = params["protocolVersion"]
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, **said["capabilities"]},
            "serverInfo": {"name": "raw", "version": "1", **said["info"]},
        }
    if method == "tools/list":
        return {"tools": said["tools"]}
    if method == "tools/call":
        repeated = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        result = said["results"].get(params["name"], repeated)
        if "megabytes" in result:
            result = {"content": [{"type": "text", "text": "x" * (result["megabytes"] << 20)}]}
        if "revision_as" in result:
            result[result.pop("revision_as")] = said["revision"]
        return result
    return said["answers"].get(method, {} if method == "ping" else None)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params", {}))
    if result is None:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    elif "error" in result:
        send({"id": message["id"], "error": result["error"]})
    else:
        for note in result.pop("before", []):
            send(note)
        for _ in range(result.pop("notes", 0)):
            send({"method": "notifications/message", "params": {"level": "info", "data": "note"}})
        send({"id": message["id"], "result": result})
"""


CAPABILITIES: dict[str, dict[str, Any]] = {
    "resources": {"resources": {}},
    "prompts": {"prompts": {}},
    "completion": {"completions": {}},
    "logging": {"logging": {}},
    "skills": {"extensions": {"io.modelcontextprotocol/skills": {}}},
}
"""The capability of each group of methods."""


def write_server(
    folder: Path,
    tools: list[dict[str, Any]],
    results: dict[str, Any] | None = None,
    answers: dict[str, Any] | None = None,
    **info: str,
) -> Path:
    """Write the server and what it says; return its path.

    Args:
        folder: an empty folder.
        tools: what `tools/list` returns.
        results: the result of each tool. One with `megabytes` is a text of that size; `notes` is
            the number of notifications that are sent before the result; `revision_as` is the field
            that names the revision.
        answers: the results of further methods, such as `resources/list`.
        info: fields of `serverInfo`.
    """
    answers = answers or {}
    capabilities: dict[str, Any] = {}
    for method in answers:
        capabilities |= CAPABILITIES.get(method.partition("/")[0], {})
    said = {
        "tools": tools,
        "results": results or {},
        "answers": answers,
        "capabilities": capabilities,
        "info": info,
    }
    (folder / "said.json").write_text(json.dumps(said), "utf-8")
    path = folder / "raw.py"
    path.write_text(SCRIPT)
    return path


def tool(name: str, schema: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a tool with this input schema."""
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **fields}


def object_of(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties, "required": required or []}
