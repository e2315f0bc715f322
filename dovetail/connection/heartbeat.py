"""Pings at an interval, on either side, so that a peer that is gone without a word is noticed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..errors import DovetailError, TimedOut
from ..limits import Limits

log = logging.getLogger("dovetail.connection")


async def heartbeat(
    ping: Callable[[float], Awaitable[None]], dead: Callable[[], Awaitable[None]], limits: Limits
) -> None:
    """Ping for ever; a ping without an answer in time means `dead`."""
    assert limits.ping_interval is not None
    while True:
        await asyncio.sleep(limits.ping_interval)
        try:
            await ping(limits.ping_timeout)
        except TimedOut:
            log.warning(
                "No answer to a ping within %g s: the connection is closed", limits.ping_timeout
            )
            await dead()
        except DovetailError:
            pass  # an error is an answer too, and a connection that is closed is being seen to
