"""The operations of the Checks and Log panels, without a browser."""

from pathlib import Path
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.inspector.checks import IgnoreEntry, read_ignores
from dovetail.inspector.refusal import Refused

from .inspecting import inspecting

server = Server("web", version="1")


@server.tool
def fetch(url: str = "https://example.com/") -> str:
    """Fetch a page."""
    return url


@server.tool
async def talk(ctx: Context) -> None:
    """Log something."""
    await ctx.info("quiet")
    await ctx.error("loud")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def rules_of(answer: Any) -> list[str]:
    return [one["rule"] for one in answer["findings"]]


async def test_an_ignored_finding_is_counted_and_not_listed() -> None:
    async with inspecting(server) as one:
        before = await one.do("check")
        assert (rules_of(before)[0], before["ignored"]) == ("default-url", 0)
        await one.do("ignore", rule="default-url", tool="fetch", reason="ours")
        after = await one.do("check")
        assert ("default-url" in rules_of(after), after["ignored"]) == (False, 1)
        assert read_ignores() == [IgnoreEntry("default-url", "fetch", "ours")]


async def test_ignoring_keeps_the_rest_of_the_file_and_adds_an_entry_once(folder: Path) -> None:
    file = folder / ".dovetail" / "check.toml"
    file.parent.mkdir()
    file.write_text("# ours\n[[ignore]]\nrule = 'name-dot' # why")
    async with inspecting(server) as one:
        for _ in range(2):
            await one.do("ignore", rule="name-long")
    added = '[[ignore]]\nrule = "name-long"\n'
    assert file.read_text() == f"# ours\n[[ignore]]\nrule = 'name-dot' # why\n\n{added}"


@pytest.mark.parametrize("fields", [{"rule": "nope"}, {"rule": "name-dot", "path": "/etc/x"}, {}])
async def test_a_wrong_entry_is_refused_and_nothing_is_written(
    fields: dict[str, str], folder: Path
) -> None:
    async with inspecting(server) as one:
        with pytest.raises(Refused):
            await one.do("ignore", **fields)
    assert not (folder / ".dovetail").exists()


async def test_a_damaged_file_is_reported_and_left_alone(folder: Path) -> None:
    file = folder / ".dovetail" / "check.toml"
    file.parent.mkdir()
    file.write_text("[[ignore]\n")
    async with inspecting(server) as one:
        for name, fields in (("check", {}), ("ignore", {"rule": "name-dot"})):
            with pytest.raises(Refused, match="line 1"):
                await one.do(name, **fields)
    assert file.read_text() == "[[ignore]\n"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_level_decides_what_the_server_logs_also_after_a_restart(revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        await one.do("set_level", level="error")
        await one.call("talk")
        assert [event["level"] for event in one.events("log")] == ["error"]
        assert (await one.do("snapshot"))["level"] == "error"
        await one.do("restart")
        await one.until("state", status="open", connection=2)
        await one.until("lists")
        await one.call("talk")
        assert [event["level"] for event in one.events("log")] == ["error", "error"]
        with pytest.raises(Refused):
            await one.do("set_level", level="loud")
