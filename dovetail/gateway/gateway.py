"""The gateway: many servers behind one endpoint, whatever revision each side speaks.

A gateway is a `Service` whose handlers relay. The client side lifts messages of every revision, and
the server side lowers them, so nothing in this folder knows about eras. A relayed call is an
ordinary handler: it reports progress, can be cancelled, and asks its caller when the server asks.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from .. import __version__
from ..client.callbacks import OnSample
from ..client.client import Client
from ..client.relayed_answers import relay_answers
from ..connection.extension import Extension
from ..connection.middleware import Middleware
from ..errors import (
    ConfigError,
    InvalidParams,
    ProtocolError,
)
from ..extensions.skills import CLIENT as SKILLS
from ..extensions.telemetry import Telemetry
from ..limits import DEFAULT, Limits
from ..logs import get_logger
from ..ports import (
    Bus,
    Call,
    Caller,
    Guard,
    HttpRequest,
    HttpResponse,
    Network,
    Principal,
    PublicUrl,
    Redact,
)
from ..protocol.base import Icon, Implementation, ListChangedParams
from ..protocol.client_features import ElicitParams
from ..protocol.header_params import HeaderParam
from ..protocol.lifecycle import ClientCapabilities, InputRequired, ServerCapabilities
from ..protocol.raw import RawObject, encode_raw, split_object
from ..protocol.resources import ReadResourceResult
from ..server.options import ToolChangeOptions
from ..server.rates import NETWORK, Rates
from ..server.runnable import RunnableService
from ..server.service import answer_in_connection
from ..server.tools import make_error_result
from ..text import escape_unsafe, quote
from .access.gateway_access import ANONYMOUS, GatewayAccess, open_consent
from .call_forwarder import CallForwarder
from .capabilities import DECLARED_EXTENSIONS, merge_capabilities
from .changes import UpstreamSubscriptions
from .consent.consent import Decision
from .consent.policy import PolicyFile, read_policy
from .consent.store import ConsentStore
from .forwarding import check_forwarding
from .input_requests import answer_with_caller, with_name
from .known import KnownCatalogs
from .lists import CORE_LISTS, KIND_BY_METHOD, MergedItem, MergedLists
from .log_levels import pass_on_log
from .naming import Kind, UpstreamName
from .own_model import SAMPLE, OwnModel
from .pool import SHARED, ActiveCalls
from .relay import as_private, encode_text, explaining, relay_call, was_asked_elsewhere
from .reloading import SIGHUP, Reloader
from .replicas import DEFAULT_NAME, Replicas
from .reports import describe_servers, measure_servers
from .search import CALL, FIND, SEARCH_TOOLS, CallArguments, ToolSearch, read_arguments
from .skills import relayed_skills
from .tasks.context import TaskContext
from .tasks.gateway_tasks import GatewayTasks
from .tasks.known import KnownTasks
from .transforms import ChangedTool
from .upstream import EventKind, UpstreamEntry, UpstreamServer
from .upstreams import KIND_OF_LIST, Source, UpstreamSet, change_tools, read_source
from .uris import rename_uris

if TYPE_CHECKING:
    from ..backend import Backend
    from .connect.connections import UserConnections

log = get_logger("gateway")
stderr_log = get_logger("gateway.stderr")
"""What servers write to stderr."""


class Gateway(RunnableService):
    """Many servers behind one endpoint.

        gateway = Gateway("mcp.json")
        gateway.run("http", port=8000)

    Args:
        source: The servers: the path of an `mcp.json` file, its decoded contents, or any other
            target of a client, which is then served under its own names.
        name: The name of the gateway (default: "gateway").
        version: Its version (default: that of Dovetail).
        title: The display name.
        description: The purpose of the gateway.
        website_url: A page about the gateway.
        icons: Icons for the gateway that a client may show.
        instructions: Instructions for the model, before those of the servers.
        page_size: The number of items on each page of a list (default: None, a single page).
        lifespan: An async context manager function that is entered before the servers are started
            and exited after they were stopped. It may accept the gateway as its argument.
        tools: How callers see the tools of a single target, by its own names. Each value has the
            options of `RegisteredTool.with_`, except `wrap`. For servers of a file, write them
            there (`tools.with`).
        policy: Who may do what: the path of a policy file, its decoded contents, or "allow",
            "ask" or "deny" (default: everything is allowed).
        store: Where the answers of callers and the digests of approved tools are stored: a file
            (default: the backend if there is one, otherwise
            `$XDG_STATE_HOME/dovetail/consent.db`) or a `ConsentStore`. If users log in to servers,
            their tokens are stored in a file next to it (`consent.tokens.db`) or in the backend,
            sealed with the keys of the gateway.
        on_sample: The model for servers that ask for a completion during a call of a caller that
            has no model itself, as for `Client`. Its `request.target` is the name of the server in
            the configuration (default: these requests are refused).
        middleware: Async functions with the parameters `(call, next)` that wrap every request,
            outermost first. Results are `RawObject`.
        limits: The limits on queues, sizes, times and counts.
        auth: The guard that authenticates callers over HTTP (default: None, anyone may call).
        rates: How many requests a caller may make.
        mask_errors: Whether to hide from callers why a server failed (default: True over a
            network).
        redact: A function that is applied to all outgoing text.
        experimental: Experimental capabilities to declare.
        extensions: The protocol extensions to offer.
        revisions: The protocol revisions to serve, by date (default: all).
        backend: The backend that all processes of this gateway share: a URL such as
            "redis://cache:6379/0", or a `Backend` (default: the URL in `DOVETAIL_BACKEND`, if any).
        backend_required: Whether the gateway refuses to start while its backend is away (default:
            False; it serves alone until the backend is back).

    Raises:
        ConfigError: A setting or an entry is not valid.
    """

    def __init__(
        self,
        source: "str | Path | Sequence[str | Path] | Mapping[str, Any] | Any",
        *,
        name: str = DEFAULT_NAME,
        version: str = __version__,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        instructions: str | None = None,
        page_size: int | None = None,
        lifespan: Callable[..., AbstractAsyncContextManager[Any]] | None = None,
        tools: Mapping[str, ToolChangeOptions] | None = None,
        policy: "str | Path | Mapping[str, Any] | PolicyFile | None" = None,
        store: "str | Path | ConsentStore | None" = None,
        on_sample: OnSample | None = None,
        middleware: Sequence[Middleware] = (),
        limits: Limits = DEFAULT,
        auth: Guard | None = None,
        rates: Rates | None = NETWORK,
        mask_errors: bool = True,
        redact: Redact | None = None,
        experimental: dict[str, Any] | None = None,
        extensions: Sequence[Extension] = (),
        revisions: Sequence[str] | None = None,
        backend: "str | Backend | None" = None,
        backend_required: bool = False,
    ) -> None:
        if page_size is not None and page_size < 1:
            raise ConfigError("page_size must be at least 1")
        super().__init__(
            Implementation(
                name=name,
                version=version,
                title=title,
                description=description,
                website_url=website_url,
                icons=icons,
            ),
            middleware=middleware,
            limits=limits,
            auth=auth,
            rates=rates,
            redact=redact,
            extensions=extensions,
            revisions=revisions,
            backend=backend,
            backend_required=backend_required,
        )
        self._instructions, self._mask_errors, self._store = instructions, mask_errors, store
        self._experimental = {} if experimental is None else {"experimental": experimental}
        self._source, self._policy_source, self._changes = source, policy, tools
        self._watched: tuple[str | Path, ...] | None = None
        self._connections: UserConnections | None = None
        found, rules = self._read_source(), None if policy is None else read_policy(policy)
        consent = open_consent(store, self._record)
        self.access = GatewayAccess(rules, consent, self._announce_lists, lambda: self._is_masked)
        self._model = None if on_sample is None else OwnModel(on_sample, limits)
        self.known = KnownCatalogs.beside(consent.store) or KnownCatalogs(None)
        self.replicas = Replicas(self, share_consent=store is None)
        self.upstreams = UpstreamSet(
            found,
            model=None if self._model is None else self._model.capability,
            make_client=self._make_client,
            allow_start=self.access.allow_start,
            limits=limits,
            known=self.known,
            reserved=SEARCH_TOOLS if found.options.search else (),
            extensions=DECLARED_EXTENSIONS,
        )
        self.upstreams.on_event(self._on_event)
        search = ToolSearch.of(found.options)
        self.lists = MergedLists(self.upstreams, self._is_visible, page_size, search)
        self.subscriptions = UpstreamSubscriptions(self.upstreams, self.notify_resource_updated)
        self.tasks = self._make_tasks()
        self.forwarder = CallForwarder(
            "gateway/call",
            {
                "tools/call": self._call_tool,
                "prompts/get": self._get_prompt,
                "resources/read": self._read_resource,
            },
            self._was_asked_here,
            limits,
        )
        self._lifespan = self._run_upstreams
        if lifespan is not None:
            self._lifespan = partial(self._run_inside, lifespan)
        self._add_relaying_handlers()

    def _add_relaying_handlers(self) -> None:
        self.add_extension(relayed_skills(self._list, self._find, self._relay))
        self.add_handlers(
            {
                **dict.fromkeys(CORE_LISTS, self._list),
                **self.tasks.core_handlers,
                "tools/call": self._call_tool,
                "prompts/get": self._get_prompt,
                "resources/read": self._read_resource,
                "completion/complete": self._complete,
                "resources/subscribe": self._subscribe,
                "subscriptions/listen": self._listen,
                "logging/setLevel": self._set_level,
            }
        )

    def _make_tasks(self) -> GatewayTasks:
        tasks = GatewayTasks(
            TaskContext(
                upstreams=self.upstreams,
                limits=self.limits,
                known=KnownTasks(self.limits),
                ring=lambda: self.ring,
                notify=lambda method, params: self._notify(method, params, local=True),
                is_masked=lambda: self._is_masked,
                prepare=self._prepare_question,
                rename=self._rename_uris,
                check=self._check_task,
            )
        )
        self.add_extension(tasks.extension)
        return tasks

    @asynccontextmanager
    async def _run_upstreams(self) -> AsyncIterator[None]:
        self._check_sign_in(one.entry for one in self.upstreams.servers.values())
        access = self.access.run(self.upstreams.all)
        logins, subscriptions = self._run_logins(), self.subscriptions.run()
        upstreams, tasks = self.upstreams.run(), self.tasks.run()
        async with self.replicas.run(), access, logins, upstreams, subscriptions, tasks:
            if self._watched is None:
                yield
                return
            async with Reloader(self, self._watched).run():
                yield

    def connect_bus(self, bus: Bus) -> None:
        """Use the bus that connects the replicas of the gateway.

        Args:
            bus: The bus.
        """
        super().connect_bus(bus)
        self.replicas.connect(bus)
        self.tasks.forwarder.connect(bus)
        self.forwarder.connect(bus)

    @asynccontextmanager
    async def _run_inside(
        self, lifespan: Callable[..., AbstractAsyncContextManager[Any]]
    ) -> AsyncIterator[Any]:
        own = lifespan(self) if signature(lifespan).parameters else lifespan()
        async with own as state, self._run_upstreams():
            yield state

    def reload_on_signal(self, watch: Sequence[str | Path] = ()) -> None:
        """Call `reload` whenever the process gets SIGHUP. Call this method before `run`.

        Args:
            watch: Files that are also watched: a change to one of them has the same effect
                (default: none).
        """
        self._watched = tuple(watch)
        self.reload_signals = () if SIGHUP is None else (SIGHUP,)

    async def reload(self) -> None:
        """Read the configuration file and the policy file again. Servers whose entry did not change
        keep running, and callers are notified of what changed.

        Raises:
            ConfigError: A file is not valid, or the gateway was not given a file. Nothing was
                changed.
        """
        if self.upstreams.is_transparent:
            raise ConfigError(
                "This gateway has no configuration file, so there is nothing to reload"
            )
        source = self._read_source()
        self._check_sign_in(source.entries)
        policy = None if self._policy_source is None else read_policy(self._policy_source)
        for entry in source.entries:
            await self.access.consent.read_items(entry.name, entry.digest)
        old, new = self.upstreams.options, source.options
        removed = self.upstreams.replace_all(source, SEARCH_TOOLS if new.search else ())
        is_changed = policy != self.access.policy
        self.access.policy = policy  # before a server that was added answers a call
        if (old.search, old.always) != (new.search, new.always):
            self.lists.search, is_changed = ToolSearch.of(new), True
        if is_changed:
            is_wrong = [
                server
                for server in self.upstreams.servers.values()
                if self.access.may_start(server) == (server.state == "refused")
            ]
            await self.upstreams.restart(is_wrong)
            self._announce_lists()
        await self.upstreams.drain(removed)

    def _read_source(self) -> Source:
        """Read the configuration. Raises ConfigError if credentials would not be safe."""
        source = read_source(self._source)
        if self._changes is not None:
            source = change_tools(source, self._changes)
        check_forwarding({entry.name: entry.settings for entry in source.entries}, self.guard)
        if not any(entry.needs_login for entry in source.entries):
            return source
        from .connect.connections import UserConnections, check_guard

        check_guard(source, self.guard)
        if self._connections is None:
            self._connections = UserConnections(self, self._store)
        return self._connections.prepare(source)

    # users who log in to servers

    def _find_refusal(self) -> str:
        entries = [server.entry for server in self.upstreams.servers.values()]
        targets = [entry.find_target() for entry in entries if entry.describe is None]
        own = [one._find_refusal() for one in targets if isinstance(one, RunnableService)]
        return next(filter(None, own if self.guard is None else ()), "")

    def _prepare_for_network(
        self, options: Mapping[str, Any], *, single_process: bool = True
    ) -> None:
        super()._prepare_for_network(options, single_process=single_process)
        if self._connections is not None:
            self._connections.check_options(options)

    def check_base_url(self, base: str) -> None:
        """Remember the public URL of the pages on which users connect their accounts.

        Args:
            base: The public URL below which the gateway is reachable.
        """
        if self._connections is not None:
            self._connections.pages.base = base

    def _check_sign_in(self, entries: Iterable[UpstreamEntry]) -> None:
        if self._connections is not None and any(one.tokens is not None for one in entries):
            self._connections.check_base()

    @asynccontextmanager
    async def _run_logins(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._connections is not None:
                await self._connections.close()

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        """Return a page on which a user connects an account at a server.

        Args:
            request: The request.
            public_url: The public URL of the gateway.
        """
        if self._connections is None:
            return None
        return await self._connections.pages.respond(request, public_url)

    def make_login_client(self, server: UpstreamServer, credentials: Any) -> Client:
        """Return a client with which a user logs in to a server.

        Args:
            server: The server.
            credentials: The credentials of the user.
        """
        return self._make_client(server, ActiveCalls(SHARED), ClientCapabilities(), {}, credentials)

    def user_connected(self, id: str) -> None:
        """Notify callers that a user has connected.

        Args:
            id: The id of the elicitation that sent the user to a page.
        """
        self.elicitation_complete(id)
        self._notify("notifications/tools/list_changed", ListChangedParams())

    # what callers are told

    @property
    def capabilities(self) -> ServerCapabilities:
        """What at least one server offers. A server that is still starting may offer anything."""
        found = merge_capabilities(self.upstreams, super().capabilities, self.tasks.is_offered)
        return ServerCapabilities.of({**found, **self._experimental})

    @property
    def instructions(self) -> str | None:
        """The instructions of the gateway and of all servers."""
        texts = [self._instructions] if self._instructions else []
        for server in self.upstreams.servers.values():
            if text := self.access.instructions_of(server):
                is_only = len(self.upstreams.servers) == 1
                texts.append(text if is_only else f"# {server.name}\n\n{text}")
        return "\n\n".join(texts) or None

    def health(self) -> Mapping[str, Any]:
        """Return the status of the gateway, and of each server: its state, its revision, why it
        failed, when it is tried again, and what of it callers cannot use."""
        return {**super().health(), **describe_servers(self.upstreams, masked=False)}

    def masked_health(self) -> Mapping[str, Any]:
        """Return the same, but with `mask_errors` and over a network, only how processes ended
        instead of why servers failed."""
        return {**super().health(), **describe_servers(self.upstreams, masked=self._is_masked)}

    def series(self) -> Mapping[str, Mapping[Any, float | list[float]]]:
        """Return the metrics of each server, and of the shared backend."""
        return {**super().series(), **measure_servers(self.upstreams)}

    @property
    def _is_masked(self) -> bool:
        return self._mask_errors and self._networked

    def can_replay(self, call: Call) -> bool:
        """Return whether a call may be run again: a call that was sent to a server is never sent
        twice.

        Args:
            call: The call.
        """
        return call.name in KIND_BY_METHOD

    def _on_event(self, server: UpstreamServer, kind: EventKind) -> None:
        if kind == "catalog":
            try:
                owner = self.upstreams.servers.get(server.name)
                is_current = owner is not None and owner.holds(server)
                if is_current and server.entry.tokens is None:
                    self.access.pins.on_catalog(server)
            finally:
                # What a user sees may have changed without a change for all.
                is_personal = bool(server.entry.user) or server.entry.tokens is not None
                changed = self.lists.update()
                self._announce(KIND_OF_LIST if is_personal else changed)
                self.subscriptions.renew()
        elif server.state == "refused":
            self._announce(self.lists.update())

    def _announce_lists(self) -> None:
        """Announce all lists, because different callers may see different parts of them change."""
        self.lists.update()
        self._announce(KIND_OF_LIST)

    def _announce(self, kinds: Iterable[Kind]) -> None:
        for change in dict.fromkeys(KIND_OF_LIST[kind] for kind in kinds):
            self._notify(f"notifications/{change}/list_changed", ListChangedParams(), local=True)

    def _record(self, decision: Decision) -> None:
        record = decision.audit_record()
        is_anonymous = record.user is not None and record.user.startswith(ANONYMOUS)
        self.record_decision(replace(record, user=None) if is_anonymous else record)

    def session_ended(self, caller: Caller, network: Network | None, seconds: float) -> None:
        """Close the connections of a caller whose session has ended, and forget what it allowed if
        it was not authenticated.

        Args:
            caller: The caller.
            network: Where the caller is, if it is on a network.
            seconds: How long the session lasted.
        """
        self.access.end_session(caller.session_id)
        for server in self.upstreams.servers.values():
            server.session_ended(caller.session_id, keep_tasks=caller.principal is not None)
        super().session_ended(caller, network, seconds)

    def roots_changed(self, caller: Caller) -> None:
        """Notify the servers that use the roots of a caller.

        Args:
            caller: The caller.
        """
        for server in self.upstreams.servers.values():
            server.roots_changed(caller.session_id)

    def header_params(self, tool: str) -> tuple[HeaderParam, ...]:
        """Return the parameters of a tool that HTTP requests repeat in their headers, according to
        its server.

        Args:
            tool: The name of the tool, as callers see it.
        """
        found = self.upstreams.names.from_caller("tools", tool)
        if found is None:
            return ()
        return self.upstreams.servers[found.server].shown_header_params(found.name)

    # access

    def _is_visible(self, principal: Principal | None, kind: Kind, one: MergedItem) -> bool:
        caller = None if principal is None else principal.id
        if one.server.entry.tokens is not None:  # the tool with which a user connects
            return self.access.may_connect(one.server, caller)
        return self.access.is_visible(one.server, kind, one.item.name, caller)

    # calls

    async def _find(self, call: Call, kind: Kind, name: str) -> UpstreamName:
        names = self.upstreams.names
        found = names.from_caller(kind, name)
        if found is None:
            with explaining(names.owner(name) or "", masked=self._is_masked):
                found = await self.upstreams.resolve(kind, name, call.principal)
        return found

    async def _require(self, call: Call, kind: Kind, server: UpstreamServer, name: str) -> None:
        """Raise an error unless a call to a server is allowed."""
        await self._start_known(call, kind, server, name)
        await self.access.require(call, kind, server, name)

    async def _start_known(self, call: Call, kind: Kind, server: UpstreamServer, name: str) -> None:
        """Start a server whose lists are from disk, unless the call is denied anyway."""
        if server.catalog.is_from_disk and not self.access.is_denied(call, kind, server, name):
            with explaining(server.name, masked=self._is_masked):
                await server.start()  # what it lists now decides

    async def _list(self, call: Call) -> RawObject:
        result = await self.lists.answer(call)
        is_personal = self.access.depends_on_caller or self.upstreams.has_users
        return as_private(result) if is_personal else result

    async def _call_tool(self, call: Call) -> Any:
        name, search = call.params.name, self.lists.search
        if search is not None and name == FIND:
            await self.upstreams.wait_for_catalogs(call.principal)
            visible = self.lists.visible("tools", call.principal, apps=False)
            return search.find(visible, call.params.arguments)
        if search is not None and name == CALL:
            wanted = read_arguments(call.params.arguments, CallArguments, CALL)
            name = wanted.name
            # From here on, these are the arguments: those that are sent, shown and recorded.
            changed = {"name": encode_text(name), "arguments": wanted.arguments}
            call.raw_params = encode_raw({**split_object(call.raw_params), **changed})
        found = await self._find(call, "tools", name)
        return await self._relay(call, "tools", found, {"name": encode_text(found.name)})

    async def _get_prompt(self, call: Call) -> RawObject | InputRequired:
        found = await self._find(call, "prompts", call.params.name)
        return await self._relay(call, "prompts", found, {"name": encode_text(found.name)})

    async def _read_resource(self, call: Call) -> RawObject | InputRequired:
        found = await self._find(call, "resources", call.params.uri)
        return await self._relay(call, "resources", found, {"uri": encode_text(found.name)})

    async def _complete(self, call: Call) -> RawObject | InputRequired:
        fields = split_object(split_object(call.raw_params)["ref"])
        key = next(name for name in ("uri", "name") if name in fields)
        kind: Kind = "prompts" if key == "name" else "templates"
        found = await self._find(call, kind, getattr(call.params.ref, key))
        ref = {**fields, key: encode_text(found.name)}
        return await self._relay(call, kind, found, {"ref": ref})

    async def _relay(
        self, call: Call, kind: Kind, found: UpstreamName, changed: Mapping[str, Any]
    ) -> RawObject | InputRequired:
        server = self.upstreams.servers[found.server]
        if server.entry.tokens is not None and self._connections is not None:
            relay = partial(self._relay_to, call, kind, found, changed)
            result: RawObject | InputRequired = await self._connections.relay(
                call, kind, server, found.name, relay
            )
            return result
        return await self._relay_to(call, kind, found, changed, server)

    async def _relay_to(
        self,
        call: Call,
        kind: Kind,
        found: UpstreamName,
        changed: Mapping[str, Any],
        server: UpstreamServer,
    ) -> RawObject | InputRequired:
        await self._require(call, kind, server, found.name)
        if kind == "tools" and found.name in server.changes:
            tool = await self._find_changed(server, found.name)
            given = split_object(call.raw_params).get("arguments", Raw())
            try:
                changed = {**changed, "arguments": tool.to_tool(given)}
            except InvalidParams as error:
                if call.revision.tool_errors and call.params.has_object:
                    return make_error_result(str(error))  # type: ignore[return-value]
                raise
        if not self.forwarder.is_alone and was_asked_elsewhere(server, call.request_state):
            reply = await self.forwarder.ask(call)
            if reply is not None:
                return reply
        safe = server.is_repeatable(call, found.name)
        if kind == "tools":
            send = partial(self.tasks.calls.call_tool, server, call, found.name, changed, safe)
        else:
            send = partial(
                relay_call,
                server,
                call,
                changed,
                prepare=self._prepare_question,
                safe=safe,
                masked=self._is_masked,
            )
        result = await send()
        if self._model is not None and self._model.is_used_for(call):
            result = await self._model.finish(server, call, result, send)
        if type(result) is not RawObject:
            return result  # type: ignore[no-any-return]
        if self.access.depends_on_caller or server.entry.user:
            result = as_private(result)
        asked = {found.name: call.params.uri} if call.method.result is ReadResourceResult else {}
        return self._rename_uris(server, result, asked)

    async def _find_changed(self, server: UpstreamServer, name: str) -> ChangedTool:
        """Return a tool that callers see differently (`tools.with`). Start its server if its lists
        are not known: a call must not arrive there without the change."""
        if name not in server.catalog.tools:
            with explaining(server.name, masked=self._is_masked):
                await server.start()
        tool = server.changes.find(server.catalog.tools.get(name))
        if tool is None:
            shown = escape_unsafe(server.changes.names.get(name, name))
            raise InvalidParams(f"Unknown tool: {shown}", parameter="name")
        return tool

    def _was_asked_here(self, call: Call) -> bool:
        """Return whether a process of this replica asked the questions that a call answers."""
        state = call.request_state or ""
        server = self.upstreams.servers.get(state.partition("\n")[0])
        if server is None or not server.is_process:
            return False
        try:
            return not was_asked_elsewhere(server, state)
        except InvalidParams:  # this replica has another entry for the server
            return False

    def _check_task(self, call: Call, server: UpstreamServer, tool: str) -> None:
        """Raise an error if a caller may not use the tool of its task any more."""
        if self.access.is_denied(call, "tools", server, tool):
            raise InvalidParams(f"{quote(tool)} of {server.name} is not allowed by the policy")

    def _rename_uris(
        self, server: UpstreamServer, result: RawObject, asked: Mapping[str, str] = {}
    ) -> RawObject:
        """Rename the URIs in a result. What a caller has asked for has the URI that it used."""
        if self.upstreams.is_transparent:
            return result
        rename = self.upstreams.names.renamer(server.name)
        return rename_uris(result, lambda uri: asked.get(uri) or rename(uri))

    # subscriptions

    def on_subscriptions(self, uri: str, active: bool) -> None:
        """Subscribe at the server that a resource belongs to, or end that subscription.

        Args:
            uri: The URI of the resource, as callers see it.
            active: True for the first subscription, False after the last.
        """
        self.subscriptions.set_active(uri, active)

    async def _subscribe(self, call: Call) -> Any:
        uri = call.params.uri
        await self._check_subscription(call, uri)
        self.count_subscriptions([uri], ())  # until the caller's own is counted
        try:
            await self.subscriptions.wait(uri)
            return await answer_in_connection(call)
        finally:
            self.count_subscriptions((), [uri])

    async def _listen(self, call: Call) -> Any:
        """Remove the resources and tasks that nobody can subscribe to from a request to listen."""
        wanted = call.params.notifications
        uris = wanted.resource_subscriptions or ()
        if 0 < len(uris) <= self.limits.subscriptions:  # more are refused
            started = await asyncio.gather(*(self._start_for(call, uri) for uri in uris))
            in_time = [uri for uri, is_started in zip(uris, started, strict=True) if is_started]
            kept = [uri for uri in in_time if await self._can_subscribe(call, uri)]
            wanted = replace(wanted, resource_subscriptions=kept or None)
            call.params = replace(call.params, notifications=wanted)
        async with self.tasks.notifications.listening(call):
            return await answer_in_connection(call)

    async def _start_for(self, call: Call, uri: str) -> bool:
        """Start the server of a resource if its lists are from disk. Return False if there is no
        such resource, or if the server takes longer than `Limits.catalog_wait`."""
        try:
            found = await self._find(call, "resources", uri)
            server = self.upstreams.servers[found.server]
            async with asyncio.timeout(self.limits.catalog_wait):
                await self._start_known(call, "resources", server, found.name)
        except (ProtocolError, TimeoutError):
            return False
        return True

    async def _can_subscribe(self, call: Call, uri: str) -> bool:
        try:
            await self._check_subscription(call, uri)
        except ProtocolError:
            return False
        return True

    async def _check_subscription(self, call: Call, uri: str) -> None:
        found = await self._find(call, "resources", uri)
        server = self.upstreams.servers[found.server]
        if server.entry.tokens is not None:
            raise InvalidParams(f"{server.name} does not support subscriptions through a gateway")
        await self._require(call, "resources", server, found.name)

    # logs

    async def _set_level(self, call: Call) -> Any:
        result = await answer_in_connection(call)
        servers = self.upstreams.servers.values()
        await asyncio.gather(*(server.want_level(call.caller) for server in servers))
        return result

    def _asks_as(self, server: UpstreamServer) -> str:
        is_alone = len(self.upstreams.servers) == 1 and not self.access.can_ask
        return "" if is_alone else server.name

    def _limit_question(self, server: UpstreamServer, call: Call, params: RawObject) -> None:
        self.access.limit_question(call, server, params, alone=len(self.upstreams.servers) == 1)
        if params.type is ElicitParams and (id := params.elicitation_id) is not None:
            params.elicitation_id = self.upstreams.names.elicitation_id(server.name, id)

    def _on_complete(self, server: UpstreamServer, id: str) -> None:
        self.elicitation_complete(self.upstreams.names.elicitation_id(server.name, id))

    def _prepare_question(self, server: UpstreamServer, call: Call, params: RawObject) -> RawObject:
        self._limit_question(server, call, params)
        return with_name(params, self._asks_as(server))

    # clients

    def _make_client(
        self,
        server: UpstreamServer,
        calls: ActiveCalls,
        declared: ClientCapabilities,
        headers: Mapping[str, str],
        auth: Any = None,
    ) -> Client:
        client = Client(
            server.entry.find_target(),
            limits=self.limits,
            info=self.info,
            timeout=server.settings.timeout,
            validate="off",
            headers=headers,
            extensions=[SKILLS],
            auth=auth or server.entry.auth,
            on_log=partial(pass_on_log, calls),
            middleware=[layer for layer in self._observers if isinstance(layer, Telemetry)],
            on_stderr=partial(stderr_log.info, "%s: %s", server.name),
        )
        client._connector.log_level = server.log_level
        answers = answer_with_caller(
            calls,
            server.questions,
            server.question_limits,
            partial(self._prepare_question, server),
            partial(self.tasks.find_asker, server, client),
        )
        if self._model is not None:
            limit = partial(self._limit_question, server)
            answers[SAMPLE] = self._model.handler(server, calls, limit, answers[SAMPLE])
        relay_answers(
            client,
            answers,
            declared,
            unlimited=True,
            on_complete=partial(self._on_complete, server),
            on_task=partial(self.tasks.notifications.on_notification, server, client),
        )
        return client
