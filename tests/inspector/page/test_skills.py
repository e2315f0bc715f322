"""The Skills panel: front matter, files with their digests, and skills that differ."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from .actions import assert_narrow, has, open_panel
from .harness import inspected
from .raw_server import write_server
from .test_hostile import EVIL, FOREIGN, LINK

SERVER = """
from pathlib import Path
from dovetail import Server

server = Server("releases", version="1")
server.add_skill(Path(__file__).parent / "notes")

if __name__ == "__main__":
    server.run()
"""
SKILL = "---\nname: notes\ndescription: Write notes.\nlicense: MIT\n---\n\nBe short.\n"
URI = "skill://notes/SKILL.md"
STATES = "[...document.querySelectorAll('.item tbody .tag')].map((one) => one.innerText).join()"


def write_skill(folder: Path, **options: bool) -> Path:
    """Write a server with a skill of two files."""
    (folder / "notes" / "references").mkdir(parents=True)
    (folder / "notes" / "SKILL.md").write_text(SKILL)
    (folder / "notes" / "references" / "STYLE.md").write_text("One sentence.")
    path = folder / "server.py"
    dynamic = options.get("dynamic", False)
    path.write_text(SERVER.replace('"notes")', f'"notes", dynamic={dynamic})'))
    return path


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_files_are_read_and_verified(tmp_path: Path, revision: str) -> None:
    server = write_skill(tmp_path)
    async with inspected(server, "--revision", revision, folder=tmp_path) as page:
        await open_panel(page, "Skills")
        assert await page.until(has("Write notes.", ".description"))
        assert await page.says(has("MIT", ".json"))
        assert await page.says(STATES) == "not read,not read"
        await page.click("button", text="Read SKILL.md")
        assert await page.until(has("Be short.", ".result"))
        await page.click("button", text="Read references/STYLE.md")
        assert await page.until(has("One sentence.", ".result"))
        assert await page.until(f"{STATES} === 'verified,verified'")
        await page.click("button", text="Open in Resources")
        assert await page.until(has(URI, ".middle h2"))
        await open_panel(page, "Skills")
        await page.until(STATES)
        await assert_narrow(page)


async def test_a_file_stays_verified_and_so_does_the_skill_that_it_belongs_to(
    tmp_path: Path,
) -> None:
    async with inspected(write_skill(tmp_path), folder=tmp_path) as page:
        await open_panel(page, "Skills")
        await page.click("button", text="Read references/STYLE.md")
        assert await page.until(has("One sentence.", ".result"))
        assert await page.until(f"{STATES} === 'verified,verified'")
        await page.says("import('/static/store.js').then((one) => { one.calls.value = new Map() })")
        await page.until("!document.querySelector('.result')")
        assert await page.says(STATES) == "verified,verified", "after many other calls"


async def test_a_dynamic_skill_is_read_without_digests(tmp_path: Path) -> None:
    async with inspected(write_skill(tmp_path, dynamic=True), folder=tmp_path) as page:
        await open_panel(page, "Skills")
        assert await page.until(has("The skill is dynamic", ".middle"))
        await page.fill("#skill-path", "references/STYLE.md")
        await page.press("Control+Enter")
        assert await page.until(has("One sentence.", ".result"))


def entry(name: str, text: str, **more: Any) -> dict[str, Any]:
    uri = f"skill://{name}/SKILL.md"
    digest = f"sha256:{sha256(text.encode()).hexdigest()}"
    return {
        "uri": uri,
        "frontmatter": {"name": name, "description": EVIL, "license": EVIL},
        "resources": [{"uri": uri, "digest": digest, "size": len(text.encode())}],
        **more,
    }


async def test_a_skill_that_differs_from_its_entry_is_refused(tmp_path: Path) -> None:
    changed = entry("notes", SKILL.replace("short", "brief"))
    answers = {
        "skills/list": {"skills": [changed, entry(EVIL, ""), {"uri": LINK}, EVIL]},
        "skills/get": {"skill": changed},
        "resources/list": {"resources": []},
        "resources/read": {"contents": [{"uri": URI, "text": SKILL}]},
    }
    async with inspected(write_server(tmp_path, [], answers=answers), folder=tmp_path) as page:
        await open_panel(page, "Skills")
        assert await page.until(has("U+202E", ".description"))
        await page.click("button", text="Read SKILL.md")
        assert await page.until(f"{STATES} === 'differs'")
        assert await page.until(has("has the digest sha256:", ".result .failure"))
        for _ in range(3):
            await page.says("document.querySelector('#skills').focus()")
            await page.press("j")
            assert await page.until(has("This skill cannot be used:", ".middle .error"))
        assert await page.says(FOREIGN) == 0
        assert await page.says("document.body.scrollWidth <= innerWidth")


async def test_a_server_without_skills_says_so(server: Path) -> None:
    async with inspected(server, folder=server.parent) as page:
        await open_panel(page, "Skills")
        assert await page.until(has("The server offers no skills.", ".left"))
