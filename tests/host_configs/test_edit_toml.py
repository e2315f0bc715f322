"""One table of a TOML file changes, and every other byte stays."""

import tomllib
from typing import Any

import pytest

from dovetail.host_configs.edit import EditError, parse, remove_entry, set_entry
from dovetail.host_configs.splice import remove_spans

PATH = ("mcp_servers", "new")
ENTRY = {"command": "uvx", "args": ["new"], "env": {"KEY": "x"}}
TABLE = """\
[mcp_servers.new]
command = "uvx"
args = ["new"]

[mcp_servers.new.env]
KEY = "x"
"""
INLINE = 'new = { command = "uvx", args = ["new"], env = { KEY = "x" } }'

TEXTS = {
    "an empty file": ("", TABLE),
    "white space": ("\n\n", TABLE + "\n"),
    "a byte order mark": ("\ufeff", "\ufeff" + TABLE),
    "only comments": ("# mine\n", f"# mine\n\n{TABLE}"),
    "settings": ('model = "m"\n', f'model = "m"\n\n{TABLE}'),
    "settings, without a line end": ('model = "m"', f'model = "m"\n\n{TABLE}'),
    "settings, then an empty line": ('model = "m"\n\n', f'model = "m"\n\n{TABLE}'),
    "another table, and a comment at the end": (
        "[tui]\nx = 1\n# end\n",
        f"[tui]\nx = 1\n# end\n\n{TABLE}",
    ),
    "another server": (
        '[mcp_servers.old]\ncommand = "npx" # old\n',
        f'[mcp_servers.old]\ncommand = "npx" # old\n\n{TABLE}',
    ),
    "another server, without a line end": (
        '[mcp_servers.old]\ncommand = "npx"',
        f'[mcp_servers.old]\ncommand = "npx"\n\n{TABLE[:-1]}',
    ),
    "another server before another table with a comment": (
        '[mcp_servers.old]\ncommand = "npx"\n\n# My profiles\n[profiles.fast]\nx = 1\n',
        f'[mcp_servers.old]\ncommand = "npx"\n\n{TABLE}\n# My profiles\n[profiles.fast]\nx = 1\n',
    ),
    "a comment right above the next table": (
        '[mcp_servers.old]\ncommand = "npx"\n# My profiles\n[profiles.fast]\n',
        f'[mcp_servers.old]\ncommand = "npx"\n\n{TABLE}# My profiles\n[profiles.fast]\n',
    ),
    "a comment at the end of the other server": (
        '[mcp_servers.old]\ncommand = "npx"\n# args = []\n\n[profiles.fast]\n',
        f'[mcp_servers.old]\ncommand = "npx"\n# args = []\n\n{TABLE}\n[profiles.fast]\n',
    ),
    "tables of another server": (
        '[mcp_servers.old]\ncommand = "npx"\n[mcp_servers.old.env]\nA = "b"\n[x]\n',
        f'[mcp_servers.old]\ncommand = "npx"\n[mcp_servers.old.env]\nA = "b"\n\n{TABLE}[x]\n',
    ),
    "servers in two places": (
        "[mcp_servers.a]\n[x]\n[mcp_servers.b]\n[y]\n",
        f"[mcp_servers.a]\n[x]\n[mcp_servers.b]\n\n{TABLE}[y]\n",
    ),
    "a header for all servers": (
        '[mcp_servers]\nold = { command = "npx" }\n',
        f'[mcp_servers]\nold = {{ command = "npx" }}\n\n{TABLE}',
    ),
    "dotted keys in a header": (
        '[mcp_servers]\nold.command = "npx"\n[x]\n',
        f'[mcp_servers]\nold.command = "npx"\n\n{TABLE}[x]\n',
    ),
    "dotted keys at the top, and other keys after them": (
        'mcp_servers.old.command = "npx"\nmodel = "m"\n\n[x]\n',
        f'mcp_servers.old.command = "npx"\nmodel = "m"\n\n{TABLE}\n[x]\n',
    ),
    "line ends of Windows": (
        '[mcp_servers.old]\r\ncommand = "npx"\r\n\r\n[x]\r\n',
        '[mcp_servers.old]\r\ncommand = "npx"\r\n\r\n'
        + TABLE.replace("\n", "\r\n")
        + "\r\n[x]\r\n",
    ),
    "an inline table": (
        'mcp_servers = { old = { command = "npx" } } # mine\nmodel = "m"\n',
        f'mcp_servers = {{ old = {{ command = "npx" }}, {INLINE} }} # mine\nmodel = "m"\n',
    ),
    "an empty inline table": ("mcp_servers = {}\n", f"mcp_servers = {{ {INLINE} }}\n"),
    "an inline table with a space": ("mcp_servers = { }\n", f"mcp_servers = {{ {INLINE} }}\n"),
    "an inline table with dotted keys": (
        "mcp_servers = { old.args = [\n  1, # one\n] }\n",
        f"mcp_servers = {{ old.args = [\n  1, # one\n], {INLINE} }}\n",
    ),
    "brackets and headers in strings and arrays": (
        'a = """\n[mcp_servers.new]\n\\""" ]"""\nb = \'\'\'\n[mcp_servers.new]\'\'\'\n'
        "c = [\n  '[', # ]\n  \"]\",\n  [1,\n2],\n]\n[mcp_servers.old]\nd = '#'\n",
        'a = """\n[mcp_servers.new]\n\\""" ]"""\nb = \'\'\'\n[mcp_servers.new]\'\'\'\n'
        "c = [\n  '[', # ]\n  \"]\",\n  [1,\n2],\n]\n[mcp_servers.old]\nd = '#'\n\n" + TABLE,
    ),
    "strings that end in quotes": (
        'a = """x""""\nb = \'\'\'x\'\'\'\'\'\nc = ""\nd = """"""\n[mcp_servers.old]\n',
        'a = """x""""\nb = \'\'\'x\'\'\'\'\'\nc = ""\nd = """"""\n[mcp_servers.old]\n\n' + TABLE,
    ),
    "arrays of tables": (
        "[[hooks]]\nx = 1\n[[hooks]]\nx = 2\n",
        f"[[hooks]]\nx = 1\n[[hooks]]\nx = 2\n\n{TABLE}",
    ),
    "dates, and spaces in a header": (
        "[ mcp_servers . 'old' ]\nx = 2001-01-01T00:00:00Z\ny = inf\n",
        f"[ mcp_servers . 'old' ]\nx = 2001-01-01T00:00:00Z\ny = inf\n\n{TABLE}",
    ),
}


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_an_entry_is_added_next_to_the_other_servers(before: str, after: str) -> None:
    edit = set_entry(before, "toml", PATH, ENTRY)
    assert edit.text == after
    assert remove_spans(edit.text, edit.inserted).text == before
    value = tomllib.loads(after.removeprefix("\ufeff"))
    assert value["mcp_servers"]["new"] == ENTRY


@pytest.mark.parametrize(("before", "after"), TEXTS.values(), ids=TEXTS)
def test_the_same_entry_again_changes_nothing(before: str, after: str) -> None:
    assert not set_entry(after, "toml", PATH, ENTRY).is_changed


OTHER_WHITE_SPACE = {
    "white space",
    "settings, without a line end",
    "settings, then an empty line",
    "an inline table with a space",
}
"""Texts of which only the recorded spans give back all white space."""


@pytest.mark.parametrize("name", TEXTS)
def test_removing_the_entry_gives_back_the_old_text(name: str) -> None:
    before, after = TEXTS[name]
    text = remove_entry(after, "toml", PATH).text
    assert "".join(text.split()) == "".join(before.split())
    assert text == before or name in OTHER_WHITE_SPACE


REPLACED = {
    "a table, whose header line stays": (
        '[mcp_servers.new] # mine\ncommand = "npx" # old\n# x\nargs = [\n  1,\n]\n\n# b\n[b]\n',
        f"[mcp_servers.new] # mine\n{TABLE[18:]}\n# b\n[b]\n",
    ),
    "tables in two places": (
        '[mcp_servers.new.env]\nA = "b"\n\n[b]\n\n[mcp_servers.new]\ncommand = "npx"\n\n[c]\n',
        f"{TABLE}\n[b]\n\n[c]\n",
    ),
    "an empty table": ("[mcp_servers.new]\n", TABLE),
    "an inline table": ("[mcp_servers]\nnew = {} # mine\n", f"[mcp_servers]\n{INLINE} # mine\n"),
    "an inline table in another": (
        "mcp_servers = { a = 1, new = { x = 1 }, b = 2 }\n",
        f"mcp_servers = {{ a = 1, {INLINE}, b = 2 }}\n",
    ),
    "dotted keys": (
        '[mcp_servers]\nnew.command = "npx"\nnew.env.A = "b"\nold.command = "npx"\n',
        f'[mcp_servers]\n{INLINE}\nold.command = "npx"\n',
    ),
    "dotted keys with others between them": (
        'mcp_servers.new.command = "npx"\nx = 1\nmcp_servers.new.args = []\ny = 1\n',
        f"mcp_servers.{INLINE}\nx = 1\ny = 1\n",
    ),
    "dotted keys in an inline table": (
        "mcp_servers = { new.a = 1, b = 2, new.c = 3 }\n",
        f"mcp_servers = {{ {INLINE}, b = 2 }}\n",
    ),
    "a value that is not a table": ('mcp_servers.new = "x"\n', f"mcp_servers.{INLINE}\n"),
    "an array of tables": (
        "[[mcp_servers.new]]\na = 1\n[[mcp_servers.new]]\n[b]\n",
        f"{TABLE}[b]\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), REPLACED.values(), ids=REPLACED)
def test_an_existing_entry_is_replaced(before: str, after: str) -> None:
    edit = set_entry(before, "toml", PATH, ENTRY)
    assert edit.text == after


REMOVED = {
    "the first table": ("[mcp_servers.new]\na = 1\n\n[b]\n", "[b]\n"),
    "the only table": ("[mcp_servers.new]\na = 1\n", ""),
    "a table with comments around it": (
        "[a]\n# of a\n\n# above\n[mcp_servers.new] # mine\nx = 1 # mine\n\n# of b\n[b]\n",
        "[a]\n# of a\n\n# above\n\n# of b\n[b]\n",
    ),
    "its sub-tables": (
        '[a]\n\n[mcp_servers.new]\n[mcp_servers.new.env]\nA = "b"\n[[mcp_servers.new.x]]\n[b]\n',
        "[a]\n[b]\n",
    ),
    "tables in two places": (
        "[mcp_servers.new]\n[b]\n[mcp_servers.new.env]\n[c]\n",
        "[b]\n[c]\n",
    ),
    "dotted keys": (
        "[mcp_servers]\nnew.a = 1\nold.a = 1\nnew.b = 1\n",
        "[mcp_servers]\nold.a = 1\n",
    ),
    "the first of an inline table": (
        "mcp_servers = { new = {}, b = 1 }\n",
        "mcp_servers = { b = 1 }\n",
    ),
    "dotted keys of an inline table": (
        "mcp_servers = { new.a = {}, new.b = 1, b = 1, new.c = 2 }",
        "mcp_servers = { b = 1 }",
    ),
    "the only one of an inline table": (
        "a.mcp = 1\nmcp_servers = { new = {} }",
        "a.mcp = 1\nmcp_servers = {}",
    ),
    "a value in an inline table in another": (
        "mcp_servers = { x = { y = 1 }, new = 2 }",
        "mcp_servers = { x = { y = 1 } }",
    ),
}


@pytest.mark.parametrize(("before", "after"), REMOVED.values(), ids=REMOVED)
def test_an_entry_is_removed(before: str, after: str) -> None:
    assert remove_entry(before, "toml", PATH).text == after


NAMES = ["plain", "with space", "dots.in.it", 'quo"te', "ünï", "", "a/b", "\x7f\n"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "[mcp_servers.old]\n", "mcp_servers = {}\n"])
def test_any_name_is_written_found_and_removed(name: str, text: str) -> None:
    path = ("mcp_servers", name)
    entry = {"command": "\x00\x7f\\'\"🎉", name: {name: [1, 1.5, True, {"a": "b"}, []]}, "e": {}}
    edit = set_entry(text, "toml", path, entry)
    assert tomllib.loads(edit.text)["mcp_servers"][name] == entry
    assert not set_entry(edit.text, "toml", path, entry).is_changed
    removed = remove_entry(edit.text, "toml", path).text
    assert name not in tomllib.loads(removed).get("mcp_servers", {})
    assert tomllib.loads(removed).get("mcp_servers") == tomllib.loads(text).get("mcp_servers")


def test_a_value_deep_in_inline_tables_is_changed_there() -> None:
    text = "[a]\nb = { c = { d = 1 }, e.f = 2 }\n"
    assert set_entry(text, "toml", ("a", "b", "c", "new"), {"x": 1}).text == (
        "[a]\nb = { c = { d = 1, new = { x = 1 } }, e.f = 2 }\n"
    )
    assert set_entry(text, "toml", ("a", "b", "e", "new"), {}).text == (
        "[a]\nb = { c = { d = 1 }, e.f = 2, e.new = {} }\n"
    )
    assert remove_entry(text, "toml", ("a", "b", "c", "d")).text == (
        "[a]\nb = { c = {}, e.f = 2 }\n"
    )


def test_a_long_list_is_written_on_lines() -> None:
    text = set_entry("", "toml", PATH, {"args": ["x" * 40, "y" * 40]}).text
    assert text == f'[mcp_servers.new]\nargs = [\n  "{"x" * 40}",\n  "{"y" * 40}",\n]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = \n", "not valid TOML: line 1, column 5: Invalid value"),
        ("a = 1\nb", "not valid TOML: line 2, column 2: "),
        ("a = [1,\n\n", "not valid TOML: line 1, column 8: "),
        ("[a]\n[a]\n", "not valid TOML: line 2, column 3: Cannot declare"),
        ("a = 'sesame", "not valid TOML: "),
        ("a = " + "[" * 5000, "not valid TOML: it is nested too deeply"),
        ("\ufeff\ufeff", "not valid TOML: line 1, column 1"),
    ],
)
def test_a_text_that_is_not_valid_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(EditError) as caught:
        set_entry(text, "toml", PATH, ENTRY)
    assert problem in str(caught.value) and "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "entry", "problem"),
    [
        ("mcp_servers = 1\n", ENTRY, "'mcp_servers' is a number, not an object"),
        ("[[mcp_servers]]\n", ENTRY, "'mcp_servers' is a list, not an object"),
        ("mcp_servers = 2001-01-01\n", ENTRY, "'mcp_servers' is a value, not an object"),
        ("", {"x": None}, "'x' has a value that TOML cannot represent"),
    ],
)
def test_what_cannot_be_written_is_refused(text: str, entry: Any, problem: str) -> None:
    with pytest.raises(EditError, match=problem):
        set_entry(text, "toml", PATH, entry)


def test_a_large_file_keeps_all_its_bytes() -> None:
    rows = "".join(f'[projects."/{n}"]\ntrust = "x{n}" # {"y" * 5_000}\n\n' for n in range(1_000))
    assert len(rows) > 5_000_000
    edit = set_entry(rows, "toml", PATH, ENTRY)
    assert edit.text == rows + TABLE
    assert remove_entry(edit.text, "toml", PATH).text.rstrip() == rows.rstrip()
    assert parse(edit.text, "toml")["mcp_servers"]["new"] == ENTRY
