"""Completion of prompt and template arguments.
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion"""

from typing import ClassVar

from .base import Params, Result, Wire


class PromptReference(Wire, tag_field="type", tag="ref/prompt"):
    """Completes an argument of this prompt."""

    name: str
    title: str | None = None
    type: ClassVar[str] = "ref/prompt"


class ResourceReference(Wire, tag_field="type", tag="ref/resource"):
    """Completes a variable of this template."""

    uri: str
    type: ClassVar[str] = "ref/resource"


class CompletionArgument(Wire):
    """The argument being typed, and what stands there so far."""

    name: str
    value: str


class CompletionContext(Wire):
    """The arguments chosen before."""

    arguments: dict[str, str] | None = None


class CompleteParams(Params, kw_only=True):
    """Asks for values of an argument."""

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire):
    """At most 100 values, best first."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The values found."""

    completion: Completion
