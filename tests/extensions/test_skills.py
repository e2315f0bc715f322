"""Skills: folders that servers publish and clients verify, over each kind of transport and in every
revision that can declare them; folders and servers that are up to no good."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dovetail import Cache, Client, Limits, Server, SkillEntry, TextResourceContents
from dovetail.auth import Bearer, static_tokens
from dovetail.errors import (
    ConfigError,
    Forbidden,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    SkillRefused,
    Unauthorized,
)
from dovetail.extensions import Extension
from dovetail.extensions.skills import (
    ID,
    METHODS,
    GetSkillResult,
    ListSkillsResult,
    ReadDirectoryResult,
)
from dovetail.ports import Principal
from dovetail.protocol.resources import Resource
from dovetail.testing import Tape, Taped, pair
from dovetail.transports.process import spawn
from tests.behaviour.conftest import REVISIONS, Talk, overheard  # noqa: F401  (a fixture)
from tests.behaviour.web import on_a_port
from tests.spec import check_tape

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "skills" / "release-notes"
URI = "skill://release-notes/SKILL.md"
DECLARE = REVISIONS[2:]
"""The revisions that can carry a declaration."""
KINDS = ["memory", "stdio", "http", "websocket"]
PIXEL = bytes(range(256))


def example(**options: Any) -> Server:
    server = Server("skilled", **options)
    server.add_skill(EXAMPLE)
    return server


class Skilled(Talk):
    """Opens conversations with the server of examples/skills."""

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Client]:
        if self.transport != "stdio":
            async with self(example(), **options) as client:
                yield client
            return
        channel = await spawn(
            [sys.executable, "-m", "examples.skills.server"], cwd=ROOT, on_stderr=lambda line: None
        )
        async with Client(Taped(channel, self.tape), revision=self.revision, **options) as client:
            yield client
        check_tape(self.tape, self.revision)


@pytest.fixture(params=[(kind, revision) for kind in KINDS for revision in DECLARE], ids="-".join)
def meet(request: pytest.FixtureRequest) -> Skilled:
    return Skilled(*request.param)


def folder(place: Path, name: str = "pdf", matter: str | None = None, **files: str | bytes) -> Path:
    """A folder with a skill; `__` in the name of a file is a slash, and `_` a dot."""
    made = place / name
    made.mkdir(parents=True, exist_ok=True)
    matter = f"name: {name}\ndescription: Reads PDF" if matter is None else matter
    (made / "SKILL.md").write_text(f"---\n{matter}\n---\nDo it.\n")
    for path, data in files.items():
        file = made / path.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
    return made


def digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def asked(tape: Tape, method: str) -> list[Any]:
    return [one["params"] for one in tape.messages("client") if one.get("method") == method]


# --------------------------------------------------------------------------------------------------
# both together


@pytest.mark.requirement("skills-methods", "skills-manifest", "skills-frontmatter")
async def test_a_skill_is_listed_with_its_front_matter_and_all_its_files(meet: Skilled) -> None:
    async with meet.open() as client:
        assert client.capabilities.extensions == {ID: {"directoryRead": True}}
        (entry,) = await client.list_skills()
        assert entry == await client.get_skill(URI)
    assert (entry.uri, entry.name, entry.problem) == (URI, "release-notes", None)
    assert entry.frontmatter["metadata"] == {"version": "1.2"}
    assert entry.description.startswith(
        "Write release notes from a list of merged changes. Use it when"
    )
    for path in ("SKILL.md", "references/STYLE.md", "templates/notes.md"):
        data = (EXAMPLE / path).read_bytes()
        assert (entry.files[path].digest, entry.files[path].size) == (digest(data), len(data))
    assert len(entry.files) == 3


@pytest.mark.requirement("skills-lazy")
async def test_a_skill_is_read_file_by_file_as_they_are_wanted(meet: Skilled) -> None:
    async with meet.open() as client:
        (entry,) = await client.list_skills()
        assert asked(meet.tape, "resources/read") == []
        skill = await client.read_skill(entry)
        assert [one["uri"] for one in asked(meet.tape, "resources/read")] == [URI]
        assert skill.body.startswith("\n# Release notes") and skill.text.endswith(skill.body)
        for _ in range(2):
            assert (await skill.read("./references/../references/STYLE.md")).text == (
                EXAMPLE / "references/STYLE.md"
            ).read_text()
        assert len(asked(meet.tape, "resources/read")) == 2
        assert (await client.read_skill(URI)).frontmatter == entry.frontmatter


@pytest.mark.requirement("skills-resources")
async def test_its_files_are_resources_and_skill_md_is_listed(meet: Skilled) -> None:
    async with meet.open() as client:
        (entry,) = await client.list_skills()
        (listed,) = await client.list_resources()
        assert (listed.uri, listed.name, listed.description) == (URI, entry.name, entry.description)
        assert (listed.mime_type, listed.size) == ("text/markdown", entry.files["SKILL.md"].size)
        (contents,) = await client.read_resource("skill://release-notes/templates/notes.md")
        assert contents.mime_type == "text/markdown"
        for uri in (
            "skill://release-notes/none.md",
            "skill://release-notes/../SKILL.md",
            "skill://release-notes/templates",
        ):
            with pytest.raises(NotFound):
                await client.read_resource(uri)


@pytest.mark.requirement("skills-unknown")
async def test_what_is_no_skill_is_refused_as_wrong_params(meet: Skilled) -> None:
    async with meet.open() as client:
        for uri in (
            "skill://none/SKILL.md",
            "skill://release-notes/templates/notes.md",
            "skill://release-notes",
            "",
        ):
            with pytest.raises(InvalidParams) as refusal:
                await client.get_skill(uri)
            assert refusal.value.code == -32602


@pytest.mark.requirement("skills-directories")
async def test_directories_are_listed_level_by_level(meet: Skilled) -> None:
    async with meet.open() as client:
        await client.list_skills()  # which is how it learns the methods
        root = await client.request("resources/directory/read", {"uri": "skill://release-notes"})
        shown = {
            one.uri.removeprefix("skill://release-notes/"): one.mime_type for one in root.resources
        }
        assert shown == {
            "SKILL.md": "text/markdown",
            "references": "inode/directory",
            "templates": "inode/directory",
        }
        below = await client.request(
            "resources/directory/read", {"uri": "skill://release-notes/templates"}
        )
        assert [(one.name, one.mime_type) for one in below.resources] == [
            ("notes.md", "text/markdown")
        ]
        for uri in (
            URI,
            "skill://release-notes/none",
            "skill://release-notes/",
            "skill:/",
            "skill://",
            "",
            "/",
        ):
            with pytest.raises(InvalidParams) as refusal:
                await client.request("resources/directory/read", {"uri": uri})
            assert refusal.value.code == -32602


@pytest.mark.requirement("skills-directories-empty")
@pytest.mark.parametrize("dynamic", [False, True], ids=["kept", "dynamic"])
async def test_an_empty_directory_is_one_with_nothing_in_it(tmp_path: Path, dynamic: bool) -> None:
    place = folder(tmp_path, a__b_md="x")
    (place / "none" / "below").mkdir(parents=True)
    (place / ".git").mkdir()
    server = Server("s")
    uri = server.add_skill(place, dynamic=dynamic)
    async with Client(server) as client:
        skill = await client.read_skill(uri)

        async def lies_in(directory: str) -> list[str]:
            page = await client.request(
                "resources/directory/read", {"uri": f"skill://pdf{directory}"}
            )
            return [one.name for one in page.resources]

        assert await lies_in("") == ["pdf", "a", "none"]  # a SKILL.md is called as its skill is
        assert (await lies_in("/none"), await lies_in("/none/below")) == (["below"], [])
        for directory in ("/none/below/none", "/no", "/none/", "/.git", "/SKILL.md"):
            with pytest.raises(InvalidParams, match="is not a directory"):
                await lies_in(directory)
        if dynamic:
            assert await skill.list("none/below") == []
            (place / "none" / "below").rmdir()
            assert await skill.list("none") == []
            (place / "none").rmdir()
            with pytest.raises(InvalidParams):
                await skill.list("none")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_server_without_skills_is_said_to_be_one(revision: str) -> None:
    async with pair(Server("plain"), revision=revision) as client:
        for ask in (client.list_skills(), client.get_skill(URI), client.read_skill(URI)):
            with pytest.raises(
                MethodNotFound, match=f"the server does not offer the extension {ID}"
            ):
                await ask


@pytest.mark.parametrize("revision", REVISIONS[:2])
async def test_before_there_were_extensions_the_files_are_plain_resources(revision: str) -> None:
    async with pair(example(), revision=revision) as client:
        with pytest.raises(MethodNotFound, match="does not offer"):
            await client.list_skills()
        assert (await client.read_resource(URI))[0].text == (EXAMPLE / "SKILL.md").read_text()


@pytest.mark.parametrize("revision", DECLARE)
async def test_a_client_declares_nothing(revision: str) -> None:
    tape = Tape()
    async with pair(example(), revision=revision, record=tape) as client:
        await client.list_skills()
    assert ID.encode() not in b"".join(data for sender, data in tape.entries if sender == "client")


def test_a_blocking_client_reads_skills_too() -> None:
    with Client(example()).blocking() as client:
        skill = client.read_skill(client.list_skills()[0])
        assert skill.name == "release-notes"
        assert skill.list("templates") == ["notes.md"]
        assert skill.read("templates/notes.md").text == (EXAMPLE / "templates/notes.md").read_text()


# --------------------------------------------------------------------------------------------------
# the server


async def test_files_of_any_kind_arrive_byte_for_byte(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "a__b_png": PIXEL,
        "crlf_txt": "x\r\ny\r\n",
        "empty_md": "",
        "run_py": "print(1)\n",
    }
    server = Server("s")
    uri = server.add_skill(folder(tmp_path, bom_json="\ufeff{}", **files))
    (tmp_path / "pdf" / "two words é.md").write_text("x")
    other = server.add_skill(tmp_path / "pdf", uri="skill://more/pdf")
    async with Client(server) as client:
        skill = await client.read_skill(uri)
        assert (await skill.read("a/b.png")).data == PIXEL
        assert (await skill.read("a/b.png")).mime_type == "image/png"
        assert (await skill.read("run.py")).mime_type == "text/x-python"
        for path in skill.files:
            assert (await skill.read(path)).data == (tmp_path / "pdf" / path).read_bytes()
        assert (await (await client.read_skill(other)).read("two words é.md")).text == "x"
        assert (
            await (await client.read_skill(other)).read("skill://more/pdf/two%20words%20%C3%A9.md")
        ).text == "x"


@pytest.mark.requirement("skills-pages")
async def test_the_list_comes_in_pages_with_hints_for_caches(tmp_path: Path) -> None:
    server = Server("s", page_size=2, cache=Cache(ttl=60, scope="public"))
    for name in ("e", "d", "c", "b", "a"):
        server.add_skill(folder(tmp_path, name))
    async with Client(server) as client:
        assert [entry.name for entry in await client.list_skills()] == ["a", "b", "c", "d", "e"]
        page = await client.request("skills/list")
        assert (len(page.skills), page.ttl_ms, page.cache_scope) == (2, 60_000, "public")
        assert page.next_cursor is not None
        entry = await client.request("skills/get", {"uri": "skill://a/SKILL.md"})
        assert (entry.ttl_ms, entry.cache_scope) == (60_000, "public")
        with pytest.raises(InvalidParams, match="not a valid cursor"):
            await client.request("skills/list", {"cursor": "x"})
        roots = await client.request("resources/directory/read", {"uri": "skill://a"})
        assert [one.name for one in roots.resources] == ["a"]


@pytest.mark.requirement("skills-nested")
@pytest.mark.parametrize("first", ["outer", "inner"])
async def test_a_skill_within_another_is_one_of_its_own_whichever_came_first(
    tmp_path: Path, first: str
) -> None:
    outer = folder(tmp_path, "outer", inner__y_md="kept")
    folder(outer, "inner", y_md="kept")
    server = Server("s")
    adding = {
        "outer": lambda: server.add_skill(outer),
        "inner": lambda: server.add_skill(outer / "inner", uri="skill://outer/inner", dynamic=True),
    }
    for name in sorted(adding, key=lambda name: name != first):
        adding[name]()
    async with Client(server) as client:
        entries = {entry.name: entry for entry in await client.list_skills()}
        assert {"inner/SKILL.md", "inner/y.md"} < set(entries["outer"].files)
        inner, whole = (
            await client.read_skill(entries["inner"]),
            await client.read_skill(entries["outer"]),
        )
        assert (whole.name, inner.name) == ("outer", "inner")
        (outer / "inner" / "y.md").write_text("new")
        assert (await inner.read("y.md")).text == "new"
        assert (await whole.read("inner/SKILL.md")).text == inner.text
        with pytest.raises(
            SkillRefused, match="3 bytes, but its entry lists 4"
        ):  # a change of the one is a change of the other
            await whole.read("inner/y.md")


async def test_prefixes_and_nested_skills_are_directories_like_any_other(tmp_path: Path) -> None:
    outer = folder(tmp_path, "outer", x_md="x")
    folder(outer, "inner", y_md="y")
    server = Server("s", page_size=2)
    server.add_skill(outer, uri="skill://team/tools/outer/SKILL.md")
    server.add_skill(outer / "inner", uri="skill://team/tools/outer/inner")
    async with Client(server) as client:
        entries = {entry.name: entry for entry in await client.list_skills()}
        assert "inner/SKILL.md" in entries["outer"].files and "inner/y.md" in entries["outer"].files
        assert set(entries["inner"].files) == {"SKILL.md", "y.md"}
        for uri, names in {
            "skill://team": ["tools"],
            "skill://team/tools/outer": ["SKILL.md", "inner"],
            "skill://team/tools/outer/inner": ["SKILL.md", "y.md"],
        }.items():
            page = await client.request("resources/directory/read", {"uri": uri})
            assert [one.uri.rpartition("/")[2] for one in page.resources] == names
        page = await client.request("resources/directory/read", {"uri": "skill://team/tools/outer"})
        rest = await client.request(
            "resources/directory/read",
            {"uri": "skill://team/tools/outer", "cursor": page.next_cursor},
        )
        assert [one.name for one in rest.resources] == ["x.md"]
        skill = await client.read_skill(entries["outer"])
        assert (await skill.read("inner/y.md")).text == "y"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_skills_come_and_go_at_run_time_and_clients_are_told(
    tmp_path: Path, revision: str
) -> None:
    server = example(cache=Cache(ttl=60))
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with pair(server, revision=revision) as client:
        await client.on_change("resources", changes.put_nowait)
        uri = server.add_skill(folder(tmp_path, x_md="1"))
        await changes.get()
        assert [entry.uri for entry in await client.list_skills()] == [URI, uri]
        entry = await client.get_skill(uri)
        server.remove_skill(uri)
        await changes.get()
        with pytest.raises(InvalidParams):
            await client.get_skill(uri)
        with pytest.raises(NotFound):
            await client.read_skill(entry)
        (tmp_path / "pdf/x.md").write_text("2")
        server.add_skill(tmp_path / "pdf")
        with pytest.raises(SkillRefused, match="digest") as refusal:
            await (await client.read_skill(entry)).read("x.md")
        assert (refusal.value.what, refusal.value.uri) == ("digest", "skill://pdf/x.md")
        anew = await client.get_skill(uri, fresh=True)
        assert anew.fingerprint != entry.fingerprint
        assert (await (await client.read_skill(anew)).read("x.md")).text == "2"
    with pytest.raises(ConfigError, match="There is no skill"):
        server.remove_skill("skill://none/SKILL.md")
    with pytest.raises(ConfigError, match="There is no skill"):
        Server("s").remove_skill(uri)


async def test_a_skill_that_cannot_be_added_leaves_nothing_behind(tmp_path: Path) -> None:
    server = Server("s")
    place = folder(tmp_path)
    server.add_resource(lambda: "mine", "skill://pdf/SKILL.md", name="mine")
    with pytest.raises(ConfigError, match="already exists"):
        server.add_skill(place)
    server.remove_resource("skill://pdf/SKILL.md")
    server.add_resource(lambda path: "mine", "skill://pdf/{+path}", name="mine")
    with pytest.raises(ConfigError, match="already exists"):
        server.add_skill(place)
    async with Client(server) as client:
        assert await client.list_skills() == [] and await client.list_resources() == []
    server.remove_resource("skill://pdf/{+path}")
    server.add_skill(place)
    with pytest.raises(ConfigError, match="already exists"):
        server.add_skill(place)


def test_what_a_skill_needs_is_taken_out_with_it_only(tmp_path: Path) -> None:
    server = Server("s")
    uri = server.add_skill(folder(tmp_path))
    for part in ("skill://pdf/SKILL.md", "skill://pdf/{+path}"):
        with pytest.raises(
            ConfigError, match="is part of a skill; remove the skill with remove_skill"
        ):
            server.remove_resource(part)
    server.remove_skill(uri)
    server.add_skill(tmp_path / "pdf")


@pytest.mark.requirement("skills-dynamic")
async def test_a_dynamic_skill_is_read_as_it_is_at_the_moment(tmp_path: Path) -> None:
    place = folder(tmp_path, "daily", x_md="1")
    server = Server("s")
    uri = server.add_skill(place, dynamic=True)

    @server.resource("skill://daily/now.md", mime_type="text/markdown")
    def now() -> str:
        return "noon"

    async with Client(server) as client:
        (entry,) = await client.list_skills()
        assert (entry.resources, entry.files, entry.fingerprint) == ("dynamic", {}, None)
        skill = await client.read_skill(entry)
        (place / "x.md").write_text("2")
        (place / "sub").mkdir()
        (place / "sub" / "y.bin").write_bytes(PIXEL)
        (place / "SKILL.md").write_text("something else, which nobody was told of")
        (place / "out.md").symlink_to("/etc/passwd")
        assert (await skill.read("x.md")).text == "2"
        assert (await skill.read("sub/y.bin")).data == PIXEL
        assert (await skill.read("now.md")).text == "noon"
        assert await skill.list() == ["SKILL.md", "now.md", "sub/", "x.md"]
        assert await skill.list("sub/") == ["y.bin"]
        for path in ("out.md", "sub", "none.md", "%2e%2e/x"):
            with pytest.raises((NotFound, SkillRefused)):
                await skill.read(path)
        assert (await client.read_skill(uri)).body == "Do it.\n"


async def test_a_dynamic_skill_may_be_as_large_as_another_and_no_larger(tmp_path: Path) -> None:
    server = Server("s")
    uri = server.add_skill(folder(tmp_path, a_md="x" * 600, b_md="x" * 600), dynamic=True)
    async with Client(server, limits=Limits(skill_bytes=1000)) as client:
        skill = await client.read_skill(uri)
        await skill.read("a.md")
        with pytest.raises(SkillRefused, match=r"Limits\.skill_bytes"):
            await skill.read("b.md")


TOKENS = {"in": Principal("ada", scopes=("team",)), "out": Principal("bob")}


async def test_a_skill_with_scopes_is_for_those_who_have_them(tmp_path: Path) -> None:
    server = Server(
        "s", auth=Bearer(static_tokens(TOKENS), authorization_servers=["https://issuer.example"])
    )
    uri = server.add_skill(folder(tmp_path, x_md="1"), scopes="team")
    server.add_skill(EXAMPLE)
    async with on_a_port(server.asgi(path="/mcp")) as address:
        async with Client(f"http://{address}/mcp", auth="in") as client:
            assert len(await client.list_skills()) == 2
            assert (await (await client.read_skill(uri)).read("x.md")).text == "1"
            page = await client.request("resources/directory/read", {"uri": "skill://pdf"})
            assert len(page.resources) == 2
        async with Client(f"http://{address}/mcp", auth="out") as client:
            assert [entry.uri for entry in await client.list_skills()] == [URI]
            for ask in (client.get_skill(uri), client.read_resource("skill://pdf/x.md")):
                with pytest.raises((Forbidden, Unauthorized)):
                    await ask
            with pytest.raises(InvalidParams):
                await client.request("resources/directory/read", {"uri": "skill://pdf"})


# --------------------------------------------------------------------------------------------------
# hostile folders


def many(place: Path, count: int) -> None:
    for number in range(count):
        (place / f"{number}.md").touch()


def sparse(place: Path, size: int) -> None:
    with (place / "large.bin").open("wb") as file:
        file.truncate(size)


SPOILT: dict[str, tuple[Callable[[Path], Any], str]] = {
    "link to a file outside": (
        lambda place: (place / "x.md").symlink_to("/etc/passwd"),
        "x.md is a link",
    ),
    "link to a file inside": (
        lambda place: (place / "x.md").symlink_to("SKILL.md"),
        "x.md is a link",
    ),
    "link to a directory": (lambda place: (place / "sub").symlink_to("/etc"), "sub is a link"),
    "dangling link": (lambda place: (place / "x").symlink_to("nowhere"), "x is a link"),
    "pipe": (lambda place: os.mkfifo(place / "pipe"), "pipe cannot be served"),
    "name of a device": (lambda place: (place / "NUL.md").touch(), "NUL.md cannot be served"),
    "name with a space at its end": (lambda place: (place / "x ").touch(), "cannot be served"),
    "name that decodes to a way out": (
        lambda place: (place / "a%2f..%2f..%2fx").touch(),
        "cannot be served",
    ),
    "name that is no text": (
        lambda place: (place / os.fsdecode(b"\xff.md")).touch(),
        "cannot be served",
    ),
    "too many files": (lambda place: many(place, 512), "more than 512 files"),
    "a file too large": (lambda place: sparse(place, 16 * 2**20 + 1), "more than 16,777,216 bytes"),
    "files too large together": (
        lambda place: sparse(place, 16 * 2**20 - 1),
        "more than 16,777,216 bytes",
    ),
    "no SKILL.md": (lambda place: (place / "SKILL.md").unlink(), "it does not contain a SKILL.md"),
    "SKILL.md that is a folder": (
        lambda place: ((place / "SKILL.md").unlink(), (place / "SKILL.md").mkdir()),
        "it does not contain a SKILL.md",
    ),
    "SKILL.md that is no text": (
        lambda place: (place / "SKILL.md").write_bytes(b"---\n\xff\n---\n"),
        "is not UTF-8 text",
    ),
    "no front matter": (
        lambda place: (place / "SKILL.md").write_text("# Title\n"),
        "does not start with front matter",
    ),
}


@pytest.mark.requirement("skills-limits")
@pytest.mark.parametrize("how", SPOILT)
def test_a_folder_that_cannot_be_served_whole_is_not_served(tmp_path: Path, how: str) -> None:
    spoil, message = SPOILT[how]
    place = folder(tmp_path)
    spoil(place)
    with pytest.raises(ConfigError, match=message):
        Server("s").add_skill(place)


BAD_MATTER = {
    "description: x": "None is not a valid skill name",
    "name: Pdf\ndescription: x": "'Pdf' is not a valid skill name",
    "name: pdf--x\ndescription: x": "is not a valid skill name",
    "name: -pdf\ndescription: x": "is not a valid skill name",
    f"name: {'x' * 65}\ndescription: x": "is not a valid skill name",
    "name: 1\ndescription: x": "1 is not a valid skill name",
    "name: pdf": "requires a description",
    "name: pdf\ndescription: ''": "requires a description",
    f"name: pdf\ndescription: {'x' * 1025}": "has 1,025 characters; the limit is 1,024",
    "name: other\ndescription: x": "is named 'pdf', but its skill is named 'other'",
    "name: pdf\ndescription: a: b": "line 3, column 15: mapping values are not allowed here",
    "name: pdf\ndescription: x\nmetadata: {io.modelcontextprotocol/x: 1}": "reserved",
    "name: pdf\ndescription: x\ndate: 2026-01-31": "line 4, column 7: 2026-01-31 is not a",
    "name: pdf\ndescription: &a x\nlicense: *a": "line 3, column 14: anchors",
}


@pytest.mark.requirement("skills-names")
@pytest.mark.parametrize("matter", BAD_MATTER, ids=lambda matter: matter[:40])
def test_front_matter_that_says_nothing_good_is_refused_with_the_reason(
    tmp_path: Path, matter: str
) -> None:
    with pytest.raises(ConfigError, match=BAD_MATTER[matter]):
        Server("s").add_skill(folder(tmp_path, "pdf", matter))


@pytest.mark.parametrize(
    "uri",
    [
        "skill://other",
        "pdf",
        "skill://",
        "skill:pdf",
        "skill://a//pdf",
        "skill://{x}/pdf",
        "skill://a b/pdf",
        "skill://x/pdf/",
    ],
)
def test_a_uri_has_to_end_in_the_name(tmp_path: Path, uri: str) -> None:
    with pytest.raises(
        ConfigError, match="is not a valid URI for this skill; use the form 'skill://team/pdf'"
    ):
        Server("s").add_skill(folder(tmp_path), uri=uri)


def test_a_folder_that_is_not_there_is_no_skill() -> None:
    with pytest.raises(
        ConfigError, match=f"The directory {Path.cwd()}/nowhere does not exist"
    ):  # where it was looked for
        Server("s").add_skill("nowhere")


async def test_what_is_hidden_is_left_out_unless_it_is_wanted(tmp_path: Path) -> None:
    place = folder(tmp_path)
    (place / ".git").mkdir()
    (place / ".git" / "config").touch()
    server = Server("s")
    server.add_skill(place)
    server.add_skill(place, uri="github://team/pdf", hidden=True)
    async with Client(server) as client:
        assert [sorted(entry.files) for entry in await client.list_skills()] == [
            ["SKILL.md"],
            [".git/config", "SKILL.md"],
        ]


async def test_a_folder_that_changes_while_it_is_read_is_served_as_it_was_read(
    tmp_path: Path,
) -> None:
    place = folder(tmp_path, x_md="0")
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (place / "x.md").write_bytes(b"%d" % number * (number % 5000))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(20):
            server = Server("s")
            uri = server.add_skill(place)
            async with Client(server) as client:
                await (await client.read_skill(uri)).read("x.md")
    finally:
        stop.set()
        thread.join()


async def test_what_is_put_in_the_place_of_a_file_later_is_not_served(tmp_path: Path) -> None:
    place = folder(tmp_path, x_md="mine")
    server = Server("s")
    uri = server.add_skill(place)
    (place / "x.md").unlink()
    (place / "x.md").symlink_to("/etc/passwd")
    async with Client(server) as client:
        assert (await (await client.read_skill(uri)).read("x.md")).text == "mine"


# --------------------------------------------------------------------------------------------------
# hostile servers

MATTER = {"name": "pdf", "description": "Reads PDF"}
SKILL_MD = b"---\nname: pdf\ndescription: Reads PDF\n---\nDo it.\n"
FORMS = b"forms"
AT = "skill://pdf/SKILL.md"
FORMS_AT = "skill://pdf/FORMS.md"


def manifest(**files: bytes) -> list[dict[str, Any]]:
    known = {AT: SKILL_MD, FORMS_AT: FORMS} | files
    return [{"uri": uri, "digest": digest(data), "size": len(data)} for uri, data in known.items()]


def listing(**changed: Any) -> dict[str, Any]:
    return {"uri": AT, "frontmatter": MATTER, "resources": manifest()} | changed


class Liar:
    """A server that lists and serves what it is told to, and remembers what was read."""

    def __init__(
        self,
        *entries: Any,
        files: dict[str, bytes] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.read: list[str] = []
        self.children: list[Resource] = []
        self.entries = list(entries)
        files = {AT: SKILL_MD, FORMS_AT: FORMS} | (files or {})

        async def skills(call: Any) -> ListSkillsResult:
            return ListSkillsResult(skills=self.entries)

        async def skill(call: Any) -> GetSkillResult:
            return GetSkillResult(skill=self.entries[0])

        async def directory(call: Any) -> ReadDirectoryResult:
            return ReadDirectoryResult(
                resources=self.children, next_cursor="more" if len(self.children) > 3 else None
            )

        handlers = dict(
            zip((method.name for method in METHODS), (skills, skill, directory), strict=True)
        )
        part = Extension(
            id=ID, settings=settings or {}, methods=METHODS, handlers=handlers, mutual=False
        )
        self.server = Server("liar", extensions=[part])

        @self.server.resource("skill://{+path}")
        async def served(path: str) -> Any:
            self.read.append(f"skill://{path}")
            return files[f"skill://{path}"].decode() if f"skill://{path}" in files else "stray"


@pytest.mark.requirement("skills-verify")
@pytest.mark.parametrize("revision", DECLARE)
@pytest.mark.parametrize(
    ("served", "entry", "what", "words"),
    [
        (SKILL_MD + b"x", listing(), "size", "has 49 bytes, but its entry lists 48"),
        (SKILL_MD.replace(b"Do", b"Du"), listing(), "digest", "its entry lists sha256:"),
        (
            SKILL_MD,
            listing(frontmatter=MATTER | {"license": "MIT"}),
            "frontmatter",
            "and its entry differ in license",
        ),
        (
            SKILL_MD,
            listing(frontmatter=MATTER | {"description": "Harmless"}),
            "frontmatter",
            "and its entry differ in description",
        ),
        (
            SKILL_MD,
            listing(frontmatter=MATTER | {"description": "x"}, resources="dynamic"),
            "frontmatter",
            "description",
        ),
        (
            b"no front matter",
            listing(resources="dynamic"),
            "frontmatter",
            "does not start with front matter",
        ),
        (
            b"---\nname: &a pdf\n---\n",
            listing(resources="dynamic"),
            "frontmatter",
            "line 2, column 7: anchors",
        ),
    ],
)
async def test_a_skill_md_that_is_not_what_its_entry_says_is_refused_and_nothing_more_is_read(
    revision: str, served: bytes, entry: Any, what: str, words: str
) -> None:
    liar = Liar(entry, files={AT: served})
    async with Client(liar.server, revision=revision) as client:
        for skill in (*await client.list_skills(), AT):
            with pytest.raises(SkillRefused, match=words) as refusal:
                await client.read_skill(skill)
            assert (refusal.value.what, refusal.value.uri, refusal.value.fault) == (
                what,
                AT,
                "remote",
            )
    assert set(liar.read) == {AT}


async def test_a_skill_of_which_one_file_was_refused_gives_no_other() -> None:
    more = "skill://pdf/more.md"
    liar = Liar(
        listing(resources=manifest(**{more: b"more"})), files={FORMS_AT: b"evil!", more: b"more"}
    )
    async with Client(liar.server) as client:
        skill = await client.read_skill(AT)
        for path in ("FORMS.md", "FORMS.md", "more.md"):
            with pytest.raises(SkillRefused, match="digest") as refusal:
                await skill.read(path)
            assert (refusal.value.what, refusal.value.uri) == ("digest", FORMS_AT)
        assert (await skill.read("SKILL.md")).data == SKILL_MD  # which was verified before
    assert liar.read == [AT, FORMS_AT]


@pytest.mark.requirement("skills-unlisted")
@pytest.mark.parametrize(
    "path",
    [
        "none.md",
        "../x.md",
        "/etc/passwd",
        "skill://other/SKILL.md",
        "file:///etc/passwd",
        "a/../../x",
        "..%2fx",
        "",
        ".",
        "FORMS.md/",
        "forms.md",
        "skill://pdf/%46ORMS.md/x",
        "FORMS.md\0",
        "FORMS.md?x",
        "..\\x",
    ],
)
async def test_a_file_that_is_not_listed_is_not_even_asked_for(path: str) -> None:
    liar = Liar(listing())
    async with Client(liar.server) as client:
        skill = await client.read_skill(AT)
        if path == "FORMS.md/":
            assert (await skill.read(path)).data == FORMS  # a path as the file system would take it
            return
        with pytest.raises(SkillRefused) as refusal:
            await skill.read(path)
        assert refusal.value.what == "unlisted"
        assert (
            await skill.read("FORMS.md")
        ).data == FORMS  # the skill itself is none the worse for it
    assert liar.read == [AT, FORMS_AT]


GOOD = {"digest": digest(b""), "size": 0}
FLAWED: list[tuple[Any, str]] = [
    (listing(resources=None), "not valid"),
    (listing(resources="static"), "not valid"),
    ({"uri": AT, "frontmatter": MATTER}, "not valid"),
    ({"frontmatter": MATTER, "resources": []}, "not valid"),
    (listing(frontmatter="pdf"), "not valid"),
    (listing(uri=7), "not valid"),
    ("pdf", "not valid"),
    (None, "not valid"),
    (listing(resources=[{"uri": AT, "digest": digest(SKILL_MD)}]), "not valid"),
    (listing(resources=[{"uri": AT, "digest": digest(SKILL_MD), "size": "48"}]), "not valid"),
    (listing(resources=[{"uri": AT, "digest": digest(SKILL_MD), "size": 4.5}]), "not valid"),
    (listing(frontmatter={}), "None is not a valid name"),
    (listing(frontmatter=MATTER | {"name": "../pdf"}), "is not a valid name"),
    (listing(frontmatter=MATTER | {"description": 1}), "no description"),
    (listing(frontmatter=MATTER | {"name": "other"}), "does not end in /other/SKILL.md"),
    (listing(uri="skill://pdf/skill.md"), "does not end in /pdf/SKILL.md"),
    (listing(uri="/pdf/SKILL.md"), "does not end in"),
    (listing(resources=[]), "SKILL.md is not listed among its files"),
    (listing(resources=manifest()[1:]), "SKILL.md is not listed among its files"),
    (listing(resources=[*manifest(), manifest()[1]]), "listed twice"),
    (listing(resources=[*manifest(), {"uri": "skill://pdf/%46ORMS.md", **GOOD}]), "listed twice"),
    (listing(resources=[{**manifest()[0], "digest": "md5:00"}]), "lacks a valid digest or size"),
    (
        listing(resources=[{**manifest()[0], "digest": digest(b"").upper()}]),
        "lacks a valid digest or size",
    ),
    (listing(resources=[{**manifest()[0], "size": -1}]), "lacks a valid digest or size"),
    (listing(resources=[{**manifest()[0], "size": 2**24 + 1}]), "16,777,217 bytes"),
    (listing(resources=[manifest()[0]] * 513), "it has 513 files"),
    *(
        (listing(resources=[*manifest(), {"uri": uri, **GOOD}]), "is outside the skill")
        for uri in (
            "skill://other/x.md",
            "skill://pdfx/x.md",
            "skill://pdf",
            "skill://pdf/",
            "skill://pdf/../x.md",
            "skill://pdf/%2e%2e/x.md",
            "skill://pdf/..%2fx.md",
            "skill://pdf/a//x.md",
            "skill://pdf/x.md?y",
            "skill://pdf/x.md#y",
            "skill://pdf/a%5c..%5cx",
            "skill://pdf/%00",
            "file:///etc/passwd",
            "https://pdf/x",
        )
    ),
]


@pytest.mark.parametrize(("flawed", "problem"), FLAWED)
async def test_an_entry_with_a_flaw_is_listed_with_it_and_cannot_be_read(
    flawed: Any, problem: str
) -> None:
    liar = Liar(flawed, listing())
    async with Client(liar.server) as client:
        bad, good = await client.list_skills()
        assert problem in (bad.problem or "") and good.problem is None
        with pytest.raises(SkillRefused) as refusal:
            await client.read_skill(bad)
        assert refusal.value.what == "entry"
        with pytest.raises(SkillRefused):
            await client.read_skill(AT)
        assert liar.read == []
        await client.read_skill(good)


async def test_an_entry_that_says_of_itself_that_all_is_well_is_judged_all_the_same() -> None:
    liar = Liar(listing(problem="none at all"), listing(resources=[], problem=None))
    async with Client(liar.server) as client:
        assert [entry.problem is None for entry in await client.list_skills()] == [True, False]
        with pytest.raises(SkillRefused, match="not listed among its files"):
            await client.read_skill(SkillEntry(uri=AT, frontmatter=MATTER, resources=[]))
    assert liar.read == []


async def test_an_answer_about_another_skill_is_refused() -> None:
    other = listing(uri="skill://x/pdf/SKILL.md", resources="dynamic")
    async with Client(Liar(other).server) as client:
        with pytest.raises(
            SkillRefused, match="returned the entry for a different skill, 'skill://x/pdf/"
        ):
            await client.read_skill(AT)


@pytest.mark.parametrize(
    "given",
    [
        [],
        [TextResourceContents(uri=FORMS_AT, text=SKILL_MD.decode())],
        [TextResourceContents(uri=AT, text=SKILL_MD.decode())] * 2,
    ],
)
async def test_contents_that_are_not_of_the_one_file_are_refused(given: list[Any]) -> None:
    async def contents(call: Any, next: Any) -> Any:
        result = await next(call)
        if call.name == "resources/read":
            result.contents = given
        return result

    async with Client(Liar(listing()).server, middleware=[contents]) as client:
        with pytest.raises(SkillRefused, match="did not return this file") as refusal:
            await client.read_skill(AT)
        assert refusal.value.what == "contents"


async def test_a_list_without_end_is_not_followed_for_ever() -> None:
    pages = 0

    async def skills(call: Any) -> ListSkillsResult:
        nonlocal pages
        pages += 1
        return ListSkillsResult(skills=[listing()] * 1000, next_cursor=str(pages))

    part = Extension(id=ID, methods=METHODS, handlers={"skills/list": skills}, mutual=False)
    server = Server("endless", extensions=[part])
    async with Client(server) as client:
        with pytest.raises(
            InvalidRequest, match=r"more than 100,000 skills and skill files \(Limits.skills\)"
        ):
            await client.list_skills()
    assert pages == 34  # 1,000 entries of 1 + 2 each
    async with Client(server, limits=Limits(pages=3)) as client:
        with pytest.raises(InvalidRequest, match="more than 3 pages"):
            await client.list_skills()
    pages = 0
    async with Client(server, limits=Limits(list_bytes=1_000_000)) as client:
        with pytest.raises(InvalidRequest, match=r"1000000 bytes \(Limits.list_bytes\)"):
            await client.list_skills()
    assert pages < 10
    async with Client(
        Liar(*[listing(resources="dynamic")] * 5).server, limits=Limits(skills=5)
    ) as client:
        assert (
            len(await client.list_skills()) == 5
        )  # of which nobody knows the files, so none is counted


async def test_a_million_files_in_one_entry_are_too_many() -> None:
    large = [{"uri": f"skill://pdf/{number}", **GOOD} for number in range(60_000)]
    async with Client(Liar(listing(resources=large)).server) as client:
        (entry,) = await client.list_skills()
        assert entry.problem == "it has 60,000 files; the limit is 512 (Limits.skill_files)"


@pytest.mark.requirement("skills-directories-declared")
@pytest.mark.parametrize(
    "settings", [{}, {"directoryRead": False}, {"directoryRead": "true"}, {"directoryRead": None}]
)
async def test_directories_are_asked_for_only_where_the_server_lists_them(
    settings: dict[str, Any],
) -> None:
    tape = Tape()
    async with pair(
        Liar(listing(resources="dynamic"), settings=settings).server, record=tape
    ) as client:
        skill = await client.read_skill(AT)
        with pytest.raises(MethodNotFound, match="the server does not support listing directories"):
            await skill.list()
    assert asked(tape, "resources/directory/read") == []


@pytest.mark.requirement("skills-approval")
async def test_an_approval_is_bound_to_every_file_and_to_nothing_where_nobody_knows_them() -> None:
    more = {"uri": "skill://pdf/more.md", "digest": digest(b"more"), "size": 4}
    skills = [
        listing(),
        listing(resources=manifest()[::-1], _meta={"checked": True}),  # the same, in other words
        listing(resources=[*manifest(), more]),
        listing(resources=manifest()[:1]),
        listing(resources=manifest(**{FORMS_AT: b"FORMS"})),
        listing(
            uri="skill://x/pdf/SKILL.md",
            resources=[{**manifest()[0], "uri": "skill://x/pdf/SKILL.md"}],
        ),
        listing(resources="dynamic"),
    ]
    async with Client(Liar(*skills).server) as client:
        entries = await client.list_skills()
    assert [entry.problem for entry in entries] == [None] * len(skills)
    approved, same, *others, dynamic = [entry.fingerprint for entry in entries]
    assert same == approved
    assert len({approved, *others}) == 1 + len(others)
    assert dynamic is None


async def test_what_a_directory_is_said_to_hold_stays_within_it() -> None:
    liar = Liar(listing(resources="dynamic"), settings={"directoryRead": True})
    uris = ["skill://pdf/x.md", "skill://other/x.md", "skill://pdf/a/b"]
    liar.children = [Resource(uri=uri, name="x") for uri in uris]
    async with Client(liar.server) as client:
        skill = await client.read_skill(AT)
        assert await skill.list() == ["x.md"]
        liar.children = [Resource(uri=f"skill://pdf/{number}", name="x") for number in range(600)]
        with pytest.raises(InvalidRequest, match="more than 512 files"):
            await skill.list()
        liar.children = liar.children[:4]
        with pytest.raises(InvalidRequest, match="more than 1,000 pages"):
            await skill.list()


async def test_a_listed_skill_answers_for_its_directories_by_itself() -> None:
    liar = Liar(listing(resources=manifest(**{"skill://pdf/a/b.md": b""})))
    async with Client(liar.server) as client:
        skill = await client.read_skill(AT)
        assert await skill.list() == ["FORMS.md", "SKILL.md", "a/"]
        assert await skill.list("a") == ["b.md"]
        for path in ("none", "FORMS.md", "..", "a/b.md"):
            with pytest.raises(SkillRefused):
                await skill.list(path)
