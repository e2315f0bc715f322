"""The types that the layers share, which have no behaviour except keeping their values consistent.

A `Channel` moves whole messages as bytes and does not interpret them. Implement it to add your own
transport: `Client(channel)` and `server.serve(channel)` accept any object with its methods
(docs/guides/transports.md).

A `Service` is a server as the layers below see it. A `Caller` is the other side, and a `Call` is
one of its requests. A `Bus` connects the processes of a server. A `Guard` decides who may call a
server over HTTP, and a client presents `Credentials` to it. A `Tap` sees what a client sends and
receives.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Raw, Struct, field

from .errors import DovetailError, ProtocolError
from .jsonrpc.framing import TooLong
from .jsonrpc.messages import Id
from .protocol.base import Implementation
from .protocol.lifecycle import ClientCapabilities, ServerCapabilities
from .protocol.methods import Method
from .revisions import Revision

if TYPE_CHECKING:
    import asyncio

    from .backend import Backend
    from .connection.extension import Extensions
    from .limits import Limits
    from .protocol.header_params import HeaderParam
    from .sealing import KeyRing
    from .server.forms import Form


class LostReply(Struct, frozen=True, eq=False):
    """An item that a channel delivers in place of a reply that will never arrive. The channel
    itself stays open."""

    id: Id
    """The id of the request."""
    error: DovetailError
    """The reason why the reply is missing, which is raised in the task that waits for it."""


Incoming: TypeAlias = bytes | TooLong | LostReply
"""An item that a channel delivers: a message, a TooLong in place of a message that was skipped
because of its size, or a LostReply."""
Receive: TypeAlias = Callable[[Incoming], None]
"""A function that is called with each item that a channel delivers."""
OnClose: TypeAlias = Callable[[Exception | None], None]
"""A function that is called once when a channel has ended, with the reason, or with None if the
channel ended normally."""


class Channel(Protocol):
    """A two-way pipe for messages. All calls are made on the event loop that called `start`."""

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Start delivering messages.

        Args:
            receive: Called with each message, in order.
            ended: Called exactly once, when no more messages will arrive.
        """

    def send(self, data: bytes) -> None:
        """Queue one message. This method never blocks and never raises an error. A lost connection
        is reported to `ended`.

        Args:
            data: The message as JSON, without a newline.
        """

    async def drain(self) -> None:
        """Wait until the queue has room."""

    async def close(self) -> None:
        """Send all queued messages, then end. This method may be called more than once and from any
        task."""


class Network(Struct, frozen=True):
    """The network over which a session runs, in OpenTelemetry's terms. A channel may provide this
    value as `network`."""

    transport: str
    """`pipe` or `tcp`."""
    protocol: str | None = None
    """`http`, `websocket`, or None for a pipe."""
    address: str | None = None
    """The host name or address of the server, on a client."""
    port: int | None = None
    """The port of the server, on a client."""


PIPE = Network("pipe")
HTTP = Network("tcp", "http")
WEBSOCKET = Network("tcp", "websocket")


class Principal(Struct, frozen=True):
    """The authenticated user or program that makes a call."""

    id: str
    """Identifies the user. Sessions, tasks and rate limits belong to this id."""
    client: str | None = None
    """The id of the OAuth client that acts for the user."""
    scopes: tuple[str, ...] = ()
    """The scopes that were granted."""
    claims: Mapping[str, Any] = {}
    """The verified claims of the token."""
    expires: float | None = None
    """When the token expires, in seconds since the epoch (`time.time()`), or None if it never
    expires."""


MAX_ELICITATION_IDS = 64
"""The number of URL elicitations that are remembered for one caller."""
MAX_TASK_IDS = 256
"""The number of tasks for which one caller receives notifications without asking for them."""


class Caller(Struct, eq=False):
    """The other side of a call: its revision, its capabilities, and its identity. Each session has
    one caller. In the stateless era, each request has its own caller."""

    revision: Revision
    """The protocol revision that the caller uses."""
    info: Implementation | None = None
    """The caller's name and version, if it reported them."""
    capabilities: ClientCapabilities = field(default_factory=ClientCapabilities)
    """The capabilities that the caller declared (default: none)."""
    log_level: int | None = 0
    """The lowest severity of the log messages that the caller receives (default: 0, for all
    messages), or None for no messages."""
    state: Any = None
    """The value that the server's lifespan yielded."""
    principal: Principal | None = None
    """The authenticated caller, or None without authentication, as on stdio or without
    `Server(auth=…)`."""
    address: str | None = None
    """The network address from which the caller's newest request came, if any."""
    roots: tuple[Any, ...] | None = None
    """The caller's roots, or None if they have to be requested."""
    roots_generation: int = 0
    """The number of changes to the caller's roots. A list that was requested before the last change
    is outdated."""
    elicitation_ids: tuple[str, ...] = ()
    """The ids of the caller's newest URL elicitations, in the handshake era."""
    on_url_elicitation: Callable[[str], None] | None = None
    """A function that is called with the id of each URL elicitation if other processes need it."""
    subscribed_uris: frozenset[str] = frozenset()
    """The URIs of the resources that the caller subscribed to, in the handshake era."""
    session_id: str = ""
    """The key of the caller's session in the handshake era, or an empty string without a
    session."""
    session_ended: bool = False
    """Whether the caller's session has ended in this process. From then on, the caller cannot
    subscribe."""
    task_ids: tuple[str, ...] = ()
    """The ids of the caller's newest tasks, in the handshake era."""
    on_task: Callable[[str], None] | None = None
    """A function that is called with the id of each task if other processes need it."""
    is_shut_down: bool = False
    """Whether the caller has sent `shutdown`, after which only `exit` is accepted (draft
    dialect)."""

    def invalidate_roots(self) -> None:
        """Forget the roots, so that they are requested again."""
        self.roots, self.roots_generation = None, self.roots_generation + 1

    def remember_elicitation(self, id: str) -> None:
        """Remember a URL elicitation, so that this caller is notified when its user has finished.

        Args:
            id: The id of the elicitation.
        """
        self.elicitation_ids = (*self.elicitation_ids, id)[-MAX_ELICITATION_IDS:]

    def remember_task(self, id: str) -> None:
        """Remember a task, so that this caller is notified of its progress.

        Args:
            id: The id of the task.
        """
        self.task_ids = (*self.task_ids, id)[-MAX_TASK_IDS:]


class Call(Struct, eq=False):
    """A request that is being answered. Middleware sees the call, may change `params`, and passes
    the call on."""

    id: Id
    """The request id that the client chose."""
    method: Method
    """The method of the request."""
    params: Any
    """The params, decoded into the method's type."""
    caller: Caller
    """The other side."""
    connection: Any
    """The stream for messages that belong to the call: notifications, and questions to the
    client."""
    cancelled: bool = False
    """Whether the client has stopped waiting for the reply."""
    timed_out: bool = False
    """Whether the tool's timeout has passed. The call is answered with an error, and the
    handler's result is discarded."""
    abort_error: ProtocolError | None = None
    """The error that ended the call before its reply was sent."""
    finished: bool = False
    """Whether the call was answered or cancelled. No messages that belong to the call are sent
    afterwards."""
    error_code: int | None = None
    """The code of the error with which the call was answered."""
    refusal: ProtocolError | None = None
    """The error with which the call was answered, if its HTTP status is that of a refused request,
    although the call had already been started."""
    admission: "PendingAdmission | None" = None
    """The check that has to pass before the call is handled, if it takes time."""
    protocol_handler: "CallHandler | None" = None
    """The handler for methods that belong to the protocol itself (subscriptions, log levels). The
    server lets this handler answer calls to these methods."""
    principal: Principal | None = None
    """Who sent this request. Each request in a session may carry a different token."""
    address: str | None = None
    """The network address from which the request came."""
    missing_scopes: tuple[str, ...] = ()
    """The scopes that the caller would have needed."""
    progress: Any = None
    """The sender of the call's progress notifications, or None if the client did not ask for
    them."""
    run: Any = None
    """The suspendable call or task that runs the handler, if the handler may outlive the
    request."""
    once_results: dict[str, Any] | None = None
    """The results of `ctx.once` by key, as JSON. A step that is still running is represented by a
    future."""
    input_responses: Mapping[str, Any] = {}
    """The client's answers, for a handler that returns InputRequired."""
    request_state: str | None = None
    """The state that this handler returned with its questions."""
    timeout_clock: Any = None
    """The timer that ends the handler. It is paused while the client is being asked a question."""
    detach: "Callable[[Call], Awaitable[Call]] | None" = None
    """A function that turns the call into a task, if this is still undecided, and returns the call
    with which the handler continues."""
    open_questions: int = 0
    """The number of questions on the back channel that have no answer yet."""
    rounds: int = 0
    """The number of rounds of questions that the call has asked on the back channel."""
    task: "asyncio.Task[None] | None" = None
    """The asyncio task that answers the call."""
    encode_page: "Callable[[Any], Any] | None" = None
    """A function that encodes a page of a list after all middleware. It returns the cached page if
    the middleware left the page unchanged."""
    redacted_page: Raw | None = None
    """The cached page of a list that answers this call. `Server(redact=…)` has been applied to
    it."""
    parent: Any = None
    """On a client: the `parent` of the client's request to which this call belongs, or None if it
    has none or the transport cannot tell. On a server that is mounted in another: the call that the
    outermost server answers."""
    raw_params: Raw = Raw()
    """The params as they were received, including unknown fields; empty if there were none.
    Middleware that changes `params` does not change them."""

    @property
    def origin(self) -> "Call":
        """The call that the outermost server answers: this call, unless the server is mounted in
        another one."""
        return self if self.parent is None else self.parent

    @property
    def revision(self) -> Revision:
        """The revision used to answer this call."""
        return self.caller.revision

    @property
    def name(self) -> str:
        """The method's name, such as `tools/call`."""
        return self.method.name


PendingAdmission: TypeAlias = Callable[[], Awaitable[None]]
"""The rest of a check that takes time, such as a rate limit that many processes share. It raises a
ProtocolError to refuse the request."""
CallHandler: TypeAlias = Callable[[Call], Awaitable[Any]]
"""A function that answers a call with a result, or raises a ProtocolError to reject it."""
Redact: TypeAlias = Callable[[str], str]
"""A function that receives an outgoing string and returns it without its secrets."""
ChangeListener: TypeAlias = Callable[[str, Any], None]
"""A function that is called with each change, as the method and params of its notification, from
any thread."""


class NoBackend:
    """The backend of a server whose processes share no state. It is false."""

    state: Literal["none"] = "none"
    """Says that there is no backend."""

    def __bool__(self) -> Literal[False]:
        return False


class Service(Protocol):
    """A server as the layers below see it. `Server` is one implementation; a gateway is another."""

    info: Implementation
    """The server's name and version."""
    revisions: tuple[Revision, ...]
    """The revisions that the server supports, oldest first."""
    limits: "Limits"
    """Its limits."""
    redact: Redact | None
    """A function that removes secrets from everything that the server sends."""
    replay: bool
    """Whether a handler that asked its client a question is always run again from the beginning, as
    it would be in another process."""
    single_use: bool
    """Whether a `requestState` is accepted only once."""
    guard: "Guard | None"
    """The guard that decides who may call the server over HTTP and WebSocket. None admits
    everybody."""

    @property
    def backend(self) -> "Backend | NoBackend":
        """The backend that the processes of the server share."""

    @property
    def instructions(self) -> str | None:
        """Instructions for the model, for a client that connects now. They may change."""

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares to a client that connects now. They may
        change."""

    def health(self) -> Mapping[str, Any]:
        """Return the server's health for the health check. Anyone may read `status`. Only callers
        that `metrics_auth` admits may read other keys. This method must not block."""

    def masked_health(self) -> Mapping[str, Any]:
        """Return the same without what only callers with the scope `metrics_auth` may read."""

    async def respond(
        self, request: "HttpRequest", public_url: "PublicUrl"
    ) -> "HttpResponse | None":
        """Return one of the service's own pages for browsers, or None if it has no page at this
        path. A service has pages only if it has a guard.

        Args:
            request: The request. Its path is relative to the origin.
            public_url: The server's public URL.
        """

    @property
    def reload_signals(self) -> tuple[int, ...]:
        """The signals that the parent process passes on to workers, which reload their
        configuration."""

    def series(self) -> "Mapping[str, Mapping[tuple[tuple[str, str], ...], float | list[float]]]":
        """Return the server's own metrics: for each instrument, its values by attributes."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that the server's components require."""

    @property
    def extensions(self) -> "Extensions":
        """Its extensions."""

    def may_notify(self, principal: Principal | None, method: str, params: Any) -> bool:
        """Return whether a caller may be notified of a change.

        Args:
            principal: Who would be notified.
            method: The method of the notification.
            params: Its params.
        """

    def admit(self, method: Method, params: Any, caller: Caller) -> PendingAdmission | None:
        """Check a request before it becomes a call. If that takes time, return the rest of the
        check, which has to pass before the call is handled.

        Args:
            method: The method that is requested.
            params: Its params.
            caller: Who requests it.

        Raises:
            Forbidden: The caller lacks a scope that the request requires.
            Overloaded: The caller has reached a rate limit.
        """

    def expect_round(self, call: Call, state: str) -> Awaitable[None] | None:
        """Prepare for the request with which the client answers a call's questions. That request is
        part of the same call, so it does not count against rate limits. If that takes time, return
        what to await before the questions are sent.

        Args:
            call: The call that asks the questions.
            state: The `requestState` that the client will send.
        """

    def answer(self, call: Call) -> Awaitable[Any]:
        """Answer a call.

        Args:
            call: The call. Its `protocol_handler`, if set, is called instead of the server's own
                handler.
        """

    def observe(self, observer: Any) -> None:
        """Add an observer, which runs outside all middleware.

        Args:
            observer: An `Observer`, which sees every call and every rejected request.
        """

    def session_ended(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """Record that a handshake-era session has ended.

        Args:
            caller: The caller of the session.
            network: The network over which the session ran, if known.
            seconds: How long the session lasted.
        """

    def roots_changed(self, caller: Caller) -> None:
        """Do what depends on the roots of a client that have changed.

        Args:
            caller: The caller of the session.
        """

    def can_ask(self, call: Call) -> bool:
        """Return whether a call's handler can ask the client questions.

        Args:
            call: The call, before it is answered.
        """

    def can_replay(self, call: Call) -> bool:
        """Return whether a call's handler may be run again from the beginning after it asked a
        question. If not, the call is held until the client answers, and refused if it is lost.

        Args:
            call: The call, before it is answered.
        """

    def make_form(self, message: str, schema: Any) -> "Form":
        """Return the form for an elicitation.

        Args:
            message: What the user is asked.
            schema: A type or a JSON schema.

        Raises:
            SchemaError: The schema is not a form.
            ConfigError: The form asks for a secret.
        """

    def add_listener(self, listener: ChangeListener, *, local: bool = True) -> Callable[[], None]:
        """Notify a listener of every change from now on.

        Args:
            listener: Called with each change, on any thread.
            local: Whether to include changes that every process sees for itself, such as changes
                to watched files (default: True).

        Returns:
            A function that removes the listener.
        """

    def connect_bus(self, bus: "Bus") -> None:
        """Use the bus that connects the processes of the server, in the current event loop.

        Args:
            bus: The bus, which is left when the server stops.
        """

    def begin_shutdown(self) -> None:
        """Begin nothing in the background any more, because the current event loop will stop within
        `Limits.shutdown`."""

    def count_subscriptions(self, started: Iterable[str], ended: Iterable[str]) -> None:
        """Count the subscriptions to each resource, of all sessions and streams in this process.
        This method may be called from any thread and must not raise an error.

        Args:
            started: The URI of each subscription that starts.
            ended: The URI of each subscription that ends.
        """

    def header_params(self, tool: str) -> "tuple[HeaderParam, ...]":
        """Return the tool parameters that clients repeat in HTTP headers.

        Args:
            tool: The name of the tool. An unknown tool has no such parameters.
        """


WORKER_VARIABLE = "DOVETAIL_WORKER"
"""The environment variable that holds the number of a worker, starting at 1."""
MEMBERS_CHANGED = "bus/parted"
"""The topic on which a bus itself reports that another process has left, or that this process has
lost or regained contact with all other processes."""


class Bus(Protocol):
    """The connection between the processes of a server. A payload is any value that MessagePack can
    encode."""

    alone: bool
    """Whether this process cannot reach any other process."""

    def on(self, topic: str, handler: Callable[[Any], Any]) -> None:
        """Handle messages and questions from other processes on a topic.

        Args:
            topic: The topic. A new handler replaces the topic's previous handler.
            handler: Called with the payload. The result of the handler or of its coroutine is the
                answer. None means that this process has no answer.
        """

    def publish(self, topic: str, payload: Any) -> None:
        """Send a message to every other process. This method never blocks and never raises an
        error.

        Args:
            topic: The topic.
            payload: The message.
        """

    async def ask(self, topic: str, payload: Any, timeout: float = 1.0) -> Any:
        """Ask all other processes. Return the first answer that is not None, or None if there is no
        such answer.

        Args:
            topic: The topic.
            payload: The question.
            timeout: How long to wait, in seconds (default: 1).

        Raises:
            TooLarge: The question or the answer is longer than the bus can carry.
        """

    async def close(self) -> None:
        """Leave the bus."""


class HttpRequest(Struct, kw_only=True):
    """An HTTP request, as a serverless function, a guard or a test sees it."""

    method: str = "POST"
    """The HTTP method."""
    path: str = "/"
    """The path of the URL."""
    headers: Mapping[str, str] = {}
    """The headers. Names are in lower case."""
    body: bytes = b""
    """The body, complete."""
    url: str = ""
    """The full URL with its query, either as the client sees it or as the target of an outgoing
    request."""
    address: str | None = None
    """The network address of the client."""


class HttpResponse(Struct, kw_only=True):
    """The response to an HttpRequest."""

    status: int = 200
    """The HTTP status."""
    headers: Mapping[str, str] = {}
    """The headers."""
    body: bytes = b""
    """The body, complete."""


Fetch: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""A function that sends a request and returns the response, regardless of its status, or raises
ConnectFailed or TimedOut. Redirects are not followed, sizes and times are limited, and addresses on
the local network are rejected unless they are allowed."""


class PublicUrl(Struct, frozen=True, eq=False):
    """The public URL of a guarded server, and the keys and functions that its guard may use."""

    url: str
    """The URL of the endpoint, for which tokens must be issued."""
    base: str
    """The base URL of the guard's own pages, which consists of the origin and the mount point,
    without a trailing slash."""
    ring: "KeyRing"
    """The server's keys."""
    fetch: Fetch
    """A function that fetches URLs supplied by strangers."""
    fetch_trusted: Fetch | None = None
    """A function that fetches URLs from the configuration, which may be on the local network."""
    scopes: tuple[str, ...] = ()
    """All scopes that the server's tools, resources and prompts require."""
    is_configured: bool = True
    """Whether the URL comes from the server's configuration. Otherwise, the URL comes from the
    request, and an attacker may have chosen it."""


class RequestIdentity(Struct, frozen=True, eq=False):
    """The sender of a request, as identified by the network and the guard."""

    address: str | None = None
    """The network address of the client."""
    principal: Principal | None = None
    """The caller, as the guard identified it."""
    public_url: PublicUrl | None = None
    """The public URL at which the guard admitted the request."""
    request: HttpRequest | None = None
    """The request that the guard admitted."""
    query: bytes = b""
    """The query of the request's URL."""


class Guard(Protocol):
    """An object that decides who may call a server. `dovetail.auth` provides several guards, and
    `Server(auth=…)` accepts any.

    A guard may have six optional members. `admit_now(request, public_url)` is called before
    `admit`. It returns the caller if it can do so without waiting, and otherwise None; requests of
    such callers are answered faster. A subclass that overrides only `admit` does not use the
    `admit_now` that it inherits. `recheck(request, public_url)` is called instead of `admit`
    for a request that was admitted before and is still being answered, because some proofs can be
    used only once. `check_base_url(base)` may raise an error before the first request if the guard
    cannot work at the server's URL. `secrets` names the headers that are hidden from handlers.
    `await sign_in(request, public_url, purpose)` returns the id of the user of a browser (the same
    as `Principal.id`), or the page on which they sign in; a gateway whose users connect their own
    accounts needs it. `use_backend(backend)` is called before the server is run, if its processes
    share a backend, so that the guard can keep its state there.
    """

    async def admit(self, request: HttpRequest, public_url: PublicUrl) -> Principal | HttpResponse:
        """Return the caller's identity, or the response that rejects the request.

        Args:
            request: The request, without its body.
            public_url: The server's public URL.
        """

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        """Return one of the guard's own pages, such as its metadata, or None if the guard has no
        page at this path.

        Args:
            request: The request. Its path is relative to the origin.
            public_url: The server's public URL.
        """

    def challenge(
        self, public_url: PublicUrl, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """Return the headers for a response to a caller who was admitted but lacks scopes.

        Args:
            public_url: The server's public URL.
            principal: The caller.
            scopes: The scopes that are missing.
        """


class Credentials(Protocol):
    """A client's credentials. `dovetail.auth` provides several kinds, and `Client(auth=…)` accepts
    any. All methods except `bind` are called on the object that `bind` returned, from one event
    loop."""

    def bind(self, url: str, fetch: Fetch) -> "Credentials":
        """Return these credentials for one server.

        Args:
            url: The URL of the server.
            fetch: A function that sends the requests required to obtain a token.
        """

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers to send with a request, after renewing a token that is about to
        expire.

        Args:
            method: The HTTP method of the request.
            url: Its URL.
        """

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Handle a 401 or 403. Return True to send the request again with new `headers`.

        Args:
            method: The HTTP method of the request.
            url: Its URL.
            answer: The response.

        Raises:
            Unauthorized: Only `authorize` can solve the problem (`curable`), or nothing can.
        """

    def on_response(self, answer: HttpResponse) -> None:
        """Process any other response, because its headers may be relevant (for example, a nonce).

        Args:
            answer: The response, without its body.
        """

    async def authorize(self) -> None:
        """Perform an interactive login, which may take any amount of time, after `on_refused`
        raised a `curable` Unauthorized."""


Direction: TypeAlias = Literal["to_server", "to_client"]
"""Who receives a message."""


class HttpExchange(Struct, frozen=True, kw_only=True):
    """An HTTP request of a client, and the head of its response. Credentials are masked."""

    method: str
    """The HTTP method."""
    url: str
    """The full URL."""
    request_headers: Mapping[str, str]
    """The headers of the request. Names are in lower case."""
    status: int | None = None
    """The HTTP status, or None if there was no response."""
    response_headers: Mapping[str, str] = {}
    """The headers of the response. Names are in lower case."""
    started: float
    """When the request was sent, in seconds since the epoch (`time.time()`)."""
    ended: float
    """When the head of the response arrived, or the request failed. The body may arrive later."""
    error: str | None = None
    """Why there was no response, in one line."""
    message_id: Id | None = None
    """The id of the JSON-RPC message that the request carried, if it has one. A request that is
    sent again, for example after a login, carries the same message."""
    message_method: str | None = None
    """The method of that message. A reply to the server has an id and no method, a notification a
    method and no id, and a request both."""


AuthStepName: TypeAlias = Literal[
    "challenge",
    "resource_metadata",
    "server_metadata",
    "registration",
    "authorize",
    "token",
    "call",
    "revocation",
]
"""A step of a login, in order: the server refuses a request (401 or 403), the client reads the
metadata of the server and of its authorization server, registers itself, sends the user to the
login page, gets a token, and sends its request again. `revocation` belongs to a logout."""


class AuthStep(Struct, frozen=True, kw_only=True):
    """One step of a login: an HTTP request and its response. Credentials are masked."""

    name: AuthStepName
    """The step. A step may take more than one request."""
    request: HttpRequest
    """The request. For `authorize`, its URL is the page that the user visits. For `challenge` and
    `call`, it has no headers and no body, because the request is also an `HttpExchange`."""
    reply: HttpResponse | None = None
    """The response, or None if there was none. For `authorize`, it is the redirect with which the
    user returned. For `challenge` and `call`, it has no body."""
    problem: str | None = None
    """What is wrong with this step, if it failed."""
    started: float
    """When the step began, in seconds since the epoch (`time.time()`)."""
    ended: float
    """When the step ended."""


class LostMessage(Struct, frozen=True, kw_only=True):
    """A message that was not delivered, or whose reply will not arrive. The tap may have seen the
    message before, when it was passed to the transport."""

    direction: Direction
    """Who should have received the message. A reply that will not arrive is lost on its way to the
    client."""
    reason: str
    """Why the message was lost."""
    id: Id | None = None
    """The id of the request that failed or that has no reply, if known."""
    data: bytes = b""
    """The message, or as much of it as is known: only the beginning of a message that was too long,
    and nothing of a reply."""
    at: float
    """When the loss was noticed, in seconds since the epoch (`time.time()`)."""


class Tap:
    """An object that sees what a client sends and receives: `Client(target, tap=…)`.

    The methods are called on the event loop of the client and must return quickly. If one raises an
    error, the first error is logged, and the client continues. Inherit from this class to implement
    only some of the methods.

    A tap may have one optional member. If `show_secrets` is true when the client is created,
    credentials in exchanges and login steps are not masked.
    """

    def message(self, direction: Direction, data: bytes, at: float) -> None:
        """See a JSON-RPC message, or a batch of them.

        Args:
            direction: Who receives the message.
            data: The message exactly as it is sent, with all secrets that it contains
                (`dovetail.masking.mask_message` removes credentials).
            at: The time, in seconds since the epoch (`time.time()`).
        """

    def exchange(self, exchange: HttpExchange) -> None:
        """See an HTTP request, when the head of its response has arrived or the request has failed.

        Args:
            exchange: The request and the head of its response.
        """

    def auth_step(self, step: AuthStep) -> None:
        """See one step of a login, when it has ended.

        Args:
            step: The request and the response.
        """

    def lost(self, lost: LostMessage) -> None:
        """See that a message was lost.

        Args:
            lost: The message and the reason.
        """
