"""The progress bar: on a terminal, and only there."""

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.cli.conftest import dovetail, says, tool

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

from tests.cli import screen

on_screen = partial(screen.on_screen, TERM="dumb")
"""The bar of a terminal without colours; with them, rich draws it."""


def steps(*updates: tuple[Any, Any, Any]) -> list[Any]:
    return [
        ["notifications/progress", {"progress": progress, "total": total, "message": message}]
        for progress, total, message in updates
    ]


def drawn(text: str) -> list[str]:
    """What was on the line, one after the other, without what only wipes it."""
    return [line.rstrip() for line in text.split("\r")]


HALF = "█" * 12 + "░" * 12


def test_a_bar_is_drawn_over_itself_and_wiped_before_the_result(
    scripted: Callable[..., str],
) -> None:
    updates = steps((1, 4, "a long message"), (2, 4, "short"), (4, 4, None))
    code, err, out = on_screen("call", scripted(tool(), says("done", before=updates)), "go")
    assert (code, out) == (0, "done\n")
    first, second, third = (
        f"{'█' * 6}{'░' * 18}  25%  a long message",
        f"{HALF}  50%  short",
        f"{'█' * 24} 100%",
    )
    assert drawn(err) == ["", first, second, third, "", ""]
    assert "\n" not in err


def test_on_one_terminal_the_result_comes_after_the_bar_is_wiped(
    scripted: Callable[..., str],
) -> None:
    path = scripted(tool(), says("done", before=steps((1, 2, "x"))))
    assert drawn(on_screen("call", path, "go", screen="both")[1]) == [
        "",
        f"{HALF}  50%  x",
        "",
        "done",
    ]


def test_what_is_shorter_covers_what_was_longer(scripted: Callable[..., str]) -> None:
    updates = steps((1, None, "long long long"), (2, None, "x"))
    _, err, _ = on_screen("call", scripted(tool(), says("done", before=updates)), "go")
    _, long, short, wipe, _ = err.split("\r")
    assert long.startswith("1  long long long")
    assert short.startswith("2  x ")
    assert len(short) == len(long)
    assert wipe == " " * len("2  x")


@pytest.mark.parametrize(
    ("update", "line"),
    [
        ((3, None, "counting"), "3  counting"),
        ((3, None, None), "3"),
        ((3, 0, "of nothing"), "3/0  of nothing"),
        ((3, -1, None), "3/-1"),
        ((9, 4, "beyond"), f"{'█' * 24} 100%  beyond"),
        ((-9, 4, "before"), f"{'░' * 24}   0%  before"),
        ((0.5, 1, "a\nb\x1b[2J\rc\td"), rf"{HALF}  50%  a\nb\x1b[2J\x0dc d"),
        ((1e300, 1e-300, None), f"{'█' * 24} 100%"),
    ],
)
def test_odd_progress_is_drawn_as_well_as_it_can_be(
    scripted: Callable[..., str], update: tuple[Any, Any, Any], line: str
) -> None:
    _, err, _ = on_screen("call", scripted(tool(), says("done", before=steps(update))), "go")
    assert drawn(err) == ["", line, "", ""]


@pytest.mark.parametrize("message", ["x" * 100_000, "日" * 200, "e\u0301" * 200])
@pytest.mark.parametrize("columns", [20, 60])
def test_the_line_never_wraps(scripted: Callable[..., str], message: str, columns: int) -> None:
    path = scripted(tool(), says("done", before=steps((1, 2, message))))
    _, err, _ = on_screen("call", path, "go", columns=columns)
    line = drawn(err)[1]
    assert columns - 3 <= sum(2 if character == "日" else 1 for character in line) < columns


@pytest.mark.parametrize(
    "verb", [["read", "a://b"], ["prompt", "p"], ["inspect"], ["ping"]], ids=" ".join
)
def test_every_verb_shows_progress_where_it_is_reported(
    scripted: Callable[..., str], verb: list[str]
) -> None:
    before = steps((1, 2, "halfway"))
    path = scripted(
        {"resources/read": {"result": {"contents": []}, "before": before}},
        {"prompts/get": {"result": {"messages": []}, "before": before}},
        {"tools/list": {"result": {"tools": []}, "before": before}},
        {"ping": {"result": {}}},
    )
    code, err, _ = on_screen(verb[0], path, *verb[1:])
    assert code == 0
    assert drawn(err) == ([""] if verb == ["ping"] else ["", f"{HALF}  50%  halfway", "", ""])


def test_the_bar_is_wiped_before_a_failure(scripted: Callable[..., str]) -> None:
    failing = says("bad", result={"isError": True}, before=steps((1, 2, "x")))
    code, err, out = on_screen("call", scripted(tool(), failing), "go")
    assert (code, out) == (1, "")
    assert drawn(err) == ["", f"{HALF}  50%  x", "", "dovetail: error: bad"]


def test_log_lines_and_the_bar_do_not_mix(scripted: Callable[..., str]) -> None:
    log = ["notifications/message", {"level": "info", "data": "hello"}]
    before = [*steps((1, 2, "x")), log, *steps((2, 2, "y"))]
    path = scripted(tool(), says("done", before=before))
    _, err, _ = on_screen("call", path, "go", "--verbose")
    assert drawn(err) == ["", f"{HALF}  50%  x", "", "info: hello", f"{'█' * 24} 100%  y", "", ""]


def test_a_terminal_without_such_characters_gets_plain_ones(scripted: Callable[..., str]) -> None:
    path = scripted(tool(), says("grün", before=steps((1, 2, "x"))))
    _, err, out = on_screen("call", path, "go", PYTHONIOENCODING="ascii")
    assert drawn(err)[1] == "#" * 12 + "." * 12 + "  50%  x"
    assert out == "gr\\xfcn\n"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_without_a_terminal_there_is_no_bar(
    scripted: Callable[..., str], option: list[str]
) -> None:
    done = dovetail(
        "call", scripted(tool(), says("done", before=steps((1, 2, "x")))), "go", *option
    )
    assert (done.code, done.err) == (0, "")


def test_with_json_there_is_no_bar_on_a_terminal_either(scripted: Callable[..., str]) -> None:
    path = scripted(tool(), says("done", before=steps((1, 2, "x"))))
    assert on_screen("call", path, "go", "--json")[1] == ""


def test_with_verbose_each_update_is_a_line(scripted: Callable[..., str]) -> None:
    path = scripted(
        tool(), says("done", before=steps((1, 2, "x\ny"), (2, 2, None), (3, None, "z")))
    )
    done = dovetail("call", path, "go", "--verbose")
    assert done.err == "progress: 1/2 x\nprogress: y\nprogress: 2/2\nprogress: 3 z\n"


@pytest.mark.parametrize("done", [1, 2])
def test_the_bar_that_rich_draws_is_green(scripted: Callable[..., str], done: int) -> None:
    pytest.importorskip("rich")
    path = scripted(tool(), says("done", before=steps((done, 2, "x"))))
    _, err, _ = screen.on_screen("call", path, "go", TERM="xterm-256color")
    assert err.startswith("\r\x1b[32m━")


def test_with_colours_rich_draws_the_bar(scripted: Callable[..., str]) -> None:
    pytest.importorskip("rich")
    updates = steps((1, 2, "\x1b[2Jx [bold]y[/bold]"))
    path = scripted(tool(), says("done", before=updates))
    code, err, out = screen.on_screen("call", path, "go")
    assert (code, out) == (0, "done\n")
    plain = re.sub(r"\x1b\[[\d;]*m", "", err)
    assert "\x1b" not in plain
    assert re.fullmatch(r"\r[━╸╺ ]{24}  50%  \\x1b\[2Jx \[bold\]y\[/bold\]\r +\r", plain)
