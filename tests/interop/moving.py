"""Servers written for the peers, moved to `dovetail.compat`: the import line is changed and nothing
else.

Each file of `servers/` is run as it is, on the peer that it was written for, and with its imports
from the peer taken from `dovetail.compat` instead. Our client asks both the same; what both answer
has to be the same, down to schemas, progress and logs. `servers/expected.json` holds what the peers
answered, so that the tests know it where no peer is installed:

    python -m tests.interop.moving        asks the peers, and writes it anew
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .cases import Case
from .ours import seen
from .peers import HOME, python
from .running import environment, listening
from .steps import Step, call

SERVERS = Path(__file__).parent / "servers"
EXPECTED = SERVERS / "expected.json"
IMPORT = re.compile(r"^from (?:mcp|mcp_types|fastmcp)\b[\w.]* import", re.MULTILINE)
LISTS = ("tools", "resources", "templates", "prompts")
REVISION = "2025-11-25"
"""The newest that all of the peers speak."""


class Moved(NamedTuple):
    """A server, the peer that it was written for, how it is reached, and what it is asked."""

    name: str
    peer: str
    transport: str
    asked: tuple[tuple[str, dict[str, Any]], ...]


def read(uri: str) -> tuple[str, dict[str, Any]]:
    return "read", {"uri": uri}


def prompt(name: str, /, **arguments: str) -> tuple[str, dict[str, Any]]:
    return "prompt", {"prompt": name, "arguments": arguments}


def tool(name: str, /, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "call", call(name, **arguments)


COLD, WARM = {"city": "Oslo", "degrees": 3}, {"city": "Rome", "degrees": 21}
MOVED = (
    Moved(
        "calculator",
        "fastmcp4",
        "stdio",
        (
            tool("add", a=2, b=3),
            tool("add", a=2),
            tool("divide", a=1, b=4),
            tool("divide", a=1, b=0),
            tool("broken"),
            tool("round_to", value=2.345, places=2),
            tool("describe", values=[1, 5, 3]),
            tool("add", a="two"),
            tool("add"),
            tool("round_to", value=1, places=7),
        ),
    ),
    Moved(
        "weather",
        "mcp1",
        "stdio",
        (
            tool("tomorrow", city="Oslo"),
            tool("week", city="Oslo", days=2),
            tool("compare", first=COLD, second=WARM),
            tool("compare", first=COLD, second={"city": "Rome"}),
            tool("spoken", city="Oslo"),
        ),
    ),
    Moved(
        "notes",
        "mcp1",
        "stdio",
        (
            tool("add", name="second", text="Buy bread"),
            tool("shout"),
            read("notes://motto"),
            read("notes://config"),
            read("notes://icon"),
            read("notes://ada/upper"),
            read("notes://nothing"),
            prompt("summarise", text="All of it"),
            prompt("talk", topic="joints"),
            prompt("summarise"),
        ),
    ),
    Moved("survey", "mcp1", "stdio", (tool("greet"), tool("poem", topic="wood"), tool("roots"))),
    Moved(
        "gallery",
        "mcp1",
        "stdio",
        (tool("dot"), tool("beep"), tool("show"), tool("attach"), tool("mixed")),
    ),
    Moved(
        "oracle",
        "fastmcp3",
        "stdio",
        (
            tool("who"),
            tool("ponder", question="why?"),
            tool("whence"),
            tool("omens", kind="good"),
            tool("omens", kind="none"),
            prompt("ask", question="why?", times="2"),
        ),
    ),
    Moved(
        "catalogue",
        "mcp2",
        "stdio",
        (
            tool("find", title="Emma"),
            tool("find", title="nothing"),
            tool("shelf", name="A"),
            tool("lend", title="Emma"),
            read("books://Emma/blurb"),
            prompt("review", title="Emma", genre="fiction"),
            ("complete", {"prompt": "review", "argument": "genre", "value": "fi"}),
        ),
    ),
    Moved(
        "clock",
        "mcp1",
        "http",
        (tool("at", hour=7), tool("at", hour=7, minute=5), read("clock://zone")),
    ),
    Moved("counter", "fastmcp4", "http", (tool("count", to=3), read("counter://4/next"))),
    Moved("mounted", "fastmcp4", "http", (tool("double", value=21),)),
    Moved("bulletin", "mcp1", "sse", (tool("post", text="hello"), read("board://all"))),
)


def changed(source: str) -> str:
    """A server with its import lines changed."""
    return IMPORT.sub("from dovetail.compat import", source)


def answers(moved: Moved, interpreter: Path, program: Path) -> dict[str, Any]:
    """What a server answers to all that it is asked, in the same words whoever it is."""
    steps = [Step(kind, kind, None) for kind in LISTS]
    steps += [Step(_name(do, given), do, None, given) for do, given in moved.asked]
    with _reached(moved, interpreter, program) as target:
        case = Case(moved.peer, "moved", moved.transport, REVISION, target, steps, environment())
        found = asyncio.run(seen(case))
    return {name: plain(got) for name, got in found.items()}


def _name(do: str, given: dict[str, Any]) -> str:
    return f"{do} {json.dumps(given, sort_keys=True)}"


@contextmanager
def _reached(moved: Moved, interpreter: Path, program: Path) -> Iterator[Any]:
    command = [str(interpreter), str(program)]
    if moved.transport == "stdio":
        yield command
        return
    with listening(command, f"moved {moved.name} {program.parent.name}", "PORT") as port:
        yield f"http://127.0.0.1:{port}/{'sse' if moved.transport == 'sse' else 'mcp'}"


def on_the_peer(moved: Moved) -> dict[str, Any]:
    """What the server answers as it was written."""
    return answers(moved, python(moved.peer), SERVERS / f"{moved.name}.py")


def on_compat(moved: Moved, folder: Path) -> dict[str, Any]:
    """What the server answers with its import lines changed."""
    program = folder / f"{moved.name}.py"
    program.write_text(changed((SERVERS / program.name).read_text()))
    return answers(moved, Path(sys.executable), program)


def moved(name: str) -> tuple[str, int, list[str]]:
    """Ask both; the case, how many answers there were to compare, and where they differ."""
    one = next(one for one in MOVED if one.name == name)
    folder = HOME / "moved"
    folder.mkdir(parents=True, exist_ok=True)
    theirs, ours = on_the_peer(one), on_compat(one, folder)
    recorded = json.loads(EXPECTED.read_text())[name]
    complaints = differences(theirs, ours) + [
        f"recorded otherwise: {line}" for line in differences(theirs, recorded)
    ]
    return f"{one.peer} moved {one.transport} {name}", len(theirs), complaints


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Where two sets of answers differ."""
    return [
        f"{name}: {theirs.get(name)} / {ours.get(name)}"
        for name in theirs | ours
        if theirs.get(name) != ours.get(name)
    ]


# What may differ is taken out of both: the words of an error that a library found itself, what
# nobody wrote (titles that are made up, empty texts and tags), whether unknown arguments are named
# in a schema, how JSON is spaced, where the parts of a schema are defined, and whether a list is
# one text or a text for each item, in which the peers differ from each other.

MADE_UP = {"additionalProperties", "x-fastmcp-wrap-result", "progressToken"}
REFUSAL = re.compile(r"validation error|must be|is missing", re.IGNORECASE)
PREFIX = re.compile(r"^Error (?:executing|calling) tool '?\w+'?: ")


def plain(got: dict[str, Any]) -> dict[str, Any]:
    """An answer without what may differ."""
    if "error" in got:
        return {"failed": True}
    result = _plain({key: value for key, value in got["result"].items() if key != "_meta"})
    if result.pop("isError", False):
        said = PREFIX.sub("", str(result["content"][0]["text"]))
        return {"failed": True if REFUSAL.search(said) else said}
    if "structuredContent" in result:
        result["content"] = _flat([block.get("text") for block in result["content"]])
    logs = [entry | {"data": _said(entry["data"])} for entry in got["logs"]]
    return result | {"progress": _plain(got["progress"][-1:]), "logs": logs}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$defs" in value:
        return _plain(_inlined(value, value["$defs"]))
    kept = {key: _plain(item) for key, item in value.items() if not _made_up(key, item, value)}
    if isinstance(value.get("text"), str):
        kept["text"] = _json(value["text"])
    return {
        key: item
        for key, item in kept.items()
        if not (key == "_meta" and item == {"fastmcp": {"tags": []}})
    }


def _inlined(schema: Any, defs: dict[str, Any]) -> Any:
    """A schema with its definitions where they are used."""
    if isinstance(schema, list):
        return [_inlined(item, defs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(defs[schema["$ref"].removeprefix("#/$defs/")], defs)
    return {key: _inlined(item, defs) for key, item in schema.items() if key != "$defs"}


def _made_up(key: str, item: Any, around: dict[str, Any]) -> bool:
    if key == "title":  # of a schema, or made of the name
        named = str(around.get("name", "")).replace("_", " ").lower()
        return (
            "type" in around or "anyOf" in around or "enum" in around or str(item).lower() == named
        )
    return key in MADE_UP or (
        key == "description" and (not item or str(item).startswith("Provide as a JSON string"))
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _flat(texts: list[Any]) -> list[Any]:
    return texts[0] if len(texts) == 1 and isinstance(texts[0], list) else texts


def _said(data: Any) -> Any:
    return data.get("msg", data.get("message")) if isinstance(data, dict) else data


if __name__ == "__main__":
    recorded = {one.name: on_the_peer(one) for one in MOVED}
    EXPECTED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
