"""TOML and YAML files of random lines: an entry is added and removed, and nothing else changes."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dovetail.host_configs.edit import EditError, Format, parse, remove_entry, set_entry
from dovetail.host_configs.splice import remove_spans

ENTRY = {"command": "uvx", "env": {"A": "b"}}
TOML_LINES = [
    "",
    "# comment",
    "  # indented",
    "[servers]",
    "[servers.a] # of a",
    "[servers.new]",
    "[servers.new.env]",
    "[ other . 'b' ]",
    "[[list]]",
    "x = 1 # of x",
    'y = """\n[servers.new]\n"""',
    "z = [\n  1, # one\n  # two\n]",
    "command = 'x'",
    "new.command = 'x'",
    "a.command = 'x'",
    "servers.a.command = 'x'",
    "servers = { a = 1 }",
    "servers = {}",
    "new = { command = 'x' }",
]
YAML_LINES = [
    "",
    "# comment",
    "  # indented",
    "    # deeper",
    "servers:",
    "servers: # comment",
    "servers: {}",
    "servers: {a: 1, # of a\n  b: 2}",
    "  a:",
    "  new:",
    "  b: {x: 1} # of b",
    "  c: |\n    text\n\n    # text",
    "    x: 1",
    "    y: # of y",
    "      - 1",
    "    - 2",
    "x: 1",
    "y: 'a\n\n  b'",
    "---",
    "...",
]


def files(lines: list[str]) -> st.SearchStrategy[str]:
    def join(parts: list[str], line_break: str, ending: str) -> str:
        return ("\n".join(parts) + ending).replace("\n", line_break)

    return st.builds(
        join,
        st.lists(st.sampled_from(lines), max_size=9),
        st.sampled_from(["\n", "\r\n"]),
        st.sampled_from(["", "\n", "\n\n"]),
    )


def others(value: Any) -> Any:
    """All of a value but the entry, and the servers if there are no others."""
    servers = value.get("servers")
    if isinstance(servers, dict | None):
        rest = {name: entry for name, entry in (servers or {}).items() if name != "new"}
        return {name: value[name] for name in value if name != "servers"} | {"rest": rest}
    return value


def check(text: str, format: Format) -> None:
    try:
        value = parse(text, format)
        edit = set_entry(text, format, ("servers", "new"), ENTRY)
    except EditError:
        return
    after = parse(edit.text, format)
    assert after["servers"]["new"] == ENTRY
    assert others(after) == others(value)
    if edit.inserted:
        assert remove_spans(edit.text, edit.inserted).text == text
        assert edit.text.count("#") == text.count("#")
    removed = remove_entry(edit.text, format, ("servers", "new"))
    assert "new" not in (parse(removed.text, format).get("servers") or {})
    assert others(parse(removed.text, format)) == others(value)


@given(files(TOML_LINES))
def test_any_toml_file(text: str) -> None:
    check(text, "toml")


def is_addable(text: str) -> bool:
    try:
        return isinstance(tomllib.loads(text).get("servers", {}), dict)
    except tomllib.TOMLDecodeError:
        return False


@given(files(TOML_LINES).filter(is_addable))
def test_every_valid_toml_file_gets_its_entry(text: str) -> None:
    assert parse(set_entry(text, "toml", ("servers", "new"), ENTRY).text, "toml")


@given(files(YAML_LINES))
def test_any_yaml_file(text: str) -> None:
    pytest.importorskip("ruamel.yaml")
    check(text, "yaml")
