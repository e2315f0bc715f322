"""The part of a client that sends requests and handles retries and the server's questions.

    request ─→ rounds ─→ attempts ─→ extensions, middleware ─→ the cache, or the server
                │         └→ the connection broke, or the server is busy: try again, if that is safe
                │            and time is left
                └→ the server asks a question: the callbacks answer, and the request is sent again

The other part, `client.py`, contains the methods that users call: one for each protocol request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..connection.client_session import ClientSession
from ..connection.connection import OnProgress
from ..connection.middleware import Middleware, compose
from ..errors import (
    ConnectionClosed,
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    Unauthorized,
)
from ..jsonrpc.messages import Id, encode
from ..net import DEFAULT_PORTS
from ..ports import Call, Caller, Network
from ..protocol.base import Implementation, ListParams, Params, Result
from ..protocol.header_params import HeaderParam
from ..protocol.lifecycle import ClientCapabilities, InputRequiredResult, ServerCapabilities
from ..protocol.methods import METHODS, Method
from ..protocol.raw import RawObject, split_object
from ..protocol.tools import CallToolParams, Tool
from ..revisions import STATELESS, decode
from ..schema import Shape
from .caching import ResponseCache
from .call_hook import OnCall, approve_call
from .open_call import OnRequestId, OpenCall
from .reconnect import Connector, backoff, ping_method
from .tasks import CALL_AS_TASK

ANY = Shape(Any)
TOOL_CALL = "tools/call"
NEWEST = STATELESS[-1]
Attempt = Callable[[], Awaitable[tuple[ClientSession, Any]]]
"""Sends a request once, or several times if that is safe."""


class Requester:
    """The base class of `Client`: properties of the server, and methods that send any request."""

    def __init__(
        self,
        connector: Connector,
        cache: ResponseCache,
        middleware: Sequence[Middleware],
        on_progress: OnProgress | None,
        on_call: OnCall | None = None,
    ) -> None:
        self._connector, self._cache, self._on_progress = connector, cache, on_progress
        self._on_call = on_call
        self._open_calls: dict[Id, OpenCall] = {}
        self.extensions, self._limits = connector.extensions, connector.limits
        self._send = compose(middleware, self._send_to_server) if middleware else None

    # properties of the server

    @property
    def state(self) -> str:
        """The state of the connection: new, connecting, connected, reconnecting, disconnected or
        closed."""
        return self._connector.state

    @property
    def revision(self) -> str:
        """The negotiated protocol revision, as a date.

        Raises:
            ConnectionClosed: The client is not connected.
        """
        session = self._connector.session
        if session is None:
            raise ConnectionClosed(f"{self._connector.target.name} is not connected")
        return session.agreed_revision.name

    @property
    def connection_id(self) -> str:
        """Identifies the open connection. A connection that is opened again has another id. Empty
        if the client is not connected."""
        return self._connector.connection_id if self._connector.session is not None else ""

    @property
    def is_stateless(self) -> bool:
        """Whether the connection is stateless: there is no session, and the server answers with its
        questions instead of sending them. False if the client is not connected."""
        session = self._connector.session
        return session is not None and session.agreed_revision.stateless

    @property
    def knows_parents(self) -> bool:
        """Whether each question from the server carries the `parent=` of the request to which it
        belongs. False if the transport cannot tell, or the client is not connected."""
        session = self._connector.session
        return session is not None and (
            session.agreed_revision.stateless
            or getattr(session.connection.channel, "knows_requests", False)
        )

    def offers(self, method: str) -> bool:
        """Return whether the server offers a method of the protocol. False if the client is not
        connected.

        Args:
            method: The name of the method, such as `"completion/complete"`.
        """
        session = self._connector.session
        return session is not None and session.offers(self._find_method(method))

    @property
    def network(self) -> Network | None:
        """The transport and the address of the server, if they are known."""
        session = self._connector.session
        if session is None:
            return None
        found: Network | None = getattr(session.connection.channel, "network", None)
        if found is None or found.protocol is None:
            return found
        parts = urlsplit(self._connector.target.name)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
        return replace(found, address=parts.hostname, port=port)

    @property
    def server_info(self) -> Implementation | None:
        """The name and version of the server; None if the client is not connected."""
        session = self._connector.session
        return session.server_info if session else None

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declared; empty if the client is not connected."""
        session = self._connector.session
        return session.server_capabilities if session else ServerCapabilities()

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model."""
        session = self._connector.session
        return session.instructions if session else None

    # requests

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
        parent: Any = None,
        on_request_id: OnRequestId | None = None,
    ) -> Any:
        """Send any request that the protocol or an extension defines, and return its result.

        Args:
            method: The name of the method, such as `"tools/list"`.
            params: The params: a mapping in wire form, or the method's params type.
            timeout: Seconds to wait for the answer (default: the client's `timeout`).
            on_progress: Called with each progress update for this request.
            safe: Whether the request may be sent again if the connection breaks after it was sent.
            fresh: Whether to ask the server even if a cached answer is still valid.
            manual: Whether you, rather than the callbacks, answer the server's questions. If so,
                you receive an InputRequiredResult and send the next request with `input_responses`
                and `request_state`.
            parent: Any object. Callbacks see it as `.parent` of the questions and log messages that
                belong to this request, if the transport can tell: always over streamable HTTP, and
                for questions in the stateless era.
            on_request_id: Called with the id of the request just before it is sent, and again
                with a new id each time that it has to be sent again. Pass one of these ids to
                `cancel_request`.

        Raises:
            MethodNotFound: Neither the protocol nor an extension of this client has this method.
            RequestCancelled: `cancel_request` was called with the id of this request.
        """
        row = self._find_method(method)
        if isinstance(params, Mapping):
            params = decode(ANY.encode(params), row.params)
        if row.name == TOOL_CALL:
            params = await self._approve_call(params)
        with OpenCall(self._open_calls, on_request_id) as call:
            result = await self._request_with_rounds(
                method, params, timeout, on_progress, safe, fresh, manual, parent, call.started
            )
            return result if manual else await self._finish_extension_result(params, result)

    def cancel_request(self, request_id: Id, reason: str | None = None) -> bool:
        """Cancel a call that another task of this program is waiting for.

        The call raises RequestCancelled, and the server is notified in the way that its revision
        defines. If the server runs the call as a task, that task is cancelled.

        Args:
            request_id: The id of one of the call's requests, from `on_request_id=`, from
                `request_id` of a progress update or log message, or from the wire.
            reason: Why the call is cancelled. It is sent to the server.

        Returns:
            False if no call with this id is open on the current connection.
        """
        call = self._open_calls.get(request_id)
        return call is not None and call.cancel(reason)

    async def _approve_call(self, params: Any) -> Any:
        """Let `on_call` see a tool call, and return the call to send."""
        if self._on_call is None:
            return params
        if not isinstance(params, CallToolParams):
            raise InvalidParams("tools/call requires the name of a tool", parameter="name")
        session = await self._connector.get_session()
        tool, target = self._find_tool(params.name), self._connector.target.name
        return await approve_call(self._on_call, params, tool, session.server_info, target)

    def _find_tool(self, name: str) -> Tool | None:
        """Return a tool as it was listed last; None if it is not known."""
        return None

    async def relay(
        self,
        method: str,
        params: Raw | Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        safe: bool = False,
        capabilities: ClientCapabilities | None = None,
        log_level: str | None = None,
        parent: Any = None,
        headers: Mapping[str, str] | None = None,
        header_params: tuple[HeaderParam, ...] = (),
        on_request_id: OnRequestId | None = None,
    ) -> Raw:
        """Send a request on behalf of another client, and return its result as raw JSON.

        Unknown fields and numbers of any size pass unchanged in both directions. The params are
        lowered to the server's revision, and the result has the form of the newest revision. The
        server's questions are not answered: an `input_required` result is returned like any other.
        Nothing is cached, and `on_call` is not called.

        In `_meta`, the keys that describe a connection (version, client, capabilities, log level,
        progress token) are replaced with those of this client. All other keys pass.

        Args:
            method: The name of the method, such as `"tools/call"`.
            params: The params in wire form: raw JSON, or a mapping of field names to raw JSON or
                other values.
            timeout: Seconds to wait for the answer (default: the client's `timeout`).
            on_progress: Called with each progress update for this request.
            safe: Whether the request may be sent again if the connection breaks after it was sent.
            capabilities: The capabilities to declare for this request instead of the client's own.
                In the handshake era, capabilities apply to the whole session, so this argument has
                no effect.
            log_level: The lowest level of the log messages that the server sends during this
                request, or "off" for none, instead of the client's own (stateless era only).
            parent: Any object. Callbacks see it as `.parent`, as in `request`.
            headers: The `Mcp-Param-*` headers with which a tool call arrived over HTTP. Those that
                this client does not write itself are passed on to a server of the stateless era.
            header_params: The parameters of a tool that are repeated in headers, if you know them
                from another connection. Otherwise, the client lists the tools of a server that
                requires such headers.
            on_request_id: Called with the id of each request that is sent, as in `request`.

        Raises:
            MethodNotFound: Neither the protocol nor an extension of this client has this method.
            InvalidParams: The params are not an object.
            RequestCancelled: `cancel_request` was called with the id of this request.
        """
        row = self._find_method(method)
        call = OpenCall(self._open_calls, on_request_id)
        attempt: Attempt = partial(
            self._request_with_retries,
            method,
            RawObject(row.params, _split_params(method, params)),
            self._connector.timeout if timeout is None else timeout,
            on_progress or self._on_progress,
            safe,
            True,
            capabilities,
            log_level,
            parent,
            call.started,
        )
        if headers or header_params:
            attempt = partial(_pass_on, headers or {}, header_params, attempt)
        with call:
            try:
                _, result = await attempt()
            except HeaderMismatch:
                if row.params is not CallToolParams:
                    raise
                await self._list_all("tools/list", "tools", fresh=True)  # learn the headers
                _, result = await attempt()
        return result  # type: ignore[no-any-return]

    def _find_method(self, name: str) -> Method:
        row = self.extensions.extension_method(name, stateless=True) or METHODS.get(name)
        if row is None:
            raise MethodNotFound(
                f"Neither the protocol nor an extension of this client has a method {name!r}"
            )
        return row

    async def _finish_extension_result(self, params: Any, result: Any) -> Any:
        """Resolve a result of a type that an extension defines to the final result."""
        kind = self.extensions.kind_of(result)
        return result if kind is None else await kind.finish(self, params, result)

    async def _request_with_rounds(
        self,
        method: str,
        params: Any,
        timeout: float | None,
        on_progress: OnProgress | None,
        safe: bool,
        fresh: bool = False,
        manual: bool = False,
        parent: Any = None,
        started: Callable[[Id], None] | None = None,
    ) -> Any:
        """Send a request, and answer the server's questions until it returns a result."""
        limit = self._connector.timeout if timeout is None else timeout
        on_progress = on_progress or self._on_progress
        rounds = 0
        while True:
            session, result = await self._request_with_retries(
                method, params, limit, on_progress, safe, fresh, None, None, parent, started
            )
            if manual or not isinstance(result, InputRequiredResult):
                return result
            rounds += 1
            if rounds > self._limits.rounds:
                raise InvalidRequest(
                    f"{method}: the server asked {rounds} times in a row without answering "
                    "(Limits.rounds)"
                )
            if not result.input_requests:
                await asyncio.sleep(backoff(rounds))  # the server only asks for a repetition
            questions = result.input_requests or {}
            responses = await self._connector.callbacks.answer_all(questions, session, parent)
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
        capabilities: ClientCapabilities | None = None,
        log_level: str | None = None,
        parent: Any = None,
        started: Callable[[Id], None] | None = None,
    ) -> tuple[ClientSession, Any]:
        """Send one request. If the connection breaks, the server asks the client to wait, or the
        user has to log in, send it again if that is safe and time remains."""
        connector = self._connector
        deadline, left = monotonic() + timeout, timeout
        pauses = attempts = refusals = 0
        failed_on: ClientSession | None = None
        while True:
            session, logins = connector.session, connector.logins
            if session is None:
                session = await connector.get_session(left)
                left = round(deadline - monotonic(), 3)
            if connector.callbacks.roots:
                await connector.callbacks.check_roots(session, if_due=True)
            try:
                result = await self._send_once(
                    session, method, params, fresh, left, on_progress, started, capabilities,
                    log_level, parent,
                )  # fmt: skip
            except ConnectionClosed as problem:
                # A session that is ending refuses many requests, but that is one failure.
                attempts += problem.sent or session is not failed_on
                failed_on, pause = session, backoff(pauses)
                pauses, left = pauses + 1, deadline - monotonic() - pause
                may_repeat = (safe or not problem.sent) and attempts <= self._limits.restarts
                if not may_repeat or not connector.can_reconnect or left <= 0:
                    raise ConnectionClosed(f"{method}: {problem}", sent=problem.sent) from None
                await asyncio.sleep(pause)
            except Overloaded as problem:
                # The server has not processed it, so even a tool call is safe to send again.
                pauses += 1
                pause = max(problem.retry_after or 0.0, backoff(pauses))
                left = round(deadline - monotonic() - pause, 3)
                if problem.retry_after is None or left <= 0:
                    raise
                await asyncio.sleep(pause)
            except Unauthorized as problem:
                refusals += 1
                await connector.log_in_after(problem, refusals, logins)
                deadline, left = monotonic() + timeout, timeout  # a login may take minutes
                pauses = attempts = 0
            except (InvalidParams, MethodNotFound):
                self._cache.drop_stale_lists(method)
                raise
            else:
                connector.reset_losses()
                if method == "tools/list":
                    result = connector.register_tools(result)
                return session, result

    def _send_once(
        self,
        session: ClientSession,
        method: str,
        params: Any,
        fresh: bool,
        timeout: float,
        on_progress: OnProgress | None,
        started: Callable[[Id], None] | None,
        capabilities: ClientCapabilities | None,
        log_level: str | None,
        parent: Any,
    ) -> Awaitable[Any]:
        revision = session.agreed_revision
        row = self.extensions.extension_method(method, revision.stateless) or METHODS.get(method)
        if row is None:
            raise MethodNotFound(
                f"The method {method!r} is not supported in revision {revision.version}"
            )
        is_raw = type(params) is RawObject
        if row.params is CallToolParams and not is_raw and params.task is not None:
            row, on_progress = CALL_AS_TASK, None  # progress continues after the call
        ask = session.request
        if row.cacheable and not is_raw:
            ask = partial(self._cache.request, session, fresh)
        wrapped = self.extensions.layers.get(method, ())
        if self._send is None and not wrapped:
            return ask(row, params, timeout, on_progress, started, capabilities, log_level, parent)
        server = Caller(revision, session.server_info, session.peer_capabilities)
        call = Call(0, row, Params() if params is None else params, server, self)
        if ask == session.request:  # the id is known once the request is sent
            started = partial(_set_id, call, started)

        async def send(sent: Call) -> Any:
            result = await ask(
                row, sent.params, timeout, on_progress, started, capabilities, log_level, parent
            )
            return RawObject.parse(row.result or Result, result) if is_raw else result

        call.protocol_handler = send
        sending = compose(wrapped, self._send or self._send_to_server)(call)
        return _encode_raw(sending) if is_raw else sending

    async def _send_to_server(self, call: Call) -> Any:
        assert call.protocol_handler is not None
        return await call.protocol_handler(call)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification that an extension defines.

        Args:
            method: The name of the notification.
            params: The params: a mapping in wire form, or the method's params type.

        Raises:
            MethodNotFound: No extension of this client defines this notification, or the server
                does not support the extension.
        """
        row = self.extensions.extension_method(method, stateless=True)
        if row is None or row.result is not None:
            raise MethodNotFound(f"No extension of this client defines the notification {method!r}")
        if isinstance(params, Mapping):
            params = decode(ANY.encode(params), row.params)
        (await self._connector.get_session()).notify(method, params)

    async def ping(self, timeout: float | None = None) -> None:
        """Check that the server responds. If the connection was lost, it is opened again.

        Args:
            timeout: Seconds to wait for the answer (default: the client's `timeout`).
        """
        limit = self._connector.timeout if timeout is None else timeout
        method = ping_method(await self._connector.get_session(limit))
        await self._request_with_retries(method, None, limit, None, safe=True, fresh=True)

    async def _list_all(self, method: str, field: str, fresh: bool) -> list[Any]:
        """Return all pages of a list, or an empty list if the server does not offer that kind of
        list. If the cursor of a cached page is no longer valid, start again."""
        hits = self._cache.hits
        try:
            return await self._list_pages(method, field, fresh)
        except MethodNotFound:
            session = self._connector.session
            if session is None or session.offers(METHODS[method]):
                raise  # the server declares it, or its revision lacks it
            return []
        except InvalidParams:
            if self._cache.hits == hits:
                raise
            self._cache.drop(method)
        return await self._list_pages(method, field, fresh)

    async def _list_pages(self, method: str, field: str, fresh: bool) -> list[Any]:
        """Return all pages of a list, within `limits.pages`, `list_items` and `list_bytes`."""
        limits = self._limits
        items: list[Any] = []
        size = 0
        cursor: str | None = None
        for _ in range(limits.pages):
            result = await self.request(
                method, None if cursor is None else ListParams(cursor=cursor), fresh=fresh
            )
            page = getattr(result, field)
            if cursor is not None or result.next_cursor is not None:
                size += len(encode(page))
            items += page
            cursor = result.next_cursor
            if len(items) > limits.list_items:
                problem = f"more than {limits.list_items} items (Limits.list_items)"
            elif size > limits.list_bytes:
                problem = f"more than {limits.list_bytes} bytes (Limits.list_bytes)"
            elif cursor is None:
                return items
            else:
                continue
            raise InvalidRequest(f"{method}: the server's list has {problem}")
        raise InvalidRequest(
            f"{method}: the server's list has more than {limits.pages} pages (Limits.pages)"
        )


def _set_id(call: Call, started: Callable[[Id], None] | None, id: Id) -> None:
    call.id = id
    if started is not None:
        started(id)


async def _encode_raw(sending: Awaitable[Any]) -> Raw:
    return Raw(encode(NEWEST.lower(await sending)))


async def _pass_on(
    headers: Mapping[str, str], params: tuple[HeaderParam, ...], attempt: Attempt
) -> tuple[ClientSession, Any]:
    from ..transports.http.headers import pass_on_headers

    with pass_on_headers(headers, params):
        return await attempt()


def _split_params(method: str, params: Raw | Mapping[str, Any] | None) -> dict[str, Raw]:
    if params is None:
        return {}
    if type(params) is dict or isinstance(params, Mapping):
        return {
            name: value if type(value) is Raw else Raw(ANY.encode(value))
            for name, value in params.items()
        }
    try:
        return split_object(params or b"{}")
    except msgspec.MsgspecError as problem:
        raise InvalidParams.from_decoding(method, problem) from None
