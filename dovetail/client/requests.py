"""How a client asks: a request of any name, until it has an answer.

    request ─→ rounds ─→ attempts ─→ extensions, middleware ─→ what is kept, or the server
                │         └→ the conversation broke: once more, where that is safe and there is time
                └→ the server asks back: the callbacks answer, and the request is made again

The other half of a client, `client.py`, is what a user calls: a function for each request of the
protocol.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..connection.client_session import ClientSession
from ..connection.connection import OnProgress
from ..connection.extension import Extensions
from ..connection.middleware import Middleware, compose
from ..errors import ConnectionClosed, InvalidParams, InvalidRequest, MethodNotFound
from ..limits import Limits
from ..net import DEFAULT_PORTS
from ..ports import Call, Caller, Network
from ..protocol.base import Implementation, ListParams, Params
from ..protocol.lifecycle import InputRequiredResult, ServerCapabilities
from ..protocol.methods import METHODS
from ..protocol.tools import CallToolParams
from ..revisions import decode
from ..schema import Shape
from .caching import ResponseCache
from .callbacks import Callbacks
from .reconnect import ServerLink, backoff, ping_method
from .tasks import CALL_AS_TASK

ANY = Shape(Any)


class Requester:
    """One end of a conversation: what it knows of the server, and any request to it."""

    def __init__(
        self,
        link: ServerLink,
        callbacks: Callbacks,
        cached: ResponseCache,
        extensions: Extensions,
        *,
        middleware: Sequence[Middleware],
        on_progress: OnProgress | None,
        limits: Limits,
    ) -> None:
        self._link, self._callbacks, self._cached, self.extensions = (
            link,
            callbacks,
            cached,
            extensions,
        )
        self._on_progress, self._limits = on_progress, limits
        self._send = compose(middleware, self._send_to_server) if middleware else None

    # what it knows

    @property
    def state(self) -> str:
        """new, connecting, connected, reconnecting, disconnected or closed."""
        return self._link.state

    @property
    def revision(self) -> str:
        """The revision of the protocol that is spoken."""
        calling = self._link.session
        if calling is None:
            raise ConnectionClosed(f"{self._link.target.name} is not connected")
        return calling.agreed_revision.name

    @property
    def network(self) -> Network | None:
        """What the conversation goes over, and where to, as far as that is known."""
        found: Network | None = getattr(
            self._link.session and self._link.session.connection.channel, "network", None
        )
        if found is None or found.protocol is None:
            return found
        parts = urlsplit(self._link.target.name)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
        return replace(found, address=parts.hostname, port=port)

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version."""
        return self._link.session.server_info if self._link.session else None

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return (
            self._link.session.server_capabilities if self._link.session else ServerCapabilities()
        )

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        return self._link.session.instructions if self._link.session else None

    # asking

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        safe: bool = True,
        fresh: bool = False,
        manual: bool = False,
    ) -> Any:
        """Any request of the vocabulary, by name. `safe`: it may be asked again where the
        connection broke. `fresh`: no cached answer will do. `manual`: a server that asks back is
        not answered by the callbacks; its InputRequiredResult is what you get, and you make the
        next request with `input_responses` and `request_state`."""
        row = self.extensions.extension_method(method, stateless=True) or METHODS.get(method)
        if row is None:
            raise MethodNotFound(
                f"There is no method {method!r} in any revision, nor in an extension that was given"
            )
        if isinstance(params, Mapping):
            params = decode(ANY.encode(params), row.params)
        result = await self._request_with_rounds(
            method,
            params,
            timeout=timeout,
            on_progress=on_progress,
            safe=safe,
            fresh=fresh,
            manual=manual,
        )
        return result if manual else await self._finish_extension_result(params, result)

    async def _finish_extension_result(self, params: Any, result: Any) -> Any:
        """A result of a kind that an extension defines as what it stands for."""
        kind = self.extensions.kind_of(result)
        return result if kind is None else await kind.finish(self, params, result)

    async def _request_with_rounds(
        self,
        method: str,
        params: Any,
        *,
        timeout: float | None,
        on_progress: OnProgress | None,
        safe: bool,
        fresh: bool = False,
        manual: bool = False,
    ) -> Any:
        """The answer to a request, of whatever kind, after as many rounds of questions as it
        takes."""
        limit = self._link.timeout if timeout is None else timeout
        on_progress = on_progress or self._on_progress
        rounds = 0
        while True:
            attempt = partial(
                self._request_with_retries, method, params, limit, on_progress, safe, fresh
            )
            calling, result = await self._link.with_login(attempt)
            if manual or not isinstance(result, InputRequiredResult):
                return result
            rounds += 1
            if rounds > self._limits.rounds:
                raise InvalidRequest(
                    f"{method}: the server asked {rounds} times in a row without an answer of "
                    "its own"
                )
            if not result.input_requests:
                await asyncio.sleep(backoff(rounds))  # it asks nothing but to be asked again
            responses = await self._callbacks.answer_all(result, calling.agreed_revision, calling)
            params = replace(
                params, input_responses=responses or None, request_state=result.request_state
            )

    async def _request_with_retries(
        self,
        method: str,
        params: Any,
        timeout: float,
        on_progress: OnProgress | None,
        safe: bool,
        fresh: bool,
    ) -> tuple[ClientSession, Any]:
        """The answer to one request, asked again where that is safe and there is time."""
        loop = asyncio.get_running_loop()
        deadline, left = loop.time() + timeout, timeout
        for attempt in range(self._limits.restarts + 1):
            calling = await self._link.get_session(left)
            if self._callbacks.roots:
                await self._callbacks.check_roots(calling, passing=True)
            try:
                result = await self._send_once(calling, method, params, left, on_progress, fresh)
            except ConnectionClosed as problem:
                lost, left = problem, deadline - loop.time() - (pause := backoff(attempt))
                if not (safe or not problem.sent) or not self._link.can_reconnect or left <= 0:
                    break
                await asyncio.sleep(pause)
                continue
            except (InvalidParams, MethodNotFound):
                self._cached.drop_stale_lists(method)
                raise
            self._link.reset_losses()
            return calling, self._link.register_tools(result) if method == "tools/list" else result
        raise ConnectionClosed(f"{method}: {lost}") from None

    async def _send_once(
        self,
        calling: ClientSession,
        method: str,
        params: Any,
        timeout: float,
        on_progress: OnProgress | None,
        fresh: bool,
    ) -> Any:
        row = self.extensions.extension_method(
            method, calling.agreed_revision.stateless
        ) or METHODS.get(method)
        if row is None:
            raise MethodNotFound(
                f"There is no {method} in revision {calling.agreed_revision.version}"
            )
        if row.params is CallToolParams and params.task is not None:
            row, on_progress = (
                CALL_AS_TASK,
                None,
            )  # it has a token of its own, for it reports beyond the end of the call
        ask = partial(self._cached.request, calling, fresh) if row.cacheable else calling.request
        wrapped = self.extensions.layers.get(method, ())
        if self._send is None and not wrapped:
            return await ask(row, params, timeout=timeout, on_progress=on_progress)
        server = Caller(calling.agreed_revision, calling.server_info, calling.peer_capabilities)
        call = Call(0, row, Params() if params is None else params, server, self)
        # An id is known once the request is on its way, which what is kept may never be.
        more: dict[str, Any] = {} if row.cacheable else {"started": partial(setattr, call, "id")}
        call.protocol_handler = lambda made: ask(
            row, made.params, timeout=timeout, on_progress=on_progress, **more
        )
        return await compose(wrapped, self._send or self._send_to_server)(call)

    async def _send_to_server(self, call: Call) -> Any:
        assert call.protocol_handler is not None
        return await call.protocol_handler(call)

    async def notify(self, method: str, params: Any = None) -> None:
        """Tell the server something that an extension has a word for; MethodNotFound where it does
        not know that."""
        row = self.extensions.extension_method(method, stateless=True)
        if row is None or row.result is not None:
            raise MethodNotFound(
                f"There is no notification {method!r} in an extension that was given"
            )
        if isinstance(params, Mapping):
            params = decode(ANY.encode(params), row.params)
        (await self._link.get_session(self._link.timeout)).notify(method, params)

    async def ping(self, timeout: float | None = None) -> None:
        """Ask whether the server is there; one that was lost is looked for again."""
        limit = self._link.timeout if timeout is None else timeout
        method = ping_method(await self._link.get_session(limit))
        await self._link.with_login(
            partial(self._request_with_retries, method, None, limit, None, safe=True, fresh=True)
        )

    async def _list_all(self, method: str, field: str, fresh: bool) -> list[Any]:
        """All pages of a list, from its beginning again where the cursor of a page that was kept is
        not good any more."""
        served = self._cached.served
        try:
            return await self._list_pages(method, field, fresh)
        except InvalidParams:
            if self._cached.served == served:
                raise
            self._cached.drop(method)
        return await self._list_pages(method, field, fresh)

    async def _list_pages(self, method: str, field: str, fresh: bool) -> list[Any]:
        """Page by page. Cursors that never end are the server's mistake; what they say is none of
        our business."""
        items: list[Any] = []
        cursor: str | None = None
        for _ in range(self._limits.pages):
            result = await self.request(
                method, None if cursor is None else ListParams(cursor=cursor), fresh=fresh
            )
            items += getattr(result, field)
            cursor = result.next_cursor
            if cursor is None:
                return items
        raise InvalidRequest(
            f"{method}: the server's list has more than {self._limits.pages} pages"
        )
