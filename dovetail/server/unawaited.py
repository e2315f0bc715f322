"""A coroutine that is no answer until it is awaited.

`if ctx.elicit("Really?", bool):` is true without anybody having been asked: a coroutine is, as any
object. So what asks gives one that says what is missing, wherever it is taken for an answer.
"""

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Unawaited(Coroutine[Any, Any, T]):
    """A coroutine that is neither true nor false."""

    __slots__ = ("_inner", "_name")

    def __init__(self, inner: Coroutine[Any, Any, T], name: str) -> None:
        self._inner, self._name = inner, name

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        """As any coroutine."""
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        """As any coroutine."""
        return self._inner.throw(*error)

    def close(self) -> None:
        """As any coroutine."""
        self._inner.close()

    def __bool__(self) -> NoReturn:
        raise TypeError(self._advice())

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(self._advice())

    def _advice(self) -> str:
        self.close()
        return f"There is no answer yet: write `await ctx.{self._name}(…)`, in an `async def`"


def unawaited(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have an `async def` give such coroutines."""

    @wraps(function)
    def given(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return Unawaited(function(*args, **kwargs), function.__name__)

    return given
