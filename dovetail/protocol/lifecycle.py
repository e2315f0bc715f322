"""How a conversation opens, in both eras, and what keeps it alive.
https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
https://modelcontextprotocol.io/specification/2026-07-28/server/discover"""

from typing import Any

from msgspec import Struct

from .base import CacheHints, Implementation, Open, Params, Result


class ListCapability(Open):
    """A list that can be asked for, and may announce its changes."""

    list_changed: bool | None = None


class ResourcesCapability(Open):
    """Resources, their changes, and subscriptions to one."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class RootsCapability(Open):
    """Roots, and whether their changes are announced."""

    list_changed: bool | None = None


class SamplingCapability(Open):
    """Sampling; with tools or context only where these are said."""

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ElicitationCapability(Open):
    """Elicitation; an empty object means forms."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientCapabilities(Open):
    """What a client can be asked."""

    experimental: dict[str, Any] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class ServerCapabilities(Open):
    """What a server offers."""

    experimental: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: ListCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ListCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class InitializeParams(Params, kw_only=True):
    """The client's greeting, handshake era."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The server's answer to it."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheHints, kw_only=True):
    """What a server of the stateless era says of itself."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class ShutdownResult(Result, kw_only=True):
    """The draft dialect's goodbye; on the wire it is null."""


class CancelledParams(Params, kw_only=True):
    """The sender no longer waits for this request."""

    request_id: int | str | None = None
    reason: str | None = None


class ProgressParams(Params, kw_only=True):
    """How far a request has come."""

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = None


class InputRequired(Struct, frozen=True, eq=False):
    """What a handler returns that asks by itself, in the protocol's own way: it is called again
    with the answers. `requests` are questions by key: ElicitParams, CreateMessageParams, or None
    for the roots. `state` comes back as it went."""

    requests: dict[str, Params | None] = {}
    state: str | None = None


class InputRequiredResult(Result, kw_only=True):
    """The server cannot go on without answers; the client asks again with them (stateless era)."""

    input_requests: dict[str, dict[str, Any]] | None = None
    request_state: str | None = None
