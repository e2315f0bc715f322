"""The ladder, row by row: what passes, what does not, and what the refusal says."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from dovetail.errors import (
    BY_CODE,
    ConfigError,
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    Overloaded,
    ProtocolError,
    TooLarge,
    UnsupportedVersion,
)
from dovetail.limits import Limits
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, Params
from dovetail.protocol.header_params import HeaderParam, find_header_params
from dovetail.protocol.methods import METHODS
from dovetail.protocol.prompts import GetPromptParams
from dovetail.protocol.resources import ReadResourceParams
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import ALL, HANDSHAKE, OFFICIAL, STATELESS
from dovetail.transports.http.server import message_checks, policy as ladder
from dovetail.transports.http.server.message_checks import (
    check_bare,
    check_header_params,
    check_message,
    is_stateless,
    rejection_for,
    status_for,
)
from dovetail.transports.http.server.policy import (
    Policy,
    Rejection,
    RequestHead,
    check_head,
    parse_accept,
)

MODERN, CLASSIC = STATELESS[-1].version, HANDSHAKE[-1].version
UNKNOWN = "v999.0.0"
PLAIN = {
    "host": "127.0.0.1:8000",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "content-length": "100",
}


def lines(**changes: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of an ordinary POST, with changes; None leaves one out."""
    merged = PLAIN | {name.replace("_", "-"): value for name, value in changes.items()}
    return [
        (name.encode(), value.encode("latin-1"))
        for name, value in merged.items()
        if value is not None
    ]


def judged(
    method: str = "POST",
    server: str | None = None,
    policy: Policy | None = None,
    **changes: str | None,
) -> RequestHead | Rejection:
    return check_head(policy or Policy(OFFICIAL), method, lines(**changes), server)


def passed(*args: Any, **changes: Any) -> RequestHead:
    outcome = judged(*args, **changes)
    assert isinstance(outcome, RequestHead), outcome
    return outcome


def refused(
    outcome: RequestHead | Rejection | None, status: int, error: type[ProtocolError], *words: str
) -> Rejection:
    assert isinstance(outcome, Rejection), outcome
    assert (outcome.status, type(outcome.error)) == (status, error), outcome.error.message
    for word in words:
        assert word in outcome.error.message
    return outcome


# the head

REFUSED: dict[str, tuple[int, type[ProtocolError], str, dict[str, str | None], tuple[str, ...]]] = {
    "origin": (
        403,
        InvalidRequest,
        "POST",
        {"origin": "http://evil.example.com"},
        ("http://evil.example.com", "origins=["),
    ),
    "host": (
        421,
        InvalidRequest,
        "POST",
        {"host": "evil.example.com:80"},
        ("evil.example.com:80", "hosts=['evil.example.com']"),
    ),
    "method": (405, InvalidRequest, "PUT", {}, ("'PUT'", "GET, POST, DELETE")),
    "characters": (400, HeaderMismatch, "POST", {"mcp_name": "a\x01b"}, ("Mcp-Name", "'a\\x01b'")),
    "length": (400, InvalidRequest, "POST", {"content_length": "12a"}, ("Content-Length", "'12a'")),
    "size": (
        413,
        TooLarge,
        "POST",
        {"content_length": "999999999999"},
        ("999999999999", "Limits.http_body"),
    ),
    "type": (
        415,
        InvalidRequest,
        "POST",
        {"content_type": "text/plain"},
        ("'text/plain'", "application/json"),
    ),
    "encoding": (415, InvalidRequest, "POST", {"content_encoding": "gzip"}, ("'gzip'",)),
    "accept": (
        406,
        InvalidRequest,
        "POST",
        {"accept": "text/html"},
        ("'text/html'", "text/event-stream"),
    ),
}


@pytest.mark.parametrize("rung", ladder.HEAD, ids=lambda rung: rung.name)
def test_each_rung_of_the_head_refuses_what_it_is_for_and_nothing_ordinary(
    rung: ladder.Rung,
) -> None:
    ordinary = passed()
    assert rung.check(Policy(OFFICIAL), ordinary) is None
    if rung.name == "repeated":
        outcome = check_head(Policy(OFFICIAL), "POST", [*lines(), (b"host", b"localhost")])
        refused(outcome, 400, InvalidRequest, "Host", "more than once")
    else:
        number, error, method, changes, words = REFUSED[rung.name]
        refused(judged(method, **changes), number, error, *words)
        assert (rung.status, rung.error) == (number, error)


def test_the_docstring_draws_the_ladder_as_it_is() -> None:
    drawn = f"{ladder.__doc__}\n\n{message_checks.__doc__}"
    for name, rungs in {
        "HEAD": ladder.HEAD,
        "STATELESS": message_checks.STATELESS,
        "HANDSHAKE": message_checks.HANDSHAKE,
    }.items():
        rows = drawn.split(f"    {name} ")[1].split("\n\n")[0].splitlines()[1:]
        table = [
            row.replace("*", " ").split()[:3] for row in rows if not row.strip().startswith("(")
        ]
        assert table == [[rung.name, str(rung.status), rung.error.__name__] for rung in rungs]


def test_what_was_refused_is_refused_again_and_what_passed_passes_again() -> None:
    policy = Policy(OFFICIAL)
    for _ in range(2):
        passed(policy=policy)
        for number, error, method, changes, words in REFUSED.values():
            refused(judged(method, policy=policy, **changes), number, error, *words)
        twice = [*lines(mcp_name="a"), (b"mcp-name", b"a")]
        refused(check_head(policy, "POST", twice), 400, InvalidRequest, "Mcp-Name")


def test_a_combination_that_passed_does_not_help_another_server_name_or_method() -> None:
    policy = Policy(OFFICIAL)
    passed(server="testserver", policy=policy, host="testserver")
    refused(judged(server="other", policy=policy, host="testserver"), 421, InvalidRequest)
    refused(
        judged("PUT", server="testserver", policy=policy, host="testserver"), 405, InvalidRequest
    )


def test_the_memory_of_combinations_is_bounded_in_number_and_length() -> None:
    policy = Policy(OFFICIAL)
    for number in range(3 * ladder.MAX_REMEMBERED_HEADS):
        passed(policy=policy, accept=f"application/json, x/{number}")
    assert (
        len(policy.remembered) <= ladder.MAX_REMEMBERED_HEADS
        and len(policy.known) <= ladder.MAX_REMEMBERED_HEADS
    )
    before = dict(policy.remembered), dict(policy.known)
    passed(policy=policy, accept="application/json, " + "x" * ladder.MAX_REMEMBERED_BYTES)
    assert (policy.remembered, policy.known) == before


def test_a_head_with_repeated_headers_is_not_remembered() -> None:
    policy = Policy(OFFICIAL)
    twice = [*lines(), *[(b"x" * 500, b"")] * 120]
    assert isinstance(check_head(policy, "POST", twice), ladder.RequestHead)
    assert not policy.remembered


def test_heads_for_which_there_is_no_room_are_remembered_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ladder, "MAX_REMEMBERED_HEADS", 4)
    monkeypatch.setattr(ladder, "FORGET_AFTER", 10)
    policy = Policy(OFFICIAL)
    heads = [passed(policy=policy, mcp_session_id=f"s{number}") for number in range(4 + 10)]
    assert list(policy.remembered.values()) == heads[-1:]
    assert [head.session for head in heads] == [f"s{number}" for number in range(4 + 10)]


def test_the_head_is_read_once() -> None:
    found = passed(
        mcp_protocol_version=f" {CLASSIC} ", mcp_session_id="abc", last_event_id="s-7", x_other="é"
    )
    assert (found.version, found.session, found.last_event_id) == (CLASSIC, "abc", "s-7")
    assert found.headers[b"x-other"] == b"\xe9"
    bare_head = passed()
    assert (bare_head.version, bare_head.session, bare_head.last_event_id) == (None, None, None)
    stateless = passed(mcp_protocol_version=MODERN, mcp_session_id="abc")
    assert (stateless.version, stateless.session) == (MODERN, None)


@pytest.mark.requirement("http-origin")
@pytest.mark.parametrize(
    "more", [(b"origin", b"http://localhost"), (b"content-type", b"application/json")]
)
def test_whatever_else_is_wrong_a_page_of_another_origin_hears_that(
    more: tuple[bytes, bytes],
) -> None:
    refused(
        check_head(Policy(OFFICIAL), "POST", [*lines(origin="https://evil.example"), more]),
        403,
        InvalidRequest,
        "Origin",
    )


@pytest.mark.parametrize(
    "name",
    [
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "mcp-param-x",
        "content-type",
        "content-length",
        "host",
        "origin",
        "authorization",
        "last-event-id",
    ],
)
def test_a_singular_header_that_came_twice_is_refused_even_with_the_same_value(name: str) -> None:
    headers = [pair for pair in lines() if pair[0] != name.encode()] + 2 * [(name.encode(), b"1")]
    refused(
        check_head(Policy(OFFICIAL, hosts=["*"], origins=["*"]), "POST", headers),
        400,
        InvalidRequest,
        "more than once",
    )


def test_lists_may_come_in_several_lines() -> None:
    headers = [
        *lines(accept="text/event-stream"),
        (b"accept", b"application/json"),
        (b"cookie", b"a"),
        (b"cookie", b"b"),
    ]
    outcome = check_head(Policy(OFFICIAL), "POST", headers)
    assert isinstance(outcome, RequestHead)
    assert outcome.json and outcome.streams


@pytest.mark.parametrize("value", ["a\x00", "\x7f", "caf\xe9", "a\rb", "a\nb", "\x1b[31m"])
@pytest.mark.parametrize(
    "name", ["mcp_name", "mcp_session_id", "mcp_protocol_version", "mcp_param_region"]
)
def test_only_printable_ascii_stands_in_our_headers(name: str, value: str) -> None:
    refused(judged(**{name: value}), 400, HeaderMismatch, "printable ASCII")


def test_strange_characters_elsewhere_are_not_our_business() -> None:
    passed(user_agent="caf\xe9", mcp_name="tab\tinside")


# hosts and origins

IMPOSSIBLE_HOSTS = [
    "999.999.999.999",
    "1.2.3.4.5",
    "127.1",
    "2130706433",
    "0x7f.1",
    "127.0.0.01",
    "127.0.0.1%evil.com",
    "[127.0.0.1]",
    "[:::]",
    "[1::2::3]",
    ".localhost",
    "..localhost",
    "x%00.localhost",
    "caf\xe9.localhost",
]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:3000",
        "localhost.",
        "app.localhost:1",
        "127.0.0.1",
        "127.0.0.1:8000",
        "[::1]:8000",
        "[::1]",
        "192.168.1.20:80",
        "0.0.0.0:8000",
        "[fe80::1%25eth0]:80",
        None,
    ],
)
def test_addresses_and_local_names_are_always_served(host: str | None) -> None:
    passed(host=host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.com",
        "evil.com:8000",
        "127.0.0.1.evil.com",
        "localhost.evil.com",
        "evil-localhost",
        "[::1].evil.com",
        "127.0.0.1@evil.com",
        "evil.com/127.0.0.1",
        "a:b:c",
        "127.0.0.1:80:80",
        "[",
        "::1",
        "localhost, evil.com",
        "caf\xe9",
        *IMPOSSIBLE_HOSTS,
    ],
)
def test_names_that_are_not_the_servers_are_misdirected(host: str) -> None:
    refused(judged(host=host), 421, InvalidRequest, "hosts=[")


@pytest.mark.parametrize("host", IMPOSSIBLE_HOSTS)
def test_a_host_that_cannot_exist_is_refused_even_if_every_host_is_accepted(host: str) -> None:
    refused(judged(policy=Policy(OFFICIAL, hosts=["*"]), host=host), 421, InvalidRequest)
    with pytest.raises(ConfigError, match="a host must be a name"):
        Policy(OFFICIAL, hosts=[host])


@pytest.mark.parametrize("space", [" ", "\t", " \t"])
def test_a_space_after_a_value_is_no_part_of_it(space: str) -> None:
    passed(host=f"127.0.0.1:80{space}")
    passed(origin=f"http://127.0.0.1{space}")
    passed(content_length=f"12{space}")


def test_the_server_is_served_by_its_own_names() -> None:
    policy = Policy(OFFICIAL, bound=["MyBox.lan"])
    passed(policy=policy, host="mybox.lan:8000")
    passed(policy=policy, server="testserver", host="testserver")
    refused(judged(policy=policy, host="testserver"), 421, InvalidRequest)


def test_configured_hosts_are_served_whatever_the_port() -> None:
    policy = Policy(OFFICIAL, hosts=["mcp.example.com:443", "*.example.org"])
    for host in ("mcp.example.com", "MCP.example.com:8443", "a.example.org", "a.b.example.org:1"):
        passed(policy=policy, host=host)
    for host in ("example.com", "example.org", "badexample.org", "mcp.example.com.evil.com"):
        refused(judged(policy=policy, host=host), 421, InvalidRequest)
    passed(policy=Policy(OFFICIAL, hosts=["*"]), host="anything.at.all")


@pytest.mark.parametrize(
    ("host", "origin"), [
        ("127.0.0.1:8000", None), ("127.0.0.1:8000", "http://127.0.0.1:8000"), ("127.0.0.1:8000", "http://localhost:5173"),
        ("localhost:8000", "https://127.0.0.1:1"), ("[::1]:8000", "http://localhost"),
        ("192.168.1.20", "http://192.168.1.20"),
        ("mcp.example.com", "https://mcp.example.com"), ("mcp.example.com:443", "https://mcp.example.com"),
        ("MCP.example.com:8443", "https://mcp.EXAMPLE.com:8443"),
    ],
)  # fmt: skip
def test_pages_of_the_server_itself_and_of_this_machine_may_call(
    host: str, origin: str | None
) -> None:
    passed(policy=Policy(OFFICIAL, hosts=["mcp.example.com"]), host=host, origin=origin)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8000", "http://evil.com"),
        ("127.0.0.1:8000", "null"),
        ("127.0.0.1:8000", ""),
        ("localhost", "localhost"),
        ("127.0.0.1:8000", "file://"),
        ("192.168.1.20", "http://localhost:5173"),
        ("192.168.1.20", "http://192.168.1.21"),
        ("192.168.1.20:80", "http://192.168.1.20:81"),
        ("mcp.example.com", "http://localhost"),
        ("mcp.example.com", "https://mcp.example.com:8443"),
        ("localhost", "http://localhost.evil.com"),
        ("localhost", "http://127.0.0.1.evil.com"),
        ("localhost", "chrome-extension://localhost"),
        ("localhost", "http://localhost/path"),
        ("localhost", "http://evil@localhost"),
        (None, "http://localhost"),
        ("evil.com", "http://evil.com"),
        ("evil.com", "http://localhost"),
        ("localhost", "http://localhost http://evil.com"),
    ],
)
def test_other_pages_may_not_and_this_is_said_before_the_host_is_judged(
    host: str | None, origin: str
) -> None:
    outcome = judged(policy=Policy(OFFICIAL, hosts=["mcp.example.com"]), host=host, origin=origin)
    refused(outcome, 403, InvalidRequest, repr(origin), "origins=[")


def test_configured_origins_may_call() -> None:
    policy = Policy(
        OFFICIAL,
        origins=["https://app.example.com/", "http://dev.example.com:*", "vscode-webview://abc"],
    )
    for origin in (
        "https://app.example.com",
        "http://dev.example.com",
        "http://dev.example.com:99",
        "vscode-webview://abc",
    ):
        passed(policy=policy, origin=origin)
    for origin in (
        "http://app.example.com",
        "https://app.example.com:1",
        "https://x.app.example.com",
        "https://dev.example.com",
    ):
        refused(judged(policy=policy, origin=origin), 403, InvalidRequest)
    anywhere = Policy(OFFICIAL, origins=["*"])
    passed(policy=anywhere, origin="null")
    refused(judged(policy=anywhere, origin="http://evil.com", host="evil.com"), 421, InvalidRequest)


@pytest.mark.parametrize(
    "settings",
    [
        {"hosts": ["https://a.com"]},
        {"hosts": [""]},
        {"origins": ["a.com"]},
        {"origins": ["http://a.com/path"]},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_with_an_example(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"example\.com"):
        Policy(OFFICIAL, **settings)


# methods, sizes, types


@pytest.mark.parametrize(
    ("policy", "allowed"), [
        (Policy(OFFICIAL), "GET, POST, DELETE"),
        (Policy(OFFICIAL, sessions=False), "POST"),
        (Policy(STATELESS), "POST"),
    ],
)  # fmt: skip
def test_get_and_delete_are_served_where_there_are_sessions(policy: Policy, allowed: str) -> None:
    for method in ("GET", "POST", "DELETE", "PUT", "post", "OPTIONS", "HEAD", ""):
        outcome = judged(method, policy=policy)
        if method in allowed.split(", "):
            assert isinstance(outcome, RequestHead)
        else:
            assert refused(outcome, 405, InvalidRequest, allowed).headers == (
                (b"allow", allowed.encode()),
            )


@pytest.mark.parametrize("length", ["-1", "+1", "1_0", "", "1.0", "0x10", "1, 1", "\xb2"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    refused(judged(content_length=length), 400, InvalidRequest)


def test_the_length_is_held_against_the_limit() -> None:
    policy = Policy(OFFICIAL, limits=Limits(incoming=1000))
    for length in ("0", "1000", "0001000", None):
        passed(policy=policy, content_length=length)
    for length in ("1001", "9" * 30, "9" * 5000):
        refused(judged(policy=policy, content_length=length), 413, TooLarge, "1000")


@pytest.mark.parametrize(
    "value", ["application/json", "Application/JSON; charset=utf-8", " application/json ;x=y"]
)
def test_json_with_parameters_is_json(value: str) -> None:
    passed(content_type=value)


def test_a_refused_preflight_of_a_page_on_this_machine_names_the_setting_that_allows_it() -> None:
    outcome = judged("OPTIONS", origin="http://localhost:5173")
    refused(outcome, 405, InvalidRequest, "preflight", "origins=['http://localhost:5173']")
    refused(judged("OPTIONS"), 405, InvalidRequest, "'OPTIONS' is not supported")


@pytest.mark.parametrize(
    "value", [None, "", "application/jsonp", "application/x-www-form-urlencoded", "text/json", ";"]
)
def test_a_post_of_any_other_type_is_refused_but_other_methods_have_none(value: str | None) -> None:
    refused(judged(content_type=value), 415, InvalidRequest)
    passed("GET", content_type=value)
    passed("DELETE", content_type=value)


@pytest.mark.parametrize("value", ["identity", "Identity", "", None])
def test_a_body_as_it_is_may_say_so(value: str | None) -> None:
    passed(content_encoding=value)


@pytest.mark.parametrize(
    ("value", "json", "streams"),
    [
        (None, True, True),
        ("", True, True),
        (",", True, True),
        ("*/*", True, True),
        ("application/json", True, False),
        ("text/event-stream", False, True),
        ("application/json, text/event-stream", True, True),
        ("text/event-stream,application/json;q=0.1", True, True),
        ("application/*", True, False),
        ("text/*", False, True),
        ("Application/JSON", True, False),
        ("application/json;q=0", False, False),
        ("application/json; q=0.000", False, False),
        ("*/*, text/event-stream;q=0", True, False),
        ("text/event-stream ; Q=0 , */*;q=0.5", True, False),
        ("*/*;q=0, application/json", True, False),
        ("application/*;q=0, */*", False, True),
        ("text/html", False, False),
        ("application/json;charset=utf-8;q=1", True, False),
        ("json", False, False),
        ("application/json;q=zero", True, False),
    ],
)
def test_what_a_client_accepts(value: str | None, json: bool, streams: bool) -> None:
    assert parse_accept(None if value is None else value.encode()) == (json, streams)
    outcome = judged(accept=value)
    if json or streams:
        assert isinstance(outcome, RequestHead)
        assert (outcome.json, outcome.streams) == (json, streams)
    else:
        refused(outcome, 406, InvalidRequest)


def test_a_get_takes_events_or_where_polling_is_on_json() -> None:
    polling = Policy(OFFICIAL, poll=True)
    for policy in (Policy(OFFICIAL), polling):
        assert passed("GET", policy=policy, accept="text/event-stream").streams
        refused(judged("GET", policy=policy, accept="text/html"), 406, InvalidRequest)
        passed("DELETE", policy=policy, accept="text/html")
    found = passed("GET", policy=polling, accept="application/json")
    assert found.json and not found.streams
    refused(judged("GET", accept="application/json"), 406, InvalidRequest, "text/event-stream")


# messages of the stateless era


def meta(version: Any = MODERN, **more: Any) -> dict[str, Any]:
    return {PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: {}} | more


CALL = CallToolParams(name="add", meta=meta())
SAID: dict[str, str | None] = {
    "mcp_protocol_version": MODERN,
    "mcp_method": "tools/call",
    "mcp_name": "add",
}


def named(method: str) -> str:
    return METHODS[method].named if method in METHODS else ""


def told(
    method: str = "tools/call",
    params: Params | None = CALL,
    policy: Policy | None = None,
    request: bool = True,
    **changes: str | None,
) -> Rejection | None:
    policy = policy or Policy(OFFICIAL)
    return check_message(
        policy,
        passed(policy=policy, **(SAID | changes)),
        method,
        params,
        named(method),
        request=request,
    )


LISTED: dict[str, str | None] = {"mcp_method": "tools/list", "mcp_name": None}
WRONG: dict[
    str, tuple[type[ProtocolError], Params | None, dict[str, str | None], tuple[str, ...]]
] = {
    "version": (
        HeaderMismatch,
        CALL,
        {"mcp_protocol_version": None},
        ("MCP-Protocol-Version", "missing"),
    ),
    "meta": (InvalidParams, CallToolParams(name="add"), {}, (PROTOCOL_VERSION,)),
    "agreement": (
        HeaderMismatch,
        CallToolParams(name="add", meta=meta(UNKNOWN)),
        {},
        (MODERN, UNKNOWN),
    ),
    "served": (
        UnsupportedVersion,
        CallToolParams(name="add", meta=meta(UNKNOWN)),
        {"mcp_protocol_version": UNKNOWN},
        (UNKNOWN, MODERN),
    ),
    "capabilities": (
        InvalidParams,
        CallToolParams(name="add", meta={PROTOCOL_VERSION: MODERN}),
        {},
        (CLIENT_CAPABILITIES,),
    ),
    "missing": (
        HeaderMismatch,
        CALL,
        {"mcp_method": None},
        ("Mcp-Method", "missing", "tools/call"),
    ),
    "method": (
        HeaderMismatch,
        CALL,
        {"mcp_method": "TOOLS/CALL"},
        ("Mcp-Method", "'TOOLS/CALL'", "'tools/call'"),
    ),
    "name": (HeaderMismatch, CALL, {"mcp_name": "subtract"}, ("Mcp-Name", "'subtract'", "'add'")),
}


@pytest.mark.parametrize("rung", message_checks.STATELESS, ids=lambda rung: rung.name)
def test_each_rung_of_the_stateless_era_refuses_what_it_is_for(rung: ladder.Rung) -> None:
    error, params, changes, words = WRONG[rung.name]
    assert (rung.status, rung.error) == (400, error)
    data = refused(told(params=params, **changes), 400, error, *words).error.data
    assert told() is None
    if error is InvalidParams:
        assert data["parameter"] == f"_meta.{words[0]}"


def test_the_refusal_of_a_version_names_those_that_are_served() -> None:
    outcome = told(
        params=CallToolParams(name="add", meta=meta(UNKNOWN)), mcp_protocol_version=UNKNOWN
    )
    data = refused(outcome, 400, UnsupportedVersion).error.data
    assert data == {"supported": [one.version for one in reversed(OFFICIAL)], "requested": UNKNOWN}
    assert told(policy=Policy(ALL)) is None
    assert Policy(ALL).supported == Policy(OFFICIAL).supported


def test_a_known_version_that_is_not_served_here_is_unsupported() -> None:
    refused(told(policy=Policy(HANDSHAKE)), 400, UnsupportedVersion, CLASSIC)


@pytest.mark.parametrize(
    ("params", "error"),
    [
        (None, InvalidParams),
        (Params(), InvalidParams),
        (Params(meta={}), InvalidParams),
        (Params(meta=meta(5)), InvalidParams),
        (Params(meta={CLIENT_CAPABILITIES: {}}), InvalidParams),
        (Params(meta={PROTOCOL_VERSION: MODERN}), InvalidParams),
        (Params(meta=meta(UNKNOWN)), HeaderMismatch),
        (Params(meta=meta(CLASSIC)), HeaderMismatch),
    ],
)
def test_a_request_that_says_too_little_of_itself(
    params: Params | None, error: type[ProtocolError]
) -> None:
    refused(told("server/discover", params, mcp_method="server/discover"), 400, error)


def test_a_message_is_of_the_stateless_era_by_its_header_or_by_its_meta() -> None:
    assert is_stateless(passed(mcp_protocol_version=MODERN), None)
    assert is_stateless(passed(), meta())
    assert is_stateless(passed(mcp_protocol_version=CLASSIC), meta())
    assert not is_stateless(passed(mcp_protocol_version=UNKNOWN), {})
    assert not is_stateless(passed(mcp_protocol_version=CLASSIC), None)
    refused(told(mcp_protocol_version=CLASSIC), 400, HeaderMismatch, CLASSIC, MODERN)


def test_an_unknown_method_passes_the_ladder_and_is_refused_by_whoever_answers() -> None:
    assert told("unknown/method", Params(meta=meta()), mcp_method="unknown/method") is None
    assert told("initialize", Params(meta=meta()), mcp_method="initialize") is None


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", CALL, "add"),
        ("tools/call", CALL, "  add\t"),
        ("tools/call", CALL, "=?base64?YWRk?="),
        ("prompts/get", GetPromptParams(name="grüße", meta=meta()), "=?base64?Z3LDvMOfZQ==?="),
        (
            "resources/read",
            ReadResourceParams(uri="file:///a%20b.txt", meta=meta()),
            "file:///a%20b.txt",
        ),
        ("tools/list", Params(meta=meta()), None),
        ("tools/list", Params(meta=meta()), "ignored"),
    ],
)
def test_the_name_is_repeated_plainly_or_encoded(
    method: str, params: Params, name: str | None
) -> None:
    assert told(method, params, mcp_method=method, mcp_name=name) is None


@pytest.mark.parametrize(
    "name",
    [None, "", "Add", "=?base64?YWRk?", "=?base64?YWR?=", "=?base64?!!!!?=", "=?base64?/w==?="],
)
def test_a_name_that_is_missing_different_or_malformed_is_refused(name: str | None) -> None:
    refused(told(mcp_name=name), 400, HeaderMismatch, "Mcp-Name")


def test_a_plain_name_that_looks_encoded_must_come_encoded() -> None:
    params = CallToolParams(name="=?base64?YWRk?=", meta=meta())
    refused(told(params=params, mcp_name="=?base64?YWRk?="), 400, HeaderMismatch)
    assert told(params=params, mcp_name="=?base64?PT9iYXNlNjQ/WVdSaz89?=") is None


def test_a_session_id_means_nothing_in_the_stateless_era() -> None:
    assert told(mcp_session_id="whatever") is None


def test_a_notification_needs_no_meta_and_no_method_but_what_it_says_must_be_right() -> None:
    name = "notifications/cancelled"
    quiet: dict[str, str | None] = {"mcp_method": None, "mcp_name": None}
    assert told(name, Params(), request=False, **quiet) is None
    assert told(name, None, request=False, **quiet | {"mcp_method": name}) is None
    refused(told(name, Params(), request=False), 400, HeaderMismatch, "Mcp-Method")
    refused(told(name, Params(meta=meta(UNKNOWN)), request=False, **quiet), 400, HeaderMismatch)
    refused(
        told(name, Params(meta=meta()), request=False, **quiet | {"mcp_protocol_version": None}),
        400,
        HeaderMismatch,
    )
    refused(
        told(name, Params(), Policy(HANDSHAKE), request=False, **quiet), 400, UnsupportedVersion
    )


def test_what_could_not_be_printed_is_not_printed() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for strange in (deep, 10**5000, float("nan"), {"a": deep}):
        outcome = told(
            "notifications/x",
            Params(meta={PROTOCOL_VERSION: strange}),
            request=False,
            mcp_method=None,
        )
        refused(outcome, 400, HeaderMismatch, "a value that cannot be sent in a header")
    while deep:  # let go of it a level at a time
        deep = deep[0]


def test_a_refusal_repeats_only_the_beginning_of_what_came() -> None:
    for outcome in (
        judged(host="x" * 10_000),
        judged(origin="x" * 10_000),
        judged(content_type="x" * 10_000),
        told(mcp_name="x" * 10_000),
    ):
        assert isinstance(outcome, Rejection)
        assert len(outcome.error.message) < 1000


# mirrored parameters

(REGION,) = REGIONS = find_header_params(
    {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
)
COUNT = HeaderParam("Count", ("a", "count"), "integer")
DRY = HeaderParam("Dry", ("dry",), "boolean")


def mirror(mirror: HeaderParam, arguments: str, **headers: str | None) -> Rejection | None:
    return check_header_params(passed(**headers), (mirror,), Raw(arguments.encode()))


@pytest.mark.parametrize(
    ("one", "arguments", "header"),
    [
        (REGION, '{"region": "Hello"}', "=?base64?SGVsbG8=?="),
        (REGION, '{"region": "SGVsbG8="}', "SGVsbG8="),
        (REGION, '{"region": "=?base64?SGVsbG8="}', "=?base64?SGVsbG8="),
        (REGION, '{"region": ""}', ""),
        (REGION, '{"region": null}', None),
        (REGION, "{}", None),
        (REGION, "", None),
        (REGION, "[]", None),
        (REGION, "null", None),
        (REGION, '{"region": ["wrong type"]}', None),
        (COUNT, '{"a": {"count": 42}}', "42.0"),
        (COUNT, '{"a": {"count": 42.0}}', "42"),
        (COUNT, '{"a": {"count": -7}}', "-7"),
        (COUNT, '{"a": 5}', None),
        (DRY, '{"dry": true}', "true"),
        (DRY, '{"dry": false}', "false"),
    ],
)
def test_a_header_that_repeats_its_argument_passes(
    one: HeaderParam, arguments: str, header: str | None
) -> None:
    assert mirror(one, arguments, **{f"mcp_param_{one.name.lower()}": header}) is None


@pytest.mark.parametrize(
    ("one", "arguments", "header"),
    [
        (REGION, '{"region": "Hello"}', "=?base64?SGVsbG8?="),
        (REGION, '{"region": "Hello"}', "=?base64?SGVs!!!bG8=?="),
        (REGION, '{"region": "Hello"}', None),
        (REGION, '{"region": ""}', None),
        (REGION, '{"region": "a"}', "A"),
        (REGION, '{"region": null}', "a"),
        (REGION, "{}", ""),
        (REGION, "", "a"),
        (REGION, '{"region": ["a"]}', '["a"]'),
        (COUNT, '{"a": {"count": 42}}', "43"),
        (COUNT, '{"a": {"count": 42}}', "x"),
        (COUNT, '{"a": {"count": 42}}', None),
        (COUNT, '{"count": 42}', "42"),
        (COUNT, '{"a": {"count": 9007199254740992}}', "9007199254740992"),
        (DRY, '{"dry": true}', "True"),
        (DRY, '{"dry": true}', "1"),
        (DRY, '{"dry": false}', None),
    ],
)
def test_a_header_that_does_not_is_refused(
    one: HeaderParam, arguments: str, header: str | None
) -> None:
    outcome = mirror(one, arguments, **{f"mcp_param_{one.name.lower()}": header})
    refused(outcome, 400, HeaderMismatch, f"Mcp-Param-{one.name}", ".".join(one.path))


def test_headers_that_no_parameter_asks_for_are_ignored() -> None:
    assert mirror(REGION, "{}", mcp_param_other="x", mcp_param_regions="y") is None
    assert check_header_params(passed(mcp_param_region="x"), (), Raw(b"{}")) is None


@pytest.mark.parametrize(
    "arguments", ["{", "[" * 100_000, '{"region": "\\ud800"}'], ids=["cut", "deep", "surrogate"]
)
def test_arguments_that_cannot_be_read_are_refused(arguments: str) -> None:
    assert isinstance(mirror(REGION, arguments), Rejection)


# messages of the handshake era


def test_the_opening_needs_neither_version_nor_session() -> None:
    for version in (None, CLASSIC, HANDSHAKE[0].version):
        found = passed(mcp_protocol_version=version)
        assert check_message(Policy(OFFICIAL), found, "initialize", Params()) is None
        assert (
            check_message(Policy(HANDSHAKE[-1:]), found, "initialize", None) is None
        )  # what is not served is negotiated


def test_an_opening_whose_header_names_nothing_known_is_refused() -> None:
    refused(
        check_message(Policy(OFFICIAL), passed(mcp_protocol_version=UNKNOWN), "initialize", None),
        400,
        UnsupportedVersion,
        UNKNOWN,
    )


@pytest.mark.parametrize("request_", [True, False])
def test_within_a_session_the_version_may_be_left_out_but_not_be_wrong(request_: bool) -> None:
    policy = Policy(HANDSHAKE[1:])
    for version in (None, *(one.version for one in HANDSHAKE[1:])):
        found = passed(mcp_session_id="abc", mcp_protocol_version=version)
        assert check_message(policy, found, "tools/list", Params(), request=request_) is None
    for version in (UNKNOWN, "", HANDSHAKE[0].version):
        found = passed(mcp_session_id="abc", mcp_protocol_version=version)
        outcome = check_message(policy, found, "tools/list", Params(), request=request_)
        data = refused(outcome, 400, UnsupportedVersion, CLASSIC).error.data
        assert data == {"supported": policy.supported, "requested": version}


def test_a_message_without_a_session_is_told_how_to_get_one() -> None:
    for request in (True, False):
        outcome = check_message(Policy(OFFICIAL), passed(), "tools/list", Params(), request=request)
        refused(outcome, 400, InvalidRequest, "`initialize` first", "Mcp-Session-Id")
    assert check_message(Policy(OFFICIAL, sessions=False), passed(), "tools/list", Params()) is None


def test_where_only_stateless_revisions_are_served_the_version_must_be_said() -> None:
    policy = Policy(STATELESS)
    refused(
        check_message(policy, passed(), "tools/list", Params()),
        400,
        HeaderMismatch,
        "MCP-Protocol-Version",
        MODERN,
    )
    refused(
        check_message(policy, passed(mcp_protocol_version=CLASSIC), "tools/list", None),
        400,
        UnsupportedVersion,
        MODERN,
    )
    assert (
        check_message(policy, passed(), "initialize", None) is None
    )  # refused by the handshake, which knows what was asked for


def test_a_get_or_delete_needs_a_session_and_no_wrong_version() -> None:
    policy = Policy(OFFICIAL)
    assert (
        check_bare(policy, passed("GET", mcp_session_id="a", mcp_protocol_version=CLASSIC)) is None
    )
    refused(check_bare(policy, passed("GET")), 400, InvalidRequest, "Mcp-Session-Id")
    for version in (UNKNOWN, MODERN):
        refused(
            check_bare(policy, passed("DELETE", mcp_session_id="a", mcp_protocol_version=version)),
            400,
            UnsupportedVersion,
        )


# errors found further in


@pytest.mark.parametrize("error", message_checks.STATUS, ids=lambda error: error.__name__)
def test_each_error_has_a_status_by_class_by_code_and_by_value(error: type[ProtocolError]) -> None:
    row = message_checks.STATUS[error]
    for one in (error, error.code, error("why")):
        assert (
            tuple(
                status_for(one, stateless, refused)
                for stateless in (True, False)
                for refused in (True, False)
            )
            == row
        )


def test_every_error_of_the_protocol_has_a_row() -> None:
    assert set(message_checks.STATUS) == set(BY_CODE.values())


def test_the_statuses_that_the_specification_names() -> None:
    for refused_ in (True, False):
        assert status_for(MethodNotFound, True, refused_) == 404
        assert [status_for(code, True, refused_) for code in (-32020, -32021, -32022)] == [
            400,
            400,
            400,
        ]
    assert status_for(NotFound("no such resource"), True, False) == 200
    assert status_for(MethodNotFound, False, True) == 200
    assert (
        status_for(12345, True, False)
        == status_for(ProtocolError(12345, "own"), False, False)
        == 200
    )


def test_who_is_refused_for_lack_of_room_hears_when_to_come_back() -> None:
    for stateless in (True, False):
        outcome = rejection_for(Overloaded("busy"), stateless)
        assert (outcome.status, outcome.headers) == (503, ((b"retry-after", b"1"),))
    assert rejection_for(InvalidParams("no"), True).headers == ()


# anything at all

NAMES = st.sampled_from(
    [
        b"host",
        b"origin",
        b"accept",
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"authorization",
        b"last-event-id",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"mcp-method",
        b"mcp-name",
        b"mcp-param-region",
        b"mcp-",
    ]
)
VALUES = st.sampled_from(
    [
        b"localhost",
        b"http://localhost",
        b"*/*",
        b"application/json",
        b"100",
        MODERN.encode(),
        CLASSIC.encode(),
        b"tools/call",
        b"add",
        b"=?base64?YWRk?=",
        b"=?base64?x?=",
        b"null",
        b"[::1]:80",
        b"a;q=0,b;q",
        b"https://[::1",
        b"://",
        b"%00",
    ]
)
HEADERS = st.lists(
    st.tuples(NAMES | st.binary(max_size=20), VALUES | st.binary(max_size=40)), max_size=12
)
METAS = st.none() | st.dictionaries(
    st.sampled_from([PROTOCOL_VERSION, CLIENT_CAPABILITIES, "other"]),
    st.sampled_from([MODERN, CLASSIC, UNKNOWN, "", None, 5, 1.5, [], {}]),
)
POLICIES = [
    Policy(OFFICIAL), Policy(STATELESS), Policy(HANDSHAKE, sessions=False),
    Policy(ALL, hosts=["*"], origins=["*"], poll=True),
]  # fmt: skip


@given(
    st.sampled_from(POLICIES),
    st.sampled_from(["GET", "POST", "DELETE"]) | st.text(),
    HEADERS,
    st.none() | st.text(),
)
def test_whatever_the_head_holds_it_is_judged(
    policy: Policy, method: str, headers: list[tuple[bytes, bytes]], server: str | None
) -> None:
    fresh = check_head(policy, method, headers, server)
    again = check_head(policy, method, headers, server)
    assert isinstance(fresh, (RequestHead, Rejection))
    if isinstance(fresh, RequestHead):
        assert fresh == again
    else:
        assert isinstance(again, Rejection)
        assert (fresh.status, fresh.error.message) == (again.status, again.error.message)


@given(
    st.sampled_from(POLICIES),
    HEADERS,
    st.sampled_from(["tools/call", "initialize"]) | st.text(),
    METAS,
    st.text(),
    st.booleans(),
)
def test_whatever_the_body_holds_it_is_judged(
    policy: Policy,
    headers: list[tuple[bytes, bytes]],
    method: str,
    meta: dict[str, Any] | None,
    name: str,
    request: bool,
) -> None:
    extra = [
        pair
        for pair in headers
        if pair[0] not in (b"host", b"origin", b"accept", b"content-length", b"content-encoding")
    ]
    found = check_head(policy, "POST", list((dict(extra) | dict(lines())).items()))
    if isinstance(found, RequestHead):
        for params in (None, Params(meta=meta), CallToolParams(name=name, meta=meta)):
            outcome = check_message(policy, found, method, params, request=request)
            assert outcome is None or 400 <= outcome.status < 500
        check_bare(policy, found)
        check_header_params(found, REGIONS, Raw(b'{"region": "add"}'))
