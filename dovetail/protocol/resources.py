"""Resources: data that a model or a user can read.

https://modelcontextprotocol.io/specification/2026-07-28/server/resources
"""

from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Params, Wire
from .content import Annotations, ResourceContents


class Resource(Wire):
    """A resource, as it appears in a list.

    Attributes:
        uri: The URI that clients use to read the resource.
        name: The name that programs use.
        title: The name shown to people instead of `name`.
        description: A description for the model or the user, in one or two sentences.
        mime_type: The media type, such as `image/png`.
        size: The size in bytes, if known.
        icons: The pictures that a user interface may show.
        annotations: Hints about the content's audience, priority and age.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

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
    """A family of resources, described by an RFC 6570 URI template.

    Attributes:
        uri_template: The template, such as `users://{id}`.
        name: The name that programs use.
        title: The name shown to people instead of `name`.
        description: A description for the model or the user, in one or two sentences.
        mime_type: The media type, such as `image/png`.
        icons: The pictures that a user interface may show.
        annotations: Hints about the content's audience, priority and age.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListResourcesResult(CacheHints, kw_only=True):
    """One page of resources.

    Attributes:
        resources: The resources on this page.
        next_cursor: The `cursor` for the next page, or None on the last page.
    """

    resources: list[Resource]
    next_cursor: str | None = None


class ListResourceTemplatesResult(CacheHints, kw_only=True):
    """One page of resource templates.

    Attributes:
        resource_templates: The templates on this page.
        next_cursor: The `cursor` for the next page, or None on the last page.
    """

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None


class ReadResourceParams(Params, kw_only=True):
    """A request to read one resource.

    Attributes:
        uri: The URI of the resource.
        input_responses: The answers to the previous round's questions, under the same keys
            (stateless era).
        request_state: The state sent with the previous round's questions, unchanged (stateless
            era).
    """

    uri: str
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class ReadResourceResult(CacheHints, kw_only=True):
    """The contents of a resource.

    Attributes:
        contents: The contents, which can have several parts, for example if the resource is a
            directory.
    """

    contents: list[ResourceContents]


class ResourcesChangedParams(Params, kw_only=True):
    """The resources that changed, appeared or disappeared (draft dialect).

    Attributes:
        updated: The URIs of these resources.
    """

    updated: list[str] = []


class UriParams(Params, kw_only=True):
    """The resource to subscribe to or unsubscribe from, or the resource that was updated.

    Attributes:
        uri: The URI of the resource.
    """

    uri: str
