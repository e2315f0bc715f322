"""A server's skills, which are folders that `server.add_skill` serves.

A skill is read once, when it is added, and its files are served from memory. So the served files
always match their entry, even if the folder changes; to serve a changed folder, add it again. A
skill whose contents cannot be known in advance is `dynamic`. Its SKILL.md is still kept in memory,
because its front matter is in the entry. All other files are read on request, from the folder or
through functions that are registered under the skill's URIs, and have no digests.

A folder is served completely or not at all: if it contains a link or a name that some systems do
not allow, adding it fails. So no file is silently omitted. The limits for a skill are the limits
that every host must accept.
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
from ..extensions import skills as extension
from ..extensions.skills import (
    DYNAMIC,
    SKILL_MD,
    FrontMatterError,
    GetSkillResult,
    ListSkillsResult,
    ReadDirectoryResult,
    SkillEntry,
    SkillFile,
    parse_frontmatter,
    uri_within,
)
from ..limits import Limits
from ..ports import Call, Principal
from ..protocol.content import ResourceContents
from ..protocol.resources import Resource
from .caching import Cache, Caching
from .files import DIRECTORY, Directory, contents_of, is_plain_path, known_type
from .registry import (
    Registry,
    Snapshot,
    parse_scopes,
    require_scopes,
    scopes_in,
    select_page,
    visible_to,
)
from .resources import RegisteredResource

MAX_FOLDER_ENTRIES = 10_000
"""The number of folder entries that are read before the folder is refused."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)+")
_REST = "{+path}"
Files = dict[str, bytes]


class RegisteredSkill(Struct, frozen=True, eq=False):
    """A skill in the registry."""

    definition: SkillEntry
    files: Files
    """The contents of the skill's files in memory, by path."""
    folders: list[str]
    """The directories that existed when the skill was added, each with a trailing slash."""
    live: Directory | None
    """The folder of a dynamic skill."""
    cache: Cache | None = None
    scopes: tuple[str, ...] = ()

    def paths(self) -> set[str]:
        """Return the paths of the skill's files, and of its directories with a trailing slash."""
        return {*self.files, *(self.folders if self.live is None else self.live.paths())}

    def read(self, path: str) -> ResourceContents:
        """Return the contents of a file; raise NotFound if there is no such file."""
        uri = uri_within(self.definition.root, path)
        data = self.files.get(path)
        if data is None and self.live is not None:
            data = self.live.read_bytes(path, uri)
        if data is None:
            raise NotFound(f"Resource not found: {uri}", data={"uri": uri})
        return contents_of(data, uri, known_type(path))


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
    """Read a folder as a skill; raise ConfigError if the skill is not valid."""
    path = Path(folder)
    directory = Directory(path, hidden=hidden, limit=limits.skill_bytes)
    paths, folders = _list_folder(path.resolve(), hidden, limits.skill_files)
    if SKILL_MD not in paths:
        raise ConfigError(f"{path} is not a skill: it does not contain a {SKILL_MD}")
    files = _read_files(directory, [SKILL_MD] if dynamic else paths, limits.skill_bytes)
    frontmatter = _frontmatter(files[SKILL_MD], path / SKILL_MD)
    root = _root(frontmatter["name"], path, uri)
    manifest = [
        SkillFile(uri_within(root, name), extension.digest(data), len(data))
        for name, data in files.items()
    ]
    definition = SkillEntry(
        uri=f"{root}/{SKILL_MD}",
        frontmatter=frontmatter,
        resources=DYNAMIC if dynamic else manifest,
    )
    return RegisteredSkill(
        definition,
        files,
        folders,
        directory if dynamic else None,
        cache,
        parse_scopes(scopes, f"Skill {definition.uri}"),
    )


def _list_folder(root: Path, hidden: bool, max_files: int) -> tuple[list[str], list[str]]:
    """Return the files in a folder, SKILL.md first, and its directories with a trailing slash."""
    files: list[str] = []
    folders: list[str] = []
    for count, (path, mode) in enumerate(_walk(root, hidden)):
        if stat.S_ISLNK(mode):
            raise ConfigError(
                f"{root / path} is a link, and a skill cannot contain links; replace it with the "
                "file"
            )
        if not is_plain_path(path) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ConfigError(
                f"{root / path} cannot be served, because it is not a regular file or because "
                "some systems do not allow its name"
            )
        if stat.S_ISDIR(mode):
            folders.append(f"{path}/")
        else:
            files.append(path)
        if len(files) > max_files or count > MAX_FOLDER_ENTRIES:
            raise ConfigError(f"{root} has more than {max_files:,} files (Limits.skill_files)")
    return sorted(files, key=lambda path: (path != SKILL_MD, path)), folders


def _walk(root: Path, hidden: bool) -> Iterator[tuple[str, int]]:
    """Yield the path and mode of each entry, unsorted, so that the caller can stop early."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    if hidden or not entry.name.startswith("."):
                        path = folder + entry.name
                        mode = entry.stat(follow_symlinks=False).st_mode
                        if stat.S_ISDIR(mode):
                            waiting.append(f"{path}/")
                        yield path, mode
        except OSError as error:
            raise ConfigError(f"{root / folder} cannot be read: {error.strerror}") from None


def _read_files(directory: Directory, paths: Iterable[str], max_bytes: int) -> Files:
    files: Files = {}
    remaining = max_bytes
    for path in paths:
        try:
            files[path] = directory.read_bytes(path, path, remaining)
        except TooLarge:
            raise ConfigError(
                f"{path}: the skill has more than {max_bytes:,} bytes (Limits.skill_bytes)"
            ) from None
        except NotFound:
            raise ConfigError(
                f"{path} cannot be read, or was changed while it was being read"
            ) from None
        remaining -= len(files[path])
    return files


def _frontmatter(data: bytes, path: Path) -> dict[str, Any]:
    try:
        frontmatter, _ = parse_frontmatter(data.decode(), portable=True)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except FrontMatterError as error:
        raise ConfigError(f"{path}, {error}") from None
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not extension.NAME.fullmatch(name):
        raise ConfigError(
            f"{path}: {name!r} is not a valid skill name. Use 1 to 64 characters from a-z, "
            "0-9 and single hyphens, without a hyphen at the start or end"
        )
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(
            f"{path}: a skill requires a description that says what it does and when to use it"
        )
    if (long := len(description)) > extension.MAX_DESCRIPTION_CHARS:
        raise ConfigError(
            f"{path}: the description has {long:,} characters; the limit is "
            f"{extension.MAX_DESCRIPTION_CHARS:,}"
        )
    metadata = frontmatter.get("metadata")
    if isinstance(metadata, dict) and any(
        key.startswith(extension.RESERVED_METADATA_PREFIX) for key in metadata
    ):
        raise ConfigError(
            f"{path}: metadata keys that start with {extension.RESERVED_METADATA_PREFIX} are "
            "reserved"
        )
    return frontmatter


def _root(name: str, folder: Path, uri: str | None) -> str:
    """Return the URI of a skill's folder, which must end with the skill's name."""
    if uri is None:
        folder_name = folder.resolve().name
        if folder_name != name:
            raise ConfigError(
                f"The folder {folder} is named {folder_name!r}, but its skill is named {name!r}. "
                "Rename one of them, or pass uri="
            )
        return f"skill://{name}"
    root = uri.removesuffix(f"/{SKILL_MD}")
    if not _URI.fullmatch(root) or not root.endswith(f"/{name}"):
        raise ConfigError(
            f"{uri!r} is not a valid URI for this skill; use the form 'skill://team/{name}'"
        )
    return root


# requests of clients


class Skills:
    """A server's skills, and the extension that serves them."""

    def __init__(
        self,
        served: Registry[RegisteredResource],
        caching: Caching,
        page_size: int | None,
        limits: Limits,
    ) -> None:
        self._served, self._caching = served, caching
        self._page_size, self._limits = page_size, limits
        # Clients are notified of the resources of a skill.
        self.registry: Registry[RegisteredSkill] = Registry("skill", lambda added, removed: None)
        self.extension = Extension(
            id=extension.ID,
            settings={"directoryRead": True},
            methods=extension.METHODS,
            handlers={
                extension.LIST.name: self._list,
                extension.GET.name: self._get,
                extension.READ_DIRECTORY.name: self._read_directory,
            },
            mutual=False,  # clients declare nothing
        )

    def parts(
        self, entry: RegisteredSkill
    ) -> Iterator[tuple[Callable[..., Any], str, dict[str, Any]]]:
        """Yield the function, URI and options of each resource in a skill."""
        definition, name = entry.definition, entry.definition.name
        options: dict[str, Any] = {"cache": entry.cache, "scopes": entry.scopes}
        skill_md_options = {
            "name": name,
            "description": definition.description,
            "mime_type": "text/markdown",
            "size": len(entry.files[SKILL_MD]),
        }
        template_options = {"name": f"{name}/…", "description": f"A file in the skill {name}"}

        async def skill_md() -> ResourceContents:
            return entry.read(SKILL_MD)

        async def from_memory(path: str) -> ResourceContents:
            return entry.read(path)

        def from_folder(path: str) -> ResourceContents:  # runs on a thread
            return entry.read(path)

        yield skill_md, definition.uri, skill_md_options | options
        read = from_folder if entry.live else from_memory
        yield read, template(definition.uri), template_options | options

    def holds(self, uri: str) -> bool:
        """Return whether this is the URI or the template of a resource that belongs to a skill."""
        return self.registry.get(uri.replace(_REST, SKILL_MD)) is not None

    async def _list(self, call: Call) -> ListSkillsResult:
        hints = self._caching.hints(call.name, restricted=bool(scopes_in(self.registry.snapshot)))
        visible = visible_to(call.principal, self.registry.snapshot)
        skills, cursor = select_page(call, visible, self._page_size)
        return ListSkillsResult(
            skills=[skill.definition for skill in skills], next_cursor=cursor, **hints
        )

    async def _get(self, call: Call) -> GetSkillResult:
        entry = self.registry.get(call.params.uri)
        if entry is None:
            raise InvalidParams(f"Unknown skill: {call.params.uri}", data={"uri": call.params.uri})
        require_scopes(entry, call.principal, f"Skill {call.params.uri}")
        hints = self._caching.hints(call.name, entry.cache, restricted=bool(entry.scopes))
        return GetSkillResult(skill=entry.definition, **hints)

    async def _read_directory(self, call: Call) -> ReadDirectoryResult:
        from .execution import run_in_thread

        find_children = partial(self._children, call.params.uri, call.principal)
        # On a thread, because the folder of a dynamic skill is read.
        children: dict[str, Resource] = await run_in_thread(find_children, self._limits)
        resources, cursor = select_page(call, Snapshot(children), self._page_size)
        return ReadDirectoryResult(resources=resources, next_cursor=cursor)

    def _children(self, directory: str, principal: Principal | None) -> dict[str, Resource]:
        """Return the entries of a directory that is inside a skill or contains skills."""
        skills = visible_to(principal, self.registry.snapshot).items.values()
        served = visible_to(principal, self._served.snapshot).items
        roots = [f"{skill.definition.root}/" for skill in skills]
        # every SKILL.md, and resources from functions
        uris = [uri for uri in served if uri.startswith(tuple(roots))]
        for root, skill in zip(roots, skills, strict=True):
            if f"{directory}/".startswith(root):
                uris += [uri_within(skill.definition.root, path) for path in skill.paths()]
        found = extension.children(uris, directory) if directory.partition("://")[2] else set()
        if not found:
            raise InvalidParams(f"{directory} is not a directory", data={"uri": directory})
        return {
            name: _child(f"{directory}/{name.rstrip('/')}", name, served)
            for name in sorted(found - {""})
        }


def _child(uri: str, name: str, served: Mapping[str, RegisteredResource]) -> Resource:
    known = served.get(uri)
    if known is not None and isinstance(known.definition, Resource):
        return known.definition
    kind = DIRECTORY if name.endswith("/") else known_type(unquote(name))
    return Resource(uri=uri, name=unquote(name.rstrip("/")), mime_type=kind)


def template(uri: str) -> str:
    """Return the URI template for the files in a skill."""
    return f"{uri.removesuffix(SKILL_MD)}{_REST}"
