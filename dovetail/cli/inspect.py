"""`dovetail inspect TARGET`: show what a server is and what it offers."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import DovetailError, MethodNotFound, Unauthorized
from .arguments import schema_types
from .output import bold, dim, print_json, print_line, print_text

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.prompts import Prompt
    from ..protocol.tools import Tool

LABELS = {
    "tools": "tools",
    "resources": "resources",
    "resourceTemplates": "resource templates",
    "prompts": "prompts",
    "skills": "skills",
}


class ListsFailed(DovetailError):
    """Some lists failed; the others were printed."""


Argument = tuple[str, str, bool, str]
"""Name, type, whether it is required, description."""


async def list_features(client: "Client", options: Namespace) -> dict[str, Any]:
    """Return all that a server offers. A list that fails is empty, and its error is below
    "failures"."""
    lists: dict[str, Callable[[], Awaitable[list[Any]]]] = {
        "tools": client.list_tools,
        "resources": client.list_resources,
        "resourceTemplates": client.list_resource_templates,
        "prompts": client.list_prompts,
        "skills": client.list_skills,
    }
    found: dict[str, list[Any]] = {}
    failures: dict[str, str] = {}
    for name, list_all in lists.items():
        found[name] = []
        try:
            found[name] = await list_all()
        except Unauthorized:
            raise  # the next list would fail as well, and logging in helps
        except MethodNotFound:
            pass  # not offered
        except DovetailError as error:
            failures[name] = str(error) or type(error).__name__
    return {
        "server": client.server_info,
        "revision": client.revision,
        "capabilities": client.capabilities,
        "instructions": client.instructions,
        **found,
        **({"failures": failures} if failures else {}),
    }


def show_features(found: dict[str, Any], options: Namespace) -> None:
    """Print what a server offers; raise ListsFailed if it is not all."""
    if options.json:
        print_json(found)
    else:
        _print_features(found)
    if failures := found.get("failures"):
        raise ListsFailed(
            "; ".join(f"could not list {LABELS[name]}: {text}" for name, text in failures.items())
        )


def _print_features(found: dict[str, Any]) -> None:
    info = found["server"]
    print_line(
        bold(f"{info.name} {info.version}" if info else "unnamed server"),
        f", revision {found['revision']}",
    )
    for text in (info and info.title, info and info.description, found["instructions"]):
        if text:
            print_text(text)
    _print_section("Tools", found["tools"], "name", _tool_arguments)
    _print_section("Resources", found["resources"], "uri")
    _print_section("Resource templates", found["resourceTemplates"], "uri_template")
    _print_section("Prompts", found["prompts"], "name", _prompt_arguments)
    _print_section("Skills", found["skills"], "uri")


def _print_section(
    heading: str,
    items: list[Any],
    key: str,
    arguments: Callable[[Any], list[Argument]] = lambda item: [],
) -> None:
    if items:
        print_line()
        print_line(bold(heading))
    for item in items:
        name = getattr(item, key)
        title = getattr(item, "title", None) or (item.name if item.name != name else None)
        mime_type = getattr(item, "mime_type", None)
        print_line("  ", bold(name), *(f"  {note}" for note in (title, mime_type) if note))
        if item.description:
            print_line("    ", _first_line(item.description))
        if problem := getattr(item, "problem", None):
            print_line("    ", f"Cannot be used: {problem}")
        _print_arguments(arguments(item))


def _print_arguments(arguments: list[Argument]) -> None:
    """Print the arguments in columns; a star marks the required ones."""
    rows = [
        (name + "*" * required, type_, description)
        for name, type_, required, description in arguments
    ]
    name_width, type_width = (max((len(row[at]) for row in rows), default=0) for at in (0, 1))
    for name, type_, description in rows:
        print_line(
            f"      {name:{name_width}}  ",
            dim(f"{type_:{type_width}}"),
            f"  {_first_line(description)}".rstrip(),
        )


def _tool_arguments(tool: "Tool") -> list[Argument]:
    root = tool.input_schema
    properties, required = root.get("properties"), root.get("required")
    return [
        (
            name,
            _describe_type(schema, root),
            isinstance(required, list) and name in required,
            str(schema.get("description") or "") if isinstance(schema, dict) else "",
        )
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]


def _prompt_arguments(prompt: "Prompt") -> list[Argument]:
    return [
        (argument.name, "string", bool(argument.required), argument.description or "")
        for argument in prompt.arguments or ()
    ]


def _describe_type(schema: Any, root: dict[str, Any]) -> str:
    from msgspec import json

    names = "|".join(sorted(schema_types(schema, root))) or "any"
    default = schema.get("default") if isinstance(schema, dict) else None
    return names if default is None else f"{names} = {json.encode(default).decode()}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
