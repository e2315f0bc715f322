"""The options for `server.asgi`, `server.run("http")` and `server.handle`."""

import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import fields

from ..errors import ConfigError
from ..net import TrustedProxies
from ..ports import Bus, Guard, Service
from ..transports.http.server.event_store import EventStore
from ..transports.http.server.policy import Policy


class ServePaths(Struct, frozen=True):
    """The path of each transport, or None if the server does not offer that transport."""

    endpoint: str
    sse: str | None
    message: str | None
    """The path to which HTTP+SSE clients send their messages."""
    websocket: str | None

    @property
    def guarded(self) -> dict[str, str]:
        """The paths that require authentication, each with the path of its transport (`/message`
        belongs to `/sse`). The endpoint comes first."""
        transports = {
            self.endpoint: self.endpoint,
            self.sse: self.sse,
            self.message: self.sse,
            self.websocket: self.websocket,
        }
        return {
            path: base for path, base in transports.items() if path is not None and base is not None
        }


class ServeOptions(Struct, frozen=True, kw_only=True):
    """The options for serving over HTTP."""

    path: str = ""
    """The path of the endpoint, relative to the mount point of the application."""
    sse: str | bool = False
    """The path for HTTP+SSE (2024-11-05). True means `/sse`, with messages sent to `/message`."""
    websocket: str | bool = False
    """The path for WebSocket. True means `/ws`."""
    health: str | None = "/health"
    """The path that answers a load balancer's health checks, or None to disable it."""
    metrics: str | None = None
    """The path of the Prometheus metrics (default: no metrics)."""
    metrics_auth: str | bool | None = None
    """The scope that callers need to read the metrics and the details of the health check, or False
    to let anyone read them. Metrics require this option if the server has `auth=`, because they
    cover all callers."""
    hosts: Sequence[str] = ()
    """The accepted values of the Host header, in addition to the bind address and localhost. "*"
    accepts all values."""
    origins: Sequence[str] = ()
    """The origins of web pages that may call the server and read its responses (CORS). "*" accepts
    all origins."""
    public_url: str | None = None
    """The URL at which clients reach the server. The host and origin of this URL are accepted."""
    trusted_proxies: Sequence[str] = ()
    """The addresses and networks of proxies whose `Forwarded` or `X-Forwarded-For` header is
    trusted to contain the client's address (default: none). The address is used for rate limits,
    audit records and logins."""
    sessions: bool = True
    """Whether clients in the handshake era receive a session. Without a session, they have no GET
    streams and cannot resume a stream."""
    json_only: bool = False
    """Whether a POST request is always answered with a single JSON body. If True, a call's progress
    and log messages are dropped."""
    long_polling: float | None = None
    """How long a GET request that accepts only JSON waits for messages, in seconds (default: no
    long polling). The request also receives the messages from calls whose client polls or does not
    accept a stream."""
    keys: Sequence[str | bytes] | None = None
    """The keys that seal session ids, newest first (default: `DOVETAIL_KEYS`, or a random key that
    all processes of one program share)."""
    events: Callable[[], EventStore] | None = None
    """A function that creates the store for event streams (default: a bounded store in memory)."""
    bus: Callable[[], Awaitable[Bus]] | None = None
    """The bus between the processes of one server (default: the bus of `run(workers=…)`)."""
    routes: Callable[[Any, Any, Any], Awaitable[None]] | None = None
    """Your own ASGI application for all other paths. The application receives no lifespan
    events."""
    bound: Sequence[str] = ()

    @classmethod
    def create(cls, **options: Any) -> "ServeOptions":
        """Build the options from keywords. Raises ConfigError if an option is unknown or
        invalid."""
        _rename_beside(options)
        known = {field.name for field in fields(cls)}
        unknown = [name for name in options if name not in known]
        if unknown:
            available = ", ".join(sorted(known - {"bound"}))
            raise ConfigError(
                f"Unknown HTTP option: {', '.join(unknown)}. The options are {available}; "
                "`run` also accepts host, port, workers, certfile and keyfile"
            )
        for name in ("hosts", "origins", "trusted_proxies"):
            if isinstance(options.get(name), str):
                options[name] = [options[name]]
        for name in ("path", "health", "metrics", "sse", "websocket"):
            value = options.get(name)
            if isinstance(value, str) and value and not value.startswith("/"):
                raise ConfigError(f"{name}={value!r}: a path must start with a slash")
        TrustedProxies(options.get("trusted_proxies") or ())
        taken = (options.get("path"), options.get("sse"), options.get("health"))
        if options.get("metrics") and options["metrics"] in taken:
            raise ConfigError(f"metrics={options['metrics']!r}: that path is already in use")
        return cls(**options)

    def rules(self, service: Service) -> Policy:
        """Build the policy that accepts or rejects requests."""
        hosts, origins = list(self.hosts), list(self.origins)
        if self.public_url is not None:
            url = urlsplit(self.public_url)
            is_http = url.scheme in ("http", "https")
            if not is_http or not url.hostname or url.query or url.fragment:
                raise ConfigError(
                    f"public_url={self.public_url!r} is not a URL such as 'https://mcp.example.com'"
                )
            hosts.append(f"[{url.hostname}]" if ":" in url.hostname else url.hostname)
            if origins != ["*"]:
                origins.append(f"{url.scheme}://{url.netloc.rpartition('@')[2]}")
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
    def paths(self) -> ServePaths:
        """The path of each transport."""
        sse = _path(self.sse, "/sse")
        message = None if sse is None else sse.rpartition("/")[0] + "/message"
        return ServePaths(self.path.rstrip("/"), sse, message, _path(self.websocket, "/ws"))

    def check_metrics_auth(self, guard: Guard | None) -> None:
        """Raise ConfigError if the options do not say who may read the metrics, or if this cannot
        be enforced."""
        auth = self.metrics_auth
        is_scope = isinstance(auth, str) and auth.split() == [auth]
        if guard is None and auth:
            raise ConfigError(
                f"metrics_auth={auth!r}: the server does not authenticate its callers; pass "
                "it a guard (auth=…)"
            )
        if guard is not None and auth is not False and not is_scope:
            raise ConfigError(
                f"metrics_auth={auth!r}: the metrics cover all callers. Set the scope that is "
                'required to read them (metrics_auth="metrics:read"), or False to let anyone read '
                "them"
            )


def _path(value: str | bool, default: str) -> str | None:
    return default if value is True else value.rstrip("/") if value else None


def _rename_beside(options: dict[str, Any]) -> None:
    if "beside" in options:
        if "routes" in options:
            raise ConfigError("beside= has been renamed to routes=; pass only routes=")
        warnings.warn("beside= has been renamed to routes=", DeprecationWarning, stacklevel=4)
        options["routes"] = options.pop("beside")
