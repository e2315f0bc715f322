"""Asking in the stateless era, in rounds. https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr

A server cannot ask, it can only answer "ask me again, with these answers" (`input_required`). So a handler that may ask runs
in a task of its own, a `Run`, apart from the request that it answers. Its questions of one turn of the loop go out together
as one reply, with the *journal* sealed into the state that the client brings back: all answers so far, and the outcome of
each `once`. When the client comes back, either

    the run is still here    it goes on where it stood, on behalf of the new request
    it is not                (another process, or it had to make room) the handler is run again from the beginning; each
                             question that the journal can answer is answered at once, until it reaches new ground

A question is known by its key: given, or made of what it asks, never of the order in which it was asked, which concurrency
changes from run to run. Where nothing can be encrypted (no `cryptography`), the state is a random handle on the run, and
there is no second way.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from hashlib import blake2b
from secrets import token_urlsafe
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import CannotAsk, InternalError, InvalidParams, ToolError, UrlRequired
from ..limits import Limits
from ..ports import Answer, Call, Principal
from ..protocol.base import Params
from ..protocol.elicitation import ElicitParams
from ..protocol.lifecycle import InputRequired, InputRequiredResult
from ..protocol.methods import Method
from ..sealing import Forged, KeyRing
from .asking import QUESTIONS, ask, check, kind_of, plain, sent, told, typed
from .visiting import unbound

log = logging.getLogger("dovetail.connection")

PURPOSE = "state"
_digest_of = msgspec.json.Encoder(order="sorted").encode


class Question(Struct, eq=False):
    """A question that has no answer yet."""

    method: Method
    params: Any
    future: "asyncio.Future[Raw]"


class Journal(Struct, array_like=True):
    """What a client carries from round to round, sealed."""

    run: str
    expires: float
    rounds: int
    about: bytes
    """Whose, and which request it is: nobody else's, and no other."""
    open: dict[str, str]
    """The questions that wait for an answer, by their keys: the method of each."""
    answers: dict[str, bytes]
    kept: dict[str, bytes]
    own: str | None = None
    """The state of a handler that asks by itself."""
    astray: bool = False
    """Whether the last run asked nothing that the ones before had asked. Once, others may just have been faster."""
    visits: bool = False
    """Whether it raised UrlRequired: then answers are the consent to visit its pages, and it is run again."""


class Run:
    """A handler at work, across as many requests as it takes."""

    def __init__(self, call: Call, journal: Journal | None, answers: dict[str, bytes]) -> None:
        self.id = token_urlsafe(16)
        self.call = call = replace(call, run=self)
        """The call as the handler sees it; the requests that it is answered to come and go."""
        self.rounds = 0 if journal is None else journal.rounds
        self.answers = {} if journal is None else {**journal.answers, **answers}
        self._offered = answers if journal is None else {}
        """Answers that came before anything was asked: they count once they are."""
        call.kept = call.kept or {} if journal is None else dict(journal.kept)
        call.own = None if journal is None else journal.own
        call.given = {key: Raw(answer) for key, answer in (self.answers | self._offered).items()}
        self.open: dict[str, Question] = {}
        self.task: asyncio.Task[Any]
        self.parked = 0.0
        self._unused = set() if journal is None else {*journal.answers}
        self.astray = journal is not None and journal.own is None and bool(self.answers)
        """Whether it was run again and has asked nothing yet that it had asked before."""
        self.busy = 0
        """Things that are being done once."""
        self.visits = False
        self._repeats: dict[str, int] = {}
        self._closing = False
        self._turn: asyncio.Future[None] | None = None

    def start(self, handle: Answer) -> None:
        """Set the handler to work."""
        self.task = asyncio.get_running_loop().create_task(self._work(handle))
        self.task.add_done_callback(lambda _: self._end_turn())

    async def _work(self, handle: Answer) -> Any:
        result = await handle(self.call)
        if self._unused and type(result) is not InputRequired and self.call.own is None:
            # Had it asked otherwise from the start, the answers would be to other questions: it is not to be trusted.
            raise self.diverged()
        return result

    def diverged(self) -> InternalError:
        """The error of a handler that does something else each time."""
        text = "was run again and did not ask what it had asked before; what differs between runs belongs into ctx.once"
        log.error("%s %s: %s", self.call.name, text, ", ".join(sorted(self._unused)))
        return InternalError(f"{self.call.name} {text}")

    async def ask(self, method: Method, params: Any, key: str | None) -> Raw:
        """One question: answered from the journal, or put to the client with all others of this turn of the loop."""
        key = self._key(method, params, key)
        if key in self._offered:
            self.answers[key] = self._offered.pop(key)
        known = self.answers.get(key)
        if known is not None:
            self._unused.discard(key)
            self.astray = False
            return Raw(known)
        if key in self.open:
            raise InternalError(f"The key {key!r} is asked twice at once")
        loop = asyncio.get_running_loop()
        question = self.open[key] = Question(method, params, loop.create_future())
        self.close_soon()
        try:
            return await question.future
        finally:
            self.open.pop(key, None)

    def _key(self, method: Method, params: Any, given: str | None) -> str:
        base = given
        if base is None:
            if isinstance(params, ElicitParams):
                # Some parts may be drawn anew each time.
                params = replace(params, elicitation_id=None, url=params.url and unbound(params.url))
            base = blake2b(_digest_of([method.name, params]), digest_size=9).hexdigest()
        count = self._repeats[base] = self._repeats.get(base, 0) + 1
        return base if count == 1 else f"{base}.{count}"

    def close_soon(self) -> None:
        """The round ends with this turn of the loop, with all that is asked until then."""
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._close)

    def _close(self) -> None:
        self._closing = False
        if self.open and not self.busy:
            self._end_turn()

    def _end_turn(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    async def turn(self) -> bool:
        """Wait until it is done (True), or until it asks."""
        if not self.task.done():
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
            self._turn = None
        return self.task.done()

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self.call.cancelled = self.call.over = True
        self.task.cancel()

    def resume(self, call: Call, answers: dict[str, bytes]) -> None:
        """Go on, on behalf of a new request."""
        adopt(self.call, call)
        self.astray = False
        self.answers |= answers
        for key, answer in answers.items():
            question = self.open.pop(key, None)
            if question is not None and not question.future.done():
                question.future.set_result(Raw(answer))
        if self.open:
            self.close_soon()  # what is missing is asked again


def adopt(call: Call, request: Call) -> None:
    """A call that goes on under a new request: from now on all that it says belongs to that one."""
    call.id, call.caller, call.connection, call.progress = request.id, request.caller, request.connection, request.progress
    call.params.meta = request.params.meta
    call.over = call.cancelled = False


class Asking:
    """The runs of one server in one event loop."""

    def __init__(
        self,
        limits: Limits,
        ring: Callable[[], KeyRing],
        replay: bool,
        may: Callable[[Call], bool] = lambda call: True,
        server: str = "",
    ) -> None:
        self._limits, self._ring, self._replay, self._may = limits, ring, replay, may
        self._bound = server.encode()
        """Another server of the same program has the same keys, but not our runs."""
        self._made: KeyRing | None = None
        self._parked: dict[str, Run] = {}
        """Runs that wait for a client to come back, the one that waits longest first."""
        self._sweeper: asyncio.TimerHandle | None = None

    def concerns(self, call: Call) -> bool:
        """Whether a call may come to ask, or comes back with answers."""
        if not call.method.asks or not call.caller.revision.stateless:
            return False
        if call.params.request_state is not None:
            return True
        can = call.caller.capabilities
        if not can and not call.params.input_responses:
            return False
        asked = call.params.input_responses or not (can.elicitation is None and can.sampling is None and can.roots is None)
        return bool(asked) and self._may(call)

    async def answer(self, call: Call, handle: Answer) -> Any:
        """The result of a call of the stateless era, or what has to be asked before there is one."""
        journal = self._open(call)
        answers = self._answers(call, journal)
        visits = journal is not None and journal.visits
        if visits:
            if not all(typed(Raw(answer), "elicitation/create").action == "accept" for answer in answers.values()):
                return told(call, ToolError("The user did not want to visit the page that this needs"))
            answers = {}
        run = None if journal is None or self._replay else self._parked.pop(journal.run, None)
        if run is not None:
            run.resume(call, {key: answer for key, answer in answers.items() if key in run.open})
        elif journal is not None and journal.own is None and not visits and not self.ring.encrypts:
            raise self._refused(call, "its run is not here any more")
        else:
            run = Run(call, journal, answers)
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
        try:
            result = run.task.result()
        except UrlRequired as error:
            return self.visit(run, call, error)
        return self.explicit(run, call, result) if type(result) is InputRequired else result

    async def rounds(self, call: Call, handle: Answer, asked: InputRequired) -> Any:
        """The result of a handler that asks by itself, and has no run. In the handshake era its questions go down the back
        channel, and it is called again with the answers."""
        if call.caller.revision.stateless:
            return self.explicit(Run(call, None, {}), call, asked)
        for _ in range(self._limits.asks):
            keys = list(asked.requests)
            try:
                for params in asked.requests.values():
                    check(call, kind_of(params), plain(params))
                answers = await asyncio.gather(*(self._put(call, asked.requests[key]) for key in keys))
            except (CannotAsk, ToolError) as error:
                return told(call, error)
            call.given, call.own = dict(zip(keys, answers, strict=True)), asked.state
            result = await handle(call)
            if type(result) is not InputRequired:
                return result
            asked = result
        raise InternalError(f"{call.name} asked {self._limits.asks} times in a row, which is the limit")

    async def _put(self, call: Call, params: Params | None) -> Raw:
        return await ask(call, kind_of(params), plain(params))

    def visit(self, run: Run | None, call: Call, error: UrlRequired) -> Any:
        """What becomes of a handler that wants pages visited first: its error goes out as it is or, in the stateless era,
        which has none, as questions; once they are answered, it is run again."""
        revision, method = call.caller.revision, QUESTIONS["elicitation/create"]
        pages = {
            page.id: (method, ElicitParams(message=page.message, mode="url", url=page.url, elicitation_id=page.id))
            for page in error.elicitations
        }
        if not pages:
            raise InternalError(f"{call.name} raised UrlRequired without a page to visit; it takes url=…")
        try:
            for _, params in pages.values():
                check(call, method.name, params)
        except CannotAsk as reason:
            return told(call, CannotAsk(f"{error.message} ({reason})", reason.required))
        if not revision.stateless:
            for id in pages:
                sent(call.caller, id)
            raise error
        run = Run(call, None, {}) if run is None else run
        run.visits = True
        return self._required(run, call, pages, run.call.own)

    @property
    def ring(self) -> KeyRing:
        """The keys that a state is sealed with, made when they are first needed."""
        if self._made is None:
            self._made = self._ring()
        return self._made

    # rounds

    def _park(self, run: Run, call: Call) -> InputRequiredResult:
        """Its questions, and the state to come back with; the run itself waits here, or makes room for others."""
        questions = {key: (question.method, question.params) for key, question in run.open.items()}
        result = self._required(run, call, questions, None)
        if self._replay:
            run.stop()
            return result
        run.parked = time.monotonic()
        self._parked[run.id] = run
        while len(self._parked) > self._limits.parked:
            self._evict(next(iter(self._parked)))
        if self._sweeper is None:
            self._sweep()
        return result

    def explicit(self, run: Run, call: Call, asked: InputRequired) -> InputRequiredResult:
        """The questions of a handler that asks by itself. It is done until it is called again; nothing waits here."""
        questions = {}
        for key, params in asked.requests.items():
            method = kind_of(params)
            check(call, method, plain(params))
            questions[key] = QUESTIONS[method], plain(params)
        if not questions and asked.state is None:
            raise InternalError(f"{call.name} returned InputRequired without a question or a state")
        return self._required(run, call, questions, asked.state or "")

    def _required(
        self, run: Run, call: Call, questions: dict[str, tuple[Method, Any]], own: str | None
    ) -> InputRequiredResult:
        run.rounds += 1
        if run.rounds > self._limits.asks:
            run.stop()
            raise InternalError(f"{call.name} asked {self._limits.asks} times in a row, which is the limit")
        lower = call.caller.revision.lower_params
        requests = {key: _question(method, lower(method, params)) for key, (method, params) in questions.items()}
        state = self._seal(run, call, {key: method.name for key, (method, _) in questions.items()}, own)
        return InputRequiredResult(result_type="input_required", input_requests=requests or None, request_state=state)

    def _evict(self, id: str) -> None:
        self._parked.pop(id).stop()

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._limits.parked_time
        for id, run in list(self._parked.items()):
            if run.parked > oldest:
                break
            self._evict(id)
        self._sweeper = None
        if self._parked:
            self._sweeper = asyncio.get_running_loop().call_later(self._limits.parked_time / 4, self._sweep)

    def close(self) -> None:
        """The server ends: no run waits any longer."""
        for id in list(self._parked):
            self._evict(id)
        if self._sweeper is not None:
            self._sweeper.cancel()

    # the state

    def _seal(self, run: Run, call: Call, open: dict[str, str], own: str | None) -> str:
        replayable = self.ring.encrypts
        if own is not None and run.call.kept and not replayable:
            raise InternalError(f"{call.name}: ctx.once before InputRequired needs `cryptography`, to keep what came of it")
        answers = run.answers if replayable and own is None else {}
        kept = {key: done for key, done in (run.call.kept or {}).items() if replayable and isinstance(done, bytes)}
        expires = time.time() + self._limits.state_life
        journal = Journal(run.id, expires, run.rounds, _about(call), open, answers, kept, own, run.astray, run.visits)
        data = msgspec.msgpack.encode(journal)
        if len(data) > self._limits.journal:
            run.stop()
            raise InternalError(
                f"{call.name}: the answers so far are {len(data)} bytes; the limit is {self._limits.journal}"
            )
        return self.ring.seal(PURPOSE, data, bound=self._bound)

    def _open(self, call: Call) -> Journal | None:
        state = call.params.request_state
        if state is None:
            return None
        try:
            journal = msgspec.msgpack.decode(self.ring.open(PURPOSE, state, bound=self._bound), type=Journal)
        except (Forged, msgspec.MsgspecError):
            raise self._refused(call, "it was not made here, or was changed") from None
        if journal.expires < time.time():
            raise self._refused(call, "it has expired")
        if journal.about != _about(call):
            raise self._refused(call, "it belongs to another request, or to somebody else")
        return journal

    def _refused(self, call: Call, reason: str) -> InvalidParams:
        """One error for whatever is wrong with a state; only the log knows which."""
        log.warning("The requestState of a %s is refused: %s", call.name, reason)
        return InvalidParams("The requestState is not valid; send the request again without it")

    def _answers(self, call: Call, journal: Journal | None) -> dict[str, bytes]:
        """The answers that came, of those that were asked for. One of the wrong kind is refused, and the run waits on."""
        given = {key: answer for key, answer in (call.params.input_responses or {}).items() if bytes(answer) != b"null"}
        if journal is not None:
            given = {key: given[key] for key in journal.open if key in given}
            for key, answer in given.items():
                typed(answer, journal.open[key])
        return {key: bytes(answer) for key, answer in given.items()}


def _about(call: Call) -> bytes:
    """Whose request this is, and which: the same for a request and all its retries, whatever order its arguments have."""
    params = call.params
    arguments = getattr(params, "arguments", None)
    if isinstance(arguments, Raw):
        arguments = msgspec.json.decode(arguments) if bytes(arguments) else {}
    principal: Principal | None = call.caller.principal
    said = [call.method.name, getattr(params, "name", None) or getattr(params, "uri", None), arguments]
    return blake2b(_digest_of([principal.id if principal else None, said]), digest_size=16).digest()


def _question(method: Method, params: Any) -> dict[str, Any]:
    return {"method": method.name} if method.name == "roots/list" else {"method": method.name, "params": params}
