"""`dovetail gateway`."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.errors import Unauthorized
from tests.cli.conftest import ROOT, command, dovetail, environment
from tests.faults.test_stdio_process import is_running
from tests.gateway.programs import entry, write_server
from tests.gateway.serving import ANN, headers_of, post

LONG = "server.add_tool(pid, name='x' * 50)"


class ConfigFile:
    """An mcp.json file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "mcp.json"

    def write(self, *names: str, **entries: Any) -> None:
        servers = {name: entry(write_server(self.folder, name)) for name in names}
        self.path.write_text(json.dumps({"mcpServers": servers | entries}), "utf-8")


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


@asynccontextmanager
async def serving(
    *words: str, verb: str = "gateway"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A gateway over HTTP, and its URL."""
    process = await asyncio.create_subprocess_exec(
        *command(verb, *words, "--http", "--port", "0", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        line = await process.stdout.readline()
        assert line, (await process.communicate())[1]
        text += line.decode()
    try:
        yield process, json.loads(text)["url"]
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def prefixes(client: Client) -> set[str]:
    return {tool.name.partition("__")[0] for tool in await client.list_tools(fresh=True)}


async def until(condition: Callable[[], Any], value: Any) -> None:
    """Wait for a value; the test has a time limit."""
    while await condition() != value:
        await asyncio.sleep(0.05)


async def next_log(process: asyncio.subprocess.Process) -> Any:
    assert process.stderr is not None
    return json.loads(await process.stderr.readline())


def test_check_prints_each_server_and_what_the_policy_says(file: ConfigFile) -> None:
    policy = file.folder / "policy.toml"
    policy.write_text('[[rule]]\neffect = "deny"\nname = "crash"\n[[rule]]\neffect = "allow"\n')
    file.write("one")
    done = dovetail("gateway", str(file.path), "--check", "--policy", str(policy))
    assert (done.code, done.err) == (0, "")
    assert "one  started  2026-07-28  6 tools, 1 prompt, 1 resource, 1 template" in done.out
    rows = [line.split(maxsplit=2) for line in done.out.splitlines()]
    assert ["one__echo", "allow", f"rule 2 of {policy}"] in rows
    assert ["one__crash", "deny", f"rule 1 of {policy}"] in rows


def test_check_as_json(file: ConfigFile) -> None:
    file.write("one")
    done = dovetail("gateway", str(file.path), "--check", "--json")
    assert (done.code, done.err) == (0, "")
    one = done.json["servers"]["one"]
    assert (one["state"], one["revision"]) == ("started", "2026-07-28")
    echo = {
        "name": "one__echo",
        "upstreamName": "echo",
        "effect": "allow",
        "rule": "the default",
    }
    assert echo in one["tools"]
    decided = {"effect": "allow", "rule": "the default"}
    assert one["resources"] == [{"name": "note://one", "upstreamName": "note://one", **decided}]
    assert done.json["warnings"] == []


def test_check_lists_skills(file: ConfigFile) -> None:
    skill = file.folder / "tidy"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: How to tidy.\n---\n", "utf-8")
    program = write_server(file.folder, "one", more=f"server.add_skill({str(skill)!r})\n")
    file.write(one=entry(program))
    done = dovetail("gateway", str(file.path), "--check")
    assert "1 skill\n" in done.out
    assert "one+skill://tidy/SKILL.md" in done.out


def test_check_says_what_happens_to_a_caller(file: ConfigFile) -> None:
    file.write("one", "two")
    policy = file.folder / "policy.toml"
    ask = '[[rule]]\neffect = "ask"\nname = "pid"\n'
    more = '[[rule]]\neffect = "allow"\nprincipal = "ann"\n'
    more += '[[rule]]\neffect = "deny"\nserver = "two"\n'

    def check(text: str) -> tuple[list[list[str]], str]:
        policy.write_text(text, "utf-8")
        done = dovetail("gateway", str(file.path), "--check", "--policy", str(policy))
        assert done.code == 0
        return [line.split(maxsplit=2) for line in done.out.splitlines()], done.err

    rows, warnings = check(ask + more)
    assert ["one__pid", "deny", f"rule 1 of {policy}, but nobody can be asked"] in rows
    assert ["one__echo", "deny", "the default"] in rows
    assert ["note://one", "deny", "the default (resource)"] in rows
    assert ["two", "refused"] in rows
    assert "for a caller without authentication" in warnings
    rows, warnings = check(f'ask = "elicit"\n{ask}')
    assert ["one__pid", "ask", f"rule 1 of {policy}"] in rows
    assert warnings == ""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_check_fails_if_a_server_fails(file: ConfigFile, options: list[str]) -> None:
    file.write("one", bad={"command": "/no/such/program"})
    done = dovetail("gateway", str(file.path), "--check", *options)
    assert done.code == 1
    assert done.failure == "bad could not be started"
    assert "/no/such/program" in done.out
    if options:
        assert done.json["servers"]["bad"]["state"] == "failed"
        assert done.json["servers"]["one"]["state"] == "started"


def test_check_shows_the_last_lines_that_a_server_wrote(file: ConfigFile) -> None:
    program = "import sys; sys.exit('\\n'.join(f'line {n}' for n in range(30)))"
    file.write(bad={"command": sys.executable, "args": ["-c", program]})
    first, reason, more, *lines = dovetail("gateway", str(file.path), "--check").out.splitlines()
    assert first == "bad  failed"
    assert reason.endswith("exited with code 1; last lines of stderr:")
    assert more == "  (10 more lines)"
    assert lines == [f"  line {n}" for n in range(10, 30)]


def test_check_of_a_file_without_servers_is_an_error(file: ConfigFile) -> None:
    file.write()
    done = dovetail("gateway", str(file.path), "--check")
    assert (done.code, done.failure) == (2, f"{file.path} lists no servers")


def test_check_starts_lazy_servers_too(file: ConfigFile) -> None:
    file.write(one=entry(write_server(file.folder, "one"), start="lazy"))
    done = dovetail("gateway", str(file.path), "--check", "--json")
    assert done.json["servers"]["one"]["state"] == "started"


def test_check_warns_about_long_names_and_names_that_are_left_out(file: ConfigFile) -> None:
    plain = entry(write_server(file.folder, "a", more=LONG + "; server.add_tool(pid, name='b__x')"))
    plain["dovetail"] = {"prefix": ""}
    file.write("b", a=plain)
    done = dovetail("gateway", str(file.path), "--check")
    assert done.code == 0
    long, left_out = done.err.splitlines()
    assert f"the name {'x' * 50} has 50 characters" in long
    assert "b__x of a is left out" in left_out


def test_check_reports_changes_that_do_not_fit_a_tool(file: ConfigFile) -> None:
    changes = {
        "echo": {"name": "say", "rename": {"text": "words"}},
        "slow": {"hide": {"time": "s3cret"}},
        "ecco": {"name": "x"},
    }
    file.write(one=entry(write_server(file.folder, "one"), tools={"with": changes}))
    done = dovetail("gateway", str(file.path), "--check")
    missing, wrong = sorted(done.err.splitlines())
    assert "ecco of one is left out: tools.with: the server has no such tool" in missing
    assert "slow of one is left out: tools.with: Tool 'slow': hide= names 'time'" in wrong
    assert "one__say" in done.out and "s3cret" not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["missing.json"], "missing.json"),
        (["mcp.json", "--port", "1"], "--port requires a network transport"),
        (["uvx some-server", "--watch"], "--watch requires a configuration file"),
        (["mcp.json", "--policy", "no.toml"], "no.toml"),
    ],
)
def test_a_wrong_command_line(file: ConfigFile, words: list[str], expected: str) -> None:
    file.write("one")
    done = dovetail("gateway", *words, cwd=file.folder)
    assert done.code == 2
    assert expected in done.failure


async def test_a_gateway_on_stdio(file: ConfigFile) -> None:
    file.write("one", "two")
    client = Client(command("gateway", str(file.path)), env={"PYTHONPATH": str(ROOT)})
    async with client:
        await until(lambda: prefixes(client), {"one", "two"})
        assert (await client.call_tool("two__echo", {"text": "x"})).text == "x"


async def test_a_single_server_keeps_its_names(tmp_path: Path) -> None:
    script = write_server(tmp_path, "one")[-1]
    client = Client(command("gateway", script), env={"PYTHONPATH": str(ROOT)})
    async with client:
        assert (await client.call_tool("echo", {"text": "x"})).text == "x"


def test_users_cannot_log_in_through_a_gateway_of_the_command_line(file: ConfigFile) -> None:
    file.write(notes={"url": "https://notes.example/mcp", "auth": "oauth"})
    done = dovetail("gateway", str(file.path), "--http")
    assert done.code == 2
    assert "dovetail run gateway.py --http --public-url" in done.failure


PROTECTED = """
from dovetail import Gateway
from dovetail.auth import ApiKeys

gateway = Gateway({path!r}, auth=ApiKeys({{{key!r}: "ann"}}))
"""


async def test_run_serves_a_gateway_with_authentication(file: ConfigFile) -> None:
    file.write("one")
    script = file.folder / "gateway.py"
    script.write_text(PROTECTED.format(path=str(file.path), key=ANN), "utf-8")
    async with serving(str(script), verb="run") as (_, url):
        with pytest.raises(Unauthorized):
            async with Client(url):
                pass
        async with Client(url, headers=headers_of(ANN)) as client:
            await until(lambda: prefixes(client), {"one"})
            assert (await client.call_tool("one__echo", {"text": "x"})).text == "x"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_sighup_reloads_the_file(file: ConfigFile, workers: str) -> None:
    file.write("one")
    async with serving(str(file.path), "--workers", workers) as (process, url):
        async with Client(url) as client:
            await until(lambda: prefixes(client), {"one"})
            file.write("one", "two")
            process.send_signal(signal.SIGHUP)
            for _ in range(20):  # also if several workers answer
                await until(lambda: prefixes(client), {"one", "two"})
        assert process.returncode is None


TWICE = """
@server.tool
async def twice(ctx: Context) -> str:
    first = await ctx.elicit("First?", int)
    second = await ctx.elicit("Second?", int)
    if second.data > 2:
        raise ValueError("too much")
    return f"{first.data} {second.data}"
"""


async def test_workers_find_the_calls_that_another_worker_holds(file: ConfigFile) -> None:
    program = write_server(file.folder, "one", revisions=["2025-11-25"], more=TWICE)
    file.write(one=entry(program))
    call: dict[str, Any] = {"name": "one__twice", "arguments": {}}
    async with serving(str(file.path), "--workers", "2") as (_, url):

        async def send(params: dict[str, Any]) -> Any:
            return (await asyncio.to_thread(post, url, "tools/call", params))[1]

        for number in range(10):  # each request may arrive at another worker
            reply = await send(call)
            last = 2 + number % 2
            for value in (1, last):
                (question,) = reply["result"]["inputRequests"]
                answer = {question: {"action": "accept", "content": {"value": value}}}
                state = reply["result"]["requestState"]
                answered = {**call, "inputResponses": answer, "requestState": state}
                reply = await send(answered)
            result = reply["result"]
            assert result["content"][0]["text"] == ("1 2" if last == 2 else "too much")
            assert await send(answered) == reply  # the same again, perhaps at the other worker


async def test_with_watch_a_change_to_the_file_is_enough(file: ConfigFile) -> None:
    file.write("one", "two")
    async with serving(str(file.path), "--watch") as (process, url), Client(url) as client:
        await until(lambda: prefixes(client), {"one", "two"})
        file.path.write_text("{", "utf-8")
        record = await next_log(process)
        assert record["level"] == "error"
        assert record["message"].startswith("The configuration was not reloaded: ")
        assert await prefixes(client) == {"one", "two"}
        file.write("two")
        assert (await next_log(process))["message"] == "The configuration was reloaded"
        await until(lambda: prefixes(client), {"two"})


async def test_logs_are_json_objects(file: ConfigFile) -> None:
    file.write(bad={"command": "/no/such/program"})
    async with serving(str(file.path)) as (process, _):
        record = await next_log(process)
    assert set(record) == {"time", "level", "logger", "message"}
    assert (record["level"], record["logger"]) == ("warning", "dovetail.gateway")
    assert record["message"].startswith("bad failed: ")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_ctrl_c_lets_calls_finish_and_ends_the_servers(file: ConfigFile) -> None:
    file.write("one")
    async with serving(str(file.path)) as (process, url), Client(url) as client:
        await until(lambda: prefixes(client), {"one"})
        server = int((await client.call_tool("one__pid")).text)
        call = asyncio.create_task(client.call_tool("one__slow", {"seconds": 1}))
        await asyncio.sleep(0.3)  # the call is on its way
        process.send_signal(signal.SIGINT)
        assert (await call).text == "done"
        assert await process.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


STUBBORN = """
import os, signal, subprocess, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open({pids!r}, "a") as file:
    file.write(f"{{os.getpid()}} {{helper.pid}} ")
try:
    server.run()
finally:
    time.sleep(600)  # although its input has ended
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_no_server_survives_the_gateway_that_started_it(
    file: ConfigFile, workers: int, signals: int
) -> None:
    pids = file.folder / "pids"
    stubborn = STUBBORN.format(pids=str(pids))
    file.write(one=entry(write_server(file.folder, "one", more=stubborn)))

    async def started() -> int:
        return len(pids.read_text().split()) if pids.exists() else 0

    async with serving(str(file.path), "--workers", str(workers)) as (process, url):
        async with Client(url) as client:
            await until(lambda: prefixes(client), {"one"})
        await until(started, 2 * workers)
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)  # two signals at once would count as one
        await process.wait()

    async def running() -> list[int]:
        return [pid for pid in map(int, pids.read_text().split()) if is_running(pid)]

    async with asyncio.timeout(20):
        await until(running, [])
