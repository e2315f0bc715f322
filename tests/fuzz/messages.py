"""JSON-RPC and the vocabulary: the codec, newline framing, and the messages of each revision.

The corpus is what the package itself says, in every revision (`tests/wire`), with batches made of
it. In place of a number, the id of a reply names the method that it answers, so that the bytes
alone tell how to read it.
"""

import json
from functools import cache
from typing import Any
from zlib import crc32

import msgspec

from dovetail.connection.extension import Extensions
from dovetail.errors import ProtocolError
from dovetail.jsonrpc.framing import HEAD_BYTES, LineSplitter, TooLong
from dovetail.jsonrpc.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    decode,
    encode,
    peek_id,
)
from dovetail.protocol.methods import METHODS
from dovetail.revisions import ALL, Revision
from tests.wire.messages import messages

from .engine import Target
from .mutator import Mutator

EXTENSIONS = Extensions()  # none, so its tables are those of the revisions
LINE = HEAD_BYTES + 44
"""The bound of lines in the target for framing; no less than is kept of the beginning of a longer
one."""


@cache
def corpus(revision: Revision) -> list[Any]:
    """Messages of this revision."""
    found = []
    for _, method, message in messages(revision):
        plain = json.loads(encode(message))
        found.append(plain | {"id": method} if "result" in plain else plain)
    return found


@cache
def everything() -> list[Any]:
    """Messages of all revisions, and batches of some."""
    found = [message for revision in ALL for message in corpus(revision)]
    return [*found, *(found[at : at + 3] for at in range(0, len(found), 12))]


# the codec


def check_codec(data: bytes) -> bool:
    """A message, a batch or Malformed; a message means what another reader finds in it, and
    survives a round trip."""
    id, reply = peek_id(data[:HEAD_BYTES])
    assert (id is None or isinstance(id, int | str)) and (reply is None) == (id is None)
    try:
        message = decode(data)
    except Malformed as malformed:
        again = json.loads(encode(malformed.failure))
        assert (
            again["error"]["code"] in (PARSE_ERROR, INVALID_REQUEST) and again["error"]["message"]
        )
        assert malformed.failure.id is None or data
        return False
    plain = json.loads(data)
    if isinstance(message, Batch):
        assert isinstance(plain, list) and len(message.messages) + len(message.refused) == len(
            plain
        )
        for one in message.messages:
            _survives(one)
        return True
    assert plain["jsonrpc"] == "2.0" and plain.get("id") == getattr(message, "id", None)
    assert plain.get("method") == getattr(message, "method", None)
    _survives(message)
    return True


def _survives(message: Message) -> None:
    if isinstance(message, ErrorResponse) and message.id is None:
        return
    sent = encode(message)
    again = decode(sent)
    assert type(again) is type(message) and encode(again) == sent


# framing


def make_lines(rng: Mutator) -> bytes:
    """Lines, some of them too long, some without an end."""
    lines = (
        rng.pick((b"", b"\r", b"x" * LINE, b"x" * (LINE + 1), b'{"id":1}', b"y" * 700, b"\0"))
        for _ in range(rng.pick((1, 3, 9)))
    )
    return rng.garbled(b"\n".join(lines))


def check_lines(data: bytes) -> bool:
    """However the bytes are cut, the lines are the same, and they are those that `split` finds."""
    rng = Mutator(crc32(data))
    whole, pieces = LineSplitter(LINE), LineSplitter(LINE)
    found = whole.feed(data)
    cut = [line for chunk in rng.chunks(data) for line in pieces.feed(chunk)]
    assert cut == found and pieces.rest() == whole.rest()
    expected = [line for line in data.split(b"\n")[:-1] if line and line != b"\r"]
    assert found == [line if len(line) <= LINE else TooLong(line[:HEAD_BYTES]) for line in expected]
    return not any(isinstance(line, TooLong) for line in found)


# the vocabulary


def reader(revision: Revision) -> Target:
    """Messages of one revision, read into the vocabulary and said again."""

    def make(rng: Mutator) -> bytes:
        message = rng.pick(corpus(revision))
        held = "params" if "params" in message else "result"
        return json.dumps(message | {held: rng.value(message.get(held))}).encode()

    def check(data: bytes) -> bool:
        try:
            message = decode(data)
        except Malformed:
            return False
        many = message.messages if isinstance(message, Batch) else [message]
        return min([_read(revision, one) for one in many])

    return Target(f"messages {revision.name}", make, check)


def _read(revision: Revision, message: Any) -> bool:
    """What was understood is said, understood and said again: the second time is the same as the
    first."""
    if isinstance(message, ErrorResponse):
        return True
    asks = isinstance(message, Request | Notification)
    raw = message.params if asks else message.result
    lift = revision.lift_params if asks else revision.lift_result
    lower = revision.lower_params if asks else revision.lower_result
    method = (
        EXTENSIONS.find_method(message.method, revision) if asks else METHODS.get(str(message.id))
    )
    if method is None or not (asks or method.result):
        return False
    try:
        understood = lift(method, raw)
    except (msgspec.MsgspecError, ProtocolError):
        return False
    said = encode(lower(method, understood))
    assert encode(lower(method, lift(method, msgspec.Raw(said)))) == said
    return True


TARGETS = (
    Target("codec", lambda rng: rng.json(rng.pick(everything())), check_codec, 150_000),
    Target("framing", make_lines, check_lines, 80_000),
    *map(reader, ALL),
)
