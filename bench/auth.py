"""Servers that require a token: an API key, a JWT, or a token that the server itself has issued."""

import json
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from .implementations import Implementation, listening
from .web import Site, check_call, exchange

API_KEY = "benchmark-api-key-of-32-letters-"
ISSUER, AUDIENCE = "https://login.example.com", "bench"
ONE_DAY = 86_400


class Signer(NamedTuple):
    """A public key in PEM format, and a token that was signed with its private key."""

    public_key: str
    token: str


@cache
def signer() -> Signer:
    """Create a key for this run."""
    from joserfc import jwt
    from joserfc.jwk import RSAKey

    key = RSAKey.generate_key(2048)
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + ONE_DAY}
    return Signer(
        key.as_pem(private=False).decode(),
        jwt.encode({"alg": "RS256", "typ": "at+jwt"}, claims, key),
    )


def request_token(port: int) -> str:
    """Return a token that the server issues to a configured client."""
    body = f"grant_type=client_credentials&client_id=bench&client_secret={API_KEY}"
    head = [
        "POST /token HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/x-www-form-urlencoded",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        answer = exchange(connection, "\r\n".join([*head, "", body]).encode())
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["access_token"])


@contextmanager
def opened(implementation: Implementation, scheme: str) -> Iterator[Site]:
    """A server behind authentication that has answered a call, and a site that sends its token."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"BENCH_API_KEY": API_KEY, "XDG_DATA_HOME": folder}
        if scheme == "jwt":
            environment |= {
                "BENCH_PUBLIC_KEY": signer().public_key,
                "BENCH_ISSUER": ISSUER,
                "BENCH_AUDIENCE": AUDIENCE,
            }
        with listening(implementation, 1, scheme, environment) as (process, port):
            site = Site(process, port)
            tokens = {"api_key": lambda: API_KEY, "jwt": lambda: signer().token}
            token = tokens[scheme]() if scheme in tokens else request_token(port)
            site.headers["Authorization"] = f"Bearer {token}"
            check_call(site, None)
            yield site
