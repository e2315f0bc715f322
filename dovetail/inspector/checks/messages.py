"""The rules about the protocol: the messages themselves, and what other revisions make of them."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import FieldInfo, fields

from ...protocol.base import Wire, open_hook
from ...revisions import OFFICIAL, Revision
from ...revisions.lowering import lookup
from ...text import one_line, quote
from .listing import UNREADABLE, ListedItem, ListedPage, ServerListing
from .rules import Finding, FindingPlace, found

_IGNORED: Final = ("_meta", "icons")
"""Fields whose loss changes nothing that a model sees."""


def check_messages(listing: ServerListing) -> Iterator[Finding]:
    """Check what the server sent against the revision, and what other revisions lose."""
    for method, problem in listing.failures.items():
        place = FindingPlace("server", path=method)
        yield found("list-failed", place, f"{method}: {one_line(problem)}")
    for page in listing.pages:
        yield from _check_page(listing.revision, page)
    for item in listing.items:
        yield from _check_item(listing.revision, item)
    yield from _check_older_revisions(listing)


def _check_page(revision: Revision, page: ListedPage) -> Iterator[Finding]:
    source, place = page.source, FindingPlace("server", path=page.source.method)
    try:
        values = msgspec.json.decode(page.raw, type=dict[str, msgspec.Raw])
    except UNREADABLE as error:
        yield found("invalid-message", place, f"{source.method}: {one_line(str(error))}")
        return
    by_name = {field.name: field for field in fields(source.result)}
    stamped = lookup(revision.stamp, source.result) or {}
    needed = [source.field, *(by_name[name].encode_name for name in stamped)]
    for name in needed:
        if name not in values:
            yield found("missing-field", place, f"The result of {source.method} has no {name}")
    others = {field.encode_name: field for field in by_name.values() if field.encode_name in values}
    for name, field in others.items():
        if name == source.field:
            yield from _check_array(page, values[name])
        else:
            yield from _check_value(place, field, bytes(values[name]), f"{source.method}: ")


def _check_array(page: ListedPage, raw: msgspec.Raw) -> Iterator[Finding]:
    place = FindingPlace("server", path=page.source.method)
    try:
        parts = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except UNREADABLE:
        yield found("invalid-message", place, f"{page.source.field} is not an array")
        return
    for number, part in enumerate(parts, 1):
        if bytes(part)[:1] != b"{":
            message = f"Item {number} of {page.source.method} is not an object"
            yield found("invalid-message", place, message)


def _check_item(revision: Revision, item: ListedItem) -> Iterator[Finding]:
    for key in repeated_keys(item.raw):
        yield found("repeated-key", item.place(), f"{quote(key, 64)} is repeated")
    known = {field.encode_name: field for field in fields(item.source.item)}
    values = msgspec.json.decode(item.raw, type=dict[str, msgspec.Raw])
    for name, field in known.items():
        if name in values:
            yield from _check_value(item.place(name), field, bytes(values[name]))
        elif field.required:
            yield found("missing-field", item.place(), f"The {item.source.kind} has no {name}")
    for name in values.keys() - known.keys():
        yield found("unknown-field", item.place(name), f"No revision has {quote(name, 64)}")
    for name in _lost_fields(revision, item):
        message = f"{name} is not part of revision {revision.name}"
        yield found("other-revision-field", item.place(name), message)


def _check_value(
    place: FindingPlace, field: FieldInfo, raw: bytes, prefix: str = ""
) -> Iterator[Finding]:
    if raw == b"null" and field.type is not Any:
        yield found("null-field", place, f"{prefix}{field.encode_name} is null")
        return
    try:
        msgspec.json.decode(raw, type=field.type, dec_hook=open_hook)
    except UNREADABLE as error:
        message = f"{prefix}{field.encode_name}: {one_line(str(error))}"
        yield found("invalid-message", place, message)


def repeated_keys(raw: bytes) -> list[str]:
    """Return the keys that occur twice in one object, anywhere in a JSON text.

    Args:
        raw: The text.
    """
    repeated: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(key for key, _ in pairs)
        repeated.extend(key for key, count in counts.items() if count > 1)
        return {}

    try:
        json.loads(raw, object_pairs_hook=collect, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(repeated))


# what other revisions lose


def _lost_fields(revision: Revision, item: ListedItem) -> list[str]:
    """Return the fields of an item that a revision lacks."""
    kind: type[Wire] = item.source.item
    absent = lookup(revision.absent, kind) or ()
    names = [field.encode_name for field in fields(kind) if field.name in absent]
    return [name for name in names if name in item.fields and name not in _IGNORED]


def _check_older_revisions(listing: ServerListing) -> Iterator[Finding]:
    if listing.revision not in OFFICIAL:
        return
    older = OFFICIAL[: OFFICIAL.index(listing.revision)]
    present = set(_lost_anywhere(listing.revision, listing))
    for revision in reversed(older):
        lost = Counter(name for name in _lost_anywhere(revision, listing))
        new = {name: count for name, count in lost.items() if name not in present}
        present |= {*new}
        if new:
            names = ", ".join(
                f"{name} ({count} item{'s'[: count - 1]})" for name, count in new.items()
            )
            message = f"Up to revision {revision.name}: {names}"
            yield found("older-revisions-lose", FindingPlace("server"), message)


def _lost_anywhere(revision: Revision, listing: ServerListing) -> Iterator[str]:
    for item in listing.items:
        yield from _lost_fields(revision, item)
