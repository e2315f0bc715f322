"""Restarts after changes, with real servers: what is restarted when, and what is reported."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.inspector.loaded_files import LoadedFiles
from dovetail.inspector.reload import POLL_SECONDS, ReloadReport, ServerReloader
from dovetail.inspector.watch import Watch
from tests.cli.conftest import ROOT
from tests.inspector.inspecting import SECONDS, Inspecting, inspecting
from tests.processes import is_running

HEAD = "from dovetail import Server\nserver = Server('shop')\n"
ADD = "@server.tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"
ORDER = "@server.tool\ndef order(items: list[str] = []) -> str:\n    return str(items)\n"


class Developing:
    """A server in a folder, which is restarted when its files change."""

    def __init__(self, folder: Path, inspector: Inspecting) -> None:
        self.folder, self.inspector = folder, inspector
        self.reports: asyncio.Queue[ReloadReport] = asyncio.Queue()

    def save(self, name: str, text: str) -> None:
        """Save a file as editors do: with another file that is renamed."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        other = path.with_name(f"{path.name}.tmp~")
        other.write_text(text)
        other.replace(path)

    async def report(self) -> ReloadReport:
        """Wait for the end of the next restart."""
        return await asyncio.wait_for(self.reports.get(), SECONDS)

    def lists(self) -> dict[str, list[str]]:
        """Return the names of what the inspector lists."""
        return {
            kind: [item["name"] for item in json.loads(text)]
            for kind, text in self.inspector.state.list_texts().items()
            if text is not None
        }


@asynccontextmanager
async def developing(
    folder: Path,
    files: dict[str, str],
    target: str | list[str] = "server.py",
    watch: Sequence[str] = (),
) -> AsyncIterator[Developing]:
    """Inspect a server, once it has been started the first time."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if isinstance(target, str) and "/" not in target and target.partition(":")[0].endswith(".py"):
        target = str(folder / target)
    loaded = LoadedFiles(folder) if isinstance(target, str) else None
    watched = Watch([folder / ".env"], [folder / each for each in watch])
    env = {"PYTHONPATH": str(ROOT)} | (loaded.environment if loaded else {})
    async with inspecting(target, wait=False, env=env, cwd=folder) as inspector:
        found = Developing(folder, inspector)
        state = inspector.state
        loop = ServerReloader(state, watched, loaded, found.reports.put_nowait, folder)
        state.tasks.start(loop.run())
        assert state.session is not None
        await asyncio.wait_for(state.session.wait(), SECONDS)
        yield found
    if loaded is not None:
        loaded.close()


async def test_a_saved_file_restarts_the_server_and_says_what_changed(tmp_path: Path) -> None:
    async with developing(tmp_path, {"server.py": HEAD + ADD}) as dev:
        dev.save("server.py", HEAD + ADD + ORDER)
        report = await dev.report()
        assert report.files == ["server.py"]
        assert report.changes == ["+1 tool: order"]
        assert dev.lists()["tools"] == ["add", "order"]
        dev.save("server.py", HEAD + ADD + ORDER.replace(" = []", ""))
        assert (await dev.report()).changes == ["order: items now required"]
        assert dev.inspector.events("reload")[-1]["message"].endswith("order: items now required")


async def test_a_module_that_the_server_imports_restarts_it(tmp_path: Path) -> None:
    async with developing(tmp_path, {"server.py": HEAD}) as dev:
        (tmp_path / "prices.py").write_text("TAX = 1")
        dev.save("server.py", f"import prices\n{HEAD}")
        assert (await dev.report()).files == ["server.py"]
        dev.save("prices.py", "TAX = 2")
        assert (await dev.report()).files == ["prices.py"]


async def test_a_dotted_module_is_restarted(tmp_path: Path) -> None:
    files = {"shop/__init__.py": "", "shop/servers.py": HEAD}
    async with developing(tmp_path, files, "shop.servers:server") as dev:
        dev.save("shop/servers.py", HEAD + ADD)
        assert (await dev.report()).changes == ["+1 tool: add"]


@pytest.mark.parametrize(
    ("broken", "reason"), [("def broken(:\n", "SyntaxError"), ("1 / 0\n", "ZeroDivisionError")]
)
async def test_code_that_cannot_be_loaded_keeps_the_lists_until_it_is_repaired(
    tmp_path: Path, broken: str, reason: str
) -> None:
    async with developing(tmp_path, {"server.py": HEAD + ADD}) as dev:
        dev.save("server.py", broken)
        report = await dev.report()
        assert report.traceback is not None
        assert reason in report.traceback
        assert reason in report.message
        assert dev.lists()["tools"] == ["add"]
        event = dev.inspector.events("reload")[-1]
        assert event["traceback"] == report.traceback
        dev.save("server.py", HEAD + ADD + ORDER)
        repaired = await dev.report()
        assert (repaired.traceback, repaired.changes) == (None, ["+1 tool: order"])
        assert "traceback" not in dev.inspector.events("reload")[-1]


async def test_a_server_that_cannot_be_loaded_at_first_is_repaired(tmp_path: Path) -> None:
    async with developing(tmp_path, {"server.py": "import prices\n" + HEAD + ADD}) as dev:
        assert "No module named 'prices'" in ((await dev.report()).traceback or "")
        dev.save("prices.py", "TAX = 1")
        report = await dev.report()
        assert report.files == ["prices.py"]
        assert report.message.startswith("Started in"), "everything is new"
        assert dev.lists()["tools"] == ["add"]


async def test_a_file_that_is_deleted_and_comes_back(tmp_path: Path) -> None:
    async with developing(tmp_path, {"server.py": HEAD + ADD}) as dev:
        (tmp_path / "server.py").unlink()
        assert "does not exist" in (await dev.report()).message
        assert dev.lists()["tools"] == ["add"]
        dev.save("server.py", HEAD + ORDER)
        report = await dev.report()
        assert report.changes == ["+1 tool: order", "-1 tool: add"]


async def test_settings_and_watched_folders_restart_it(tmp_path: Path) -> None:
    files = {"server.py": HEAD, "data/prices.csv": "1"}
    async with developing(tmp_path, files, watch=["data"]) as dev:
        dev.save(".env", "KEY=1")
        assert (await dev.report()).files == [".env"]
        dev.save("data/prices.csv", "2")
        assert (await dev.report()).files == [os.path.join("data", "prices.csv")]
        dev.save("data/more/taxes.csv", "3")
        assert (await dev.report()).files == [os.path.join("data", "more", "taxes.csv")]


async def test_a_command_is_restarted_when_a_watched_folder_changes(tmp_path: Path) -> None:
    command = [sys.executable, "server.py"]
    files = {"server.py": HEAD + "server.run()"}
    async with developing(tmp_path, files, command, watch=["."]) as dev:
        dev.save("server.py", HEAD + ADD + "server.run()")
        assert (await dev.report()).changes == ["+1 tool: add"]


async def test_a_save_while_the_server_starts_causes_another_restart(tmp_path: Path) -> None:
    slow = "import prices, pathlib\npathlib.Path('started').touch()\nimport time\ntime.sleep(0.5)\n"
    async with developing(tmp_path, {"server.py": HEAD, "prices.py": ""}) as dev:
        dev.save("server.py", slow + HEAD)
        async with asyncio.timeout(SECONDS):
            while not (tmp_path / "started").exists():
                await asyncio.sleep(0.01)
        dev.save("prices.py", "TAX = 2")
        assert (await dev.report()).files in (["prices.py"], ["server.py"])
        numbers = {event["connection"] for event in dev.inspector.events("state")}
        while dev.inspector.state.session and dev.inspector.state.session.number < 3:
            await dev.report()
        assert max(numbers) <= 3


async def test_a_call_in_flight_ends_with_an_error_that_says_why(tmp_path: Path) -> None:
    wait = (
        "@server.tool\nasync def wait() -> None:\n    import asyncio\n    await asyncio.sleep(99)\n"
    )
    async with developing(tmp_path, {"server.py": HEAD + wait}) as dev:
        call = (await dev.inspector.do("call", tool="wait", arguments="{}"))["call"]
        await dev.inspector.until("wire", method="tools/call", direction="to_server")
        dev.save("server.py", HEAD + wait + ADD)
        record: dict[str, Any] = await dev.inspector.finish(call)
        assert record["status"] == "error"
        assert "restart" in record["error"]["message"]
        await dev.report()


async def test_what_the_server_writes_to_stderr_is_kept_over_a_restart(tmp_path: Path) -> None:
    loud = "import sys\nprint('hello from', {!r}, file=sys.stderr)\n"
    async with developing(tmp_path, {"server.py": loud.format("one") + HEAD}) as dev:
        dev.save("server.py", loud.format("two") + HEAD)
        await dev.report()
        texts = [event["text"] for event in dev.inspector.events("stderr")]
        assert texts == ["hello from one", "hello from two"]


async def test_many_saves_leave_one_process(tmp_path: Path) -> None:
    pids = "import os, pathlib\npathlib.Path(f'pid-{os.getpid()}').touch()\n"
    async with developing(tmp_path, {"server.py": pids + HEAD}) as dev:
        for number in range(50):
            dev.save("server.py", f"{pids}{HEAD}{ADD.replace('add', f'add_{number}')}")
            await asyncio.sleep(0.02)
        while dev.lists().get("tools") != ["add_49"]:
            await dev.report()
        started = [int(path.name.partition("-")[2]) for path in tmp_path.glob("pid-*")]
        assert sum(is_running(pid) for pid in started) == 1
        assert len(started) < 20
    assert not any(is_running(pid) for pid in started)


STARTS = "import os\nwith open('starts', 'a') as file:\n    print(os.getpid(), file=file)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a server has read")
async def test_each_save_starts_the_server_once_even_if_it_cannot_be_loaded(tmp_path: Path) -> None:
    async with developing(tmp_path, {"server.py": STARTS + HEAD}) as dev:
        for count, broken in enumerate(("1 / 0\n", "import no_such_module\n")):
            dev.save("server.py", STARTS + broken)
            assert (await dev.report()).traceback is not None
            dev.save("server.py", STARTS + HEAD + ADD * count)
            assert (await dev.report()).traceback is None
        await asyncio.sleep(4 * POLL_SECONDS)  # nothing else happens
        assert dev.reports.empty()
        started = [int(line) for line in (tmp_path / "starts").read_text().split()]
        assert len(started) == len(set(started)) == 5
        assert [pid for pid in started if is_running(pid)] == started[-1:]
