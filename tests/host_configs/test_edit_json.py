"""One entry of a JSON file changes, and every other byte stays.

In the tables, `·` is a space at the end of a line, `→` a tab, and `⏎` a line end of Windows.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.host_configs.edit import EditError, parse, remove_entry, set_entry
from dovetail.host_configs.splice import remove_spans

ENTRY = {"command": "uvx", "args": ["new"]}
LINE = '"new": {"command": "uvx", "args": ["new"]}'
PATH = ("mcpServers", "new")


def written(text: str) -> str:
    return text.replace("·", " ").replace("→", "\t").replace("⏎", "\r")


TEXTS = {
    "an empty file": (
        "",
        """\
{
  "mcpServers": {
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "white space": (
        "\n",
        """\
{
  "mcpServers": {
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "only a comment": (
        "// mine",
        """\
// mine
{
  "mcpServers": {
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "an empty object": (
        "{}",
        """\
{
  "mcpServers": {
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}""",
    ),
    "an object with only a line": (
        "{\n}\n",
        """\
{
  "mcpServers": {
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "other settings, four spaces": (
        """\
{
    "theme": "dark"
}
""",
        """\
{
    "theme": "dark",
    "mcpServers": {
        "new": {
            "command": "uvx",
            "args": ["new"]
        }
    }
}
""",
    ),
    "tabs": (
        """\
{
→"mcpServers": {
→→"old": {}
→}
}
""",
        """\
{
→"mcpServers": {
→→"old": {},
→→"new": {
→→→"command": "uvx",
→→→"args": ["new"]
→→}
→}
}
""",
    ),
    "line ends of Windows": (
        """\
{⏎
  "mcpServers": {⏎
    "old": {}⏎
  }⏎
}⏎
""",
        """\
{⏎
  "mcpServers": {⏎
    "old": {},⏎
    "new": {⏎
      "command": "uvx",⏎
      "args": ["new"]⏎
    }⏎
  }⏎
}⏎
""",
    ),
    "a byte order mark": (
        '\ufeff{\n "mcpServers": {}\n}',
        '\ufeff{\n "mcpServers": {\n  "new": {\n   "command": "uvx",\n   "args": ["new"]\n'
        "  }\n }\n}",
    ),
    "a byte order mark and nothing else": (
        "\ufeff",
        '\ufeff{\n  "mcpServers": {\n    "new": {\n      "command": "uvx",\n      "args": ["new"]\n'
        "    }\n  }\n}\n",
    ),
    "one line": (
        '{"mcpServers": {"old": {}}}',
        f'{{"mcpServers": {{"old": {{}}, {LINE}}}}}',
    ),
    "one line, without a space": (
        '{"mcpServers":{"old":{}}}',
        '{"mcpServers":{"old":{},"new":{"command":"uvx","args":["new"]}}}',
    ),
    "one line, empty": (
        '{"mcpServers": {}, "b": 1}',
        f'{{"mcpServers": {{{LINE}}}, "b": 1}}',
    ),
    "one line, a space in brackets": (
        '{ "mcpServers": { } }',
        f'{{ "mcpServers": {{ {LINE} }} }}',
    ),
    "one line, a trailing comma": (
        '{"mcpServers": {"old": {},},}',
        f'{{"mcpServers": {{"old": {{}}, {LINE},}},}}',
    ),
    "one line, a comment": (
        '{"mcpServers": {"old": 1 /* x */}}',
        f'{{"mcpServers": {{"old": 1 /* x */, {LINE}}}}}',
    ),
    "one line, only a comment": (
        '{"mcpServers": { /* none */ }}',
        f'{{"mcpServers": {{ /* none */ {LINE} }}}}',
    ),
    "one line among lines": (
        """\
{
  "a": 1,
  "mcpServers": {"old": {}}
}
""",
        f"""\
{{
  "a": 1,
  "mcpServers": {{"old": {{}}, {LINE}}}
}}
""",
    ),
    "a trailing comma": (
        """\
{
  "mcpServers": {
    "old": {},
  },
}
""",
        """\
{
  "mcpServers": {
    "old": {},
    "new": {
      "command": "uvx",
      "args": ["new"]
    },
  },
}
""",
    ),
    "a comment after the last entry": (
        """\
{
  "mcpServers": {
    "old": {} // keep this
  }
}
""",
        """\
{
  "mcpServers": {
    "old": {}, // keep this
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "comments after the last entry and its comma": (
        """\
{
  "mcpServers": {
    "old": {}, /* one */ /* two
    lines */ // three
    // four
  }
}
""",
        """\
{
  "mcpServers": {
    "old": {}, /* one */ /* two
    lines */ // three
    "new": {
      "command": "uvx",
      "args": ["new"]
    },
    // four
  }
}
""",
    ),
    "a comment before the comma": (
        """\
{
  "mcpServers": {
    "old": {} /* x */,
  }
}
""",
        """\
{
  "mcpServers": {
    "old": {} /* x */,
    "new": {
      "command": "uvx",
      "args": ["new"]
    },
  }
}
""",
    ),
    "comments in an empty object": (
        """\
{
  "mcpServers": {
    // "old": {}
    /* nothing yet */
  }
}
""",
        """\
{
  "mcpServers": {
    // "old": {}
    /* nothing yet */
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "a comment on the line of the bracket": (
        """\
{
  "mcpServers": { // all my servers
  }
}
""",
        """\
{
  "mcpServers": { // all my servers
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "a comment in brackets on one line": (
        """\
{
  "mcpServers": { /* none */}
}
""",
        """\
{
  "mcpServers": { /* none */
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "the bracket on the line of the last entry": (
        """\
{ "a": 1,
  "mcpServers": {
    "old": {} }}
""",
        """\
{ "a": 1,
  "mcpServers": {
    "old": {},
    "new": {
      "command": "uvx",
      "args": ["new"]
    } }}
""",
    ),
    "a bracket on its own line": (
        """\
{
   "mcpServers":
   {
      "old": {}
   }
}
""",
        """\
{
   "mcpServers":
   {
      "old": {},
      "new": {
         "command": "uvx",
         "args": ["new"]
      }
   }
}
""",
    ),
    "the first entry on the line of the bracket": (
        """\
{ "mcpServers": { "old": 1
  }
}
""",
        """\
{ "mcpServers": { "old": 1,
  "new": {
    "command": "uvx",
    "args": ["new"]
  }
  }
}
""",
    ),
    "keys that occur twice": (
        """\
{
  "mcpServers": {"new": 1},
  "mcpServers": {
    "old": 1,
    "old": 2
  }
}
""",
        """\
{
  "mcpServers": {"new": 1},
  "mcpServers": {
    "old": 1,
    "old": 2,
    "new": {
      "command": "uvx",
      "args": ["new"]
    }
  }
}
""",
    ),
    "trailing white space": (
        '{\n  "mcpServers": {\n    "old": {}··\n··\n  }\n}',
        '{\n  "mcpServers": {\n    "old": {},\n    "new": {\n      "command": "uvx",\n'
        '      "args": ["new"]\n    }··\n··\n  }\n}',
    ),
}


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_an_entry_is_added_in_the_style_of_the_file(before: str, after: str) -> None:
    edit = set_entry(written(before), "json", PATH, ENTRY)
    assert edit.text == written(after)
    assert edit.is_changed and edit.inserted


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_without_the_inserted_parts_it_is_the_old_text(before: str, after: str) -> None:
    edit = set_entry(written(before), "json", PATH, ENTRY)
    assert remove_spans(edit.text, edit.inserted).text == written(before)


CREATED = {
    "an empty file",
    "white space",
    "only a comment",
    "an empty object",
    "an object with only a line",
    "other settings, four spaces",
    "a byte order mark",
    "a byte order mark and nothing else",
    "one line, a space in brackets",
    "a comment in brackets on one line",
}
"""Texts in which more than the entry was created: an object, or the lines in it."""


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - CREATED))
def test_removing_the_entry_gives_back_the_old_text(name: str) -> None:
    before, after = map(written, TEXTS[name])
    assert remove_entry(after, "json", PATH).text == before


@pytest.mark.parametrize("name", sorted(CREATED))
def test_removing_the_entry_keeps_the_objects_around_it(name: str) -> None:
    after = written(TEXTS[name][1])
    edit = remove_entry(after, "json", PATH)
    assert parse(edit.text, "json")["mcpServers"] == {}
    assert edit.inserted == ()


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_the_same_entry_again_changes_nothing(before: str, after: str) -> None:
    edit = set_entry(written(after), "json", PATH, ENTRY)
    assert edit.text == written(after)
    assert not edit.is_changed and edit.inserted == ()


REPLACED = {
    "a value on lines": (
        """\
{
    "mcpServers": {
        // mine
        "new": {
            "command": "npx" // old
        }, // still mine
        "old": {}
    }
}
""",
        """\
{
    "mcpServers": {
        // mine
        "new": {
            "command": "uvx",
            "args": ["new"]
        }, // still mine
        "old": {}
    }
}
""",
    ),
    "a value on one line": (
        '{\n  "mcpServers": {\n    "new": {"command": "npx"}\n  }\n}',
        f'{{\n  "mcpServers": {{\n    {LINE}\n  }}\n}}',
    ),
    "a value that is not an object": (
        '{\n  "mcpServers": {\n    "new": null\n  }\n}',
        '{\n  "mcpServers": {\n    "new": {\n      "command": "uvx",\n      "args": ["new"]\n'
        "    }\n  }\n}",
    ),
    "a compact file": (
        '{"mcpServers":{"new":0}}',
        '{"mcpServers":{"new":{"command":"uvx","args":["new"]}}}',
    ),
    "the last of two": (
        '{"mcpServers": {"new": 1, "new": 2}}',
        f'{{"mcpServers": {{"new": 1, {LINE}}}}}',
    ),
}


@pytest.mark.parametrize(("before", "after"), REPLACED.values(), ids=REPLACED)
def test_an_existing_entry_gets_a_new_value(before: str, after: str) -> None:
    edit = set_entry(before, "json", PATH, ENTRY)
    assert edit.text == after
    assert edit.is_changed and edit.inserted == ()


REMOVED = {
    "the first": (
        '{\n  "m": {\n    "new": 1,\n    "b": 2\n  }\n}',
        '{\n  "m": {\n    "b": 2\n  }\n}',
    ),
    "the first on one line": ('{"m": {"new": 1, "b": 2}}', '{"m": {"b": 2}}'),
    "one in the middle": ('{"m": {"a": 0, "new": 1, "b": 2}}', '{"m": {"a": 0, "b": 2}}'),
    "the only one": ('{"m": {\n  "new": 1\n}}', '{"m": {}}'),
    "the only one, with a comma": ('{"m": { "new": 1, }}', '{"m": {}}'),
    "its comment": (
        '{"m": {\n  "new": 1, // mine\n  // of b\n  "b": 2\n}}',
        '{"m": {\n  // of b\n  "b": 2\n}}',
    ),
    "the last, and the comment of another stays": (
        '{"m": {\n  "a": 0, // of a\n  /* above */\n  "new": 1 // mine\n}}',
        '{"m": {\n  "a": 0 // of a\n  /* above */\n}}',
    ),
    "a bracket after it": ('{"m": {\n  "a": 0,\n  "new": 1}}', '{"m": {\n  "a": 0}}'),
    "a bracket after it, a comment before it": (
        '{"m": {\n  "a": 0, // of a\n  "new": 1}}',
        '{"m": {\n  "a": 0 // of a\n  }}',
    ),
    "the next on its line": (
        '{"m": {\n  "new": 1, /* of b */ "b": 2\n}}',
        '{"m": {\n  /* of b */ "b": 2\n}}',
    ),
    "commas at the start of lines": (
        '{"m":\n  { "a": 0\n  , "new": 1\n  , "b": 2\n  }}',
        '{"m":\n  { "a": 0\n  , "b": 2\n  }}',
    ),
    "all that have its key": ('{"m": {"new": 1, "b": 2, "new": 3}}', '{"m": {"b": 2}}'),
    "the only ones that have its key": ('{"m": {"new": 1, "new": 3}}', '{"m": {}}'),
    "another key that occurs twice stays twice": (
        '{"m": {"new": 1, "b": 2, "b": 3}}',
        '{"m": {"b": 2, "b": 3}}',
    ),
    "a byte order mark stays": ('\ufeff{"m": {"new": 1}}', '\ufeff{"m": {}}'),
    "line ends of Windows": (
        '{"m": {⏎\n  "new": 1,⏎\n  "b": 2⏎\n}}',
        '{"m": {⏎\n  "b": 2⏎\n}}',
    ),
    "an old line end": ('{"m": {\r  "a": 0,\r  "new": 1\r}}', '{"m": {\r  "a": 0\r}}'),
}


@pytest.mark.parametrize(("before", "after"), REMOVED.values(), ids=REMOVED)
def test_an_entry_is_removed(before: str, after: str) -> None:
    assert remove_entry(written(before), "json", ("m", "new")).text == written(after)


@pytest.mark.parametrize("text", ["", "{}", '{"mcpServers": {}}', '{"mcpServers": 3}', "[]", "1"])
def test_an_entry_that_is_not_there_is_not_removed(text: str) -> None:
    assert not remove_entry(text, "json", PATH).is_changed


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ("[]", PATH, "The top level of the file is a list, not an object"),
        ("null", PATH, "The top level of the file is a null value, not an object"),
        ('{"mcpServers": []}', PATH, "'mcpServers' is a list, not an object"),
        ('{"mcpServers": null}', PATH, "'mcpServers' is a null value, not an object"),
        ('{"a": {"b": "x"}}', ("a", "b", "c"), "'a.b' is a string, not an object"),
        ('{"a": 1}', ("a", "b", "c"), "'a' is a number, not an object"),
        ('{"a": false}', ("a", "b"), "'a' is a boolean, not an object"),
    ],
)
def test_a_parent_that_is_not_an_object_is_named(text: str, path: Any, problem: str) -> None:
    with pytest.raises(EditError, match=problem):
        set_entry(text, "json", path, ENTRY)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"mcpServers": {}', "not valid JSON: line 1, column 18: a comma or } is missing here"),
        ("// x\n}", "not valid JSON: line 2, column 1: a value is missing here"),
        ("{a: 1}", "not valid JSON: line 1, column 2"),
        ("\ufeff{]", "not valid JSON: line 1, column 2"),
        ('{"key": "sesame', "not valid JSON: line 1, column 9"),
    ],
)
def test_a_text_that_is_not_valid_is_refused_with_its_place(text: str, problem: str) -> None:
    for edit in (
        lambda: set_entry(text, "json", PATH, ENTRY),
        lambda: remove_entry(text, "json", PATH),
        lambda: parse(text, "json"),
    ):
        with pytest.raises(EditError) as caught:
            edit()
        assert problem in str(caught.value)
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"x": float("nan")}, "'x' has a value that JSON cannot represent"),
        ({"x": [object()]}, "'x' has a value that JSON cannot represent"),
        ({"x": {"y": {1: 2}}}, "'y' has a value that JSON cannot represent"),
        ({"x": "\udc80"}, "'new' contains text that is not valid Unicode"),
        ({"\udc80": 1}, "'new' contains text that is not valid Unicode"),
    ],
)
def test_an_entry_that_cannot_be_written_is_refused(entry: Any, problem: str) -> None:
    with pytest.raises(EditError, match=problem):
        set_entry("{}", "json", PATH, entry)


def test_any_text_in_an_entry_is_written_and_read() -> None:
    entry = {
        "": 'quote " \\ / \x00 \x7f\u2028 ü 🎉',
        "nested": {"list": [[1, {}], [], None, 1.5, True]},
    }
    path = ("a", "b \" '", "")
    assert parse(set_entry("{}", "json", path, entry).text, "json")["a"]["b \" '"][""] == entry


def test_a_long_list_is_written_on_lines() -> None:
    text = set_entry('{\n  "m": {}\n}', "json", ("m", "new"), {"args": ["x" * 40, "y" * 40]}).text
    assert f'      "args": [\n        "{"x" * 40}",\n        "{"y" * 40}"\n      ]\n' in text


def lines(count: int) -> Iterator[str]:
    yield '{\n  "projects": {'
    for number in range(count):
        comma = "," if number < count - 1 else ""
        yield f'    "/home/me/{number}": {{"history": [{{"display": "{"x" * 200}"}}]}}{comma}'
    yield '  },\n  "mcpServers": {\n    "old": {"command": "npx"}\n  }\n}\n'


def test_a_file_of_five_megabytes_keeps_all_its_bytes() -> None:
    text = "\n".join(lines(20_000))
    assert len(text) > 5_000_000
    edit = set_entry(text, "json", PATH, ENTRY)
    assert remove_spans(edit.text, edit.inserted).text == text
    assert remove_entry(edit.text, "json", PATH).text == text
