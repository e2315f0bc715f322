"""The files of the guide "Scale out": their commands run, as processes instead of containers, and
are one server."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from ruamel.yaml import YAML

from dovetail import Client
from tests.cli.conftest import dovetail, environment
from tests.ports import free_port
from tests.replicas.round_robin import round_robin
from tests.system import needs_redis

from .conftest import KEY
from .redis_server import RedisServer, redis_server

pytestmark = needs_redis
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "scale-out"
GUIDE = ROOT / "docs" / "guides" / "scale-out.md"
SECONDS = 60


class Container(NamedTuple):
    """What a file says about the containers of one kind."""

    words: list[str]
    variables: dict[str, str]
    replicas: int
    health_ports: set[int]
    """The ports that are checked."""


def read_compose() -> dict[str, Container]:
    document = YAML(typ="safe").load(FOLDER / "compose.yaml")
    return {
        name: Container(
            shlex.split(service["command"]),
            service.get("environment", {}),
            service.get("deploy", {}).get("replicas", 1),
            set(),
        )
        for name, service in document["services"].items()
        if "command" in service
    }


def read_kubernetes() -> dict[str, Container]:
    containers = {}
    for document in YAML(typ="safe").load_all(FOLDER / "kubernetes.yaml"):
        if document["kind"] not in ("Deployment", "StatefulSet"):
            continue
        [container] = document["spec"]["template"]["spec"]["containers"]
        variables = container.get("env", [])
        probes = [container[name] for name in container if name.endswith("Probe")]
        containers[document["metadata"]["name"]] = Container(
            [*container["command"], *container.get("args", [])],
            {one["name"]: one.get("value") or _secret(one) for one in variables},
            document["spec"]["replicas"],
            {probe["httpGet"]["port"] for probe in probes},
        )
    return containers


def _secret(variable: dict[str, Any]) -> str:
    """Compose has the variable itself, Kubernetes the name of a secret."""
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "shop", "key": "keys"}
    return "${DOVETAIL_KEYS}"


FILES = {"compose": read_compose, "kubernetes": read_kubernetes}


class Deployment:
    """The processes of a file. `url` is the address of the load balancer."""

    def __init__(self, redis: str) -> None:
        self._redis = redis
        self.processes: dict[str, list[asyncio.subprocess.Process]] = {}
        self._running: list[asyncio.subprocess.Process] = []
        self.ports: dict[str, list[int]] = {}
        self.url = ""

    @asynccontextmanager
    async def run(self, containers: dict[str, Container]) -> AsyncIterator["Deployment"]:
        async with AsyncExitStack() as stack:
            for name, container in containers.items():
                for _ in range(container.replicas):
                    await stack.enter_async_context(self._process(name, container))
            for name, ports in self.ports.items():
                for port, process in zip(ports, self.processes[name], strict=True):
                    await self._wait_for(port, process)
            balancer = await stack.enter_async_context(round_robin(self.ports["web"]))
            self.url = balancer.url
            yield self

    def _stop(self) -> None:
        """Tell all processes to stop, once: the second signal means at once."""
        while self._running:
            process = self._running.pop()
            if process.returncode is None:
                process.terminate()

    @asynccontextmanager
    async def _process(self, name: str, container: Container) -> AsyncIterator[None]:
        """Start a process as its container would be started, at another address."""
        program, *words = container.words
        assert program == "dovetail"
        if "--host" in words:
            assert words[words.index("--host") + 1] == "0.0.0.0"
            words[words.index("--host") + 1] = "127.0.0.1"
        port = free_port()
        if "--health" in words:
            host, _, health = words[words.index("--health") + 1].partition(":")
            assert host == "0.0.0.0"  # probes come from another machine
            assert container.health_ports <= {int(health)}
            words[words.index("--health") + 1] = f"127.0.0.1:{port}"
        else:
            assert container.health_ports <= {8000}  # the default
            words += ["--port", str(port)]
        assert container.variables["DOVETAIL_BACKEND"] == "redis://redis:6379/0"
        assert container.variables["DOVETAIL_KEYS"].startswith("${DOVETAIL_KEYS")
        assert "server.py" in words
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dovetail", *words),
            cwd=FOLDER,
            env=environment(DOVETAIL_BACKEND=self._redis, DOVETAIL_KEYS=KEY),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._running.append(process)
        self.processes.setdefault(name, []).append(process)
        self.ports.setdefault(name, []).append(port)
        try:
            yield
        finally:
            self._stop()
            _, stderr = await asyncio.wait_for(process.communicate(), SECONDS)
            assert process.returncode == 0, stderr.decode()
            assert b"refused" not in stderr, stderr.decode()

    async def _wait_for(self, port: int, process: asyncio.subprocess.Process) -> None:
        async with asyncio.timeout(SECONDS), aiohttp.ClientSession() as http:
            while process.returncode is None:
                try:
                    async with http.get(f"http://127.0.0.1:{port}/health") as response:
                        assert (await response.json())["backend"] == "connected"
                        return
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)

    def pids(self, name: str) -> set[int]:
        return {process.pid for process in self.processes[name]}


@pytest.fixture(params=FILES)
def containers(request: pytest.FixtureRequest) -> dict[str, Container]:
    return FILES[request.param]()


@pytest.fixture
def redis(containers: dict[str, Container], tmp_path: Path) -> Iterator[RedisServer]:
    """Redis, with the options in the file."""
    program, *options = containers.pop("redis").words
    with redis_server(tmp_path / "redis", *options, program=program) as server:
        yield server


def _pid(text: str) -> int:
    return int(text.rpartition(":")[2])


async def test_the_commands_of_the_file_are_one_server(
    containers: dict[str, Container], redis: RedisServer
) -> None:
    assert {name: one.replicas for name, one in containers.items()} == {"web": 3, "worker": 2}
    async with asyncio.timeout(4 * SECONDS), Deployment(redis.url).run(containers) as shop:
        for revision in ("handshake", "stateless"):
            async with Client(shop.url, revision=revision) as client:
                assert (await client.call_tool("stock", {"item": "tea"})).data == 7
                answers = [(await client.call_tool("replica")).text for _ in range(3)]
                assert {_pid(answer) for answer in answers} == shop.pids("web")
        done = await asyncio.to_thread(dovetail, "call", shop.url, "restock", "item=tea", "boxes=1")
        assert done.code == 0, done.err
        assert done.out.startswith("ordered 1 boxes of tea at ")
        assert _pid(done.out) in shop.pids("worker")
        while await pids_in_metrics(shop.url) != shop.pids("web") | shop.pids("worker"):
            await asyncio.sleep(0.05)  # a process may answer too late


async def pids_in_metrics(url: str) -> set[int]:
    """The processes that a page of metrics shows, if Prometheus asks for it in the network of the
    file."""
    async with aiohttp.ClientSession(headers={"Host": "web:8000"}) as http:
        async with http.get(url.replace("/mcp", "/metrics")) as response:
            assert response.status == 200
            page = await response.text()
    workers = re.findall(r'^mcp_backend_connected{worker="(.*)"} 1$', page, re.MULTILINE)
    return {_pid(worker) for worker in workers}


async def test_the_rights_of_the_guide_are_enough(tmp_path: Path) -> None:
    containers = {name: one._replace(replicas=1) for name, one in read_compose().items()}
    del containers["redis"]
    options = ["--aclfile", str(FOLDER / "users.acl"), "--appendonly", "yes"]
    with redis_with_users(tmp_path / "redis", *options) as redis:
        url = redis.url.replace("//", "//shop:a-long-random-password@")
        done = await asyncio.to_thread(
            dovetail, *("backend", "check", url, "--name", "shop"), DOVETAIL_KEYS=KEY
        )
        assert (done.code, done.err) == (0, "")
        assert "warning" not in done.out
        async with Deployment(url).run(containers) as shop:
            done = await asyncio.to_thread(
                dovetail, "call", shop.url, "restock", "item=tea", "boxes=1"
            )
            assert done.code == 0, done.err


class UserRedis(RedisServer):
    """Redis that only the user of the file may use."""

    def run(self, *command: Any) -> Any:
        import redis

        with redis.Redis(
            port=self.port, username="shop", password="a-long-random-password", protocol=2
        ) as client:
            return client.execute_command(*command)


@contextmanager
def redis_with_users(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = UserRedis(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def test_the_guide_and_the_file_grant_the_same_rights() -> None:
    command = re.search(r"^\$ redis-cli (ACL SETUSER .*\\\n.*)$", GUIDE.read_text(), re.MULTILINE)
    assert command is not None
    granted = shlex.split(command[1].replace("\\\n", ""))
    [line] = [one for one in (FOLDER / "users.acl").read_text().splitlines() if "shop" in one]
    assert line.split() == ["user", *granted[2:]]


def test_both_files_start_the_same_programs() -> None:
    compose, kubernetes = read_compose(), read_kubernetes()
    assert compose.keys() == kubernetes.keys()
    for name, container in compose.items():
        options = [
            {word for word in one.words if word.startswith("--")}
            for one in (container, kubernetes[name])
        ]
        assert options[0] == options[1]
        assert container.replicas == kubernetes[name].replicas


def test_every_file_of_the_folder_is_in_the_guide() -> None:
    guide = GUIDE.read_text()
    names = [one for one in os.listdir(FOLDER) if not one.startswith("__")]
    assert [one for one in names if one not in guide] == []
