"""What the skills extension says on the wire, and what an entry must be before anybody reads on.

A skill is a folder of files with a SKILL.md. Its entry carries the front matter of that file and,
of every file, the digest and the size: all that a host needs to show it, to have it approved, and
to verify each file when it is read. The files themselves are ordinary resources. An entry is judged
as a whole (`flaw`) before anything of it is fetched.
https://github.com/modelcontextprotocol/ext-skills/blob/main/specification/stable/skills.mdx
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec
from msgspec import field

from ...connection.extension import Extension
from ...limits import Limits
from ...protocol.base import CacheHints, ListParams, Meta, Result, Wire
from ...protocol.methods import Method
from ...protocol.resources import Resource, UriParams

ID = "io.modelcontextprotocol/skills"
SKILL_MD = "SKILL.md"
DYNAMIC: Literal["dynamic"] = "dynamic"
RESERVED_METADATA_PREFIX = "io.modelcontextprotocol/"
"""What keys of the front matter's `metadata` may not begin with."""
NAME = re.compile(r"(?!.*--)[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
"""How a skill may be called. https://agentskills.io/specification#name-field"""
MAX_DESCRIPTION_CHARS = 1024
"""Characters of a description."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_STRAY = re.compile(r"[\\\0-\x1f\x7f]")
_AWAY = {"", ".", ".."}
"""What no part of a path may be."""


class SkillFile(Wire):
    """A file of a skill: where it is read, and what its bytes must be."""

    uri: str
    digest: str
    size: int


class SkillEntry(Wire, kw_only=True):
    """A skill as it is listed."""

    uri: str
    """Of its SKILL.md."""
    frontmatter: dict[str, Any]
    resources: list[SkillFile] | Literal["dynamic"]
    meta: Meta | None = field(name="_meta", default=None)
    problem: str | None = None
    """Why it cannot be read; on the client only."""

    @property
    def name(self) -> str:
        """Its name: a label, not an identifier. Two skills may have the same."""
        return str(self.frontmatter.get("name", ""))

    @property
    def description(self) -> str:
        """What it is good for, and when."""
        return str(self.frontmatter.get("description", ""))

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return self.uri.removesuffix(f"/{SKILL_MD}")

    @property
    def manifest(self) -> list[SkillFile]:
        """Its files as they are listed; none where it is dynamic, since nobody knows them."""
        return [] if self.resources == DYNAMIC else self.resources

    @property
    def files(self) -> dict[str, SkillFile]:
        """Its files by their paths."""
        root = self.root
        return {path_within(root, file.uri) or "": file for file in self.manifest}

    @property
    def fingerprint(self) -> str | None:
        """What an approval of it is to be bound to: it changes as soon as a file comes, goes or
        changes. None where it is dynamic, which cannot be bound to anything."""
        if self.resources == DYNAMIC:
            return None
        lines = sorted(f"{file.uri} {file.digest}\n" for file in self.resources)
        return sha256("".join([self.uri, "\n", *lines]).encode()).hexdigest()


class ListSkillsResult(CacheHints, kw_only=True):
    """One page of skills. Each is judged by itself, so that a flaw in one does not hide the
    others."""

    skills: list[Any]
    next_cursor: str | None = None


class GetSkillResult(CacheHints, kw_only=True):
    """One skill."""

    skill: Any


class ReadDirectoryParams(UriParams, kw_only=True):
    """Asks for what lies in a directory."""

    cursor: str | None = None


class ReadDirectoryResult(Result, kw_only=True):
    """One page of what lies in it."""

    resources: list[Resource]
    next_cursor: str | None = None


_CHANGED = ("notifications/resources/list_changed",)
LIST = Method(
    "skills/list", "client", ListParams, ListSkillsResult, cacheable=True, outdated_by=_CHANGED
)
GET = Method(
    "skills/get", "client", UriParams, GetSkillResult, cacheable=True, outdated_by=_CHANGED
)
READ_DIRECTORY = Method(
    "resources/directory/read", "client", ReadDirectoryParams, ReadDirectoryResult
)
METHODS = (LIST, GET, READ_DIRECTORY)

CLIENT = Extension(id=ID, methods=METHODS, silent=True)
"""The client's part. Only servers declare skills, and every client may ask."""


def digest(data: bytes) -> str:
    """The digest of a file."""
    return f"sha256:{sha256(data).hexdigest()}"


def uri_within(root: str, path: str) -> str:
    """The URI of a file of a skill."""
    return f"{root}/{quote(path)}"


def path_within(root: str, uri: str) -> str | None:
    """The path of a file within its skill; None where it is not within, in any reading of the
    URI."""
    below = uri[len(root) + 1 :]
    path = unquote(below) if "%" in below else below
    if not uri.startswith(f"{root}/") or path.count("/") != below.count("/") or _STRAY.search(path):
        return None
    return None if "?" in below or "#" in below or not _AWAY.isdisjoint(path.split("/")) else path


def children(paths: Iterable[str], directory: str) -> set[str]:
    """What lies in a directory, out of the paths of all there is: names, with a slash behind those
    of directories. Nothing where there is no such directory; of one whose own path is among them,
    with its slash, also the empty name."""
    start = f"{directory}/" if directory else ""
    below = (path[len(start) :] for path in paths if path.startswith(start))
    return {name + slash for name, slash, _ in (path.partition("/") for path in below)}


def check_entry(value: Any, limits: Limits) -> SkillEntry:
    """An entry as it came, with its problem where it has one."""
    try:
        entry = msgspec.convert(value, SkillEntry)
    except msgspec.ValidationError as error:
        known = value if isinstance(value, dict) else {}
        about = known.get("frontmatter")
        return SkillEntry(
            uri=str(known.get("uri", "")),
            frontmatter=about if isinstance(about, dict) else {},
            resources=[],
            problem=f"its entry is not valid: {error}",
        )
    return msgspec.structs.replace(entry, problem=next(find_flaws(entry, limits), None))


def find_flaws(entry: SkillEntry, limits: Limits) -> Iterator[str]:
    """What is wrong with an entry, the worst first."""
    name, description = (entry.frontmatter.get(key) for key in ("name", "description"))
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"{name!r} is no name: 1 to 64 of a-z, 0-9 and single hyphens within"
    if not isinstance(description, str) or not description:
        yield "it has no description"
    if not entry.uri.endswith(f"/{name}/{SKILL_MD}") or "://" not in entry.uri:
        yield f"its URI does not end in /{name}/{SKILL_MD}"
    if entry.resources == DYNAMIC:
        return
    if len(entry.resources) > limits.skill_files:
        yield (
            f"it has {len(entry.resources):,} files, and {limits.skill_files:,} are read at "
            "most (Limits.skill_files)"
        )
        return
    size = sum(file.size for file in entry.resources)
    if size > limits.skill_bytes:
        yield (
            f"it has {size:,} bytes, and {limits.skill_bytes:,} are read at most "
            "(Limits.skill_bytes)"
        )
    root = entry.root
    paths = [path_within(root, file.uri) for file in entry.resources]
    for path, file in zip(paths, entry.resources, strict=True):
        if path is None:
            yield f"{file.uri} is not within it"
        if not _DIGEST.fullmatch(file.digest) or file.size < 0:
            yield f"{file.uri} has no digest and size that it could be verified by"
    if len(set(paths)) < len(paths):
        yield "a file is listed twice"
    if all(file.uri != entry.uri for file in entry.resources):
        yield f"its {SKILL_MD} is not among its files"
