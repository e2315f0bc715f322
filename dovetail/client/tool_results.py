"""Check a tool's results against its output schema, and convert their data to a Python type.

`validate="strict"` raises InvalidOutput, `"warn"` (the default) logs a warning, and `"off"` skips
the check. The result is never lost: the error carries it. `"strict"` also checks the arguments
before each call, refuses to call a tool whose schemas cannot be used, and lists the tools before
the first call; `"warn"` checks only the tools that are already known. `call_tool("forecast", …,
type=Forecast).data` is a `Forecast`.
"""

from typing import Any, Generic, TypeVar

import msgspec

from ..errors import ConfigError, InvalidOutput, InvalidParams, SchemaError
from ..limits import Limits
from ..logs import get_logger
from ..protocol.tools import CallToolParams, Tool, ToolResult
from ..schema import Shape, TypeMismatch
from ..schema.validation import Validator, compile
from ..text import closest_name

log = get_logger("client")
T = TypeVar("T")
VALIDATION_MODES = ("strict", "warn", "off")


class ResultValidator:
    """Checks the results of one server's tools."""

    def __init__(self, mode: str, limits: Limits) -> None:
        if mode not in VALIDATION_MODES:
            raise ConfigError(f"validate={mode!r} must be one of {', '.join(VALIDATION_MODES)}")
        self._mode = mode
        self._limits = limits
        self._tools: dict[str, Tool] | None = None
        self._validators: dict[tuple[str, str], Validator | SchemaError] = {}
        """The compiled schemas, or the reasons why they cannot be used, by tool and kind of
        schema."""

    def set_tools(self, tools: list[Tool]) -> None:
        """Remember the tools as they were listed."""
        self._tools = {tool.name: tool for tool in tools}
        self._validators = {}

    def clear(self) -> None:
        """Discard the tools, because they may have changed."""
        self._tools, self._validators = None, {}

    async def check_call(self, params: CallToolParams, client: Any) -> None:
        """Validate a call before it is sent, if the mode is strict. List the tools first if the
        tool is not known."""
        if self._mode != "strict":
            return
        if self.find(params.name) is None:
            # A list without the tool may be outdated.
            await client.list_tools(fresh=self._tools is not None)
        tool = self.find(params.name)
        if tool is None:
            return  # the server says so
        for kind in ("input", "output"):
            if isinstance(unusable := self._validator(tool, kind), SchemaError):
                raise SchemaError(str(unusable))
        checked = self._validator(tool, "input")
        assert isinstance(checked, Validator)
        if problems := checked.problems(msgspec.json.decode(params.arguments)):
            raise InvalidParams(
                f"The arguments for {tool.name} do not match its input schema: "
                f"{'; '.join(problems)}",
                parameter="arguments",
            )

    def find(self, name: str) -> Tool | None:
        """Return a tool as it was listed last; None if it is not known."""
        return (self._tools or {}).get(name)

    def is_repeatable(self, name: str) -> bool:
        """Return whether the server marks the tool as safe to call twice."""
        tool = self.find(name)
        return tool is not None and tool.is_repeatable

    def suggest(self, name: str) -> str | None:
        """Return the known tool with the most similar name; None if `name` itself is known."""
        known = self._tools or {}
        return closest_name(name, known) if name not in known else None

    def task_support(self, name: str) -> str | None:
        """Return whether a tool can or must be called as a task, in the core form; None if the tool
        is not known."""
        tool = self.find(name)
        if tool is None:
            return None
        return (tool.execution and tool.execution.task_support) or "forbidden"

    def check(self, name: str, result: ToolResult) -> None:
        """Validate a result against the output schema of its tool."""
        tool = None if self._tools is None else self._tools.get(name)
        if tool is None or tool.output_schema is None or self._mode == "off":
            return
        problem = self._problem(tool, result.structured_content)
        if not problem:
            return
        text = f"The result of {name} does not match its output schema: {problem}"
        if self._mode == "strict":
            raise InvalidOutput(text, result)
        log.warning("%s", text)

    def _problem(self, tool: Tool, content: Any) -> str:
        if content is None:
            return "there is no structured content"
        is_new = (tool.name, "output") not in self._validators
        validator = self._validator(tool, "output")
        if isinstance(validator, SchemaError):
            return str(validator) if is_new else ""  # reported once
        return "; ".join(validator.problems(content)) if validator else ""

    def _validator(self, tool: Tool, kind: str) -> Validator | SchemaError | None:
        """Return the compiled schema of a tool, or the reason why it cannot be used; None if the
        tool has no schema."""
        schema = tool.input_schema if kind == "input" else tool.output_schema
        if schema is None:
            return None
        key = tool.name, kind
        if key not in self._validators:
            try:
                self._validators[key] = compile(schema, self._limits)
            except SchemaError as error:
                text = f"The {kind} schema of tool {tool.name!r} cannot be used: {error}"
                self._validators[key] = SchemaError(text)
        return self._validators[key]


class TypedToolResult(ToolResult, Generic[T], kw_only=True):
    """A result whose `.data` was converted to a type."""

    converted: Any = None

    @property
    def data(self) -> T:
        """The data that the tool returned, as the requested type."""
        return self.converted  # type: ignore[no-any-return]


def convert_result(result: ToolResult, type_: Any) -> TypedToolResult[Any]:
    """Return the result with its data converted. If the conversion fails, raise InvalidOutput,
    which carries the result."""
    shape = Shape.of(type_)
    try:
        if result.structured_content is None and type_ is not str:
            value = shape.decode(result.text.encode())
        else:
            value = shape.convert(result.data)
    except (TypeMismatch, ValueError) as error:
        raise InvalidOutput(
            f"The result cannot be converted to {getattr(type_, '__name__', type_)}: {error}",
            result,
        ) from None
    fields = {name: getattr(result, name) for name in result.__struct_fields__}
    return TypedToolResult(**fields, converted=value)
