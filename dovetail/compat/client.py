"""Clients with the API of the official SDK and of FastMCP, on top of `dovetail.Client`.

A transport of the SDK connects and yields two streams. Here, a transport only says how to reach the
server: both streams are the same `Streams` value, and the session opens a `Client` with it. The
results are Dovetail's own values, which have the attributes and methods of the SDK's (`types.py`).
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial, partialmethod
from importlib import metadata
from types import SimpleNamespace
from typing import Any, Self

import msgspec
from msgspec.structs import asdict, replace

from ..auth import BearerToken
from ..client.client import Client as DovetailClient
from ..errors import ConfigError, ConnectionClosed, ProtocolError, TimedOut
from ..limits import DEFAULT
from ..protocol.content import BlobResourceContents, TextResourceContents
from . import types
from .instead import refuse_options

HTTPX_HEADERS = ("accept", "accept-encoding", "connection", "user-agent")
"""The headers that every client of httpx has."""
CODES = {ConnectionClosed: (-32000, -32000), TimedOut: (-32001, 408)}
"""The codes of errors that are not from the server, in release 2 of the SDK and in release 1."""
LISTS = {"tools": "Tool", "resources": "Resource", "prompts": "Prompt"}


def _is_release_1() -> bool:
    """Return whether programs expect release 1 of the SDK, because it is installed."""
    try:
        return metadata.version("mcp").startswith("1.")
    except metadata.PackageNotFoundError:
        return False


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _on_progress(callback: Any) -> Any:
    return callback and (lambda update: callback(update.progress, update.total, update.message))


class Streams(msgspec.Struct, eq=False):
    """What a transport yields in place of streams: how to reach a server."""

    target: Any
    options: dict[str, Any] = {}
    read_timeout: float | None = None
    client: Any = None

    def get_session_id(self) -> str | None:
        """Return the id of the HTTP session, if there is one."""
        session = self.client and self.client._connector.session
        headers = getattr(session and session.connection.channel, "_headers", None)
        return getattr(headers, "session", None)


StdioServerParameters = msgspec.defstruct(
    "StdioServerParameters",
    [("command", str), ("args", list[str], []), ("env", Any, None), ("cwd", Any, None),
     ("encoding", str, "utf-8"), ("encoding_error_handler", str, "strict")],
    kw_only=True,
)  # fmt: skip
"""How to start a server. `env` is added to the few variables that every server inherits."""


@asynccontextmanager
async def stdio_client(server: Any, errlog: Any = None) -> AsyncIterator[Any]:
    """Describe a server that the session starts as a process; its stderr goes to `errlog`."""
    options: dict[str, Any] = {"env": server.env, "cwd": server.cwd}
    if errlog not in (None, sys.stderr):
        options["on_stderr"] = partial(print, file=errlog)
    streams = Streams([server.command, *server.args], options)
    yield streams, streams


def _http_streams(
    url: str, headers: Any = None, timeout: Any = None, sse_read_timeout: Any = None,
    *, httpx_client_factory: Any = None, http_client: Any = None, auth: Any = None,
    terminate_on_close: Any = None, on_session_created: Any = None, **more: Any,
) -> Streams:  # fmt: skip
    refuse_options(more, "The transport")
    if httpx_client_factory is not None:
        http_client = httpx_client_factory(headers=headers, timeout=None, auth=auth)
    if http_client is not None:
        auth = auth or getattr(http_client, "auth", None)
        found = dict(getattr(http_client, "headers", None) or {})
        headers = {name: found[name] for name in found if name.lower() not in HTTPX_HEADERS}
    if hasattr(auth, "async_auth_flow"):
        auth = BearerToken(partial(_httpx_token, auth))
    return Streams(url, {"headers": headers, "auth": auth}, _seconds(sse_read_timeout))


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
        """Describe a server at a URL. Of an httpx client, only the headers and `auth` are used."""
        streams = _http_streams(url, *args, **options)
        yield (streams, streams, streams.get_session_id)[: count()]

    return connect


streamablehttp_client = _transport(lambda: 3)
streamable_http_client = _transport(lambda: 2 + _is_release_1())
sse_client = websocket_client = _transport(lambda: 2)


class create_mcp_http_client(SimpleNamespace):
    """The headers and `auth` for a transport, in place of an httpx client."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...


class RequestContext(SimpleNamespace):
    """What the callbacks of a session receive besides the params."""

    __class_getitem__ = classmethod(lambda cls, item: cls)


class CompatClientSession:
    """A connection to a server, with the methods of the official SDK. `source` is what a transport
    yielded; for the SDK's `Client`, it may also be a transport, a URL or a server."""

    opens = False

    def __init__(
        self, source: Any, write_stream: Any = None, read_timeout_seconds: Any = None,
        sampling_callback: Any = None, elicitation_callback: Any = None,
        list_roots_callback: Any = None, logging_callback: Any = None, message_handler: Any = None,
        client_info: Any = None, *, sampling_capabilities: Any = None, mode: Any = None,
        cache: Any = None, raise_exceptions: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        refuse_options(more, "ClientSession")
        self._source, self._timeout = source, _seconds(read_timeout_seconds)
        self._on_message, self._subscriptions = message_handler, dict[str, Any]()
        self._stack, self.initialize_result = AsyncExitStack(), None
        sample, elicit, self._on_roots = (
            callback and partial(self._ask, callback)
            for callback in (sampling_callback, elicitation_callback, list_roots_callback)
        )
        if sample and getattr(sampling_capabilities, "tools", None) is not None:
            setattr(sample, "tools", True)
        self._options = {"on_sample": sample, "on_elicit": elicit, "roots": self._on_roots,
                         "on_log": logging_callback, "info": client_info}  # fmt: skip

    async def _ask(self, callback: Any, request: Any) -> Any:
        is_roots = request.method == "roots/list"
        context = RequestContext(session=self, meta=request.meta, request_id=None)
        answer = await (callback(context) if is_roots else callback(context, request))
        if isinstance(answer, types.ErrorData):
            raise ProtocolError(answer.code, answer.message, answer.data)
        return answer.roots if is_roots else answer

    async def __aenter__(self) -> Self:
        source = self._source
        if hasattr(source, "__aenter__"):
            source = (await self._stack.enter_async_context(source))[0]
        streams = source if isinstance(source, Streams) else Streams(source)
        options = self._options | streams.options | {"timeout": self._timeout}
        self._client = streams.client = DovetailClient(streams.target, **options)
        self._timeout = self._timeout or streams.read_timeout or DEFAULT.timeout_max
        self._stack.push_async_callback(self._client.close)
        if self.opens:
            try:
                await self.initialize()
            except BaseException:
                await self._stack.aclose()  # `__aexit__` is not called
                raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _run(self, request: Awaitable[Any]) -> Any:
        try:
            answer = await request
        except (ConnectionClosed, TimedOut) as error:  # errors from the server are McpErrors
            raise ProtocolError(CODES[type(error)][_is_release_1()], str(error)) from error
        return types.EmptyResult() if answer is None else answer

    async def _request(self, method: str, params: Any = None) -> Any:
        return await self._run(self._client.request(method, params, timeout=self._timeout))

    async def initialize(self) -> Any:
        """Connect, and return an `InitializeResult`, in every revision."""
        client = self._client
        await self._run(client.connect())
        for kind, name in LISTS.items() if self._on_message else ():
            if getattr(client.capabilities, kind) is not None:
                change = getattr(types, f"{name}ListChangedNotification")
                client.on_change(kind, partial(self._report, change))  # type: ignore[arg-type]
        self.initialize_result = types.InitializeResult(
            protocolVersion=client.revision, capabilities=client.capabilities,
            serverInfo=client.server_info, instructions=client.instructions,
        )  # fmt: skip
        return self.initialize_result

    async def _report(self, change: Any, subject: str) -> None:
        is_resource = change is types.ResourceUpdatedNotification
        if self._on_message is not None:
            await self._on_message(change(params={"uri": subject} if is_resource else None))

    def get_server_capabilities(self) -> Any:
        """Return the capabilities that the server declared."""
        return self._client.capabilities

    async def _list(self, method: str, cursor: str | None = None, *, params: Any = None) -> Any:
        cursor = params.cursor if params is not None else cursor
        return await self._request(method, {"cursor": cursor} if cursor else None)

    list_tools = partialmethod(_list, "tools/list")
    list_resources = partialmethod(_list, "resources/list")
    list_resource_templates = partialmethod(_list, "resources/templates/list")
    list_prompts = partialmethod(_list, "prompts/list")

    async def call_tool(
        self, name: str, arguments: Any = None, read_timeout_seconds: Any = None,
        progress_callback: Any = None, *, meta: Any = None, allow_input_required: bool = False,
    ) -> Any:  # fmt: skip
        """Call a tool. If it fails, the result has `isError` set."""
        timeout, report = _seconds(read_timeout_seconds), _on_progress(progress_callback)
        options = {"timeout": timeout or self._timeout, "on_progress": report, "meta": meta}
        call = self._client.call_tool(name, arguments, raise_on_error=False, **options)
        return await self._run(call)

    async def read_resource(self, uri: Any) -> Any:
        """Return a result whose `contents` are text or blobs."""
        result = await self._request("resources/read", {"uri": str(uri)})
        kinds: Any = (TextResourceContents, BlobResourceContents)
        contents = [kinds[part.text is None](**asdict(part)) for part in result.contents]
        return replace(result, contents=contents)

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        """Fill in a prompt."""
        return await self._request("prompts/get", {"name": name, "arguments": arguments or {}})

    async def complete(self, ref: Any, argument: Any, context_arguments: Any = None) -> Any:
        """Return completions for an argument of a prompt or a resource template."""
        params = {"ref": ref, "argument": argument, "context": {"arguments": context_arguments}}
        return await self._request("completion/complete", params)

    async def subscribe_resource(self, uri: Any) -> None:
        """Report changes to a resource to the message handler."""
        report = partial(self._report, types.ResourceUpdatedNotification)
        subscription = await self._run(self._client.subscribe(str(uri), report))
        self._subscriptions[str(uri)] = subscription

    async def unsubscribe_resource(self, uri: Any) -> None:
        """End the reports about a resource."""
        await self._subscriptions.pop(str(uri)).close()

    async def send_ping(self) -> Any:
        """Check that the server responds."""
        return await self._run(self._client.ping(self._timeout))

    async def set_logging_level(self, level: Any) -> Any:
        """Ask for log messages at this level and above."""
        return await self._run(self._client.set_log_level(level))

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the roots have changed."""
        await self._client.set_roots(self._on_roots)


class CompatSdkClient(CompatClientSession):
    """The `Client` of release 2 of the SDK: a session that connects when you enter it."""

    opens = True
    session = property(lambda self: self)


@asynccontextmanager
async def create_connected_server_and_client_session(
    server: Any, *args: Any, **options: Any
) -> AsyncIterator[CompatSdkClient]:
    """Yield a session that is connected to a server of this program."""
    async with CompatSdkClient(getattr(server, "_server", server), *args, **options) as session:
        yield session


class CompatFastMCPClient(DovetailClient):
    """The `Client` of FastMCP, which can be opened again."""

    def __init__(
        self, transport: Any, *, sampling_handler: Any = None, log_handler: Any = None,
        progress_handler: Any = None, client_info: Any = None, roots: Any = None,
        timeout: Any = None, auth: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        refuse_options(more, "Client")
        sample = sampling_handler and (lambda ask: sampling_handler(ask.messages, ask, None))
        self._create = partial(
            super().__init__, transport, on_sample=sample, on_log=log_handler, info=client_info,
            on_progress=_on_progress(progress_handler), roots=roots, timeout=timeout, auth=auth,
        )  # fmt: skip
        self._create()

    async def connect(self) -> None:
        """Open the connection."""
        if self.state == "closed":
            self._create()
        await super().connect()

    async def call_tool(self, *args: Any, progress_handler: Any = None, **options: Any) -> Any:
        """Call a tool, as in `dovetail.Client`."""
        return await super().call_tool(*args, on_progress=_on_progress(progress_handler), **options)


Client, ClientSession, ClientRequestContext = CompatSdkClient, CompatClientSession, RequestContext


def __getattr__(name: str) -> Any:
    return getattr(types, name)  # `mcp` also has the names of `mcp.types`
