"""A server that puts control characters into everything it says: none of them reaches the
terminal."""

import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import dovetail, handshake, says, tool
from tests.cli.screen import on_screen

EVIL = "a\x1b[2J\x1b]0;owned\x07\x1b]52;c;QUJD\x07\x1b]8;;http://evil\x1b\\b\x9b31m\rc\x08\x7f\x00\u202ed\u2066\u200be"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\x1b]52;c;QUJD\x07\x1b]8;;http://evil\x1b\b\x9b31m\x0dc\x08\x7f\x00\u202ed\u2066\u200be"
LOG = ["notifications/message", {"level": "info", "logger": EVIL, "data": EVIL}]
LOG_OBJECT = ["notifications/message", {"level": "info", "data": {EVIL: [EVIL]}}]
PROGRESS = ["notifications/progress", {"progress": 1, "total": 2, "message": EVIL}]
ARGUMENT = {"name": EVIL, "description": EVIL}
SCHEMA = {
    "properties": {EVIL: {"type": EVIL, "description": EVIL, "default": EVIL}},
    "required": [EVIL],
}
THING = {"name": EVIL, "title": EVIL, "description": EVIL, "mimeType": EVIL}
ANSWERS: list[dict[str, Any]] = [
    handshake({"name": EVIL, "version": EVIL, "title": EVIL}, instructions=EVIL),
    {"ping": {"result": {}, "stderr": f"{EVIL}\n"}},
    {"tools/list": {"result": {"tools": [{**THING, "name": "go", "inputSchema": SCHEMA}]}}},
    {"resources/list": {"result": {"resources": [{**THING, "uri": EVIL}]}}},
    {
        "resources/templates/list": {
            "result": {"resourceTemplates": [{**THING, "uriTemplate": EVIL}]}
        }
    },
    {"prompts/list": {"result": {"prompts": [{**THING, "arguments": [ARGUMENT]}]}}},
    {
        "resources/read": {
            "result": {
                "contents": [
                    {"uri": EVIL, "text": EVIL},
                    {"uri": EVIL, "blob": "", "mimeType": EVIL},
                ]
            }
        }
    },
    {
        "prompts/get": {
            "result": {
                "description": EVIL,
                "messages": [{"role": "user", "content": {"type": "text", "text": EVIL}}],
            }
        }
    },
    says(
        EVIL,
        {"type": "image", "data": "", "mimeType": EVIL},
        {"type": "audio", "data": "A", "mimeType": EVIL},
        {"type": "resource_link", "uri": EVIL, "name": EVIL},
        {"type": "resource", "resource": {"uri": EVIL, "text": EVIL}},
        {"type": EVIL},
        before=[LOG, LOG_OBJECT, PROGRESS],
    ),
]
VERBS = [["inspect"], ["ping"], ["call", "go"], ["read", "a://b"], ["prompt", "x"]]


def dangers(text: str) -> set[str]:
    """The characters of a text that do something; newline and tab may."""
    kinds = {"Cc", "Cf", "Zl", "Zp"}
    return {character for character in text if unicodedata.category(character) in kinds} - {
        "\n",
        "\t",
    }


@pytest.mark.parametrize(
    "option", [[], ["--json"], ["--verbose"], ["--json", "--verbose"]], ids=" ".join
)
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_no_control_character_gets_through(
    scripted: Callable[..., str], verb: list[str], option: list[str]
) -> None:
    done = dovetail(verb[0], scripted(*ANSWERS), *verb[1:], *option)
    assert done.code == 0
    assert dangers(done.out) | dangers(done.err) == set()
    if option == []:
        assert SHOWN in done.out


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_on_a_terminal_the_only_escape_sequences_are_ours(
    scripted: Callable[..., str], verb: list[str]
) -> None:
    code, screen, _ = on_screen(verb[0], scripted(*ANSWERS), *verb[1:], screen="both")
    assert code == 0
    assert "\x1b[1m" in screen or verb[0] in ("call", "read")
    # Of ours there are styles, and the returns with which the bar is drawn and wiped. With rich,
    # other characters draw the bar.
    screen = re.sub(r"\x1b\[\d{1,2}m", "", screen)
    assert dangers(re.sub(r"\r[█░━╺╸]+ +50%  a\\x1b|\r +\r", "", screen)) == set()


def test_json_gives_every_character_back(scripted: Callable[..., str]) -> None:
    path = scripted(*ANSWERS)
    assert dovetail("read", path, "a://b", "--json").json["contents"][0]["text"] == EVIL
    assert dovetail("call", path, "go", "--json").json["content"][0]["text"] == EVIL


@pytest.mark.parametrize("option", [[], ["--json"], ["--verbose"]], ids=" ".join)
@pytest.mark.parametrize(
    "answers",
    [
        {"initialize": {"error": {"code": -32603, "message": EVIL, "data": EVIL}}},
        {
            "initialize": {
                "result": {
                    "protocolVersion": EVIL,
                    "capabilities": {},
                    "serverInfo": {"name": EVIL},
                }
            }
        },
        {"initialize": {"result": EVIL}},
        {"tools/list": {"error": {"code": -32603, "message": EVIL, "data": {EVIL: EVIL}}}},
        {"tools/list": {"result": {"tools": [{"name": EVIL, "inputSchema": {}}]}}},
        {"tools/list": {"result": {"tools": EVIL}}},
        {"tools/call": {"error": {"code": 7, "message": EVIL}}},
        {"tools/call": {"result": {"content": [{"type": "text", "text": EVIL}], "isError": True}}},
        {"tools/call": {"result": {"content": [], "resultType": EVIL}, "stderr": EVIL}},
    ],
)
def test_failures_are_made_harmless_too(
    scripted: Callable[..., str], answers: dict[str, Any], option: list[str]
) -> None:
    done = dovetail("call", scripted(tool(), says("fine"), answers), "go", *option)
    assert dangers(done.out) | dangers(done.err) == set()
    assert (done.code, done.err != "") in {
        (1, True),
        (0, "stderr" in str(answers) and option == ["--verbose"]),
    }


def test_last_words_are_made_harmless(tmp_path: Any) -> None:
    path = tmp_path / "dying.py"
    path.write_text(f"import sys; sys.stderr.write({EVIL!r}); sys.exit(1)", encoding="utf-8")
    done = dovetail("ping", str(path), "--env", "PYTHONIOENCODING=utf-8")
    assert dangers(done.err) == set()
    assert r"\x1b]52;c;QUJD\x07" in done.failure


def test_names_cannot_forge_lines(scripted: Callable[..., str]) -> None:
    path = scripted(tool("x\n\nResources\n  file:///etc/passwd"))
    assert "\n  x\\n\\nResources\\n  file:///etc/passwd\n" in dovetail("inspect", path).out
