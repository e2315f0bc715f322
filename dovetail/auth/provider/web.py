"""Form parsing, responses, rate limits, and documents from other servers.

`OAuthError` is the exception for every refused request. The exception has an error code from the
relevant RFC (6749, 7009, 7591, 8707, 9449) and a description. Depending on the endpoint, the error
is sent as JSON for a client, a page for a person, or redirect parameters.

`DocumentCache` holds JSON documents from other servers: a client's metadata and keys, and the
metadata of an OpenID provider. A document is cached for as long as its server allows (ten minutes
by default, and at most a day). Failures are not cached. Because anyone can send these URLs, the
number of requests to each host is limited. Above the limit, a cached document is used even if it
has expired. The `fetch` function decides which addresses may be reached.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from ...aio import LruDict
from ...errors import DovetailError
from ...ports import Fetch, HttpRequest, HttpResponse, PublicUrl
from .. import jose
from ..wire import decode_object

MAX_BODY_BYTES = 16 * 1024
"""The maximum size of a query or a body."""
MAX_FIELDS = 50
FORM_TYPE = "application/x-www-form-urlencoded"
NO_STORE = {"cache-control": "no-store", "pragma": "no-cache"}
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type, dpop, mcp-protocol-version",
    "access-control-expose-headers": "dpop-nonce, www-authenticate",
}
"""Clients in a browser may call all endpoints that do not use cookies."""
MAX_BUCKETS = 10_000
MAX_CACHED_DOCUMENTS = 256
DEFAULT_LIFETIME_SECONDS, MAX_LIFETIME_SECONDS = 600.0, 86400.0
MAX_FETCHED_BYTES = 64 * 1024
MAX_KEYS = 100
MAX_AGE = re.compile(r"\bmax-age=(\d{1,9})\b", re.IGNORECASE)
NO_CACHE = re.compile(r"\bno-(store|cache)\b", re.IGNORECASE)


class ProviderRequest(HttpRequest, kw_only=True):
    """A request to one of the provider's endpoints. Its `address` is the network of the caller,
    because rate limits treat a network as one caller."""

    issuer: str
    public_url: PublicUrl
    scopes: Mapping[str, str]
    """All scopes with their descriptions."""


class OAuthError(Exception):
    """Raised to refuse a request.

    Args:
        error: The error code from the RFC.
        description: What went wrong, in lower case and without a full stop.
        status: The HTTP status of the response.
        headers: Additional headers for the response.
    """

    def __init__(
        self,
        error: str,
        description: str,
        status: int = 400,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{error}: {description}")
        self.error, self.description, self.status = error, description, status
        self.headers = headers or {}


def json_response(
    data: Any, status: int = 200, headers: Mapping[str, str] = NO_STORE
) -> HttpResponse:
    """Return a JSON response for a program."""
    return HttpResponse(
        status=status,
        headers={"content-type": "application/json", **headers, **CORS},
        body=msgspec.json.encode(data),
    )


def error_response(error: OAuthError) -> HttpResponse:
    """Return an error as a JSON response for a program (RFC 6749, 5.2)."""
    body = {"error": error.error, "error_description": _to_ascii(error.description)}
    return json_response(body, error.status, {**NO_STORE, **error.headers})


def _to_ascii(text: str) -> str:
    """Replace characters that are not allowed in an `error_description`:
    https://www.rfc-editor.org/rfc/rfc6749#section-5.2"""
    return "".join(char if " " <= char <= "~" and char not in '"\\' else "?" for char in text)


def parse_fields(encoded: str | bytes) -> tuple[dict[str, str], list[str]]:
    """Return the parameters of a query or form, and a list of all `resource` parameters. Only
    `resource` may be repeated. Empty parameters are omitted."""
    if len(encoded) > MAX_BODY_BYTES:
        raise OAuthError(
            "invalid_request", f"the parameters are longer than {MAX_BODY_BYTES} bytes", 413
        )
    try:
        text = encoded if isinstance(encoded, str) else encoded.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise OAuthError("invalid_request", "the parameters cannot be parsed") from None
    found: dict[str, str] = {}
    resources = [value for name, value in pairs if name == "resource" and value]
    for name, value in pairs:
        if name in found:
            raise OAuthError("invalid_request", "a parameter occurs more than once")
        if value and name != "resource":
            found[name] = value
    return found, resources


def parse_form(request: HttpRequest) -> tuple[dict[str, str], list[str]]:
    """Return the fields of a posted form, as `parse_fields` does."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise OAuthError("invalid_request", f"the content type must be {FORM_TYPE}")
    return parse_fields(request.body)


def with_query(url: str, parameters: Mapping[str, str]) -> str:
    """Add parameters to a URL: https://www.rfc-editor.org/rfc/rfc6749#section-3.1.2"""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


class AttemptLimiter:
    """A rate limit for each caller, which allows `burst` attempts at once and then one attempt
    every `seconds` seconds. The limiter remembers the last ten thousand callers.
    """

    def __init__(self, burst: int, seconds: float, now: Callable[[], float]) -> None:
        self._burst, self._seconds, self._now = burst, seconds, now
        self._full_at: LruDict[str | None, float] = LruDict(MAX_BUCKETS)
        """The time at which each caller's bucket is full again."""

    def seconds_to_wait(self, caller: str | None) -> float:
        """Return the time until the next attempt is allowed, in seconds."""
        return max(0.0, self._seconds_to_full(caller) - (self._burst - 1) * self._seconds)

    def record(self, caller: str | None) -> None:
        """Count one attempt."""
        self._full_at[caller] = self._now() + self._seconds_to_full(caller) + self._seconds

    def take_back(self, caller: str | None) -> None:
        """Remove a caller's last attempt from the count."""
        self._full_at[caller] = self._now() + self._seconds_to_full(caller) - self._seconds

    def _seconds_to_full(self, caller: str | None) -> float:
        left = (self._full_at.get(caller) or 0.0) - self._now()
        # Filling a bucket never takes longer than this, unless the clock was set back.
        return 0.0 if left > (self._burst + 1) * self._seconds else max(0.0, left)

    def forget(self, caller: str | None) -> None:
        """Forget a caller's attempts."""
        self._full_at.pop(caller)

    def require(self, caller: str | None) -> None:
        """Count one attempt. Raises OAuthError if the limit is exceeded."""
        wait = self.seconds_to_wait(caller)
        if wait > 0:
            raise OAuthError(
                "temporarily_unavailable",
                "there have been too many requests from this address",
                429,
                {"retry-after": str(int(wait) + 1)},
            )
        self.record(caller)


class DocumentUnavailable(ValueError):
    """A document could not be fetched. The message is a lower-case phrase that completes a
    sentence."""


class DocumentCache:
    """A cache of documents from other servers."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._documents: LruDict[str, tuple[float, dict[str, Any]]] = LruDict(MAX_CACHED_DOCUMENTS)
        self._limiter = AttemptLimiter(30, 2.0, now)

    async def get(
        self, url: str, fetch: Fetch, *, fresh: bool = False, address: str | None = None
    ) -> dict[str, Any]:
        """Return the JSON object at this URL for a caller at this address."""
        expires, found = self._documents.get(url) or (0.0, {})
        if expires > self._now() and not fresh:
            return found
        try:
            self._limiter.require(f"{address} {urlsplit(url).netloc}")
            answer = await fetch(
                HttpRequest(method="GET", url=url, headers={"accept": "application/json"})
            )
        except OAuthError:
            if found:
                return found
            raise DocumentUnavailable(
                "the document was requested too often; try again in a minute"
            ) from None
        except (DovetailError, ValueError) as error:
            raise DocumentUnavailable(str(error)) from None
        headers = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status != 200:
            raise DocumentUnavailable(f"the server answered with HTTP {answer.status}")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (
            kind == "application/json"
            or (kind.startswith("application/") and kind.endswith("+json"))
        ):
            raise DocumentUnavailable("the content type is not application/json")
        if len(answer.body) > MAX_FETCHED_BYTES:
            raise DocumentUnavailable(f"the document is longer than {MAX_FETCHED_BYTES} bytes")
        document = parse_object(answer.body)
        lifetime = _lifetime(headers.get("cache-control", ""))
        self._documents[url] = self._now() + lifetime, document
        return document

    async def key(
        self, url: str, fetch: Fetch, header: dict[str, Any], address: str | None = None
    ) -> dict[str, Any]:
        """Find the key that a token names in a key set (RFC 7517). A set without this key is
        fetched again, because issuers replace their keys."""
        try:
            return pick_key(await self.get(url, fetch, address=address), header)
        except jose.InvalidJwt:
            return pick_key(await self.get(url, fetch, fresh=True, address=address), header)


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in these bytes. Raises DocumentUnavailable if the bytes contain
    anything else."""
    document = decode_object(body)
    if document is None:
        raise DocumentUnavailable("the document is not a JSON object")
    return document


def pick_key(keys: dict[str, Any], header: dict[str, Any]) -> dict[str, Any]:
    """Find the key that a token names in a key set. Raises InvalidJwt unless exactly one key
    matches."""
    listed = keys.get("keys")
    kid = header.get("kid")
    matching = [
        key
        for key in (listed[:MAX_KEYS] if isinstance(listed, list) else ())
        if isinstance(key, dict)
        and key.get("use", "sig") == "sig"
        and (kid is None or key.get("kid") == kid)
    ]
    if len(matching) != 1:
        raise jose.InvalidJwt("the signing key is unknown")
    return matching[0]


def _lifetime(cache_control: str) -> float:
    if NO_CACHE.search(cache_control):
        return 0.0
    age = MAX_AGE.search(cache_control)
    return DEFAULT_LIFETIME_SECONDS if age is None else min(float(age[1]), MAX_LIFETIME_SECONDS)
