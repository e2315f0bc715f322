"""The rules about names, URIs and the lists as a whole."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ...errors import SchemaError
from ...protocol.tools import MAX_NAME_CHARS, RECOMMENDED_NAME_CHARS
from ...protocol.uri_template import UriTemplate
from ...text import quote
from .listing import ListedItem, ServerListing
from .rules import Finding, FindingPlace, found
from .schema_walk import types_of
from .schemas import BEDROCK_ROOT, DEFINITIONS

MAX_LIST_CHARS: Final = 25_000
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_DOTTED_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x1f<>\"{}|\\^`]*")


def check_name(item: ListedItem) -> Iterator[Finding]:
    """Check the name or the URI of one item."""
    kind, name = item.source.kind, item.name
    if kind == "resource" and not _URI.fullmatch(name):
        yield found("uri-invalid", item.place("uri"), f"{quote(name)} is not a URI")
    elif kind == "template":
        try:
            UriTemplate(name)
        except SchemaError as error:
            yield found("uri-invalid", item.place("uriTemplate"), str(error))
    elif kind in ("tool", "prompt"):
        yield from _check_callable_name(item)


def _check_callable_name(item: ListedItem) -> Iterator[Finding]:
    name, place = item.name, item.place("name")
    if not _DOTTED_NAME.fullmatch(name):
        others = "".join(dict.fromkeys(re.sub(r"[A-Za-z0-9_.-]", "", name)))
        message = f"The name has {quote(others, 20)}" if name else "The name is empty"
        yield found("name-characters", place, message)
    elif item.source.kind == "tool" and not _NAME.fullmatch(name):
        yield found("name-dot", place, f"The name is {quote(name, 64)}")
    if len(name) > MAX_NAME_CHARS:
        yield found("name-too-long", place, f"The name has {len(name)} characters")
    elif len(name) > RECOMMENDED_NAME_CHARS:
        yield found("name-long", place, f"The name has {len(name)} characters")


def check_lists(listing: ServerListing) -> Iterator[Finding]:
    """Check what concerns several items."""
    yield from _check_same_names(listing)
    yield from _check_sizes(listing)
    yield from _check_roots(listing)


def _check_same_names(listing: ServerListing) -> Iterator[Finding]:
    counts = Counter((item.source.kind, item.name) for item in listing.items)
    for (kind, name), count in counts.items():
        if count > 1:
            place = FindingPlace(kind, name, "")
            yield found("name-duplicate", place, f"{count} {kind}s have this name")
    similar: dict[str, str] = {}
    for item in listing.of("tool"):
        folded = re.sub("[_.-]", "", item.name).casefold()
        other = similar.setdefault(folded, item.name)
        if other != item.name:
            yield found("name-similar", item.place("name"), f"There is {quote(other, 64)}, too")


def _check_sizes(listing: ServerListing) -> Iterator[Finding]:
    sizes: Counter[str] = Counter()
    for item in listing.items:
        sizes[item.source.method] += len(item.raw.decode(errors="replace"))
    for method, size in sizes.items():
        if size > MAX_LIST_CHARS:
            place = FindingPlace("server", path=method)
            yield found("list-too-long", place, f"{method} has {size:,} characters")


def _check_roots(listing: ServerListing) -> Iterator[Finding]:
    """Report the types of schemas, and keywords at their roots, which many tools have in common, so
    they are reported once."""
    keywords: Counter[str] = Counter()
    tools = 0
    for item in listing.of("tool"):
        schema = item.fields.get("inputSchema")
        if isinstance(schema, dict):
            others = [key for key in schema if key not in (*BEDROCK_ROOT, *DEFINITIONS)]
            keywords.update(others)
            tools += bool(others)
            if types_of(schema) != {"object"} or isinstance(schema["type"], list):
                yield found("input-not-object", item.place("inputSchema"), _describe(schema))
        yield from _check_output(listing, item)
    if keywords:
        names = ", ".join(quote(key, 40) for key, _ in keywords.most_common(6))
        message = f"{tools} tool{'s'[: tools - 1]}: {names}"
        yield found("root-keywords", FindingPlace("server", path="tools/list"), message)


def _check_output(listing: ServerListing, item: ListedItem) -> Iterator[Finding]:
    schema = item.fields.get("outputSchema")
    if isinstance(schema, dict) and schema.get("type") != "object":
        rule = "output-newest-only" if listing.revision.stateless else "output-not-object"
        yield found(rule, item.place("outputSchema"), _describe(schema))


def _describe(schema: dict[str, object]) -> str:
    kinds = sorted(types_of(schema))
    return f"The type is {', '.join(kinds)}" if kinds else "The root has no type"
