"""Every bound in one frozen value. Reaching one gives a clear error to whoever caused it.

`Server(limits=Limits(threads=8))` changes one and keeps the rest. Sizes are bytes, times are
seconds.
"""

from msgspec import Struct

from .errors import ConfigError

NEEDED = ("incoming", "outgoing", "threads", "isolated")
"""Without any of these nothing would ever be done."""
KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True, kw_only=True):
    """All bounds, with their defaults."""

    # one message
    incoming: int = 128 * MIB
    """The longest message that is read; a longer one is refused and skipped."""
    outgoing: int = 128 * MIB
    """The longest message that is sent; a longer result becomes an error."""

    # one connection
    in_flight: int = 4096
    """Requests of one peer being answered at once; the next one is refused."""
    write_buffer: int = 1 * MIB
    """Bytes waiting to be written before `await ctx.info(…)` waits and reading pauses."""
    subscriptions: int = 1024
    """Resources that one connection may subscribe to."""
    progress_interval: float = 0.02
    """The least time between two progress notifications of one request; what falls between is
    coalesced."""
    ping_interval: float | None = None
    """Seconds between pings to the peer; None sends none."""
    ping_timeout: float = 10.0
    """How long a ping may take before the connection counts as dead."""

    # asking the client
    asks: int = 100
    """How often in a row one call may ask, before it is taken for one that never ends."""
    ask_time: float = 3600.0
    """How long an answer may take that the call waits for on its connection or in its session."""
    parked: int = 1000
    """Calls that wait here for their client to come back with answers; the oldest are run again
    when it does."""
    parked_time: float = 600.0
    """How long they wait."""
    state_life: float = 3600.0
    """How long a client may take to come back with answers at all."""
    journal: int = 256 * KIB
    """The answers of one call so far, and what it did once, which the client carries along."""

    # running tools
    threads: int = 32
    """Worker threads for plain `def` functions."""
    thread_queue: int = 4096
    """Calls that may wait for a worker thread; the next one is refused."""
    isolated: int = 8
    """Child processes for `isolate="process"` running at once."""
    isolated_memory: int = 1024 * MIB
    """Address space that an isolated tool may use on top of what Python itself maps."""

    # tasks
    tasks: int = 10_000
    """Tasks that are kept at once, running or over; the next one is refused."""
    tasks_each: int = 1000
    """Those of one caller that is known, or of one session."""
    task_bytes: int = 256 * MIB
    """Bytes that all of them take, in memory or on disk."""
    task_life: float = 3600.0
    """How long a task is kept, from its beginning, where the caller does not say."""
    task_life_max: float = 86400.0
    """How long at most, whatever the caller says."""
    task_attempts: int = 5
    """How often a task is taken up after a crash without having got any further; then it has
    failed."""
    task_poll: float = 2.0
    """How often a client is told to look at a task that takes long; at a young one it may look more
    often."""

    # skills
    skills: int = 100_000
    """Skills, and files of skills, that a client takes from one server's list."""
    skill_files: int = 512
    """Files of one skill, on both sides; every host has to take that many."""
    skill_bytes: int = 16 * MIB
    """Bytes of all its files together; likewise."""

    # files that are watched
    watch_interval: float = 1.0
    """How often a file that is served with `watch=True` is looked at, while there is a client."""
    watched: int = 1000
    """Files that are watched at once."""

    # the client
    timeout: float = 60.0
    """How long a request may take by default; progress extends it."""
    timeout_max: float = 3600.0
    """How long a request may take at most, however much progress it reports."""
    probe_timeout: float = 5.0
    """How long a server may stay silent on the era probe before it is greeted the old way."""
    pages: int = 1000
    """Pages that a list call follows before it calls the server's cursors endless."""
    rounds: int = 100
    """How often a server may answer one request with questions."""
    questions: int = 1000
    """Questions that a client lets a server ask in a minute."""
    restarts: int = 5
    """How often in a row a stdio server is started again before the client gives up."""
    cached: int = 1000
    """Answers that a client keeps because the server says that it may; those not used for longest
    go first."""
    cached_bytes: int = 16 * MIB
    """Bytes of them."""
    shutdown: float = 2.0
    """How long a server process may take to end after its stdin was closed, and again after
    TERM."""

    # HTTP
    stream_after: float = 2.0
    """How long a call may run before its reply becomes an event stream, so that keep-alives
    flow."""
    keepalive: float = 15.0
    """Seconds between the comments that keep a quiet stream open."""
    body_timeout: float = 30.0
    """How long the headers, and then the body, of a request may take to arrive."""
    bodies: int = 512 * MIB
    """Bytes of the bodies that are arriving at once, of all requests together; beyond it they are
    refused."""
    calls: int = 10_000
    """Requests that one endpoint answers at once; the next one is refused."""
    streams: int = 10_000
    """Event streams that one endpoint holds open at once, and conversations over WebSocket; the
    next one is refused."""
    session_streams: int = 32
    """Event streams that one session may hold open at once with GET."""
    sessions: int = 100_000
    """Sessions that one process remembers; one that holds nothing can be forgotten and goes on."""
    session_idle: float = 3600.0
    """How long a session may go unused before it ends."""
    session_life: float = 86400.0
    """How long a session may last at all."""
    tombstones: int = 100_000
    """Ended sessions that one process remembers."""
    retry: float = 1.0
    """How long a client is told to wait before it resumes a stream."""
    events: int = 4 * MIB
    """Bytes that one event stream holds for a client that lags behind or comes back; the oldest go
    first. On a connection, what a client may be told of changes that does not read; then it is
    left."""
    events_kept: int = 64 * MIB
    """Bytes that all streams together hold for clients that have gone."""
    event_life: float = 300.0
    """How long a stream waits for its client to come back."""

    # schemas that come from elsewhere
    schema_depth: int = 64
    """Nesting of a JSON schema."""
    schema_nodes: int = 10_000
    """Subschemas of a JSON schema."""

    def __post_init__(self) -> None:
        for name, usual in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if value is None and usual is None:
                continue
            whole = isinstance(usual, int)
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else int | float)
                or not value >= 0
            ):
                raise ConfigError(
                    f"Limits({name}={value!r}): it is a{' whole' if whole else ''} number, "
                    "and not below 0"
                )
            if value == 0 and name in NEEDED:
                raise ConfigError(f"Limits({name}=0): nothing would ever be done")


DEFAULT = Limits()
