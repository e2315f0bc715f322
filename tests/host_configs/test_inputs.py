"""An entry for VS Code that names inputs brings them along, and takes them with it."""

from pathlib import Path
from typing import Any

import pytest

from dovetail.host_configs.edit import EditError, parse
from dovetail.host_configs.entries import install_entry, plan_install, uninstall_entry
from dovetail.host_configs.inputs import add_inputs, make_inputs, remove_inputs
from dovetail.host_configs.records import read_records

A = {"command": "a", "env": {"K": "${input:a-K}"}}
B = {"command": "b", "env": {"L": "${input:b-L}"}}
TEXTS = [
    None,
    "",
    "{}",
    "// mine\n",
    '\ufeff{\r\n\t"servers": {}\r\n}\r\n',
    '\ufeff{"inputs":[],"servers":{}}',
    '{"inputs": [{"id": "x"}], "servers": {"z": {}}}',
    '{\n  "inputs": [],\n  "servers": {}\n}\n',
    '{\n  "inputs": [ // mine\n  ],\n  "servers": {},\n}\n',
    '{\n  "inputs": [\n    {"id": "x"}, // x\n    // end\n  ],\n}',
    '{\n  "inputs": [\n    {\n      "id": "x"\n    } // x\n  ]\n}',
    '{\n    "servers": {\n        "z": {} // z\n    }, "inputs": [{"id": "x"}, "odd"]}',
]
each_text = pytest.mark.parametrize("text", TEXTS)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class CodeFile:
    """A file of VS Code, and what the commands do with it."""

    def __init__(self, folder: Path, text: str | None) -> None:
        self.path = folder / "mcp.json"
        if text is not None:
            self.path.write_bytes(text.encode())

    @property
    def text(self) -> str | None:
        return self.path.read_bytes().decode() if self.path.exists() else None

    @property
    def ids(self) -> list[str]:
        return [one["id"] for one in parse(self.text or "", "json")["inputs"] if one != "odd"]

    def install(self, name: str, entry: dict[str, Any], *variables: str) -> bool:
        path, inputs = ("servers", name), make_inputs(name, variables)
        planned = plan_install(self.path, "json", path, entry, inputs=inputs)
        done = install_entry(self.path, "json", path, entry, host="vscode", inputs=inputs)
        assert planned == done
        return done.is_changed

    def uninstall(self, name: str) -> None:
        uninstall_entry(self.path, "json", ("servers", name))


@each_text
def test_the_file_is_as_it_was_after_an_entry_with_inputs(tmp_path: Path, text: str | None) -> None:
    file = CodeFile(tmp_path, text)
    assert file.install("a", A, "K", "M")
    assert file.ids[-2:] == ["a-K", "a-M"]
    (line,) = [one for one in parse(file.text or "", "json")["inputs"] if one != "odd"][-1:]
    assert line == {
        "type": "promptString",
        "id": "a-M",
        "description": "M for a",
        "password": True,
    }
    assert not file.install("a", A, "K", "M")
    file.uninstall("a")
    assert file.text == text and read_records().files == {}


@each_text
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_the_file_is_as_it_was_after_two_of_them(
    tmp_path: Path, text: str | None, order: str
) -> None:
    file = CodeFile(tmp_path, text)
    file.install("a", A, "K")
    file.install("b", B, "L")
    file.uninstall(order[0])
    assert [one for one in file.ids if one != "x"] == [{"a": "a-K", "b": "b-L"}[order[1]]]
    file.uninstall(order[1])
    assert file.text == text and read_records().files == {}


@each_text
def test_inputs_that_are_no_longer_named_are_removed(tmp_path: Path, text: str | None) -> None:
    file = CodeFile(tmp_path, text)
    file.install("a", A, "K", "M")
    file.install("a", A, "M", "N")
    assert [one for one in file.ids if one != "x"] == ["a-M", "a-N"]
    file.uninstall("a")
    assert file.text == text


def test_an_input_that_exists_is_kept(tmp_path: Path) -> None:
    text = '{"inputs": [{"id": "a-K", "type": "command"}]}'
    file = CodeFile(tmp_path, text)
    file.install("a", A, "K")
    assert file.ids == ["a-K"]
    file.uninstall("a")
    assert file.text == text


def test_if_another_program_changed_the_file_only_our_inputs_are_removed(tmp_path: Path) -> None:
    file = CodeFile(tmp_path, "{}")
    file.install("a", A, "K")
    text = (file.text or "").replace('"inputs": [', '"inputs": [{"id": "theirs"},')
    file.path.write_text(text)
    file.uninstall("a")
    assert parse(file.text or "", "json") == {"servers": {}, "inputs": [{"id": "theirs"}]}


def test_inputs_that_are_not_a_list_are_refused(tmp_path: Path) -> None:
    file = CodeFile(tmp_path, '{"inputs": {"x": 1}}')
    with pytest.raises(EditError, match="`inputs` is not a list"):
        file.install("a", A, "K")
    assert file.text == '{"inputs": {"x": 1}}'


def test_comments_between_inputs_stay() -> None:
    text = '{\n  "inputs": [\n    // first\n    {"id": "x"}, // x\n    // last\n  ]\n}\n'
    (added,) = add_inputs(text, make_inputs("a", ["K"]))
    for line in text.splitlines():
        assert line in added.text
    (removed,) = remove_inputs(added.text, ["a-K"])
    assert removed.text == text
