"""One POST to a web API, with patience: what is asked of it is no conversation of ours, only a question and an answer.

A service that is busy (429, and what means "not now" among the 5xx) is asked again after as long as its `Retry-After` says,
or else after a pause that doubles; never beyond the deadline: where the next attempt would be too late, the last answer is
the answer. Headers are the caller's secrets and go to the one origin only, as `wire` sees to.
"""

import asyncio
import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time

from ...errors import TimedOut, TooLarge
from ...jsonrpc.framing import TooLong
from ...limits import DEFAULT, Limits
from .wire import Wire, checked

BUSY = {429, 500, 502, 503, 504, 529}
"""The answers after which the same question may get another one."""
SHORTEST, PAUSE, LONGEST = 0.2, 0.5, 8.0
"""Seconds of any pause at least, of the first, and of the longest that is our own choice."""


async def post_json(
    url: str, headers: Mapping[str, str], body: bytes, timeout: float, limits: Limits = DEFAULT
) -> tuple[int, bytes]:
    """The status and body of the answer."""
    wire = Wire(checked(url), limits, headers=headers)
    deadline = asyncio.get_running_loop().time() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            attempt = 0
            while True:
                async with await wire.ask("POST", {"Content-Type": "application/json"}, body) as reply:
                    found = await reply.body()
                if isinstance(found, TooLong):
                    raise TooLarge(f"{url}: the answer is longer than {limits.incoming} bytes")
                pause = _pause(reply.headers.get("Retry-After"), attempt)
                if reply.status not in BUSY or asyncio.get_running_loop().time() + pause >= deadline:
                    return reply.status, found
                await asyncio.sleep(pause)
                attempt += 1
    except TimeoutError:
        raise TimedOut(f"{url}: no answer within {timeout:g} s") from None
    finally:
        await wire.close()


def _pause(asked: str | None, attempt: int) -> float:
    """Seconds until the next attempt, as the service asks for or of our own choice."""
    own: float = min(LONGEST, PAUSE * 2.0**attempt) * random.uniform(0.5, 1.0)
    if asked is None:
        return own
    try:
        return max(SHORTEST, float(asked) if asked.strip().isdigit() else parsedate_to_datetime(asked).timestamp() - time())
    except ValueError:
        return own
