"""The URIs in a result, as callers see them.

Only the fields in which the protocol has a URI are rewritten: the contents of a resource, embedded
resources, resource links, and skills with their files. Text that happens to contain a URI stays as
it is, and so does every part of a result without URIs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..protocol.content import Content, EmbeddedResource, ResourceContents, ResourceLink
from ..protocol.prompts import GetPromptResult
from ..protocol.raw import RawObject, encode_raw, split_object
from ..protocol.resources import ReadResourceResult
from ..protocol.tools import ToolResult

Rename = Callable[[str], str]
Contents = TypeVar("Contents", bound=ResourceContents)
_split_list = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def rename_uris(result: RawObject, rename: Rename) -> RawObject:
    """Rename the URIs in a result.

    Args:
        result: The result of a tool call, a prompt or a resource.
        rename: Returns the URI as callers see it.

    Raises:
        msgspec.DecodeError: The result is malformed.
    """
    found = _PARTS.get(result.type)
    raw = None if found is None else result.fields.get(found[0])
    if found is None or raw is None or b'"uri"' not in bytes(raw):
        return result
    field, change = found
    parts = [change(part, rename) for part in _split_list(raw)]
    return RawObject(result.type, {**result.fields, field: encode_raw(parts)})


def rename_skill(fields: Mapping[str, Raw], rename: Rename) -> dict[str, Raw]:
    """Rename the URIs in the entry of a skill: its own, and those of its files.

    Args:
        fields: The fields of the entry.
        rename: Returns the URI as callers see it.

    Raises:
        msgspec.DecodeError: The entry is malformed.
    """
    renamed = {**fields, "uri": encode_raw(rename(_decode_text(fields["uri"])))}
    files = fields.get("resources", Raw(b'"dynamic"'))
    if bytes(files).lstrip()[:1] == b"[":
        renamed["resources"] = rename_list(files, rename)
    return renamed


def rename_list(raw: Raw, rename: Rename) -> Raw:
    """Rename the URIs of a list of resources or files.

    Args:
        raw: The list.
        rename: Returns the URI as callers see it.

    Raises:
        msgspec.DecodeError: The list is malformed.
    """
    return encode_raw([_rename_contents(one, rename) for one in _split_list(raw)])


def _rename_contents(raw: Raw, rename: Rename) -> Any:
    """Rename the URI of contents or of a resource link."""
    fields = split_object(raw)
    if "uri" in fields:
        fields["uri"] = encode_raw(rename(_decode_text(fields["uri"])))
    return fields


def _rename_block(raw: Raw, rename: Rename) -> Any:
    """Rename the URI of a content block."""
    if b'"uri"' not in bytes(raw):
        return raw
    fields = split_object(raw)
    kind = _decode_text(fields["type"]) if "type" in fields else ""
    if kind == "resource_link":
        return _rename_contents(raw, rename)
    if kind == "resource" and "resource" in fields:
        return {**fields, "resource": _rename_contents(fields["resource"], rename)}
    return raw


def _rename_message(raw: Raw, rename: Rename) -> Any:
    """Rename the URI in a message of a prompt."""
    fields = split_object(raw)
    if "content" in fields:
        fields["content"] = encode_raw(_rename_block(fields["content"], rename))
    return fields


_PARTS: dict[Any, tuple[str, Callable[[Raw, Rename], Any]]] = {
    ToolResult: ("content", _rename_block),
    GetPromptResult: ("messages", _rename_message),
    ReadResourceResult: ("contents", _rename_contents),
}
"""For each type of result, the field with its parts, and how a part is changed."""


def rename_links(blocks: Iterable[Content], rename: Rename) -> list[Content]:
    """Rename the URIs in decoded content: of resource links and embedded resources.

    Args:
        blocks: The content.
        rename: Returns the URI as callers see it.
    """

    def change(block: Content) -> Content:
        if isinstance(block, ResourceLink):
            return replace(block, uri=rename(block.uri))
        if isinstance(block, EmbeddedResource):
            return replace(block, resource=rename_contents([block.resource], rename)[0])
        return block

    return [change(block) for block in blocks]


def rename_contents(contents: Iterable[Contents], rename: Rename) -> list[Contents]:
    """Rename the URIs of decoded resource contents.

    Args:
        contents: The contents.
        rename: Returns the URI as callers see it.
    """
    return [replace(one, uri=rename(one.uri)) for one in contents]
