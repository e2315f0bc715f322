"""Resources, prompts, completions, subscriptions, log levels and roots, through operations."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dovetail import Context, Server
from dovetail.errors import ConnectionClosed, DovetailError, NotFound
from dovetail.inspector.events import EventBuffer
from dovetail.inspector.refusal import Refused
from dovetail.inspector.subscriptions import ResourceSubscriptions
from dovetail.revisions import OFFICIAL

from .inspecting import inspecting

REVISIONS = [revision.name for revision in OFFICIAL]
WITHOUT_CONTEXT = ("2024-11-05", "2025-03-26")


@pytest.fixture
def server() -> Server:
    made = Server("full")

    @made.resource("notes://one")
    def one() -> str:
        return "first"

    @made.resource("notes://{year}/{month}")
    def month(year: str, month: str) -> str:
        return f"{month} of {year}"

    month.complete("year", ["2024", "2025", "2026"])

    @made.prompt
    def review(code: str, language: str = "") -> str:
        return f"Review {code}"

    @review.complete("code")
    def codes(value: str, chosen: dict[str, str]) -> list[str]:
        return [f"{value}.{chosen.get('language', 'any')}"]

    @made.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    return made


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_resource_and_a_prompt_are_calls(server: Server, revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        read = await one.finish((await one.do("read", uri="notes://one"))["call"])
        assert json.loads(read["result"])["contents"][0]["text"] == "first"
        assert (read["method"], read["name"]) == ("resources/read", "notes://one")
        started = await one.do("prompt", name="review", arguments={"code": "x"})
        found = await one.finish(started["call"])
        assert json.loads(found["result"])["messages"][0]["content"]["text"] == "Review x"
        missing = await one.finish((await one.do("read", uri="notes://none"))["call"])
        assert missing["status"] == "error"
        assert "notes://none" in missing["error"]["message"]
        without = await one.finish((await one.do("prompt", name="review"))["call"])
        assert without["status"] == "error"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_arguments_and_variables_are_completed(server: Server, revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        found = await one.do(
            "complete", template="notes://{year}/{month}", argument="year", value="6"
        )
        assert found == {"values": ["2026"], "total": 1, "has_more": False, "offered": True}
        found = await one.do(
            "complete", prompt="review", argument="code", value="a", context={"language": "py"}
        )
        assert found["values"] == ["a.any" if revision in WITHOUT_CONTEXT else "a.py"]
        found = await one.do("complete", prompt="none", argument="code", value="a")
        assert found["values"] == []
        assert "none" in found["problem"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_server_without_completions_is_not_asked_in_vain(revision: str) -> None:
    server = Server("plain")

    @server.prompt
    def review(code: str) -> str:
        return code

    async with inspecting(server, revision=revision) as one:
        found = await one.do("complete", prompt="review", argument="code", value="a")
        assert found == {"values": [], "offered": False}
        if revision != REVISIONS[0]:  # the first revision has no capability that tells
            assert all("completion" not in event.get("method", "") for event in one.events("wire"))


async def test_a_template_is_expanded(server: Server) -> None:
    async with inspecting(server) as one:
        found = await one.do("expand", template="notes://{year}/{month}{?tags*}")
        names = ["year", "month", "tags"]
        assert [variable["name"] for variable in found["variables"]] == names
        values = {"year": "2026", "month": "a b", "tags": "x&y"}
        found = await one.do("expand", template="notes://{year}/{month}{?tags*}", values=values)
        assert found["uri"] == "notes://2026/a%20b?tags=x&tags=y"
        assert found["variables"][2] == {"name": "tags", "separator": "&"}
        found = await one.do("expand", template="files:/{/path*}", values={"path": "a/b"})
        assert found["uri"] == "files://a/b"
        for malformed in ("notes://{", "notes://{a b}"):
            found = await one.do("expand", template=malformed)
            assert "URI template" in found["problem"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_change_of_a_subscribed_resource_is_an_event(server: Server, revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        await one.do("subscribe", uri="notes://one")
        await one.do("subscribe", uri="notes://one")
        assert (await one.do("snapshot"))["subscriptions"] == ["notes://one"]
        server.notify_resource_updated("notes://one")
        await one.until("updated", uri="notes://one")
        await one.do("unsubscribe", uri="notes://one")
        assert (await one.do("snapshot"))["subscriptions"] == []
        with pytest.raises(Refused):
            await one.do("unsubscribe", uri="notes://one")


@pytest.mark.parametrize("revision", [REVISIONS[0], REVISIONS[-1]])
async def test_a_subscription_outlives_a_restart(server: Server, revision: str) -> None:
    async with inspecting(server, revision=revision) as one:
        await one.do("subscribe", uri="notes://one")
        before = one.state.events.last
        await one.do("restart")
        session = one.state.session
        assert session is not None
        await session.wait()
        told = [
            event["value"]
            for event in one.events("changed", after=before)
            if event["what"] == "subscriptions"
        ]
        assert told == [[], ["notes://one"]]
        server.notify_resource_updated("notes://one")
        await one.until("updated", uri="notes://one")


async def test_a_resource_that_is_gone_after_a_restart_is_left_out() -> None:
    class Flaky:
        """A client whose server has lost a resource, or is lost itself."""

        problems: ClassVar[dict[str, DovetailError]] = {}

        async def subscribe(self, uri: str, callback: Any) -> str:
            if uri in self.problems:
                raise self.problems[uri]
            return uri

    client: Any = Flaky()
    found = ResourceSubscriptions(EventBuffer())
    for uri in ("a", "b", "c"):
        await found.add(client, uri)
    found.on_close()
    assert found.uris == []
    client.problems["b"] = ConnectionClosed("restarted again")
    await found.restore(client)
    found.on_close()
    client.problems["b"] = NotFound("there is no such resource")
    await found.restore(client)
    assert sorted(found.uris) == ["a", "c"]


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
