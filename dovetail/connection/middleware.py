"""Middleware: a function around every call, on either side.

    async def timed(call, next):
        result = await next(call)      # or return something else, or raise to refuse it
        return result

It sees the call with its params, may change them, and sees or replaces the result. Several are
wrapped in the order given: the first is the outermost. One that is an `Observer` changes nothing,
and costs less.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..ports import Call, Caller, CallHandler, Network
from ..protocol.methods import Method, Side
from ..revisions import Revision

Middleware: TypeAlias = Callable[[Call, CallHandler], Awaitable[Any]]


class Observer:
    """Middleware that only looks: it changes nothing, so that results need not be opened for it,
    and on a server it hears of the requests too that were refused before they became calls."""

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Look at a call, and at what comes of it."""
        return await next(call)

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """Look at a request that was not let in. Must not raise."""

    def session_ended(
        self, side: Side, revision: Revision, network: Network | None, seconds: float
    ) -> None:
        """Look at a session of the handshake era that has ended, after so many seconds; `side` is
        ours. Must not raise."""


def compose(middleware: Sequence[Middleware], innermost: CallHandler) -> CallHandler:
    """One answer out of many: the same function where there is no middleware."""
    answer = innermost
    for layer in reversed(middleware):
        answer = _wrap(layer, answer)
    return answer


def _wrap(layer: Middleware, inner: CallHandler) -> CallHandler:
    async def wrapped(call: Call) -> Any:
        return await layer(call, inner)

    return wrapped
