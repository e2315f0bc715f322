"""mcp.json: found, read, chosen from, filled in and written without losing what is not ours."""

import json
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dovetail.config import ServerConfig, choose, expand, find, parse, read, write
from dovetail.errors import ConfigError

WEATHER = {"command": "uvx", "args": ["weather"], "env": {"KEY": "${WEATHER_KEY}"}}
REMOTE = {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"weather": WEATHER, "remote": REMOTE}}))
    return path


def fails(call: Any, *args: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*args)
    return str(caught.value)


# Finding.


def test_the_nearest_file_is_found_from_below(file: Path) -> None:
    deep = file.parent / "a" / "b"
    deep.mkdir(parents=True)
    assert find(deep) == file.resolve()
    (deep / ".mcp.json").write_text("{}")
    assert find(deep) == (deep / ".mcp.json").resolve()


def test_the_plain_name_comes_before_the_hidden_one(file: Path) -> None:
    (file.parent / ".mcp.json").write_text("{}")
    assert find(file.parent) == file.resolve()


def test_the_search_starts_here_unless_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert find() == file.resolve()


def test_a_folder_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").mkdir()
    assert find(tmp_path) in (None, *(parent / "mcp.json" for parent in tmp_path.parents))


# Reading.


def test_both_kinds_of_server_are_read(file: Path) -> None:
    servers = read(file)
    assert servers["weather"] == ServerConfig(
        command="uvx", args=["weather"], env={"KEY": "${WEATHER_KEY}"}
    )
    assert servers["remote"] == ServerConfig(url=REMOTE["url"], headers=REMOTE["headers"])  # type: ignore[arg-type]


def test_what_other_applications_add_is_no_hindrance(file: Path) -> None:
    file.write_text(
        json.dumps(
            {"mcpServers": {"w": WEATHER | {"disabled": True, "type": "stdio"}}, "theme": "dark"}
        )
    )
    assert read(str(file))["w"].command == "uvx"


def test_comments_and_trailing_commas_are_no_hindrance(file: Path) -> None:
    file.write_text('// mine\n{"mcpServers": {"w": {"command": "uvx", /* the newest */},},}')
    assert read(file) == {"w": ServerConfig(command="uvx")}


def test_a_byte_order_mark_is_no_hindrance(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(read(file)) == 2


def test_the_other_name_of_the_servers_is_understood() -> None:
    assert parse({"servers": {"w": WEATHER}}).keys() == {"w"}
    assert parse({"servers": {"ignored": WEATHER}, "mcpServers": {"w": WEATHER}}).keys() == {"w"}


def test_any_mapping_will_do() -> None:
    assert parse(MappingProxyType({"mcpServers": {"w": WEATHER}})).keys() == {"w"}


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.json"
    assert fails(read, missing) == f"{missing} cannot be read: No such file or directory"
    assert str(tmp_path) in fails(read, tmp_path)


@pytest.mark.parametrize("text", [b"", b"{", b"// comment", b"\xff\xfe{}"])
def test_a_file_that_is_no_json_is_named(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    assert fails(read, file).startswith(f"{file} is not valid JSON: ")


@pytest.mark.parametrize("value", [None, [], "x", {}, {"other": {}}])
def test_a_file_without_servers_says_which_key_is_missing(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value))
    assert fails(read, file) == f'{file} has no "mcpServers"'


@pytest.mark.parametrize("key", ["mcpServer", "mcpservers"])
def test_a_misspelled_key_of_a_file_is_named(file: Path, key: str) -> None:
    file.write_text(json.dumps({key: {"w": WEATHER}}))
    assert fails(read, file).endswith(
        f'has no "mcpServers". Did you mean "mcpServers" instead of "{key}"?'
    )


@pytest.mark.parametrize(("key", "meant"), [("comand", "command"), ("urll", "url")])
def test_a_misspelled_key_of_a_server_is_named(key: str, meant: str) -> None:
    said = fails(choose, parse({"mcpServers": {"w": {key: "x", "args": []}}}), None)
    assert said.endswith(f'or a "url". Did you mean "{meant}" instead of "{key}"?')


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ({"command": 3}, "command"),
        ({"command": "uvx", "args": "weather"}, "args"),
        ({"command": "uvx", "env": {"PORT": []}}, "env"),
        ({"url": "https://example.com", "headers": ["a: b"]}, "headers"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(server: Any, where: str) -> None:
    said = fails(choose, parse({"mcpServers": {"w": server}}, "mcp.json"), "w", "mcp.json")
    assert said.startswith("mcp.json: server 'w' is not valid: Expected")
    assert where in said


@pytest.mark.parametrize("server", [{}, {"args": ["x"]}, WEATHER | REMOTE])
def test_a_server_is_either_a_command_or_a_url(server: Any) -> None:
    assert fails(choose, parse({"mcpServers": {"w": server}}), None) == (
        'the configuration: server \'w\' requires either a "command" or a "url"'
    )


# Choosing.


def test_the_only_server_needs_no_name() -> None:
    only = ServerConfig(command="a")
    assert choose({"one": only}, None) is only


def test_the_named_server_is_chosen() -> None:
    servers = {"one": ServerConfig(command="a"), "two": ServerConfig(command="b")}
    assert choose(servers, "two") is servers["two"]


def test_a_choice_that_cannot_be_made_lists_what_there_is() -> None:
    servers = {"two": ServerConfig(command="b"), "one": ServerConfig(command="a")}
    assert fails(choose, servers, None, "mcp.json") == (
        'mcp.json has several servers; choose one with server="…": one, two'
    )
    assert (
        fails(choose, servers, "three", "mcp.json")
        == "mcp.json has no server 'three'; it has one, two"
    )
    assert fails(choose, {}, None, "mcp.json") == "mcp.json has no servers"
    assert fails(choose, {}, "one", "mcp.json") == "mcp.json has no servers"


# Filling in.


def test_variables_are_filled_in_everywhere_but_in_names() -> None:
    server = ServerConfig(
        command="${HOME}/bin/run",
        args=["--key=${KEY}", "${KEY}${KEY}"],
        env={"${KEY}": "${KEY}"},
        cwd="${HOME}",
    )
    assert expand(server, {"HOME": "/home/ada", "KEY": "k"}) == ServerConfig(
        command="/home/ada/bin/run", args=["--key=k", "kk"], env={"${KEY}": "k"}, cwd="/home/ada"
    )
    remote = ServerConfig(url="https://${HOST}/mcp", headers={"Authorization": "Bearer ${TOKEN}"})
    assert expand(remote, {"HOST": "example.com", "TOKEN": "t"}) == ServerConfig(
        url="https://example.com/mcp", headers={"Authorization": "Bearer t"}
    )


def test_the_environment_is_that_of_the_process_unless_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOVETAIL_TEST_KEY", "from outside")
    assert expand(ServerConfig(command="${DOVETAIL_TEST_KEY}")).command == "from outside"


def test_a_fallback_stands_in_only_where_the_variable_is_not_set() -> None:
    server = ServerConfig(command="${A:-a}${B:-}${C:-https://x:1/?a=b}")
    assert expand(server, {}).command == "ahttps://x:1/?a=b"
    assert expand(server, {"A": "1", "B": "2", "C": "3"}).command == "123"
    assert expand(server, {"A": ""}).command == "https://x:1/?a=b"


def test_a_variable_that_is_missing_is_named_and_never_empty() -> None:
    assert "${TOKEN}" in fails(
        expand, ServerConfig(url="https://x", headers={"A": "Bearer ${TOKEN}"}), {}
    )


@pytest.mark.parametrize("text", ["$HOME", "${}", "${1A}", "${a b}", "$${", "{A}", "${A"])
def test_what_is_no_variable_stays_as_it_is(text: str) -> None:
    assert expand(ServerConfig(command=text), {"HOME": "x", "A": "x"}).command == text


def test_what_was_filled_in_is_not_filled_in_again() -> None:
    assert expand(ServerConfig(command="${A}"), {"A": "${B}", "B": "x"}).command == "${B}"


def test_filling_in_leaves_the_server_alone() -> None:
    server = ServerConfig(command="${A}", args=["${A}"])
    expand(server, {"A": "x"})
    assert server == ServerConfig(command="${A}", args=["${A}"])


# Writing.


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    servers = {
        "a": ServerConfig(command="x", args=["y"], env={"K": "${V}"}),
        "b": ServerConfig(url="https://x"),
    }
    write(path, servers)
    assert read(path) == servers
    assert path.read_bytes().endswith(b"}\n")
    assert json.loads(path.read_bytes()) == {
        "mcpServers": {
            "a": {"command": "x", "args": ["y"], "env": {"K": "${V}"}},
            "b": {"url": "https://x"},
        }
    }


def test_writing_keeps_whatever_else_the_file_holds(file: Path) -> None:
    file.write_text(
        json.dumps(
            {
                "theme": "dark",
                "mcpServers": {"w": WEATHER | {"disabled": True}, "old": WEATHER},
                "z": [1],
            }
        )
    )
    write(file, {"w": ServerConfig(command="npx"), "new": ServerConfig(command="c")})
    assert json.loads(file.read_bytes()) == {
        "theme": "dark",
        "mcpServers": {"w": {"command": "npx", "disabled": True}, "new": {"command": "c"}},
        "z": [1],
    }


@pytest.mark.parametrize(
    ("text", "why"), [("{", "is not valid JSON"), ("[]", "is not a JSON object")]
)
def test_a_file_that_makes_no_sense_is_never_overwritten(file: Path, text: str, why: str) -> None:
    file.write_text(text)
    assert why in fails(write, file, {})
    assert file.read_text() == text


def test_a_file_with_comments_is_not_written_because_they_would_be_lost(file: Path) -> None:
    file.write_text('{"mcpServers": {}} // mine\n')
    assert read(file) == {}
    assert "comments or trailing commas, which would be lost" in fails(write, file, {})
    assert file.read_text() == '{"mcpServers": {}} // mine\n'


def test_times_are_written_in_milliseconds_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    servers = {
        "a": ServerConfig(command="x", timeout=2.5, open_timeout=10.0, disabled=True, env_file="e")
    }
    write(path, servers)
    entry = json.loads(path.read_bytes())["mcpServers"]["a"]
    assert entry == {
        "command": "x",
        "timeout": 2500,
        "connectionTimeout": 10000,
        "disabled": True,
        "envFile": "e",
    }
    assert read(path) == servers


def test_servers_of_the_wrong_shape_are_replaced(file: Path) -> None:
    file.write_text('{"mcpServers": {"a": 1}, "b": 2}')
    write(file, {"a": ServerConfig(command="x")})
    assert json.loads(file.read_bytes()) == {"mcpServers": {"a": {"command": "x"}}, "b": 2}
    file.write_text('{"mcpServers": []}')
    write(file, {})
    assert json.loads(file.read_bytes()) == {"mcpServers": {}}


def test_nothing_but_the_file_is_left_behind(file: Path) -> None:
    write(file, {})
    assert [path.name for path in file.parent.iterdir()] == ["mcp.json"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_file_stays_as_private_as_it_was_and_a_new_one_is_private(file: Path) -> None:
    file.chmod(0o640)
    write(file, {})
    assert file.stat().st_mode & 0o777 == 0o640
    write(file.with_name("new.json"), {})
    assert file.with_name("new.json").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_stays_a_link(file: Path) -> None:
    link = file.with_name("link.json")
    link.symlink_to(file)
    write(link, {"a": ServerConfig(command="x")})
    assert link.is_symlink()
    assert read(file).keys() == {"a"}


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "none" / "mcp.json"
    assert fails(write, path, {}) == f"{path} cannot be written: No such file or directory"
