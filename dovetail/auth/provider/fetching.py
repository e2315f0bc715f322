"""JSON documents of others: a client's metadata, its keys, what an OpenID provider says of itself.

Each is kept for as long as its server allows (ten minutes where it says nothing, a day at most).
Failures are not kept, but nobody makes us ask a host more often than it would bear, as it is
strangers who name these URLs; who tried has to do with what was kept. Which addresses may be
reached at all is decided below `Site.fetch`.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...errors import DovetailError
from ...ports import Fetch, HttpRequest
from .. import jose
from ..tokens import FOREVER
from .web import Rates, Refused

KEPT = 256
USUAL, LONGEST = 600.0, 86400.0
SIZE = 64 * 1024
KEYS = 100
MAX_AGE = re.compile(r"\bmax-age=(\d{1,9})\b", re.IGNORECASE)
NEVER = re.compile(r"\bno-(store|cache)\b", re.IGNORECASE)


class Unavailable(ValueError):
    """A document that could not be had; the text says why."""


class Documents:
    """The documents that were fetched lately."""

    __slots__ = ("_kept", "_now", "_rates")

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._rates = Rates(30, 2.0, now)

    async def get(
        self, url: str, fetch: Fetch, *, fresh: bool = False, address: str | None = None
    ) -> dict[str, Any]:
        """The JSON object at this URL, for whoever asks from this address."""
        ends, found = self._kept.get(url, (0.0, {}))
        if ends > self._now() and not fresh:
            self._kept.move_to_end(url)
            return found
        try:
            self._rates.spend(f"{address} {urlsplit(url).netloc}")
            answer = await fetch(
                HttpRequest(method="GET", url=url, headers={"accept": "application/json"})
            )
        except Refused:
            if found:
                return found
            raise Unavailable(
                "its server was asked too often lately; try again in a minute"
            ) from None
        except (DovetailError, ValueError) as error:
            raise Unavailable(str(error)) from None
        headers = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status != 200:
            raise Unavailable(f"its server answered with status {answer.status}")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (
            kind == "application/json"
            or (kind.startswith("application/") and kind.endswith("+json"))
        ):
            raise Unavailable("it is not served as application/json")
        if len(answer.body) > SIZE:
            raise Unavailable(f"it is longer than {SIZE} bytes")
        self._keep(url, document := parse(answer.body), _life(headers.get("cache-control", "")))
        return document

    async def key(
        self, url: str, fetch: Fetch, header: dict[str, Any], address: str | None = None
    ) -> dict[str, Any]:
        """The key of a set (RFC 7517) that a token names. A set that lacks it is fetched anew: keys
        are changed."""
        try:
            return pick(await self.get(url, fetch, address=address), header)
        except jose.Unverified:
            return pick(await self.get(url, fetch, fresh=True, address=address), header)

    def _keep(self, url: str, document: dict[str, Any], life: float) -> None:
        self._kept[url] = (self._now() + life, document)
        self._kept.move_to_end(url)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def parse(body: bytes) -> dict[str, Any]:
    """A JSON object; Unavailable where it is none."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Unavailable("it is no JSON object")
    return document


def pick(keys: dict[str, Any], header: dict[str, Any]) -> dict[str, Any]:
    """The key of a set that a token names; Unverified where it has no such key."""
    listed = keys.get("keys")
    sound = (
        [key for key in listed[:KEYS] if isinstance(key, dict)] if isinstance(listed, list) else []
    )
    signing = [key for key in sound if key.get("use", "sig") == "sig"]
    kid = header.get("kid")
    fitting = [key for key in signing if kid is None or key.get("kid") == kid]
    if len(fitting) != 1:
        raise jose.Unverified("its key is not known")
    return fitting[0]


def moment(claim: Any) -> float:
    """A time that a token names; where it names none, one that is neither before nor after any
    other."""
    return (
        float(max(-FOREVER, min(claim, FOREVER))) if type(claim) in (int, float) else float("nan")
    )


def _life(control: str) -> float:
    if NEVER.search(control):
        return 0.0
    age = MAX_AGE.search(control)
    return USUAL if age is None else min(float(age[1]), LONGEST)
