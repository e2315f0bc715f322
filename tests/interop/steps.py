"""What is done in every case, whoever the client is and whoever the server: a table of steps and
what is to come of each.

A step goes to a client as JSON (`clients/` has one for each peer) and comes back as what that
client saw, in the form of the wire: `{"result": …}` or `{"error": …}`, with the `progress`, `logs`
and `changes` that came with it. What is `wanted` is a pattern: of an object only the named keys, of
a list every item (of one that begins with `...`, the last ones), of a text that begins with `~`
that it is contained.
"""

from typing import Any, NamedTuple

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
HANDSHAKE = REVISIONS[:-1]
STRUCTURED = "2025-06-18"
"""Since when there are output schemas, structured content and elicitation."""


WORDS = 'žluťoučký 木 🪵 \u2028 "quoted" \\ \t\n end'
LONG = "0123456789" * 10_000


class Step(NamedTuple):
    """One thing to do, and what is to come of it."""

    name: str
    do: str
    wanted: Any
    arguments: dict[str, Any] = {}
    awaits: dict[str, int] = {}
    """How many of what has to come in, besides the result."""
    since: str = REVISIONS[0]
    until: str = REVISIONS[-1]
    roles: tuple[str, ...] = ("client", "server")
    """The roles of the peers in which it is done: their high-level servers know no
    subscriptions."""

    def told(self) -> dict[str, Any]:
        """The step as a client is told of it."""
        return {"name": self.name, "do": self.do, "awaits": self.awaits, **self.arguments}


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


def said(*texts: str) -> Any:
    return {"result": {"content": [{"type": "text", "text": text} for text in texts]}}


STEPS = (
    Step("server", "server", {"result": {"name": "interop"}}),
    Step("tools", "tools", {"result": {"tools": "has add point fail steps talk grow"}}),
    Step("call", "call", said("5"), call("add", a=2, b=3)),
    Step("call again", "call", said("~7"), call("add", a=3, b=4)),
    Step(
        "structured",
        "call",
        {"result": {"structuredContent": {"x": 1, "y": 2}}},
        call("point", x=1, y=2),
        since=STRUCTURED,
    ),
    Step("any character", "call", said(WORDS), call("echo", text=WORDS)),
    Step("a long text", "call", said(LONG), call("echo", text=LONG)),
    Step(
        "many at once",
        "many",
        {"result": {"texts": [str(n) for n in range(20)]}},
        {"tool": "add", "count": 20},
    ),
    Step(
        "tool error",
        "call",
        {"result": {"isError": True, "content": [{"text": "~as it is"}]}},
        call("fail"),
    ),
    Step("bad arguments", "call", "failed", call("add", a="two", b=3)),
    Step("unknown tool", "call", "failed", call("nothing_such")),
    Step(
        "progress",
        "call",
        said("done") | {"progress": [..., {"progress": 3, "total": 3}]},
        call("steps", count=3, pause=0.1),
        {"progress": 1},
    ),
    Step(
        "progress in a burst",
        "call",
        said("done") | {"progress": [..., {"progress": 3, "total": 3}]},
        call("steps", count=3, pause=0),
        {"progress": 1},
    ),
    Step(
        "logs",
        "call",
        said("said")
        | {"logs": [{"level": "info", "data": "~one"}, {"level": "warning", "data": "~two"}]},
        call("talk") | {"level": "debug"},
        {"logs": 2},
    ),
    Step("resources", "resources", {"result": {"resources": "has doc://text doc://bytes"}}),
    Step(
        "read",
        "read",
        {"result": {"contents": [{"uri": "doc://text", "text": "hello"}]}},
        {"uri": "doc://text"},
    ),
    Step(
        "read bytes", "read", {"result": {"contents": [{"blob": "AP8="}]}}, {"uri": "doc://bytes"}
    ),
    Step("templates", "templates", {"result": {"resourceTemplates": "has item://{number}/name"}}),
    Step(
        "read a template",
        "read",
        {"result": {"contents": [{"text": "item 7"}]}},
        {"uri": "item://7/name"},
    ),
    Step("read nothing", "read", {"error": {}}, {"uri": "doc://nothing"}),
    Step("prompts", "prompts", {"result": {"prompts": "has greet talk_about"}}),
    Step(
        "prompt",
        "prompt",
        {
            "result": {
                "messages": [{"role": "user", "content": {"type": "text", "text": "Hello Ada!"}}]
            }
        },
        {"prompt": "greet", "arguments": {"name": "Ada"}},
    ),
    Step(
        "dialogue",
        "prompt",
        {"result": {"messages": [{"role": "user"}, {"role": "assistant"}]}},
        {"prompt": "talk_about", "arguments": {"topic": "joints"}},
    ),
    Step(
        "completion",
        "complete",
        {"result": {"completion": {"values": ["Alan"]}}},
        {"prompt": "greet", "argument": "name", "value": "Al"},
    ),
    Step("elicitation", "call", said("accept Ada"), call("ask_name"), since=STRUCTURED),
    Step("sampling", "call", said("Godspeed!"), call("ask_model")),
    Step("roots", "call", said("~file:///tmp/interop"), call("ask_roots")),
    Step(
        "list change", "change", {"changes": ["tools"]}, call("grow", name="CASE"), {"changes": 1}
    ),
    Step(
        "subscription",
        "subscribe",
        {"changes": ["doc://text"]},
        call("touch") | {"uri": "doc://text"},
        {"changes": 1},
        roles=("client",),
    ),
    Step("ping", "ping", {"result": {}}, until=HANDSHAKE[-1]),
)


def chosen(revision: str, role: str) -> list[Step]:
    """The steps that a revision has, with a peer in that role."""
    return [step for step in STEPS if step.since <= revision <= step.until and role in step.roles]


def problem(wanted: Any, got: Any, path: str = "") -> str | None:
    """What is not as it is wanted, if anything."""
    if wanted == "failed":  # an error of the protocol, or a result that says so: both are in use
        failed = "error" in got or (got.get("result") or {}).get("isError")
        return None if failed else f"did not fail: {got}"
    if isinstance(wanted, str) and wanted.startswith("has "):
        there = {
            item.get("uriTemplate") or item.get("uri") or item.get("name") for item in got or ()
        }
        missing = set(wanted.split()[1:]) - there
        return f"{path} lacks {sorted(missing)}" if missing else None
    if isinstance(wanted, dict):
        if not isinstance(got, dict):
            return f"{path} is {got!r}"
        return next(
            (
                found
                for key in wanted
                if (found := problem(wanted[key], got.get(key), f"{path}.{key}"))
            ),
            None,
        )
    if isinstance(wanted, list) and wanted[:1] == [...]:
        return problem(wanted[1:], (got or [])[1 - len(wanted) :], path)
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return f"{path} is {got!r}, not {wanted!r}"
        return next(
            (
                found
                for i, want in enumerate(wanted)
                if (found := problem(want, got[i], f"{path}[{i}]"))
            ),
            None,
        )
    if isinstance(wanted, str) and wanted.startswith("~"):
        return None if wanted[1:] in str(got) else f"{path} is {got!r}, without {wanted[1:]!r}"
    return None if wanted == got else f"{path} is {got!r}, not {wanted!r}"
