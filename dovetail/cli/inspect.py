"""`dovetail inspect TARGET`: who a server is and what it offers."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import MethodNotFound
from . import session
from .arguments import schema_types
from .output import bold, dim, print_json, print_line, print_text

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.prompts import Prompt
    from ..protocol.tools import Tool

HELP = "Show who a server is and what it offers."
Argument = tuple[str, str, bool, str]
"""Name, type, whether it is required, description."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but the target."""
    session.add_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Do it."""
    session.run_session(options, ask, show)


async def ask(client: "Client", options: argparse.Namespace) -> dict[str, Any]:
    """Everything the server says of itself."""
    return {
        "server": client.server_info,
        "revision": client.revision,
        "capabilities": client.capabilities,
        "instructions": client.instructions,
        "tools": await _listed(client.list_tools),
        "resources": await _listed(client.list_resources),
        "resourceTemplates": await _listed(client.list_resource_templates),
        "prompts": await _listed(client.list_prompts),
        "skills": await _listed(client.list_skills),
    }


async def _listed(list_all: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
    try:
        return await list_all()
    except MethodNotFound:
        return []  # it does not offer them


def show(found: dict[str, Any], options: argparse.Namespace) -> None:
    """Print it, a paragraph for each kind of thing."""
    if options.json:
        print_json(found)
        return
    info = found["server"]
    print_line(
        bold(f"{info.name} {info.version}" if info else "a server without a name"),
        f", revision {found['revision']}",
    )
    for text in filter(
        None, (info and info.title, info and info.description, found["instructions"])
    ):
        print_text(text)
    _section("Tools", found["tools"], "name", _of_tool)
    _section("Resources", found["resources"], "uri")
    _section("Resource templates", found["resourceTemplates"], "uri_template")
    _section("Prompts", found["prompts"], "name", _of_prompt)
    _section("Skills", found["skills"], "uri")


def _section(
    heading: str,
    things: list[Any],
    key: str,
    arguments: Callable[[Any], list[Argument]] = lambda thing: [],
) -> None:
    if things:
        print_line()
        print_line(bold(heading))
    for thing in things:
        name = getattr(thing, key)
        title = getattr(thing, "title", None) or (thing.name if thing.name != name else None)
        mime_type = getattr(thing, "mime_type", None)
        print_line("  ", bold(name), *(f"  {note}" for note in (title, mime_type) if note))
        if thing.description:
            print_line("    ", _first_line(thing.description))
        if problem := getattr(thing, "problem", None):
            print_line("    ", f"It cannot be used: {problem}")
        _table(arguments(thing))


def _table(arguments: list[Argument]) -> None:
    """The arguments in columns; a star marks what is required."""
    rows = [
        (name + "*" * required, type_, description)
        for name, type_, required, description in arguments
    ]
    names, kinds = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    for name, kind, description in rows:
        print_line(
            f"      {name:{names}}  ",
            dim(f"{kind:{kinds}}"),
            f"  {_first_line(description)}".rstrip(),
        )


def _of_tool(tool: "Tool") -> list[Argument]:
    root = tool.input_schema
    properties, required = root.get("properties"), root.get("required")
    return [
        (
            name,
            _type(schema, root),
            isinstance(required, list) and name in required,
            _description(schema),
        )
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]


def _of_prompt(prompt: "Prompt") -> list[Argument]:
    return [
        (one.name, "string", bool(one.required), one.description or "")
        for one in prompt.arguments or ()
    ]


def _type(schema: Any, root: dict[str, Any]) -> str:
    from msgspec import json

    names = "|".join(sorted(schema_types(schema, root))) or "any"
    default = schema.get("default") if isinstance(schema, dict) else None
    return names if default is None else f"{names} = {json.encode(default).decode()}"


def _description(schema: Any) -> str:
    return str(schema.get("description") or "") if isinstance(schema, dict) else ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
