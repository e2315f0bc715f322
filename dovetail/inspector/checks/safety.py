"""The rules about texts and fields that can deceive a person or a model."""

import re
from collections.abc import Iterator
from typing import Any, Final

from ...protocol.tools import ToolAnnotations
from ...text import closest_name, escape_unsafe, one_line, quote
from .listing import ListedItem, ServerListing
from .rules import Finding, FindingPlace, found
from .schema_walk import types_of, walk_schema

MAX_TEXTS: Final = 20_000
_NOT_SHOWN: Final = ("_meta", "icons")
"""Fields that no model reads."""
_OTHER_TOOLS: Final = r"(?:other|another) (?:\w+ )?tools?\b"
TEXT_RULES: Final = {
    "mentions-other-tools": re.compile(
        rf"\b(?:before|after|when|whenever|instead of|while) (?:\w+ ){{0,4}}?{_OTHER_TOOLS}"
        rf"|\b(?:do not|don't|never|must not) (?:use|call|trust) (?:\w+ ){{0,2}}?{_OTHER_TOOLS}"
        r"|\b(?:other|all) tools? (?:must|should|have to|has to|need to|are deprecated)\b",
        re.IGNORECASE,
    ),
    "asks-for-secrecy": re.compile(
        r"\b(?:do not|don't|never|must not|without) (?:\w+ ){0,2}?"
        r"(?:tell|telling|mention|mentioning|reveal|revealing|inform|informing|notify|notifying"
        r"|disclose|disclosing|let) (?:\w+ ){0,3}?(?:user|users|human|person|anyone|anybody)\b"
        r"|\bkeep (?:this|it|that) (?:a )?(?:secret|hidden|confidential)\b"
        r"|\bhide (?:this|it|that) from\b|\b(?:secretly|silently) (?:send|read|call|add|include)\b",
        re.IGNORECASE,
    ),
    "commands-model": re.compile(
        r"\b(?:ignore|disregard|forget|override) (?:\w+ ){0,2}?"
        r"(?:previous|prior|earlier|above|system) (?:\w+ )?"
        r"(?:instructions?|prompts?|messages?|rules?)\b"
        r"|<(?:important|system|secret|instructions?|admin)>|\[(?:system|inst)\]"
        r"|\byou (?:are now|must now|must always first)\b",
        re.IGNORECASE,
    ),
}  # fmt: skip
"""What the text of a hostile server often says. These are heuristics: their level is info."""
_URL: Final = re.compile(r"(?:https?|wss?|ftp)://[^\s\"'<>]+", re.IGNORECASE)
_ICON: Final = re.compile(r"https:|data:", re.IGNORECASE)
_PAGE_TOKEN: Final = re.compile(
    r"(?:page|next|prev(?:ious)?|continu\w*|pagination|cursor|sync|skip|progress|start|csrf|last|max"
    r"|stop|resum\w*)[ _-]?token",
    re.IGNORECASE,
)
_VARIABLE: Final = re.compile(r"[A-Za-z0-9_.]+(?=[^{}]*\})")


def check_safety(item: ListedItem) -> Iterator[Finding]:
    """Check one item."""
    seen = {key: value for key, value in item.fields.items() if key not in _NOT_SHOWN}
    yield from _check_invisible(item, seen)
    for path, text in model_texts(item):
        yield from _check_text(item.place(path), text)
    yield from _check_annotations(item)
    yield from _check_icons(item)
    yield from _check_secrets(item)
    for node in walk_schema(item.fields.get("inputSchema"), "inputSchema"):
        default = node.schema.get("default")
        for url in dict.fromkeys(_find_urls(default)):
            word = "is" if isinstance(default, str) else "contains"
            yield found("default-url", item.place(node.path), f"The default {word} {quote(url)}")


def _find_urls(value: Any) -> Iterator[str]:
    """Yield the first URL of each text in a value."""
    waiting = [value]
    for _ in range(MAX_TEXTS):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, str):
            if url := _URL.search(one):
                yield url[0]
        elif isinstance(one, dict):
            waiting += reversed([*one.keys(), *one.values()])
        elif isinstance(one, list):
            waiting += reversed(one)


def check_instructions(listing: ServerListing) -> Iterator[Finding]:
    """Check the instructions of the server."""
    place = FindingPlace("server", path="instructions")
    if hidden := _invisible(listing.instructions):
        yield found("invisible-characters", place, hidden)
    yield from _check_text(place, listing.instructions)


def model_texts(item: ListedItem) -> Iterator[tuple[str, str]]:
    """Yield each title and description that a model reads, with its path.

    Args:
        item: An item of a list.
    """
    for field in ("title", "description"):
        if text := item.text(field):
            yield field, text
    for field in ("inputSchema", "outputSchema"):
        for node in walk_schema(item.fields.get(field), field):
            for key in ("title", "description", "$comment"):
                if isinstance(value := node.schema.get(key), str):
                    yield f"{node.path}/{key}", value
    arguments = item.fields.get("arguments")
    for one in arguments if isinstance(arguments, list) else ():
        for key in ("title", "description") if isinstance(one, dict) else ():
            if isinstance(value := one.get(key), str):
                yield f"arguments/{one.get('name')}/{key}", value


def _check_text(place: FindingPlace, text: str) -> Iterator[Finding]:
    line = " ".join(text.split())
    for rule, pattern in TEXT_RULES.items():
        if match := pattern.search(line):
            start = max(0, match.start() - 30)
            yield found(rule, place, f"It says: “{one_line(line[start : match.end() + 40], 160)}”")


def _check_invisible(item: ListedItem, value: Any) -> Iterator[Finding]:
    waiting: list[tuple[str, Any]] = [("", value)]
    for _ in range(MAX_TEXTS):
        if not waiting:
            return
        path, one = waiting.pop()
        if isinstance(one, str) and (hidden := _invisible(one)):
            yield found("invisible-characters", item.place(path), hidden)
        elif isinstance(one, list):
            waiting += [(f"{path}/{number}", inner) for number, inner in enumerate(one)]
        elif isinstance(one, dict):
            waiting += [(f"{path}/{key}".lstrip("/"), inner) for key, inner in one.items()]
            for key in one:
                if hidden := _invisible(key):
                    yield found("invisible-characters", item.place(path), hidden)


def _invisible(text: str) -> str:
    """Describe the invisible characters of a text; an empty string if there are none."""
    text = text.replace("\r\n", "\n")
    if escape_unsafe(text, keep_newlines=True) == text:
        return ""
    unsafe = [
        char for char in dict.fromkeys(text) if escape_unsafe(char, keep_newlines=True) != char
    ]
    codes = [f"U+{ord(char):04X}" for char in unsafe or ["\u200d"]]
    return f"It contains {', '.join(codes[:5])}{' …' if len(codes) > 5 else ''}"


def _check_annotations(item: ListedItem) -> Iterator[Finding]:
    annotations = item.fields.get("annotations")
    if item.source.kind != "tool" or not isinstance(annotations, dict):
        return
    place = item.place("annotations")
    if annotations.get("readOnlyHint") is True and annotations.get("destructiveHint") is True:
        message = "readOnlyHint and destructiveHint are both true"
        yield found("annotations-contradict", place, message)
    known = {*ToolAnnotations.known.values()}
    for key in annotations:
        close = closest_name(key, known, cutoff=0.8) if key not in known else None
        if close:
            message = f"{quote(key, 64)} is probably meant to be {close}"
            yield found("annotation-unknown", place, message)


def _check_icons(item: ListedItem) -> Iterator[Finding]:
    icons = item.fields.get("icons")
    for icon in icons if isinstance(icons, list) else ():
        src = icon.get("src") if isinstance(icon, dict) else None
        if isinstance(src, str) and not _ICON.match(src):
            yield found("icon-url", item.place("icons"), f"The URL is {quote(src)}")


def _check_secrets(item: ListedItem) -> Iterator[Finding]:
    from ...server.forms import find_secret

    for path, name in _argument_names(item):
        word = find_secret(name)
        if word and not _PAGE_TOKEN.search(re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", name)):
            message = f"{quote(name, 64)} looks like a secret"
            yield found("asks-for-secret", item.place(path), message)


def _argument_names(item: ListedItem) -> Iterator[tuple[str, str]]:
    for node in walk_schema(item.fields.get("inputSchema"), "inputSchema"):
        if node.keyword == "properties" and not types_of(node.schema) & {"boolean", "number"}:
            yield node.path, node.name
    arguments = item.fields.get("arguments")
    for one in arguments if isinstance(arguments, list) else ():
        if isinstance(one, dict) and isinstance(name := one.get("name"), str):
            yield f"arguments/{name}", name
    if item.source.kind == "template":
        for match in _VARIABLE.finditer(item.name):
            yield "uriTemplate", match[0]
