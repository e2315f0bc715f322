"""What a server offers: tools, resources, prompts, log messages, completion, and one stream of
changes.

https://modelcontextprotocol.io/specification/2026-07-28/server
https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
"""

from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import msgspec
from msgspec import Raw, field

from .base import CacheHints, Icon, Meta, Open, Params, Result, Wire
from .content import Annotations, Content, ResourceContents, Role, TextContent

if TYPE_CHECKING:
    from ..server.media import Media

# tools: functions that a model can call


class ToolAnnotations(Open):
    """Hints on what a tool does.

    From a server that you do not trust, they are only claims.

    Attributes:
        title: Name for people, shown instead of `name`.
        read_only_hint: The tool changes nothing.
        destructive_hint: The tool may delete or overwrite.
        idempotent_hint: Calling it twice has the effect of calling it once.
        open_world_hint: The tool reaches systems outside the server.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire):
    """How a tool may run, as task settings of revision 2025-11-25.

    Attributes:
        task_support: `forbidden`, `optional` or `required`.
    """

    task_support: str | None = None


class Tool(Wire):
    """A tool as it is listed.

    Attributes:
        name: Name to call it by.
        input_schema: JSON Schema of its arguments.
        title: Name for people, shown instead of `name`.
        description: What it is, in a sentence or two, for the model or the user.
        output_schema: JSON Schema of its structured content.
        annotations: Hints on what it does.
        icons: Pictures that a user interface may show.
        execution: Whether it may run as a task (2025-11-25).
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    execution: ToolExecution | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListToolsResult(CacheHints, kw_only=True):
    """One page of tools.

    Attributes:
        tools: The tools.
        next_cursor: Pass it as `cursor` to get the next page. None on the last page.
    """

    tools: list[Tool]
    next_cursor: str | None = None


class CallToolParams(Params, kw_only=True):
    """Calls a tool. The arguments stay raw until the tool's signature decodes them.

    Attributes:
        name: Name of the tool.
        arguments: Arguments as raw JSON.
        task: Task settings of revision 2025-11-25, in wire form.
        input_responses: Answers to the questions of the previous round, by key (stateless era).
        request_state: The state that came with those questions, unchanged (stateless era).
    """

    name: str
    arguments: Raw = Raw()
    task: Any = None
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class ToolResult(Result, kw_only=True):
    """The result of a tool: content for the model, and the same as data.

    Attributes:
        content: Content blocks for the model.
        structured_content: The result as data, if the revision has it.
        is_error: Whether the tool failed. The content then describes the error.
    """

    content: list[Content]
    structured_content: Any = None
    is_error: bool = False

    @property
    def data(self) -> Any:
        """The structured content, or the text if there is none.

        A value that is not an object travels as `{"result": value}` and is unwrapped here.
        """
        value = self.structured_content
        if type(value) is Raw:
            value = msgspec.json.decode(value)
        if value is not None:
            return (
                value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value
            )
        return (
            self.text
            if self.content and all(block.type == "text" for block in self.content)
            else None
        )

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if block.type == "text")  # type: ignore[union-attr]


# resources: data that a model or a user can read


class Resource(Wire):
    """A resource as it is listed.

    Attributes:
        uri: URI to read it by.
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
    """A family of resources, as an RFC 6570 URI template.

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
        next_cursor: Pass it as `cursor` to get the next page. None on the last page.
    """

    resources: list[Resource]
    next_cursor: str | None = None


class ListResourceTemplatesResult(CacheHints, kw_only=True):
    """One page of resource templates.

    Attributes:
        resource_templates: The templates.
        next_cursor: Pass it as `cursor` to get the next page. None on the last page.
    """

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None


class ReadResourceParams(Params, kw_only=True):
    """Reads one resource.

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
        contents: The contents; several parts for a directory, for example.
    """

    contents: list[ResourceContents]


class UriParams(Params, kw_only=True):
    """Names one resource: to subscribe, to unsubscribe, or as updated.

    Attributes:
        uri: URI of the resource.
    """

    uri: str


# prompts: message templates that a user can choose


class PromptArgument(Wire):
    """One argument of a prompt. Its value is a string on the wire.

    Attributes:
        name: Name of the argument.
        title: Name for people, shown instead of `name`.
        description: What it is, in a sentence or two, for the model or the user.
        required: Whether it must be given.
    """

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Wire):
    """A prompt as it is listed.

    Attributes:
        name: Name to get it by.
        title: Name for people, shown instead of `name`.
        description: What it is, in a sentence or two, for the model or the user.
        arguments: Arguments that it takes.
        icons: Pictures that a user interface may show.
        meta: Extra data for clients, servers and extensions (`_meta` on the wire).
    """

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = field(name="_meta", default=None)


class ListPromptsResult(CacheHints, kw_only=True):
    """One page of prompts.

    Attributes:
        prompts: The prompts.
        next_cursor: Pass it as `cursor` to get the next page. None on the last page.
    """

    prompts: list[Prompt]
    next_cursor: str | None = None


class GetPromptParams(Params, kw_only=True):
    """Renders a prompt.

    Attributes:
        name: Name of the prompt.
        arguments: Arguments, all strings.
        input_responses: Answers to the questions of the previous round, by key (stateless era).
        request_state: The state that came with those questions, unchanged (stateless era).
    """

    name: str
    arguments: dict[str, str] | None = None
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class Message(Wire):
    """One message of a prompt. `Message("user", "hello")` wraps the text in `TextContent`.

    Attributes:
        role: `user` or `assistant`.
        content: One content block; a string, or `Image`, `Audio` or `File`, is converted.
    """

    role: Role
    content: Content

    if TYPE_CHECKING:

        def __init__(self, role: Role, content: "Content | str | Media") -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.content, str):
            self.content = TextContent(self.content)

    @property
    def text(self) -> str:
        """The text of the content; empty if it is not a text block."""
        return self.content.text if isinstance(self.content, TextContent) else ""


class GetPromptResult(Result, kw_only=True):
    """A rendered prompt.

    Attributes:
        messages: The messages for the model.
        description: What the prompt is for.
    """

    messages: list[Message]
    description: str | None = None


# log messages, completion and subscriptions

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
SEVERITY: dict[str, int] = {level: rank for rank, level in enumerate(get_args(Level))}
"""The rank of each level; higher is more severe."""


class SetLevelParams(Params, kw_only=True):
    """Sets the lowest level of log messages that the client wants.

    Attributes:
        level: That level.
    """

    level: Level


class LogParams(Params, kw_only=True):
    """One log message.

    Attributes:
        level: Severity, one of the eight levels of syslog.
        data: The message: any JSON value.
        logger: Name of the logger.
    """

    level: Level
    data: Any
    logger: str | None = None


class PromptReference(Wire, tag_field="type", tag="ref/prompt"):
    """Names the prompt whose argument is completed.

    Attributes:
        name: Name of the prompt.
        title: Name for people, shown instead of `name`.
    """

    name: str
    title: str | None = None
    type: ClassVar[str] = "ref/prompt"


class ResourceReference(Wire, tag_field="type", tag="ref/resource"):
    """Names the resource template whose variable is completed.

    Attributes:
        uri: The URI template.
    """

    uri: str
    type: ClassVar[str] = "ref/resource"


class CompletionArgument(Wire):
    """The argument that is being typed.

    Attributes:
        name: Name of the argument.
        value: What has been typed so far.
    """

    name: str
    value: str


class CompletionContext(Wire):
    """Arguments that are already chosen.

    Attributes:
        arguments: Their values by name.
    """

    arguments: dict[str, str] | None = None


class CompleteParams(Params, kw_only=True):
    """Asks for possible values of an argument.

    Attributes:
        ref: The prompt or resource template.
        argument: The argument that is being typed.
        context: Arguments that are already chosen.
    """

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire):
    """Possible values of an argument.

    Attributes:
        values: At most 100 values, the best first.
        total: How many there are in all, if known.
        has_more: Whether there are more than these.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The answer to a completion request.

    Attributes:
        completion: The values.
    """

    completion: Completion


class SubscriptionFilter(Wire):
    """The changes that a client wants to be notified of.

    Attributes:
        tools_list_changed: Changes of the list of tools.
        prompts_list_changed: Changes of the list of prompts.
        resources_list_changed: Changes of the list of resources.
        resource_subscriptions: URIs of single resources.
        task_ids: Ids of tasks (tasks extension).
    """

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None
    """Of the extension for tasks."""


class ListenParams(Params, kw_only=True):
    """Opens a stream of notifications, or acknowledges what will be sent on it.

    Attributes:
        notifications: The changes.
    """

    notifications: SubscriptionFilter


class ListenResult(Result, kw_only=True):
    """The stream of notifications ended normally."""
