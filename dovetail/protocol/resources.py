"""Resources: what a model or user can read. https://modelcontextprotocol.io/specification/2026-07-28/server/resources"""

from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Params, Wire
from .content import Annotations, ResourceContents


class Resource(Wire):
    """A resource as it is listed."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ResourceTemplate(Wire):
    """A family of resources, as an RFC 6570 template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListResourcesResult(CacheHints, kw_only=True):
    """One page of resources."""

    resources: list[Resource]
    next_cursor: str | None = None


class ListResourceTemplatesResult(CacheHints, kw_only=True):
    """One page of templates."""

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None


class ReadResourceParams(Params, kw_only=True):
    """Reads one resource."""

    uri: str
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class ReadResourceResult(CacheHints, kw_only=True):
    """What it holds; several parts for a directory and the like."""

    contents: list[ResourceContents]


class UriParams(Params, kw_only=True):
    """Names a resource: to subscribe, to unsubscribe, or as updated."""

    uri: str
