"""Resources: what can be read under a URI, or under each URI that a template matches."""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import ConfigError, NotFound, SchemaError
from ..protocol.base import Icon, Meta
from ..protocol.content import (
    Annotations,
    BlobResourceContents,
    ResourceContents,
    TextResourceContents,
)
from ..protocol.resources import Resource, ResourceTemplate
from .arguments import ArgumentError
from .caching import Cache, given
from .completions import Completers
from .context import Context
from .media import File, Media
from .results import ANY
from .scopes import given as given_scopes

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
"""What a URI begins with, by RFC 3986."""

if TYPE_CHECKING:
    from ..protocol.uri_template import UriTemplate
    from .registry import Snapshot
    from .signature import Signature


class Entry(Struct, frozen=True, eq=False):
    """A resource in the registry: what is listed, and the function behind it."""

    listed: Resource
    signature: "Signature"
    completers: Completers
    cache: Cache | None = None
    scopes: tuple[str, ...] = ()
    """What a token must have to read it."""

    @property
    def mime_type(self) -> str | None:
        """The type of its contents."""
        return self.listed.mime_type


class TemplateEntry(Struct, frozen=True, eq=False):
    """A template in the registry."""

    listed: ResourceTemplate
    signature: "Signature"
    completers: Completers
    template: "UriTemplate"
    cache: Cache | None = None
    scopes: tuple[str, ...] = ()
    """What a token must have to read what it matches."""

    @property
    def mime_type(self) -> str | None:
        """The type of its contents."""
        return self.listed.mime_type


def entry(
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
) -> Entry | TemplateEntry:
    """Compile a function into a resource, or into a template where the URI has variables."""
    from .signature import Signature

    signature = Signature.of(function, context_type=Context)
    name = name or getattr(function, "__name__", "") or type(function).__name__
    if cache is not None:
        given(cache, f"The cache of resource {uri!r}")
    taken = given_scopes(scopes, f"Resource {uri!r}")
    about: dict[str, Any] = {
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
                f"{uri!r} is no URI: it needs a scheme of letters, digits, `+`, `-` and `.`, "
                "such as config://"
            )
        if signature.parameters:
            names = ", ".join(parameter.name for parameter in signature.parameters)
            raise SchemaError(
                f"Resource {uri!r} has no variables, so its function cannot take {names}"
            )
        return Entry(
            Resource(uri=uri, size=size, **about), signature, Completers(name, ()), cache, taken
        )
    from ..protocol.uri_template import UriTemplate

    template = UriTemplate(uri)
    _same_names(uri, template, signature)
    return TemplateEntry(
        ResourceTemplate(uri_template=uri, **about),
        signature,
        Completers(name, template.variables),
        template,
        cache,
        taken,
    )


def _same_names(uri: str, template: "UriTemplate", signature: "Signature") -> None:
    variables = set(template.variables)
    taken = {parameter.name for parameter in signature.parameters}
    needed = {parameter.name for parameter in signature.parameters if parameter.required}
    if unknown := variables - taken:
        raise SchemaError(
            f"Template {uri!r} has the variables {sorted(unknown)}, which its function does "
            "not take"
        )
    if missing := needed - variables:
        raise SchemaError(
            f"Template {uri!r} lacks the variables {sorted(missing)}, which its function needs"
        )


def match(
    templates: "Snapshot[TemplateEntry]", uri: str
) -> tuple[TemplateEntry, dict[str, Any]] | None:
    """The template that this URI fits, with the values of its variables. Of several it is the one
    that says most before its first variable: one that serves a part of what another serves is
    found, whichever came first."""
    ranked = templates.cache.get("ranked")
    if ranked is None:
        ranked = templates.cache["ranked"] = sorted(
            templates.items.values(), key=lambda one: -one.template.text.index("{")
        )
    for candidate in ranked:
        values = candidate.template.match(uri)
        if values is not None:
            return candidate, values
    return None


def bind(
    entry: Entry | TemplateEntry, values: dict[str, Any], uri: str, context: Context
) -> tuple[Any, Any]:
    """The arguments for the function; a variable of the wrong type means that there is no such
    resource."""
    try:
        return entry.signature.bind_values(values, context)
    except ArgumentError as error:
        raise not_found(uri, str(error)) from None


def not_found(uri: str, why: str = "") -> NotFound:
    """The refusal of a URI."""
    return NotFound(f"Resource not found: {uri}" + (f" ({why})" if why else ""), data={"uri": uri})


def contents(value: Any, uri: str, mime_type: str | None) -> list[ResourceContents]:
    """What a resource function returned, as contents."""
    if isinstance(value, ResourceContents):
        return [value]
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, (ResourceContents, Media)) for item in value)
    ):
        return [part for item in value for part in contents(item, uri, mime_type)]
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
    text = ANY.encode(value).decode()
    return [TextResourceContents(uri=uri, text=text, mime_type=mime_type or "application/json")]
