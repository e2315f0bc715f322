"""Servers that ask back: the person at the terminal answers, and where there is none, nobody or the
defaults."""

import sys
from collections.abc import Callable

import pytest

from tests.cli.conftest import ROOT, dovetail

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

from tests.cli.screen import on_screen

BOOKING = str(ROOT / "examples" / "booking.py")
BOOK = ("call", BOOKING, "book", "city=Oslo")
ASKS = """
from typing import Any

@server.tool
async def name(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?\\x1b[2J", str)
    return f"{answer.action} {answer.data}"

@server.tool
async def page(ctx: Context) -> str:
    return (await ctx.elicit_url("Log in", "https://example.com/login")).action

@server.tool
async def dear(ctx: Context) -> str:
    ctx.progress(1, 2, "halfway")
    return (await ctx.elicit("May I?")).action

@server.tool
async def sure(ctx: Context) -> str:
    answer = await ctx.elicit("Are you sure?", bool)
    return f"{answer.action} {answer.data}"

@server.prompt
async def letter(ctx: Context) -> str:
    return f"Dear {(await ctx.elicit('To whom?', str)).data}"

@server.resource("guide://mine")
async def guide(ctx: Context) -> str:
    return f"{(await ctx.elicit('Whose guide?', str)).data}'s guide"
"""
both_eras = pytest.mark.parametrize("revision", ["stateless", "handshake"])


@both_eras
def test_the_person_at_the_terminal_is_asked_and_told_by_whom(revision: str) -> None:
    code, screen, out = on_screen(*BOOK, "--revision", revision, typed=["Bo\n", "1\n", "\n", "y\n"])
    assert (code, out) == (0, "Berth 11 (upper) to Oslo is booked for Bo. Have a good journey!\n")
    assert screen.count(f"booking ({BOOKING}) asks:\n") == 2
    assert "  | Who takes the night train to Oslo?\n" in screen
    assert "  | Book berth 11 (upper) to Oslo for Bo?\nDo you agree? [y/N] " in screen


def test_a_server_of_an_mcp_json_is_named_as_the_file_names_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = tmp_path_factory.mktemp("config") / "mcp.json"
    config.write_text(
        f'{{"mcpServers": {{"trains": {{"command": "{sys.executable}", "args": ["{BOOKING}"]}}}}}}'
    )
    done = dovetail("call", str(config), "book", "city=Oslo", "--server", "trains")
    assert done.err.startswith("booking (trains) asks: Who takes the night train to Oslo?")


@pytest.mark.parametrize(
    "typed",
    [["!\n"], ["\x04"], ["\n", "\n", "\n", "n\n"]],
    ids=["declined", "the end of input", "the second one"],
)
def test_a_person_may_say_no(typed: list[str]) -> None:
    assert on_screen(*BOOK, typed=typed)[::2] == (0, "Nothing was booked.\n")


@pytest.mark.parametrize(
    ("verb", "out"),
    [(["prompt", "letter"], "user:\nDear Bo\n"), (["read", "guide://mine"], "Bo's guide\n")],
    ids=["prompt", "read"],
)
def test_prompts_and_resources_ask_too(
    server: Callable[..., str], verb: list[str], out: str
) -> None:
    assert on_screen(verb[0], server(ASKS), verb[1], typed=["Bo\n", "\n"])[::2] == (0, out)


@both_eras
def test_without_a_terminal_nobody_is_asked_and_a_line_says_so(revision: str) -> None:
    done = dovetail(*BOOK, "--revision", revision, stdin="Bo\n1\n\ny\n")
    assert (done.code, done.out) == (0, "Nothing was booked.\n")
    why = "(declined: no terminal; use --yes to answer with the defaults)"
    assert done.err == f"booking ({BOOKING}) asks: Who takes the night train to Oslo? {why}\n"


@both_eras
@pytest.mark.parametrize("option", ["--yes", "--defaults"])
def test_the_defaults_are_an_answer(option: str, revision: str) -> None:
    done = dovetail(*BOOK, option, "--revision", revision)
    assert (done.code, done.out) == (
        0,
        "Berth 11 (lower) to Oslo is booked for Ada. Have a good journey!\n",
    )
    defaults, yes = ("(answered with the defaults)\n", "(answered yes)\n")
    expected = (1, 1) if option == "--yes" else (2, 0)
    assert (done.err.count(defaults), done.err.count(yes)) == expected


def test_with_yes_nobody_is_asked_on_a_terminal_either() -> None:
    code, screen, out = on_screen(*BOOK, "--yes", typed=["Bo\n"])
    assert (code, out) == (0, "Berth 11 (lower) to Oslo is booked for Ada. Have a good journey!\n")
    assert "[Ada]" not in screen


def test_yes_makes_nothing_up_and_visits_no_page(server: Callable[..., str]) -> None:
    path = server(ASKS)
    done = dovetail("call", path, "name", "--yes")
    assert done.out == "decline None\n"
    assert (
        done.err
        == rf"small ({path}) asks: Who are you?\x1b[2J (declined: "
        + "some required fields have no default)\n"
    )
    done = dovetail("call", path, "page", "--yes")
    assert done.out == "decline\n"
    assert (
        done.err == f"small ({path}) asks: Log in (declined: opening a page requires a terminal)\n"
    )


@both_eras
def test_yes_answers_yes_to_a_yes_or_no_question(server: Callable[..., str], revision: str) -> None:
    path = server(ASKS)
    done = dovetail("call", path, "sure", "--yes", "--revision", revision)
    assert (done.code, done.out) == (0, "accept True\n")
    assert done.err == f"small ({path}) asks: Are you sure? (answered yes)\n"
    assert dovetail("call", path, "sure", "--defaults").out == "decline None\n"


@pytest.mark.parametrize(
    ("typed", "out"),
    [
        (["y"], "accept True\n"),
        (["n"], "accept False\n"),
        (["y\n"], "accept True\n"),
        (["x", "y"], "accept True\n"),
        (["!"], "decline None\n"),
        (["\x04"], "decline None\n"),
    ],
    ids=repr,
)
def test_one_key_answers_a_yes_or_no_question(
    server: Callable[..., str], typed: list[str], out: str
) -> None:
    assert on_screen("call", server(ASKS), "sure", typed=typed)[::2] == (0, out)


def test_one_key_agrees(server: Callable[..., str]) -> None:
    code, screen, out = on_screen("call", server(ASKS), "dear", typed=["y"])
    assert (code, out) == (0, "accept\n")
    assert screen.endswith("Do you agree? [y/N] y\n")


def test_with_json_the_questions_are_on_stderr() -> None:
    done = dovetail(*BOOK, "--json", "--yes")
    assert done.json["structuredContent"] == {
        "result": "Berth 11 (lower) to Oslo is booked for Ada. Have a good journey!"
    }
    code, screen, out = on_screen(*BOOK, "--json", typed=["!\n"])
    assert code == 0
    assert "Who takes the night train" in screen
    assert "Who takes the night train" not in out


def test_the_bar_is_wiped_before_a_question(server: Callable[..., str]) -> None:
    _, screen, out = on_screen("call", server(ASKS), "dear", typed=["y\n"])
    assert out == "accept\n"
    before, _, after = screen.partition("asks:")
    assert "halfway" in before
    assert before.rsplit("\r", 1)[1].startswith("\nsmall (")
    assert "halfway" not in after


@pytest.mark.parametrize("verb", ["inspect", "ping"])
def test_verbs_that_cannot_be_asked_back_have_no_answers(verb: str) -> None:
    done = dovetail(verb, BOOKING, "--yes")
    assert (done.code, done.out) == (2, "")
    assert "unrecognized arguments: --yes" in done.failure
