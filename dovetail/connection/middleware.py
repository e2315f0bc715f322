"""Middleware: a function that wraps every call, on either side.

    async def timed(call, next):
        result = await next(call)      # or return something else, or raise to refuse it
        return result

Middleware can read and change the params of a call, and read and replace its result. The first
middleware in a list is the outermost. An `Observer` changes nothing and costs less.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..ports import Call, Caller, CallHandler, Network
from ..protocol.methods import Method, Side
from ..revisions import Revision

Middleware: TypeAlias = Callable[[Call, CallHandler], Awaitable[Any]]


class Observer:
    """Middleware that changes nothing, so that results need not be decoded for it. On a server, it
    also sees the requests that were rejected before they became calls."""

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Observe a call and its outcome.

        Args:
            call: The call.
            next: The function that answers the call. Return its result unchanged.
        """
        return await next(call)

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """Observe a request that was not admitted. Must not raise.

        Args:
            method: The method that was requested.
            params: Its params.
            caller: Who requested it.
            error: The error with which it was rejected.
        """

    def decision_made(self, record: Any) -> None:
        """Observe a decision that is not a call, such as a consent or a rule of a policy. Must not
        raise.

        Args:
            record: The decision, as an `AuditRecord`.
        """

    def session_ended(
        self, side: Side, revision: Revision, network: Network | None, seconds: float
    ) -> None:
        """Observe the end of a handshake-era session. Must not raise.

        Args:
            side: Either "server" or "client".
            revision: The revision of the session.
            network: The network over which the session ran, if known.
            seconds: How long the session lasted, in seconds.
        """


def compose(middleware: Sequence[Middleware], innermost: CallHandler) -> CallHandler:
    """Wrap a handler in middleware. Without any middleware, return the handler unchanged."""
    answer = innermost
    for layer in reversed(middleware):
        answer = _wrap(layer, answer)
    return answer


def _wrap(layer: Middleware, inner: CallHandler) -> CallHandler:
    async def wrapped(call: Call) -> Any:
        return await layer(call, inner)

    return wrapped
