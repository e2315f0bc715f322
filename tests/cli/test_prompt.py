"""`dovetail prompt`."""

from collections.abc import Callable

import pytest

from tests.cli.conftest import WEATHER, dovetail

PACKING = "I am travelling to Oslo for 2 days. Look at the forecast and tell me what to pack."


def test_a_prompt_is_filled_in_and_printed() -> None:
    done = dovetail("prompt", WEATHER, "packing", "city=Oslo", "days=2")
    assert done == (0, f"Suggest what to pack for a trip.\nuser:\n{PACKING}\n", "")


def test_the_document_holds_the_messages() -> None:
    found = dovetail("prompt", WEATHER, "packing", "city=Oslo", "--json", "days=2").json
    assert found["messages"] == [{"role": "user", "content": {"type": "text", "text": PACKING}}]
    assert found["description"] == "Suggest what to pack for a trip."


def test_arguments_are_strings_whatever_they_look_like(server: Callable[..., str]) -> None:
    path = server("@server.prompt\ndef say(text: str): return text")
    assert "\n1e3\n" in dovetail("prompt", path, "say", "text=1e3").out


@pytest.mark.parametrize(
    ("name", "hint"), [("nope", "It has: packing"), ("packin", "Did you mean packing?")]
)
def test_an_unknown_prompt_fails_in_one_line(name: str, hint: str) -> None:
    done = dovetail("prompt", WEATHER, name)
    assert (done.code, done.out) == (1, "")
    assert done.failure == f"The server has no prompt '{name}'. {hint}"


def test_a_wrong_argument_is_reported_as_the_server_does() -> None:
    done = dovetail("prompt", WEATHER, "packing")
    assert (done.code, done.out) == (1, "")
    assert "city" in done.failure
