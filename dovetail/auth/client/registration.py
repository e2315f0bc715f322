"""How a client gets its id at an authorization server, in the order that the specification prefers:

    given        the user registered the client in advance; valid at one issuer only
    document     the id is the URL of a document about the client, if the server reads those
    registered   the client registers itself (RFC 7591), and keeps the answer for the next time

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization/client-registration

An id that was given without its issuer belongs to the first issuer where it is used. A client
registers itself again if the registration has expired, if it was for another redirect URI or for
fewer scopes than are needed now, and if the server has forgotten it.
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
"""How a client may authenticate at the token endpoint, in order of preference."""
DEFAULT_AUTH_METHODS = ("client_secret_basic",)
"""What a server supports if it does not say: https://www.rfc-editor.org/rfc/rfc8414#section-2"""
EXPIRY_MARGIN_SECONDS = 60.0


class ClientIdentity(SecretStruct, kw_only=True):
    """What the user says about this client."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    """Who issued the id."""
    auth_method: str | None = None
    metadata_url: str | None = None
    name: str = "Dovetail"
    uri: str | None = None


def issuer_chooser(identity: ClientIdentity, record: ServerRecord) -> ChooseIssuers:
    """Return what orders the issuers of a server: those that know this client already come first,
    and those that a given id is not for are refused."""

    def choose(issuers: Sequence[str]) -> Sequence[str]:
        home = identity.issuer or _issuer_used_before(identity, record)
        if home is None:
            return sorted(
                dict.fromkeys(issuers), key=lambda issuer: issuer not in record.registrations
            )
        if home not in issuers:
            raise Unauthorized(
                f"The client_id was issued by {home}, but the server now uses "
                f"{one_line(', '.join(issuers))}. If that is right, pass the client_id and issuer "
                "that are used there."
            )
        return (home,)

    return choose


def check_document_url(url: str) -> None:
    """Raise ConfigError unless the URL may be a client id: https, with a path."""
    parts = urlsplit(url)
    if (
        parts.scheme != "https"
        or not parts.hostname
        or len(parts.path) < 2
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ConfigError(
            "client_metadata_url must be an https URL with a path, such as "
            f"https://example.com/client.json: {url}"
        )


def use_given_client(
    identity: ClientIdentity, found: DiscoveryResult, record: ServerRecord
) -> ClientRegistration:
    """Return the client that the user registered, and remember at which issuer it was used."""
    if identity.client_id is None:
        raise ConfigError("A client_id is needed")
    offered = found.server.token_endpoint_auth_methods_supported or DEFAULT_AUTH_METHODS
    secret_method = next((name for name in AUTH_METHODS[1:] if name in offered), AUTH_METHODS[1])
    default = "none" if identity.client_secret is None else secret_method
    # The secret stays with the user; only the issuer is remembered.
    record.register(found.server.issuer, ClientRegistration(client_id=identity.client_id))
    return ClientRegistration(
        client_id=identity.client_id,
        client_secret=identity.client_secret,
        auth_method=identity.auth_method or default,
    )


def obtain_registration(
    identity: ClientIdentity,
    found: DiscoveryResult,
    record: ServerRecord,
    redirect_uri: str,
    scopes: Sequence[str],
    now: float,
) -> Generator[HttpRequest, HttpResponse, ClientRegistration]:
    """Return how this client is known at an authorization server, registering it if needed."""
    server = found.server
    if identity.client_id is not None:
        return use_given_client(identity, found, record)
    if identity.metadata_url is not None and server.client_id_metadata_document_supported:
        client = ClientRegistration(client_id=identity.metadata_url, source="document")
        record.register(server.issuer, client)
        return client
    known = record.registrations.get(server.issuer)
    if known is not None and _is_usable(known, redirect_uri, scopes, now):
        return known
    if server.registration_endpoint is None:
        raise Unauthorized(
            f"{server.issuer}: clients cannot register themselves there. Register one by hand, "
            "with a redirect URI on localhost, and pass its client_id."
        )
    wider = tuple(dict.fromkeys((*scopes, *found.scopes)))
    client = yield from _register(identity, server, redirect_uri, wider)
    record.register(server.issuer, client)
    return client


def _register(
    identity: ClientIdentity, server: ServerMetadata, redirect_uri: str, scopes: Sequence[str]
) -> Generator[HttpRequest, HttpResponse, ClientRegistration]:
    offered = server.token_endpoint_auth_methods_supported or DEFAULT_AUTH_METHODS
    wanted_method = next((method for method in AUTH_METHODS if method in offered), AUTH_METHODS[0])
    metadata = ClientMetadata(
        redirect_uris=[redirect_uri],
        client_name=identity.name,
        client_uri=identity.uri,
        # OpenID providers take a client without a type for a web site, and refuse loopback
        # addresses to it.
        application_type="native" if is_loopback(urlsplit(redirect_uri).hostname) else "web",
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method=wanted_method,
        scope=" ".join(scopes) or None,
    )
    endpoint = server.registration_endpoint or ""
    answer = yield HttpRequest(
        method="POST",
        url=endpoint,
        path=urlsplit(endpoint).path or "/",
        headers={"content-type": "application/json", "accept": "application/json"},
        body=encode(metadata),
    )
    if answer.status == 429 or answer.status >= 500:
        raise ConnectFailed(
            f"{endpoint}: HTTP {answer.status} for the registration. Try again later."
        )
    made = read_document(answer.body, ClientInformation) if answer.status in (200, 201) else None
    if made is None or not made.client_id:
        error = read_document(answer.body, ErrorReply)
        reason = error.text if error is not None else f"HTTP {answer.status}"
        raise Unauthorized(
            f"{server.issuer} did not register this client ({reason}). Register one by hand and "
            "pass its client_id."
        )
    method = made.token_endpoint_auth_method or wanted_method
    if method not in AUTH_METHODS:
        raise Unauthorized(
            f"{server.issuer} registered this client for {one_line(method)}, which is not "
            "supported and was not requested"
        )
    return ClientRegistration(
        client_id=made.client_id,
        client_secret=made.client_secret,
        auth_method=method if made.client_secret else "none",
        source="registered",
        expires_at=made.client_secret_expires_at or None,  # 0 means never: RFC 7591, 3.2.1
        redirect_uri=redirect_uri,
        scopes=tuple(scopes),
    )


def _is_usable(
    client: ClientRegistration, redirect_uri: str, scopes: Sequence[str], now: float
) -> bool:
    return (
        client.source == "registered"
        and (client.expires_at is None or now < client.expires_at - EXPIRY_MARGIN_SECONDS)
        and (not client.scopes or set(scopes) <= set(client.scopes))
        and client.redirect_uri == redirect_uri
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
