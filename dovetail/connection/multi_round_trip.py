"""Multi round-trip requests: how a server asks its client questions in the stateless era.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr

A server cannot send requests; it can only reply "send this again, with these answers"
(`input_required`). So a handler that may ask questions runs in its own task, as a
`SuspendableCall`, separate from the request that started it. The questions asked in one iteration
of the event loop are sent together in one reply. The reply's state carries the sealed *journal*:
all answers so far, and the result of each `once`. When the client sends the request again with the
answers, there are two cases:

    the suspended call is in this process   it continues on behalf of the new request
    it is in another process or evicted     the handler is run again from the start; the journal
                                            answers each question that was asked before, until the
                                            handler asks a new question

A handler that must not be run again is held instead (`held_calls.py`).

A question is identified by its key: an explicit key, or a digest of its content. A question's
position cannot identify it, because the order of concurrent questions changes from run to run.
Without `cryptography`, nothing can be encrypted. The state is then a random handle for the
suspended call, and replay is not available.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from hashlib import blake2b
from os import urandom
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..aio import Sweeper
from ..errors import (
    CannotAsk,
    ConfigError,
    InternalError,
    InvalidParams,
    SchemaError,
    ToolError,
    UrlRequired,
    missing_extra,
)
from ..logs import get_logger
from ..ports import Bus, Call, CallHandler, Service
from ..protocol.base import OWN_META, Params, Result
from ..protocol.client_features import ElicitParams
from ..protocol.lifecycle import InputRequired, InputRequiredResult
from ..protocol.methods import Method
from ..protocol.raw import RawObject, encode_typed, without_meta
from ..sealing import Forged, KeyRing, key_ring
from .bus_requests import BusRequests
from .held_calls import HeldCalls
from .input_requests import (
    QUESTIONS,
    Journal,
    OpenQuestion,
    RequestKey,
    SuspendableCall,
    as_tool_error,
    ask,
    check,
    decode_answer,
    encode_sorted,
    identify_request,
    question_key,
    question_method,
    remember_elicitation,
    too_many_rounds,
    typed_view,
)
from .used_states import UsedStates

log = get_logger("connection")

PURPOSE = "state"
OWNER, JOIN = "held/owner", "held/join"
"""The topics on which processes ask each other for held calls."""
ASKS = Raw(b'"input_required"')
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""The shortest and longest pauses, in seconds, before a handler that returned InputRequired without
a question is called again. The pause doubles each time."""
INVALID = "The requestState is not valid; send the request again without it"
EXPIRED = (
    "The requestState is not valid, or its call expired. The call may have taken effect, so check "
    "that before you send the request again without the requestState"
)
CONSENT_DECLINED = "The user declined to visit a required page"


class MultiRoundTrip:
    """The suspended calls on one server in one event loop."""

    def __init__(self, service: Service, ring: Callable[[], KeyRing] = key_ring) -> None:
        self._service = service
        self._limits = service.limits
        self._replay = service.replay
        self._make_key_ring = ring
        self._server_name = service.info.name.encode()
        """An id that binds a state to this server, because another server in the same program has
        the same keys."""
        self._key_ring: KeyRing | None = None
        self._suspended: dict[str, SuspendableCall] = {}
        """The calls that are waiting for the client's answers, oldest first."""
        self._held = HeldCalls(self._limits)
        self._used: UsedStates | None = None
        if service.single_use:
            rows = service.backend.rows("used") if service.backend else None
            self._used = UsedStates(rows, self._limits.state_life)
        self._bus: Bus | None = None
        self._joins = BusRequests(JOIN, self._on_remote_join)
        """The requests of other processes that wait for the replies of held calls."""
        self._sweeper = Sweeper(self._limits.parked_time / 4, self._sweep)
        if self._replay and not self.key_ring.encrypts:
            raise missing_extra('Encrypting answers for resume="replay"', "http")

    def applies_to(self, call: Call) -> bool:
        """Return whether a stateless-era call may ask questions or carries answers."""
        if not call.method.asks:
            return False
        if call.params.request_state is not None:
            return True
        can = call.caller.capabilities
        if not can and not call.params.input_responses:
            return False
        if not call.params.input_responses and (
            can.elicitation is None and can.sampling is None and can.roots is None
        ):
            return False
        return self._service.can_ask(call)

    async def answer(self, call: Call, handle: CallHandler) -> Any:
        """Return the result of a stateless-era call, or the questions that must be answered
        first."""
        request_key = identify_request(call)
        journal = self._open_state(call, request_key)
        answers = self._check_answers(call, journal)
        if journal is not None and self._used is not None:
            await self._use_state(call, journal, self._used)
        visits = journal is not None and journal.awaits_consent
        if visits:
            if not _all_accepted(answers.values()):
                return as_tool_error(call, ToolError(CONSENT_DECLINED))
            answers = {}
        if journal is not None and journal.held:
            id = journal.call_id
            if id not in self._held:
                return await self._join_elsewhere(call, journal, answers)
            return await self._held.join(id, call, journal.rounds, answers, self._next_reply)
        run = (
            None if journal is None or self._replay else self._suspended.pop(journal.call_id, None)
        )
        if run is not None:
            run.resume(
                call, {key: answer for key, answer in answers.items() if key in run.open_questions}
            )
        elif (
            journal is not None
            and journal.request_state is None
            and not visits
            and not self.key_ring.encrypts
        ):
            raise self._invalid_state(call, "its call is no longer suspended in this process")
        else:
            run = SuspendableCall(call, journal, answers, request_key)
            run.held = not self._service.can_replay(call)
            run.start(handle)
        was_diverging = journal is not None and journal.diverging
        try:
            reply = await self._next_reply(run, was_diverging)
        except asyncio.CancelledError:
            run.stop()
            raise
        if run.task is not None and not run.task.done():
            self._suspend(run, reply)
        return reply

    # calls that are held in other processes

    def connect(self, bus: Bus) -> None:
        """Find calls that other processes of this server hold, and let those find the calls here.

        Args:
            bus: The bus between the processes.
        """
        self._bus = bus
        bus.on(OWNER, lambda id: True if id in self._held else None)
        self._joins.connect(bus)

    async def _join_elsewhere(self, call: Call, journal: Journal, answers: dict[str, bytes]) -> Any:
        """Return the reply of a call that another process holds. If this request is cancelled, it
        does not wait there any longer either."""
        id, bus, reply = journal.call_id, self._bus, None
        if bus is not None and await bus.ask(OWNER, id) is not None:
            handle = (id, journal.rounds, answers)
            reply = await self._joins.ask(handle, self._limits.timeout_max)
        if reply is None:
            raise self._invalid_state(
                call, "its call is not held in this process or in another worker", held=True
            )
        result = RawObject.parse(call.method.result or Result, reply)
        if result.fields.get("resultType") == ASKS:
            result.type = InputRequiredResult
        return result

    async def _on_remote_join(self, handle: tuple[str, int, dict[str, bytes]]) -> bytes | None:
        id, rounds, answers = handle
        if id not in self._held:
            return None
        reply = await self._held.join(id, None, rounds, answers, self._next_reply)
        return encode_typed(reply.fields if type(reply) is RawObject else reply)

    async def _next_reply(self, run: SuspendableCall, was_diverging: bool = False) -> Any:
        """Wait for the end of a round, and return the questions or the result."""
        done = await run.wait_for_round()
        if not done and run.diverging and was_diverging:
            run.stop()
            raise run.divergence_error()
        if not done:
            run.call.finished = True
            return self._input_required(run, run.call, run.open_questions, None)
        assert run.task is not None
        try:
            result = run.task.result()
        except UrlRequired as error:
            return self._require_visits(run, run.call, error)
        if type(result) is InputRequired:
            return self._require_input(run, run.call, result)
        return result

    async def answer_explicit(
        self,
        call: Call,
        handle: CallHandler,
        outcome: InputRequired | UrlRequired,
        request_key: RequestKey | None,
    ) -> Any:
        """Return the result of a handler that returned its questions and is not suspendable."""
        if not call.caller.revision.stateless:
            return await call_until_answered(call, handle, outcome, self._service)
        run = SuspendableCall(call, None, {}, request_key)
        return (
            self._require_visits(run, call, outcome)
            if isinstance(outcome, UrlRequired)
            else self._require_input(run, call, outcome)
        )

    def _require_visits(
        self, run: SuspendableCall, call: Call, error: UrlRequired
    ) -> InputRequiredResult:
        """Return the questions for the pages that the user must visit first. Once the user has
        agreed, the handler is run again."""
        questions = _page_questions(call, error, self._service)
        run.awaits_consent = True
        return self._input_required(run, call, questions, run.call.request_state)

    @property
    def key_ring(self) -> KeyRing:
        """The keys for sealing a state, created on first use."""
        if self._key_ring is None:
            self._key_ring = self._make_key_ring()
        return self._key_ring

    # rounds

    def _suspend(self, run: SuspendableCall, reply: InputRequiredResult) -> None:
        """Keep a call whose questions are in this reply. If there are too many suspended calls
        (`Limits.parked`), evict the oldest."""
        if run.held:
            self._held.hold(run, reply)
            return
        if self._replay:
            run.stop()
            return
        run.suspended_at = time.monotonic()
        self._suspended[run.id] = run
        while len(self._suspended) > self._limits.parked:
            self._evict(next(iter(self._suspended)))
        self._sweeper.start()

    def _require_input(
        self, run: SuspendableCall, call: Call, required: InputRequired
    ) -> InputRequiredResult:
        """Return the questions that a handler returned. The handler is done, so nothing is kept."""
        return self._input_required(
            run, call, _check_questions(call, required, self._service), required.state or ""
        )

    def _input_required(
        self,
        run: SuspendableCall,
        call: Call,
        questions: dict[str, OpenQuestion],
        request_state: str | None,
    ) -> InputRequiredResult:
        run.rounds += 1
        if run.rounds > self._limits.asks:
            run.stop()
            raise too_many_rounds(call, self._limits)
        lower = call.caller.revision.lower_params
        requests = {
            key: {**one.more, **input_request(one.method, lower(one.method, one.params))}
            for key, one in questions.items()
        }
        state = self._seal_state(run, call, questions, request_state)
        return InputRequiredResult(
            result_type="input_required", input_requests=requests or None, request_state=state
        )

    def _evict(self, id: str) -> None:
        self._suspended.pop(id).stop()

    def _sweep(self) -> bool:
        oldest = time.monotonic() - self._limits.parked_time
        for id, run in list(self._suspended.items()):
            if run.suspended_at > oldest:
                break
            self._evict(id)
        return bool(self._suspended)

    def close(self) -> None:
        """Cancel all suspended calls."""
        for id in list(self._suspended):
            self._evict(id)
        self._sweeper.cancel()
        self._held.close()

    # the state

    def _seal_state(
        self,
        run: SuspendableCall,
        call: Call,
        questions: dict[str, OpenQuestion],
        request_state: str | None,
    ) -> str:
        replayable = self.key_ring.encrypts
        if request_state is not None and run.call.once_results and not replayable:
            raise InternalError(
                f"{call.name}: calling ctx.once before returning InputRequired requires "
                "`cryptography` to encrypt the result"
            )
        # A handler that is held, or that returned its questions, needs no journal.
        is_held = run.held and request_state is None and not run.awaits_consent
        replayable = replayable and not is_held
        answers = run.answers if replayable and request_state is None else {}
        once_results = {
            key: done
            for key, done in (run.call.once_results or {}).items()
            if replayable and isinstance(done, bytes)
        }
        journal = Journal(
            call_id=run.id,
            expires=time.time() + self._limits.state_life,
            rounds=run.rounds,
            request_digest=_request_digest(run.request_key),
            open_questions={
                key: (one.method.name, None if one.form is None else one.form.schema)
                for key, one in questions.items()
            },
            answers=answers,
            once_results=once_results,
            request_state=request_state,
            diverging=run.diverging,
            awaits_consent=run.awaits_consent,
            held=is_held,
            first_id=run.first_id,
        )
        data = msgspec.msgpack.encode(journal)
        if len(data) > self._limits.journal:
            run.stop()
            raise InternalError(
                f"{call.name}: the answers so far are {len(data)} bytes long; the limit is "
                f"{self._limits.journal}"
            )
        return self.key_ring.seal(PURPOSE, data, bound=self._server_name)

    def _open_state(self, call: Call, request_key: RequestKey) -> Journal | None:
        state = call.params.request_state
        if state is None:
            return None
        try:
            journal = msgspec.msgpack.decode(
                self.key_ring.open(PURPOSE, state, bound=self._server_name), type=Journal
            )
        except (Forged, msgspec.MsgspecError):
            raise self._invalid_state(
                call, "it was not created by this server or has been modified"
            ) from None
        if journal.expires < time.time():
            raise self._invalid_state(call, "it has expired", held=journal.held)
        if journal.request_digest != _request_digest(request_key):
            raise self._invalid_state(
                call, "it belongs to another request or another caller", held=journal.held
            )
        return journal

    async def _use_state(self, call: Call, journal: Journal, used: UsedStates) -> None:
        if not await used.use(f"{journal.call_id}.{journal.rounds}", journal.expires):
            raise self._invalid_state(call, "it was already used", held=True)

    def _invalid_state(self, call: Call, reason: str, *, held: bool = False) -> InvalidParams:
        """Return the error for an invalid state. Only the log contains the reason."""
        log.warning("The requestState in a %s request was rejected: %s", call.name, reason)
        may_repeat = not held and self._service.can_replay(call)
        return InvalidParams(INVALID if may_repeat else EXPIRED, parameter="requestState")

    def _check_answers(self, call: Call, journal: Journal | None) -> dict[str, bytes]:
        """Return the answers to the questions that were asked. A malformed answer is rejected, and
        the call stays suspended."""
        answers = {
            key: bytes(answer)
            for key, answer in (call.params.input_responses or {}).items()
            if bytes(answer) != b"null"
        }
        if journal is None:
            return answers
        answers = {key: answers[key] for key in journal.open_questions if key in answers}
        for key, answer in answers.items():
            name, schema = journal.open_questions[key]
            form = None if schema is None else self._service.make_form("", schema)
            OpenQuestion(QUESTIONS[name], None, form=form).check_answer(answer)
        return answers


async def call_until_answered(
    call: Call, handle: CallHandler, outcome: InputRequired | UrlRequired, service: Service
) -> Any:
    """Call a handler, ask the questions that it returns, and call it again with the answers until
    it returns a result. This function is for the handshake era and for tasks, where a handler can
    wait."""
    used: set[str] = set()
    for attempt in range(service.limits.asks):
        try:
            if isinstance(outcome, UrlRequired):
                pages = {
                    question_key(one.method, one.params, None, used): one
                    for one in _page_questions(call, outcome, service).values()
                }
                if not _all_accepted((await _ask_all(call, pages)).values()):
                    raise ToolError(CONSENT_DECLINED)
            else:
                questions = _check_questions(call, outcome, service)
                keys = [
                    question_key(one.method, one.params, key, used)
                    for key, one in questions.items()
                ]
                answers = await _ask_all(call, dict(zip(keys, questions.values(), strict=True)))
                call.input_responses, call.request_state = (
                    dict(zip(questions, answers.values(), strict=True)),
                    outcome.state,
                )
                if not answers:
                    await asyncio.sleep(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE))
        except (CannotAsk, ToolError) as error:
            return as_tool_error(call, error)
        try:
            result = await handle(call)
        except UrlRequired as error:
            result = error
        if not isinstance(result, InputRequired | UrlRequired):
            return result
        outcome = result
    raise too_many_rounds(call, service.limits)


def _check_questions(
    call: Call, required: InputRequired, service: Service
) -> dict[str, OpenQuestion]:
    """Check the questions that a handler returned, as `ctx` would, and return them."""
    if not call.method.asks:
        raise InternalError(f"{call.name} is not allowed to ask its client for input")
    if not required.requests and required.state is None:
        raise InternalError(f"{call.name} returned InputRequired without any questions or state")
    questions = {}
    for key, params in required.requests.items():
        try:
            questions[key] = question = _check_question(call, params, service)
            question.more = required.more.get(key, {})
        except (ConfigError, SchemaError) as error:
            raise InternalError(f"{call.name} cannot ask the question {key!r}: {error}") from None
    return questions


def _check_question(
    call: Call, params: Params | RawObject | None, service: Service
) -> OpenQuestion:
    view = typed_view(params) or Params()
    method = QUESTIONS[question_method(view)]
    check(call, method.name, view)
    if type(params) is RawObject:
        params = without_meta(params, OWN_META)
        if isinstance(view, ElicitParams) and view.mode == "url" and not view.elicitation_id:
            params = RawObject(params.type, dict(params.fields))
            params.elicitation_id = urandom(16).hex()
        return OpenQuestion(method, params)  # the server that asks checks the answer
    if not isinstance(view, ElicitParams):
        return OpenQuestion(method, view)
    if view.mode == "url":
        id = view.elicitation_id or urandom(16).hex()
        return OpenQuestion(method, replace(view, elicitation_id=id))
    form = service.make_form(view.message, view.requested_schema)
    return OpenQuestion(method, replace(view, requested_schema=form.schema), form=form)


def _page_questions(call: Call, error: UrlRequired, service: Service) -> dict[str, OpenQuestion]:
    """Return questions for the pages that the user must visit first. In the handshake era, instead
    raise an error that lists the pages."""
    listed = error.elicitations
    pages = {
        page.id: ElicitParams(
            message=page.message, mode="url", url=page.url, elicitation_id=page.id
        )
        for page in listed
    }
    if not pages:
        raise InternalError(f"{call.name} raised UrlRequired without a page to visit; pass url=…")
    try:
        questions = _check_questions(call, InputRequired({**pages}), service)
    except CannotAsk as reason:
        raise CannotAsk(f"{error.message} ({reason})", reason.required) from None
    if not call.caller.revision.stateless:
        for id in pages:
            remember_elicitation(call.caller, id)
        raise UrlRequired(error.message, pages=listed)  # drop entries that are not pages
    return questions


def _all_accepted(answers: Iterable[Raw | bytes]) -> bool:
    """Return whether the user agreed to visit all pages."""
    return all(decode_answer(answer, "elicitation/create").action == "accept" for answer in answers)


async def _ask_all(call: Call, questions: dict[str, OpenQuestion]) -> dict[str, Raw]:
    """Ask all questions at the same time and return the answers. If a question fails, the others
    are cancelled."""
    tasks = [
        asyncio.ensure_future(ask(call, one.method.name, one.params, key))
        for key, one in questions.items()
    ]
    try:
        answers = dict(zip(questions, await asyncio.gather(*tasks), strict=True))
        for key, answer in answers.items():
            questions[key].check_answer(answer)
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return answers


def _request_digest(request_key: RequestKey) -> bytes:
    """Return a digest that is the same for a request and all its retries, regardless of the order
    of the arguments."""
    *caller_and_target, arguments = request_key
    if isinstance(arguments, Raw):
        arguments = msgspec.json.decode(arguments) if bytes(arguments) else {}
    return blake2b(encode_sorted([*caller_and_target, arguments]), digest_size=16).digest()


def input_request(method: Method, params: Any) -> dict[str, Any]:
    """Return a question as it is sent in `inputRequests`."""
    has_params = method.name != "roots/list" or (isinstance(params, dict) and params)
    return {"method": method.name, "params": params} if has_params else {"method": method.name}
