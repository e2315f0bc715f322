"""Resources, prompts, completions, subscriptions, log levels and roots, through operations."""

import json
from pathlib import Path

import pytest

from dovetail import Context, Server
from dovetail.inspector.refusal import Refused

from .inspecting import inspecting


@pytest.fixture
def server() -> Server:
    made = Server("full")

    @made.resource("notes://one")
    def one() -> str:
        return "first"

    @made.prompt
    def review(code: str) -> str:
        return f"Review {code}"

    @made.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    return made


async def test_a_resource_and_a_prompt_are_calls(server: Server) -> None:
    async with inspecting(server) as one:
        read = await one.finish((await one.do("read", uri="notes://one"))["call"])
        assert json.loads(read["result"])["contents"][0]["text"] == "first"
        started = await one.do("prompt", name="review", arguments={"code": "x"})
        assert "Review x" in (await one.finish(started["call"]))["result"]


async def test_a_change_of_a_subscribed_resource_is_an_event(server: Server) -> None:
    async with inspecting(server) as one:
        await one.do("subscribe", uri="notes://one")
        assert (await one.do("snapshot"))["subscriptions"] == ["notes://one"]
        server.notify_resource_updated("notes://one")
        await one.until("updated", uri="notes://one")
        await one.do("unsubscribe", uri="notes://one")
        assert (await one.do("snapshot"))["subscriptions"] == []
        with pytest.raises(Refused):
            await one.do("unsubscribe", uri="notes://one")


async def test_the_level_can_be_set(server: Server) -> None:
    async with inspecting(server) as one:
        await one.do("set_level", level="error")
        assert (await one.do("snapshot"))["level"] == "error"
        with pytest.raises(Refused):
            await one.do("set_level", level="loud")


async def test_roots_stay_in_the_folders_of_the_terminal(server: Server, tmp_path: Path) -> None:
    allowed, inside = tmp_path / "allowed", tmp_path / "allowed" / "inside"
    inside.mkdir(parents=True)
    (allowed / "link").symlink_to(tmp_path)
    async with inspecting(server, roots=(allowed,)) as one:
        await one.do("set_roots", roots=[str(inside)])
        assert inside.as_uri() in (await one.call("where"))["result"]
        for outside in (tmp_path, allowed / "link", allowed / ".." / "other", Path("/")):
            with pytest.raises(Refused, match="--root"):
                await one.do("set_roots", roots=[str(outside)])
        assert (await one.do("snapshot"))["roots"] == [str(inside)]
