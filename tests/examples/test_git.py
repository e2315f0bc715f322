"""examples/git.py, on a repository that the test makes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dovetail import Client, NotFound, ToolError

from .conftest import EXAMPLES

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *who, "-C", folder, *words], check=True, capture_output=True, encoding="utf-8"
    )
    return done.stdout.strip()


def sign(folder: Path) -> None:
    """Give the last commit a signature, which git would have a program verify."""
    head, _, message = git(folder, "cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n xx\n -----END PGP SIGNATURE-----"
    (folder / "signed").write_text(f"{head}\n{signature}\n\n{message}\n")
    git(folder, "update-ref", "HEAD", git(folder, "hash-object", "-t", "commit", "-w", "signed"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits and a tag."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "poem.txt").write_text("Roses are red\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=A poem")
    git(folder, "tag", "v1")
    (folder / "poem.txt").write_text("Roses are blue\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "a b.txt").write_text("Revise.\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=Another colour")
    return folder


def connect(repository: Path) -> Client:
    return Client(EXAMPLES / "git.py", env={"REPOSITORY": str(repository)})


async def test_the_log_lists_commits_newest_first(repository: Path) -> None:
    async with connect(repository) as client:
        commits = (await client.call_tool("log")).data
        assert [one["subject"] for one in commits] == ["Another colour", "A poem"]
        assert commits[1]["id"] == git(repository, "rev-parse", "v1")
        assert commits[1]["author"] == "Ada"
        only = (await client.call_tool("log", {"path": "notes", "limit": 5})).data
        assert [one["subject"] for one in only] == ["Another colour"]
        assert len((await client.call_tool("log", {"limit": 1})).data) == 1


async def test_the_diff_compares_two_revisions(repository: Path) -> None:
    async with connect(repository) as client:
        text = (await client.call_tool("diff", {"old": "v1", "path": "poem.txt"})).text
        assert "-Roses are red\n+Roses are blue\n" in text
        same = await client.call_tool("diff", {"old": "HEAD~0"})
        assert same.text == "There are no differences."


async def test_files_of_any_revision_are_resources(repository: Path) -> None:
    async with connect(repository) as client:
        (old,) = await client.read_resource("git://v1/poem.txt")
        (new,) = await client.read_resource("git://main/poem.txt")
        assert (old.text, new.text) == ("Roses are red\n", "Roses are blue\n")
        (tree,) = await client.read_resource("git://HEAD")
        assert tree.text == "git://HEAD/notes/a%20b.txt\ngit://HEAD/poem.txt"
        (note,) = await client.read_resource("git://HEAD/notes/a%20b.txt")
        assert note.text == "Revise.\n"
        for uri in ("git://v1/notes/a%20b.txt", "git://v9/poem.txt", "git://v9"):
            with pytest.raises(NotFound):
                await client.read_resource(uri)


async def test_revisions_are_completed(repository: Path) -> None:
    async with connect(repository) as client:
        found = await client.complete(
            resource="git://{revision}/{+path}", argument="revision", value=""
        )
        assert found.values == ["HEAD", "main", "v1"]


@pytest.mark.parametrize(
    "revision", ["--output=stolen", "-p", "HEAD:poem.txt", "HEAD --all", "", "main v1"]
)
async def test_a_revision_cannot_become_an_option_or_anything_else(
    repository: Path, revision: str
) -> None:
    async with connect(repository) as client:
        for tool, name in (("log", "revision"), ("diff", "old"), ("diff", "new")):
            arguments = {"old": "v1", name: revision} if tool == "diff" else {name: revision}
            with pytest.raises(ToolError, match=f"`{name}` must be a string"):
                await client.call_tool(tool, arguments)
    assert not (repository / "stolen").exists()


async def test_a_revision_is_one_commit(repository: Path) -> None:
    async with connect(repository) as client:
        for revision in ("main..v1", "v9"):
            with pytest.raises(ToolError, match=f"There is no revision '{revision}'"):
                await client.call_tool("log", {"revision": revision})


async def test_a_path_cannot_become_an_option_or_leave_the_repository(repository: Path) -> None:
    async with connect(repository) as client:
        none = await client.call_tool("diff", {"old": "v1", "path": "--output=stolen"})
        assert none.text == "There are no differences."
        with pytest.raises(ToolError, match="outside repository"):
            await client.call_tool("log", {"path": "/etc/passwd"})
        with pytest.raises(NotFound):
            await client.read_resource("git://HEAD/../secret.txt")
    assert not (repository / "stolen").exists()


async def test_no_program_is_run_that_the_repository_names(
    repository: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    (repository / ".gitattributes").write_text("* diff=custom\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message=Attributes")
    sign(repository)
    for name in ("diff.external", "diff.custom.textconv", "diff.custom.command", "core.fsmonitor"):
        git(repository, "config", name, str(program))
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "gpg.program", str(program))
    async with connect(repository) as client:
        assert "+Roses are blue" in (await client.call_tool("diff", {"old": "v1"})).text
        assert len((await client.call_tool("log")).data) == 3
        await client.read_resource("git://HEAD/poem.txt")
    assert not ran.exists()


async def test_outside_of_a_repository_the_error_says_so(tmp_path: Path) -> None:
    async with Client(EXAMPLES / "git.py", env={"REPOSITORY": str(tmp_path / "none")}) as client:
        with pytest.raises(ToolError, match="There is no revision 'HEAD'"):
            await client.call_tool("log")
