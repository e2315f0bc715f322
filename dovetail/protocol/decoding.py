"""The decoding of raw bytes into protocol types.

Some peers send values that violate every revision. If a value cannot be decoded, it is repaired and
decoded again, so valid messages cost nothing extra.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from .base import open_hook
from .content import KINDS

_encode = msgspec.json.Encoder().encode
plain = msgspec.json.Decoder().decode
"""Decode JSON without a type."""


def decode(raw: Any, type_: Any) -> Any:
    """Decode raw bytes as a protocol type. Absent params count as an empty object."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_, dec_hook=open_hook).decode
    try:
        return decoder(raw)
    except (msgspec.DecodeError, RecursionError) as problem:
        return _decode_repaired(raw, decoder, problem)


def _decode_repaired(raw: Any, decoder: Callable[[Any], Any], problem: Exception) -> Any:
    if not bytes(raw) or bytes(raw) == b"null":
        return decoder(b"{}")
    try:
        repaired = _repair(plain(raw))
        if repaired is None:
            raise problem
        return decoder(_encode(repaired))
    except RecursionError:  # the codec accepted it with fewer calls on the stack
        raise msgspec.ValidationError("Nested too deeply") from None


_decoders: dict[Any, Callable[[Any], Any]] = {}


def _repair(value: Any) -> Any:
    """Convert values that violate every revision, but that some peers send, to the closest valid
    form. Returns None if there is nothing to repair.

    Content of an unknown kind becomes OtherContent, completion values that are objects become their
    value, and a null for `isError` counts as absent.
    """
    if not isinstance(value, dict):
        return None
    repaired = _known_kinds(value)
    if "isError" in repaired and repaired["isError"] is None:
        del repaired["isError"]
    if isinstance(messages := value.get("messages"), list):
        repaired["messages"] = [
            _known_kinds(one) if isinstance(one, dict) else one for one in messages
        ]
    if isinstance(completion := value.get("completion"), dict) and isinstance(
        values := completion.get("values"), list
    ):
        texts = [item.get("value") if isinstance(item, dict) else item for item in values]
        repaired["completion"] = completion | {"values": texts}
    return repaired if repaired != value else None


def _known_kinds(holder: dict[str, Any]) -> dict[str, Any]:
    content = holder.get("content")
    if isinstance(content, list):
        return holder | {"content": [_known_kind(block) for block in content]}
    return holder | ({"content": _known_kind(content)} if isinstance(content, dict) else {})


def _known_kind(block: Any, nests: bool = True) -> Any:
    if not isinstance(block, dict):
        return block
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        return {"type": "dovetail/other", "value": block}
    if nests and kind == "tool_result" and isinstance(parts := block.get("content"), list):
        return block | {"content": [_known_kind(part, nests=False) for part in parts]}
    return block
