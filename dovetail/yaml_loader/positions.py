"""Find where each value of a YAML text is.

`scan_yaml` returns the value of a text together with the position of each part, so that a program
can change one value in a file and leave every other byte unchanged. It is for the files of other
programs, so it accepts longer texts than `load_yaml`, and anchors, aliases and tags.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .loader import ValueBuilder, build, check_text, parse_events, require_parser

if TYPE_CHECKING:
    from ruamel.yaml.events import Event

MAX_SCAN_CHARACTERS = 5 * 1024 * 1024
MAX_SCAN_DEPTH = 64
MAX_SCAN_VALUES = 200_000
"""The maximum number of values. A value counts again for each of its aliases."""

_COLON = re.compile(r"[ \t]*:")
_ITEM = re.compile(r"(?>(?:[ \t\r\n]++|#[^\r\n]*+)*)-")


class YamlNode(NamedTuple):
    """A value, and its position in the text."""

    value: Any
    style: Literal["block", "flow", "scalar", "alias"]
    """How it is written: as lines, in brackets, as one scalar, or as a reference."""
    start: int
    end: int
    """The end of its text, without white space or comments after it. For a value that is not
    written, the position after the colon or dash."""
    has_properties: bool = False
    """Whether it has an anchor or a tag, which is at `start`."""
    entries: "dict[str, YamlEntry] | None" = None
    """The entries of a mapping, in the order of the text."""


class YamlEntry(NamedTuple):
    """An entry of a mapping."""

    key: YamlNode
    value: YamlNode


def scan_yaml(text: str) -> YamlNode | None:
    """Parse one YAML document, and return its value with the position of each part. A text without
    a value, such as one with only comments, returns None.

    Args:
        text: The document, of at most `MAX_SCAN_CHARACTERS` characters.

    Raises:
        YamlError: The text cannot be read. The message starts with the line and column.
        ConfigError: `ruamel.yaml` is not installed.
    """
    require_parser("install")
    check_text(text, MAX_SCAN_CHARACTERS, 1)
    node: YamlNode | None = build(text, _NodeBuilder(parse_events(text), text))
    return node


class _NodeBuilder(ValueBuilder):
    """A builder that also records positions."""

    max_depth, max_values = MAX_SCAN_DEPTH, MAX_SCAN_VALUES

    def __init__(self, events: "Iterator[Event]", text: str) -> None:
        super().__init__(events, False, 1)
        self._text = text
        self._anchors: dict[str, tuple[Any, int]] = {}

    def _value(self, event: Any, depth: int) -> YamlNode:
        from ruamel.yaml.events import AliasEvent, MappingStartEvent, ScalarEvent

        before = self._left
        self._count(event, depth)
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        if isinstance(event, ScalarEvent):
            node = self._scalar_node(event)
        elif isinstance(event, MappingStartEvent):
            node = self._mapping_node(event, depth)
        else:
            node = self._sequence_node(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node.value, before - self._left
        if event.anchor is None and event.tag is None:
            return node
        return node._replace(has_properties=True)

    def _alias(self, event: Any, depth: int) -> YamlNode:
        if event.anchor not in self._anchors:
            raise self._refuse(event, "this alias has no anchor before it, or is inside its own")
        value, values = self._anchors[event.anchor]
        self._count(event, depth, values)
        return YamlNode(value, "alias", event.start_mark.index, event.end_mark.index)

    def _scalar_node(self, event: Any) -> YamlNode:
        """Return a scalar. One with a tag is a string, whatever the tag means."""
        start, end = event.start_mark.index, event.end_mark.index
        value = event.value if event.tag is not None else self._scalar(event)
        written = self._text[start:end].rstrip()  # a block scalar ends where the next token starts
        return YamlNode(value, "scalar", start, start + len(written))

    def _mapping_node(self, start_event: Any, depth: int) -> YamlNode:
        from ruamel.yaml.events import MappingEndEvent

        entries: dict[str, YamlEntry] = {}
        start = end = start_event.start_mark.index
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._value(event, depth + 1)
            name = key.value if isinstance(key.value, str) else getattr(event, "value", None)
            if not isinstance(name, str):
                raise self._refuse(event, "a key must be a string; put it in quotes")
            if name in entries:
                raise self._refuse(event, f"the key {name!r} occurs twice")
            value = self._value(next(self._events), depth + 1)
            entries[name] = YamlEntry(key, self._place(value, _COLON, key.end))
            end = entries[name].value.end
        values = {name: entry.value.value for name, entry in entries.items()}
        if start_event.flow_style:
            return YamlNode(values, "flow", start, event.end_mark.index, entries=entries)
        return YamlNode(values, "block", start, end, entries=entries)

    def _sequence_node(self, start_event: Any, depth: int) -> YamlNode:
        from ruamel.yaml.events import SequenceEndEvent

        values: list[Any] = []
        start = end = start_event.start_mark.index
        while not isinstance(event := next(self._events), SequenceEndEvent):
            node = self._place(self._value(event, depth + 1), _ITEM, end)
            values.append(node.value)
            end = node.end
        is_flow = start_event.flow_style
        end = event.end_mark.index if is_flow else end
        return YamlNode(values, "flow" if is_flow else "block", start, end)

    def _place(self, node: YamlNode, mark: re.Pattern[str], at: int) -> YamlNode:
        """Return a value that is not written at the position after its colon or dash. The parser
        places it at the next token, which may be many lines later."""
        if node.style != "scalar" or node.start != node.end or node.has_properties:
            return node
        found = mark.match(self._text, at)
        end = found.end() if found else at
        return node._replace(start=end, end=end)
