"""What a client keeps about a server: how it is known there, and what it was given.

One record for each server, as bytes in a `Store`. Registrations are kept by issuer, and tokens name
the issuer, the endpoint and the client that they belong to: nothing that one authorization server
said can ever reach another. Times are absolute, so that they mean the same after a restart.
"""

from typing import Any

from msgspec import DecodeError, ValidationError
from msgspec.json import decode, encode

from .documents import Secret

REGISTRATIONS = 8
"""Authorization servers that one record remembers; the one that was used last is never
forgotten."""
AHEAD = 60.0
"""Seconds before its end that a token is renewed, or a fifth of its life if that is less."""


class Client(Secret, kw_only=True, omit_defaults=True):
    """How this client is known to one authorization server."""

    client_id: str
    client_secret: str | None = None
    method: str = "none"
    """How it proves itself at the token endpoint."""
    source: str = "given"
    """`given` by the user, a `document` of its own, or `registered` on the way."""
    expires_at: float | None = None
    redirect_uri: str | None = None
    scopes: tuple[str, ...] = ()
    """What it may ask for, as far as it was registered for something."""


class Tokens(Secret, kw_only=True, omit_defaults=True):
    """What an authorization server gave, and everything that is needed to have it renewed."""

    access_token: str
    scheme: str
    """`Bearer` or `DPoP`."""
    issuer: str
    token_endpoint: str
    resource: str
    client: Client
    issued_at: float
    expires_at: float | None = None
    refresh_token: str | None = None
    asked: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    user: str | None = None
    """Who logged in, where the authorization server says so; to be shown, and good for nothing
    else."""

    def ending(self, now: float) -> bool:
        """Whether it is time for new ones."""
        return self.expires_at is not None and now >= self.expires_at - min(
            AHEAD, (self.expires_at - self.issued_at) / 5
        )

    def ended(self, now: float) -> bool:
        """Whether nobody will take them any more."""
        return self.expires_at is not None and now >= self.expires_at


class Record(Secret, kw_only=True, omit_defaults=True):
    """All of it, for one server."""

    tokens: Tokens | None = None
    clients: dict[str, Client] = {}
    """By issuer."""
    asked: tuple[str, ...] = ()
    """What was asked for with tokens that are no more."""
    metadata: str | None = None
    """Where the server said that its metadata is."""
    jwk: dict[str, Any] | None = None
    """The key that tokens are bound to, private parts and all."""

    def register(self, issuer: str, client: Client) -> None:
        """Remember a registration."""
        others = {known: kept for known, kept in self.clients.items() if known != issuer}
        self.clients = dict([*others.items(), (issuer, client)][-REGISTRATIONS:])

    def forget(self, issuer: str) -> None:
        """Forget a registration; tokens know theirs and live on."""
        self.clients = {known: kept for known, kept in self.clients.items() if known != issuer}

    def data(self) -> bytes:
        """The record as a store keeps it."""
        return encode(self)


def record(data: bytes | None) -> Record:
    """The record that was kept; a new one where there is none, or none that can be read."""
    if data is None:
        return Record()
    try:
        return decode(data, type=Record)
    except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError):
        return Record()
