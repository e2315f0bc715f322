"""Who takes part in `backend.py`, on one Redis: Dovetail, and FastMCP with Docket, which is
installed in a folder of its own below `.bench/`.

Both serve the tasks of the stateless era, so the load is the same: raw requests over HTTP.
"""

import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .figures import Figure
from .gateways import FOLDER, environment, install_python
from .implementations import HERE, Process, free_port, started, wait_until_open
from .web import META, Site, exchange

FASTMCP_VERSION = "4.1.2"
KEYS = secrets.token_urlsafe(32)
TASK_META = META | {
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
}
FIRST_POLL, LONGEST_POLL, LONGEST_TASK = 0.005, 0.1, 60.0


class Redis:
    """A Redis server that was started for the benchmark."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port, self._folder = port, folder
        self.url = f"redis://127.0.0.1:{port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return Process(self._process)

    def start(self) -> None:
        options = ["--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction"]
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), *options]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [*command, "--dir", str(self._folder)], stdin=quiet, stdout=quiet, stderr=quiet
        )
        wait_until_open(self.process, self.port, "redis-server")

    def stop(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def run(self, command: str) -> str:
        """Send a command in one line and return its reply, which is one string."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(f"{command}\r\n".encode())
            file = connection.makefile("rb")
            head = file.readline()
            return file.read(int(head[1:])).decode() if head.startswith(b"$") else head.decode()

    def commands(self) -> int:
        """How many commands it has run, without those of this class."""
        lines = self.run("INFO commandstats").splitlines()
        counts = {
            name.removeprefix("cmdstat_"): int(stats.partition("calls=")[2].partition(",")[0])
            for name, _, stats in (line.partition(":") for line in lines)
            if stats
        }
        return sum(count for name, count in counts.items() if name != "info")


@contextmanager
def redis() -> Iterator[Redis]:
    """A Redis as the guide recommends it: with an append-only file, without eviction."""
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(free_port(), Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


class TaskServer(NamedTuple):
    """A server with tasks on Redis: its name, interpreter and script, the variables that name its
    Redis, and those that set the time after which a task is taken over."""

    name: str
    python: str
    script: str
    variables: Callable[[str], dict[str, str]]
    takeover_after: Callable[[float], dict[str, str]]


def _ours(url: str) -> dict[str, str]:
    return {"DOVETAIL_BACKEND": url, "DOVETAIL_KEYS": KEYS}


DOVETAIL = TaskServer(
    "Dovetail",
    sys.executable,
    "tasks_ours.py",
    _ours,
    lambda seconds: {"LIMITS": json.dumps({"task_lease": seconds})},
)
FASTMCP = TaskServer(
    f"FastMCP {FASTMCP_VERSION} with Docket",
    str(FOLDER / "fastmcp-tasks" / "bin" / "python"),
    "tasks_fast.py",
    lambda url: {"FASTMCP_DOCKET_URL": url},
    lambda seconds: {"FASTMCP_DOCKET_REDELIVERY_TIMEOUT": f"PT{seconds:g}S"},
)
TASK_SERVERS = [DOVETAIL, FASTMCP]


def install_task_servers() -> None:
    """Install the peer, once."""
    install_python("fastmcp-tasks", f"fastmcp[tasks]=={FASTMCP_VERSION}")


@contextmanager
def serving(server: TaskServer, url: str | None, **variables: str) -> Iterator[Site]:
    """A replica that listens; without a URL, it has no backend."""
    port = free_port()
    command = [server.python, str(HERE / "servers" / server.script), str(port)]
    given = {"DOVETAIL_BACKEND": ""} if url is None else server.variables(url)
    with environment(**given, **variables), started(command) as process:
        wait_until_open(process, port, server.name)
        yield Site(process, port)


@contextmanager
def replicas(
    server: TaskServer, count: int, url: str | None, **variables: str
) -> Iterator[list[Site]]:
    """Several replicas."""
    with ExitStack() as stack:
        yield [stack.enter_context(serving(server, url, **variables)) for _ in range(count)]


# tasks


class TaskClient:
    """A connection that starts tasks and asks for them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connection = socket.create_connection(("127.0.0.1", site.port))

    def request(self, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request about this tool or task."""
        headers = {
            "MCP_Protocol_Version": "2026-07-28",
            "Mcp_Method": method,
            "Mcp_Name": name,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method}
        sent = self._site.post({**message, "params": {**params, "_meta": TASK_META}}, **headers)
        head, _, body = exchange(self._connection, sent).partition(b"\r\n\r\n")
        if not body.startswith(b"{"):  # an event stream, in chunks
            body = body[body.rindex(b"data: ") + 6 :].partition(b"\n")[0]
        answer = json.loads(body)
        if "result" not in answer:
            raise SystemExit(f"not an answer: {head!r} {body[:500]!r}")
        found: dict[str, Any] = answer["result"]
        return found

    def start(self, tool: str, **arguments: Any) -> str:
        """Start a task; returns its id."""
        found = self.request("tools/call", tool, {"name": tool, "arguments": arguments})
        return str(found["taskId"])

    def get(self, id: str) -> dict[str, Any]:
        """What is known about a task."""
        return self.request("tasks/get", id, {"taskId": id})

    def wait(self, id: str, *statuses: str) -> dict[str, Any]:
        """Ask for a task until it has one of these statuses."""
        pause, deadline = FIRST_POLL, time.perf_counter() + LONGEST_TASK
        while True:
            time.sleep(pause)
            if (found := self.get(id))["status"] in statuses:
                return found
            if time.perf_counter() > deadline or found["status"] in ("failed", "cancelled"):
                raise SystemExit(f"the task is {found}")
            pause = min(2 * pause, LONGEST_POLL)

    def close(self) -> None:
        self._connection.close()


def run_tasks(site: Site, redis: Redis, seconds: float, at_once: int = 16) -> Figure:
    """Start tasks, so many at once, and ask for each until it has completed: tasks per second, the
    processor time of the server and Redis for one (µs), and how long one takes (ms)."""
    until = time.perf_counter() + seconds
    took: list[float] = []

    def work() -> None:
        client = TaskClient(site)
        try:
            while (begun := time.perf_counter()) < until:
                number = len(took)
                found = client.wait(client.start("work", number=number), "completed")
                assert found["result"]["structuredContent"] == {"result": number}, found
                took.append(time.perf_counter() - begun)
        finally:
            client.close()

    def cpu() -> float:
        return (site.process.cpu() or 0.0) + (redis.process.cpu() or 0.0)

    before, begun = cpu(), time.perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        for done in [threads.submit(work) for _ in range(at_once)]:
            done.result()
    lasted, spent = time.perf_counter() - begun, cpu() - before
    took.sort()
    return Figure(
        len(took) / lasted,
        spent / len(took) * 1e6,
        1000 * took[len(took) // 2],
        1000 * took[int(len(took) * 0.99)],
    )


def takeover(server: TaskServer, redis: Redis, lease: float | None) -> Figure:
    """Seconds from the kill -9 of the replica that runs a task until another one runs it."""
    variables = {} if lease is None else server.takeover_after(lease)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.touch()
        with replicas(server, 2, redis.url, **variables) as sites:
            client = TaskClient(sites[0])
            client.start("hold", file=str(runs))
            client.close()
            while not (pids := runs.read_text(encoding="ascii").split()):
                time.sleep(0.01)
            time.sleep(1)  # the lease is renewed at least once, or about to be
            for site in sites:
                if site.process.popen.pid == int(pids[0]):
                    site.process.popen.kill()
            begun = time.perf_counter()
            while len(runs.read_text(encoding="ascii").split()) < 2:
                time.sleep(0.01)
            return Figure(time.perf_counter() - begun)


def question(redis: Redis, times: int) -> Figure:
    """Milliseconds from an answer at a replica that runs no tasks until the task, at another one,
    goes on."""
    took = []
    with (
        serving(DOVETAIL, redis.url) as runs,
        serving(DOVETAIL, redis.url, LIMITS='{"task_slots": 0}') as other,
    ):
        one, two = TaskClient(runs), TaskClient(other)
        for _ in range(times):
            id = one.start("ask")
            asked = two.wait(id, "input_required")["inputRequests"]
            answer = {"action": "accept", "content": {"value": True}}
            begun = time.time()
            answers = dict.fromkeys(asked, answer)
            two.request("tasks/update", id, {"taskId": id, "inputResponses": answers})
            result = one.wait(id, "completed")["result"]["structuredContent"]["result"]
            took.append(1000 * (result - begun))
        one.close()
        two.close()
    took.sort()
    return Figure(took[-1], p50=took[len(took) // 2])
