"""How a client comes by a name at an authorization server, in the order that the specification
prefers:

    given        the user registered it beforehand; good at one issuer only
    document     its name is the URL of a document about it, where the server reads such documents
    registered   it registers itself on the way (RFC 7591), and keeps the answer for the next time

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration

A name that was given without saying by whom belongs to the first issuer it is used at. A
registration is made anew when it has expired, when it was for another redirect URI or for less than
is asked for now, and when the server has forgotten it.
"""

from collections.abc import Generator, Sequence
from urllib.parse import urlsplit

from msgspec.json import encode

from ...errors import ConfigError, ConnectFailed, Unauthorized
from ...net import is_loopback
from ...ports import HttpRequest, HttpResponse
from ...text import one_line
from ..documents import (
    ClientInformation,
    ClientMetadata,
    ErrorReply,
    SecretStruct,
    ServerMetadata,
    read_document,
)
from .discovery import ChooseIssuers, DiscoveryResult
from .store import ClientRegistration, ServerRecord

AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")
"""How a client may prove itself at the token endpoint, those it likes best first."""
DEFAULT_AUTH_METHODS = ("client_secret_basic",)
"""What a server supports that does not say: https://www.rfc-editor.org/rfc/rfc8414#section-2"""
EXPIRY_MARGIN_SECONDS = 60.0


class ClientIdentity(SecretStruct, kw_only=True):
    """What the user says this client is."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    """Who gave it that name."""
    auth_method: str | None = None
    metadata_url: str | None = None
    name: str = "Dovetail"
    uri: str | None = None


def issuer_chooser(identity: ClientIdentity, record: ServerRecord) -> ChooseIssuers:
    """Puts the issuers first that know this client already, and refuses those that a given name is
    not for."""

    def choose(issuers: Sequence[str]) -> Sequence[str]:
        home = identity.issuer or _issuer_used_before(identity, record)
        if home is None:
            return sorted(
                dict.fromkeys(issuers), key=lambda issuer: issuer not in record.registrations
            )
        if home not in issuers:
            raise Unauthorized(
                f"the client id is one of {home}, but the server's authorization is now at "
                f"{one_line(', '.join(issuers))}; "
                "if that is right, give the client_id and issuer that are used there"
            )
        return (home,)

    return choose


def check_document_url(url: str) -> str:
    """The same URL, if it may name a client: https, and with a path."""
    parts = urlsplit(url)
    if (
        parts.scheme != "https"
        or not parts.hostname
        or len(parts.path) < 2
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ConfigError(
            "client_metadata_url has to be an https URL with a path, such as "
            f"https://example.com/client.json: {url}"
        )
    return url


def use_given_client(
    identity: ClientIdentity, place: DiscoveryResult, record: ServerRecord
) -> ClientRegistration:
    """The name that the user gave; it is remembered where it was used."""
    if identity.client_id is None:
        raise ConfigError("a client_id is needed")
    method = identity.auth_method or _choose_auth_method(
        place.server, identity.client_secret is not None
    )
    client = ClientRegistration(
        client_id=identity.client_id, client_secret=identity.client_secret, auth_method=method
    )
    record.register(
        place.server.issuer, ClientRegistration(client_id=identity.client_id)
    )  # only where, its secret is not ours to keep
    return client


def obtain_registration(
    identity: ClientIdentity,
    place: DiscoveryResult,
    record: ServerRecord,
    redirect_uri: str,
    scopes: Sequence[str],
    now: float,
) -> Generator[HttpRequest, HttpResponse, ClientRegistration]:
    """How this client is known at this place, from now on if not before."""
    server = place.server
    if identity.client_id is not None:
        return use_given_client(identity, place, record)
    if identity.metadata_url is not None and server.client_id_metadata_document_supported:
        client = ClientRegistration(client_id=identity.metadata_url, source="document")
        record.register(server.issuer, client)
        return client
    known = record.registrations.get(server.issuer)
    if known is not None and _is_usable(known, redirect_uri, scopes, now):
        return known
    if server.registration_endpoint is None:
        raise Unauthorized(
            f"{server.issuer}: clients cannot register themselves there; register one by hand, "
            "with a redirect URI on this machine, and give its client_id"
        )
    wider = tuple(dict.fromkeys((*scopes, *place.scopes)))
    client = yield from _register(identity, server, redirect_uri, wider)
    record.register(server.issuer, client)
    return client


def _register(
    identity: ClientIdentity, server: ServerMetadata, redirect_uri: str, scopes: Sequence[str]
) -> Generator[HttpRequest, HttpResponse, ClientRegistration]:
    offered = server.token_endpoint_auth_methods_supported or DEFAULT_AUTH_METHODS
    wanted = ClientMetadata(
        redirect_uris=[redirect_uri],
        client_name=identity.name,
        client_uri=identity.uri,
        # OpenID providers take a client that says nothing for a web site, and refuse it loopback
        # addresses
        application_type="native" if is_loopback(urlsplit(redirect_uri).hostname) else "web",
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method=next(
            (method for method in AUTH_METHODS if method in offered), AUTH_METHODS[0]
        ),
        scope=" ".join(scopes) or None,
    )
    endpoint = server.registration_endpoint or ""
    answer = yield HttpRequest(
        method="POST",
        url=endpoint,
        path=urlsplit(endpoint).path or "/",
        headers={"content-type": "application/json", "accept": "application/json"},
        body=encode(wanted),
    )
    if answer.status == 429 or answer.status >= 500:
        raise ConnectFailed(
            f"{endpoint}: answered {answer.status} to the registration; try again later"
        )
    made = read_document(answer.body, ClientInformation) if answer.status in (200, 201) else None
    if made is None or not made.client_id:
        refusal = read_document(answer.body, ErrorReply)
        why = refusal.text if refusal is not None else f"status {answer.status}"
        raise Unauthorized(
            f"{server.issuer} did not register this client ({why}); register one by hand and "
            "give its client_id"
        )
    method = made.token_endpoint_auth_method or wanted.token_endpoint_auth_method or AUTH_METHODS[0]
    if method not in AUTH_METHODS:
        raise Unauthorized(
            f"{server.issuer} registered this client for {one_line(method)}, which it did not "
            "ask for and cannot do"
        )
    return ClientRegistration(
        client_id=made.client_id,
        client_secret=made.client_secret,
        auth_method=method if made.client_secret else "none",
        source="registered",
        expires_at=made.client_secret_expires_at or None,  # 0 is never: RFC 7591, 3.2.1
        redirect_uri=redirect_uri,
        scopes=tuple(scopes),
    )


def _is_usable(
    client: ClientRegistration, redirect_uri: str, scopes: Sequence[str], now: float
) -> bool:
    fresh = client.expires_at is None or now < client.expires_at - EXPIRY_MARGIN_SECONDS
    enough = not client.scopes or set(scopes) <= set(client.scopes)
    return (
        client.source == "registered" and fresh and enough and client.redirect_uri == redirect_uri
    )


def _issuer_used_before(identity: ClientIdentity, record: ServerRecord) -> str | None:
    if identity.client_id is None:
        return None
    used = (
        issuer
        for issuer, client in record.registrations.items()
        if client.client_id == identity.client_id
    )
    return next(used, None)


def _choose_auth_method(server: ServerMetadata, secret: bool) -> str:
    offered = server.token_endpoint_auth_methods_supported or DEFAULT_AUTH_METHODS
    return (
        next((method for method in AUTH_METHODS[1:] if method in offered), AUTH_METHODS[1])
        if secret
        else AUTH_METHODS[0]
    )
