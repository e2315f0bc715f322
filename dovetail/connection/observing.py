"""What somebody who only looks wants to know of a call: what it was about, and what came of it, in few and bounded words.

The words are those of OpenTelemetry's conventions for MCP, which say what to call a tool that failed (`tool_error`) and that
an error goes by its code. Names come from callers, who may invent as many as they like; as a label is kept for ever, one
counts as known only once a call by that name was answered with a result.
https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/
"""

import asyncio
from typing import Any

from msgspec import Struct

from ..errors import InternalError, ProtocolError
from ..ports import Call

TARGETS = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute that says what a call of this method was about."""
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The bounds in seconds that durations are sorted into."""
MOST, LONGEST = 1000, 256
"""Names that are known at once, and characters of one."""


class Trouble(Struct, frozen=True):
    """What a call failed with."""

    type: str
    code: int | None = None
    """That of the error that was answered."""
    message: str | None = None


TOOL_ERROR = Trouble("tool_error")
CANCELLED = Trouble("cancelled")


def trouble_in(result: Any) -> Trouble | None:
    """What is wrong with a result: a tool may say in it that it failed."""
    return TOOL_ERROR if getattr(result, "is_error", None) else None


def trouble_of(call: Call, error: BaseException, *, told: bool) -> Trouble:
    """What an exception means. `told`: it becomes the answer to the call."""
    error = call.cut_off or error
    if isinstance(error, ProtocolError):
        code = call.revision.code(error) if told else error.code
        return Trouble(str(code), code, error.message)
    if call.cancelled or isinstance(error, asyncio.CancelledError):
        return CANCELLED
    return Trouble(type(error).__name__, InternalError.code if told else None)


def target_of(call: Call) -> tuple[str, str] | None:
    """The tool or prompt that a call is about, as attribute and name."""
    attribute = TARGETS.get(call.method.name)
    name = None if attribute is None else getattr(call.params, "name", None)
    return None if attribute is None or not isinstance(name, str) else (attribute, name[:LONGEST])


class Names:
    """Names that have been found to mean something."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def bounded(self, target: tuple[str, str] | None, answered: bool) -> tuple[str, str] | None:
        """The target where it is known by now, or else None."""
        if target is None or target in self._known:
            return target
        if not answered or len(self._known) >= MOST:
            return None
        self._known.add(target)
        return target
