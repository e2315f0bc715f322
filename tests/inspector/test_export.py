"""Exports: what is pasted elsewhere does the same there, whatever the text is."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dovetail.errors import ConfigError
from dovetail.inspector.export import ExportedRequest, ExportForm, export_request
from dovetail.inspector.shell_words import shell_word
from tests.cli.conftest import ROOT, SECONDS, WEATHER, environment

HOSTILE = [
    "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "\\", "\\'", "!!",
    "a\nb", "\x1b]0;t\x07", "\u202eabc", "\x9b1m", "-rf", "--help", "@/etc/passwd", "", "~", "*",
    "${HOME}", "%s", "\U000e0041", "é", '"""', "'''", "{x}", "#", "a\r\nb",
]  # fmt: skip
ECHO = """
from typing import Any
from dovetail import Server
server = Server("echo")
@server.tool
def echo(text: str = "", more: Any = None) -> dict[str, Any]:
    return {"text": text, "more": more}
@server.tool
def where() -> dict[str, Any]:
    import os
    return {"folder": os.getcwd(), "mode": os.environ.get("MODE"), "key": os.environ.get("API_KEY")}
@server.tool(name=NAME)
def named() -> str:
    return "named"
@server.prompt
def ask(text: str) -> str:
    return "ask " + text
@server.resource("echo://a")
def a() -> str:
    return "A"
"""


def request(
    method: str, params: dict[str, Any], target: str | list[str] = WEATHER, **more: Any
) -> ExportedRequest:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return ExportedRequest(json.dumps(message).encode(), target, **more)


def call(target: str, **arguments: Any) -> ExportedRequest:
    return request("tools/call", {"name": "echo", "arguments": arguments}, target)


def run_line(line: str, folder: Path, **variables: str) -> str:
    """Run an exported command line in bash, with the package of this checkout."""
    line = line.replace("dovetail ", f"{shlex.quote(sys.executable)} -m dovetail ", 1)
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(**variables),
        capture_output=True, timeout=SECONDS, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def served(folder: Path, name: str = "other") -> str:
    path = folder / "echo.py"
    path.write_text(ECHO.replace("NAME", repr(name)))
    (folder / "dovetail").symlink_to(ROOT / "dovetail", target_is_directory=True)
    return str(path)


def test_a_command_line_sends_the_same_arguments(tmp_path: Path) -> None:
    target = served(tmp_path)
    line = export_request(call(target, text="\n".join(HOSTILE), more=HOSTILE), "command")
    assert line.isprintable()
    out = json.loads(run_line(line.replace(" call ", " call --json ", 1), tmp_path))
    assert out["structuredContent"] == {"text": "\n".join(HOSTILE), "more": HOSTILE}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dovetail", "echo.py"]


def test_a_command_line_reads_a_resource_and_fills_in_a_prompt(tmp_path: Path) -> None:
    target = served(tmp_path)
    line = export_request(request("resources/read", {"uri": "echo://a"}, target), "command")
    assert run_line(line, tmp_path) == "A\n"
    params = {"name": "ask", "arguments": {"text": "@echo.py"}}
    line = export_request(request("prompts/get", params, target), "command")
    assert "ask @echo.py" in run_line(line, tmp_path)


@settings(max_examples=20)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_any_word_stays_a_word_in_bash(words: list[str]) -> None:
    words = [*words, *HOSTILE]
    line = "printf '%s\\0' x " + " ".join(map(shell_word, words))
    done = subprocess.run(
        ["bash", "--norc", "-c", line],
        capture_output=True, check=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.decode().split("\0")[1:-1] == words


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_what_no_command_line_can_hold_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="use JSON"):
        shell_word(word)


@pytest.mark.parametrize(
    ("method", "form"), [("logging/setLevel", "command"), ("tools/call", "curl")]
)
def test_what_a_form_cannot_say_is_refused(method: str, form: ExportForm) -> None:
    with pytest.raises(ConfigError, match="use "):
        export_request(request(method, {}), form)


@pytest.mark.parametrize(
    "message", [b"", b"[]", b"{}", b"3", b"\xff", b'{"method": 3}', b"[" * 9999]
)
def test_only_a_request_can_be_exported(message: bytes) -> None:
    with pytest.raises(ConfigError, match="Only a request"):
        export_request(ExportedRequest(message, WEATHER), "python")


def run_python(source: str, folder: Path, *words: str, **variables: str) -> str:
    path = folder / "test_exported.py"
    path.write_text(source)
    done = subprocess.run(
        [sys.executable, *words, str(path)], cwd=folder, env=environment(**variables),
        capture_output=True, timeout=SECONDS, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python_sends_the_same_arguments(tmp_path: Path) -> None:
    source = export_request(call(served(tmp_path), text="é", more=[HOSTILE, 10**30, 1.5]), "python")
    assert source.isascii()
    printed = run_python(source, tmp_path)
    assert repr(HOSTILE)[1:-1] in printed or "touch pwned" in printed
    assert str(10**30)[:15] in printed or "1e+30" in printed
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("method", ["ping", "tools/list", "prompts/list", "resources/list"])
def test_python_sends_any_request(tmp_path: Path, method: str) -> None:
    run_python(export_request(request(method, {}, served(tmp_path)), "python"), tmp_path)


def test_a_number_that_is_too_large_is_written_as_json() -> None:
    message = b'{"id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1e999}}}'
    source = export_request(ExportedRequest(message, WEATHER), "python")
    compile(source, "exported", "exec")
    assert "import json" in source


REPLY = {"id": 1, "result": {"content": [], "structuredContent": {"text": "x'\"\n", "more": None}}}


@pytest.mark.parametrize("text", ["x'\"\n", "y"])
def test_an_exported_test_runs_and_fails_if_the_server_differs(tmp_path: Path, text: str) -> None:
    exported = request(
        "tools/call", {"name": "echo", "arguments": {"text": text, "more": None}},
        served(tmp_path), reply=json.dumps(REPLY).encode(),
    )  # fmt: skip
    source = export_request(exported, "pytest")
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    if text == "y":
        with pytest.raises(AssertionError, match="1 failed"):
            run_python(source, tmp_path, *words)
    else:
        assert "1 passed" in run_python(source, tmp_path, *words)


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_makes_a_test(name: str) -> None:
    source = export_request(request("tools/call", {"name": name}), "pytest")
    assert source.isascii()
    compile(source, "exported", "exec")


def test_curl_has_the_headers_and_no_credentials() -> None:
    exported = request(
        "tools/call", {"name": "go", "arguments": {"password": "s3cret", "x": "'$(id)"}},
        "https://me:s3cret@example.com/mcp?key=s3cret", revision="R", is_stateless=True,
    )  # fmt: skip
    line = export_request(exported, "curl")
    words = shlex.split(line)
    assert words[-1] == "https://example.com/mcp"
    assert {"MCP-Protocol-Version: R", "Mcp-Method: tools/call", "Mcp-Name: go"} <= {*words}
    assert json.loads(words[words.index("--data-binary") + 1])["params"]["arguments"] == {
        "password": "***",
        "x": "'$(id)",
    }


@pytest.mark.parametrize("form", ["command", "python", "pytest", "json"])
def test_credentials_are_masked_in_every_form(form: ExportForm) -> None:
    exported = request(
        "tools/call", {"name": "go", "arguments": {"api_key": "s3cret"}},
        ["uvx", "server", "--token", "s3cret"],
        reply=b'{"result":{"structuredContent":{"token":"s3cret"}}}',
    )  # fmt: skip
    assert "s3cret" not in export_request(exported, form)


def test_json_is_the_message_with_invisible_characters_escaped() -> None:
    text = export_request(ExportedRequest('{"a": "\u202e\u00e9"}'.encode(), WEATHER), "json")
    assert text == '{"a": "\\u202eé"}'


# how the terminal reaches the server

SECRET = "s3cret of 'me'"


def started_with(folder: Path, **more: Any) -> ExportedRequest:
    """Return a call of a server that was started with options of the terminal."""
    (folder / "work").mkdir()
    options = {
        "env": {"MODE": "a 'b' $(id)", "API_KEY": SECRET}, "cwd": str(folder / "work"),
        "revision": "2025-06-18",
    }  # fmt: skip
    return request("tools/call", {"name": "where"}, served(folder), **options | more)


def test_a_command_line_starts_the_server_in_the_same_way(tmp_path: Path) -> None:
    line = export_request(started_with(tmp_path), "command")
    assert SECRET not in line and '--env=API_KEY="$API_KEY"' in line
    out = run_line(line.replace(" call ", " call --json ", 1), tmp_path, API_KEY=SECRET)
    assert json.loads(out)["structuredContent"] == {
        "folder": str(tmp_path / "work"), "mode": "a 'b' $(id)", "key": SECRET,
    }  # fmt: skip
    assert "--revision=2025-06-18" in shlex.split(line)


def test_an_exported_test_starts_the_server_in_the_same_way(tmp_path: Path) -> None:
    answer = {"folder": str(tmp_path / "work"), "mode": "a 'b' $(id)", "key": "***"}
    reply = json.dumps({"id": 1, "result": {"content": [], "structuredContent": answer}})
    source = export_request(started_with(tmp_path, reply=reply.encode()), "pytest")
    assert SECRET not in source and "os.environ['API_KEY']" in source
    assert "revision='2025-06-18'" in source
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in run_python(source, tmp_path, *words, API_KEY="***")


@pytest.mark.parametrize("form", ["command", "python", "pytest"])
def test_secrets_of_the_environment_are_written_if_the_terminal_says_so(
    tmp_path: Path, form: ExportForm
) -> None:
    text = export_request(started_with(tmp_path, show_secrets=True), form)
    assert "os.environ" not in text and '"$API_KEY"' not in text
    assert SECRET in (" ".join(shlex.split(text)) if form == "command" else text)


HEADERS = {"X-Tenant": "a b", "Authorization": "Bearer s3cret", "X-Api-Key": "s3cret"}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("curl", ["'X-Tenant: a b'", "'Authorization: '\"$AUTHORIZATION\"", '"$X_API_KEY"']),
        ("command", ["'--header=X-Tenant: a b'", "'--header=X-Api-Key: '\"$X_API_KEY\""]),
        ("python", ["'X-Tenant': 'a b'", "'Authorization': os.environ['AUTHORIZATION']"]),
        ("pytest", ["import os\n", "'X-Api-Key': os.environ['X_API_KEY']"]),
    ],
)
def test_headers_of_the_terminal_are_sent_without_their_secrets(
    form: ExportForm, expected: list[str]
) -> None:
    url = "https://example.com/mcp"
    exported = request("tools/call", {"name": "go"}, url, headers=HEADERS)
    text = export_request(exported, form)
    assert "s3cret" not in text
    assert all(part in text for part in expected), text


def test_a_saved_login_is_used_by_python_and_named_by_curl() -> None:
    made = request("ping", {}, "https://example.com/mcp", needs_login=True)
    forms: tuple[ExportForm, ...] = ("python", "pytest")
    for form in forms:
        text = export_request(made, form)
        assert "import dovetail.auth\n" in text
        assert "Client('https://example.com/mcp', auth=dovetail.auth.OAuth())" in text
        compile(text, form, "exec")
    curl = shlex.split(export_request(made, "curl"))
    assert "Authorization: Bearer $TOKEN" in curl
    assert "OAuth" not in export_request(request("ping", {}, "https://example.com/mcp"), "python")
