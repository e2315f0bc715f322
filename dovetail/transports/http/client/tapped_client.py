"""Report the HTTP requests of a client to a tap.

`tap_client` wraps an HTTP client. A transport without a tap uses its HTTP client as it is. Requests
are reported when the head of their response has arrived, or when they have failed.
"""

import time
from asyncio import CancelledError
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ....jsonrpc.messages import Id
from ....masking import mask_headers, mask_text, mask_url
from ....ports import HttpExchange, Tap
from ....text import one_line

if TYPE_CHECKING:
    from .http1_client import Http1Client, PreparedPost
    from .http1_connection import Http1Response, OnChange
    from .http_transport import HttpClient, ResponseStream

CANCELLED = "the client closed the connection before a response arrived"


class _CarriedMessage(Struct):
    """What identifies the message in the body of a request."""

    id: Id | None = None
    method: str | None = None


_decode = msgspec.json.Decoder(_CarriedMessage).decode


def _find_message(body: bytes | None) -> _CarriedMessage:
    try:
        return _decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _CarriedMessage()  # a batch, or not a message


def tap_client(client: "HttpClient", tap: Tap) -> "HttpClient":
    """Return an HTTP client that reports its requests to a tap."""
    if hasattr(client, "begin"):
        return cast("HttpClient", _TappedHttp1Client(cast("Http1Client", client), tap))
    return _TappedClient(client, tap)


class ExchangeReport:
    """The report of one request, which begins now."""

    def __init__(
        self,
        tap: Tap,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> None:
        self._tap, self._method, self._url, self._headers = tap, method, url, headers
        self._body = body
        self._started = time.time()
        self._is_done = False

    def succeed(self, status: int, headers: Mapping[str, str]) -> None:
        """Report the head of a response."""
        self._finish(status=status, response_headers=headers)

    def fail(self, problem: BaseException | str) -> None:
        """Report that there is no response."""
        text = CANCELLED if isinstance(problem, CancelledError) else str(problem)
        self._finish(error=one_line(text) or type(problem).__name__)

    def _finish(self, **outcome: Any) -> None:
        if self._is_done:
            return
        self._is_done = True
        message = _find_message(self._body)
        exchange = HttpExchange(
            method=self._method,
            url=self._url,
            request_headers=self._headers,
            started=self._started,
            ended=time.time(),
            message_id=message.id,
            message_method=message.method,
            **outcome,
        )
        self._tap.exchange(exchange if _shows_secrets(self._tap) else _mask(exchange))


def _shows_secrets(tap: Tap) -> bool:
    return bool(getattr(tap, "show_secrets", False))


def _mask(exchange: HttpExchange) -> HttpExchange:
    return replace(
        exchange,
        url=mask_url(exchange.url),
        request_headers=mask_headers(exchange.request_headers),
        response_headers=mask_headers(exchange.response_headers),
        error=exchange.error and mask_text(exchange.error),
    )


class _TappedClient:
    """An HTTP client that reports its requests."""

    def __init__(self, client: "HttpClient", tap: Tap) -> None:
        self._client, self._tap = client, tap

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, shown: str
    ) -> "ResponseStream":
        """Send a request, and report it."""
        report = ExchangeReport(self._tap, method, url, headers, body)
        try:
            response = await self._client.request(method, url, headers, body, shown)
        except BaseException as problem:
            report.fail(problem)
            raise
        report.succeed(response.status, response.headers)
        return response

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


class _TappedHttp1Client(_TappedClient):
    """A client that can also send requests without waiting."""

    def __init__(self, client: "Http1Client", tap: Tap) -> None:
        super().__init__(client, tap)
        self._http1 = client

    def prepare(self, url: str, headers: Mapping[str, str], shown: str) -> "PreparedPost":
        """Return the part of a POST that does not depend on its body, and what is reported."""
        return self._http1.prepare(url, headers, shown)._replace(url=url, headers=headers)

    def begin(
        self, post: "PreparedPost", body: bytes, on_change: "OnChange"
    ) -> "Http1Response | None":
        """Send a small POST on an idle connection, and report it when its response begins."""
        report = ExchangeReport(self._tap, "POST", post.url, post.headers, body)
        response = self._http1.begin(post, body, partial(_on_change, report, on_change))
        if response is not None:
            close = response.close

            def close_and_report() -> None:
                report.fail(CANCELLED)  # does nothing if the response has begun
                close()

            response.close = close_and_report  # type: ignore[method-assign]
        return response


def _on_change(report: ExchangeReport, on_change: "OnChange", response: "Http1Response") -> None:
    if response.status:
        report.succeed(response.status, response.headers)
    elif response.failure:
        report.fail(response.failure)
    on_change(response)
