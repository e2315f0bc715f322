"""What may pass to the screen."""

import io
import json
import unicodedata
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest
from hypothesis import given, strategies as st

from dovetail.cli.output import bold, format_size, one_line, print_json, print_line, print_text
from dovetail.text import escape_unsafe

DANGEROUS = {"Cc", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Tür, 日本, 🦆", "plain, Tür, 日本, 🦆"),
        ("a\tb", r"a\tb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]52;c;QUJD\x07", r"\x1b]52;c;QUJD\x07"),
        ("\x1b]8;;http://evil\x1b\\here", r"\x1b]8;;http://evil\x1b\here"),
        ("\x9b31m", r"\x9b31m"),
        ("over\rwritten", r"over\x0dwritten"),
        ("windows\r\n", r"windows\n"),
        ("erased\x08\x7f", r"erased\x08\x7f"),
        ("\x00", r"\x00"),
        ("\u202eevil\u202c", r"\u202eevil\u202c"),
        ("\u2066\u2069\u200e\u200f\u061c", r"\u2066\u2069\u200e\u200f\u061c"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("line\u2028separator\x85", r"line\u2028separator\x85"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),
        ("\ud800", r"\ud800"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("two\nlines", r"two\nlines"),
    ],
)
def test_what_could_act_on_a_terminal_becomes_visible(text: str, shown: str) -> None:
    assert escape_unsafe(text) == shown


def test_newlines_pass_only_where_a_text_may_have_lines() -> None:
    assert escape_unsafe("a\r\nb\nc", keep_newlines=True) == "a\nb\nc"
    assert escape_unsafe("a\nb") == r"a\nb"


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_that_controls_survives_whatever_the_text(text: str) -> None:
    left = {
        character
        for character in escape_unsafe(text, keep_newlines=True)
        if unicodedata.category(character) in DANGEROUS
    }
    assert left <= {"\n", "\t"}
    assert escape_unsafe(escape_unsafe(text)) == escape_unsafe(text)


@given(st.text())
def test_json_output_has_no_control_characters_and_loses_nothing(text: str) -> None:
    shown = printed(lambda: print_json({"text": text}))
    assert json.loads(shown) == {"text": text}
    assert shown == escape_unsafe(shown, keep_newlines=True)


def test_a_failure_is_one_line_however_many_it_has() -> None:
    assert one_line("a\nb\r\n  c\x1b\u2028d") == r"a b c\x1b d"


def test_of_a_long_failure_both_ends_are_kept() -> None:
    line = one_line("first " + "x" * 10_000 + " last")
    assert len(line) < 700
    assert line.startswith("first ")
    assert line.endswith(" last")


def test_a_line_stays_a_line_and_a_text_ends_with_one_newline() -> None:
    assert printed(lambda: print_line("a\nb", bold("c\x1b"))) == "a\\nbc\\x1b\n"
    assert printed(lambda: print_text("a\nb")) == printed(lambda: print_text("a\nb\n")) == "a\nb\n"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (12_345, "12.3 kB"),
        (5_000_000, "5 MB"),
        (10**13, "10000 GB"),
    ],
)
def test_sizes_are_for_people(count: int, shown: str) -> None:
    assert format_size(count) == shown


def printed(action: Callable[[], None]) -> str:
    """What an action writes to a stdout that is no terminal."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="utf-8", newline="\n")
    with redirect_stdout(stream):
        action()
        stream.flush()
    return buffer.getvalue().decode()
