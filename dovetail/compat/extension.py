"""Extensions and apps of release 2 of the official SDK, on top of Dovetail's own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import defstruct, to_builtins

from .. import extensions
from ..errors import InvalidParams, MethodNotFound, MissingCapability
from ..extensions.apps.settings import ID as EXTENSION_ID, MIME_TYPE as APP_MIME_TYPE
from ..ports import Call, CallHandler
from ..protocol.base import Params, Result
from ..protocol.decoding import plain
from .components import TextResource
from .request import make_request_context, make_result, read_tool_params

F = TypeVar("F", bound=Callable[..., Any])
ResourceBinding: Any = defstruct("ResourceBinding", ["resource"])
ToolBinding: Any = defstruct("ToolBinding", ["fn", ("meta", Any, None), ("kwargs", dict, {})])
MethodBinding: Any = defstruct(
    "MethodBinding", ["method", "params_type", "handler", ("protocol_versions", Any, None)]
)


class CompatExtension:
    """What an extension adds to a server. Override the methods that you need."""

    identifier: str
    tools = resources = methods = lambda self: ()

    def settings(self) -> dict[str, Any]:
        """Return the settings that the server declares."""
        return {}

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        """Wrap each call of a tool."""
        return await call_next(ctx)


class CompatApps(CompatExtension):
    """Tools with a view, and the HTML documents that hosts show for them."""

    identifier = EXTENSION_ID
    tools, resources = (lambda self: self._tools), (lambda self: self._resources)

    def __init__(self) -> None:
        self._tools, self._resources = list[Any](), list[Any]()

    def tool(
        self, *, resource_uri: str, visibility: Any = None, meta: Any = None, **kwargs: Any
    ) -> Callable[[F], F]:
        """Register a tool whose results are shown in this view."""
        ui = {"resourceUri": resource_uri} | ({"visibility": [*visibility]} if visibility else {})

        def decorate(fn: F) -> F:
            self._tools.append(ToolBinding(fn, {**(meta or {}), "ui": ui}, kwargs))
            return fn

        return decorate

    def add_html_resource(
        self, uri: str, html: str, *, csp: Any = None, permissions: Any = None, domain: Any = None,
        prefers_border: bool | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """Register the document of a view."""
        fields = {"domain": domain, "prefersBorder": prefers_border}
        fields |= {"csp": to_builtins(csp), "permissions": to_builtins(permissions)}
        meta = {"ui": {key: value for key, value in fields.items() if value is not None}}
        options |= {"mime_type": APP_MIME_TYPE, "meta": meta}
        self.add_resource(TextResource(uri=uri, text=html, **options))

    def add_resource(self, resource: Any) -> None:
        """Register a resource as the document of a view."""
        if "mime_type" not in (resource.options or ()):
            resource.mime_type = APP_MIME_TYPE
        self._resources.append(ResourceBinding(resource))


Extension, Apps = CompatExtension, CompatApps


def apply_extension(server: Any, extension: Any) -> None:
    """Add everything that an extension has to a server; Dovetail's own are added as they are."""
    if isinstance(extension, extensions.Extension):
        server.add_extension(extension)
        return
    if isinstance(extension, CompatApps):
        server._offer_apps()
    else:
        own = type(extension).intercept_tool_call is not CompatExtension.intercept_tool_call
        around = {"tools/call": partial(_intercept, server, extension)} if own else {}
        options = {"settings": extension.settings(), "around": around}
        add_methods(server, extension.identifier, extension.methods(), **options)
    for resource in extension.resources():
        server.add_resource(resource.resource)
    for tool in extension.tools():
        server.add_tool(tool.fn, meta=tool.meta, **tool.kwargs)


def add_methods(server: Any, id: str, methods: Sequence[Any], **options: Any) -> None:
    """Add methods to a server as a Dovetail extension, which clients need not declare."""
    row = partial(extensions.Method, sender="client", params=Params, result=Result)
    options |= {"handlers": {each.method: partial(_answer, server, each) for each in methods}}
    options |= {"methods": [row(each.method) for each in methods], "mutual": False}
    server.add_extension(extensions.Extension(id=id, **options))


async def _answer(server: Any, binding: Any, call: Call) -> Any:
    versions = binding.protocol_versions
    if versions is not None and call.revision.name not in versions:
        raise MethodNotFound(f"{call.name} does not exist in revision {call.revision.name}")
    given = plain(bytes(call.raw_params) or b"{}")
    try:
        params = binding.params_type.model_validate(given)
    except ValueError as error:
        raise InvalidParams(f"{call.name}: {error}") from None
    context = make_request_context(server.context_type(call, server), given)
    return make_result(call.method, await binding.handler(context, params))


async def _intercept(server: Any, extension: Any, call: Call, call_next: CallHandler) -> Any:
    params = read_tool_params(call)
    context = make_request_context(server.context_type(call, server), params)
    value = await extension.intercept_tool_call(params, context, lambda ctx: call_next(call))
    return make_result(call.method, value)


def require_client_extension(ctx: Any, identifier: str) -> None:
    """Raise an error if the client did not declare an extension."""
    if not extensions.has_declared(ctx.session._context._call, identifier):
        text = f"Client did not declare required extension {identifier!r}"
        raise MissingCapability(text, data=extensions.missing_extension("", identifier).data)


def client_supports_apps(ctx: Any) -> bool:
    """Return whether the client shows apps."""
    return bool(ctx.session._context.shows_apps)
