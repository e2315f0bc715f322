"""Convert a client's target to a channel.

A target is a Server object, a channel, a URL, a command (list), a script (`server.py`), an object
in Python code (`server.py:orders`, `shop.servers:orders`), or an `mcp.json` file (path or dict). It
becomes a `Target`: a name to use in messages, and a function that opens a new channel each time it
is called, so that a server that died can be started or reached again.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import config
from ..aio import TaskSet
from ..errors import ConfigError
from ..limits import Limits
from ..logs import get_logger
from ..ports import Channel, Credentials, Tap
from ..python_target.parse import parse_python_target
from ..transports import memory

log = get_logger("client")

URL_SCHEMES = ("http", "https", "ws", "wss")
SCRIPT_RUNNERS = {".js": ["node"], ".mjs": ["node"], ".ts": ["npx", "tsx"]}
"""The command that runs a script in another language, by file suffix."""


class Target(Struct, frozen=True, eq=False):
    """How to reach a server."""

    name: str
    open: Callable[[], Awaitable[Channel]]
    can_reopen: bool = True
    """Whether the target can be opened again. A `Channel` cannot."""
    era_key: str | None = None
    """The key under which the server's era is remembered."""
    cache_key: Any = None
    """The key of a remote server in a shared cache: its URL, TLS settings, proxy and
    credentials."""
    credentials: Credentials | None = None
    """The credentials that the client authenticates with."""
    headers: Mapping[str, str] | None = None
    """The other headers that the client sends to a URL."""
    timeout: float | None = None
    """Seconds to wait for each answer, if the configuration sets this timeout."""
    open_timeout: float | None = None
    """Seconds to wait for the connection to open, if the configuration sets this timeout."""
    untapped: "Target | None" = None
    """The same target without the client's tap, if it has one."""

    @property
    def is_remote(self) -> bool:
        """Whether the server is at a URL, which means that this client does not start it."""
        return self.cache_key is not None


class ConnectOptions(Struct, frozen=True, eq=False):
    """How to start or reach a server: the `Client` options that concern its target."""

    limits: Limits
    server: str | None
    """The server to use from an `mcp.json` file."""
    env: Mapping[str, str] | None
    cwd: str | Path | None
    on_stderr: Callable[[str], None] | None
    headers: Mapping[str, str] | None
    """HTTP headers, which are sent only to the origin of the URL."""
    verify: Any
    """Which TLS certificates to trust: True for the system's authorities, a path to a CA file, an
    SSLContext, or False for any certificate."""
    proxy: str | None
    """The URL of an HTTP proxy, which overrides the environment."""
    long_polling: bool
    """Whether to poll for messages instead of keeping a stream open."""
    auth: Any
    """Credentials, or a bearer token."""
    tap: Tap | None = None
    """What sees all messages, requests and logins."""
    shown: str | None = None
    """What messages show instead of the URL, if the URL contains values that must not be shown."""


def resolve_target(target: Any, options: ConnectOptions) -> Target:
    """Return the Target that a client's target and options describe."""
    if options.tap is not None:
        from .taps import SafeTap

        options = replace(options, tap=SafeTap(options.tap))
    resolved = _resolve(target, options)
    if options.auth is not None and resolved.cache_key is None:
        raise ConfigError(
            f"auth= applies only to a URL, but the target is {resolved.name}, which needs "
            "no credentials"
        )
    return resolved if options.tap is None else _with_tap(resolved, options.tap)


def _with_tap(target: Target, tap: Tap) -> Target:
    """Return the same target, whose channels pass their messages to a tap."""
    from .taps import TappedChannel

    async def open() -> Channel:
        return TappedChannel(await target.open(), tap)

    return replace(target, open=open, untapped=target)


def _resolve(target: Any, options: ConnectOptions) -> Target:
    if _is_server(target):
        return Target(
            f"the server {target.info.name!r}", lambda: _in_memory(target, options.limits)
        )
    if _is_channel(target):
        return Target(type(target).__name__, lambda: _given(target), can_reopen=False)
    if isinstance(target, config.ChosenServer):
        return _from_config(target, options)
    if isinstance(target, Mapping):
        return _from_config(config.resolve(config.parse(target), options.server), options)
    if isinstance(target, list | tuple):
        return _from_command([str(part) for part in target], options)
    if isinstance(target, str | Path):
        return _from_string(str(target), options)
    raise ConfigError(
        f"{target!r} is not a target: pass a URL, a script, a command as a list, an mcp.json "
        "file, a Server or a channel"
    )


def _from_string(text: str, options: ConnectOptions) -> Target:
    if "://" in text:
        return _from_url(text, options)
    if not text.strip():
        raise ConfigError("The target is empty")
    python = parse_python_target(text)
    if " " in text and not Path(python.source if python else text).exists():
        raise _not_a_target(text)  # `python server.py` is a command, not a file
    if python:
        python.check_exists()
        return _from_command(python.command(), options, text)
    path = Path(text)
    if path.suffix.lower() in config.SUFFIXES:
        chosen = config.resolve(config.read(path), options.server, text)
        return _from_config(chosen, options, text)
    if path.suffix in SCRIPT_RUNNERS:
        if not path.is_file():
            raise ConfigError(f"The file {text} does not exist")
        command = [*SCRIPT_RUNNERS[path.suffix], str(path.absolute())]
        return _from_command(command, options, text)
    raise _not_a_target(text)


def _not_a_target(text: str) -> ConfigError:
    return ConfigError(
        f"{text!r} is not a URL, script, module:object or mcp.json file; pass a command as a list: "
        f"{text.split()!r}"
    )


def _from_config(chosen: config.ChosenServer, options: ConnectOptions, where: str = "") -> Target:
    """Resolve a server from an `mcp.json` file. The client's options take precedence.

    Because arguments and URLs may contain secrets, messages use the name in the file for a server
    process, and do not show the part of a URL that contains variables.
    """
    server, written = chosen.config, chosen.written
    if server.url is not None:
        headers = {**server.headers, **(options.headers or {})}
        auth = options.auth or _auth_from_config(server.auth)
        shown = None if server.url == written.url else _hide_path(server.url, written.url or "")
        options = replace(options, headers=headers, auth=auth, shown=shown)
        target = _from_url(server.url, options)
    else:
        assert server.command is not None
        env, cwd = {**server.env, **(options.env or {})}, options.cwd or server.cwd
        options = replace(options, env=env, cwd=cwd)
        name = f"{chosen.name} in {where}" if where else chosen.name
        target = _from_command([server.command, *server.args], options, name)
    return replace(target, timeout=server.timeout, open_timeout=server.open_timeout)


def _hide_path(url: str, written: str) -> str:
    """Return the part of a URL that is safe to show after its variables are filled in: its origin
    or, if it has none, the URL as written in the file."""
    origin = re.match(r"[a-zA-Z]+://[^/?#@\s]+(?=[/?#]|$)", url)
    return f"{origin[0]}/…" if origin else written


def _from_command(
    command: Sequence[str], options: ConnectOptions, name: str | None = None
) -> Target:
    if not command:
        raise ConfigError("The command is empty")

    async def open() -> Channel:
        from ..transports.process import spawn

        return await spawn(
            command,
            env=options.env,
            cwd=options.cwd,
            limits=options.limits,
            on_stderr=options.on_stderr,
            name=name,
        )

    return Target(
        name or " ".join(command), open, era_key="\0".join([*command, str(options.cwd or "")])
    )


def _auth_from_config(chosen: "str | config.AuthConfig | None") -> Any:
    """Return the `auth` field of a configuration in the form that `Client(auth=…)` accepts."""
    if chosen != "oauth" and not isinstance(chosen, config.AuthConfig):
        return chosen
    from ..auth import ClientCredentials, OAuth

    if isinstance(chosen, str):
        return OAuth()
    return (ClientCredentials if chosen.is_for_program else OAuth)(**chosen.options)


def _bind_credentials(url: str, options: ConnectOptions, peers: Any) -> Credentials | None:
    """Return the credentials bound to this URL. An Authorization header from the user takes
    precedence."""
    auth = options.auth
    if auth is None or any(name.lower() == "authorization" for name in options.headers or ()):
        return None
    from ..net import is_confidential, shown_url
    from ..transports.http.client.fetch import fetcher

    if isinstance(auth, str):
        from ..auth import BearerToken

        auth = BearerToken(auth)
    elif isinstance(auth, type):
        raise ConfigError(
            f"auth={auth.__name__} is a class; create an object: auth={auth.__name__}(…)"
        )
    elif not all(hasattr(auth, name) for name in ("bind", "headers", "on_refused")):
        raise ConfigError(
            f"auth= must be a token or credentials such as OAuth(), not a {type(auth).__name__}"
        )
    if not is_confidential(url):
        raise ConfigError(
            f"{options.shown or shown_url(url)}: credentials are sent only over https or to "
            "localhost. Use an https URL."
        )
    fetch = fetcher(peers, getattr(auth, "named", ()), verify=options.verify, proxy=options.proxy)
    bound: Credentials = auth.bind(url, fetch)
    if options.tap is None:
        return bound
    from ..auth.client.taps import TappedCredentials

    return TappedCredentials(bound, options.tap)


def _from_url(url: str, options: ConnectOptions) -> Target:
    from ..net import PeerAddresses, shown_url, split_origin
    from ..transports.http.client.http_transport import HttpTransport, check_url
    from ..transports.http.client.messages import MAX_TOOLS, HeaderParams

    scheme, shown = url.partition("://")[0].lower(), options.shown or shown_url(url)
    if scheme not in URL_SCHEMES:
        raise ConfigError(f"{shown}: the scheme must be one of {', '.join(URL_SCHEMES)}")
    url = scheme + check_url(url, options.shown)[len(scheme) :]

    is_http = scheme.startswith("http")
    peers = PeerAddresses(split_origin(url)[1])
    # A WebSocket starts as HTTP.
    credentials = _bind_credentials(url if is_http else f"http{url[2:]}", options, peers)
    header_params = HeaderParams(MAX_TOOLS)  # shared with the next channel
    shared: dict[str, Any] = {
        "headers": options.headers,
        "verify": options.verify,
        "proxy": options.proxy,
        "auth": credentials,
        "peers": peers,
        "shown": options.shown,
        "tap": options.tap,
    }

    async def over_http() -> Channel:
        from ..transports.http.client.channel import HttpChannel

        if credentials is not None:
            await credentials.headers("POST", url)  # renew tokens before the timeout starts
        transport = HttpTransport(url, options.limits, **shared)
        return HttpChannel(transport, options.limits, options.long_polling, header_params)

    async def over_websocket() -> Channel:
        from ..transports.websocket import connect

        return await connect(url, options.limits, timeout=options.limits.timeout, **shared)

    identity = options.auth if credentials is not None else None
    if isinstance(identity, str):
        from hashlib import blake2b

        identity = blake2b(identity.encode()).digest()
    return Target(
        shown,
        over_http if is_http else over_websocket,
        era_key="{}://{}:{}".format(scheme, *split_origin(url)[1:]),
        cache_key=(url, options.verify, options.proxy, identity),
        credentials=credentials,
        headers=options.headers,
    )


async def _given(channel: Channel) -> Channel:
    return channel


_serving = TaskSet()


async def _in_memory(server: Any, limits: Limits) -> Channel:
    ours, theirs = memory.pair(limits, server.limits)
    ours.served = _serving.start(_serve(server, theirs))
    return ours


async def _serve(server: Any, channel: Channel) -> None:
    try:
        await server.serve(channel)
    except Exception:
        log.exception("The server in this process failed")
    finally:
        await channel.close()  # also if the server failed before it sent anything


def _is_server(target: Any) -> bool:
    return all(hasattr(target, name) for name in ("answer", "add_listener", "serve", "info"))


def _is_channel(target: Any) -> bool:
    return all(
        callable(getattr(target, name, None)) for name in ("start", "send", "drain", "close")
    )
