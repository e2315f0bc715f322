"""WWW-Authenticate, as servers write it and as they should not."""

import time

import pytest
from hypothesis import given, strategies as st

from dovetail.auth.wire import (
    Challenge,
    format_challenge,
    parse_challenges,
    read_requirements,
)
from dovetail.ports import HttpResponse


def of(text: str) -> list[Challenge]:
    return parse_challenges({"www-authenticate": text})


@pytest.mark.requirement("auth-challenge-parsed")
def test_a_challenge_is_taken_apart() -> None:
    (found,) = of(
        'Bearer error="invalid_token", resource_metadata="https://a/b", scope="files:read '
        'files:write"'
    )
    assert found.scheme == "bearer"
    assert found.parameters == {
        "error": "invalid_token",
        "resource_metadata": "https://a/b",
        "scope": "files:read files:write",
    }


def test_several_challenges_in_one_header_are_kept_apart() -> None:
    found = of(
        'Basic realm="a, b=\\"c\\"", DPoP algs="ES256 PS256", error="use_dpop_nonce",Bearer , '
        "Negotiate abc/de=="
    )
    assert [challenge.scheme for challenge in found] == ["basic", "dpop", "bearer", "negotiate"]
    assert found[0].parameters == {"realm": 'a, b="c"'}
    assert found[1].parameters == {"algs": "ES256 PS256", "error": "use_dpop_nonce"}
    assert found[2].parameters == {}
    assert found[3].token68 == "abc/de=="


def test_bare_values_and_odd_spacing_are_understood() -> None:
    (found,) = of("  bearer\tResource_Metadata = https://a.example/x?y=z ,error=invalid_token,,")
    assert found.parameters == {
        "resource_metadata": "https://a.example/x?y=z",
        "error": "invalid_token",
    }


def test_what_makes_no_sense_ends_the_parsing_and_spares_what_came_before() -> None:
    found = of('Bearer error="x", realm="never closed')
    assert found[0].parameters["error"] == "x"
    assert of("") == of('="') == of("\x00\x01") == []
    assert of('realm="of nobody", Bearer error="y"') == [Challenge("bearer", {"error": "y"})]


def test_of_two_values_the_first_counts() -> None:
    assert of('Bearer scope="a", scope="b"')[0].parameters == {"scope": "a"}


def test_a_refusal_is_what_bearer_and_dpop_ask_for_together() -> None:
    answer = HttpResponse(
        status=401,
        headers={
            "www-authenticate": 'Basic scope="no", Bearer resource_metadata="https://m", DPoP '
            'scope="a b a", error="e"'
        },
    )
    asked = read_requirements(answer)
    assert (asked.metadata_url, asked.scopes, asked.error) == ("https://m", ("a", "b"), "e")
    assert asked.schemes == {"bearer", "dpop"}


def test_what_is_written_is_read_again() -> None:
    written = format_challenge(
        "Bearer", {"error": 'a "quoted" \\ word\r\nInjected: yes', "scope": "x y"}
    )
    assert "\r" not in written and "\n" not in written
    assert of(written)[0].parameters == {"error": 'a "quoted" \\ wordInjected: yes', "scope": "x y"}
    assert format_challenge("DPoP", {}) == "DPoP"


@given(st.text(max_size=200) | st.text(alphabet='Bearer,="\\ a', max_size=200))
def test_no_header_breaks_the_parser(text: str) -> None:
    for challenge in of(text):
        assert challenge.scheme


@pytest.mark.parametrize(
    "text",
    ['Bearer a="' + "\\" * 50_000, "a " * 50_000, "a," * 50_000, "a=" * 50_000, " ," * 50_000],
)
def test_a_hostile_header_costs_little(text: str) -> None:
    begun = time.process_time()
    of(text)
    assert time.process_time() - begun < 0.5
