"""Which requests reach the inspector, as a table."""

import pytest

from dovetail.inspector.access import AccessPolicy, Allowed, Denied, check_access

TOKEN = "secret-token"
OURS = AccessPolicy(TOKEN, 4711, ("127.0.0.1",))
HOST = {"host": "127.0.0.1:4711"}
BEARER = HOST | {"authorization": f"Bearer {TOKEN}"}
POST = BEARER | {"content-type": "application/json"}
ORIGIN = "http://127.0.0.1:4711"
PAGE = POST | {"origin": ORIGIN, "sec-fetch-site": "same-origin"}


def decide(
    method: str, path: str, headers: dict[str, str], policy: AccessPolicy = OURS
) -> Allowed | Denied:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return check_access(method, path, pairs, policy)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", HOST),
        ("GET", "/", HOST | {"sec-fetch-site": "cross-site"}),  # the redirect from a file
        ("GET", "/static/app.js", HOST | {"sec-fetch-site": "same-origin", "origin": ORIGIN}),
        ("POST", "/api/snapshot", POST),
        ("POST", "/api/snapshot", PAGE),
        ("POST", "/api/snapshot", PAGE | {"content-type": "Application/JSON; charset=utf-8"}),
        ("GET", "/api/events", BEARER),
        ("GET", "/api/events", BEARER | {"sec-fetch-site": "none"}),
    ],
)
def test_our_page_and_programs_with_the_token_are_allowed(
    method: str, path: str, headers: dict[str, str]
) -> None:
    assert decide(method, path, headers) == Allowed(path.startswith("/api/"))


@pytest.mark.parametrize(
    ("status", "method", "path", "headers"),
    [
        (421, "GET", "/", {}),
        (421, "GET", "/", {"host": "localhost:4711"}),
        (421, "GET", "/", {"host": "127.0.0.1"}),
        (421, "GET", "/", {"host": "127.0.0.1:4712"}),
        (421, "GET", "/", {"host": "127.1:4711"}),
        (421, "GET", "/", {"host": "evil.example:4711"}),
        (421, "POST", "/api/snapshot", POST | {"host": "evil.example:4711"}),
        (403, "GET", "/", HOST | {"origin": "http://127.0.0.1:4712"}),
        (403, "GET", "/", HOST | {"origin": "http://localhost:4711"}),
        (403, "GET", "/", HOST | {"origin": "https://127.0.0.1:4711"}),
        (403, "GET", "/", HOST | {"origin": "null"}),
        (403, "POST", "/api/call", POST | {"origin": "http://evil.example"}),
        (403, "OPTIONS", "/", HOST),
        (403, "OPTIONS", "/api/call", PAGE),
        (405, "HEAD", "/", HOST),
        (405, "PUT", "/api/call", PAGE),
        (405, "POST", "/", HOST),
        (405, "GET", "/api/call", BEARER),
        (405, "POST", "/api/events", POST),
        (401, "POST", "/api/call", HOST | {"content-type": "application/json"}),
        (401, "POST", "/api/call", POST | {"authorization": "Bearer wrong"}),
        (401, "POST", "/api/call", POST | {"authorization": TOKEN}),
        (401, "POST", "/api/call", POST | {"authorization": "Bearer"}),
        (401, "GET", "/api/events", HOST),
        (403, "POST", "/api/call", POST | {"sec-fetch-site": "cross-site"}),
        (403, "POST", "/api/call", POST | {"sec-fetch-site": "same-site"}),
        (403, "POST", "/api/call", POST | {"origin": ORIGIN}),  # a browser says where it is
        (415, "POST", "/api/call", BEARER),
        (415, "POST", "/api/call", PAGE | {"content-type": "text/plain"}),
        (415, "POST", "/api/call", PAGE | {"content-type": "application/jsonp"}),
    ],
)
def test_everything_else_is_denied(
    status: int, method: str, path: str, headers: dict[str, str]
) -> None:
    decision = decide(method, path, headers)
    assert isinstance(decision, Denied)
    assert (decision.status, bool(decision.message), bool(decision.what_to_do)) == (
        status,
        True,
        True,
    )


@pytest.mark.parametrize("name", ["host", "authorization", "content-type"])
def test_a_header_that_is_sent_twice_counts_as_missing(name: str) -> None:
    pairs = [(key.encode(), value.encode()) for key, value in PAGE.items()]
    pairs.append((name.encode(), PAGE[name].encode()))
    assert isinstance(check_access("POST", "/api/call", pairs, OURS), Denied)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("192.0.2.1:80", True), ("192.0.2.1", True), ("box", True), ("[2001:db8::1]:80", True),
     ("evil.example", False), ("192.0.2.1:81", False), ("localhost", False)],
)  # fmt: skip
def test_a_page_for_all_addresses_accepts_addresses_but_no_foreign_names(
    host: str, allowed: bool
) -> None:
    policy = AccessPolicy(TOKEN, 80, ("box",), any_address=True)
    assert isinstance(decide("GET", "/", {"host": host}, policy), Allowed) is allowed
