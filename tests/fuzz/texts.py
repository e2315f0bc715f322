"""Small languages and tokens: URI templates, the front matter of skills, cursors, sealed tokens."""

import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dovetail.errors import InvalidParams, SchemaError
from dovetail.extensions.skills import (
    FrontMatterError,
    differing_fields,
    parse_frontmatter,
)
from dovetail.protocol.uri_template import UriTemplate
from dovetail.revisions import STATELESS
from dovetail.sealing import Forged, KeyRing
from dovetail.server.registry import Snapshot, select_page

from .engine import Target
from .mutator import Mutator, text_of

# URI templates

TEMPLATES = (
    "users://{user_id}/profile",
    "file:///{+path}",
    "{name}.{ext}",
    "{id}/files/{+path}",
    "x://{a}{b}",
    "x:{/segments*}",
    "x://h{;a,b*}",
    "x://h{?q,page,tags*}",
    "x://h?format=json{&page}",
    "x://{a:3}/{a}",
    "x://{a,b}-{c}",
    "x{#frag}",
    "x{.ext*}",
    "x://{+a}/m/{+b}/n",
    "{+a}{+b}{+c}x",
    "x://h{/a,b,c}{?d}{#e}",
    "x://{a}-{b}-{c}-{d}",
    "x://{a}{/b*}{.c*}/end",
    "ö://{ä%41}",
)
VALUES = {
    "a": "x y",
    "b": ["p", "q/r"],
    "c": "ü",
    "path": "a/b c",
    "q": "1&2",
    "id": 7,
    "name": "n",
    "segments": ["s", "t"],
    "d": None,
}
HOSTILE = (
    "a",
    "/",
    "a/",
    "%2F",
    "-",
    ".",
    "..",
    "%",
    "%25",
    "x=",
    ";a=1",
    "&a=1",
    "?",
    "#",
    "a-",
    "/m/",
    "é",
    "%E9",
    "%00",
)


def make_template(rng: Mutator) -> bytes:
    """A template, values, and a URI that may be one of it, in a line each."""
    template = rng.pick(TEMPLATES)
    if rng.random() < 0.4:
        template = rng.garbled(template.encode()).decode("utf-8", "replace").replace("\n", "")
    uri = rng.pick(TEMPLATES).replace("{", "").replace("}", "") + rng.pick(HOSTILE) * rng.pick(
        (0, 1, 1, 2, 2, 50, 50, 2000)
    )
    if rng.random() < 0.5:
        uri = rng.garbled(uri.encode()).decode("utf-8", "replace")
    return f"{template}\n{json.dumps(rng.value(VALUES))}\n{uri}".encode("utf-8", "surrogatepass")


def check_template(data: bytes) -> bool:
    """A template makes URIs that it knows again; what it finds in a URI makes a URI in which it
    finds the same."""
    text, given, uri = text_of(data).split("\n", 2)
    try:
        template = UriTemplate(text)
    except SchemaError:
        return False
    values = json.loads(given)
    values = values if isinstance(values, dict) else {"a": values}
    matched = _found_again(template, uri)
    try:
        made = template.expand(values)
    except SchemaError:
        return False
    assert made.isascii() and UriTemplate(text).expand(values) == made
    return _found_again(template, made) or matched


AMBIGUOUS = re.compile(r"\{\?.*\{[^&#]|\{[?&][^}]*\}[^{]")
"""Templates that go on behind their query, or have two: a URI has one, at its end but for a
fragment."""

NAMES_IN = re.compile(r"(?<=[{,])[+#./;?&]?([^{},:*]+)")
NEEDLESS = re.compile("%(?:2[DE]|3[0-9]|[46][1-9A-F]|5[0-9AF]|7[0-9AE])", re.IGNORECASE)
"""Triplets for letters that need none: they are no separators where they are read, but will be when
they are written."""


def _found_again(template: UriTemplate, uri: str) -> bool:
    found = template.match(uri)
    if found is None:
        return False
    parts = [
        part for value in found.values() for part in ([value] if isinstance(value, str) else value)
    ]
    assert found.keys() <= set(template.variables) and not any("\0" in part for part in parts)
    names = NAMES_IN.findall(template.text)
    if (
        AMBIGUOUS.search(template.text)
        or NEEDLESS.search(uri)
        or len(names) > len(template.variables)
    ):
        return True
    # Reserved expressions write triplets and commas as they are, so who reads them cannot tell: RFC
    # 6570, 3.2.3.
    reserved = re.search(r"\{[+#]", template.text) and any(
        "%" in part or "," in part for part in parts
    )
    if not reserved:
        again = template.match(template.expand(found))
        assert again == found, (template.text, uri, found, template.expand(found), again)
    return True


# front matter

SKILLS = (
    "name: pdf\ndescription: Reads PDFs.\nlicense: MIT\nmetadata:\n  version: '1.0'\n  tags: "
    '[a, "b, c", {d: 1}]\n',
    "a: >-\n  folded\n  text\n\n  more\nb: |+\n  kept\n\nc:\n- 1\n- -2.5e3\n- - x\n  - y\n-\n "
    " k: v\nd: ~\n",
    '\'a b\': "x\\n\\u00e9\\ud83d\\ude00"\n"c" : it\'s # comment\ne: [\n  x, # why\n  y\n  '
    "]\nf: {}\n",
    "a: true\nb: 0x1F\nc: 2026-01-31\nd: yes\ne: 012\nf: 1_000\ng: .5\nh: 12:30:45\n",
)
INDENTS = (
    "  ",
    "    ",
    "\t",
    "- ",
    ": ",
    "\n",
    "\n\n  ",
    " #",
    "|\n",
    ">1\n",
    "[",
    "{",
    "}",
    "]",
    "'",
    '"',
    "\\",
    "~",
    "&a ",
    "...\n",
    "---",
)


LONG_KEY = re.compile(r'"(?:[^"\\]|\\.){150,}":')
"""Escaped, a key may be longer than the 1,024 characters that YAML allows."""


def make_skill(rng: Mutator) -> bytes:
    """A SKILL.md."""
    text = rng.pick(SKILLS)
    for _ in range(rng.pick((0, 1, 2, 3))):
        at = int(rng.random() * len(text))
        text = (
            text[:at]
            + rng.pick(INDENTS) * rng.pick((1, 1, 1, 2, 400))
            + text[at + int(rng.random() * 3) :]
        )
    data = f"---\n{text}---\nBody.\n".encode()
    return rng.garbled(data) if rng.random() < 0.4 else data


def check_skill(data: bytes) -> bool:
    """Front matter is plain data or refused; as JSON, which is YAML too, it is read as the same;
    the strict read no more."""
    text = text_of(data)
    try:
        value, rest = parse_frontmatter(text)
    except FrontMatterError as error:
        assert str(error) and len(str(error)) < 70_000
        _portable(text, None)
        return False
    assert text.endswith(rest)
    if not LONG_KEY.search(written := json.dumps(value)):
        again, _ = parse_frontmatter(f"---\n{written}\n---\n")
        assert differing_fields(value, again) == [], (value, again)
    _portable(text, value)
    return True


def _portable(text: str, value: Any) -> None:
    try:
        strictly, _ = parse_frontmatter(text, portable=True)
    except FrontMatterError:
        return
    assert value is not None and differing_fields(strictly, value) == []


# cursors

NAMES = [f"tool {number}" for number in range(100)] + ["ü", "a\nb", "😀"]
SNAPSHOT = Snapshot({name: name for name in NAMES})


def make_cursor(rng: Mutator) -> bytes:
    """A cursor of a list, or of another."""
    cursor = rng.pick(_cursors())
    return (
        rng.garbled(cursor.encode())
        if rng.random() < 0.8
        else rng.text(cursor).encode("utf-8", "surrogatepass")
    )


@cache
def _cursors() -> list[str]:
    found, cursor = [], None
    while (following := _page(cursor, "tools/list")[1]) is not None:
        found.append(cursor := following)
    return [*found, *(_page(one, "prompts/list")[1] or "" for one in [None])]


def _page(cursor: str | None, method: str) -> tuple[list[str], str | None]:
    call: Any = SimpleNamespace(
        params=SimpleNamespace(cursor=cursor), revision=STATELESS[-1], name=method
    )
    return select_page(call, SNAPSHOT, 7)


def check_cursor(data: bytes) -> bool:
    """A page, with items that follow each other and a cursor that leads on; or InvalidParams."""
    cursor = text_of(data)
    try:
        items, following = _page(cursor, "tools/list")
    except InvalidParams:
        return False
    assert items == sorted(items) and len(items) <= 7
    if following is not None:
        beyond, _ = _page(following, "tools/list")
        assert beyond and beyond[0] > items[-1]
    return True


# sealed tokens

RING = KeyRing([b"a secret of sixteen", b"another one of them"])
PLAIN = b'{"session":"x"}'


SEALED: dict[str, str] = json.loads((Path(__file__).parent / "keys.json").read_bytes())["sealed"]
"""Tokens of this ring, and what they are bound to."""


def make_token(rng: Mutator) -> bytes:
    """A token, of which hardly anything may be changed."""
    token = rng.pick(tuple(SEALED))
    if rng.random() < 0.3:
        return rng.text(token).encode("utf-8", "surrogatepass")
    return rng.garbled(token.encode()) if rng.random() < 0.8 else token.encode()


def check_token(data: bytes) -> bool:
    """Only what was sealed opens, spelled as it was, for what it was sealed for."""
    token = text_of(data)
    opened = []
    for purpose, bound in (("fuzz", b""), ("fuzz", b"user"), ("other", b"")):
        try:
            assert RING.open(purpose, token, bound=bound) == PLAIN
            opened.append((purpose, bound))
        except Forged:
            continue
    assert opened == ([("fuzz", SEALED[token].encode())] if token in SEALED else [])
    return bool(opened)


TARGETS = (
    Target("uri templates", make_template, check_template, 40_000),
    Target("skill front matter", make_skill, check_skill, 5_000),
    Target("cursors", make_cursor, check_cursor, 80_000),
    Target("sealed tokens", make_token, check_token, 80_000),
)
