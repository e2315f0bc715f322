"""A login from its first request to its tokens, without a loop or a socket."""

import sys
from typing import Any

import pytest

from dovetail.auth.client.discovery import FlowOptions
from dovetail.auth.client.flow import acquire_tokens, refresh_tokens
from dovetail.auth.client.store import ClientRegistration, ServerRecord, TokenSet, read_record
from dovetail.auth.dpop import DpopClient
from dovetail.auth.wire import AccessRequirements, ErrorReply
from dovetail.errors import ConfigError, ConnectFailed, DovetailError, Unauthorized
from dovetail.ports import HttpResponse

from .internet import ISSUER, REDIRECT, SERVER, Internet, Issuer, describe, reply, run

NOW = 1_000_000.0
NOTHING = AccessRequirements()


class World:
    """A server, its issuer, and a client that wants in."""

    def __init__(self, **metadata: Any) -> None:
        self.internet = Internet()
        self.issuer = Issuer(self.internet, **metadata)
        self.described = describe(self.internet)
        self.record = ServerRecord()
        self.proofs = DpopClient()

    def login(
        self,
        demand: AccessRequirements = NOTHING,
        *,
        redirect_uri: str = REDIRECT,
        dpop: bool | None = None,
        **identity: Any,
    ) -> TokenSet:
        scopes = identity.pop("scopes", ())
        plan = FlowOptions(url=SERVER, **identity, scopes=scopes, dpop=dpop)
        flow = acquire_tokens(
            plan, self.record, demand, self.proofs, lambda: NOW, redirect_uri=redirect_uri
        )
        tokens = run(flow, self.internet, self.issuer.visit)
        assert isinstance(tokens, TokenSet)
        return tokens


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.requirement("auth-pkce", "auth-pkce-s256", "auth-resource-parameter")
def test_a_login_ends_with_tokens(world: World) -> None:
    tokens = world.login()
    (visit,), (form,) = world.issuer.visits, world.issuer.forms
    assert (tokens.access_token, tokens.scheme, tokens.issuer) == ("access-1", "Bearer", ISSUER)
    assert tokens.expires_at == NOW + 3600
    assert (visit["response_type"], visit["code_challenge_method"]) == ("code", "S256")
    assert visit["resource"] == form["resource"] == SERVER
    assert len(visit["state"]) >= 43 and len(form["code_verifier"]) >= 43
    assert "scope" not in visit


@pytest.mark.requirement("auth-resource-parameter")
def test_the_resource_is_repeated_letter_by_letter(world: World) -> None:
    world.described["resource"] = "https://MCP.example.com:443/mcp/"
    tokens = world.login()
    run(refresh_tokens(tokens, FlowOptions(), world.proofs, lambda: NOW), world.internet)
    assert {visit["resource"] for visit in world.issuer.visits} == {
        "https://MCP.example.com:443/mcp/"
    }
    assert {form["resource"] for form in world.issuer.forms} == {"https://MCP.example.com:443/mcp/"}


@pytest.mark.requirement("auth-pkce-verified")
@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256 "])
def test_an_issuer_without_s256_is_refused(world: World, methods: Any) -> None:
    world.issuer.metadata["code_challenge_methods_supported"] = methods
    with pytest.raises(Unauthorized, match="S256"):
        world.login()
    assert not world.issuer.visits and not world.issuer.registered


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://localhost:8080/admin",
        "http://127.0.0.1/",
        "https://app.localhost/",
        "https://192.168.1.1/reboot",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest",
        "https://2130706433/",
        "https://127.1/",
        "https://0x7f.0.0.1./",
    ],
)
def test_an_issuer_elsewhere_cannot_send_the_browser_to_the_local_network(
    world: World, endpoint: str
) -> None:
    world.issuer.metadata["authorization_endpoint"] = endpoint
    with pytest.raises(Unauthorized, match="it is on the local network and the server is not"):
        world.login()
    assert not world.issuer.visits and not world.issuer.registered


@pytest.mark.parametrize("server", ["http://localhost:8000/mcp", "https://10.0.0.7/mcp"])
def test_a_server_of_the_local_network_may_send_the_browser_there(
    world: World, server: str
) -> None:
    describe(world.internet, server)
    world.issuer.metadata["authorization_endpoint"] = "http://localhost:8080/authorize"
    plan = FlowOptions(url=server)
    flow = acquire_tokens(
        plan, world.record, NOTHING, world.proofs, lambda: NOW, redirect_uri=REDIRECT
    )
    assert run(flow, world.internet, world.issuer.visit).access_token


def test_no_two_logins_have_a_secret_in_common(world: World) -> None:
    world.login()
    world.login()
    first, second = world.issuer.visits
    assert first["state"] != second["state"] and first["code_challenge"] != second["code_challenge"]


@pytest.mark.requirement("auth-state-verified")
@pytest.mark.parametrize("state", [None, "", "another", "\udcff"])
def test_an_answer_to_another_login_is_dropped(world: World, state: str | None) -> None:
    world.issuer.came = {"state": state}
    with pytest.raises(Unauthorized, match="state"):
        world.login()
    assert not world.issuer.forms


@pytest.mark.requirement("auth-iss-verified", "auth-iss-letter-by-letter", "auth-issuer-recorded")
@pytest.mark.parametrize(
    ("advertised", "iss", "good"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (False, None, True),
        (False, ISSUER, True),
        (True, "https://evil.example", False),
        (False, "https://evil.example", False),
        (True, f"{ISSUER}/", False),
        (True, "https://AS.example.com", False),
        (True, f"{ISSUER}:443", False),
        (True, "", False),
    ],
)
def test_who_an_answer_is_from_is_compared_letter_by_letter(
    advertised: bool, iss: str | None, good: bool
) -> None:
    world = World(authorization_response_iss_parameter_supported=advertised)
    world.issuer.came = {"iss": iss}
    if good:
        assert world.login().access_token
        return
    with pytest.raises(Unauthorized, match="ignored"):
        world.login()
    assert not world.issuer.forms


@pytest.mark.requirement("auth-iss-on-errors")
def test_an_error_from_somebody_else_is_not_even_shown() -> None:
    world = World(authorization_response_iss_parameter_supported=True)
    world.issuer.came = {
        "code": None,
        "error": "access_denied",
        "error_description": "call 555-1234",
        "iss": "https://evil.example",
    }
    with pytest.raises(Unauthorized) as caught:
        world.login()
    assert "access_denied" not in str(caught.value) and "555" not in str(caught.value)


def test_the_users_no_is_told_in_tame_words(world: World) -> None:
    world.issuer.came = {
        "code": None,
        "error": "access_denied",
        "error_description": "no\x1b[2J" + "!" * 10_000,
    }
    with pytest.raises(Unauthorized, match="access_denied: no") as caught:
        world.login()
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 500


def test_an_answer_without_a_code_is_an_error(world: World) -> None:
    for code in (None, "", "\udcff"):
        world.issuer.came = {"code": code}
        with pytest.raises(Unauthorized, match="no code"):
            world.login()


# scopes


@pytest.mark.requirement(
    "auth-scope-selection", "auth-scope-authoritative", "auth-scope-no-relation", "auth-scope-least"
)
@pytest.mark.parametrize(
    ("challenged", "supported", "wanted", "asked"),
    [
        (("a", "b"), ["x"], (), "a b"),
        ((), ["x", "y"], (), "x y"),
        ((), None, (), None),
        ((), [], (), None),
        ((), ["x"], ("mine",), "mine"),
        (("a",), ["x"], ("mine",), "mine a"),
    ],
)
def test_scopes_come_from_the_challenge_else_from_the_metadata(
    world: World,
    challenged: tuple[str, ...],
    supported: list[str] | None,
    wanted: tuple[str, ...],
    asked: str | None,
) -> None:
    world.described["scopes_supported"] = supported
    tokens = world.login(AccessRequirements(scopes=challenged), scopes=wanted)
    assert world.issuer.visits[0].get("scope") == asked
    assert " ".join(tokens.requested_scopes) == (asked or "")


@pytest.mark.requirement("auth-step-up-union")
def test_more_scopes_are_asked_for_together_with_those_of_before(world: World) -> None:
    world.record.tokens = world.login(AccessRequirements(scopes=("basic",)))
    tokens = world.login(AccessRequirements(scopes=("write",), error="insufficient_scope"))
    assert world.issuer.visits[1]["scope"] == "basic write"
    assert tokens.requested_scopes == ("basic", "write")


@pytest.mark.requirement("auth-offline-access")
def test_offline_access_is_asked_for_where_the_issuer_has_it() -> None:
    world = World(scopes_supported=["a", "offline_access"])
    world.login(AccessRequirements(scopes=("a",)))
    assert world.issuer.visits[0]["scope"] == "a offline_access"
    assert world.issuer.visits[0]["prompt"] == "consent"


@pytest.mark.requirement("auth-offline-access")
@pytest.mark.parametrize("supported", [None, [], ["a"]])
def test_offline_access_is_not_asked_for_elsewhere(supported: list[str] | None) -> None:
    world = World(scopes_supported=supported)
    world.login(AccessRequirements(scopes=("a", "offline_access")))
    assert world.issuer.visits[0]["scope"] == "a"
    assert "prompt" not in world.issuer.visits[0]


def test_offline_access_alone_is_never_asked_for() -> None:
    world = World(scopes_supported=["offline_access"])
    world.login()
    assert "scope" not in world.issuer.visits[0]


# the token endpoint


@pytest.mark.parametrize(
    ("method", "secret", "basic"),
    [
        ("none", False, False),
        ("client_secret_post", True, False),
        ("client_secret_basic", False, True),
    ],
)
def test_the_client_proves_itself_as_the_issuer_wants(
    method: str, secret: bool, basic: bool
) -> None:
    world = World(token_endpoint_auth_methods_supported=[method])
    world.login()
    request = next(request for request in world.internet.asked if request.url.endswith("/token"))
    assert world.issuer.registered[0]["token_endpoint_auth_method"] == method
    assert ("client_secret" in world.issuer.forms[0]) is secret
    assert request.headers.get("authorization", "").startswith("Basic ") is basic
    assert "secret" not in request.url and "code" not in request.url


def test_odd_letters_in_a_secret_survive_basic_authentication() -> None:
    world = World(token_endpoint_auth_methods_supported=["client_secret_basic"])
    world.issuer.clients["an:id"] = {"client_secret": "s%: é+"}
    assert world.login(client_id="an:id", client_secret="s%: é+").access_token


@pytest.mark.parametrize(
    "answer",
    [
        HttpResponse(status=200, body=b"access_token=x"),
        HttpResponse(status=200, body=b"{}"),
        HttpResponse(status=404, body=b"<html>"),
        HttpResponse(status=302, headers={"location": "https://evil.example/token"}),
        reply({"access_token": "", "token_type": "Bearer"}),
        reply({"access_token": "a\r\nX-Evil: 1", "token_type": "Bearer"}),
        reply({"access_token": "a", "token_type": "mac"}),
    ],
)
def test_an_answer_that_is_no_token_is_an_error(world: World, answer: HttpResponse) -> None:
    world.issuer.check = lambda request: answer
    with pytest.raises(Unauthorized, match=ISSUER):
        world.login()
    assert not world.internet.to("evil.example")


@pytest.mark.parametrize(
    "answer",
    [
        HttpResponse(status=500),
        reply({"error": "temporarily_unavailable"}, 400),
        HttpResponse(status=429),
    ],
)
def test_an_issuer_in_trouble_is_told_from_one_that_refuses(
    world: World, answer: HttpResponse
) -> None:
    world.issuer.check = lambda request: answer
    with pytest.raises(ConnectFailed, match="Try again later"):
        world.login()


@pytest.mark.parametrize("lifetime", ["3600", 3600, 3600.0])
def test_a_lifetime_may_come_as_a_string(world: World, lifetime: Any) -> None:
    world.issuer.extra = {"expires_in": lifetime}
    assert world.login().expires_at == NOW + 3600


@pytest.mark.parametrize("lifetime", [None, "nan", "inf", -5, 0, 1e300, "soon", []])
def test_a_lifetime_that_makes_no_sense_is_none(world: World, lifetime: Any) -> None:
    world.issuer.extra = {"expires_in": lifetime}
    assert world.login().expires_at is None


def test_tokens_of_before_stand_until_they_are_replaced(world: World) -> None:
    tokens = world.login(AccessRequirements(scopes=("a",)))
    world.issuer.extra = {"refresh_token": None}
    renewed = run(
        refresh_tokens(tokens, FlowOptions(), world.proofs, lambda: NOW + 100), world.internet
    )
    assert (renewed.access_token, renewed.refresh_token) == ("access-2", tokens.refresh_token)
    assert (renewed.requested_scopes, renewed.granted_scopes, renewed.expires_at) == (
        ("a",),
        ("a",),
        NOW + 3700,
    )
    refused = run(refresh_tokens(tokens, FlowOptions(), world.proofs, lambda: NOW), world.internet)
    assert isinstance(refused, ErrorReply) and refused.error == "invalid_grant"


@pytest.mark.requirement("auth-redirect-loopback")
def test_the_redirect_has_to_end_on_this_machine_or_at_https(world: World) -> None:
    with pytest.raises(Unauthorized, match="redirect URI"):
        world.login(redirect_uri="http://elsewhere.example/callback")
    assert not world.issuer.visits


@pytest.mark.requirement("auth-refresh-confidential")
def test_a_refresh_token_never_goes_in_the_clear(world: World) -> None:
    tokens = world.login()
    tokens.token_endpoint = "http://as.example.com/token"
    with pytest.raises(Unauthorized, match="https"):
        run(refresh_tokens(tokens, FlowOptions(), world.proofs, lambda: NOW), world.internet)
    assert "http://as.example.com/token" not in world.internet.urls


def test_an_endpoint_with_a_query_keeps_it(world: World) -> None:
    world.issuer.metadata["authorization_endpoint"] = f"{ISSUER}/authorize?tenant=7"
    pages: list[str] = []

    def visit(url: str) -> dict[str, str]:
        pages.append(url)
        raise Unauthorized("closed")

    plan = FlowOptions(url=SERVER)
    with pytest.raises(Unauthorized):
        run(
            acquire_tokens(
                plan,
                world.record,
                AccessRequirements(),
                world.proofs,
                lambda: NOW,
                redirect_uri=REDIRECT,
            ),
            world.internet,
            visit,
        )
    assert pages[0].startswith(f"{ISSUER}/authorize?tenant=7&response_type=code&")


# proof of possession


def test_a_server_that_wants_bound_tokens_gets_them(world: World) -> None:
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    world.issuer.extra = {"token_type": "DPoP"}
    assert world.login(AccessRequirements(schemes=frozenset({"dpop"}))).scheme == "DPoP"
    assert all(
        "dpop" in request.headers
        for request in world.internet.asked
        if request.url.endswith("/token")
    )
    assert world.proofs.jwk is not None


def test_a_server_may_say_in_its_metadata_that_it_wants_bound_tokens(world: World) -> None:
    world.described["dpop_bound_access_tokens_required"] = True
    with pytest.raises(Unauthorized, match="DPoP"):
        world.login()
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    world.issuer.extra = {"token_type": "DPoP"}
    assert world.login().scheme == "DPoP"


def test_a_key_that_cannot_be_made_is_noticed_before_the_login(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    for name in ("cryptography", "cryptography.hazmat", "joserfc", "joserfc.jwk"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-mcp\[auth\]'"):
        world.login(dpop=True)
    assert not world.issuer.visits and not world.issuer.registered


def test_a_nonce_that_is_wanted_goes_into_a_new_proof_once(world: World) -> None:
    from dovetail.auth.jose import decode_unverified

    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    world.issuer.check = lambda request: reply({"error": "use_dpop_nonce"}, 400, dpop_nonce="n-1")
    with pytest.raises(Unauthorized, match="use_dpop_nonce"):
        world.login(dpop=True)
    proofs = [
        decode_unverified(request.headers["dpop"])[1]
        for request in world.internet.asked
        if request.url.endswith("/token")
    ]
    assert [proof.get("nonce") for proof in proofs] == [None, "n-1"]
    assert proofs[0]["jti"] != proofs[1]["jti"]


def test_whoever_insists_on_bound_tokens_takes_no_others(world: World) -> None:
    with pytest.raises(Unauthorized, match="DPoP"):
        world.login(dpop=True)
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    with pytest.raises(Unauthorized, match="not bound"):
        world.login(dpop=True)


def test_a_bound_token_is_not_renewed_into_one_that_is_not(world: World) -> None:
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    world.issuer.extra = {"token_type": "DPoP"}
    tokens = world.login(dpop=True)
    world.issuer.extra = {}
    with pytest.raises(Unauthorized, match="Bearer token instead of a DPoP token"):
        run(refresh_tokens(tokens, FlowOptions(), world.proofs, lambda: NOW), world.internet)


# what is kept


def test_a_record_survives_being_kept(world: World) -> None:
    world.record.tokens = world.login(AccessRequirements(scopes=("a",)))
    again = read_record(world.record.encode())
    assert again == world.record
    assert (
        read_record(b"rubbish") == read_record(b"[" * 10_000) == read_record(None) == ServerRecord()
    )
    deep = b'{"jwk":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001  # more than any Python decodes
    assert read_record(deep) == ServerRecord()


def test_secrets_are_shown_by_nothing(world: World) -> None:
    world.record.tokens = world.login()
    shown = repr(
        [
            world.record,
            world.record.tokens,
            FlowOptions(client_id="a", client_secret="hidden"),
            ClientRegistration(client_id="hidden"),
        ]
    )
    assert "access-" not in shown and "refresh-" not in shown and "hidden" not in shown


def test_no_failure_of_a_login_tells_a_secret(world: World) -> None:
    world.issuer.clients["me"] = {"client_secret": "hidden-secret"}
    world.issuer.refuse = {"error": "invalid_request"}
    with pytest.raises(DovetailError) as caught:
        world.login(client_id="me", client_secret="hidden-secret")
    assert "hidden" not in str(caught.value) and "code-1" not in str(caught.value)
