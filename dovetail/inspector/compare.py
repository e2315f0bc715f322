"""One request in many revisions, side by side.

Each revision has a connection of its own, and all of them run at the same time, so that one that
hangs does not hold up the others. Results are compared as they were on the wire, with that of the
newest revision that gave one. The comparison is for display: members of objects are matched by
name, items of lists by their name or URI and otherwise by position.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import DovetailError, ProtocolError

if TYPE_CHECKING:
    from .. import Client
    from ..jsonrpc.messages import Id
    from ..ports import AuthStep, Direction, HttpExchange, LostMessage

MakeClient = Callable[..., "Client"]
"""Returns a client for the target. Called with the options `revision`, `tap` and `timeout`."""
Params = Raw | Mapping[str, Any]
SECONDS = 30.0
"""How long the connection and the request in one revision may take."""
MAX_DIFFERENCES = 1000
"""The maximum number of differences that are reported for one revision."""
MAX_SHOWN_BYTES = 64 * 1024
NAMES = ("name", "uri", "uriTemplate")
"""The members by which items of a list are matched."""
ABSENT: Any = object()


class JsonDifference(Struct, frozen=True, omit_defaults=True):
    """A difference between two JSON values."""

    kind: Literal["lost", "changed", "added"]
    """Whether the value is only in the first, in both, or only in the second."""
    path: str
    """Where the value is, such as `$.tools[add].title`."""
    before: str | None = None
    """The first value, as JSON text."""
    after: str | None = None
    """The second value, as JSON text."""


class ComparedMessage(Struct, frozen=True):
    """A message of the connection in one revision."""

    direction: "Direction"
    text: str
    bytes: int
    """Its size. A text over 64 KiB is cut."""


class ComparedError(Struct, frozen=True, omit_defaults=True):
    """Why there is no result."""

    type: str
    message: str
    code: int | None = None


class ComparedRevision(Struct, frozen=True, omit_defaults=True):
    """What happened in one revision."""

    revision: str
    ms: float
    """How long the request took, or the attempt to connect if that failed."""
    messages: list[ComparedMessage]
    result: str | None = None
    """The result as JSON text, as the server sent it."""
    error: ComparedError | None = None
    differences: list[JsonDifference] = []
    """How the result differs from that of the newest revision."""


class Comparison(Struct, frozen=True, omit_defaults=True):
    """One request in many revisions."""

    revisions: list[ComparedRevision]
    """In the order in which the revisions were given."""
    newest: str | None = None
    """The revision with which the others are compared; None if there is no result."""


class ReplyTap:
    """Keeps the messages of one connection, and finds the reply to a request."""

    def __init__(self) -> None:
        self.messages: list[tuple[Direction, bytes]] = []

    def message(self, direction: "Direction", data: bytes, at: float) -> None:
        """Keep a message."""
        self.messages.append((direction, data))

    def exchange(self, exchange: "HttpExchange") -> None:
        """Ignore an HTTP request."""

    def auth_step(self, step: "AuthStep") -> None:
        """Ignore a step of a login."""

    def lost(self, lost: "LostMessage") -> None:
        """Ignore a lost message."""

    def shown(self) -> list[ComparedMessage]:
        """Return the messages as texts."""
        return [
            ComparedMessage(direction, data[:MAX_SHOWN_BYTES].decode(errors="replace"), len(data))
            for direction, data in self.messages
        ]

    def find_result(self, id: "Id") -> str | None:
        """Return the result of the request with this id, as JSON text."""
        for direction, data in reversed(self.messages):
            try:
                reply = msgspec.json.decode(data, type=_Reply)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # a batch, or not a message
            if direction == "to_client" and reply.id == id and reply.method is None:
                return bytes(reply.result).decode() or None
        return None


class _Reply(Struct):
    id: int | str | None = None
    method: str | None = None
    result: Raw = Raw()


async def compare_revisions(
    make_client: MakeClient,
    revisions: Sequence[str],
    method: str,
    params: Params,
    *,
    seconds: float = SECONDS,
) -> Comparison:
    """Send one request in many revisions.

    Args:
        make_client: Returns a client for the target in a revision.
        revisions: The revisions, newest first.
        method: The method of the request.
        params: Its params, as on the wire.
        seconds: How long each revision may take.
    """
    found = await asyncio.gather(
        *(_send(make_client, revision, method, params, seconds) for revision in revisions)
    )
    newest = next((one for one in found if one.result is not None), None)
    if newest is None:
        return Comparison(found)
    return Comparison([_with_differences(newest, one) for one in found], newest.revision)


async def _send(
    make_client: MakeClient, revision: str, method: str, params: Params, seconds: float
) -> ComparedRevision:
    tap, error, began = ReplyTap(), None, monotonic()
    ids: list[Id] = []
    client = make_client(revision=revision, tap=tap, timeout=seconds)
    try:
        async with asyncio.timeout(seconds):
            await client.connect()
            began = monotonic()
            await client.relay(method, params, on_request_id=ids.append)
    except TimeoutError:
        error = ComparedError("TimedOut", f"There was no answer within {seconds:g} s.")
    except DovetailError as problem:
        code = problem.code if isinstance(problem, ProtocolError) else None
        error = ComparedError(type(problem).__name__, str(problem), code)
    finally:
        ms = round((monotonic() - began) * 1000, 1)
        await client.close()
    result = tap.find_result(ids[-1]) if ids else None
    return ComparedRevision(revision, ms, tap.shown(), result, error)


def _with_differences(newest: ComparedRevision, other: ComparedRevision) -> ComparedRevision:
    if other is newest or newest.result is None or other.result is None:
        return other
    return replace(other, differences=compare_json(newest.result, other.result))


def compare_json(before: str, after: str) -> list[JsonDifference]:
    """Return the differences between two JSON texts.

    Args:
        before: The first text.
        after: The second text.
    """
    found = _differences("$", msgspec.json.decode(before), msgspec.json.decode(after))
    return [difference for difference, _ in zip(found, range(MAX_DIFFERENCES), strict=False)]


def _differences(path: str, before: Any, after: Any) -> Iterator[JsonDifference]:
    if before is ABSENT:
        yield JsonDifference("added", path, after=_to_text(after))
    elif after is ABSENT:
        yield JsonDifference("lost", path, before=_to_text(before))
    elif isinstance(before, dict | list) and type(before) is type(after):
        ours, theirs = _by_step(before, after)
        for step in {**ours, **theirs}:
            yield from _differences(path + step, ours.get(step, ABSENT), theirs.get(step, ABSENT))
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield JsonDifference("changed", path, _to_text(before), _to_text(after))


def _by_step(*values: Any) -> list[dict[str, Any]]:
    """Return the members of objects, or the items of lists, by the step that leads to each."""
    if isinstance(values[0], dict):
        return [{_member_step(name): item for name, item in one.items()} for one in values]
    for name in NAMES:
        keyed = [
            {f"[{item[name]}]": item for item in items if isinstance(item, dict) and name in item}
            for items in values
        ]
        if [len(items) for items in values] == [len(items) for items in keyed]:
            return keyed
    return [{f"[{index}]": item for index, item in enumerate(items)} for items in values]


def _member_step(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{_to_text(name)}]"


def _to_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
