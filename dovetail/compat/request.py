"""The request context of release 2 of the official SDK, and the results that its functions return.

Low-level handlers, middleware and extensions receive the context. They return a value of
`mcp.types`, a pydantic model or a dict.
"""

from dataclasses import make_dataclass
from typing import Any

import msgspec
from msgspec import Struct

from ..ports import Call
from ..protocol.base import EmptyResult, Result
from ..protocol.methods import Method
from ..protocol.raw import RawObject, encode_raw
from . import types
from .context import CompatContext


class MetaAttributes(dict[str, Any]):
    """The `_meta` of a request, whose keys are also attributes."""

    __getattr__ = dict.get


FIELDS = """session lifespan_context protocol_version method params request_id meta request
    close_sse_stream close_standalone_sse_stream"""
ServerRequestContext: Any = make_dataclass(
    "ServerRequestContext", [(name, Any, None) for name in FIELDS.split()], kw_only=True,
    namespace={"__class_getitem__": classmethod(lambda cls, item: cls)},
)  # fmt: skip
"""A request and its session. `dataclasses.replace` returns a changed copy."""


def make_request_context(context: CompatContext, params: Any) -> Any:
    """Return the request context of a call."""
    call = context._call
    meta = call.params.meta
    return ServerRequestContext(
        session=context.session, lifespan_context=context.state, method=call.name, params=params,
        meta=None if meta is None else MetaAttributes(meta), request_id=call.id,
        protocol_version=call.revision.name,
    )  # fmt: skip


def make_result(method: Method, value: Any) -> Any:
    """Return what a function returned as a result that can be sent."""
    if value is None:
        return EmptyResult()
    if not isinstance(value, dict | Struct) and hasattr(value, "model_dump"):
        value = value.model_dump(by_alias=True, mode="json", exclude_none=True)
    if not isinstance(value, dict):
        return value
    return RawObject(
        method.result or Result, {key: encode_raw(each) for key, each in value.items()}
    )


def read_tool_params(call: Call) -> Any:
    """Return the params of a tool call, with the arguments as a dict."""
    params = call.params
    arguments = msgspec.json.decode(bytes(memoryview(params.arguments)) or b"null")
    return types.OWN["CallToolParams"](name=params.name, arguments=arguments, meta=params.meta)
