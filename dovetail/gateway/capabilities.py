"""What a gateway declares: to callers, what servers offer; to servers, what callers may have."""

from collections.abc import Mapping
from typing import Any, Final

from ..connection.extension import settings_of
from ..extensions.apps.settings import ID as APPS, MIME_TYPE
from ..extensions.skills import ID as SKILLS
from ..protocol.lifecycle import ServerCapabilities
from ..protocol.tasks import EXTENSION as TASKS
from .tasks.gateway_tasks import CORE_CAPABILITY
from .upstreams import UpstreamSet

EVERYTHING: Final[Mapping[str, Any]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
    "tasks": CORE_CAPABILITY,
}
"""The capabilities of a gateway that does not know all of its servers yet."""
RELAYED_EXTENSIONS: Final = (SKILLS, APPS)
"""The extensions of servers that callers can use as if the gateway had them, besides tasks."""
DECLARED_EXTENSIONS: Final[Mapping[str, Any]] = {APPS: {"mimeTypes": [MIME_TYPE]}}
"""The extensions that the gateway declares when it reads lists, so that they are complete."""


def merge_capabilities(
    upstreams: UpstreamSet, own: ServerCapabilities, has_tasks: bool
) -> dict[str, Any]:
    """Return what at least one server offers. A server that is still starting may offer anything.

    Args:
        upstreams: The servers.
        own: What the gateway itself offers.
        has_tasks: Whether a server has tasks, or may have them.
    """
    own.extensions = _merge_extensions(upstreams, own.extensions or {}, has_tasks) or None
    servers = upstreams.servers.values()
    if any(server.is_unknown for server in servers):
        return {**EVERYTHING, **own}
    found: dict[str, Any] = {"tasks": CORE_CAPABILITY} if has_tasks else {}
    for server in servers:
        for kind in ("tools", "prompts", "resources", "completions", "logging"):
            declared = server.catalog.capabilities.get(kind)
            if declared is not None:
                found[kind] = {**found.get(kind, {}), **declared}
    for kind in ("tools", "prompts", "resources"):
        if kind in found:
            found[kind] = {**found[kind], "listChanged": True}
    return {**found, **own}


def _merge_extensions(
    upstreams: UpstreamSet, own: Mapping[str, Any], has_tasks: bool
) -> dict[str, Any]:
    offered: dict[str, Any] = {} if has_tasks else {TASKS: None}
    servers = upstreams.all().values()
    for id in RELAYED_EXTENSIONS:
        found = [settings_of(id, server.catalog.capabilities) for server in servers]
        if any(settings is not None for settings in found):
            offered[id] = {key: value for one in found for key, value in (one or {}).items()}
        elif not any(server.is_unknown for server in servers):
            offered[id] = None
    return {id: value for id, value in {**own, **offered}.items() if value is not None}
