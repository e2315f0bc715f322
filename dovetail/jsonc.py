"""Read JSON with comments and trailing commas (JSONC), and find where each value is in the text.

`scan` returns the decoded value together with a table of spans, so that a program can change one
value in a file and leave every other byte unchanged:

    document = scan(text)
    document.value["mcpServers"]                    # dicts, lists, strings, numbers, …
    node = document.find("mcpServers", "weather")   # None if there is no such value
    text[node.start : node.end]                     # the value as it is written

    replace   splice the new text in at [start, end)
    delete    remove the text from `entry` to the `comma`. An entry without a comma is the last one:
              remove the comma before it, too, which is the character before `lead`
    insert    splice the new text in after the last child, or after the parent's opening bracket.
              The white space from `lead` to `entry` of a child shows the indentation

JSONC adds the following to JSON: `//` and `/* */` comments wherever white space is allowed, a comma
after the last entry, and a byte order mark. If a key occurs twice, the last occurrence counts, as
in the editors that write such files. Error messages contain the line and the column, but never
repeat the text, which may contain secrets.
"""

import re
from typing import Any, NamedTuple

import msgspec

MAX_DEPTH = 100
"""The maximum nesting depth of objects and arrays."""

# Atomic groups, because a possessive group (`(…)*+`) does not match correctly before Python 3.11.3.
_SPACE = r"(?>(?:[ \t\r\n]++|//[^\r\n]*+|/\*(?s:.*?)\*/)*)"
_TOKEN = re.compile(
    _SPACE + r'(?:(?P<string>"(?>(?:[^"\\\x00-\x1f]++|\\.)*)")'
    r"|(?P<number>-?(?:0|[1-9][0-9]*+)(?>(?:\.[0-9]++)?)(?>(?:[eE][-+]?[0-9]++)?))"
    r"|(?P<word>true|false|null)"
    r"|(?P<mark>[{}\[\],:])"
    r"|(?P<end>\Z))"
)
_ONLY_SPACE = re.compile(_SPACE)
_WORDS = {"true": True, "false": False, "null": None}


class JsoncError(ValueError):
    """The text is not JSONC. The message starts with the line and the column."""


class JsonNode(NamedTuple):
    """The position of one value in the text."""

    lead: int
    """The end of the bracket or comma before its entry. White space and comments may follow."""
    entry: int
    """The start of its entry, which is the key in an object or the value in an array."""
    start: int
    end: int
    comma: int | None
    """The position of the comma after the value."""
    children: "dict[str | int, JsonNode]"
    """The child values by key or index, in the order of the text."""


class JsonDocument(NamedTuple):
    """A text, its value, and the position of each part."""

    text: str
    value: Any
    root: JsonNode

    def find(self, *path: str | int) -> JsonNode | None:
        """Return the position of the value at a path of keys and indexes, or None if the path does
        not exist."""
        node: JsonNode | None = self.root
        for key in path:
            node = None if node is None else node.children.get(key)
        return node


def scan(text: str) -> JsonDocument:
    """Decode a text and record the position of each value.

    Raises:
        JsoncError: The text is not JSONC, or is nested deeper than `MAX_DEPTH`.
    """
    scanner = _Scanner(text)
    scanner.advance()
    start = scanner.start
    value, children = scanner.value(0)
    root = JsonNode(0, start, start, scanner.end, None, children)
    scanner.advance()
    if scanner.kind != "end":
        raise scanner.error("there is unexpected text after the end of the document")
    return JsonDocument(text, value, root)


class _Scanner:
    """A reader that returns one token after another. `advance` moves to the next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.kind, self.start, self.end = "", 0, int(text.startswith("\ufeff"))

    def advance(self) -> str:
        """Move to the next token, and return its text."""
        match = _TOKEN.match(self._text, self.end)
        if match is None:
            space = _ONLY_SPACE.match(self._text, self.end)
            self.start = space.end() if space else self.end
            raise self.error(self._describe_unreadable())
        self.kind = match.lastgroup or ""
        self.start, self.end = match.span(self.kind)
        return match[self.kind]

    def value(self, depth: int) -> tuple[Any, "dict[str | int, JsonNode]"]:
        """Decode the value that starts with the current token, and stop at its last token."""
        token = self._text[self.start : self.end]
        if token == "{":
            return self._entries({}, "}", depth + 1)
        if token == "[":
            return self._entries([], "]", depth + 1)
        if self.kind == "word":
            return _WORDS[token], {}
        if self.kind in ("string", "number"):
            return self._decode(token), {}
        raise self.error("a value is missing here")

    def _entries(
        self, container: Any, closing: str, depth: int
    ) -> tuple[Any, "dict[str | int, JsonNode]"]:
        """Decode the entries of an object or an array, up to its closing bracket."""
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        nodes: dict[str | int, JsonNode] = {}
        lead, token = self.end, self.advance()
        while token != closing:
            entry = self.start
            key: str | int = self._key(token) if closing == "}" else len(nodes)
            start = self.start
            value, children = self.value(depth)
            end = self.end
            token = self.advance()
            comma = self.start if token == "," else None
            nodes.pop(key, None)  # of two equal keys, the last counts
            nodes[key] = JsonNode(lead, entry, start, end, comma, children)
            if closing == "}":
                container[key] = value
            else:
                container.append(value)
            if comma is not None:
                lead, token = self.end, self.advance()
            elif token != closing:
                raise self.error(f"a comma or {closing} is missing here")
        return container, nodes

    def _key(self, token: str) -> str:
        """Decode the current token as a key, and move to the value after it."""
        if self.kind != "string":
            raise self.error("a key in double quotes is missing here")
        key: str = self._decode(token)
        if self.advance() != ":":
            raise self.error("a colon is missing here")
        self.advance()
        return key

    def _decode(self, token: str) -> Any:
        try:
            return msgspec.json.decode(token)
        except msgspec.DecodeError:
            raise self.error(f"this {self.kind} is not valid") from None

    def _describe_unreadable(self) -> str:
        rest = self._text[self.start : self.start + 2]
        if rest.startswith('"'):
            return "this string is not closed or contains a control character"
        if rest == "/*":
            return "this comment is not closed"
        return "this character is not allowed here"

    def error(self, what: str) -> JsoncError:
        """Return an error at the current token."""
        line = self._text.count("\n", 0, self.start) + 1
        column = self.start - self._text.rfind("\n", 0, self.start)
        return JsoncError(f"line {line}, column {column}: {what}")
