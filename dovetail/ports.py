"""What the layers hand each other. Types only; no behaviour.

A `Channel` moves whole messages as bytes and knows nothing of what they mean. It is the seam for transports of your own:
`Client(channel)` and `server.serve(channel)` take anything of this shape (docs/guides/transports.md).

A `Service` is what a server is to the layers below it, a `Caller` is who asks, a `Call` is what is asked. Where requests
come one by one, as over HTTP, a `Desk` takes them; a `Bus` joins the processes of one server.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct

from .errors import DovetailError, ProtocolError
from .jsonrpc.framing import TooLong
from .jsonrpc.messages import Failure, Id, Request, Result
from .protocol.base import Implementation
from .protocol.capabilities import ClientCapabilities, ServerCapabilities
from .protocol.methods import Method
from .revisions import Revision

if TYPE_CHECKING:
    import asyncio

    from .limits import Limits
    from .protocol.mirrors import Mirror


class Lost(Struct, frozen=True, eq=False):
    """Stands for the reply to a request that will never come, where the rest of the conversation goes on."""

    id: Id
    error: DovetailError


Incoming: TypeAlias = bytes | TooLong | Lost
"""One message as it came, a TooLong for one that was over the bound and has been skipped, or a Lost."""
Receive: TypeAlias = Callable[[Incoming], None]
"""Takes what a channel delivers."""
Ended: TypeAlias = Callable[[Exception | None], None]
"""Hears once that nothing more will come: None for an orderly end, else the reason."""


class Channel(Protocol):
    """A two-way pipe for messages. All calls come from the event loop that called `start`."""

    def start(self, receive: Receive, ended: Ended) -> None:
        """Begin to deliver. `receive` is called for each message in order, `ended` exactly once, at the end."""

    def send(self, data: bytes) -> None:
        """Queue one message, without newline. Never blocks and never raises: a lost connection shows in `ended`."""

    async def drain(self) -> None:
        """Wait until there is room in the queue again."""

    async def close(self) -> None:
        """Send what is queued, then end. May be called twice, and from any task."""


class Principal(Struct, frozen=True):
    """Who is calling, as an authenticated transport knows it."""

    id: str
    client: str | None = None
    scopes: tuple[str, ...] = ()
    claims: Mapping[str, Any] = {}


class Caller:
    """The other side of a call: its revision, what it declared, who it is. One per connection, or one per request in the
    stateless era."""

    __slots__ = ("capabilities", "info", "log_level", "pages", "principal", "revision", "roots", "state", "subscribed")

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
        self.state = state
        """What the server's lifespan gave."""
        self.roots: tuple[Any, ...] | None = None
        """Its roots, as long as they can be relied on."""
        self.pages: tuple[str, ...] = ()
        """The ids of the pages that its user was last sent to, in the handshake era."""
        self.subscribed: frozenset[str] = frozenset()
        """The resources whose changes it wants to hear of, in the handshake era."""


class Call(Struct, eq=False):
    """One request being answered. Middleware sees it, may change `params`, and passes it on."""

    id: Id
    method: Method
    params: Any
    caller: Caller
    connection: Any
    cancelled: bool = False
    """Whether nobody waits for the answer any more."""
    late: bool = False
    """Whether it ran out of its own time; it is answered, but the work is in vain."""
    cut_off: ProtocolError | None = None
    """Why it was ended though somebody waits for it."""
    over: bool = False
    """Whether it was answered or cancelled: nothing that belongs to it may be sent from now on."""
    failed: int | None = None
    """The code of the error that it was answered with."""
    local: "Answer | None" = None
    """Answers what only the connection can (subscriptions, levels); the server passes such a call on to it."""
    progress: Any = None
    run: Any = None
    """The handler at work, where it may outlive the request (`connection/rounds.py`)."""
    kept: dict[str, Any] | None = None
    """What `ctx.once` has done, as JSON; a future where it is at it."""
    given: "Mapping[str, Any]" = {}
    """The answers that came with the request, where the handler does the asking itself."""
    own: str | None = None
    """The state that the handler gave its question along."""
    clock: Any = None
    """What ends the handler when its time is over; stands still while the client is asked."""
    task: "asyncio.Task[None] | None" = None

    @property
    def revision(self) -> Revision:
        """The revision that this call is answered in."""
        return self.caller.revision

    @property
    def name(self) -> str:
        """The method's name, such as `tools/call`."""
        return self.method.name


Answer: TypeAlias = Callable[[Call], Awaitable[Any]]
"""Answers a call with a result of the vocabulary, or raises a ProtocolError to refuse it."""
Redact: TypeAlias = Callable[[str], str]
"""Takes a string on its way out, and gives back what may be seen of it."""
Listener: TypeAlias = Callable[[str, Any], None]
"""Hears of a change, as the notification that tells it: method name and params. May be called from any thread."""


class Service(Protocol):
    """What a server is to the layers below."""

    info: Implementation
    instructions: str | None
    capabilities: ServerCapabilities
    revisions: tuple[Revision, ...]
    limits: "Limits"
    redact: Redact | None
    replay: bool
    """Whether a handler that asked is always run again from its beginning, as another process would have to."""

    def answer(self, call: Call) -> Awaitable[Any]:
        """Answer one call."""

    def asks(self, call: Call) -> bool:
        """Whether what answers this call is able to ask its client."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every change from now on; returns what ends it."""

    def mirrors(self, tool: str) -> "tuple[Mirror, ...]":
        """The parameters of a tool that are repeated in HTTP headers."""


class Desk(Protocol):
    """Where a server takes requests that come one by one: what a transport without a connection hands them to."""

    service: Service

    def caller(self, meta: dict[str, Any]) -> Caller:
        """Who is calling, as a request of the stateless era says itself."""

    def known(self, revision: Revision, info: Implementation | None, capabilities: ClientCapabilities) -> Caller:
        """Who is calling, as a session says that was opened before."""

    def welcome(self, request: Request) -> tuple[Caller, bytes]:
        """The caller that an `initialize` describes, and the reply to it."""

    def call(self, id: Id, method: Method, params: Any, caller: Caller, connection: Any) -> Call:
        """A request as the call that it makes. `connection` is where what belongs to it goes."""

    def reply(self, call: Call) -> Coroutine[Any, Any, bytes | None]:
        """The reply to a call as bytes; None where nobody waits for one any more."""

    def start(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        """Answer a call in a task of its own."""

    def failure(self, id: Id | None, error: ProtocolError, revision: Revision | None) -> bytes:
        """The reply to a request that is refused."""

    def notification(self, call: Call, method: str, params: Any) -> bytes | None:
        """A notification that belongs to a call, as long as somebody waits for it and its revision has it."""

    def question(self, call: Call, id: Id, method: Method, params: Any) -> bytes:
        """A question to the client of a call, as bytes."""

    def outcome(self, method: Method, answer: "Result | Failure") -> Any:
        """What the client answered to it; raises where that was an error."""

    def cancel(self, call: Call) -> None:
        """Nobody waits for this call any more."""

    def cut_off(self, call: Call, reason: ProtocolError) -> None:
        """End a call that somebody still waits for; this is what it is told."""

    def hears(self, caller: Caller, method: str, params: Any) -> bool:
        """Whether a caller of the handshake era is told of this change."""

    def change(self, revision: Revision, method: str, params: Any) -> bytes | None:
        """A change as such callers are told of it."""


PARTED = "bus/parted"
"""The topic under which a bus itself speaks: another process has left, or this one lost all others, or found them again."""


class Bus(Protocol):
    """How the processes of one server reach each other. Payloads are what MessagePack can carry."""

    alone: bool
    """Whether no other process can be reached."""

    def on(self, topic: str, handler: Callable[[Any], Any]) -> None:
        """Hear what others publish or ask under this topic. What the handler returns, unless None, is the answer."""

    def publish(self, topic: str, payload: Any) -> None:
        """Tell every other process. Never blocks and never raises."""

    async def ask(self, topic: str, payload: Any, patience: float = 1.0) -> Any:
        """The first answer of another process that is not None; None where nobody has one, or not in that many seconds."""

    async def close(self) -> None:
        """Leave."""


class HttpRequest(Struct, kw_only=True):
    """A request as a serverless function, a guard or a test has it. Header names are lower case."""

    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = {}
    body: bytes = b""


class HttpResponse(Struct, kw_only=True):
    """What answers it."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
