"""Clients with the API of the official SDK and of FastMCP, on top of `dovetail.Client`.

A transport of the SDK connects and yields two streams. Here, a transport only says how to reach the
server: both streams are the same `Streams` value, and the session opens a `Client` with it. So an
agent framework that was written for the SDK reaches servers of every revision.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import cache, partial, partialmethod
from types import SimpleNamespace
from typing import Any, Self

import msgspec

from ..client.client import Client
from ..errors import ConfigError, ConnectionClosed, ProtocolError, TimedOut
from ..limits import DEFAULT
from ..protocol.base import Implementation
from ..protocol.client_features import CreateMessageResult, ElicitResult
from . import types
from .instead import missing_attribute, refuse_options
from .types import ErrorData, McpError

HTTPX_HEADERS = ("accept", "accept-encoding", "connection", "user-agent")
"""The headers that every client of httpx has."""
CONNECTION_CLOSED = -32000
LISTS = {"tools": "Tool", "resources": "Resource", "prompts": "Prompt"}


@cache
def _sdk_release() -> int:
    """Return the release of the SDK whose shape a program expects, 1 or 2: the installed one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return 1 if version("mcp").startswith("1.") else 2
    except PackageNotFoundError:
        return 2


def _seconds(value: Any) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value


# how to reach a server


class Streams(msgspec.Struct, eq=False):
    """What a transport yields in place of streams: how to reach a server."""

    target: Any
    options: dict[str, Any] = {}
    """The options of `dovetail.Client`."""
    read_timeout: float | None = None
    client: Client | None = None

    def get_session_id(self) -> str | None:
        """Return the id of the HTTP session, if there is one."""
        session = self.client and self.client._connector.session
        headers = getattr(session and session.connection.channel, "_headers", None)
        return getattr(headers, "session", None)


class StdioServerParameters(msgspec.Struct, kw_only=True):
    """How to start a server.

    Attributes:
        command: The program.
        args: Its arguments.
        env: Variables to add to the few that every server process inherits.
        cwd: The working directory.
        encoding: Only "utf-8" is supported.
        encoding_error_handler: Has no effect.
    """

    command: str
    args: list[str] = []
    env: dict[str, str] | None = None
    cwd: Any = None
    encoding: str = "utf-8"
    encoding_error_handler: str = "strict"


@asynccontextmanager
async def stdio_client(
    server: StdioServerParameters, errlog: Any = None
) -> AsyncIterator[tuple[Streams, Streams]]:
    """Describe a server that the session starts as a process.

    Args:
        server: How to start the server.
        errlog: The file for the lines that the server writes to stderr (default: stderr).
    """
    options: dict[str, Any] = {"env": server.env, "cwd": server.cwd}
    if errlog not in (None, sys.stderr):
        options["on_stderr"] = partial(print, file=errlog)
    streams = Streams([server.command, *server.args], options)
    yield streams, streams


def _http_streams(
    url: str,
    headers: Mapping[str, str] | None = None,
    timeout: Any = None,
    sse_read_timeout: Any = None,
    terminate_on_close: bool = True,
    httpx_client_factory: Callable[..., Any] | None = None,
    auth: Any = None,
    http_client: Any = None,
    **more: Any,
) -> Streams:
    refuse_options(more, "The transport")
    if httpx_client_factory is not None:
        http_client = httpx_client_factory(headers=headers, timeout=None, auth=auth)
    if http_client is not None:
        auth = auth or getattr(http_client, "auth", None)
        headers = {
            name: value
            for name, value in http_client.headers.items()
            if name.lower() not in HTTPX_HEADERS
        }
    if hasattr(auth, "auth_flow"):
        auth = HttpxCredentials(auth)
    options = {"headers": dict(headers or {}), "auth": auth, "timeout": _seconds(timeout)}
    return Streams(url, options, _seconds(sse_read_timeout))


@asynccontextmanager
async def streamablehttp_client(url: str, *args: Any, **options: Any) -> AsyncIterator[Any]:
    """Describe a server at a URL, and yield two streams and a function that returns the session id.

    Args:
        url: The URL.
        *args: headers, timeout, sse_read_timeout, … in the order of the SDK.
        **options: The same by name. Of an httpx client, the headers and `auth` are used.
    """
    streams = _http_streams(url, *args, **options)
    yield streams, streams, streams.get_session_id


@asynccontextmanager
async def streamable_http_client(url: str, **options: Any) -> AsyncIterator[Any]:
    """Describe a server at a URL. Release 1 of the SDK yields three values, release 2 yields two;
    the installed release decides, and two are yielded if there is none.

    Args:
        url: The URL.
        **options: http_client, and the options of `streamablehttp_client`.
    """
    streams = _http_streams(url, **options)
    yield (streams, streams, streams.get_session_id)[: 4 - _sdk_release()]


@asynccontextmanager
async def sse_client(url: str, *args: Any, **options: Any) -> AsyncIterator[tuple[Streams, Streams]]:
    """Describe a server at a URL that may speak HTTP+SSE (2024-11-05) or a newer transport.

    Args:
        url: The URL.
        *args: headers, timeout and sse_read_timeout, in the order of the SDK.
        **options: The same by name, and the options of `streamablehttp_client`.
    """
    options.pop("on_session_created", None)
    names = ("headers", "timeout", "sse_read_timeout", "httpx_client_factory", "auth")
    streams = _http_streams(url, **dict(zip(names, args, strict=False)), **options)
    yield streams, streams


@asynccontextmanager
async def websocket_client(url: str) -> AsyncIterator[tuple[Streams, Streams]]:
    """Describe a server at a `ws` or `wss` URL.

    Args:
        url: The URL.
    """
    yield Streams(url), Streams(url)


class HttpxCredentials:
    """Sends the headers that an `httpx.Auth` adds to a request. It does not see the responses."""

    def __init__(self, auth: Any, url: str = "") -> None:
        self._auth, self._url = auth, url

    def bind(self, url: str, fetch: Any) -> "HttpxCredentials":
        return HttpxCredentials(self._auth, url)

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        request = SimpleNamespace(method=method, url=url, headers={})
        if split_origin(url) == split_origin(self._url):
            async for _ in self._auth.async_auth_flow(request):
                break  # the next step would need a response
        return request.headers

    async def on_refused(self, method: str, url: str, answer: Any) -> bool:
        return False

    def on_response(self, answer: Any) -> None: ...


# a session


@contextmanager
def _as_mcp_error() -> Iterator[None]:
    """Raise an error of the protocol or the connection as McpError."""
    try:
        yield
    except TimedOut as error:
        code = 408 if _sdk_release() == 1 else -32001
        raise McpError(ErrorData(code=code, message=str(error))) from error
    except ConnectionClosed as error:
        raise McpError(ErrorData(code=CONNECTION_CLOSED, message=str(error))) from error
    except ProtocolError as error:
        data = ErrorData(code=error.code, message=error.message, data=error.data)
        raise McpError(data) from error


class CompatClientSession:
    """A connection to a server, with the methods of the official SDK.

    Args:
        read_stream: What a transport of `dovetail.compat` yielded.
        write_stream: The same.
        read_timeout_seconds: Time to wait for each answer, as a timedelta or in seconds.
        sampling_callback: Called with a context and the params of a sampling request.
        elicitation_callback: Called with a context and the params of an elicitation.
        list_roots_callback: Called with a context when the server asks for the roots.
        logging_callback: Called with the params of each log message.
        message_handler: Called with each change to a list or a subscribed resource.
        client_info: The name and version of this client.
        sampling_capabilities: Declares that the model can use tools.
        **more: Refused, with what to use instead.
    """

    def __init__(
        self,
        read_stream: Any,
        write_stream: Any = None,
        read_timeout_seconds: Any = None,
        sampling_callback: Any = None,
        elicitation_callback: Any = None,
        list_roots_callback: Any = None,
        logging_callback: Any = None,
        message_handler: Any = None,
        client_info: Any = None,
        *,
        sampling_capabilities: Any = None,
        **more: Any,
    ) -> None:
        refuse_options(more, "ClientSession")
        if not isinstance(read_stream, Streams):
            raise ConfigError(
                f"ClientSession accepts the streams of a transport in dovetail.compat, not a "
                f"{type(read_stream).__name__}; for your own transport, use Client(channel): "
                "docs/guides/transports.md"
            )
        self._timeout = _seconds(read_timeout_seconds) or read_stream.read_timeout
        self._on_message = message_handler
        self._subscriptions: dict[str, Any] = {}
        on_sample = self._answer(sampling_callback, "CreateMessageRequestParams")
        if getattr(sampling_capabilities, "tools", None) is not None:
            setattr(on_sample, "tools", True)
        self.initialize_result: Any = None
        self._client = read_stream.client = Client(
            read_stream.target,
            on_sample=on_sample,
            on_elicit=self._answer(elicitation_callback, "ElicitRequestParams"),
            roots=self._answer(list_roots_callback, ""),
            on_log=logging_callback and partial(self._log, logging_callback),
            info=client_info and _to_ours(client_info, Implementation),
            **read_stream.options,
        )

    def _answer(self, callback: Any, has_params: bool = True) -> Any:
        return callback and partial(self._ask, callback, has_params)

    async def _ask(self, callback: Any, has_params: bool, request: Any) -> Any:
        context = RequestContext(request.parent, request.meta, self)
        answer = await callback(*(context, request)[: 1 + has_params])
        if isinstance(answer, types.ErrorData):
            raise ProtocolError(answer.code, answer.message, answer.data)
        return answer if has_params else answer.roots

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("ClientSession", name)

    async def initialize(self) -> Any:
        """Connect, and return an `InitializeResult`, in every revision."""
        with _as_mcp_error():
            await self._client.connect()
        if self._on_message is not None:
            self._report_changes(self._on_message)
        self.initialize_result = types.InitializeResult(
            protocol_version=self._client.revision,
            capabilities=self._client.capabilities,
            server_info=self._client.server_info,
            instructions=self._client.instructions,
        )
        return self.initialize_result

    def _report_changes(self, handler: Any) -> None:
        for kind, name in LISTS.items():
            changed = getattr(types, f"{name}ListChangedNotification")
            if getattr(self._client.capabilities.get(kind), "list_changed", False):
                self._client.on_change(kind, lambda _, changed=changed: handler(changed()))

    def get_server_capabilities(self) -> Any:
        """Return the capabilities that the server declared; None before `initialize`."""
        return self.initialize_result and self.initialize_result.capabilities

    async def _request(
        self, method: str, params: Any = None, timeout: Any = None, on_progress: Any = None
    ) -> Any:
        with _as_mcp_error():
            return await self._client.request(
                method, params, timeout=self._seconds_for(timeout), on_progress=on_progress
            )

    def _seconds_for(self, timeout: Any) -> float:
        return _seconds(timeout) or self._timeout or DEFAULT.timeout_max

    async def _list(self, method: str, cursor: str | None = None, *, params: Any = None) -> Any:
        """Return one page. `cursor` or `params.cursor` is the `nextCursor` of the page before."""
        cursor = cursor if params is None else params.cursor
        return await self._request(method, {"cursor": cursor} if cursor else None)

    list_tools = partialmethod(_list, "tools/list")
    list_resources = partialmethod(_list, "resources/list")
    list_resource_templates = partialmethod(_list, "resources/templates/list")
    list_prompts = partialmethod(_list, "prompts/list")

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: Any = None,
        progress_callback: Any = None,
        *,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """Call a tool. If it fails, the result has `isError` set.

        Args:
            name: The name of the tool.
            arguments: The arguments.
            read_timeout_seconds: Time to wait for the result, as a timedelta or in seconds.
            progress_callback: Called with the progress, the total and a message.
            meta: Extra `_meta` for the request.
            **more: Refused, with what to use instead.
        """
        more.pop("allow_input_required", None)
        refuse_options(more, "call_tool")
        with _as_mcp_error():
            return await self._client.call_tool(
                name,
                arguments,
                timeout=self._seconds_for(read_timeout_seconds),
                on_progress=_progress(progress_callback),
                raise_on_error=False,
                meta=meta,
            )

    async def read_resource(self, uri: Any) -> Any:
        """Return the contents of a resource.

        Args:
            uri: The URI of the resource.
        """
        return await self._request("resources/read", {"uri": str(uri)})

    async def subscribe_resource(self, uri: Any) -> None:
        """Report changes to a resource to the message handler.

        Args:
            uri: The URI of the resource.
        """
        with _as_mcp_error():
            self._subscriptions[str(uri)] = await self._client.subscribe(str(uri), self._updated)

    async def _updated(self, uri: str) -> None:
        if self._on_message is not None:
            await self._on_message(types.ResourceUpdatedNotification(params={"uri": uri}))

    async def unsubscribe_resource(self, uri: Any) -> None:
        """End the reports about a resource.

        Args:
            uri: The URI of the resource.
        """
        await self._subscriptions.pop(str(uri)).close()

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> Any:
        """Fill in a prompt.

        Args:
            name: The name of the prompt.
            arguments: The arguments.
        """
        return await self._request("prompts/get", {"name": name, "arguments": arguments or {}})

    async def complete(
        self, ref: Any, argument: dict[str, str], context_arguments: dict[str, str] | None = None
    ) -> Any:
        """Return completions for an argument.

        Args:
            ref: A PromptReference or a ResourceTemplateReference.
            argument: The name and the value so far.
            context_arguments: The arguments that are already filled in.
        """
        context = {"context": {"arguments": context_arguments}} if context_arguments else {}
        return await self._request(
            "completion/complete", {"ref": ref, "argument": argument, **context}
        )

    async def send_ping(self, **ignored: Any) -> Any:
        """Check that the server responds.

        Args:
            **ignored: Has no effect.
        """
        with _as_mcp_error():
            await self._client.ping(self._timeout)
        return types.EmptyResult()

    async def set_logging_level(self, level: Any, **ignored: Any) -> Any:
        """Ask for log messages at this level and above.

        Args:
            level: The lowest level, such as "info".
            **ignored: Has no effect.
        """
        with _as_mcp_error():
            await self._client.set_log_level(level)
        return types.EmptyResult()

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the roots have changed."""
        await self._client.set_roots(self._roots)


class CompatSdkClient(CompatClientSession):
    """The `Client` of release 2 of the official SDK: a session that connects by itself.

    Args:
        server: A URL, a `Server`, or a transport such as `stdio_client(…)`.
        **options: The options of `ClientSession`. `mode`, `cache` and `raise_exceptions` have no
            effect, because Dovetail detects the revision and follows the server's cache hints.
    """
