"""Forms in, replies out, and the one exception by which anything here is refused.

`Refused` carries the error code of the RFC at hand (6749, 7009, 7591, 8707, 9449) and a sentence
for whoever reads it. What it becomes is a matter of where it is caught: JSON for a client, a page
for a person, or parameters of the way back.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from ...ports import HttpRequest, HttpResponse

LONGEST = 16 * 1024
"""Bytes of a query, and of a body."""
FIELDS = 50
FORM = "application/x-www-form-urlencoded"
NO_STORE = {"cache-control": "no-store", "pragma": "no-cache"}
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type, dpop, mcp-protocol-version",
    "access-control-expose-headers": "dpop-nonce, www-authenticate",
}
"""Clients that live in a browser may call what takes no cookies."""
BUCKETS = 10_000


class Refused(Exception):
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


def json(data: Any, status: int = 200, headers: Mapping[str, str] = NO_STORE) -> HttpResponse:
    """A reply to a program."""
    return HttpResponse(
        status=status,
        headers={"content-type": "application/json", **headers, **CORS},
        body=msgspec.json.encode(data),
    )


def refusal(refused: Refused) -> HttpResponse:
    """The same as an error of RFC 6749, 5.2."""
    error = {"error": refused.error, "error_description": ascii_text(refused.description)}
    return json(error, refused.status, {**NO_STORE, **refused.headers})


def ascii_text(text: str) -> str:
    """What an `error_description` may hold: https://www.rfc-editor.org/rfc/rfc6749#section-5.2."""
    return "".join(
        letter if " " <= letter <= "~" and letter not in '"\\' else "?" for letter in text
    )


def fields(encoded: str | bytes) -> tuple[dict[str, str], list[str]]:
    """The parameters of a query or form, and all `resource`s: only they may come more than once.
    Empty ones are none."""
    if len(encoded) > LONGEST:
        raise Refused("invalid_request", f"the parameters are longer than {LONGEST} bytes", 413)
    try:
        text = encoded if isinstance(encoded, str) else encoded.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS, errors="strict")
    except ValueError:
        raise Refused("invalid_request", "the parameters cannot be read") from None
    found: dict[str, str] = {}
    resources = [value for name, value in pairs if name == "resource" and value]
    for name, value in pairs:
        if name in found:
            raise Refused("invalid_request", "a parameter came more than once")
        if value and name != "resource":
            found[name] = value
    return found, resources


def form(request: HttpRequest) -> tuple[dict[str, str], list[str]]:
    """The fields of a posted form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Refused("invalid_request", f"the content type must be {FORM}")
    return fields(request.body)


def with_query(url: str, parameters: Mapping[str, str]) -> str:
    """A URL with further parameters: https://www.rfc-editor.org/rfc/rfc6749#section-3.1.2."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


class Rates:
    """How often somebody may try: `burst` at once, then one every `seconds`. Remembers the latest
    ten thousand."""

    __slots__ = ("_buckets", "_burst", "_now", "_seconds")

    def __init__(self, burst: int, seconds: float, now: Callable[[], float]) -> None:
        self._burst, self._seconds, self._now = burst, seconds, now
        self._buckets: OrderedDict[str, float] = OrderedDict()
        """When each bucket is full again."""

    def wait(self, who: str | None) -> float:
        """Seconds until the next try."""
        return max(0.0, self._left(who or "") - (self._burst - 1) * self._seconds)

    def count(self, who: str | None) -> None:
        """One try."""
        name = who or ""
        self._buckets[name] = self._now() + self._left(name) + self._seconds
        self._buckets.move_to_end(name)
        if len(self._buckets) > BUCKETS:
            self._buckets.popitem(last=False)

    def _left(self, name: str) -> float:
        """Seconds until a bucket is full. None takes longer than all of its tries: then the clock
        was put back."""
        left = self._buckets.get(name, 0.0) - self._now()
        return 0.0 if left > (self._burst + 1) * self._seconds else max(0.0, left)

    def forget(self, who: str | None) -> None:
        """All tries so far were honest."""
        self._buckets.pop(who or "", None)

    def spend(self, who: str | None) -> None:
        """One try; Refused where it comes too soon."""
        wait = self.wait(who)
        if wait > 0:
            raise Refused(
                "temporarily_unavailable",
                "too many requests from this address",
                429,
                {"retry-after": str(int(wait) + 1)},
            )
        self.count(who)
