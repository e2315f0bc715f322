"""Requests that only another replica or worker of the gateway can answer.

Each replica starts its own processes. If a server is a process, only the replica that started a
task there can ask for it, and only the process that asked a question can continue with the answer.
Then the replica that received the request asks all others over the bus, and the one that has the
process answers.

The reply may take long, and the bus does not report that the other replica has died. So the request
is repeated from time to time: the other replica recognises it by its id, and if no replica can
answer it any more, there is no reply. What the server asks meanwhile takes the way back.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..connection.input_requests import (
    QUESTIONS,
    ask,
    question_method,
    relayed_questions,
    typed_view,
)
from ..errors import DovetailError, ProtocolError, ToolError
from ..limits import Limits
from ..ports import Bus, Call, Caller, CallHandler, Principal
from ..protocol.base import Result
from ..protocol.decoding import decode
from ..protocol.lifecycle import ClientCapabilities, InputRequired
from ..protocol.methods import METHODS, TASKS_EXTENSION_METHODS, Method
from ..protocol.raw import RawObject, encode_raw, encode_typed
from ..revisions import BY_NAME

REPEAT_SECONDS: Final = 30.0
"""How long to wait for a reply before the request is repeated."""
ASKS: Final = Raw(b'"input_required"')
_EXTENSION: Final[Mapping[str, Method]] = {one.name: one for one in TASKS_EXTENSION_METHODS}


class ForwardedRequest(Struct, array_like=True):
    """A request, as it is sent to other replicas. Its caller was authenticated."""

    id: str
    method: str
    params: bytes
    revision: str
    capabilities: bytes
    session: str
    address: str | None
    principal: str | None
    scopes: tuple[str, ...] = ()
    state: str | None = None
    """The state that the gateway sent with the questions that the request answers."""
    answers: dict[str, bytes] = {}


class CallForwarder:
    """Sends requests to other replicas, and answers theirs.

    Args:
        topic: What the topics on the bus begin with.
        handlers: Answers the requests that other replicas send, by method.
        is_here: Returns whether this replica can answer a request.
        limits: The limits.
    """

    def __init__(
        self,
        topic: str,
        handlers: Mapping[str, CallHandler],
        is_here: Callable[[Call], bool],
        limits: Limits,
    ) -> None:
        self._topic, self._question = topic, f"{topic}/question"
        self._leave = f"{topic}/leave"
        self._handlers, self._is_here, self._limits = handlers, is_here, limits
        self._bus: Bus | None = None
        self._sent: dict[str, Call] = {}
        """The requests of this replica that others answer at the moment."""
        self._running: dict[str, asyncio.Task[Any]] = {}
        """The requests of other replicas that are answered here."""

    def connect(self, bus: Bus) -> None:
        """Answer the requests of other replicas, and send them requests.

        Args:
            bus: The bus between the replicas.
        """
        self._bus = bus
        bus.on(self._topic, self._on_request)
        bus.on(self._question, self._on_question)
        bus.on(self._leave, self._on_leave)

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica that could be asked."""
        return self._bus is None or self._bus.alone

    # requests to other replicas

    async def ask(self, call: Call) -> RawObject | InputRequired | None:
        """Let the replica that can answer a request do so. Returns None if there is none.

        Args:
            call: The request.

        Raises:
            ProtocolError: It answered with an error.
        """
        bus = self._bus
        if bus is None:
            return None
        request = _encode_request(call)
        self._sent[request.id] = call
        reply, deadline = None, time.monotonic() + self._limits.timeout_max
        try:
            while reply is None and (began := time.monotonic()) < deadline:
                reply = await bus.ask(self._topic, msgspec.to_builtins(request), REPEAT_SECONDS)
                if time.monotonic() - began < REPEAT_SECONDS:
                    break  # otherwise, there was no reply yet
        finally:
            del self._sent[request.id]
            if reply is None:
                bus.publish(self._leave, request.id)
        if reply is None:
            return None
        is_error, data = reply
        if is_error:
            raise ProtocolError(*msgspec.json.decode(data))
        result = RawObject.parse(call.method.result or Result, data)
        is_question = result.fields.get("resultType") == ASKS
        return relayed_questions(Raw(data)) if is_question else result

    async def _on_question(self, payload: Any) -> Any:
        """Ask the caller of a request that another replica answers."""
        id, name, params = payload
        call = self._sent.get(id)
        if call is None:
            return None
        try:
            question = RawObject.parse(QUESTIONS[name].params, params)
            return False, bytes(await ask(call, name, question))
        except DovetailError as problem:
            return True, str(problem).encode()

    # requests of other replicas

    async def _on_request(self, payload: Any) -> Any:
        request = msgspec.convert(payload, ForwardedRequest)
        running = self._running.get(request.id)
        if running is None:
            call = self._decode_request(request)
            if call is None or not self._is_here(call):
                return None
            running = asyncio.create_task(self._answer(call))
            self._running[request.id] = running
            running.add_done_callback(lambda _: self._running.pop(request.id, None))
        await asyncio.wait([running])
        return None if running.cancelled() else running.result()

    async def _answer(self, call: Call) -> tuple[bool, bytes]:
        try:
            reply = await self._handlers[call.name](call)
        except ProtocolError as error:
            return True, msgspec.json.encode((error.code, error.message, error.data))
        except DovetailError as error:
            return True, msgspec.json.encode((ProtocolError.code, str(error), None))
        if type(reply) is InputRequired:
            return False, _encode_questions(reply)
        return False, encode_typed(reply.fields if type(reply) is RawObject else reply)

    def _on_leave(self, id: str) -> None:
        if (running := self._running.get(id)) is not None:
            running.cancel()

    def _decode_request(self, request: ForwardedRequest) -> Call | None:
        revision = BY_NAME.get(request.revision)
        if revision is None or request.method not in self._handlers:
            return None  # the other replica has a newer version
        extended = _EXTENSION.get(request.method) if revision.stateless else None
        method = extended or METHODS[request.method]
        principal = None
        if request.principal is not None:
            principal = Principal(request.principal, scopes=request.scopes)
        caller = Caller(
            revision,
            capabilities=ClientCapabilities.lift(msgspec.json.decode(request.capabilities)),
            log_level=None,
            principal=principal,
            address=request.address,
            session_id=request.session,
        )
        return Call(
            request.id,
            method,
            decode(request.params, method.params),
            caller,
            connection=None,
            principal=principal,
            run=ForwardedCaller(self, request.id),
            input_responses={key: Raw(answer) for key, answer in request.answers.items()},
            request_state=request.state,
            raw_params=Raw(request.params),
        )

    async def ask_caller(self, id: str, method: Method, params: Any) -> Raw:
        """Ask the caller of a request of another replica.

        Args:
            id: The id of the request.
            method: The method of the question.
            params: The params of the question.

        Raises:
            ToolError: The caller cannot answer.
        """
        assert self._bus is not None
        fields = params.fields if type(params) is RawObject else params
        payload = (id, method.name, encode_typed(fields))
        reply = await self._bus.ask(self._question, payload, self._limits.ask_time)
        is_error, data = (True, b"The caller has left") if reply is None else reply
        if is_error:
            raise ToolError(data.decode())
        return Raw(data)


class ForwardedCaller:
    """Asks the questions of a call whose caller is at another replica (`Call.run`)."""

    rounds, answers = 0, ()

    def __init__(self, forwarder: CallForwarder, id: str) -> None:
        self._forwarder, self._id = forwarder, id

    async def ask(self, method: Method, params: Any, key: str | None, timeout: float | None) -> Raw:
        """Return the answer to a question.

        Args:
            method: The method of the question.
            params: The params of the question.
            key: Not used.
            timeout: Not used.
        """
        return await self._forwarder.ask_caller(self._id, method, params)


def _encode_request(call: Call) -> ForwardedRequest:
    caller, principal = call.caller, call.principal
    return ForwardedRequest(
        token_urlsafe(16),
        call.name,
        bytes(call.raw_params),
        caller.revision.name,
        bytes(encode_raw(caller.capabilities)),
        caller.session_id,
        caller.address,
        None if principal is None else principal.id,
        () if principal is None else principal.scopes,
        call.request_state,
        {key: bytes(answer) for key, answer in call.input_responses.items()},
    )


def _encode_questions(required: InputRequired) -> bytes:
    """Return questions as a stateless server sends them."""
    requests = {
        key: {
            **required.more.get(key, {}),
            "method": question_method(typed_view(params)),
            "params": params.fields if type(params) is RawObject else params,
        }
        for key, params in required.requests.items()
    }
    fields = {"resultType": ASKS, "inputRequests": requests, "requestState": required.state}
    return bytes(encode_raw(fields))
