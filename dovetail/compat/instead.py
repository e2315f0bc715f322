"""Replacements for the methods, options and imports that Dovetail does not have."""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError

INSTEAD = {
    "add_middleware": "pass async functions that accept (call, next) to FastMCP(middleware=[…]): "
                      "docs/guides/middleware.md",
    "as_proxy": "use Gateway(target), or mount(target): docs/guides/gateway.md",
    "call_tool": "use Client(server) in the same process: docs/guides/testing.md",
    "delete_state": "there is no session state; return a handle instead: "
                    "docs/guides/context.md",
    "disable": "remove_tool() removes a tool and notifies clients",
    "enable": "add_tool() adds a tool and notifies clients",
    "from_fastapi": "tools are not generated; write the tools that a model needs",
    "from_openapi": "pass base_url= and credentials= in place of a client: docs/guides/openapi.md",
    "get_prompt": "use Client(server) in the same process: docs/guides/testing.md",
    "get_state": "there is no session state; return a handle instead: docs/guides/context.md",
    "get_tools": "use Client(server).list_tools(): docs/guides/testing.md",
    "import_server": "use mount(): docs/guides/gateway.md#mount-a-server-in-another",
    "list_tools": "use Client(server).list_tools(): docs/guides/testing.md",
    "session_id": "there is no session state; return a handle instead: docs/guides/context.md",
    "set_state": "there is no session state; return a handle instead: docs/guides/context.md",
}  # fmt: skip
"""The replacements for missing methods."""
REFUSED = {
    "app": "use ui= and visibility=: docs/guides/apps.md",
    "auth_server_provider": "use auth=Provider(…): docs/guides/protecting-a-server.md",
    "enabled": "use remove_tool()",
    "event_store": "use http_app(events=…): docs/guides/http.md",
    "exclude_args": "use a Context parameter instead, or remove the parameter",
    "debug": 'use log_level="DEBUG"',
    "max_request_body_size": "use limits=Limits(http_body=…)",
    "max_sessions": "use limits=Limits(sessions=…)",
    "middleware": "wrap the application that http_app() returns",
    "mount_path": "mount http_app() in your own application",
    "providers": "use add_tool(), add_resource() and add_prompt()",
    "retry_interval": "use limits=Limits(retry=…)",
    "sampling_handler": "sampling raises CannotAsk if the client has no model",
    "security": "a template variable matches a slash only if it is written {+name}",
    "serializer": "return the text to send from the tool",
    "session_idle_timeout": "use limits=Limits(session_idle=…)",
    "session_state_store": "there is no session state; return a handle instead: "
    "docs/guides/context.md",
    "token_verifier": "use auth=Bearer(…): docs/guides/protecting-a-server.md",
    "transforms": "give the functions the names you want",
    "transport_security": "use run(…, hosts=[…], origins=[…]): docs/guides/http.md",
    "uvicorn_config": "use uvicorn.run(server.http_app(), …)",
    "version": "individual tools have no version",
}
"""The replacements for missing options."""

ELSEWHERE = {
    "AuthSettings": "use auth=Bearer(…): docs/guides/protecting-a-server.md",
    "Depends": "call the dependency in the function, or create it in the lifespan: "
    "docs/guides/context.md",
    "Elicit": "call ctx.elicit(…) in the function; it works in every era: docs/guides/asking.md",
    "Middleware": "write an async function that accepts (call, next): docs/guides/middleware.md",
    "Resolve": "call ctx.elicit(…) in the function; it works in every era: docs/guides/asking.md",
    "TransportSecuritySettings": "use run(…, hosts=[…], origins=[…]): docs/guides/http.md",
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
