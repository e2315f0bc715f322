"""Lists, page by page.

A cursor is a position *by name*: the name of the last item of the page before. With pages on, a
list is therefore in order of names, and a cursor stays good while items come and go, and in another
process. With pages off (the default), a list is one page in order of registration.

A page is encoded once per revision and then sent as bytes, for as long as the registry does not
change.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from ..errors import InvalidParams
from ..jsonrpc.codec import encode
from ..ports import Call
from ..revisions import Revision
from .registry import Snapshot

CACHED_PAGES, LONGEST = 1000, 1024
MakePage = Callable[[list[Any], str | None], Any]
"""Makes the result out of the items of a page and the cursor of the next."""


def page(call: Call, snapshot: Snapshot[Any], size: int | None, make: MakePage) -> Any:
    """The page that the call asks for, as a result."""
    cursor = call.params.cursor
    if size is None or not call.revision.paging:
        if cursor is not None and call.revision.paging:
            raise _bad(cursor)
        return make(list(snapshot.items.values()), None)
    names = snapshot.cache.get("names")
    if names is None:
        names = snapshot.cache["names"] = sorted(snapshot.items)
    start = 0 if cursor is None else bisect_right(names, _read(cursor, call.name))
    chosen = names[start : start + size]
    more = start + size < len(names)
    following = _write(chosen[-1], call.name) if more and chosen else None
    return make([snapshot.items[name] for name in chosen], following)


def encoded_page(
    call: Call,
    snapshot: Snapshot[Any],
    size: int | None,
    make: MakePage,
    sign: Callable[[Any, Revision], Any],
) -> Any:
    """The same as bytes, encoded once."""
    key = (call.revision.name, call.params.cursor)
    ready = snapshot.cache.get(key)
    if ready is None:
        result = sign(page(call, snapshot, size, make), call.revision)
        try:
            ready = Raw(encode(call.revision.lower_result(call.method, result)))
        except UnicodeEncodeError:
            return result  # the filter for what leaves knows what to do with a lone surrogate
        if len(snapshot.cache) < CACHED_PAGES and len(call.params.cursor or "") < LONGEST:
            snapshot.cache[key] = ready
    return ready


def _write(name: str, method: str) -> str:
    return urlsafe_b64encode(f"{method}\n{name}".encode()).decode().rstrip("=")


def _read(cursor: str, method: str) -> str:
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        raise _bad(cursor) from None
    head, newline, name = text.partition("\n")
    if not newline or head != method:
        raise _bad(cursor)
    return name


def _bad(cursor: str) -> InvalidParams:
    return InvalidParams(f"{cursor!r} is not a cursor of this list; ask again without one")
