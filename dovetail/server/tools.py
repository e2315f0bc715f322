"""Tools: functions that a model can call.

`tools/call` binds the raw arguments to the function's signature, runs the function (on the event
loop, on a worker thread, or in a child process), and turns the returned value into a result. A
failure inside the function is also a result, with text for the model; only a call to an unknown
tool is a protocol error.

A result consists of content for the model and data for programs. The returned value is encoded
once, and the same bytes are used for the structured content and the text. A value that is not an
object is wrapped as `{"result": …}`, in the value and in its schema. Content (including the helpers
Image, Audio and File) is passed through; a list may mix content with other values.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..aio import BoundedDict
from ..errors import (
    BackendAway,
    CannotAsk,
    ConfigError,
    InvalidOutput,
    InvalidParams,
    NotFound,
    Overloaded,
    ProtocolError,
    SchemaError,
    ToolError,
)
from ..limits import Limits
from ..ports import Call
from ..protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceLink,
    TextContent,
)
from ..protocol.lifecycle import InputRequired
from ..protocol.tools import Tool, ToolAnnotations, ToolExecution, ToolResult
from ..schema import Shape, TypeMismatch, Unencodable
from .media import Media
from .registry import parse_scopes

if TYPE_CHECKING:
    from ..extensions.tasks.settings import TaskSupport
    from ..protocol.header_params import HeaderParam
    from ..schema.validation import Validator
    from .context import Context
    from .isolation import Sandbox
    from .options import ComponentOptions, ToolOptions
    from .signature import Bound, Signature
    from .transform import ArgumentChange, SchemaArguments

NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
AWAY_IN_TOOL = (
    "{} could not reach the shared state of the server after it had begun. It may have had "
    "effects, so check them before you call it again"
)
CONTENT = (
    TextContent,
    ImageContent,
    AudioContent,
    ResourceLink,
    EmbeddedResource,
    OtherContent,
    Media,
)
ANY_SHAPE = Shape(Any)
_UNSPECIFIC = (Any, None, type(None), list, tuple, list[Any])
"""The return annotations that do not describe the result or do not say whether it has content."""
_decode_json = msgspec.json.Decoder().decode

Bind = Callable[[Any, Any], tuple[tuple[Any, ...], dict[str, Any]]]
MakeResult = Callable[[Any], ToolResult]
CallNext: TypeAlias = Callable[[dict[str, Any]], Awaitable[ToolResult]]
"""Calls the original tool with arguments, and returns its result."""
WrapTool: TypeAlias = (
    Callable[[dict[str, Any], CallNext], Awaitable[Any]]
    | Callable[[dict[str, Any], CallNext, "Context[Any]"], Awaitable[Any]]
)
"""An async function around a tool, like middleware: it gets the arguments and the function that
calls the tool, and returns the result. With a third parameter, it also gets the context."""


Arguments: TypeAlias = "Signature | SchemaArguments"
"""The arguments of a tool. Those with a schema that was not made from the function differ."""


class RegisteredTool(Struct, frozen=True, eq=False):
    """A tool of a server, with its listed definition and the settings for running it. It never
    changes: `with_` returns a changed copy, which `Server.add_tool` accepts."""

    definition: Tool
    """The tool as clients see it in the list."""
    signature: Signature
    """The compiled function."""
    bind: Bind
    """Checks raw arguments, and returns what to call the function with."""
    make_result: MakeResult
    """Turns what the function returned into a result."""
    timeout: float | None
    """Seconds after which a call fails; None for no limit."""
    isolated: bool
    """Whether each call runs in a child process."""
    sandbox: Sandbox | None
    """What starts the child process; None if nothing else does."""
    direct: bool
    """Whether the tool runs on the event loop, without a timeout or a child process."""
    arguments: Arguments
    """What `bind` belongs to."""
    uses_context: bool
    """Whether the tool needs the context of the call."""
    header_params: tuple[HeaderParam, ...] = ()
    """The parameters that HTTP requests repeat in their headers."""
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs to call the tool."""
    task: TaskSupport | None = None
    """How the tool may run as a task; None if it never runs as a task."""
    api: Any = None
    """The HTTP API that the tool calls, whose connections have to be open; None if there is
    none."""
    has_fresh_values: bool = False
    """Whether values of hidden arguments are made for each call."""
    inner: RegisteredTool | None = None
    """The tool that `wrap` calls."""
    wrap: Callable[..., Awaitable[Any]] | None = None
    """What is called instead of the tool; None if it was not wrapped."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.definition.name

    def __repr__(self) -> str:
        return f"<RegisteredTool {self.name}>"

    def with_(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        hide: Mapping[str, Any] | None = None,
        rename: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        wrap: WrapTool | None = None,
        output_schema: dict[str, Any] | None = None,
    ) -> RegisteredTool:
        """Return a changed copy of this tool. `Server.add_tool` and `Server.replace_tool` accept
        it; this tool stays as it is.

            search = api.get_tool("searchIssues")
            server.add_tool(search.with_(name="find_issues", hide={"per_page": 20}))

        The names of arguments in `hide`, `rename` and `defaults` are those of this tool.

        Args:
            name: The name of the copy (default: the same).
            title: Its display name (default: the same).
            description: Its description for the model (default: the same).
            hide: Arguments that callers neither see nor pass, with their values. A function,
                which may be async, is called for each call to make the value. No schema, message or
                record contains a value.
            rename: The new names of arguments.
            defaults: The values of arguments that callers leave out. The schema shows them.
            wrap: An async function `(arguments, call_next)` that is called instead of the tool. It
                gets the arguments as callers see them, and returns any value that a tool can
                return. `await call_next(arguments)` calls the tool and returns its `ToolResult`.
                With a third parameter, it also gets the `Context`.
            output_schema: A JSON schema for the results of the copy. They are validated against it
                (default: the same, or none with `wrap`).

        Raises:
            ConfigError: There is no such argument, a value does not fit it, two arguments would
                have the same name, or `wrap` is not an async function.
        """
        from .transform import ArgumentChange

        change = ArgumentChange(self.name, hide or {}, rename or {}, defaults or {})
        copy = _with_arguments(self, name or self.name, change)
        if wrap is not None:
            copy = _wrapped(copy, wrap)
        changes: dict[str, Any] = {"title": title, "description": description}
        if output_schema is not None:
            changes["output_schema"] = output_schema
            copy = replace(copy, make_result=_result_maker_by_schema(copy.name, output_schema))
        changes = {key: value for key, value in changes.items() if value is not None}
        return replace(copy, definition=replace(copy.definition, **changes))


def definition_fields(signature: Signature, options: ComponentOptions) -> dict[str, Any]:
    """Return the fields that the definitions of all components have in common."""
    description = options.get("description")
    return {
        "name": signature.name,
        "title": options.get("title"),
        "description": signature.description if description is None else description,
        "icons": options.get("icons"),
        "meta": options.get("meta"),
    }


def compile_tool(
    function: Callable[..., Any], context_type: type, options: ToolOptions
) -> RegisteredTool:
    """Compile a function into a tool; parameters of the type `context_type` receive the context,
    and the options are the same as for `Server.tool`."""
    from .signature import Signature

    schema, output_schema = options.get("schema"), options.get("output_schema")
    annotations, task = options.get("annotations"), options.get("task")
    timeout, isolate = options.get("timeout"), options.get("isolate")
    signature = Signature(
        function, context_type=context_type, free=schema is not None, name=options.get("name")
    )
    name = signature.name
    _check_name(name)
    _check_signature(name, signature)
    make_result, described = _result_maker(name, signature.returns)
    arguments: Arguments = signature
    if schema is not None:
        from .transform import SchemaArguments

        arguments = SchemaArguments(name, schema, signature.pass_on)
    tool = Tool(
        **definition_fields(signature, options),
        input_schema=arguments.schema,
        output_schema=described if output_schema is None else output_schema,
        annotations=None if annotations is None else ToolAnnotations.of(annotations),
        execution=None if task is None else ToolExecution(task_support=task),
    )
    ui, visibility = options.get("ui"), options.get("visibility")
    if ui is not None or visibility is not None or "ui" in (tool.meta or ()):
        from ..extensions.apps.settings import tool_meta

        tool.meta = tool_meta(name, tool.meta or {}, ui, visibility)
    sandbox = None
    if isolate is not None:
        sandbox = _check_isolated(isolate, function, signature, name)
    if output_schema is not None:
        make_result = _result_maker_by_schema(name, output_schema)
    return RegisteredTool(
        tool,
        signature,
        arguments.bind,
        make_result,
        timeout,
        isolated=isolate is not None,
        sandbox=sandbox,
        direct=signature.is_async and timeout is None and isolate is None,
        arguments=arguments,
        uses_context=signature.context is not None,
        header_params=_header_params(name, tool.input_schema),
        scopes=parse_scopes(options.get("scopes", ()), f"Tool {name!r}"),
        task=_task_support(name, signature, task, options.get("resumable", False)),
    )


def _task_support(
    name: str, signature: Signature, task: str | None, resumable: bool
) -> TaskSupport | None:
    if task is None and not resumable:
        return None
    from ..extensions.tasks.settings import calls_detach, task_support

    detaches = signature.context is not None and calls_detach(signature.function)
    return task_support(name, task, resumable, detaches)


def _check_name(name: str) -> None:
    if name == "<lambda>":
        raise ConfigError("A lambda has no name; name the tool with name=…")
    if not NAME.fullmatch(name):
        advice = (
            "use 1 to 128 characters from A-Z, a-z, 0-9, `_`, `-` and `.`, because some clients "
            "reject other names"
        )
        warnings.warn(f"Tool name {name!r}: {advice}", stacklevel=_user_stack_level())


def _check_signature(name: str, signature: Signature) -> None:
    if signature.is_generator:
        raise ConfigError(
            f"Tool {name!r} is a generator; return the result, and report intermediate steps "
            "with ctx.progress"
        )
    if signature.context is None and any(
        parameter.name == "ctx" and parameter.annotation is Any
        for parameter in signature.parameters
    ):
        advice = (
            "is an argument that the model must provide; if it should be the context, write `ctx: "
            "Context`"
        )
        warnings.warn(f"Tool {name!r}: `ctx` {advice}", stacklevel=_user_stack_level())


def _user_stack_level() -> int:
    """Return the `stacklevel` of the first frame outside this package, for a caller that issues a
    warning."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dovetail."):
        level, frame = level + 1, frame.f_back
    return level


def _check_isolated(
    isolate: str | Sequence[str],
    function: Callable[..., Any],
    signature: Signature,
    name: str,
) -> Sandbox | None:
    """Return the sandbox for `isolate=`, if it is a command. Raise an error if the tool cannot be
    isolated."""
    from .isolation import check_isolatable, make_sandbox

    is_command = not isinstance(isolate, str) and all(isinstance(word, str) for word in isolate)
    if isolate != "process" and not (is_command and isolate):
        raise ConfigError(
            f'isolate={isolate!r} is not supported: use "process", or the command of a sandbox as '
            'a list, such as ["bwrap", "--unshare-all", …]'
        )
    check_isolatable(function, signature.context is not None, name)
    return make_sandbox(isolate, signature.returns, name) if is_command else None


def _compile_schema(schema: dict[str, Any]) -> Validator:
    from ..schema.validation import compile

    return compile(schema)


def _header_params(name: str, schema: dict[str, Any]) -> tuple[HeaderParam, ...]:
    from ..schema.header import KEYWORD

    if KEYWORD not in repr(schema):  # nearly always, and then nothing more is loaded
        return ()
    from ..protocol.header_params import find_header_params

    try:
        return find_header_params(schema)
    except SchemaError as error:
        raise SchemaError(f"Tool {name!r}: {error}") from None


# --------------------------------------------------------------------------------------------------
# changed copies


def _with_arguments(tool: RegisteredTool, name: str, change: ArgumentChange) -> RegisteredTool:
    """Return a copy of a tool with another name and changed arguments."""
    if not isinstance(name, str):
        raise ConfigError(f"Tool {tool.name!r}: name= must be a string")
    _check_name(name)
    arguments = tool.arguments.changed(name, change)
    makes_values = any(callable(value) for value in change.hide.values())
    is_same = name == tool.name
    return replace(
        tool,
        definition=replace(tool.definition, name=name, input_schema=arguments.schema),
        signature=arguments if tool.arguments is tool.signature else tool.signature,
        arguments=arguments,
        bind=arguments.bind,
        make_result=tool.make_result if is_same else _renamed(tool.make_result, tool.name, name),
        direct=tool.direct and not makes_values,
        header_params=_header_params(name, arguments.schema),
        has_fresh_values=tool.has_fresh_values or makes_values,
    )


def _renamed(make: MakeResult, old: str, new: str) -> MakeResult:
    """Return the function that makes results, with the new name of the tool in its errors."""

    def make_result(value: Any) -> ToolResult:
        try:
            return make(value)
        except InvalidOutput as error:
            raise InvalidOutput(f"{new}{str(error).removeprefix(old)}", error.result) from None

    return make_result


def _wrapped(tool: RegisteredTool, function: Callable[..., Awaitable[Any]]) -> RegisteredTool:
    """Return a tool that calls a function instead of the original."""
    from .signature import decode_object, is_async
    from .transform import SchemaArguments

    if not callable(function) or not is_async(function):
        raise ConfigError(f"Tool {tool.name!r}: wrap= must be an async function")
    takes_context = not _takes(function, 2)
    if takes_context and not _takes(function, 3):
        raise ConfigError(
            f"Tool {tool.name!r}: wrap= must have the parameters (arguments, call_next), or "
            "(arguments, call_next, ctx)"
        )
    arguments = SchemaArguments(
        tool.name, tool.definition.input_schema, lambda values, context: ((values, context), {})
    )

    def bind(raw: Raw, context: Any) -> Bound:
        values = decode_object(raw, tool.name)
        tool.arguments.bind_object(values, context)  # raises an error if they do not fit
        return (tool.arguments.repaired(values), context), {}

    return replace(
        tool,
        definition=replace(tool.definition, output_schema=None),
        arguments=arguments,
        bind=bind,
        make_result=make_any_result,
        direct=False,
        has_fresh_values=False,
        uses_context=tool.uses_context or takes_context,
        inner=tool,
        wrap=function
        if takes_context
        else lambda values, call_next, _: function(values, call_next),
    )


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with this number of arguments."""
    from inspect import signature

    try:
        signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


class _InputNeeded(BaseException):
    """The original of a wrapped tool returned questions, which go to the client."""

    def __init__(self, required: InputRequired) -> None:
        super().__init__("The tool needs input")
        self.required = required


async def _run_wrapped(
    tool: RegisteredTool, call: Call, values: dict[str, Any], context: Any, limits: Limits
) -> Any:
    inner, wrap = tool.inner, tool.wrap
    assert inner is not None and wrap is not None

    async def call_next(arguments: dict[str, Any]) -> ToolResult:
        try:
            args, kwargs = inner.arguments.bind_object(arguments, context)
        except InvalidParams as error:
            raise ToolError(str(error)) from None
        value = await _run(inner, call, args, kwargs, limits)
        if type(value) is InputRequired:
            raise _InputNeeded(value)
        return decode_structured(inner.make_result(value))

    try:
        return await wrap(values, call_next, context)
    except _InputNeeded as needed:
        return needed.required


# --------------------------------------------------------------------------------------------------
# calls


async def call_tool(
    tool: RegisteredTool, call: Call, context: Context | None, limits: Limits, mask: bool
) -> ToolResult | InputRequired:
    """Run a tool for a call."""
    try:
        args, kwargs = tool.bind(call.params.arguments, context)
    except InvalidParams as error:
        if call.revision.tool_errors and call.params.has_object:
            return make_error_result(str(error))
        raise  # the request itself breaks the schema of `tools/call`
    try:
        if tool.direct:
            value = await tool.signature.function(*args, **kwargs)
        else:
            value = await _run(tool, call, args, kwargs, limits)
        return value if type(value) is InputRequired else tool.make_result(value)
    except (ToolError, NotFound) as error:
        return make_error_result(str(error))
    except Overloaded as error:
        if error.retry_after is None or tool.definition.is_repeatable:
            raise
        raise _without_wait(error, tool.definition.name) from error
    except ProtocolError:
        raise
    except CannotAsk as error:
        if call.revision.stateless:
            raise
        return make_error_result(str(error))  # older revisions have no error code for it
    except BaseException as error:
        if call.cancelled or call.abort_error is not None:
            raise
        return make_error_result(describe_failure(tool.definition.name, error, mask))


async def _run(
    tool: RegisteredTool, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Limits
) -> Any:
    from .execution import run_function, run_with_timeout

    if tool.has_fresh_values:
        args, kwargs = await _make_values(args, kwargs)
    if tool.wrap is not None:
        values, context = args
        return await _run_wrapped(tool, call, values, context, limits)
    function, name = tool.signature.function, tool.definition.name
    if tool.isolated:
        from .isolation import run_isolated

        return await run_isolated(function, args, kwargs, limits, tool.timeout, name, tool.sandbox)
    work = run_function(function, tool.signature.is_async, args, kwargs, limits)
    return await (
        work if tool.timeout is None else run_with_timeout(work, tool.timeout, name, call)
    )


async def _make_values(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make the values of hidden arguments for a call. A wrapped tool has its arguments in a
    dict."""
    from .transform import get_fresh

    async def make(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: await get_fresh(value) for name, value in values.items()}

    made = [await (make(one) if type(one) is dict else get_fresh(one)) for one in args]
    return tuple(made), await make(kwargs)


def _without_wait(error: Overloaded, name: str) -> Overloaded:
    """Return the error of a tool that has begun without the time to wait, so that no client repeats
    the call by itself."""
    if isinstance(error, BackendAway):
        return BackendAway(AWAY_IN_TOOL.format(name))
    data = {key: value for key, value in error.data.items() if key != "retryAfter"}
    return Overloaded(error.message, data=data or None, code=error.code)


def describe_failure(name: str, error: BaseException, mask: bool) -> str:
    """Return the text of an exception for the model, and log the traceback."""
    from ..connection.answer import users_exc_info
    from ..logs import get_logger

    log = get_logger("server")
    log.warning("%s failed", name, exc_info=users_exc_info(error))
    if mask:
        return f"{name} failed"
    text = str(error)
    if isinstance(error, Unencodable):
        return f"{name} returned a value that cannot be sent: {text}"
    if isinstance(error, KeyError):
        return f"KeyError: {text}"  # the key alone says little
    if isinstance(error, Exception):
        return text or type(error).__name__
    return f"{name} ended with {type(error).__name__}" + (f": {text}" if text else "")


# --------------------------------------------------------------------------------------------------
# results


def _result_maker(name: str, returns: Any) -> tuple[MakeResult, dict[str, Any] | None]:
    """Return the function that turns values with this return annotation into results, and the
    output schema, if there is one."""
    returns = _described_type(returns)
    if returns in _UNSPECIFIC or _is_content_annotation(returns):
        return make_any_result, None
    try:
        shape = Shape(returns)
        schema = shape.output_schema
    except SchemaError:
        return _attributes_result_maker(name, returns)
    if describes_object(schema):
        return _typed_result_maker(name, shape, b"", b""), schema
    inner = dict(schema)
    definitions = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
    wrapped = {
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
        **definitions,
    }
    return _typed_result_maker(name, shape, b'{"result":', b"}"), wrapped


def _described_type(returns: Any) -> Any:
    """Return the part of a return annotation that describes the result: no `InputRequired` in a
    union, and only the type of the structured content in `Annotated[ToolResult, Model]`."""
    members = get_args(returns) if get_origin(returns) in (Union, UnionType) else (returns,)
    kept = [
        one for one in members if not (isinstance(one, type) and issubclass(one, InputRequired))
    ]
    if len(kept) < len(members):
        special: Any = Union
        returns = special[tuple(kept)] if kept else Any
    base, *notes = get_args(returns) if get_origin(returns) is Annotated else (None,)
    is_result = isinstance(base, type) and issubclass(base, ToolResult)
    described = (one for one in notes if isinstance(one, type) or get_origin(one) is not None)
    return next(described, returns) if is_result else returns


def _attributes_result_maker(name: str, returns: Any) -> tuple[MakeResult, dict[str, Any] | None]:
    """Return the function and the schema for a plain class, whose annotated attributes are sent.
    If a schema cannot describe the return type, the tool is listed without one."""
    from ..schema.walk import describe_attributes

    struct = describe_attributes(returns)
    if struct is None:
        return make_any_result, None
    make, schema = _result_maker(name, struct)
    names = struct.__struct_fields__

    def make_result(value: Any) -> ToolResult:
        if isinstance(value, returns):
            value = struct(**{name: getattr(value, name) for name in names})
        return make(value)

    return make_result, schema


def _typed_result_maker(name: str, shape: Shape, before: bytes, after: bytes) -> MakeResult:
    """Return the function that turns values of a type into results that match the output schema.

    The encoded value is checked by decoding it again as that type. The check is not needed for
    pydantic, which has already validated the value, or for a plain value of exactly that type.
    """
    encode = shape.encode
    exact_type = shape.annotation if shape.annotation in (int, str, bool) else None
    check = None if shape.native is Raw else shape.decode

    def make_result(value: Any) -> ToolResult:
        if _has_content(value):
            result = make_any_result(value)
            if not result.is_error:
                _check_structured(name, shape, result, bool(before))
            return result
        try:
            data = encode(value)
        except Unencodable as error:
            return make_result(_without_surrogates(value, error))
        if check is not None and type(value) is not exact_type:
            try:
                check(data)
            except TypeMismatch as problem:
                raise _invalid_output(name, problem) from None
        text = value if type(value) is str else data.decode()
        return ToolResult(
            content=[TextContent(text)], structured_content=Raw(before + data + after)
        )

    return make_result


def _check_structured(name: str, shape: Shape, result: ToolResult, wrapped: bool) -> None:
    structured = result.structured_content
    try:
        shape.convert(structured["result"] if wrapped else structured)
    except (TypeMismatch, TypeError, KeyError) as problem:
        raise _invalid_output(name, problem, result) from None


def _invalid_output(name: str, problem: object, result: ToolResult | None = None) -> InvalidOutput:
    return InvalidOutput(
        f"{name} returned a value that does not match its output schema: {problem}", result
    )


def _result_maker_by_schema(name: str, schema: dict[str, Any]) -> MakeResult:
    make = make_any_result if describes_object(schema) else _make_unwrapped_result
    return _validating(name, make, _compile_schema(schema))


def _validating(name: str, make: MakeResult, validator: Validator) -> MakeResult:
    """Wrap `make` so that its results are validated against a schema from the user."""

    def make_result(value: Any) -> ToolResult:
        result = make(value)
        structured = result.structured_content
        if type(structured) is Raw:
            structured = _decode_json(structured)
        problems = [] if result.is_error else validator.problems(structured)
        if problems:
            raise _invalid_output(name, "; ".join(problems), result)
        return result

    return make_result


def make_any_result(value: Any) -> ToolResult:
    """Create a result from a value that has no output schema."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(content=[])
    if isinstance(value, CONTENT):
        return ToolResult(content=[content_block(value)])
    if _has_content(value):
        return ToolResult(content=[content_block(item) for item in value])
    try:
        data = ANY_SHAPE.encode(value)
    except Unencodable as error:
        return make_any_result(_without_surrogates(value, error))
    return _structured_result(
        value, data, data if data[:1] == b"{" else b'{"result":' + data + b"}"
    )


def _make_unwrapped_result(value: Any) -> ToolResult:
    """Create a result for a schema that does not describe an object, without wrapping the value."""
    if _has_content(value):
        return make_any_result(value)
    data = ANY_SHAPE.encode(value)
    return _structured_result(value, data, data)


def _structured_result(value: Any, data: bytes, structured: bytes) -> ToolResult:
    return ToolResult(
        content=[TextContent(value if type(value) is str else data.decode())],
        structured_content=Raw(structured),
    )


def make_error_result(text: str) -> ToolResult:
    """Create a result that tells the model what went wrong."""
    return ToolResult(content=[TextContent(text)], is_error=True)


def decode_structured(result: ToolResult) -> ToolResult:
    """Decode the structured content of a result in place, so that middleware can inspect it."""
    if type(result.structured_content) is Raw:
        result.structured_content = _decode_json(result.structured_content)
    return result


def _without_surrogates(value: Any, error: Unencodable) -> Any:
    """Replace lone surrogates in a value; raise `error` if the value has another problem."""
    if not isinstance(error.__cause__, UnicodeEncodeError):
        raise error
    from ..connection.encode import replace_surrogates  # loads logging, so not before it is needed

    return replace_surrogates(value)


_content_types: BoundedDict[type, bool] = BoundedDict(1000)  # programs may create types


def _has_content(value: Any) -> bool:
    """Return whether the value is content, a result, or a list that contains content. This function
    is called for each result, so the answer is cached by type (0.1 µs instead of 0.9 µs)."""
    kind = type(value)
    if kind is list or kind is tuple:
        return any(isinstance(item, CONTENT) for item in value)
    known = _content_types.get(kind)
    if known is None:
        known = _content_types[kind] = issubclass(kind, (*CONTENT, ToolResult))
    return known


def content_block(item: Any) -> Any:
    """Return content unchanged, and anything else as text."""
    if isinstance(item, Media):
        return item.content()
    if isinstance(item, CONTENT):
        return item
    return TextContent(item if isinstance(item, str) else ANY_SHAPE.encode(item).decode())


def _is_content_annotation(annotation: Any) -> bool:
    """Return whether the annotation names content or a full result, which have no output schema."""
    if isinstance(annotation, type):
        return issubclass(annotation, (*CONTENT, ToolResult))
    if get_origin(annotation) is None:
        return False
    return any(_is_content_annotation(arg) for arg in get_args(annotation))


def describes_object(schema: dict[str, Any]) -> bool:
    """Return whether every value that matches the schema is an object."""
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/"):
        return describes_object(
            schema["$defs"][reference.removeprefix("#/$defs/")] | {"$defs": schema["$defs"]}
        )
    return schema.get("type") == "object"
