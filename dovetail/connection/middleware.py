"""Middleware: a function around every call, on either side.

    async def timed(call, next):
        result = await next(call)      # or return something else, or raise to refuse it
        return result

It sees the call with its params, may change them, and sees or replaces the result. Several are wrapped in the order
given: the first is the outermost.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from ..ports import Answer, Call

Middleware: TypeAlias = Callable[[Call, Answer], Awaitable[Any]]


def compose(middleware: Sequence[Middleware], innermost: Answer) -> Answer:
    """One answer out of many: the same function where there is no middleware."""
    answer = innermost
    for layer in reversed(middleware):
        answer = _wrap(layer, answer)
    return answer


def _wrap(layer: Middleware, inner: Answer) -> Answer:
    async def wrapped(call: Call) -> Any:
        return await layer(call, inner)

    return wrapped
