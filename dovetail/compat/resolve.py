"""`Resolve`: parameters of tools that a function provides, and that may ask the client for them."""

from typing import Any, Generic, TypeVar, get_args, get_origin

from ..errors import ToolError
from ..limits import DEFAULT
from ..server.context import Accepted, Cancelled, Declined, Elicited
from ..server.execution import run_function
from ..server.signature import is_async
from .dependencies import Dependency, get_context

T = TypeVar("T")
OUTCOMES = (Accepted, Declined, Cancelled)


class Elicit(Generic[T]):
    """A form, whose answer is the value."""

    def __init__(self, message: str, schema: type[T]) -> None:
        self.message, self.schema = message, schema

    async def ask(self, context: Any) -> Elicited[Any]:
        """Ask the user to fill in the form."""
        return await context.elicit(self.message, self.schema)  # type: ignore[no-any-return]


class Sample:
    """A conversation, whose next message is the value."""

    def __init__(self, messages: Any, *, max_tokens: int, **options: Any) -> None:
        self.messages, self.options = messages, {"max_tokens": max_tokens, **options}

    async def ask(self, context: Any) -> Elicited[Any]:
        """Ask the client's model for the next message."""
        return Accepted(await context.session.create_message(self.messages, **self.options))


class ListRoots:
    """A question for the client's roots, which are the value."""

    async def ask(self, context: Any) -> Elicited[Any]:
        """Ask for the roots."""
        return Accepted(await context.session.list_roots())


class Resolve(Dependency):
    """A parameter `Annotated[T, Resolve(function)]`. If the function returns a question, the
    parameter receives the answer, and without an answer the call fails. A parameter whose type is
    `ElicitationResult` receives what the user decided."""

    takes_arguments, takes_outcome = True, False

    def typed(self, annotation: Any) -> Dependency:
        """Return the dependency for a parameter of this type."""
        typed = Resolve(self.factory)
        members = (annotation, *get_args(annotation))
        typed.takes_outcome = any((get_origin(one) or one) in OUTCOMES for one in members)
        return typed

    async def resolve(self, stack: Any, known: dict[Any, Any]) -> Any:
        """Return the value, or what the user decided."""
        outcome = await super().resolve(stack, known)
        if self.takes_outcome:
            return outcome
        if not isinstance(outcome, Accepted):
            name = getattr(self.factory, "__name__", "A question")
            raise ToolError(f"{name} was not answered: the user chose {outcome.action!r}")
        return outcome.data

    async def make(self, given: dict[str, Any], stack: Any) -> Any:
        """Call the function, and ask the question that it returns."""
        value = await run_function(self.factory, is_async(self.factory), (), given, DEFAULT)
        is_question = isinstance(value, Elicit | Sample | ListRoots)
        return await value.ask(get_context()) if is_question else Accepted(value)
