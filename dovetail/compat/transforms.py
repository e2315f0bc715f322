"""FastMCP's transforms that add tools for what a client cannot reach otherwise."""

import json
from base64 import b64encode
from typing import Annotated, Any

from ..errors import NotFound
from .dependencies import get_server
from .providers import LocalProvider


def PromptsAsTools(server: Any = None) -> LocalProvider:
    """Return tools that list and get the prompts of a server."""
    return LocalProvider(tools=(list_prompts, get_prompt))


def ResourcesAsTools(server: Any = None) -> LocalProvider:
    """Return tools that list and read the resources of a server."""
    return LocalProvider(tools=(list_resources, read_resource))


async def list_prompts() -> str:
    """List all prompts and their arguments, as JSON."""
    found = [_pick(one, "name", "description", "arguments")
             for one in await get_server().list_prompts()]  # fmt: skip
    for prompt in found:
        arguments = [_pick(one, "name", "description", "required") for one in prompt["arguments"]]
        prompt["arguments"] = [{**one, "required": bool(one["required"])} for one in arguments]
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
    found = [_pick(one, "content", "mime_type") for one in parts]
    for each in found:
        if isinstance(each["content"], bytes):
            each["content"] = b64encode(each["content"]).decode()
    return str(found[0]["content"]) if len(found) == 1 else json.dumps(found)


def _pick(value: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}
