"""A handler at work in the stateless era, across as many requests as it takes, and what is known of
it between two of them. How its questions get to the client and back is the business of `rounds.py`.
"""

import asyncio
import logging
from hashlib import blake2b
from secrets import token_urlsafe
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..errors import CannotAsk, InternalError
from ..ports import Answer, Call, Form
from ..protocol.client_features import ElicitParams
from ..protocol.lifecycle import InputRequired
from ..protocol.methods import Method
from .asking import check, typed
from .visiting import unbound

log = logging.getLogger("dovetail.connection")

Whose = tuple[Any, ...]
"""Whose request it is, and which, as it came: middleware may make another of it before it is asked
for."""
digest_of = msgspec.json.Encoder(order="sorted").encode


class Question(Struct, eq=False):
    """A question that has no answer yet."""

    method: Method
    params: Any
    future: "asyncio.Future[Raw] | None" = None
    """Whoever waits for it; None where the handler is called again with the answer."""
    form: Form | None = None
    """What the answer has to fit, where nobody waits who knows."""

    def settle(self, answer: "Raw | CannotAsk") -> None:
        """Tell whoever waits."""
        if self.future is None or self.future.done():
            return
        if isinstance(answer, CannotAsk):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)

    def fits(self, answer: Raw) -> None:
        """InvalidParams where an answer is none to this."""
        said = typed(answer, self.method.name)
        if self.form is not None and said.action == "accept":
            self.form.accept(said.content)


class Journal(Struct, array_like=True):
    """What a client carries from round to round, sealed."""

    run: str
    expires: float
    rounds: int
    about: bytes
    """Whose, and which request it is: nobody else's, and no other."""
    open: dict[str, tuple[str, dict[str, Any] | None]]
    """The questions that wait for an answer, by their keys: the method of each, and the form that
    it has to fit."""
    answers: dict[str, bytes]
    kept: dict[str, bytes]
    own: str | None = None
    """The state of a handler that asks by itself."""
    astray: bool = False
    """Whether the last run asked nothing that the ones before had asked. Once, others may just have
    been faster."""
    visits: bool = False
    """Whether it raised UrlRequired: then answers are the consent to visit its pages, and it is run
    again."""


class Run:
    """A handler at work, across as many requests as it takes."""

    def __init__(
        self,
        call: Call,
        journal: Journal | None,
        answers: dict[str, bytes],
        whose: Whose | None = None,
    ) -> None:
        self.id = token_urlsafe(16)
        self.whose = whose_of(call) if whose is None else whose
        self.call = call = replace(call, run=self)
        """The call as the handler sees it; the requests that it is answered to come and go."""
        self.rounds = 0 if journal is None else journal.rounds
        known = answers if journal is None else {**journal.answers, **answers}
        anew = journal is None or journal.visits
        self.answers = {} if anew else known
        self._offered = known if anew else {}
        """Answers to what may not be asked any more, or was not yet: they count once it is."""
        call.kept = call.kept or {} if journal is None else dict(journal.kept)
        call.own = None if journal is None else journal.own
        call.given = {key: Raw(answer) for key, answer in (self.answers | self._offered).items()}
        self.open: dict[str, Question] = {}
        self.task: asyncio.Task[Any] | None = None
        self.parked = 0.0
        self._unused = set() if journal is None or journal.visits else {*journal.answers}
        self.astray = journal is not None and journal.own is None and bool(self.answers)
        """Whether it was run again and has asked nothing yet that it had asked before."""
        self.busy = 0
        """Things that are being done once."""
        self.visits = False
        self._used: set[str] = set()
        self._closing = False
        self._turn: asyncio.Future[None] | None = None

    def start(self, handle: Answer) -> None:
        """Set the handler to work."""
        self.task = asyncio.get_running_loop().create_task(self._work(handle))
        self.task.add_done_callback(lambda _: self._end_turn())

    async def _work(self, handle: Answer) -> Any:
        result = await handle(self.call)
        if self._unused and type(result) is not InputRequired and self.call.own is None:
            # Had it asked otherwise from the start, the answers would be to other questions: it is
            # not to be trusted.
            raise self.diverged()
        return result

    def diverged(self) -> InternalError:
        """The error of a handler that does something else each time."""
        text = (
            "was run again and did not ask what it had asked before; what differs between "
            "runs belongs into ctx.once"
        )
        log.error("%s %s: %s", self.call.name, text, ", ".join(sorted(self._unused)))
        return InternalError(f"{self.call.name} {text}")

    async def ask(self, method: Method, params: Any, key: str | None) -> Raw:
        """One question: answered from the journal, or put to the client with all others of this
        turn of the loop."""
        key = key_of(method, params, key, self._used)
        if key in self._offered:
            self.answers[key] = self._offered.pop(key)
        known = self.answers.get(key)
        if known is not None:
            self._unused.discard(key)
            self.astray = False
            return Raw(known)
        if key in self.open:
            raise InternalError(f"The key {key!r} is asked twice at once")
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self.open[key] = Question(method, params, future)
        self.close_soon()
        try:
            return await future
        finally:
            self.open.pop(key, None)

    async def keep(self, key: str, done: bytes) -> None:
        """Something was done once; the next round tells."""

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
        assert self.task is not None
        if not self.task.done():
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
            self._turn = None
        return self.task.done()

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self.call.cancelled = self.call.over = True
        if self.task is not None:
            self.task.cancel()

    def resume(self, call: Call, answers: dict[str, bytes]) -> None:
        """Go on, on behalf of a new request. What is missing is asked again, if the client still
        says that it can be."""
        adopt(self.call, call)
        self.astray = False
        self.answers |= answers
        for key, question in list(self.open.items()):
            try:
                if key not in answers:
                    check(self.call, question.method.name, question.params)
                    continue
                settled: Raw | CannotAsk = Raw(answers[key])
            except CannotAsk as error:
                settled = error
            del self.open[key]
            question.settle(settled)
        if self.open:
            self.close_soon()


def key_of(method: Method, params: Any, given: str | None, used: set[str]) -> str:
    """The key of a question: what was given, or a digest of what it asks; counted where there is
    such a one already."""
    base = given
    if base is None:
        if isinstance(params, ElicitParams):
            # Some parts may be drawn anew each time.
            params = replace(params, elicitation_id=None, url=params.url and unbound(params.url))
        base = blake2b(digest_of([method.name, params]), digest_size=9).hexdigest()
    key, count = base, 1
    while key in used:
        count += 1
        key = f"{base}.{count}"
    used.add(key)
    return key


def adopt(call: Call, request: Call) -> None:
    """A call that goes on under a new request: from now on all that it says belongs to that one."""
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
    call.over = call.cancelled = False


def whose_of(call: Call) -> Whose:
    """Whose request this is, and which, before anybody has changed it."""
    params, principal = call.params, call.caller.principal
    arguments = getattr(params, "arguments", None)
    if isinstance(arguments, dict):
        arguments = {**arguments}
    name = getattr(params, "name", None) or getattr(params, "uri", None)
    return None if principal is None else principal.id, call.method.name, name, arguments
