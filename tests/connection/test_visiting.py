"""Tickets for pages: who they are good for, and how long."""

import logging
from urllib.parse import parse_qs, urlsplit

import pytest

from dovetail.connection.url_elicitation import _bound, bind_url, check_ticket, without_ticket
from dovetail.errors import UrlRefused
from dovetail.sealing import KeyRing, key_ring

RING = key_ring(["a key that is long enough"])
REFUSAL = "This link is not valid for you or has expired; ask for a new one"


def ticket(url: str) -> str:
    return parse_qs(urlsplit(url).query)["ticket"][0]


@pytest.fixture(params=["encrypted", "signed"])
def ring(request: pytest.FixtureRequest) -> KeyRing:
    made = key_ring(["another key, long enough too"])
    if request.param == "signed":
        made._load_makers().pop(1)
    assert made.encrypts is (request.param == "encrypted")
    return made


@pytest.mark.requirement("elicitation-url-same-user")
def test_a_ticket_is_good_for_its_user_and_does_not_name_them(ring: KeyRing) -> None:
    url = bind_url(ring, "https://example.com/pay", "shop", "ann@example.com", "e-1", 60)
    assert check_ticket(ring, url, "shop", "ann@example.com") == "e-1"
    assert check_ticket(ring, ticket(url), "shop", "ann@example.com") == "e-1"
    assert check_ticket(ring, f"/pay?ticket={ticket(url)}", "shop", "ann@example.com") == "e-1"
    assert "ann" not in url
    assert b"ann" not in ring.open("url", ticket(url), bound=_bound("shop", "ann@example.com"))


def test_a_ticket_of_another_server_with_the_same_keys_is_refused() -> None:
    with pytest.raises(UrlRefused):
        check_ticket(
            RING, bind_url(RING, "https://example.com/pay", "bank", "ann", "e-1", 60), "shop", "ann"
        )


@pytest.mark.requirement("elicitation-url-same-user")
@pytest.mark.parametrize(
    ("asked", "opens"), [("ann", "bob"), ("ann", None), (None, "ann"), (None, ""), ("", None)]
)
def test_nobody_else_can_open_the_page(
    asked: str | None, opens: str | None, ring: KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    url = bind_url(ring, "https://example.com/pay", "shop", asked, "e-1", 60)
    assert check_ticket(ring, url, "shop", asked) == "e-1"
    with caplog.at_level(logging.WARNING), pytest.raises(UrlRefused) as refused:
        check_ticket(ring, url, "shop", opens)
    assert str(refused.value) == REFUSAL
    assert "another user" in caplog.text


@pytest.mark.requirement("elicitation-url-changed")
@pytest.mark.parametrize(
    "given",
    [
        "",
        "?",
        "/pay",
        "https://example.com/pay?ticket=",
        "?ticket=x",
        "nonsense",
        "http://[?ticket=1",
        "é?ticket=é",
    ],
)
def test_what_is_no_ticket_is_refused_in_the_same_words(given: str) -> None:
    with pytest.raises(UrlRefused) as refused:
        check_ticket(RING, given, "shop", "ann")
    assert str(refused.value) == REFUSAL


@pytest.mark.requirement("elicitation-url-changed")
def test_a_ticket_that_was_changed_or_is_of_another_use_is_refused() -> None:
    good = ticket(bind_url(RING, "https://example.com/pay", "shop", "ann", "e-1", 60))
    other = RING.seal("state", b"\x92\xa3e-1\xcb\x7f\xef\xff\xff\xff\xff\xff\xff", bound=b"=ann")
    strange = RING.seal("url", b"\x91\xa3e-1", bound=b"=ann")
    for forged in (good[:-2] + ("AA" if good[-2:] != "AA" else "BB"), other, strange, good + "A"):
        with pytest.raises(UrlRefused):
            check_ticket(RING, forged, "shop", "ann")


def test_a_ticket_expires(caplog: pytest.LogCaptureFixture) -> None:
    url = bind_url(RING, "https://example.com/pay", "shop", "ann", "e-1", -1)
    with caplog.at_level(logging.WARNING), pytest.raises(UrlRefused, match=REFUSAL):
        check_ticket(RING, url, "shop", "ann")
    assert "it has expired" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/a?b=c&d=",
        "https://example.com/a?x=%20y#part",
        "https://example.com/?ticketing=1",
        "https://example.com/x?sig=a%20b&myticket=1",
    ],
)
def test_the_rest_of_the_url_stays_and_a_second_ticket_takes_the_place_of_the_first(
    url: str,
) -> None:
    once = bind_url(RING, url, "shop", "ann", "one", 60)
    twice = bind_url(RING, once, "shop", "bob", "two", 60)
    parts, before = urlsplit(twice), urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.path, parts.fragment) == before[:3] + before[4:]
    query = parse_qs(parts.query, keep_blank_values=True)
    assert len(query.pop("ticket")) == 1
    assert query == parse_qs(before.query, keep_blank_values=True)
    assert check_ticket(RING, twice, "shop", "bob") == "two"
    assert without_ticket(once) == without_ticket(twice) == url
