"""Media types of bodies: which one to use if there are several, and how to write it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

BodyKind: TypeAlias = Literal["json", "multipart", "form", "text", "binary"]
"""How a body is written: as JSON, as one of the two kinds of forms, as text, or as bytes."""

FORM: Final = "application/x-www-form-urlencoded"
_ORDER: Final[tuple[BodyKind, ...]] = ("json", "multipart", "form", "text", "binary")
_WRITTEN_AS: Final[Mapping[BodyKind, str]] = {
    "json": "application/json",
    "multipart": "multipart/form-data",
    "form": FORM,
    "text": "text/plain",
    "binary": "application/octet-stream",
}
"""What to write for a media type with a wildcard."""


def essence(media_type: str) -> str:
    """Return a media type in lower case and without parameters."""
    return media_type.partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON, such as application/json or application/hal+json."""
    kind = essence(media_type)
    return kind.endswith(("/json", "+json"))


def is_text(media_type: str) -> bool:
    """Return whether a media type is text that a model can read."""
    kind = essence(media_type)
    return kind.startswith("text/") or kind.endswith(
        ("/xml", "+xml", "/yaml", "+yaml", "/x-yaml", "/javascript", "/x-ndjson", "/jsonl", FORM)
    )


def body_kind(media_type: str, schema: Mapping[str, Any] | None = None) -> BodyKind:
    """Return how to write a body. A media type that is not known is JSON if its schema describes
    more than a string."""
    kind = essence(media_type)
    if is_json(kind):
        return "json"
    if kind.startswith("multipart/"):
        return "multipart"
    if kind == FORM:
        return "form"
    if is_text(kind):
        return "text"
    if not schema:
        return "json" if kind == "*/*" else "binary"
    is_structured = schema.get("type") in ("object", "array") or "properties" in schema
    return "json" if is_structured else "binary"


def choose_media(media_types: Iterable[str]) -> str | None:
    """Return the media type to send, if there is one: the one that a model can write best."""
    return min(media_types, key=lambda media: _ORDER.index(body_kind(media)), default=None)


def content_type(media_type: str, kind: BodyKind) -> str:
    """Return the header Content-Type for a body."""
    return _WRITTEN_AS[kind] if "*" in media_type or "/" not in media_type else media_type
