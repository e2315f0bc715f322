"""How a client comes by its name, and when by another one."""

from typing import Any

import pytest

from dovetail.auth import ClientCredentials, OAuth
from dovetail.auth.client.store import MAX_REGISTRATIONS, ClientRegistration, ServerRecord
from dovetail.errors import ConfigError, ConnectFailed, Unauthorized
from dovetail.ports import HttpResponse

from .internet import ISSUER, REDIRECT, Issuer, reply
from .test_flow import NOW, World

DOCUMENT = "https://app.example.com/client.json"
OTHER = "https://other.example.com"


@pytest.fixture
def world() -> World:
    return World()


def move(world: World) -> Issuer:
    """Let the server be served by another issuer from now on."""
    world.described["authorization_servers"] = [OTHER]
    world.issuer, old = Issuer(world.internet, OTHER), world.issuer
    return old


@pytest.mark.requirement("auth-registration-order", "auth-client-given")
def test_a_name_that_was_given_is_preferred_to_all_others() -> None:
    world = World(client_id_metadata_document_supported=True)
    world.issuer.clients["mine"] = {}
    world.login(client_id="mine", metadata_url=DOCUMENT)
    assert world.issuer.visits[0]["client_id"] == "mine"
    assert not world.issuer.registered


@pytest.mark.requirement("auth-client-document", "auth-registration-order")
def test_a_document_is_preferred_to_registering() -> None:
    world = World(client_id_metadata_document_supported=True)
    world.issuer.clients[DOCUMENT] = {}
    world.login(metadata_url=DOCUMENT)
    assert world.issuer.visits[0]["client_id"] == world.issuer.forms[0]["client_id"] == DOCUMENT
    assert not world.issuer.registered


@pytest.mark.requirement("auth-client-document-advertised", "auth-registration-order")
def test_an_issuer_that_reads_no_documents_is_registered_at(world: World) -> None:
    world.login(metadata_url=DOCUMENT)
    assert world.issuer.visits[0]["client_id"] == "client-1-as.example.com"


@pytest.mark.requirement("auth-client-document-https")
@pytest.mark.parametrize(
    "url",
    [
        "http://app.example.com/c.json",
        "https://app.example.com",
        "https://app.example.com/",
        "c.json",
    ],
)
def test_a_document_has_to_be_at_https_and_below_a_path(url: str) -> None:
    with pytest.raises(ConfigError, match="client_metadata_url"):
        OAuth(client_metadata_url=url)


@pytest.mark.requirement(
    "auth-application-type", "auth-application-type-fits", "auth-refresh-grant-type"
)
@pytest.mark.requirement("auth-registration-dynamic", "auth-redirect-registered")
@pytest.mark.parametrize(
    ("redirect", "kind"), [(REDIRECT, "native"), ("https://app.example.com/cb", "web")]
)
def test_registering_says_what_kind_of_client_this_is(
    world: World, redirect: str, kind: str
) -> None:
    world.described["scopes_supported"] = ["a", "b"]
    world.login(redirect_uri=redirect, name="A client")
    (asked,) = world.issuer.registered
    assert asked == {
        "redirect_uris": [redirect],
        "client_name": "A client",
        "application_type": kind,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "a b",
    }


def test_an_issuer_that_does_not_say_is_registered_at_with_a_secret(world: World) -> None:
    del world.issuer.metadata["token_endpoint_auth_methods_supported"]
    world.login()
    assert world.issuer.registered[0]["token_endpoint_auth_method"] == "client_secret_basic"


def test_a_registration_is_used_again(world: World) -> None:
    world.login()
    world.login()
    assert len(world.issuer.registered) == 1


@pytest.mark.requirement("auth-client-id-first")
def test_where_nothing_is_possible_the_way_out_is_named(world: World) -> None:
    del world.issuer.metadata["registration_endpoint"]
    with pytest.raises(Unauthorized, match="pass its client_id"):
        world.login()


@pytest.mark.requirement("auth-registration-failure", "auth-registration-failure-told")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            reply(
                {
                    "error": "invalid_redirect_uri",
                    "error_description": "loopback\x1b\nis not for web",
                },
                400,
            ),
            "loopback  is not for web",
        ),
        (HttpResponse(status=403, body=b"<html>"), "HTTP 403"),
        (reply({"client_name": "no id"}, 201), "HTTP 201"),
        (reply({"client_id": ""}, 201), "HTTP 201"),
    ],
)
def test_a_registration_that_fails_says_why(world: World, answer: HttpResponse, said: str) -> None:
    world.internet.pages[f"POST {ISSUER}/register"] = answer
    with pytest.raises(Unauthorized, match=said):
        world.login()
    assert not world.issuer.visits


def test_an_issuer_in_trouble_is_told_from_one_that_registers_nobody(world: World) -> None:
    world.internet.pages[f"POST {ISSUER}/register"] = HttpResponse(status=502)
    with pytest.raises(ConnectFailed, match="Try again later"):
        world.login()


def test_a_way_of_proving_that_nobody_asked_for_is_refused(world: World) -> None:
    world.internet.pages[f"POST {ISSUER}/register"] = reply(
        {"client_id": "a", "token_endpoint_auth_method": "tls_client_auth"}, 201
    )
    with pytest.raises(Unauthorized, match="tls_client_auth"):
        world.login()


# renewal


@pytest.mark.parametrize("when", [NOW - 1, NOW, NOW + 30])
def test_a_registration_that_ends_is_made_anew(world: World, when: float) -> None:
    world.login()
    world.record.registrations[ISSUER].expires_at = when
    world.login()
    assert world.issuer.visits[1]["client_id"] == "client-2-as.example.com"


def test_zero_means_that_a_registration_never_ends(world: World) -> None:
    register = world.issuer.register

    def forever(request: Any) -> HttpResponse:
        made = register(request)
        made.body = made.body[:-1] + b', "client_secret_expires_at": 0}'
        return made

    world.internet.pages[f"POST {ISSUER}/register"] = forever
    world.login()
    assert world.record.registrations[ISSUER].expires_at is None


@pytest.mark.requirement("auth-redirect-registered")
def test_another_redirect_uri_or_wider_scopes_need_another_registration(world: World) -> None:
    from dovetail.auth.wire import AccessRequirements

    world.login(AccessRequirements(scopes=("a",)))
    world.login(AccessRequirements(scopes=("a",)), redirect_uri="http://127.0.0.1:4000/callback")
    world.login(
        AccessRequirements(scopes=("a", "b")), redirect_uri="http://127.0.0.1:4000/callback"
    )
    assert [asked.get("scope") for asked in world.issuer.registered] == ["a", "a", "a b"]


def test_an_issuer_that_forgot_this_client_is_registered_at_again(world: World) -> None:
    world.login()
    world.issuer.clients.clear()
    tokens = world.login()
    assert tokens.registration.client_id == "client-2-as.example.com"
    assert len(world.issuer.visits) == 3


def test_an_issuer_that_forgets_at_once_is_given_up(world: World) -> None:
    world.issuer.refuse = {"error": "invalid_client"}
    with pytest.raises(Unauthorized, match="invalid_client"):
        world.login()
    assert len(world.issuer.registered) == 2


def test_a_name_that_was_given_is_not_replaced_when_it_is_refused(world: World) -> None:
    with pytest.raises(Unauthorized, match="invalid_client"):
        world.login(client_id="unknown")
    assert not world.issuer.registered and len(world.issuer.visits) == 1


def test_a_login_that_was_given_up_makes_the_next_one_register_anew(world: World) -> None:
    world.login()
    visit, world.issuer.visit = world.issuer.visit, lambda url: {}  # type: ignore[method-assign]
    with pytest.raises(Unauthorized):
        world.login()
    world.issuer.visit = visit  # type: ignore[method-assign]
    world.login()
    assert len(world.issuer.registered) == 2


# one issuer's names are not another's


@pytest.mark.requirement("auth-registration-per-issuer")
def test_another_issuer_is_registered_at_anew_and_sees_nothing_of_the_first(world: World) -> None:
    world.record.tokens = world.login()
    move(world)
    tokens = world.login()
    assert tokens.issuer == OTHER and tokens.registration.client_id == "client-1-other.example.com"
    seen = b" ".join(
        request.url.encode() + request.body for request in world.internet.to("other.example.com")
    )
    assert b"as.example.com" not in seen and b"access-1" not in seen and b"refresh-1" not in seen
    assert set(world.record.registrations) == {ISSUER, OTHER}


@pytest.mark.requirement("auth-given-per-issuer", "auth-given-moved")
@pytest.mark.parametrize("named", [ISSUER, None])
def test_a_name_that_was_given_is_never_shown_to_another_issuer(
    world: World, named: str | None
) -> None:
    world.issuer.clients["mine"] = {"client_secret": "hidden"}
    world.login(client_id="mine", client_secret="hidden", issuer=named)
    move(world)
    with pytest.raises(Unauthorized, match=r"client_id was issued by https://as\.example\.com"):
        world.login(client_id="mine", client_secret="hidden", issuer=named)
    assert not world.issuer.visits and not world.issuer.forms


@pytest.mark.requirement("auth-given-per-issuer")
def test_a_name_that_was_given_is_not_tried_elsewhere_while_its_issuer_is_in_trouble(
    world: World,
) -> None:
    other = Issuer(world.internet, OTHER)
    world.described["authorization_servers"] = [ISSUER, OTHER]
    world.internet.pages[f"GET {world.issuer.well}"] = HttpResponse(status=503)
    with pytest.raises(ConnectFailed, match="503"):
        world.login(client_id="mine", client_secret="hidden", issuer=ISSUER)
    assert not other.visits and not world.internet.to("other.example.com")


def test_of_several_issuers_the_one_is_chosen_that_knows_this_client(world: World) -> None:
    world.login()
    Issuer(world.internet, OTHER)
    world.described["authorization_servers"] = [OTHER, ISSUER]
    assert world.login().issuer == ISSUER


def test_registrations_are_bounded_and_the_last_one_stays() -> None:
    record = ServerRecord()
    for number in range(3 * MAX_REGISTRATIONS):
        record.register(f"https://as{number}.example", ClientRegistration(client_id=str(number)))
    assert len(record.registrations) == MAX_REGISTRATIONS
    assert f"https://as{3 * MAX_REGISTRATIONS - 1}.example" in record.registrations


@pytest.mark.parametrize("wrong", [{}, {"client_secret": "a", "private_key": "b"}])
def test_a_program_has_one_way_to_prove_itself(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="either a client_secret or a private_key"):
        ClientCredentials("me", **wrong)  # type: ignore[arg-type]


def test_a_secret_needs_a_name_that_it_belongs_to() -> None:
    with pytest.raises(ConfigError, match="Pass both"):
        OAuth(client_secret="a")


@pytest.mark.parametrize(
    "key", ["", "rubbish", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_key_that_is_none_is_refused_without_being_shown(key: str | bytes) -> None:
    with pytest.raises(ConfigError, match="private_key") as caught:
        ClientCredentials("me", private_key=key)
    assert "AAAA" not in str(caught.value) and "rubbish" not in str(caught.value)
