"""The operations of the Checks and Log panels, without a browser."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Context, Server
from dovetail.cli.main import _parse, main
from dovetail.cli.web import _make_settings
from dovetail.inspector.checks import IgnoreEntry, read_ignores, target_key
from dovetail.inspector.refusal import Refused
from tests.cli.conftest import WEATHER

from .inspecting import inspecting
from .page.raw_server import write_server

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


def make_server(description: str) -> Server:
    server = Server("web", version="1")

    @server.tool(description=description)
    def go() -> None:
        pass

    return server


async def test_a_changed_description_is_reported_until_the_user_checks_again() -> None:
    servers = [make_server("One."), make_server("Two.")]
    async with inspecting(servers[0]) as one:
        assert "description-changed" not in rules_of(await one.do("check"))
    async with inspecting(servers[1]) as one:
        for _ in range(2):
            assert "description-changed" in rules_of(await one.do("check"))
        assert "description-changed" not in rules_of(await one.do("check", again=True))
        assert "description-changed" not in rules_of(await one.do("check"))


async def test_a_change_after_the_first_check_of_a_session_is_reported() -> None:
    server = make_server("One.")
    async with inspecting(server) as one:
        assert "description-changed" not in rules_of(await one.do("check"))
        server.remove_tool("go")
        server.add_tool(go, description="Two.")
        assert "description-changed" in rules_of(await one.do("check"))


def go() -> None:
    pass


def test_servers_of_the_same_name_in_two_folders_have_two_histories(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = target_key("https://a.example/mcp", None, None)
    file, command = target_key("server.py", None, None), target_key(["uvx", "a"], None, None)
    assert target_key("server.py", None, str(folder)) == file
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    assert target_key("https://a.example/mcp", None, None) == url
    assert target_key("server.py", None, None) != file
    assert target_key(["uvx", "a"], None, None) != command
    assert target_key("mcp.json", "a", None) != target_key("mcp.json", "b", None)


def test_the_terminal_and_the_page_have_the_same_history(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def check_server(client: Any, target: str, *_: Any) -> list[Any]:
        seen.append(target)
        return []

    monkeypatch.setattr("dovetail.inspector.checks.check_server", check_server)
    monkeypatch.setattr("dovetail.inspector.operations.checks.check_server", check_server)
    settings = _make_settings(_parse(["inspect", WEATHER, "--web"]), lambda **_: None)

    async def check_on_the_page() -> None:
        async with inspecting(server) as one:
            one.state.settings = settings
            await one.do("check")

    asyncio.run(check_on_the_page())
    assert main(["check", WEATHER]) == 0
    assert len(seen) == 2 and seen[0] == seen[1]


async def test_an_entry_that_would_make_the_file_invalid_is_not_added(folder: Path) -> None:
    file = folder / ".dovetail" / "check.toml"
    file.parent.mkdir()
    file.write_text(text := "ignore = [{rule = 'name-dot'}]\n")
    async with inspecting(server) as one:
        with pytest.raises(Refused, match="cannot be added"):
            await one.do("ignore", rule="name-long")
    assert file.read_text() == text


REFUSED = {"logging/setLevel": {"error": {"code": -32603, "message": "no"}}}


@pytest.mark.parametrize("answers", [{}, REFUSED])
async def test_a_server_without_levels_is_opened_although_a_level_was_chosen(
    folder: Path, answers: dict[str, Any]
) -> None:
    script = write_server(folder, [], answers=answers)
    async with inspecting([sys.executable, str(script)]) as one:
        one.state.level = "error"
        await one.do("restart")
        await one.until("lists")
        assert one.state.session is not None
        await one.state.session.wait()
        assert (await one.do("snapshot"))["state"]["status"] == "open"
        methods = [event.get("method") for event in one.events("wire")]
        assert ("logging/setLevel" in methods) is bool(answers)


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
