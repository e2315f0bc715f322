"""Opening a session in the handshake era: `initialize`, its answer and `notifications/initialized`.

The functions in this module neither wait nor send messages.
https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
"""

from typing import Any

import msgspec

from ..errors import InvalidParams, NoCommonRevision, UnsupportedVersion
from ..ports import Caller, Service
from ..protocol.lifecycle import (
    InitializeParams,
    InitializeResult,
    ServerCapabilities,
)
from ..protocol.methods import METHODS
from ..revisions import BAD_ARGUMENTS, BY_NAME, DRAFT_DIALECT, HANDSHAKE, Revision

INITIALIZE = METHODS["initialize"]


def dialect_of(raw: Any) -> Revision:
    """Return the revision for decoding an `initialize` request. A request in the draft dialect is
    recognised by its `mcpVersion`."""
    try:
        params = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        params = None
    if isinstance(params, dict) and "mcpVersion" in params and "protocolVersion" not in params:
        return DRAFT_DIALECT
    return HANDSHAKE[-1]


def is_dialect_answer(raw: Any) -> bool:
    """Return whether a server answered `initialize` in the draft dialect."""
    try:
        result = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return (
        isinstance(result, dict)
        and "serverCapabilities" in result
        and "protocolVersion" not in result
    )


def may_speak_dialect(code: int, message: str) -> bool:
    """Return whether a server may have rejected `initialize` because it expects the draft dialect,
    in which the params have different names."""
    return code in (BAD_ARGUMENTS, InvalidParams.code) or "mcpVersion" in message


def accept_initialize(
    raw: Any, service: Service, state: Any, *, can_notify: bool = True
) -> tuple[Caller, InitializeResult]:
    """Return the caller that an `initialize` request describes, and the result to reply with."""
    dialect = dialect_of(raw)
    try:
        params: InitializeParams = dialect.lift_params(INITIALIZE, raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams.from_decoding("initialize", error) from None
    if dialect is DRAFT_DIALECT and dialect in service.revisions:
        revision = dialect
    else:
        revision = negotiate(params.protocol_version, service.revisions)
    caller = Caller(revision, params.client_info, params.capabilities, state=state)
    capabilities = ServerCapabilities.of(service.capabilities)
    if capabilities.extensions:
        stateless_only = {one.id for one in service.extensions if not one.handshake}
        kept = {
            id: settings
            for id, settings in capabilities.extensions.items()
            if id not in stateless_only
        }
        capabilities.extensions = kept or None
    return caller, InitializeResult(
        protocol_version=revision.version,
        capabilities=capabilities if can_notify else without_notifications(capabilities),
        server_info=service.info,
        instructions=service.instructions,
    )


def without_notifications(capabilities: ServerCapabilities) -> ServerCapabilities:
    """Return the capabilities of a server that cannot send notifications."""
    changed = {
        name: {
            word: value for word, value in part.items() if word not in ("subscribe", "listChanged")
        }
        for name, part in capabilities.items()
        if name in ("tools", "resources", "prompts")
    }
    if capabilities.tasks is not None:
        # Without a session, callers cannot be told apart, so none has a list of its own.
        changed["tasks"] = {
            word: value for word, value in capabilities.tasks.items() if word != "list"
        }
    return ServerCapabilities.of({**capabilities, **changed})


def negotiate(requested: str, served: tuple[Revision, ...]) -> Revision:
    """Return the revision to reply with: the requested revision if it is supported, otherwise the
    newest one with a handshake."""
    handshake = [
        revision for revision in served if not revision.stateless and not revision.dialects
    ]
    if served == (DRAFT_DIALECT,):
        raise InvalidParams(
            "initialize: this server expects `mcpVersion`, as in the detailed draft",
            parameter="mcpVersion",
        )
    if not handshake:
        names = version_names(served)
        raise UnsupportedVersion(
            f"This server does not support `initialize`: it supports {', '.join(names)}, in which "
            "each request states its version",
            data={"supported": names, "requested": requested},
        )
    return next(
        (revision for revision in handshake if revision.version == requested), handshake[-1]
    )


def version_names(served: tuple[Revision, ...]) -> list[str]:
    """Return the versions that a server declares, newest first. Dialects are not listed, because
    each shares its version with another revision."""
    return [revision.version for revision in reversed(served) if not revision.dialects]


def agreed_revision(
    requested: Revision, answer: InitializeResult, wanted: tuple[Revision, ...]
) -> Revision:
    """Return the revision that the server chose, or raise NoCommonRevision if the client does not
    support it."""
    if requested is DRAFT_DIALECT:
        return requested
    chosen = BY_NAME.get(answer.protocol_version)
    if chosen is None or chosen.stateless or chosen not in wanted:
        names = ", ".join(revision.version for revision in wanted)
        raise NoCommonRevision(
            f"The server answered with revision {answer.protocol_version!r}; this client supports "
            f"{names}"
        )
    return chosen
