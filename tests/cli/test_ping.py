"""`dovetail ping`."""

import re
from collections.abc import Callable

import pytest

from tests.cli.conftest import WEATHER, dovetail


def test_it_tells_how_long_each_round_trip_took() -> None:
    done = dovetail("ping", WEATHER, "--count", "3")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"(weather answered in \d+\.\d\d ms\n){3}", done.out)


@pytest.mark.parametrize("revision", ["2025-03-26", "2026-07-28"])
def test_the_document_has_the_times(revision: str) -> None:
    found = dovetail("ping", WEATHER, "--json", "--revision", revision).json
    assert (found["server"], found["revision"]) == ("weather", revision)
    assert all(time > 0 for time in found["milliseconds"])
    assert len(found["milliseconds"]) == 1


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_a_count_must_be_a_positive_number(count: str) -> None:
    done = dovetail("ping", WEATHER, "--count", count)
    assert done.code == 2
    assert "argument --count" in done.failure


def test_a_server_that_does_not_answer_is_given_up_in_time(scripted: Callable[..., str]) -> None:
    done = dovetail("ping", scripted({"ping": {"silent": True}}), "--timeout", "0.2")
    assert done.code == 1
    assert "0.2 s" in done.failure
