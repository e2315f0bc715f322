"""An HTTP API whose operations can be called.

Requests go to the base URL and nowhere else. Redirects are followed only to the same origin, and
only if the request can be repeated there. The connections of an event loop are kept as long as a
server runs in it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin
from weakref import WeakKeyDictionary

from ..errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    SchemaError,
    ToolError,
)
from ..jsonrpc.framing import TooLong
from ..limits import Limits
from ..net import shown_url, split_origin
from ..protocol.content import TextContent
from ..protocol.tools import ToolResult
from ..schema.validation import compile
from ..text import one_line
from ..transports.http.client.http_transport import (
    DEFAULT_HEADERS,
    HttpReply,
    check_url,
    make_http_client,
    proxy_for,
)
from ..transports.http.headers import check_headers
from .documents import ApiDocuments
from .parser import ApiOperation
from .replies import make_result
from .requests import ApiRequest, make_request
from .schemas import make_input_schema
from .security import ApiCredentials

if TYPE_CHECKING:
    from ..schema.validation import Validator
    from ..transports.http.client.http_transport import HttpClient

MAX_REDIRECTS: Final = 5
REDIRECTS: Final = (301, 302, 303, 307, 308)
AUTH_STATUSES: Final = (401, 403)
SAFE_METHODS: Final = ("GET", "HEAD")


class HttpApi:
    """The operations of an API, and how to call them.

    Args:
        documents: The description of the API.
        operations: The operations that can be called.
        base_url: Where the paths of the API begin.
        credentials: The values for its security schemes.
        headers: Headers that are sent with each request.
        limits: `timeout` limits the time of a request, `incoming` the size of a reply.
    """

    def __init__(
        self,
        documents: ApiDocuments,
        operations: list[ApiOperation],
        base_url: str,
        credentials: ApiCredentials,
        headers: Mapping[str, str],
        limits: Limits,
    ) -> None:
        self.operations = {operation.name: operation for operation in operations}
        self.base_url = base_url
        self._documents, self._credentials, self._limits = documents, credentials, limits
        self._headers = {name.lower(): value for name, value in headers.items()}
        check_headers(self._headers, "headers=")
        self._schemas: dict[str, dict[str, Any]] = {}
        self._validators: dict[str, Validator] = {}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[HttpClient, int]]
        self._clients = WeakKeyDictionary()

    def input_schema(self, name: str) -> dict[str, Any]:
        """Return the schema of an operation's arguments.

        Raises:
            SchemaError: The schema cannot be used.
        """
        if name not in self._schemas:
            operation = self.operations[name]
            try:
                self._schemas[name] = make_input_schema(
                    operation,
                    self._documents,
                    self._limits,
                    self._credentials.replaced(operation) | self._replaced(operation),
                )
            except SchemaError as error:
                raise SchemaError(f"{operation.method} {operation.path}: {error}") from None
        return self._schemas[name]

    def _replaced(self, operation: ApiOperation) -> frozenset[str]:
        """Return the arguments that the server's own headers replace."""
        return frozenset(
            one.argument
            for one in operation.parameters
            if one.place == "header" and one.name.lower() in self._headers
        )

    def problems(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with the arguments of an operation."""
        if name not in self._validators:
            self._validators[name] = compile(self.input_schema(name), self._limits)
        return self._validators[name].problems(arguments)

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function that calls an operation with arguments that have been checked."""

        async def call_operation(**arguments: Any) -> ToolResult:
            return await self.call(name, arguments)

        return call_operation

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call an operation with arguments that have been checked.

        Raises:
            ToolError: The request could not be sent, or there is no usable reply.
        """
        operation = self.operations[name]
        credentials = self._credentials.apply(operation)
        request = make_request(operation, arguments, self.base_url, self._documents, credentials)
        try:
            async with asyncio.timeout(self._limits.timeout):
                return await self._exchange(operation, request)
        except TimeoutError:
            raise ToolError(
                f"The API did not answer within {self._limits.timeout:g} s."
                + _may_have_happened(operation)
            ) from None
        except (ConnectFailed, ConnectionClosed, ConfigError) as error:
            was_sent = isinstance(error, ConnectionClosed) and error.sent
            raise ToolError(
                f"The API cannot be reached: {error}."
                + (_may_have_happened(operation) if was_sent else "")
            ) from None

    async def _exchange(self, operation: ApiOperation, request: ApiRequest) -> ToolResult:
        """Send a request, and follow redirects to the same origin."""
        client = self._client()
        for _ in range(MAX_REDIRECTS + 1):
            headers = {**DEFAULT_HEADERS, **request.headers, **self._headers}
            shown = shown_url(request.url)
            response = await client.request(
                request.method, request.url, headers, request.body, shown
            )
            async with HttpReply(response, shown, self._limits.incoming) as reply:
                location = reply.headers.get("location", "")
                if reply.status not in REDIRECTS or not location:
                    return await self._read(operation, request, reply)
                response.close()
            request = self._redirect(request, reply.status, location)
        raise ToolError(f"The API redirected the request more than {MAX_REDIRECTS} times.")

    async def _read(
        self, operation: ApiOperation, request: ApiRequest, reply: HttpReply
    ) -> ToolResult:
        if request.method == "HEAD":  # its reply has the length of a body, but no body
            reply.close()
            return make_result(operation, request.url, reply.status, reply.headers, b"")
        body = await reply.body()
        if isinstance(body, TooLong):
            raise ToolError(
                f"The reply of the API is larger than {self._limits.incoming:,} bytes "
                "(limits.incoming). Ask for less."
            )
        result = make_result(operation, request.url, reply.status, reply.headers, body)
        if reply.status in AUTH_STATUSES and (missing := self._credentials.missing(operation)):
            needed = f"This operation needs credentials ({' or '.join(missing)})"
            result.content.append(TextContent(f"{needed}, and this server has none."))
        return result

    def _redirect(self, request: ApiRequest, status: int, location: str) -> ApiRequest:
        try:
            target = check_url(urljoin(request.url, location))
            is_same = split_origin(target) == split_origin(self.base_url)
        except ValueError:
            is_same = False
        shown = one_line(shown_url(location))
        if not is_same:
            raise ToolError(
                f"The API redirects to {shown}, which has another origin. Redirects to other "
                "origins are not followed."
            )
        if status in (307, 308) or request.method in SAFE_METHODS:
            return request._replace(url=target)
        if status == 303:
            headers = {k: v for k, v in request.headers.items() if k != "content-type"}
            return ApiRequest("GET", target, headers, None)
        raise ToolError(
            f"The API redirects to {shown} with status {status}, which would drop the body of the "
            "request. It was not followed."
        )

    # connections

    @asynccontextmanager
    async def run_with(self, lifespan: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Keep connections to the API inside a lifespan."""
        loop = asyncio.get_running_loop()
        client, count = self._clients.get(loop) or (self._make_client(), 0)
        self._clients[loop] = client, count + 1
        try:
            async with lifespan as state:
                yield state
        finally:
            client, count = self._clients.pop(loop)
            if count > 1:
                self._clients[loop] = client, count - 1
            else:
                await client.close()

    def _make_client(self) -> "HttpClient":
        shown = shown_url(self.base_url)
        return make_http_client(shown, True, proxy_for(self.base_url), None)

    def _client(self) -> "HttpClient":
        found = self._clients.get(asyncio.get_running_loop())
        if found is None:
            raise ToolError("The server is not running, so its API cannot be called.")
        return found[0]


def _may_have_happened(operation: ApiOperation) -> str:
    if operation.method in SAFE_METHODS:
        return ""
    return " The request may have taken effect, so check before you repeat it."
