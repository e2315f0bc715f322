"""All limits in one frozen value. A caller that exceeds a limit gets a clear error.

`Server(limits=Limits(threads=8))` changes one limit and keeps the other defaults. Sizes are in
bytes, times in seconds.
"""

from msgspec import Struct

from .errors import ConfigError

NEVER_ZERO = ("incoming", "outgoing", "threads", "isolated", "http_body", "connections")
"""The limits that may not be 0, because nothing could run then."""
KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server or a client, each with a default.

    Sizes are in bytes and times in seconds. Counts and sizes are whole numbers; no limit may be
    negative, and `incoming`, `outgoing`, `threads`, `isolated`, `http_body` and `connections` may
    not be 0. Anything else raises ConfigError.
    """

    # one message
    incoming: int = 128 * MIB
    """Maximum size of an incoming message, in bytes (default: 128 MiB). A longer message is skipped
    and answered with an error."""
    outgoing: int = 128 * MIB
    """Maximum size of an outgoing message, in bytes (default: 128 MiB). A longer result is replaced
    by an error."""

    # one connection
    in_flight: int = 4096
    """Requests of one peer that are answered at the same time (default: 4096). Further requests are
    refused. An HTTP client waits before it sends more."""
    write_buffer: int = 1 * MIB
    """Bytes that wait to be written to one connection (default: 1 MiB). Above this, `await
    ctx.info(…)` waits and reading pauses."""
    subscriptions: int = 1024
    """Resources, and separately tasks, that one connection may subscribe to (default: 1024).
    Further subscriptions are refused."""
    progress_interval: float = 0.02
    """Minimum seconds between two progress notifications of one request (default: 0.02). Of the
    updates in between, only the newest is sent."""
    ping_interval: float | None = None
    """Seconds between pings to the peer (default: None, which is 30 over WebSocket, HTTP+SSE and
    the GET streams of a session, and no pings elsewhere). `inf` disables pings."""
    ping_timeout: float = 10.0
    """Seconds that a peer has to answer a ping (default: 10). After that, the connection is
    closed."""

    # questions to the client
    asks: int = 100
    """How often in a row one call may ask its client (default: 100). After that, the call fails,
    because it might never end."""
    ask_time: float = 3600.0
    """Seconds that a client has to answer a question on its connection or in its session (default:
    3600). After that, the question raises ToolError in the handler."""
    parked: int = 1000
    """Suspended calls that this process holds until their client comes back with answers (default:
    1000). Above this, the oldest are dropped; their handlers run again when the client comes
    back."""
    parked_time: float = 600.0
    """Seconds that a suspended call is held (default: 600). After that, its handler runs again when
    the client comes back."""
    state_life: float = 3600.0
    """Seconds that a client has to come back with answers (default: 3600). After that, the request
    is refused."""
    journal: int = 256 * KIB
    """Bytes of the answers and `ctx.once` results of one call, which the client carries from
    request to request (default: 256 KiB). Above this, the call fails."""

    # running tools
    threads: int = 32
    """Worker threads for plain `def` functions (default: 32). Further calls wait."""
    thread_queue: int = 4096
    """Calls that may wait for a worker thread (default: 4096). Further calls are refused."""
    isolated: int = 8
    """Child processes for `isolate="process"` that run at the same time (default: 8). Further calls
    wait."""
    isolated_memory: int = 1024 * MIB
    """Bytes of address space that an isolated tool may use in addition to what Python itself maps
    (default: 1 GiB). Above this, the tool fails."""

    # tasks
    tasks: int = 10_000
    """Tasks that are kept at the same time, running or finished (default: 10,000). Each counts
    until it expires. Above this, the oldest finished tasks of anonymous callers are deleted; if
    there are none, further tasks are refused."""
    tasks_each: int = 1000
    """Tasks of one authenticated caller, of one address, or of one session on this machine
    (default: 1000). Further tasks are refused."""
    task_bytes: int = 256 * MIB
    """Bytes that all tasks together occupy, in memory or on disk (default: 256 MiB). Above this,
    new tasks are refused, and a result that does not fit is replaced by an error."""
    task_life: float = 3600.0
    """Seconds that a task is kept after its start, if the caller does not set a time (default:
    3600). A task that is still running then is stopped."""
    task_life_max: float = 86400.0
    """Maximum seconds that a caller can request (default: 86,400, a day). A longer time is reduced
    to this."""
    task_attempts: int = 5
    """How often a task is resumed after crashes without making progress (default: 5). After that,
    it fails."""
    task_poll: float = 2.0
    """Longest poll interval that is suggested to clients, in seconds (default: 2). It is shorter
    for a task that has just started."""

    # skills
    skills: int = 100_000
    """Skills and skill files that a client reads from the list of one server (default: 100,000). A
    longer list raises an error."""
    skill_files: int = 512
    """Files in one skill, for servers and clients (default: 512, which every host must accept). A
    skill with more files is refused."""
    skill_bytes: int = 16 * MIB
    """Total size of the files in one skill, in bytes, for servers and clients (default: 16 MiB,
    which every host must accept). A larger skill is refused."""

    # watched files
    watch_interval: float = 1.0
    """Seconds between two checks of the files that are served with `watch=True` (default: 1). They
    are checked only while a client is connected."""
    watched: int = 1000
    """Files that are watched at the same time (default: 1000). Watching more raises ConfigError."""

    # the client
    timeout: float = 60.0
    """Seconds that a request may take, unless it has its own timeout (default: 60). Each progress
    notification restarts the timer. When the time is up, the request is cancelled and raises
    TimedOut."""
    timeout_max: float = 3600.0
    """Seconds that a request may take in total, however much progress it reports (default: 3600).
    If the request itself has a longer timeout, that applies instead. When the time is up, the
    request is cancelled and raises TimedOut."""
    probe_timeout: float = 5.0
    """Seconds that a server has to answer the probe for its era (default: 5), at most half of the
    client's `timeout`. After that, the client sends `initialize` as well, and uses the answer to
    the probe if it still arrives in time."""
    pages: int = 1000
    """Pages of one list that a client reads (default: 1000). A longer list raises an error, because
    its cursors may never end."""
    list_items: int = 100_000
    """Items of one list that a client reads, over all pages (default: 100,000). A longer list
    raises an error."""
    list_bytes: int = 16 * MIB
    """Total size of the pages of one list that a client reads, in bytes (default: 16 MiB). A larger
    list raises an error. A list of a single page is limited by `incoming`."""
    rounds: int = 100
    """How often a server may answer one request, or a task, with questions (default: 100). After
    that, the request fails."""
    questions: int = 1000
    """Questions that a server may ask a client in one minute (default: 1000). Further questions are
    refused."""
    restarts: int = 5
    """How many times in a row a client tries to reopen a lost connection or restart a stdio server
    (default: 5). After that, it gives up. While a request waits for a server at a URL that was
    connected before, the client continues until the request times out."""
    cached: int = 1000
    """Results that a client caches, if the server allows it (default: 1000). Above this, the least
    recently used are dropped."""
    cached_bytes: int = 16 * MIB
    """Total size of all cached results, in bytes (default: 16 MiB). Above this, the least recently
    used are dropped."""
    shutdown: float = 2.0
    """Seconds that a server process has to exit after its stdin is closed, and again after SIGTERM
    (default: 2). Then it is killed. A server that stops gives its calls the same amount of time."""

    # HTTP
    connections: int = 10_000
    """Connections that one process of `run` holds open at the same time (default: 10,000, or fewer
    if the process may not open that many files). Further ones are refused."""
    stream_after: float = 2.0
    """Seconds that a call may run before its reply becomes an event stream, so that keep-alives
    can be sent (default: 2)."""
    keepalive: float = 15.0
    """Seconds between the comments that keep a quiet event stream open (default: 15)."""
    body_timeout: float = 30.0
    """Seconds within which the headers of a request, and then its body, must arrive (default: 30).
    After that, the request is refused."""
    http_body: int = 16 * MIB
    """Maximum size of the body of a request to a server, and of a WebSocket message to a server, in
    bytes (default: 16 MiB). A longer one is refused before it is read, or while it arrives. If
    `incoming` is less, that applies instead."""
    bodies: int = 128 * MIB
    """Total size of all request bodies that are arriving at the same time, in bytes (default: 128
    MiB). Above this, requests are refused."""
    calls: int = 10_000
    """Requests that one endpoint answers at the same time (default: 10,000). Further requests are
    refused."""
    streams: int = 10_000
    """Event streams, and WebSocket connections, that one endpoint holds open at the same time
    (default: 10,000). Further ones are refused."""
    session_streams: int = 32
    """Event streams that one session may hold open at the same time with GET (default: 32). Further
    ones are refused."""
    sessions: int = 100_000
    """Sessions that one process remembers (default: 100,000). Above this, the least recently used
    idle session is forgotten; it continues with its next request."""
    session_idle: float = 3600.0
    """Seconds that a session may go unused (default: 3600). After that, it ends."""
    session_life: float = 86400.0
    """Seconds that a session may last in total (default: 86,400, a day). After that, it ends."""
    tombstones: int = 100_000
    """Ended sessions that one process remembers, so that they stay ended (default: 100,000). Above
    this, those that were idle are forgotten, and then DELETE is refused."""
    retry: float = 1.0
    """Seconds that a client is told to wait before it resumes an event stream (default: 1)."""
    events: int = 4 * MIB
    """Bytes that one event stream holds for a client that is slow or disconnected (default: 4 MiB).
    Above this, the oldest events are dropped. On stdio and WebSocket: bytes of notifications that a
    client has not read; above this, the connection is closed."""
    events_kept: int = 64 * MIB
    """Bytes that all event streams together hold for disconnected clients (default: 64 MiB). Above
    this, the oldest are dropped."""
    event_life: float = 300.0
    """Seconds that an event stream waits for its client to come back (default: 300). After that, it
    is dropped."""

    # JSON schemas from elsewhere
    schema_depth: int = 64
    """Levels of nesting in a JSON schema (default: 64). A deeper schema raises SchemaError."""
    schema_nodes: int = 10_000
    """Subschemas in a JSON schema, including those that its references lead to (default: 10,000). A
    schema with more raises SchemaError."""

    def __post_init__(self) -> None:
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if value is None and default is None:
                continue
            whole = isinstance(default, int)
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else int | float)
                or not value >= 0
            ):
                raise ConfigError(
                    f"Limits({name}={value!r}): {name} must be a non-negative "
                    f"{'integer' if whole else 'number'}"
                )
            if value == 0 and name in NEVER_ZERO:
                raise ConfigError(f"Limits({name}=0): {name} must be at least 1")

    @property
    def max_body(self) -> int:
        """The smaller of `http_body` and `incoming`, which a server applies over a network."""
        return min(self.http_body, self.incoming)


DEFAULT = Limits()
