"""Turn a client's target into a channel.

A target is one of: a Server object, a channel, a URL, a command (list), a script (`server.py`), an
`mcp.json` (path or dict). It becomes a `Target`: a name for messages, and a function that opens a
new channel each time it is called, so that a server can be started or reached again after it died.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from .. import config
from ..errors import ConfigError
from ..limits import Limits
from ..ports import Channel, Credentials
from ..transports import memory

OpenChannel = Callable[[], Awaitable[Channel]]
URL_SCHEMES = ("http", "https", "ws", "wss")
SCRIPT_RUNNERS = {
    ".py": [sys.executable, "-u"],
    ".js": ["node"],
    ".mjs": ["node"],
    ".ts": ["npx", "tsx"],
}
"""What runs a script, by its suffix."""


class Target(Struct, frozen=True, eq=False):
    """How to reach a server."""

    name: str
    open: OpenChannel
    can_reopen: bool = True
    """Whether a second channel can be opened. A channel that was given is the only one."""
    era_key: str | None = None
    """Identifies the server, to remember its era."""
    cache_key: Any = None
    """Identifies a remote server to clients that share a cache: its URL, how it is trusted, and
    who asks."""
    credentials: Credentials | None = None
    """What the client authenticates with."""


class ProcessOptions(Struct, frozen=True, eq=False):
    """How to run a server process."""

    env: Mapping[str, str] | None = None
    cwd: str | Path | None = None
    on_stderr: Callable[[str], None] | None = None


class HttpOptions(Struct, frozen=True, eq=False):
    """How to reach a remote server."""

    headers: Mapping[str, str] | None = None
    """Sent with each request, to its origin only."""
    verify: Any = True
    """Which TLS certificates to trust: True for the system's authorities, a path, an SSLContext;
    False for any."""
    proxy: str | None = None
    """Overrides the environment."""
    long_polling: bool = False
    """Poll for messages instead of holding a stream open."""
    auth: Any = None
    """Credentials, or a bearer token."""


def resolve_target(
    target: Any, server: str | None, limits: Limits, started: ProcessOptions, reached: HttpOptions
) -> Target:
    """Return the Target that a client's target and options describe."""
    made = _resolve(target, server, limits, started, reached)
    if reached.auth is not None and made.cache_key is None:
        raise ConfigError(
            f"auth= is for a URL, but the target is {made.name}, which needs no credentials"
        )
    return made


def _resolve(
    target: Any, server: str | None, limits: Limits, started: ProcessOptions, reached: HttpOptions
) -> Target:
    if _is_server(target):
        return Target(f"the server {target.name!r}", lambda: _in_memory(target, limits))
    if _is_channel(target):
        return Target(type(target).__name__, lambda: _given(target), can_reopen=False)
    if isinstance(target, Mapping):
        return _from_config(config.choose(config.parse(target), server), limits, started, reached)
    if isinstance(target, list | tuple):
        return _from_command([str(part) for part in target], limits, started)
    if isinstance(target, str | Path):
        return _from_string(str(target), server, limits, started, reached)
    raise ConfigError(
        f"{target!r} is not a target: give a URL, a script, a command as a list, an mcp.json, "
        "a Server or a channel"
    )


def _from_string(
    text: str, server: str | None, limits: Limits, started: ProcessOptions, reached: HttpOptions
) -> Target:
    if "://" in text:
        return _from_url(text, limits, reached)
    path = Path(text)
    if path.suffix == ".json":
        return _from_config(
            config.choose(config.read(path), server, text), limits, started, reached
        )
    if path.suffix in SCRIPT_RUNNERS:
        if not path.is_file():
            raise ConfigError(f"There is no file {text}")
        return replace(
            _from_command([*SCRIPT_RUNNERS[path.suffix], str(path.absolute())], limits, started),
            name=text,
        )
    if not text.strip():
        raise ConfigError("The target is empty")
    raise ConfigError(
        f"{text!r} is not a URL, script or mcp.json; give a command as a list: {text.split()!r}"
    )


def _from_config(
    chosen: config.ServerConfig, limits: Limits, started: ProcessOptions, reached: HttpOptions
) -> Target:
    filled = config.expand(chosen)
    if filled.url is not None:
        headers, auth = (
            {**filled.headers, **(reached.headers or {})},
            reached.auth or _auth_from_config(filled.auth),
        )
        return _from_url(filled.url, limits, replace(reached, headers=headers, auth=auth))
    assert filled.command is not None
    env, cwd = {**filled.env, **(started.env or {})}, started.cwd or filled.cwd
    return _from_command([filled.command, *filled.args], limits, replace(started, env=env, cwd=cwd))


def _from_command(command: Sequence[str], limits: Limits, how: ProcessOptions) -> Target:
    if not command:
        raise ConfigError("The command is empty")

    async def open() -> Channel:
        from ..transports.process import spawn

        return await spawn(
            command, env=how.env, cwd=how.cwd, limits=limits, on_stderr=how.on_stderr
        )

    return Target(" ".join(command), open, era_key="\0".join([*command, str(how.cwd or "")]))


def _auth_from_config(chosen: "str | config.AuthConfig | None") -> Any:
    """Return the `auth` of a configuration as `Client(auth=…)` takes it."""
    if chosen != "oauth" and not isinstance(chosen, config.AuthConfig):
        return chosen
    from ..auth import OAuth

    return OAuth() if isinstance(chosen, str) else OAuth(**asdict(chosen))


def _bind_credentials(url: str, how: HttpOptions, peers: Any) -> Credentials | None:
    """Return the credentials bound to this URL. An Authorization header that the user gave takes
    precedence."""
    if how.auth is None or any(name.lower() == "authorization" for name in how.headers or ()):
        return None
    from ..net import is_confidential
    from ..transports.http.client.fetch import fetcher

    auth = how.auth
    if isinstance(auth, str):
        from ..auth import BearerToken

        auth = BearerToken(auth)
    elif isinstance(auth, type):
        raise ConfigError(
            f"auth={auth.__name__} is a class; create an object: auth={auth.__name__}(…)"
        )
    elif not all(hasattr(auth, name) for name in ("bind", "headers", "on_refused")):
        raise ConfigError(
            f"auth= takes a token, or credentials such as OAuth(), not a {type(auth).__name__}"
        )
    if not is_confidential(url):
        raise ConfigError(
            f"{url}: credentials are only sent over https, or to localhost. Use an https URL."
        )
    bound: Credentials = auth.bind(
        url, fetcher(peers, getattr(auth, "named", ()), verify=how.verify, proxy=how.proxy)
    )
    return bound


def _from_url(url: str, limits: Limits, how: HttpOptions) -> Target:
    from ..net import PeerAddresses, split_origin
    from ..transports.http.client.http_transport import HttpTransport, check_url
    from ..transports.http.client.messages import MAX_TOOLS, HeaderParams

    scheme = url.partition("://")[0].lower()
    if scheme not in URL_SCHEMES:
        raise ConfigError(f"{url}: the scheme must be one of {', '.join(URL_SCHEMES)}")
    url = scheme + check_url(url)[len(scheme) :]

    asked = url if scheme.startswith("http") else "http" + url[2:]  # a WebSocket starts as HTTP
    peers = PeerAddresses(split_origin(url)[1])
    credentials = _bind_credentials(asked, how, peers)
    header_params = HeaderParams(MAX_TOOLS)  # known to the next channel too

    async def over_http() -> Channel:
        from ..transports.http.client.channel import HttpChannel

        if credentials is not None:
            await credentials.headers("POST", url)  # renew tokens before the timeout starts
        transport = HttpTransport(
            url,
            limits,
            headers=how.headers,
            verify=how.verify,
            proxy=how.proxy,
            auth=credentials,
            peers=peers,
        )
        return HttpChannel(transport, limits, how.long_polling, header_params)

    async def over_websocket() -> Channel:
        from ..transports.websocket import connect

        return await connect(
            url,
            limits,
            headers=how.headers,
            verify=how.verify,
            proxy=how.proxy,
            timeout=limits.timeout,
            auth=credentials,
            peers=peers,
        )

    host = "{}://{}:{}".format(scheme, *split_origin(url)[1:])
    open = over_http if scheme.startswith("http") else over_websocket
    who = how.auth if credentials is not None else None
    if isinstance(who, str):
        from hashlib import blake2b

        who = blake2b(who.encode()).digest()
    return Target(
        url,
        open,
        era_key=host,
        cache_key=(url, how.verify, how.proxy, who),
        credentials=credentials,
    )


async def post_json(
    url: str, headers: Mapping[str, str], body: bytes, timeout: float
) -> tuple[int, bytes]:
    """POST a JSON document to a web API and return the status and body; for samplers."""
    from ..transports.http.client import fetch

    return await fetch.post_json(url, headers, body, timeout)


async def _given(channel: Channel) -> Channel:
    return channel


async def _in_memory(server: Any, limits: Limits) -> Channel:
    ours, theirs = memory.pair(limits, server.limits)
    task = asyncio.get_running_loop().create_task(_serve(server, theirs))
    _serving.add(task)
    task.add_done_callback(_serving_done)
    return ours


async def _serve(server: Any, channel: Channel) -> None:
    try:
        await server.serve(channel)
    finally:
        await channel.close()  # also if the server failed before it sent anything


_serving: set["asyncio.Task[None]"] = set()


def _serving_done(task: "asyncio.Task[None]") -> None:
    _serving.discard(task)
    if not task.cancelled() and task.exception() is not None:
        import logging

        logging.getLogger("dovetail.client").error(
            "The server in this process failed", exc_info=task.exception()
        )


def _is_server(target: Any) -> bool:
    return all(hasattr(target, name) for name in ("answer", "add_listener", "serve", "info"))


def _is_channel(target: Any) -> bool:
    return all(
        callable(getattr(target, name, None)) for name in ("start", "send", "drain", "close")
    )
