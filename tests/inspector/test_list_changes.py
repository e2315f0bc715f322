"""What changed between two versions of a server's lists, in words."""

from typing import Any

import pytest

from dovetail.inspector.list_changes import MAX_CHANGES, describe_changes


def tool(name: str, required: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    properties = fields.pop("properties", {"items": {"type": "array"}, "note": {"type": "string"}})
    schema = {"type": "object", "properties": properties, "required": required or []}
    return {"name": name, "inputSchema": schema, **fields}


def prompt(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "arguments": list(arguments)}


ORDER = tool("order")
ADD = tool("add", description="Add")
REVIEW = prompt("review", {"name": "code"})
CONFIG = {"uri": "config://app", "name": "app", "mimeType": "text/plain"}


@pytest.mark.parametrize(
    ("kind", "before", "after", "words"),
    [
        ("tools", [ORDER], [ORDER], []),
        ("tools", None, None, []),
        ("tools", ["not an object"], [7], []),
        ("tools", None, [], []),
        ("tools", [], [ORDER], ["+1 tool: order"]),
        ("tools", None, [ORDER, ADD], ["+2 tools: order, add"]),
        ("tools", [ORDER, ADD], [ADD], ["-1 tool: order"]),
        ("prompts", [REVIEW], None, ["-1 prompt: review"]),
        ("tools", [ORDER], [ADD], ["+1 tool: add", "-1 tool: order"]),
        ("tools", [ORDER, ADD], [ADD, ORDER], ["tools: order changed"]),
        ("tools", [ORDER], [tool("order", ["items"])], ["order: items now required"]),
        ("tools", [tool("order", ["items"])], [ORDER], ["order: items no longer required"]),
        ("tools", [ADD], [tool("add", description="Sum")], ["add: description changed"]),
        ("tools", [ADD], [tool("add")], ["add: description changed"]),
        ("tools", [tool("add", title=None)], [tool("add")], ["add: title changed"]),
        (
            "tools",
            [tool("a", properties={"x": {"type": "string"}})],
            [tool("a", properties={"x": {"type": "integer", "minimum": 1}})],
            ["a: x is now of type integer"],
        ),
        (
            "tools",
            [tool("a", properties={"x": {"type": "array", "default": []}})],
            [tool("a", ["x"], properties={"x": {"type": "array"}})],
            ["a: x now required"],
        ),
        (
            "tools",
            [tool("a", properties={"x": {"description": "1"}})],
            [tool("a", properties={"x": {"description": "2"}})],
            ["a: description of x changed"],
        ),
        (
            "tools",
            [tool("a", properties={"x": {}})],
            [tool("a", ["y"], properties={"x": {}, "y": {}, "z": {}})],
            ["a: new argument y", "a: new optional argument z"],
        ),
        (
            "tools",
            [tool("a", properties={"x": {}})],
            [tool("a", properties={})],
            ["a: argument x removed"],
        ),
        (
            "tools",
            [{"name": "a", "inputSchema": {"type": "object"}}],
            [{"name": "a", "inputSchema": {"type": "object", "additionalProperties": False}}],
            ["a: input schema changed"],
        ),
        (
            "tools",
            [{"name": "a", "inputSchema": True}],
            [{"name": "a", "inputSchema": {"required": 5, "properties": []}}],
            ["a: input schema changed"],
        ),
        (
            "tools",
            [tool("a", outputSchema={"type": "object"})],
            [tool("a", outputSchema={"type": "string"})],
            ["a: output schema changed"],
        ),
        (
            "tools",
            [tool("a")],
            [tool("a", annotations={"readOnlyHint": True})],
            ["a: annotations changed"],
        ),
        (
            "resources",
            [CONFIG],
            [CONFIG | {"mimeType": "application/json", "size": 2}],
            ["config://app: MIME type changed", "config://app: size changed"],
        ),
        (
            "templates",
            [],
            [{"uriTemplate": "file:///{path}", "name": "file"}],
            ["+1 template: file:///{path}"],
        ),
        (
            "prompts",
            [REVIEW],
            [prompt("review", {"name": "code", "required": True}, {"name": "style"})],
            ["review: code now required", "review: new optional argument style"],
        ),
        (
            "prompts",
            [REVIEW],
            [prompt("review", {"name": "code", "description": "The code"})],
            ["review: description of code changed"],
        ),
        (
            "prompts",
            [REVIEW | {"arguments": 5}],
            [REVIEW | {"arguments": {"name": "code"}}],
            ["review: arguments changed"],
        ),
        ("prompts", [REVIEW | {"arguments": 5}], [REVIEW], ["review: new optional argument code"]),
    ],
)
def test_a_change_is_put_into_words(kind: str, before: Any, after: Any, words: list[str]) -> None:
    assert describe_changes({kind: before}, {kind: after}) == words


def test_counts_come_before_the_changes_of_single_items() -> None:
    before = {"tools": [ORDER], "prompts": [REVIEW]}
    after = {"tools": [tool("order", ["items"]), ADD], "prompts": []}
    assert describe_changes(before, after) == [
        "+1 tool: add",
        "-1 prompt: review",
        "order: items now required",
    ]


def test_only_some_of_the_new_items_are_named() -> None:
    after = {"tools": [tool(name) for name in "abcde"]}
    assert describe_changes({}, after) == ["+5 tools: a, b, c and 2 more"]


def test_many_changes_are_counted() -> None:
    before = [tool(str(number)) for number in range(100)]
    after = [tool(str(number), description="new") for number in range(100)]
    changes = describe_changes({"tools": before}, {"tools": after})
    assert len(changes) == MAX_CHANGES
    assert changes[-1] == f"{100 - MAX_CHANGES + 1} more changes"
