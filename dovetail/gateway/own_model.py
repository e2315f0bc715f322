"""The model of a gateway, for callers that have none.

A server may ask for a completion during a call. The gateway passes the question on to the caller if
its client declared sampling. Otherwise, the model of the gateway answers, if there is one. The same
limits hold for both: `"sampling"` and `maxTokens` of the entry, `Limits.questions`, and the policy.
The gateway has no context that it could add to a prompt, so its model is not asked for any.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from ..client.callbacks import Callbacks, OnSample, SampleRequest
from ..connection.input_requests import QUESTIONS, parse_question, typed_view
from ..connection.subscriptions import related_task_id
from ..limits import Limits
from ..ports import Call, Caller, CallHandler
from ..protocol.lifecycle import InputRequired
from ..protocol.raw import RawObject, encode_typed
from .pool import ActiveCalls
from .upstream import UpstreamServer

SAMPLE: Final = SampleRequest.method


class OwnModel:
    """The model of a gateway.

    Args:
        on_sample: Called with a `SampleRequest`, as for `Client`. Its `target` is the name of the
            server in the configuration.
        limits: The limits.
    """

    def __init__(self, on_sample: OnSample, limits: Limits) -> None:
        self._on_sample = on_sample
        self._limits = replace(limits, questions=sys.maxsize)  # they are counted per server
        self.capability: dict[str, Any] = (
            {"tools": {}} if getattr(on_sample, "tools", None) is True else {}
        )

    def is_used_for(self, call: Call) -> bool:
        """Return whether the caller of a call has no model."""
        return "sampling" not in call.caller.capabilities

    async def answer(self, server: UpstreamServer, call: Call, params: RawObject) -> Raw:
        """Return the answer to a server's question.

        Args:
            server: The server.
            call: The call that the question belongs to.
            params: The params of the question, within the limits.

        Raises:
            ConsentDenied: `on_sample` refused it.
        """
        callbacks = Callbacks(
            None, self._on_sample, None, None, target=server.name, tasks=False, limits=self._limits
        )
        question = Call(
            id=call.id,
            method=QUESTIONS[SAMPLE],
            params=replace(typed_view(params), include_context=None),
            caller=Caller(call.caller.revision, server.catalog.info),
            connection=call.connection,
            parent=call,
        )
        return Raw(encode_typed(await callbacks.answers[SAMPLE](question)))

    async def finish(
        self, server: UpstreamServer, call: Call, result: Any, send: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Answer the questions of a stateless server that are for the model, and return its result,
        or its questions for the caller.

        Args:
            server: The server.
            call: The call.
            result: What the server has returned.
            send: Sends the call again, with the answers.
        """
        for _ in range(self._limits.rounds):
            if type(result) is not InputRequired:
                break
            answers = await self._answer_all(server, call, result)
            if not answers:
                break
            call.input_responses, call.request_state = answers, result.state
            result = await send()
        return result

    async def _answer_all(
        self, server: UpstreamServer, call: Call, required: InputRequired
    ) -> dict[str, Raw]:
        """Return the answers to those questions of a stateless server that are for the model. They
        are within the limits.

        Args:
            server: The server.
            call: The call.
            required: The questions.
        """
        return {
            key: await self.answer(server, call, question)  # type: ignore[arg-type]
            for key, question in required.requests.items()
            if getattr(question, "type", None) is QUESTIONS[SAMPLE].params
        }

    def handler(
        self,
        server: UpstreamServer,
        calls: ActiveCalls,
        limit: Callable[[Call, RawObject], None],
        pass_on: CallHandler,
    ) -> CallHandler:
        """Return the handler for the questions of a handshake-era server.

        Args:
            server: The server.
            calls: The calls that use the connection.
            limit: Limits each question.
            pass_on: The handler that asks the caller.
        """

        async def answer(question: Call) -> Any:
            is_of_task = related_task_id(question.params) is not None
            parent = request = question.parent or calls.sole(for_task=is_of_task)
            if parent is not None and not isinstance(parent, Call):  # of a task
                parent, request = parent.call, parent.request
            if parent is None or request is None or not self.is_used_for(parent):
                return await pass_on(question)
            params = parse_question(question.method, question.raw_params)
            server.question_limits.count(parent, question.name)
            limit(parent, params)
            with server.questions.waiting([request]):
                return await self.answer(server, parent, params)

        return answer
