"""The URL of a Redis server.

    redis://[user:password@]host[:6379][/database][?wait=1]
    rediss://…                                             with TLS
    redis+sentinel://[user:password@]host[:26379],…/master[/database][?sentinel_password=…]
    rediss+sentinel://…                                    with TLS to the sentinels, too

A user name or password with special characters is percent-encoded. `wait=N` makes important writes
wait until N replicas have them.
"""

from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from ...errors import ConfigError

SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
REDIS_PORT, SENTINEL_PORT = 6379, 26379
OPTIONS = ("wait", "sentinel_password")


class RedisAddress(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Where Redis is, and how to log in. Neither `str` nor `repr` reveals a password."""

    hosts: tuple[tuple[str, int], ...]
    """The host and port of Redis, or of each sentinel."""
    master: str = ""
    """The name of the master that the sentinels know; empty without sentinels."""
    database: int = 0
    tls: bool = False
    wait: int = 0
    """How many replicas must have a durable write before it is acknowledged."""
    username: str | None = None
    password: str | None = None
    sentinel_password: str | None = None

    def __str__(self) -> str:
        scheme = ("rediss" if self.tls else "redis") + ("+sentinel" if self.master else "")
        hosts = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )
        path = f"/{self.master}" if self.master else ""
        return f"{scheme}://{hosts}{path}/{self.database}"

    def __repr__(self) -> str:
        return f"RedisAddress({str(self)!r})"


def parse_address(url: str) -> RedisAddress:
    """Parse a URL. Raise ConfigError, without a password in its text, if it is not valid."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise _unknown_scheme(scheme if separator else "")
    # urlsplit knows one host and one port, so it must not see the list of sentinels.
    try:
        parts = urlsplit(f"redis://{rest}")
    except ValueError as error:
        raise ConfigError(f"The backend URL is not valid: {error}") from None
    if parts.fragment:
        raise ConfigError("The backend URL has a fragment. Write # in a password as %23.")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    is_sentinel = scheme.endswith("+sentinel")
    names = [unquote(name) for name in parts.path.split("/") if name]
    master = names.pop(0) if is_sentinel and names else ""
    if is_sentinel and not master:
        raise ConfigError(
            "The backend URL names no master. Write: redis+sentinel://host:26379,…/MASTER"
        )
    port = SENTINEL_PORT if is_sentinel else REDIS_PORT
    addresses = tuple(_parse_host(host, port) for host in hosts.split(","))
    if len(addresses) > 1 and not is_sentinel:
        raise ConfigError(
            "The backend URL names several hosts. Redis Cluster is not supported; for Sentinel, "
            "write redis+sentinel://host:26379,…/MASTER"
        )
    options = _parse_options(parts.query)
    return RedisAddress(
        hosts=addresses,
        master=master,
        database=_parse_number("database", "/".join(names) or "0"),
        tls=scheme.startswith("rediss"),
        wait=_parse_number("wait", options.get("wait", "0")),
        username=unquote(username) or None,
        password=unquote(password) or None,
        sentinel_password=options.get("sentinel_password"),
    )


def _unknown_scheme(scheme: str) -> ConfigError:
    if scheme.endswith("+cluster"):
        return ConfigError(
            "Redis Cluster is not supported as a backend. Use one Redis (redis://host), or "
            "Sentinel (redis+sentinel://host:26379,…/MASTER)."
        )
    known = ", ".join(f"{each}://" for each in SCHEMES)
    return ConfigError(f"The backend URL must start with one of: {known}")


def _parse_host(text: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"redis://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:  # its text may repeat part of a password that is not encoded
        host = port = None
    if not host:
        raise ConfigError(
            "The backend URL names no valid host and port. Write: redis://host:6379/0 (special "
            "characters in a password must be percent-encoded)"
        )
    return host, default_port if port is None else port


def _parse_options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            raise ConfigError(
                f"The backend URL has an unknown option {name!r}; it may have: {', '.join(OPTIONS)}"
            )
    return options


def _parse_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 4:
        raise ConfigError(f"The backend URL: {name} must be a number such as 1, not {text!r}")
    return int(text)
