"""Skills through operations: entries, and files that are verified as they are read."""

import json
from pathlib import Path

import pytest

from dovetail import Server
from dovetail.revisions import OFFICIAL

from .inspecting import inspecting

REVISIONS = [revision.name for revision in OFFICIAL[2:]]
"""The revisions in which a server can declare skills."""
SKILL = "---\nname: notes\ndescription: Write notes.\nlicense: MIT\n---\n\nBe short.\n"
URI = "skill://notes/SKILL.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    (made / "references").mkdir(parents=True)
    (made / "SKILL.md").write_text(SKILL)
    (made / "references" / "STYLE.md").write_text("One sentence.\n")
    return made


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_skill_is_listed_read_and_verified(folder: Path, revision: str) -> None:
    server = Server("releases")
    server.add_skill(folder)
    async with inspecting(server, revision=revision) as one:
        (entry,) = (await one.do("skills"))["skills"]
        assert (entry["uri"], entry["name"], entry["problem"]) == (URI, "notes", None)
        assert json.loads(entry["frontmatter"])["license"] == "MIT"
        sizes = {file["path"]: file["size"] for file in entry["files"]}
        assert sizes == {"SKILL.md": len(SKILL), "references/STYLE.md": 14}
        for path, text in (("SKILL.md", SKILL), ("references/STYLE.md", "One sentence.\n")):
            call = await one.finish((await one.do("read_skill", uri=URI, path=path))["call"])
            result = json.loads(call["result"])
            assert result["contents"]["text"] == text
            assert result["digest"] in [file["digest"] for file in entry["files"]]
        expected = [f"{file['uri']} {file['digest']}" for file in entry["files"]]
        assert sorted((await one.do("snapshot"))["verified"]) == sorted(expected)


async def test_a_file_that_is_not_listed_is_refused(folder: Path) -> None:
    server = Server("releases")
    server.add_skill(folder)
    async with inspecting(server) as one:
        call = await one.finish((await one.do("read_skill", uri=URI, path="none.md"))["call"])
        assert call["error"]["type"] == "SkillRefused"
        assert "none.md" in call["error"]["message"]


async def test_a_dynamic_skill_has_no_digests(folder: Path) -> None:
    server = Server("releases")
    server.add_skill(folder, dynamic=True)
    async with inspecting(server) as one:
        (entry,) = (await one.do("skills"))["skills"]
        assert (entry["dynamic"], entry["files"], entry["fingerprint"]) == (True, [], None)
        started = await one.do("read_skill", uri=URI, path="references/STYLE.md")
        result = json.loads((await one.finish(started["call"]))["result"])
        assert result["digest"] is None
        assert result["contents"]["text"] == "One sentence.\n"


async def test_a_server_without_skills_says_so() -> None:
    async with inspecting(Server("plain")) as one:
        assert await one.do("skills") == {"skills": None}
