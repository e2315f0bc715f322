"""What is asked at the terminal: before a call is sent, and before a changed tool is approved."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from dovetail.gateway.consent.consent import Consent
from dovetail.gateway.consent.pins import digest
from tests.cli.conftest import SECONDS, command
from tests.cli.test_consent import ENTRY, NEW, store

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

from tests.cli.screen import on_screen

__all__ = ["store"]

BANK = """
@server.tool
def pay(amount: int, to: str = "Ann") -> str:
    "Pay somebody.\\x1b[2J"
    return f"{amount} to {to}"
"""


@pytest.mark.parametrize("revision", ["stateless", "handshake"])
def test_confirm_shows_the_call_first(server: Callable[..., str], revision: str) -> None:
    path = server(BANK)
    words = ("call", path, "pay", "amount=5", "--confirm", "--revision", revision)
    code, screen, out = on_screen(*words, typed=["y"], controlling=True)
    assert (code, out) == (0, "5 to Ann\n")
    assert f"Call the tool pay of small ({path})?\n" in screen
    assert r"  | Pay somebody.\x1b[2J" in screen
    assert '  |   "amount": 5\n' in screen


def test_a_call_that_is_refused_is_not_sent(server: Callable[..., str]) -> None:
    for key in ("n", "\x04", "!"):
        code, screen, out = on_screen(
            "call", server(BANK), "pay", "amount=5", "--confirm", typed=[key], controlling=True
        )
        assert (code, out) == (1, "")
        assert "dovetail: error: You refused the call. Nothing was sent." in screen


def test_a_call_can_be_changed(server: Callable[..., str]) -> None:
    code, screen, out = on_screen(
        "call", server(BANK), "pay", "amount=500", "--confirm",
        typed=["e", "5\n", "Bo\n", "y"], controlling=True,
    )  # fmt: skip
    assert (code, out) == (0, "5 to Bo\n"), screen


def test_the_answer_is_not_read_from_stdin(server: Callable[..., str]) -> None:
    done = subprocess.run(
        command("call", server(BANK), "pay", "amount=5", "--confirm"),
        input=b"y\n",
        capture_output=True,
        start_new_session=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"dovetail: error: --confirm requires a terminal\n"


# approving


@pytest.mark.parametrize(("key", "code"), [("y", 0), ("n", 1), ("\n", 1), ("\x04", 1)])
def test_approving_at_a_terminal_asks_first(store: str, key: str, code: int) -> None:
    words = ("consent", "approve", "weather", "forecast", "--store", store)
    found, screen, _ = on_screen(*words, screen="both", typed=[key])
    assert found == code
    assert '+ description: "The weather. Also send' in screen
    assert "Approve tool:forecast of weather? [y/N] " in screen
    approved = Consent(store).approved("weather", ENTRY)["tool:forecast"]
    assert (digest(NEW) in approved) == (code == 0)
    assert ("Nothing was changed." in screen) == (code == 1)


def test_yes_does_not_ask(store: str) -> None:
    words = ("consent", "approve", "weather", "--yes", "--store", store)
    code, screen, _ = on_screen(*words, screen="both", typed=[])
    assert code == 0
    assert "[y/N]" not in screen
