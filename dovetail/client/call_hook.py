"""Show each tool call to `on_call` before it leaves the client.

The hook sees the call once, with decoded arguments, before it is sent for the first time: retries,
rounds of questions and logins do not ask again. The client sends exactly the arguments that the
hook returns, encoded again. So a hook that prints the arguments prints what the server gets, even
if the original JSON contained a key twice.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..aio import call_maybe_async
from ..errors import ConfigError, ConsentDenied, InvalidParams
from ..protocol.base import Implementation
from ..protocol.tools import CallToolParams, Tool
from ..schema import Shape
from ..text import quote

_any = Shape(Any)


class CallRequest(Struct, kw_only=True):
    """A tool call that is about to be sent.

    Attributes:
        name: The name of the tool.
        arguments: The arguments, decoded.
        tool: The tool as it was listed last; None if this client has not listed it.
        server: The name and version that the server reports.
        target: The target that you passed to the client.
    """

    name: str
    arguments: dict[str, Any]
    tool: Tool | None = None
    server: Implementation | None = None
    target: str = ""


OnCall = Callable[[CallRequest], Any]
"""Returns the request, changed or unchanged, or None to refuse."""


async def approve_call(
    hook: OnCall,
    params: CallToolParams,
    tool: Tool | None,
    server: Implementation | None,
    target: str,
) -> CallToolParams:
    """Return the params that the hook allows.

    Raises:
        ConsentDenied: The hook refuses the call.
        ConfigError: The hook returned something else.
    """
    try:
        arguments = msgspec.json.decode(params.arguments or b"{}")
    except msgspec.MsgspecError as problem:
        raise InvalidParams(
            f"The arguments for {params.name} are not valid JSON: {problem}", parameter="arguments"
        ) from None
    request = CallRequest(
        name=params.name,
        arguments={} if arguments is None else arguments,
        tool=tool,
        server=server,
        target=target,
    )
    approved = check_hook_result("on_call", request, await call_maybe_async(hook, request))
    if approved is None:
        raise ConsentDenied(
            f"The call to {quote(params.name)} was refused by on_call. Nothing was sent."
        )
    try:
        encoded = Raw(_any.encode(approved.arguments))
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"on_call: the arguments cannot be sent: {problem}") from None
    return replace(params, name=approved.name, arguments=encoded)


def check_hook_result(hook: str, argument: Any, result: Any) -> Any:
    """Return what a hook returned; raise ConfigError if it is neither None nor of the type of its
    argument."""
    if result is not None and not isinstance(result, type(argument)):
        raise ConfigError(
            f"{hook} must return the {type(argument).__name__} (changed or unchanged), or None to "
            f"refuse, not {result!r}"
        )
    return result
