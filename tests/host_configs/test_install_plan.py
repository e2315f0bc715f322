"""A plan that cannot be carried out says why, and has the entry to paste."""

from pathlib import Path

import pytest

from dovetail.config import ServerConfig
from dovetail.errors import ConfigError
from dovetail.host_configs import files
from dovetail.host_configs.files import hold_lock
from dovetail.host_configs.hiding import hide_all, hide_values
from dovetail.host_configs.hosts import HOSTS, HostApp, Machine, find_host
from dovetail.host_configs.install import Plan, apply, plan_install, plan_uninstall

SERVER = ServerConfig(command="/bin/weather", args=["--port", "1"], env={"KEY": "hunter22"})
each_host = pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.id)
each_system = pytest.mark.parametrize("system", ["linux", "darwin", "win32"])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def make_plan(host: HostApp, home: Path, system: str = "linux") -> Plan:
    return plan_install(host, "weather", SERVER, machine=Machine(system, {}, home, home / "work"))


@each_host
@each_system
def test_a_plan_is_carried_out_and_undone_on_every_system(
    host: HostApp, system: str, home: Path
) -> None:
    plan = make_plan(host, home, system)
    assert "hunter22" not in plan.difference and "/bin/weather" in plan.difference
    apply(plan)
    assert "hunter22" in plan.file.read_text()
    assert not make_plan(host, home, system).is_needed
    machine = Machine(system, {}, home, home / "work")
    removal = plan_uninstall(host, "weather", machine=machine)
    assert removal.deletes_file and "hunter22" not in removal.difference
    apply(removal)
    assert not plan.file.exists()


def test_while_another_command_holds_the_lock_the_entry_is_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0)
    plan = make_plan(find_host("goose"), home)
    with hold_lock(), pytest.raises(ConfigError, match="Another dovetail command") as caught:
        apply(plan)
    (note,) = caught.value.__notes__
    assert "/bin/weather" in note and "hunter22" not in note
    assert not plan.file.exists()


def test_a_file_that_changed_since_the_plan_is_read_again(home: Path) -> None:
    plan = make_plan(find_host("cursor"), home)
    plan.file.parent.mkdir()
    plan.file.write_text('{"theirs": 1}')
    apply(plan)
    assert '"theirs": 1' in plan.file.read_text() and "weather" in plan.file.read_text()


def test_secrets_are_hidden_wherever_they_are() -> None:
    entry = {
        "command": ["npx", "x", "--api-key", "hunter22"],
        "url": "https://ada:hunter22@x.example?token=hunter22",
        "headers": {"A": "hunter22", "B": "${B}"},
        "environment": {"K": "{env:K}"},
        "oauth": {"clientId": "me", "clientSecret": "hunter22"},
        "timeout": 5,
    }
    shown = hide_values(entry)
    assert "hunter22" not in str(shown)
    assert (shown["headers"]["B"], shown["environment"]["K"]) == ("${B}", "{env:K}")
    assert (shown["oauth"]["clientId"], shown["timeout"]) == ("me", 5)
    assert shown["command"][:3] == ["npx", "x", "--api-key"]


def test_nearly_everything_of_an_unknown_entry_is_hidden() -> None:
    entry = {"type": "stdio", "command": "x", "args": ["hunter22"], "a": {"b": "hunter22"}}
    shown = hide_all(entry)
    assert shown.keys() == entry.keys() and shown["a"].keys() == {"b"}
    assert "hunter22" not in str(shown) and shown["command"] == "x"
