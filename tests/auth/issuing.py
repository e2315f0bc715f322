"""An authorization server, as far as a resource server sees it: metadata, keys, introspection; in
the test's own loop."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwk

from dovetail.auth import jose

from ..transports.http.raw import on_port

KEY_TYPES: dict[str, tuple[Any, Any]] = {
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "RS256": ("RSA", 2048),
}


def generate_key(algorithm: str) -> dict[str, Any]:
    """A new key for this algorithm, with its private members."""
    kind, size = KEY_TYPES.get(algorithm, ("OKP", "Ed25519"))
    return dict(jwk.generate_key(kind, size).as_dict(private=True))


class Issuer:
    """Issues tokens, and can be asked about them."""

    def __init__(self, algorithm: str = "ES256") -> None:
        self.algorithm = algorithm
        self.key = {**generate_key(algorithm), "kid": "first"}
        self.listed: list[dict[str, Any]] = [jose.public_jwk(self.key)]
        self.url = ""
        self.asked: list[str] = []
        self.known: dict[str, dict[str, Any]] = {}
        self.credentials: list[str] = []
        self.down = False
        self.metadata: dict[str, Any] = {}

    def claims(self, audience: Any, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        usual = {
            "iss": self.url,
            "sub": "ada",
            "aud": audience,
            "iat": now,
            "exp": now + 600,
            "client_id": "app",
        }
        return {name: value for name, value in {**usual, **claims}.items() if value is not None}

    def token(
        self, audience: Any, *, header: dict[str, Any] | None = None, key: Any = None, **claims: Any
    ) -> str:
        """A token for this audience. A claim or header that is None is left out."""
        usual = {"typ": "at+jwt", "alg": self.algorithm, "kid": self.key["kid"], **(header or {})}
        said = {name: value for name, value in usual.items() if value is not None}
        return jose.sign(said, self.claims(audience, **claims), jose.load_key(key or self.key))

    def rotate(self) -> None:
        self.key = {**generate_key(self.algorithm), "kid": f"key {len(self.listed) + 1}"}
        self.listed.append(jose.public_jwk(self.key))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.asked.append(path)
        body = (await receive()).get("body", b"")
        status, answer = 200, {}
        if self.down:
            status = 500
        elif path == "/.well-known/openid-configuration":
            answer = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.metadata}
        elif path == "/keys":
            answer = {"keys": self.listed}
        elif path == "/introspect":
            self.credentials.append(dict(scope["headers"]).get(b"authorization", b"").decode())
            answer = self.known.get(parse_qs(body.decode())["token"][0], {"active": False})
        else:
            status = 404
        data = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})


@asynccontextmanager
async def issuing(algorithm: str = "ES256") -> AsyncIterator[Issuer]:
    """An issuer on a port."""
    issuer = Issuer(algorithm)
    async with on_port(issuer) as site:
        issuer.url = f"http://127.0.0.1:{site.port}"
        yield issuer
