"""What Dovetail does not have, and what to use instead: methods, options and names to import."""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError

INSTEAD = {
    "add_middleware": "pass async functions of (call, next) to FastMCP(middleware=[…]): "
                      "docs/guides/middleware.md",
    "as_proxy": "there are no proxies yet",
    "call_tool": "use Client(server), in the same process: docs/guides/testing.md",
    "delete_state": "there is no state per session; return a handle, as "
                    "docs/guides/context.md shows",
    "disable": "remove_tool() removes a tool and notifies clients",
    "enable": "add_tool() adds a tool and notifies clients",
    "from_fastapi": "write the tools that a model needs; they are not generated",
    "from_openapi": "write the tools that a model needs; they are not generated",
    "get_prompt": "use Client(server), in the same process: docs/guides/testing.md",
    "get_state": "there is no state per session; return a handle, as docs/guides/context.md shows",
    "get_tools": "use Client(server).list_tools(): docs/guides/testing.md",
    "import_server": "pass the functions to add_tool() of one server",
    "list_tools": "use Client(server).list_tools(): docs/guides/testing.md",
    "mount": "pass the functions to add_tool() of one server, or mount http_app() of each in "
             "one application",
    "session_id": "there is no state per session; return a handle, as docs/guides/context.md shows",
    "set_state": "there is no state per session; return a handle, as docs/guides/context.md shows",
}  # fmt: skip
"""What to use instead of missing methods."""
REFUSED = {
    "app": "ui= and visibility=: docs/guides/apps.md",
    "auth_server_provider": "auth=Provider(…): docs/guides/protecting-a-server.md",
    "enabled": "remove_tool()",
    "event_store": "http_app(events=…): docs/guides/http.md",
    "exclude_args": "a parameter of the type Context, or no parameter",
    "debug": 'log_level="DEBUG"',
    "max_request_body_size": "limits=Limits(incoming=…)",
    "max_sessions": "limits=Limits(sessions=…)",
    "middleware": "nothing: wrap the application that http_app() returns",
    "mount_path": "http_app(), mounted in an application of your own",
    "providers": "add_tool(), add_resource() and add_prompt()",
    "retry_interval": "limits=Limits(retry=…)",
    "sampling_handler": "nothing: clients without a model raise CannotAsk",
    "security": "nothing: a variable of a template matches a slash only if it is written {+name}",
    "serializer": "a tool that returns what is to be sent",
    "session_idle_timeout": "limits=Limits(session_idle=…)",
    "session_state_store": "handles, as there is no state per session: docs/guides/context.md",
    "token_verifier": "auth=Bearer(…): docs/guides/protecting-a-server.md",
    "transforms": "functions with the names that you want",
    "transport_security": "run(…, hosts=[…], origins=[…]): docs/guides/http.md",
    "uvicorn_config": "uvicorn.run(server.http_app(), …)",
    "version": "nothing: a single tool has no version",
}
"""What to use instead of missing options."""

ELSEWHERE = {
    "AuthSettings": "auth=Bearer(…): docs/guides/protecting-a-server.md",
    "Client": "from dovetail import Client: docs/guides/client.md",
    "Depends": "call it in the function, or make it in the lifespan: docs/guides/context.md",
    "Elicit": "await ctx.elicit(…) in the function, in every era: docs/guides/asking.md",
    "Middleware": "write an async function of (call, next): docs/guides/middleware.md",
    "Resolve": "await ctx.elicit(…) in the function, in every era: docs/guides/asking.md",
    "Tool": "pass functions to add_tool()",
    "TransportSecuritySettings": "run(…, hosts=[…], origins=[…]): docs/guides/http.md",
}
"""What to use instead of names that cannot be imported from here."""


def refuse_options(options: Mapping[str, Any], owner: str) -> None:
    """Raise ConfigError for the first option that has a value."""
    for name, value in options.items():
        if value is not None and value != "auto":
            instead = REFUSED.get(name)
            raise ConfigError(
                f"{owner} has no option {name}=" + (f"; use {instead}" if instead else "")
            )


def missing_attribute(owner: str, name: str) -> AttributeError:
    """Make the error for a method that does not exist here."""
    return AttributeError(
        f"dovetail.compat has no {owner}.{name}" + (f": {INSTEAD[name]}" if name in INSTEAD else "")
    )
