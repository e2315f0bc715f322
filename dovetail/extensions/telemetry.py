"""Spans and metrics by OpenTelemetry's conventions for MCP, on a server or on a client, where they
are asked for.

    server = Server("shop", middleware=[telemetry()])
    client = Client(url, middleware=[telemetry()])

Each call makes one span, called by its method and the tool or prompt it is about, and counts into a
histogram of durations. The client puts the context of its span into the request's `_meta`, where
the specification reserves three keys for it; the server's span becomes a child of that one,
whatever the transport, and is linked to what surrounds it here (a span of the web server, say).
What is recorded holds no argument, no result, no token and no text of an exception; what an error
says to the caller, and what the caller asked for, are there as the server's `redact` leaves them. A
session goes by a name that opens nothing.

It needs `opentelemetry-api` (`pip install 'dovetail-mcp[telemetry]'`), which is loaded when
`telemetry()` is called. Where spans go to is for the program to say, with an SDK: without one,
nothing is recorded and little is spent.
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..connection.instrumentation import (
    BUCKETS,
    LONGEST,
    CallFailure,
    KnownTargets,
    failure_for_code,
    failure_in,
    failure_of,
    has_result,
    target_of,
)
from ..connection.middleware import Observer
from ..errors import ProtocolError, missing_extra
from ..ports import Call, Caller, CallHandler, Network
from ..protocol.base import TRACE_CONTEXT
from ..protocol.methods import Method, Side
from ..revisions import Revision

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Link, Span, TracerProvider

CARRIED = dict(zip(TRACE_CONTEXT, (55, 512, 8192), strict=True))
"""What of `_meta` is trace context, and how long it may be.
https://modelcontextprotocol.io/specification/2026-07-28/basic#meta"""
SCOPE = "dovetail"
STATUS = "rpc.response.status_code"
SIDES: tuple[Side, ...] = ("server", "client")
Attributes = dict[str, Any]


def telemetry(
    *,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    incoming: bool = True,
    baggage: bool = False,
) -> "Telemetry":
    """Middleware that reports every call to OpenTelemetry, for `Server(middleware=…)` and
    `Client(middleware=…)`. Providers are the program's own unless given. `incoming`: a server goes
    on with the caller's trace; else it begins its own, linked to the caller's. `baggage`: whether
    that goes out and comes in too, which may hold anything about anybody."""
    try:
        from opentelemetry import context, metrics, trace
        from opentelemetry.baggage.propagation import W3CBaggagePropagator
        from opentelemetry.propagators.composite import CompositePropagator
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        raise missing_extra("telemetry()", "telemetry") from None
    from .. import __version__

    tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
    meter = metrics.get_meter(SCOPE, __version__, meter_provider)
    # Whatever the program is set up with for HTTP: in `_meta` there is room for these keys and no
    # others.
    carried: list[TextMapPropagator] = [
        TraceContextTextMapPropagator(),
        *([W3CBaggagePropagator()] if baggage else []),
    ]
    return Telemetry(trace, context, tracer, meter, CompositePropagator(carried), incoming)


class Telemetry(Observer):
    """What `telemetry` makes."""

    def __init__(
        self, traces: Any, contexts: Any, tracer: Any, meter: Any, propagator: Any, incoming: bool
    ) -> None:
        self._traces, self._contexts = traces, contexts
        self._tracer, self._propagator, self._incoming = tracer, propagator, incoming
        self._names = KnownTargets()
        kinds = [(side, what) for side in SIDES for what in ("operation", "session")]
        self._durations = {kind: _histogram(meter, *kind) for kind in kinds}

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Make a span of a call, and count it."""
        if hasattr(call.connection, "server_info"):  # it is a client
            return await self._made(call, next, "client", [])
        came, links = self._came_from(call)
        if came is None:
            return await self._made(call, next, "server", links)
        before = self._contexts.attach(came)
        try:
            return await self._made(call, next, "server", links)
        finally:
            self._contexts.detach(before)

    async def _made(self, call: Call, next: CallHandler, side: Side, links: "list[Link]") -> Any:
        target, about, start = target_of(call), _about(call), perf_counter()
        shown = (
            _shown(call, target[1]) if target else None
        )  # until there is a result, it may be anything
        trouble: CallFailure | None = None
        with self._tracer.start_as_current_span(
            _named(call.method, shown),
            kind=getattr(self._traces.SpanKind, side.upper()),
            attributes=about
            | ({target[0]: shown} if target and shown else {})
            | _details(call, side),
            links=links,
            record_exception=False,  # whose text is not ours to tell
            set_status_on_exception=False,
        ) as span:
            try:
                if side == "client":
                    self._pass_on(call)
                result = await next(call)
                trouble = failure_in(result)
                return result
            except BaseException as error:
                trouble = failure_of(call, error, told=side == "server")
                raise
            finally:
                exists = (
                    has_result(trouble)
                    if side == "server"
                    else trouble is None or trouble.code is None
                )
                known = self._names.bounded(target, exists)
                about |= dict([known] if known else []) | self._ended(
                    span, call, side, known, trouble
                )
                self._durations[side, "operation"].record(perf_counter() - start, about)

    def _ended(
        self, span: "Span", call: Call, side: Side, known: Any, trouble: CallFailure | None
    ) -> Attributes:
        """Say on the span what came of it, and give back how metrics say that."""
        if known is None:
            span.update_name(call.method.name)
        if side == "client" and call.id:
            span.set_attribute("jsonrpc.request.id", str(call.id))
        failed = _attributes(trouble)
        if trouble is not None:
            span.set_attributes(
                failed | ({} if trouble.code is None else {STATUS: str(trouble.code)})
            )
            if trouble.type is not None:
                span.set_status(self._traces.StatusCode.ERROR, _shown(call, trouble.message))
        return failed

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """A request that was not let in is an operation too, of no duration to speak of."""
        trouble = failure_for_code(caller.revision.code(error), told=True)
        about = {"mcp.method.name": method.name, "mcp.protocol.version": caller.revision.version}
        self._durations["server", "operation"].record(0.0, about | _attributes(trouble))

    def session_ended(
        self, side: Side, revision: Revision, network: Network | None, seconds: float
    ) -> None:
        """Count a session of the handshake era."""
        self._durations[side, "session"].record(
            seconds, {"mcp.protocol.version": revision.version, **_network(network)}
        )

    def _came_from(self, call: Call) -> "tuple[Context | None, list[Link]]":
        """The context that a server's span belongs to, where it is not the one around it, and what
        it is linked to."""
        carrier = _carried(call.params.meta)
        if not carrier:
            return None, []
        span_in, link = self._traces.get_current_span, self._traces.Link
        came, around = self._propagator.extract(carrier), span_in().get_span_context()
        caller = span_in(came).get_span_context()
        if not self._incoming:
            return None, [link(caller)] if caller.is_valid and caller != around else []
        return came, [link(around)] if around.is_valid and caller != around else []

    def _pass_on(self, call: Call) -> None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        if carrier:
            call.params = replace(call.params, meta={**(call.params.meta or {}), **carrier})


def _histogram(meter: Any, side: str, what: str) -> Any:
    return meter.create_histogram(
        f"mcp.{side}.{what}.duration",
        unit="s",
        description=f"How long each {what} took, as the {side} saw it",
        explicit_bucket_boundaries_advisory=BUCKETS,
    )


def _named(method: Method, target: str | None) -> str:
    return f"{method.name} {target}" if target else method.name


def _carried(meta: dict[str, Any] | None) -> dict[str, str]:
    """The trace context in a request's `_meta`, as far as it can be one."""
    found = {name: meta.get(name) for name in CARRIED} if meta else {}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, str) and len(value) <= CARRIED[name]
    }


def _about(call: Call) -> Attributes:
    """What is said of a call in spans and in metrics alike, where every value is one of few."""
    about: Attributes = {
        "mcp.method.name": call.method.name,
        "mcp.protocol.version": call.revision.version,
    }
    about |= _network(getattr(call.connection, "network", None))
    if call.method.name == "tools/call":
        about["gen_ai.operation.name"] = "execute_tool"
    return about


def _network(network: Network | None) -> Attributes:
    if network is None:
        return {}
    said = {
        "network.transport": network.transport,
        "network.protocol.name": network.protocol,
        "server.address": network.address,
        "server.port": network.port,
    }
    return {name: value for name, value in said.items() if value is not None}


def _details(call: Call, side: Side) -> Attributes:
    """What is said of it in spans only."""
    uri, session = getattr(call.params, "uri", None), getattr(call.connection, "session", None)
    said = {
        "mcp.resource.uri": _shown(call, uri) if isinstance(uri, str) else None,
        "mcp.session.id": None if session is None else session.key,
        "jsonrpc.request.id": None if side == "client" else str(call.id)[:LONGEST],
        "client.address": call.address,
    }
    return {name: value for name, value in said.items() if value is not None}


def _attributes(trouble: CallFailure | None) -> Attributes:
    if trouble is None:
        return {}
    said = {"error.type": trouble.type, STATUS: trouble.status}
    return {name: value for name, value in said.items() if value is not None}


def _shown(call: Call, text: str | None) -> str | None:
    """What may be seen of a text: as much as the other side is shown."""
    redact = getattr(call.connection, "redact", None)
    if text is None or redact is None:
        return text and text[:LONGEST]
    try:
        return str(redact(text))[:LONGEST]
    except Exception:  # as a message that cannot be checked is withheld
        return None
