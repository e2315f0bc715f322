"""Processes that share tasks wake each other over the bus. No process here reads the store
periodically."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Client, Context, Server
from dovetail.extensions.tasks import SqliteStore, signals
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import KEY, MakeBackend

pytestmark = needs_redis
FORMS = CORE, EXTENDED = ["2025-11-25", "2026-07-28"]


class Sure(Struct):
    sure: bool


@asynccontextmanager
async def replica(make_backend: MakeBackend, path: Path, form: str) -> AsyncIterator[Client]:
    server = Server("shop", backend=make_backend(), tasks=SqliteStore(path))

    @server.tool(task="optional", resumable=True)
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", Sure, key="sure")).action)

    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        server.run_async("http", port=free_port(), keys=[KEY], ready=started.set_result)
    )
    try:
        url = await started
        async with Client(url, revision=form, on_elicit=lambda request: None) as client:
            yield client
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize("form", FORMS)
async def test_what_happens_in_another_process_is_noticed_at_once(
    make_backend: MakeBackend, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POLL_SECONDS", "LOST_SIGNAL_SECONDS"):
        monkeypatch.setattr(signals, name, 60.0)
    path = tmp_path / "tasks.db"
    async with replica(make_backend, path, form) as one, replica(make_backend, path, form) as other:
        task = await one.start_tool("ask", manual=True)
        get: dict[str, Any] = {"taskId": task.id}
        async with asyncio.timeout(30):
            while (await other.request("tasks/get", get)).status != "input_required":
                await asyncio.sleep(0.01)
            assert (await other.task(task.id).result()).text == "decline"


async def test_a_lost_signal_delays_an_answer_but_does_not_lose_it(
    make_backend: MakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "LOST_SIGNAL_SECONDS", 0.1)
    monkeypatch.setattr(signals.TaskSignals, "send", lambda self, topic, id: None)
    path = tmp_path / "tasks.db"
    async with replica(make_backend, path, CORE) as one, replica(make_backend, path, CORE) as other:
        task = await one.start_tool("ask", manual=True)
        assert (await other.task(task.id).result()).text == "decline"
