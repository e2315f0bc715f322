"""Values in headers and back."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from dovetail.errors import SchemaError
from dovetail.protocol.header_params import find_header_params
from dovetail.transports.http.headers import (
    LAST_EVENT_ID,
    MAX_SAFE_INTEGER,
    NAME,
    SESSION,
    VERSION,
    decode_value,
    encode_params,
    encode_value,
    matches,
    spell_header,
)

EXAMPLES = [
    ("us-west1", "us-west1"),
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ("", ""),
    ("two words", "two words"),
    ("a\tb", "=?base64?YQli?="),
    ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
    ("SGVsbG8=", "SGVsbG8="),
    ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
]


@pytest.mark.parametrize(("value", "header"), EXAMPLES)
def test_a_value_travels_as_the_specification_shows_it(value: str, header: str) -> None:
    assert encode_value(value) == header
    assert decode_value(header) == value


@pytest.mark.parametrize(
    ("value", "header"),
    [
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (-7, "-7"),
        (MAX_SAFE_INTEGER, str(MAX_SAFE_INTEGER)),
        (-MAX_SAFE_INTEGER, str(-MAX_SAFE_INTEGER)),
    ],
)
def test_booleans_and_integers_travel_in_their_json_form(value: int | bool, header: str) -> None:
    assert encode_value(value) == header


@pytest.mark.parametrize(
    "value",
    [MAX_SAFE_INTEGER + 1, -MAX_SAFE_INTEGER - 1, 10**5000],
    ids=["above", "below", "far above"],
)
def test_an_integer_that_not_every_reader_keeps_is_not_sent(value: int) -> None:
    with pytest.raises(ValueError):
        encode_value(value)


@pytest.mark.parametrize(
    "header",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?/w==?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?世?=",
        "=?base64?=?=",
    ],
    ids=["padding", "alphabet", "utf-8", "space", "non-ascii", "nothing but padding"],
)
def test_a_malformed_sentinel_is_an_error(header: str) -> None:
    with pytest.raises(ValueError):
        decode_value(header)


@pytest.mark.parametrize(
    "header", ["=?BASE64?SGVsbG8=?=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?base64?="]
)
def test_what_only_resembles_the_sentinel_stands_for_itself(header: str) -> None:
    assert decode_value(header) == header


def test_white_space_around_a_header_is_not_part_of_it() -> None:
    assert decode_value(" \tadd  ") == "add"
    assert decode_value("  =?base64?IHBhZGRlZCA=?= ") == " padded "


@given(st.text())
def test_every_text_comes_back_as_it_was_and_is_safe_on_the_way(value: str) -> None:
    header = encode_value(value)
    assert header.isascii() and (header == "" or header.isprintable()) and header == header.strip()
    assert decode_value(header) == value


@given(st.text())
def test_decoding_raises_nothing_but_value_errors(text: str) -> None:
    for header in (text, f"=?base64?{text}?="):
        try:
            decode_value(header)
        except ValueError:
            pass


def test_names_are_spelled_as_people_write_them() -> None:
    assert [spell_header(name) for name in (VERSION, SESSION, NAME, LAST_EVENT_ID)] == [
        "MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Name", "Last-Event-ID",
    ]  # fmt: skip


# parameters of tools (which annotations are allowed where: tests/server/test_headers.py)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def annotated(name: Any = "Region", type_: Any = "string") -> dict[str, Any]:
    return {"type": type_, "x-mcp-header": name}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "type", "x-mcp-header", "$defs", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(
    st.dictionaries(st.sampled_from(["properties", "type", "anyOf", "x-mcp-header"]), JSON_VALUES)
)
def test_whatever_a_server_sends_as_a_schema_the_outcome_is_mirrors_or_a_schema_error(
    given: dict[str, Any],
) -> None:
    try:
        find_header_params(given)
    except SchemaError:
        pass


# values of a call

MIRRORS = find_header_params(
    schema(
        region=annotated(),
        count=annotated("Count", "integer"),
        dry=annotated("Dry", "boolean"),
        a=schema(b=annotated("B")),
    )
)


def test_a_call_carries_a_header_for_each_value_that_is_there() -> None:
    arguments = {"region": "süd", "count": 3, "dry": False, "a": {"b": "x y"}, "other": "no"}
    assert encode_params(MIRRORS, arguments) == {
        "Mcp-Param-Region": "=?base64?c8O8ZA==?=",
        "Mcp-Param-Count": "3",
        "Mcp-Param-Dry": "false",
        "Mcp-Param-B": "x y",
    }


@pytest.mark.parametrize(
    "arguments", [{}, {"region": None, "a": None}, {"a": {"b": None}}, {"a": "text"}, {"a": {}}]
)
def test_a_value_that_is_absent_or_null_has_no_header(arguments: dict[str, Any]) -> None:
    assert encode_params(MIRRORS, arguments) == {}


def test_a_value_of_a_wrong_type_is_left_to_the_tool_to_refuse() -> None:
    assert encode_params(MIRRORS, {"region": ["a"], "count": 1.5, "dry": {}}) == {}


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    assert encode_params(MIRRORS, {"count": 3.0}) == {"Mcp-Param-Count": "3"}


def test_an_integer_too_large_to_mirror_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="cannot be sent in a header"):
        encode_params(MIRRORS, {"count": 2**53})


def test_a_suffix_that_is_a_name_of_its_own_stays_a_parameter() -> None:
    (mirror,) = find_header_params(schema(a=annotated("Method")))
    assert mirror.header == b"mcp-param-method"
    assert encode_params((mirror,), {"a": "x"}) == {"Mcp-Param-Method": "x"}


@pytest.mark.parametrize(
    ("value", "header", "equal"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("a", " a ", True),
        ("42", "42.0", False),
        ("Hello", "=?base64?SGVsbG8=?=", True),
        ("Hello", "=?base64?aGVsbG8=?=", False),
        (42, "42", True),
        (42, "42.0", True),
        (42.0, "42", True),
        (42, "42.", True),
        (42, "43", False),
        (42, "42.5", False),
        (42, "", False),
        (42, "٤٢", False),
        (2**53, str(2**53), False),
        (-1, "-1", True),
        (1, "1" * 5000, False),
        (True, "true", True),
        (True, "True", False),
        (True, "1", False),
        (False, "false", True),
        (1, "true", False),
        (None, "", False),
        ([], "[]", False),
        (1.5, "1.5", False),
        (float("inf"), "1", False),
    ],
)
def test_a_header_stands_for_a_value_or_not(value: Any, header: str, equal: bool) -> None:
    assert matches(value, header) is equal
