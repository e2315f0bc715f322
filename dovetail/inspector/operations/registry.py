"""Operations: functions that the page calls by name.

    @operation
    async def cancel(state: InspectorState, *, call: str) -> None:

The keyword parameters are the fields of the request; their types are checked, and unknown fields
are refused. The result is sent as JSON; None is sent as `{}`.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec
from msgspec.structs import asdict

from ..events import encode_event
from ..refusal import Refused
from ..state import InspectorState

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])


class Operation(NamedTuple):
    """A function and the decoder of its parameters."""

    function: Callable[..., Awaitable[Any]]
    decoder: msgspec.json.Decoder[Any]


OPERATIONS: dict[str, Operation] = {}


def operation(function: Function) -> Function:
    """Make a function an operation of its name."""
    hints = get_type_hints(function, include_extras=True)  # with bounds of numbers
    fields: list[Any] = [
        (name, hints[name])
        if parameter.default is parameter.empty
        else (name, hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    params = msgspec.defstruct(
        f"{function.__name__}_params", fields, kw_only=True, forbid_unknown_fields=True
    )
    OPERATIONS[function.__name__] = Operation(function, msgspec.json.Decoder(params))
    return function


async def run_operation(name: str, state: InspectorState, body: bytes) -> bytes:
    """Run an operation and return the JSON of its result.

    Args:
        name: The name of the operation, which exists.
        state: What it acts on.
        body: The JSON of its parameters.

    Raises:
        Refused: The parameters are not valid, or the operation is not possible.
    """
    found = OPERATIONS[name]
    try:
        params = found.decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Refused(f"{name}: {problem}") from None
    result = await found.function(state, **asdict(params))
    return encode_event({} if result is None else result)
