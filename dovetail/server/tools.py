"""Tools: functions that a model can call.

`tools/call` binds the raw arguments to the function's signature, runs it (on the loop, on a worker
thread, or in a child process), and turns what it returns into a result. Whatever goes wrong inside
the function is a result too, with the text for the model; only a call that names no tool is an
error of the protocol.
"""

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from ..errors import (
    CannotAsk,
    ConfigError,
    InvalidParams,
    NotFound,
    ProtocolError,
    SchemaError,
    ToolError,
)
from ..limits import Limits
from ..ports import Call
from ..protocol.base import Icon, Meta
from ..protocol.lifecycle import InputRequired
from ..protocol.tools import Tool, ToolAnnotations, ToolExecution, ToolResult
from ..schema import Unencodable
from .arguments import ArgumentError
from .context import Context
from .results import (
    Finish,
    conforming,
    describes_object,
    failed,
    finish_any,
    finish_bare,
    finisher,
    plain,
)
from .scopes import given as given_scopes

if TYPE_CHECKING:
    from ..extensions.tasks.terms import Terms
    from ..protocol.header_params import HeaderParam
    from ..schema.validation import Validator
    from .signature import Signature

NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")

Bind = Callable[[Any, Any], tuple[tuple[Any, ...], dict[str, Any]]]


class Entry(Struct, frozen=True, eq=False):
    """A tool in the registry: what is listed, and how it runs."""

    listed: Tool
    signature: "Signature"
    bind: Bind
    finish: Finish
    timeout: float | None
    isolated: bool
    direct: bool
    """Whether it runs on the loop with nothing around it."""
    mirrors: "tuple[HeaderParam, ...]" = ()
    """The parameters that HTTP requests repeat in their headers."""
    scopes: tuple[str, ...] = ()
    """What a token must have to call it."""
    task: "Terms | None" = None
    """On what terms it runs as a task."""


def entry(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: ToolAnnotations | dict[str, Any] | None = None,
    icons: list[Icon] | None = None,
    meta: Meta | None = None,
    schema: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    timeout: float | None = None,
    isolate: str | None = None,
    scopes: Sequence[str] | str = (),
    task: str | None = None,
    resumable: bool = False,
    ui: str | None = None,
    visibility: Sequence[str] | str | None = None,
) -> Entry:
    """Compile a function into a tool."""
    name = name or getattr(function, "__name__", "") or type(function).__name__
    _check_name(name)
    if ui is not None or visibility is not None or (meta and "ui" in meta):
        from ..extensions.apps.settings import tool_meta

        meta = tool_meta(name, meta or {}, ui, visibility)
    from .signature import Signature

    signature = Signature.of(function, context_type=Context, free=schema is not None)
    _check_signature(name, signature)
    finish, described = finisher(name, signature.returns)
    bind = signature.bind if schema is None else _checked(name, schema, signature)
    input_schema = signature.schema if schema is None else _object_schema(name, schema)
    tool = Tool(
        name=name,
        input_schema=input_schema,
        title=title,
        description=description if description is not None else signature.description,
        output_schema=described if output_schema is None else output_schema,
        annotations=None if annotations is None else ToolAnnotations.of(annotations),
        icons=icons,
        execution=None if task is None else ToolExecution(task_support=task),
        meta=meta,
    )
    if isolate is not None:
        _check_isolated(isolate, function, signature, name)
    direct = signature.is_async and timeout is None and isolate is None
    if output_schema is not None:
        given = finish_any if describes_object(output_schema) else finish_bare
        finish = conforming(name, given, _compiled(output_schema))
    taken = given_scopes(scopes, f"Tool {name!r}")
    terms = _terms(name, signature, task, resumable)
    mirrors = _mirrors(name, input_schema)
    return Entry(
        tool, signature, bind, finish, timeout, isolate is not None, direct, mirrors, taken, terms
    )


def _terms(name: str, signature: "Signature", task: str | None, resumable: bool) -> "Terms | None":
    if task is None and not resumable:
        return None
    from ..extensions.tasks.terms import detaches, terms

    return terms(
        name, task, resumable, signature.context is not None and detaches(signature.function)
    )


def _check_name(name: str) -> None:
    if name == "<lambda>":
        raise ConfigError("A lambda has no name of its own; give it one with name=…")
    if not NAME.fullmatch(name):
        advice = (
            "names should be 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`, for some "
            "clients refuse others"
        )
        warnings.warn(f"Tool name {name!r}: {advice}", stacklevel=_level())


def _check_signature(name: str, signature: "Signature") -> None:
    if signature.yields:
        raise ConfigError(
            f"Tool {name!r} is a generator; return the result, and tell of what comes before "
            "by ctx.progress"
        )
    if signature.context is None and any(
        one.name == "ctx" and one.annotation is Any for one in signature.parameters
    ):
        advice = (
            "is an argument that the model has to give; if it is meant to be the "
            "context, write `ctx: Context`"
        )
        warnings.warn(f"Tool {name!r}: `ctx` {advice}", stacklevel=_level())


def _level() -> int:
    """How far up the stack the user's own code is."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dovetail."):
        level, frame = level + 1, frame.f_back
    return level


async def call_tool(
    entry: Entry, call: Call, context: Context | None, limits: Limits, mask: bool
) -> ToolResult | InputRequired:
    """Run a tool for a call."""
    try:
        args, kwargs = entry.bind(call.params.arguments, context)
    except ArgumentError as error:
        if call.revision.tool_errors:
            return failed(str(error))
        raise InvalidParams(str(error)) from None
    try:
        if entry.direct:
            value = await entry.signature.function(*args, **kwargs)
        else:
            value = await _run(entry, call, args, kwargs, limits)
        return value if type(value) is InputRequired else entry.finish(value)
    except (ToolError, NotFound) as error:
        return failed(str(error))
    except ProtocolError:
        raise
    except CannotAsk as error:
        if call.revision.stateless:
            raise
        return failed(str(error))  # older revisions have no error for it
    except BaseException as error:
        if call.cancelled or call.cut_off is not None:
            raise
        return failed(explain(entry.listed.name, error, mask))


async def _run(
    entry: Entry, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Limits
) -> Any:
    from .running import run_function, within

    function, name = entry.signature.function, entry.listed.name
    if entry.isolated:
        from .isolation import run_isolated

        return await run_isolated(function, args, kwargs, limits, entry.timeout, name)
    work = run_function(function, entry.signature.is_async, args, kwargs, limits)
    return await (work if entry.timeout is None else within(entry.timeout, name, call, work))


def _check_isolated(
    isolate: str, function: Callable[..., Any], signature: "Signature", name: str
) -> None:
    if isolate != "process":
        raise ConfigError(f'isolate={isolate!r}: the only way to isolate a tool is "process"')
    from .isolation import check_isolatable

    check_isolatable(function, signature.context is not None, name)


def opened(result: ToolResult) -> ToolResult:
    """A result whose structured content is a value again, for middleware to look at."""
    if type(result.structured_content) is Raw:
        result.structured_content = plain(result.structured_content)
    return result


def explain(name: str, error: BaseException, mask: bool) -> str:
    """What the model is told of an exception; the traceback goes to the log."""
    import logging

    logging.getLogger("dovetail.server").warning("%s failed", name, exc_info=error)
    if mask:
        return f"{name} failed"
    if isinstance(error, TimeoutError) and str(error):
        return str(error)
    text = str(error)
    if isinstance(error, Unencodable):
        return f"{name} returned what cannot be sent: {text}"
    if isinstance(error, KeyError):
        return f"KeyError: {text}"  # the key alone says little
    if isinstance(error, Exception):
        return text or type(error).__name__
    return f"{name} ended with {type(error).__name__}" + (f": {text}" if text else "")


def _compiled(schema: dict[str, Any]) -> "Validator":
    from ..schema.validation import compile

    return compile(schema)


def _object_schema(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise SchemaError(f'Tool {name!r}: an input schema must have "type": "object"')
    return schema


def _mirrors(name: str, schema: dict[str, Any]) -> "tuple[HeaderParam, ...]":
    from ..schema.header import KEYWORD

    if KEYWORD not in repr(schema):  # nearly always; then nothing more is loaded
        return ()
    from ..protocol.header_params import find_header_params

    try:
        return find_header_params(schema)
    except SchemaError as error:
        raise SchemaError(f"Tool {name!r}: {error}") from None


def _checked(name: str, schema: dict[str, Any], signature: "Signature") -> Bind:
    """Arguments checked by a JSON schema that was given, and passed on as they are."""
    validator = _compiled(schema)
    from .signature import decode_object

    def bind(raw: Raw, context: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = decode_object(raw, name)
        problems = validator.problems(values)
        if problems:
            raise ArgumentError("; ".join(problems))
        return signature.pass_on(values, context)

    return bind
