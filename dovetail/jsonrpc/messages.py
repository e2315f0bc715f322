"""The four messages of JSON-RPC 2.0, and the batch of them that one revision of MCP allows.

Params and results stay raw bytes here: whoever knows the method decodes them, once, straight into
its type.
"""

from typing import Any, TypeAlias

from msgspec import Raw, Struct

Id: TypeAlias = int | str
NOTHING = Raw()
"""Params that are not there. One object: it is known, and left out on the wire, by its identity."""


class Request(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """Asks for an answer under `id`."""

    id: Id
    method: str
    params: Any = NOTHING


class Notification(Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    """Tells something; never answered."""

    method: str
    params: Any = NOTHING


class Result(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """Answers a request."""

    id: Id
    result: Any


class Error(Struct, omit_defaults=True, gc=False):
    """What went wrong, for programs (`code`), people (`message`) and both (`data`)."""

    code: int
    message: str
    data: Any = None


class Failure(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """Answers a request that failed. The id is null only where it could not be read."""

    id: Id | None
    error: Error


Message: TypeAlias = Request | Notification | Result | Failure


class Batch(Struct):
    """Several messages in one; what in it was no message is a Failure to be sent back."""

    messages: list[Message]
    refused: list[Failure]
