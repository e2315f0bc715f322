"""FastMCP's providers, each of which adds components to servers."""

from functools import partial, partialmethod
from typing import Any

from ..server.server import decorate


class LocalProvider:
    """Components for the servers that this provider is added to, now or later."""

    def __init__(self, tools: Any = (), **ignored: Any) -> None:
        self._components: list[Any] = [("tool", tool, (), {}) for tool in tools]
        self._servers: list[Any] = []

    def _add(self, kind: str, component: Any, /, *address: Any, **options: Any) -> Any:
        self._components.append((kind, component, address, options))
        for server in self._servers:
            server._register(kind, component, *address, **options)
        return component

    def _decorate(self, kind: str, function_or_name: Any = None, /, **options: Any) -> Any:
        return decorate(partial(self._add, kind), function_or_name, options)

    add_tool, add_resource = partialmethod(_add, "tool"), partialmethod(_add, "resource")
    add_prompt, tool = partialmethod(_add, "prompt"), partialmethod(_decorate, "tool")
    prompt = partialmethod(_decorate, "prompt")

    def resource(self, uri: str, **options: Any) -> Any:
        """Register a function as a resource or as a template."""
        return lambda function: self._add("resource", function, uri, **options)

    def provide(self, server: Any) -> None:
        """Add the components to a server."""
        self._servers.append(server)
        for kind, component, address, options in self._components:
            server._register(kind, component, *address, **options)
