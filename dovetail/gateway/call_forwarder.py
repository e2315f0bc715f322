"""Requests that only another replica or worker of the gateway can answer.

Each replica starts its own processes. If a server is a process, only the replica that started a
task there can ask for it, and only the process that asked a question can continue with the answer.
Then the replica that received the request asks all others over the bus, and the one that has the
process answers.

The reply may take long (`connection/bus_requests.py`). If the server asks its caller a question in
the meantime, the question goes back to the replica that received the request, which asks the
caller.
"""

from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..connection.bus_requests import BusRequests
from ..connection.input_requests import (
    QUESTIONS,
    ask,
    question_method,
    relayed_questions,
    typed_view,
)
from ..errors import ProtocolError, ToolError
from ..limits import Limits
from ..ports import Bus, Call, Caller, CallHandler, Principal
from ..protocol.base import Result
from ..protocol.decoding import decode
from ..protocol.lifecycle import ClientCapabilities, InputRequired
from ..protocol.methods import METHODS, TASKS_EXTENSION_METHODS, Method
from ..protocol.raw import RawObject, encode_raw, encode_typed
from ..revisions import BY_NAME

ASKS: Final = Raw(b'"input_required"')
_EXTENSION: Final[Mapping[str, Method]] = {one.name: one for one in TASKS_EXTENSION_METHODS}


class ForwardedRequest(Struct, array_like=True):
    """A request, as it is sent to other replicas. Its caller was authenticated."""

    id: str
    """A random id, by which questions to the caller find the request."""
    method: str
    params: bytes
    """The params, as JSON."""
    revision: str
    """The name of the protocol revision of the caller."""
    capabilities: bytes
    """The capabilities of the caller, as JSON."""
    session: str
    address: str | None
    """The network address of the caller."""
    principal: str | None
    """The id of the principal; None if the caller is anonymous."""
    scopes: tuple[str, ...] = ()
    """The scopes of the principal."""
    state: str | None = None
    """The state that the gateway sent with the questions that the request answers."""
    answers: dict[str, bytes] = {}
    """The answers, by the key of their question, as JSON."""


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
        self._requests = BusRequests(topic, self._on_request)
        self._questions = BusRequests(f"{topic}/question", self._on_question)
        self._handlers, self._is_here, self._limits = handlers, is_here, limits
        self._sent: dict[str, Call] = {}
        """The requests of this replica that others answer at the moment."""

    def connect(self, bus: Bus) -> None:
        """Answer the requests of other replicas, and send them requests.

        Args:
            bus: The bus between the replicas.
        """
        self._requests.connect(bus)
        self._questions.connect(bus)

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica that could be asked."""
        return self._requests.is_alone

    # requests to other replicas

    async def ask(self, call: Call) -> RawObject | InputRequired | None:
        """Let the replica that can answer a request do so. Returns None if there is none.

        Args:
            call: The request.

        Raises:
            ProtocolError: It answered with an error.
        """
        request = _encode_request(call)
        self._sent[request.id] = call
        try:
            reply = await self._requests.ask(msgspec.to_builtins(request), self._limits.timeout_max)
        finally:
            del self._sent[request.id]
        if reply is None:
            return None
        result = RawObject.parse(call.method.result or Result, reply)
        is_question = result.fields.get("resultType") == ASKS
        return relayed_questions(Raw(reply)) if is_question else result

    async def _on_question(self, payload: Any) -> bytes | None:
        """Ask the caller of a request that another replica answers."""
        id, name, params = payload
        call = self._sent.get(id)
        if call is None:
            return None
        question = RawObject.parse(QUESTIONS[name].params, params)
        return bytes(await ask(call, name, question))

    # requests of other replicas

    async def _on_request(self, payload: Any) -> bytes | None:
        call = self._decode_request(msgspec.convert(payload, ForwardedRequest))
        if call is None or not self._is_here(call):
            return None
        reply = await self._handlers[call.name](call)
        if type(reply) is InputRequired:
            return _encode_questions(reply)
        return encode_typed(reply.fields if type(reply) is RawObject else reply)

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
        fields = params.fields if type(params) is RawObject else params
        payload = (id, method.name, encode_typed(fields))
        try:
            reply = await self._questions.ask(payload, self._limits.ask_time)
        except ProtocolError as error:
            raise ToolError(error.message) from None
        if reply is None:
            raise ToolError("The caller has left")
        return Raw(reply)


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
