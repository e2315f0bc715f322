"""What each side says it can do. Open objects: what a peer adds is kept."""

from typing import Any

from .base import Open


class ListCapability(Open):
    """A list that can be asked for, and may announce its changes."""

    list_changed: bool | None = None


class ResourcesCapability(Open):
    """Resources, their changes, and subscriptions to one."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class RootsCapability(Open):
    """Roots, and whether their changes are announced."""

    list_changed: bool | None = None


class SamplingCapability(Open):
    """Sampling; with tools or context only where these are said."""

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ElicitationCapability(Open):
    """Elicitation; an empty object means forms."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientCapabilities(Open):
    """What a client can be asked."""

    experimental: dict[str, Any] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class ServerCapabilities(Open):
    """What a server offers."""

    experimental: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: ListCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None
