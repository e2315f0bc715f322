"""`/metrics`, as Prometheus reads it: what a server has done and is doing, without any library.

    server.run("http", metrics="/metrics")

It looks on as any `Observer` does, counts in plain dictionaries, and writes the text only when
somebody asks for it. Series go by the names that those of OpenTelemetry have in Prometheus
(`mcp_server_operation_duration_seconds`), so one dashboard fits both. Their number is bounded
whatever callers send: methods are those that exist, tools those that have answered, codes those
that mean something, and what is beyond the bound is counted as `_OTHER`.

Of several workers any one may be asked. It asks the others over the bus and writes all of them,
each under its `worker`, so that the counters of one that was started again begin anew without those
of the others. One that is silent is left out.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping
from time import perf_counter, time
from typing import Any

from ..connection.bus import NoBus
from ..connection.instrumentation import (
    BUCKETS,
    OTHER,
    CallFailure,
    KnownTargets,
    failure_for_code,
    failure_in,
    failure_of,
    has_result,
    target_of,
)
from ..connection.middleware import Observer
from ..errors import ProtocolError
from ..ports import Bus, Call, Caller, CallHandler
from ..protocol.methods import Method
from ..transports.http.server.asgi import Send

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
SERIES = 2000
"""Series of one family; what comes later is counted under `_OTHER`."""
PATIENCE = 0.5
"""How long the other workers have to say what they have counted, in seconds."""
PLACE = "DOVETAIL_WORKER"
"""What the environment calls the number of a worker."""
DURATION = "mcp_server_operation_duration_seconds"
FAMILIES = {
    DURATION: ("histogram", "How long requests took, from when they were let in to their result."),
    "mcp_server_operations_in_flight": ("gauge", "Requests that are being answered."),
    "mcp_server_refusals_total": (
        "counter",
        "Requests that were not let in: too many, or without the right to.",
    ),
    "mcp_server_http_responses_total": ("counter", "HTTP requests that were answered, by status."),
    "mcp_server_sessions": ("gauge", "Sessions of the handshake era that are remembered."),
    "mcp_server_streams": ("gauge", "Event streams that are open."),
    "mcp_server_conversations": ("gauge", "Conversations over WebSocket or the old SSE pair."),
    "process_start_time_seconds": (
        "gauge",
        "When the process began to serve, in seconds since 1970.",
    ),
}
VERBS = frozenset({"GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH"})
Labels = tuple[tuple[str, str], ...]
Lines = dict[str, list[str]]
"""The lines of each family."""
BEYOND: Labels = (("error_type", OTHER),)
"""The series of all that came when there were enough."""
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics(Observer):
    """What one process has counted."""

    def __init__(self) -> None:
        self._began = time()
        self._names = KnownTargets()
        self._durations: dict[Labels, list[float]] = {}
        """Of each series: how many fell into each bucket, the last being for the longest, and the
        sum."""
        self._refusals: dict[Labels, float] = {}
        self._responses: dict[Labels, float] = {}
        self._running = 0

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Time a call."""
        start, trouble = perf_counter(), None
        self._running += 1
        try:
            result = await next(call)
            trouble = failure_in(result)
            return result
        except BaseException as error:
            trouble = failure_of(call, error, told=True)
            raise
        finally:
            self._running -= 1
            self._timed(call, trouble, perf_counter() - start)

    def _timed(self, call: Call, trouble: CallFailure | None, seconds: float) -> None:
        target = self._names.bounded(target_of(call), has_result(trouble))
        labels: Labels = (("mcp_method_name", call.method.name),)
        if target is not None:
            labels += ((target[0].replace(".", "_"), target[1]),)
        labels += _outcome(trouble)
        series = self._durations.get(labels)
        if series is None:
            series = self._durations.setdefault(
                _bounded(labels, self._durations), [0.0] * (len(BUCKETS) + 2)
            )
        series[bisect_left(BUCKETS, seconds)] += 1
        series[-1] += seconds

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """Count a request that was not let in."""
        _count(
            self._refusals,
            (("mcp_method_name", method.name), *_outcome(failure_for_code(error.code, told=True))),
        )

    def counting_send(self, method: str, send: Send) -> Send:
        """The same way to answer, with its status counted."""

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.count_response(method, message["status"])
            await send(message)

        return counted

    def count_response(self, method: str, status: int) -> None:
        """Count a response."""
        verb = method if method in VERBS else OTHER
        _count(
            self._responses,
            (("http_request_method", verb), ("http_response_status_code", str(status))),
        )

    def lines(self, now: Mapping[str, float], worker: str = "") -> Lines:
        """All that was counted, and how things stand `now`. With several workers, it is said which
        this one is."""
        who: Labels = (("worker", worker),) if worker else ()
        gauges = {
            **now,
            "mcp_server_operations_in_flight": self._running,
            "process_start_time_seconds": self._began,
        }
        told: Lines = {name: [_line(name, who, value)] for name, value in gauges.items()}
        counters = {
            "mcp_server_refusals_total": self._refusals,
            "mcp_server_http_responses_total": self._responses,
        }
        for name, counted in counters.items():
            told[name] = [_line(name, labels + who, value) for labels, value in counted.items()]
        told[DURATION] = [
            line
            for labels, series in self._durations.items()
            for line in _histogram(labels + who, series)
        ]
        return told


class MetricsPage:
    """The page in one event loop, with what the other workers have to say."""

    def __init__(self, metrics: Metrics, now: Callable[[], Mapping[str, float]], bus: Bus) -> None:
        self._metrics, self._now, self._bus = metrics, now, bus
        self._worker = "" if isinstance(bus, NoBus) else os.environ.get(PLACE) or str(os.getpid())
        self._known: set[str] = set()
        """The other workers that are waited for: those that answered last time."""
        self._gathered: dict[str, Lines] = {}
        self._complete = asyncio.Event()
        self._asking: asyncio.Task[dict[str, Lines]] | None = None
        bus.on("metrics/ask", self._asked)
        bus.on("metrics/tell", self._told)

    async def page(self) -> bytes:
        """The text, with all workers in it."""
        all_of_them = [self._own(), *(await self._others()).values()]
        text: list[str] = []
        for name, (kind, help) in FAMILIES.items():
            lines = [line for told in all_of_them for line in told.get(name, ())]
            text += [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *lines] if lines else []
        return "\n".join([*text, ""]).encode()

    def _own(self) -> Lines:
        return self._metrics.lines(self._now(), self._worker)

    async def _others(self) -> dict[str, Lines]:
        if not self._worker:
            return {}
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> dict[str, Lines]:
        told = self._gathered = {}
        self._complete.clear()
        try:
            self._bus.publish("metrics/ask", self._worker)
            await asyncio.wait_for(self._complete.wait(), PATIENCE)
        except TimeoutError:
            self._known = set(told)
        finally:
            self._asking = None
        return told

    def _asked(self, who: str) -> None:
        self._bus.publish("metrics/tell", (who, self._worker, self._own()))

    def _told(self, payload: Any) -> None:
        who, worker, lines = payload
        if who == self._worker:
            self._gathered[worker] = lines
            if self._known and self._known <= self._gathered.keys():
                self._complete.set()
            self._known.add(worker)  # also one that was too late for this time


def _count(counts: dict[Labels, float], labels: Labels) -> None:
    kept = _bounded(labels, counts)
    counts[kept] = counts.get(kept, 0) + 1


def _bounded(labels: Labels, series: Mapping[Labels, Any]) -> Labels:
    return labels if labels in series or len(series) < SERIES else BEYOND


def _outcome(trouble: CallFailure | None) -> Labels:
    if trouble is None:
        return ()
    said = (("error_type", trouble.type), ("rpc_response_status_code", trouble.status))
    return tuple((label, word) for label, word in said if word is not None)


def _histogram(labels: Labels, series: list[float]) -> list[str]:
    total, lines = 0.0, []
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), series, strict=False):
        total += count
        lines.append(_line(f"{DURATION}_bucket", (*labels, ("le", bound)), total))
    return [
        *lines,
        _line(f"{DURATION}_sum", labels, series[-1]),
        _line(f"{DURATION}_count", labels, total),
    ]


def _line(name: str, labels: Labels, value: float) -> str:
    said = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels)
    number = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{said}}} {number}" if said else f"{name} {number}"
