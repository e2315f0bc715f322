"""What the layers hand each other. Types only; no behaviour but what keeps a value true to itself.

A `Channel` moves whole messages as bytes and knows nothing of what they mean. It is the seam for
transports of your own: `Client(channel)` and `server.serve(channel)` take anything of this shape
(docs/guides/transports.md).

A `Service` is what a server is to the layers below it, a `Caller` is who asks, a `Call` is what is
asked. Where requests come one by one, as over HTTP, a `Desk` takes them; a `Bus` joins the
processes of one server.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct

from .errors import DovetailError, ProtocolError
from .jsonrpc.framing import TooLong
from .jsonrpc.messages import Id
from .protocol.base import Implementation
from .protocol.lifecycle import ClientCapabilities, ServerCapabilities
from .protocol.methods import Method
from .revisions import Revision

if TYPE_CHECKING:
    import asyncio

    from .connection.extension import Extensions
    from .limits import Limits
    from .protocol.header_params import HeaderParam
    from .sealing import KeyRing
    from .server.forms import Form


class LostReply(Struct, frozen=True, eq=False):
    """Stands for the reply to a request that will never come, where the rest of the conversation
    goes on."""

    id: Id
    error: DovetailError


Incoming: TypeAlias = bytes | TooLong | LostReply
"""One message as it came, a TooLong for one that was over the bound and has been skipped, or a
Lost."""
Receive: TypeAlias = Callable[[Incoming], None]
"""Takes what a channel delivers."""
OnClose: TypeAlias = Callable[[Exception | None], None]
"""Hears once that nothing more will come: None for an orderly end, else the reason."""


class Channel(Protocol):
    """A two-way pipe for messages. All calls come from the event loop that called `start`."""

    def start(self, receive: Receive, ended: OnClose) -> None:
        """Begin to deliver. `receive` is called for each message in order, `ended` exactly once, at
        the end."""

    def send(self, data: bytes) -> None:
        """Queue one message, without newline. Never blocks and never raises: a lost connection
        shows in `ended`."""

    async def drain(self) -> None:
        """Wait until there is room in the queue again."""

    async def close(self) -> None:
        """Send what is queued, then end. May be called twice, and from any task."""


class Network(Struct, frozen=True):
    """What a conversation goes over, by the names that OpenTelemetry has for it. A channel may have
    one, as `network`."""

    transport: str
    protocol: str | None = None
    address: str | None = None
    """Where the server is, as a client knows it …"""
    port: int | None = None
    """… and the port there."""


PIPE = Network("pipe")
HTTP = Network("tcp", "http")
WEBSOCKET = Network("tcp", "websocket")


class Principal(Struct, frozen=True):
    """Who is calling, as an authenticated transport knows it."""

    id: str
    client: str | None = None
    scopes: tuple[str, ...] = ()
    claims: Mapping[str, Any] = {}
    expires: float | None = None
    """When what it proved itself with ends, as `time.time()` counts."""


MAX_PAGES = 64
"""Pages that are remembered of one caller."""
MAX_TASKS = 256
"""Tasks of one caller that it is told of without asking."""


class Caller:
    """The other side of a call: its revision, what it declared, who it is. One per connection, or
    one per request in the stateless era."""

    __slots__ = (
        "address", "capabilities", "elicitation_ids", "info", "log_level", "on_url_elicitation",
        "principal", "revision", "roots", "roots_generation", "session_id", "state",
        "subscribed_uris", "task_ids",
    )  # fmt: skip

    def __init__(
        self,
        revision: Revision,
        info: Implementation | None = None,
        capabilities: ClientCapabilities | None = None,
        log_level: int | None = 0,
        state: Any = None,
    ) -> None:
        self.revision = revision
        self.info = info
        self.capabilities = ClientCapabilities() if capabilities is None else capabilities
        self.log_level = log_level
        """The lowest rank of log message it wants; None for none at all."""
        self.principal: Principal | None = None
        """Who it is; None where nobody asked, as on stdio or without `Server(auth=…)`."""
        self.address: str | None = None
        """Where it calls from, on a network; of a session, where its newest request came from."""
        self.state = state
        """What the server's lifespan gave."""
        self.roots: tuple[Any, ...] | None = None
        """Its roots, as long as they can be relied on."""
        self.roots_generation = 0
        """How often it was told that they changed: an answer that was on its way meanwhile is not
        to be relied on."""
        self.elicitation_ids: tuple[str, ...] = ()
        """The ids of the pages that its user was last sent to, in the handshake era."""
        self.on_url_elicitation: Callable[[str], None] | None = None
        """Told of each of them, where other processes have to know."""
        self.subscribed_uris: frozenset[str] = frozenset()
        """The resources whose changes it wants to hear of, in the handshake era."""
        self.session_id: str = ""
        """What its conversation goes by, in the handshake era, where there is one."""
        self.task_ids: tuple[str, ...] = ()
        """The tasks that it began last, in the handshake era."""

    def invalidate_roots(self) -> None:
        """Its roots are to be asked for again."""
        self.roots, self.roots_generation = None, self.roots_generation + 1

    def remember_elicitation(self, id: str) -> None:
        """Its user is sent to a page: that is whom it will concern that they are done there."""
        self.elicitation_ids = (*self.elicitation_ids, id)[-MAX_PAGES:]

    def remember_task(self, id: str) -> None:
        """It began a task: it is told how that goes on."""
        self.task_ids = (*self.task_ids, id)[-MAX_TASKS:]


class Call(Struct, eq=False):
    """One request being answered. Middleware sees it, may change `params`, and passes it on."""

    id: Id
    method: Method
    params: Any
    caller: Caller
    connection: Any
    cancelled: bool = False
    """Whether nobody waits for the answer any more."""
    timed_out: bool = False
    """Whether it ran out of its own time; it is answered, but the work is in vain."""
    abort_error: ProtocolError | None = None
    """Why it was ended though somebody waits for it."""
    finished: bool = False
    """Whether it was answered or cancelled: nothing that belongs to it may be sent from now on."""
    error_code: int | None = None
    """The code of the error that it was answered with."""
    protocol_handler: "CallHandler | None" = None
    """Answers what only the connection can (subscriptions, levels); the server passes such a call
    on to it."""
    principal: Principal | None = None
    """Who asked this: of one caller, each request may come with another token …"""
    address: str | None = None
    """… and from another place."""
    missing_scopes: tuple[str, ...] = ()
    """The scopes for want of which it failed."""
    progress: Any = None
    run: Any = None
    """The handler at work, where it may outlive the request (`connection/input_requests.py`)."""
    once_results: dict[str, Any] | None = None
    """What `ctx.once` has done, as JSON; a future where it is at it."""
    input_responses: "Mapping[str, Any]" = {}
    """The answers that came with the request, where the handler does the asking itself."""
    request_state: str | None = None
    """The state that the handler gave its question along."""
    timeout_clock: Any = None
    """What ends the handler when its time is over; stands still while the client is asked."""
    detach: "Callable[[Call], Awaitable[Call]] | None" = None
    """What makes a task of it, where that is still to be decided: gives the call as the handler
    goes on with it."""
    open_questions: int = 0
    """Questions down the back channel that have no answer yet."""
    rounds: int = 0
    """How often it began to ask there."""
    task: "asyncio.Task[None] | None" = None

    @property
    def revision(self) -> Revision:
        """The revision that this call is answered in."""
        return self.caller.revision

    @property
    def name(self) -> str:
        """The method's name, such as `tools/call`."""
        return self.method.name


CallHandler: TypeAlias = Callable[[Call], Awaitable[Any]]
"""Answers a call with a result of the vocabulary, or raises a ProtocolError to refuse it."""
Redact: TypeAlias = Callable[[str], str]
"""Takes a string on its way out, and gives back what may be seen of it."""
ChangeListener: TypeAlias = Callable[[str, Any], None]
"""Hears of a change, as the notification that tells it: method name and params. May be called from
any thread."""


class Service(Protocol):
    """What a server is to the layers below."""

    info: Implementation
    instructions: str | None
    capabilities: ServerCapabilities
    revisions: tuple[Revision, ...]
    limits: "Limits"
    redact: Redact | None
    replay: bool
    """Whether a handler that asked is always run again from its beginning, as another process would
    have to."""

    guard: "Guard | None"
    """Who is let in over HTTP and WebSocket; None lets everybody in."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that something here needs."""

    def may_notify(self, principal: Principal | None, method: str, params: Any) -> bool:
        """Whether this caller may know of a change."""

    @property
    def extensions(self) -> "Extensions":
        """What its extensions add."""

    def admit(self, method: Method, params: Any, caller: Caller) -> None:
        """Whether this request may begin at all: raises Forbidden where the caller's scopes do not
        cover it, Overloaded where it has asked too often."""

    def answer(self, call: Call) -> Awaitable[Any]:
        """Answer one call."""

    def observe(self, observer: Any) -> None:
        """Let one more `Observer` look at every call, from outside of all middleware."""

    def session_ended(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """Hear that a session of the handshake era has ended, after so many seconds."""

    def can_ask(self, call: Call) -> bool:
        """Whether what answers this call is able to ask its client."""

    def make_form(self, message: str, schema: Any) -> "Form":
        """The form that a schema is, to be put to a user with this message; SchemaError or
        ConfigError where it is none."""

    def add_listener(self, listener: ChangeListener, *, watched: bool = True) -> Callable[[], None]:
        """Tell `listener` of every change from now on, of those in files only where it wants what
        is `watched`; returns what ends it."""

    def header_params(self, tool: str) -> "tuple[HeaderParam, ...]":
        """The parameters of a tool that are repeated in HTTP headers."""


MEMBERS_CHANGED = "bus/parted"
"""The topic under which a bus itself speaks: another process has left, or this one lost all others,
or found them again."""


class Bus(Protocol):
    """How the processes of one server reach each other. Payloads are what MessagePack can carry."""

    alone: bool
    """Whether no other process can be reached."""

    def on(self, topic: str, handler: Callable[[Any], Any]) -> None:
        """Hear what others publish or ask under this topic. What the handler returns, unless None,
        is the answer."""

    def publish(self, topic: str, payload: Any) -> None:
        """Tell every other process. Never blocks and never raises."""

    async def ask(self, topic: str, payload: Any, timeout: float = 1.0) -> Any:
        """The first answer of another process that is not None; None where nobody has one, or not
        in that many seconds."""

    async def close(self) -> None:
        """Leave."""


class HttpRequest(Struct, kw_only=True):
    """A request as a serverless function, a guard or a test has it. Header names are lower case."""

    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = {}
    body: bytes = b""
    url: str = ""
    """All of the address, with the query: as the client sees it, or where a request of our own
    goes."""
    address: str | None = None
    """Where it comes from."""


class HttpResponse(Struct, kw_only=True):
    """What answers it."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""


Fetch: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Sends a request of our own and gives back the answer, whatever its status; raises ConnectFailed
or TimedOut. Redirects are not followed, sizes and times are bounded, and addresses of the local
network are refused unless they are allowed."""


class PublicUrl(Struct, frozen=True, eq=False):
    """Where a guarded server stands, as the world sees it."""

    url: str
    """The endpoint: what a token has to be for."""
    base: str
    """What the guard's own pages lie below: origin and mount point, without a slash at the end."""
    ring: "KeyRing"
    fetch: Fetch
    """For addresses that strangers name."""
    fetch_trusted: Fetch | None = None
    """For addresses that the configuration names, which may well be on the local network."""
    scopes: tuple[str, ...] = ()
    """What its tools, resources and prompts need between them."""
    is_configured: bool = True
    """Whether that is the server's own word; else it is only what the request says, which may be of
    an attacker's choice."""


class RequestIdentity(Struct, frozen=True, eq=False):
    """Who sent a request, as far as a network and the guard can tell."""

    address: str | None = None
    principal: Principal | None = None
    public_url: PublicUrl | None = None
    """Where it was let in, by a guard."""
    request: HttpRequest | None = None
    """What it was let in with."""


class Guard(Protocol):
    """Decides who is let in. `dovetail.auth` has some; `Server(auth=…)` takes any.

    It may have more than this. `again(request, site)` is asked in place of `admit` about a request
    that was let in before and is still being answered, for a proof that can be used once.
    `stand(base)` may complain of the URL that the server is served at, before anybody calls.
    `secrets` names headers that are its own business, which handlers do not get to see.
    """

    async def admit(self, request: HttpRequest, site: PublicUrl) -> Principal | HttpResponse:
        """Who is calling, or the refusal."""

    async def respond(self, request: HttpRequest, site: PublicUrl) -> HttpResponse | None:
        """A page of the guard's own, such as its metadata; None where this is none. Paths are those
        of the origin."""

    def challenge(
        self, site: PublicUrl, principal: Principal, scopes: tuple[str, ...]
    ) -> Mapping[str, str]:
        """The headers of a refusal to a caller that was let in, but lacks these scopes."""


class Credentials(Protocol):
    """What a client gets in with. `dovetail.auth` has some; `Client(auth=…)` takes any. The one
    that is bound to a server (`bind`) is asked; all calls come from one event loop."""

    def bind(self, url: str, fetch: Fetch) -> "Credentials":
        """The same, for the server at this URL."""

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """What goes with this request; renews what is about to end."""

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """The server answered 401 or 403. True: ask again at once, with what `headers` says now.
        Raises Unauthorized where only `authorize` can help, and where nothing can."""

    def on_response(self, answer: HttpResponse) -> None:
        """Any other answer, of which the headers may matter (nonces)."""

    async def authorize(self) -> None:
        """Do what takes a person, however long it takes, after `refused` raised an Unauthorized
        that is `curable`."""
