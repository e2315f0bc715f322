"""The command as a whole: what it costs to start, how it is interrupted, who reads it."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

import dovetail as package
from dovetail.cli.main import VERBS, main
from tests.cli.conftest import SECONDS, WEATHER, command, dovetail, environment, says, tool

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="signals and terminals as POSIX has them"
)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom dovetail.cli.main import main\n"
        "try: main(['call', '--help'])\nexcept SystemExit: pass\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    loaded = set(done.stderr.split())
    assert (
        loaded
        & {"asyncio", "msgspec", "logging", "dovetail.client.client", "dovetail.server.server"}
        == set()
    )
    assert "dovetail.cli.call" in loaded
    assert "dovetail.cli.ping" not in loaded


@pytest.mark.parametrize("verb", [*VERBS])
def test_every_verb_has_help_and_takes_json(verb: str) -> None:
    done = dovetail(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert "--json" in done.out
    assert VERBS[verb].help in done.out
    examples = done.out.partition("\nexamples:\n")[2]
    assert f"dovetail {verb} " in examples


def test_every_verb_names_a_function_that_executes_it() -> None:
    for verb in VERBS.values():
        module, _, name = verb.execute_function.partition(":")
        function = getattr(import_module(f"dovetail.cli.{module}"), name)
        assert [*signature(function).parameters] == ["options"], verb.execute_function


def test_the_verbs_are_listed_and_the_version_told() -> None:
    assert all(f"\n  {verb} " in dovetail("--help").out for verb in VERBS)
    assert dovetail("--version") == (0, f"dovetail {package.__version__}\n", "")


def test_the_command_can_be_called_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", "no/such.py"]) == 2
    assert capsys.readouterr().err == "dovetail: error: The file no/such.py does not exist\n"


@posix
def test_ctrl_c_ends_a_call_without_a_word(scripted: Callable[..., str]) -> None:
    path = scripted(tool(), says(stderr="called\n", silent=True))
    with subprocess.Popen(
        command("call", path, "go", "--verbose"),
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "server: called\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (130, "")


@posix
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_reader_that_goes_away_ends_it_quietly(
    scripted: Callable[..., str], option: list[str]
) -> None:
    path = scripted(tool(), says("line\n" * 100_000))
    with subprocess.Popen(
        command("call", path, "go", *option),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(SECONDS) == 141


@posix
@pytest.mark.parametrize("words", [["--help"], ["ping", WEATHER]])
def test_a_reader_that_was_never_there_ends_it_quietly(words: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        command(*words), stdout=theirs, stderr=subprocess.PIPE, env=environment(), timeout=SECONDS
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")


@posix
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_it_works_where_nobody_listens(closed: str) -> None:
    line = f"{shlex.join(command('inspect', WEATHER))} {closed}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, env=environment(), timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@posix
@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=str,
)
def test_colours_are_for_terminals_that_want_them(
    variables: dict[str, str], coloured: bool
) -> None:
    from tests.cli.screen import on_screen

    _, out, _ = on_screen("ping", WEATHER, screen="stdout", **variables)
    assert out.startswith("\x1b[1mweather\x1b[0m answered" if coloured else "weather answered")


@posix
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_terminal_shows_that_a_server_is_being_started(options: list[str]) -> None:
    from tests.cli.screen import on_screen

    code, screen, _ = on_screen("ping", WEATHER, *options, starting=True, columns=200)
    shown = f"\rStarting {WEATHER} ..."
    assert code == 0
    assert screen == ("" if options else f"{shown}\r{' ' * (len(shown) - 1)}\r")


@posix
def test_a_terminal_shows_which_url_it_connects_to() -> None:
    from tests.cli.screen import on_screen

    code, screen, _ = on_screen("ping", "http://127.0.0.1:1/mcp", starting=True)
    assert code == 1
    assert screen.startswith("\rConnecting to http://127.0.0.1:1/mcp ...\r   ")


def test_the_bare_command_prints_help() -> None:
    assert dovetail() == dovetail("--help")
    assert dovetail().code == 0


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("cal", "did you mean call?"),
        ("zzz", f"the commands are {', '.join(VERBS)}"),
        (WEATHER, f"did you mean `dovetail run {WEATHER}` or `dovetail inspect {WEATHER}`?"),
    ],
)
def test_a_verb_that_does_not_exist_is_answered_with_one_that_does(word: str, hint: str) -> None:
    done = dovetail(word, "x")
    assert (done.code, done.out) == (2, "")
    assert done.failure == f"unknown command '{word}'; {hint} (see `dovetail --help`)"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_all_verbs_and_options(shell: str) -> None:
    done = dovetail("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert all(verb in done.out for verb in VERBS)
    assert ("-l public-url" if shell == "fish" else "--public-url") in done.out


@posix
@pytest.mark.parametrize(
    ("words", "completed"),
    [("dovetail insp", "inspect"), ("dovetail run --public", "--public-url")],
)
def test_bash_completes(words: str, completed: str) -> None:
    import shutil

    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    count = words.count(" ")
    script = (
        f"{dovetail('completion', 'bash').out}\nCOMP_WORDS=({words}); COMP_CWORD={count}\n"
        '_dovetail; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == completed


SLOW = """
import os, sys, time
with open(sys.argv[0] + ".pid", "w") as file:
    file.write(str(os.getpid()))
while True:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        pass
"""


@posix
@pytest.mark.parametrize("whom", ["process", "group"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_a_server_starts_leaves_no_orphan(
    tmp_path: Path, whom: str, times: int
) -> None:
    path, written = tmp_path / "slow.py", tmp_path / "slow.py.pid"
    path.write_text(SLOW)
    with subprocess.Popen(
        command("ping", str(path)),
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + SECONDS
        while not (written.exists() and written.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for _ in range(times):
            if process.poll() is None:
                (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
            time.sleep(0.1)
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (130, b"")
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)
