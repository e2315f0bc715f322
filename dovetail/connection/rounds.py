"""Asking in the stateless era, in rounds.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr

A server cannot ask, it can only answer "ask me again, with these answers" (`input_required`). So a
handler that may ask runs in a task of its own, a `Run`, apart from the request that it answers. Its
questions of one turn of the loop go out together as one reply, with the *journal* sealed into the
state that the client brings back: all answers so far, and the outcome of each `once`. When the
client comes back, either

    the run is still here    it goes on where it stood, on behalf of the new request
    it is not                (another process, or it had to make room) the handler is run again from
                             the beginning; each question that the journal can answer is answered at
                             once, until it reaches new ground

A question is known by its key: given, or made of what it asks, never of the order in which it was
asked, which concurrency changes from run to run. Where nothing can be encrypted (no
`cryptography`), the state is a random handle on the run, and there is no second way.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from secrets import token_urlsafe
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
from ..ports import Answer, Call, Service
from ..protocol.client_features import ElicitParams
from ..protocol.lifecycle import InputRequired, InputRequiredResult
from ..protocol.methods import Method
from ..sealing import Forged, KeyRing
from .asking import QUESTIONS, ask, check, endless, kind_of, plain, sent, told, typed
from .runs import Journal, Question, Run, Whose, digest_of, key_of, whose_of

log = logging.getLogger("dovetail.connection")

PURPOSE = "state"
PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Before a handler that asked nothing but that is called again while its caller, or its task,
waits; it doubles."""
UNVISITED = "The user did not want to visit the page that this needs"


class Asking:
    """The runs of one server in one event loop."""

    def __init__(self, service: Service, ring: Callable[[], KeyRing]) -> None:
        self._service, self._limits, self._replay, self._ring = (
            service,
            service.limits,
            service.replay,
            ring,
        )
        self._bound = service.info.name.encode()
        """Another server of the same program has the same keys, but not our runs."""
        self._made: KeyRing | None = None
        self._parked: dict[str, Run] = {}
        """Runs that wait for a client to come back, the one that waits longest first."""
        self._sweeper = Sweeper(self._limits.parked_time / 4, self._sweep)
        if self._replay and not self.ring.encrypts:
            raise missing_extra('Encrypting answers for resume="replay"', "http")

    def concerns(self, call: Call) -> bool:
        """Whether a call may come to ask, or comes back with answers."""
        if not call.method.asks or not call.caller.revision.stateless:
            return False
        if call.params.request_state is not None:
            return True
        can = call.caller.capabilities
        if not can and not call.params.input_responses:
            return False
        asked = call.params.input_responses or not (
            can.elicitation is None and can.sampling is None and can.roots is None
        )
        return bool(asked) and self._service.asks(call)

    async def answer(self, call: Call, handle: Answer) -> Any:
        """The result of a call of the stateless era, or what has to be asked before there is
        one."""
        whose = whose_of(call)
        journal = self._open(call, whose)
        answers = self._answers(call, journal)
        visits = journal is not None and journal.visits
        if visits:
            if not _consent({key: Raw(answer) for key, answer in answers.items()}):
                return told(call, ToolError(UNVISITED))
            answers = {}
        run = None if journal is None or self._replay else self._parked.pop(journal.run, None)
        if run is not None:
            run.resume(call, {key: answer for key, answer in answers.items() if key in run.open})
        elif journal is not None and journal.own is None and not visits and not self.ring.encrypts:
            raise self._refused(call, "its run is not here any more")
        else:
            run = Run(call, journal, answers, whose)
            run.start(handle)
        try:
            done = await run.turn()
        except asyncio.CancelledError:
            run.stop()
            raise
        if not done and run.astray and journal is not None and journal.astray:
            run.stop()
            raise run.diverged()
        if not done:
            run.call.over = True
            return self._park(run, call)
        assert run.task is not None
        try:
            result = run.task.result()
        except UrlRequired as error:
            return self.visit(run, call, error)
        return self.explicit(run, call, result) if type(result) is InputRequired else result

    async def rounds(
        self, call: Call, handle: Answer, asked: InputRequired | UrlRequired, whose: Whose | None
    ) -> Any:
        """The result of a handler that asks by itself, and has no run."""
        if not call.caller.revision.stateless:
            return await again(call, handle, asked, self._service)
        run = Run(call, None, {}, whose)
        return (
            self.visit(run, call, asked)
            if isinstance(asked, UrlRequired)
            else self.explicit(run, call, asked)
        )

    def visit(self, run: Run, call: Call, error: UrlRequired) -> InputRequiredResult:
        """The pages that a handler wants visited first, as questions; once they are answered, it is
        run again."""
        questions = _pages(call, error, self._service)
        run.visits = True
        return self._required(run, call, questions, run.call.own)

    @property
    def ring(self) -> KeyRing:
        """The keys that a state is sealed with, made when they are first needed."""
        if self._made is None:
            self._made = self._ring()
        return self._made

    # rounds

    def _park(self, run: Run, call: Call) -> InputRequiredResult:
        """Its questions, and the state to come back with; the run itself waits here, or makes room
        for others."""
        result = self._required(run, call, run.open, None)
        if self._replay:
            run.stop()
            return result
        run.parked = time.monotonic()
        self._parked[run.id] = run
        while len(self._parked) > self._limits.parked:
            self._evict(next(iter(self._parked)))
        self._sweeper.start()
        return result

    def explicit(self, run: Run, call: Call, asked: InputRequired) -> InputRequiredResult:
        """The questions of a handler that asks by itself. It is done until it is called again;
        nothing waits here."""
        return self._required(run, call, _questions(call, asked, self._service), asked.state or "")

    def _required(
        self, run: Run, call: Call, questions: dict[str, Question], own: str | None
    ) -> InputRequiredResult:
        run.rounds += 1
        if run.rounds > self._limits.asks:
            run.stop()
            raise endless(call, self._limits)
        lower = call.caller.revision.lower_params
        requests = {
            key: on_wire(one.method, lower(one.method, one.params))
            for key, one in questions.items()
        }
        state = self._seal(run, call, questions, own)
        return InputRequiredResult(
            result_type="input_required", input_requests=requests or None, request_state=state
        )

    def _evict(self, id: str) -> None:
        self._parked.pop(id).stop()

    def _sweep(self) -> bool:
        oldest = time.monotonic() - self._limits.parked_time
        for id, run in list(self._parked.items()):
            if run.parked > oldest:
                break
            self._evict(id)
        return bool(self._parked)

    def close(self) -> None:
        """The server ends: no run waits any longer."""
        for id in list(self._parked):
            self._evict(id)
        self._sweeper.cancel()

    # the state

    def _seal(self, run: Run, call: Call, questions: dict[str, Question], own: str | None) -> str:
        replayable = self.ring.encrypts
        if own is not None and run.call.kept and not replayable:
            raise InternalError(
                f"{call.name}: ctx.once before InputRequired needs `cryptography`, to keep "
                "what came of it"
            )
        answers = run.answers if replayable and own is None else {}
        kept = {
            key: done
            for key, done in (run.call.kept or {}).items()
            if replayable and isinstance(done, bytes)
        }
        expires, about = time.time() + self._limits.state_life, _about(run.whose)
        open = {
            key: (one.method.name, None if one.form is None else one.form.schema)
            for key, one in questions.items()
        }
        journal = Journal(
            run.id, expires, run.rounds, about, open, answers, kept, own, run.astray, run.visits
        )
        data = msgspec.msgpack.encode(journal)
        if len(data) > self._limits.journal:
            run.stop()
            raise InternalError(
                f"{call.name}: the answers so far are {len(data)} bytes; the limit is "
                f"{self._limits.journal}"
            )
        return self.ring.seal(PURPOSE, data, bound=self._bound)

    def _open(self, call: Call, whose: Whose) -> Journal | None:
        state = call.params.request_state
        if state is None:
            return None
        try:
            journal = msgspec.msgpack.decode(
                self.ring.open(PURPOSE, state, bound=self._bound), type=Journal
            )
        except (Forged, msgspec.MsgspecError):
            raise self._refused(call, "it was not made here, or was changed") from None
        if journal.expires < time.time():
            raise self._refused(call, "it has expired")
        if journal.about != _about(whose):
            raise self._refused(call, "it belongs to another request, or to somebody else")
        return journal

    def _refused(self, call: Call, reason: str) -> InvalidParams:
        """One error for whatever is wrong with a state; only the log knows which."""
        log.warning("The requestState of a %s is refused: %s", call.name, reason)
        return InvalidParams("The requestState is not valid; send the request again without it")

    def _answers(self, call: Call, journal: Journal | None) -> dict[str, bytes]:
        """The answers that came, of those that were asked for. One of the wrong kind is refused,
        and the run waits on."""
        given = {
            key: answer
            for key, answer in (call.params.input_responses or {}).items()
            if bytes(answer) != b"null"
        }
        if journal is not None:
            given = {key: given[key] for key in journal.open if key in given}
            for key, answer in given.items():
                name, schema = journal.open[key]
                form = None if schema is None else self._service.form("", schema)
                Question(QUESTIONS[name], None, form=form).fits(answer)
        return {key: bytes(answer) for key, answer in given.items()}


async def again(
    call: Call, handle: Answer, asked: InputRequired | UrlRequired, service: Service
) -> Any:
    """The result of a handler that asks by itself, where that can be done while it waits, as in the
    handshake era and in a task: it is called again with the answers."""
    used: set[str] = set()
    for attempt in range(service.limits.asks):
        try:
            if isinstance(asked, UrlRequired):
                pages = {
                    key_of(one.method, one.params, None, used): one
                    for one in _pages(call, asked, service).values()
                }
                if not _consent(await _answered(call, pages)):
                    raise ToolError(UNVISITED)
            else:
                questions = _questions(call, asked, service)
                keys = [key_of(one.method, one.params, key, used) for key, one in questions.items()]
                answers = await _answered(call, dict(zip(keys, questions.values(), strict=True)))
                call.given, call.own = (
                    dict(zip(questions, answers.values(), strict=True)),
                    asked.state,
                )
                if not answers:
                    await asyncio.sleep(min(PAUSE * 2**attempt, LONGEST_PAUSE))
        except (CannotAsk, ToolError) as error:
            return told(call, error)
        try:
            result = await handle(call)
        except UrlRequired as error:
            result = error
        if not isinstance(result, InputRequired | UrlRequired):
            return result
        asked = result
    raise endless(call, service.limits)


def _questions(call: Call, asked: InputRequired, service: Service) -> dict[str, Question]:
    """What a handler asks by itself, held to all that its context would hold it to."""
    if not call.method.asks:
        raise InternalError(f"{call.name} may not ask its client anything")
    if not asked.requests and asked.state is None:
        raise InternalError(f"{call.name} returned InputRequired without a question or a state")
    questions = {}
    for key, params in asked.requests.items():
        method, params, form = QUESTIONS[kind_of(params)], plain(params), None
        try:
            check(call, method.name, params)
            if isinstance(params, ElicitParams) and params.mode == "url":
                params = replace(params, elicitation_id=params.elicitation_id or token_urlsafe(16))
            elif isinstance(params, ElicitParams):
                form = service.form(params.message, params.requested_schema)
                params = replace(params, requested_schema=form.schema)
        except (ConfigError, SchemaError) as error:
            raise InternalError(f"{call.name} cannot ask {key!r}: {error}") from None
        questions[key] = Question(method, params, form=form)
    return questions


def _pages(call: Call, error: UrlRequired, service: Service) -> dict[str, Question]:
    """What a handler wants visited first, as questions; the handshake era has an error for it,
    which is raised."""
    listed = error.elicitations
    pages = {
        page.id: ElicitParams(
            message=page.message, mode="url", url=page.url, elicitation_id=page.id
        )
        for page in listed
    }
    if not pages:
        raise InternalError(
            f"{call.name} raised UrlRequired without a page to visit; it takes url=…"
        )
    try:
        questions = _questions(call, InputRequired({**pages}), service)
    except CannotAsk as reason:
        raise CannotAsk(f"{error.message} ({reason})", reason.required) from None
    if not call.caller.revision.stateless:
        for id in pages:
            sent(call.caller, id)
        raise UrlRequired(error.message, pages=listed)  # without those that are none
    return questions


def _consent(answers: Mapping[str, Raw]) -> bool:
    """Whether the user agreed to visit all pages."""
    return all(
        typed(answer, "elicitation/create").action == "accept" for answer in answers.values()
    )


async def _answered(call: Call, questions: dict[str, Question]) -> dict[str, Raw]:
    """The answers to questions that are put all at once. Where one comes to nothing, the others are
    taken back."""
    asked = [
        asyncio.ensure_future(ask(call, one.method.name, one.params, key))
        for key, one in questions.items()
    ]
    try:
        answers = dict(zip(questions, await asyncio.gather(*asked), strict=True))
        for key, answer in answers.items():
            questions[key].fits(answer)
    except InvalidParams as error:
        raise ToolError(str(error)) from None
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return answers


def _about(whose: Whose) -> bytes:
    """The same for a request and all its retries, whatever order its arguments have."""
    *who, arguments = whose
    if isinstance(arguments, Raw):
        arguments = msgspec.json.decode(arguments) if bytes(arguments) else {}
    return blake2b(digest_of([*who, arguments]), digest_size=16).digest()


def on_wire(method: Method, params: Any) -> dict[str, Any]:
    """A question as a client finds it in a result."""
    return (
        {"method": method.name}
        if method.name == "roots/list"
        else {"method": method.name, "params": params}
    )
