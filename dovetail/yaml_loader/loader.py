"""A YAML 1.2 loader that turns untrusted text into JSON values.

`ruamel.yaml` (the extras `skills` and `install`) parses the text into events. This module builds
the values, without the YAML features that could surprise a reader. The following are rejected, with
an error that names the line and column:

    anchors, aliases    a few lines of them can expand to gigabytes
    tags, directives    they choose a type, or another version of YAML
    keys                that are explicit (`? key`), are not strings, or occur twice in a mapping
    numbers             that JSON does not have: infinity and not-a-number
    several documents, deep nesting, long text, control characters

Plain scalars follow the core schema of YAML 1.2. A few of them mean something else in YAML 1.1
(`yes`, `2026-01-31`, `012`); `portable=True` rejects these unless they are in quotes.
https://yaml.org/spec/1.2.2/#103-core-schema
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import missing_extra

if TYPE_CHECKING:
    from ruamel.yaml.events import Event

MAX_CHARACTERS = 64 * 1024
MAX_DEPTH = 16
MAX_VALUES = 10_000
"""The maximum number of keys, strings, lists and other values, each of which takes about 50 µs to
parse."""
MAX_LONG_CHARACTERS = 5 * 1024 * 1024
MAX_LONG_DEPTH = 64
MAX_LONG_VALUES = 200_000

_CONTROL = re.compile(
    r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]|\r(?!\n)"
)
"""Characters that are not allowed, including line breaks that only some parsers recognise."""
_BAD_ESCAPE = re.compile(r"\\U(?!00(?:0[0-9a-fA-F]|10))[0-9a-fA-F]{8}")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_AMBIGUOUS = re.compile(
    r"(?i:y|n|yes|no|on|off)|=|<<"  # booleans, values and merging
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"  # dates
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # times, in base 60
    # other bases, digits in groups
    r"|[-+]?0[0-9_]+|[-+]?0[bxo][0-9a-fA-F_]+|[-+]?(?=.*_)[.0-9][0-9_]*(?:\.[0-9_]*)?"
    r"|[-+]?[0-9.]+[eE][0-9]+|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?[0-9]{16,}"
)
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class YamlError(ValueError):
    """The text is not YAML, or uses a part of YAML that is not supported."""


def load_yaml(text: str, *, portable: bool = False, first_line: int = 1) -> Any:
    """Parse one YAML document into dicts, lists, strings, numbers, booleans and None.

    Args:
        text: The document, of at most `MAX_CHARACTERS` characters.
        portable: Whether to reject plain scalars that other versions of YAML read differently.
        first_line: The number of the first line, as shown in error messages.

    Raises:
        YamlError: The text cannot be read. The message starts with the line and column.
        ConfigError: `ruamel.yaml` is not installed.
    """
    require_parser("skills")
    check_text(text, MAX_CHARACTERS, first_line)
    return build(text, ValueBuilder(parse_events(text), portable, first_line))


def load_long_yaml(text: str) -> Any:
    """Parse a document that other programs wrote, such as the description of an API. It may be
    longer than for `load_yaml`, and a key that is a number, such as `200:`, is read as text.

    Args:
        text: The document, of at most `MAX_LONG_CHARACTERS` characters.

    Raises:
        YamlError: The text cannot be read. The message starts with the line and column.
        ConfigError: `ruamel.yaml` is not installed.
    """
    require_parser("skills")
    check_text(text, MAX_LONG_CHARACTERS, 1)
    return build(text, _LongBuilder(parse_events(text), False, 1))


def require_parser(extra: str) -> None:
    """Raise an error that names the extra if `ruamel.yaml` is not installed."""
    try:
        import ruamel.yaml.error  # noqa: F401
    except ImportError:
        raise missing_extra("Reading YAML", extra) from None


def check_text(text: str, max_characters: int, first_line: int) -> None:
    """Raise an error if a text is too long, or has a character that YAML does not allow."""
    if len(text) > max_characters:
        raise YamlError(f"the text is longer than {max_characters:,} characters")
    if control := _CONTROL.search(text):
        raise _error_at("this character is not allowed", text, control.start(), first_line)


def build(text: str, builder: "ValueBuilder") -> Any:
    """Return what a builder makes of a text, and convert errors of ruamel.yaml."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return builder.document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem if error.context is None else f"{error.problem} ({error.context})"
        raise _error(what, mark.line, mark.column, builder.first_line) from None
    except YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, YamlError):
            raise
        escape = _BAD_ESCAPE.search(text)  # ruamel passes it to `chr`
        at = escape.start() if escape else 0
        raise _error_at(
            "this escape names a character that does not exist", text, at, builder.first_line
        ) from None


def parse_events(text: str) -> "Iterator[Event]":
    """Yield the events of a text, as ruamel.yaml defines them."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scanner import Scanner, ScannerError

    def refuse_explicit_key(scanner: Any) -> None:
        mark = scanner.reader.get_mark()
        raise ScannerError(None, None, "explicit keys (?) are not supported", mark)

    yaml = YAML(typ="safe", pure=True)
    # In brackets, ruamel.yaml reads any question mark as an explicit key; other parsers do not.
    yaml.Scanner = type("ImplicitKeyScanner", (Scanner,), {"fetch_key": refuse_explicit_key})
    return yaml.parse(text)  # type: ignore[no-any-return]


def _error(what: str, line: int, column: int, first_line: int) -> YamlError:
    return YamlError(f"line {first_line + line}, column {column + 1}: {what}")


def _error_at(what: str, text: str, at: int, first_line: int) -> YamlError:
    line, column = text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1
    return _error(what, line, column, first_line)


class ValueBuilder:
    """A builder that turns the events of ruamel's parser into JSON values."""

    max_depth, max_values = MAX_DEPTH, MAX_VALUES

    def __init__(self, events: "Iterator[Event]", portable: bool, first_line: int) -> None:
        self._events, self._portable, self.first_line = events, portable, first_line
        self._left = self.max_values

    def document(self) -> Any:
        from ruamel.yaml.events import DocumentStartEvent, StreamEndEvent

        value, has_document = None, False
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if has_document:
                    raise self._refuse(event, "there is more than one document")
                if event.version or event.tags:
                    raise self._refuse(event, "directives are not supported")
                has_document = True
                value = self._value(next(self._events), 0)
            elif isinstance(event, StreamEndEvent):
                break
        return value

    def _value(self, event: Any, depth: int) -> Any:
        from ruamel.yaml.events import AliasEvent, MappingStartEvent, ScalarEvent

        self._count(event, depth)
        if isinstance(event, AliasEvent):
            raise self._refuse(event, "aliases are not supported")
        if event.anchor is not None:
            raise self._refuse(event, "anchors are not supported")
        if event.tag is not None:
            raise self._refuse(event, "tags are not supported")
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        if isinstance(event, MappingStartEvent):
            return self._mapping(depth)
        return self._sequence(depth)

    def _count(self, event: Any, depth: int, values: int = 1) -> None:
        if depth > self.max_depth:
            raise self._refuse(event, f"nested deeper than {self.max_depth} levels")
        self._left -= values
        if self._left < 0:
            raise self._refuse(event, f"there are more than {self.max_values:,} values")

    def _mapping(self, depth: int) -> dict[str, Any]:
        from ruamel.yaml.events import MappingEndEvent

        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event, depth + 1)
            if not isinstance(key, str):
                raise self._refuse(event, "a key must be a string; put it in quotes")
            if key in mapping:
                raise self._refuse(event, f"the key {key!r} occurs twice")
            mapping[key] = self._value(next(self._events), depth + 1)
        return mapping

    def _key(self, event: Any, depth: int) -> Any:
        return self._value(event, depth)

    def _sequence(self, depth: int) -> list[Any]:
        from ruamel.yaml.events import SequenceEndEvent

        items = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.style:  # in quotes, or a block
            try:  # JSON escapes some characters as two surrogates
                return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                raise self._refuse(event, "this text contains half of a surrogate pair") from None
        if text in _WORDS:
            return _WORDS[text]
        if text.endswith(":"):  # in brackets; other parsers read a key without a value
            raise self._refuse(
                event, "a plain scalar must not end with a colon; put the text in quotes"
            )
        if self._portable and _AMBIGUOUS.fullmatch(text):
            raise self._refuse(
                event, f"{text} is not a string in every version of YAML; put it in quotes"
            )
        if _INTEGER.fullmatch(text) and len(text) < 19:
            return int(text, 0 if text[:2] in ("0o", "0x") else 10)
        number = float(text) if _NUMBER.fullmatch(text) else None
        if number in (float("inf"), float("-inf")) or _NOT_JSON.fullmatch(text):
            raise self._refuse(event, f"{text} is a number that JSON cannot represent")
        return text if number is None else number

    def _refuse(self, event: Any, what: str) -> YamlError:
        mark = event.start_mark
        return _error(what, mark.line, mark.column, self.first_line)


class _LongBuilder(ValueBuilder):
    """A builder for long documents."""

    max_depth, max_values = MAX_LONG_DEPTH, MAX_LONG_VALUES

    def _key(self, event: Any, depth: int) -> Any:
        key = self._value(event, depth)
        return event.value if isinstance(key, int) else key
