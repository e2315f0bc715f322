"""The messages of the skills extension, the checks on entries, and the front matter parser.

A skill is a folder of files with a SKILL.md. Its entry holds the front matter of that file, and the
digest and size of every file. With the entry, a host can show the skill, have it approved, and
verify each file that it reads. The files themselves are ordinary resources. An entry is checked as
a whole (`find_flaws`) before any of its files is fetched.
https://github.com/modelcontextprotocol/ext-skills/blob/main/specification/stable/skills.mdx
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec
from msgspec import field

from ..connection.extension import Extension
from ..limits import Limits
from ..protocol.base import CacheHints, ListParams, Meta, Result, Wire
from ..protocol.methods import Method
from ..protocol.resources import Resource, UriParams
from ..yaml_loader import MAX_CHARACTERS, YamlError, load_yaml

ID = "io.modelcontextprotocol/skills"
SKILL_MD = "SKILL.md"
DYNAMIC: Literal["dynamic"] = "dynamic"
RESERVED_METADATA_PREFIX = "io.modelcontextprotocol/"
"""The prefix that keys in the front matter's `metadata` must not have."""
NAME = re.compile(r"(?!.*--)[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
"""https://agentskills.io/specification#name-field"""
MAX_DESCRIPTION_CHARS = 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FORBIDDEN_CHARS = re.compile(r"[\\\0-\x1f\x7f]")
_FORBIDDEN_SEGMENTS = {"", ".", ".."}
"""Segments that a path must not contain."""


class SkillFile(Wire):
    """A file in a skill, with the digest and size that its contents must have."""

    uri: str
    """The URI of the resource."""
    digest: str
    """`sha256:` followed by 64 hexadecimal digits."""
    size: int
    """The size in bytes."""


class SkillEntry(Wire, kw_only=True):
    """A skill, as a server lists it."""

    uri: str
    """The URI of the skill's SKILL.md."""
    frontmatter: dict[str, Any]
    """The front matter of the SKILL.md."""
    resources: list[SkillFile] | Literal["dynamic"]
    """The files, or "dynamic" if they cannot be known in advance."""
    meta: Meta | None = field(name="_meta", default=None)
    """The `_meta` of the entry."""
    problem: str | None = None
    """Why the skill cannot be read; set by the client only."""

    @property
    def name(self) -> str:
        """The name of the skill. A name is only a label: two skills may have the same name."""
        return str(self.frontmatter.get("name", ""))

    @property
    def description(self) -> str:
        """What the skill does and when to use it."""
        return str(self.frontmatter.get("description", ""))

    @property
    def root(self) -> str:
        """The URI of the skill's folder."""
        return self.uri.removesuffix(f"/{SKILL_MD}")

    @property
    def manifest(self) -> list[SkillFile]:
        """The files as listed; empty if the skill is dynamic."""
        return [] if self.resources == DYNAMIC else self.resources

    @property
    def files(self) -> dict[str, SkillFile]:
        """The files by path."""
        root = self.root
        return {path_within(root, file.uri) or "": file for file in self.manifest}

    @property
    def fingerprint(self) -> str | None:
        """A hash that identifies the approved version of the skill. It changes if a file is added,
        removed or changed.

        None if the skill is dynamic, because a dynamic skill can change at any time.
        """
        if self.resources == DYNAMIC:
            return None
        lines = sorted(f"{file.uri} {file.digest}\n" for file in self.resources)
        return sha256("".join([self.uri, "\n", *lines]).encode()).hexdigest()


class ListSkillsResult(CacheHints, kw_only=True):
    """One page of skills. Entries are checked individually, so an invalid entry does not hide the
    others."""

    skills: list[Any]
    next_cursor: str | None = None


class GetSkillResult(CacheHints, kw_only=True):
    """One skill."""

    skill: Any


class ReadDirectoryParams(UriParams, kw_only=True):
    """The params of a request to list a directory."""

    cursor: str | None = None


class ReadDirectoryResult(Result, kw_only=True):
    """One page of a directory listing."""

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
"""The client side of the extension. Only servers declare the skills extension; any client may
request skills."""


def digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def uri_within(root: str, path: str) -> str:
    return f"{root}/{quote(path)}"


def path_within(root: str, uri: str) -> str | None:
    """Return the path of a file in its skill; None if the URI may point outside the skill."""
    below = uri[len(root) + 1 :]
    path = unquote(below) if "%" in below else below
    if (
        not uri.startswith(f"{root}/")
        or path.count("/") != below.count("/")
        or _FORBIDDEN_CHARS.search(path)
    ):
        return None
    return (
        None
        if "?" in below or "#" in below or not _FORBIDDEN_SEGMENTS.isdisjoint(path.split("/"))
        else path
    )


def children(paths: Iterable[str], directory: str) -> set[str]:
    """Return the names in a directory; subdirectories have a trailing slash.

    The result is empty if there is no such directory. If `paths` contains the directory itself,
    with its slash, the result also contains an empty name.
    """
    start = f"{directory}/" if directory else ""
    below = (path[len(start) :] for path in paths if path.startswith(start))
    return {name + slash for name, slash, _ in (path.partition("/") for path in below)}


def check_entry(value: Any, limits: Limits) -> SkillEntry:
    """Return a received entry, with its `problem` set if the entry is invalid."""
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
    """Yield the flaws in an entry, starting with the worst."""
    name, description = (entry.frontmatter.get(key) for key in ("name", "description"))
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"{name!r} is not a valid name: use 1 to 64 characters (a-z, 0-9, single hyphens)"
    if not isinstance(description, str) or not description:
        yield "it has no description"
    if not entry.uri.endswith(f"/{name}/{SKILL_MD}") or "://" not in entry.uri:
        yield f"its URI does not end in /{name}/{SKILL_MD}"
    if entry.resources == DYNAMIC:
        return
    if len(entry.resources) > limits.skill_files:
        yield (
            f"it has {len(entry.resources):,} files; the limit is {limits.skill_files:,} "
            "(Limits.skill_files)"
        )
        return
    size = sum(file.size for file in entry.resources)
    if size > limits.skill_bytes:
        yield (f"it has {size:,} bytes; the limit is {limits.skill_bytes:,} (Limits.skill_bytes)")
    root = entry.root
    paths = [path_within(root, file.uri) for file in entry.resources]
    for path, file in zip(paths, entry.resources, strict=True):
        if path is None:
            yield f"{file.uri} is outside the skill"
        if not _DIGEST.fullmatch(file.digest) or file.size < 0:
            yield f"{file.uri} lacks a valid digest or size"
    if len(set(paths)) < len(paths):
        yield "a file is listed twice"
    if all(file.uri != entry.uri for file in entry.resources):
        yield f"its {SKILL_MD} is not listed among its files"


# The front matter of a SKILL.md: the YAML between its first line, `---`, and the next such line.
#
# A server reads its own files with `portable=True`, which refuses the few plain scalars that
# versions of YAML interpret differently; in quotes they are strings everywhere. A client reads
# files from others, and compares them with the entry, field by field.
# https://agentskills.io/specification

_OPEN, _CLOSE = re.compile(r"\ufeff?---\r?\n"), re.compile(r"^---[ \t]*\r?$\n?", re.MULTILINE)


class FrontMatterError(ValueError):
    """The front matter is missing or cannot be read. The message names the line."""


def parse_frontmatter(text: str, *, portable: bool = False) -> tuple[dict[str, Any], str]:
    """Return the front matter of a SKILL.md, and the text below it."""
    opening = _OPEN.match(text)
    closing = None if opening is None else _CLOSE.search(text, opening.end())
    if opening is None or closing is None:
        raise FrontMatterError(
            "it does not start with front matter (YAML between two lines of ---)"
        )
    if closing.start() - opening.end() > MAX_CHARACTERS:
        raise FrontMatterError(f"its front matter is longer than {MAX_CHARACTERS:,} characters")
    try:
        value = load_yaml(text[opening.end() : closing.start()], portable=portable, first_line=2)
    except YamlError as error:
        raise FrontMatterError(str(error)) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise FrontMatterError(
            "line 2: front matter must be a mapping of keys to values (`key: value`)"
        )
    return value, text[closing.end() :]


def differing_fields(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of the fields that differ. A null field counts as absent."""
    return sorted(
        key for key in one.keys() | other.keys() if not _equal(one.get(key), other.get(key))
    )


def _equal(one: Any, other: Any) -> bool:
    """Compare values as in JSON: 1 and 1.0 are equal, but 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
