"""What `make moving` counts as a difference, and the arguments it calls tools with."""

from typing import Any

from tests.moving.arguments import make_arguments
from tests.moving.compare import find_differences, unstable_answers
from tests.moving.examples import LIBRARIES, NOT_SERVERS
from tests.moving.servers import SERVERS


def snapshot(answer: Any = None, schema: Any = None, name: str = "add") -> dict[str, Any]:
    tool = {"name": name, "inputSchema": schema or {"type": "object"}}
    answers = {} if answer is None else {f"tool {name}": answer}
    return {
        "tools": [tool],
        "resources": [],
        "resourceTemplates": [],
        "prompts": [],
        "answers": answers,
    }


def text(text: str, **more: Any) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}], **more}}


def differences(peer: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    return list(find_differences(peer, ours, set()))


def test_a_missing_tool_is_a_difference() -> None:
    assert differences(snapshot(), snapshot(name="other")) == [
        'tools: ["add"], on Dovetail ["other"]'
    ]


def test_another_type_is_a_difference_and_a_derived_title_is_not() -> None:
    number = {"properties": {"title": {"type": "number"}}}
    titled = {"title": "addArguments", "properties": {"title": {"type": "number", "title": "T"}}}
    other = {"properties": {"title": {"type": "string"}}}
    assert differences(snapshot(schema=number), snapshot(schema=titled)) == []
    assert differences(snapshot(schema=number), snapshot(schema=other)) == [
        'tool add, inputSchema: properties.title.type is "number", on Dovetail "string"'
    ]


def test_the_names_of_definitions_do_not_matter() -> None:
    one = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    other = {"properties": {"a": {"type": "string"}}}
    assert differences(snapshot(schema=one), snapshot(schema=other)) == []


def test_another_answer_is_a_difference_and_spaces_in_json_are_not() -> None:
    assert differences(snapshot(text('{"a": 1}')), snapshot(text('{"a":1}'))) == []
    assert differences(snapshot(text('{"a": 1}')), snapshot(text('{"a":2}'))) == [
        "tool add: result.content[0].text.a is 1, on Dovetail 2"
    ]


def test_the_prefix_of_an_error_does_not_matter_but_its_text_does() -> None:
    prefixed = text("Error executing tool add: too big", isError=True)
    assert differences(snapshot(prefixed), snapshot(text("too big", isError=True))) == []
    assert differences(snapshot(prefixed), snapshot(text("too small", isError=True)))
    assert differences(snapshot(prefixed), snapshot(text("too big")))


def test_an_error_that_the_library_hides_is_equal_to_any_error() -> None:
    hidden = snapshot(text("Error executing tool add", isError=True))
    assert differences(hidden, snapshot(text("too big", isError=True))) == []
    assert differences(hidden, snapshot(text("3")))


def test_questions_may_be_asked_where_the_library_fails() -> None:
    error = {"code": -32603, "message": "Handler returned an invalid result"}
    unasked, other = snapshot({"error": error}), snapshot({"error": {**error, "message": "no"}})
    assert differences(unasked, snapshot(text("3"))) == []
    assert differences(unasked, other) and differences(other, snapshot(text("3")))


def test_content_may_be_repeated_as_structured_content_alone_or_in_a_list() -> None:
    block = {"type": "text", "text": "3"}
    for repeated in (block, {"result": [block]}):
        assert (
            differences(snapshot(text("3", structuredContent=repeated)), snapshot(text("3"))) == []
        )
    assert differences(snapshot(text("3", structuredContent={"result": [3]})), snapshot(text("3")))
    kinds = [{"properties": {"type": {"const": kind}}} for kind in ("text", "image")]
    for items in (kinds[0], {"anyOf": kinds}):
        described, plain = snapshot(), snapshot()
        described["tools"][0]["outputSchema"] = {"properties": {"result": {"items": items}}}
        assert differences(described, plain) == []


def test_answers_that_differ_between_two_runs_are_left_out() -> None:
    first, second = snapshot(text("12:01")), snapshot(text("12:02"))
    skipped = unstable_answers(first, second)
    assert list(find_differences(first, snapshot(text("12:03")), skipped)) == []


def test_arguments_match_the_schema_and_optional_ones_are_left_out() -> None:
    schema = {
        "properties": {
            "name": {"type": "string", "minLength": 9},
            "count": {"type": "integer", "minimum": 7},
            "kind": {"enum": ["b", "a"]},
            "inner": {"$ref": "#/$defs/Inner"},
            "items": {"type": "array", "items": {"type": "number"}},
            "either": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "more": {"type": "string"},
        },
        "required": ["name", "count", "kind", "inner", "items", "either"],
        "$defs": {"Inner": {"properties": {"x": {"const": 5}}, "required": ["x"]}},
    }
    assert make_arguments(schema) == {
        "name": "examplexx",
        "count": 7,
        "kind": "b",
        "inner": {"x": 5},
        "items": [2.5],
        "either": True,
    }


def test_the_lists_are_complete() -> None:
    assert len(SERVERS) == len({each.requirement for each in SERVERS}) == 30
    assert all("==" in each for server in SERVERS for each in (server.requirement, *server.peer))
    assert [each.key for each in LIBRARIES] == ["sdk1", "sdk2", "fastmcp"]


def test_clients_and_tests_are_not_servers() -> None:
    names = {"examples/echo.py": False, "examples/tasks/client.py": True, "a/test_x.py": True}
    assert {name: bool(NOT_SERVERS.search(name)) for name in names} == names
