"""The protocol types, which combine everything that any revision defines.

    from dovetail.protocol import ElicitResult, Implementation

Each name is imported on first use.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .base import (
        CacheHints as CacheHints,
        EmptyResult as EmptyResult,
        Icon as Icon,
        Implementation as Implementation,
        ListChangedParams as ListChangedParams,
        ListParams as ListParams,
        Params as Params,
        Result as Result,
    )
    from .client_features import (
        CreateMessageParams as CreateMessageParams,
        CreateMessageResult as CreateMessageResult,
        ElicitationCompleteParams as ElicitationCompleteParams,
        ElicitParams as ElicitParams,
        ElicitResult as ElicitResult,
        ListRootsResult as ListRootsResult,
        ModelHint as ModelHint,
        ModelPreferences as ModelPreferences,
        Root as Root,
        SamplingMessage as SamplingMessage,
        ToolChoice as ToolChoice,
    )
    from .content import (
        Annotations as Annotations,
        AudioContent as AudioContent,
        BlobResourceContents as BlobResourceContents,
        EmbeddedResource as EmbeddedResource,
        ImageContent as ImageContent,
        OtherContent as OtherContent,
        ResourceContents as ResourceContents,
        ResourceLink as ResourceLink,
        TextContent as TextContent,
        TextResourceContents as TextResourceContents,
        ToolResultContent as ToolResultContent,
        ToolUseContent as ToolUseContent,
    )
    from .lifecycle import (
        CancelledParams as CancelledParams,
        ClientCapabilities as ClientCapabilities,
        DiscoverResult as DiscoverResult,
        ElicitationCapability as ElicitationCapability,
        InitializeParams as InitializeParams,
        InitializeResult as InitializeResult,
        InputRequired as InputRequired,
        InputRequiredResult as InputRequiredResult,
        ListCapability as ListCapability,
        ProgressParams as ProgressParams,
        ResourcesCapability as ResourcesCapability,
        RootsCapability as RootsCapability,
        SamplingCapability as SamplingCapability,
        ServerCapabilities as ServerCapabilities,
        ShutdownResult as ShutdownResult,
    )
    from .prompts import (
        GetPromptParams as GetPromptParams,
        GetPromptResult as GetPromptResult,
        ListPromptsResult as ListPromptsResult,
        Message as Message,
        Prompt as Prompt,
        PromptArgument as PromptArgument,
    )
    from .raw import RawObject as RawObject
    from .resources import (
        ListResourcesResult as ListResourcesResult,
        ListResourceTemplatesResult as ListResourceTemplatesResult,
        ReadResourceParams as ReadResourceParams,
        ReadResourceResult as ReadResourceResult,
        Resource as Resource,
        ResourcesChangedParams as ResourcesChangedParams,
        ResourceTemplate as ResourceTemplate,
        UriParams as UriParams,
    )
    from .tasks import (
        CoreCreateTaskResult as CoreCreateTaskResult,
        CoreTask as CoreTask,
        CoreTaskResult as CoreTaskResult,
        CreateTaskResult as CreateTaskResult,
        DetailedTask as DetailedTask,
        ListTasksResult as ListTasksResult,
        Task as Task,
        TaskChangedParams as TaskChangedParams,
        TaskParams as TaskParams,
        TaskStatusParams as TaskStatusParams,
        UpdateTaskParams as UpdateTaskParams,
    )
    from .tools import (
        CallToolParams as CallToolParams,
        ListToolsResult as ListToolsResult,
        Tool as Tool,
        ToolAnnotations as ToolAnnotations,
        ToolExecution as ToolExecution,
        ToolResult as ToolResult,
    )
    from .utilities import (
        CompleteParams as CompleteParams,
        CompleteResult as CompleteResult,
        Completion as Completion,
        CompletionArgument as CompletionArgument,
        CompletionContext as CompletionContext,
        ListenParams as ListenParams,
        ListenResult as ListenResult,
        LogParams as LogParams,
        PromptReference as PromptReference,
        ResourceReference as ResourceReference,
        SetLevelParams as SetLevelParams,
        SubscriptionFilter as SubscriptionFilter,
    )

_NAMES = {
    "base": "CacheHints EmptyResult Icon Implementation ListChangedParams ListParams Params Result",
    "client_features": """
        CreateMessageParams CreateMessageResult ElicitParams ElicitResult
        ElicitationCompleteParams ListRootsResult ModelHint ModelPreferences Root
        SamplingMessage ToolChoice
    """,
    "content": """
        Annotations AudioContent BlobResourceContents EmbeddedResource ImageContent OtherContent
        ResourceContents ResourceLink TextContent TextResourceContents ToolResultContent
        ToolUseContent
    """,
    "lifecycle": """
        CancelledParams ClientCapabilities DiscoverResult ElicitationCapability InitializeParams
        InitializeResult InputRequired InputRequiredResult ListCapability ProgressParams
        ResourcesCapability RootsCapability SamplingCapability ServerCapabilities ShutdownResult
    """,
    "prompts": """
        GetPromptParams GetPromptResult ListPromptsResult Message Prompt PromptArgument
    """,
    "raw": "RawObject",
    "resources": """
        ListResourceTemplatesResult ListResourcesResult ReadResourceParams ReadResourceResult
        Resource ResourcesChangedParams ResourceTemplate UriParams
    """,
    "tasks": """
        CoreCreateTaskResult CoreTask CoreTaskResult CreateTaskResult DetailedTask
        ListTasksResult Task TaskChangedParams TaskParams TaskStatusParams UpdateTaskParams
    """,
    "tools": """
        CallToolParams ListToolsResult Tool ToolAnnotations ToolExecution ToolResult
    """,
    "utilities": """
        CompleteParams CompleteResult Completion CompletionArgument CompletionContext ListenParams
        ListenResult LogParams PromptReference ResourceReference SetLevelParams SubscriptionFilter
    """,
}
"""The public types, grouped by module."""

__getattr__, __dir__ = lazy(globals(), _NAMES)
