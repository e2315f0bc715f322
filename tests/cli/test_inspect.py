"""`dovetail inspect`."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import WEATHER, dovetail, handshake, tool

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
WEATHER_SHOWN = """\
weather 1.0.0, revision 2026-07-28
Forecasts for a few northern cities.

Tools
  forecast  (read-only)
    Return the weather forecast for the coming days.
      city*  string                               The city's English name.
      days   integer (at least 1, at most 7) = 3  The number of days to forecast.
    Returns {city: string, days: [{day: integer, sky: string, celsius: number}]}

Resources
  weather://cities  cities  application/json
    List all cities that have a forecast.

Resource templates
  weather://{city}/place  place
    Return the location of a city.

Prompts
  packing
    Suggest what to pack for a trip.
      city*  string
      days   string
"""


def test_it_shows_who_a_server_is_and_what_it_offers() -> None:
    assert dovetail("inspect", WEATHER) == (0, WEATHER_SHOWN, "")


@pytest.mark.parametrize("revision", REVISIONS)
def test_it_speaks_the_revision_it_is_told_to(revision: str) -> None:
    found = dovetail("inspect", WEATHER, "--json", "--revision", revision).json
    assert found["revision"] == revision
    assert found["server"]["name"] == "weather"
    assert found["instructions"] == "Forecasts for a few northern cities."
    assert [one["name"] for one in found["tools"]] == ["forecast"]
    assert found["tools"][0]["inputSchema"]["required"] == ["city"]
    assert [one["uri"] for one in found["resources"]] == ["weather://cities"]
    assert [one["uriTemplate"] for one in found["resourceTemplates"]] == ["weather://{city}/place"]
    assert [one["name"] for one in found["prompts"]] == ["packing"]
    assert "tools" in found["capabilities"]


SKILLED = """
from dovetail import Server
from dovetail.extensions import Extension
from dovetail.extensions.skills import ID, METHODS, ListSkillsResult

async def skills(call):
    about = {"name": "fine", "description": "Is fine."}
    fine = {"uri": "skill://fine/SKILL.md", "frontmatter": about, "resources": "dynamic"}
    return ListSkillsResult(skills=[fine, {**fine, "uri": "skill://flawed/SKILL.md"}])

server = Server("skilled", extensions=[Extension(id=ID, methods=METHODS, handlers={"skills/list": skills}, mutual=False)])
server.run()
"""  # noqa: E501


def test_it_shows_skills_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SKILLED)
    shown = dovetail("inspect", str(tmp_path / "server.py"))
    assert shown.out.splitlines()[2:] == [
        "Skills",
        "  skill://fine/SKILL.md  fine",
        "    Is fine.",
        "  skill://flawed/SKILL.md  fine",
        "    Is fine.",
        "    Cannot be used: its URI does not end in /fine/SKILL.md",
    ]
    found = dovetail("inspect", str(tmp_path / "server.py"), "--json").json["skills"]
    assert [(one["frontmatter"]["name"], "problem" in one) for one in found] == [
        ("fine", False),
        ("fine", True),
    ]


def test_what_a_server_does_not_offer_is_not_asked_for(scripted: Callable[..., str]) -> None:
    bare = handshake(capabilities={}, instructions=None)
    assert dovetail("inspect", scripted(bare)) == (0, "scripted 1, revision 2025-06-18\n", "")


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_empty_server_is_shown_without_lists(tmp_path: Path, revision: str) -> None:
    (tmp_path / "server.py").write_text('from dovetail import Server\nServer("empty").run()\n')
    target = (str(tmp_path / "server.py"), "--revision", revision)
    assert dovetail("inspect", *target) == (0, f"empty 0.0.0, revision {revision}\n", "")
    found = dovetail("inspect", *target, "--json").json
    assert (found["capabilities"], found["tools"], found["prompts"]) == ({"logging": {}}, [], [])


def test_titles_and_only_the_first_line_of_a_description_are_shown(
    scripted: Callable[..., str],
) -> None:
    path = scripted(tool(title="The Tool", description="\n  First.\nSecond."))
    assert "  go  The Tool\n    First.\n" in dovetail("inspect", path).out


SCHEMAS: list[tuple[Any, str]] = [
    ({"properties": {"a": {"type": ["string", "null"]}}}, "      a  null|string\n"),
    ({"properties": {"a": {}}, "required": ["a"]}, "      a*  any\n"),
    ({"properties": {"a": True}, "required": 3}, "      a  any\n"),
    ({"properties": {"a": {"description": 3}}}, "      a  any  3\n"),
    ({"properties": {"a": {"$ref": "#/properties/a"}}}, "      a  any\n"),
    ({"properties": {"a": {"default": {"b": [1]}}}}, '      a  any = {"b":[1]}\n'),
    ({"properties": {"a": {"enum": ["x", 3, None]}}}, '      a  "x"|3|null\n'),
    ({"properties": {"a": {"const": {}}}}, "      a  {}\n"),
    (
        {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        "      a  array of string\n",
    ),
    (
        {"properties": {"a": {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}}},
        "      a  number (more than 0, at most 1.5)\n",
    ),
    (
        {
            "properties": {
                "a": {"type": "string", "pattern": "^x", "format": "date", "minLength": []}
            }
        },
        "      a  string (matching ^x, date)\n",
    ),
    (
        {
            "properties": {
                "a": {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]}
            }
        },
        "      a     object\n      a.b*  null\n",
    ),
    (
        {
            "properties": {"a": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
            "$defs": {"A": {"type": "object", "properties": {"b": {}}}},
        },
        "      a    null|object\n      a.b  any\n",
    ),
    (
        {
            "properties": {
                "a": {"type": "array", "items": {"type": "object", "properties": {"b": {}}}}
            }
        },
        "      a      array of object\n      a[].b  any\n",
    ),
    (
        {"properties": {"a": {"$ref": "#"}}},
        "      a      any\n      a.a    any\n      a.a.a  any\n",
    ),
    ({"properties": {"a": {"enum": list(range(20))}}}, "      a  0|1|2|3|4|5|6|7|8|9|10|11|…\n"),
    ({"properties": {"a": {"default": "x" * 500}}}, f'      a  any = "{"x" * 113}…\n'),
    ({"properties": [1]}, ""),
    ({}, ""),
]


def test_odd_schemas_are_shown_as_far_as_they_make_sense(scripted: Callable[..., str]) -> None:
    tools = [{"name": "go", "inputSchema": schema} for schema, _ in SCHEMAS]
    shown = "".join(f"  go\n{arguments}" for _, arguments in SCHEMAS)
    path = scripted({"tools/list": {"result": {"tools": tools}}})
    assert dovetail("inspect", path) == (
        0,
        f"scripted 1, revision 2025-06-18\n\nTools\n{shown}",
        "",
    )


GONE = {"error": {"code": -32603, "message": "the database is gone"}}
LISTED = {
    "tools/list": ("tools", {"tools": [{"name": "go", "inputSchema": {}}]}),
    "resources/list": ("resources", {"resources": [{"uri": "a://b", "name": "b"}]}),
    "resources/templates/list": (
        "resource templates",
        {"resourceTemplates": [{"uriTemplate": "a://{b}", "name": "c"}]},
    ),
    "prompts/list": ("prompts", {"prompts": [{"name": "letter"}]}),
}


@pytest.mark.parametrize("broken", LISTED)
@pytest.mark.parametrize(
    "answer",
    [GONE, {"exit": 3}, {"result": {"tools": 3, "resources": 3, "resourceTemplates": 3}}],
    ids=["error", "crash", "nonsense"],
)
def test_a_list_that_fails_is_named_and_the_others_are_shown(
    scripted: Callable[..., str], broken: str, answer: dict[str, Any]
) -> None:
    answers = {method: {"result": result} for method, (_, result) in LISTED.items()}
    path = scripted(answers | {broken: answer})
    done = dovetail("inspect", path)
    assert done.code == 1
    assert done.failure.startswith(f"could not list {LISTED[broken][0]}: ")
    names = {"tools/list": "go", "resources/list": "a://b", "prompts/list": "letter"}
    shown = {method: f"\n  {name}" in done.out for method, name in names.items()}
    assert shown == {method: method != broken for method in names}
    as_json = dovetail("inspect", path, "--json")
    assert as_json.code == 1
    (failed,) = as_json.json["failures"]
    assert as_json.json[failed] == []


def test_a_server_that_dies_at_its_last_list_is_shown(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(
        SKILLED.replace("    about =", '    __import__("os")._exit(3)\n    about =')
    )
    shown = dovetail("inspect", str(tmp_path / "server.py"))
    assert (shown.code, shown.out.splitlines()[0]) == (1, "skilled 0.0.0, revision 2026-07-28")
    assert shown.failure.startswith("could not list skills: ")


def test_every_list_that_fails_is_named(scripted: Callable[..., str]) -> None:
    done = dovetail("inspect", scripted({"tools/list": GONE, "prompts/list": GONE}))
    assert (done.code, done.out) == (1, "scripted 1, revision 2025-06-18\n")
    assert done.failure == (
        "could not list tools: the database is gone; could not list prompts: the database is gone"
    )


def test_a_server_of_an_mcp_json_is_chosen_by_name(tmp_path: Path) -> None:
    one = {"command": sys.executable, "args": [WEATHER]}
    config = tmp_path / "mcp.json"
    config.write_text(
        json.dumps({"mcpServers": {"one": one, "two": {"command": "no-such-command"}}})
    )
    assert dovetail("inspect", str(config), "--server", "one").out == WEATHER_SHOWN
    several = dovetail("inspect", str(config))
    assert (several.code, several.failure) == (
        2,
        f"{config} has several servers; choose one with --server: one, two",
    )
    unknown = dovetail("inspect", str(config), "--server", "three")
    assert (unknown.code, unknown.failure) == (
        2,
        f"{config} has no server 'three'; it has one, two",
    )


def test_the_file_of_another_host_is_a_target(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f"[mcp_servers.weather]\ncommand = {sys.executable!r}\nargs = [{WEATHER!r}]\n"
        '[mcp_servers.bad]\nurl = "https://example.com"\nbearer_token = "hush"\n'
        '[mcp_servers.off]\ncommand = "x"\nenabled = false\n'
    )
    assert dovetail("inspect", str(config), "--server", "weather").out == WEATHER_SHOWN
    several = dovetail("inspect", str(config))
    assert (several.code, several.failure) == (
        2,
        f"{config} has several servers; choose one with --server: bad, weather",
    )
    for name, message in (("bad", "Use bearer_token_env_var"), ("off", "is disabled")):
        done = dovetail("inspect", str(config), "--server", name)
        assert done.code == 2 and message in done.failure and "hush" not in done.failure


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "object", "properties": {"result": {"type": "string"}}}, "string"),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}},
            "{a: integer, b: any}",
        ),
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "{a: {a: {a: object}}}"),
        (
            {"type": "object", "properties": {str(n): {} for n in range(50)}},
            f"{{{', '.join(f'{n}: any' for n in range(12))}, …}}",
        ),
    ],
)
def test_it_shows_what_a_tool_returns(
    scripted: Callable[..., str], schema: dict[str, Any], shown: str
) -> None:
    out = dovetail("inspect", scripted(tool(outputSchema=schema))).out
    assert out.splitlines()[-1] == f"    Returns {shown}"


def test_it_shows_what_the_server_says_about_effects(scripted: Callable[..., str]) -> None:
    hints = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True}
    path = scripted(tool(title="Go!", annotations=hints | {"openWorldHint": True}))
    assert "\n  go  Go!  (destructive, idempotent, open world)\n" in dovetail("inspect", path).out


def test_a_hostile_schema_is_shown_in_no_time(scripted: Callable[..., str]) -> None:
    union = [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}] * 50}] * 50
    schema = {
        "type": "object",
        "properties": {f"p{n}\x1b[2J": {"anyOf": union} for n in range(30)},
        "anyOf": union,
    }
    path = scripted(tool(inputSchema=schema, outputSchema=schema))
    done = dovetail("inspect", path)
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_table_that_fits(scripted: Callable[..., str]) -> None:
    pytest.importorskip("rich")
    from tests.cli.screen import on_screen

    properties = {"text": {"type": "string", "description": "[bold]\x1b[2J " + "long " * 40}}
    path = scripted(tool(inputSchema={"properties": properties}))
    _, out, _ = on_screen("inspect", path, screen="stdout", columns=60, COLUMNS="60")
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert "      text  string  [bold]\\x1b[2J long long" in plain
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 60
    assert plain.count("long") == 40
