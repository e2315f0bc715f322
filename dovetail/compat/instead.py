"""What is not here, and what to use instead: methods by name, options by name."""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError

INSTEAD = {
    "add_middleware": "give FastMCP(middleware=[…]) async functions of (call, next): "
                      "docs/guides/middleware.md",
    "as_proxy": "there are no proxies yet",
    "call_tool": "Client(server) calls a server in the same process: docs/guides/testing.md",
    "delete_state": "nothing is kept per session; hand out a handle, as "
                    "docs/guides/context.md shows",
    "disable": "remove_tool() takes a tool out, and clients are told",
    "enable": "add_tool() puts a tool in, and clients are told",
    "from_fastapi": "write the tools that a model needs; nothing is generated",
    "from_openapi": "write the tools that a model needs; nothing is generated",
    "get_prompt": "Client(server) asks a server in the same process: docs/guides/testing.md",
    "get_state": "nothing is kept per session; hand out a handle, as docs/guides/context.md shows",
    "get_tools": "Client(server).list_tools() does: docs/guides/testing.md",
    "import_server": "give the functions to add_tool() of one server",
    "list_tools": "Client(server).list_tools() does: docs/guides/testing.md",
    "mount": "give the functions to add_tool() of one server, or mount http_app() of each in "
             "one application",
    "session_id": "nothing is kept per session; hand out a handle, as docs/guides/context.md shows",
    "set_state": "nothing is kept per session; hand out a handle, as docs/guides/context.md shows",
}  # fmt: skip
"""What to use for methods that are not here."""
REFUSED = {
    "app": "ui= and visibility=: docs/guides/apps.md",
    "auth_server_provider": "auth=Provider(…): docs/guides/protecting-a-server.md",
    "enabled": "remove_tool()",
    "event_store": "http_app(events=…): docs/guides/http.md",
    "exclude_args": "a parameter of the type Context, or no parameter",
    "debug": 'log_level="DEBUG"',
    "max_request_body_size": "limits=Limits(incoming=…)",
    "max_sessions": "limits=Limits(sessions=…)",
    "middleware": "nothing: wrap the application that http_app() gives in what you like",
    "mount_path": "http_app(), mounted in an application of your own",
    "providers": "add_tool(), add_resource() and add_prompt()",
    "retry_interval": "limits=Limits(retry=…)",
    "sampling_handler": "nothing: clients without a model raise CannotAsk",
    "security": "nothing: a template's variables never match a slash, unless it says {+name}",
    "serializer": "a tool that returns what it wants to be sent",
    "session_idle_timeout": "limits=Limits(session_idle=…)",
    "session_state_store": "nothing is kept per session: docs/guides/context.md",
    "token_verifier": "auth=Bearer(…): docs/guides/protecting-a-server.md",
    "transforms": "functions with the names that you want",
    "transport_security": "run(…, hosts=[…], origins=[…]): docs/guides/http.md",
    "uvicorn_config": "uvicorn.run(server.http_app(), …)",
    "version": "nothing: a tool has no version of its own",
}
"""What to use for options that are not taken."""

ELSEWHERE = {
    "AuthSettings": "auth=Bearer(…): docs/guides/protecting-a-server.md",
    "Client": "from dovetail import Client: docs/guides/client.md",
    "Depends": "call it in the function, or make it in the lifespan: docs/guides/context.md",
    "Elicit": "await ctx.elicit(…) in the function, in every era: docs/guides/asking.md",
    "Middleware": "write an async function of (call, next): docs/guides/middleware.md",
    "Resolve": "await ctx.elicit(…) in the function, in every era: docs/guides/asking.md",
    "Tool": "give functions to add_tool()",
    "TransportSecuritySettings": "run(…, hosts=[…], origins=[…]): docs/guides/http.md",
}
"""What to use for names that cannot be imported from here."""


def refuse(options: Mapping[str, Any], where: str) -> None:
    """Complain of what is given and not taken."""
    for name, value in options.items():
        if value is not None and value != "auto":
            instead = REFUSED.get(name)
            raise ConfigError(f"{where} takes no {name}=" + (f"; use {instead}" if instead else ""))


def lacks(what: str, name: str) -> AttributeError:
    """What is raised for a method that is not here."""
    return AttributeError(
        f"{what}.{name} is not here" + (f": {INSTEAD[name]}" if name in INSTEAD else "")
    )
