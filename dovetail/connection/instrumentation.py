"""What somebody who only looks wants to know of a call: what it was about, and what came of it, in
few and bounded words.

The words are those of OpenTelemetry's conventions for MCP. A tool that failed is a `tool_error`,
any other error goes by its code. On a server, what the caller did wrong (to ask for what there is
not, say) is no failure: it has a code, but no type. Names and codes may be invented, as many as
somebody likes, and a label is kept for ever. So a name counts as known only once a call by that
name was answered with a result, and a code only where the protocol or this library gave it a
meaning. https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ..errors import (
    BY_CODE,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    ParseError,
    ProtocolError,
)
from ..ports import Call
from ..revisions import ALL
from .answer import intended_error

TARGETS = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute that says what a call of this method was about."""
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The bounds in seconds that durations are sorted into."""
MOST, LONGEST = 1000, 256
"""Names that are known at once, and characters of one."""
OTHER = "_OTHER"
"""What stands for all that is not known."""


def _codes(kinds: Iterable[type[ProtocolError]]) -> frozenset[int]:
    """The codes that these errors have, in whichever revision."""
    return frozenset(
        code
        for kind in kinds
        for code in (kind.code, *(one.codes.get(kind, kind.code) for one in ALL))
    )


CODES = _codes([*BY_CODE.values(), NotFound])
MISTAKES = _codes([ParseError, InvalidRequest, MethodNotFound, InvalidParams, NotFound])
"""Those by which a server says that it could not serve such a request, whatever it did."""


class CallFailure(Struct, frozen=True):
    """What a call failed with."""

    type: str | None
    """What kind of failure it is; None where it is none of ours."""
    code: int | None = None
    """That of the error that was answered."""
    message: str | None = None
    """What the error says, where it was written for the other side to read."""

    @property
    def status(self) -> str | None:
        """The code, as one of few words."""
        return None if self.code is None else _known(self.code)


TOOL_ERROR = CallFailure("tool_error")
CANCELLED = CallFailure("cancelled")


def failure_in(result: Any) -> CallFailure | None:
    """What is wrong with a result: a tool may say in it that it failed."""
    return TOOL_ERROR if getattr(result, "is_error", None) else None


def failure_of(call: Call, error: BaseException, *, told: bool) -> CallFailure:
    """What an exception means. `told`: it becomes the answer to the call."""
    error = call.abort_error or error
    refusal = intended_error(error) if told else error
    if isinstance(refusal, ProtocolError):
        code = call.revision.code(refusal) if told else refusal.code
        # What went wrong inside says so with the text of an exception, which anything may be in.
        return failure_for_code(
            code, None if code == InternalError.code else refusal.message, told=told
        )
    if call.cancelled or isinstance(error, asyncio.CancelledError):
        return CANCELLED
    return (
        failure_for_code(InternalError.code, told=True)
        if told
        else CallFailure(type(error).__name__)
    )


def failure_for_code(code: int, message: str | None = None, *, told: bool) -> CallFailure:
    """What an error with this code means to who answers with it (`told`), or is answered with
    it."""
    return CallFailure(None if told and code in MISTAKES else _known(code), code, message)


def has_result(trouble: CallFailure | None) -> bool:
    """Whether there was a result, such as there is only where what was called exists."""
    return trouble is None or trouble is TOOL_ERROR


def target_of(call: Call) -> tuple[str, str] | None:
    """The tool or prompt that a call is about, as attribute and name."""
    attribute = TARGETS.get(call.method.name)
    name = None if attribute is None else getattr(call.params, "name", None)
    return None if attribute is None or not isinstance(name, str) else (attribute, name[:LONGEST])


class KnownTargets:
    """Names that have been found to mean something."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def bounded(self, target: tuple[str, str] | None, exists: bool) -> tuple[str, str] | None:
        """The target where it is known by now, or else None."""
        if target is None or target in self._known:
            return target
        if not exists or len(self._known) >= MOST:
            return None
        self._known.add(target)
        return target


def _known(code: int) -> str:
    return str(code) if code in CODES else OTHER
