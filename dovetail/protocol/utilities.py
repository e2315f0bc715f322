"""Utilities of a server: log messages, argument completion, and one stream of changes.

https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/logging
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

from typing import Any, ClassVar, Literal, get_args

from .base import Params, Result, Wire

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
SEVERITY: dict[str, int] = {level: rank for rank, level in enumerate(get_args(Level))}
"""The rank of each level; a higher one is worse."""


class SetLevelParams(Params, kw_only=True):
    """From now on, only this level and worse."""

    level: Level


class LogParams(Params, kw_only=True):
    """One log message."""

    level: Level
    data: Any
    logger: str | None = None


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


class SubscriptionFilter(Wire):
    """What the client wants to hear of."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None
    """Of the extension for tasks."""


class ListenParams(Params, kw_only=True):
    """Opens the stream, and as an acknowledgement says what will come on it."""

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """The stream has ended in good order."""
