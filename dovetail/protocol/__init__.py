"""The types of the protocol: the union of everything that any revision defined.

    from dovetail.protocol import ElicitResult, Implementation

The modules below this package hold declarations only. Each name is imported on first use.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .base import CacheHints as CacheHints
    from .base import EmptyResult as EmptyResult
    from .base import Icon as Icon
    from .base import Implementation as Implementation
    from .base import ListChangedParams as ListChangedParams
    from .base import ListParams as ListParams
    from .base import Params as Params
    from .base import Result as Result
    from .client_features import CreateMessageParams as CreateMessageParams
    from .client_features import CreateMessageResult as CreateMessageResult
    from .client_features import ElicitationCompleteParams as ElicitationCompleteParams
    from .client_features import ElicitParams as ElicitParams
    from .client_features import ElicitResult as ElicitResult
    from .client_features import ListRootsResult as ListRootsResult
    from .client_features import ModelHint as ModelHint
    from .client_features import ModelPreferences as ModelPreferences
    from .client_features import Root as Root
    from .client_features import SamplingMessage as SamplingMessage
    from .client_features import ToolChoice as ToolChoice
    from .content import Annotations as Annotations
    from .content import AudioContent as AudioContent
    from .content import BlobResourceContents as BlobResourceContents
    from .content import EmbeddedResource as EmbeddedResource
    from .content import ImageContent as ImageContent
    from .content import OtherContent as OtherContent
    from .content import ResourceContents as ResourceContents
    from .content import ResourceLink as ResourceLink
    from .content import TextContent as TextContent
    from .content import TextResourceContents as TextResourceContents
    from .content import ToolResultContent as ToolResultContent
    from .content import ToolUseContent as ToolUseContent
    from .lifecycle import CancelledParams as CancelledParams
    from .lifecycle import ClientCapabilities as ClientCapabilities
    from .lifecycle import DiscoverResult as DiscoverResult
    from .lifecycle import ElicitationCapability as ElicitationCapability
    from .lifecycle import InitializeParams as InitializeParams
    from .lifecycle import InitializeResult as InitializeResult
    from .lifecycle import InputRequired as InputRequired
    from .lifecycle import InputRequiredResult as InputRequiredResult
    from .lifecycle import ListCapability as ListCapability
    from .lifecycle import ProgressParams as ProgressParams
    from .lifecycle import ResourcesCapability as ResourcesCapability
    from .lifecycle import RootsCapability as RootsCapability
    from .lifecycle import SamplingCapability as SamplingCapability
    from .lifecycle import ServerCapabilities as ServerCapabilities
    from .lifecycle import ShutdownResult as ShutdownResult
    from .prompts import GetPromptParams as GetPromptParams
    from .prompts import GetPromptResult as GetPromptResult
    from .prompts import ListPromptsResult as ListPromptsResult
    from .prompts import Message as Message
    from .prompts import Prompt as Prompt
    from .prompts import PromptArgument as PromptArgument
    from .resources import ListResourcesResult as ListResourcesResult
    from .resources import ListResourceTemplatesResult as ListResourceTemplatesResult
    from .resources import ReadResourceParams as ReadResourceParams
    from .resources import ReadResourceResult as ReadResourceResult
    from .resources import Resource as Resource
    from .resources import ResourceTemplate as ResourceTemplate
    from .resources import UriParams as UriParams
    from .tasks import CoreCreateTaskResult as CoreCreateTaskResult
    from .tasks import CoreTask as CoreTask
    from .tasks import CoreTaskResult as CoreTaskResult
    from .tasks import CreateTaskResult as CreateTaskResult
    from .tasks import DetailedTask as DetailedTask
    from .tasks import ListTasksResult as ListTasksResult
    from .tasks import Task as Task
    from .tasks import TaskChangedParams as TaskChangedParams
    from .tasks import TaskParams as TaskParams
    from .tasks import TaskStatusParams as TaskStatusParams
    from .tasks import UpdateTaskParams as UpdateTaskParams
    from .tools import CallToolParams as CallToolParams
    from .tools import ListToolsResult as ListToolsResult
    from .tools import Tool as Tool
    from .tools import ToolAnnotations as ToolAnnotations
    from .tools import ToolExecution as ToolExecution
    from .tools import ToolResult as ToolResult
    from .utilities import CompleteParams as CompleteParams
    from .utilities import CompleteResult as CompleteResult
    from .utilities import Completion as Completion
    from .utilities import CompletionArgument as CompletionArgument
    from .utilities import CompletionContext as CompletionContext
    from .utilities import ListenParams as ListenParams
    from .utilities import ListenResult as ListenResult
    from .utilities import LogParams as LogParams
    from .utilities import PromptReference as PromptReference
    from .utilities import ResourceReference as ResourceReference
    from .utilities import SetLevelParams as SetLevelParams
    from .utilities import SubscriptionFilter as SubscriptionFilter

_NAMES = {
    "base": """
        CacheHints EmptyResult Icon Implementation ListChangedParams ListParams Params Result
    """,
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
    "resources": """
        ListResourceTemplatesResult ListResourcesResult ReadResourceParams ReadResourceResult
        Resource ResourceTemplate UriParams
    """,
    "tasks": """
        CoreCreateTaskResult CoreTask CoreTaskResult CreateTaskResult DetailedTask
        ListTasksResult Task TaskChangedParams TaskParams TaskStatusParams UpdateTaskParams
    """,
    "tools": """
        CallToolParams ListToolsResult Tool ToolAnnotations ToolExecution ToolResult
    """,
    "utilities": """
        CompleteParams CompleteResult Completion CompletionArgument CompletionContext
        ListenParams ListenResult LogParams PromptReference ResourceReference SetLevelParams
        SubscriptionFilter
    """,
}
"""The public types by module."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy(globals(), _HOMES)
