"""Questions that the server asks, until the page answers them.

A question stays open if the page is reloaded. With "always answer this way", the same form, or the
same kind of question, is answered at once from then on, until the command ends. Roots are answered
that way from the start, because many servers ask for them before anything else.
"""

import asyncio
from collections import deque
from time import time
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..client.callbacks import AnyRequest, ElicitRequest, RootsRequest, SampleRequest
from ..protocol.client_features import CreateMessageResult, ElicitResult
from ..protocol.content import TextContent
from ..schema.validation import compile
from .calls import CURRENT_CALL, Calls
from .events import EventBuffer, to_fields
from .json_text import describe_problem, parse_json
from .refusal import Refused

Action = Literal["accept", "decline", "cancel"]
FORMS: dict[type[Any], str] = {SampleRequest: "sampling", RootsRequest: "roots"}
"""What the page calls each kind of question; an elicitation is a "form" or a "url"."""
MAX_ANSWERED = 100
"""How many questions are kept once they are answered."""
HIDDEN = ("server", "target", "parent")
"""Fields of a request that the server did not send."""


class Answer(Struct, frozen=True):
    """What to answer."""

    action: Action
    content: str | None = None
    """The content, as JSON text."""


class PageQuestion(Struct, frozen=True, eq=False):
    """A question that has no answer yet."""

    id: str
    form: str
    request: AnyRequest
    params: str
    call: str | None
    asked: float
    answer: "asyncio.Future[Answer]"

    @property
    def key(self) -> str:
        """What the questions that get the same answer have in common."""
        schema = getattr(self.request, "requested_schema", None)
        return self.form if schema is None else f"form {msgspec.json.encode(schema).decode()}"

    def fields(self) -> dict[str, Any]:
        """Return what the page shows."""
        return {
            "question": self.id,
            "form": self.form,
            "params": self.params,
            "asked": self.asked,
            **({} if self.call is None else {"call": self.call}),
        }


class RepeatedAnswer(Struct, frozen=True):
    """An answer to all questions with the same key."""

    key: str
    form: str
    message: str
    """The text of the question that it was given to first."""
    action: Action
    content: str | None = None


class Questions:
    """The open questions and the answers that are always given."""

    def __init__(self, events: EventBuffer, calls: Calls) -> None:
        self._events, self._calls = events, calls
        self.open: dict[str, PageQuestion] = {}
        self.always = {"roots": RepeatedAnswer("roots", "roots", "", "accept")}
        self.answered: deque[dict[str, Any]] = deque(maxlen=MAX_ANSWERED)
        """The newest questions that are not open any more, as the page shows them."""
        self._number = 0

    async def ask(self, request: AnyRequest) -> Answer:
        """Ask the page, and wait for the answer."""
        self._number += 1
        running = CURRENT_CALL.get()
        question = PageQuestion(
            str(self._number),
            FORMS.get(type(request)) or getattr(request, "mode", None) or "form",
            request,
            _wire_text(request),
            self._calls.only_running if running is None else running.record.call,
            round(time(), 6),
            asyncio.get_running_loop().create_future(),
        )
        self._events.add("question", **question.fields())
        repeated = self.always.get(question.key)
        if repeated is not None:
            self._report(question, repeated.action, True)
            return Answer(repeated.action, repeated.content)
        self.open[question.id] = question
        how = "withdrawn"
        try:
            answer = await question.answer
            how = answer.action
            return answer
        finally:
            del self.open[question.id]
            self._report(question, how)

    def answer(self, id: str, answer: Answer, always: bool) -> None:
        """Answer an open question.

        Raises:
            Refused: The question is not open any more, or the answer does not fit it.
        """
        question = self.open.get(id)
        if question is None or question.answer.done():
            raise Refused("This question is not open any more.", status=404)
        if answer.action == "accept":
            _check_content(question, answer.content)
        if always:
            message = getattr(question.request, "message", "")
            self.always[question.key] = RepeatedAnswer(
                question.key, question.form, message, answer.action, answer.content
            )
            self.report_always()
        question.answer.set_result(answer)

    def forget(self, key: str) -> None:
        """Ask the questions with this key again."""
        if self.always.pop(key, None) is None:
            raise Refused("There is no such answer.", status=404)
        self.report_always()

    def report_always(self) -> None:
        """Tell the page what is always answered."""
        value = list(map(to_fields, self.always.values()))
        self._events.add("changed", what="always", value=value)

    def _report(self, question: PageQuestion, how: str, always: bool | None = None) -> None:
        self.answered.append({**question.fields(), "how": how})
        self._events.add("answered", question=question.id, how=how, always=always)


# how the client wants its answers


def elicit_result(answer: Answer) -> ElicitResult:
    """Return the answer to a form or a page."""
    content = None if answer.content is None else parse_json(answer.content)
    return ElicitResult(action=answer.action, content=content)


def sample_result(request: SampleRequest, answer: Answer) -> Any:
    """Return the answer of a model: the text that the user wrote, a whole result, or, if there is
    neither, that of a model that repeats the last message."""
    if answer.action != "accept":
        return None
    if answer.content is None:
        said = request.messages[-1].text if request.messages else ""
        text = TextContent(f"This is the answer of a stub model to: {said}")
        return CreateMessageResult(
            role="assistant", content=text, model="stub", stop_reason="endTurn"
        )
    content = parse_json(answer.content)
    return content if isinstance(content, str) else msgspec.convert(content, CreateMessageResult)


def _check_content(question: PageQuestion, content: str | None) -> None:
    """Refuse an answer that the client would refuse, so that the user can correct it."""
    if question.form not in ("form", "sampling"):
        if content is not None:
            raise Refused("This question takes no content.")
        return
    value = None if content is None else parse_json(content)
    if question.form == "form":
        if not isinstance(value, dict | None):
            raise Refused("The content of a form must be an object.")
        if problems := _form_problems(question.request, value or {}):
            raise Refused("; ".join(map(describe_problem, problems)), "Correct the form.")
    elif not isinstance(value, str | None):
        try:
            msgspec.convert(value, CreateMessageResult)
        except msgspec.ValidationError as problem:
            raise Refused(f"This is not the result of sampling/createMessage: {problem}") from None


def _form_problems(request: AnyRequest, content: dict[str, Any]) -> list[str]:
    schema = (request.schema if isinstance(request, ElicitRequest) else None) or {}
    fields = schema.get("properties") or {}
    defaults = {
        name: field["default"]
        for name, field in fields.items()
        if isinstance(field, dict) and "default" in field
    }
    given = {name: value for name, value in {**defaults, **content}.items() if value is not None}
    return compile(schema).problems(given)


def _wire_text(request: AnyRequest) -> str:
    """Return the params of a question as JSON text."""
    found = {
        field.encode_name: value
        for field in msgspec.structs.fields(request)
        if field.name not in HIDDEN and (value := getattr(request, field.name)) is not None
    }
    return msgspec.json.encode(found).decode()
