"""Let a tap see the messages of a channel.

A client without a tap uses the channels of its target as they are. With a tap, each channel is
wrapped in a `TappedChannel`, which reports what passes through it. What happens below the channel
(HTTP requests, logins) is reported by the transports and the credentials. They all get the same
`SafeTap`, whose errors never reach them.
"""

import time
from collections.abc import Callable
from typing import Any

from ..errors import ConnectionClosed
from ..jsonrpc.framing import TooLong
from ..logs import get_logger
from ..ports import (
    AuthStep,
    Channel,
    Direction,
    HttpExchange,
    Incoming,
    LostMessage,
    LostReply,
    OnClose,
    Receive,
    Tap,
)

log = get_logger("client")


class SafeTap:
    """A tap that logs the first error of another tap instead of raising it."""

    def __init__(self, tap: Tap) -> None:
        self._tap, self._has_failed = tap, False
        self.show_secrets = bool(getattr(tap, "show_secrets", False))

    def message(self, direction: Direction, data: bytes, at: float) -> None:
        """Pass on a message."""
        try:
            self._tap.message(direction, data, at)
        except Exception:
            self._on_error()

    def exchange(self, exchange: HttpExchange) -> None:
        """Pass on an HTTP request."""
        self._call(self._tap.exchange, exchange)

    def auth_step(self, step: AuthStep) -> None:
        """Pass on a step of a login."""
        self._call(self._tap.auth_step, step)

    def lost(self, lost: LostMessage) -> None:
        """Pass on a lost message."""
        self._call(self._tap.lost, lost)

    def _call(self, method: Callable[[Any], None], value: Any) -> None:
        try:
            method(value)
        except Exception:
            self._on_error()

    def _on_error(self) -> None:
        if not self._has_failed:
            self._has_failed = True
            log.exception("The tap %r failed. Its further errors are not logged.", self._tap)


class TappedChannel:
    """A channel that passes all its messages to a tap.

    Args:
        channel: The channel that moves the messages.
        tap: The tap.
        outgoing: Who receives what is sent on this end of the channel.
        incoming: Who receives what arrives here.
    """

    def __init__(
        self,
        channel: Channel,
        tap: Tap,
        outgoing: Direction = "to_server",
        incoming: Direction = "to_client",
    ) -> None:
        self._channel, self._tap = channel, tap
        self._outgoing, self._incoming = outgoing, incoming
        self._why_unsent: Callable[[bytes], str | None] = getattr(
            channel, "why_unsent", self._why_closed
        )
        self._has_ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)  # what only some channels have, such as `network`

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start delivering messages.

        Args:
            receive: Called with each message, in order.
            ended: Called once, when the channel has ended.
        """
        tap, incoming = self._tap, self._incoming

        def deliver(item: Incoming) -> None:
            if isinstance(item, bytes):
                tap.message(incoming, item, time.time())
            else:
                tap.lost(self._describe_loss(item))
            receive(item)

        def end(reason: Exception | None) -> None:
            self._has_ended = True
            ended(reason)

        self._channel.start(deliver, end)

    def send(self, data: bytes) -> None:
        """Queue one message.

        Args:
            data: The message, without a newline.
        """
        reason = self._why_unsent(data)
        if reason is None:
            self._tap.message(self._outgoing, data, time.time())
        elif reason:
            self._tap.lost(
                LostMessage(direction=self._outgoing, reason=reason, data=data, at=time.time())
            )
        self._channel.send(data)

    async def drain(self) -> None:
        """Wait until the queue has room."""
        await self._channel.drain()

    async def close(self) -> None:
        """Send all queued messages, then close the channel."""
        await self._channel.close()

    def _why_closed(self, data: bytes) -> str | None:
        return "the connection is closed" if self._has_ended else None

    def _describe_loss(self, item: TooLong | LostReply) -> LostMessage:
        """Return what a tap sees of an item that is not a message."""
        now = time.time()
        if isinstance(item, TooLong):
            reason = "the message is too long, so it was skipped"
            return LostMessage(direction=self._incoming, reason=reason, data=item.head, at=now)
        is_unsent = isinstance(item.error, ConnectionClosed) and not item.error.sent
        return LostMessage(
            direction=self._outgoing if is_unsent else self._incoming,
            reason=str(item.error),
            id=item.id,
            at=now,
        )
