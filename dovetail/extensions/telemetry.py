"""OpenTelemetry spans and metrics for servers and clients.

    server = Server("shop", middleware=[telemetry()])
    client = Client(url, middleware=[telemetry()])

Each call creates a span that is named after its method and its tool or prompt. Its duration is
recorded in a histogram (`connection/instrumentation.py`). The client puts its span context into the
request's `_meta`, where the specification reserves three keys for trace context. Over every
transport, the server's span becomes a child of the client's span and is linked to the enclosing
span (such as the web server's). Arguments, results, tokens and the text of exceptions are never
recorded. Error messages, and names and URIs that the caller sent, are passed through the server's
`redact` function. A session is recorded under a name that cannot be used to access it.

Telemetry needs `opentelemetry-api` (extra `telemetry`), which is imported when `telemetry()` is
called. The SDK that your program configures decides where spans are sent. Without an SDK, nothing
is recorded and the cost is small.
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..connection.instrumentation import (
    INSTRUMENTS,
    MAX_TEXT_CHARS,
    METHOD,
    STATUS_CODE,
    CallFailure,
    OperationObserver,
    Target,
    failure_for_code,
    target_of,
)
from ..errors import ProtocolError, missing_extra
from ..ports import Call, Caller, CallHandler, Network
from ..protocol.base import TRACE_CONTEXT
from ..protocol.methods import Method, Side
from ..protocol.raw import with_meta
from ..revisions import Revision

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Link, Span, TracerProvider

MAX_CONTEXT_CHARS = dict(zip(TRACE_CONTEXT, (55, 512, 8192), strict=True))
"""The `_meta` keys that carry trace context, and the maximum length of each value.
https://modelcontextprotocol.io/specification/2026-07-28/basic#meta"""
SCOPE = "dovetail"
SpanAttributes = dict[str, Any]


def telemetry(
    *,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    incoming: bool = True,
    baggage: bool = False,
) -> "Telemetry":
    """Return middleware that reports every call to OpenTelemetry.

    Use it with `Server(middleware=[telemetry()])` and `Client(middleware=[telemetry()])`.

    Args:
        tracer_provider: The provider that receives spans (default: the program's global provider).
        meter_provider: The provider that receives metrics (default: the program's global provider).
        incoming: Whether a server continues the caller's trace. If False, the server starts a new
            trace that is linked to the caller's.
        baggage: Whether to send and accept baggage, which may contain personal data.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
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
    # Do not use the propagators configured for HTTP: `_meta` reserves only these keys.
    propagators: list[TextMapPropagator] = [TraceContextTextMapPropagator()]
    if baggage:
        propagators.append(W3CBaggagePropagator())
    return Telemetry(trace, context, tracer, meter, CompositePropagator(propagators), incoming)


class Telemetry(OperationObserver):
    """The middleware that `telemetry` returns."""

    def __init__(
        self, traces: Any, contexts: Any, tracer: Any, meter: Any, propagator: Any, incoming: bool
    ) -> None:
        super().__init__()
        self._traces, self._contexts = traces, contexts
        self._tracer, self._propagator, self._incoming = tracer, propagator, incoming
        self._histograms = {
            instrument.name: meter.create_histogram(
                instrument.name,
                unit=instrument.unit,
                description=instrument.description,
                explicit_bucket_boundaries_advisory=instrument.buckets,
            )
            for instrument in INSTRUMENTS
            if instrument.kind == "histogram"
        }

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Create a span for a call, and record the call's duration."""
        if hasattr(call.connection, "server_info"):  # it is a client
            return await self._trace(call, next, "client", [])
        context, links = self._caller_context(call)
        if context is None:
            return await self._trace(call, next, "server", links)
        token = self._contexts.attach(context)
        try:
            return await self._trace(call, next, "server", links)
        finally:
            self._contexts.detach(token)

    async def _trace(self, call: Call, next: CallHandler, side: Side, links: "list[Link]") -> Any:
        target, common = target_of(call), _common_attributes(call)
        # Before there is a result, the name may be any text.
        shown = _redact(call, target[1]) if target else None
        with self._tracer.start_as_current_span(
            f"{call.method.name} {shown}" if shown else call.method.name,
            kind=getattr(self._traces.SpanKind, side.upper()),
            attributes=common
            | ({target[0]: shown} if target and shown else {})
            | _span_attributes(call, side),
            links=links,
            record_exception=False,  # its text may be secret
            set_status_on_exception=False,
        ) as span:

            def record(
                call: Call, known: Target | None, failure: CallFailure | None, seconds: float
            ) -> None:
                attributes = common | dict([known] if known else [])
                if known is None:
                    span.update_name(call.method.name)
                if side == "client" and call.id:
                    span.set_attribute("jsonrpc.request.id", str(call.id))
                if failure is not None:
                    attributes |= dict(failure.attributes)
                    self._set_failure(span, failure, _redact(call, failure.message))
                self._histograms[f"mcp.{side}.operation.duration"].record(seconds, attributes)

            if side == "client":
                self._send_context(call)
            return await self.observe(call, next, side, record)

    def _set_failure(self, span: "Span", failure: CallFailure, message: str | None) -> None:
        span.set_attributes(dict(failure.attributes))
        if failure.code is not None:
            span.set_attribute(STATUS_CODE, str(failure.code))
        if failure.type is not None:
            span.set_status(self._traces.StatusCode.ERROR, message)

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """Record a refused request as an operation without a duration."""
        failure = failure_for_code(caller.revision.code(error), "server")
        attributes = {METHOD: method.name, "mcp.protocol.version": caller.revision.version}
        self._histograms["mcp.server.operation.duration"].record(
            0.0, attributes | dict(failure.attributes)
        )

    def session_ended(
        self, side: Side, revision: Revision, network: Network | None, seconds: float
    ) -> None:
        """Record the duration of a session in the handshake era."""
        self._histograms[f"mcp.{side}.session.duration"].record(
            seconds, {"mcp.protocol.version": revision.version, **_network_attributes(network)}
        )

    def _caller_context(self, call: Call) -> "tuple[Context | None, list[Link]]":
        """Return the parent context of a server's span, if it is not the current one, and its
        links."""
        carrier = _extract_carrier(call.params.meta)
        if not carrier:
            return None, []
        get_span, link = self._traces.get_current_span, self._traces.Link
        context, current = self._propagator.extract(carrier), get_span().get_span_context()
        caller = get_span(context).get_span_context()
        if not self._incoming:
            links = [link(caller)] if caller.is_valid and caller != current else []
            return None, links
        return context, [link(current)] if current.is_valid and caller != current else []

    def _send_context(self, call: Call) -> None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        if carrier:
            call.params = with_meta(call.params, carrier)


def _extract_carrier(meta: dict[str, Any] | None) -> dict[str, str]:
    return {
        name: value
        for name, max_chars in MAX_CONTEXT_CHARS.items()
        if meta and isinstance(value := meta.get(name), str) and len(value) <= max_chars
    }


def _common_attributes(call: Call) -> SpanAttributes:
    """Return the attributes that spans and metrics share. Each attribute has only a few distinct
    values."""
    attributes: SpanAttributes = {
        METHOD: call.method.name,
        "mcp.protocol.version": call.revision.version,
    }
    attributes |= _network_attributes(getattr(call.connection, "network", None))
    if call.method.name == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return attributes


@lru_cache
def _network_attributes(network: Network | None) -> SpanAttributes:
    if network is None:
        return {}
    return _without_none(
        {
            "network.transport": network.transport,
            "network.protocol.name": network.protocol,
            "server.address": network.address,
            "server.port": network.port,
        }
    )


def _span_attributes(call: Call, side: Side) -> SpanAttributes:
    """Return the attributes that only spans have."""
    uri, session = getattr(call.params, "uri", None), getattr(call.connection, "session", None)
    return _without_none(
        {
            "mcp.resource.uri": _redact(call, uri) if isinstance(uri, str) else None,
            "mcp.session.id": None if session is None else session.key,
            "jsonrpc.request.id": None if side == "client" else str(call.id)[:MAX_TEXT_CHARS],
            "client.address": call.address,
        }
    )


def _without_none(attributes: SpanAttributes) -> SpanAttributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _redact(call: Call, text: str | None) -> str | None:
    """Redact text with the server's `redact` function, and shorten it."""
    redact = getattr(call.connection, "redact", None)
    if text is None or redact is None:
        return text and text[:MAX_TEXT_CHARS]
    try:
        return str(redact(text))[:MAX_TEXT_CHARS]
    except Exception:  # drop text that cannot be checked
        return None
