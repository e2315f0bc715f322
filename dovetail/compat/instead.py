"""Replacements for the methods, options and imports that Dovetail does not have."""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError

GUIDE = "docs/guides/protecting-a-server.md"
INSTEAD = {
    "from_fastapi": "tools are not generated; write the tools that a model needs",
    "from_openapi": "pass base_url= and credentials= in place of a client: docs/guides/openapi.md",
}
"""The replacements for missing methods."""
REFUSED = {
    "as_proxy": "remove it: middleware and the lifespan of a mounted server always run",
    "auth_server_provider": f"use auth=Provider(…): {GUIDE}",
    "event_store": "use http_app(events=…): docs/guides/http.md",
    "max_request_body_size": "use limits=Limits(http_body=…)",
    "max_sessions": "use limits=Limits(sessions=…)",
    "middleware": "wrap the application that http_app() returns",
    "mount_path": "mount http_app() in your own application",
    "retry_interval": "use limits=Limits(retry=…)",
    "sampling_handler": "sampling raises CannotAsk if the client has no model",
    "serializer": "return the text to send from the tool",
    "session_idle_timeout": "use limits=Limits(session_idle=…)",
    "session_state_store": "state belongs to one process; return a handle instead: "
    "docs/guides/context.md",
    "subscriptions": "use backend= to notify the clients of all processes: "
    "docs/guides/scale-out.md",
    "tool_names": 'use tools={"old": {"name": "new"}}; the prefix is added',
    "uvicorn_config": "use uvicorn.run(server.http_app(), …)",
}
"""The replacements for missing options."""

RATES = "use FastMCP(rates=…): docs/guides/limits-and-audit.md"
ELSEWHERE = {
    "RateLimitingMiddleware": RATES,
    "ResponseCachingMiddleware": "use FastMCP(cache=…): docs/guides/caching.md",
    "SlidingWindowRateLimitingMiddleware": RATES,
}
"""The replacements for names that cannot be imported from `dovetail.compat`."""


def refuse_options(options: Mapping[str, Any], owner: str) -> None:
    """Raise ConfigError for the first option that has a value."""
    for name, value in options.items():
        if value is not None and value != "auto":
            instead = REFUSED.get(name)
            raise ConfigError(
                f"{owner} has no option {name}=" + (f"; {instead}" if instead else "")
            )


def missing_attribute(owner: str, name: str) -> AttributeError:
    """Return the error for a method that Dovetail does not have."""
    return AttributeError(
        f"dovetail.compat has no {owner}.{name}" + (f": {INSTEAD[name]}" if name in INSTEAD else "")
    )
