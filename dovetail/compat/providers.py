"""FastMCP's providers and transforms, as far as they add components to servers."""

import json
from base64 import b64encode
from functools import partial, partialmethod
from typing import Annotated, Any

from ..errors import NotFound
from ..server.server import decorate
from .dependencies import get_server


class LocalProvider:
    """Components for the servers that this provider is added to, now or later."""

    def __init__(self, *ignored: Any, tools: Any = (), **options: Any) -> None:
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


async def list_prompts() -> str:
    """List all prompts and their arguments, as JSON."""
    found = []
    for one in await get_server().list_prompts():
        arguments = [_pick(each, "name", "description", "required") for each in one.arguments or ()]
        found.append({**_pick(one, "name", "description"), "arguments": arguments})
    return json.dumps(found, indent=2)


async def get_prompt(
    name: Annotated[str, "The name of the prompt to get"],
    arguments: Annotated[dict[str, Any] | None, "Optional arguments for the prompt"] = None,
) -> str:
    """Return the messages of a prompt, as JSON."""
    await get_server().get_prompt(name)  # raises NotFound
    messages = (await get_server().render_prompt(name, arguments or {})).messages
    found = [one.model_dump(by_alias=True, exclude_none=True) for one in messages]
    for each in found:
        each["content"] = each["content"].get("text", each["content"])
    return json.dumps({"messages": found}, indent=2)


async def list_resources() -> str:
    """List all resources and resource templates, as JSON."""
    resources = await get_server().list_resources()
    templates = await get_server().list_resource_templates()
    found = [_pick(one, "uri", "name", "description", "mime_type") for one in resources]
    found += [_pick(one, "uri_template", "name", "description") for one in templates]
    return json.dumps(found, indent=2)


async def read_resource(uri: Annotated[str, "The URI of the resource to read"]) -> str:
    """Read a resource, or a template whose variables are filled in. Bytes are encoded in base64."""
    try:
        parts = await get_server().read_resource(uri)
    except NotFound:
        raise NotFound(f"Unknown resource: {uri!r}") from None
    for each in (found := [_pick(one, "content", "mime_type") for one in parts]):
        if isinstance(each["content"], bytes):
            each["content"] = b64encode(each["content"]).decode()
    return str(found[0]["content"]) if len(found) == 1 else json.dumps(found)


def _pick(value: Any, *names: str) -> dict[str, Any]:
    found = {name: getattr(value, name) for name in names}
    return found | {"required": bool(found["required"])} if "required" in found else found


PromptsAsTools = partial(LocalProvider, tools=(list_prompts, get_prompt))
ResourcesAsTools = partial(LocalProvider, tools=(list_resources, read_resource))
