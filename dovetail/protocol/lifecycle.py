"""The lifecycle of a conversation in both eras: capabilities, opening, cancellation, progress.

https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
https://modelcontextprotocol.io/specification/2026-07-28/server/discover
"""

from typing import Any

from msgspec import Struct

from .base import CacheHints, Implementation, Open, Params, Result


class ListCapability(Open):
    """A list that can be requested.

    Attributes:
        list_changed: Whether the peer sends a notification if the list changes.
    """

    list_changed: bool | None = None


class ResourcesCapability(Open):
    """Resources, and what a client can learn about their changes.

    Attributes:
        subscribe: Whether clients can subscribe to single resources.
        list_changed: Whether the peer sends a notification if the list changes.
    """

    subscribe: bool | None = None
    list_changed: bool | None = None


class RootsCapability(Open):
    """Roots.

    Attributes:
        list_changed: Whether the peer sends a notification if the list changes.
    """

    list_changed: bool | None = None


class SamplingCapability(Open):
    """Sampling. Tools and context need a declaration of their own.

    Attributes:
        tools: Present if the model can use tools.
        context: Present if `include_context` is supported.
    """

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ElicitationCapability(Open):
    """Elicitation. An empty object means forms.

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
        roots: The client has roots.
        sampling: Its model can be used.
        elicitation: Its user can be asked.
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
        logging: It sends log messages.
        completions: It completes arguments.
        prompts: It has prompts.
        resources: It has resources.
        tools: It has tools.
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
    """Opens a session (handshake era).

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
    """Says that the sender no longer waits for a request.

    Attributes:
        request_id: The id of that request.
        reason: Why, for logs.
    """

    request_id: int | str | None = None
    reason: str | None = None


class ProgressParams(Params, kw_only=True):
    """Reports the progress of a request.

    Attributes:
        progress_token: The token that the request carried.
        progress: How much is done. It only grows.
        total: How much there is to do, if known.
        message: What is happening now.
    """

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None


class InputRequired(Struct, frozen=True, eq=False):
    """Returned by a handler that asks in the protocol's own way.

    The handler is called again with the answers.

    Attributes:
        requests: Questions by key: ElicitParams, CreateMessageParams, or None for the roots.
        state: A string of your own. It comes back unchanged, and clients cannot read it.
    """

    requests: dict[str, Params | None] = {}
    state: str | None = None


class InputRequiredResult(Result, kw_only=True):
    """Says that the server needs answers before it can continue (stateless era).

    Attributes:
        input_requests: Questions by key, in wire form.
        request_state: Sealed state that the client sends back with the answers.
    """

    input_requests: dict[str, dict[str, Any]] | None = None
    request_state: str | None = None
