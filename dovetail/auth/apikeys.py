"""API keys, for those who need no OAuth: whoever has a key is let in, and is who the key stands
for.

A key is found by its digest, so how long that takes tells nothing of the keys there are, and a key
has to be long enough not to be guessed. It comes in a header of its own, or as a bearer token,
which any client can send.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..errors import ConfigError
from ..ports import HttpRequest, HttpResponse, Principal, Site
from .challenges import write
from .tokens import digest, directory

SHORTEST: Final = 16
"""Characters of a key. What is drawn at random from letters and digits then has more than 80
bits."""


class ApiKeys:
    """Lets in who has one of these keys."""

    def __init__(
        self, keys: Mapping[str, Principal | Mapping[str, Any] | str], *, header: str = "x-api-key"
    ) -> None:
        self._keys, self._header = directory(keys, "ApiKeys"), header.lower()
        self.secrets = (self._header,)
        short = next((place for place, key in enumerate(keys, 1) if len(key) < SHORTEST), None)
        if short is not None:
            remedy = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
            raise ConfigError(
                f"ApiKeys: key {short} has fewer than {SHORTEST} characters and could be "
                f"guessed; {remedy}"
            )

    async def admit(self, request: HttpRequest, site: Site) -> Principal | HttpResponse:
        """Who is calling, or the refusal."""
        key = request.headers.get(self._header)
        if key is None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            key = token.strip(" ") if scheme.lower() == "bearer" else ""
        who = self._keys.get(digest(key))
        if who is None or (who.expires is not None and who.expires <= time.time()):
            return self._refusal(bool(key))
        return who

    def _refusal(self, given: bool) -> HttpResponse:
        why = (
            "The key is not known here"
            if given
            else f"This server wants an API key: send it as {self._header}"
        )
        body = msgspec.json.encode(
            {"error": "invalid_token" if given else "unauthorized", "error_description": why}
        )
        said = {"error": "invalid_token", "error_description": why} if given else {}
        headers = {
            "content-type": "application/json",
            "cache-control": "no-store",
            **self._challenge(**said),
        }
        return HttpResponse(status=401, headers=headers, body=body)

    async def respond(self, request: HttpRequest, site: Site) -> HttpResponse | None:
        """There are no pages here."""
        return None

    def challenge(
        self, site: Site, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """The headers of a refusal to a caller that was let in, but lacks these scopes."""
        return self._challenge(error="insufficient_scope", scope=" ".join(scopes))

    def _challenge(self, **parameters: str) -> dict[str, str]:
        return {"www-authenticate": write("ApiKey", {"header": self._header, **parameters})}
