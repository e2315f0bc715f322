"""Questions from a server (elicitation, sampling, roots) on their way to a caller of a gateway.

A question belongs to one call of one caller. In the stateless era, it is part of the answer to that
call. Over HTTP with the handshake, it arrives on the stream of that call. On all
other connections, the pool makes sure that only one caller uses the connection. A question whose
call is not known is refused: it is never sent to a caller by guess.

Questions and answers pass as they are, except that the configured name of the server is put before
the text that a person reads, so that no server can ask in the name of another.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..connection.input_requests import QUESTIONS, ask, parse_question
from ..errors import MethodNotFound
from ..ports import Call, CallHandler
from ..protocol.client_features import ElicitParams
from ..protocol.lifecycle import ClientCapabilities, InputRequired
from ..protocol.raw import RawObject
from ..text import escape_unsafe
from .reports import UpstreamCounts

KINDS: Final = ("elicitation", "sampling", "roots")
"""The capabilities of a client that let a server ask questions."""
NOTHING: Final = ClientCapabilities()


def answerable(call: Call) -> ClientCapabilities:
    """Return what the caller declared that it can answer, during this call or another one."""
    declared = call.caller.capabilities
    if not any(kind in declared for kind in KINDS):
        return NOTHING
    return ClientCapabilities.of({kind: declared[kind] for kind in KINDS if kind in declared})


def askable(call: Call) -> ClientCapabilities:
    """Return what a server may ask during a call."""
    return answerable(call) if call.method.asks else NOTHING


def with_names(required: InputRequired, name: str) -> InputRequired:
    """Put the configured name of a server before the text of its questions.

    Args:
        required: The questions of a stateless server.
        name: The name; empty for none.
    """
    for question in required.requests.values() if name else ():
        with_name(question, name)  # type: ignore[arg-type]
    return required


def with_name(params: RawObject, name: str) -> RawObject:
    """Put the configured name of a server before the text that a person reads.

    Args:
        params: The params of the question.
        name: The name; empty for none.
    """
    if name and params.type is ElicitParams:
        # Nothing may erase or reverse the name.
        params.message = f"{name} asks: {escape_unsafe(params.message, keep_newlines=True)}"
    return params


def answer_with_caller(
    calls: Sequence[Call], name: Callable[[], str], counts: UpstreamCounts
) -> dict[str, CallHandler]:
    """Return the handlers with which a client answers the questions of a handshake-era server: it
    asks the caller whose call the question belongs to.

    Args:
        calls: The calls that use the connection on which the questions arrive.
        name: Returns the name to put before the text.
        counts: Where open questions are counted.
    """

    async def answer(question: Call) -> Any:
        parent = question.parent or sole_call(calls)
        if parent is None:
            raise MethodNotFound(
                f"{question.name}: the call that this question belongs to is not known"
            )
        params = parse_question(question.method, question.raw_params)
        with counts.asking():
            return await ask(parent, question.name, with_name(params, name()))

    return dict.fromkeys(QUESTIONS, answer)


def sole_call(calls: Sequence[Call]) -> Call | None:
    """Return the newest of the calls if all of them are from the same caller."""
    callers = {id(call.caller) for call in calls}
    return calls[-1] if len(callers) == 1 else None
