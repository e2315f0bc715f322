"""JSON with comments: read as editors read it, and every value found where it is in the text."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dovetail.jsonc import MAX_DEPTH, JsoncError, JsonNode, scan

SETTINGS = """\ufeff// for all my editors
{
    "theme": "dark", /* "mcpServers": {} */
    "mcpServers": {
        // the weather
        "weather": {"command": "uvx", "args": ["weather", "--port", 80,],},
        "old": null,
        "http://not-a-comment": "/* nor this */",
    },
}
"""


def test_comments_and_trailing_commas_are_no_part_of_the_value() -> None:
    assert scan(SETTINGS).value == {
        "theme": "dark",
        "mcpServers": {
            "weather": {"command": "uvx", "args": ["weather", "--port", 80]},
            "old": None,
            "http://not-a-comment": "/* nor this */",
        },
    }


def test_a_value_is_found_by_its_path() -> None:
    document = scan(SETTINGS)

    def written(*path: str | int) -> str:
        node = document.find(*path)
        assert node is not None
        return SETTINGS[node.start : node.end]

    assert written().startswith("{\n") and written().endswith("},\n}")
    assert written("theme") == '"dark"'
    assert written("mcpServers", "weather", "args") == '["weather", "--port", 80,]'
    assert written("mcpServers", "weather", "args", 2) == "80"
    assert written("mcpServers", "old") == "null"


@pytest.mark.parametrize(
    "path", [("nope",), ("theme", "x"), ("mcpServers", "weather", "args", 3), ("theme", 0)]
)
def test_a_path_that_leads_nowhere_finds_nothing(path: tuple[str | int, ...]) -> None:
    assert scan(SETTINGS).find(*path) is None


def test_an_entry_starts_at_its_key_and_knows_its_comma() -> None:
    document = scan(SETTINGS)
    weather = document.find("mcpServers", "weather")
    assert weather is not None and weather.comma is not None
    assert SETTINGS[weather.entry :].startswith('"weather": {')
    assert SETTINGS[weather.comma] == ","
    assert SETTINGS[weather.lead - 1 : weather.entry] == "{\n        // the weather\n        "
    old = document.find("mcpServers", "old")
    assert old is not None and old.lead == weather.comma + 1
    last = scan('{"a": 1 /* last */ }').find("a")
    assert last is not None and last.comma is None


def test_the_children_of_a_value_are_in_the_order_of_the_text() -> None:
    servers = scan(SETTINGS).find("mcpServers")
    assert servers is not None
    assert list(servers.children) == ["weather", "old", "http://not-a-comment"]
    starts = [child.entry for child in servers.children.values()]
    assert starts == sorted(starts)


def test_one_entry_can_be_replaced_without_touching_another_byte() -> None:
    node = scan(SETTINGS).find("mcpServers", "weather")
    assert node is not None
    new = SETTINGS[: node.start] + '{"command": "npx"}' + SETTINGS[node.end :]
    assert scan(new).value["mcpServers"]["weather"] == {"command": "npx"}
    assert new.startswith(SETTINGS[: node.start]) and new.endswith(SETTINGS[node.end :])


def test_of_two_equal_keys_the_last_counts_in_value_and_span() -> None:
    document = scan('{"a": {"x": 1}, "b": 0, "a": {"y": 2}}')
    assert document.value == {"a": {"y": 2}, "b": 0}
    assert list(document.root.children) == ["b", "a"]  # in the order of the text
    assert document.find("a", "x") is None
    node = document.find("a", "y")
    assert node is not None and document.text[node.start] == "2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: a value is missing here"),
        ("// nothing\n", "line 2, column 1: a value is missing here"),
        ("{", "line 1, column 2: a key in double quotes is missing here"),
        ('{"a" 1}', "line 1, column 6: a colon is missing here"),
        ('{"a": 1\n "b": 2}', "line 2, column 2: a comma or } is missing here"),
        ("[1 2]", "line 1, column 4: a comma or ] is missing here"),
        ("[1,,2]", "line 1, column 4: a value is missing here"),
        ("{,}", "line 1, column 2: a key in double quotes is missing here"),
        ("[,]", "line 1, column 2: a value is missing here"),
        ('{"a": 1]', "line 1, column 8: a comma or } is missing here"),
        ("{a: 1}", "line 1, column 2: this character is not allowed here"),
        ("{'a': 1}", "line 1, column 2: this character is not allowed here"),
        ("tru", "line 1, column 1: this character is not allowed here"),
        ("01", "line 1, column 2: there is unexpected text after the end of the document"),
        ("{} {}", "line 1, column 4: there is unexpected text after the end of the document"),
        ('"abc', "line 1, column 1: this string is not closed or contains a control character"),
        ('"a\nb"', "line 1, column 1: this string is not closed or contains a control character"),
        ("1 /* x", "line 1, column 3: this comment is not closed"),
        (r'"\x"', "line 1, column 1: this string is not valid"),
        (r'"\ud800"', "line 1, column 1: this string is not valid"),
        ("1e999", "line 1, column 1: this number is not valid"),
        ("[" * (MAX_DEPTH + 1), f"line 1, column {MAX_DEPTH + 1}: nested deeper than 100 levels"),
    ],
)
def test_an_error_names_the_line_and_the_column(text: str, message: str) -> None:
    with pytest.raises(JsoncError) as caught:
        scan(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ['{"k": "sesame" "x"}', '{"k": "sesame}', '["sesame", sesame]'])
def test_an_error_never_repeats_the_text(text: str) -> None:
    with pytest.raises(JsoncError) as caught:
        scan(text)
    assert "sesame" not in str(caught.value)


SPACE = st.sampled_from(["", " ", "\n", "\r\n\t", "// x\n", "/* , } ] */", '/**/ // "\n', "//\r"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False,
    allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def spell(value: Any, draw: st.DrawFn) -> str:
    """Write a value as somebody might who likes comments and trailing commas."""

    def gap() -> str:
        return draw(SPACE)

    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    parts = [
        gap() + ("" if key is None else f"{json.dumps(key)}{gap()}:{gap()}") + spell(item, draw)
        for key, item in items
    ]
    trailing = "," if parts and draw(st.booleans()) else ""
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{f'{gap()},'.join(parts)}{gap()}{trailing}{gap()}{closing}"


@st.composite
def spelled(draw: st.DrawFn) -> tuple[Any, str]:
    value = draw(JSON)
    return value, draw(SPACE) + spell(value, draw) + draw(SPACE)


@given(spelled())
def test_however_a_value_is_written_it_is_read_and_found(sample: tuple[Any, str]) -> None:
    value, text = sample
    document = scan(text)
    assert document.value == value

    def check(node: JsonNode, value: Any) -> None:
        assert scan(text[node.start : node.end]).value == value
        assert node.comma is None or text[node.comma] == ","
        assert node is document.root or text[node.lead - 1] in "{[,"
        if isinstance(value, list):
            value = dict(enumerate(value))
        for key, item in value.items() if isinstance(value, dict) else ():
            check(node.children[key], item)

    check(document.root, value)


@given(st.text(alphabet='{}[]",:/*\\ \n1atrue'))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        scan(text)
    except JsoncError as error:
        assert str(error).startswith("line ")
    try:
        expected = json.loads(text)
    except ValueError:
        return
    assert scan(text).value == expected
