"""Read skills, and verify each part before it is used.

    entry       listed by the server or requested by URI; checked as a whole before any file is
                fetched
    SKILL.md    fetched when the skill is read; its size, digest and front matter must match the
                entry
    files       fetched one by one, on request; each must be listed in the entry and match the size
                and digest there

If anything differs, `SkillRefused` is raised and names the difference. Once one file of a skill has
been refused, no other file can be read: the skill has been changed or tampered with, and a new
entry is needed. The digests come from the same server as the files: they show that the files match
the entry, not that the server can be trusted.
https://github.com/modelcontextprotocol/ext-skills/blob/main/specification/stable/skills.mdx
"""

import posixpath
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..connection.extension import settings_of
from ..errors import InvalidRequest, MethodNotFound, SkillRefused
from ..jsonrpc.messages import encode
from ..limits import Limits
from ..protocol.base import ListParams
from ..protocol.resources import UriParams
from .skills import (
    CLIENT,
    DYNAMIC,
    GET,
    ID,
    LIST,
    READ_DIRECTORY,
    SKILL_MD,
    FrontMatterError,
    ReadDirectoryParams,
    SkillEntry,
    SkillFile,
    check_entry,
    children,
    differing_fields,
    digest,
    find_flaws,
    parse_frontmatter,
    path_within,
    uri_within,
)

if TYPE_CHECKING:
    from ..client.client import Client
    from ..protocol.content import ResourceContents

REMEDY = "Fetch its entry again (client.get_skill) and request a new approval"


async def list_skills(client: "Client", limits: Limits, fresh: bool) -> list[SkillEntry]:
    """Return the entries of all skills that the server lists."""
    listed: list[SkillEntry] = []
    left = limits.skills
    async for page in _pages(client, LIST.name, ListParams(), limits, fresh):
        entries = [check_entry(value, limits) for value in page.skills]
        left -= sum(1 + len(entry.manifest) for entry in entries)
        if left < 0:
            raise InvalidRequest(
                f"The server lists more than {limits.skills:,} skills and skill files "
                "(Limits.skills)"
            )
        listed += entries
    return listed


async def get_skill(client: "Client", uri: str, limits: Limits, fresh: bool) -> SkillEntry:
    """Return the entry for a skill, whether or not the skill is listed."""
    entry = check_entry((await _ask(client, GET.name, UriParams(uri=uri), fresh)).skill, limits)
    if entry.uri != uri:
        raise SkillRefused(
            f"{uri}: the server returned the entry for a different skill, {entry.uri!r}",
            "entry",
            uri,
        )
    return entry


async def read_skill(client: "Client", skill: str | SkillEntry, limits: Limits) -> "Skill":
    """Read a skill, and verify that it matches its entry."""
    entry = await get_skill(client, skill, limits, fresh=True) if isinstance(skill, str) else skill
    problem = entry.problem or next(find_flaws(entry, limits), None)
    if problem is not None:
        raise SkillRefused(f"{entry.uri}: {problem}", "entry", entry.uri)
    loaded = Skill(client, entry, limits)
    await loaded._open()
    return loaded


async def _pages(
    client: "Client", method: str, params: Any, limits: Limits, fresh: bool
) -> AsyncIterator[Any]:
    """Yield the pages of a list, within `limits.pages` and `list_bytes`."""
    size = 0
    for _ in range(limits.pages):
        page = await _ask(client, method, params, fresh)
        if size or page.next_cursor is not None:  # `incoming` limits a single page
            size += len(encode(page))
        if size > limits.list_bytes:
            raise InvalidRequest(
                f"{method}: the server's list has more than {limits.list_bytes} bytes "
                "(Limits.list_bytes)"
            )
        yield page
        if page.next_cursor is None:
            return
        params = replace(params, cursor=page.next_cursor)
    raise InvalidRequest(f"{method}: the server's list has more than {limits.pages:,} pages")


async def _ask(client: "Client", method: str, params: Any, fresh: bool) -> Any:
    if client.extensions.extension_method(method, stateless=True) is None:
        client.extensions.add(CLIENT)  # clients do not declare it, so it can be added late
    return await client.request(method, params, fresh=fresh)


class Skill:
    """A skill whose SKILL.md was read and verified. Use it to read the other files.

    Created by `client.read_skill(…)`.

    Args:
        client: The client that reads the files.
        entry: The entry that all files are verified against.
        limits: The client's limits; `skill_bytes` limits the total size of the skill's files.
    """

    def __init__(self, client: "Client", entry: SkillEntry, limits: Limits) -> None:
        self.entry = entry
        """The entry that all files are verified against."""
        self.text = ""
        """The whole SKILL.md."""
        self.body = ""
        """The instructions: the text below the front matter."""
        self._client, self._files = client, entry.files
        self._read: dict[str, ResourceContents] = {}
        self._limits, self._left = limits, limits.skill_bytes
        self._refused: SkillRefused | None = None

    def __repr__(self) -> str:
        return f"<Skill {self.entry.uri}>"

    @property
    def name(self) -> str:
        """The name of the skill."""
        return self.entry.name

    @property
    def description(self) -> str:
        """What the skill does and when to use it."""
        return self.entry.description

    @property
    def frontmatter(self) -> dict[str, Any]:
        """The front matter, which is the same in the entry and in the file.

        Requests in the front matter (`allowed-tools`) are not granted automatically.
        """
        return self.entry.frontmatter

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files; empty if the skill is dynamic."""
        return tuple(sorted(self._files))

    async def read(self, path: str) -> "ResourceContents":
        """Return the contents of a file: `.text`, or `.data` as bytes. Each file is fetched once.

        Args:
            path: The path of the file in the skill, or its URI.

        Raises:
            SkillRefused: The file is not listed in the entry, or does not match it.
        """
        skill_path = self._path(path)
        known = self._read.get(skill_path)
        if known is not None:
            return known
        if self._refused is not None:
            raise SkillRefused(
                f"{path} was not read, because {self._refused}",
                self._refused.what,
                self._refused.uri,
            )
        uri = (
            uri_within(self.entry.root, skill_path)
            if self.entry.resources == DYNAMIC
            else self._files[skill_path].uri
        )
        contents = await self._client.read_resource(uri, fresh=True)
        try:
            self._read[skill_path] = self._verified(contents, uri, self._files.get(skill_path))
        except SkillRefused as refusal:
            self._refused = refusal
            raise
        return self._read[skill_path]

    async def list(self, path: str = "") -> Sequence[str]:
        """Return the names in a directory of the skill; subdirectories have a trailing slash.

        Args:
            path: The path of the directory (default: the skill's folder).

        Raises:
            SkillRefused: There is no such directory in the skill.
            MethodNotFound: The skill is dynamic, and the server does not list directories.
        """
        skill_path = "" if path in ("", ".") else self._normal(path)
        found = (
            await self._list_directory(skill_path)
            if self.entry.resources == DYNAMIC
            else children(self._files, skill_path)
        )
        if not found and self.entry.resources != DYNAMIC:
            raise self._unlisted(path)
        return sorted(found)

    async def _open(self) -> None:
        contents = await self.read(SKILL_MD)
        if contents.text is None:
            raise SkillRefused(f"{contents.uri} is not text", "contents", contents.uri)
        try:
            frontmatter, self.body = parse_frontmatter(contents.text)
        except FrontMatterError as problem:
            raise SkillRefused(f"{contents.uri}, {problem}", "frontmatter", contents.uri) from None
        if different := differing_fields(frontmatter, self.entry.frontmatter):
            raise SkillRefused(
                f"{contents.uri}: its front matter and its entry differ in "
                f"{', '.join(different)}. {REMEDY}",
                "frontmatter",
                contents.uri,
            )
        self.text = contents.text

    def _path(self, path: str) -> str:
        skill_path = self._normal(path)
        if self.entry.resources != DYNAMIC and skill_path not in self._files:
            raise self._unlisted(path)
        return skill_path

    def _normal(self, path: str) -> str:
        root = self.entry.root
        skill_path = path_within(
            root, path if "://" in path else uri_within(root, posixpath.normpath(path))
        )
        if skill_path is None:
            raise SkillRefused(f"{path} points outside the skill {root}", "unlisted", path)
        return skill_path

    def _unlisted(self, path: str) -> SkillRefused:
        return SkillRefused(f"{path} is not a file in {self.entry.uri}", "unlisted", path)

    def _verified(
        self, contents: "Sequence[ResourceContents]", uri: str, file: SkillFile | None
    ) -> "ResourceContents":
        """Return the contents of a file if they match the entry or, for a dynamic skill, fit the
        limit."""
        if len(contents) != 1 or contents[0].uri != uri:
            raise SkillRefused(f"{uri}: the server did not return this file", "contents", uri)
        try:
            data = contents[0].data
        except ValueError:
            raise SkillRefused(
                f"{uri}: the contents of this file cannot be decoded", "contents", uri
            ) from None
        if file is None:  # a dynamic skill: count the bytes
            self._left -= len(data)
            if self._left < 0:
                raise SkillRefused(
                    f"{uri}: the skill is larger than Limits.skill_bytes", "size", uri
                )
        elif len(data) != file.size:
            raise SkillRefused(
                f"{uri} has {len(data):,} bytes, but its entry lists {file.size:,}. {REMEDY}",
                "size",
                uri,
            )
        elif (found := digest(data)) != file.digest:
            raise SkillRefused(
                f"{uri} has the digest {found}, but its entry lists {file.digest}. {REMEDY}",
                "digest",
                uri,
            )
        return contents[0]

    async def _list_directory(self, skill_path: str) -> set[str]:
        """Return the names in a directory of a dynamic skill, as the server lists them."""
        if (settings_of(ID, self._client.capabilities) or {}).get("directoryRead") is not True:
            raise MethodNotFound(
                f"{READ_DIRECTORY.name}: the server does not support listing directories, so "
                f"{self} "
                "cannot be listed"
            )
        root = self.entry.root
        directory_uri = uri_within(root, skill_path) if skill_path else root
        found: set[str] = set()
        async for page in _pages(
            self._client,
            READ_DIRECTORY.name,
            ReadDirectoryParams(uri=directory_uri),
            self._limits,
            fresh=True,
        ):
            for child in page.resources:
                path = path_within(directory_uri, child.uri)
                if path is not None and "/" not in path:
                    found.add(path + "/" * (child.mime_type == "inode/directory"))
            if len(found) > self._limits.skill_files:
                raise InvalidRequest(
                    f"{directory_uri} has more than {self._limits.skill_files:,} files "
                    "(Limits.skill_files)"
                )
        return found
