"""The client for code without async."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from dovetail import Client, ToolError
from dovetail.errors import ConnectFailed, ConnectionClosed
from tests.behaviour import everything

ROOT = Path(__file__).parents[2]


def test_every_call_waits_for_its_result() -> None:
    heard: list[float] = []
    with Client(everything.build()).blocking() as client:
        client.ping()
        assert client.server_info is not None
        assert client.server_info.name == "everything"
        assert "add" in [tool.name for tool in client.list_tools()]
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
        assert client.call_tool("add", {"a": 1, "b": 2}, type=int).data == 3
        assert client.read_resource("doc://text")[0].text == "hello"
        assert client.get_prompt("greet", {"name": "Ada"}).messages[0].role == "user"
        assert client.complete(prompt="greet", argument="name", value="Ad").values == ["Ada"]
        client.call_tool(
            "steps", {"count": 3}, on_progress=lambda update: heard.append(update.progress)
        )
        assert heard[-1] == 3
        with pytest.raises(ToolError, match="plain trouble"):
            client.call_tool("fail", {"kind": "plain"})


def test_changes_are_heard_on_the_portals_thread() -> None:
    changed = threading.Event()
    with Client(everything.build()).blocking() as client:
        client.on_change("tools", lambda kind: changed.set())
        client.ping()
        client.call_tool("grow", {"name": "extra"})
        assert changed.wait(5)


def test_it_may_be_used_from_several_threads() -> None:
    results: list[int] = []
    with Client(everything.build()).blocking() as client:
        threads = [
            threading.Thread(
                target=lambda n=n: results.append(client.call_tool("add", {"a": n, "b": 0}).data)
            )
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == list(range(20))


def test_a_server_that_cannot_be_started_is_said_plainly() -> None:
    with pytest.raises(ConnectFailed, match="no such file"):
        with Client(["/no/such/server"]).blocking():
            pass


def test_outside_of_with_it_is_closed() -> None:
    with Client(everything.build()).blocking() as client:
        pass
    with pytest.raises(ConnectionClosed):
        client.ping()


def test_no_thread_stays_behind() -> None:
    before = threading.active_count()
    for _ in range(5):
        with Client(everything.build()).blocking() as client:
            client.ping()
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("dovetail-portal") == 0, names
    assert threading.active_count() <= before + 1


def test_it_works_in_a_plain_script_over_stdio(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        from dovetail import Client
        with Client([sys.executable, "-m", "tests.behaviour.everything"]).blocking() as client:
            print(client.call_tool("add", {"a": 40, "b": 2}).data)
        """)
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
