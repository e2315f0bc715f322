"""Resources: data that a model or a user can read.

https://modelcontextprotocol.io/specification/2026-07-28/server/resources
"""

from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Params, Wire
from .content import Annotations, ResourceContents


class Resource(Wire):
    """A resource, as it appears in a list.

    Attributes:
        uri: URI used to read it.
        name: Name for programs.
        title: Name for people, shown instead of `name`.
        description: What it is, in a sentence or two, for the model or the user.
        mime_type: Media type, such as `image/png`.
        size: Size in bytes, if known.
        icons: Pictures that a user interface may show.
        annotations: Hints on the audience, the priority and the age of the content.
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
        name: Name for programs.
        title: Name for people, shown instead of `name`.
        description: What it is, in a sentence or two, for the model or the user.
        mime_type: Media type, such as `image/png`.
        icons: Pictures that a user interface may show.
        annotations: Hints on the audience, the priority and the age of the content.
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
        resources: The resources.
        next_cursor: Pass it as `cursor` to get the next page; None on the last page.
    """

    resources: list[Resource]
    next_cursor: str | None = None


class ListResourceTemplatesResult(CacheHints, kw_only=True):
    """One page of resource templates.

    Attributes:
        resource_templates: The templates.
        next_cursor: Pass it as `cursor` to get the next page; None on the last page.
    """

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None


class ReadResourceParams(Params, kw_only=True):
    """A request to read one resource.

    Attributes:
        uri: URI of the resource.
        input_responses: Answers to the questions of the previous round, by key (stateless era).
        request_state: The state that came with those questions, unchanged (stateless era).
    """

    uri: str
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class ReadResourceResult(CacheHints, kw_only=True):
    """The contents of a resource.

    Attributes:
        contents: The contents. A directory, for example, has several parts.
    """

    contents: list[ResourceContents]


class ResourcesChangedParams(Params, kw_only=True):
    """The resources that changed, appeared or disappeared (draft dialect).

    Attributes:
        updated: Their URIs.
    """

    updated: list[str] = []


class UriParams(Params, kw_only=True):
    """The resource to subscribe to or unsubscribe from, or the one that was updated.

    Attributes:
        uri: URI of the resource.
    """

    uri: str
