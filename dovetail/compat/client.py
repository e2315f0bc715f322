"""Clients with the API of the official SDK, on top of `dovetail.Client`.

A transport of the SDK connects and yields two streams. Here, a transport only says how to reach the
server: both streams are the same `Streams` value, and the session opens a `Client` with it. The
results are Dovetail's own values, which have the attributes and methods of the SDK's (`types.py`).
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import cache, partial, partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import asdict, replace

from ..auth import BearerToken
from ..client.client import Client as DovetailClient
from ..errors import ConfigError, ConnectionClosed, ProtocolError, TimedOut
from ..limits import DEFAULT
from . import types
from .instead import missing_attribute, refuse_options

HTTPX_HEADERS = ("accept", "accept-encoding", "connection", "user-agent")
"""The headers that every client of httpx has."""
CODES = {ConnectionClosed: (-32000, -32000), TimedOut: (408, -32001)}
"""The codes of errors that are not from the server, in releases 1 and 2 of the SDK."""
LISTS = {"tools": "Tool", "resources": "Resource", "prompts": "Prompt"}
ElicitationFnT = ListRootsFnT = LoggingFnT = MessageHandlerFnT = ProgressFnT = SamplingFnT = Any


@cache
def _sdk_release() -> int:
    """Return the release of the SDK that programs expect, 1 or 2: the one that is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return 1 if version("mcp").startswith("1.") else 2
    except PackageNotFoundError:
        return 2


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


# transports


class Streams(msgspec.Struct, eq=False):
    """What a transport yields in place of streams: how to reach a server."""

    target: Any
    options: dict[str, Any] = {}
    """The options of `dovetail.Client`."""
    read_timeout: float | None = None
    client: Any = None

    def get_session_id(self) -> str | None:
        """Return the id of the HTTP session, if there is one."""
        session = self.client and self.client._connector.session
        headers = getattr(session and session.connection.channel, "_headers", None)
        return getattr(headers, "session", None)


class StdioServerParameters(msgspec.Struct, kw_only=True):
    """How to start a server: the program, its arguments, the variables to add to the few that every
    server process inherits, and the working directory. Messages are always UTF-8."""

    command: str
    args: list[str] = []
    env: dict[str, str] | None = None
    cwd: Any = None
    encoding: str = "utf-8"
    encoding_error_handler: str = "strict"


@asynccontextmanager
async def stdio_client(server: Any, errlog: Any = None) -> AsyncIterator[Any]:
    """Describe a server that the session starts as a process.

    Args:
        server: The `StdioServerParameters`.
        errlog: The file for what the server writes to stderr (default: stderr).
    """
    options: dict[str, Any] = {"env": server.env, "cwd": server.cwd}
    if errlog not in (None, sys.stderr):
        options["on_stderr"] = partial(print, file=errlog)
    streams = Streams([server.command, *server.args], options)
    yield streams, streams


def _http_streams(
    url: str,
    headers: Any = None,
    timeout: Any = None,
    sse_read_timeout: Any = None,
    *,
    httpx_client_factory: Any = None,
    http_client: Any = None,
    auth: Any = None,
    **unneeded: Any,
) -> Streams:
    if httpx_client_factory is not None:
        http_client = httpx_client_factory(headers=headers, timeout=None, auth=auth)
    if http_client is not None:
        auth = auth or getattr(http_client, "auth", None)
        found = dict(http_client.headers or {}).items()
        headers = {name: value for name, value in found if name.lower() not in HTTPX_HEADERS}
    if hasattr(auth, "async_auth_flow"):
        auth = BearerToken(partial(_httpx_token, auth))
    for option in ("terminate_on_close", "on_session_created"):
        unneeded.pop(option, None)
    refuse_options(unneeded, "The transport")
    options = {"headers": headers, "auth": auth, "timeout": _seconds(timeout)}
    return Streams(url, options, _seconds(sse_read_timeout))


async def _httpx_token(auth: Any) -> str:
    """Return the token that an `httpx.Auth` sends. It does not see the responses."""
    request = SimpleNamespace(headers={})
    async for _ in auth.async_auth_flow(request):
        break
    kind, _, token = next(iter(request.headers.values()), "").partition(" ")
    if kind.lower() != "bearer":
        raise ConfigError(f"{type(auth).__name__} does not send a bearer token; pass headers=")
    return str(token)


def _transport(count: Callable[[], int]) -> Any:
    @asynccontextmanager
    async def connect(url: str, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Describe a server at a URL.

        Args:
            url: The URL.
            *args: `headers`, `timeout` and `sse_read_timeout`.
            **options: The same, `auth`, `httpx_client_factory` and `http_client`. Of a client of
                httpx, only the headers and `auth` are used.
        """
        streams = _http_streams(url, *args, **options)
        yield (streams, streams, streams.get_session_id)[: count()]

    return connect


streamablehttp_client = _transport(lambda: 3)
streamable_http_client = _transport(lambda: 4 - _sdk_release())
"""In release 1 of the SDK, it also yields the function that returns the session id."""
sse_client = websocket_client = _transport(lambda: 2)


class HttpSettings(msgspec.Struct):
    """What `create_mcp_http_client` returns in place of an httpx client, for a transport."""

    headers: Any = None
    timeout: Any = None
    auth: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...


create_mcp_http_client = HttpSettings


# sessions


@contextmanager
def _as_mcp_error() -> Iterator[None]:
    """Raise a timeout or a lost connection as McpError. Errors from the server already are."""
    try:
        yield
    except tuple(CODES) as error:
        raise ProtocolError(CODES[type(error)][_sdk_release() - 1], str(error)) from error


class SdkInternals:
    """A part of the SDK that frameworks import, but need only for options that they rarely use."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise ConfigError("dovetail.compat has no internals of the SDK: docs/guides/moving.md")


ArgModelBase = FuncMetadata = SessionMessage = StreamableHTTPTransport = SdkInternals


class RequestContext(msgspec.Struct):
    """What the callbacks of a session receive besides the params."""

    session: Any
    meta: Any = None
    request_id: Any = None
    lifespan_context: Any = None

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class CompatClientSession:
    """A connection to a server, with the methods of the official SDK.

    Args:
        read_stream: What a transport of `dovetail.compat` yielded.
        write_stream: The same.
        read_timeout_seconds: Time to wait for each answer, as a timedelta or in seconds.
        **options: `sampling_callback`, `elicitation_callback`, `list_roots_callback`,
            `logging_callback`, `message_handler`, `client_info` and `sampling_capabilities`.
            Changes to lists and resources are the messages that the handler receives.
    """

    def __init__(
        self,
        read_stream: Any,
        write_stream: Any = None,
        read_timeout_seconds: Any = None,
        **options: Any,
    ) -> None:
        if not isinstance(read_stream, Streams):
            raise ConfigError(
                "ClientSession accepts the streams of a transport from dovetail.compat, not a "
                f"{type(read_stream).__name__}; for your own transport, use dovetail.Client: "
                "docs/guides/transports.md"
            )
        self._timeout = _seconds(read_timeout_seconds) or read_stream.read_timeout
        self._subscriptions: dict[str, Any] = {}
        self._on_message = options.pop("message_handler", None)
        sample, elicit, self._on_roots = (
            callback and partial(self._ask, callback)
            for callback in (
                options.pop(f"{name}_callback", None)
                for name in ("sampling", "elicitation", "list_roots")
            )
        )
        if getattr(options.pop("sampling_capabilities", None), "tools", None) is not None:
            sample.tools = True
        self.initialize_result: Any = None
        self._client = read_stream.client = DovetailClient(
            read_stream.target,
            on_sample=sample,
            on_elicit=elicit,
            roots=self._on_roots,
            on_log=options.pop("logging_callback", None),
            info=options.pop("client_info", None),
            **read_stream.options,
        )
        refuse_options(options, "ClientSession")

    async def _ask(self, callback: Any, request: Any) -> Any:
        is_roots = request.method == "roots/list"
        params = () if is_roots else (request,)
        answer = await callback(RequestContext(self, request.meta), *params)
        if isinstance(answer, types.ErrorData):
            raise ProtocolError(answer)
        return answer.roots if is_roots else answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("ClientSession", name)

    async def initialize(self) -> Any:
        """Connect, and return an `InitializeResult`, in every revision."""
        client = self._client
        with _as_mcp_error():
            await client.connect()
        for kind, name in LISTS.items() if self._on_message else ():
            if getattr(client.capabilities, kind) is not None:
                change = getattr(types, f"{name}ListChangedNotification")
                client.on_change(kind, partial(self._report, change))  # type: ignore[arg-type]
        self.initialize_result = types.InitializeResult(
            protocolVersion=client.revision,
            capabilities=client.capabilities,
            serverInfo=client.server_info,
            instructions=client.instructions,
        )
        return self.initialize_result

    async def _report(self, change: Any, subject: str) -> None:
        is_resource = change is types.ResourceUpdatedNotification
        if self._on_message is not None:
            await self._on_message(change(params={"uri": subject} if is_resource else None))

    def get_server_capabilities(self) -> Any:
        """Return the capabilities that the server declared; None before `initialize`."""
        return self.initialize_result and self.initialize_result.capabilities

    async def _request(self, method: str, **params: Any) -> Any:
        with _as_mcp_error():
            return await self._client.request(method, params, timeout=self._seconds_for(None))

    def _seconds_for(self, timeout: Any) -> float:
        return float(_seconds(timeout) or self._timeout or DEFAULT.timeout_max)

    async def _list(self, method: str, cursor: str | None = None, *, params: Any = None) -> Any:
        """Return one page; `cursor` or `params.cursor` is the `nextCursor` of the page before."""
        cursor = params.cursor if params is not None else cursor
        return await self._request(method, **({"cursor": cursor} if cursor else {}))

    list_tools = partialmethod(_list, "tools/list")
    list_resources = partialmethod(_list, "resources/list")
    list_resource_templates = partialmethod(_list, "resources/templates/list")
    list_prompts = partialmethod(_list, "prompts/list")

    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        read_timeout_seconds: Any = None,
        progress_callback: Any = None,
        *,
        meta: Any = None,
        **more: Any,
    ) -> Any:
        """Call a tool. If it fails, the result has `isError` set.

        Args:
            name: The name of the tool.
            arguments: The arguments.
            read_timeout_seconds: Time to wait for the result, as a timedelta or in seconds.
            progress_callback: Called with the progress, the total and a message.
            meta: Extra `_meta` for the request.
            **more: Other options are refused.
        """
        more.pop("allow_input_required", None)
        refuse_options(more, "call_tool")
        report = progress_callback and (
            lambda update: progress_callback(update.progress, update.total, update.message)
        )
        with _as_mcp_error():
            return await self._client.call_tool(
                name, arguments, timeout=self._seconds_for(read_timeout_seconds),
                on_progress=report, raise_on_error=False, meta=meta,
            )  # fmt: skip

    async def read_resource(self, uri: Any) -> Any:
        """Return the contents of a resource.

        Args:
            uri: The URI of the resource.
        """
        result = await self._request("resources/read", uri=str(uri))
        kinds = (types.TextResourceContents.kind, types.BlobResourceContents.kind)
        contents = [kinds[part.text is None](**asdict(part)) for part in result.contents]
        return replace(result, contents=contents)

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        """Fill in a prompt.

        Args:
            name: The name of the prompt.
            arguments: The arguments.
        """
        return await self._request("prompts/get", name=name, arguments=arguments or {})

    async def complete(self, ref: Any, argument: Any, context_arguments: Any = None) -> Any:
        """Return completions for an argument.

        Args:
            ref: A PromptReference or a ResourceTemplateReference.
            argument: The name and the value so far.
            context_arguments: The arguments that are already filled in.
        """
        context = {"context": {"arguments": context_arguments}} if context_arguments else {}
        return await self._request("completion/complete", ref=ref, argument=argument, **context)

    async def subscribe_resource(self, uri: Any) -> Any:
        """Report changes to a resource to the message handler.

        Args:
            uri: The URI of the resource.
        """
        report = partial(self._report, types.ResourceUpdatedNotification)
        self._subscriptions[str(uri)] = await self._client.subscribe(str(uri), report)
        return types.EmptyResult()

    async def unsubscribe_resource(self, uri: Any) -> Any:
        """End the reports about a resource.

        Args:
            uri: The URI of the resource.
        """
        await self._subscriptions.pop(str(uri)).close()
        return types.EmptyResult()

    async def send_ping(self) -> Any:
        """Check that the server responds."""
        with _as_mcp_error():
            await self._client.ping(self._seconds_for(None))
        return types.EmptyResult()

    async def set_logging_level(self, level: Any) -> Any:
        """Ask for log messages at this level and above.

        Args:
            level: The lowest level, such as "info".
        """
        with _as_mcp_error():
            await self._client.set_log_level(level)
        return types.EmptyResult()

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the roots have changed."""
        await self._client.set_roots(self._on_roots or ())


class CompatSdkClient(CompatClientSession):
    """The `Client` of release 2 of the official SDK: a session that connects by itself.

    Args:
        server: A URL, a `Server`, or a transport such as `stdio_client(…)`.
        **options: The options of `ClientSession`. The revision is always detected, and answers are
            cached as the server allows.
    """

    def __init__(self, server: Any, **options: Any) -> None:
        for name in ("mode", "cache", "raise_exceptions"):
            options.pop(name, None)
        self._server, self._options, self._stack = server, options, AsyncExitStack()

    async def __aenter__(self) -> Self:
        streams = Streams(self._server)
        if hasattr(self._server, "__aenter__"):
            streams = (await self._stack.enter_async_context(self._server))[0]
        super().__init__(streams, **self._options)
        self._stack.push_async_callback(self._client.close)
        try:
            await self.initialize()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def session(self) -> Self:
        """The session, which this client is itself."""
        return self


Client, ClientSession = CompatSdkClient, CompatClientSession
