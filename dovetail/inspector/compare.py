"""One request in many revisions, side by side.

Each revision has a connection of its own, and all of them run at the same time, so that one that
hangs does not hold up the others. Results are compared as they were on the wire, with that of the
newest revision that gave one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import DovetailError, ProtocolError
from ..jsonrpc.messages import encode
from ..limits import KIB
from ..logs import get_logger
from ..masking import mask_line, mask_message
from ..ports import Direction, HttpExchange, Tap
from .json_diff import JsonDifference, compare_json

if TYPE_CHECKING:
    from .. import Client

log = get_logger("inspector")

MakeClient = Callable[..., "Client"]
"""Returns a client for the target. Called with `revision`, `tap`, `timeout` and `on_stderr`."""
SECONDS = 30.0
"""How long the connection and the request in one revision may take."""
MAX_MESSAGES = 500
"""How many messages of a connection are kept."""
MAX_SHOWN_BYTES = 64 * KIB
"""What is shown of a longer message."""
STDERR_LINES = 20
CALL_TOOL = "tools/call"
ASKING = {"prompts/get", "resources/read"}
"""Further methods during which the server may ask questions."""


class ComparedMessage(Struct, frozen=True, omit_defaults=True):
    """A message of the connection in one revision."""

    direction: Direction
    text: str
    bytes: int
    """Its size. A text over 64 KiB is cut."""
    http: list[HttpExchange] = []
    """The HTTP requests that carried it."""


class ComparedError(Struct, frozen=True, omit_defaults=True):
    """Why there is no result."""

    type: str
    message: str
    code: int | None = None


class ComparedRevision(Struct, frozen=True, omit_defaults=True):
    """What happened in one revision."""

    revision: str
    status: Literal["running", "done", "error", "cancelled"]
    ms: float | None = None
    """How long the request took, or the attempt to connect if that failed."""
    messages: list[ComparedMessage] = []
    left_out: int = 0
    """How many further messages there were."""
    result: str | None = None
    """The result as JSON text, as the server sent it."""
    error: ComparedError | None = None
    stderr: str | None = None
    """What the server printed last, if there is an error."""
    is_connected: bool = False
    """Whether the server answered in this revision at all."""
    differences: list[JsonDifference] = []
    """How the result differs from that of the newest revision."""


class Comparison(Struct, frozen=True, omit_defaults=True):
    """One request in many revisions."""

    revisions: list[ComparedRevision]
    """In the order in which the revisions were given."""
    params: str
    """The params of the request, as JSON text."""
    newest: str | None = None
    """The revision with which the others are compared; None if there is no result."""


class ComparedRequest(Struct, frozen=True):
    """A request, and how long it may take in each revision."""

    method: str
    params: Raw = Raw(b"{}")
    seconds: float = SECONDS


class ReplyTap(Tap):
    """Keeps the messages of one connection, and the last result of each method.

    Args:
        show_secrets: Whether credentials in HTTP heads are shown.
    """

    def __init__(self, show_secrets: bool = False) -> None:
        self.show_secrets = show_secrets
        self.messages: list[tuple[Direction, bytes]] = []
        self.left_out = 0
        self._exchanges: list[HttpExchange] = []
        self._methods: dict[int | str, str] = {}
        """The methods of the requests that have no reply yet, by id."""
        self._results: dict[str, bytes] = {}

    def message(self, direction: Direction, data: bytes, at: float) -> None:
        """Keep a message."""
        if len(self.messages) < MAX_MESSAGES:
            self.messages.append((direction, data))
        else:
            self.left_out += 1
        parts = _decode_parts(data)
        if parts.id is None:
            return
        if direction == "to_server" and parts.method is not None:
            self._methods[parts.id] = parts.method
        elif direction == "to_client" and parts.method is None:
            method = self._methods.pop(parts.id, "")
            if parts.result:
                self._results[method] = bytes(parts.result)

    def exchange(self, exchange: HttpExchange) -> None:
        """Keep an HTTP request that carried a message."""
        if len(self._exchanges) < MAX_MESSAGES and exchange.method == "POST":
            self._exchanges.append(exchange)

    def shown(self) -> list[ComparedMessage]:
        """Return the messages as texts, each with the HTTP requests that carried it."""
        exchanges = list(self._exchanges)
        return [self._show(direction, data, exchanges) for direction, data in self.messages]

    def _show(
        self, direction: Direction, data: bytes, exchanges: list[HttpExchange]
    ) -> ComparedMessage:
        carried: list[HttpExchange] = []
        if exchanges and direction == "to_server":
            parts = _decode_parts(data)
            carried = [
                one
                for one in exchanges
                if (one.message_id, one.message_method) == (parts.id, parts.method)
            ]
            if parts.id is None:  # notifications have no id: match them by their order
                del carried[1:]
            for one in carried:
                exchanges.remove(one)
        text = data[:MAX_SHOWN_BYTES].decode(errors="replace")
        return ComparedMessage(direction, text, len(data), carried)

    def find_result(self, method: str, result: Any) -> str | None:
        """Return the result of a method as JSON text: as it was sent, unless the client put it
        together from several replies."""
        found = self._results.get("tasks/result")
        if found is None and not any(name.startswith("tasks/") for name in self._results):
            found = self._results.get(method)
        elif found is None and result is not None:
            found = encode(result)
        return None if found is None else found.decode(errors="replace")


class _ReplyParts(Struct):
    id: int | str | None = None
    method: str | None = None
    result: Raw = Raw()


def _decode_parts(data: bytes) -> _ReplyParts:
    try:
        return msgspec.json.decode(data, type=_ReplyParts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _ReplyParts()  # a batch, or not a message


async def compare_revisions(
    make_client: MakeClient,
    revisions: Sequence[str],
    request: ComparedRequest,
    on_outcome: Callable[[ComparedRevision], None],
    *,
    show_secrets: bool = False,
) -> None:
    """Send one request in many revisions, and report each outcome as soon as it is known.

    Args:
        make_client: Returns a client for the target in a revision.
        revisions: The revisions.
        request: The request.
        on_outcome: Called once for each revision.
        show_secrets: Whether credentials in HTTP heads are shown.
    """
    await asyncio.gather(
        *(
            _send(make_client, revision, request, on_outcome, ReplyTap(show_secrets))
            for revision in revisions
        )
    )


async def _send(
    make_client: MakeClient,
    revision: str,
    request: ComparedRequest,
    on_outcome: Callable[[ComparedRevision], None],
    tap: ReplyTap,
) -> None:
    stderr = deque[str](maxlen=STDERR_LINES)
    began, is_connected = monotonic(), False
    client, result, error = None, None, None
    try:
        try:
            client = make_client(
                revision=revision, tap=tap, timeout=request.seconds, on_stderr=stderr.append
            )
            async with asyncio.timeout(request.seconds):
                await client.connect()
                is_connected, began = True, monotonic()
                result = await _request(client, request)
        except Exception as problem:
            error = _describe(problem, request.seconds)
        outcome = ComparedRevision(
            revision,
            "done" if error is None else "error",
            ms=round((monotonic() - began) * 1000, 1),
            messages=tap.shown(),
            left_out=tap.left_out,
            result=tap.find_result(request.method, result),
            error=error,
            stderr=None if error is None else "\n".join(stderr) or None,
            is_connected=is_connected,
        )
        on_outcome(outcome)
    finally:
        if client is not None:
            await client.close()


async def _request(client: "Client", request: ComparedRequest) -> Any:
    """Send a request. The server's questions are answered, so that results can be compared."""
    fields = msgspec.json.decode(request.params, type=dict[str, Raw])
    if request.method in ASKING:
        return await client.request(request.method, fields, fresh=True)
    if request.method != CALL_TOOL or "name" not in fields:
        return await client.relay(request.method, request.params)
    return await client.call_tool(
        msgspec.json.decode(fields["name"]),
        fields.get("arguments"),
        meta=msgspec.json.decode(fields.get("_meta", b"null")),
        raise_on_error=False,
    )


def _describe(problem: Exception, seconds: float) -> ComparedError:
    if isinstance(problem, TimeoutError):
        return ComparedError("TimedOut", f"There was no answer within {seconds:g} s.")
    if not isinstance(problem, DovetailError):
        log.error("The comparison failed", exc_info=problem)
    code = problem.code if isinstance(problem, ProtocolError) else None
    return ComparedError(type(problem).__name__, str(problem) or type(problem).__name__, code)


def add_differences(
    outcomes: Sequence[ComparedRevision], params: str = "{}", *, mask: bool
) -> Comparison:
    """Return a comparison with the result of the newest revision that has one.

    Args:
        outcomes: What happened in each revision, newest first.
        params: The params of the request, as JSON text.
        mask: Whether credentials are masked.
    """
    newest = next((one for one in outcomes if one.result is not None), None)
    found: list[ComparedRevision] = []
    for one in outcomes:
        if newest is not None and one is not newest and one.result is not None:
            assert newest.result is not None
            try:
                differences = compare_json(newest.result, one.result, mask=mask)
            except msgspec.DecodeError:  # half a surrogate pair
                differences = [JsonDifference("changed", "$")]
            one = replace(one, differences=differences)
        found.append(_mask(one) if mask else one)
    params = _mask_json(params) if mask else params
    return Comparison(found, params, None if newest is None else newest.revision)


def _mask(one: ComparedRevision) -> ComparedRevision:
    error = one.error and replace(one.error, message=mask_line(one.error.message))
    return replace(
        one,
        messages=[replace(message, text=_mask_json(message.text)) for message in one.messages],
        result=None if one.result is None else _mask_json(one.result),
        error=error,
        stderr=None if one.stderr is None else mask_line(one.stderr),
    )


def _mask_json(text: str) -> str:
    return mask_message(text.encode(errors="replace")).decode(errors="replace")
