"""Completion of arguments, for prompts and resource templates alike.

A completer is a function of the value typed so far, and, where it takes a second parameter, of the
arguments chosen before: `def cities(value: str, chosen: dict[str, str]) -> list[str]`. A plain list
of values works too: of it only what fits goes out. Either way the best come first: what starts with
the value, then what contains it, then what has its letters in order; what a function returns
besides that is its own business and follows. At most 100 go out, with the total.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from ..errors import ConfigError
from ..protocol.utilities import CompleteResult, Completion

MOST = 100
F = TypeVar("F", bound=Callable[..., Any])
Source = Callable[..., Any] | Iterable[str]
RunPlain = Callable[[Callable[[], Any]], Awaitable[Any]]


class Completers:
    """The completers of one prompt or template, by argument."""

    __slots__ = ("_arguments", "_owner", "_sources")

    def __init__(self, owner: str, arguments: Iterable[str]) -> None:
        self._owner = owner
        self._arguments = tuple(arguments)
        self._sources: dict[str, Source] = {}

    def add(self, argument: str, source: Source) -> None:
        """Complete this argument from there."""
        if argument not in self._arguments:
            there = ", ".join(self._arguments) or "none"
            raise ConfigError(
                f"{self._owner} has no argument {argument!r} to complete; there is {there}"
            )
        self._sources = {**self._sources, argument: source}

    async def complete(
        self, argument: str, value: str, chosen: dict[str, str], run: RunPlain
    ) -> CompleteResult:
        """The values that fit what was typed."""
        source = self._sources.get(argument)
        if source is None:
            return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
        found: Any = source
        if callable(source):
            from inspect import iscoroutinefunction

            function, args = source, (value, chosen)[: _arity(source)]
            if iscoroutinefunction(function):
                found = await function(*args)
            else:
                found = await run(lambda: function(*args))
        if isinstance(found, CompleteResult):
            return replace(found, completion=_bounded(found.completion))
        if isinstance(found, Completion):
            return CompleteResult(completion=_bounded(found))
        values = rank([str(item) for item in found or ()], value, keep=callable(source))
        return CompleteResult(completion=_bounded(Completion(values=values)))


def rank(values: Iterable[str], typed: str, *, keep: bool = False) -> list[str]:
    """Values that fit what was typed, best first, each once; with `keep`, the others after them."""
    wanted = typed.casefold()
    scored = [(_score(value.casefold(), wanted), value) for value in dict.fromkeys(values)]
    scored.sort(key=lambda pair: pair[0])  # stable: equals stay in their order
    return [value for score, value in scored if keep or score < UNFIT]


UNFIT = 3


def _score(value: str, wanted: str) -> int:
    if value.startswith(wanted):
        return 0
    if wanted in value:
        return 1
    letters = iter(value)
    return 2 if all(letter in letters for letter in wanted) else UNFIT


def _bounded(completion: Completion) -> Completion:
    total = len(completion.values) if completion.total is None else completion.total
    more = (
        completion.has_more
        if completion.has_more is not None
        else total > min(MOST, len(completion.values))
    )
    return Completion(completion.values[:MOST], total, more or len(completion.values) > MOST)


def _arity(function: Callable[..., Any]) -> int:
    from inspect import signature

    parameters = signature(function).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return 2
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)
