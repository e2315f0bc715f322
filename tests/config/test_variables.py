"""Variables: replaced by the rules of the host, and never sent as they are."""

import os
from pathlib import Path

import pytest

from dovetail.config import ServerConfig, expand, parse, read, resolve
from dovetail.config.variables import parse_env_file
from dovetail.errors import ConfigError


def fill(text: str, path: str = "", **environment: str) -> str:
    config = {"mcpServers": {"a": {"command": "x", "env": {"K": text}}}}
    servers = parse(config, "mcp.json", Path(path) if path else None)
    return resolve(servers, "a", "mcp.json", environment).config.env["K"]


def refused(text: str, path: str = "", **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        fill(text, path, **environment)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${TOKEN}", "sesame"),
        ("${env:TOKEN}", "sesame"),
        ("Bearer ${env:TOKEN}!", "Bearer sesame!"),
        ("Bearer ${ TOKEN }, ${ env:TOKEN }", "Bearer sesame, sesame"),
        ("${env:NOT_SET:-fallback}", "fallback"),
        ("${NOT_SET:- spaces }", " spaces "),
        ("${NOT_SET:-fall:back}", "fall:back"),
        ("${userHome}", os.path.expanduser("~")),
        ("${pathSeparator}${/}", os.sep * 2),
        ("${workspaceFolder}", os.getcwd()),
    ],
)
def test_variables_of_the_environment_have_two_spellings(text: str, expected: str) -> None:
    assert fill(text, TOKEN="sesame") == expected


@pytest.mark.parametrize("path", ["", "mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"])
@pytest.mark.parametrize("text", ["pa$word", "$TOKEN", "$1", "a$"])
def test_a_dollar_sign_is_a_dollar_sign(text: str, path: str) -> None:
    assert fill(text, path, TOKEN="sesame", word="x") == text


def test_except_in_a_file_of_gemini_cli() -> None:
    path = "/home/ada/.gemini/settings.json"
    assert fill("$TOKEN, ${TOKEN}, $1", path, TOKEN="sesame") == "sesame, sesame, $1"
    assert refused("pa$word", path) == "mcp.json: server 'a': $word is not set in the environment"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Bearer ${TOKEN}", "${TOKEN} is not set in the environment"),
        ("Bearer ${env:TOKEN}", "${env:TOKEN} is not set in the environment"),
        ("Bearer ${ TOKEN }", "${TOKEN} is not set in the environment"),
        ("${config:editor.font}", "${config:…} is not a variable in this file"),
        ("${command:x}", "${command:…} is not a variable in this file"),
        ("${workspaceFolder:other}", "${workspaceFolder:…} is not a variable in this file"),
        ("${file:/etc/hostname}", "${file:…} is not a variable in this file"),
        ("${TOKEN:?please}", "${TOKEN:…} is not a variable in this file"),
        ("${_a.b-c:d}", "${_a.b-c:…} is not a variable in this file"),
        ("${input:key}", '${input:key} is not defined in "inputs"'),
    ],
)
def test_a_variable_that_has_no_value_is_an_error_that_names_it(text: str, named: str) -> None:
    assert refused(text).startswith(f"mcp.json: server 'a': {named}")


def test_a_secret_of_continue_is_looked_up_only_by_its_own_form() -> None:
    path = "/nowhere/config.yaml"
    assert fill("${{ secrets.TOKEN }}", path, TOKEN="sesame") == "sesame"
    assert fill("${{secrets.ada/tools/TOKEN}}", path, TOKEN="sesame") == "sesame"
    assert refused("${{ secrets.TOKEN }}", path).endswith(
        "${{ secrets.TOKEN }} is not set in the environment"
    )
    assert refused("${{ TOKEN }}", path).endswith(
        "${{ TOKEN }} is not a variable. Write ${{ secrets.NAME }}."
    )
    assert fill("${{ secrets.TOKEN }}", "/x/.continue/mcpServers/a.json", TOKEN="s") == "s"
    assert "only in Continue files" in refused("${{ secrets.TOKEN }}", TOKEN="sesame")


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("project/.vscode/mcp.json", "project"),
        ("project/.cursor/mcp.json", "project"),
        ("project/mcp.json", "project"),
        (".cursor/mcp.json", "elsewhere"),  # in the home, for all projects
        ("Code/User/mcp.json", "elsewhere"),
    ],
)
def test_the_workspace_is_the_project_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, folder: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    path = str(tmp_path / file)
    assert fill("${workspaceFolder}", path) == str(tmp_path / folder)
    assert fill("${workspaceFolderBasename}", path) == folder


# Files of variables.


def test_a_file_of_variables_is_read_as_shells_and_editors_do(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(
        b"\xef\xbb\xbf# comment\r\n"
        b"PLAIN=a b\n"
        b"  export SPACED = value # comment\n"
        b'DOUBLE="a\\n#b" # comment\n'
        b"SINGLE='a\\n#b'\n"
        b"HASH=a#b\n"
        b"EQUALS=a=b==\n"
        b"DOLLAR=$HOME ${HOME}\n"
        b"EMPTY=\n\n"
        b"TWICE=1\nTWICE=2"
    )
    assert parse_env_file(path) == {
        "PLAIN": "a b",
        "SPACED": "value",
        "DOUBLE": "a\n#b",
        "SINGLE": r"a\n#b",
        "HASH": "a#b",
        "EQUALS": "a=b==",
        "DOLLAR": "$HOME ${HOME}",
        "EMPTY": "",
        "TWICE": "2",
    }


@pytest.mark.parametrize("text", ["hush hush", "=hush", "A B=hush", 'A="hush', "A='hush' hush"])
def test_a_line_that_is_not_a_variable_is_named_but_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".env"
    path.write_text(f"FINE=1\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        parse_env_file(path)
    assert str(caught.value) == f"{path}: line 2 is not in the form NAME=value"


def test_a_file_of_variables_that_is_missing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x", "envFile": "${NAME}.env"}}}')
    with pytest.raises(ConfigError) as caught:
        resolve(read(path), None, "mcp.json", {"NAME": "some"})
    assert str(caught.value) == (
        f"mcp.json: server 'a': {tmp_path / 'some.env'} cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("name", ["a\0b", "~nobody-at-all\0"])
def test_a_path_that_cannot_exist_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="contains a null character"):
        expand(ServerConfig(command="x", env_file=name), {})


def test_a_file_that_is_too_large_or_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".env"
    path.write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        parse_env_file(path)
    monkeypatch.setattr("dovetail.config.variables.MAX_VALUE_BYTES", 2**20)
    path.write_bytes(b"A=" + b"x" * 2**20)
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        parse_env_file(path)
