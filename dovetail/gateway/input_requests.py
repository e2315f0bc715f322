"""Questions from a server (elicitation, sampling, roots) on their way to a caller of a gateway.

A question belongs to one call of one caller. In the stateless era, it is part of the answer to that
call. Over HTTP with the handshake, it arrives on the stream of that call. On all
other connections, the pool makes sure that only one caller uses the connection. A question whose
call is not known is refused: it is never sent to a caller by guess.

Questions and answers pass as they are, except that the configured name of the server is put before
the text that a person reads, so that no server can ask in the name of another. A question ends with
the call that it belongs to.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw

from ..client.question_limit import QuestionLimit
from ..config import ServerSettings
from ..connection.input_requests import QUESTIONS, ask, parse_question
from ..connection.notifications import CallerKey, counting_key
from ..connection.subscriptions import related_task_id
from ..errors import InvalidRequest, MethodNotFound
from ..ports import Call, CallHandler
from ..protocol.client_features import CreateMessageParams, ElicitParams
from ..protocol.lifecycle import ClientCapabilities
from ..protocol.raw import RawObject, encode_raw, split_object, with_meta, without_meta
from ..protocol.tasks import EXTENSION as TASKS, RELATED_TASK
from ..text import escape_unsafe
from .pool import ActiveCalls

KINDS: Final = ("elicitation", "sampling", "roots")
"""The capabilities of a client that let a server ask questions."""
OWN_EXTENSIONS: Final = frozenset({TASKS})
"""The extensions that are declared where the gateway itself needs them."""
NOTHING: Final = ClientCapabilities()
_split_list = msgspec.json.Decoder(list[Raw]).decode
PrepareQuestion = Callable[[Call, RawObject], RawObject]
"""Changes the params of a question to what the caller of a call may be asked, and puts the name of
the server before its text. Raises ConsentDenied if the caller may not be asked."""


def answerable(
    call: Call, settings: ServerSettings, model: Mapping[str, Any] | None
) -> ClientCapabilities:
    """Return what a server is told that the caller can answer, during this call or another one.

    Changes of roots are passed on only on a connection of one session. On others, the server is not
    told that the caller announces them, and asks each time.

    Args:
        call: The call.
        settings: The settings of the server.
        model: The sampling capability of the gateway itself, for callers that have none.
    """
    declared = call.caller.capabilities
    if not declared and model is None:
        return NOTHING
    found = {kind: declared[kind] for kind in KINDS if kind in declared}
    if model is not None:
        found.setdefault("sampling", model)
    if not settings.sampling:
        found.pop("sampling", None)
    if isinstance(roots := found.get("roots"), dict):
        found["roots"] = {name: value for name, value in roots.items() if name != "listChanged"}
    return ClientCapabilities.of(found) if found else NOTHING


def askable(
    call: Call, settings: ServerSettings, model: Mapping[str, Any] | None
) -> ClientCapabilities:
    """Return what a server is told during a call: what it may ask, and the caller's extensions.

    Args:
        call: The call.
        settings: The settings of the server.
        model: The sampling capability of the gateway itself, for callers that have none.
    """
    can = answerable(call, settings, model) if call.method.asks else NOTHING
    return with_extensions(can, extensions_of(call))


def extensions_of(call: Call) -> dict[str, Any]:
    """Return the extensions that a caller declares, so that a server can adapt to them.

    Args:
        call: The call.
    """
    declared = call.caller.capabilities.extensions
    if not isinstance(declared, dict):
        return {}
    return {id: declared[id] for id in declared if id not in OWN_EXTENSIONS}


def with_extensions(
    capabilities: ClientCapabilities, extensions: Mapping[str, Any]
) -> ClientCapabilities:
    """Return capabilities that also declare extensions.

    Args:
        capabilities: The capabilities.
        extensions: The settings by the id of the extension.
    """
    if not extensions:
        return capabilities
    declared = {**(capabilities.extensions or {}), **extensions}
    return ClientCapabilities.of({**capabilities, "extensions": declared})


def with_name(params: RawObject, name: str) -> RawObject:
    """Put the configured name of a server before the text that a person reads.

    Args:
        params: The params of the question.
        name: The name; empty for none.
    """
    if name and params.type is ElicitParams:
        params.message = name_text(params.message, name)
    elif name and params.type is CreateMessageParams:
        try:
            _name_messages(params, name)
        except (msgspec.MsgspecError, KeyError, ValueError):
            pass  # malformed, which is found where it is checked
    return params


def name_text(text: str, name: str) -> str:
    """Return a server's question with the configured name of the server before it. Nothing in the
    question may erase or reverse the name.

    Args:
        text: The question.
        name: The name.
    """
    return f"{name} asks: {escape_unsafe(text, keep_newlines=True)}"


def _name_messages(params: RawObject, name: str) -> None:
    """Put a name before the messages for a model: before the text of the first one if that is from
    the user, and otherwise as a message of its own. What the model reads is not escaped, and no
    other message changes."""
    first, *rest = _split_list(params.fields["messages"])
    message = split_object(first)
    content = message["content"]
    is_list = bytes(content).lstrip()[:1] == b"["
    blocks = _split_list(content) if is_list else [content]
    block = split_object(blocks[0]) if blocks else {}
    if bytes(message["role"]) == b'"user"' and bytes(block.get("type", b"")) == b'"text"':
        text = msgspec.json.decode(block["text"], type=str)
        named = encode_raw({**block, "text": f"{name} asks: {text}"})
        message["content"] = encode_raw([named, *blocks[1:]]) if is_list else named
        messages = [encode_raw(message), *rest]
    else:
        own = {"role": "user", "content": {"type": "text", "text": f"{name} asks:"}}
        messages = [encode_raw(own), first, *rest]
    params.fields["messages"] = encode_raw(messages)


class QuestionLimits:
    """Counts the questions of one server to each caller. A caller whose calls make the server ask
    often does not use up what others may be asked.

    Args:
        per_minute: The number of questions to one caller that are allowed in a minute.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._callers: OrderedDict[CallerKey, QuestionLimit] = OrderedDict()
        """The callers that were asked in the last minute, the last asked at the end."""

    def __len__(self) -> int:
        return len(self._callers)

    def count(self, call: Call, method: str) -> None:
        """Count a question.

        Args:
            call: The call that the question belongs to.
            method: The method of the question, for the error.

        Raises:
            Overloaded: The server asked this caller too many questions in the last minute.
        """
        key, callers = counting_key(call.caller), self._callers
        limit = callers.pop(key, None) or QuestionLimit(self._per_minute)
        while callers and not next(iter(callers.values())).is_in_use:
            callers.popitem(last=False)
        callers[key] = limit
        limit.count(method)


class OpenQuestions:
    """The questions of one handshake-era server that are waiting for their answers."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.Task[Any], set[Call]] = {}
        """The calls that each question may belong to, by the task that waits for the answer."""

    def __len__(self) -> int:
        return len(self._calls)

    @contextmanager
    def waiting(self, calls: Iterable[Call]) -> Iterator[None]:
        """Cancel the current task if all of these calls end before the block does.

        Args:
            calls: The calls that the question may belong to.
        """
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = set(calls)
        try:
            yield
        finally:
            del self._calls[task]

    def end(self, call: Call) -> None:
        """End the questions of a call.

        Args:
            call: The call, which has ended.
        """
        for task, calls in self._calls.items():
            if call in calls:
                calls.remove(call)
                if not calls:
                    task.cancel()


class TaskAsker(Protocol):
    """Who is asked the questions of a task, if not a call that waits for it."""

    call: Call
    """A call of the caller that started the task."""
    request: Call
    """The request to the server during which it asks."""

    async def ask(self, method: str, params: RawObject) -> Raw:
        """Return the answer to a question."""


FindAsker = Callable[[str], "Call | TaskAsker | None"]
"""Returns who is asked the questions of a task, by the server's own id of it."""


def prepare_requests(raw: Raw, call: Call, prepare: PrepareQuestion) -> Raw:
    """Return the questions of a task in the extension form, as the caller gets them.

    Args:
        raw: The questions by key, as the server sent them.
        call: The call that asked for the state of the task.
        prepare: Prepares each question.

    Raises:
        InvalidRequest: The questions are malformed.
        ConsentDenied: A question is not allowed.
    """
    try:
        requests = _decode_requests(raw)
        for request in requests.values():
            row = QUESTIONS[msgspec.json.decode(request["method"], type=str)]
            params = prepare(call, parse_question(row, request.get("params", Raw(b"{}"))))
            if "params" in request:
                request["params"] = encode_raw(params.fields)
    except (msgspec.MsgspecError, KeyError) as problem:
        raise InvalidRequest(f"The questions of the task are malformed: {problem}") from None
    return encode_raw(requests)


_decode_requests = msgspec.json.Decoder(dict[str, dict[str, Raw]]).decode


def answer_with_caller(
    calls: ActiveCalls,
    questions: OpenQuestions,
    limits: QuestionLimits,
    prepare: PrepareQuestion,
    find_asker: FindAsker,
) -> dict[str, CallHandler]:
    """Return the handlers with which a client answers the questions of a handshake-era server: it
    asks the caller whose call the question belongs to.

    Args:
        calls: The calls that use the connection on which the questions arrive.
        questions: The open questions of the server.
        limits: Counts its questions.
        prepare: Prepares each question.
        find_asker: Returns who is asked the questions of a task.
    """

    async def answer(question: Call) -> Any:
        task = related_task_id(question.params)
        parent = question.parent or (task and find_asker(task)) or calls.sole(for_task=bool(task))
        if parent is None:
            raise MethodNotFound(
                f"{question.name}: the call that this question belongs to is not known"
            )
        params = parse_question(question.method, question.raw_params)
        limits.count(parent if isinstance(parent, Call) else parent.call, question.name)
        if not isinstance(parent, Call):
            params = without_meta(prepare(parent.call, params), (RELATED_TASK,))
            with questions.waiting([parent.request]):
                return await parent.ask(question.name, params)
        params = prepare(parent, params)
        if task or parent.name == "tasks/result":
            params = _with_task_of(parent, params)
        is_known = question.parent is not None or task is not None
        with questions.waiting([parent] if is_known else calls):
            return await ask(parent, question.name, params)

    return dict.fromkeys(QUESTIONS, answer)


def _with_task_of(call: Call, params: RawObject) -> RawObject:
    """Return the params of a question that name the caller's id of the task to which a call
    belongs, and not the server's."""
    if call.name != "tasks/result":
        return without_meta(params, (RELATED_TASK,))
    named: RawObject = with_meta(params, {RELATED_TASK: {"taskId": call.params.task_id}})
    return named
