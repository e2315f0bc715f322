"""The test kit: a server and a client in one process, a recording of their messages, and a bare
peer that sends arbitrary messages.

    async with pair(server) as client:                     # in memory, any revision
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    async with pair(server, revision="handshake", record=(tape := Tape())) as client:
        ...
    assert tape.methods() == [...]                         # every message, both ways

    async with bare(server) as peer:                       # no client: raw messages
        peer.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert await peer.receive() == {...}
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast

import msgspec

from .client.caching import SharedCache
from .client.call_hook import OnCall
from .client.callbacks import LogEntry, OnAnswer, OnAsk, OnElicit, OnRoots, OnSample
from .client.client import Client
from .client.taps import TappedChannel
from .connection.connection import OnProgress
from .connection.extension import Extension
from .connection.middleware import Middleware
from .limits import DEFAULT, Limits
from .masking import mask_message
from .mcplog import McplogWriter
from .ports import (
    AuthStep,
    Channel,
    Direction,
    HttpExchange,
    LostMessage,
    Principal,
    RequestIdentity,
    Service,
    Tap,
)
from .protocol.base import Implementation
from .protocol.client_features import Root
from .serve import serve_channel
from .server.runnable import RunnableService
from .transports import memory

__all__ = ["Bare", "Tape", "Taped", "bare", "pair"]

Side: TypeAlias = Literal["client", "server"]


SENDERS: dict[Direction, Side] = {"to_server": "client", "to_client": "server"}
DIRECTIONS: dict[Side, tuple[Direction, Direction]] = {
    "client": ("to_server", "to_client"),
    "server": ("to_client", "to_server"),
}
"""Where the messages go that each side sends, and those that it receives."""


class Tape(Tap):
    """A recording of messages, in the order in which they were sent. It is a tap: `Client(target,
    tap=tape)`.

    Attributes:
        entries: The sender of each message ("client" or "server") and its bytes.
        exchanges: The client's HTTP requests, each with the head of its response.
        auth_steps: The steps of the client's logins.
        losses: The messages that were lost.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Side, bytes]] = []
        self.exchanges: list[HttpExchange] = []
        self.auth_steps: list[AuthStep] = []
        self.losses: list[LostMessage] = []
        self._replay: list[tuple[float, Callable[[Tap], None]]] = []
        """The time of each event, and a function that passes it to another tap."""

    def __repr__(self) -> str:
        return f"<Tape with {len(self.entries)} messages>"

    def messages(self, sender: Side | None = None) -> list[Any]:
        """Return the messages as decoded JSON.

        Args:
            sender: "client" or "server" (default: both).
        """
        return [msgspec.json.decode(data) for who, data in self.entries if sender in (None, who)]

    def methods(self, sender: Side | None = None) -> list[str]:
        """Return the methods of all requests and notifications.

        Args:
            sender: "client" or "server" (default: both).
        """
        return [message["method"] for message in self.messages(sender) if "method" in message]

    def message(self, direction: Direction, data: bytes, at: float) -> None:
        """Record a message.

        Args:
            direction: Who receives the message.
            data: The message.
            at: The time, in seconds since the epoch.
        """
        self.entries.append((SENDERS[direction], data))
        self._replay.append((at, lambda tap: tap.message(direction, data, at)))

    def exchange(self, exchange: HttpExchange) -> None:
        """Record an HTTP request.

        Args:
            exchange: The request and the head of its response.
        """
        self.exchanges.append(exchange)
        self._replay.append((exchange.started, lambda tap: tap.exchange(exchange)))

    def auth_step(self, step: AuthStep) -> None:
        """Record a step of a login.

        Args:
            step: The request and the response.
        """
        self.auth_steps.append(step)
        self._replay.append((step.started, lambda tap: tap.auth_step(step)))

    def lost(self, lost: LostMessage) -> None:
        """Record a lost message.

        Args:
            lost: The message and the reason.
        """
        self.losses.append(lost)
        masked = msgspec.structs.replace(lost, data=mask_message(lost.data))
        self._replay.append((lost.at, lambda tap: tap.lost(masked)))

    def save(self, path: str | Path, target: str | Sequence[str] = "") -> Path:
        """Write everything that this tape has seen as a tap to a recording (`.mcplog`), in which
        credentials are masked.

        Args:
            path: The file to create. An existing file is kept, and the new one gets a number.
            target: The command or the URL of the server, which the recording names.

        Returns:
            The file that was created. Only its owner may read it.

        Raises:
            ConfigError: The file cannot be created.
        """
        started = min((at for at, _ in self._replay), default=None)
        with McplogWriter(path, target, mask=mask_message, started=started) as writer:
            for _, pass_on in self._replay:
                pass_on(writer)
        return writer.path


class Taped(TappedChannel):
    """A channel that records all its messages on a tape.

    Args:
        channel: The channel that moves the messages.
        tape: The tape to record on.
        side: The side that holds this end of the channel (default: the client).
    """

    def __init__(self, channel: Channel, tape: Tape, side: Side = "client") -> None:
        super().__init__(channel, tape, *DIRECTIONS[side])


class ReplayingServer:
    """A server that always runs a handler again after a question, as another process would."""

    replay = True

    def __init__(self, server: RunnableService) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


class PairOptions(TypedDict, total=False):
    """The options of `Client` that apply to a connection in memory."""

    on_elicit: OnElicit | None
    on_sample: OnSample | None
    roots: Iterable[str | Path | Root] | OnRoots | None
    on_ask: OnAsk | None
    on_answer: OnAnswer | None
    on_call: OnCall | None
    on_log: Callable[[LogEntry], Any] | None
    on_progress: OnProgress | None
    middleware: Sequence[Middleware]
    timeout: float | None
    limits: Limits
    cache: bool | SharedCache
    trusted: bool
    validate: Literal["strict", "warn", "off"]
    experimental: dict[str, Any] | None
    extensions: Sequence[Extension]
    tasks: bool
    info: Implementation | None
    tap: Tap | None


@asynccontextmanager
async def pair(
    server: RunnableService,
    *,
    revision: str | None = None,
    record: Tape | None = None,
    replay: bool = False,
    user: Principal | None = None,
    **options: Unpack[PairOptions],
) -> AsyncIterator[Client]:
    """Connect a client to a server in memory for the duration of the block.

    Args:
        server: The server.
        revision: The revision that both sides use: a date, "handshake" or "stateless" (default: the
            newest that both support).
        record: A tape to record all messages on.
        replay: Whether a handler that asks the client questions in the stateless era always runs
            again from its beginning (default: it continues if possible).
        user: The authenticated caller, as a guard would return it.
        **options: The options of `Client`, except those for processes and HTTP.

    Yields:
        The connected client.
    """
    ours, theirs = memory.pair(options.get("limits", DEFAULT), server.limits)
    conversation = serve_channel(
        cast(Service, ReplayingServer(server)) if replay else server,
        theirs,
        server.lifespan,
        grace=server.limits.shutdown,
        identity=RequestIdentity(principal=user),
    )
    serving = asyncio.get_running_loop().create_task(conversation)
    channel: Channel = ours if record is None else Taped(ours, record)
    try:
        async with Client(channel, revision=revision, **options) as client:
            yield client
    finally:
        await ours.close()
        await serving


class Bare:
    """A peer for tests of malformed and hostile input: it sends arbitrary bytes and reads the
    replies.

    Args:
        channel: This end of the channel.

    Attributes:
        ended: A future that is done when the other side closes the channel. Its result is the
            reason, or None.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        channel.start(self._inbox.put_nowait, self.ended.set_result)

    def send(self, message: Any) -> None:
        """Send a message.

        Args:
            message: A value that is encoded as JSON, or bytes that are sent unchanged.
        """
        self._channel.send(message if isinstance(message, bytes) else msgspec.json.encode(message))

    async def receive(self, timeout: float = 10.0) -> Any:
        """Return the next message, as decoded JSON.

        Args:
            timeout: How long to wait for the message, in seconds.

        Raises:
            TimeoutError: No message arrived before the timeout.
        """
        async with asyncio.timeout(timeout):
            return msgspec.json.decode(await self._inbox.get())

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> Any:
        """Send a request and return the response. Messages that arrive before the response are
        dropped.

        Args:
            method: The method.
            params: The parameters, if any.
            id: The id of the request.

        Raises:
            TimeoutError: No message arrived for 10 seconds.
        """
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        while True:
            reply = await self.receive()
            if isinstance(reply, dict) and reply.get("id") == id and "method" not in reply:
                return reply

    def waiting(self) -> int:
        """Return the number of messages that have arrived but have not been read yet."""
        return self._inbox.qsize()

    async def greet(self, version: str, capabilities: dict[str, Any] | None = None) -> Any:
        """Perform the handshake and return the server's response to `initialize`.

        Args:
            version: The revision to request, as a date.
            capabilities: The capabilities to declare (default: none).
        """
        info = {"name": "bare", "version": "0"}
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": info,
        }
        reply = await self.ask("initialize", params, id="greeting")
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return reply

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


@asynccontextmanager
async def bare(server: RunnableService) -> AsyncIterator[Bare]:
    """Connect a bare peer to a server in memory for the duration of the block.

    Args:
        server: The server.

    Yields:
        The peer.
    """
    ours, theirs = memory.pair(theirs=server.limits)
    serving = asyncio.get_running_loop().create_task(server.serve(theirs))
    peer = Bare(ours)
    try:
        yield peer
    finally:
        await peer.close()
        await serving
