"""A tape of every message that passes a channel."""

from typing import Any

import msgspec

from ..ports import Channel, Ended, Incoming, Receive

_plain = msgspec.json.Decoder().decode


class Tape:
    """Messages in the order in which they passed: who sent them (`client` or `server`), and their
    bytes."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, bytes]] = []

    def messages(self, sender: str | None = None) -> list[Any]:
        """The messages as JSON, of one side or of both."""
        return [_plain(data) for who, data in self.entries if sender in (None, who)]

    def methods(self, sender: str | None = None) -> list[str]:
        """The methods called and notified, in order."""
        return [message["method"] for message in self.messages(sender) if "method" in message]


class Taped:
    """A channel that writes all that passes onto a tape."""

    def __init__(self, channel: Channel, tape: Tape, side: str = "client") -> None:
        self._channel = channel
        self._tape = tape
        self._side, self._other = (side, "server" if side == "client" else "client")

    def start(self, receive: Receive, ended: Ended) -> None:
        """Begin to deliver."""

        def taped(data: Incoming) -> None:
            if isinstance(data, bytes):
                self._tape.entries.append((self._other, data))
            receive(data)

        self._channel.start(taped, ended)

    def send(self, data: bytes) -> None:
        """Queue one message."""
        self._tape.entries.append((self._side, data))
        self._channel.send(data)

    async def drain(self) -> None:
        """Wait for room."""
        await self._channel.drain()

    async def close(self) -> None:
        """End."""
        await self._channel.close()
