"""From the URL of a server to its authorization server, and what stops on the way."""

from typing import Any

import pytest

from dovetail.auth import urls
from dovetail.auth.client.discovery import (
    MAX_ISSUERS,
    MAX_REQUESTS_PER_DOCUMENT,
    DiscoveryResult,
    discover,
)
from dovetail.auth.wire import (
    MAX_DOCUMENT_BYTES,
    ResourceMetadata,
    ServerMetadata,
    read_document,
)
from dovetail.errors import ConnectFailed, TimedOut, Unauthorized
from dovetail.ports import HttpResponse
from dovetail.text import one_line

from .internet import ISSUER, NOT_FOUND, SERVER, Internet, Issuer, describe, reply, run

ROOT = "https://mcp.example.com/.well-known/oauth-protected-resource"


def search(internet: Internet, url: str = SERVER, hint: str | None = None) -> DiscoveryResult:
    place = run(discover(url, hint, lambda issuers: issuers, lambda server: None), internet)
    assert isinstance(place, DiscoveryResult)
    return place


@pytest.fixture
def internet() -> Internet:
    return Internet()


@pytest.mark.requirement("auth-metadata-from-challenge", "auth-resource-metadata")
def test_the_address_in_the_challenge_is_asked_first_and_alone(internet: Internet) -> None:
    Issuer(internet)
    describe(internet, well="https://mcp.example.com/custom.json", scopes_supported=["a"])
    place = search(internet, hint="https://mcp.example.com/custom.json")
    assert internet.urls == [
        "https://mcp.example.com/custom.json",
        f"{ISSUER}/.well-known/oauth-authorization-server",
    ]
    assert (place.resource, place.scopes) == (SERVER, ("a",))


@pytest.mark.requirement("auth-metadata-well-known")
def test_without_it_the_path_is_tried_and_then_the_root(internet: Internet) -> None:
    Issuer(internet)
    describe(internet, well=ROOT, resource="https://mcp.example.com")
    assert search(internet).resource == "https://mcp.example.com"
    assert internet.urls[:2] == [f"{ROOT}/mcp", ROOT]


def test_a_server_at_the_root_is_asked_once() -> None:
    assert urls.resource_metadata_urls("https://a.example/") == [
        "https://a.example/.well-known/oauth-protected-resource"
    ]


@pytest.mark.requirement("auth-server-metadata-order", "auth-discovery-both")
@pytest.mark.parametrize(
    ("issuer", "wells"),
    [
        (
            "https://as.example.com/tenant1",
            [
                "https://as.example.com/.well-known/oauth-authorization-server/tenant1",
                "https://as.example.com/.well-known/openid-configuration/tenant1",
                "https://as.example.com/tenant1/.well-known/openid-configuration",
            ],
        ),
        (
            "https://as.example.com",
            [
                "https://as.example.com/.well-known/oauth-authorization-server",
                "https://as.example.com/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_an_issuer_is_looked_for_in_the_order_of_the_specification(
    internet: Internet, issuer: str, wells: list[str]
) -> None:
    describe(internet, authorization_servers=[issuer])
    Issuer(internet, issuer, wells[-1])
    assert search(internet).server.issuer == issuer
    assert internet.urls[1:] == wells


@pytest.mark.requirement("auth-issuer-identical")
@pytest.mark.parametrize(
    "named", ["https://honest.example", f"{ISSUER}/", "https://AS.example.com", f"{ISSUER}:443"]
)
def test_metadata_that_names_another_issuer_is_not_used(internet: Internet, named: str) -> None:
    describe(internet)
    Issuer(internet).metadata["issuer"] = named
    with pytest.raises(Unauthorized, match="another issuer"):
        search(internet)


@pytest.mark.requirement(
    "auth-resource-canonical", "auth-resource-specific", "auth-resource-slash", "auth-resource-case"
)
@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("HTTPS://MCP.Example.com/mcp", "https://mcp.example.com/mcp"),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("https://mcp.example.com:443/server/mcp?x=1", "https://mcp.example.com/server/mcp"),
        ("https://mcp.example.com:8443", "https://mcp.example.com:8443"),
    ],
)
def test_a_server_that_does_not_say_its_name_goes_by_its_url_in_one_spelling(
    internet: Internet, url: str, name: str
) -> None:
    assert search(internet, url).resource == name


@pytest.mark.requirement("auth-resource-is-the-server")
@pytest.mark.parametrize(
    "named",
    [
        "https://evil.example.com/mcp",
        "http://mcp.example.com/mcp",
        "https://mcp.example.com:8443/mcp",
        "https://mcp.example.com/mc",
        "https://mcp.example.com/mcp/deeper",
        "https://mcp.example.com/other/../mcp",
        "https://user@mcp.example.com/mcp",
        "mcp.example.com",
        "",
    ],
)
def test_metadata_of_another_resource_ends_the_search(internet: Internet, named: str) -> None:
    describe(internet, resource=named)
    Issuer(internet)
    with pytest.raises(Unauthorized, match="another resource"):
        search(internet)
    assert not internet.to("as.example.com")


@pytest.mark.parametrize(
    "named",
    ["https://MCP.example.com/mcp", "https://mcp.example.com:443", "https://mcp.example.com/mcp/"],
)
def test_a_resource_that_contains_the_server_is_taken_as_it_is_written(
    internet: Internet, named: str
) -> None:
    describe(internet, resource=named)
    Issuer(internet)
    assert search(internet).resource == named


@pytest.mark.parametrize(
    "place",
    ["the hint", "the issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint"],
)
@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example/x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://as.example.com@evil.example/x",
        "https://as.example.com\\@evil.example/x",
        "https://evil.example\\.as.example.com/x",
        "https://as.example.com/x#y",
        "https://as.example.com/a b",
        "https:///x",
        "https://as.example.com:notaport/",
        "//as.example.com/x",
        "https://" + "a" * 5000,
    ],
)
@pytest.mark.requirement("auth-endpoints-https", "auth-refresh-confidential")
def test_addresses_that_are_not_safe_are_never_asked(
    internet: Internet, place: str, url: str
) -> None:
    described = describe(internet)
    issuer = Issuer(internet)
    hint = None
    if place == "the hint":
        hint = url
    elif place == "the issuer":
        described["authorization_servers"] = [url]
    else:
        issuer.metadata[place] = url
    with pytest.raises(Unauthorized):
        search(internet, hint=hint)
    assert all(
        asked.startswith(("https://mcp.example.com/.well-known", f"{ISSUER}/.well-known"))
        for asked in internet.urls
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_this_machine_may_be_asked_without_encryption(internet: Internet, host: str) -> None:
    server, issuer = f"http://{host}:8000/mcp", f"http://{host}:9000"
    describe(internet, server, authorization_servers=[issuer])
    Issuer(internet, issuer)
    assert search(internet, server).server.issuer == issuer
    assert not urls.is_loopback("localhost.evil.example") and not urls.is_loopback(
        "127.0.0.1.evil.example"
    )


def test_an_issuer_with_a_query_is_none(internet: Internet) -> None:
    describe(internet, authorization_servers=[f"{ISSUER}?tenant=1"])
    Issuer(internet).metadata["issuer"] = f"{ISSUER}?tenant=1"
    with pytest.raises(Unauthorized, match="not a valid issuer"):
        search(internet)
    assert not internet.to("as.example.com")


def test_of_several_issuers_the_first_that_can_be_used_is(internet: Internet) -> None:
    describe(
        internet, authorization_servers=["https://gone.example", "https://liar.example", ISSUER]
    )
    Issuer(internet, "https://liar.example").metadata["issuer"] = ISSUER
    Issuer(internet)
    assert search(internet).server.issuer == ISSUER


@pytest.mark.parametrize("problem", [TimedOut("late"), ConnectFailed("no way")])
def test_an_issuer_that_is_silent_is_passed_over(internet: Internet, problem: Exception) -> None:
    Issuer(internet)
    describe(internet, authorization_servers=["https://slow.example", ISSUER])
    internet.pages["GET https://slow.example/.well-known/oauth-authorization-server"] = problem
    assert search(internet).server.issuer == ISSUER


def test_of_very_many_issuers_only_some_are_looked_at(internet: Internet) -> None:
    describe(
        internet, authorization_servers=[f"https://as{number}.example" for number in range(100)]
    )
    with pytest.raises(Unauthorized, match=r"https://as0\.example.*no metadata"):
        search(internet)
    assert len(internet.asked) == 1 + 2 * MAX_ISSUERS


def test_a_server_that_names_no_issuer_is_told_so(internet: Internet) -> None:
    describe(internet, authorization_servers=[])
    with pytest.raises(Unauthorized, match="does not name an authorization server"):
        search(internet)


@pytest.mark.requirement("auth-origin-metadata", "auth-resource-always")
def test_a_server_of_old_has_its_metadata_at_its_origin(internet: Internet) -> None:
    issuer = Issuer(internet, "https://mcp.example.com")
    issuer.metadata["token_endpoint"] = "https://mcp.example.com/oauth/token"
    place = search(internet)
    assert place.token_endpoint == "https://mcp.example.com/oauth/token"
    assert place.resource == SERVER


@pytest.mark.requirement("auth-default-endpoints", "auth-metadata-first")
def test_a_server_of_old_without_any_metadata_has_the_usual_endpoints(internet: Internet) -> None:
    server = search(internet, "https://mcp.example.com:8443/a/b").server
    assert server.authorization_endpoint == "https://mcp.example.com:8443/authorize"
    assert server.token_endpoint == "https://mcp.example.com:8443/token"
    assert server.registration_endpoint == "https://mcp.example.com:8443/register"
    assert (
        internet.urls[-1] == "https://mcp.example.com:8443/.well-known/oauth-authorization-server"
    )


def test_a_server_of_old_is_not_believed_to_be_another_issuer(internet: Internet) -> None:
    Issuer(internet, "https://mcp.example.com").metadata["issuer"] = "https://honest.example"
    with pytest.raises(Unauthorized, match="another issuer"):
        search(internet)


@pytest.mark.parametrize(
    "problem",
    [HttpResponse(status=503), HttpResponse(status=429), ConnectFailed("no way"), TimedOut("late")],
)
def test_a_server_in_trouble_is_not_taken_for_one_of_old(internet: Internet, problem: Any) -> None:
    Issuer(internet, "https://mcp.example.com")
    internet.pages[f"GET {ROOT}/mcp"] = problem
    with pytest.raises((ConnectFailed, TimedOut)):
        search(internet)
    assert not any("oauth-authorization-server" in url for url in internet.urls)


@pytest.mark.parametrize(
    "body", [b"<html>welcome</html>", b"[]", b"{}", b'{"resource": 3}', b"\xff", b"[" * 100_000]
)
def test_a_page_that_is_no_document_counts_as_none(internet: Internet, body: bytes) -> None:
    internet.pages[f"GET {ROOT}/mcp"] = HttpResponse(body=body)
    describe(internet, well=ROOT)
    Issuer(internet)
    assert search(internet).resource == SERVER


def test_a_document_that_is_too_long_is_not_read() -> None:
    assert (
        read_document(b'{"resource": "' + b"a" * MAX_DOCUMENT_BYTES + b'"}', ResourceMetadata)
        is None
    )


def test_redirects_are_followed_within_the_origin_and_not_for_ever(internet: Internet) -> None:
    Issuer(internet)
    internet.pages[f"GET {ROOT}/mcp"] = HttpResponse(status=301, headers={"location": "/here.json"})
    describe(internet, well="https://mcp.example.com/here.json")
    assert search(internet).resource == SERVER
    internet.pages["GET https://mcp.example.com/here.json"] = HttpResponse(
        status=302, headers={"location": "/here.json"}
    )
    internet.pages[f"GET {ROOT}"] = NOT_FOUND
    internet.asked.clear()
    search(internet)
    assert internet.urls.count("https://mcp.example.com/here.json") == MAX_REQUESTS_PER_DOCUMENT - 1


@pytest.mark.parametrize(
    "target", ["https://evil.example/x.json", "http://mcp.example.com/x.json", "file:///etc/passwd"]
)
def test_redirects_never_leave_the_origin(internet: Internet, target: str) -> None:
    internet.pages[f"GET {ROOT}/mcp"] = HttpResponse(status=302, headers={"location": target})
    internet.pages[f"GET {target}"] = reply(
        {"resource": SERVER, "authorization_servers": ["https://evil.example"]}
    )
    search(internet)
    assert target not in internet.urls


@pytest.mark.parametrize("target", ["http://[bad", "https://[::1", "//[x]/"])
def test_a_redirect_to_what_is_no_address_leads_nowhere(internet: Internet, target: str) -> None:
    Issuer(internet)
    internet.pages[f"GET {ROOT}/mcp"] = HttpResponse(status=302, headers={"location": target})
    describe(internet, well=ROOT)
    assert search(internet).resource == SERVER


def test_fields_that_make_no_sense_spare_the_rest() -> None:
    found = read_document(
        b'{"issuer": "https://a", "scopes_supported": "a b", "jwks_uri": null, "token_endpoint": "https://a/t"}',
        ServerMetadata,
    )
    assert found is not None
    assert (found.scopes_supported, found.token_endpoint) == (None, "https://a/t")


def test_a_servers_words_are_shown_bounded_and_tame() -> None:
    assert one_line("a\x1b[31mred\x07\r\nb\u202ec") == "a [31mred   b c"
    assert len(one_line("x" * 10_000)) <= 301
