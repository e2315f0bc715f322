"""The lifecycle of a session in both eras: capabilities, opening, cancellation and progress.

https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
https://modelcontextprotocol.io/specification/2026-07-28/server/discover
"""

from typing import Any

from msgspec import Struct

from .base import CacheHints, Implementation, Open, Params, Result


class ListCapability(Open):
    """Support for a list, such as the list of tools.

    Attributes:
        list_changed: Whether the peer sends a notification when the list changes.
    """

    list_changed: bool | None = None


class ResourcesCapability(Open):
    """Support for resources and for notifications of their changes.

    Attributes:
        subscribe: Whether clients can subscribe to single resources.
        list_changed: Whether the peer sends a notification when the list changes.
    """

    subscribe: bool | None = None
    list_changed: bool | None = None


class RootsCapability(Open):
    """Support for roots.

    Attributes:
        list_changed: Whether the peer sends a notification when the list changes.
    """

    list_changed: bool | None = None


class SamplingCapability(Open):
    """Support for sampling. Tools and context are declared separately.

    Attributes:
        tools: Present if the model can use tools.
        context: Present if `include_context` is supported.
    """

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ElicitationCapability(Open):
    """Support for elicitation. An empty object means forms.

    Attributes:
        form: Present if the client can show forms.
        url: Present if the client can open URLs.
    """

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientCapabilities(Open):
    """What a client supports.

    Attributes:
        experimental: Features outside the protocol, by name.
        roots: Present if it has roots.
        sampling: Present if servers can use its model.
        elicitation: Present if servers can ask its user.
        tasks: Tasks of revision 2025-11-25.
        extensions: Settings of its extensions, by identifier.
    """

    experimental: dict[str, Any] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class ServerCapabilities(Open):
    """What a server offers.

    Attributes:
        experimental: Features outside the protocol, by name.
        logging: Present if it sends log messages.
        completions: Present if it completes arguments.
        prompts: Present if it has prompts.
        resources: Present if it has resources.
        tools: Present if it has tools.
        tasks: Tasks of revision 2025-11-25.
        extensions: Settings of its extensions, by identifier.
    """

    experimental: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: ListCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class InitializeParams(Params, kw_only=True):
    """A request to open a session (handshake era).

    Attributes:
        protocol_version: The newest revision that the client supports.
        capabilities: What the client supports.
        client_info: Name and version of the client.
    """

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The server's answer to `initialize`.

    Attributes:
        protocol_version: The revision of the session.
        capabilities: What the server offers.
        server_info: Name and version of the server.
        instructions: How to use the server, for the model.
    """

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheHints, kw_only=True):
    """A server's description of itself (stateless era).

    Attributes:
        supported_versions: Revisions that it supports.
        capabilities: What the server offers.
        instructions: How to use the server, for the model.
    """

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class ShutdownResult(Result, kw_only=True):
    """The answer to `shutdown` in the draft dialect; null on the wire."""


class CancelledParams(Params, kw_only=True):
    """A notification that the sender is no longer waiting for a reply.

    Attributes:
        request_id: The id of the request.
        reason: The reason, for logs.
    """

    request_id: int | str | None = None
    reason: str | None = None


class ProgressParams(Params, kw_only=True):
    """A notification of the progress of a request.

    Attributes:
        progress_token: The token that the request carried.
        progress: Amount done so far. It only increases.
        total: Total amount, if known.
        message: Description of the current step.
    """

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None


class InputRequired(Struct, frozen=True, eq=False):
    """Questions that a handler returns, instead of asking them through its context.

    The handler is called again with the answers.

    Attributes:
        requests: Questions by key: ElicitParams, CreateMessageParams, or None for the roots.
        state: Any string. It is returned to you unchanged, and clients cannot read it.
    """

    requests: dict[str, Params | None] = {}
    state: str | None = None


class InputRequiredResult(Result, kw_only=True):
    """The result when the server needs answers before it can continue (stateless era).

    Attributes:
        input_requests: Questions by key, in wire form.
        request_state: Sealed state that the client sends back with the answers.
    """

    input_requests: dict[str, dict[str, Any]] | None = None
    request_state: str | None = None
