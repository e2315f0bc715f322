"""What every service has, whether it runs functions (`Server`) or relays calls to other servers: a
name, limits, access control, middleware, extensions, and listeners for its changes.

`BaseService` implements `ports.Service`, the interface for the layers below. A subclass adds the
handlers of its methods (`add_handlers`) and declares its capabilities. `runnable.py` adds the ways
to serve a service. A service holds nothing that is bound to an event loop.
"""

from __future__ import annotations

import os
from _thread import RLock, allocate_lock  # `threading` takes 1.5% of the import of Server
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec.structs import replace

from ..connection.extension import Extension, Extensions
from ..connection.middleware import Middleware, Observer, compose
from ..errors import ConfigError, MethodNotFound, ProtocolError
from ..limits import DEFAULT, Limits
from ..ports import (
    Bus,
    Call,
    Caller,
    CallHandler,
    ChangeListener,
    Guard,
    HttpRequest,
    HttpResponse,
    Network,
    NoBackend,
    PendingAdmission,
    Principal,
    PublicUrl,
    Redact,
)
from ..protocol.base import Implementation, Params
from ..protocol.client_features import ElicitationCompleteParams
from ..protocol.lifecycle import ServerCapabilities
from ..protocol.methods import METHODS, Method
from ..protocol.resources import UriParams
from ..revisions import ALL, BY_NAME, Revision
from .caching import Cache, Caching
from .rates import NETWORK, RateLimiter, Rates

if TYPE_CHECKING:
    from ..backend import Backend
    from ..connection.instrumentation import Attributes
    from ..protocol.header_params import HeaderParam
    from ..sealing import KeyRing
    from .audit import AuditRecord
    from .forms import Form
    from .shared_rates import SharedRateLimiter

Admission = Callable[[Method, Any, Caller], PendingAdmission | None]
"""A function that checks a request before it is handled and raises an error to refuse it. If the
check takes time, the function returns the rest of it."""
BACKEND_VARIABLE = "DOVETAIL_BACKEND"
"""The environment variable with the URL of the shared backend."""
GUARD_METHODS = ("admit", "respond", "challenge")


class BaseService:
    """The part of a service that does not depend on how it answers its methods.

    Args:
        info: The name and version of the service.
        cache: How long clients may keep results, for all methods or by method name (default:
            results are not cached).
        middleware: Async functions with the parameters `(call, next)` that wrap every request,
            outermost first.
        limits: The limits on queues, sizes, times and counts.
        auth: The guard that authenticates callers over HTTP (default: None, anyone may call).
        rates: How many requests a caller may make (default: generous limits for callers from the
            network; None means no limit).
        redact: A function that is applied to all outgoing text.
        extensions: The protocol extensions to offer.
        revisions: The protocol revisions to serve, by date (default: all).
        resume: How a handler that asked a question continues in the stateless era: "live" (the
            default) or "replay".
        single_use: Whether the answers to a question are accepted only once in the stateless era
            (default: False; a client that lost the reply may send them again).
        backend: The backend that all processes of the service share: a URL or a `Backend` (default:
            the URL in `DOVETAIL_BACKEND`, if any).
        backend_required: Whether the service refuses to start while its backend is away (default:
            False).

    Raises:
        ConfigError: A setting is not valid.
    """

    reload_signals: tuple[int, ...] = ()
    """The signals on which each process reloads its configuration. With several workers, the
    parent process passes them on."""

    def __init__(
        self,
        info: Implementation,
        *,
        cache: Cache | Mapping[str, Cache] | None = None,
        middleware: Sequence[Middleware] = (),
        limits: Limits = DEFAULT,
        auth: Guard | None = None,
        rates: Rates | None = NETWORK,
        redact: Redact | None = None,
        extensions: Sequence[Extension] = (),
        revisions: Sequence[str] | None = None,
        resume: Literal["live", "replay"] = "live",
        single_use: bool = False,
        backend: str | Backend | None = None,
        backend_required: bool = False,
    ) -> None:
        if resume not in ("live", "replay"):
            raise ConfigError(f'resume={resume!r}: use "live" (the default) or "replay"')
        self.info, self.limits, self.guard, self.redact = info, limits, _check_guard(auth), redact
        self.replay = resume == "replay"
        self.single_use = single_use
        self.task_slots = limits.task_slots
        """How many tasks this process runs at the same time, if tasks are in a shared backend
        (default: `Limits.task_slots`). Set it before the service is run."""
        self.revisions = ALL if revisions is None else _find_revisions(revisions)
        self.extensions = Extensions()
        self._observers = tuple(layer for layer in middleware if isinstance(layer, Observer))
        self._decoded_methods = (
            set[str]() if len(self._observers) == len(middleware) else set(METHODS)
        )
        """The methods whose results middleware or extensions may change. The results of other
        methods are sent without being encoded again."""
        self._personal_methods = set(self._decoded_methods)
        """The methods whose results may depend on the caller."""
        self._caching = Caching(cache, self._personal_methods)
        self._keys: Sequence[str | bytes] | None = None
        self._backend: str | Backend | NoBackend | None = backend
        self._backend_required = backend_required
        self._shared_backend: Backend | None = None
        """The backend that the guard and the rate limits use."""
        self._shared_limiter: SharedRateLimiter | None = None
        self._lock = allocate_lock()
        self._listeners: tuple[ChangeListener, ...] = ()
        self._remote_listeners: frozenset[ChangeListener] = frozenset()
        """The listeners that pass changes on to other processes."""
        self._subscription_counts: dict[str, int] = {}
        """The number of subscriptions to each resource in this process."""
        self._subscriptions_lock = RLock()
        self._inner_handlers: dict[str, CallHandler] = {}
        """The handler for each method. The connection answers all other methods."""
        self._handlers: dict[str, CallHandler] = {}
        """The same handlers, wrapped by extensions."""
        self.limiter: RateLimiter | None = None if rates is None else RateLimiter(rates)
        self._admissions: tuple[Admission, ...] = ()
        if self.limiter is not None:
            self._admissions += (self.limiter.admit,)
        self.answer: CallHandler = compose(middleware, self._dispatch)
        self.add_handlers({"server/discover": self._discover})
        for extension in extensions:
            self.add_extension(extension)
        self._caching.check(self.extensions.all_methods())

    @property
    def name(self) -> str:
        """The service's name."""
        return self.info.name

    # what clients are told

    @property
    def instructions(self) -> str | None:
        """Instructions for using the service, for a client that connects now (default: None)."""
        return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the service declares to a client that connects now (default: only
        its extensions)."""
        return ServerCapabilities(extensions=self.extensions.declared)

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        """Return one of the service's own pages for browsers. By default, there are none.

        Args:
            request: The request. Its path is relative to the origin.
            public_url: The server's public URL.
        """
        return None

    def health(self) -> Mapping[str, Any]:
        """Return the answer of the health check (default: `{"status": "ok"}`). Override this method
        to add details, which only callers that `metrics_auth` admits may read. Do not block."""
        own = {"status": "ok"}
        return {**own, "backend": self.backend.state} if self.backend else own

    def masked_health(self) -> Mapping[str, Any]:
        """Return the answer of the health check for callers who need no scope for the details:
        those of a server without `auth=`, or with `metrics_auth=False` (default: `health()`)."""
        return self.health()

    def series(self) -> Mapping[str, Mapping[Attributes, float | list[float]]]:
        """Return further metrics for `metrics=` (default: those of the shared backend, if any).

        Returns:
            For each instrument of `connection/instrumentation.py`, its values by attributes.
        """
        return self.backend.series() if self.backend else {}

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that the service requires (default: none)."""
        return ()

    def header_params(self, tool: str) -> tuple[HeaderParam, ...]:
        """Return the tool parameters that HTTP requests repeat in their headers (default: none)."""
        return ()

    # access

    def admit(self, method: Method, params: Any, caller: Caller) -> PendingAdmission | None:
        """Raise an error if this request must be refused. If that is not decided yet, return the
        rest of the check."""
        pending = None
        try:
            for admission in self._admissions:
                pending = admission(method, params, caller) or pending
        except ProtocolError as refusal:
            self._on_refused(method, params, caller, refusal)
            raise
        return pending and partial(self._admit_later, pending, method, params, caller)

    async def _admit_later(
        self, pending: PendingAdmission, method: Method, params: Any, caller: Caller
    ) -> None:
        try:
            await pending()
        except ProtocolError as refusal:
            self._on_refused(method, params, caller, refusal)
            raise

    def _on_refused(
        self, method: Method, params: Any, caller: Caller, refusal: ProtocolError
    ) -> None:
        for observer in self._observers:
            observer.request_refused(method, params, caller, refusal)

    def expect_round(self, call: Call, state: str) -> Awaitable[None] | None:
        """Exempt the next request from the rate limit, because it answers the questions of this
        call."""
        return None if self.limiter is None else self.limiter.expect_round(call, state)

    def may_notify(self, principal: Principal | None, method: str, params: Any) -> bool:
        """Return whether a caller may be notified of a change (default: True)."""
        return True

    @property
    def ring(self) -> KeyRing:
        """The keys that seal tickets, from the `keys` option of `run` or `asgi`, or the default
        keys."""
        from ..sealing import key_ring

        return key_ring(self._keys)

    # the shared backend

    @property
    def backend(self) -> Backend | NoBackend:
        """The backend that all processes of this service share. Its `state` is "connected", "away"
        or, if there is no backend, "none"."""
        if self._backend is None:
            self._backend = os.environ.get(BACKEND_VARIABLE) or NoBackend()
        if isinstance(self._backend, str):
            from ..backend import Backend

            self._backend = Backend(
                self._backend, name=self.name, keys=self.ring, limits=self.limits
            )
        return self._backend

    def use_backend(self, backend: str | Backend, *, required: bool | None = None) -> None:
        """Use this backend instead of the one that the service was created with. Call this method
        before the service is run.

        Args:
            backend: The URL of the backend, or a `Backend`.
            required: Whether the service refuses to start while the backend is away (default: the
                `backend_required` that the service was created with).
        """
        self._backend = backend
        if required is not None:
            self._backend_required = required

    def connect_bus(self, bus: Bus) -> None:
        """Do nothing: the service does not use the bus that connects its processes."""

    def begin_shutdown(self) -> None:
        """Do nothing: nothing runs in the background."""

    def _share_backend(self) -> None:
        """Pass the backend to the parts that keep state in it. Raise ConfigError if its settings
        are not valid."""
        backend = self.backend
        if not backend or self._shared_backend is backend:
            return
        self._shared_backend = backend
        if (share := getattr(self.guard, "use_backend", None)) is not None:
            share(backend)
        if (own := self.limiter) is not None:
            from .shared_rates import SharedRateLimiter

            shared = SharedRateLimiter(own.rates, backend, self.limits)
            self.limiter = self._shared_limiter = shared
            self._admissions = tuple(
                shared.admit if one == own.admit else one for one in self._admissions
            )

    # observers

    def observe(self, observer: Observer) -> None:
        """Add an observer that sees every call, from outside all middleware, and every refused
        request."""
        self._observers += (observer,)
        self.answer = compose([observer], self.answer)

    def session_ended(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """Notify the observers that a session in the handshake era has ended, and how long it
        lasted."""
        for observer in self._observers:
            observer.session_ended("server", caller.revision, network, seconds)

    def roots_changed(self, caller: Caller) -> None:
        """Do nothing: handlers ask for the roots again."""

    def record_decision(self, record: AuditRecord) -> None:
        """Notify the observers of a decision that is not a call.

        Args:
            record: The decision. `audit()` records it together with the calls.
        """
        for observer in self._observers:
            observer.decision_made(record)

    # calls

    def can_ask(self, call: Call) -> bool:
        """Return whether the handler of this call can ask questions (default: True)."""
        return True

    def can_replay(self, call: Call) -> bool:
        """Return whether the handler of this call may be run again after it asked a question
        (default: True)."""
        return True

    def make_form(self, message: str, schema: Any) -> Form:
        """Create a form from a schema, to be shown with this message."""
        from .forms import Form

        return Form.of(schema).labelled(message)

    def add_handlers(
        self, handlers: Mapping[str, CallHandler], wrapped: Iterable[str] = ()
    ) -> None:
        """Use these handlers from now on. Extensions wrap the handlers, regardless of the order in
        which they were added.

        Args:
            handlers: The handlers, keyed by method. A handler may call `call.protocol_handler`,
                which answers methods that belong to the protocol itself.
            wrapped: Methods whose extensions have changed.
        """
        self._inner_handlers |= handlers
        for name in {*handlers, *wrapped}:
            self._handlers[name] = compose(
                self.extensions.layers.get(name, ()),
                self._inner_handlers.get(name, answer_in_connection),
            )

    def _dispatch(self, call: Call) -> Awaitable[Any]:
        return self._handlers.get(call.method.name, answer_in_connection)(call)

    async def _discover(self, call: Call) -> Any:
        assert call.protocol_handler is not None
        return replace(await call.protocol_handler(call), **self._caching.hints("server/discover"))

    # extensions

    def add_extension(self, extension: Extension) -> None:
        """Offer another protocol extension. Clients in the handshake era that are already connected
        do not see the extension.

        Args:
            extension: The extension.

        Raises:
            ConfigError: Another extension already has the same id or one of the same methods.
        """
        self.extensions.add(extension)
        cacheable = {method.name for method in extension.methods if method.cacheable}
        handlers = {
            name: self._caching.hinting(name, handler) if name in cacheable else handler
            for name, handler in extension.handlers.items()
        }
        self.add_handlers(handlers, wrapped={*extension.around, *extension.instead})
        opened = {
            name for name, layer in extension.around.items() if not isinstance(layer, Observer)
        }
        self._decoded_methods |= opened
        self._personal_methods |= {*opened, *extension.instead}
        if self.extensions.admit not in self._admissions:
            self._admissions += (self.extensions.admit,)

    # notifications

    def add_listener(self, listener: ChangeListener, *, local: bool = True) -> Callable[[], None]:
        """Notify `listener` of every change from now on; with `local`, also of changes that every
        process sees for itself. Return a function that removes the listener."""
        with self._lock:
            self._set_listeners((*self._listeners, listener))
            self._remote_listeners |= frozenset(() if local else (listener,))

        def remove() -> None:
            with self._lock:
                self._set_listeners(tuple(each for each in self._listeners if each is not listener))
                self._remote_listeners -= {listener}

        return remove

    def _set_listeners(self, listeners: tuple[ChangeListener, ...]) -> None:
        self._listeners = listeners

    def _notify(self, method: str, params: Params, *, local: bool = False) -> None:
        """Notify all listeners of a change. `local` means that every process sees the change for
        itself, so the other processes are not notified."""
        for listener in self._listeners:
            if not local or listener not in self._remote_listeners:
                listener(method, params)

    def notify(self, method: str, params: Params) -> None:
        """Send an extension's notification to all clients that declared the extension.

        In the handshake era, every connected client receives it; in the stateless era, only clients
        that listen for changes receive it. This method can be called from any thread.

        Args:
            method: The method of the notification.
            params: The parameters of the notification.

        Raises:
            ConfigError: None of this server's extensions sends this notification.
        """
        row = None if method in METHODS else self.extensions.find_method(method, None)
        if row is None or row.result is not None or row.sender == "client":
            raise ConfigError(
                f"{method!r} is not a notification that this server's extensions send"
            )
        self._notify(method, params)

    def notify_resource_updated(self, uri: str) -> None:
        """Notify all subscribers of a resource that it has changed. This method can be called from
        any thread.

        Args:
            uri: The URI of the resource.
        """
        self._notify("notifications/resources/updated", UriParams(uri=uri))

    # subscriptions

    def on_subscriptions(self, uri: str, active: bool) -> None:
        """Called when a resource gets its first subscription in this process, and when it loses its
        last. Override this method to watch a resource only while somebody is subscribed to it.

        The subscriptions of all sessions and streams count. The calls for one URI alternate, and
        come one at a time, from the thread of the client's event loop. Do not block. An exception
        is logged.

        Args:
            uri: The URI that clients subscribed to, which may be above the URIs that change.
            active: True for the first subscription, False after the last.
        """

    def count_subscriptions(self, started: Iterable[str], ended: Iterable[str]) -> None:
        """Count subscriptions that start and end, and call `on_subscriptions` for the first and the
        last. A service that needs time to prepare for a subscription may count one of its own in
        the meantime.

        Args:
            started: The URI of each subscription that starts.
            ended: The URI of each subscription that ends.
        """
        counts = self._subscription_counts
        with self._subscriptions_lock:  # also during the calls, so that they are in order
            for uri in started:
                counts[uri] = counts.get(uri, 0) + 1
                if counts[uri] == 1:
                    self._report_subscriptions(uri, True)
            for uri in ended:
                counts[uri] -= 1
                if not counts[uri]:
                    del counts[uri]
                    self._report_subscriptions(uri, False)

    def _report_subscriptions(self, uri: str, active: bool) -> None:
        try:
            self.on_subscriptions(uri, active)
        except Exception:
            from ..logs import get_logger

            get_logger("server").exception("on_subscriptions failed for %s", uri)

    # pages that users are sent to

    def check_url(self, url: str, user: str | None) -> str:
        """Check that the visitor to a page is the user for whom `ctx.bind_url` created the URL.

        Args:
            url: The visited URL, or only its ticket.
            user: The visitor's id, as determined by the page.

        Returns:
            The id that was passed to `bind_url`.

        Raises:
            UrlRefused: The visitor is another user, or the ticket is forged or has expired.
        """
        from ..connection.url_elicitation import check_ticket

        return check_ticket(self.ring, url, self.name, user)

    def elicitation_complete(self, id: str) -> None:
        """Notify the client that its user has finished on a page. This method can be called from
        any thread.

        Args:
            id: The id that was passed to `ctx.elicit_url`.
        """
        self._notify(
            "notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=id)
        )


async def answer_in_connection(call: Call) -> Any:
    """Let the connection answer a method that belongs to the protocol itself."""
    if call.protocol_handler is None:
        raise MethodNotFound(f"This server does not support the method {call.name!r}")
    return await call.protocol_handler(call)


def _check_guard(auth: Any) -> Guard | None:
    if auth is None or (
        not isinstance(auth, type) and all(hasattr(auth, name) for name in GUARD_METHODS)
    ):
        return cast("Guard | None", auth)
    what = f"the class {auth.__name__}" if isinstance(auth, type) else f"a {type(auth).__name__}"
    raise ConfigError(
        f'auth= must be a guard, not {what}; use Bearer(jwt("https://issuer.example")), '
        f"Provider(users={{…}}) or ApiKeys({{…}})"
    )


def _find_revisions(names: Sequence[str]) -> tuple[Revision, ...]:
    unknown = [name for name in names if name not in BY_NAME]
    if unknown or not names:
        raise ConfigError(f"Unknown revisions {unknown}; choose from {', '.join(BY_NAME)}")
    return tuple(revision for revision in BY_NAME.values() if revision.name in names)
