"""Metrics and traces for calls: the table of instruments and the observer that measures a call.

`serve/metrics.py` (Prometheus) and `extensions/telemetry.py` (OpenTelemetry) record into these
instruments, with the attributes defined here. Names follow OpenTelemetry's conventions for MCP; in
Prometheus, dots become underscores and the unit is appended.

If a tool failed, the error type is `tool_error`; the type of every other error is its code. On a
server, a mistake made by the caller, such as a request for a tool that does not exist, is not a
failure: it has a code but no type. Callers can invent any number of names and codes, and each
metric series is kept forever. So the name of a tool or prompt is recorded only after a call to it
has returned a result, and a code only if the protocol or this library defines it.
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Literal

from msgspec import Struct

from ..errors import (
    BY_CODE,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    ParseError,
    ProtocolError,
)
from ..ports import Call, CallHandler
from ..protocol.methods import Side
from ..revisions import ALL
from .answer import intended_error
from .middleware import Observer

METHOD, ERROR_TYPE = "mcp.method.name", "error.type"
STATUS_CODE = "rpc.response.status_code"
TARGETS = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute that holds the name of a call's target, keyed by method."""
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The upper bounds of the histogram buckets for durations, in seconds."""
BACKEND_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
"""The same for commands to the shared backend, which take less than a millisecond."""
MAX_TARGETS, MAX_TEXT_CHARS = 1000, 256
OTHER = "_OTHER"
"""The attribute value that replaces unknown values, to limit the number of series."""

Attributes = tuple[tuple[str, str], ...]
Target = tuple[str, str]
"""The attribute for the tool or prompt that a call targets, and the name of that tool or prompt."""


class Instrument(Struct, frozen=True):
    """A quantity that is counted or measured."""

    name: str
    kind: Literal["histogram", "counter", "gauge"]
    unit: str
    description: str
    buckets: tuple[float, ...] = BUCKETS
    """The upper bounds of a histogram."""

    @property
    def prometheus_name(self) -> str:
        """The name that OpenTelemetry's exporter for Prometheus would use."""
        name = self.name.replace(".", "_")
        return name + "_seconds" * (self.unit == "s") + "_total" * (self.kind == "counter")


INSTRUMENTS = (
    Instrument("mcp.server.operation.duration", "histogram", "s",
               "Request duration, from acceptance to result."),
    Instrument("mcp.client.operation.duration", "histogram", "s",
               "Request duration, from sending to result."),
    Instrument("mcp.server.session.duration", "histogram", "s",
               "Duration of handshake-era sessions, as seen by the server."),
    Instrument("mcp.client.session.duration", "histogram", "s",
               "Duration of handshake-era sessions, as seen by the client."),
    Instrument("mcp.server.operations_in_flight", "gauge", "{request}",
               "Requests that are currently being answered."),
    Instrument("mcp.server.refusals", "counter", "{request}",
               "Requests rejected because of a limit or a missing scope."),
    Instrument("mcp.server.http_responses", "counter", "{response}",
               "HTTP responses, by status."),
    Instrument("mcp.server.sessions", "gauge", "{session}",
               "Number of open handshake-era sessions."),
    Instrument("mcp.server.streams", "gauge", "{stream}",
               "Open event streams."),
    Instrument("mcp.server.conversations", "gauge", "{conversation}",
               "Clients connected over WebSocket or HTTP+SSE (2024-11-05)."),
    Instrument("mcp.upstream.calls", "counter", "{request}",
               "Calls that a gateway relayed to a server."),
    Instrument("mcp.upstream.errors", "counter", "{request}",
               "Relayed calls that ended with an error."),
    Instrument("mcp.upstream.added", "counter", "s",
               "Time that relayed calls spent in the gateway, without that of the server."),
    Instrument("mcp.upstream.connections", "gauge", "{connection}",
               "Open connections to a server."),
    Instrument("mcp.upstream.input_requests", "gauge", "{request}",
               "Questions to callers that a server is waiting for."),
    Instrument("mcp.upstream.state", "gauge", "{server}",
               "1 for the state that a server is in, otherwise 0."),
    Instrument("mcp.backend.connected", "gauge", "{connection}",
               "1 if the shared backend can be reached, otherwise 0."),
    Instrument("mcp.backend.commands", "counter", "{command}",
               "Commands sent to the shared backend."),
    Instrument("mcp.backend.errors", "counter", "{command}",
               "Commands that the shared backend did not answer in time, or refused."),
    Instrument("mcp.backend", "histogram", "s",
               "Duration of requests to the shared backend, each of one or more commands.",
               BACKEND_BUCKETS),
    Instrument("mcp.tasks.waiting", "gauge", "{task}",
               "Tasks that wait for a free slot, in all processes together."),
    Instrument("mcp.tasks.running", "gauge", "{task}",
               "Tasks that a process runs."),
    Instrument("mcp.tasks.taken_over", "counter", "{task}",
               "Tasks that a process took over from another one that had stopped."),
    Instrument("process.start_time", "gauge", "s",
               "Time at which the process started serving, in seconds since 1970."),
)  # fmt: skip


def _codes(kinds: Iterable[type[ProtocolError]]) -> frozenset[int]:
    """Return the codes of these errors in all revisions."""
    return frozenset(
        code
        for kind in kinds
        for code in (kind.code, *(revision.codes.get(kind, kind.code) for revision in ALL))
    )


KNOWN_CODES = _codes([*BY_CODE.values(), NotFound])
CALLER_MISTAKES = _codes([ParseError, InvalidRequest, MethodNotFound, InvalidParams, NotFound])


class CallFailure(Struct, frozen=True):
    """Why a call failed."""

    type: str | None
    """The type of failure, or None for a caller's mistake."""
    code: int | None = None
    """The code of the error that was sent or received."""
    message: str | None = None
    """The text of the error, if it was meant for the other side."""

    @property
    def attributes(self) -> Attributes:
        """The attributes for metrics and spans."""
        status = None if self.code is None else _known_code(self.code)
        pairs = ((ERROR_TYPE, self.type), (STATUS_CODE, status))
        return tuple((name, value) for name, value in pairs if value is not None)


TOOL_ERROR = CallFailure("tool_error")
CANCELLED = CallFailure("cancelled")


def failure_of(call: Call, error: BaseException, side: Side) -> CallFailure:
    """Return the failure for an exception. On a server, the exception is the answer to the call."""
    on_server = side == "server"
    error = call.abort_error or error
    refusal = intended_error(error) if on_server else error
    if isinstance(refusal, ProtocolError):
        code = call.revision.code(refusal) if on_server else refusal.code
        # The message of an internal error is the text of an exception, which may hold anything.
        return failure_for_code(code, side, None if code == InternalError.code else refusal.message)
    if call.cancelled or isinstance(error, asyncio.CancelledError):
        return CANCELLED
    return (
        failure_for_code(InternalError.code, side)
        if on_server
        else CallFailure(type(error).__name__)
    )


def failure_for_code(code: int, side: Side, message: str | None = None) -> CallFailure:
    """Return the failure for an error with this code, as seen from this side."""
    is_mistake = side == "server" and code in CALLER_MISTAKES
    return CallFailure(None if is_mistake else _known_code(code), code, message)


def target_of(call: Call) -> Target | None:
    attribute, name = TARGETS.get(call.method.name), getattr(call.params, "name", None)
    if attribute is None or not isinstance(name, str):
        return None
    return attribute, name[:MAX_TEXT_CHARS]


Record = Callable[[Call, Target | None, CallFailure | None, float], None]
"""A function that receives a finished call, its target if known to exist, its failure if it failed,
and its duration in seconds."""


class OperationObserver(Observer):
    """An observer that measures the duration and the outcome of calls."""

    def __init__(self) -> None:
        self._known_targets: set[Target] = set()

    async def observe(self, call: Call, next: CallHandler, side: Side, record: Record) -> Any:
        """Answer or send a call, and call `record` when it has ended."""
        target, start, failure = target_of(call), perf_counter(), None
        try:
            result = await next(call)
            if getattr(result, "is_error", None):
                failure = TOOL_ERROR
            return result
        except BaseException as error:
            failure = failure_of(call, error, side)
            raise
        finally:
            if target is not None and target not in self._known_targets:
                target = self._learn(target, failure, side)
            record(call, target, failure, perf_counter() - start)

    def _learn(self, target: Target, failure: CallFailure | None, side: Side) -> Target | None:
        exists = failure is None or failure is TOOL_ERROR
        if side == "client":
            exists = exists or (failure is not None and failure.code is None)
        if not exists or len(self._known_targets) >= MAX_TARGETS:
            return None
        self._known_targets.add(target)
        return target


def _known_code(code: int) -> str:
    return str(code) if code in KNOWN_CODES else OTHER
