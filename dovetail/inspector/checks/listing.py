"""What a server lists, as it sent it. The rules look at nothing else."""

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from ...errors import DovetailError, MethodNotFound, Unauthorized
from ...limits import DEFAULT
from ...protocol.base import CacheHints, Wire
from ...protocol.prompts import ListPromptsResult, Prompt
from ...protocol.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    Resource,
    ResourceTemplate,
)
from ...protocol.tools import ListToolsResult, Tool
from ...revisions import BY_NAME, Revision
from .rules import FindingPlace, ItemKind

if TYPE_CHECKING:
    from ... import Client


UNREADABLE: Final = (msgspec.MsgspecError, RecursionError)
"""What decoding raises for text that is not JSON, or is nested too deeply."""


class ListMethod(Struct, frozen=True):
    """One of the lists of a server."""

    kind: ItemKind
    method: str
    field: str
    """The field of the result that holds the items."""
    key: str
    """The field of an item that identifies it."""
    item: type[Wire]
    result: type[CacheHints]


LIST_METHODS: Final = (
    ListMethod("tool", "tools/list", "tools", "name", Tool, ListToolsResult),
    ListMethod("resource", "resources/list", "resources", "uri", Resource, ListResourcesResult),
    ListMethod(
        "template", "resources/templates/list", "resourceTemplates", "uriTemplate",
        ResourceTemplate, ListResourceTemplatesResult,
    ),
    ListMethod("prompt", "prompts/list", "prompts", "name", Prompt, ListPromptsResult),
)  # fmt: skip


class ListedItem(Struct, frozen=True, eq=False):
    """An item of a list: its fields as JSON values, by their names on the wire."""

    source: ListMethod
    name: str
    """Its name or URI; its number in the list, if it has none."""
    fields: dict[str, Any]
    raw: bytes

    def place(self, path: str = "") -> FindingPlace:
        return FindingPlace(self.source.kind, self.name, path)

    def text(self, field: str) -> str:
        """Return a field that should be text; an empty string if it is absent or something else."""
        value = self.fields.get(field)
        return value if isinstance(value, str) else ""


class ListedPage(Struct, frozen=True, eq=False):
    """The result of a list request."""

    source: ListMethod
    raw: bytes


class ServerListing(Struct, frozen=True, eq=False):
    """Everything that the rules look at."""

    revision: Revision
    items: tuple[ListedItem, ...] = ()
    pages: tuple[ListedPage, ...] = ()
    instructions: str = ""
    failures: dict[str, str] = {}
    """The lists that the server declares and that could not be read: method and reason."""

    def of(self, kind: ItemKind) -> list[ListedItem]:
        """Return the items of a kind."""
        return [item for item in self.items if item.source.kind == kind]


async def read_listing(client: "Client") -> ServerListing:
    """Read all lists that a server offers, without changing anything in them.

    Args:
        client: A connected client.

    Raises:
        Unauthorized: The server requires a login.
    """
    revision, instructions = BY_NAME[client.revision], client.instructions or ""
    pages: list[ListedPage] = []
    failures: dict[str, str] = {}
    for row in LIST_METHODS:
        if not client.offers(row.method):
            continue
        try:
            await _read_pages(client, row, pages)
        except Unauthorized:
            raise
        except DovetailError as error:
            if row.kind == "template" and isinstance(error, MethodNotFound):
                continue  # many servers with resources have no templates
            failures[row.method] = str(error) or type(error).__name__
    items = [item for page in pages for item in items_of(page)]
    return ServerListing(revision, tuple(items), tuple(pages), instructions, failures)


async def _read_pages(client: "Client", row: ListMethod, pages: list[ListedPage]) -> None:
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(DEFAULT.pages):
        params = None if cursor is None else {"cursor": cursor}
        raw = bytes(await client.relay(row.method, params, safe=True))
        pages.append(ListedPage(row, raw))
        cursor = _next_cursor(raw)
        if cursor is None:
            return
        if cursor in seen:
            raise DovetailError("the server returned the same cursor twice")
        seen.add(cursor)
    raise DovetailError(f"the list has more than {DEFAULT.pages} pages")


def _next_cursor(raw: bytes) -> str | None:
    try:
        cursor = msgspec.json.decode(raw, type=dict[str, Raw]).get("nextCursor", Raw(b"null"))
        return msgspec.json.decode(cursor, type=str | None)
    except UNREADABLE:
        return None


def items_of(page: ListedPage) -> list[ListedItem]:
    """Return the items of a page. What is not an object is left out.

    Args:
        page: The page.
    """
    row = page.source
    try:
        fields = msgspec.json.decode(page.raw, type=dict[str, Raw])
        parts = msgspec.json.decode(fields.get(row.field, b"[]"), type=list[Raw])
    except UNREADABLE:
        return []
    items = []
    for number, raw in enumerate(parts, 1):
        try:
            values = msgspec.json.decode(raw)
        except UNREADABLE:
            continue
        if isinstance(values, dict):
            name = values.get(row.key)
            label = name if isinstance(name, str) else f"#{number}"
            items.append(ListedItem(row, label, values, bytes(raw)))
    return items
