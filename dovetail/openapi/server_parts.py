"""What a server needs to offer an API: its name, its tools and the API itself."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urljoin

from msgspec import Struct

from ..errors import ConfigError
from ..limits import Limits
from ..net import origin, shown_url, split_origin
from ..protocol.tools import ToolAnnotations
from ..text import one_line, quote
from .api import HttpApi
from .documents import ApiDocuments, Source
from .parser import ApiOperation, check_version, parse_operations
from .search_tools import MAX_LISTED, SCHEMAS, SearchTools
from .security import ApiCredentials
from .selection import select

MAX_INFO_CHARS: Final = 200
HINTS: Final[Mapping[str, ToolAnnotations]] = {
    **dict.fromkeys(
        ("GET", "HEAD", "OPTIONS", "TRACE", "QUERY"), ToolAnnotations(read_only_hint=True)
    ),
    "DELETE": ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
    "PUT": ToolAnnotations(read_only_hint=False, idempotent_hint=True),
}
"""What the method of an operation says about it."""


class ApiServerParts(Struct, frozen=True, eq=False):
    """What a server needs to offer an API."""

    api: HttpApi
    name: str
    options: dict[str, Any]
    """The options of `Server` that the description determines."""
    tools: list[tuple[Callable[..., Any], dict[str, Any]]]
    """The functions of the tools, each with the options of `Server.add_tool`."""


def load_api(
    document: Source,
    *,
    base_url: str | None,
    credentials: Mapping[str, str],
    headers: Mapping[str, str],
    include: Iterable[str] | None,
    exclude: Iterable[str],
    search: bool | None,
    limits: Limits,
) -> ApiServerParts:
    """Read the description of an API. The arguments are those of `Server.from_openapi`."""
    documents = ApiDocuments(document, limits)
    check_version(documents)
    operations = select(parse_operations(documents), include, exclude)
    api = HttpApi(
        documents,
        operations,
        find_base_url(documents, base_url),
        ApiCredentials(documents, credentials),
        headers,
        limits,
    )
    info = documents.root.get("info").fields
    options: dict[str, Any] = {}
    if isinstance(version := info.get("version"), str) and version:
        options["version"] = one_line(version, MAX_INFO_CHARS)
    if len(operations) > MAX_LISTED if search is None else search:
        tools = _search_tools(api)
        options["instructions"] = (
            f"This server offers the {len(operations)} operations of an HTTP API. Find operations "
            "with `search`, read the input schema of one with `describe`, and call it with `call`."
        )
    else:
        tools = [(api.function(one.name), _tool_options(api, one)) for one in operations]
    title = info.get("title")
    name = one_line(title, MAX_INFO_CHARS) if isinstance(title, str) else ""
    return ApiServerParts(api, name or "api", options, tools)


def find_base_url(documents: ApiDocuments, base_url: str | None) -> str:
    """Return where the paths of the API begin: the given URL, or the first server of a description
    that was read from the same origin.

    Raises:
        ConfigError: There is no such URL.
    """
    from ..transports.http.client.http_transport import check_url

    url = _first_server(documents) if base_url is None else check_url(base_url)
    if not url.startswith(("http://", "https://")) or "?" in url:
        raise ConfigError(
            f"base_url={quote(shown_url(url))} must be an http or https URL without a query"
        )
    return url.rstrip("/")


def _first_server(documents: ApiDocuments) -> str:
    servers = documents.root.fields.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {}
    template = str(first.get("url", "/")) if isinstance(first, Mapping) else "/"
    variables = first.get("variables") if isinstance(first, Mapping) else None
    for name, variable in variables.items() if isinstance(variables, Mapping) else ():
        if isinstance(variable, Mapping):
            template = template.replace(f"{{{name}}}", str(variable.get("default", "")))
    shown = one_line(template)
    advice = (
        "Pass base_url=… (or --base-url) to say where requests, and your credentials, may be sent"
    )
    location = documents.main.location
    if not documents.main.is_web:
        raise ConfigError(
            f"The description was not read from a URL, so its server ({shown}) is not trusted. "
            f"{advice}"
        )
    try:
        found = urljoin(location, template)
        is_same = split_origin(found) == split_origin(location)
    except ValueError:
        is_same = False
    if not is_same:
        raise ConfigError(
            f"The description was read from {origin(location)}, but names another server "
            f"({shown}), which is not trusted. {advice}"
        )
    return found


def _tool_options(api: HttpApi, operation: ApiOperation) -> dict[str, Any]:
    return {
        "name": operation.name,
        "title": operation.title,
        "description": operation.description,
        "schema": api.input_schema(operation.name),
        "annotations": HINTS.get(operation.method),
    }


def _search_tools(api: HttpApi) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    tools = SearchTools(api)
    read_only = ToolAnnotations(read_only_hint=True)
    about = {
        "search": "Search for operations of the API by keywords; the best match comes first. "
        "Read the input schema of an operation with `describe`, then call it with `call`.",
        "describe": "Return the description and the input schema of an operation.",
        "call": "Call an operation of the API. Its arguments are checked before anything is sent.",
    }
    functions: dict[str, Callable[..., Any]]
    functions = {"search": tools.search, "describe": tools.describe, "call": tools.call}
    return [
        (
            functions[name],
            {
                "name": name,
                "description": about[name],
                "schema": SCHEMAS[name],
                "annotations": None if name == "call" else read_only,
            },
        )
        for name in functions
    ]
