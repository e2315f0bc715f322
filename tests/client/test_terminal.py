"""Questions put to a person: what is shown, what is understood, what is never done without a
yes."""

import asyncio
import io
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Context, Server
from dovetail.client.callbacks import ElicitRequest
from dovetail.errors import TimedOut
from dovetail.net import why_not_openable
from dovetail.protocol.base import Implementation
from dovetail.protocol.client_features import ElicitResult
from dovetail.terminal.elicit import terminal_elicit
from dovetail.terminal.form_dialog import answer_unattended, elicit_dialog
from dovetail.terminal.prompts import url_warnings
from dovetail.terminal.run_dialog import _readers
from dovetail.text import escape_unsafe

DECLINED = ElicitResult(action="decline")
ROOT = Path(__file__).parents[2]


def asks(message: str = "Please", *required: str, **properties: Any) -> ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    server = Implementation(name="shop", version="1")
    return ElicitRequest(
        mode="form", message=message, requested_schema=schema, server=server, target="shop.py"
    )


def page(url: str) -> ElicitRequest:
    return ElicitRequest(
        mode="url", message="Pay", url=url, server=Implementation(name="shop", version="1")
    )


def play(request: ElicitRequest, *lines: str | None) -> tuple[ElicitResult, str]:
    """The answer, and all that was shown, when these lines are typed; one too few or too many
    fails."""
    talk, shown, typed = elicit_dialog(request), "", list(lines)
    try:
        shown += next(talk)
        while True:
            shown += talk.send(typed.pop(0))
    except StopIteration as end:
        assert not typed, f"not asked for: {typed}\n{shown}"
        return end.value, shown


def accepted(request: ElicitRequest, *lines: str) -> Any:
    """The content, when these lines are typed and then sent."""
    answer, shown = play(request, *lines, "")
    assert answer.action == "accept", shown
    return answer.content


# forms


@pytest.mark.requirement("elicitation-ui-server", "elicitation-defaults-shown")
def test_a_form_shows_who_asks_what_for_and_each_field() -> None:
    request = asks(
        "We need to know\nwhere to send it.",
        "city",
        city={
            "type": "string",
            "title": "Your city",
            "description": "Where you live",
            "minLength": 2,
            "maxLength": 9,
        },
        colour={
            "type": "string",
            "enum": ["r", "g"],
            "enumNames": ["Red", "Green"],
            "default": "g",
        },
    )
    answer, shown = play(request, "Paris", "", "")
    assert answer == ElicitResult(action="accept", content={"city": "Paris", "colour": "g"})
    assert shown == (
        "\nshop (shop.py) asks:\n  | We need to know\n  | where to send it.\n"
        "Press Enter for the default in [brackets], type ! to decline, or press Ctrl-C to cancel.\n"
        "\nYour city (text, at least 2 and at most 9 characters, required)\n  | Where you live\n> "
        "\ncolour (one of these)\n  1. Red\n  2. Green\n[Green] > "
        "\nYour answer:\n  Your city: Paris\n  colour: Green\n\nSend it? [Y/n; n to change "
        "it, ! to decline] "
    )


TITLED = [
    {"const": "#f00", "title": "Red"},
    {"const": "#0f0", "title": "Green"},
    {"const": "#00f", "title": "Deep blue"},
]


@pytest.mark.parametrize(
    ("schema", "line", "value"),
    [
        ({"type": "string"}, " as typed ", " as typed "),
        ({"type": "integer"}, " 42 ", 42),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "3", 3),
        ({"type": "integer", "default": 0}, "", 0),
        ({"type": "string", "enum": ["a", "b"]}, "2", "b"),
        ({"type": "string", "enum": ["a", "b"]}, "A", "a"),
        ({"type": "string", "enum": ["2", "1"]}, "2", "1"),
        ({"type": "string", "oneOf": TITLED}, "3", "#00f"),
        ({"type": "string", "oneOf": TITLED}, "deep blue", "#00f"),
        ({"type": "string", "oneOf": TITLED, "default": "#0f0"}, "", "#0f0"),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
            "1, 3",
            ["a", "c"],
        ),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
            "1 3",
            ["a", "c"],
        ),
        ({"type": "array", "items": {"anyOf": TITLED}}, "Red, deep blue", ["#f00", "#00f"]),
        ({"type": "array", "items": {"anyOf": TITLED}, "default": ["#f00"]}, "", ["#f00"]),
        ({"type": "array", "items": {"anyOf": TITLED}, "default": ["#f00"]}, "-", []),
        ({"type": "string", "format": "email"}, "ada@example.com", "ada@example.com"),
        ({"type": "string", "format": "uri"}, "https://example.com/x", "https://example.com/x"),
        ({"type": "string", "format": "date"}, "2024-02-29", "2024-02-29"),
        ({"type": "string", "format": "date-time"}, "2024-02-29T12:00:00Z", "2024-02-29T12:00:00Z"),
    ],
)
def test_a_line_becomes_the_value_that_it_stands_for(
    schema: dict[str, Any], line: str, value: Any
) -> None:
    content = accepted(asks("?", "x", x=schema), line)
    assert content == {"x": value}
    assert type(content["x"]) is type(value)


@pytest.mark.parametrize(
    ("schema", "line", "reason", "good"),
    [
        ({"type": "string"}, "", "an answer is required", "x"),
        ({"type": "integer"}, "2.5", "not a whole number", "2"),
        ({"type": "number"}, "nan", "not a number", "2"),
        ({"type": "number"}, "many", "not a number", "2"),
        ({"type": "integer", "maximum": 9}, "10", "9", "2"),
        ({"type": "string", "minLength": 3}, "ab", "3", "abc"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "A1", "match", "abc"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "choose a number from 1 to 2", "1"),
        (
            {"type": "array", "maxItems": 1, "items": {"type": "string", "enum": ["a", "b"]}},
            "1,2",
            "1",
            "1",
        ),
        (
            {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b"]}},
            "-",
            "1",
            "1",
        ),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "1,7",
            "choose a number",
            "1",
        ),
        ({"type": "string", "format": "email"}, "ada", "not an e-mail address", "a@b"),
        ({"type": "string", "format": "uri"}, "no scheme", "not a URI", "a:b"),
        ({"type": "string", "format": "date"}, "2023-02-29", "not a date", "2023-02-28"),
        ({"type": "string", "format": "date"}, "20230228", "not a date", "2023-02-28"),
        (
            {"type": "string", "format": "date-time"},
            "2023-02-28",
            "not a time",
            "2023-02-28T00:00:00+01:00",
        ),
        ({"type": "integer", "maximum": 9, "default": 99}, "", "9", "2"),
    ],
)
def test_what_does_not_fit_is_asked_for_again_and_why(
    schema: Any, line: str, reason: str, good: str
) -> None:
    answer, shown = play(asks("?", "x", x=schema), line, good, "")
    assert answer.action == "accept"
    complaint = shown.split("> ")[1]
    assert reason in complaint
    assert "\x1b" not in complaint


def test_the_default_is_shown_again_after_a_wrong_choice() -> None:
    schema = {"type": "string", "enum": ["upper", "lower"], "default": "lower"}
    answer, shown = play(asks("?", "x", x=schema), "abc", "", "")
    assert answer.content == {"x": "lower"}
    assert "  choose a number from 1 to 2, or type the value\n[lower] > " in shown


@pytest.mark.parametrize(
    ("schema", "lines", "value", "keys"),
    [
        ({"type": "boolean"}, ["Yes"], True, "y/n"),
        ({"type": "boolean"}, ["n"], False, "y/n"),
        ({"type": "boolean"}, ["", "perhaps", "y"], True, "y/n"),
        ({"type": "boolean", "default": True}, [""], True, "Y/n"),
        ({"type": "boolean", "default": False}, [""], False, "y/N"),
        ({"type": "boolean", "default": "odd"}, ["", "n"], False, "y/n"),
    ],
)
def test_a_yes_or_no_question_is_answered_at_once(
    schema: dict[str, Any], lines: list[str], value: bool, keys: str
) -> None:
    answer, shown = play(asks("Go on?", "x", x=schema | {"title": "Sure"}), *lines)
    assert answer == ElicitResult(action="accept", content={"x": value})
    assert shown.startswith(f"\nshop (shop.py) asks:\n  | Go on?\nSure [{keys}; ! to decline] ")
    assert shown.count("Please answer y or n") == len(lines) - 1


def test_a_yes_or_no_question_can_be_declined() -> None:
    assert play(asks("Go on?", x={"type": "boolean"}), "!")[0] == DECLINED


def test_a_boolean_beside_other_fields_is_a_field_of_the_form() -> None:
    request = asks("?", "x", x={"type": "boolean"}, y={"type": "string"})
    answer, shown = play(request, "perhaps", "y", "", "")
    assert answer == ElicitResult(action="accept", content={"x": True})
    assert "answer y or n" in shown


@pytest.mark.parametrize("schema", [{}, {"default": False}, {"default": True}], ids=str)
def test_yes_is_the_answer_to_a_yes_or_no_question(schema: dict[str, Any]) -> None:
    request = asks("Go on?", "x", x={"type": "boolean"} | schema)
    yes = ElicitResult(action="accept", content={"x": True})
    assert answer_unattended(request, defaults=True, yes=True) == yes
    other = asks("?", "x", x={"type": "boolean"}, y={"type": "string"})
    assert answer_unattended(other, defaults=True, yes=True) == DECLINED
    assert answer_unattended(page("https://a.example"), defaults=True, yes=True) == DECLINED


def test_a_field_that_is_not_needed_can_be_left_out() -> None:
    assert accepted(asks("?", "a", a={"type": "string"}, b={"type": "integer"}), "x", "") == {
        "a": "x"
    }


@pytest.mark.requirement("elicitation-ui-review")
def test_answers_can_be_changed_before_they_are_sent() -> None:
    answer, shown = play(
        asks("?", a={"type": "string"}, b={"type": "integer"}), "x", "1", "n", "", "2", "what?", "y"
    )
    assert answer.content == {"a": "x", "b": 2}
    assert "[x] > " in shown
    assert "Please answer y or n" in shown


@pytest.mark.requirement("elicitation-ui-decline")
@pytest.mark.parametrize(
    "lines", [("!",), (None,), ("x", " ! "), ("x", None), ("x", "1", "!"), ("x", "bad", None)]
)
def test_an_exclamation_mark_or_the_end_of_input_declines_at_any_point(
    lines: tuple[str | None, ...],
) -> None:
    assert play(asks("?", "a", a={"type": "string"}, b={"type": "integer"}), *lines)[0] == DECLINED


@pytest.mark.parametrize(
    ("line", "answer"),
    [("y", ElicitResult(action="accept", content={})), ("", DECLINED), ("n", DECLINED)],
)
def test_a_form_without_fields_is_a_matter_of_yes_or_no(line: str, answer: ElicitResult) -> None:
    assert play(asks("Go on?"), line)[0] == answer


@pytest.mark.parametrize(
    ("schema", "line", "value"),
    [
        ({"type": ["string", "null"]}, "x", "x"),
        ({"type": ["null", "integer"]}, "5", 5),
        ({"type": ["array", "null"], "items": {"enum": ["a", "b"]}}, "1", ["a"]),
        ({"type": ["null"]}, "", None),
        ({"type": "string", "enum": ["a", "b"], "enumNames": 3}, "2", "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["One"]}, "2", "b"),
        ({"type": "string", "format": ["email"]}, "x", "x"),
        ({"$ref": "#/properties/other"}, "x", "x"),
        ({"type": "string", "title": 5, "description": {}, "default": {"a": 1}}, "x", "x"),
        (True, "x", "x"),
    ],
)
def test_a_field_that_is_odd_is_asked_for_all_the_same(schema: Any, line: str, value: Any) -> None:
    assert accepted(asks("?", x=schema), line) == ({} if value is None else {"x": value})


HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\r\x9b1m\u202egnp.exe\u2028\x00\x7f"


@pytest.mark.requirement("elicitation-links-inert")
def test_nothing_that_a_server_says_can_do_something_to_the_terminal() -> None:
    field = {
        "type": "string",
        "title": HOSTILE,
        "description": HOSTILE,
        "oneOf": [{"const": "a", "title": HOSTILE}],
    }
    request = asks(
        f"Hi{HOSTILE}\nshop (shop.py) asks:",
        **{f"n{HOSTILE}": field, "x": {"type": "string", "default": HOSTILE}},
    )
    request.server = Implementation(name=f"shop{HOSTILE}", version="1")
    answer, shown = play(request, "bad\x1b", "1", "", "")
    assert answer.action == "accept"
    assert set(shown) & set("\x1b\x07\r\x9b\u202e\u2028\x00\x7f") == set()
    assert r"\x1b]52;c;" in shown
    assert "  | shop (shop.py) asks:" in shown, "the server's words stand behind the bar"
    assert shown.count("\nshop") == 1


def test_letters_of_every_script_stay_what_they_are() -> None:
    for text in ("naïve 日本語 العربية हिन्दी 👩\u200d💻", "a\tb".replace("\t", " ")):
        assert escape_unsafe(text) == text
    assert escape_unsafe("a\nb\tc") == r"a\nb\tc"
    assert escape_unsafe("a\r\nb", keep_newlines=True) == "a\nb"


# pages


@pytest.mark.requirement("elicitation-url-shown", "elicitation-url-domain")
def test_a_page_is_shown_with_its_whole_url_and_host_before_anything_is_agreed() -> None:
    url = "https://pay.example.com.evil.example/pay?item=1#top"
    answer, shown = play(page(url), "y")
    assert answer == ElicitResult(action="accept")
    assert shown == (
        f"\nshop asks you to visit a page:\n  | Pay\nURL:  {url}\nHost: "
        "pay.example.com.evil.example\n"
        "Open it in your browser? [y/N] "
    )


@pytest.mark.requirement("elicitation-url-consent")
@pytest.mark.parametrize("line", ["", "n", "no", "!", None])
def test_a_page_that_is_not_agreed_to_is_declined(line: str | None) -> None:
    assert play(page("https://example.com"), line)[0] == DECLINED


@pytest.mark.requirement("elicitation-url-suspicious")
@pytest.mark.parametrize(
    ("url", "warning"),
    [
        (
            "https://xn--pple-43d.com/",
            "Punycode and may imitate another host; it is displayed as аpple.com",
        ),
        ("https://login.xn--80ak6aa92e.com/", "Punycode"),
        ("https://аpple.com/", "may look like other letters; its real name is xn--pple-43d.com"),
        ("https://example.com@evil.example/", "before the @"),
        ("https://93.184.216.34/", "an IP address, not a name"),
        ("https://1572395042/", "an IP address, not a name"),
        ("https://0x5db8d822/", "an IP address, not a name"),
        ("https://[2606:2800::1]/", "an IP address, not a name"),
        ("http://example.com/", "is not encrypted"),
    ],
)
def test_a_url_that_is_odd_comes_with_a_warning(url: str, warning: str) -> None:
    answer, shown = play(page(url), "")
    assert answer == DECLINED
    assert f"Warning: {url_warnings(url)[0]}\n" in shown
    assert warning in "".join(url_warnings(url))


@pytest.mark.parametrize(
    "url",
    ["https://example.com/", "http://localhost:8000/x", "http://127.0.0.1/", "https://a-1.io"],
)
def test_a_plain_url_comes_without_warnings(url: str) -> None:
    assert url_warnings(url) == []
    assert why_not_openable(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "ssh://example.com",
        "https://",
        "https:///example.com",
        "https://[::1",
        "https://example.com:port/",
        "https://evil.example\\@example.com/",
        "https://example.com/\x1b[2J",
        "https://example.com/a b",
        "https://exam\u200bple.com/",
        "https://exam\u202eple.com/",
        "https://evil.example%2f.example.com/",
        "",
    ],
)
def test_a_url_that_could_lead_elsewhere_is_not_offered(url: str) -> None:
    assert why_not_openable(url) is not None
    answer, shown = play(page(url), "y")
    assert answer == DECLINED
    assert "cannot be opened" in shown
    assert "Open it" not in shown


# where nobody is there


class Screen(io.StringIO):
    """A terminal of text."""

    def isatty(self) -> bool:
        return super().isatty() is False  # which fails where it is closed


@pytest.mark.parametrize(
    "streams", [(io.StringIO("y\n"), Screen()), (Screen("y\n"), io.StringIO())]
)
async def test_without_a_terminal_nobody_is_asked(streams: tuple[Any, Any]) -> None:
    opened: list[str] = []
    for defaults in (False, True):
        elicit = terminal_elicit(*streams, defaults=defaults, open_url=opened.append)
        assert await elicit(page("https://example.com")) == DECLINED
        assert (await elicit(asks("?", a={"type": "string", "default": "x"}))).action == (
            "accept" if defaults else "decline"
        )
    assert opened == []
    assert streams[1].getvalue() == ""


def test_defaults_are_an_answer_only_where_they_are_enough() -> None:
    enough = asks(
        "?",
        "a",
        a={"type": "string", "default": "x"},
        b={"type": "string"},
        c={"type": "boolean", "default": False},
    )
    assert answer_unattended(enough, defaults=True) == ElicitResult(
        action="accept", content={"a": "x", "c": False}
    )
    assert answer_unattended(asks("?", "b", b={"type": "string"}), defaults=True) == DECLINED
    assert answer_unattended(asks("Go on?"), defaults=False) == DECLINED


async def test_a_stream_that_is_closed_is_no_terminal() -> None:
    closed = Screen()
    closed.close()
    assert await terminal_elicit(closed, Screen())(asks("?")) == DECLINED


# moving lines


async def test_lines_are_moved_also_where_the_event_loop_cannot_watch_them() -> None:
    screen = Screen()
    elicit = terminal_elicit(Screen("5\n\n"), screen)
    assert await elicit(asks("?", "x", x={"type": "integer"})) == ElicitResult(
        action="accept", content={"x": 5}
    )
    assert await elicit(asks("?", "x", x={"type": "integer"})) == DECLINED, "the input has ended"
    assert "shop (shop.py) asks:" in screen.getvalue()


@pytest.mark.requirement("elicitation-url-consent")
async def test_a_page_is_opened_once_and_only_after_a_yes() -> None:
    opened: list[str] = []

    def open_url(url: str) -> bool:
        opened.append(url)
        return False

    screen = Screen()
    elicit = terminal_elicit(Screen("n\ny\n\n"), screen, open_url=open_url)
    assert await elicit(page("https://example.com/a")) == DECLINED
    assert opened == []
    assert await elicit(page("https://example.com/b")) == ElicitResult(action="accept")
    assert opened == ["https://example.com/b"]
    assert "Open the URL yourself" in screen.getvalue()


@pytest.mark.requirement("elicitation-url-no-prefetch", "elicitation-url-opened-safely")
async def test_a_page_is_for_the_users_browser_and_nothing_of_it_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    visitors: list[object] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    there = await asyncio.start_server(
        lambda reader, writer: visitors.append(writer), "127.0.0.1", 0
    )
    async with there:
        url = f"http://127.0.0.1:{there.sockets[0].getsockname()[1]}/pay"
        elicit = terminal_elicit(Screen("n\ny\n\n"), Screen())
        assert await elicit(page(url)) == DECLINED
        assert await elicit(page(url)) == ElicitResult(action="accept")
    assert (opened, visitors) == ([url], [])


@pytest.mark.requirement("elicitation-manual-retry")
@pytest.mark.parametrize(("line", "action"), [("\n", "accept"), ("!\n", "cancel"), ("", "cancel")])
async def test_whoever_was_sent_to_a_page_says_when_they_are_back_or_that_they_gave_up(
    line: str, action: str
) -> None:
    screen = Screen()
    shown = []
    elicit = terminal_elicit(
        Screen(f"y\n{line}"), screen, open_url=lambda url: shown.append(screen.getvalue())
    )
    assert (await elicit(page("https://example.com"))).action == action
    assert "when you are done" not in shown[0]
    assert "Press Enter when you are done with the page, or type ! to cancel. " in screen.getvalue()


class Slow(Screen):
    """A terminal that the event loop cannot watch, and where somebody takes their time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.asked = threading.Semaphore(0)

    def readline(self, size: int | None = -1, /) -> str:
        self.asked.release()
        return self.lines.get()


def test_the_line_that_a_given_up_question_waited_for_goes_to_the_next_one_even_in_another_loop() -> (  # noqa: E501
    None
):
    source = Slow()

    async def given_up() -> None:
        asking = asyncio.create_task(terminal_elicit(source, Screen())(asks("Go on?")))
        await asyncio.to_thread(source.asked.acquire)
        asking.cancel()
        await asyncio.wait([asking])

    async def answered() -> ElicitResult:
        asyncio.get_running_loop().call_soon(source.lines.put, "y\n")
        return await terminal_elicit(source, Screen())(asks("Go on?"))

    asyncio.run(given_up())
    assert asyncio.run(asyncio.wait_for(answered(), 5)).action == "accept"
    assert not source.asked.acquire(blocking=False), "there was one reader"


@pytest.mark.parametrize("late", [False, True])
def test_a_line_that_comes_when_its_loop_has_closed_harms_nobody(
    late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = Slow()

    async def given_up() -> None:
        asking = asyncio.create_task(terminal_elicit(source, Screen())(asks("Go on?")))
        await asyncio.to_thread(source.asked.acquire)
        if not late:
            asking.cancel()

    asyncio.run(given_up())
    source.lines.put("y\n")
    assert _readers[source].result(5) == "y\n"
    assert asyncio.run(terminal_elicit(source, Screen())(asks("Go on?"))).action == "accept"
    assert caplog.text == ""


async def test_questions_asked_at_once_are_put_one_after_the_other() -> None:
    screen = Screen()
    elicit = terminal_elicit(Screen("1\n\n2\n\n"), screen)
    fields = {"x": {"type": "integer"}}
    answers = await asyncio.gather(
        elicit(asks("first", "x", **fields)), elicit(asks("second", "x", **fields))
    )
    assert [answer.content for answer in answers] == [{"x": 1}, {"x": 2}]
    assert screen.getvalue().index("Send it?") < screen.getvalue().index("second")


PROGRAM = """
import asyncio, fcntl, json, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from dovetail import Client, Context, Server
from dovetail.client.callbacks import ElicitRequest
from dovetail.errors import TimedOut
from dovetail.terminal.elicit import terminal_elicit

async def main():
    asyncio.get_running_loop().call_later(0.05, print, "ALIVE")  # for the event loop goes on while the question is open
    elicit = terminal_elicit()
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    for number in range(3):
        answer = await elicit(ElicitRequest(mode="form", message=f"round {number}", requested_schema=schema))
        print("RESULT", answer.action, json.dumps(answer.content), flush=True)
    print("SLEEPING", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""  # noqa: E501


@pytest.mark.requirement("elicitation-ui-decline")
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
async def test_a_real_terminal_answers_declines_and_cancels() -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=ROOT,
    )
    os.close(theirs)
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(ours, 4096)
        shown = shown.partition(text)[2]

    def converse() -> None:
        until(b"round 0")
        until(b"> ")
        until(b"ALIVE")
        os.write(ours, b"old\n")
        until(b"not a whole number")
        until(b"> ")
        os.write(ours, b"42\n")
        until(b"Send it?")
        os.write(ours, b"\n")
        until(b'RESULT accept {"age": 42}')
        until(b"round 1")
        until(b"> ")
        os.write(ours, b"\x04")
        until(b"RESULT decline null")
        until(b"round 2")
        until(b"> ")
        os.write(ours, b"\x03")
        until(b"RESULT cancel null")
        until(b"SLEEPING")
        os.write(ours, b"\x03")
        until(b"KeyboardInterrupt")

    try:
        await asyncio.wait_for(asyncio.to_thread(converse), 20)
        assert process.wait(10) == -signal.SIGINT
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class Silent(Screen):
    """A terminal at which nobody types anything."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()

    def readline(self, size: int | None = -1, /) -> str:
        self.ended.wait()
        return ""


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_the_terminal_shows_that_a_server_cancelled_its_question(revision: str) -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.elicit("Which size?", str, timeout=1)
        except TimedOut:
            return "without an answer"
        return "answered"

    source, screen = Silent(), Screen()
    elicit = terminal_elicit(source, screen)
    async with Client(server, revision=revision, on_elicit=elicit) as client:
        assert (await client.call_tool("ask")).text == "without an answer"
        async with asyncio.timeout(30):
            while not screen.getvalue().endswith("\nThis question was withdrawn.\n"):
                await asyncio.sleep(0.01)
    assert "Which size?" in screen.getvalue()
    source.ended.set()
