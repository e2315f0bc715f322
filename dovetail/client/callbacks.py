"""Answer a server's questions to the user (`on_elicit`) and the model (`on_sample`), and its
requests for roots.

A client declares only the features that have a callback, so the server asks for nothing else.
`sampling.tools` and `sampling.context` are declared if the callback says that it supports them
(`on_sample.tools = True`). A question arrives as a request in the handshake era and inside an
`input_required` result in the stateless era. Both are handled in the same way:

    is the question valid? -> on_ask -> on_elicit, on_sample or the roots -> on_answer
    -> is the answer valid? -> the server

A callback receives the question exactly as the server wrote it. It can see who asks: `.server` is
the name that the server reports, and `.target` is the target that the user connected to. The two
hooks are for consent: `on_ask` returns the question and `on_answer` returns the answer, changed or
unchanged, or None to refuse. A refused form is declined. The protocol has no "decline" for the
other questions, so they are refused with error -1. An accepted form is completed with its defaults
and must match its schema. If it does not match, ConfigError is raised and the answer is not sent.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from ..aio import call_maybe_async, run_on_loop
from ..connection.client_session import ClientSession
from ..errors import (
    ConfigError,
    ConsentDenied,
    InvalidParams,
    InvalidRequest,
    SchemaError,
)
from ..jsonrpc.messages import Id, encode
from ..limits import DEFAULT, Limits
from ..logs import get_logger
from ..net import why_not_openable
from ..ports import Call, Caller, CallHandler
from ..protocol.base import Implementation, Params, Result, open_hook
from ..protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    find_tool_mismatch,
)
from ..protocol.content import (
    AudioContent,
    ImageContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from ..protocol.lifecycle import (
    ClientCapabilities,
    ElicitationCapability,
    ProgressParams,
    RootsCapability,
    SamplingCapability,
)
from ..protocol.methods import METHODS
from ..protocol.utilities import LogParams
from ..schema import Shape
from ..schema.validation import Validator, compile
from .call_hook import check_hook_result
from .client_tasks import ClientTasks
from .question_limit import QuestionLimit
from .roots import Roots, parse_root, parse_roots

log = get_logger("client")

TOOL_CHOICE_MODES = ("auto", "required", "none")
"""Whether a model may, must or must not use tools."""
_any = Shape(Any)


class _ServerRequest:
    __slots__ = ()

    _call: Call | None = None
    """The call that this request belongs to; None if you created the request yourself."""

    if TYPE_CHECKING:

        @property
        def server(self) -> Implementation | None: ...
        @property
        def target(self) -> str: ...

    @property
    def asked_by(self) -> str:
        """The server that asks, as text to show to the user. It is the name that the server
        reports, which can be forged, followed in parentheses by the target that you connected to,
        which cannot."""
        name = (self.server.title or self.server.name) if self.server is not None else ""
        if name and self.target:
            return f"{name} ({self.target})"
        return name or self.target or "the server"

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress while you answer, if the server asked for it. In the stateless era, a
        server cannot ask for it. You may call this from any thread.

        Args:
            done: How much work is done. It should increase with each report.
            total: How much work there is in total, if known.
            message: A human-readable description of the current step.
        """
        call = self._call
        if call is not None and call.progress is not None:
            update = ProgressParams(progress_token=0, progress=done, total=total, message=message)
            run_on_loop(call.connection.loop, call.progress.update, update)


class ElicitRequest(ElicitParams, _ServerRequest, kw_only=True, dict=True):
    """A server's question for the user: a form to fill in, or a page to visit.

    Attributes:
        message: The question for the user.
        mode: `"form"` or `"url"`.
        requested_schema: The JSON schema of the form, also available as `schema`.
        url: The page to visit.
        elicitation_id: Identifies the visit. The server repeats it when the visit is complete.
        task: Whether the server requests the answer as a task. The client handles that.
        meta: The `_meta` of the request.
        server: The name and version that the server reports.
        target: The target that you passed to the client.
        parent: The `parent=` of your request to which this one belongs, or None if the transport
            cannot tell.
    """

    method: ClassVar[str] = "elicitation/create"
    server: Implementation | None = None
    target: str = ""
    parent: Any = None


class SampleRequest(CreateMessageParams, _ServerRequest, kw_only=True, dict=True):
    """A server's request for a completion from your model.

    Attributes:
        messages: The conversation so far.
        max_tokens: The maximum number of tokens to generate.
        system_prompt: The system prompt that the server suggests.
        model_preferences: Which models the server prefers; see `choose_model`.
        temperature: The sampling temperature.
        stop_sequences: Strings that end the generation.
        include_context: Which servers' context to add to the prompt: `none`, `thisServer` or
            `allServers`.
        tools: The tools that the model may use.
        tool_choice: Whether the model may, must or must not use tools.
        metadata: Parameters for the provider of the model.
        task: Whether the server requests the answer as a task. The client handles that.
        meta: The `_meta` of the request.
        server: The name and version that the server reports.
        target: The target that you passed to the client.
        parent: The `parent=` of your request to which this one belongs, or None if the transport
            cannot tell.
    """

    method: ClassVar[str] = "sampling/createMessage"
    server: Implementation | None = None
    target: str = ""
    parent: Any = None


class RootsRequest(Params, _ServerRequest, kw_only=True, dict=True):
    """A server's request for the roots.

    Attributes:
        meta: The `_meta` of the request.
        server: The name and version that the server reports.
        target: The target that you passed to the client.
        parent: The `parent=` of your request to which this one belongs, or None if the transport
            cannot tell.
    """

    method: ClassVar[str] = "roots/list"
    server: Implementation | None = None
    target: str = ""
    parent: Any = None


class LogEntry(LogParams, kw_only=True):
    """A server's log message.

    Attributes:
        level: The severity: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or
            `emergency`.
        data: The message: any JSON value.
        logger: The name of the logger, if the server states one.
        meta: The `_meta` of the notification.
        parent: The `parent=` of your request to which the message belongs, or None if the transport
            cannot tell.
        request_id: The id of that request, or None if the transport cannot tell.
    """

    parent: Any = None
    request_id: Id | None = None


AnyRequest = ElicitRequest | SampleRequest | RootsRequest
REQUEST_TYPES: dict[str, Any] = {
    view.method: view for view in (ElicitRequest, SampleRequest, RootsRequest)
}
RequestType = TypeVar("RequestType", ElicitRequest, SampleRequest, RootsRequest)
AnswerType = TypeVar("AnswerType", ElicitResult, CreateMessageResult, ListRootsResult)
Questions = dict[str, dict[str, Any]]
"""A mapping from keys to questions in wire form, for one round or one task."""
OnElicit = Callable[[ElicitRequest], Any]
"""Returns the form content, True to accept a URL or the form's defaults, None or False to decline,
or an ElicitResult."""
OnSample = Callable[[SampleRequest], Any]
"""Returns text, a content block or a list of them, a CreateMessageResult, or None to refuse."""
OnRoots = Callable[[RootsRequest], Any]
"""Returns the roots for this request, as a list of paths, `file://` URIs or Roots, or None to
refuse."""
OnAsk = Callable[[AnyRequest], Any]
"""Returns the request, changed or unchanged, or None to refuse."""
OnAnswer = Callable[[AnyRequest, Result], Any]
"""Returns the answer, changed or unchanged, or None to refuse."""


class Callbacks:
    """Answers the questions that a server asks one client."""

    def __init__(
        self,
        on_elicit: OnElicit | None,
        on_sample: OnSample | None,
        roots: Iterable[Any] | OnRoots | None,
        experimental: Any,
        *,
        on_ask: OnAsk | None = None,
        on_answer: OnAnswer | None = None,
        target: str = "",
        tasks: bool = True,
        limits: Limits = DEFAULT,
    ) -> None:
        self._on_elicit, self._on_sample = on_elicit, on_sample
        self._on_ask, self._on_answer = on_ask, on_answer
        self._target = target
        self.question_limit = QuestionLimit(limits.questions)
        self.roots: Roots | None = None
        """The roots, or None if this client does not declare roots. Empty if a function returns
        them."""
        self._on_roots: OnRoots | None = None
        self.capabilities = ClientCapabilities(experimental=experimental)
        self.answers: dict[str, CallHandler] = {}
        if on_elicit is not None:
            self.answers[ElicitRequest.method] = self._elicit
            self.capabilities.elicitation = ElicitationCapability(form={}, url={})
        if on_sample is not None:
            self.answers[SampleRequest.method] = self._sample
            self.capabilities.sampling = SamplingCapability(
                tools={} if getattr(on_sample, "tools", None) is True else None,
                context={} if getattr(on_sample, "context", None) is True else None,
            )
        if roots is not None:
            self.roots = Roots(())
            self.set_roots(roots)
            self.answers[RootsRequest.method] = self._roots
            self.capabilities.roots = RootsCapability(list_changed=True)
        self.client_tasks = ClientTasks(self.answers, limits, tasks)
        self.capabilities.tasks = self.client_tasks.capability

    def set_roots(self, roots: Iterable[Any] | OnRoots) -> None:
        """Replace the roots, or the function that returns them."""
        if self.roots is None:
            raise ConfigError(
                "This client was created without roots=, so it did not declare support for roots"
            )
        self.roots.replace(() if callable(roots) else roots)
        self._on_roots = roots if callable(roots) else None

    async def check_roots(self, connection: Any, *, if_due: bool = False) -> None:
        """Drop the roots that no longer exist, and notify the server."""
        if self.roots:
            await self.roots.drop_missing(
                lambda: connection.notify("notifications/roots/list_changed"), if_due=if_due
            )

    # one question

    async def _elicit(self, call: Call) -> ElicitResult:
        assert self._on_elicit is not None
        request = self._accept(ElicitRequest, call)
        request.mode = request.mode or "form"
        self._require_declared(call, "elicitation", request.mode, parameter="mode")
        form = _check_elicit(request)
        answer = await self._ask_with_consent(
            request, self._on_elicit, _to_url_answer if form is None else _to_form_answer
        )
        if answer is None:
            return ElicitResult(action="decline")
        return _complete_form(request, answer, form)

    async def _sample(self, call: Call) -> CreateMessageResult:
        assert self._on_sample is not None
        request = self._accept(SampleRequest, call)
        blocks = [block for message in request.messages for block in message.blocks]
        used = any(isinstance(block, ToolUseContent | ToolResultContent) for block in blocks)
        if request.tools is not None or request.tool_choice is not None or used:
            self._require_declared(call, "sampling", "tools", parameter="tools")
        _check_sample(request)
        answer = await self._ask_with_consent(request, self._on_sample, _to_sample_result)
        if answer is None:
            raise ConsentDenied("User rejected sampling request")
        _check_uses(request, answer)
        return answer

    async def _roots(self, call: Call) -> ListRootsResult:
        request = self._accept(RootsRequest, call)
        await self.check_roots(call.connection)
        answer = await self._ask_with_consent(
            request, self._on_roots or (lambda _: self.roots), _to_roots_result
        )
        if answer is None:
            raise ConsentDenied("User rejected roots request")
        return replace(answer, roots=[parse_root(root) for root in answer.roots])

    def _accept(self, view: type[RequestType], call: Call) -> RequestType:
        """Return the question as callbacks receive it."""
        self.question_limit.count(call.name)
        return self._view(view, call)

    def _view(self, view: type[RequestType], call: Call) -> RequestType:
        fields = {name: getattr(call.params, name) for name in call.params.__struct_fields__}
        request = view(**fields, server=call.caller.info, target=self._target, parent=call.parent)
        request._call = call
        return request

    def _require_declared(self, call: Call, capability: str, part: str, *, parameter: str) -> None:
        """Refuse a question if one of its parameters needs a capability that this client did not
        declare in this revision."""
        declared = call.revision.lower(self.capabilities).get(capability)
        # an empty object means that only forms are supported
        parts = {"form"} if capability == "elicitation" and not declared else set(declared or ())
        if part not in parts:
            raise InvalidParams(
                f"This client did not declare the capability {capability}.{part}",
                parameter=parameter,
            )

    async def _ask_with_consent(
        self,
        request: RequestType,
        ask: Callable[[RequestType], Any],
        convert: Callable[[Any], AnswerType | None],
    ) -> AnswerType | None:
        """Return the callback's answer, or None if the callback or a hook refuses."""
        if self._on_ask is not None:
            call = request._call
            request = check_hook_result(
                "on_ask", request, await call_maybe_async(self._on_ask, request)
            )
            if request is None:
                return None
            request._call = call  # a changed copy lacks it
        answer = convert(await call_maybe_async(ask, request))
        if self._on_answer is not None and answer is not None:
            answer = check_hook_result(
                "on_answer", answer, await call_maybe_async(self._on_answer, request, answer)
            )
        return answer

    # a round of questions

    def describe_requests(
        self, questions: Questions, session: ClientSession
    ) -> dict[str, AnyRequest]:
        """Return the questions, by key, in the form that callbacks receive."""
        return {
            str(call.id): self._view(REQUEST_TYPES[call.method.name], call)
            for call in self._calls(questions, session)
        }

    def with_fixed_answer(self, value: Any) -> "Callbacks":
        """Return callbacks that answer any question with this value, after the same checks."""
        callbacks = Callbacks(
            self._on_elicit and (lambda _: value),
            self._on_sample and (lambda _: value),
            None if self.roots is None else value if isinstance(value, list) else (),
            None,
            on_ask=self._on_ask,
            on_answer=self._on_answer,
            target=self._target,
        )
        callbacks.capabilities = self.capabilities
        return callbacks

    def on_elicitation_complete(self, id: str) -> None:
        """Do nothing: an application learns from the server's result that its user has finished on
        a page."""

    def on_task_notification(self, params: Any) -> None:
        """Do nothing: a `TaskHandle` receives the notifications about its task."""

    async def answer_all(
        self, questions: Questions, session: ClientSession, parent: Any = None
    ) -> dict[str, msgspec.Raw]:
        """Answer all questions in a round concurrently, and return the answers by key. If a
        question fails, the round fails. `parent` is that of the request to which they belong."""
        calls = self._calls(questions, session, parent)
        answering = [asyncio.ensure_future(self.answers[call.method.name](call)) for call in calls]
        try:
            results: list[Result] = await asyncio.gather(*answering)
        except BaseException:
            for task in answering:
                task.cancel()
            # Wait until all of them have stopped.
            await asyncio.gather(*answering, return_exceptions=True)
            raise
        lower = session.agreed_revision.lower
        return {
            str(call.id): msgspec.Raw(msgspec.json.encode(lower(result)))
            for call, result in zip(calls, results, strict=True)
        }

    def _calls(
        self, questions: Questions, session: ClientSession, parent: Any = None
    ) -> list[Call]:
        caller = Caller(session.agreed_revision, session.server_info)
        calls = [self._call(key, question, caller, session) for key, question in questions.items()]
        for call in calls:
            call.parent = parent
        return calls

    def _call(
        self, key: str, question: dict[str, Any], caller: Caller, session: ClientSession
    ) -> Call:
        name = str(question.get("method"))
        if name not in self.answers:
            raise InvalidRequest(
                f"The server sent {name}, but this client did not declare support for it"
            )
        received = question.get("params") or {}
        try:
            params = msgspec.convert(received, METHODS[name].params, dec_hook=open_hook)
        except msgspec.ValidationError as problem:
            raise InvalidRequest(f"The server sent an invalid {name}: {problem}") from None
        raw_params = msgspec.Raw(encode(received))
        return Call(key, METHODS[name], params, caller, session, raw_params=raw_params)


# is the question valid?


def _check_elicit(request: ElicitRequest) -> Validator | None:
    """Return the validator for a form. Refuse a form with an invalid schema or a URL that a browser
    cannot open."""
    if request.mode != "form":
        if reason := why_not_openable(request.url or ""):
            raise InvalidParams(
                f"url must be the http or https URL of a page: {reason}", parameter="url"
            )
        return None
    try:
        return compile(request.schema or {})
    except SchemaError as problem:
        raise InvalidParams(f"requestedSchema: {problem}", parameter="requestedSchema") from None


def _check_sample(request: SampleRequest) -> None:
    """Refuse a request that no model can answer."""
    if request.max_tokens < 1:
        raise InvalidParams(
            f"maxTokens must be at least 1, not {request.max_tokens}", parameter="maxTokens"
        )
    if _tool_choice_mode(request) not in TOOL_CHOICE_MODES:
        raise InvalidParams(
            f"toolChoice.mode must be one of {', '.join(TOOL_CHOICE_MODES)}",
            parameter="toolChoice.mode",
        )
    problem = find_tool_mismatch(request.messages)
    if problem is not None:
        raise InvalidParams(f"messages: {problem}", parameter="messages")


def _tool_choice_mode(request: SampleRequest) -> str:
    return (request.tool_choice and request.tool_choice.mode) or "auto"


# what callbacks may return


def _to_url_answer(returned: Any) -> ElicitResult | None:
    if returned is None or returned is False:
        return None
    if returned is not True and not isinstance(returned, ElicitResult):
        raise ConfigError(
            f"on_elicit: to accept a page (request.mode is 'url'), return True, not {returned!r}"
        )
    return ElicitResult(action="accept") if returned is True else returned


def _to_form_answer(returned: Any) -> ElicitResult | None:
    if returned is None or returned is False:
        return None
    if isinstance(returned, ElicitResult):
        return returned
    try:
        content = {} if returned is True else msgspec.json.decode(_any.encode(returned))
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"on_elicit: the answer cannot be sent: {problem}") from None
    if not isinstance(content, dict):
        raise ConfigError(
            f"on_elicit: return a mapping with a value for each form field, not {returned!r}"
        )
    return ElicitResult(action="accept", content=content)


def _to_sample_result(returned: Any) -> CreateMessageResult | None:
    if returned is None or isinstance(returned, CreateMessageResult):
        return returned
    if isinstance(returned, str):
        returned = TextContent(returned)
    blocks = returned if isinstance(returned, list) else [returned]
    if not blocks or not all(
        isinstance(block, TextContent | ImageContent | AudioContent | ToolUseContent)
        for block in blocks
    ):
        raise ConfigError(f"on_sample: return text or content, not {type(returned).__name__}")
    stopped = "toolUse" if any(isinstance(block, ToolUseContent) for block in blocks) else "endTurn"
    return CreateMessageResult(
        role="assistant",
        content=blocks if len(blocks) > 1 else blocks[0],
        model="unknown",
        stop_reason=stopped,
    )


def _to_roots_result(returned: Any) -> ListRootsResult | None:
    return None if returned is None else ListRootsResult(roots=parse_roots(returned))


# is the answer valid?


def _check_uses(request: SampleRequest, answer: CreateMessageResult) -> None:
    """Check that the model uses only the tools it was given, and only if the mode allows it.
    https://modelcontextprotocol.io/specification/2026-07-28/client/sampling#tool-choice-modes"""
    mode = _tool_choice_mode(request)
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    used = {block.name for block in blocks if isinstance(block, ToolUseContent)}
    offered = {tool.name for tool in request.tools or ()} if mode != "none" else set()
    if used - offered:
        names = ", ".join(sorted(used - offered))
        raise ConfigError(
            f"on_sample: the model cannot use {names}, because {request.asked_by} did not offer it"
        )
    if mode == "required" and not used:
        log.warning(
            "on_sample: %s requires the model to use a tool, but it used none", request.asked_by
        )


def _complete_form(
    request: ElicitRequest, answer: ElicitResult, form: Validator | None
) -> ElicitResult:
    """Return the answer to send. If the user was asked to visit a page, the answer has no content.
    A form is completed with its defaults, except for fields that are set to None."""
    if answer.action != "accept" or form is None:
        return replace(answer, content=None)
    fields = (request.schema or {}).get("properties") or {}
    defaults = {
        name: field["default"]
        for name, field in fields.items()
        if isinstance(field, dict) and "default" in field
    }
    content = {
        name: value
        for name, value in {**defaults, **(answer.content or {})}.items()
        if value is not None
    }
    problems = form.problems(content)
    if problems:
        found = "; ".join(problems)
        raise ConfigError(
            f"on_elicit: the answer does not match the form from {request.asked_by}: {found}"
        )
    return replace(answer, content=content)
