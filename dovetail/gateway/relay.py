"""A call on its way to a server and back.

Only the top level of the params and of the result is decoded. The gateway replaces names, URIs and
what belongs to one connection; everything else leaves as it came. A call costs one request to the
server, and is never sent twice: if the connection is lost after it was sent, the call fails.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..client.caching import CacheKey
from ..connection.input_requests import relayed_questions
from ..errors import (
    ConnectFailed,
    ConnectionClosed,
    ConsentDenied,
    InternalError,
    InvalidParams,
    ProtocolError,
    TaskCancelled,
    TimedOut,
    ToolError,
    UrlRequired,
)
from ..ports import Call
from ..protocol.client_features import ElicitParams
from ..protocol.header_params import HeaderParam
from ..protocol.lifecycle import ClientCapabilities, InputRequired, ProgressParams
from ..protocol.raw import RawObject, split_object
from ..protocol.resources import ReadResourceParams
from ..protocol.tools import CallToolParams
from .forwarding import forwarded_headers, header_params_of
from .input_requests import askable
from .log_levels import level_of
from .pool import PooledClient
from .reports import explain_failure
from .upstream import UpstreamServer

OWN_FIELDS: Final = ("inputResponses", "requestState", "task")
"""The fields that are never passed on as they are: they belong to the questions and tasks of the
gateway itself."""


START_ERRORS: Final = (ConnectionClosed, ConnectFailed, ConsentDenied)
"""Why a server cannot be started or reached."""
Prepare = Callable[[UpstreamServer, Call, RawObject], RawObject]
"""Prepares a question of a server for a caller, as `PrepareQuestion` does."""

KNOWN: Final = {
    name.casefold(): name
    for name in ("_meta", "name", "arguments", "uri", "ref", "argument", "context", *OWN_FIELDS)
}
"""The fields that are checked here. Some servers ignore upper and lower case, so a field that only
differs in case from one of these is not passed on: nobody has checked it."""


async def relay_call(
    upstream: UpstreamServer,
    call: Call,
    changed: Mapping[str, Any],
    *,
    prepare: Prepare,
    safe: bool = False,
    masked: bool = False,
    capabilities: ClientCapabilities | None = None,
    timeout: float | None = None,
    connection_id: str = "",
    finish: Callable[[PooledClient, Raw], Awaitable[Any]] | None = None,
) -> Any:
    """Send a call to a server, and return its result or its questions.

    Args:
        upstream: The server.
        call: The call of the caller.
        changed: The params that differ from those of the caller, such as the name.
        prepare: Prepares each of the server's questions for the caller.
        safe: Whether to send the call again if the connection was lost after it was sent.
        masked: Whether the caller may see only how the process of the server ended.
        capabilities: What to declare in the stateless era (default: what the server may ask).
        timeout: Seconds to wait for the result (default: that of the server's settings).
        connection_id: The connection on which the task of the call was started.
        finish: Called with the connection and the result before the connection is returned. What it
            returns replaces the result.

    Returns:
        The result as a `RawObject`, the questions as `InputRequired`, or what `finish` returned.

    Raises:
        ProtocolError: The server answered with an error, or could not be reached.
    """
    fields = _fields(call, changed)
    key = _cache_key(upstream, call, fields)
    if key is not None and (kept := upstream.results.find(key, call.method.result)) is not None:
        return kept
    drops, counts, started = upstream.results.drops, upstream.counts, perf_counter()
    number, _, state = _state_of(upstream, call.request_state)
    send = partial(_send, upstream, call, fields, state, safe, capabilities, timeout, finish)
    counts.calls += 1
    try:
        reply = await with_connection(upstream, call, send, masked, connection_id, number)
    except Exception as problem:
        counts.errors += 1
        if isinstance(problem, UrlRequired):
            raise _pages(upstream, call, problem, prepare) from None
        raise
    finally:
        counts.seconds_added += perf_counter() - started
    upstream.health.on_success()
    if type(reply) is not ServerReply:
        return reply
    if reply.asks:
        return _questions(upstream, call, reply, prepare)
    if key is not None and upstream.catalog.is_stateless:
        upstream.results.keep(key, reply.result, drops, msgspec.json.decode(fields["uri"]))
    return reply.result


def _fields(call: Call, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params to send."""
    fields: dict[str, Any] = split_object(call.raw_params) if call.raw_params else {}
    for name in list(fields):
        if name in OWN_FIELDS or KNOWN.get(name.casefold(), name) != name:
            del fields[name]
    fields.update(changed)
    return fields


def _cache_key(upstream: UpstreamServer, call: Call, fields: Mapping[str, Any]) -> CacheKey | None:
    """Return the key under which the result of a call may be kept."""
    if call.method.params is not ReadResourceParams:
        return None
    forward = upstream.settings.forward
    return upstream.results.key(call, fields, forwarded_headers(forward, call) if forward else ())


async def _send(
    upstream: UpstreamServer,
    call: Call,
    fields: dict[str, Any],
    state: str,
    safe: bool,
    capabilities: ClientCapabilities | None,
    timeout: float | None,
    finish: Callable[[PooledClient, Raw], Awaitable[Any]] | None,
    pooled: PooledClient,
) -> Any:
    """Send a call on a connection, and return the answer, or what `finish` returned."""
    is_stateless, sent = upstream.catalog.is_stateless, perf_counter()
    has_headers = is_stateless and not upstream.is_process
    if call.request_state is not None:
        if not is_stateless:
            raise _foreign_state()
        fields["inputResponses"] = call.input_responses
        if state:
            fields["requestState"] = state
    try:
        raw = await pooled.client.relay(
            call.name,
            fields,
            timeout=upstream.settings.timeout if timeout is None else timeout,
            on_progress=report_progress(call),
            capabilities=capabilities or askable(call, upstream.settings, upstream.model),
            log_level=level_of(call.caller) if is_stateless else None,
            headers=header_params_of(call) if has_headers else None,
            header_params=_header_params(upstream, call, fields) if has_headers else (),
            safe=safe,
            parent=call,
        )
        finished = raw if finish is None else await finish(pooled, raw)
    finally:
        upstream.counts.seconds_added -= perf_counter() - sent
    if finished is not raw:
        return finished
    result = RawObject.parse(call.method.result, raw)  # type: ignore[arg-type]
    kind = result.fields.get("resultType")
    asks = kind is not None and bytes(kind) == b'"input_required"'
    return ServerReply(raw, result, pooled.number, pooled.client.connection_id, asks)


async def with_connection(
    upstream: UpstreamServer,
    call: Call,
    work: Callable[[PooledClient], Awaitable[Any]],
    masked: bool,
    connection_id: str = "",
    number: int = 0,
) -> Any:
    """Do something with the connection that a call uses, and return its result.

    Args:
        upstream: The server.
        call: The call of the caller.
        work: What to do.
        masked: Whether the caller may see only how the process of the server ended.
        connection_id: The connection on which the task of the call was started.
        number: The number of the connection whose question the call answers, if any.

    Raises:
        ProtocolError: The server answered with an error, or could not be reached.
        TaskLost: The process that ran the task has ended.
    """
    try:
        pooled = await upstream.acquire(call, number, connection_id)
    except START_ERRORS as problem:
        raise InternalError(explain_failure(upstream.name, problem, masked=masked)) from problem
    asks = is_answered = False
    try:
        result = await work(pooled)
        asks, is_answered = type(result) is ServerReply and result.asks, True
        upstream.check_task(connection_id)  # another process may have answered
        return result
    except (ConnectionClosed, ConnectFailed) as problem:
        upstream.on_connection_lost(pooled, problem)
        upstream.check_task(connection_id)
        raise InternalError(explain_failure(upstream.name, problem, masked=masked)) from problem
    except TimedOut as problem:
        upstream.on_timeout(problem, pooled)
        raise InternalError(explain_failure(upstream.name, problem, masked=masked)) from problem
    except ProtocolError:
        is_answered = True
        upstream.health.on_success()
        upstream.check_task(connection_id)
        raise
    except ToolError as problem:  # an error that some servers send for a failed tool
        is_answered = True
        raise ProtocolError(-32002, str(problem)) from problem
    except TaskCancelled as problem:
        raise InternalError(f"{upstream.name}: {problem}") from None
    finally:
        upstream.questions.end(call)
        upstream.release(pooled, call, asked=asks, answered=is_answered)


class ServerReply(NamedTuple):
    """What a server answered."""

    raw: Raw
    result: RawObject
    number: int
    """The number of the connection."""
    connection_id: str
    """The id of the connection, which no connection of another process has."""
    asks: bool
    """Whether the answer is a question."""


def _header_params(
    upstream: UpstreamServer, call: Call, fields: Mapping[str, Any]
) -> tuple[HeaderParam, ...]:
    if call.method.params is not CallToolParams:
        return ()
    return upstream.header_params(msgspec.json.decode(fields["name"], type=str))


@contextmanager
def explaining(name: str, *, masked: bool) -> Iterator[None]:
    """Turn the failure to start a server into what its caller may see.

    Args:
        name: The name of the server.
        masked: Whether the caller may see only how the process of the server ended.
    """
    try:
        yield
    except START_ERRORS as problem:
        raise InternalError(explain_failure(name, problem, masked=masked)) from problem


def _questions(
    upstream: UpstreamServer, call: Call, reply: "ServerReply", prepare: Prepare
) -> InputRequired:
    """Return the questions of a stateless server."""
    required = relayed_questions(reply.raw)
    for question in required.requests.values():
        upstream.question_limits.count(call, "input_required")
        prepare(upstream, call, question)  # type: ignore[arg-type]
    place = f"{reply.number}:{reply.connection_id}"
    state = f"{_state_prefix(upstream)}{place}\n{required.state or ''}"
    return replace(required, state=state)


def _pages(
    upstream: UpstreamServer, call: Call, required: UrlRequired, prepare: Prepare
) -> UrlRequired:
    """Return the error with which a server asks the user to visit pages."""
    upstream.question_limits.count(call, "elicitation/create")
    pages = []
    for page in required.elicitations:
        asked = {"mode": "url", "message": page.message, "url": page.url, "elicitationId": page.id}
        params = RawObject.parse(ElicitParams, msgspec.json.encode(asked))
        prepare(upstream, call, params)
        pages.append(page._replace(message=params.message, id=params.elicitation_id))
    return UrlRequired(required.message, pages=pages) if pages else required


def _state_prefix(upstream: UpstreamServer) -> str:
    return f"{upstream.name}\n{upstream.entry.digest}\n"


def was_asked_elsewhere(upstream: UpstreamServer, state: str | None) -> bool:
    """Return whether only another replica can continue a call: its server is a process, and not the
    process of this replica asked the questions.

    Args:
        upstream: The server.
        state: The state that the gateway sent with the questions; None if there were none.

    Raises:
        InvalidParams: Another server sent it, or the server or its entry has changed since.
    """
    if state is None or not upstream.is_process:
        return False
    _, connection_id, _ = _state_of(upstream, state)
    return bool(connection_id) and upstream.find_connection(connection_id) is None


def _state_of(upstream: UpstreamServer, state: str | None) -> tuple[int, str, str]:
    """Return the number and the id of the connection on which a server asked its questions, and the
    state that it sent with them. Without a state, any connection will do.

    Raises:
        InvalidParams: Another server sent it, or the server or its entry has changed since.
    """
    if state is None:
        return 0, "", ""
    prefix = _state_prefix(upstream)
    if not state.startswith(prefix):
        raise _foreign_state()
    place, _, own = state[len(prefix) :].partition("\n")
    number, _, connection_id = place.partition(":")
    return int(number), connection_id, own


def _foreign_state() -> InvalidParams:
    return InvalidParams("The requestState belongs to another server. Call the tool again.")


def report_progress(call: Call) -> Callable[[ProgressParams], Any] | None:
    """Return a function that passes on the progress of a call; None if nobody wants it."""
    if call.progress is None:
        return None

    def report(update: ProgressParams) -> None:
        if call.progress is not None:  # that of the request on whose behalf the call runs by now
            call.progress.update(update)

    return report


def as_private(result: RawObject) -> RawObject:
    """Return a result that no cache may give to another caller."""
    if "cacheScope" not in result.fields:
        return result
    return RawObject(result.type, {**result.fields, "cacheScope": encode_text("private")})


def encode_text(text: str) -> Raw:
    """Return a text as raw JSON."""
    return Raw(msgspec.json.encode(text))
