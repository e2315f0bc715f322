"""Resources: data that clients read by its URI, or by each URI that a template matches."""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from ..errors import ConfigError, InvalidParams, NotFound, SchemaError
from ..protocol.base import Icon, Meta
from ..protocol.content import (
    Annotations,
    BlobResourceContents,
    ResourceContents,
    TextResourceContents,
)
from ..protocol.resources import Resource, ResourceTemplate
from .caching import Cache, check_cache
from .completions import Completers
from .context import Context
from .media import File, Media
from .registry import parse_scopes
from .tools import ANY_SHAPE

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
"""What a URI begins with (RFC 3986)."""

if TYPE_CHECKING:
    from ..protocol.uri_template import UriTemplate
    from .registry import Snapshot
    from .signature import Signature


class RegisteredResource(Struct, frozen=True, eq=False):
    """A resource in the registry: what is listed, and the function that reads it."""

    listed: Resource
    signature: "Signature"
    completers: Completers
    cache: Cache | None = None
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs to read it."""


class RegisteredTemplate(Struct, frozen=True, eq=False):
    """A resource template in the registry."""

    listed: ResourceTemplate
    signature: "Signature"
    completers: Completers
    template: "UriTemplate"
    cache: Cache | None = None
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs to read what it matches."""


AnyResource: TypeAlias = RegisteredResource | RegisteredTemplate


def compile_resource(
    function: Callable[..., Any],
    uri: str,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    icons: list[Icon] | None = None,
    annotations: Annotations | dict[str, Any] | None = None,
    meta: Meta | None = None,
    cache: Cache | None = None,
    scopes: Sequence[str] | str = (),
) -> AnyResource:
    """Compile a function into a resource, or into a template if the URI has variables; the options
    are those of `Server.resource`."""
    from .signature import Signature

    signature = Signature.of(function, context_type=Context)
    name = name or getattr(function, "__name__", "") or type(function).__name__
    if cache is not None:
        check_cache(cache, f"The cache of resource {uri!r}")
    required_scopes = parse_scopes(scopes, f"Resource {uri!r}")
    fields: dict[str, Any] = {
        "name": name,
        "title": title,
        "description": description if description is not None else signature.description,
        "mime_type": mime_type,
        "icons": icons,
        "annotations": None if annotations is None else Annotations.of(annotations),
        "meta": meta,
    }
    if "{" not in uri:
        if not SCHEME.match(uri):
            raise ConfigError(
                f"{uri!r} is not a URI: it needs a scheme of letters, digits, `+`, `-` and `.`, "
                "such as config://"
            )
        if signature.parameters:
            names = ", ".join(parameter.name for parameter in signature.parameters)
            raise SchemaError(
                f"Resource {uri!r} has no variables, so its function cannot take {names}"
            )
        return RegisteredResource(
            Resource(uri=uri, size=size, **fields),
            signature,
            Completers(name, ()),
            cache,
            required_scopes,
        )
    from ..protocol.uri_template import UriTemplate

    template = UriTemplate(uri)
    _check_variables(uri, template, signature)
    return RegisteredTemplate(
        ResourceTemplate(uri_template=uri, **fields),
        signature,
        Completers(name, template.variables),
        template,
        cache,
        required_scopes,
    )


def _check_variables(uri: str, template: "UriTemplate", signature: "Signature") -> None:
    variables = set(template.variables)
    accepted = {parameter.name for parameter in signature.parameters}
    required = {parameter.name for parameter in signature.parameters if parameter.required}
    if unknown := variables - accepted:
        raise SchemaError(
            f"Template {uri!r} has the variables {sorted(unknown)}, which its function does "
            "not take"
        )
    if missing := required - variables:
        raise SchemaError(
            f"Template {uri!r} lacks the variables {sorted(missing)}, which its function needs"
        )


def match_template(
    templates: "Snapshot[RegisteredTemplate]", uri: str
) -> tuple[RegisteredTemplate, dict[str, Any]] | None:
    """Return the template that matches this URI, with the values of its variables.

    If several match, the one with the longest text before its first variable wins, so that a
    template for a part of another's URIs is found whichever was registered first.
    """
    ranked = templates.cache.get("ranked")
    if ranked is None:
        ranked = templates.cache["ranked"] = sorted(
            templates.items.values(), key=lambda template: -template.template.text.index("{")
        )
    for candidate in ranked:
        values = candidate.template.match(uri)
        if values is not None:
            return candidate, values
    return None


def bind_variables(
    resource: AnyResource, values: dict[str, Any], uri: str, context: Context
) -> tuple[Any, Any]:
    """Return the positional and keyword arguments for the function. A variable of the wrong type
    means that there is no such resource."""
    try:
        return resource.signature.bind_values(values, context)
    except InvalidParams as error:
        raise not_found(uri, str(error)) from None


def not_found(uri: str, reason: str = "") -> NotFound:
    """Make the error for a URI that cannot be read."""
    return NotFound(
        f"Resource not found: {uri}" + (f" ({reason})" if reason else ""), data={"uri": uri}
    )


def make_contents(value: Any, uri: str, mime_type: str | None) -> list[ResourceContents]:
    """Turn what a resource function returned into contents."""
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
        return [
            BlobResourceContents(
                uri=uri, blob=value.base64(), mime_type=mime_type or value.mime_type
            )
        ]
    if isinstance(value, bytes | bytearray):
        blob = b64encode(value).decode()
        return [
            BlobResourceContents(
                uri=uri, blob=blob, mime_type=mime_type or "application/octet-stream"
            )
        ]
    if isinstance(value, str):
        return [TextResourceContents(uri=uri, text=value, mime_type=mime_type or "text/plain")]
    text = ANY_SHAPE.encode(value).decode()
    return [TextResourceContents(uri=uri, text=text, mime_type=mime_type or "application/json")]
