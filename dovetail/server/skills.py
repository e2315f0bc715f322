"""Folders as skills: what stands behind `server.add_skill`.

A skill is read once, when it is added, and kept: its files are served out of memory, so that what
is served is what its entry says, whatever becomes of the folder. A folder that changes is added
anew. Where contents cannot be known beforehand, a skill is `dynamic`: SKILL.md is kept all the same
(its front matter is in the entry), everything else is read when it is asked for, out of the folder
or by functions registered under its URIs, and there are no digests.

A folder is taken as it is or not at all: a link in it, or a name that not every system can have, is
an error when it is added, not a file that is silently missing. What it may hold is bounded as every
host is bound to accept it.
https://github.com/modelcontextprotocol/ext-skills/blob/main/specification/stable/skills.mdx
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from ..connection.extension import Extension
from ..errors import ConfigError, InvalidParams, NotFound, TooLarge
from ..extensions.skills import wire
from ..extensions.skills.frontmatter import FrontMatterError, parse_frontmatter
from ..extensions.skills.wire import (
    DYNAMIC,
    SKILL_MD,
    GetSkillResult,
    ListSkillsResult,
    ReadDirectoryResult,
    SkillEntry,
    SkillFile,
    uri_within,
)
from ..limits import Limits
from ..ports import Call, CallHandler, Principal
from ..protocol.content import ResourceContents
from ..protocol.resources import Resource
from .caching import Cache, Caching
from .files import DIRECTORY, Directory, contents_of, known_type, plain_path
from .registry import (
    Registry,
    Snapshot,
    make_page,
    parse_scopes,
    require_scopes,
    scopes_in,
    visible_to,
)
from .resources import RegisteredResource

LOOKED_AT = 10_000
"""Entries of a folder that are looked at, before it counts as none that is meant as a skill."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)+")
_REST = "{+path}"
Files = dict[str, bytes]


class RegisteredSkill(Struct, frozen=True, eq=False):
    """A skill in the registry."""

    listed: SkillEntry
    files: Files
    """What is kept of it, by path."""
    folders: list[str]
    """The directories that it had, with a slash behind each."""
    live: Directory | None
    """Where the rest is read, of one that is dynamic."""
    cache: Cache | None = None
    scopes: tuple[str, ...] = ()

    def paths(self) -> set[str]:
        """The paths of all that lies in its folder, with a slash behind those of directories."""
        return {*self.files, *(self.folders if self.live is None else self.live.paths())}

    def read(self, path: str) -> ResourceContents:
        """What one of its files holds."""
        uri = uri_within(self.listed.root, path)
        data = self.files.get(path)
        if data is None and self.live is not None:
            data = self.live.data(path, uri)
        if data is None:
            raise NotFound(f"Resource not found: {uri}", data={"uri": uri})
        return contents_of(data, path, uri)


def load_skill(
    folder: str | Path,
    *,
    uri: str | None = None,
    dynamic: bool = False,
    hidden: bool = False,
    cache: Cache | None = None,
    scopes: Sequence[str] | str = (),
    limits: Limits,
) -> RegisteredSkill:
    """A folder as a skill; ConfigError where it is none."""
    place = Path(folder)
    found = Directory(place, hidden=hidden, limit=limits.skill_bytes)
    paths, folders = _paths(place.resolve(), hidden, limits.skill_files)
    if SKILL_MD not in paths:
        raise ConfigError(f"{place} is no skill: there is no {SKILL_MD} in it")
    files = _kept(found, [SKILL_MD] if dynamic else paths, limits.skill_bytes)
    frontmatter = _frontmatter(files[SKILL_MD], place / SKILL_MD)
    root = _root(frontmatter["name"], place, uri)
    manifest = [
        SkillFile(uri_within(root, path), wire.digest(data), len(data))
        for path, data in files.items()
    ]
    listed = SkillEntry(
        uri=f"{root}/{SKILL_MD}",
        frontmatter=frontmatter,
        resources=DYNAMIC if dynamic else manifest,
    )
    return RegisteredSkill(
        listed,
        files,
        folders,
        found if dynamic else None,
        cache,
        parse_scopes(scopes, f"Skill {listed.uri}"),
    )


def _paths(root: Path, hidden: bool, most: int) -> tuple[list[str], list[str]]:
    """The files of a folder, SKILL.md first, and its directories, with a slash behind each."""
    files: list[str] = []
    folders: list[str] = []
    for looked, (path, mode) in enumerate(
        _walk(root, hidden)
    ):  # not sorted, so that it can stop early
        if stat.S_ISLNK(mode):
            raise ConfigError(
                f"{root / path} is a link, which a skill cannot have; put the file itself there"
            )
        if not plain_path(path) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ConfigError(
                f"{root / path} cannot be served: it is no file, or not every system can have "
                "such a name"
            )
        if stat.S_ISDIR(mode):
            folders.append(f"{path}/")
        else:
            files.append(path)
        if len(files) > most or looked > LOOKED_AT:
            raise ConfigError(
                f"{root} has more than {most:,} files, the most that a skill may have "
                "(Limits.skill_files)"
            )
    return sorted(files, key=lambda path: (path != SKILL_MD, path)), folders


def _walk(root: Path, hidden: bool) -> Iterator[tuple[str, int]]:
    waiting = [""]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(root / here) as entries:
                for found in entries:
                    path = f"{here}/{found.name}" if here else found.name
                    if hidden or not found.name.startswith("."):
                        mode = found.stat(follow_symlinks=False).st_mode
                        waiting += [path] if stat.S_ISDIR(mode) else []
                        yield path, mode
        except OSError as error:
            raise ConfigError(f"{root / here} cannot be read: {error.strerror}") from None


def _kept(found: Directory, paths: Iterable[str], most: int) -> Files:
    files: Files = {}
    left = most
    for path in paths:
        try:
            files[path] = found.data(path, path, left)
        except TooLarge:
            raise ConfigError(
                f"{path}: the skill has more than {most:,} bytes (Limits.skill_bytes)"
            ) from None
        except NotFound:
            raise ConfigError(f"{path} cannot be read, or was changed while it was") from None
        left -= len(files[path])
    return files


def _frontmatter(data: bytes, path: Path) -> dict[str, Any]:
    try:
        about, _ = parse_frontmatter(data.decode(), portable=True)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text in UTF-8") from None
    except FrontMatterError as error:
        raise ConfigError(f"{path}, {error}") from None
    name, description = about.get("name"), about.get("description")
    if not isinstance(name, str) or not wire.NAME.fullmatch(name):
        raise ConfigError(
            f"{path}: {name!r} is no name for a skill; it takes 1 to 64 of a-z, 0-9 and "
            "single hyphens within"
        )
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"{path}: a skill needs a description: what it is good for, and when")
    if (long := len(description)) > wire.MAX_DESCRIPTION_CHARS:
        raise ConfigError(
            f"{path}: the description has {long:,} characters; the limit is "
            f"{wire.MAX_DESCRIPTION_CHARS:,}"
        )
    metadata = about.get("metadata")
    if isinstance(metadata, dict) and any(
        key.startswith(wire.RESERVED_METADATA_PREFIX) for key in metadata
    ):
        raise ConfigError(
            f"{path}: keys of metadata that begin with {wire.RESERVED_METADATA_PREFIX} are reserved"
        )
    return about


def _root(name: str, folder: Path, uri: str | None) -> str:
    """The URI of a skill's folder, which has to end in its name."""
    if uri is None:
        called = folder.resolve().name
        if called != name:
            raise ConfigError(
                f"The folder {folder} is called {called!r}, but its skill {name!r}; let them "
                "agree, or give uri="
            )
        return f"skill://{name}"
    root = uri.removesuffix(f"/{SKILL_MD}")
    if not _URI.fullmatch(root) or not root.endswith(f"/{name}"):
        raise ConfigError(f"{uri!r} is no URI for this skill; write it like 'skill://team/{name}'")
    return root


# what a server says of them


class Skills:
    """The skills of one server, as an extension that it offers."""

    def __init__(
        self,
        served: Registry[RegisteredResource],
        caching: Caching,
        page_size: int | None,
        limits: Limits,
    ) -> None:
        self._served, self._caching, self._page_size, self._limits = (
            served,
            caching,
            page_size,
            limits,
        )
        self.registry: Registry[RegisteredSkill] = Registry(
            "skill", lambda came, went: None
        )  # its resources tell of it
        answers: dict[str, CallHandler] = {
            wire.LIST.name: self._list,
            wire.GET.name: self._get,
            wire.READ_DIRECTORY.name: self._read_directory,
        }
        self.extension = Extension(
            id=wire.ID,
            settings={"directoryRead": True},
            methods=wire.METHODS,
            handlers=answers,
            mutual=False,  # clients declare nothing
        )

    def parts(
        self, entry: RegisteredSkill
    ) -> Iterator[tuple[Callable[..., Any], str, dict[str, Any]]]:
        """What has to be registered for a skill: the function, URI and options of each resource."""
        listed = entry.listed
        options: dict[str, Any] = {"cache": entry.cache, "scopes": entry.scopes}
        about = {
            "name": listed.name,
            "description": listed.description,
            "mime_type": "text/markdown",
        }
        size = len(entry.files[SKILL_MD])

        async def skill_md() -> ResourceContents:
            return entry.read(SKILL_MD)

        async def kept(path: str) -> ResourceContents:
            return entry.read(path)

        def live(path: str) -> ResourceContents:  # on a thread, since it reads a file
            return entry.read(path)

        yield skill_md, listed.uri, about | {"size": size} | options
        rest = {"name": f"{listed.name}/…", "description": f"A file of the skill {listed.name}"}
        yield live if entry.live else kept, template(listed.uri), rest | options

    def holds(self, uri: str) -> bool:
        """Whether this is the URI or the template of a resource that a skill needs."""
        return self.registry.get(uri.replace(_REST, SKILL_MD)) is not None

    async def _list(self, call: Call) -> ListSkillsResult:
        hints = self._caching.hints(call.name)
        if hints and scopes_in(self.registry.now):
            hints["cache_scope"] = "private"

        def make(entries: list[RegisteredSkill], cursor: str | None) -> ListSkillsResult:
            return ListSkillsResult(
                skills=[entry.listed for entry in entries], next_cursor=cursor, **hints
            )

        seen = visible_to(call.principal, self.registry.now)
        return make_page(call, seen, self._page_size, make)  # type: ignore[no-any-return]

    async def _get(self, call: Call) -> GetSkillResult:
        entry = self.registry.get(call.params.uri)
        if entry is None:
            raise InvalidParams(
                f"There is no skill {call.params.uri}", data={"uri": call.params.uri}
            )
        require_scopes(entry, call.principal, f"Skill {call.params.uri}")
        hints = self._caching.hints(call.name, entry.cache)
        if hints and entry.scopes:
            hints["cache_scope"] = "private"
        return GetSkillResult(skill=entry.listed, **hints)

    async def _read_directory(self, call: Call) -> ReadDirectoryResult:
        from .execution import run_in_thread

        look = partial(self._children, call.params.uri, call.principal)
        found = await run_in_thread(look, self._limits)  # what is dynamic has to be looked at

        def make(items: list[Resource], cursor: str | None) -> ReadDirectoryResult:
            return ReadDirectoryResult(resources=items, next_cursor=cursor)

        return make_page(call, Snapshot(found), self._page_size, make)  # type: ignore[no-any-return]

    def _children(self, directory: str, principal: Principal | None) -> dict[str, Resource]:
        """What lies in a directory: of a skill, of several that are one in another, or above
        them."""
        skills = visible_to(principal, self.registry.now).items.values()
        served = visible_to(principal, self._served.now).items
        roots = [f"{skill.listed.root}/" for skill in skills]
        uris = [
            uri for uri in served if uri.startswith(tuple(roots))
        ]  # all SKILL.md, and what functions give
        for root, skill in zip(roots, skills, strict=True):
            if f"{directory}/".startswith(root):
                uris += [uri_within(skill.listed.root, path) for path in skill.paths()]
        found = wire.children(uris, directory) if directory.partition("://")[2] else set()
        if not found:
            raise InvalidParams(f"{directory} is no directory", data={"uri": directory})
        return {
            name: _child(f"{directory}/{name.rstrip('/')}", name, served)
            for name in sorted(found - {""})
        }


def _child(uri: str, name: str, served: Mapping[str, RegisteredResource]) -> Resource:
    known = served.get(uri)
    if known is not None:
        return known.listed
    kind = DIRECTORY if name.endswith("/") else known_type(unquote(name))
    return Resource(uri=uri, name=unquote(name.rstrip("/")), mime_type=kind)


def template(uri: str) -> str:
    """The template that the files of a skill are read by."""
    return f"{uri.removesuffix(SKILL_MD)}{_REST}"
