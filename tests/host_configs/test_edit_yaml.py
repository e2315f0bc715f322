"""One entry of a YAML file changes, and every other byte stays."""

import pytest

from dovetail.host_configs.edit import EditError, parse, remove_entry, set_entry
from dovetail.host_configs.splice import remove_spans
from dovetail.yaml_loader import MAX_CHARACTERS

pytest.importorskip("ruamel.yaml")

PATH = ("extensions", "new")
ENTRY = {"type": "stdio", "cmd": "uvx", "args": ["new", "-y"], "envs": {"KEY": "x"}, "on": True}
LINES = """\
  new:
    type: stdio
    cmd: uvx
    args:
      - new
      - "-y"
    envs:
      KEY: x
    "on": true
"""
FLOW = 'new: {type: stdio, cmd: uvx, args: [new, "-y"], envs: {KEY: x}, "on": true}'
ALIASES = """\
base: &b {x: 1}
other:
  <<: *b
  y: !custom [1, *b]
extensions:
  old: &o
    a: !!str 1
"""

TEXTS = {
    "an empty file": ("", f"extensions:\n{LINES}"),
    "white space": ("\n", f"extensions:\n{LINES}"),
    "a byte order mark": ("\ufeffa: 1\n", f"\ufeffa: 1\nextensions:\n{LINES}"),
    "only a comment": ("# mine", f"# mine\nextensions:\n{LINES}"),
    "a start of a document": ("---\n", f"---\nextensions:\n{LINES}"),
    "other settings": (
        "model: m # mine\n# end\n",
        f"model: m # mine\nextensions:\n{LINES}# end\n",
    ),
    "other settings, without a line end": ("model: m", f"model: m\nextensions:\n{LINES[:-1]}"),
    "no value": ("extensions:\nmodel: m\n", f"extensions:\n{LINES}model: m\n"),
    "no value, and comments": (
        "extensions: # mine\n  # none yet\nmodel: m\n",
        f"extensions: # mine\n{LINES}  # none yet\nmodel: m\n",
    ),
    "no value at the end": ("model: m\nextensions:", f"model: m\nextensions:\n{LINES[:-1]}"),
    "another extension": (
        "extensions:\n  old:\n    cmd: npx  # old\nmodel: m\n",
        f"extensions:\n  old:\n    cmd: npx  # old\n{LINES}model: m\n",
    ),
    "four spaces": (
        "extensions:\n    old:\n        cmd: npx\n",
        "extensions:\n    old:\n        cmd: npx\n" + LINES.replace("  ", "    "),
    ),
    "another width outside": (
        "extensions:\n old:\n    cmd: npx\n",
        "extensions:\n old:\n    cmd: npx\n new:\n    type: stdio\n    cmd: uvx\n    args:\n"
        '       - new\n       - "-y"\n    envs:\n       KEY: x\n    "on": true\n',
    ),
    "comments that belong to the other extension": (
        "extensions:\n  old:\n    cmd: x\n    # timeout: 3\n\n  # more\n\n# models\nmodel: m\n",
        "extensions:\n  old:\n    cmd: x\n    # timeout: 3\n"
        f"{LINES}\n  # more\n\n# models\nmodel: m\n",
    ),
    "an extension without a value": (
        "extensions:\n  old:\n\nmodel: m\n",
        f"extensions:\n  old:\n{LINES}\nmodel: m\n",
    ),
    "a list at the end": (
        "extensions:\n  old:\n    args:\n    - a\n    -   # nothing\n# end\n",
        f"extensions:\n  old:\n    args:\n    - a\n    -   # nothing\n{LINES}# end\n",
    ),
    "a text of several lines at the end": (
        "extensions:\n  old:\n    text: |\n      one\n\n      # two\n\nmodel: m\n",
        f"extensions:\n  old:\n    text: |\n      one\n\n      # two\n{LINES}\nmodel: m\n",
    ),
    "line ends of Windows": (
        "extensions:\r\n  old:\r\n    cmd: npx\r\nmodel: m\r\n",
        "extensions:\r\n  old:\r\n    cmd: npx\r\n" + LINES.replace("\n", "\r\n") + "model: m\r\n",
    ),
    "empty brackets": (
        "extensions: {} # mine\nmodel: m\n",
        f"extensions: {{{FLOW}}} # mine\nmodel: m\n",
    ),
    "an entry in brackets": (
        "extensions: {old: {cmd: npx}}\n",
        f"extensions: {{old: {{cmd: npx}}, {FLOW}}}\n",
    ),
    "brackets on lines, with a comma": (
        "extensions: {\n  old: {cmd: npx}, # old\n}\n",
        f"extensions: {{\n  old: {{cmd: npx}}, {FLOW}, # old\n}}\n",
    ),
    "all in brackets": (
        '{"model": "m", "extensions": {"old": {}}}\n',
        f'{{"model": "m", "extensions": {{"old": {{}}, {FLOW}}}}}\n',
    ),
    "a name without a value in brackets": (
        "{a, extensions: }\n",
        f"{{a, extensions: {{{FLOW}}} }}\n",
    ),
    "a name without a colon in brackets": (
        "{a, extensions}\n",
        f"{{a, extensions: {{{FLOW}}}}}\n",
    ),
    "anchors, aliases, tags and merging elsewhere": (
        ALIASES,
        ALIASES + LINES,
    ),
    "keys in quotes": (
        "\"extensions\" :\n  'old': 1\n  2: 3\n",
        f"\"extensions\" :\n  'old': 1\n  2: 3\n{LINES}",
    ),
    "an end of the document": ("a: 1\n...\n", f"a: 1\nextensions:\n{LINES}...\n"),
}


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_an_entry_is_added_in_the_style_of_the_file(before: str, after: str) -> None:
    edit = set_entry(before, "yaml", PATH, ENTRY)
    assert edit.text == after
    assert remove_spans(edit.text, edit.inserted).text == before
    assert parse(after, "yaml")["extensions"]["new"] == ENTRY


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_the_same_entry_again_changes_nothing(before: str, after: str) -> None:
    assert not set_entry(after, "yaml", PATH, ENTRY).is_changed


@pytest.mark.parametrize(
    "name", [name for name, (before, _) in TEXTS.items() if "old" in before or "{}" in before]
)
def test_removing_the_entry_gives_back_the_old_text(name: str) -> None:
    before, after = TEXTS[name]
    assert remove_entry(after, "yaml", PATH).text == before


@pytest.mark.parametrize(
    "name", [name for name, (before, _) in TEXTS.items() if "old" not in before]
)
def test_removing_the_only_entry_leaves_an_empty_mapping(name: str) -> None:
    text = remove_entry(TEXTS[name][1], "yaml", PATH).text
    assert parse(text, "yaml")["extensions"] == {}


REPLACED = {
    "lines": (
        "extensions:\n  new: # mine\n    # above\n    cmd: npx # old\n    args: [a]\n  b: 1\n",
        f"extensions:\n  new: # mine\n    # above\n{LINES[7:]}  b: 1\n",
    ),
    "a value in brackets": (
        "extensions:\n  new: {cmd: npx} # mine\n  b: 1\n",
        f"extensions:\n  {FLOW} # mine\n  b: 1\n",
    ),
    "a value in brackets in brackets": (
        "extensions: {new: {cmd: npx}, b: 1}\n",
        f"extensions: {{{FLOW}, b: 1}}\n",
    ),
    "no value": (
        "extensions:\n  new: # mine\n  b: 1\n",
        f"extensions:\n  new: # mine\n{LINES[7:]}  b: 1\n",
    ),
    "null": ("extensions:\n  new: ~ # mine\n", f"extensions:\n  {FLOW} # mine\n"),
    "null for all extensions": ("extensions: null # mine\n", f"extensions: {{{FLOW}}} # mine\n"),
    "a list": ("extensions:\n  new:\n    - a\n", f"extensions:\n  new:\n    {FLOW[5:]}\n"),
    "an alias": (
        "a: &a {x: 1}\nextensions:\n  new: *a\n",
        f"a: &a {{x: 1}}\nextensions:\n  {FLOW}\n",
    ),
    "an anchor": ("extensions:\n  new: &a\n    x: 1\n  b: 1\n", f"extensions:\n  {FLOW}\n  b: 1\n"),
}


@pytest.mark.parametrize(("before", "after"), REPLACED.values(), ids=REPLACED)
def test_an_existing_entry_is_replaced(before: str, after: str) -> None:
    assert set_entry(before, "yaml", PATH, ENTRY).text == after


REMOVED = {
    "the only one": (
        "extensions: # mine\n  new:\n    a: 1\nb: 2\n",
        "extensions: {} # mine\nb: 2\n",
    ),
    "the only one, in brackets": ("extensions: {new: 1}\n", "extensions: {}\n"),
    "the first": (
        "extensions:\n  # above\n  new:\n    a: 1 # mine\n  # of b\n  b: 2\n",
        "extensions:\n  # above\n  # of b\n  b: 2\n",
    ),
    "the first in brackets": ("extensions: {new: 1, b: 2}\n", "extensions: {b: 2}\n"),
    "one in the middle": ("extensions: {a: 1, new: 1, b: 2}\n", "extensions: {a: 1, b: 2}\n"),
    "the last in brackets": ("extensions: {a: 1, new: 1,}\n", "extensions: {a: 1,}\n"),
    "one without a value": ("extensions:\n  new:\n  b: 2\n", "extensions:\n  b: 2\n"),
    "one with a text": (
        "extensions:\n  new: >-\n    one\n\n    two\n\n  b: 2\n",
        "extensions:\n\n  b: 2\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), REMOVED.values(), ids=REMOVED)
def test_an_entry_is_removed(before: str, after: str) -> None:
    assert remove_entry(before, "yaml", PATH).text == after


def test_an_entry_at_the_top_level_is_removed_and_the_text_may_become_empty() -> None:
    assert remove_entry("a: 1\nb: 2\n", "yaml", ("a",)).text == "b: 2\n"
    assert remove_entry("# x\na: 1\n", "yaml", ("a",)).text == "# x\n"
    assert parse("# x\n", "yaml") == {}


TEXT_VALUES = [
    "", "plain", "/bin/x", "yes", "No", "null", "1", "1.5", "-y", "a: b", "# x", "{", "*", "&a",
    "!t", "@x", "a\nb", "\ttab", " space", "quote\"'", "\\", "\x00\x7f\x85\u2028\ufeff", "ü🎉",
    "2001-01-01", "~", "<<", "=", "a #b", "https://example.com/?a=b", "%", "|", "- x", "?", "a:",
    "0x1f", "TRUE",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXT_VALUES)
@pytest.mark.parametrize("before", ["", "extensions: {}\n"])
def test_any_text_is_written_so_that_it_is_read_as_text(text: str, before: str) -> None:
    entry = {"key": text, text: [text, {text: text}, [], {}, None, 1, 1.5]}
    after = set_entry(before, "yaml", ("extensions", text), entry).text
    assert parse(after, "yaml")["extensions"][text] == entry


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1\n", "not valid YAML: line 2, column 1: "),
        ("a: 1\n b: 2\n", "not valid YAML: line 2, column 3: "),
        ("a: 1\na: 2\n", "not valid YAML: line 2, column 1: the key 'a' occurs twice"),
        ("a: 1\n---\nb: 1\n", "not valid YAML: line 2, column 1: there is more than one document"),
        (
            "%YAML 1.1\n---\na: 1\n",
            "not valid YAML: line 2, column 1: directives are not supported",
        ),
        ("a: \x07\n", "not valid YAML: line 1, column 4: this character is not allowed"),
        ("a: *b\n", "not valid YAML: line 1, column 4: this alias has no anchor before it"),
        ("a: &a [*a]\n", "not valid YAML: line 1, column 8: this alias has no anchor before it"),
        ("[1, 2]: 1\n", "not valid YAML: line 1, column 1: a key must be a string"),
        ("[" * 66 + "]" * 66, "not valid YAML: line 1, column 66: nested deeper than 64 levels"),
        ("a: 'sesame", "not valid YAML: line 1, column 11"),
        ("#" * (256 * 1024 + 1), "has more than 256 Ki characters, which takes too long"),
    ],
)
def test_a_text_that_cannot_be_edited_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(EditError) as caught:
        set_entry(text, "yaml", PATH, ENTRY)
    assert problem in str(caught.value) and "sesame" not in str(caught.value)


def test_aliases_that_would_expand_to_many_values_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(EditError, match="there are more than 200,000 values"):
        set_entry("\n".join(lines), "yaml", PATH, ENTRY)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a\n", "The top level of the file is a list, not an object"),
        ("null\n", "The top level of the file is an alias or null"),
        ("extensions: []\n", "'extensions' is a list, not an object"),
        ("extensions: text\n", "'extensions' is a string, not an object"),
        ("a: &a {x: 1}\nextensions: *a\n", "extensions is an alias or null"),
        ("extensions: &a {x: 1}\nb: *a\n", "'new' cannot be changed without changing something"),
        ("extensions:\n  a: |+\n    x\n\n\nb: 1\n", "'new' cannot be changed without changing"),
    ],
)
def test_what_cannot_be_changed_alone_is_refused(text: str, problem: str) -> None:
    with pytest.raises(EditError, match=problem):
        set_entry(text, "yaml", PATH, ENTRY)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("extensions: {new: 1, # of b\n b: 2}\n", "There is a comment next to the entry"),
        ("extensions: {a: 1, # of a\n new: 2}\n", "There is a comment next to the entry"),
        ("a: &a {new: 1}\nextensions: *a\n", "extensions is an alias or null"),
        ("extensions: &a {new: 1, x: 1}\nb: *a\n", "'new' cannot be changed without changing"),
        ("a: 0\nextensions: {new: &n 1, x: 1}\nb: *n\n", "'new' cannot be changed without"),
    ],
)
def test_what_cannot_be_removed_alone_is_refused(text: str, problem: str) -> None:
    with pytest.raises(EditError, match=problem):
        remove_entry(text, "yaml", PATH)


def test_a_file_that_is_longer_than_other_yaml_may_be_keeps_all_its_bytes() -> None:
    text = "extensions:\n" + "".join(f"  x{n}:  {{a: 1}} # {'y' * 500}\n" for n in range(200))
    assert len(text) > MAX_CHARACTERS
    edit = set_entry(text, "yaml", PATH, {"a": 1})
    assert edit.text == f"{text}  new:\n    a: 1\n"
    assert remove_entry(edit.text, "yaml", PATH).text == text
