"""Answers that are made elsewhere: how a gateway's client passes a server's questions on.

A gateway does not answer the questions of the servers behind it. It asks the client whose call a
question belongs to (`call.parent`), and returns that client's answer. Nothing is shown to a user
and nothing is validated here, so both pass unchanged, including unknown fields.

    server ─→ question ─→ handler(call) ─→ ask(call.parent, …, raw params) ─→ answer ─→ server
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from ..connection.input_requests import ClientRefused
from ..errors import ConfigError, InvalidParams, InvalidRequest, ProtocolError
from ..limits import Limits
from ..ports import Call, CallHandler
from ..protocol.base import Result
from ..protocol.lifecycle import ClientCapabilities
from ..protocol.raw import RawObject
from .callbacks import Callbacks, OnRoots
from .client_tasks import ClientTasks
from .requests import Requester


def relay_answers(
    client: Requester,
    handlers: Mapping[str, CallHandler],
    capabilities: ClientCapabilities,
    unlimited: bool = False,
    on_complete: Callable[[str], None] | None = None,
    on_task: Callable[[Any], None] | None = None,
) -> None:
    """Let these handlers answer the questions that a server asks a client, instead of callbacks.
    Call this before the client connects.

    Args:
        client: The client.
        handlers: The handler for each method (`elicitation/create`, `sampling/createMessage`,
            `roots/list`). A handler receives the call with its `raw_params` (see `parse_question`)
            and, if the transport can tell, the `parent` of the request that it belongs to. It
            returns a raw or typed result.
        capabilities: The capabilities that the client declares.
        unlimited: Whether the handlers count the questions themselves (default: False;
            `Limits.questions` holds for this client).
        on_complete: Called with the id of a URL elicitation when the server says that its user has
            finished on the page.
        on_task: Called with the params of each notification about a task or its progress.
    """
    connector = client._connector
    connector.callbacks = RelayedAnswers(
        handlers, capabilities, connector.limits, unlimited, on_complete, on_task
    )


class RelayedAnswers(Callbacks):
    """Callbacks that pass questions on instead of answering them. `Limits.questions` applies,
    unless the handlers count."""

    def __init__(
        self,
        handlers: Mapping[str, CallHandler],
        capabilities: ClientCapabilities,
        limits: Limits,
        unlimited: bool = False,
        on_complete: Callable[[str], None] | None = None,
        on_task: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__(None, None, None, None, tasks=False, limits=limits)
        self._is_unlimited = unlimited
        self._on_complete, self._on_task = on_complete, on_task
        self.capabilities = capabilities
        self.answers = {name: partial(self._relay, handler) for name, handler in handlers.items()}
        self.client_tasks = ClientTasks(self.answers, limits, enabled=False)

    def set_roots(self, roots: Iterable[Any] | OnRoots) -> None:
        """Do nothing, because a handler returns the roots. The client then notifies the server that
        they have changed."""

    def on_elicitation_complete(self, id: str) -> None:
        """Pass on that a user has finished on a page."""
        if self._on_complete is not None:
            self._on_complete(id)

    def on_task_notification(self, params: Any) -> None:
        """Pass on a change of a task, or its progress."""
        if self._on_task is not None:
            self._on_task(params)

    async def _relay(self, handler: CallHandler, call: Call) -> Any:
        if not self._is_unlimited:
            self.question_limit.count(call.name)
        try:
            answer = await handler(call)
            if type(answer) is Raw:
                return RawObject.parse(call.method.result or Result, answer)
            return answer
        except ClientRefused as refusal:
            raise ProtocolError(refusal.code, refusal.reason, refusal.data) from None
        except ConfigError as problem:  # no client can be asked this
            raise InvalidParams(str(problem)) from None
        except msgspec.DecodeError as problem:
            raise InvalidRequest(f"The answer to {call.name} is malformed: {problem}") from None
