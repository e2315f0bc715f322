"""Run servers that were written for FastMCP or the official SDK, with only the import changed.

    from dovetail.compat import FastMCP, MCPServer, Context, Image, ToolError

This thin layer over `Server` and `Context` uses the names, the parameter order and the value syntax
(`TextContent(type="text", text=…)`) of those libraries. If Dovetail lacks a feature or implements
it differently, its option raises ConfigError and its method raises AttributeError. The message says
what to use instead. No option that affects the behaviour of a server is silently ignored. See
docs/guides/moving.md for a list of the differences.
"""

from typing import Any

from ..errors import ToolError
from ..lazy import lazy
from . import types
from .components import (
    BinaryResource,
    CompatPrompt as Prompt,
    CompatResource as Resource,
    CompatTemplate as ResourceTemplate,
    CompatTool as Tool,
    FileResource,
    TextResource,
)
from .context import CompatContext as Context, CompatSession as ServerSession
from .instead import ELSEWHERE
from .server import FastMCP, MCPServer, SDKFastMCP
from .types import CompatAudio as Audio, CompatFile as File, CompatImage as Image

__all__ = [
    "AcceptedElicitation", "Annotations", "AssistantMessage", "Audio", "AudioContent",
    "BinaryResource", "BlobResourceContents", "CallToolResult", "CancelledElicitation",
    "Completion", "CompletionArgument", "CompletionContext", "Context", "CurrentContext",
    "DeclinedElicitation", "EmbeddedResource", "ErrorData", "FastMCP", "FastMCPError", "File",
    "FileResource", "Icon", "Image", "ImageContent", "MCPError", "MCPServer", "McpError",
    "Message", "ModelPreferences", "NotFoundError", "Prompt", "PromptError", "PromptMessage",
    "PromptReference", "Resource", "ResourceError", "ResourceLink", "ResourceTemplate",
    "ResourceTemplateReference", "SDKFastMCP", "SamplingMessage", "ServerSession", "TextContent",
    "TextResource", "TextResourceContents", "Tool", "ToolAnnotations", "ToolError",
    "ToolResult", "UserMessage", "ValidationError",
]  # fmt: skip
LAZY = {
    "auth": "AccessToken AuthSettings BearerAuthProvider JWTVerifier RemoteAuthProvider "
    "StaticTokenVerifier TokenVerifier TransportSecuritySettings parse_scopes require_scopes",
    "components": "FunctionPrompt FunctionResource FunctionTemplate FunctionTool",
    "dependencies": "CurrentAccessToken CurrentContext CurrentFastMCP CurrentHeaders "
    "CurrentRequest Depends configure_logging get_access_token get_context "
    "get_http_headers get_http_request get_logger get_server",
    "extension": "APP_MIME_TYPE Apps EXTENSION_ID Extension MethodBinding ResourceBinding "
    "ToolBinding client_supports_apps require_client_extension",
    "fastmcp_apps": "AppConfig FastMCPApp PrefabAppConfig ResourceCSP ResourcePermissions",
    "login_providers": "Auth0MCPProvider Auth0Provider AuthKitProvider AWSCognitoProvider "
    "AzureProvider ClerkProvider DescopeProvider DiscordProvider GitHubProvider GoogleProvider "
    "HuggingFaceProvider InMemoryOAuthProvider KeycloakAuthProvider MultiAuth OAuthProvider "
    "OAuthProxy OCIProvider OIDCProxy PropelAuthProvider ScalekitProvider SupabaseProvider "
    "WorkOSProvider",
    "lowlevel": "InitializationOptions LowLevelServer NotificationOptions ReadResourceContents "
    "RequestContext SseServerTransport StreamableHTTPSessionManager "
    "stdio_server",
    "request_state": "InvalidRequestState RequestStateBoundary RequestStateSecurity",
    "resolve": "Elicit ListRoots Resolve Sample",
    "middleware": "CallNext DetailedTimingMiddleware ErrorHandlingMiddleware LoggingMiddleware "
    "Middleware MiddlewareContext StructuredLoggingMiddleware TimingMiddleware",
    "request": "ServerRequestContext",
    "resources": "CacheHint InMemorySubscriptionBus ListenHandler PathEscapeError "
    "PromptsListChanged ResourceSecurity ResourceUpdated ResourcesListChanged ToolsListChanged "
    "UriTemplate contains_path_traversal is_absolute_path safe_join",
    "providers": "LocalProvider PromptsAsTools ResourcesAsTools",
}
"""The names that are loaded on first use, by module."""
create_proxy = FastMCP.as_proxy
_load_lazily, _ = lazy(globals(), LAZY)
CLIENTS = frozenset(
    """Client ClientRequestContext ClientSession RequestContext StdioServerParameters
    create_connected_server_and_client_session create_mcp_http_client sse_client stdio_client
    streamable_http_client streamablehttp_client websocket_client""".split()  # noqa: SIM905
)
"""The names in `client.py`, which is imported on first use. `Client` is FastMCP's."""


def __getattr__(name: str) -> Any:
    if name in CLIENTS:
        from . import client

        return client.CompatFastMCPClient if name == "Client" else getattr(client, name)
    if name in ELSEWHERE:
        raise ImportError(f"{name} is not in dovetail.compat: {ELSEWHERE[name]}")
    if any(name in names.split() for names in LAZY.values()):
        return _load_lazily(name)
    try:
        return getattr(types, name)
    except AttributeError:
        raise AttributeError(f"module 'dovetail.compat' has no attribute {name!r}") from None
