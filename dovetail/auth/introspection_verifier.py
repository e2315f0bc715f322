"""Access tokens that only their issuer can read: it is asked about each of them (RFC 7662), and its
word kept for a moment.

How long is a trade: as long as a token is kept, it goes on after it was revoked. A token that is
not good is remembered just as long, so that whoever repeats it does not make us repeat the
question; and whoever makes up ever new ones keeps only so many questions under way.
"""

from typing import Any, Final
from urllib.parse import quote, urlencode

from ..errors import ConfigError, ConnectFailed
from ..ports import HttpRequest, Principal, Site
from . import jose
from .jwt_verifier import check_audience, timely
from .tokens import FOREVER, Kept, TokenRefused, digest, scopes_of
from .urls import confidential

REFUSED: Final = 1_000
"""Tokens that are remembered as not good."""
AT_ONCE: Final = 64
"""Tokens that an issuer is asked about at once."""


def introspection(
    url: str,
    *,
    client_id: str,
    client_secret: str,
    issuer: str | None = None,
    audience: str | None = None,
    check: bool = True,
    keeps: float = 30.0,
    skew: float = 60.0,
) -> "IntrospectionVerifier":
    """Tokens that the endpoint at this URL vouches for, asked with these credentials. `audience` is
    what they are for, by default this server's URL; `check=False` takes tokens whose issuer says
    nothing of that. `keeps` is in seconds."""
    if not confidential(url):
        raise ConfigError(
            f"introspection({url!r}): tokens are shown to https only (or http on this machine)"
        )
    credentials = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"  # RFC 6749, 2.3.1
    return IntrospectionVerifier(url, credentials, issuer, audience, check, keeps, skew)


class IntrospectionVerifier:
    """Asks one endpoint."""

    def __init__(
        self,
        url: str,
        credentials: str,
        issuer: str | None,
        audience: str | None,
        check: bool,
        keeps: float,
        skew: float,
    ) -> None:
        from base64 import b64encode

        self.issuer, self.keeps = issuer, keeps
        self._url, self._check, self._skew = url, check, skew
        self._audience = () if audience is None else (audience,)
        self._headers = {
            "authorization": f"Basic {b64encode(credentials.encode()).decode()}",
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }
        self._refused, self._asking = Kept(REFUSED), 0

    async def __call__(self, token: str, site: Site) -> Principal | None:
        """Who a token stands for; None or TokenRefused where it is not good here."""
        key = digest(token)
        if self._refused.get(key):
            return None
        said = await self._ask(token, site)
        if said.get("active") is not True:
            self._refused.put(key, True, FOREVER, self.keeps)
            return None
        if self.issuer is not None and said.get("iss", self.issuer) != self.issuer:
            raise TokenRefused("it is of another issuer")
        timely(said, self._skew, exp=False)
        if self._check or "aud" in said:
            check_audience(said.get("aud"), self._audience, site)
        client = said.get("client_id")
        user = said.get("sub", said.get("username", client))
        if not isinstance(user, str) or not user:
            raise TokenRefused("its issuer does not say whom it stands for (sub)")
        until = said.get("exp")
        scopes, client = scopes_of(said.get("scope")), client if isinstance(client, str) else None
        return Principal(
            user,
            client,
            scopes,
            said,
            None if until is None else float(min(until, FOREVER)) + self._skew,
        )

    async def _ask(self, token: str, site: Site) -> dict[str, Any]:
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        request = HttpRequest(method="POST", url=self._url, headers=self._headers, body=body)
        if self._asking >= AT_ONCE:
            raise ConnectFailed(f"{self._url}: it is being asked about {AT_ONCE} other tokens")
        self._asking += 1
        try:
            answer = await (site.reach or site.fetch)(request)
        finally:
            self._asking -= 1
        if answer.status != 200:
            raise ConnectFailed(
                f"{self._url}: HTTP {answer.status}; are the client_id and client_secret right?"
            )
        try:
            return jose.document(answer.body)
        except jose.Unverified:
            raise ConnectFailed(f"{self._url}: that is no JSON document") from None
