"""Tools, prompts, resources and templates as objects: `Tool.from_function(…)`, `add_tool(tool)`.

A component is the protocol type with the function behind it, so it has every field in either
spelling and can be listed as it is.
"""

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any, ClassVar

import msgspec
from msgspec.structs import asdict

from ..errors import ConfigError
from ..protocol.base import Wire
from ..protocol.prompts import GetPromptResult, Prompt
from ..protocol.resources import Resource, ResourceTemplate
from ..protocol.tools import Tool, ToolResult
from ..server.prompts import make_prompt_result
from ..server.tools import decode_structured
from .types import spelled

OPTIONS = frozenset({"name", "title", "description", "annotations", "icons", "meta", "mime_type"})
"""The fields that are also options of a decorator."""


class Component:
    """What all components have in common: the function and its registration."""

    kind: ClassVar[str]
    fn: Any
    registered: Any
    server: Any
    options: dict[str, Any]
    enabled = True

    @property
    def tags(self) -> set[str]:
        """The tags."""
        return set(((self.meta or {}).get("fastmcp") or {}).get("tags", ()))  # type: ignore[attr-defined]

    @property
    def key(self) -> str:
        """The name or URI by which the server knows the component."""
        return str(next(getattr(self, each) for each in ADDRESSES if hasattr(self, each)))

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        schema: dict[str, Any] = self.registered.signature.schema
        return schema

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.fn(*args, **kwargs)

    def to_wire(self, **changes: Any) -> Any:
        """Return the listed definition."""
        return type(self.registered.definition)(**{**asdict(self), **changes})  # type: ignore[call-overload]

    to_mcp_tool = to_mcp_prompt = to_mcp_resource = to_mcp_template = to_wire

    async def _call(self, args: Any, kwargs: Any) -> Any:
        value = self.fn(*args, **kwargs)
        return await value if isawaitable(value) else value

    @classmethod
    def from_function(cls, fn: Callable[..., Any], *address: Any, **options: Any) -> Any:
        """Create a component from a function.

        Args:
            fn: The function.
            *address: The URI or the name.
            **options: The options of the decorator.
        """
        from .server import FastMCP

        server = FastMCP("components")
        uri = options.pop("uri", None) or options.pop("uri_template", None)
        getattr(server, f"add_{cls.kind}")(fn, *([str(uri)] if uri else address), **options)
        registry = next(filter(len, server._registries[f"{cls.kind}s"]))
        return wrap(next(iter(registry)), server, options)


class FunctionTool(Component, Tool, dict=True):
    """A tool and its function."""

    kind = "tool"

    async def run(
        self, arguments: dict[str, Any], context: Any = None, **ignored: Any
    ) -> ToolResult:
        """Call the tool.

        Args:
            arguments: The arguments.
            context: The context, if the function has a parameter for it.
            **ignored: Other arguments of the official SDK; they have no effect.
        """
        raw = msgspec.Raw(msgspec.json.encode(arguments))
        value = await self._call(*self.registered.bind(raw, context))
        return decode_structured(self.registered.make_result(value))

    @classmethod
    def from_tool(cls, tool: "FunctionTool", **changes: Any) -> "FunctionTool":
        """Create a tool with another name or description.

        Args:
            tool: The tool.
            **changes: The options to change.
        """
        fn, options = unpack(tool, {})
        return cls.from_function(fn, **{**options, **changes})  # type: ignore[no-any-return]


class FunctionPrompt(Component, Prompt, dict=True):
    """A prompt and its function."""

    kind = "prompt"

    async def render(self, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        """Return the messages.

        Args:
            arguments: The arguments.
        """
        value = await self._call(*self.registered.signature.bind_values(arguments or {}, None))
        return make_prompt_result(self.registered, value)


class FunctionResource(Component, Resource, dict=True):
    """A resource and its function."""

    kind = "resource"

    async def read(self, **variables: Any) -> Any:
        """Return the contents: text, bytes, or any value that the function returns.

        Args:
            **variables: The variables of a template.
        """
        return await self._call(*self.registered.signature.bind_values(variables, None))


class FunctionTemplate(Component, ResourceTemplate, dict=True):
    """A resource template and its function."""

    kind = "resource"
    read = FunctionResource.read


ADDRESSES = ("uri", "uri_template", "name")
KINDS: dict[Any, Any] = {
    Tool: FunctionTool,
    Prompt: FunctionPrompt,
    Resource: FunctionResource,
    ResourceTemplate: FunctionTemplate,
}


def wrap(registered: Any, server: Any = None, options: dict[str, Any] | None = None) -> Any:
    """Return the component for an entry of a server's registry.

    Args:
        registered: A registered tool, prompt, resource or template.
        server: The server.
        options: The options with which it was registered.
    """
    definition = registered.definition
    component = KINDS[type(definition)](**asdict(definition))
    component.fn, component.registered = registered.signature.function, registered
    component.server = server
    component.options = {key: value for key, value in (options or {}).items() if key != "tags"}
    return component


wrap_tool = wrap_prompt = wrap_resource = wrap


def unpack(component: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the function and the options of a component; a function is returned as it is.

    Args:
        component: A function or a component.
        options: Options that replace those of the component.
    """
    if not isinstance(component, Wire):
        return component, options
    fields = {key: value for key, value in asdict(component).items() if key in OPTIONS}
    if isinstance(component, Component):
        return component.fn, {**component.options, **fields, **options}
    if not isinstance(component, Tool) or not hasattr(component, "run"):
        raise ConfigError(f"{type(component).__name__} has no function: use .from_function(…)")

    async def call(**arguments: Any) -> Any:
        return await component.run(arguments)

    return call, {**fields, "schema": component.input_schema, **options}


def _make_resource(source: str, reader: Any, name: str | None = None, **options: Any) -> Any:
    value, uri = options.pop(source), str(options.pop("uri", ""))
    read = reader(value, options)
    uri = uri or f"file://{value}"
    return FunctionResource.from_function(read, uri, name=name or uri, **options)


def _constant(value: Any, options: dict[str, Any]) -> Callable[[], Any]:
    return lambda: value


def _file(path: Any, options: dict[str, Any]) -> Callable[[], Any]:
    kind = options.get("mime_type") or "text/plain"
    binary = options.pop("is_binary", not kind.startswith("text/") and "json" not in kind)
    return partial(_read_file, path, binary)


def _read_file(path: Any, binary: bool) -> str | bytes:
    from pathlib import Path

    return Path(path).read_bytes() if binary else Path(path).read_text(encoding="utf-8")


TextResource = partial(_make_resource, "text", _constant)
BinaryResource = partial(_make_resource, "data", _constant)
FileResource = partial(_make_resource, "path", _file)

CompatTool = spelled(
    "Tool", Tool, from_function=FunctionTool.from_function, from_tool=FunctionTool.from_tool
)
CompatPrompt = spelled("Prompt", Prompt, from_function=FunctionPrompt.from_function)
CompatResource = spelled("Resource", Resource, from_function=FunctionResource.from_function)
CompatTemplate = spelled(
    "ResourceTemplate",
    ResourceTemplate,
    from_function=FunctionTemplate.from_function,
    from_template=FunctionTemplate.from_function,
)
