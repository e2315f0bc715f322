"""The lifecycle of a session in both eras: capabilities, opening, cancellation and progress.

https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
https://modelcontextprotocol.io/specification/2026-07-28/server/discover
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from .base import PROGRESS_TOKEN, CacheHints, Implementation, Open, Params, Result
from .raw import RawObject, with_meta


class ListCapability(Open):
    """Support for a list, such as the list of tools.

    Attributes:
        list_changed: Whether the peer sends a notification when the list changes.
    """

    list_changed: bool | None = None


class ResourcesCapability(Open):
    """Support for resources and for notifications about changes to them.

    Attributes:
        subscribe: Whether clients can subscribe to individual resources.
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
    """Support for elicitation. An empty object means that forms are supported.

    Attributes:
        form: Present if the client can show forms.
        url: Present if the client can open URLs.
    """

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientCapabilities(Open):
    """The features that a client supports.

    Attributes:
        experimental: Features that are not part of the protocol, keyed by name.
        roots: Present if the client has roots.
        sampling: Present if servers can use the client's model.
        elicitation: Present if servers can ask the user.
        tasks: Support for tasks in revision 2025-11-25.
        extensions: The settings for each extension, keyed by its identifier.
    """

    experimental: dict[str, Any] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class ServerCapabilities(Open):
    """The features that a server offers.

    Attributes:
        experimental: Features that are not part of the protocol, keyed by name.
        logging: Present if the server sends log messages.
        completions: Present if the server completes arguments.
        prompts: Present if the server has prompts.
        resources: Present if the server has resources.
        tools: Present if the server has tools.
        tasks: Support for tasks in revision 2025-11-25.
        extensions: The settings for each extension, keyed by its identifier.
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
        capabilities: The features that the client supports.
        client_info: The name and version of the client.
    """

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The server's answer to `initialize`.

    Attributes:
        protocol_version: The revision that the session uses.
        capabilities: The features that the server offers.
        server_info: The name and version of the server.
        instructions: Text that tells the model how to use the server.
    """

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheHints, kw_only=True):
    """A server's description of itself (stateless era).

    Attributes:
        supported_versions: The revisions that the server supports.
        capabilities: The features that the server offers.
        instructions: Text that tells the model how to use the server.
    """

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class ShutdownResult(Result, kw_only=True):
    """The answer to `shutdown` in the draft dialect, which is null on the wire."""


class CancelledParams(Params, kw_only=True):
    """A notification that the sender is no longer waiting for a reply.

    Attributes:
        request_id: The id of the request.
        reason: The reason for the cancellation, as shown in logs.
    """

    request_id: int | str | None = None
    reason: str | None = None


class ProgressParams(Params, kw_only=True):
    """A notification about the progress of a request.

    Attributes:
        progress_token: The token from the request.
        progress: The amount done so far, which only increases.
        total: The total amount, if known.
        message: A description of the current step.
    """

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None

    @property
    def request_id(self) -> int | None:
        """The id of your request to which the update belongs: a client uses the id as the token.
        None if the server runs the request as a task."""
        return self.progress_token if isinstance(self.progress_token, int) else None


def with_progress_token(params: Any, token: int | str) -> Any:
    """Return the params of a request that asks for progress notifications with this token."""
    return with_meta(params, {PROGRESS_TOKEN: token})


class InputRequired(Struct, frozen=True, eq=False):
    """Questions that a handler returns instead of asking them through its context.

    The handler is called again with the answers.

    Attributes:
        requests: The questions, by key. Each is an ElicitParams, a CreateMessageParams, or None to
            ask for the roots. A RawObject of such a type keeps unknown fields.
        state: Any string. Clients cannot read it, and it is returned to you unchanged.
        more: Further fields of a question, by the key of the question: raw JSON, which is sent
            beside its method and params in the stateless era.
    """

    requests: Mapping[str, Params | RawObject | None] = {}
    state: str | None = None
    more: Mapping[str, Mapping[str, Raw]] = {}


class InputRequiredResult(Result, kw_only=True):
    """The result when the server needs answers before it can continue (stateless era).

    Attributes:
        input_requests: The questions in wire form, each under its key.
        request_state: The sealed state that the client sends back with the answers.
    """

    input_requests: dict[str, dict[str, Any]] | None = None
    request_state: str | None = None
