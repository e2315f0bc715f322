"""The digest that consent is bound to: what changes it, and what may change without it."""

import copy
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dovetail.config import entry_digest, parse, read
from dovetail.errors import ConfigError

LOCAL: dict[str, Any] = {
    "command": "uvx",
    "args": ["server", "${TOKEN}"],
    "env": {"KEY": "${KEY:-none}"},
    "cwd": ".",
    "dovetail": {"trust": False, "tools": {"deny": ["x"]}},
}
REMOTE: dict[str, Any] = {
    "url": "https://example.com/mcp",
    "headers": {"X": "${AWS_SECRET}"},
    "auth": {"clientId": "a"},
}


def digest(entry: Any, file: Any = None, name: str = "x", **environment: str) -> str:
    return entry_digest(parse({"mcpServers": {name: entry}, "dovetail": file}), name, environment)


def changed(entry: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    entry = copy.deepcopy(entry)
    *parents, last = path.split(".")
    target = entry
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    return entry


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("command", "uv"),
        ("args", ["server"]),
        ("args", ["${TOKEN}", "server"]),
        ("env.KEY", "${KEY:-other}"),
        ("env.LD_PRELOAD", "/tmp/evil.so"),
        ("cwd", ".."),
        ("timeout", 5),
        ("dovetail.trust", True),
        ("dovetail.pin", "off"),
        ("dovetail.forward", ["X-Tenant"]),
        ("dovetail.tools", {"deny": []}),
        ("dovetail", None),
        ("unknown", "key"),
    ],
)
def test_any_change_of_a_command_changes_the_digest(path: str, value: Any) -> None:
    assert digest(changed(LOCAL, path, value)) != digest(LOCAL)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("url", "https://example.com/mcp2"),
        ("headers.X", "${OTHER_SECRET}"),
        ("headers.Y", "1"),
        ("auth", "oauth"),
        ("auth.clientSecret", "x"),
    ],
)
def test_any_change_of_a_remote_server_changes_the_digest(path: str, value: Any) -> None:
    assert digest(changed(REMOTE, path, value)) != digest(REMOTE)


def test_the_defaults_of_the_file_count() -> None:
    assert digest(LOCAL, {"defaults": {"trust": True}}) != digest(LOCAL)
    assert digest(LOCAL, {"search": True}) == digest(LOCAL)


def test_the_values_of_variables_may_change() -> None:
    assert digest(LOCAL, TOKEN="a", KEY="b") == digest(LOCAL, TOKEN="c")
    assert digest(REMOTE, AWS_SECRET="a") == digest(REMOTE)


def test_neither_the_name_nor_the_order_of_keys_counts() -> None:
    assert digest(LOCAL, name="y") == digest(LOCAL)
    assert digest(dict(reversed(LOCAL.items()))) == digest(LOCAL)
    assert digest(MappingProxyType(LOCAL)) == digest(LOCAL)


def test_the_folder_in_which_a_command_runs_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = digest(LOCAL), tmp_path / "there"
    remote = digest(REMOTE)
    there.mkdir()
    monkeypatch.chdir(there)
    assert digest(LOCAL) != here
    assert digest(REMOTE) == remote
    (tmp_path / "link").symlink_to(there)
    linked = changed(LOCAL, "cwd", "../link")
    before = digest(linked)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path)
    assert digest(linked) != before


def test_a_folder_from_a_variable_is_resolved_and_must_be_set(tmp_path: Path) -> None:
    entry = changed(LOCAL, "cwd", "${FOLDER}")
    assert digest(entry, FOLDER=str(tmp_path)) != digest(entry, FOLDER="/")
    with pytest.raises(ConfigError, match=r"\$\{FOLDER\} is not set"):
        digest(entry)


def test_a_default_that_the_file_sets_for_a_variable_counts() -> None:
    def used(default: str, argument: str = "${input:where}") -> str:
        inputs = [{"id": "where", "default": default}, {"id": "other", "default": default}]
        value = {"servers": {"x": {"command": "x", "args": [argument]}}, "inputs": inputs}
        return entry_digest(parse(value), "x", {})

    assert used("a") != used("b")
    assert used("a", "plain") == used("b", "plain")


def test_the_contents_of_files_that_supply_values_count(tmp_path: Path) -> None:
    path, env = tmp_path / "mcp.json", tmp_path / ".env"
    path.write_text(json.dumps({"mcpServers": {"x": {"command": "x", "envFile": ".env"}}}))
    missing = entry_digest(read(path), "x", {})
    env.write_text("KEY=1\n")
    first = entry_digest(read(path), "x", {})
    env.write_text("KEY=1\nLD_PRELOAD=evil.so\n")
    assert len({missing, first, entry_digest(read(path), "x", {})}) == 3


@pytest.mark.parametrize(
    ("file", "text", "source"),
    [
        ("mcp_config.json", '{"mcpServers": {"x": {"command": "${file:run}"}}}', "run"),
        ("opencode.json", '{"mcp": {"x": {"command": ["{file:run}"]}}}', "run"),
        (
            ".continue/config.yaml",
            "mcpServers:\n- name: x\n  command: ${{ secrets.RUN }}\n",
            ".continue/.env",
        ),
    ],
)
def test_the_files_that_the_variables_of_other_hosts_read_count(
    tmp_path: Path, file: str, text: str, source: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    digests = set()
    for content in ("RUN=safe\n", "RUN=evil\n"):
        (tmp_path / source).write_text(content)
        digests.add(entry_digest(read(path), "x", {}))
    assert len(digests) == 2


def test_the_variables_of_an_entry_can_be_named() -> None:
    servers = parse({"mcpServers": {"x": {**LOCAL, "env_vars": ["HOME"]}, "y": REMOTE}})
    find = servers.variables.find
    assert find(servers["x"]) == ["${TOKEN}", "${KEY:-none}", "${HOME}"]
    assert find(servers["y"]) == ["${AWS_SECRET}"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_equal_entries_have_equal_digests_and_others_do_not(one: Any, other: Any) -> None:
    first = digest({"command": "x", "extra": one})
    second = digest({"command": "x", "extra": other})
    assert first.startswith("sha256:") and len(first) == 71
    assert (first == second) == (
        json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    )


def test_hidden_values_of_tools_are_covered_as_they_are_written(tmp_path: Path) -> None:
    def hiding(value: Any) -> dict[str, Any]:
        return changed(LOCAL, "dovetail.tools.with", {"a": {"hide": {"key": value}}})

    assert digest(hiding("one")) != digest(hiding("two"))
    assert digest(hiding("${NEW}"), NEW="one") == digest(hiding("${NEW}"), NEW="two")
