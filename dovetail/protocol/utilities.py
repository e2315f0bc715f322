"""Utilities of a server: log messages, argument completion, and streams of notifications.

https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/logging
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

from typing import Any, ClassVar, Literal, get_args

from .base import Params, Result, Wire

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
SEVERITY: dict[str, int] = {level: rank for rank, level in enumerate(get_args(Level))}
"""The rank of each level; higher is more severe."""


class SetLevelParams(Params, kw_only=True):
    """A request to set the lowest level of log messages that the client wants.

    Attributes:
        level: The lowest level.
    """

    level: Level


class LogParams(Params, kw_only=True):
    """One log message.

    Attributes:
        level: Severity, one of the eight levels of syslog.
        data: The message: any JSON value.
        logger: Name of the logger.
    """

    level: Level
    data: Any
    logger: str | None = None


class PromptReference(Wire, tag_field="type", tag="ref/prompt"):
    """The prompt whose argument is completed.

    Attributes:
        name: Name of the prompt.
        title: Name for people, shown instead of `name`.
    """

    name: str
    title: str | None = None
    type: ClassVar[str] = "ref/prompt"


class ResourceReference(Wire, tag_field="type", tag="ref/resource"):
    """The resource template whose variable is completed.

    Attributes:
        uri: The URI template.
    """

    uri: str
    type: ClassVar[str] = "ref/resource"


class CompletionArgument(Wire):
    """The argument that is being typed.

    Attributes:
        name: Name of the argument.
        value: What has been typed so far.
    """

    name: str
    value: str


class CompletionContext(Wire):
    """Arguments that are already chosen.

    Attributes:
        arguments: Their values by name.
    """

    arguments: dict[str, str] | None = None


class CompleteParams(Params, kw_only=True):
    """A request for possible values of an argument.

    Attributes:
        ref: The prompt or resource template.
        argument: The argument that is being typed.
        context: Arguments that are already chosen.
    """

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire):
    """Possible values of an argument.

    Attributes:
        values: At most 100 values, the best first.
        total: Total number of values, if known.
        has_more: Whether there are more than these.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The answer to a completion request.

    Attributes:
        completion: The values.
    """

    completion: Completion


class SubscriptionFilter(Wire):
    """The changes that a client wants to be notified of.

    Attributes:
        tools_list_changed: Changes to the list of tools.
        prompts_list_changed: Changes to the list of prompts.
        resources_list_changed: Changes to the list of resources.
        resource_subscriptions: URIs of individual resources.
        task_ids: Ids of tasks (tasks extension).
    """

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None
    """A field of the tasks extension."""


class ListenParams(Params, kw_only=True):
    """A request to open a stream of notifications, or the acknowledgement of what it will carry.

    Attributes:
        notifications: The changes.
    """

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """The result of a stream of notifications that ended normally."""
