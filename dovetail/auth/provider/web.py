"""Forms in, replies out, and the one exception by which anything here is refused.

`Refused` carries the error code of the RFC at hand (6749, 7009, 7591, 8707, 9449) and a sentence
for whoever reads it. What it becomes is a matter of where it is caught: JSON for a client, a page
for a person, or parameters of the way back.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from ...errors import DovetailError
from ...ports import Fetch, HttpRequest, HttpResponse
from .. import jose
from ..server.verifiers import FAR_FUTURE

MAX_BODY_BYTES = 16 * 1024
"""Bytes of a query, and of a body."""
MAX_FIELDS = 50
FORM_TYPE = "application/x-www-form-urlencoded"
NO_STORE = {"cache-control": "no-store", "pragma": "no-cache"}
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type, dpop, mcp-protocol-version",
    "access-control-expose-headers": "dpop-nonce, www-authenticate",
}
"""Clients that live in a browser may call what takes no cookies."""
MAX_BUCKETS = 10_000


class OAuthError(Exception):
    """A request that is not granted: error code, what to tell, status, and further headers."""

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
    """A reply to a program."""
    return HttpResponse(
        status=status,
        headers={"content-type": "application/json", **headers, **CORS},
        body=msgspec.json.encode(data),
    )


def error_response(refused: OAuthError) -> HttpResponse:
    """The same as an error of RFC 6749, 5.2."""
    error = {"error": refused.error, "error_description": ascii_text(refused.description)}
    return json_response(error, refused.status, {**NO_STORE, **refused.headers})


def ascii_text(text: str) -> str:
    """What an `error_description` may hold: https://www.rfc-editor.org/rfc/rfc6749#section-5.2."""
    return "".join(
        letter if " " <= letter <= "~" and letter not in '"\\' else "?" for letter in text
    )


def parse_fields(encoded: str | bytes) -> tuple[dict[str, str], list[str]]:
    """The parameters of a query or form, and all `resource`s: only they may come more than once.
    Empty ones are none."""
    if len(encoded) > MAX_BODY_BYTES:
        raise OAuthError(
            "invalid_request", f"the parameters are longer than {MAX_BODY_BYTES} bytes", 413
        )
    try:
        text = encoded if isinstance(encoded, str) else encoded.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise OAuthError("invalid_request", "the parameters cannot be read") from None
    found: dict[str, str] = {}
    resources = [value for name, value in pairs if name == "resource" and value]
    for name, value in pairs:
        if name in found:
            raise OAuthError("invalid_request", "a parameter came more than once")
        if value and name != "resource":
            found[name] = value
    return found, resources


def parse_form(request: HttpRequest) -> tuple[dict[str, str], list[str]]:
    """The fields of a posted form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise OAuthError("invalid_request", f"the content type must be {FORM_TYPE}")
    return parse_fields(request.body)


def with_query(url: str, parameters: Mapping[str, str]) -> str:
    """A URL with further parameters: https://www.rfc-editor.org/rfc/rfc6749#section-3.1.2."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


class AttemptLimiter:
    """How often somebody may try: `burst` at once, then one every `seconds`. Remembers the latest
    ten thousand."""

    __slots__ = ("_buckets", "_burst", "_now", "_seconds")

    def __init__(self, burst: int, seconds: float, now: Callable[[], float]) -> None:
        self._burst, self._seconds, self._now = burst, seconds, now
        self._buckets: OrderedDict[str, float] = OrderedDict()
        """When each bucket is full again."""

    def seconds_to_wait(self, who: str | None) -> float:
        """Seconds until the next try."""
        return max(0.0, self._left(who or "") - (self._burst - 1) * self._seconds)

    def record(self, who: str | None) -> None:
        """One try."""
        name = who or ""
        self._buckets[name] = self._now() + self._left(name) + self._seconds
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)

    def _left(self, name: str) -> float:
        """Seconds until a bucket is full. None takes longer than all of its tries: then the clock
        was put back."""
        left = self._buckets.get(name, 0.0) - self._now()
        return 0.0 if left > (self._burst + 1) * self._seconds else max(0.0, left)

    def forget(self, who: str | None) -> None:
        """All tries so far were honest."""
        self._buckets.pop(who or "", None)

    def require(self, who: str | None) -> None:
        """One try; Refused where it comes too soon."""
        wait = self.seconds_to_wait(who)
        if wait > 0:
            raise OAuthError(
                "temporarily_unavailable",
                "too many requests from this address",
                429,
                {"retry-after": str(int(wait) + 1)},
            )
        self.record(who)


# --- merged from fetching.py (integrate, then remove this comment)
# JSON documents of others: a client's metadata, its keys, what an OpenID provider says of itself.
#
# Each is kept for as long as its server allows (ten minutes where it says nothing, a day at most).
# Failures are not kept, but nobody makes us ask a host more often than it would bear, as it is
# strangers who name these URLs; who tried has to do with what was kept. Which addresses may be
# reached at all is decided below `PublicUrl.fetch`.

MAX_CACHED_DOCUMENTS = 256
DEFAULT_LIFETIME_SECONDS, MAX_LIFETIME_SECONDS = 600.0, 86400.0
MAX_FETCHED_BYTES = 64 * 1024
MAX_KEYS = 100
MAX_AGE = re.compile(r"\bmax-age=(\d{1,9})\b", re.IGNORECASE)
NO_CACHE = re.compile(r"\bno-(store|cache)\b", re.IGNORECASE)


class DocumentUnavailable(ValueError):
    """A document that could not be had; the text says why."""


class DocumentCache:
    """The documents that were fetched lately."""

    __slots__ = ("_kept", "_now", "_rates")

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._rates = AttemptLimiter(30, 2.0, now)

    async def get(
        self, url: str, fetch: Fetch, *, fresh: bool = False, address: str | None = None
    ) -> dict[str, Any]:
        """The JSON object at this URL, for whoever asks from this address."""
        ends, found = self._kept.get(url, (0.0, {}))
        if ends > self._now() and not fresh:
            self._kept.move_to_end(url)
            return found
        try:
            self._rates.require(f"{address} {urlsplit(url).netloc}")
            answer = await fetch(
                HttpRequest(method="GET", url=url, headers={"accept": "application/json"})
            )
        except OAuthError:
            if found:
                return found
            raise DocumentUnavailable(
                "its server was asked too often lately; try again in a minute"
            ) from None
        except (DovetailError, ValueError) as error:
            raise DocumentUnavailable(str(error)) from None
        headers = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status != 200:
            raise DocumentUnavailable(f"its server answered with status {answer.status}")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (
            kind == "application/json"
            or (kind.startswith("application/") and kind.endswith("+json"))
        ):
            raise DocumentUnavailable("it is not served as application/json")
        if len(answer.body) > MAX_FETCHED_BYTES:
            raise DocumentUnavailable(f"it is longer than {MAX_FETCHED_BYTES} bytes")
        self._keep(
            url, document := parse_object(answer.body), _lifetime(headers.get("cache-control", ""))
        )
        return document

    async def key(
        self, url: str, fetch: Fetch, header: dict[str, Any], address: str | None = None
    ) -> dict[str, Any]:
        """The key of a set (RFC 7517) that a token names. A set that lacks it is fetched anew: keys
        are changed."""
        try:
            return pick_key(await self.get(url, fetch, address=address), header)
        except jose.InvalidJwt:
            return pick_key(await self.get(url, fetch, fresh=True, address=address), header)

    def _keep(self, url: str, document: dict[str, Any], life: float) -> None:
        self._kept[url] = (self._now() + life, document)
        self._kept.move_to_end(url)
        if len(self._kept) > MAX_CACHED_DOCUMENTS:
            self._kept.popitem(last=False)


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object; Unavailable where it is none."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise DocumentUnavailable("it is no JSON object")
    return document


def pick_key(keys: dict[str, Any], header: dict[str, Any]) -> dict[str, Any]:
    """The key of a set that a token names; Unverified where it has no such key."""
    listed = keys.get("keys")
    sound = (
        [key for key in listed[:MAX_KEYS] if isinstance(key, dict)]
        if isinstance(listed, list)
        else []
    )
    signing = [key for key in sound if key.get("use", "sig") == "sig"]
    kid = header.get("kid")
    fitting = [key for key in signing if kid is None or key.get("kid") == kid]
    if len(fitting) != 1:
        raise jose.InvalidJwt("its key is not known")
    return fitting[0]


def to_timestamp(claim: Any) -> float:
    """A time that a token names; where it names none, one that is neither before nor after any
    other."""
    return (
        float(max(-FAR_FUTURE, min(claim, FAR_FUTURE)))
        if type(claim) in (int, float)
        else float("nan")
    )


def _lifetime(control: str) -> float:
    if NO_CACHE.search(control):
        return 0.0
    age = MAX_AGE.search(control)
    return DEFAULT_LIFETIME_SECONDS if age is None else min(float(age[1]), MAX_LIFETIME_SECONDS)
