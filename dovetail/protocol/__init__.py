"""The types of the protocol: the union of everything that any revision defined.

    from dovetail.protocol import ElicitResult, Implementation

The modules below this package hold declarations only. Each name is imported on first use.
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
    from .server_features import (
        CallToolParams as CallToolParams,
        CompleteParams as CompleteParams,
        CompleteResult as CompleteResult,
        Completion as Completion,
        CompletionArgument as CompletionArgument,
        CompletionContext as CompletionContext,
        GetPromptParams as GetPromptParams,
        GetPromptResult as GetPromptResult,
        ListenParams as ListenParams,
        ListenResult as ListenResult,
        ListPromptsResult as ListPromptsResult,
        ListResourcesResult as ListResourcesResult,
        ListResourceTemplatesResult as ListResourceTemplatesResult,
        ListToolsResult as ListToolsResult,
        LogParams as LogParams,
        Message as Message,
        Prompt as Prompt,
        PromptArgument as PromptArgument,
        PromptReference as PromptReference,
        ReadResourceParams as ReadResourceParams,
        ReadResourceResult as ReadResourceResult,
        Resource as Resource,
        ResourceReference as ResourceReference,
        ResourceTemplate as ResourceTemplate,
        SetLevelParams as SetLevelParams,
        SubscriptionFilter as SubscriptionFilter,
        Tool as Tool,
        ToolAnnotations as ToolAnnotations,
        ToolExecution as ToolExecution,
        ToolResult as ToolResult,
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
    "server_features": """
        CallToolParams CompleteParams CompleteResult Completion CompletionArgument
        CompletionContext GetPromptParams GetPromptResult ListPromptsResult
        ListResourceTemplatesResult ListResourcesResult ListToolsResult ListenParams
        ListenResult LogParams Message Prompt PromptArgument PromptReference ReadResourceParams
        ReadResourceResult Resource ResourceReference ResourceTemplate SetLevelParams
        SubscriptionFilter Tool ToolAnnotations ToolExecution ToolResult UriParams
    """,
    "tasks": """
        CoreCreateTaskResult CoreTask CoreTaskResult CreateTaskResult DetailedTask
        ListTasksResult Task TaskChangedParams TaskParams TaskStatusParams UpdateTaskParams
    """,
}
"""The public types by module."""

__getattr__, __dir__ = lazy(globals(), _NAMES)
