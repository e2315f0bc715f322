"""The client: one class with a method for every protocol request.

The connection (`reconnect.py`) belongs to the client, not to the task that opened it: you may open
it in one task and close it in another. If the connection breaks, lists and reads are retried. A
tool call that may have reached the server is retried only if the caller allows it, or if the server
is trusted and marks the tool as safe to repeat. `requests.py` contains the part that sends
requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from msgspec import Raw
from msgspec.structs import asdict

from .. import __version__
from ..connection.client_session import ClientSession
from ..connection.connection import OnProgress, PendingRequest
from ..connection.era_detection import choose_revisions
from ..connection.extension import Extension, Extensions
from ..connection.middleware import Middleware, Observer
from ..connection.notifications import run_callback
from ..errors import (
    ConfigError,
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ToolError,
)
from ..jsonrpc.messages import Id
from ..limits import DEFAULT, Limits
from ..ports import Channel, Credentials, Network, Tap
from ..protocol.base import Implementation, ListChangedParams
from ..protocol.client_features import Root
from ..protocol.content import ResourceContents
from ..protocol.prompts import GetPromptParams, GetPromptResult, Prompt
from ..protocol.resources import ReadResourceParams, Resource, ResourceTemplate, UriParams
from ..protocol.tasks import EXTENSION, TaskForm
from ..protocol.tools import CallToolParams, Tool, ToolResult
from ..protocol.utilities import (
    SEVERITY,
    CompleteParams,
    Completion,
    CompletionArgument,
    CompletionContext,
    Level,
    PromptReference,
    ResourceReference,
    SetLevelParams,
)
from ..revisions import Revision
from .caching import COMPLETE, Completer, ResponseCache, SharedCache
from .call_hook import OnCall
from .callbacks import Callbacks, LogEntry, OnAnswer, OnAsk, OnElicit, OnRoots, OnSample
from .open_call import OnRequestId, OpenCall
from .reconnect import Connector
from .requests import ANY, Requester
from .subscriptions import UPDATED, Subscription, Subscriptions
from .targets import ConnectOptions, resolve_target
from .task_handle import TaskHandle
from .tasks import RemoteTasks
from .tool_results import ResultValidator, TypedToolResult, convert_result

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..extensions.apps.view import View
    from ..extensions.skill_reader import Skill
    from ..extensions.skills import SkillEntry
    from ..server.runnable import RunnableService
    from .blocking import BlockingClient

T = TypeVar("T")
ChangeKind = Literal["tools", "resources", "prompts", "state"]


class Client(Requester):
    """A connection to one MCP server.

        async with Client("https://example.com/mcp") as client:
            result = await client.call_tool("forecast", {"city": "Oslo"})

    The connection is opened by `async with`, by `connect()` or by the first request, and opened
    again if it breaks. Callbacks may be plain functions or coroutine functions.

    Args:
        target: The server: a URL (`http`, `https`, `ws`, `wss`), a script (`"server.py"`), an
            object in Python code (`"server.py:orders"`, `"shop.servers:orders"`), a command as a
            list (`["uvx", "some-server"]`), an `mcp.json` file or another host's configuration file
            (as a path or a dict), a `Server` object, or a `Channel`.
        server: The server to use from an `mcp.json` file. Required if the file lists several
            servers.
        revision: The protocol revision to use: a date, `"handshake"`, `"stateless"` or
            `"detailed-draft"` (default: the newest that both sides support).
        on_elicit: Called with an `ElicitRequest` when the server asks the user a question. Returns
            the form content, True to accept a URL or the form's defaults, None or False to decline,
            or an `ElicitResult`. Without it, the client does not declare elicitation, and the
            server cannot ask.
        on_sample: Called with a `SampleRequest` when the server asks for a completion from
            your model. Returns text, a content block or a list of them, a `CreateMessageResult`, or
            None to refuse.
        roots: Directories and files that the server may work in: paths, `file://` URIs or `Root`
            objects. Or a function that is called with a `RootsRequest` each time that the server
            asks for them, and returns such a list, or None to refuse. Without it, the client does
            not declare roots.
        on_ask: Called with each question from the server before it is answered by `on_elicit` or
            `on_sample`, or with `roots`. Returns the request, changed or unchanged, or None to
            refuse.
        on_answer: Called with each question and its answer before the answer is sent. Returns the
            answer, changed or unchanged, or None to refuse.
        on_call: Called with a `CallRequest` before each tool call is sent, however it is made.
            Returns the request, changed or unchanged, or None to refuse. The call then raises
            ConsentDenied, and nothing is sent. The hook is called once per call, even if the call
            is sent again. `Client.relay` does not call it.
        on_log: Called with each log message from the server: `.level`, `.logger`, `.data` and, if
            the transport can tell, `.request_id`.
        on_progress: Called with each progress update for a request without its own `on_progress`:
            `.progress`, `.total`, `.message`, `.request_id`.
        on_stderr: Called with each line that a server process writes to stderr (default: print it
            to this process's stderr).
        middleware: Functions `(call, call_next)` that wrap every request to the server; the first
            is the outermost.
        env: Environment variables for a server process, in addition to a minimal inherited set.
        cwd: Working directory for a server process (default: the current directory).
        headers: HTTP headers for every request to a URL. The headers are sent only to the origin of
            the URL.
        auth: Credentials for a URL: a bearer token, `OAuth()` or other `Credentials`. The
            credentials are sent only over TLS or to this machine.
        verify: Which TLS certificates to trust: True for the system's authorities, a path to a CA
            file, an `ssl.SSLContext`, or False for any certificate.
        proxy: URL of an HTTP proxy (default: from the environment).
        long_polling: Whether to poll for messages that the server sends without a request, instead
            of keeping a stream open. Use it on networks that interrupt long-lived responses.
        timeout: Seconds to wait for each answer, and for the connection to open (default: the value
            in the `mcp.json` file, or `limits.timeout`, 60).
        limits: Bounds on sizes, counts and times; see `Limits`.
        cache: Whether to cache answers for as long as the server allows, or a `SharedCache` to
            share them among clients.
        trusted: Whether to trust the server's tool annotations. If so, a call to a tool that is
            marked idempotent or read-only is retried if the connection breaks.
        validate: What to do if a tool's result does not match its output schema: `"warn"` logs a
            warning, `"strict"` raises InvalidOutput, and `"off"` skips the check. `"strict"` also
            checks the arguments of each call against the tool's input schema (InvalidParams), and
            refuses to call a tool whose schemas cannot be used (SchemaError).
        experimental: Experimental capabilities to declare to the server.
        extensions: Protocol extensions to use.
        tasks: Whether the server may run tool calls as tasks.
        info: The name and version that this client sends to servers (default: dovetail and its
            version).
        tap: An object that sees every message, HTTP request and login step of this client, on every
            connection; see `Tap`.

    Raises:
        ConfigError: The target or an option is not valid.
    """

    def __init__(
        self,
        target: "str | Path | Sequence[str | Path] | Mapping[str, Any] | RunnableService | Channel",
        *,
        server: str | None = None,
        revision: str | None = None,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        roots: Iterable[str | Path | Root] | OnRoots | None = None,
        on_ask: OnAsk | None = None,
        on_answer: OnAnswer | None = None,
        on_call: OnCall | None = None,
        on_log: Callable[[LogEntry], Any] | None = None,
        on_progress: OnProgress | None = None,
        on_stderr: Callable[[str], None] | None = None,
        middleware: Sequence[Middleware] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Credentials | str | None = None,
        verify: "bool | str | Path | SSLContext" = True,
        proxy: str | None = None,
        long_polling: bool = False,
        timeout: float | None = None,
        limits: Limits = DEFAULT,
        cache: bool | SharedCache = True,
        trusted: bool = False,
        validate: Literal["strict", "warn", "off"] = "warn",
        experimental: dict[str, Any] | None = None,
        extensions: Sequence[Extension] = (),
        tasks: bool = True,
        info: Implementation | None = None,
        tap: Tap | None = None,
    ) -> None:
        self._on_log, self._trusted = on_log, trusted
        self._checks_calls = on_call is not None or validate == "strict"
        self._validation = ResultValidator(validate, limits)
        extension_set = _with_auth_extensions(extensions, auth)
        options = ConnectOptions(
            limits, server, env, cwd, on_stderr, headers, verify, proxy, long_polling, auth, tap
        )
        resolved = resolve_target(target, options)
        callbacks = Callbacks(
            on_elicit, on_sample, roots, experimental,
            on_ask=on_ask, on_answer=on_answer, target=resolved.name, tasks=tasks, limits=limits,
        )  # fmt: skip
        connector = Connector(
            resolved,
            choose_revisions(revision),
            info or Implementation(name="dovetail", version=__version__),
            callbacks,
            extension_set,
            limits,
            _first_set(timeout, resolved.timeout, limits.timeout),
            on_notification=self._on_notification,
            on_open=self._on_open,
            on_state=self._on_state,
        )
        connector.open_timeout = _first_set(timeout, resolved.open_timeout, limits.timeout)
        connector.log_level = "debug" if on_log is not None else None
        response_cache = ResponseCache(cache, resolved, limits, extension_set)
        super().__init__(connector, response_cache, middleware, on_progress, on_call)
        self._subscriptions = Subscriptions(connector, self.request)
        self._tasks = RemoteTasks(connector, self.request, self._check_result, tasks)
        if tasks and EXTENSION not in (extension_set.declared or {}):
            extension_set.add(self._tasks.extension)
        self._completer = Completer(response_cache)
        self._observers = [layer for layer in middleware if isinstance(layer, Observer)]
        self._observed_session: tuple[Revision, Network | None, float] | None = None

    def __repr__(self) -> str:
        session = self._connector.session
        revision = f", revision {session.agreed_revision.name}" if session is not None else ""
        return f"<Client {self._connector.target.name} {self.state}{revision}>"

    # opening and closing

    if not TYPE_CHECKING:  # type checkers reject `with Client(…)` by themselves

        def __enter__(self) -> None:
            raise TypeError(
                "Use `async with Client(…)`, or `with Client(…).blocking()` in synchronous code"
            )

        def __exit__(self, *error: object) -> None: ...

    async def __aenter__(self) -> "Client":
        try:
            await self.connect()
        except BaseException:
            await self.close()  # `__aexit__` is not called when `__aenter__` raises
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the connection. `async with` calls this method for you."""
        await self._connector.get_session()

    async def close(self) -> None:
        """Close the connection. You may call this method repeatedly and from any task."""
        self._subscriptions.cancel_all()
        self._cache.close()
        await self._tasks.close()
        self._connector.callbacks.client_tasks.close()
        await self._connector.close()

    async def log_out(self) -> bool:
        """Delete the saved login for this server and ask the authorization server to revoke its
        tokens.

        Returns:
            True if the tokens were revoked. Some authorization servers do not support revocation;
            their tokens remain valid until they expire.
        """
        forget = getattr(self._connector.target.credentials, "forget", None)
        return forget is not None and bool(await forget())

    async def revisions(
        self, *, draft: bool = False, timeout: float | None = None, probe: bool = True
    ) -> list[str]:
        """Return the revisions in which the server answers, newest first. Each of them can be the
        `revision=` of a client.

        The client's own connection stays as it is, and need not be open. If the server does not
        list its revisions, the client tries each of them at the same time on connections of their
        own; a command is started once for each. A `Channel` cannot be opened again, so that its
        server is only known to answer in the revisions that it lists or uses.

        Args:
            draft: Whether to include the draft dialect.
            timeout: Seconds to wait for each connection (default: as for the client's own).
            probe: Whether to open connections to find out. If False, nothing is sent, and the list
                is empty unless the client's own connection has discovered all of it.

        Raises:
            DovetailError: The server does not answer in any revision; the error says why.
        """
        from .revision_probe import find_revisions

        return await find_revisions(self._connector, draft=draft, timeout=timeout, probe=probe)

    def blocking(self) -> "BlockingClient":
        """Return the same client for synchronous code: `with Client(target).blocking() as
        client:`."""
        from .blocking import BlockingClient

        return BlockingClient(self)

    # requests

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """Return all tools on the server, from all pages. The list is empty if it offers none.

        Args:
            fresh: Whether to ask the server even if a cached answer is still valid.
        """
        tools: list[Tool] = await self._list_all("tools/list", "tools", fresh)
        self._validation.set_tools(tools)
        return tools

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """Return all resources on the server, from all pages. The list is empty if it offers none.

        Args:
            fresh: Whether to ask the server even if a cached answer is still valid.
        """
        return await self._list_all("resources/list", "resources", fresh)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """Return all resource templates on the server, from all pages. The list is empty if it
        offers none.

        Args:
            fresh: Whether to ask the server even if a cached answer is still valid.
        """
        return await self._list_all("resources/templates/list", "resource_templates", fresh)

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """Return all prompts on the server, from all pages. The list is empty if it offers none.

        Args:
            fresh: Whether to ask the server even if a cached answer is still valid.
        """
        return await self._list_all("prompts/list", "prompts", fresh)

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
    ) -> TypedToolResult[T]: ...
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
    ) -> ToolResult | TypedToolResult[Any]:
        """Call a tool and wait for its result.

        If you cancel this method, the call is also cancelled on the server. If the server runs the
        call as a task, this method waits for the task.

        Args:
            name: The name of the tool.
            arguments: The arguments: a mapping, or any object that encodes as a JSON object, such
                as a dataclass.
            type: The type that `.data` is converted to. InvalidOutput is raised if the conversion
                fails.
            timeout: Seconds to wait for the result (default: the client's `timeout`); progress
                extends the timeout, up to `limits.timeout_max`.
            on_progress: Called with each progress update for this call.
            raise_on_error: Whether to raise ToolError if the tool fails. If False, the result has
                `.is_error` set.
            retry: Whether the call may be sent again if the connection breaks after it was sent.
                Use this option only for tools that are safe to repeat.
            meta: Extra `_meta` for the request.
            on_request_id: Called with the id of the request just before it is sent, and again
                with a new id each time that it has to be sent again. Pass one of these ids to
                `cancel_request`.

        Returns:
            The result: `.data`, `.text`, `.content`, `.structured_content`, `.is_error`, `.meta`.

        Raises:
            ToolError: The tool failed.
            InvalidParams: The tool does not exist, the server rejected the arguments, or, if
                `validate="strict"`, they do not match the input schema.
            SchemaError: `validate="strict"` is set, and a schema of the tool cannot be used.
            InvalidOutput: The result does not match `type` or, if `validate="strict"`, the output
                schema.
            ConsentDenied: `on_call` refused the call.
            RequestCancelled: `cancel_request` was called with the id of this call.
        """
        params = _make_params(name, arguments, meta)
        if self._checks_calls:
            params = await self._check_call(params)
            name = params.name
        safe = retry or (self._trusted and self._validation.is_repeatable(name))
        with OpenCall(self._open_calls, on_request_id) as call:
            try:
                result, task = await self._send_tool_call(
                    params, timeout, on_progress, safe, started=call.started
                )
            except InvalidParams as refusal:
                if similar := self._validation.suggest(name):
                    refusal.add_note(f"Did you mean the tool {similar!r}?")
                raise
            if task is not None:
                report = on_progress or self._on_progress
                result = await self._tasks.wait_as_call(task, timeout, report)
        self._check_result(name, result, raise_on_error)
        return result if type is None or result.is_error else convert_result(result, type)

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
    ) -> TaskHandle:
        """Call a tool without waiting for its result, if the server runs the call as a task.

        If the server answers directly, wait for the answer and return a handle that is already
        done.

        Args:
            name: The name of the tool.
            arguments: The arguments, as in `call_tool`.
            ttl: How long the server should keep the task, in seconds. It has an effect only in
                revisions that let the client choose.
            timeout: Seconds to wait for the server's first answer (default: the client's
                `timeout`).
            manual: Whether you answer the task's questions yourself, with `handle.answer`.
                If False, the callbacks answer the questions.
            meta: Extra `_meta` for the request.
            on_request_id: Called with the id of the request, as in `call_tool`.
        """
        params = await self._check_call(_make_params(name, arguments, meta))
        name = params.name
        await self._connector.get_session(timeout)
        if self._tasks.supports_core and self._validation.task_support(name) is None:
            await self.list_tools()
        with OpenCall(self._open_calls, on_request_id) as call:
            result, task = await self._send_tool_call(
                params, timeout, None, False, ("required", "optional"), ttl, manual, call.started
            )
        handle = task or TaskHandle(self._tasks, "", result=result)
        handle.tool = name
        return handle

    def task(self, id: str, *, manual: bool = False) -> TaskHandle:
        """Return a handle for a task that this client, or another client of the same user, started
        earlier.

        Args:
            id: The id of the task (`TaskHandle.id`).
            manual: Whether you answer the task's questions yourself, with `handle.answer`.
                If False, the callbacks answer the questions.
        """
        return self._tasks.handle(id, manual)

    @property
    def task_form(self) -> TaskForm:
        """The form in which the server runs calls as tasks: "core" (2025-11-25), "extension"
        (2026-07-28), or empty if it does not, or the client is not connected."""
        return self._tasks.form

    @property
    def remote_tasks(self) -> RemoteTasks:
        """The tasks of the server in either form, for programs that relay them."""
        return self._tasks

    async def _check_call(self, params: CallToolParams) -> CallToolParams:
        """Return the params of a call that is valid and that `on_call` allows."""
        await self._validation.check_call(params, self)
        if self._on_call is not None:
            params = await self._approve_call(params)
            await self._validation.check_call(params, self)  # the hook may have changed it
        return params

    def _find_tool(self, name: str) -> Tool | None:
        return self._validation.find(name)

    async def _send_tool_call(
        self,
        params: CallToolParams,
        timeout: float | None,
        on_progress: OnProgress | None,
        safe: bool,
        supports: tuple[str, ...] = ("required",),
        ttl: float | None = None,
        manual: bool = False,
        started: Callable[[Id], None] | None = None,
    ) -> tuple[Any, TaskHandle | None]:
        """Call a tool; return its result, or a handle if the server runs the call as a task.

        In the core form of tasks, a tool is called as a task if its task support is in `supports`.
        """
        for is_retry in (False, True):
            as_task = (
                self._tasks.supports_core and self._validation.task_support(params.name) in supports
            )
            sent, token = self._tasks.as_task(params, ttl) if as_task else (params, "")
            try:
                result = await self._request_with_rounds(
                    "tools/call", sent, timeout, on_progress, safe, started=started
                )
                break
            except (HeaderMismatch, MethodNotFound, InvalidRequest) as refusal:
                mismatch = isinstance(refusal, HeaderMismatch)
                if is_retry or not (mismatch or (self._tasks.supports_core and not as_task)):
                    raise
                # The tool's header parameters or task support are outdated or not known yet.
                await self.list_tools(fresh=True)
                if not mismatch and self._validation.task_support(params.name) not in supports:
                    raise
        if type(result) is ToolResult and result.result_type in (None, "complete"):
            return result, None  # not an extension's; asking would take 2 µs
        task = self._tasks.started(result, token, manual)
        if task is None:
            result = await self._finish_extension_result(params, result)
        return result, task

    def _check_result(self, name: str, result: ToolResult, raise_on_error: bool) -> ToolResult:
        """Validate a result; raise ToolError if the tool failed and `raise_on_error` is true."""
        if not result.is_error:
            self._validation.check(name, result)
        elif raise_on_error:
            raise ToolError(result.text or f"{name or 'The tool'} failed", result)
        return result

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, fresh: bool = False
    ) -> list[ResourceContents]:
        """Return the contents of a resource: `.uri`, `.mime_type`, and `.text` or `.data` (bytes).

        Args:
            uri: The URI of the resource.
            timeout: Seconds to wait for the answer before TimedOut is raised
                (default: the client's `timeout`).
            fresh: Whether to ask the server even if a cached answer is still valid.
        """
        result = await self.request(
            "resources/read", ReadResourceParams(uri=uri), timeout=timeout, fresh=fresh
        )
        return result.contents  # type: ignore[no-any-return]

    async def list_skills(self, *, fresh: bool = False) -> "list[SkillEntry]":
        """Return the entries of all skills that the server lists, without reading the skills.

        An entry with a `problem` cannot be used.

        Args:
            fresh: Whether to ask the server even if a cached answer is still valid.
        """
        from ..extensions.skill_reader import list_skills

        return await list_skills(self, self._limits, fresh)

    async def get_skill(self, uri: str, *, fresh: bool = False) -> "SkillEntry":
        """Return the entry for one skill, even if the server does not list it.

        Args:
            uri: The URI of the skill's SKILL.md.
            fresh: Whether to ask the server even if a cached answer is still valid.
        """
        from ..extensions.skill_reader import get_skill

        return await get_skill(self, uri, self._limits, fresh)

    async def read_skill(self, skill: "str | SkillEntry") -> "Skill":
        """Read a skill and verify it against its entry. The other files in the skill are read on
        request.

        Args:
            skill: The URI of the skill, or its entry.

        Raises:
            SkillRefused: The skill does not match its entry.
        """
        from ..extensions.skill_reader import read_skill

        return await read_skill(self, skill, self._limits)

    async def read_app(self, target: str | Tool) -> "View":
        """Return the view of an app, which a host can display.

        Args:
            target: A tool that has a view, or a `ui://` URI.
        """
        from ..extensions.apps.view import read_view

        return await read_view(self, target)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Fill in a prompt and return its `.description` and `.messages`.

        Args:
            name: The name of the prompt.
            arguments: The arguments. Values that are not strings are sent as JSON.
            timeout: Seconds to wait for the answer before TimedOut is raised
                (default: the client's `timeout`).
        """
        strings = {key: _as_string(value) for key, value in (arguments or {}).items()}
        params = GetPromptParams(name=name, arguments=strings or None)
        return await self.request("prompts/get", params, timeout=timeout)  # type: ignore[no-any-return]

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
            prompt: The name of a prompt. Pass either this or `resource`.
            resource: The URI template of a resource.
            argument: The name of the argument or variable.
            value: The text that the user has typed so far.
            context: The values of the arguments that are already filled in.
            timeout: Seconds to wait for the answer before TimedOut is raised
                (default: the client's `timeout`).
            debounce: Seconds to wait for a later call for the same argument. All waiting calls then
                receive the answer to the latest call.
            cache: How long to cache the answer, in seconds.

        Returns:
            The completion: `.values`, `.total`, `.has_more`.
        """
        if prompt is not None and resource is None:
            reference: PromptReference | ResourceReference = PromptReference(prompt)
        elif resource is not None and prompt is None:
            reference = ResourceReference(resource)
        else:
            raise ConfigError("complete() requires either prompt= or resource=")
        params = CompleteParams(
            ref=reference,
            argument=CompletionArgument(argument, value),
            context=CompletionContext(dict(context)) if context else None,
        )
        ask = partial(self.request, COMPLETE, params, timeout=timeout)
        return (await self._completer.complete(params, ask, debounce, cache)).completion

    async def set_log_level(self, level: Level) -> None:
        """Ask the server to send only log messages at this level and above.

        Args:
            level: One of debug, info, notice, warning, error, critical, alert, emergency.
        """
        if level not in SEVERITY:
            raise ConfigError(f"{level!r} is not a log level; use one of {', '.join(SEVERITY)}")
        self._connector.log_level = level
        session = await self._connector.get_session()
        session.set_level(level)
        if session.agreed_revision.set_level:
            await self.request("logging/setLevel", SetLevelParams(level=level))

    # notifications

    async def set_roots(self, roots: Iterable[str | Path | Root] | OnRoots) -> None:
        """Replace the roots, and notify the server if its revision supports that.

        Args:
            roots: Paths, `file://` URIs or `Root` objects, or a function that returns them. If the
                result of the function changes, pass the same function again.

        Raises:
            ConfigError: A root is not valid, or the client was created without `roots=`.
        """
        self._connector.callbacks.set_roots(roots)
        if self._connector.session is not None:
            self._connector.session.notify("notifications/roots/list_changed")

    async def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Subscription:
        """Subscribe to changes to a resource.

        Args:
            uri: The URI of the resource.
            callback: Called with the URI that changed, which may be a sub-resource.

        Returns:
            A handle. To unsubscribe, close it or use it with `async with`.
        """
        return await self._subscriptions.subscribe(uri, callback)

    def on_change(self, kind: ChangeKind, callback: Callable[[str], Any]) -> Subscription:
        """Call a function when a list on the server or the state of this client changes.

        Args:
            kind: `"tools"`, `"resources"`, `"prompts"` or `"state"`.
            callback: Called with the kind or, for `"state"`, with the new state.

        Returns:
            A handle. To stop, close it or use it with `async with`. Await the handle to wait until
            the server has confirmed the subscription.
        """
        return self._subscriptions.on_change(kind, callback)

    def _on_notification(
        self, method: str, params: Any, request: PendingRequest | None = None
    ) -> None:
        if method == "notifications/message":
            if self._on_log is not None:
                parent, id = (None, None) if request is None else (request.parent, request.id)
                run_callback(self._on_log, LogEntry(**asdict(params), parent=parent, request_id=id))
            return
        if method in ("notifications/progress", "notifications/tasks/status"):
            self._tasks.on_notification(method, params)
            return
        if method == "notifications/elicitation/complete":
            self._connector.callbacks.on_elicitation_complete(params.elicitation_id)
            return
        if method == "resources/changed":  # updates and list changes in one (draft dialect)
            for uri in params.updated:
                self._on_notification(UPDATED, UriParams(uri=uri))
            method, params = "notifications/resources/list_changed", ListChangedParams()
        if method == "notifications/tools/list_changed":
            self._validation.clear()
        self._cache.on_notification(method, params)
        self._subscriptions.on_notification(method, params)

    async def _on_open(self, session: ClientSession) -> None:
        self._validation.clear()
        self._cache.on_open()
        await self._subscriptions.restore(session)

    def _on_state(self, state: str) -> None:
        self._subscriptions.notify_state(state)
        if self._observers:
            self._observe(state == "connected")

    def _observe(self, connected: bool) -> None:
        """Report the end of a handshake-era session to the observers, and record the start of the
        next one."""
        if self._observed_session is not None:
            revision, network, began = self._observed_session
            for observer in self._observers:
                observer.session_ended("client", revision, network, monotonic() - began)
        session, self._observed_session = self._connector.session, None
        if connected and session is not None and not session.agreed_revision.stateless:
            self._observed_session = session.agreed_revision, self.network, monotonic()


def _with_auth_extensions(extensions: Sequence[Extension], auth: Any) -> Extensions:
    """Return the extensions, including those that the credentials need."""
    ids = {extension.id for extension in extensions}
    needed = [Extension(id=id) for id in getattr(auth, "extensions", ()) if id not in ids]
    return Extensions([*extensions, *needed])


def _make_params(name: str, arguments: Any, meta: dict[str, Any] | None) -> CallToolParams:
    encoded = ANY.encode({} if arguments is None else arguments)
    return CallToolParams(name=name, arguments=Raw(encoded), meta=meta)


def _first_set(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _as_string(value: Any) -> str:
    return value if isinstance(value, str) else ANY.encode(value).decode()
