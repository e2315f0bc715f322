"""How a server asks its client. `ask` is the one way, whatever the era; a handler never knows which
one it is in.

**Handshake era**: a request down the back channel of the call (`call.connection.ask`), and a wait
for its reply.

**Stateless era**: a server cannot ask, it can only answer "ask me again, with these answers":
`rounds.py` makes the one look like the other.

What the client did not declare, or its revision does not have, is never asked: CannotAsk says so
before anything is sent.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any

import msgspec
from msgspec import Raw

from ..errors import CannotAsk, ConfigError, InternalError, InvalidParams, ToolError
from ..limits import Limits
from ..net import why_not_openable
from ..ports import Call, Caller
from ..protocol.base import Params
from ..protocol.client_features import CreateMessageParams, ElicitParams, find_tool_mismatch
from ..protocol.content import TextContent, ToolResultContent, ToolUseContent
from ..protocol.lifecycle import ClientCapabilities
from ..protocol.methods import METHODS
from ..protocol.tools import ToolResult
from ..revisions import Revision, decode

log = logging.getLogger("dovetail.connection")

QUESTIONS = {
    name: METHODS[name] for name in ("elicitation/create", "sampling/createMessage", "roots/list")
}


# what may be asked


def needed(params: Any, method: str) -> dict[str, dict[str, Any]]:
    """The capabilities that a client must have declared to be asked this, as the wire has them."""
    if method == "roots/list":
        return {"roots": {}}
    if isinstance(params, ElicitParams):
        return {"elicitation": {params.mode or "form": {}}}
    parts: dict[str, Any] = {}
    if isinstance(params, CreateMessageParams):
        if params.tools is not None or params.tool_choice is not None or _uses_tools(params):
            parts["tools"] = {}
        if params.include_context not in (None, "none"):
            parts["context"] = {}
    return {"sampling": parts}


def _uses_tools(params: CreateMessageParams) -> bool:
    """Whether a conversation speaks of tools, though it offers none."""
    blocks = (block for message in params.messages for block in message.blocks)
    return any(isinstance(block, ToolUseContent | ToolResultContent) for block in blocks)


def declared(
    capabilities: ClientCapabilities, wanted: dict[str, dict[str, Any]], revision: Revision
) -> bool:
    """Whether a client has all of these. An empty `elicitation` means forms; forms and context are
    older than the words for them."""
    for name, parts in wanted.items():
        has = capabilities.get(name)
        if not isinstance(has, dict):
            return False
        implied = {
            "form": not has or "mode" in revision.absent.get(ElicitParams, ()),
            "context": not revision.sampling_parts,
        }
        if not all(part in has or implied.get(part) for part in parts):
            return False
    return True


def flaw(params: Any) -> str | None:
    """What is wrong with a question, whoever is asked; None if nothing is."""
    if isinstance(params, ElicitParams) and params.mode == "url":
        reason = why_not_openable(params.url or "")
        return reason and f"{params.url!r} is not a URL that a browser can open: {reason}"
    problem = (
        find_tool_mismatch(params.messages) if isinstance(params, CreateMessageParams) else None
    )
    return problem and f"The conversation cannot be sent: {problem}"


def check(call: Call, method: str, params: Any) -> None:
    """Whether the client can be asked this: CannotAsk where not, ConfigError where nobody can."""
    caller = call.caller
    revision = caller.revision
    wanted = needed(params, method)
    parts = [part for parts in wanted.values() for part in parts]
    what = f"{method} ({', '.join(parts)})" if parts else method
    if not call.method.asks:
        raise CannotAsk(f"{call.name} may not ask its client anything")
    absent = revision.absent.get(type(params), ())
    if (not revision.stateless and method not in revision.methods) or any(
        part in absent for part in parts
    ):
        raise CannotAsk(f"There is no {what} in revision {revision.name}")
    if not declared(caller.capabilities, wanted, revision):
        raise CannotAsk(f"The client did not declare that it can be asked: {what}", wanted)
    if problem := flaw(params):
        raise ConfigError(problem)


async def ask(call: Call, method: str, params: Any, key: str | None = None) -> Raw:
    """Put a question to the client of a call; the answer as it came. The call's own time stands
    still meanwhile."""
    check(call, method, params)
    if _inside.get():
        raise ConfigError(
            "What ctx.once does cannot ask the client; ask before, and let it use the answer"
        )
    if isinstance(params, ElicitParams) and params.elicitation_id is not None:
        sent(call.caller, params.elicitation_id)
    if call.clock is not None:
        call.clock.stop()
    try:
        if call.run is not None:
            kept: Raw = await call.run.ask(QUESTIONS[method], params, key)
            return kept
        if call.caller.revision.stateless:
            raise CannotAsk(f"{method}: this {call.name} was begun as one that does not ask")
        return await put(call, method, params)
    finally:
        if call.clock is not None:
            call.clock.go()


async def put(call: Call, method: str, params: Any) -> Raw:
    """A question down the back channel. Those that are open at the same time are one round, as in
    the other era."""
    limits: Limits = call.connection.limits
    call.rounds += not call.asking
    if call.rounds > limits.asks:
        raise endless(call, limits)
    call.asking += 1
    try:
        async with asyncio.timeout(limits.ask_time):
            answer: Raw = await call.connection.ask(call, QUESTIONS[method], params)
            return answer
    except TimeoutError:
        raise ToolError(
            f"The client did not answer {method} within {limits.ask_time:g} s"
        ) from None
    finally:
        call.asking -= 1


def endless(call: Call, limits: Limits) -> InternalError:
    """The error of a handler that never stops asking."""
    return InternalError(f"{call.name} asked {limits.asks} times in a row, which is the limit")


def sent(caller: Caller, id: str) -> None:
    """Its user is sent to a page."""
    caller.remember_page(id)
    if caller.on_page is not None:
        caller.on_page(id)


def refused(method: str, code: int, message: str) -> ToolError:
    """What a handler is told whose client answered a question with an error, as one whose user said
    no does."""
    return ToolError(f"The client refused {method}: {message or f'error {code}'}")


async def once(call: Call, key: str, function: Callable[[], Any]) -> Any:
    """Do something once per chain of rounds, and remember what came of it. Gives back what JSON
    makes of it, each time."""
    kept = call.kept = {} if call.kept is None else call.kept
    while isinstance(done := kept.get(key), asyncio.Future):
        await asyncio.wait([done])  # somebody is at it; where they fail, it is our turn
    if done is None:
        begun = kept[key] = asyncio.get_running_loop().create_future()
        try:
            kept[key] = done = msgspec.json.encode(await _done(call.run, function))
            if call.run is not None:
                await call.run.keep(key, done)
        except BaseException:
            del kept[key]
            raise
        finally:
            begun.set_result(None)
    return msgspec.json.decode(done)


async def _done(run: Any, function: Callable[[], Any]) -> Any:
    """What comes of it. Until then no round ends, as its state would not know of it."""
    inside = _inside.set(True)
    if run is not None:
        run.busy += 1
    try:
        outcome = function()
        return await outcome if isawaitable(outcome) else outcome
    finally:
        _inside.reset(inside)
        if run is not None:
            run.busy -= 1
            run.close_soon()


_inside: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether this is the inside of a `once`, where nothing can be asked: the next run would not come
by there."""


def told(call: Call, error: CannotAsk | ToolError) -> ToolResult:
    """What a caller is told of a question that came to nothing, as if the handler itself had
    asked."""
    if call.method.result is not ToolResult or (
        isinstance(error, CannotAsk) and call.caller.revision.stateless
    ):
        raise error
    return ToolResult(content=[TextContent(str(error))], is_error=True)


def kind_of(params: Params | None) -> str:
    """The method that puts a question."""
    if isinstance(params, ElicitParams):
        return "elicitation/create"
    return "sampling/createMessage" if isinstance(params, CreateMessageParams) else "roots/list"


def typed(raw: Raw, method: str) -> Any:
    """An answer as the value that the question promises; InvalidParams where it is something
    else."""
    try:
        return decode(raw, QUESTIONS[method].result)
    except msgspec.MsgspecError as error:
        raise InvalidParams(f"The answer to {method} makes no sense: {error}") from None


def plain(params: Params | None) -> Params:
    """Params that are there, though there is nothing in them."""
    return Params() if params is None else params
