"""What a server lists: its tools, prompts, resources, resource templates and skills.

Lists are read through `Client.relay`, so that nothing that a server says about itself is lost.
Each item keeps its fields as they were received. A catalog is a snapshot: it is replaced, never
changed, so its readers always see one consistent state.
"""

from collections.abc import Mapping
from functools import cached_property
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from ..errors import InvalidRequest, MethodNotFound, SchemaError
from ..extensions.skills import SkillEntry
from ..limits import Limits
from ..logs import get_logger
from ..protocol.base import Implementation
from ..protocol.decoding import decode
from ..protocol.header_params import HeaderParam, find_header_params
from ..protocol.lifecycle import ServerCapabilities
from ..protocol.prompts import Prompt
from ..protocol.resources import Resource, ResourceTemplate
from ..protocol.tasks import TaskForm
from ..protocol.tools import Tool
from ..text import quote
from .consent.pins import digest, pinned_text
from .naming import KINDS, Kind

if TYPE_CHECKING:
    from ..client.client import Client

log = get_logger("gateway")


class ListKind(Struct, frozen=True):
    """How one kind of list is read and written."""

    method: str
    """The method that returns the list."""
    field: str
    """The field of the result that contains the items."""
    key: str
    """The field of an item that identifies it."""
    type: Any
    """The type of an item."""
    capability: str
    """The capability of a server that announces changes to it."""


LIST_KINDS: Final[tuple[Kind, ...]] = (*KINDS, "skills")
"""The kinds that a server lists."""
LISTS: Final[Mapping[Kind, ListKind]] = {
    "tools": ListKind("tools/list", "tools", "name", Tool, "tools"),
    "prompts": ListKind("prompts/list", "prompts", "name", Prompt, "prompts"),
    "resources": ListKind("resources/list", "resources", "uri", Resource, "resources"),
    "templates": ListKind(
        "resources/templates/list", "resourceTemplates", "uriTemplate", ResourceTemplate,
        "resources",
    ),
    "skills": ListKind("skills/list", "skills", "uri", SkillEntry, "resources"),
}  # fmt: skip
_decode_page = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_ttl = msgspec.json.Decoder(Annotated[int, Meta(ge=0)]).decode


class ListHints(Struct, frozen=True):
    """How long callers may keep a list, and whether they may share it."""

    ttl_ms: int = 0
    """Milliseconds."""
    is_public: bool = False

    def combined(self, other: "ListHints | None") -> "ListHints":
        """Return the shortest time and the narrowest scope of both.

        Args:
            other: The hints of another part of the same list; None if it has none.
        """
        if other is None:
            return self
        return ListHints(min(self.ttl_ms, other.ttl_ms), self.is_public and other.is_public)


class Item:
    """One item of a list, as the server sent it.

    Attributes:
        kind: The kind of list.
        name: The server's own name, URI or URI template.
        fields: The fields by their names on the wire.
    """

    def __init__(self, kind: Kind, name: str, fields: dict[str, Raw]) -> None:
        self.kind, self.name, self.fields = kind, name, fields

    @cached_property
    def definition(self) -> Any:
        """The item as a `Tool`, `Prompt`, `Resource`, `ResourceTemplate` or `SkillEntry`."""
        return decode(msgspec.json.encode(self.fields), LISTS[self.kind].type)

    @cached_property
    def pinned(self) -> str:
        """All that a model sees of a tool or prompt, as canonical JSON. Of one that is malformed,
        all that the server sent, as a JSON string."""
        try:
            return pinned_text("tool" if self.kind == "tools" else "prompt", self.fields)
        except ValueError:
            sent = msgspec.json.encode(self.fields)
            return msgspec.json.encode(sent.decode("utf-8", "backslashreplace")).decode()

    @cached_property
    def pin(self) -> str:
        """The digest of what a model sees of a tool or prompt."""
        return digest(self.pinned)

    @cached_property
    def header_params(self) -> tuple[HeaderParam, ...]:
        """The parameters of a tool that HTTP requests repeat in their headers."""
        schema = self.fields.get("inputSchema", b"")
        if b"x-mcp-header" not in bytes(schema):
            return ()
        try:
            return find_header_params(msgspec.json.decode(schema))
        except SchemaError:
            return ()  # a client of the server ignores them, too


class ItemList(dict[str, Item]):
    """The items of one list by name, as a server sent them.

    Attributes:
        hints: How long callers may keep the list; None if the server does not offer it.
        expires: When the list has to be read again (`time.monotonic()`).
    """

    hints: ListHints | None = None
    expires: float = inf


class Catalog(Struct, frozen=True, eq=False, kw_only=True):
    """All that one server lists, and what it said about itself when it was opened."""

    info: Implementation | None = None
    instructions: str | None = None
    capabilities: ServerCapabilities = ServerCapabilities()
    tools: Mapping[str, Item] = {}
    prompts: Mapping[str, Item] = {}
    resources: Mapping[str, Item] = {}
    templates: Mapping[str, Item] = {}
    skills: Mapping[str, Item] = {}
    is_stateless: bool = False
    """Whether the server has no sessions, and answers with its questions."""
    knows_parents: bool = False
    """Whether each of its questions says which call it belongs to."""
    tasks: TaskForm = ""
    """The form in which the server runs calls as tasks; empty if it does not."""
    is_from_disk: bool = False
    """Whether this is what the server listed in an earlier run, which may have changed."""

    def items(self, kind: Kind) -> Mapping[str, Item]:
        """Return the items of one kind by their own names."""
        found: Mapping[str, Item] = getattr(self, kind)
        return found

    def find_tool(self, name: str) -> Tool | None:
        """Return a tool; None if it is not listed, or is malformed.

        Args:
            name: The server's own name of the tool.
        """
        item = self.tools.get(name)
        try:
            return None if item is None else item.definition
        except (msgspec.MsgspecError, RecursionError):
            return None


async def read_catalog(client: "Client", limits: Limits) -> Catalog:
    """Return all that a server lists.

    Args:
        client: The client for the server, which is connected.
        limits: The limits on pages, items and bytes.

    Raises:
        InvalidRequest: A list is malformed or too long.
    """
    lists: dict[str, Any] = {kind: await read_list(client, kind, limits) for kind in LIST_KINDS}
    capabilities = client.capabilities
    completes = client.offers("completion/complete")
    if completes and capabilities.completions is None and (lists["prompts"] or lists["templates"]):
        # the first revision has completion, but no capability for it
        capabilities = ServerCapabilities.of({**capabilities, "completions": {}})
    return Catalog(
        info=client.server_info,
        instructions=client.instructions,
        capabilities=capabilities,
        is_stateless=client.is_stateless,
        knows_parents=client.knows_parents,
        tasks=client.task_form,
        **lists,
    )


async def read_list(client: "Client", kind: Kind, limits: Limits) -> ItemList:
    """Return all items of a list by name; an empty list if the server does not offer this kind.

    Args:
        client: The client for the server.
        kind: The kind of list.
        limits: The limits on pages, items and bytes.

    Raises:
        InvalidRequest: The list is malformed or too long.
    """
    row = LISTS[kind]
    items = ItemList()
    cursor: str | None = None
    size = 0
    for _ in range(limits.pages):
        try:
            raw = await client.relay(row.method, {"cursor": cursor} if cursor else None, safe=True)
        except MethodNotFound:
            return items
        size += len(bytes(raw))
        cursor = _add_page(items, kind, raw)
        if len(items) > limits.list_items:
            raise InvalidRequest(
                f"{row.method}: more than {limits.list_items} items (Limits.list_items)"
            )
        if size > limits.list_bytes:
            raise InvalidRequest(
                f"{row.method}: more than {limits.list_bytes} bytes (Limits.list_bytes)"
            )
        if cursor is None:
            return items
    raise InvalidRequest(f"{row.method}: more than {limits.pages} pages (Limits.pages)")


def _add_page(items: ItemList, kind: Kind, raw: Raw) -> str | None:
    """Add the items of one page, and return the cursor of the next."""
    row = LISTS[kind]
    try:
        page = _decode_page(raw)
        for one in _decode_items(page.get(row.field, b"[]")):
            if (item := _read_item(kind, one)) is not None:
                items.setdefault(item.name, item)
        items.hints = hints = read_hints(page).combined(items.hints)
        items.expires = monotonic() + hints.ttl_ms / 1000 if hints.ttl_ms else inf
        cursor = page.get("nextCursor")
        return None if cursor is None or bytes(cursor) == b"null" else _decode_text(cursor)
    except msgspec.MsgspecError as problem:
        raise InvalidRequest(f"The answer to {row.method} is malformed: {problem}") from None


def read_hints(page: Mapping[str, Raw]) -> ListHints:
    """Return the hints of a result. Hints that are missing or malformed count as not cacheable.

    Args:
        page: The fields of the result.
    """
    try:
        ttl_ms = _decode_ttl(page.get("ttlMs", b"0"))
    except msgspec.MsgspecError:
        ttl_ms = 0
    return ListHints(ttl_ms, bytes(page.get("cacheScope", b"")) == b'"public"')


def _read_item(kind: Kind, raw: Raw) -> Item | None:
    """Return an item; None if it is malformed, because then a caller may refuse the whole list."""
    row = LISTS[kind]
    name = "an item"
    try:
        fields = _decode_page(raw)
        name = _decode_text(fields[row.key])
        item = Item(kind, name, fields)
        item.definition  # noqa: B018
    except (msgspec.MsgspecError, KeyError, RecursionError) as problem:
        log.warning("Left out %s of %s, which is malformed: %s", quote(name), row.method, problem)
        return None
    return item
