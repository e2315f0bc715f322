"""How a server is served over HTTP: what `server.asgi`, `server.run("http")` and `server.handle`
take, and what follows."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import fields

from ..errors import ConfigError
from ..ports import Bus, Guard, Service
from ..transports.http.policy import Policy
from ..transports.http.streams import Events


class Places(Struct, frozen=True):
    """The paths of a server; None for what it does not have."""

    endpoint: str
    sse: str | None
    message: str | None
    """Where clients of the old pair post to."""
    websocket: str | None


class Options(Struct, frozen=True, kw_only=True):
    """How a server is served over HTTP."""

    path: str = ""
    """Where the endpoint is, below the place that the application is mounted at."""
    sse: str | bool = False
    """Whether (or where) the old SSE pair is served: True is `/sse`, with `/message` beside it."""
    websocket: str | bool = False
    """Whether (or where) WebSocket is served: True is `/ws`."""
    health: str | None = "/health"
    """Where a balancer may ask whether the server is alive."""
    metrics: str | None = None
    """Where Prometheus may ask what the server has done; None does not offer it."""
    metrics_auth: str | bool | None = None
    """Who may ask that, where there is a guard: those with this scope, or (False) anybody. One of
    them has to be said, for what is shown is of all who are let in."""
    hosts: Sequence[str] = ()
    """Names that the server goes by, besides its address and localhost; "*" takes any."""
    origins: Sequence[str] = ()
    """Web pages of other origins that may call it, and read the answers (CORS); "*" takes any."""
    public_url: str | None = None
    """The URL that the world knows it by: its name and origin are allowed."""
    sessions: bool = True
    """Whether clients of the handshake era get a session; without, they get neither GET streams nor
    resumption."""
    json_only: bool = False
    """Whether a POST is always answered by one JSON body. What a call tells on its way is then left
    out."""
    long_polling: float | None = None
    """How many seconds a GET that accepts only JSON waits for messages; None does not offer it."""
    keys: Sequence[str | bytes] | None = None
    """What session ids are sealed with, newest first; else `DOVETAIL_KEYS`, else what the processes
    of a program share."""
    events: Callable[[], Events] | None = None
    """Makes the store of event streams; by default a bounded one in memory."""
    bus: Callable[[], Awaitable[Bus]] | None = None
    """Joins the processes of one server; `run(workers=…)` brings one."""
    beside: Callable[[Any, Any, Any], Awaitable[None]] | None = None
    """An ASGI application of the program's own, which answers at all other paths. It is told of no
    lifespan."""
    bound: Sequence[str] = ()

    @classmethod
    def of(cls, **options: Any) -> "Options":
        """The options by name; ConfigError for one that there is not, or that makes no sense."""
        known = {field.name for field in fields(cls)}
        unknown = [name for name in options if name not in known]
        if unknown:
            there = (
                f"{', '.join(sorted(known - {'bound'}))}, and for `run` host, port, "
                "workers, certfile and keyfile"
            )
            raise ConfigError(
                f"There is no option {', '.join(unknown)} for HTTP; there are {there}"
            )
        for name in ("hosts", "origins"):
            if isinstance(options.get(name), str):
                options[name] = [options[name]]
        for name in ("path", "health", "metrics", "sse", "websocket"):
            value = options.get(name)
            if isinstance(value, str) and value and not value.startswith("/"):
                raise ConfigError(f"{name}={value!r}: a path begins with a slash")
        if options.get("metrics") and options["metrics"] in (
            options.get("path"),
            options.get("sse"),
            options.get("health"),
        ):
            raise ConfigError(
                f"metrics={options['metrics']!r}: there is something else at that path already"
            )
        return cls(**options)

    def rules(self, service: Service) -> Policy:
        """The ladder's facts."""
        hosts, origins = list(self.hosts), list(self.origins)
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or parts.query
                or parts.fragment
            ):
                raise ConfigError(
                    f"public_url={self.public_url!r} is no URL such as 'https://mcp.example.com'"
                )
            hosts.append(f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname)
            if origins != ["*"]:
                origins.append(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        return Policy(
            service.revisions,
            limits=service.limits,
            hosts=hosts,
            origins=origins,
            bound=self.bound,
            sessions=self.sessions,
            poll=self.long_polling is not None,
        )

    @property
    def places(self) -> Places:
        """Where what is."""
        sse = _place(self.sse, "/sse")
        message = None if sse is None else sse.rpartition("/")[0] + "/message"
        return Places(self.path.rstrip("/"), sse, message, _place(self.websocket, "/ws"))

    def check(self, guard: Guard | None) -> None:
        """ConfigError unless it is said who may read the metrics, and somebody can tell who
        asks."""
        given = self.metrics_auth
        scope = isinstance(given, str) and given.split() == [given]  # one, as a token names it
        if guard is None and given:
            raise ConfigError(
                f"metrics_auth={given!r}: nobody finds out who asks; give the server a guard "
                "(auth=…)"
            )
        if guard is not None and given is not False and not scope:
            raise ConfigError(
                f"metrics_auth={given!r}: the metrics show what all callers do, so say who "
                "may read them: "
                'those with a scope (metrics_auth="metrics:read"), or anybody (metrics_auth=False)'
            )


def _place(given: str | bool, usual: str) -> str | None:
    return usual if given is True else given.rstrip("/") if given else None
