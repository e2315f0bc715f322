"""A server is added to the file of each host and removed again, on three systems.

`host_files/<host>/` has a file as the host's documentation shows it (`before`), and the same file
with a command (`after-command`) and with a URL (`after-url`). The bytes are compared.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from dovetail.config import ServerConfig
from dovetail.errors import ConfigError
from dovetail.host_configs import files
from dovetail.host_configs.edit import find_entry, parse
from dovetail.host_configs.files import hold_lock
from dovetail.host_configs.hosts import HOSTS, HostApp, Machine, Scope, find_host
from dovetail.host_configs.install import apply, plan_install, plan_uninstall
from dovetail.host_configs.server_command import parse_source

FOLDER = Path(__file__).parent / "host_files"
PYTHON = "/home/ada/shop/.venv/bin/python"
UVX = "/home/ada/.local/bin/uvx"
Kind = Literal["command", "url"]
Change = Callable[[str], str]
each_host = pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.id)
each_kind = pytest.mark.parametrize("kind", ["command", "url"])
posix = pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")


def server_of(kind: Kind, host: HostApp) -> ServerConfig:
    if kind == "command":
        return ServerConfig(command=UVX, args=["weather"], env={"UNITS": "metric"})
    return parse_source("https://weather.example/mcp", host, python=PYTHON)


def stored_file(host: HostApp, name: str) -> Path:
    (found,) = (FOLDER / host.id).glob(f"{name}.*")
    return found


def stored(host: HostApp, name: str) -> str:
    return stored_file(host, name).read_bytes().decode()


class Home(NamedTuple):
    """A home on some system, and the commands in it."""

    folder: Path
    host: HostApp
    system: str = "linux"
    scope: Scope = "user"

    @property
    def machine(self) -> Machine:
        return Machine(self.system, {}, self.folder, self.folder / "project")

    @property
    def file(self) -> Path:
        return self.host.file(self.machine, self.scope)

    def write(self, text: str) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(text.encode())

    def text(self) -> str | None:
        return self.file.read_bytes().decode() if self.file.exists() else None

    def install(self, kind: Kind = "command") -> bool:
        """Install the server; return whether anything changed."""
        server = server_of(kind, self.host)
        plan = plan_install(self.host, "weather", server, machine=self.machine, scope=self.scope)
        if plan.is_needed:
            apply(plan)
        return plan.is_needed

    def uninstall(self) -> None:
        apply(plan_uninstall(self.host, "weather", machine=self.machine, scope=self.scope))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


# the files as the documentation of each host shows them


@each_host
@each_kind
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_the_file_of_each_host_gets_one_entry_and_loses_it(
    tmp_path: Path, host: HostApp, kind: Kind, system: str
) -> None:
    home = Home(tmp_path, host, system)
    home.write(stored(host, "before"))
    assert home.install(kind)
    assert home.text() == stored(host, f"after-{kind}")
    assert not home.install(kind), "a second install changes nothing"
    assert home.text() == stored(host, f"after-{kind}")
    home.uninstall()
    assert home.text() == stored(host, "before")


@each_host
def test_a_command_becomes_a_url_and_is_removed_without_a_trace(
    tmp_path: Path, host: HostApp
) -> None:
    home = Home(tmp_path, host)
    home.write(stored(host, "before"))
    assert home.install("command") and home.install("url")
    assert home.text() == stored(host, "after-url")
    home.uninstall()
    assert home.text() == stored(host, "before")


@pytest.mark.parametrize("host", [host for host in HOSTS if host.project], ids=lambda host: host.id)
def test_the_file_of_a_project_is_changed_in_the_same_way(tmp_path: Path, host: HostApp) -> None:
    home = Home(tmp_path, host, scope="project")
    home.write(stored(host, "before"))
    assert home.install() and not home.install()
    home.uninstall()
    assert home.text() == stored(host, "before")


# variations of these files


EXACT: dict[str, Change] = {
    "byte order mark": lambda text: "\ufeff" + text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "BOM and CRLF": lambda text: "\ufeff" + text.replace("\n", "\r\n"),
    "no final newline": lambda text: text.removesuffix("\n"),
    "more newlines": lambda text: text + "\n\n",
}
"""How a file may be written, so that the result is written in the same way."""


@each_host
@pytest.mark.parametrize("change", EXACT.values(), ids=EXACT)
def test_line_ends_and_the_byte_order_mark_stay(
    tmp_path: Path, host: HostApp, change: Change
) -> None:
    home = Home(tmp_path, host)
    home.write(change(stored(host, "before")))
    assert home.install() and not home.install()
    assert home.text() == change(stored(host, "after-command"))
    home.uninstall()
    assert home.text() == change(stored(host, "before"))


def add_comments(text: str, mark: str) -> str:
    """Put a comment at the end of every line, and one at the end of the file."""
    return re.sub(r"(\S)\n", rf"\1 {mark} ä\n", text) + f"{mark} the end\n"


def add_commas(text: str) -> str:
    return re.sub(r'(["\]}\w])(\s*[}\]])', r"\1,\2", text)


def on_one_line(text: str) -> str:
    return json.dumps(parse(text, "json"))


LOOSE: dict[str, dict[str, Change]] = {
    "json": {
        "comments": lambda text: add_comments(text, "//"),
        "trailing commas": lambda text: add_commas(on_one_line(text)),
        "one line": on_one_line,
        "four spaces": lambda text: json.dumps(parse(text, "json"), indent=4),
        "tabs": lambda text: json.dumps(parse(text, "json"), indent="\t"),
        "other keys only": lambda text: '{\n  "theme": "dark"\n}\n',
        "empty object": lambda text: "{}",
    },
    "toml": {
        "comments": lambda text: add_comments(text, "#"),
        "tabs": lambda text: text.replace(" = ", "\t=\t"),
        "other keys only": lambda text: 'theme = "dark"\n',
    },
    "yaml": {
        "comments": lambda text: add_comments(text, "#"),
        "four spaces": lambda text: re.sub(r"^( +)", r"\1\1", text, flags=re.MULTILINE),
        "other keys only": lambda text: "theme: dark\n",
        "no value": lambda text: "extensions: # none\n",
    },
}
"""Other ways to write a file, by format."""
BLANK: dict[str, str | None] = {"empty": "", "a blank line": "\n", "absent": None}


def variations() -> Iterator[Any]:
    for host in HOSTS:
        for name, change in LOOSE[host.format].items():
            yield pytest.param(host, change(stored(host, "before")), id=f"{host.id}, {name}")
        for name, text in BLANK.items():
            yield pytest.param(host, text, id=f"{host.id}, {name}")


@pytest.mark.parametrize(("host", "before"), list(variations()))
def test_however_a_file_is_written_only_the_entry_changes(
    tmp_path: Path, host: HostApp, before: str | None
) -> None:
    home = Home(tmp_path, host)
    if before is not None:
        home.write(before)
    assert home.install()
    after = parse(home.text() or "", host.format)
    entry = find_entry(after, (host.key, "weather"))
    assert entry == find_entry(
        parse(stored(host, "after-command"), host.format), (host.key, "weather")
    )
    others = {**after, host.key: {**after[host.key]}}
    del others[host.key]["weather"]
    assert without_empty(others, host) == without_empty(parse(before or "", host.format), host)
    assert not home.install()
    home.uninstall()
    assert home.text() == before


def without_empty(value: Any, host: HostApp) -> Any:
    """Leave out the object that contains the entries, if it has none."""
    return {key: one for key, one in (value or {}).items() if key != host.key or one}


# what is refused, without a change


INVALID = {
    "json": ['{"%s": {\n  oops\n}}', '{"%s": {}', '{"%s": []}', '{"%s": 1}', "[]"],
    "toml": ["[%s\n", "%s = 1\n", "x = 1\nx = 2\n"],
    "yaml": ["%s: [1\n", "%s: text\n", "%s:\n\tx: 1\n", "- 1\n"],
}


@pytest.mark.parametrize(
    ("host", "text"),
    [(host, text.replace("%s", host.key)) for host in HOSTS for text in INVALID[host.format]],
    ids=lambda value: value.id if isinstance(value, HostApp) else repr(value),
)
def test_a_file_that_is_not_valid_is_refused(tmp_path: Path, host: HostApp, text: str) -> None:
    home = Home(tmp_path, host)
    home.write(text)
    with pytest.raises(ConfigError, match=r"line \d+, column \d+|not an object") as caught:
        home.install()
    assert str(home.file) in str(caught.value)
    assert home.text() == text
    assert [one.name for one in home.file.parent.iterdir()] == [home.file.name]


@posix
@each_host
def test_a_symbolic_link_stays_and_its_target_changes(tmp_path: Path, host: HostApp) -> None:
    home = Home(tmp_path / "home", host)
    target = tmp_path / "dotfiles" / "settings"
    target.parent.mkdir()
    target.write_bytes(stored(host, "before").encode())
    home.file.parent.mkdir(parents=True)
    home.file.symlink_to(target)
    assert home.install() and not home.install()
    assert home.file.is_symlink()
    assert target.read_bytes().decode() == stored(host, "after-command")
    home.uninstall()
    assert target.read_bytes().decode() == stored(host, "before")


@each_host
def test_a_file_that_is_read_only_is_refused(tmp_path: Path, host: HostApp) -> None:
    home = Home(tmp_path, host)
    home.write(stored(host, "before"))
    home.file.chmod(0o444)
    with pytest.raises(ConfigError, match="is read-only"):
        home.install()
    assert home.text() == stored(host, "before")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Drop the rights of root, who may write everywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@posix
@each_host
def test_a_folder_that_is_read_only_is_refused(
    host: HostApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as state:
        monkeypatch.setenv("XDG_STATE_HOME", state)
        os.chmod(state, 0o777)
        os.chmod(folder, 0o755)
        home = Home(Path(folder), host)
        home.write(stored(host, "before"))
        home.file.chmod(0o666)
        home.file.parent.chmod(0o555)
        with ordinary_user(), pytest.raises(ConfigError, match="its folder is read-only"):
            home.install()
        assert home.text() == stored(host, "before")
        home.file.parent.chmod(0o755)


@each_host
def test_a_file_that_another_program_has_open_is_refused(
    tmp_path: Path, host: HostApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows does not replace such a file."""
    home = Home(tmp_path, host, "win32")
    home.write(stored(host, "before"))
    file = home.file

    def refuse(source: str, target: Path) -> None:
        if Path(target) == file:
            raise PermissionError(13, "Access is denied")
        os.rename(source, target)

    monkeypatch.setattr(files, "WINDOWS_RETRY_SECONDS", 0)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ConfigError, match="another program has the file open"):
        home.install()
    assert home.text() == stored(host, "before")


@each_host
def test_while_another_install_runs_nothing_is_written(
    tmp_path: Path, host: HostApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, host)
    home.write(stored(host, "before"))
    monkeypatch.setattr(files, "LOCK_SECONDS", 0)
    with hold_lock(), pytest.raises(ConfigError, match="Another dovetail command is changing"):
        home.install()
    assert home.text() == stored(host, "before")
    assert home.install()


# large files


def large_json() -> str:
    history = [{"id": number, "text": "ä" * 2000} for number in range(1_300)]
    return json.dumps({"history": history, "mcpServers": {}}, indent=2, ensure_ascii=False)


def large_toml() -> str:
    table = "# ä\n[projects.\"/p/{}\"]\nnote = '{}'\n"
    return "".join(table.format(number, "y" * 5000) for number in range(1_000))


LARGE = {
    "cursor": large_json,
    "zed": lambda: "{\n" + f"  // {'y' * 200}\n" * 25_000 + "}\n",
    "codex": large_toml,
}


@pytest.mark.parametrize("host", LARGE)
def test_a_file_of_five_megabytes_is_changed(tmp_path: Path, host: str) -> None:
    home = Home(tmp_path, find_host(host))
    before = LARGE[host]()
    assert 5_000_000 < len(before.encode()) < 6_000_000
    home.write(before)
    assert home.install() and not home.install()
    home.uninstall()
    assert home.text() == before


def test_a_file_of_five_megabytes_is_refused_if_it_is_yaml(tmp_path: Path) -> None:
    """The only library that knows positions would take minutes."""
    home = Home(tmp_path, find_host("goose"))
    before = "notes: |\n" + f"  {'y' * 70}\n" * 70_000 + "extensions:\n"
    home.write(before)
    with pytest.raises(ConfigError, match=r"config\.yaml: has more than 256 Ki characters"):
        home.install()
    assert home.text() == before
