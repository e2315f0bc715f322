"""One stream of changes, stateless era.
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions"""

from .base import Params, Result, Wire


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
