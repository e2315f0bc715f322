"""Resources: data that clients read by URI. A template provides a resource at every URI that
matches it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import ConfigError, InvalidParams, NotFound, SchemaError
from ..protocol.content import (
    Annotations,
    BlobResourceContents,
    ResourceContents,
    TextResourceContents,
)
from ..protocol.resources import Resource, ResourceTemplate
from ..text import quote
from .caching import Cache, check_cache
from .context import Context
from .media import File, Media
from .prompts import Completers
from .registry import parse_scopes
from .tools import ANY_SHAPE, RegisteredTool, definition_fields

SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*:"
"""The scheme at the start of a URI (RFC 3986)."""

if TYPE_CHECKING:
    from pathlib import Path

    from ..protocol.uri_template import UriTemplate
    from .options import ResourceOptions
    from .registry import Snapshot
    from .signature import Signature


class RegisteredResource(Struct, frozen=True, eq=False):
    """A resource or template in the registry, with its listed definition and its function."""

    definition: Resource | ResourceTemplate
    signature: Signature
    completers: Completers
    template: UriTemplate | None = None
    cache: Cache | None = None
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs to read the resource."""


def compile_resource(
    function: Callable[..., Any], uri: str, options: ResourceOptions
) -> RegisteredResource:
    """Compile a function into a resource, or into a template if the URI has variables; the options
    are the same as for `Server.resource`."""
    from .signature import Signature

    signature = Signature(function, context_type=Context, name=options.get("name"))
    cache, annotations = options.get("cache"), options.get("annotations")
    if cache is not None:
        check_cache(cache, f"The cache setting of resource {uri!r}")
    fields = definition_fields(signature, options)
    fields["mime_type"] = options.get("mime_type")
    fields["annotations"] = None if annotations is None else Annotations.of(annotations)
    definition: Resource | ResourceTemplate
    template = None
    if "{" in uri:
        from ..protocol.uri_template import UriTemplate

        template = UriTemplate(uri)
        _check_variables(uri, template, signature)
        definition = ResourceTemplate(uri_template=uri, **fields)
    else:
        _check_uri(uri, signature)
        definition = Resource(uri=uri, size=options.get("size"), **fields)
    return RegisteredResource(
        definition,
        signature,
        Completers(signature.name, template.variables if template else ()),
        template,
        cache,
        parse_scopes(options.get("scopes", ()), f"Resource {uri!r}"),
    )


def _check_uri(uri: str, signature: Signature) -> None:
    if not re.match(SCHEME, uri):
        raise ConfigError(
            f"{uri!r} is not a valid URI: it must start with a scheme (letters, digits, `+`, `-` "
            "and `.`), such as config://"
        )
    if signature.parameters:
        names = ", ".join(parameter.name for parameter in signature.parameters)
        raise SchemaError(
            f"Resource {uri!r} has no variables, so its function cannot have the parameters {names}"
        )


def _check_variables(uri: str, template: UriTemplate, signature: Signature) -> None:
    variables = set(template.variables)
    accepted = {parameter.name for parameter in signature.parameters}
    required = {parameter.name for parameter in signature.parameters if parameter.required}
    if unknown := variables - accepted:
        raise SchemaError(
            f"Template {uri!r} has the variables {sorted(unknown)}, which its function does not "
            "accept"
        )
    if missing := required - variables:
        raise SchemaError(
            f"Template {uri!r} lacks the variables {sorted(missing)}, which its function requires"
        )


def match_template(
    templates: Snapshot[RegisteredResource], uri: str
) -> tuple[RegisteredResource, dict[str, Any]] | None:
    """Return the template that matches this URI, with the values of its variables.

    If several templates match, the one with the longest text before its first variable is used, so
    that a more specific template takes precedence.
    """
    ranked = templates.cache.get("ranked")
    if ranked is None:
        ranked = templates.cache["ranked"] = sorted(
            templates.items.values(), key=lambda resource: -resource.template.text.index("{")
        )
    for candidate in ranked:
        values = candidate.template.match(uri)
        if values is not None:
            return candidate, values
    return None


def has_below(uri: str, resources: Snapshot[RegisteredResource]) -> bool:
    """Return whether there are resources below this URI."""
    parents = resources.cache.get("parents")
    if parents is None:
        split = (known.split("/") for known in resources.items)
        parents = resources.cache["parents"] = frozenset(
            "/".join(steps[:count]) for steps in split for count in range(1, len(steps))
        )
    return uri.rstrip("/") in parents


def is_parent(uri: str, template: str) -> bool:
    """Return whether URIs that match a template may be below this URI. A variable matches any text,
    and `{+path}` also matches slashes."""
    parents, steps = uri.rstrip("/").split("/"), template.split("/")
    for parent, step in zip(parents, steps, strict=False):
        before, variable, rest = step.partition("{")
        if not parent.startswith(before) or (not variable and parent != step):
            return False
        if rest[:1] in ("+", "/"):
            return True
    return len(parents) < len(steps)


def bind_variables(
    resource: RegisteredResource, values: dict[str, Any], uri: str, context: Context
) -> tuple[Any, Any]:
    """Return the positional and keyword arguments for the function. Raise NotFound if a variable
    has the wrong type."""
    try:
        return resource.signature.bind_values(values, context)
    except InvalidParams as error:
        raise not_found(uri, str(error)) from None


def not_found(uri: str, reason: str = "") -> NotFound:
    """Create the error for a URI that cannot be read."""
    return NotFound(
        f"Resource not found: {uri}" + (f" ({reason})" if reason else ""), data={"uri": uri}
    )


def make_contents(value: Any, uri: str, mime_type: str | None) -> list[ResourceContents]:
    """Turn the return value of a resource function into contents."""
    if isinstance(value, ResourceContents):
        return [value]
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, (ResourceContents, Media)) for item in value)
    ):
        return [part for item in value for part in make_contents(item, uri, mime_type)]
    if isinstance(value, File):
        value = value.contents()
        value.uri = uri
        return [value]
    if isinstance(value, Media):
        value, mime_type = value.data, mime_type or value.mime_type
    if isinstance(value, bytes | bytearray):
        from base64 import b64encode

        blob = b64encode(value).decode()
        mime_type = mime_type or "application/octet-stream"
        return [BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type)]
    text, default_type = value, "text/plain"
    if not isinstance(value, str):
        text, default_type = ANY_SHAPE.encode(value).decode(), "application/json"
    return [TextResourceContents(uri=uri, text=text, mime_type=mime_type or default_type)]


# --------------------------------------------------------------------------------------------------
# apps, which are resources with an HTML document


def app_resource(
    uri: str, html: str | Path | Callable[..., Any], options: dict[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function that provides an app's document, and the options of its resource."""
    from ..extensions.apps.settings import MIME_TYPE, app_meta
    from .options import AppSettings

    if "mime_type" in options:
        raise ConfigError(
            f"App {uri}: the MIME type of an app is always {MIME_TYPE}; remove mime_type="
        )
    settings = {name: options.pop(name) for name in AppSettings.__optional_keys__ & options.keys()}
    meta = {**(options.pop("meta", None) or {}), **app_meta(uri, **settings)}
    defaults: dict[str, Any] = {"mime_type": MIME_TYPE, "meta": meta or None}
    if not callable(html):
        defaults |= {"name": uri.rpartition("/")[2], "description": None}
        html = _document(uri, html)
    return html, defaults | options


def _document(uri: str, html: str | Path) -> Callable[[], str]:
    """Return a function that provides the document; a file is read again for each call."""
    from ..extensions.apps.settings import is_document

    path = None if isinstance(html, str) else html.resolve()
    if path is not None and not path.is_file():
        raise ConfigError(f"App {uri}: the file {path} does not exist")

    def read() -> str:
        return str(html) if path is None else path.read_text(encoding="utf-8")

    if not is_document(read()):
        what = quote(str(html), 40) if path is None else html
        raise ConfigError(
            f"App {uri}: {what} is not an HTML document that starts with <!doctype html>; to use "
            "a file, pass Path(…)"
        )
    return read


def check_unused(uri: str, tools: Iterable[RegisteredTool], shows: Callable[[str], bool]) -> None:
    """Raise ConfigError if a tool uses the app at `uri` as its view, because a view "MUST exist on
    the server"."""
    from ..extensions.apps.settings import get_view_uri

    for tool in tools:
        view = get_view_uri(tool.definition)
        if view is not None and shows(view):
            raise ConfigError(
                f"{uri} is used as the view of the tool {tool.definition.name!r}; remove the tool "
                "first"
            )
