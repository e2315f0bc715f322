"""HTTP through a proxy, on top of aiohttp. All other requests use `http1_client.py`, which takes
a quarter of the CPU time but does not support proxies. The two have the same interface
(`http_transport.py`). Only this module imports aiohttp.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final

import aiohttp

from ....errors import ConfigError, ConnectFailed, ConnectionClosed
from ...send_with_auth import make_head
from ...stream_adapter import describe_os_error
from .connect import CONNECT_SECONDS, make_ssl_context
from .http1 import BROKEN, NO_RESPONSE
from .http1_connection import IDLE_SECONDS

LARGE_BODY_BYTES: Final = 64 * 1024
"""Bodies larger than this are sent in pieces, so that they do not block the event loop."""


class AiohttpClient:
    """The connections of one client through a proxy."""

    def __init__(self, proxy: str, verify: Any = True) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=IDLE_SECONDS, ssl=make_ssl_context(verify)
            ),
            proxy=proxy,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            auto_decompress=False,  # `read_chunks` does that, within bounds
        )

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, shown: str
    ) -> "AiohttpResponse":
        """Send a request. Return the response when its headers have arrived."""
        # Let the loop notice connections that were closed while it was busy, so that none is
        # reused.
        await asyncio.sleep(0)
        with _translate_errors(shown):
            data = BytesIO(body) if body is not None and len(body) > LARGE_BODY_BYTES else body
            response = await self._session.request(
                method, url, headers=headers, data=data, allow_redirects=False
            )
        return AiohttpResponse(response, shown)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class AiohttpResponse:
    """A response. Iterate over it to read its body as it arrives, then `close` it."""

    def __init__(self, response: aiohttp.ClientResponse, shown: str) -> None:
        self._response, self._shown = response, shown
        self._chunks = response.content.iter_any()
        self.status, self.reason = response.status, response.reason or ""
        self.headers: Mapping[str, str] = make_head(0, response.headers.items()).headers

    def __aiter__(self) -> "AiohttpResponse":
        return self

    async def __anext__(self) -> bytes:
        """Return what has arrived since the last call."""
        with _translate_errors(self._shown):
            return await anext(self._chunks)

    def release(self) -> None:
        """Do the same as `close`."""
        self.close()

    def close(self) -> None:
        """Release the connection if the response is complete. Otherwise, close it."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


@contextmanager
def _translate_errors(shown: str) -> Iterator[None]:
    """Translate aiohttp's exceptions into one-line errors that say whether the request may have
    arrived."""
    try:
        yield
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"{shown} is not a URL: {error}") from None
    except (aiohttp.ClientConnectorDNSError, aiohttp.ClientSSLError) as error:
        raise ConnectFailed(f"{shown}: {_describe_connect_error(error)}") from None
    except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
        raise ConnectionClosed(f"{shown}: {_describe_connect_error(error)}", sent=False) from None
    except aiohttp.ConnectionTimeoutError:
        text = f"{shown}: could not connect within {CONNECT_SECONDS:g} s"
        raise ConnectionClosed(text, sent=False) from None
    except aiohttp.ServerDisconnectedError:
        raise ConnectionClosed(f"{shown}: {NO_RESPONSE}") from None
    except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError):
        raise ConnectionClosed(f"{shown}: {BROKEN}") from None
    except aiohttp.ClientError as error:
        raise ConnectionClosed(
            f"{shown}: the response is not valid HTTP: {str(error)[:200]}"
        ) from None


def _describe_connect_error(error: Any) -> str:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"the host {error.host} was not found"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
            reason = getattr(cause, "verify_message", "") or getattr(cause, "reason", "")
            return f"TLS failed: {reason or cause}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refused the connection: {error.status} {error.message}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy cannot be reached: {describe_os_error(error.os_error)}"
    return describe_os_error(error.os_error)
