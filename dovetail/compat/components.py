"""Tools, prompts, resources and templates as objects: `Tool.from_function(…)`, `add_tool(tool)`.

A component is the protocol type with the function behind it, so it has every field in either
spelling and can be listed as it is.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ..errors import ConfigError
from ..protocol.base import Wire
from ..protocol.prompts import Prompt
from ..protocol.resources import Resource, ResourceTemplate
from ..protocol.tools import Tool, ToolAnnotations
from ..server.prompts import make_prompt_result
from ..server.tools import RegisteredTool, decode_structured
from .types import spelled

OPTIONS = frozenset({"name", "title", "description", "annotations", "icons", "meta", "mime_type"})
"""The fields that are also options of a decorator."""


class Component:
    """The function of a component, and its entry in the registry of a server."""

    kind, enabled = "resource", True
    fn: Any
    registered: Any
    server: Any
    options: dict[str, Any] | None
    """The options of `from_function`; None if the component is that of a server."""

    @classmethod
    def from_function(cls, fn: Callable[..., Any], *address: Any, **options: Any) -> Any:
        """Create a component from a function."""
        from importlib import import_module

        server = import_module("dovetail.compat.server").FastMCP("components")
        uri = options.pop("uri", None) or options.pop("uri_template", None)
        getattr(server, f"add_{cls.kind}")(fn, *([str(uri)] if uri else address), **options)
        (registered,) = (item for each in server._registries[f"{cls.kind}s"] for item in each)
        options.pop("tags", None)  # they are in the definition
        return wrap(registered, server, None if isinstance(fn, RegisteredTool) else options)

    @property
    def tags(self) -> set[str]:
        """The tags."""
        return set((getattr(self, "meta", None) or {}).get("fastmcp", {}).get("tags", ()))

    @property
    def key(self) -> str:
        """The name or URI by which the server knows the component."""
        names = ("uri", "uri_template", "name")
        return str(next(getattr(self, name) for name in names if hasattr(self, name)))

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        schema: dict[str, Any] = self.registered.signature.schema
        return getattr(self, "input_schema", schema)

    @parameters.setter
    def parameters(self, schema: dict[str, Any]) -> None:
        definition = replace(self.registered.definition, input_schema=schema)
        self.registered = replace(self.registered, definition=definition)
        self.server._tools.replace(self.key, self.key, self.registered)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.fn(*args, **kwargs)

    def to_mcp_tool(self: Any, **changes: Any) -> Any:
        """Return the listed definition."""
        return type(self.registered.definition)(**{**asdict(self), **changes})

    to_mcp_prompt = to_mcp_resource = to_mcp_template = to_mcp_tool

    async def read(self, context: Any = None, **arguments: Any) -> Any:
        """Call the function with values that are converted to the types of its parameters."""
        return await self._call(self.registered.signature.bind_values(arguments, context))

    async def _call(self, bound: Any) -> Any:
        value = self.fn(*bound[0], **bound[1])
        return await value if isawaitable(value) else value


class ToolComponent(Component, Tool, dict=True):
    """A tool and its function."""

    kind = "tool"

    async def run(self, arguments: dict[str, Any], context: Any = None, **ignored: Any) -> Any:
        """Call the tool and return its result."""
        raw = msgspec.Raw(msgspec.json.encode(arguments))
        value = await self._call(self.registered.bind(raw, context))
        return decode_structured(self.registered.make_result(value))

    @property
    def fn_metadata(self) -> Any:
        """The model of the arguments, as pydantic describes them. Another model has no effect."""
        create_model: Any = import_module("pydantic").create_model
        fields = {each.name: (Any, ...) for each in self.registered.signature.parameters}
        schema = classmethod(lambda cls, **options: {**self.parameters})
        base = type("ToolArguments", (create_model("Base"),), {"model_json_schema": schema})
        model = create_model(f"{self.name}Arguments", __base__=base, **fields)
        return SimpleNamespace(arg_model=model)

    @classmethod
    def from_tool(cls, tool: Any, **changes: Any) -> Any:
        """Create a tool with another name or description."""
        fn, options = unpack(tool, changes)
        return cls.from_function(fn, **options)


class PromptComponent(Component, Prompt, dict=True):
    """A prompt and its function."""

    kind = "prompt"

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Return the messages of the prompt."""
        return make_prompt_result(self.registered, await self.read(**(arguments or {})))


class ResourceComponent(Component, Resource, dict=True):
    """A resource and its function."""


class TemplateComponent(Component, ResourceTemplate, dict=True):
    """A resource template and its function."""


KINDS: dict[Any, Any] = {Tool: ToolComponent, Prompt: PromptComponent, Resource: ResourceComponent,
                         ResourceTemplate: TemplateComponent}  # fmt: skip


def wrap(registered: Any, server: Any = None, options: dict[str, Any] | None = None) -> Any:
    """Return the component for an entry in the registry of a server."""
    component = KINDS[type(registered.definition)](**asdict(registered.definition))
    component.fn, component.registered = registered.signature.function, registered
    component.options, component.server = options, server
    return component


def unpack(component: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the function and the options of a component; a function is returned as it is."""
    if not isinstance(component, Wire):
        return component, options
    fields = {key: value for key, value in asdict(component).items() if key in OPTIONS}
    if isinstance(component, Component):
        if component.options is None and isinstance(component.registered, RegisteredTool):
            return _change_tool(component.registered, {**fields, **options})
        scopes = getattr(component.registered, "scopes", ())
        made = {"scopes": scopes} if component.options is None else component.options
        return component.fn, {**made, **fields, **options}
    if not hasattr(component, "run"):
        raise ConfigError(f"{type(component).__name__} has no function: use .from_function(…)")

    async def call(**arguments: Any) -> Any:
        return await component.run(arguments)

    return call, {**fields, "schema": getattr(component, "input_schema", None), **options}


def _change_tool(tool: RegisteredTool, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a copy of a tool with its scopes, hidden arguments and so on, and other options."""
    fields = {key: options.pop(key) for key in OPTIONS & options.keys()}
    fields["annotations"] = fields["annotations"] and ToolAnnotations.of(fields["annotations"])
    copy = tool.with_(name=fields["name"])
    return replace(copy, definition=replace(copy.definition, **fields)), options


def _make_resource(source: str, is_file: bool = False, **options: Any) -> Any:
    value, kind = options.pop(source), options.get("mime_type") or "text/plain"
    is_text = not options.pop("is_binary", not kind.startswith("text/") and "json" not in kind)
    uri = str(options.pop("uri", f"file://{value}"))
    read = partial(_read_file, value, is_text) if is_file else lambda: value
    return ResourceComponent.from_function(read, uri, **{"name": uri, **options})


def _read_file(path: Any, is_text: bool) -> str | bytes:
    with open(path, "rb") as file:
        return file.read().decode() if is_text else file.read()


TextResource, BinaryResource = partial(_make_resource, "text"), partial(_make_resource, "data")
FileResource = partial(_make_resource, "path", is_file=True)
CompatTool = spelled("Tool", Tool, from_function=ToolComponent.from_function,
                     from_tool=ToolComponent.from_tool)  # fmt: skip
FunctionTool, FunctionPrompt, FunctionResource, FunctionTemplate = (
    spelled(f"Function{name}", kind, make=kind.from_function, from_function=kind.from_function)
    for name, kind in zip(("Tool", "Prompt", "Resource", "Template"), KINDS.values(), strict=True)
)
CompatPrompt = spelled("Prompt", Prompt, from_function=PromptComponent.from_function)
CompatResource = spelled("Resource", Resource, from_function=ResourceComponent.from_function)
CompatTemplate = spelled("ResourceTemplate", ResourceTemplate,
                         from_function=TemplateComponent.from_function,
                         from_template=TemplateComponent.from_function)  # fmt: skip
