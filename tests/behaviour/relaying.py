"""The smallest gateway: a service that passes each call on to one server, and each question of that
server back to the caller whose call it belongs to."""

from typing import Any

from dovetail import Client
from dovetail.client.relayed_answers import relay_answers
from dovetail.connection.input_requests import QUESTIONS, ask, parse_question, relayed_questions
from dovetail.errors import InvalidRequest
from dovetail.ports import Call
from dovetail.protocol.base import Implementation, Result
from dovetail.protocol.lifecycle import (
    ClientCapabilities,
    ElicitationCapability,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
)
from dovetail.protocol.raw import RawObject, split_object
from dovetail.server.runnable import RunnableService

EVERYTHING = ClientCapabilities(
    elicitation=ElicitationCapability(form={}, url={}),
    sampling=SamplingCapability(tools={}, context={}),
    roots=RootsCapability(list_changed=True),
)


class Relay(RunnableService):
    """A service that relays to the server of one client."""

    def __init__(self, client: Client, **options: Any) -> None:
        super().__init__(Implementation(name="relay", version="1"), **options)
        self.client = client
        self.open: list[Call] = []
        """The calls that are being relayed."""
        self.parents: list[Call | None] = []
        """The parent of each question, as the client's transport knows it."""
        relay_answers(client, dict.fromkeys(QUESTIONS, self._pass_question), EVERYTHING)
        self.add_handlers(
            dict.fromkeys(("tools/call", "prompts/get", "resources/read"), self._relay)
        )

    @property
    def capabilities(self) -> ServerCapabilities:
        return ServerCapabilities.of({"tools": {}, "prompts": {}, "resources": {}, "logging": {}})

    def can_replay(self, call: Call) -> bool:
        return False

    async def _relay(self, call: Call) -> Any:
        fields: dict[str, Any] = dict(split_object(call.raw_params))
        fields.pop("inputResponses", None)
        fields.pop("requestState", None)
        if call.input_responses:
            fields["inputResponses"] = call.input_responses
        if call.request_state:
            fields["requestState"] = call.request_state
        self.open.append(call)
        try:
            raw = await self.client.relay(
                call.name, fields, parent=call, capabilities=call.caller.capabilities
            )
        finally:
            self.open.remove(call)
        result = RawObject.parse(call.method.result or Result, raw)
        return relayed_questions(raw) if result.result_type == "input_required" else result

    async def _pass_question(self, call: Call) -> Any:
        self.parents.append(call.parent)
        parent = call.parent or (self.open[0] if len(self.open) == 1 else None)
        if parent is None:
            raise InvalidRequest("It is not known which call this question belongs to")
        return await ask(parent, call.name, parse_question(call.method, call.raw_params))
