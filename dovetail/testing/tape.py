"""A recording of every message on a channel."""

from typing import Any

import msgspec

from ..ports import Channel, Incoming, OnClose, Receive

_decode = msgspec.json.Decoder().decode


class Tape:
    """Recorded messages, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, bytes]] = []
        """The sender of each message ("client" or "server"), and its bytes."""

    def messages(self, sender: str | None = None) -> list[Any]:
        """Return the messages, decoded from JSON.

        Args:
            sender: "client" or "server"; None for both.
        """
        return [_decode(data) for who, data in self.entries if sender in (None, who)]

    def methods(self, sender: str | None = None) -> list[str]:
        """Return the methods of all requests and notifications, in order.

        Args:
            sender: "client" or "server"; None for both.
        """
        return [message["method"] for message in self.messages(sender) if "method" in message]


class Taped:
    """A channel that records all messages on a tape.

    Args:
        channel: The channel to record.
        tape: Where to record.
        side: Which side uses this end of the channel: "client" or "server".
    """

    def __init__(self, channel: Channel, tape: Tape, side: str = "client") -> None:
        self._channel = channel
        self._tape = tape
        self._side, self._other = (side, "server" if side == "client" else "client")

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start the channel, and record what it delivers.

        Args:
            receive: Called with each message.
            ended: Called once, when the channel ends.
        """

        def record(data: Incoming) -> None:
            if isinstance(data, bytes):
                self._tape.entries.append((self._other, data))
            receive(data)

        self._channel.start(record, ended)

    def send(self, data: bytes) -> None:
        """Record one message, and send it.

        Args:
            data: The message.
        """
        self._tape.entries.append((self._side, data))
        self._channel.send(data)

    async def drain(self) -> None:
        """Wait until there is room to send more."""
        await self._channel.drain()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()
