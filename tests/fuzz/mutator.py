"""Makes bad input out of good. Everything comes from one seeded generator: the same seed makes the
same inputs, in order.

Two levels. `value` changes a JSON value where its structure is: another type, a key that is gone or
renamed, one part in the place of another, nesting, numbers and texts that readers stumble over.
`garbled` changes whatever it is given, blindly: letters, pieces that are cut out, doubled or moved,
and words that mean something in one of the formats. `json` is the first and, now and then, the
second on top.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
SURROGATE = "\ud800"
TEXTS = (
    "",
    " ",
    "\0",
    "null",
    "a\0b",
    SURROGATE,
    f"x{SURROGATE}y",
    "\udfff\ud800",
    "\r\n",
    "x\r\nx: y",
    "\u2028",
    "\ufeff",
    "😀",
    "é",
    "..",
    "../..",
    "%00",
    "%2e%2e%2f",
    "%",
    "{",
    "{x}",
    "-0",
    "1e999",
    "=?base64?",
    "=?base64?eA==?=",
    "a" * 300,
    "\x1b[2J",
    "https://x",
    "http://user@127.0.0.1:99999/",
    "javascript:alert(1)",
    "__proto__",
    "١",
    "2026-07-28",
    "tools/call",
)
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**53,
    -(2**53) - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    -(10**40),
    10**400,
    0.5,
    -0.0,
    1e308,
    5e-324,
)
PIECES = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\0",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"null",
    b"true",
    b"-1e999",
    b"\\ud800",
    b"\\u0000",
    b"1" * 400,
    b"[" * 1200,
    b'{"a":' * 300,
    b" " * 500,
    b"data: ",
    b"id: ",
    b"event: ",
    b"retry: ",
    b": ",
    b"---\n",
    b"- ",
    b"| ",
    b"&a ",
    b"*a",
    b"{x}",
    b"{+x*}",
    b"%2F",
    b"%00",
    b"..",
    b"/",
    b"?",
    b"&",
    b"#",
    b"=",
    b"=?base64?",
    b"?=",
    b",,",
    b"Bearer ",
    b'="',
    b"@",
    b"2026-07-28",
    b"2025-11-25",
)


class Mutator(Random):
    """A generator of random numbers that knows what readers dislike."""

    def pick(self, options: Sequence[T]) -> T:
        """One of these, faster than `choice`."""
        return options[int(self.random() * len(options))]

    def json(self, value: Any) -> bytes:
        """A JSON document that is something like this one."""
        data = json.dumps(self.value(value), ensure_ascii=self.random() < 0.8).encode(
            "utf-8", "surrogatepass"
        )
        return self.garbled(data) if self.random() < 0.15 else data

    def value(self, value: Any) -> Any:
        """The same value with a change or two, or none."""
        for _ in range(self.pick((0, 1, 1, 1, 1, 2))):
            value = self._changed(value)
        return value

    def _changed(self, value: Any) -> Any:
        """A copy with one change, somewhere."""
        if isinstance(value, dict) and value and self.random() < 0.85:
            key = self.pick(tuple(value))
            return self.pick(_IN_OBJECTS)(self, value, key)
        if isinstance(value, list) and value and self.random() < 0.85:
            at = int(self.random() * len(value))
            return self.pick(_IN_LISTS)(self, value, at)
        return self.odd(value)

    def odd(self, value: Any = None) -> Any:
        """Something else in place of a value."""
        return self.pick(_ODD)(self, value)

    def text(self, text: str) -> str:
        """The same text with something in it."""
        at = int(self.random() * (len(text) + 1))
        return text[:at] + self.pick(TEXTS) + text[at + int(self.random() * 4) :]

    def garbled(self, data: bytes) -> bytes:
        """The same bytes with one to four changes."""
        made = bytearray(data)
        for _ in range(self.pick((1, 1, 2, 4))):
            self.pick(_BYTES)(self, made, int(self.random() * (len(made) + 1)))
        return bytes(made)

    def chunks(self, data: bytes) -> list[bytes]:
        """The same bytes in pieces, some of them empty."""
        made, at = [], 0
        longest = self.pick((1, 2, 3, 8, 64, 4096)) + len(data) // 100
        while at < len(data):
            size = int(self.random() * (longest + 1))
            made.append(data[at : at + size])
            at += size
        return made


def _nested(rng: Mutator, value: Any) -> Any:
    for _ in range(rng.pick((1, 1, 2, 2, 3, 20, 90, 400))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


_ODD: tuple[Callable[[Mutator, Any], Any], ...] = (
    lambda rng, value: None,
    lambda rng, value: rng.pick((True, False)),
    lambda rng, value: rng.pick(NUMBERS),
    lambda rng, value: rng.pick(TEXTS),
    lambda rng, value: rng.text(value) if isinstance(value, str) else str(value)[:200],
    lambda rng, value: rng.pick(([], {}, [None], [[]], {"": None}, {"a": {}})),
    lambda rng, value: [value],
    lambda rng, value: {"value": value},
    _nested,
)


def _without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != key}


def _inside(rng: Mutator, value: dict[str, Any], key: str) -> Any:
    return value | {key: rng._changed(value[key])}


def _within(rng: Mutator, value: list[Any], at: int) -> Any:
    return [*value[:at], rng._changed(value[at]), *value[at + 1 :]]


_IN_OBJECTS: tuple[Callable[[Mutator, dict[str, Any], str], Any], ...] = (
    *[_inside] * 6,
    lambda rng, value, key: value | {key: rng.odd(value[key])},
    lambda rng, value, key: _without(value, key),
    lambda rng, value, key: _without(value, key) | {rng.text(key): value[key]},
    lambda rng, value, key: value | {key: rng.pick(tuple(value.values()))},
    lambda rng, value, key: value | {rng.pick(TEXTS): rng.odd(value[key])},
)
_IN_LISTS: tuple[Callable[[Mutator, list[Any], int], Any], ...] = (
    *[_within] * 4,
    lambda rng, value, at: [*value[:at], *value[at + 1 :]],
    lambda rng, value, at: value[:at] + value[at : at + 1] * rng.pick((2, 3, 50)) + value[at:],
    lambda rng, value, at: [*value[:at], rng.odd(value[at]), *value[at:]],
)


def _replace(rng: Mutator, data: bytearray, at: int) -> None:
    data[at : at + 1] = bytes((int(rng.random() * 256),))


def _remove(rng: Mutator, data: bytearray, at: int) -> None:
    del data[at : at + 1 + int(rng.random() * 8)]


def _insert(rng: Mutator, data: bytearray, at: int) -> None:
    data[at:at] = rng.pick(PIECES)


def _truncate(rng: Mutator, data: bytearray, at: int) -> None:
    del data[at:]


def _double(rng: Mutator, data: bytearray, at: int) -> None:
    data[at:at] = data[at : at + 1 + int(rng.random() * 30)] * rng.pick((1, 2, 40))


def _move(rng: Mutator, data: bytearray, at: int) -> None:
    piece = data[at : at + 1 + int(rng.random() * 20)]
    del data[at : at + len(piece)]
    to = int(rng.random() * (len(data) + 1))
    data[to:to] = piece


_BYTES = (_replace, _replace, _remove, _insert, _insert, _truncate, _double, _move)


def text_of(data: bytes) -> str:
    """The text in these bytes, with half characters where they are spelled out and replacements for
    what is none."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
