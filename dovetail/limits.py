"""All limits in one frozen value. A caller that exceeds a limit receives a clear error.

`Server(limits=Limits(threads=8))` changes one limit and keeps the other defaults. Sizes are in
bytes, and times are in seconds.
"""

from msgspec import Struct

from .errors import ConfigError

NEVER_ZERO = (
    *("incoming", "outgoing", "in_flight", "threads", "isolated"),
    *("http_body", "connections", "task_lease"),
)
"""The limits that may not be 0, because nothing could run with a limit of 0."""
KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server or a client, each with a default.

    Sizes are in bytes and times in seconds. Counts and sizes are integers. No limit may be
    negative, and `incoming`, `outgoing`, `in_flight`, `threads`, `isolated`, `http_body`,
    `connections` and `task_lease` may not be 0. An invalid value raises ConfigError.
    """

    # one message
    incoming: int = 128 * MIB
    """Maximum size of an incoming message, in bytes (default: 128 MiB). A longer message is skipped
    and answered with an error. It also limits the description of an API and each of its replies
    (`Server.from_openapi`)."""
    outgoing: int = 128 * MIB
    """Maximum size of an outgoing message, in bytes (default: 128 MiB). A longer result is replaced
    by an error."""

    # one connection
    in_flight: int = 4096
    """Maximum number of requests from one peer that are answered at the same time (default: 4096).
    Further requests wait (`queued_bytes`); over streamable HTTP, they are rejected. An HTTP client
    waits before it sends more requests."""
    queued_bytes: int = 16 * MIB
    """Maximum total size, in bytes, of the requests that wait on one connection because `in_flight`
    other requests are being answered (default: 16 MiB). Each request counts as the size of its
    message plus 512 bytes. Further requests are rejected. If the value is 0, no request waits."""
    write_buffer: int = 1 * MIB
    """Maximum number of bytes waiting to be written to one connection (default: 1 MiB). Beyond
    this, `await ctx.info(…)` waits and reading pauses."""
    subscriptions: int = 1024
    """Maximum number of resources, and separately of tasks, that one connection may subscribe to
    (default: 1024). Further subscriptions are rejected."""
    progress_interval: float = 0.02
    """Minimum time between two progress notifications for one request, in seconds (default: 0.02).
    Only the newest of the updates in between is sent."""
    ping_interval: float | None = None
    """Time between pings to the peer, in seconds (default: None). None means 30 s over WebSocket,
    HTTP+SSE and a session's GET streams, and no pings elsewhere. `inf` disables pings."""
    ping_timeout: float = 10.0
    """Time that a peer has to answer a ping, in seconds (default: 10). After that, the connection
    is closed."""

    # questions to the client
    asks: int = 100
    """How many times in a row one call may ask its client for input (default: 100). After that, the
    call fails, because it might never end."""
    ask_time: float = 3600.0
    """Time that a client has to answer a question on its connection or in its session, in seconds
    (default: 3600). After that, the question raises ToolError in the handler. A question with its
    own `timeout` raises TimedOut instead. Progress can extend a shorter timeout up to this limit; a
    longer timeout takes precedence over this limit."""
    parked: int = 1000
    """Maximum number of suspended calls that this process holds until their clients return with
    answers (default: 1000). Beyond this, the oldest are dropped, and their handlers run again when
    the clients return. Calls that must not run again, as in a gateway, are counted separately, and
    the newest is refused instead."""
    parked_each: int = 16
    """Maximum number of calls that must not run again that this process holds for one caller: for
    each authenticated caller, or for each address if callers are anonymous (default: 16). Further
    calls are refused when they ask for input."""
    parked_time: float = 600.0
    """Time for which a suspended call is held, in seconds (default: 600). After that, the call's
    handler runs again when the client returns; a call that must not run again is cancelled. The
    result of such a call is kept for the same time, for a client that did not receive it."""
    state_life: float = 3600.0
    """Time that a client has to return with answers, in seconds (default: 3600). After that, the
    request is rejected."""
    journal: int = 256 * KIB
    """Maximum size of the answers and `ctx.once` results of one call, in bytes (default: 256 KiB).
    Beyond this, the call fails. The client carries the answers and results from request to
    request."""

    # running tools
    threads: int = 32
    """Number of worker threads for plain `def` functions (default: 32). Further calls wait."""
    thread_queue: int = 4096
    """Maximum number of calls that may wait for a worker thread (default: 4096). Further calls are
    rejected."""
    isolated: int = 8
    """Maximum number of child processes for `isolate="process"` that run at the same time (default:
    8). Further calls wait."""
    isolated_spares: int = 2
    """Number of child processes that are kept ready for the next calls of isolated tools (default:
    2). Each has loaded the module of its tool, and ends after a minute if no call uses it."""
    isolated_memory: int = 1024 * MIB
    """Maximum address space, in bytes, that an isolated tool may use in addition to the memory that
    Python itself maps (default: 1 GiB). Beyond this, the tool fails."""

    # tasks
    tasks: int = 10_000
    """Maximum number of tasks that are kept at the same time, running or finished (default:
    10,000). Each task counts until it expires. Beyond this, the oldest finished tasks of anonymous
    callers are deleted. If no such tasks exist, further tasks are rejected."""
    tasks_each: int = 1000
    """Maximum number of tasks per authenticated caller, per address, or per session on this machine
    (default: 1000). Further tasks are rejected."""
    task_bytes: int = 256 * MIB
    """Maximum total size of all tasks, in memory or on disk, in bytes (default: 256 MiB). Beyond
    this, new tasks are rejected, and a result that does not fit is replaced by an error."""
    task_life: float = 3600.0
    """Time for which a task is kept after it starts, in seconds, unless the caller requests another
    time (default: 3600). A task that is still running then is stopped."""
    task_life_max: float = 86400.0
    """Maximum time that a caller can request for a task, in seconds (default: 86,400, a day). A
    longer time is reduced to this."""
    task_attempts: int = 5
    """How many times a task is resumed after crashes without making progress (default: 5). After
    that, the task fails."""
    task_slots: int = 16
    """How many tasks a process runs at the same time (default: 16). Further tasks wait for a free
    process. 0 leaves all tasks to other processes, such as workers (`dovetail worker`). It applies
    to tasks in a shared backend; other tasks start at once."""
    task_lease: float = 10.0
    """Time after which another process takes over a task if its process no longer reports that it
    is alive, in seconds (default: 10). It applies to tasks in a shared backend."""
    task_poll: float = 2.0
    """Longest poll interval that is suggested to clients, in seconds (default: 2). The interval is
    shorter for a task that has just started."""

    # skills
    skills: int = 100_000
    """Maximum number of skills and skill files that a client reads from one server's list (default:
    100,000). A longer list raises an error."""
    skill_files: int = 512
    """Maximum number of files in one skill, for servers and clients (default: 512, which every host
    must accept). A skill with more files is rejected."""
    skill_bytes: int = 16 * MIB
    """Maximum total size of the files in one skill, in bytes, for servers and clients (default: 16
    MiB, which every host must accept). A larger skill is rejected."""

    # watched files
    watch_interval: float = 1.0
    """Time between two checks of the files that are served with `watch=True`, in seconds (default:
    1). Files are checked only while a client is connected."""
    watched: int = 1000
    """Maximum number of files that are watched at the same time (default: 1000). Watching more
    files raises ConfigError."""

    # the client
    timeout: float = 60.0
    """Time that a request may take, in seconds, unless it has its own timeout (default: 60). Each
    progress notification restarts the timer. When the time is up, the request is cancelled and
    raises TimedOut. It also limits each request to an API of `Server.from_openapi`."""
    timeout_max: float = 3600.0
    """Time that a request may take in total, in seconds, regardless of the progress that it reports
    (default: 3600). A longer timeout on the request itself takes precedence. When the time is up,
    the request is cancelled and raises TimedOut."""
    probe_timeout: float = 5.0
    """Time that a server has to answer the probe for its era, in seconds (default: 5). This time is
    at most half of the client's `timeout`. After that, the client also sends `initialize`, and uses
    the answer to the probe if it arrives before or shortly after the answer to `initialize`."""
    pages: int = 1000
    """Maximum number of pages that a client reads from one list (default: 1000). A longer list
    raises an error, because its cursors may never end."""
    list_items: int = 100_000
    """Maximum number of items that a client reads from one list, over all pages (default: 100,000).
    A longer list raises an error."""
    list_bytes: int = 16 * MIB
    """Maximum total size of the pages that a client reads from one list, in bytes (default: 16
    MiB). A larger list raises an error. The size of a single-page list is limited by `incoming`."""
    rounds: int = 100
    """How many times a server may answer one request or task with questions (default: 100). After
    that, the request fails."""
    questions: int = 1000
    """Maximum number of questions that a server may ask a client per minute (default: 1000).
    Further questions are rejected. A gateway counts the questions to each caller."""
    catalog_wait: float = 1.0
    """Time that the first list of a host or gateway waits for servers that are still starting, in
    seconds (default: 1). After that, the list contains what is known, and callers are notified when
    it changes."""
    upstream_connections: int = 100
    """Maximum number of connections that a gateway holds open to one server (default: 100). If all
    are in use, further calls wait. One caller may use half of them: each authenticated caller, or
    each address if callers are anonymous."""
    upstream_idle: float = 300.0
    """Time that a gateway keeps a connection to a server that no call uses, in seconds (default:
    300). After that, the connection is closed. A connection on which a server of the stateless era
    asked a question is kept for `parked_time`."""
    restarts: int = 5
    """How many times in a row a client tries to reopen a lost connection or restart a stdio server
    (default: 5). After that, the client gives up. While a request waits for a server at a URL to
    which the client was connected before, the client keeps trying until the request times out."""
    cached: int = 1000
    """Maximum number of results that a client caches, if the server allows caching (default: 1000).
    Beyond this, the least recently used results are dropped."""
    cached_bytes: int = 16 * MIB
    """Maximum total size of all cached results, in bytes (default: 16 MiB). Beyond this, the least
    recently used results are dropped."""
    shutdown: float = 2.0
    """Time that a server process has to exit after its stdin is closed, and again after SIGTERM, in
    seconds (default: 2). After that, the process is killed. A server that is stopping gives its
    calls the same amount of time."""

    # HTTP
    connections: int = 10_000
    """Maximum number of connections that one process started by `run` holds open at the same time
    (default: 10,000, or fewer if the process may not open that many files). Further connections are
    refused."""
    stream_after: float = 2.0
    """Time in seconds that a call may run before its reply becomes an event stream, so that
    keep-alives can be sent (default: 2)."""
    keepalive: float = 15.0
    """Time between the comments that keep a quiet event stream open, in seconds (default: 15)."""
    body_timeout: float = 30.0
    """Time within which the headers of a request, and then its body, must arrive, in seconds
    (default: 30). After that, the request is rejected."""
    http_body: int = 16 * MIB
    """Maximum size of a request body or a WebSocket message sent to a server, in bytes (default: 16
    MiB). A larger body or message is rejected before it is read, or while it arrives. If `incoming`
    is smaller than this, `incoming` applies."""
    bodies: int = 128 * MIB
    """Maximum total size of all request bodies that are arriving at the same time, in bytes
    (default: 128 MiB). Beyond this, requests are rejected."""
    calls: int = 10_000
    """Maximum number of requests that one endpoint answers at the same time (default: 10,000).
    Further requests are rejected."""
    streams: int = 10_000
    """Maximum number of event streams and WebSocket connections that one endpoint holds open at the
    same time (default: 10,000). Further streams and connections are refused."""
    session_streams: int = 32
    """Maximum number of event streams that one session may hold open with GET at the same time
    (default: 32). Further streams are refused."""
    sessions: int = 100_000
    """Maximum number of sessions that one process remembers (default: 100,000). Beyond this, the
    least recently used idle session is forgotten. A forgotten session continues with its next
    request."""
    session_idle: float = 3600.0
    """Time that a session may go unused, in seconds (default: 3600). After that, the session
    ends."""
    session_life: float = 86400.0
    """Time that a session may last in total, in seconds (default: 86,400, a day). After that, the
    session ends."""
    tombstones: int = 100_000
    """Maximum number of ended sessions that one process remembers, so that they stay ended
    (default: 100,000). Beyond this, sessions that ended because they were idle are forgotten. If
    there are no such sessions, DELETE is rejected."""
    retry: float = 1.0
    """Time that a client is told to wait before it resumes an event stream, in seconds (default:
    1)."""
    events: int = 4 * MIB
    """Maximum size of the events that one event stream holds for a slow or disconnected client, in
    bytes (default: 4 MiB). Beyond this, the oldest events are dropped. On stdio and WebSocket, this
    is the maximum size of the notifications that a client has not read. Beyond this, the connection
    is closed."""
    events_kept: int = 64 * MIB
    """Maximum size of the events that all event streams together hold for disconnected clients, in
    bytes (default: 64 MiB). Beyond this, the oldest events are dropped. The results that are kept
    because their calls must not run again (`parked_time`) are limited to the same size."""
    event_life: float = 300.0
    """Time for which an event stream waits for its client to return, in seconds (default: 300).
    After that, the stream is dropped."""

    # the shared backend
    backend_timeout: float = 1.0
    """Time that one command to the shared backend may take, and that connecting to it may take, in
    seconds (default: 1). After that, the backend counts as away until it answers again."""

    # JSON schemas from elsewhere
    schema_depth: int = 64
    """Maximum nesting depth of a JSON schema (default: 64). A deeper schema raises SchemaError."""
    schema_nodes: int = 10_000
    """Maximum number of subschemas in a JSON schema, including those that its references lead to
    (default: 10,000). A schema with more subschemas raises SchemaError."""

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
                least = "at least 1" if whole else "greater than 0"
                raise ConfigError(f"Limits({name}=0): {name} must be {least}")

    @property
    def max_body(self) -> int:
        """The smaller of `http_body` and `incoming`, which a server applies to messages from a
        network."""
        return min(self.http_body, self.incoming)


DEFAULT = Limits()
