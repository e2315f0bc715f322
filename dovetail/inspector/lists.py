"""The lists of a server, as it sent them."""

from typing import Any

import msgspec
from msgspec import Raw

from .. import Client
from ..errors import InvalidRequest
from ..limits import DEFAULT

RawLists = dict[str, list[Raw] | None]
"""The items of each list as they were sent; None if the server does not offer the list."""
LIST_METHODS = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}
"""The method and the field of each list."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises if the text is not valid JSON, not valid UTF-8, or nested too deeply."""


async def read_list(client: Client, method: str, field: str) -> list[Raw]:
    """Return all items of a list, from all pages.

    Args:
        client: The client.
        method: The method that lists them.
        field: The field of the result that contains them.

    Raises:
        InvalidRequest: The list is not valid, or has too many pages.
    """
    items: list[Raw] = []
    cursor: str | None = None
    for _ in range(DEFAULT.pages):
        params = None if cursor is None else {"cursor": cursor}
        result = await client.relay(method, params, safe=True)
        try:
            page: dict[str, Raw] = msgspec.json.decode(result, type=dict[str, Raw])
            items += msgspec.json.decode(page.get(field, b"[]"), type=list[Raw])
            cursor = msgspec.json.decode(page.get("nextCursor", b"null"), type=str | None)
        except UNREADABLE as problem:
            raise InvalidRequest(f"{method}: the server's list is not valid: {problem}") from None
        if cursor is None:
            return items
        if len(items) > DEFAULT.list_items:
            break
    raise InvalidRequest(f"{method}: the server's list has too many pages or items")


def decode_lists(lists: RawLists) -> dict[str, list[Any] | None]:
    """Return the lists in the form that `describe_changes` compares. Items that cannot be decoded
    are None."""
    return {
        name: None if items is None else [_decode_item(item) for item in items]
        for name, items in lists.items()
    }


def _decode_item(item: Raw) -> Any:
    try:
        return msgspec.json.decode(item)
    except UNREADABLE:
        return None
