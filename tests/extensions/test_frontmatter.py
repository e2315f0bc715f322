"""Front matter: what is read of YAML, what is refused, and that another reader of YAML agrees."""

import json
import random
import re
import subprocess
import time
from typing import Any

import pytest

from dovetail.extensions.skills import (
    FrontMatterError,
    differing_fields,
    parse_frontmatter,
)
from tests.node import MODULES, NODE
from tests.system import REMEDY

READ: dict[str, Any] = {
    "a: b": {"a": "b"},
    "a: b # c\n# d\nc: x#y": {"a": "b", "c": "x#y"},
    "a: it's\nb: 'it''s'\nc: \"it's\"": {"a": "it's", "b": "it's", "c": "it's"},
    'a: "x\\n\\u00e9\\x41\\ud83d\\ude00"': {"a": "x\né" + "A😀"},
    "'a b': 1\n\"c\" : 2": {"a b": 1, "c": 2},
    "a: http://x/y\nb: -x\nc: :x": {"a": "http://x/y", "b": "-x", "c": ":x"},
    "a:\nb: ~\nc: null": {"a": None, "b": None, "c": None},
    "a: true\nb: False\nc: yes": {"a": True, "b": False, "c": "yes"},
    "a: 12\nb: -1.5\nc: 0x1F\nd: 0o17\ne: 1e3\nf: 012": {
        "a": 12,
        "b": -1.5,
        "c": 31,
        "d": 15,
        "e": 1000.0,
        "f": 12,
    },
    "a: 2026-01-31\nb: '1'\nc: 1.0.0": {"a": "2026-01-31", "b": "1", "c": "1.0.0"},
    "a: x\n  y\n\n  z\nb: w": {"a": "x y\nz", "b": "w"},
    'a: "x\n  y\n\n  z\\\n  w"': {"a": "x y\nzw"},
    "a: >\n  x\n  y\n\n  z\n   more\n  w\nb: 1": {"a": "x y\nz\n more\nw\n", "b": 1},
    "a: |\n  x\n   y\n\nb: |-\n  x\nc: |+\n  x\n\n": {"a": "x\n y\n", "b": "x", "c": "x\n\n"},
    "a:\n  b: 1\n  c:\n    d: 2": {"a": {"b": 1, "c": {"d": 2}}},
    "a:\n- 1\n- b: 2\n  c: 3\n-\n  - x\n  - - y": {"a": [1, {"b": 2, "c": 3}, ["x", ["y"]]]},
    "a: [x, \"y, z\", {b: 1, 'c':2}, []]": {"a": ["x", "y, z", {"b": 1, "c": 2}, []]},
    "a: [\n  x, # c\n  y\n  ]": {"a": ["x", "y"]},
    'a: "x\ny"': {"a": "x y"},
    "--- # a comment": {},
    "": {},
}
REFUSED = {
    "a: &x 1": "line 2, column 4: anchors",
    "a: &x [1, 2]": "line 2, column 4: anchors",
    "a: 1\nb: *x": "line 3, column 4: aliases",
    "a: &x [*x]": "anchors",
    "a: !!python/object x": "line 2, column 4: tags",
    "a: !!binary aGk=": "tags",
    "a: !x {}": "tags",
    "a: ! x": "tags",
    "a: !<tag:yaml.org,2002:str> x": "tags",
    "a: 1\n...\nb: 2": "more than one document",
    "? a\n: b": "line 2, column 1: explicit keys",
    "a: {? b: c}": "line 2, column 5: explicit keys",
    "a: [?b]": "explicit keys",
    "a: [b, c:]": "line 2, column 8: a plain scalar must not end with a colon",
    "a: [:]": "a plain scalar must not end with a colon",
    "[a]: b": "a key must be a string",
    "{a: b}: b": "a key must be a string",
    "~: x": "a key must be a string",
    "<<: {a: 1}\n1: x": "line 3, column 1: a key must be a string",
    "a: 1\na: 2": "line 3, column 1: the key 'a' occurs twice",
    "a: {b: 1, b: 2}": "occurs twice",
    "a: x: y": "line 2, column 5: mapping values are not allowed here",
    "a: b\n  c: d": "line 3, column 4: mapping values are not allowed here",
    "a:\n\tb: c": "line 3, column 1: found character",
    "a:\n    b: 1\n  c: 2": "line 4, column 3: expected <block end>",
    "a: 'x": "unexpected end of stream",
    "a: [x": "expected ',' or ']'",
    "a: [x] y": "line 2, column 8: expected <block end>",
    'a: "\\q"': "unknown escape character",
    'a: "\\ud800"': "half of a surrogate pair",
    'b: 1\na: "\\U00110000"': "line 3, column 5: this escape names a character that does not exist",
    'a: "\\UFFFFFFFF"': "this escape names a character that does not exist",
    "a: - b": "sequence entries are not allowed here",
    "a: .inf": "JSON cannot represent",
    "a: 1e999": "JSON cannot represent",
    "a: .nan": "JSON cannot represent",
    "a: @x": "cannot start any token",
    "a: x\0": "line 2, column 5: this character is not allowed",
    "a: x\ry: z": "this character is not allowed",
    "a: 'x\x85  y'": "this character is not allowed",
    "a: x\u2028y": "this character is not allowed",
    "- a": "front matter must be a mapping",
    "just words": "front matter must be a mapping",
    "a: " + "[" * 20 + "]" * 20: "nested deeper",
    "\n".join(" " * depth + "k:" for depth in range(20)): "nested deeper",
    "a: " + "[" * 60_000: "nested deeper",
    "a: " + "{a: " * 15_000: "nested deeper",
    "- " * 30_000: "nested deeper",
    "? " * 30_000: "explicit keys",
    "a: [" + "x," * 20_000 + "]": "more than 10,000 values",
    "a: " + "x" * 70_000: "longer than",
}
DOUBTFUL = [
    "yes",
    "Off",
    "n",
    "2026-01-31",
    "2026-01-31 10:00:00",
    "1:30",
    "012",
    "0o17",
    "0b1",
    "1_000",
    "1e3",
    "1" * 16,
    "=",
]


def matter(yaml: str, **options: Any) -> dict[str, Any]:
    value, body = parse_frontmatter(
        f"---\n{yaml}{'' if yaml.endswith(chr(10)) else chr(10)}---\nbody\n", **options
    )
    assert body == "body\n"
    return value


@pytest.mark.parametrize("yaml", READ, ids=repr)
def test_what_front_matter_is_written_in_is_read(yaml: str) -> None:
    assert matter(yaml) == READ[yaml]
    assert matter(yaml.replace("\n", "\r\n")) == READ[yaml]


@pytest.mark.parametrize("yaml", REFUSED, ids=lambda yaml: repr(yaml[:40]))
def test_what_is_not_read_is_refused_with_its_line(yaml: str) -> None:
    with pytest.raises(FrontMatterError, match=REFUSED[yaml]):
        matter(yaml)


@pytest.mark.parametrize("word", DOUBTFUL)
def test_what_readers_disagree_about_is_refused_where_it_has_to_be_portable(word: str) -> None:
    matter(f"a: {word}")
    with pytest.raises(FrontMatterError, match="put it in quotes"):
        matter(f"a: {word}", portable=True)
    assert matter(f"a: '{word}'", portable=True) == {"a": word}


@pytest.mark.parametrize(
    "text",
    ["", "a: b\n", "---\na: b\n", " ---\na: b\n---\n", "--- \na: b\n---\n", "---\na: b\n--- x\n"],
)
def test_a_file_without_front_matter_has_none(text: str) -> None:
    with pytest.raises(FrontMatterError, match="does not start with front matter"):
        parse_frontmatter(text)


def test_front_matter_may_follow_a_byte_order_mark_and_end_the_file() -> None:
    assert parse_frontmatter("\ufeff---\na: b\n---") == ({"a": "b"}, "")
    assert parse_frontmatter("---\r\na: b\r\n---\r\nbody") == ({"a": "b"}, "body")


def test_front_matters_differ_by_field_and_by_type() -> None:
    assert (
        differing_fields(
            {"a": 1, "b": None, "c": [1, {"d": "x"}]}, {"a": 1.0, "c": [1, {"d": "x"}]}
        )
        == []
    )
    assert differing_fields({"a": 1}, {"a": True}) == ["a"]
    assert differing_fields(
        {"a": "1", "b": [1], "c": {"d": 1}}, {"a": 1, "b": [1, 2], "c": {"e": 1}}
    ) == ["a", "b", "c"]
    assert differing_fields({"a": "x"}, {"b": "x"}) == ["a", "b"]


N = 30_000
LONG = [
    "a: [" + "x," * N + "]",
    "a: [x" + " " * N + "]",
    "a:\n" + " - x\n" * (N // 3),
    "a: '" + "''" * N,
    'a: "' + "\\" * N,
    "a: x" + "\n" * N + " y",
    "a: 'x" + "\n x" * (N // 2),
    "a: >\n" + " x\n\n" * (N // 4),
    "a: " + "# " * N,
    "a: " + "1_" * N,
    "a: [" + "a:" * N + "]",
    "a: {" + "".join(f"k{number}: 1, " for number in range(N // 6)) + "}",
]


@pytest.mark.parametrize("yaml", LONG, ids=lambda yaml: repr(yaml[:12]))
def test_long_front_matter_takes_time_in_proportion(yaml: str) -> None:
    started = time.process_time()
    try:
        matter(yaml, portable=True)
    except FrontMatterError:
        pass
    assert time.process_time() - started < 20


# Another reader: the `yaml` package of npm, which comes with the conformance suite.

ORACLE = """
const { parseDocument } = require(process.argv[1]);
const answers = JSON.parse(require('fs').readFileSync(0, 'utf8')).map(text => {
  const parsed = parseDocument(text);
  try { return parsed.errors.length || parsed.warnings.length ? null : [parsed.toJS() ?? {}]; } catch { return null; }
});
console.log(JSON.stringify(answers));
"""  # noqa: E501
PIECES = [
    "a",
    "b",
    " ",
    "  ",
    "\n",
    "\n  ",
    "\n ",
    "\n\n",
    "\n    ",
    ": ",
    ":",
    "- ",
    "#",
    " #",
    "'",
    '"',
    "[",
    "]",
    "{",
    "}",
    ",",
    ", ",
    "|\n  ",
    ">\n  ",
    "|",
    "\\",
    "x",
    "1",
    "~",
    "-",
    "?",
    "&",
    "!",
    "k: ",
    "z: ",
    "''",
    "\\n",
    "\t",
]
VALUES = [
    "foo bar",
    "'q\n    r'",
    '"q\n\n    r"',
    "|\n    l\n     m\n    n",
    ">\n    l\n    m\n\n    n\n     o\n    p",
    ">-\n    l\n\n\n    m",
    "[a, b]",
    "{a: 1}",
    "1.5",
    "true",
    "",
    "foo\n    bar",
    "\n    sub: 1\n    t: 2",
    "a # c",
    "\n    - 1\n    - 2",
    "\n    - k: 1\n      l: 2\n    -\n      - z",
    "x:y",
    "|+\n    t\n\n",
    "[a,\n    b]",
    '"a\\\n    b"',
]


def made(chance: random.Random) -> str:
    text = "".join(
        f"k{number}: {chance.choice(VALUES)}\n" for number in range(chance.randint(1, 4))
    )
    if chance.random() < 0.5:
        place = chance.randrange(len(text))
        return text[:place] + chance.choice(PIECES) + text[place + chance.randint(0, 1) :]
    return (
        text
        if chance.random() < 0.3
        else "k: " + "".join(chance.choices(PIECES, k=chance.randint(1, 10))) + "\n"
    )


@pytest.mark.skipif(
    not (NODE.is_file() and (MODULES / "yaml").is_dir()),
    reason=f"npm's yaml is not installed: {REMEDY}",
)
def test_what_is_read_is_what_another_reader_of_yaml_reads() -> None:
    chance = random.Random(2640)
    texts = [*(f"{yaml}\n" for yaml in READ), *(made(chance) for _ in range(3000))]
    # A line break that is escaped, followed by an empty line, is a line break to ruamel.yaml, as
    # the specification has it, and a space to this one.
    texts = [text for text in texts if "\n---" not in text and not re.search(r"\\\n\s*\n", text)]
    texts = [text if text.endswith("\n") else text + "\n" for text in texts]
    command = [NODE, "-e", ORACLE, str(MODULES / "yaml")]
    answers = json.loads(
        subprocess.run(
            command, input=json.dumps(texts), capture_output=True, text=True, check=True
        ).stdout
    )
    agreed = 0
    for text, answer in zip(texts, answers, strict=True):
        try:
            ours = matter(text)
        except FrontMatterError:
            continue
        if answer is not None:
            assert [ours] == answer, repr(text)
            agreed += 1
    assert agreed > 1000
