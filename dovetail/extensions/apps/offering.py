"""The server's side: an app is a resource with its settings in `_meta.ui`, tools point to it, and
clients that show no apps get by without.

Such a client, or one that shows other types only, does not see the views, nor the tools that are
for views alone; what is left are plain tools. A tool with a view answers everybody with text too,
made of its data where its author gave none.
https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx#server-behavior
"""

from collections.abc import Callable
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ...connection.extension import Extension
from ...errors import InternalError, InvalidParams
from ...jsonrpc.codec import encode
from ...ports import Call, CallHandler
from ...protocol.base import Meta
from ...protocol.content import ResourceContents, TextContent
from ...protocol.resources import ReadResourceResult
from ...protocol.tools import Tool, ToolResult
from .settings import ID, MIME_TYPE, SCHEME, app_only, is_document, shows, ui_of

MetaOf = Callable[[str], Meta | None]
"""The `_meta` of the tool of this name, or of the resource of this URI."""


def offering(tool: MetaOf, app: MetaOf) -> Extension:
    """What a server with apps declares, and does about its calls."""

    async def list_tools(call: Call, next: CallHandler) -> Any:
        result = await next(call)
        if not shows(call.caller.capabilities):
            result.tools = [_plain(one) for one in result.tools if not app_only(one.meta)]
        return result

    async def list_resources(call: Call, next: CallHandler) -> Any:
        result = await next(call)
        if not shows(call.caller.capabilities):
            result.resources = [one for one in result.resources if not one.uri.startswith(SCHEME)]
        return result

    async def call_tool(call: Call, next: CallHandler) -> Any:
        meta = tool(call.params.name)
        if app_only(meta) and not shows(call.caller.capabilities):
            raise InvalidParams(f"Unknown tool: {call.params.name}")
        result = await next(call)
        return _worded(result) if ui_of(meta) else result

    async def read(call: Call, next: CallHandler) -> Any:
        result = await next(call)
        if isinstance(result, ReadResourceResult) and call.params.uri.startswith(SCHEME):
            result.contents = [_settled(part, app(call.params.uri)) for part in result.contents]
        return result

    around = {
        "tools/list": list_tools,
        "resources/list": list_resources,
        "tools/call": call_tool,
        "resources/read": read,
    }
    return Extension(id=ID, around=around)


def _plain(tool: Tool) -> Tool:
    """A tool as those see it who cannot show its view."""
    if not ui_of(tool.meta):
        return tool
    return replace(
        tool,
        meta={name: value for name, value in (tool.meta or {}).items() if name != "ui"} or None,
    )


def _worded(result: Any) -> Any:
    """The same with something for a model to read: there "MUST" be "meaningful content" even where
    there is a view."""
    if (
        isinstance(result, ToolResult)
        and not result.content
        and result.structured_content is not None
    ):
        data = result.structured_content
        result.content = [TextContent(bytes(data if type(data) is Raw else encode(data)).decode())]
    return result


def _settled(part: ResourceContents, meta: Meta | None) -> ResourceContents:
    """Contents with the settings of their app, which is where a host looks for them."""
    if part.mime_type != MIME_TYPE:
        return part
    if not is_document(part.data.decode(errors="replace")):
        raise InternalError(
            f"App {part.uri}: what it gave is no HTML document, which begins with <!doctype html>"
        )
    ui = ui_of(part.meta) or ui_of(meta)
    return replace(part, meta={**(part.meta or {}), "ui": ui}) if ui else part
