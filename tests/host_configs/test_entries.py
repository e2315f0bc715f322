"""Entries are added to files of hosts and removed again, and the file becomes what it was."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.errors import ConfigError
from dovetail.host_configs import entries
from dovetail.host_configs.edit import Format, parse
from dovetail.host_configs.entries import (
    EntryExists,
    install_entry,
    plan_install,
    plan_uninstall,
    uninstall_entry,
)
from dovetail.host_configs.files import hold_lock
from dovetail.host_configs.records import digest_entry, plan_removal, read_records, records_file

A, B = {"command": "a", "env": {"KEY": "sesame"}}, {"command": "b", "args": ["1", "2"]}
JSON_TEXTS = [
    None,
    "",
    "\n",
    "{}",
    "{ }\n",
    '\ufeff{\r\n\t"mcpServers": {}\r\n}',
    '{"mcpServers": { /* none */ }}',
    '{\n  // mine\n  "theme": "dark", // dark\n}\n',
    '{\n  "mcpServers": {\n    "old": {} // old\n    // end\n  }\n}\n',
]
TOML_TEXTS = [None, "", "x = 1", "# mine\n\n[mcpServers.old] # old\nx = 1\n\n# y\n[y]\n"]
YAML_TEXTS = [
    None,
    "",
    "mcpServers: {}\nx: 1",
    "mcpServers: # mine\n",
    "mcpServers:\n  old: 1\n#\n",
]
FILES: list[tuple[Format, str | None]] = [
    *(("json", text) for text in JSON_TEXTS),
    *(("toml", text) for text in TOML_TEXTS),
    *(("yaml", text) for text in YAML_TEXTS),
]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dovetail"


class HostFile:
    """A file of a host, and what the commands do with it."""

    def __init__(self, path: Path, format: Format, text: str | None) -> None:
        self.path, self.format = path, format
        if text is not None:
            path.write_bytes(text.encode())

    def text(self) -> str | None:
        return self.path.read_bytes().decode() if self.path.exists() else None

    def install(self, name: str, entry: dict[str, Any], force: bool = False) -> bool:
        path = ("mcpServers", name)
        done = install_entry(self.path, self.format, path, entry, host="h", force=force)
        return done.is_changed

    def uninstall(self, name: str, force: bool = False) -> bool:
        path = ("mcpServers", name)
        return uninstall_entry(self.path, self.format, path, force=force).is_changed

    def servers(self) -> Any:
        return parse(self.text() or "", self.format)["mcpServers"]


@pytest.fixture(params=FILES, ids=lambda row: f"{row[0]}-{row[1]!r}")
def host_file(request: pytest.FixtureRequest, tmp_path: Path) -> HostFile:
    format, text = request.param
    if format == "yaml":
        pytest.importorskip("ruamel.yaml")
    return HostFile(tmp_path / f"config.{format}", format, text)


def test_a_file_is_as_it_was_after_an_entry_was_added_and_removed(host_file: HostFile) -> None:
    before = host_file.text()
    assert host_file.install("a", A)
    assert host_file.servers()["a"] == A
    assert host_file.uninstall("a")
    assert host_file.text() == before
    assert read_records().files == {}


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_file_is_as_it_was_after_two_entries_were_removed_in_any_order(
    host_file: HostFile, order: str
) -> None:
    before = host_file.text()
    host_file.install("a", A)
    host_file.install("b", B)
    host_file.uninstall(order[0])
    assert order[1] in host_file.servers() and order[0] not in host_file.servers()
    host_file.uninstall(order[1])
    assert host_file.text() == before


def test_a_file_is_as_it_was_after_an_entry_was_replaced_by_a_newer_one(
    host_file: HostFile,
) -> None:
    before = host_file.text()
    host_file.install("a", A)
    assert host_file.install("a", B)
    assert host_file.servers()["a"] == B
    host_file.uninstall("a")
    assert host_file.text() == before


def test_the_same_entry_again_writes_nothing(host_file: HostFile) -> None:
    host_file.install("a", A)
    files = (host_file.path, records_file())
    before = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files]
    assert not host_file.install("a", A)
    assert [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files] == before


def test_a_plan_writes_nothing(host_file: HostFile, state: Path) -> None:
    before, path = host_file.text(), ("mcpServers", "a")
    change = plan_install(host_file.path, host_file.format, path, A)
    assert change.is_changed and change.old == before
    assert host_file.text() == before and not state.exists()
    host_file.install("a", A)
    assert host_file.text() == change.new
    removal = plan_uninstall(host_file.path, host_file.format, path)
    assert (removal.old, removal.new) == (change.new, before)
    assert host_file.text() == change.new


def test_if_another_program_changed_the_file_only_the_entry_is_removed(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    file.install("a", A)
    text = (file.text() or "").replace("{", '{ "theirs": 1,', 1)
    file.path.write_text(text)
    file.uninstall("a")
    assert file.text() == '{ "theirs": 1,\n  "mcpServers": {}\n}'


def test_a_file_that_another_program_wrote_to_is_not_deleted(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", None)
    file.install("a", A)
    file.path.write_text((file.text() or "") + "\n")
    file.install("b", B)
    file.uninstall("a")
    file.uninstall("b")
    assert parse(file.text() or "", "json") == {"mcpServers": {}}


def test_an_entry_that_install_did_not_write_needs_force(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", '{"mcpServers": {"a": {}, "b": null}}')
    for name in ("a", "b"):
        with pytest.raises(ConfigError, match=f"'{name}' was not written by .* use --force"):
            file.uninstall(name)
    assert file.uninstall("a", force=True) and file.uninstall("b", force=True)
    assert file.text() == '{"mcpServers": {}}'


def test_an_entry_that_was_changed_needs_force(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    file.install("a", A)
    file.path.write_text((file.text() or "").replace("sesame", "other"))
    with pytest.raises(ConfigError, match=r"'a' was changed since .* use --force"):
        file.uninstall("a")
    assert "other" in (file.text() or "")
    file.uninstall("a", force=True)
    assert file.servers() == {}


def test_an_entry_that_was_only_formatted_needs_no_force(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    file.install("a", A)
    file.path.write_bytes(msgspec.json.encode({"x": 1, **parse(file.text() or "", "json")}))
    assert file.uninstall("a")
    assert file.text() == '{"x":1,"mcpServers":{}}'


def test_an_entry_of_another_that_was_replaced_is_removed_and_not_restored(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", '{"mcpServers": {"a": {"x": 1}, "z": 1}}')
    before = file.text()
    with pytest.raises(EntryExists, match="already has a server 'a', which was not written by"):
        file.install("a", A)
    assert file.text() == before
    file.install("a", A, force=True)
    file.uninstall("a")
    assert file.text() == '{"mcpServers": {"z": 1}}'


@pytest.mark.parametrize("text", [None, "{}", '{"mcpServers": {}}'])
def test_an_entry_that_is_gone_is_forgotten(tmp_path: Path, text: str | None) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    file.install("a", A)
    file.path.unlink() if text is None else file.path.write_text(text)
    assert not file.uninstall("a")
    assert file.text() == text
    assert read_records().files == {}


@pytest.mark.parametrize("text", ["{}", '{"mcpServers": {}}', "{\n}\n"])
def test_an_entry_that_is_gone_does_not_keep_what_a_later_one_added(
    tmp_path: Path, text: str
) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    file.install("a", A)
    file.path.write_text(text)
    file.install("b", B)
    file.uninstall("b")
    assert file.text() == text
    assert read_records().files == {}


def test_the_records_hold_no_text_and_are_private(tmp_path: Path, state: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", '{"secret": "hush"}')
    file.install("a", A)
    written = records_file().read_text()
    assert "sesame" not in written and "hush" not in written
    record = read_records().find(file.path)
    assert record is not None and record.existed
    (entry,) = record.entries
    assert (entry.host, entry.path, entry.digest) == ("h", ("mcpServers", "a"), digest_entry(A))
    assert {path.name for path in state.iterdir()} == {"install.lock", "installed.json"}
    if os.name == "posix":
        assert stat.S_IMODE(records_file().stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_file_has_one_record_whatever_link_leads_to_it(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    link = tmp_path / "link.json"
    link.symlink_to(file.path)
    HostFile(link, "json", None).install("a", A)
    assert file.uninstall("a")
    assert file.text() == "{}"


def test_records_that_are_damaged_are_refused_and_nothing_is_written(
    tmp_path: Path, state: Path
) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    state.mkdir(parents=True)
    (state / "installed.json").write_text("{")
    with pytest.raises(ConfigError, match=r"installed\.json is damaged\. Delete it"):
        file.install("a", A)
    (state / "installed.json").unlink()
    (state / "installed.json").mkdir()
    with pytest.raises(ConfigError, match=r"installed\.json cannot be read"):
        file.install("a", A)
    assert file.text() == "{}"


def test_if_the_file_cannot_be_written_the_records_stay_as_they_were(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    file.install("a", A)
    before, text = read_records(), file.text()
    file.path.chmod(0o444)
    with pytest.raises(ConfigError, match="is read-only"):
        file.install("b", B)
    with pytest.raises(ConfigError, match="is read-only"):
        file.uninstall("a")
    assert read_records() == before and file.text() == text


def test_a_link_that_leads_out_of_the_project_is_refused(tmp_path: Path) -> None:
    outside = HostFile(tmp_path / "config.json", "json", '{"mcpServers": {"a": 1}}')
    (tmp_path / "project").mkdir()
    link = tmp_path / "project" / "mcp.json"
    link.symlink_to(outside.path)
    with pytest.raises(ConfigError, match="leads out of"):
        install_entry(link, "json", ("m", "a"), A, host="h", inside=link.parent)
    with pytest.raises(ConfigError, match="leads out of"):
        uninstall_entry(link, "json", ("mcpServers", "a"), force=True, inside=link.parent)
    assert outside.text() == '{"mcpServers": {"a": 1}}'
    assert read_records().files == {}


def test_a_file_that_changes_between_reading_and_writing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HostFile(tmp_path / "config.json", "json", "{}")
    write = entries.write_records

    def write_while_the_host_writes(records: Any) -> None:
        write(records)
        file.path.write_text('{"theirs": 1}')

    monkeypatch.setattr(entries, "write_records", write_while_the_host_writes)
    with pytest.raises(ConfigError, match="was changed by another program"):
        file.install("a", A)
    assert file.text() == '{"theirs": 1}'
    assert read_records().files == {}


def test_a_removal_is_planned_from_the_text_and_the_record_alone() -> None:
    removal = plan_removal('{"m": {"a": 1}}', "json", ("m", "a"), None, force=True)
    assert removal == ('{"m": {}}', None)
    with pytest.raises(ConfigError, match="--force"):
        plan_removal('{"m": {"a": 1}}', "json", ("m", "a"), None)


INSTALLS = """
import sys
from pathlib import Path
from dovetail.host_configs.entries import install_entry
for number in range(int(sys.argv[3])):
    name = f"{sys.argv[2]}{number}"
    install_entry(Path(sys.argv[1]), "json", ("mcpServers", name), {"command": name}, host="h")
"""


def test_two_programs_at_once_lose_no_entry(tmp_path: Path) -> None:
    before = '{\n  "mcpServers": {} // mine\n}\n'
    file = HostFile(tmp_path / "config.json", "json", before)
    with hold_lock():  # so that both have started when the first one writes
        programs = [
            subprocess.Popen([sys.executable, "-c", INSTALLS, str(file.path), name, "15"])
            for name in ("first", "second")
        ]
    assert [program.wait() for program in programs] == [0, 0]
    names = {f"{name}{number}" for name in ("first", "second") for number in range(15)}
    assert file.servers() == {name: {"command": name} for name in names}
    for name in sorted(names):
        file.uninstall(name)
    assert file.text() == before


KILLED = """
import os, sys, time
from pathlib import Path
from dovetail.host_configs.entries import install_entry
rename = os.replace
def stop(source, target):
    if Path(target).name == sys.argv[2]:
        print("ready", flush=True)
        time.sleep(600)
    rename(source, target)
os.replace = stop
install_entry(Path(sys.argv[1]), "json", ("mcpServers", "a"), {"command": "a"}, host="h")
"""


@pytest.mark.parametrize("before_the_rename_of", ["installed.json", "config.json"])
def test_after_a_kill_the_file_is_as_it_was_and_can_be_changed(
    tmp_path: Path, before_the_rename_of: str
) -> None:
    before = '{\n  "mcpServers": {}\n}\n'
    file = HostFile(tmp_path / "config.json", "json", before)
    command = [sys.executable, "-c", KILLED, str(file.path), before_the_rename_of]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.kill()
    assert file.text() == before
    assert not file.uninstall("a")
    assert file.install("a", A) and file.uninstall("a")
    assert file.text() == before
