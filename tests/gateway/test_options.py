"""The options of a gateway: those of a server, and its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.errors import ConfigError
from dovetail.gateway.gateway import Gateway
from dovetail.protocol.base import Icon
from tests.gateway.programs import entry, write_server


async def test_a_gateway_has_the_options_of_a_server(tmp_path: Path) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(gateway: Gateway) -> AsyncIterator[str]:
        events.append(f"{gateway.name} {gateway.upstreams.servers['one'].state}")
        yield "state"
        events.append(gateway.upstreams.servers["one"].state)

    async def record_state(call: Any, call_next: Any) -> Any:
        events.append(call.caller.state)
        return await call_next(call)

    gateway = Gateway(
        {"mcpServers": {"one": entry(write_server(tmp_path, "one"))}},
        name="all",
        description="All servers",
        website_url="https://example.com",
        icons=[Icon("https://example.com/icon.png")],
        experimental={"x": {"y": 1}},
        lifespan=lifespan,
        middleware=[record_state],
        store=":memory:",
    )
    async with Client(gateway) as client:
        info = client.server_info
        assert info is not None
        assert (info.description, info.website_url) == ("All servers", "https://example.com")
        assert info.icons is not None
        assert client.capabilities.experimental == {"x": {"y": 1}}
        await client.call_tool("one__pid")
    assert events[0] == "all configured"
    assert "state" in events
    assert events[-1] == "configured"
    with pytest.raises(ConfigError, match="page_size"):
        Gateway(["x"], page_size=0)


def test_the_options_that_a_gateway_lacks_are_about_what_a_server_registers() -> None:
    server, gateway = (set(signature(one.__init__).parameters) for one in (Server, Gateway))  # type: ignore[misc]
    assert server - gateway <= {"cache", "capabilities", "resume", "single_use", "tasks"}
    assert gateway - server == {"source", "tools", "policy", "store", "on_sample"}
