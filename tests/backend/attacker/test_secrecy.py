"""Somebody who reads everything in Redis, and every command that it runs, learns nothing that a
user said or was told."""

import asyncio
import json
from pathlib import Path

from dovetail import Client
from tests.auth.provider_kit import HASHES
from tests.backend.redis_server import RedisServer
from tests.ports import free_port
from tests.replicas.cluster import running
from tests.replicas.round_robin import round_robin
from tests.replicas.test_provider import RemoteAgent
from tests.system import needs_redis

from .redis_cli import Attacker

pytestmark = needs_redis

MARKER = "hush-7c41"


async def test_a_reader_of_redis_learns_nothing_about_calls_streams_and_tasks(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    attacker, gate = Attacker(own_redis), tmp_path / f"{MARKER} gate"
    with (
        attacker.watching(tmp_path / "commands") as seen,
        running(own_redis, tmp_path / "cluster", 2, 1, replica_slots=0) as cluster,
    ):
        answers = {"on_elicit": lambda _: {"size": MARKER}, "on_sample": lambda _: MARKER}
        async with round_robin(cluster.ports) as proxy:
            for revision in ("2025-11-25", "2026-07-28"):
                async with Client(proxy.url, revision=revision, **answers) as client:
                    await client.subscribe(f"stock://{MARKER}", lambda _: None)
                    await client.call_tool("touch", {"uri": f"stock://{MARKER}"})
                    said = await client.call_tool("ask", {"tag": MARKER})
                    assert MARKER in said.text
                    gate.touch()
                    arguments = {"tag": MARKER, "gate": str(gate)}
                    handle = await client.start_tool("order", arguments)
                    assert MARKER in (await handle.result()).text
        async with cluster.sites() as (one, other):
            session = await one.greet()
            stream = await session.call("talk", gate=str(tmp_path / MARKER), before=5)
            last = [(await stream.next()).id for _ in range(2)][-1]
            stream.cut()  # the rest waits in the log
            while not attacker.run("KEYS", "*events*"):
                await asyncio.sleep(0.05)
            session.site = other
            await (await session.get(last)).next_message()
    text = seen.read_bytes()
    assert text.count(b"PUBLISH") > 10 and text.count(b"XREADGROUP") > 1
    for secret in (MARKER, "Which size?", "Praise it", "before 1"):
        assert secret.encode() not in text, secret


async def test_a_reader_of_redis_learns_no_token_name_or_password(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    port, attacker = free_port(), Attacker(own_redis)
    settings = {
        "env": {"USERS": json.dumps(HASHES)},
        "options": {"public_url": f"http://127.0.0.1:{port}/mcp"},
    }
    with (
        attacker.watching(tmp_path / "commands") as seen,
        running(own_redis, tmp_path / "cluster", 2, **settings) as cluster,
    ):
        async with round_robin(cluster.ports, port) as proxy:
            agent = RemoteAgent(proxy)
            client = await agent.register(client_name=MARKER)
            first = await agent.tokens(client["client_id"])
            await agent.refresh(client["client_id"], first["refresh_token"])
    text = seen.read_bytes()
    assert text.count(b"provider:") > 5
    secrets = [MARKER, first["access_token"], first["refresh_token"], *agent.cookies.values()]
    for secret in [*secrets, '"ada"', "lovelace", client["client_id"]]:
        assert secret.encode() not in text, secret
