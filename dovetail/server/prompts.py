"""Prompts (templates that a user picks and fills in), and the completion of arguments for prompts
and resource templates.

The arguments of a prompt are strings on the wire and are converted to the types of the function's
parameters.

A completer is a function that is called with the value typed so far and, if it has a second
parameter, with the arguments already chosen:
`def cities(value: str, chosen: dict[str, str]) -> list[str]`. A completer can also be a plain list
of values; only matching values are sent. In both cases, the best matches come first: values that
start with the typed text, then values that contain it, then values that contain its letters in
order. Values from a function that do not match come last. At most 100 values are sent, together
with the total number of values. A value may also be a dict, `{"value": …, "description": …}`; only
the value is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigError, InternalError, InvalidParams
from ..limits import Limits
from ..protocol.content import Role
from ..protocol.prompts import GetPromptResult, Message, Prompt, PromptArgument
from ..protocol.utilities import CompleteResult, Completion
from .context import Context
from .media import Media
from .registry import parse_scopes
from .tools import content_block, definition_fields

if TYPE_CHECKING:
    from .options import PromptOptions
    from .signature import Signature

MAX_VALUES = 100
"""The maximum number of completions in one answer, as the specification requires."""
_NO_MATCH = 3
Source = Callable[..., Any] | Iterable[str | Mapping[str, Any]]


class Completers(Struct, eq=False):
    """The completers for one prompt or template, by argument."""

    owner: str
    arguments: Sequence[str]
    sources: dict[str, Source] = {}

    def add(self, argument: str, source: Source) -> None:
        """Add a function or a list that completes an argument; raise ConfigError if there is no
        such argument."""
        if argument not in self.arguments:
            known = ", ".join(self.arguments) or "none"
            raise ConfigError(
                f"{self.owner} has no argument named {argument!r}; its arguments are {known}"
            )
        self.sources[argument] = source

    async def complete(
        self, argument: str, typed: str, chosen: dict[str, str], limits: Limits
    ) -> CompleteResult:
        """Return the values that match the text typed so far."""
        if argument not in self.arguments:
            raise InvalidParams(
                f"There is no argument named {argument!r}; the arguments are "
                f"{sorted(self.arguments)}",
                parameter="argument.name",
            )
        source = self.sources.get(argument, ())
        found: Any = source
        if callable(source):
            from inspect import iscoroutinefunction

            from .execution import run_function

            args = (typed, chosen)[: _arity(source)]
            found = await run_function(source, iscoroutinefunction(source), args, {}, limits)
        if isinstance(found, CompleteResult):
            return replace(found, completion=_bounded(found.completion))
        if not isinstance(found, Completion):
            values = map(_value, found or ())
            found = Completion(values=rank(values, typed, keep_others=callable(source)))
        return CompleteResult(completion=_bounded(found))


def rank(values: Iterable[str], typed: str, *, keep_others: bool = False) -> list[str]:
    """Return the values that match the typed text, best first, without duplicates; with
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


def _value(item: Any) -> str:
    """Return the text of a completion. The protocol has no field for its description."""
    if not isinstance(item, Mapping):
        return str(item)
    if "value" not in item:
        raise TypeError(
            f"A completer must return strings, or dicts with the key 'value', not {item!r}"
        )
    return str(item["value"])


def _bounded(completion: Completion) -> Completion:
    values = [_value(item) for item in completion.values]
    total = len(values) if completion.total is None else completion.total
    has_more = total > len(values) if completion.has_more is None else completion.has_more
    return Completion(values[:MAX_VALUES], total, has_more or len(values) > MAX_VALUES)


def _arity(function: Callable[..., Any]) -> int:
    from inspect import Parameter, signature

    parameters = signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters)


# --------------------------------------------------------------------------------------------------
# prompts


class RegisteredPrompt(Struct, frozen=True, eq=False):
    """A prompt in the registry."""

    definition: Prompt
    signature: Signature
    completers: Completers
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs to get the prompt."""


def compile_prompt(function: Callable[..., Any], options: PromptOptions) -> RegisteredPrompt:
    """Compile a function into a prompt; the options are the same as for `Server.prompt`."""
    from .signature import Signature

    signature = Signature(function, context_type=Context, name=options.get("name"))
    arguments = [
        PromptArgument(
            name=parameter.name, description=parameter.description, required=parameter.required
        )
        for parameter in signature.parameters
    ]
    return RegisteredPrompt(
        Prompt(**definition_fields(signature, options), arguments=arguments or None),
        signature,
        Completers(signature.name, [argument.name for argument in arguments]),
        parse_scopes(options.get("scopes", ()), f"Prompt {signature.name!r}"),
    )


def bind_arguments(
    prompt: RegisteredPrompt, arguments: dict[str, str], context: Context
) -> tuple[Any, Any]:
    """Return the positional and keyword arguments for the function."""
    try:
        return prompt.signature.bind_values(arguments, context)
    except InvalidParams as error:
        raise InvalidParams(
            f"Prompt {prompt.definition.name!r}: {error}", data=error.data
        ) from None


def make_prompt_result(prompt: RegisteredPrompt, value: Any) -> GetPromptResult:
    """Turn the return value of a prompt function into messages."""
    if isinstance(value, GetPromptResult):
        return value
    items = value if isinstance(value, list | tuple) else [value]
    return GetPromptResult(
        messages=[_message(item) for item in items], description=prompt.definition.description
    )


def _message(item: Any) -> Message:
    if not isinstance(item, Message):
        return Message("user", content_block(item))
    if item.role not in get_args(Role):
        raise InternalError(
            f"The role of a prompt message must be 'user' or 'assistant', not {item.role!r}"
        )
    content: Any = item.content
    return Message(item.role, content.content()) if isinstance(content, Media) else item
