"""The history of a Git repository: files of any revision as `git://` resources, and tools that show
the log and differences.

    dovetail call examples/git.py log limit=3
    dovetail call examples/git.py diff old=HEAD~1 --env REPOSITORY=/path/to/repository
    dovetail read examples/git.py git://HEAD/README.md

The server only reads. Arguments come from a model, so none of them can become an option of `git`: a
revision must have the form of a revision, and is replaced by the id of its commit.
"""

import os
import subprocess
from typing import Annotated
from urllib.parse import quote

from msgspec import Meta, Struct

from dovetail import NotFound, Server, ToolError

REPOSITORY = os.environ.get("REPOSITORY", ".")
MAX_DIFF_CHARS = 100_000

# The settings of a repository can name programs. With these options, git does not run them.
GIT = [
    *("git", "--no-pager", "--no-optional-locks", "--literal-pathspecs"),
    *("-c", "core.fsmonitor=false", "-c", "log.showSignature=false"),
]
NO_PROGRAMS = ["--no-ext-diff", "--no-textconv", "--no-color"]

Revision = Annotated[
    str,
    Meta(
        pattern=r"^\w[\w./-]*([~^][0-9]*)*$",
        max_length=200,
        description="A branch, a tag or a commit, such as main, v1.2 or HEAD~3.",
    ),
]

server = Server("git", version="1.0.0", instructions="Shows the history of one Git repository.")


class Commit(Struct):
    id: str
    author: str
    date: str
    subject: str


def git(*arguments: str) -> str:
    """Run git, and return its output."""
    try:
        done = subprocess.run(
            [*GIT, "-C", REPOSITORY, *arguments],
            env={**os.environ, "GIT_ALLOW_PROTOCOL": "none"},  # never fetch missing objects
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
        )
    except subprocess.CalledProcessError as error:
        raise ToolError(f"git failed: {str(error.stderr).strip()}") from None
    except subprocess.TimeoutExpired:
        raise ToolError("git did not finish within 20 s") from None
    return done.stdout


def find_commit(revision: str) -> str:
    """Return the id of a commit."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    except ToolError:
        raise ToolError(f"There is no revision {revision!r} in this repository") from None


@server.tool(annotations={"readOnlyHint": True})
def log(
    revision: Revision = "HEAD", path: str = "", limit: Annotated[int, Meta(ge=1, le=100)] = 20
) -> list[Commit]:
    """List commits, newest first.

    Args:
        path: List only commits that change this file or folder.
        limit: The maximum number of commits.
    """
    paths = [path] if path else []
    form = "--format=%H%x00%an%x00%aI%x00%s"
    found = git("log", f"--max-count={limit}", form, find_commit(revision), "--", *paths)
    return [Commit(*line.split("\0")) for line in found.split("\n") if line]


@server.tool(annotations={"readOnlyHint": True})
def diff(old: Revision, new: Revision = "HEAD", path: str = "") -> str:
    """Show the differences between two revisions.

    Args:
        path: Show only the differences in this file or folder.
    """
    paths = [path] if path else []
    text = git("diff", *NO_PROGRAMS, find_commit(old), find_commit(new), "--", *paths)
    if len(text) > MAX_DIFF_CHARS:
        return f"{text[:MAX_DIFF_CHARS]}\n[cut: pass a path to see less]"
    return text or "There are no differences."


@server.resource("git://{revision}", mime_type="text/uri-list")
def tree(revision: Revision) -> str:
    """List the files of a revision."""
    try:
        names = git("ls-tree", "-r", "--name-only", "-z", find_commit(revision)).split("\0")
    except ToolError as error:
        raise NotFound(str(error)) from None
    return "\n".join(f"git://{revision}/{quote(name)}" for name in names if name)


@server.resource("git://{revision}/{+path}", mime_type="text/plain")
def file(revision: Revision, path: str) -> str:
    """Return a file of a revision."""
    try:
        return git("cat-file", "blob", f"{find_commit(revision)}:{path}")
    except ToolError:
        raise NotFound(f"There is no file {path!r} in revision {revision!r}") from None


@tree.complete("revision")
@file.complete("revision")
def revisions(value: str) -> list[str]:
    """Complete the names of branches and tags."""
    form = "--format=%(refname:short)"
    return ["HEAD", *git("for-each-ref", form, "refs/heads", "refs/tags").split()]


if __name__ == "__main__":
    server.run()
