"""Resources, templates and subscriptions."""

import asyncio

import pytest

from dovetail import NotFound, ProtocolError, Server, ToolError
from dovetail.auth import ApiKeys
from dovetail.ports import Principal
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.testing import bare, pair
from tests.behaviour import everything
from tests.behaviour.conftest import Talk

META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}


@pytest.mark.requirement("resources-list")
async def test_resources_and_templates_are_listed(talk: Talk) -> None:
    async with talk() as client:
        resources = {resource.uri: resource for resource in await client.list_resources()}
        templates = await client.list_resource_templates()
    text = resources["doc://text"]
    assert (text.name, text.mime_type, text.size, text.description) == (
        "text",
        "text/plain",
        5,
        "Some text.",
    )
    assert text.annotations is not None
    assert text.annotations["x"] == 1
    assert [template.uri_template for template in templates] == ["item://{number}/name"]


@pytest.mark.requirement("resources-binary")
@pytest.mark.requirement("resources-read")
async def test_a_resource_is_read(talk: Talk) -> None:
    async with talk() as client:
        (text,) = await client.read_resource("doc://text")
        (data,) = await client.read_resource("doc://bytes")
        (json,) = await client.read_resource("doc://json")
        (item,) = await client.read_resource("item://7/name")
    assert (text.uri, text.mime_type, text.text) == ("doc://text", "text/plain", "hello")
    assert (data.blob, data.data) == ("AP8=", b"\x00\xff")
    assert (json.mime_type, json.text) == ("application/json", '{"answer":42}')
    assert item.text == "item 7"


@pytest.mark.requirement("resources-not-found-empty", "resources-uris")
@pytest.mark.requirement("resources-not-found")
@pytest.mark.parametrize(
    "uri",
    ["doc://nothing", "item://x/name", "item://101/name", "item://1%2F2/name", "item://../name"],
)
async def test_what_does_not_exist_is_not_found(in_memory: Talk, uri: str) -> None:
    async with in_memory() as client:
        with pytest.raises(NotFound) as caught:
            await client.read_resource(uri)
        assert caught.value.code == (-32602 if in_memory.stateless else -32002)


@pytest.mark.requirement("resources-internal-error")
async def test_a_resource_that_breaks_is_an_internal_error(in_memory: Talk) -> None:
    async with in_memory() as client:
        with pytest.raises(ProtocolError, match="broken inside") as caught:
            await client.read_resource("doc://broken")
        assert caught.value.code == -32603


async def test_a_tool_reads_the_resources_of_its_server(in_memory: Talk) -> None:
    async with in_memory() as client:
        assert (await client.call_tool("read_own", {"uri": "item://3/name"})).text == "item 3"
        with pytest.raises((NotFound, ProtocolError, ToolError)):
            await client.call_tool("read_own", {"uri": "doc://nothing"})


@pytest.mark.requirement("resources-subscribe")
async def test_a_subscription_to_what_does_not_exist_is_refused(talk: Talk) -> None:
    async with talk() as client:
        for uri in ("doc://nothing", "doc://tex", "item://1/other", "elsewhere:a"):
            with pytest.raises(NotFound) as caught:
                await client.subscribe(uri, print)
            assert caught.value.data == {"uri": uri}
            if not talk.stateless:
                assert caught.value.code == -32002
        # a resource, a match of a template, the parent of both, and of a match
        for uri in ("doc://text", "item://1/name", "doc://", "doc:", "item://1", "item://"):
            await (await client.subscribe(uri, print)).close()


async def test_the_acknowledgement_names_the_resources_that_exist() -> None:
    wanted = ["doc://text", "doc://nothing", "item://1/name"]
    for uris, kept in ((wanted, [wanted[0], wanted[2]]), (wanted[1:2], None)):
        async with bare(everything.build()) as peer:
            notifications = {"resourceSubscriptions": uris, "toolsListChanged": True}
            params = {"notifications": notifications, "_meta": META}
            request = {"id": 1, "method": "subscriptions/listen", "params": params}
            peer.send({"jsonrpc": "2.0", **request})
            granted = (await peer.receive())["params"]["notifications"]
            assert granted.get("resourceSubscriptions") == kept
            assert granted["toolsListChanged"]


async def test_a_caller_cannot_subscribe_to_what_it_may_not_read() -> None:
    server = Server("s", auth=ApiKeys({"k" * 32: "ann"}))
    server.resource("open://a")(lambda: "a")
    server.resource("secret://a/b", scopes="read")(lambda: "b")
    server.resource("hidden://{name}/x", scopes="read")(lambda name: name)
    for user, allowed in ((Principal("ann"), False), (Principal("bob", scopes=("read",)), True)):
        async with pair(server, user=user) as client:
            await client.subscribe("open://a", print)
            for uri in ("secret://a/b", "secret://a", "hidden://a/x", "hidden://a"):
                if allowed:
                    await client.subscribe(uri, print)
                else:
                    with pytest.raises(NotFound):
                        await client.subscribe(uri, print)


@pytest.mark.requirement("resources-subscribe")
async def test_a_subscriber_hears_of_updates_and_only_of_those(talk: Talk) -> None:
    async with talk() as client:
        updates: asyncio.Queue[str] = asyncio.Queue()
        handle = await client.subscribe("doc://text", updates.put_nowait)
        await client.call_tool("touch", {"uri": "doc://other"})
        await client.call_tool("touch", {"uri": "doc://text"})
        assert await updates.get() == "doc://text"
        await client.call_tool("touch", {"uri": "doc://text/part"})
        assert await updates.get() == "doc://text/part"
        await handle.close()
        await client.ping()
        await client.call_tool("touch", {"uri": "doc://text"})
        await client.ping()
        assert updates.empty()
