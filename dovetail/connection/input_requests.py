"""Requests from a server to its client: elicitation, sampling and roots.

All these requests are sent through `ask`, so a handler never needs to know the era.

**Handshake era**: `ask` sends a request over the back channel of the call (`call.connection.ask`)
and waits for the reply.

**Stateless era**: a server cannot send requests; it can only reply "send this again, with these
answers" (`input_required`). So a handler that may ask questions runs as a `SuspendableCall`, which
outlives the request that started it. `multi_round_trip.py` sends the call's questions to the client
and returns the answers.

The params of a question are typed, or a RawObject if a gateway passes on the question of another
server. The checks are the same for both.

If the client did not declare the capability for a question, or its revision does not define the
question, `ask` raises CannotAsk and sends nothing.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from hashlib import blake2b
from inspect import isawaitable
from os import urandom
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import (
    CannotAsk,
    ConfigError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    TimedOut,
    ToolError,
)
from ..limits import Limits
from ..logs import get_logger
from ..ports import Call, Caller, CallHandler
from ..protocol.base import OWN_META, Params
from ..protocol.client_features import CreateMessageParams, ElicitParams, find_tool_mismatch
from ..protocol.content import TextContent, ToolResultContent, ToolUseContent
from ..protocol.lifecycle import ClientCapabilities, InputRequired, ProgressParams
from ..protocol.methods import METHODS, Method
from ..protocol.raw import RawObject, without_meta
from ..protocol.tools import ToolResult
from ..revisions import Revision, decode
from .notifications import ProgressThrottle, run_callback
from .url_elicitation import without_ticket

if TYPE_CHECKING:
    from ..server.forms import Form
    from .connection import OnProgress

log = get_logger("connection")

INITIALIZED_SECONDS = 5.0
"""How long a question waits for `notifications/initialized`."""
QUESTIONS = {
    name: METHODS[name] for name in ("elicitation/create", "sampling/createMessage", "roots/list")
}


# checks


def typed_view(params: Any) -> Any:
    """Return the params of a question as a value of their type, for checks. Raise ConfigError if
    they are raw and malformed."""
    if type(params) is not RawObject:
        return params
    try:
        return params.decode()
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
        raise ConfigError(f"The params of a question are malformed: {problem}") from None


def required_capabilities(params: Any, method: str) -> dict[str, dict[str, Any]]:
    """Return the capabilities that a client must have declared for this question."""
    if method == "roots/list":
        return {"roots": {}}
    if isinstance(params, ElicitParams):
        return {"elicitation": {params.mode or "form": {}}}
    parts: dict[str, Any] = {}
    if isinstance(params, CreateMessageParams):
        if params.tools is not None or params.tool_choice is not None or _uses_tools(params):
            parts["tools"] = {}
        if params.include_context not in (None, "none"):
            parts["context"] = {}
    return {"sampling": parts}


def _uses_tools(params: CreateMessageParams) -> bool:
    """Return whether the messages mention tools, even if no tools are offered."""
    blocks = (block for message in params.messages for block in message.blocks)
    return any(isinstance(block, ToolUseContent | ToolResultContent) for block in blocks)


def has_capabilities(
    capabilities: ClientCapabilities, wanted: dict[str, dict[str, Any]], revision: Revision
) -> bool:
    """Return whether a client has all required capabilities. An empty `elicitation` means forms. If
    a revision defines forms or context without a separate capability, the capability is implied."""
    for name, parts in wanted.items():
        has = capabilities.get(name)
        if not isinstance(has, dict):
            return False
        implied = {
            "form": not has or "mode" in revision.absent.get(ElicitParams, ()),
            "context": not revision.sampling_parts,
        }
        if not all(part in has or implied.get(part) for part in parts):
            return False
    return True


def find_flaw(params: Any) -> str | None:
    """Return why a question is invalid for every client, or None if it is valid."""
    if isinstance(params, ElicitParams) and params.mode == "url":
        from ..net import why_not_openable

        reason = why_not_openable(params.url or "")
        return reason and f"{params.url!r} is not a URL that a browser can open: {reason}"
    problem = (
        find_tool_mismatch(params.messages) if isinstance(params, CreateMessageParams) else None
    )
    return problem and f"The messages cannot be sent: {problem}"


def check(call: Call, method: str, params: Any) -> None:
    """Raise CannotAsk if this client cannot be asked this question, or ConfigError if no client
    can."""
    caller, params = call.caller, typed_view(params)
    revision = caller.revision
    wanted = required_capabilities(params, method)
    parts = [part for parts in wanted.values() for part in parts]
    what = f"{method} ({', '.join(parts)})" if parts else method
    if not call.method.asks:
        raise CannotAsk(f"{call.name} is not allowed to ask its client for input")
    absent = revision.absent.get(type(params), ())
    if (not revision.stateless and method not in revision.methods) or any(
        part in absent for part in parts
    ):
        raise CannotAsk(f"Revision {revision.name} does not define {what}")
    if not has_capabilities(caller.capabilities, wanted, revision):
        raise CannotAsk(f"The client did not declare support for {what}", wanted)
    if problem := find_flaw(params):
        raise ConfigError(problem)


async def ask(
    call: Call,
    method: str,
    params: Any,
    key: str | None = None,
    *,
    timeout: float | None = None,
    on_progress: "OnProgress | None" = None,
) -> Raw:
    """Send a question to the client that made a call, and return the raw answer. The tool's timeout
    is paused while the tool waits."""
    view = typed_view(params)
    check(call, method, view)
    if type(params) is RawObject:
        params = without_meta(params, OWN_META)
    if _inside_once.get():
        raise ConfigError(
            "The function passed to ctx.once cannot ask the client questions; "
            "ask them before calling ctx.once"
        )
    if isinstance(view, ElicitParams) and view.elicitation_id is not None:
        remember_elicitation(call.caller, view.elicitation_id)
    if call.timeout_clock is not None:
        call.timeout_clock.pause()
    try:
        if call.run is not None:
            answer: Raw = await call.run.ask(QUESTIONS[method], params, key, timeout)
            return answer
        if call.caller.revision.stateless:
            raise CannotAsk(
                f"{method}: the handler for this {call.name} was started without support for "
                "questions"
            )
        return await ask_over_back_channel(call, method, params, timeout, on_progress)
    finally:
        if call.timeout_clock is not None:
            call.timeout_clock.resume()


async def ask_over_back_channel(
    call: Call,
    method: str,
    params: Any,
    timeout: float | None = None,
    on_progress: "OnProgress | None" = None,
) -> Raw:
    """Send a question over the back channel. Questions that are open at the same time count as one
    round, as in the stateless era. As with a client's requests, progress restarts the timeout, and
    the total time is bounded."""
    limits: Limits = call.connection.limits
    call.rounds += not call.open_questions
    if call.rounds > limits.asks:
        raise too_many_rounds(call, limits)
    call.open_questions += 1
    loop = asyncio.get_running_loop()
    seconds = limits.ask_time if timeout is None else timeout
    total = max(seconds, limits.ask_time)
    latest_end = loop.time() + total

    def deliver(update: ProgressParams) -> None:
        if on_progress is not None:
            run_callback(on_progress, update)

    # A client may send far more updates than a callback can handle.
    throttle = ProgressThrottle(deliver, limits.progress_interval)

    def on_update(update: ProgressParams) -> None:
        if throttle.update(update):
            deadline.reschedule(min(loop.time() + seconds, latest_end))

    try:
        async with asyncio.timeout(seconds) as deadline:
            if (initialized := call.connection.initialized) is not None:
                await _wait_initialized(initialized, method)
            answer: Raw = await call.connection.ask(
                call, QUESTIONS[method], params, on_update if on_progress else None
            )
            return answer
    except TimeoutError:
        if timeout is None:
            raise ToolError(unanswered(method, seconds)) from None
        raise TimedOut(unanswered(method, seconds if loop.time() < latest_end else total)) from None
    finally:
        call.open_questions -= 1
        throttle.finish()


def unanswered(method: str, seconds: float) -> str:
    """Return the text of the error for a question that was not answered in time."""
    return f"The client did not answer {method} within {seconds:g} s"


async def _wait_initialized(initialized: asyncio.Event, method: str) -> None:
    """Wait until the client has sent `notifications/initialized`, as a server must before it sends
    requests. After a timeout, the server sends its requests anyway."""
    try:
        async with asyncio.timeout(INITIALIZED_SECONDS):
            await initialized.wait()
    except TimeoutError:
        initialized.set()  # the next question does not wait
        log.warning(
            "Sending %s although the client did not send notifications/initialized within %g s",
            method,
            INITIALIZED_SECONDS,
        )


def too_many_rounds(call: Call, limits: Limits) -> InternalError:
    """Return the error for a handler that never stops asking."""
    return InternalError(
        f"{call.name} asked the client {limits.asks} times in a row, which is the limit"
    )


def remember_elicitation(caller: Caller, id: str) -> None:
    """Remember a URL elicitation that this caller received."""
    caller.remember_elicitation(id)
    if caller.on_url_elicitation is not None:
        caller.on_url_elicitation(id)


class ClientRefused(ToolError):
    """The client answered a question with an error, which a gateway passes on."""

    def __init__(self, method: str, code: int, reason: str, data: Any) -> None:
        super().__init__(f"The client rejected {method}: {reason or f'error {code}'}")
        self.code, self.reason, self.data = code, reason, data


async def once(call: Call, key: str, function: Callable[[], Any]) -> Any:
    """Call a function once per chain of rounds and record its result. Every call returns that
    result, decoded from JSON."""
    results = call.once_results = {} if call.once_results is None else call.once_results
    while isinstance(done := results.get(key), asyncio.Future):
        await asyncio.wait([done])  # it is running; if it fails, it is our turn
    if done is None:
        running = results[key] = asyncio.get_running_loop().create_future()
        try:
            if call.run is not None:
                await call.run.check_lease()
            results[key] = done = msgspec.json.encode(await _run_once(call.run, function))
            if call.run is not None:
                await call.run.save_once_result(key, done)
        except BaseException:
            del results[key]
            raise
        finally:
            running.set_result(None)
    return msgspec.json.decode(done)


def once_key(call: Call, key: str) -> str:
    """Return a token for one step of a call that is the same in every run of the handler."""
    return blake2b(key.encode(), key=once_seed(call), digest_size=16).hexdigest()


def once_seed(call: Call) -> bytes:
    """Return what distinguishes the tokens of this call from those of other calls. A call that
    becomes a task keeps it under a key of its own."""
    results = call.once_results = {} if call.once_results is None else call.once_results
    seed: bytes | None = results.get(ONCE_SEED)
    if seed is None and call.run is not None:
        return call.run.once_seed  # type: ignore[no-any-return]
    if seed is None:
        seed = results[ONCE_SEED] = urandom(16)
    return seed


async def _run_once(run: Any, function: Callable[[], Any]) -> Any:
    """Run the function. No round ends while the function runs, because the round's state would lack
    the result."""
    inside = _inside_once.set(True)
    if run is not None:
        run.once_running += 1
    try:
        outcome = function()
        return await outcome if isawaitable(outcome) else outcome
    finally:
        _inside_once.reset(inside)
        if run is not None:
            run.once_running -= 1
            run.close_round_soon()


ONCE_SEED = "\0seed"
"""The key of the seed of `once_key` among the results of `once`."""
_inside_once: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether this code runs inside `once`, which must not ask questions because a replay would skip
them."""


def as_tool_error(call: Call, error: CannotAsk | ToolError) -> ToolResult:
    """Return the tool result for a failed question, as if the handler itself had asked it."""
    if call.method.result is not ToolResult or (
        isinstance(error, CannotAsk) and call.caller.revision.stateless
    ):
        raise error
    return ToolResult(content=[TextContent(str(error))], is_error=True)


def question_method(params: Params | None) -> str:
    """Return the method of a question."""
    if isinstance(params, ElicitParams):
        return "elicitation/create"
    return "sampling/createMessage" if isinstance(params, CreateMessageParams) else "roots/list"


def parse_question(method: Method, params: Raw) -> RawObject:
    """Return the raw params of a question. Absent params count as an empty object."""
    absent = bytes(params) in (b"", b"null")
    return RawObject.parse(method.params, b"{}" if absent else params)


class _RawQuestions(Struct, rename="camel"):
    input_requests: dict[str, dict[str, Raw]] | None = None
    request_state: str | None = None


_raw_questions = msgspec.json.Decoder(_RawQuestions).decode


def relayed_questions(result: Raw) -> InputRequired:
    """Return the questions in another server's `input_required` result, for a handler that passes
    them on. The params and unknown fields stay raw, and the state is that of the other server."""
    requests: dict[str, RawObject] = {}
    more: dict[str, dict[str, Raw]] = {}
    try:
        found = _raw_questions(result)
        for key, fields in (found.input_requests or {}).items():
            method = msgspec.json.decode(fields.pop("method", b"null"), type=str)
            requests[key] = parse_question(QUESTIONS[method], fields.pop("params", Raw()))
            if fields:
                more[key] = fields
    except KeyError as problem:
        raise InvalidRequest(f"The server asks an unknown question: {problem}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidRequest(f"The server's questions are malformed: {problem}") from None
    return InputRequired(requests, found.request_state, more)


def decode_answer(raw: Raw | bytes, method: str) -> Any:
    """Decode an answer. Raise InvalidParams if the answer does not match the question."""
    try:
        return decode(raw, QUESTIONS[method].result)
    except msgspec.MsgspecError as error:
        raise InvalidParams(
            f"The answer to {method} is malformed: {error}", parameter="inputResponses"
        ) from None


# suspended calls

RequestKey = tuple[Any, ...]
"""The identity of the caller and of the request as it was received, before middleware could change
it."""
encode_sorted = msgspec.json.Encoder(order="sorted").encode


class OpenQuestion(Struct, eq=False):
    """A question that has no answer yet."""

    method: Method
    params: Any
    future: "asyncio.Future[Raw] | None" = None
    """The future that receives the answer, or None if the handler is called again with the
    answer."""
    form: "Form | None" = None
    """The form that the answer must match, if the question has no future."""
    more: "Mapping[str, Raw]" = {}
    """Further fields that are sent beside the method and the params."""

    def settle(self, answer: "Raw | CannotAsk") -> None:
        """Set the answer or the error."""
        if self.future is None or self.future.done():
            return
        if isinstance(answer, CannotAsk):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)

    def check_answer(self, answer: Raw | bytes) -> None:
        """Raise InvalidParams if an answer does not match the question."""
        result = decode_answer(answer, self.method.name)
        if self.form is not None and result.action == "accept":
            self.form.accept(result.content)


class Journal(Struct, array_like=True):
    """The state that the client carries from round to round. It is sealed."""

    call_id: str
    expires: float
    rounds: int
    request_digest: bytes
    """A digest that binds the journal to its caller and request."""
    open_questions: dict[str, tuple[str, dict[str, Any] | None]]
    """The method of each open question and the form that its answer must match, under the
    question's key."""
    answers: dict[str, bytes]
    once_results: dict[str, bytes]
    request_state: str | None = None
    """The state that a handler returned with its questions."""
    diverging: bool = False
    """Whether the last run asked none of the earlier questions. This is an error only if it happens
    twice, because the first time, other questions may simply have been asked sooner."""
    awaits_consent: bool = False
    """Whether the handler raised UrlRequired. The answers then represent the user's consent to
    visit the pages, and the handler is run again."""
    held: bool = False
    """Whether the call is held, so its handler must not be run again."""
    first_id: str = ""
    """The id of the first run."""


class SuspendableCall:
    """A running handler that spans as many requests as it needs and is suspended between them."""

    def __init__(
        self,
        call: Call,
        journal: Journal | None,
        answers: dict[str, bytes],
        request_key: RequestKey | None = None,
    ) -> None:
        self.id = urandom(16).hex()
        self.first_id = journal.first_id if journal is not None else self.id
        self.request_key = identify_request(call) if request_key is None else request_key
        self.call = call = replace(call, run=self)
        """The call as the handler sees it, across several requests."""
        is_fresh = journal is None or journal.awaits_consent
        if journal is None:
            journal = Journal("", 0.0, 0, b"", {}, {}, call.once_results or {})
        self.rounds = journal.rounds
        known = {**journal.answers, **answers}
        self.answers = {} if is_fresh else known
        self._unclaimed_answers = known if is_fresh else {}
        """The answers that take effect only when the handler asks the matching question."""
        call.once_results = journal.once_results
        call.request_state = journal.request_state
        call.input_responses = {key: Raw(answer) for key, answer in known.items()}
        self.open_questions: dict[str, OpenQuestion] = {}
        self.task: asyncio.Task[Any] | None = None
        self.suspended_at = 0.0
        self._unused_keys = set() if is_fresh else {*journal.answers}
        self.diverging = journal.request_state is None and bool(self.answers)
        """Whether the handler was run again and has not yet asked any of the earlier questions."""
        self.once_running = 0
        """The number of `once` functions that are running."""
        self.awaits_consent = False
        self.held = False
        """Whether the handler must not be run again (`held_calls.py`)."""
        self._used_keys: set[str] = set()
        self._closing = False
        self._round_end: asyncio.Future[None] | None = None

    def start(self, handle: CallHandler) -> None:
        """Start the handler."""
        self.task = asyncio.get_running_loop().create_task(self._work(handle))
        self.task.add_done_callback(lambda _: self._end_round())

    async def _work(self, handle: CallHandler) -> Any:
        result = await handle(self.call)
        if (
            self._unused_keys
            and type(result) is not InputRequired
            and self.call.request_state is None
        ):
            # The handler did not repeat its earlier questions, so the answers may belong to other
            # questions.
            raise self.divergence_error()
        return result

    def divergence_error(self) -> InternalError:
        """Return the error for a handler that asks different questions each time."""
        text = (
            "was run again and did not repeat its earlier questions; wrap everything that differs "
            "between runs in ctx.once"
        )
        log.error("%s %s: %s", self.call.name, text, ", ".join(sorted(self._unused_keys)))
        return InternalError(f"{self.call.name} {text}")

    async def ask(self, method: Method, params: Any, key: str | None, timeout: float | None) -> Raw:
        """Return an answer from the journal, or ask the client. All questions from one iteration of
        the event loop are sent together. `timeout` has no effect: the server has no open request
        that could time out, and the answer may arrive in another process."""
        key = question_key(method, params, key, self._used_keys)
        if key in self._unclaimed_answers:
            self.answers[key] = self._unclaimed_answers.pop(key)
        known = self.answers.get(key)
        if known is not None:
            self._unused_keys.discard(key)
            self.diverging = False
            return Raw(known)
        if key in self.open_questions:
            raise InternalError(f"Two open questions have the same key: {key!r}")
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self.open_questions[key] = OpenQuestion(method, params, future)
        self.close_round_soon()
        try:
            return await future
        finally:
            self.open_questions.pop(key, None)

    @property
    def once_seed(self) -> bytes:
        """What distinguishes the `once_key` tokens of this call."""
        return self.first_id.encode()

    async def check_lease(self) -> None:
        """Do nothing, because no other process can take over the call."""

    async def save_once_result(self, key: str, done: bytes) -> None:
        """Do nothing, because the next round carries the result."""

    def close_round_soon(self) -> None:
        """End the round after this iteration of the event loop. The round includes all questions
        asked by then."""
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._close_round)

    def _close_round(self) -> None:
        self._closing = False
        if self.open_questions and not self.once_running:
            self._end_round()

    def _end_round(self) -> None:
        if self._round_end is not None and not self._round_end.done():
            self._round_end.set_result(None)

    async def wait_for_round(self) -> bool:
        """Wait until the handler finishes or asks a question, and return True if it has
        finished."""
        assert self.task is not None
        if not self.task.done():
            self._round_end = asyncio.get_running_loop().create_future()
            await self._round_end
            self._round_end = None
        return self.task.done()

    def stop(self) -> None:
        """Cancel the handler."""
        self.call.cancelled = self.call.finished = True
        if self.task is not None:
            self.task.cancel()

    def resume(self, call: Call, answers: dict[str, bytes]) -> None:
        """Continue on behalf of a new request. Unanswered questions are asked again if the client
        can still be asked."""
        continue_under(self.call, call)
        self.diverging = False
        self.answers |= answers
        for key, question in list(self.open_questions.items()):
            if key in answers:
                question.settle(Raw(answers[key]))
            else:
                try:
                    check(self.call, question.method.name, question.params)
                    continue
                except CannotAsk as error:
                    question.settle(error)
            del self.open_questions[key]
        if self.open_questions:
            self.close_round_soon()


def question_key(method: Method, params: Any, base: str | None, used: set[str]) -> str:
    """Return the key of a question: `base` or a digest of its content, with a number appended if
    the key repeats."""
    if base is None:
        params = typed_view(params)
        if isinstance(params, ElicitParams):
            # These fields may differ each time.
            params = replace(
                params, elicitation_id=None, url=params.url and without_ticket(params.url)
            )
        base = blake2b(encode_sorted([method.name, params]), digest_size=9).hexdigest()
    key, count = base, 1
    while key in used:
        count += 1
        key = f"{base}.{count}"
    used.add(key)
    return key


def continue_under(call: Call, request: Call) -> None:
    """Continue a call under a new request. From now on, everything that the call sends belongs to
    that request."""
    call.id, call.caller, call.connection, call.progress = (
        request.id,
        request.caller,
        request.connection,
        request.progress,
    )
    call.params.meta, call.principal, call.address = (
        request.params.meta,
        request.principal,
        request.address,
    )
    call.finished = call.cancelled = False


def identify_request(call: Call) -> RequestKey:
    """Return the identity of the caller and of the request, before middleware changes the
    request."""
    params, principal = call.params, call.caller.principal
    arguments = getattr(params, "arguments", None)
    if type(arguments) is dict:
        arguments = {**arguments}
    name = getattr(params, "name", None) or getattr(params, "uri", None)
    return None if principal is None else principal.id, call.method.name, name, arguments
