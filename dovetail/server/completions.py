"""Completion of arguments, for prompts and resource templates alike.

A completer is a function of the value typed so far and, if it takes a second parameter, of the
arguments chosen before: `def cities(value: str, chosen: dict[str, str]) -> list[str]`. A plain list
of values works too; only its values that match are sent. In both cases the best come first: values
that start with what was typed, then those that contain it, then those that have its letters in
order. Values of a function that do not match at all follow. At most 100 are sent, with the total.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from ..errors import ConfigError
from ..limits import Limits
from ..protocol.utilities import CompleteResult, Completion

MAX_VALUES = 100
"""Values in one answer, as the specification has it."""
_NO_MATCH = 3
Source = Callable[..., Any] | Iterable[str]


class Completers:
    """The completers of one prompt or template, by argument."""

    __slots__ = ("_arguments", "_owner", "_sources")

    def __init__(self, owner: str, arguments: Iterable[str]) -> None:
        self._owner = owner
        self._arguments = tuple(arguments)
        self._sources: dict[str, Source] = {}

    def add(self, argument: str, source: Source) -> None:
        """Complete an argument from a function or a list; ConfigError if it does not exist."""
        if argument not in self._arguments:
            known = ", ".join(self._arguments) or "none"
            raise ConfigError(
                f"{self._owner} has no argument {argument!r} to complete; its arguments: {known}"
            )
        self._sources = {**self._sources, argument: source}

    async def complete(
        self, argument: str, value: str, chosen: dict[str, str], limits: Limits
    ) -> CompleteResult:
        """Return the values that match what the user typed so far."""
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
                from .execution import run_in_thread

                found = await run_in_thread(lambda: function(*args), limits)
        if isinstance(found, CompleteResult):
            return replace(found, completion=_bounded(found.completion))
        if isinstance(found, Completion):
            return CompleteResult(completion=_bounded(found))
        values = rank([str(item) for item in found or ()], value, keep_others=callable(source))
        return CompleteResult(completion=_bounded(Completion(values=values)))


def rank(values: Iterable[str], typed: str, *, keep_others: bool = False) -> list[str]:
    """Return the values that match what was typed, best first, without duplicates; with
    `keep_others`, followed by the values that do not match."""
    prefix = typed.casefold()
    scored = [(_score(value.casefold(), prefix), value) for value in dict.fromkeys(values)]
    scored.sort(key=lambda pair: pair[0])  # stable: values with the same score keep their order
    return [value for score, value in scored if keep_others or score < _NO_MATCH]


def _score(value: str, typed: str) -> int:
    if value.startswith(typed):
        return 0
    if typed in value:
        return 1
    letters = iter(value)
    return 2 if all(letter in letters for letter in typed) else _NO_MATCH


def _bounded(completion: Completion) -> Completion:
    total = len(completion.values) if completion.total is None else completion.total
    more = (
        completion.has_more
        if completion.has_more is not None
        else total > min(MAX_VALUES, len(completion.values))
    )
    return Completion(
        completion.values[:MAX_VALUES], total, more or len(completion.values) > MAX_VALUES
    )


def _arity(function: Callable[..., Any]) -> int:
    from inspect import Parameter, signature

    parameters = signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters)
