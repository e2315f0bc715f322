"""The nginx.conf of the guide "Scale out", in front of two replicas. It is used as it is, except
for its ports and the address of its DNS server."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dovetail import Client
from tests.cli.conftest import environment
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY
from .redis_server import RedisServer
from .test_deployment_files import FOLDER, SECONDS

NGINX = shutil.which("nginx")
pytestmark = [needs_redis, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]
ADDRESSES = ["127.0.0.2", "127.0.0.3"]
"""The replicas listen on the same port of different addresses, as containers do."""
ERAS = ["handshake", "stateless"]
PROGRAM = """
import asyncio
import os

from msgspec import Struct

from dovetail import Context, Server

server = Server("shop")


class Size(Struct):
    size: str


@server.resource("stock://tea")
def tea() -> str:
    return "7"


@server.tool
async def replica() -> int:
    return os.getpid()


@server.tool
async def sell() -> None:
    server.notify_resource_updated("stock://tea")


@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Which size?", Size, key="size")).data.size


@server.tool
async def measure(text: str) -> int:
    return len(text)


@server.tool
async def wait(ctx: Context, file: str) -> int:
    ctx.progress(1, 2, "waiting")
    while not os.path.exists(file):
        await asyncio.sleep(0.01)
    return os.getpid()
"""


class Dns(asyncio.DatagramProtocol):
    """A DNS server that knows one name, `web`."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        question = data[12:]
        is_known = question[:9] == b"\3web\0\0\1\0\1"  # an A record
        found = ADDRESSES if is_known else []
        head = data[:2] + b"\x81\x80\0\1" + len(found).to_bytes(2) + bytes(4)
        answers = [
            b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + bytes(map(int, one.split("."))) for one in found
        ]
        self._transport.sendto(head + question + b"".join(answers), address)


class Site:
    """Two replicas behind nginx."""

    def __init__(self, url: str, replicas: list[asyncio.subprocess.Process]) -> None:
        self.url, self.replicas = url, replicas


@asynccontextmanager
async def process(*words: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    found = await asyncio.create_subprocess_exec(*words, stdin=subprocess.DEVNULL, **options)
    try:
        yield found
    finally:
        if found.returncode is None:
            found.terminate()
            await asyncio.wait_for(found.wait(), SECONDS)


async def until_it_answers(url: str) -> None:
    deadline = time.monotonic() + SECONDS
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


def configure(folder: Path, dns: int, web: int, port: int) -> Path:
    """Write the file, in the place that it has in the image of nginx."""
    text = (FOLDER / "nginx.conf").read_text()
    for old, new in (
        ("resolver 127.0.0.11 ", f"resolver 127.0.0.1:{dns} "),
        ("$web:8000", f"$web:{web}"),
        ("listen 80;", f"listen 127.0.0.1:{port};"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "default.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    main = folder / "main.conf"
    main.write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        "events {}\n"
        f"http {{\n    access_log off;\n{paths}    include {folder}/default.conf;\n}}\n"
    )
    return main


@asynccontextmanager
async def replicated(redis: RedisServer, folder: Path) -> AsyncIterator[Site]:
    (folder / "server.py").write_text(PROGRAM)
    web, port = free_port(), free_port()
    variables = environment(DOVETAIL_BACKEND=redis.url, DOVETAIL_KEYS=KEY)
    async with asyncio.timeout(4 * SECONDS), AsyncExitStack() as stack:
        loop = asyncio.get_running_loop()
        dns, _ = await loop.create_datagram_endpoint(Dns, local_addr=("127.0.0.1", 0))
        stack.callback(dns.close)
        replicas = []
        for address in ADDRESSES:
            words = [sys.executable, "-m", "dovetail", "run", "server.py", "--http", "--metrics"]
            words += ["/metrics", "--host", address, "--port", str(web)]
            words += ["--public-url", "http://localhost:8080/mcp", "--trusted-proxies", "127.0.0.1"]
            replica = process(*words, cwd=folder, env=variables)
            replicas.append(await stack.enter_async_context(replica))
        for address in ADDRESSES:
            await until_it_answers(f"http://{address}:{web}/health")
        main = configure(folder, dns.get_extra_info("sockname")[1], web, port)
        assert NGINX is not None
        await stack.enter_async_context(
            process(NGINX, "-p", str(folder), "-c", str(main), env=dict(os.environ))
        )
        await until_it_answers(f"http://127.0.0.1:{port}/health")
        yield Site(f"http://127.0.0.1:{port}/mcp", replicas)


async def test_both_eras_pass_through_nginx(shared_redis: RedisServer, tmp_path: Path) -> None:
    async with replicated(shared_redis, tmp_path) as site:
        pids = {one.pid for one in site.replicas}
        for era in ERAS:
            options: dict[str, Any] = {"revision": era, "on_elicit": lambda _: {"size": "large"}}
            async with Client(site.url, **options) as client:
                assert {(await client.call_tool("replica")).data for _ in range(8)} == pids
                answers = [client.call_tool("ask") for _ in range(8)]
                assert {one.data for one in await asyncio.gather(*answers)} == {"large"}
                long = await client.call_tool("measure", {"text": "x" * 10_000_000})
                assert long.data == 10_000_000
                updates: asyncio.Queue[str] = asyncio.Queue()
                await client.subscribe("stock://tea", updates.put_nowait)
                while updates.empty():  # the stream may not be open yet
                    await client.call_tool("sell")
                    await asyncio.sleep(0.05)
                assert await updates.get() == "stock://tea"
                # What a call reports arrives while it runs.
                gate, reports = tmp_path / era, asyncio.Queue[Any]()
                call = asyncio.create_task(
                    client.call_tool("wait", {"file": str(gate)}, on_progress=reports.put_nowait)
                )
                await reports.get()
                assert not call.done()
                gate.touch()
                assert (await call).data in pids


async def test_a_replica_that_is_stopped_costs_no_call(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    async with replicated(shared_redis, tmp_path) as site:
        for era in ERAS:
            async with Client(site.url, revision=era) as client:
                await client.call_tool("replica")
                if era == ERAS[0]:
                    site.replicas[0].terminate()
                    await site.replicas[0].wait()
                for _ in range(8):
                    assert (await client.call_tool("replica")).data == site.replicas[1].pid


async def test_nobody_reads_the_metrics_through_nginx(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    async with replicated(shared_redis, tmp_path) as site:
        base = site.url.removesuffix("/mcp")
        async with aiohttp.ClientSession() as http:
            for path in ("/metrics", "//metrics", "/%6Detrics", "/./metrics", "/metrics?x=1"):
                async with http.get(aiohttp.client.URL(base + path, encoded=True)) as response:
                    assert (path, response.status) == (path, 404)
            async with http.get(f"{base}/health") as response:
                assert response.status == 200
