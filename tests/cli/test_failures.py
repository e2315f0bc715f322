"""How the command fails: one line, and an exit code that says whose fault it is."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import WEATHER, dovetail, says, tool

CRASH = "import sys; print('no key in the environment', file=sys.stderr); sys.exit(3)"


@pytest.mark.parametrize(
    ("words", "failure"),
    [
        (["dance"], "unknown command 'dance'"),
        (["ping"], "the following arguments are required: TARGET (see `dovetail ping --help`)"),
        (["call", WEATHER], "the following arguments are required: TOOL (see"),
        (["prompt", WEATHER], "the following arguments are required: NAME (see"),
        (
            ["ping", WEATHER, "--what"],
            "unrecognized arguments: --what (see `dovetail ping --help`)",
        ),
        (["ping", WEATHER, "--timout", "3"], "--timout 3; did you mean --timeout? (see"),
        (["ping", WEATHER, "more"], "unrecognized arguments: more"),
        (["backend", "check", "--name", "a", "redis://b", "c"], "unrecognized arguments: c"),
        (
            ["call", WEATHER, "forecast", "--json", "--what", "city=Oslo"],
            "unrecognized arguments: --what city=Oslo",
        ),
        (["ping", WEATHER, "--timeout", "soon"], "argument --timeout"),
        (["ping", WEATHER, "--timeout", "-1"], "argument --timeout: must be greater than 0"),
        (["ping", WEATHER, "--timeout", "nan"], "argument --timeout: must be greater than 0"),
        (["ping", WEATHER, "--env", "KEY"], "argument --env: 'KEY' is not in the form KEY=VALUE"),
        (["ping", "no/such/server.py"], "The file no/such/server.py does not exist"),
        (
            ["ping", "no/such/mcp.json"],
            "no/such/mcp.json cannot be read: No such file or directory",
        ),
        (["ping", " "], "The target is empty"),
        (["ping", "unclosed 'quote"], "cannot be split into words: No closing quotation"),
        (["ping", "gopher://example.com"], "gopher://example.com"),
        (
            ["ping", WEATHER, "--server", "x"],
            "--server applies only to an mcp.json file, but the target is",
        ),
        (["ping", WEATHER, "--revision", "1999"], "Unknown revision '1999'; use"),
        (["run"], "Name a Python file, such as server.py, or an API with --openapi"),
        (["run", "a.py", "--base-url", "http://a"], "--base-url requires --openapi"),
        (["run", "a.py", "--openapi", "a.json"], "a Python file or --openapi, not both"),
        (["ping", WEATHER, "\x1b[31m"], r"unrecognized arguments: \x1b[31m"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused_in_one_line(
    words: list[str], failure: str
) -> None:
    done = dovetail(*words)
    assert (done.code, done.out) == (2, "")
    assert failure in done.failure


@pytest.mark.parametrize(
    "verb", [["inspect"], ["ping"], ["read", "a://b"], ["call", "go"], ["prompt", "go"]]
)
def test_a_server_that_dies_leaves_its_last_words_in_the_line(
    tmp_path: Path, verb: list[str]
) -> None:
    path = tmp_path / "crash.py"
    path.write_text(CRASH)
    done = dovetail(verb[0], str(path), *verb[1:])
    assert (done.code, done.out) == (1, "")
    assert "exited with code 3" in done.failure
    assert "no key in the environment" in done.failure


def test_a_server_that_dies_in_the_middle_fails_in_one_line_as_well(
    scripted: Callable[..., str],
) -> None:
    done = dovetail("call", scripted(tool(), says(stderr="out of memory\n", exit=4)), "go")
    assert (done.code, done.out) == (1, "")
    assert "exited with code 4; last lines of stderr: out of memory" in done.failure


def test_the_traceback_of_a_server_that_crashes_keeps_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "crash.py"
    path.write_text("def start():\n    raise KeyError('\\x1b[31mAPI_KEY')\n\n\nstart()\n")
    done = dovetail("call", str(path), "go")
    first, *rest = done.err.splitlines()
    assert (done.code, done.out) == (1, "")
    assert first.startswith("dovetail: error: `")
    assert first.endswith("` exited with code 1; last lines of stderr:")
    assert rest[0] == "  | Traceback (most recent call last):"
    assert f'  |   File "{path}", line 5, in <module>' in rest
    assert rest[-1] == r"  | KeyError: '\x1b[31mAPI_KEY'"


def test_a_server_that_ends_without_an_error_gets_a_hint_before_its_stderr(tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    path.write_text("import sys; print('one\\ntwo', file=sys.stderr)")
    first, *rest = dovetail("ping", str(path)).err.splitlines()
    assert "exited with code 0 (does it call server.run()?); last lines of stderr:" in first
    assert rest == ["  | one", "  | two"]


def test_a_command_that_does_not_exist_is_named() -> None:
    done = dovetail("ping", "no-such-command --flag")
    assert done.code == 1
    assert "Could not start `no-such-command --flag`" in done.failure


def test_a_folder_that_does_not_exist_is_named() -> None:
    done = dovetail("ping", WEATHER, "--cwd", "no/such/folder")
    assert done.code == 1
    assert "no/such/folder" in done.failure


@pytest.mark.parametrize(
    "verb", [["inspect"], ["ping"], ["read", "a://b"], ["call", "go"], ["prompt", "go"]]
)
def test_a_failure_is_a_document_too(verb: list[str]) -> None:
    done = dovetail(verb[0], "no-such-command", *verb[1:], "--json")
    assert done.code == 1
    assert done.json["error"]["type"] == "ConnectFailed"
    assert done.json["error"]["message"].startswith("Could not start `no-such-command`")
    assert done.failure.startswith("Could not start `no-such-command`")


def test_the_document_of_a_refusal_has_its_code_and_data(scripted: Callable[..., str]) -> None:
    refusal = {"code": -32050, "message": "not today", "data": {"try": "tomorrow"}}
    done = dovetail("read", scripted({"resources/read": {"error": refusal}}), "a://b", "--json")
    assert (done.code, done.failure) == (1, "not today")
    assert done.json == {"error": {"type": "ProtocolError", **refusal}}


def test_pages_that_have_to_be_visited_first_are_shown_whole(scripted: Callable[..., str]) -> None:
    url = f"https://shop.example/{'x' * 600}?sign=in"
    page = {"mode": "url", "elicitationId": "1", "url": url, "message": "Sign in"}
    refusal = {
        "code": -32042,
        "message": "Sign in first",
        "data": {"elicitations": [page, {**page, "url": "file:///x"}]},
    }
    done = dovetail("call", scripted(tool(), {"tools/call": {"error": refusal}}), "go")
    assert (done.code, done.err) == (
        1,
        f"dovetail: error: Sign in first\n  Visit this page first: {url}\n",
    )


def test_run_fails_with_a_document_as_well(tmp_path: Path) -> None:
    done = dovetail("run", str(tmp_path / "none.py"), "--json")
    assert (done.code, done.json["error"]["type"]) == (2, "ConfigError")


def test_verbose_shows_no_traceback_of_the_client_if_a_tool_failed(
    scripted: Callable[..., str],
) -> None:
    path = scripted(tool(), says("bad", result={"isError": True}))
    done = dovetail("call", path, "go", "--verbose")
    assert done.code == 1
    assert done.err.splitlines()[-1] == "dovetail: error: bad"
    assert "Traceback" not in done.err


def test_verbose_shows_what_the_server_wrote_and_where_we_were(tmp_path: Path) -> None:
    path = tmp_path / "crash.py"
    path.write_text(CRASH)
    lines = dovetail("ping", str(path), "--verbose").err.splitlines()
    assert "server: no key in the environment" in lines
    assert "Traceback (most recent call last):" in lines
    assert lines[-1].startswith("dovetail: error: ")


def test_the_stderr_of_a_server_that_works_is_shown_only_with_verbose(
    scripted: Callable[..., str],
) -> None:
    path = scripted({"ping": {"result": {}, "stderr": "just saying\n"}})
    assert dovetail("ping", path).err == ""
    assert "server: just saying\n" in dovetail("ping", path, "--verbose").err


@pytest.mark.parametrize("verbose", [False, True])
def test_log_messages_are_shown_only_with_verbose(
    scripted: Callable[..., str], verbose: bool
) -> None:
    logs = [
        ["notifications/message", {"level": "info", "data": "plain"}],
        ["notifications/message", {"level": "error", "logger": "db", "data": {"a": [1]}}],
        ["notifications/message", {"level": "debug", "data": "one\ndovetail: error: forged"}],
    ]
    done = dovetail(
        "ping", scripted({"ping": {"result": {}, "before": logs}}), *["--verbose"] * verbose
    )
    assert done.code == 0
    told = 'info: plain\nerror: db: {"a":[1]}\ndebug: one\ndebug: dovetail: error: forged\n'
    assert done.err == (told if verbose else "")


def test_the_environment_and_folder_of_the_server_are_set(
    server: Callable[..., str], tmp_path: Path
) -> None:
    path = server(
        "import os\n@server.tool\ndef where() -> list: return [os.getcwd(), os.environ.get('KEY')]"
    )
    (tmp_path / "sub").mkdir()
    name = Path(path).name
    done = dovetail(
        "call", name, "where", "--cwd", "sub", "--env", "KEY=a=b", "--json", cwd=tmp_path
    )
    assert done.json["structuredContent"]["result"] == [str(tmp_path / "sub"), "a=b"]


def test_a_program_and_a_command_line_are_targets(
    scripted: Callable[..., str], tmp_path: Path
) -> None:
    path = scripted({"ping": {"result": {}}})
    program = tmp_path / "a program"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {path}\n")
    program.chmod(0o755)
    for target in (
        str(program),
        "./a program",
        shlex.join([sys.executable, path]),
        f"{sys.executable} {path} x.json",
    ):
        assert dovetail("ping", target, "--json", cwd=tmp_path).json["server"] == "scripted"


def test_a_config_that_is_not_json_is_named(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text("{")
    done = dovetail("ping", str(config))
    assert (done.code, done.failure.startswith(f"{config} is not valid JSON")) == (2, True)
    config.write_text(json.dumps({"mcpServers": {}}))
    assert dovetail("ping", str(config)).failure == f"{config} has no servers"
