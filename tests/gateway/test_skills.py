"""Skills of servers behind a gateway."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.errors import InvalidParams, MethodNotFound
from dovetail.extensions.skills import ID
from dovetail.gateway.gateway import Gateway
from tests.gateway.stage import OPTIONS
from tests.gateway.test_relaying import ERAS, HANDSHAKE, STATELESS, behind_gateway

SKILL = "---\nname: {name}\ndescription: How to {name}.\n---\n{text}\n"


def folder(parent: Path, name: str, text: str) -> Path:
    """A skill with a file in a directory."""
    found = parent / text / name
    (found / "data").mkdir(parents=True)
    (found / "SKILL.md").write_text(SKILL.format(name=name, text=text), "utf-8")
    (found / "data" / "notes.txt").write_text(f"notes of {text}", "utf-8")
    return found


def skilled(parent: Path, text: str, revision: str = STATELESS, **options: Any) -> Server:
    server = Server(text, revisions=[revision])
    server.add_skill(folder(parent, "tidy", text), **options)
    return server


@pytest.mark.parametrize("caller", ERAS)
@pytest.mark.parametrize("upstream", ERAS)
@pytest.mark.parametrize("dynamic", [False, True])
async def test_skills_with_the_same_uri_are_kept_apart(
    upstream: str, caller: str, dynamic: bool, tmp_path: Path
) -> None:
    servers = [skilled(tmp_path, text, upstream, dynamic=dynamic) for text in ("a", "b")]
    async with behind_gateway(*servers) as gateway, Client(gateway, revision=caller) as client:
        assert client.capabilities.extensions is not None
        assert client.capabilities.extensions[ID] == {"directoryRead": True}
        listed = await client.list_skills()
        assert [(one.uri, one.problem) for one in listed] == [
            ("up+skill://tidy/SKILL.md", None),
            ("two+skill://tidy/SKILL.md", None),
        ]
        for entry, text in zip(listed, ("a", "b"), strict=True):
            assert await client.get_skill(entry.uri) == entry
            skill = await client.read_skill(entry)
            assert skill.body.strip() == text
            assert await skill.list() == ["SKILL.md", "data/"]
            assert await skill.list("data") == ["notes.txt"]
            assert (await skill.read("data/notes.txt")).text == f"notes of {text}"


async def test_a_single_server_keeps_the_uris_of_its_skills(tmp_path: Path) -> None:
    gateway = Gateway(skilled(tmp_path, "a"), **OPTIONS)
    async with Client(gateway) as client:
        (entry,) = await client.list_skills()
        assert entry.uri == "skill://tidy/SKILL.md"
        assert (await client.read_skill(entry.uri)).body.strip() == "a"


async def test_a_skill_of_a_server_without_a_prefix_can_be_read(tmp_path: Path) -> None:
    gateway = Gateway(
        {"mcpServers": {"up": {"command": "x", "dovetail": {"prefix": ""}}}}, **OPTIONS
    )
    names = gateway.upstreams.names
    assert names.to_caller("skills", "up", "skill://tidy/SKILL.md") is None
    names.update("up", "resources", ["skill://tidy/SKILL.md"])
    assert names.to_caller("skills", "up", "skill://tidy/SKILL.md") == "skill://tidy/SKILL.md"


async def test_the_policy_decides_about_skills(tmp_path: Path) -> None:
    policy = {
        "rule": [
            {"effect": "deny", "kind": "share", "server": "up", "name": "skill://tidy/*"},
            {"effect": "allow"},
        ]
    }
    servers = [skilled(tmp_path, text) for text in ("a", "b")]
    async with behind_gateway(*servers, policy=policy) as gateway, Client(gateway) as client:
        assert [one.uri for one in await client.list_skills()] == ["two+skill://tidy/SKILL.md"]
        with pytest.raises(InvalidParams, match="not allowed"):
            await client.get_skill("up+skill://tidy/SKILL.md")


@pytest.mark.parametrize("upstream", ERAS)
async def test_a_skill_that_a_server_adds_is_listed(upstream: str, tmp_path: Path) -> None:
    server = skilled(tmp_path, "a", upstream)
    async with behind_gateway(server) as gateway, Client(gateway, revision=HANDSHAKE) as client:
        assert len(await client.list_skills()) == 1
        changed = asyncio.Event()
        await client.on_change("resources", lambda _: changed.set())
        server.add_skill(folder(tmp_path, "cook", "a"))
        while len(await client.list_skills(fresh=True)) < 2:
            await changed.wait()
            changed.clear()


async def test_without_skills_the_extension_is_not_declared() -> None:
    server = Server("up")
    async with behind_gateway(server) as gateway, Client(gateway) as client:
        await client.list_tools()
        assert ID not in (client.capabilities.extensions or {})
        with pytest.raises(MethodNotFound):
            await client.list_skills()
