"""The `/metrics` page for Prometheus, which needs no client library.

    server.run("http", metrics="/metrics")

`Metrics` observes calls, counts them in plain dictionaries, and writes the text only on request.
`Metrics` shares its instruments with OpenTelemetry (`connection/instrumentation.py`) and uses their
Prometheus names (`mcp_server_operation_duration_seconds`), so one dashboard works for both. The
number of series is bounded regardless of what callers send, because labels are limited to existing
methods, tools that have answered, and defined codes. Series above the limit are counted as
`_OTHER`.

With several workers, any worker can serve the page. That worker collects the series from the other
workers over the bus and writes all series, each with its `worker` label, which also names the
machine if the workers share a backend. If a worker is restarted, only its own counters start again
at zero. A worker that does not answer before the timeout is omitted.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from time import time
from typing import Any

from ..connection.bus import NoBus
from ..connection.instrumentation import (
    BUCKETS,
    ERROR_TYPE,
    INSTRUMENTS,
    METHOD,
    OTHER,
    Attributes,
    CallFailure,
    Instrument,
    OperationObserver,
    Target,
    failure_for_code,
)
from ..errors import ProtocolError
from ..ports import WORKER_VARIABLE, Bus, Call, Caller, CallHandler
from ..protocol.methods import Method
from ..transports.http.server.asgi import Send

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES = 2000
"""The maximum number of series per instrument. Any further series are counted as `_OTHER`."""
WORKERS_SECONDS = 0.5
"""How long the other workers have to send their counts."""
HTTP_METHODS = frozenset({"GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH"})
Lines = dict[str, list[str]]
"""Maps the name of each instrument to its lines."""
Series = Mapping[str, Mapping[Attributes, float | list[float]]]
"""Maps the name of each instrument to its values by attributes. A histogram is a list: the count in
each bucket (the last one has no upper bound), and the sum."""
OVERFLOW: Attributes = ((ERROR_TYPE, OTHER),)
"""The series that counts everything above the limit."""
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics(OperationObserver):
    """The metrics of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._started = time()
        self._in_flight = 0
        self._durations: dict[Attributes, list[float]] = {}
        self._refusals: dict[Attributes, float] = {}
        self._responses: dict[Attributes, float] = {}

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Time a call."""
        self._in_flight += 1
        try:
            return await self.observe(call, next, "server", self._record)
        finally:
            self._in_flight -= 1

    def _record(
        self, call: Call, target: Target | None, failure: CallFailure | None, seconds: float
    ) -> None:
        attributes: Attributes = ((METHOD, call.method.name),)
        if target is not None:
            attributes += (target,)
        if failure is not None:
            attributes += failure.attributes
        series = self._durations.get(attributes)
        if series is None:
            series = self._durations.setdefault(
                _bounded(attributes, self._durations), [0.0] * (len(BUCKETS) + 2)
            )
        series[bisect_left(BUCKETS, seconds)] += 1
        series[-1] += seconds

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """Count a request that was refused."""
        failure = failure_for_code(error.code, "server")
        _count(self._refusals, ((METHOD, method.name), *failure.attributes))

    def counting_send(self, method: str, send: Send) -> Send:
        """Return a `send` function that also counts the response."""

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.count_response(method, message["status"])
            await send(message)

        return counted

    def count_response(self, method: str, status: int) -> None:
        """Count an HTTP response."""
        verb = method if method in HTTP_METHODS else OTHER
        _count(
            self._responses,
            (("http.request.method", verb), ("http.response.status_code", str(status))),
        )

    def lines(self, others: Series, worker: str = "") -> Lines:
        """Return the lines for all instruments.

        Args:
            others: What is not counted here.
            worker: The name of this process, if there are several workers.
        """
        series: dict[str, Mapping[Attributes, Any]] = {
            **others,
            "mcp.server.operation.duration": self._durations,
            "mcp.server.operations_in_flight": {(): self._in_flight},
            "mcp.server.refusals": self._refusals,
            "mcp.server.http_responses": self._responses,
            "process.start_time": {(): self._started},
        }
        labels: Attributes = (("worker", worker),) if worker else ()
        return {
            instrument.name: [
                line
                for attributes, value in series.get(instrument.name, {}).items()
                for line in _write(instrument, attributes + labels, value)
            ]
            for instrument in INSTRUMENTS
        }


class MetricsPage:
    """The metrics page in one event loop, which collects the lines from all workers.

    Args:
        metrics: What this process has counted.
        others: A function that returns what others have counted in this process.
        bus: The connection to the other workers.
        machine: The name of this machine, if the workers are on several machines.
    """

    def __init__(
        self, metrics: Metrics, others: Callable[[], Series], bus: Bus, machine: str = ""
    ) -> None:
        self._metrics, self._others, self._bus = metrics, others, bus
        alone = isinstance(bus, NoBus)
        number = os.environ.get(WORKER_VARIABLE) or str(os.getpid())
        self._worker = "" if alone else f"{machine}:{number}" if machine else number
        self._expected: set[str] = set()
        """The other workers to wait for, which are those that answered last time."""
        self._collected: dict[str, Lines] = {}
        self._complete = asyncio.Event()
        self._collecting: asyncio.Task[dict[str, Lines]] | None = None
        bus.on("metrics/ask", self._on_ask)
        bus.on("metrics/tell", self._on_answer)

    async def page(self) -> bytes:
        """Return the text of the page, with the series from all workers."""
        workers = [self._own_lines(), *(await self._other_lines()).values()]
        text: list[str] = []
        for instrument in INSTRUMENTS:
            lines = [line for worker in workers for line in worker.get(instrument.name, ())]
            if lines:
                name = instrument.prometheus_name
                text += [
                    f"# HELP {name} {instrument.description}",
                    f"# TYPE {name} {instrument.kind}",
                    *lines,
                ]
        return "\n".join([*text, ""]).encode()

    def _own_lines(self) -> Lines:
        return self._metrics.lines(self._others(), self._worker)

    async def _other_lines(self) -> dict[str, Lines]:
        if not self._worker:
            return {}
        if self._collecting is None:
            self._collecting = asyncio.create_task(self._collect())
        return await asyncio.shield(self._collecting)

    async def _collect(self) -> dict[str, Lines]:
        collected = self._collected = {}
        self._complete.clear()
        try:
            self._bus.publish("metrics/ask", self._worker)
            await asyncio.wait_for(self._complete.wait(), WORKERS_SECONDS)
        except TimeoutError:
            self._expected = set(collected)
        finally:
            self._collecting = None
        return collected

    def _on_ask(self, asker: str) -> None:
        self._bus.publish("metrics/tell", (asker, self._worker, self._own_lines()))

    def _on_answer(self, payload: Any) -> None:
        asker, worker, lines = payload
        if asker == self._worker:
            self._collected[worker] = lines
            if self._expected and self._expected <= self._collected.keys():
                self._complete.set()
            self._expected.add(worker)  # including a worker that was too late this time


def _count(counts: dict[Attributes, float], attributes: Attributes) -> None:
    key = _bounded(attributes, counts)
    counts[key] = counts.get(key, 0) + 1


def _bounded(attributes: Attributes, series: Mapping[Attributes, Any]) -> Attributes:
    return attributes if attributes in series or len(series) < MAX_SERIES else OVERFLOW


def _write(
    instrument: Instrument, attributes: Attributes, value: float | list[float]
) -> Iterator[str]:
    name = instrument.prometheus_name
    if not isinstance(value, list):
        yield _line(name, attributes, value)
        return
    total = 0.0
    for bound, count in zip((*map(str, instrument.buckets), "+Inf"), value, strict=False):
        total += count
        yield _line(f"{name}_bucket", (*attributes, ("le", bound)), total)
    yield _line(f"{name}_sum", attributes, value[-1])
    yield _line(f"{name}_count", attributes, total)


def _line(name: str, attributes: Attributes, value: float) -> str:
    labels = ",".join(
        f'{attribute.replace(".", "_")}="{text.translate(_ESCAPED)}"'
        for attribute, text in attributes
    )
    number = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{labels}}} {number}" if labels else f"{name} {number}"
