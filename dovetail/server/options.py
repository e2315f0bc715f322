"""Declarations for type checkers of the keyword options that `Server`'s methods accept.

The methods accept these options as `**options`, and the docstrings in `Server` describe them. At
run time, an unknown option raises a ConfigError with a hint.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from ..protocol.base import Icon, Meta
from ..protocol.content import Annotations
from ..protocol.tools import ToolAnnotations
from .caching import Cache

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ..backend import Backend
    from ..connection.extension import Extension
    from ..connection.middleware import Middleware
    from ..extensions.tasks.api import TasksOption
    from ..limits import Limits
    from ..ports import Bus, Guard, Redact
    from ..transports.http.server.event_store import EventStore
    from .capabilities import CapabilityChoices
    from .rates import Rates

Transport: TypeAlias = Literal["stdio", "http", "sse", "websocket"]


class ServiceOptions(TypedDict, total=False):
    """The options of `Server` that do not depend on its components."""

    cache: Cache | Mapping[str, Cache] | None
    middleware: "Sequence[Middleware]"
    limits: "Limits"
    auth: "Guard | None"
    rates: "Rates | None"
    redact: "Redact | None"
    extensions: "Sequence[Extension]"
    revisions: Sequence[str] | None
    resume: Literal["live", "replay"]
    single_use: bool
    backend: "str | Backend | None"
    backend_required: bool


class ServerOptions(ServiceOptions, total=False):
    """The options of `Server` besides its name."""

    version: str
    title: str | None
    description: str | None
    website_url: str | None
    icons: list[Icon] | None
    instructions: str | None
    page_size: int | None
    lifespan: "Callable[..., AbstractAsyncContextManager[Any]] | None"
    mask_errors: bool
    capabilities: "CapabilityChoices | None"
    experimental: dict[str, Any] | None
    tasks: "TasksOption"


class ComponentOptions(TypedDict, total=False):
    """The options that tools, resources and prompts have in common."""

    name: str | None
    title: str | None
    description: str | None
    icons: list[Icon] | None
    meta: Meta | None
    scopes: Sequence[str] | str


class PromptOptions(ComponentOptions, total=False):
    """The options of `Server.prompt`."""


class CommonToolOptions(ComponentOptions, total=False):
    """The options that `Server.tool` and the tools of `dovetail.compat` have in common."""

    annotations: ToolAnnotations | dict[str, Any] | None
    schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    timeout: float | None
    isolate: Literal["process"] | list[str] | tuple[str, ...] | None
    resumable: bool
    ui: str | None
    visibility: Sequence[str] | str | None


class ToolOptions(CommonToolOptions, total=False):
    """The options of `Server.tool`."""

    task: Literal["optional", "required"] | None


class ToolChangeOptions(TypedDict, total=False):
    """How callers see a tool of a mounted server: the options of `RegisteredTool.with_`, except
    `wrap`."""

    name: str
    title: str
    description: str
    hide: dict[str, Any]
    rename: dict[str, str]
    defaults: dict[str, Any]


class ContentOptions(ComponentOptions, total=False):
    """The options that resources and apps have in common."""

    size: int | None
    annotations: Annotations | dict[str, Any] | None
    cache: Cache | None


class ResourceOptions(ContentOptions, total=False):
    """The options of `Server.resource`."""

    mime_type: str | None


class AppSettings(TypedDict, total=False):
    """The options that only apps have."""

    connect_domains: Sequence[str]
    resource_domains: Sequence[str]
    frame_domains: Sequence[str]
    base_uri_domains: Sequence[str]
    permissions: Sequence[str]
    domain: str | None
    prefers_border: bool | None


class AppOptions(ContentOptions, AppSettings, total=False):
    """The options of `Server.app`."""


class AsgiOptions(TypedDict, total=False):
    """The options of `Server.asgi` besides the path, and of `Server.handle`."""

    sse: str | bool
    websocket: str | bool
    health: str | None
    metrics: str | None
    metrics_auth: str | bool | None
    hosts: Sequence[str] | str
    origins: Sequence[str] | str
    public_url: str | None
    trusted_proxies: Sequence[str] | str
    sessions: bool
    json_only: bool
    long_polling: float | None
    keys: Sequence[str | bytes] | None
    events: "Callable[[], EventStore] | None"
    bus: "Callable[[], Awaitable[Bus]] | None"
    routes: Callable[[Any, Any, Any], Awaitable[None]] | None


class HandleOptions(AsgiOptions, total=False):
    """The options of `Server.handle`."""

    path: str


class RunOptions(HandleOptions, total=False):
    """The options of `Server.run` and `Server.run_async`."""

    host: str
    port: int
    workers: int
    certfile: str | None
    keyfile: str | None
    endpoint: str
    ready: Callable[[str], None] | None
    quiet: bool
