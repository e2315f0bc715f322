"""`dovetail read TARGET URI`: print the contents of a resource."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..errors import InvalidParams, MethodNotFound, NotFound
from ..text import closest_name
from .content import add_content_options, resource_text
from .options import add_client_options
from .output import dim, print_json, print_line, print_text_or_json
from .session import run_session
from .suggest import list_if_possible

if TYPE_CHECKING:
    from .. import Client
    from ..protocol.content import ResourceContents

SIMILARITY = 0.85
"""How similar a suggested URI must be. The URIs on one server often start with the same text."""


def add_read_arguments(parser: ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("uri", metavar="URI", help="the URI of the resource")
    add_content_options(parser)


def run_read(options: Namespace) -> None:
    run_session(read_resource, show_resource, options)


async def read_resource(client: "Client", options: Namespace) -> "list[ResourceContents]":
    """Read the resource. The server's error says why the request failed. If the server lists a
    similar URI, that URI is suggested."""
    try:
        return await client.read_resource(options.uri)
    except (InvalidParams, MethodNotFound) as refusal:
        uris = [resource.uri for resource in await list_if_possible(client.list_resources)]
        if options.uri in uris or (close := closest_name(options.uri, uris, SIMILARITY)) is None:
            raise refusal
        raise NotFound(f"{str(refusal).rstrip('.')}. Did you mean {close}?") from None


def show_resource(parts: "list[ResourceContents]", options: Namespace) -> None:
    """Print the contents; if there are several, print the URI above each."""
    if options.json:
        print_json({"contents": parts})
        return
    for part in parts:
        if len(parts) > 1:
            print_line(dim(part.uri))
        print_text_or_json(resource_text(part, options.output))
