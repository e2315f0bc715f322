"""What a server may ask of a client: the user (`on_elicit`), the model (`on_sample`), the roots.

Only what has a callback is declared, so nothing else is ever asked. A question arrives as a request in the handshake era and
inside an `input_required` result in the stateless era; either way it ends up in the same function here.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import ConfigError, InvalidParams, InvalidRequest, ProtocolError
from ..ports import Answer, Call, Caller
from ..protocol.base import Result, open_hook
from ..protocol.capabilities import ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability
from ..protocol.content import TextContent
from ..protocol.elicitation import ElicitParams, ElicitResult
from ..protocol.lifecycle import InputRequiredResult
from ..protocol.methods import METHODS
from ..protocol.roots import ListRootsResult, Root
from ..protocol.sampling import CreateMessageParams, CreateMessageResult
from ..revisions import Revision
from ..shapes import Shape

OnElicit = Callable[[ElicitParams], Any]
OnSample = Callable[[CreateMessageParams], Any]
REFUSED = -1
"""The code for "the user said no", as the specification's example has it."""
_any = Shape(Any)


class Callbacks:
    """The answers of one client."""

    def __init__(
        self, on_elicit: OnElicit | None, on_sample: OnSample | None, roots: Iterable[Any] | None, experimental: Any
    ) -> None:
        self._on_elicit, self._on_sample = on_elicit, on_sample
        self.roots = None if roots is None else [as_root(one) for one in roots]
        self.capabilities = ClientCapabilities(
            elicitation=ElicitationCapability(form={}, url={}) if on_elicit else None,
            sampling=SamplingCapability() if on_sample else None,
            roots=RootsCapability(list_changed=True) if self.roots is not None else None,
            experimental=experimental,
        )
        table: dict[str, tuple[Any, Answer]] = {
            "elicitation/create": (on_elicit, self._elicit),
            "sampling/createMessage": (on_sample, self._sample),
            "roots/list": (self.roots is not None, self._roots),
        }
        self.answers: dict[str, Answer] = {name: answer for name, (given, answer) in table.items() if given}

    async def _elicit(self, call: Call) -> ElicitResult:
        assert self._on_elicit is not None
        mode = call.params.mode or "form"
        self._declared("elicitation", mode)
        given = await _called(self._on_elicit, replace(call.params, mode=mode))
        if isinstance(given, ElicitResult):
            return given
        if given is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=msgspec.json.decode(_any.encode(given)))

    async def _sample(self, call: Call) -> CreateMessageResult:
        assert self._on_sample is not None
        if call.params.tools is not None or call.params.tool_choice is not None:
            self._declared("sampling", "tools")
        given = await _called(self._on_sample, call.params)
        if isinstance(given, CreateMessageResult):
            return given
        if given is None:
            raise ProtocolError(REFUSED, "User rejected sampling request")
        return CreateMessageResult(role="assistant", content=TextContent(str(given)), model="unknown", stop_reason="endTurn")

    def _declared(self, capability: str, part: str) -> None:
        if part not in self.capabilities.get(capability, {}):
            raise InvalidParams(f"This client did not declare {capability}.{part}")

    async def _roots(self, call: Call) -> ListRootsResult:
        return ListRootsResult(roots=self.roots or [])

    async def respond(self, asked: InputRequiredResult, revision: Revision, origin: Any) -> dict[str, msgspec.Raw]:
        """The answers to all questions of a round, by their keys."""
        responses: dict[str, msgspec.Raw] = {}
        for key, question in (asked.input_requests or {}).items():
            name = str(question.get("method"))
            answer = self.answers.get(name)
            if answer is None:
                raise InvalidRequest(f"The server asks {name}, which this client did not declare")
            try:
                params = msgspec.convert(question.get("params") or {}, METHODS[name].params, dec_hook=open_hook)
            except msgspec.ValidationError as problem:
                raise InvalidRequest(f"What the server asks back makes no sense: {name}: {problem}") from None
            call = Call(key, METHODS[name], params, Caller(revision), origin)
            result: Result = await answer(call)
            responses[key] = msgspec.Raw(msgspec.json.encode(revision.lower(result)))
        return responses


def as_root(given: Any) -> Root:
    """A root out of a path, a `file://` URI, or a Root."""
    root = given if isinstance(given, Root) else None
    if isinstance(given, Mapping):
        root = msgspec.convert(given, Root)
    elif isinstance(given, str) and "://" in given:
        root = Root(given)
    elif isinstance(given, str | Path):
        path = Path(given).resolve()
        root = Root(path.as_uri(), path.name or None)
    if root is None or not root.uri.startswith("file://"):
        raise ConfigError(f"{given!r} is no root: give a path or a file:// URI")
    return root


async def _called(function: Callable[[Any], Any], request: Any) -> Any:
    given = function(request)
    return await given if inspect.isawaitable(given) else given
