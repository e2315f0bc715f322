"""Server utilities: log messages, argument completion, and notification streams.

https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/logging
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

from typing import Any, ClassVar, Literal, get_args

from .base import Params, Result, Wire

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
SEVERITY: dict[str, int] = {level: rank for rank, level in enumerate(get_args(Level))}
"""The rank of each level, where a higher rank is more severe."""


class SetLevelParams(Params, kw_only=True):
    """A request to set the lowest level of log messages to send to the client.

    Attributes:
        level: The lowest level to send.
    """

    level: Level


class LogParams(Params, kw_only=True):
    """One log message.

    Attributes:
        level: The severity, which is one of the eight syslog levels.
        data: The message, which can be any JSON value.
        logger: The name of the logger.
    """

    level: Level
    data: Any
    logger: str | None = None


class PromptReference(Wire, tag_field="type", tag="ref/prompt"):
    """The prompt whose argument is completed.

    Attributes:
        name: The name of the prompt.
        title: The name shown to people instead of `name`.
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
    """The argument that the user is typing.

    Attributes:
        name: The name of the argument.
        value: The text typed so far.
    """

    name: str
    value: str


class CompletionContext(Wire):
    """The arguments that have already been chosen.

    Attributes:
        arguments: The values of these arguments, keyed by name.
    """

    arguments: dict[str, str] | None = None


class CompleteParams(Params, kw_only=True):
    """A request for possible values for an argument.

    Attributes:
        ref: The prompt or resource template.
        argument: The argument that the user is typing.
        context: The arguments that have already been chosen.
    """

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire):
    """Possible values for an argument.

    Attributes:
        values: At most 100 values, best first.
        total: The total number of values, if known.
        has_more: Whether there are more values than these.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The answer to a completion request.

    Attributes:
        completion: The suggested values.
    """

    completion: Completion


class SubscriptionFilter(Wire):
    """The changes that a client asks to be notified about.

    Attributes:
        tools_list_changed: Changes to the list of tools.
        prompts_list_changed: Changes to the list of prompts.
        resources_list_changed: Changes to the list of resources.
        resource_subscriptions: The URIs of individual resources.
        task_ids: The ids of tasks (tasks extension).
    """

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None
    """A field that the tasks extension defines."""


class ListenParams(Params, kw_only=True):
    """A request to open a notification stream, or the acknowledgement that lists its notifications.

    Attributes:
        notifications: The changes to report.
    """

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """The result of a notification stream that ended normally."""
