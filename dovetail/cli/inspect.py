"""`dovetail inspect TARGET`: describe a server and list its features, or serve the page that shows
them (`--web`)."""

from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DovetailError, MethodNotFound, Unauthorized
from .options import add_client_options
from .output import AlreadyPrinted, bold, dim, print_json, print_line, print_table, print_text
from .schema_view import SchemaField, describe_result, list_fields
from .session import run_session
from .web import (
    add_web_options,
    check_web_options,
    is_recording,
    serve_page,
    serve_recording,
)

if TYPE_CHECKING:
    from .. import Client

LABELS = {
    "tools": "tools",
    "resources": "resources",
    "resourceTemplates": "resource templates",
    "prompts": "prompts",
    "skills": "skills",
}

HINTS = {
    "read_only_hint": "read-only",
    "destructive_hint": "destructive",
    "idempotent_hint": "idempotent",
    "open_world_hint": "open world",
}
"""The tool annotations that are shown if they are true."""


class ListsFailed(AlreadyPrinted):
    """Some lists could not be fetched; the others were printed."""


def add_inspect_arguments(parser: ArgumentParser) -> None:
    """Add the options of `dovetail inspect`."""
    add_client_options(parser)
    parser.add_argument(
        "--web",
        action="store_true",
        help="show a page on which you can call tools and see every message",
    )
    add_web_options(parser)


def inspect_server(options: Namespace) -> None:
    """List the features of a server, or serve its page or that of a recording."""
    if is_recording(options):
        if not options.web:
            raise ConfigError(
                f"{options.target} is a recording. Run: dovetail inspect {options.target} --web"
            )
        serve_recording(options)
    elif options.web:
        serve_page(options)
    else:
        check_web_options(options)
        run_session(list_features, show_features, options)


async def list_features(client: "Client", options: Namespace) -> dict[str, Any]:
    """Return everything that a server offers. If a list cannot be fetched, it is empty and its
    error is in "failures"."""
    lists: dict[str, Callable[[], Awaitable[list[Any]]]] = {
        "tools": client.list_tools,
        "resources": client.list_resources,
        "resourceTemplates": client.list_resource_templates,
        "prompts": client.list_prompts,
        "skills": client.list_skills,
    }
    # Read this first: a list that fails may also end the connection.
    about = {
        "server": client.server_info,
        "revision": client.revision,
        "capabilities": client.capabilities,
        "instructions": client.instructions,
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
    return {**about, **found, **({"failures": failures} if failures else {})}


def show_features(found: dict[str, Any], options: Namespace) -> None:
    """Print the features of a server; raise ListsFailed if some lists could not be fetched."""
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
    _print_section("Tools", found["tools"], "name")
    _print_section("Resources", found["resources"], "uri")
    _print_section("Resource templates", found["resourceTemplates"], "uri_template")
    _print_section("Prompts", found["prompts"], "name")
    _print_section("Skills", found["skills"], "uri")


def _print_section(heading: str, items: list[Any], key: str) -> None:
    if items:
        print_line()
        print_line(bold(heading))
    for item in items:
        name = getattr(item, key)
        title = getattr(item, "title", None) or (item.name if item.name != name else None)
        notes = (title, getattr(item, "mime_type", None), _hints(item))
        print_line("  ", bold(name), *(f"  {note}" for note in notes if note))
        if item.description:
            print_line("    ", _first_line(item.description))
        if problem := getattr(item, "problem", None):
            print_line("    ", f"Cannot be used: {problem}")
        rows = [
            (field.path + "*" * field.required, field.type, _first_line(field.description))
            for field in _arguments(item)
        ]
        if rows:
            print_table(rows, indent=6)
        if output := getattr(item, "output_schema", None):
            print_line("    Returns ", dim(describe_result(output)))


def _hints(item: Any) -> str:
    """Return what the server says about a tool's effects."""
    annotations = getattr(item, "annotations", None)
    named = [label for hint, label in HINTS.items() if getattr(annotations, hint, None) is True]
    return f"({', '.join(named)})" if named else ""


def _arguments(item: Any) -> list[SchemaField]:
    """Return the arguments of a tool or prompt in the order in which they are defined."""
    if (schema := getattr(item, "input_schema", None)) is not None:
        return list_fields(schema)
    return [
        SchemaField(argument.name, "string", bool(argument.required), argument.description or "")
        for argument in getattr(item, "arguments", None) or ()
    ]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
