"""The host: all servers of a configuration as one, with consent.

A host has one client for each server. Its methods are those of `Client`, with the names and URIs of
all servers in one table (`naming.py`), and everything that a server does passes through
`HostAccess` first.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from ..aio import TaskSet
from ..client.callbacks import LogEntry, OnElicit, OnSample
from ..client.client import Client
from ..client.function_calling import tools_for
from ..client.open_call import OnRequestId
from ..client.roots import existing_roots, resolve_roots
from ..client.subscriptions import Subscription
from ..connection.connection import OnProgress
from ..connection.middleware import Middleware
from ..connection.notifications import run_callback
from ..errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    ConsentDenied,
    DovetailError,
    InvalidOutput,
    InvalidParams,
    NotFound,
    TimedOut,
    ToolError,
)
from ..limits import DEFAULT, Limits
from ..logs import get_logger
from ..ports import Call, CallHandler
from ..protocol.base import Implementation
from ..protocol.client_features import Root
from ..protocol.content import ResourceContents
from ..protocol.decoding import decode
from ..protocol.prompts import GetPromptResult, Prompt
from ..protocol.resources import Resource, ResourceTemplate
from ..protocol.tools import CallToolParams, ListToolsResult, Tool, ToolResult
from ..protocol.utilities import SEVERITY, Completion, Level
from ..text import closest_name, escape_unsafe, quote
from .access.host_access import HostAccess, OnContext
from .consent.consent import Consent, Decision, OnConsent
from .consent.policy import PolicyFile, read_policy
from .consent.store import ConsentGrant, ConsentStore
from .known import KnownCatalogs
from .lists import MergedItem, MergedLists
from .naming import Kind
from .upstream import EventKind, UpstreamServer
from .upstreams import HostEvent, Source, UpstreamSet, read_entry, read_source
from .uris import rename_contents, rename_links

if TYPE_CHECKING:
    from ..client.task_handle import TaskHandle
    from ..client.tool_results import TypedToolResult

log = get_logger("gateway")
T = TypeVar("T")


class HostTool(Tool, kw_only=True):
    """A tool of one of a host's servers.

    Attributes:
        server: The name of the server in the configuration.
    """

    server: str = ""


class HostPrompt(Prompt, kw_only=True):
    """A prompt of one of a host's servers.

    Attributes:
        server: The name of the server in the configuration.
    """

    server: str = ""


class HostResource(Resource, kw_only=True):
    """A resource of one of a host's servers.

    Attributes:
        server: The name of the server in the configuration.
    """

    server: str = ""


class HostResourceTemplate(ResourceTemplate, kw_only=True):
    """A resource template of one of a host's servers.

    Attributes:
        server: The name of the server in the configuration.
    """

    server: str = ""


class Host:
    """All servers of a configuration, with consent.

        async with Host("mcp.json", on_consent=ask_user) as host:
            tools = await host.list_tools()
            result = await host.call_tool("weather__forecast", {"city": "Oslo"})

    Tools and prompts have names of the form `prefix__name`; the prefix is the name of the server in
    the configuration. Servers are started in parallel, after the user has allowed it.

    Args:
        source: The servers: the path of an `mcp.json` file or its decoded contents. Any other
            target of a client becomes the only server, whose names stay as they are (default: no
            servers; see `add`).
        on_consent: Called with a `ConsentRequest` when the user has to decide. Returns `"once"`,
            `"session"`, `"always"` or `"deny"`, or the request with changed arguments or text
            (default: ask at the terminal, or deny if there is none).
        policy: What is allowed, asked or denied without a question: the path of a policy file, its
            decoded contents, or "allow", "ask" or "deny" (default: ask).
        store: Where answers are remembered: a file or a `ConsentStore` (default:
            `$XDG_STATE_HOME/dovetail/consent.db`).
        on_elicit: Called with an `ElicitRequest` when a server asks the user a question, as for
            `Client`. Its `target` is the name of the server in the configuration.
        on_sample: Called with a `SampleRequest` when a server asks for a completion from your
            model, as for `Client`.
        on_context: Called with the name of a server that wants its own context to be added to a
            prompt (`includeContext: "thisServer"`). Returns the text, or None. Without it, no
            context is added.
        roots: Directories and files that the servers may work in. Each of them must exist. Without
            it, the clients do not declare roots.
        on_log: Called with the name of a server and a `LogEntry` for each of its log messages.
        middleware: Functions `(call, call_next)` that wrap every request to a server, such as
            `audit()`, which also records each decision.
        limits: The limits on sizes, counts and times.
        info: The name and version that the host sends to servers (default: those of Dovetail).

    Raises:
        ConfigError: A setting or an entry is not valid.
    """

    def __init__(
        self,
        source: "str | Path | Sequence[str | Path] | Mapping[str, Any] | Any | None" = None,
        *,
        on_consent: OnConsent | None = None,
        policy: "str | Path | Mapping[str, Any] | PolicyFile | None" = None,
        store: "str | Path | ConsentStore | None" = None,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        on_context: OnContext | None = None,
        roots: Iterable[str | Path | Root] | None = None,
        on_log: Callable[[str, LogEntry], Any] | None = None,
        middleware: Sequence[Middleware] = (),
        limits: Limits = DEFAULT,
        info: Implementation | None = None,
    ) -> None:
        self.limits, self._info, self._middleware = limits, info, middleware
        self._on_elicit, self._on_sample, self._on_log = on_elicit, on_sample, on_log
        self._on_context = on_context
        self._roots = None if roots is None else resolve_roots(roots)
        self._roots_by_server: dict[str, list[Root]] = {}
        self._level: Level | None = None
        self._background = TaskSet()
        self._watching: asyncio.Task[None] | None = None
        self._stopping: WeakKeyDictionary[UpstreamServer, asyncio.Task[None]] = WeakKeyDictionary()
        """The servers whose consent was revoked, and what closes their connections."""
        self._is_opened = False
        consent = Consent(store, on_consent=on_consent, on_decision=self._record)
        self._access = HostAccess(
            None if policy is None else read_policy(policy),
            consent,
            on_context=on_context,
            on_approval=lambda server: self._emit(server, "catalog"),
            name_of=lambda server: server.name if len(self.servers) > 1 else "",
        )
        self._upstreams = UpstreamSet(
            Source(entries=()) if source is None else read_source(source),
            make_client=self._make_client,
            allow_start=self._access.allow_start,
            limits=limits,
            known=KnownCatalogs.beside(consent.store),
        )
        self._lists = MergedLists(self._upstreams, lambda *_: True)
        self._listeners: list[Callable[[HostEvent], Any]] = []
        self._upstreams.on_event(self._on_event)

    def __repr__(self) -> str:
        states = ", ".join(f"{one.name} {one.state}" for one in self.servers.values())
        return f"<Host {states or 'without servers'}>"

    @property
    def servers(self) -> Mapping[str, UpstreamServer]:
        """The servers by name. Each has a `state`, an `error` and a method `restart()`."""
        return self._upstreams.servers

    # lifecycle

    async def __aenter__(self) -> "Host":
        await self._open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _open(self) -> None:
        self._is_opened = True
        if self._watching is None or self._watching.done():
            self._watching = self._background.start(self._access.watch(self._forget_revoked))
        await self._upstreams.start()

    async def close(self) -> None:
        """Stop all servers, and forget what was allowed for this session."""
        await self._access.pins.close()
        await self._upstreams.close()
        await self._background.close()
        try:
            self._access.consent.close()
        except DovetailError as problem:  # what the store does not contain is not allowed anyway
            log.warning("%s", problem)

    def add(self, name: str, target: Any) -> UpstreamServer:
        """Add a server, and start it in the background once the user has allowed it.

        Args:
            name: The name of the server.
            target: An entry as in a configuration file, the path of another file that has an entry
                with this name, or any other target of a client.

        Raises:
            ConfigError: The name is in use, there is no such entry, or it is not valid.
        """
        return self._upstreams.add(read_entry(name, target, self._upstreams.options))

    async def remove(self, name: str) -> None:
        """Stop a server, and remove its tools. What the user allowed is still remembered.

        Args:
            name: The name of the server.

        Raises:
            ConfigError: There is no such server.
        """
        await self._upstreams.remove(name)

    def on_event(self, listener: Callable[[HostEvent], Any]) -> None:
        """Call a function after each change to a server.

        Args:
            listener: Called with a `HostEvent`: `.kind` (`"state"` or `"catalog"`), `.server`,
                `.state`, `.error`.
        """
        self._listeners.append(listener)

    def _on_event(self, server: UpstreamServer, kind: EventKind) -> None:
        if kind == "catalog" or server.state == "refused":
            self._lists.clear()
        if kind == "catalog" and self.servers.get(server.name) is server:
            self._on_catalog(server)
        self._emit(server, kind)

    def _on_catalog(self, server: UpstreamServer) -> None:
        if server.revision is not None:  # it was not stopped meanwhile
            tools = map(server.catalog.find_tool, server.catalog.tools)
            known = [server.changes.change_tool(tool) for tool in tools if tool is not None]
            server.client._validation.set_tools(known)
        try:
            self._access.pins.on_catalog(server)
        except DovetailError as problem:  # the store cannot be used, so nothing is offered
            log.error("%s: %s", server.name, problem)

    def _emit(self, server: UpstreamServer, kind: EventKind) -> None:
        event = HostEvent(kind, server.name, server.state, server.error)
        for listener in self._listeners:
            run_callback(listener, event)

    # consent

    def grants(self, server: str | None = None) -> list[ConsentGrant]:
        """Return what the user has allowed, always or for this session.

        Args:
            server: The name of a server (default: all servers).
        """
        return self._access.consent.grants(server)

    def revoke(self, server: str | None = None, tool: str | None = None) -> list[ConsentGrant]:
        """Forget what the user has allowed. The user is asked again at the next call. If this
        includes the consent to start a server, its connections are closed.

        Args:
            server: The name of a server (default: all servers).
            tool: The server's own name of a tool, `prompt:NAME` or a URI (default: all that the
                server was allowed, with the consent to start it).

        Returns:
            The grants that were removed.
        """
        removed = self._access.consent.revoke(server, tool)
        for one in self.servers.values():
            if server in (None, one.name):
                self._forget(one, stop=tool is None)
        return removed

    def _forget(self, server: UpstreamServer, *, stop: bool = True) -> None:
        self._access.forget(server, is_stopped=stop)
        if stop and server.has_client:  # it is started, or is being started
            self._stopping[server] = self._background.start(server.stop())

    def _forget_revoked(self) -> None:
        """Stop the servers whose consent another program revoked."""
        for server in self.servers.values():
            if self._access.is_revoked(server):
                self._forget(server)

    async def _use(self, server: UpstreamServer) -> Client:
        """Return the client of a server. If the consent to start it was revoked, by any program,
        its connections are closed, and the user is asked again."""
        if self._access.is_revoked(server):
            self._forget(server)
        stopping = self._stopping.get(server)
        if stopping is not None and not stopping.done():
            await asyncio.wait([stopping])
        return await server.open()

    def _record(self, decision: Decision) -> None:
        for layer in self._middleware:
            if (record := getattr(layer, "decision_made", None)) is not None:
                record(decision.audit_record())

    # lists

    async def list_tools(self, *, fresh: bool = False) -> list[HostTool]:
        """Return the tools of all servers, in the order of the configuration. Tools that are not
        allowed, or that changed and are not approved, are left out.

        Args:
            fresh: Whether to start all servers and read their lists again (default: False).
        """
        await self._wait("tools", fresh)
        return self._find_all("tools", HostTool)

    async def list_prompts(self, *, fresh: bool = False) -> list[HostPrompt]:
        """Return the prompts of all servers.

        Args:
            fresh: Whether to start all servers and read their lists again (default: False).
        """
        await self._wait("prompts", fresh)
        return self._find_all("prompts", HostPrompt)

    async def list_resources(self, *, fresh: bool = False) -> list[HostResource]:
        """Return the resources of all servers.

        Args:
            fresh: Whether to start all servers and read their lists again (default: False).
        """
        await self._wait("resources", fresh)
        return self._find_all("resources", HostResource)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[HostResourceTemplate]:
        """Return the resource templates of all servers.

        Args:
            fresh: Whether to start all servers and read their lists again (default: False).
        """
        await self._wait("resources", fresh)
        return self._find_all("templates", HostResourceTemplate)

    def tools_for(self, format: str) -> list[dict[str, Any]]:
        """Return the tools that are known at the moment, for function calling.

        Args:
            format: "openai", "anthropic" or "google".

        Raises:
            ValueError: The format is unknown.
        """
        return tools_for(format, self._find_all("tools", HostTool))

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server that has some, by the name of the server. Instructions
        that changed and are not approved are left out."""
        self._refresh_pins()
        found = {name: self._access.instructions_of(one) for name, one in self.servers.items()}
        return {name: text for name, text in found.items() if text}

    async def _wait(self, change: str, fresh: bool) -> None:
        if not self._is_opened:  # without `async with`, as for a client
            await self._open()
        self._forget_revoked()
        await self._upstreams.wait_for_catalogs()
        if fresh:
            servers = self.servers.values()
            await asyncio.gather(*(self._refresh(server, change) for server in servers))

    async def _refresh(self, server: UpstreamServer, change: str) -> None:
        try:
            if server.is_unread:
                await server.start()
            elif server.state == "started":
                await server.refresh(change)
        except ConnectFailed:
            pass  # it was logged
        except DovetailError as problem:
            log.warning("%s", problem)

    def _find_all(self, kind: Kind, type_: type[T]) -> list[T]:
        self._refresh_pins()
        found = (
            _decode_item(one, type_)
            for one in self._lists.merged(kind).values()
            if self._access.is_visible(one.server, kind, one.item.name)
        )
        return [item for item in found if item is not None]

    def _refresh_pins(self) -> None:
        for server in self.servers.values():
            self._access.pins.refresh(server)

    # requests

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        type: None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        raise_on_error: bool = True,
        retry: bool = False,
        meta: dict[str, Any] | None = None,
        on_request_id: OnRequestId | None = None,
    ) -> ToolResult: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        type: type[T],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        raise_on_error: bool = True,
        retry: bool = False,
        meta: dict[str, Any] | None = None,
        on_request_id: OnRequestId | None = None,
    ) -> "TypedToolResult[T]": ...
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        type: Any = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        raise_on_error: bool = True,
        retry: bool = False,
        meta: dict[str, Any] | None = None,
        on_request_id: OnRequestId | None = None,
    ) -> "ToolResult | TypedToolResult[Any]":
        """Call a tool and wait for its result, once the user has allowed it.

        Args:
            name: The name of the tool, as listed.
            arguments: The arguments: a mapping, or any object that encodes as a JSON object.
            type: The type that `.data` is converted to.
            timeout: Seconds to wait for the result (default: that of the server's settings).
            on_progress: Called with each progress update for this call.
            raise_on_error: Whether to raise ToolError if the tool fails.
            retry: Whether the call may be sent again if the connection breaks after it was sent.
            meta: Extra `_meta` for the request.
            on_request_id: Called with the id of the request at its server; see `Client.call_tool`.

        Returns:
            The result: `.data`, `.text`, `.content`, `.structured_content`, `.is_error`, `.meta`.

        Raises:
            ConsentDenied: The user or the policy refused the call.
            InvalidParams: There is no such tool, or the arguments do not match its schema.
            InvalidOutput: The result does not match the tool's output schema.
            ToolError: The tool failed.
            ConnectFailed: The server could not be started.
        """
        server, own = await self._find("tools", name)
        call = partial(
            (await self._use(server)).call_tool,
            own,
            arguments,
            type=type,
            timeout=timeout,
            on_progress=on_progress,
            raise_on_error=raise_on_error,
            retry=retry,
            meta=meta,
            on_request_id=on_request_id,
        )
        result = await self._send(server, call)
        content = rename_links(result.content, self._upstreams.names.renamer(server.name))
        return replace(result, content=content)  # type: ignore[no-any-return]

    async def start_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        manual: bool = False,
        meta: dict[str, Any] | None = None,
        on_request_id: OnRequestId | None = None,
    ) -> "TaskHandle":
        """Call a tool without waiting for its result, if its server runs the call as a task. The
        user has to allow it, as for `call_tool`.

        Args:
            name: The name of the tool, as listed.
            arguments: The arguments: a mapping, or any object that encodes as a JSON object.
            ttl: How long the server should keep the task, in seconds.
            timeout: Seconds to wait for the server's first answer (default: that of the server's
                settings).
            manual: Whether you answer the task's questions yourself, with `handle.answer`.
            meta: Extra `_meta` for the request.
            on_request_id: Called with the id of the request at its server; see `Client.call_tool`.

        Returns:
            The task, or a handle that is already done if the server answered directly. URIs in its
            result are those of the server.

        Raises:
            ConsentDenied: The user or the policy refused the call.
            InvalidParams: There is no such tool, or the arguments do not match its schema.
            ConnectFailed: The server could not be started.
        """
        server, own = await self._find("tools", name)
        start = partial(
            (await self._use(server)).start_tool,
            own,
            arguments,
            ttl=ttl,
            timeout=timeout,
            manual=manual,
            meta=meta,
            on_request_id=on_request_id,
        )
        return await self._send(server, start)  # type: ignore[no-any-return]

    def task(self, id: str, server: str, *, manual: bool = False) -> "TaskHandle":
        """Return a handle for a task that was started earlier.

        Args:
            id: The id of the task (`TaskHandle.id`).
            server: The name of the server that runs it.
            manual: Whether you answer the task's questions yourself, with `handle.answer`.

        Raises:
            ConfigError: There is no such server.
            ConnectionClosed: The server was not started.
        """
        return self._upstreams.find(server).client.task(id, manual=manual)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Fill in a prompt, once the user has allowed it to be given to the model.

        Args:
            name: The name of the prompt, as listed.
            arguments: The arguments. Values that are not strings are sent as JSON.
            timeout: Seconds to wait for the answer (default: that of the server's settings).

        Raises:
            ConsentDenied: The user or the policy refused it.
            InvalidParams: There is no such prompt.
        """
        server, own = await self._find("prompts", name)
        client = await self._use(server)
        await self._access.share(server, own, is_prompt=True)
        result = await self._send(
            server, partial(client.get_prompt, own, arguments, timeout=timeout)
        )
        rename = self._upstreams.names.renamer(server.name)
        messages = [
            replace(message, content=rename_links([message.content], rename)[0])
            for message in result.messages
        ]
        return replace(result, messages=messages)  # type: ignore[no-any-return]

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, fresh: bool = False
    ) -> list[ResourceContents]:
        """Return the contents of a resource, once the user has allowed it to be given to the model.

        Args:
            uri: The URI of the resource, as listed.
            timeout: Seconds to wait for the answer (default: that of the server's settings).
            fresh: Whether to ask the server even if a cached answer is still valid.

        Raises:
            ConsentDenied: The user or the policy refused it.
            NotFound: The resource belongs to no server.
        """
        server, own = await self._find("resources", uri)
        client = await self._use(server)
        await self._access.share(server, own)
        read = partial(client.read_resource, own, timeout=timeout, fresh=fresh)
        contents = await self._send(server, read)
        return rename_contents(contents, self._upstreams.names.renamer(server.name))

    async def complete(
        self,
        *,
        prompt: str | None = None,
        resource: str | None = None,
        argument: str,
        value: str = "",
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
        debounce: float = 0,
        cache: float = 0,
    ) -> Completion:
        """Return completions for an argument of a prompt, or for a variable of a resource template.

        Args:
            prompt: The name of a prompt, as listed. Pass either this or `resource`.
            resource: The URI template of a resource, as listed.
            argument: The name of the argument or variable.
            value: The text that the user has typed so far.
            context: The values of the arguments that are already filled in.
            timeout: Seconds to wait for the answer (default: that of the server's settings).
            debounce: Seconds to wait for a later call for the same argument.
            cache: How long to cache the answer, in seconds.

        Raises:
            ConsentDenied: The policy does not allow the prompt or resource.
            InvalidParams: There is no such prompt or template.
        """
        if (prompt is None) == (resource is None):
            raise ConfigError("complete() requires either prompt= or resource=")
        kind: Kind = "prompts" if prompt is not None else "templates"
        server, own = await self._find(kind, prompt or resource or "")
        self._require_allowed(server, own)
        client = await self._use(server)
        reference = {"prompt": own} if prompt is not None else {"resource": own}
        ask = partial(
            client.complete,
            argument=argument,
            value=value,
            context=context,
            timeout=timeout,
            debounce=debounce,
            cache=cache,
            **reference,
        )
        return await self._send(server, ask)  # type: ignore[no-any-return]

    async def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Subscription:
        """Subscribe to changes to a resource.

        Args:
            uri: The URI of the resource, as listed.
            callback: Called with the URI that changed, as listed.

        Returns:
            A handle. To unsubscribe, close it or use it with `async with`.

        Raises:
            ConsentDenied: The policy does not allow the resource.
            NotFound: The resource belongs to no server.
        """
        server, own = await self._find("resources", uri)
        self._require_allowed(server, own)
        client = await self._use(server)

        def on_update(changed: str) -> None:
            run_callback(callback, self._upstreams.names.renamer(server.name)(changed))

        return await client.subscribe(own, on_update)

    def _require_allowed(self, server: UpstreamServer, name: str) -> None:
        decision = self._access.check(server, "share", name)
        if decision.effect == "deny":
            raise ConsentDenied(
                f"The policy does not allow {quote(name)} of {quote(server.name)} "
                f"({decision.rule})."
            )

    async def _find(self, kind: Kind, name: str) -> tuple[UpstreamServer, str]:
        """Return the server that a name or URI belongs to, and its own name for it. Start the
        server first if its lists are not known."""
        try:
            found = await self._upstreams.resolve(kind, name)
        except NotFound:
            raise
        except InvalidParams as problem:
            owner = self._upstreams.names.owner(name)
            if owner is not None and self.servers[owner].state == "refused":
                raise ConsentDenied(self.servers[owner].error or str(problem)) from None
            raise self._unknown(kind, name, str(problem)) from None
        server = self.servers[found.server]
        is_listed = server.state != "started" or found.name in server.catalog.items(kind)
        if kind in ("tools", "prompts") and not is_listed:  # a single server keeps its names
            raise self._unknown(kind, name, f"Unknown {kind.removesuffix('s')}: {quote(name)}")
        return server, found.name

    def _unknown(self, kind: Kind, name: str, problem: str) -> InvalidParams:
        close = closest_name(name, self._lists.merged(kind))
        advice = f". Did you mean {escape_unsafe(close)}?" if close else ""
        return InvalidParams(f"{problem}{advice}", parameter="name")

    async def _send(self, server: UpstreamServer, send: Callable[[], Any]) -> Any:
        """Send a request, and record whether the server could be reached."""
        try:
            result = await send()
        except (ConnectionClosed, ConnectFailed) as problem:
            if server.has_client:  # it was not stopped
                server.on_failure(problem)
            raise
        except TimedOut as problem:
            server.on_timeout(problem)
            raise
        except (ToolError, InvalidOutput):
            server.health.on_success()  # it answered
            raise
        server.health.on_success()
        return result

    # roots and logs

    async def set_roots(
        self, roots: Iterable[str | Path | Root], server: str | None = None
    ) -> None:
        """Replace the roots, and notify the servers whose revision supports that.

        Args:
            roots: Directories and files. Each of them must exist.
            server: The name of the server that gets them (default: all servers, including those
                that had roots of their own).

        Raises:
            ConfigError: A root is not valid, or the host was created without `roots=`.
        """
        if self._roots is None:
            raise ConfigError(
                "This host was created without roots=, so it did not declare support for roots"
            )
        resolved = resolve_roots(roots)
        if server is None:
            self._roots, self._roots_by_server = resolved, {}
        else:
            self._roots_by_server[self._upstreams.find(server).name] = resolved
        for one in self.servers.values():
            if server in (None, one.name) and one.has_client:
                await one.client.set_roots(resolved)

    async def set_log_level(self, level: Level) -> None:
        """Ask all servers to send only log messages at this level and above.

        Args:
            level: One of debug, info, notice, warning, error, critical, alert, emergency.

        Raises:
            ConfigError: There is no such level.
        """
        if level not in SEVERITY:
            raise ConfigError(f"{level!r} is not a log level; use one of {', '.join(SEVERITY)}")
        self._level = level
        started = [one for one in self.servers.values() if one.state == "started"]
        await asyncio.gather(*(self._set_level(one, level) for one in started))

    async def _set_level(self, server: UpstreamServer, level: Level) -> None:
        try:
            await server.client.set_log_level(level)
        except DovetailError as problem:
            log.warning("%s: could not set the log level: %s", server.name, problem)

    # clients

    def _make_client(self, server: UpstreamServer, *_: object) -> Client:
        """Return the client of a server. A host has no callers, so the other arguments are not
        used."""
        settings = server.settings
        roots = None
        if self._roots is not None:
            # A new client does not notice what was deleted before.
            roots = existing_roots(self._roots_by_server.get(server.name, self._roots))
        client = Client(
            server.entry.find_target(),
            on_elicit=self._on_elicit,
            on_sample=self._sampler() if settings.sampling else None,
            roots=roots,
            on_log=None if self._on_log is None else partial(self._on_log, server.name),
            middleware=[*self._middleware, *_changed_calls(server)],
            timeout=settings.timeout,
            limits=self.limits,
            trusted=settings.trust,
            validate="strict",
            info=self._info,
            **self._access.hooks(server),
        )
        if self._level is not None:
            client._connector.log_level = self._level
        return client

    def _sampler(self) -> OnSample | None:
        """Return `on_sample`, which declares that it can add context if `on_context` is set."""
        if self._on_sample is None:
            return None
        sampler: Any = partial(self._on_sample)
        sampler.tools = getattr(self._on_sample, "tools", None)
        sampler.context = True if self._on_context is not None else None
        return sampler  # type: ignore[no-any-return]


def _changed_calls(server: UpstreamServer) -> list[Middleware]:
    """Return the middleware that changes the tools of a server (`tools.with`). It is the innermost
    one, so that nothing else sees hidden values: neither questions nor audit records."""
    if not server.changes:
        return []

    async def change(call: Call, call_next: CallHandler) -> Any:
        params = call.params
        if isinstance(params, CallToolParams):
            changed = server.changes.find(server.catalog.tools.get(params.name))
            if changed is not None:
                call.params = replace(params, arguments=changed.to_tool(params.arguments))
        try:
            result = await call_next(call)
        finally:
            call.params = params
        if isinstance(result, ListToolsResult):
            return replace(result, tools=[server.changes.change_tool(one) for one in result.tools])
        return result

    return [change]


def _decode_item(one: MergedItem, type_: type[T]) -> T | None:
    """Return an item as callers see it, with the name of its server; None if it is malformed."""
    try:
        item = decode(one.raw, type_)
    except (msgspec.MsgspecError, RecursionError) as problem:
        log.warning("%s: left out %s: %s", one.server.name, quote(one.item.name), problem)
        return None
    item.server = one.server.name  # after decoding, so that no server can name another one
    return item  # type: ignore[no-any-return]
