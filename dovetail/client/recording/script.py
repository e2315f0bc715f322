"""A recording as the steps of a replay."""

import json
from typing import Any

from msgspec import Struct

from ...mcplog import Recording, WireEvent


class Step(Struct, frozen=True):
    """A line of the recording."""

    line: int
    """Its number."""
    data: bytes
    """The message as it was sent."""
    messages: list[dict[str, Any]]
    """The messages in it: several if it is a batch, none if it is not JSON."""
    is_from_client: bool
    """Whether the client sent it."""


def read_steps(recording: Recording) -> list[Step]:
    """Return the messages of a recording.

    Args:
        recording: The recording.
    """
    return [
        Step(line, event.data, read_messages(event.data), event.direction == "to_server")
        for line, event in enumerate(recording.events, 2)
        if isinstance(event, WireEvent)
    ]


def read_messages(data: bytes) -> list[dict[str, Any]]:
    """Return the messages in a line. Numbers of any size are kept.

    Args:
        data: The line.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return []
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def is_request(message: dict[str, Any]) -> bool:
    """Return whether a message expects a reply.

    Args:
        message: The message.
    """
    return "method" in message and message.get("id") is not None


def is_reply(message: dict[str, Any]) -> bool:
    """Return whether a message is the reply to a request.

    Args:
        message: The message.
    """
    return "method" not in message and message.get("id") is not None


def describe(message: dict[str, Any]) -> str:
    """Return what a request or notification is about, such as `tools/call forecast`.

    Args:
        message: The message.
    """
    params = message.get("params")
    fields = params if isinstance(params, dict) else {}
    name = next((fields[key] for key in ("name", "uri", "taskId") if key in fields), None)
    method = message.get("method", "a message without a method")
    return f"{method} {name}" if isinstance(name, str) else str(method)
