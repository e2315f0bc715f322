"""The operations of an API, from its description in OpenAPI 3.0, 3.1 or 3.2.

Descriptions often have small mistakes, so the parser is tolerant: it leaves out a parameter without
a place and adds one that only the path names. It refuses what would make a request wrong or unsafe.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from ..errors import ConfigError
from ..text import one_line, quote
from .documents import ApiDocuments, ApiNode
from .media import BodyKind, body_kind, choose_media, is_json
from .names import tool_names

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
VERSIONS: Final = ("3.0", "3.1", "3.2")
PLACES: Final = ("path", "query", "header", "cookie", "querystring")
DEFAULT_STYLES: Final = {"path": "simple", "header": "simple"}
"""The style of a parameter, by its place; `form` in all other places."""
RESERVED_HEADERS: Final = frozenset(
    (
        "accept", "content-type", "authorization", "host", "content-length", "transfer-encoding",
        "connection", "cookie", "te", "trailer", "upgrade", "keep-alive", "expect",
        "proxy-authorization", "proxy-connection",
    )
)  # fmt: skip
"""Headers that are never arguments: the request itself determines them."""
BODY: Final = "body"
"""The argument that holds the body of a request."""
_METHOD = re.compile(r"[A-Z][A-Z-]{0,19}")
_TEMPLATE = re.compile(r"\{([^{}]+)\}")


class ApiParameter(Struct, frozen=True, eq=False):
    """A parameter of an operation."""

    name: str
    place: str
    argument: str
    """The name of the argument, which differs from `name` if two parameters have the same name."""
    required: bool
    schema: ApiNode
    description: str | None
    style: str
    explode: bool
    allow_reserved: bool
    is_json: bool
    """Whether the value is sent as JSON."""


class ApiBody(Struct, frozen=True, eq=False):
    """The body of a request."""

    media_type: str
    kind: BodyKind
    schema: ApiNode
    required: bool
    description: str | None
    encoding: Mapping[str, Any]
    """How the fields of a form are sent, by name."""


class ApiOperation(Struct, frozen=True, eq=False):
    """An operation: a method and a path."""

    name: str
    id: str | None
    method: str
    path: str
    title: str | None
    description: str
    tags: tuple[str, ...]
    parameters: tuple[ApiParameter, ...]
    body: ApiBody | None
    accept: str
    """The media types that the description lists for replies, for the header Accept."""
    replies: Mapping[str, str]
    """The descriptions of replies by status, such as "404", "4XX" or "default"."""
    security: tuple[tuple[str, ...], ...] | None
    """The security schemes to use, as alternatives. An empty one needs no credentials. None if the
    description does not say."""


def check_version(documents: ApiDocuments) -> None:
    """Raise ConfigError if the description is not in OpenAPI 3.0, 3.1 or 3.2."""
    root = documents.root.fields
    if "swagger" in root:
        raise ConfigError(
            f"The description is in Swagger {one_line(str(root['swagger']))}, which is not "
            "supported. Convert it to OpenAPI 3 first, for example with `npx swagger2openapi` or "
            "at https://converter.swagger.io"
        )
    version = str(root.get("openapi", ""))
    if not version.startswith(tuple(f"{one}." for one in VERSIONS)):
        found = f"its version is {quote(version)}" if version else "it has no `openapi` version"
        raise ConfigError(
            f"This is not a description in OpenAPI {', '.join(VERSIONS[:-1])} or {VERSIONS[-1]}: "
            f"{found}"
        )


def is_legacy(documents: ApiDocuments) -> bool:
    """Return whether the schemas are those of OpenAPI 3.0, which are not quite JSON Schema."""
    return str(documents.root.fields.get("openapi", "")).startswith("3.0")


def parse_operations(documents: ApiDocuments) -> list[ApiOperation]:
    """Return the operations of an API, except those that `x-mcp: false` leaves out.

    Raises:
        ConfigError: A part of the description cannot be used.
    """
    found = [
        (item, operation, method, path)
        for path, item in _paths(documents)
        for method, operation in _operations_of(item)
        if _is_offered(documents.root, item, operation)
    ]
    names = tool_names(
        [
            (_text(operation.fields.get("operationId")), method, path)
            for _, operation, method, path in found
        ]
    )
    return [_parse_operation(documents, name, *one) for name, one in zip(names, found, strict=True)]


def _paths(documents: ApiDocuments) -> Iterator[tuple[str, ApiNode]]:
    paths = documents.root.get("paths")
    for path in paths.fields:
        if str(path).startswith("/"):
            yield path, documents.follow(paths.get(path))


def _operations_of(item: ApiNode) -> Iterator[tuple[str, ApiNode]]:
    more = item.get("additionalOperations")
    for methods, names in ((item, METHODS), (more, tuple(more.fields))):
        for name in names:
            operation, method = methods.get(name), str(name).upper()
            if isinstance(operation.value, Mapping):
                if not _METHOD.fullmatch(method) or method == "CONNECT":
                    raise ConfigError(f"The method {quote(method)} is not supported")
                yield method, operation


def _is_offered(*nodes: ApiNode) -> bool:
    """Return what `x-mcp` says at the operation, else at the path, else at the top."""
    marks = [mark for node in nodes if isinstance(mark := node.fields.get("x-mcp"), bool)]
    return marks[-1] if marks else True


def _parse_operation(
    documents: ApiDocuments,
    name: str,
    item: ApiNode,
    operation: ApiNode,
    method: str,
    path: str,
) -> ApiOperation:
    fields = operation.fields
    summary, description = _text(fields.get("summary")), _text(fields.get("description"))
    text = description or summary or _text(item.fields.get("summary")) or f"{method} {path}"
    if fields.get("deprecated") is True:
        text = f"Deprecated. {text}"
    replies = operation.get("responses")
    found = {str(status): documents.follow(replies.get(status)) for status in replies.fields}
    return ApiOperation(
        name=name,
        id=_text(fields.get("operationId")),
        method=method,
        path=path,
        title=summary if description else None,
        description=text,
        tags=tuple(tag for tag in _list(fields.get("tags")) if isinstance(tag, str)),
        parameters=tuple(_parse_parameters(documents, item, operation, path)),
        body=_parse_body(documents, operation),
        accept=_accept(found),
        replies={
            status: about
            for status, reply in found.items()
            if (about := _text(reply.fields.get("description")))
        },
        security=_parse_security(documents, fields),
    )


def _parse_parameters(
    documents: ApiDocuments, item: ApiNode, operation: ApiNode, path: str
) -> Iterator[ApiParameter]:
    in_path = dict.fromkeys(_TEMPLATE.findall(path))
    found: dict[tuple[str, str], ApiNode] = {}
    for owner in (item, operation):
        for value in _list(owner.fields.get("parameters")):
            node = documents.follow(ApiNode(value, owner.document))
            name, place = node.fields.get("name"), node.fields.get("in")
            if not isinstance(name, str) or place not in PLACES:
                continue
            if place == "header" and name.lower() in RESERVED_HEADERS:
                continue
            if place != "path" or name in in_path:
                found[name, place] = node
    for name in in_path:
        found.setdefault((name, "path"), ApiNode({}, operation.document))
    taken = {BODY}
    for (name, place), node in found.items():
        argument = name if name not in taken else f"{name}_{place}"
        taken.add(argument)
        yield _parse_parameter(documents, name, place, argument, node)


def _parse_parameter(
    documents: ApiDocuments, name: str, place: str, argument: str, node: ApiNode
) -> ApiParameter:
    fields = node.fields
    content = node.get("content")
    media = next(iter(content.fields), None)
    described = node if media is None else documents.follow(content.get(media))
    style = _text(fields.get("style")) or DEFAULT_STYLES.get(place, "form")
    explode = fields.get("explode")
    return ApiParameter(
        name=name,
        place=place,
        argument=argument,
        required=place == "path" or fields.get("required") is True,
        schema=described.get("schema"),
        description=_text(fields.get("description")),
        style=style,
        explode=explode if isinstance(explode, bool) else style in ("form", "deepObject", "cookie"),
        allow_reserved=fields.get("allowReserved") is True,
        is_json=media is not None and is_json(media),
    )


def _parse_body(documents: ApiDocuments, operation: ApiNode) -> ApiBody | None:
    body = documents.follow(operation.get("requestBody"))
    content = body.get("content")
    media = choose_media(content.fields)
    if media is None:
        return None
    described = documents.follow(content.get(media))
    schema = described.get("schema")
    encoding = described.fields.get("encoding")
    return ApiBody(
        media_type=media,
        kind=body_kind(media, documents.follow(schema).fields),
        schema=schema,
        required=body.fields.get("required") is True,
        description=_text(body.fields.get("description")),
        encoding=encoding if isinstance(encoding, Mapping) else {},
    )


def _accept(replies: Mapping[str, ApiNode]) -> str:
    media = [
        kind
        for status, reply in replies.items()
        if status.startswith("2") or status == "default"
        for kind in reply.get("content").fields
        if re.fullmatch(r"[\w.+*-]+/[\w.+*-]+", kind.partition(";")[0].strip(), re.ASCII)
    ]
    return ", ".join(
        dict.fromkeys([*(one.partition(";")[0].strip() for one in media), "*/*;q=0.1"])
    )


def _parse_security(
    documents: ApiDocuments, fields: Mapping[str, Any]
) -> tuple[tuple[str, ...], ...] | None:
    required = fields.get("security", documents.root.fields.get("security"))
    if not isinstance(required, list):
        return None
    return tuple(tuple(one) for one in _list(required) if isinstance(one, Mapping))


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
