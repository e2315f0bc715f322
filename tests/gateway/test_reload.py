"""Reload of the configuration: what did not change keeps running."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Limits, ProtocolError, ToolError
from dovetail.errors import ConfigError
from dovetail.gateway.gateway import Gateway
from tests.gateway.programs import PATIENT, entry, write_server


class ConfigFile:
    """A configuration file that a test changes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "mcp.json"
        self.servers: dict[str, Any] = {}

    def write(self, *names: str, options: Any = None, **settings: Any) -> None:
        servers = {
            name: entry(write_server(self.folder, name), **settings.get(name, {})) for name in names
        }
        text = json.dumps({"mcpServers": servers, "dovetail": options or {}})
        self.path.write_text(text, "utf-8")


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path)


async def pid(client: Client, server: str) -> str:
    return (await client.call_tool(f"{server}__pid")).text


async def names(client: Client) -> set[str]:
    return {tool.name.partition("__")[0] for tool in await client.list_tools()}


async def test_only_what_changed_is_restarted(file: ConfigFile) -> None:
    file.write("same", "changed", "removed")
    gateway = Gateway(file.path, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        before = {name: await pid(client, name) for name in ("same", "changed", "removed")}
        old = dict(gateway.upstreams.servers)
        file.write("same", "changed", "new", changed={"timeout": 30})
        await gateway.reload()
        await gateway.upstreams.servers["changed"].start()
        await gateway.upstreams.servers["new"].start()
        assert await names(client) == {"same", "changed", "new"}
        assert await pid(client, "same") == before["same"]
        assert await pid(client, "changed") != before["changed"]
        assert gateway.upstreams.servers["same"] is old["same"]
        assert old["removed"].connections == 0


async def test_a_call_waits_for_its_server_longer_than_a_list(file: ConfigFile) -> None:
    file.write("one", "two")
    gateway = Gateway(file.path, limits=Limits(catalog_wait=0))
    async with gateway.lifespan(), Client(gateway) as client:
        assert await pid(client, "two")
        assert await client.get_prompt("one__hello", {"who": "Ada"})


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_callers_are_notified_of_a_server_that_was_added_or_removed(
    file: ConfigFile, revision: str
) -> None:
    file.write("one", "two")
    gateway = Gateway(file.path, limits=PATIENT)
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with gateway.lifespan(), Client(gateway, revision=revision) as client:
        await client.on_change("tools", changes.put_nowait)
        while await names(client) != {"one", "two"}:  # they may be slower than `catalog_wait`
            await changes.get()
        file.write("one")
        await gateway.reload()
        while await names(client) != {"one"}:
            await changes.get()
        file.write("one", "three")
        await gateway.reload()
        while await names(client) != {"one", "three"}:
            await changes.get()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"mcpServers": {"a": {"command": "x", "dovetail": {"prefixx": "b"}}}}',
        '{"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "x"}}}',
    ],
    ids=["syntax", "unknown key", "equal prefixes"],
)
async def test_a_file_that_is_not_valid_changes_nothing(file: ConfigFile, text: str) -> None:
    file.write("one")
    gateway = Gateway(file.path, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        before = await pid(client, "one")
        file.path.write_text(text, "utf-8")
        with pytest.raises(ConfigError):
            await gateway.reload()
        assert await names(client) == {"one"}
        assert await pid(client, "one") == before


async def test_a_policy_that_is_not_valid_changes_nothing(file: ConfigFile) -> None:
    file.write("one")
    policy = file.folder / "policy.toml"
    policy.write_text('[[rule]]\neffect = "allow"\nname = "pid"\n', "utf-8")
    gateway = Gateway(file.path, policy=policy, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        await gateway.upstreams.servers["one"].start()
        assert [tool.name for tool in await client.list_tools()] == ["one__pid"]
        file.write("one", "two")
        policy.write_text('[[rule]]\neffect = "perhaps"\n', "utf-8")
        with pytest.raises(ConfigError):
            await gateway.reload()
        assert list(gateway.upstreams.servers) == ["one"]
        policy.write_text('[[rule]]\neffect = "allow"\nname = "echo"\n', "utf-8")
        await gateway.reload()
        await gateway.upstreams.servers["two"].start()
        assert [tool.name for tool in await client.list_tools()] == ["one__echo", "two__echo"]


async def test_the_order_of_the_file_holds_after_a_reload(file: ConfigFile) -> None:
    file.write("b")
    gateway = Gateway(file.path, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway):
        file.write("a", "b")
        await gateway.reload()
        assert list(gateway.upstreams.servers) == ["a", "b"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_subscription_goes_on_at_a_server_that_was_restarted(
    file: ConfigFile, revision: str
) -> None:
    file.write("one")
    gateway = Gateway(file.path, limits=PATIENT)
    updates: asyncio.Queue[str] = asyncio.Queue()
    async with gateway.lifespan(), Client(gateway, revision=revision) as client:
        await gateway.upstreams.servers["one"].start()
        async with await client.subscribe("note://one", updates.put_nowait):
            file.write("one", one={"timeout": 30})
            await gateway.reload()
            await gateway.upstreams.servers["one"].start()
            await gateway.subscriptions.wait("note://one")
            await client.call_tool("one__grow", {"name": "more"})
            assert await updates.get() == "note://one"


async def test_a_gateway_without_a_file_has_nothing_to_reload(tmp_path: Path) -> None:
    gateway = Gateway(write_server(tmp_path, "one"), limits=PATIENT)
    with pytest.raises(ConfigError, match="nothing to reload"):
        await gateway.reload()


async def test_the_servers_run_until_the_last_client_in_this_process_is_closed(
    file: ConfigFile,
) -> None:
    file.write("one")
    gateway = Gateway(file.path, limits=PATIENT)
    async with Client(gateway) as first:
        async with Client(gateway) as second:
            before = await pid(second, "one")
        assert await pid(first, "one") == before
    async with Client(gateway) as third:
        assert await pid(third, "one")


async def test_search_can_be_switched_on_and_off(file: ConfigFile) -> None:
    file.write("one")
    gateway = Gateway(file.path, limits=PATIENT)
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with gateway.lifespan(), Client(gateway) as client:
        await client.on_change("tools", changes.put_nowait)

        async def reload(**options: Any) -> list[str]:
            file.write("one", options=options)
            await gateway.reload()
            await changes.get()
            return [tool.name for tool in await client.list_tools()]

        before = await pid(client, "one")
        assert await reload(search=True) == ["find_tools", "call_tool"]
        assert await reload(search=True, always=["*__echo"]) == [
            "find_tools",
            "call_tool",
            "one__echo",
        ]
        called = await client.call_tool("call_tool", {"name": "one__pid"})
        assert called.text == before  # it was not started again
        assert "one__pid" in await reload()
        assert gateway.upstreams.names.left_out() == []


async def test_the_names_of_the_search_are_reserved_after_a_reload(file: ConfigFile) -> None:
    more = "server.add_tool(pid, name='find_tools')"
    one = entry(write_server(file.folder, "one", more=more), prefix="")

    def write(search: bool) -> None:
        source = {"mcpServers": {"one": one}, "dovetail": {"search": search}}
        file.path.write_text(json.dumps(source), "utf-8")

    write(False)
    gateway = Gateway(file.path, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway):
        await gateway.upstreams.servers["one"].start()
        assert gateway.upstreams.names.left_out() == []
        for search in (True, False):
            write(search)
            await gateway.reload()
            assert bool(gateway.upstreams.names.left_out()) is search


async def test_the_defaults_of_the_file_take_effect(file: ConfigFile) -> None:
    file.write("one")
    gateway = Gateway(file.path, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        file.write("one", options={"defaults": {"tools": {"allow": ["echo"]}}})
        await gateway.reload()
        await gateway.upstreams.servers["one"].start()
        assert [tool.name for tool in await client.list_tools()] == ["one__echo"]


@pytest.mark.parametrize("is_changed", [True, False])
async def test_a_call_that_is_under_way_ends_before_its_server_is_stopped(
    file: ConfigFile, is_changed: bool
) -> None:
    file.write("one", "two")
    gateway = Gateway(file.path, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        await pid(client, "two")
        old = gateway.upstreams.servers["two"]
        seconds = 3 * gateway.limits.shutdown  # longer than a server that is stopped has
        waiting = asyncio.ensure_future(client.call_tool("two__slow", {"seconds": seconds}))
        while not old.calls:
            await asyncio.sleep(0.01)
        if is_changed:
            file.write("one", "two", two={"timeout": 30})
        else:
            file.write("one")
        await gateway.reload()
        assert not waiting.done()
        assert await names(client) >= {"one"}
        assert (await waiting).text == "done"
        while old.connections:
            await asyncio.sleep(0.01)


async def test_a_call_that_does_not_end_keeps_its_server_only_for_some_time(
    file: ConfigFile,
) -> None:
    command = write_server(file.folder, "two", revisions=["2025-11-25"])
    two = entry(command, timeout=4)
    file.path.write_text(json.dumps({"mcpServers": {"two": two}}), "utf-8")
    gateway = Gateway(file.path, limits=PATIENT)

    async def never(request: Any) -> Any:
        file.write("one")
        await gateway.reload()
        await asyncio.Event().wait()

    options: dict[str, Any] = {"revision": "2025-11-25", "on_elicit": never}
    async with gateway.lifespan(), Client(gateway, **options) as client:
        await gateway.upstreams.servers["two"].start()
        old = gateway.upstreams.servers["two"]
        with pytest.raises((ProtocolError, ToolError)):  # of the gateway, or of the server
            await client.call_tool("two__ask")
        while old.connections:
            await asyncio.sleep(0.01)


async def test_a_gateway_that_is_closed_does_not_wait_for_servers_that_were_removed(
    file: ConfigFile,
) -> None:
    file.write("one", "two")
    gateway = Gateway(file.path, limits=PATIENT)
    async with gateway.lifespan(), Client(gateway) as client:
        await pid(client, "two")
        old = gateway.upstreams.servers["two"]
        waiting = asyncio.ensure_future(client.call_tool("two__slow", {"seconds": 60}))
        while not old.calls:
            await asyncio.sleep(0.01)
        file.write("one")
        await gateway.reload()
        waiting.cancel()
    assert old.connections == 0
