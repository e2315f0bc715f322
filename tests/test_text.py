"""Text of strangers is shown, and does nothing."""

import json

import pytest

from dovetail.text import escape_json, escape_unsafe, one_line, quote, strip_unsafe

HOSTILE = [
    ("\x1b[2J", r"\x1b[2J"),
    ("\x07", r"\x07"),
    ("\x9b2J", r"\x9b2J"),
    ("a\rb", r"a\x0db"),
    ("\x7f", r"\x7f"),
    ("\u202egnp.exe", r"\u202egnp.exe"),
    ("\u200b", r"\u200b"),
    ("\u2028", r"\u2028"),
    ("\ufeff", r"\ufeff"),
    ("\ud800", r"\ud800"),
    ("\ue000", r"\ue000"),
    ("\U000e0041", r"\U000e0041"),
    ("\U0010fffd", r"\U0010fffd"),
    ("\u3164", r"\u3164"),
    ("\u034f", r"\u034f"),
    ("👍\U000e0171", r"👍\U000e0171"),
    ("a\ufe00", r"a\ufe00"),
    ("pay\u200d", r"pay\u200d"),
    ("\u200cpay", r"\u200cpay"),
    ("日\u200c\u200d本", r"日\u200c\u200d本"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_what_could_do_something_is_escaped(text: str, shown: str) -> None:
    assert escape_unsafe(text) == shown
    assert escape_unsafe(text, keep_newlines=True) == shown


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "naïve café",
        "日本語",
        "\u0646\u0645\u06cc\u200c\u062f",
        "👩‍👩‍👧",
        "❤️",
        "a b",
        "C:\\x1b",
    ],
)
def test_what_is_harmless_stays(text: str) -> None:
    assert escape_unsafe(text) == text


def test_newlines_stay_only_if_they_may() -> None:
    assert escape_unsafe("a\r\nb\tc") == r"a\nb\tc"
    assert escape_unsafe("a\r\nb\tc", keep_newlines=True) == "a\nb\tc"


@pytest.mark.parametrize("text", [text for text, _ in HOSTILE])
def test_json_loses_nothing(text: str) -> None:
    document = escape_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(document) == text
    assert escape_unsafe(document) == document


def test_a_name_is_stripped_of_what_is_not_seen() -> None:
    assert strip_unsafe(" Good\u200d\u202e \n  App\x00 ") == "Good App"


def test_a_message_is_one_bounded_line() -> None:
    assert one_line("no\nsuch\x1bthing ") == "no such thing"
    assert one_line("x" * 300) == "x" * 300
    assert one_line("x" * 301) == "x" * 300 + "…"
    assert one_line("abcdef", 3) == "abc…"


def test_a_value_is_quoted() -> None:
    assert quote(b"text/html") == "'text/html'"
    assert quote("\x1b[2J\u202e") == r"'\x1b[2J\u202e'"
    assert quote("x" * 201) == repr("x" * 200 + "…")
