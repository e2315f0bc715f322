"""Open connections for HTTP: look up the host, try its addresses, and negotiate TLS.

The addresses of a host are tried in turn. If one does not answer within
`HAPPY_EYEBALLS_SECONDS`, the next one is tried as well, and the first connection wins (RFC 8305).
Each socket is created by the caller's function, which may record or refuse the address: the
address that was checked is the address that is used, whatever a second lookup would say.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any, Final, TypeAlias, TypeVar

from ....aio import BoundedDict
from ....errors import ConfigError, ConnectFailed, ConnectionClosed
from ....net import is_ip_address
from ...stream_adapter import describe_os_error

P = TypeVar("P", bound=asyncio.BaseProtocol)
AddressInfo: TypeAlias = tuple[Any, ...]
"""A row of `getaddrinfo`."""
OpenSocket: TypeAlias = Callable[[AddressInfo], socket.socket]

CONNECT_SECONDS: Final = 10.0
"""How long connecting may take, including the lookup and the TLS handshake."""
HAPPY_EYEBALLS_SECONDS: Final = 0.25
LOOKUP_SECONDS: Final = 10.0
"""How long the addresses of a host are remembered."""
MAX_LOOKUPS: Final = 16
HTTP_1_1: Final = "http/1.1"


class SocketConnector:
    """Opens connections. `open_socket` creates the socket for an address, or raises OSError."""

    def __init__(self, verify: Any = True, open_socket: OpenSocket | None = None) -> None:
        self._open_socket = open_socket or _open_socket
        self._context = None if verify is True else make_ssl_context(verify)
        self._lookups: BoundedDict[tuple[str, int], tuple[float, list[AddressInfo]]]
        self._lookups = BoundedDict(MAX_LOOKUPS)

    async def connect(
        self, make_protocol: Callable[[], P], secure: bool, host: str, port: int, shown: str
    ) -> P:
        """Open a connection.

        Raises:
            ConnectFailed: The host is unknown or TLS failed, so another attempt would fail, too.
            ConnectionClosed: The host cannot be reached now.
        """
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as deadline:
                found = await self._connect_socket(host, port)
                tls: dict[str, Any] = {}
                if secure:
                    context = self._context or make_ssl_context(True)
                    tls = {"ssl": context, "server_hostname": host.partition("%")[0].rstrip(".")}
                loop = asyncio.get_running_loop()
                try:
                    transport, protocol = await loop.create_connection(
                        make_protocol, sock=found, **tls
                    )
                except BaseException:
                    found.close()
                    raise
        except (socket.gaierror, UnicodeError):  # a label of more than 63 characters
            raise ConnectFailed(f"{shown}: the host {host} was not found") from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason
            raise ConnectFailed(f"{shown}: TLS failed: {reason or error}") from None
        except OSError as error:  # TimeoutError, too
            if deadline.expired():
                text = f"could not connect within {CONNECT_SECONDS:g} s"
            else:
                text = describe_os_error(error)
            raise ConnectionClosed(f"{shown}: {text}", sent=False) from None
        chosen = transport.get_extra_info("ssl_object")
        if chosen is not None and chosen.selected_alpn_protocol() not in (None, HTTP_1_1):
            transport.abort()
            raise ConnectFailed(
                f"{shown}: TLS failed: the server chose {chosen.selected_alpn_protocol()}, because "
                "the SSL context offers it. Offer only http/1.1 (set_alpn_protocols)."
            )
        return protocol

    async def _connect_socket(self, host: str, port: int) -> socket.socket:
        infos = await self._look_up(host, port)
        try:
            return await (self._try(infos[0]) if len(infos) == 1 else self._race(infos))
        except OSError:
            self._lookups.pop((host, port), None)
            raise

    async def _look_up(self, host: str, port: int) -> list[AddressInfo]:
        """Return the addresses of a host, alternating between IPv6 and IPv4."""
        loop = asyncio.get_running_loop()
        if is_ip_address(host):
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        expiry, infos = self._lookups.get((host, port), (0.0, []))
        if loop.time() >= expiry:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            first = [info for info in found if info[0] == found[0][0]]
            others = [info for info in found if info[0] != found[0][0]]
            pairs = chain.from_iterable(zip_longest(first, others))
            infos = [info for info in pairs if info is not None]
            self._lookups[host, port] = loop.time() + LOOKUP_SECONDS, infos
        return infos

    async def _try(self, info: AddressInfo) -> socket.socket:
        opened = self._open_socket(info)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await asyncio.get_running_loop().sock_connect(opened, info[4])
        except BaseException:
            opened.close()
            raise
        return opened

    async def _race(self, infos: list[AddressInfo]) -> socket.socket:
        """Return the first connection. Raise the first error if there is none."""
        waiting = list(reversed(infos))
        attempts: set[asyncio.Task[socket.socket]] = set()
        errors: list[BaseException] = []
        try:
            while waiting or attempts:
                if waiting:
                    attempts.add(asyncio.create_task(self._try(waiting.pop())))
                timeout = HAPPY_EYEBALLS_SECONDS if waiting else None
                done, _ = await asyncio.wait(
                    attempts, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                for attempt in done:
                    attempts.discard(attempt)
                    error = attempt.exception()
                    if error is None:
                        return attempt.result()
                    errors.append(error)
        finally:
            for attempt in attempts:
                attempt.add_done_callback(_discard)
                attempt.cancel()
        raise errors[0]


def _discard(attempt: "asyncio.Task[socket.socket]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _open_socket(info: AddressInfo) -> socket.socket:
    return socket.socket(*info[:3])


def make_ssl_context(verify: Any) -> ssl.SSLContext:
    """Return the SSL context for `verify`, which is True, False, an SSL context, or the path of
    trusted certificates."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        return _default_context(verify)
    import os

    path = os.fspath(verify)
    is_folder = os.path.isdir(path)
    try:
        context = ssl.create_default_context(
            cafile=None if is_folder else path, capath=path if is_folder else None
        )
    except OSError as error:
        raise ConfigError(
            f"verify={path!r} contains no certificates: {describe_os_error(error)}"
        ) from None
    context.set_alpn_protocols([HTTP_1_1])
    return context


@lru_cache(2)
def _default_context(verify: bool) -> ssl.SSLContext:
    """Load the certificates of the system only once, because that takes about 50 ms."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([HTTP_1_1])
    return context
