"""Turn the arguments of a call into an HTTP request.

The arguments have been checked against the input schema. What a schema cannot say is checked here:
a value in a path must be one segment, and a value in a header or cookie must not contain a line
break. An error means that nothing was sent.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ..errors import ToolError
from .documents import ApiDocuments
from .media import content_type, is_json
from .parser import BODY, ApiBody, ApiOperation, ApiParameter
from .read_only import drop_read_only
from .schemas import file_fields
from .security import AppliedCredentials
from .styles import (
    Pairs,
    encode_reserved,
    percent_encode,
    write_json,
    write_pairs,
    write_scalar,
    write_simple,
)

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that could end a header, or that servers refuse."""
_LITERAL_SAFE: Final = "/:@!$&'()*+,;=-._~%"
_TEMPLATE = re.compile(r"\{([^{}]+)\}")


class ApiRequest(NamedTuple):
    """An HTTP request to an API."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None


def make_request(
    operation: ApiOperation,
    arguments: Mapping[str, Any],
    base_url: str,
    documents: ApiDocuments,
    credentials: AppliedCredentials,
) -> ApiRequest:
    """Return the request for a call.

    Args:
        operation: The operation.
        arguments: The arguments, which match the input schema.
        base_url: Where the paths of the API begin.
        documents: The description of the API.
        credentials: What to add to the request.

    Raises:
        ToolError: A value cannot be sent.
    """
    given: dict[str, list[tuple[ApiParameter, Any]]] = {}
    for parameter in operation.parameters:
        if parameter.argument in arguments:
            value = arguments[parameter.argument]
            given.setdefault(parameter.place, []).append((parameter, value))
    query = [pair for one, value in given.get("query", ()) for pair in _query(one, value)]
    query += [pair for one, value in given.get("querystring", ()) for pair in _whole(one, value)]
    headers = {"accept": operation.accept}
    for parameter, value in given.get("header", ()):
        headers[parameter.name.lower()] = _header(parameter, value)
    cookies = [pair for one, value in given.get("cookie", ()) for pair in _cookie(one, value)]
    body = None
    if operation.body is not None and BODY in arguments:
        value = drop_read_only(arguments[BODY], operation.body.schema, documents)
        kind, body = _write_body(operation.body, value, documents)
        headers["content-type"] = kind
    elif operation.method in ("POST", "PUT", "PATCH"):
        body = b""
    headers.update(credentials.headers)
    if cookies or credentials.cookies:
        headers["cookie"] = "; ".join(f"{k}={v}" for k, v in [*cookies, *credentials.cookies])
    values = {one.name: (one, value) for one, value in given.get("path", ())}
    url = base_url + _expand_path(operation.path, values)
    query += credentials.query
    if query:
        url += ("&" if "?" in url else "?") + _join(query)
    return ApiRequest(operation.method, url, headers, body)


def _join(pairs: Pairs) -> str:
    return "&".join(f"{name}={value}" if name else value for name, value in pairs)


def _expand_path(template: str, values: Mapping[str, tuple[ApiParameter, Any]]) -> str:
    """Fill in a path. Refuse a value that would lead to another path."""

    def expand(match: re.Match[str]) -> str:
        parameter, value = values[match[1]]
        if parameter.is_json:
            return percent_encode(write_json(value))
        text = write_simple(parameter.name, value, parameter.style, parameter.explode)
        if not text:
            raise ToolError(f"`{parameter.argument}` must not be empty: it is part of the path")
        return text

    path, question, query = template.partition("#")[0].partition("?")
    segments = []
    for segment in path.split("/"):
        parts = _TEMPLATE.split(segment)
        literal = [quote(part, safe=_LITERAL_SAFE) for part in parts[::2]]
        expanded = [expand(match) for match in _TEMPLATE.finditer(segment)]
        whole = "".join(
            part for pair in zip(literal, [*expanded, ""], strict=True) for part in pair
        )
        if expanded and whole in (".", ".."):
            raise ToolError(f"{whole!r} cannot be a part of the path {template}")
        segments.append(whole)
    return "/".join(segments) + question + quote(query, safe=_LITERAL_SAFE + "?{}")


def _query(parameter: ApiParameter, value: Any) -> Pairs:
    if parameter.is_json:
        return [(percent_encode(parameter.name), percent_encode(write_json(value)))]
    encode = encode_reserved if parameter.allow_reserved else percent_encode
    return write_pairs(parameter.name, value, parameter.style, parameter.explode, encode)


def _whole(parameter: ApiParameter, value: Any) -> Pairs:
    """Write a parameter that is the whole query (`in: querystring`)."""
    if parameter.is_json or not isinstance(value, Mapping):
        text = write_json(value) if parameter.is_json else write_scalar(value)
        return [("", percent_encode(text))]
    return [pair for name, one in value.items() for pair in write_pairs(name, one, "form", True)]


def _header(parameter: ApiParameter, value: Any) -> str:
    if parameter.is_json:
        return write_json(value)
    return _checked(
        write_simple(parameter.name, value, "simple", parameter.explode, str), parameter.argument
    )


def _cookie(parameter: ApiParameter, value: Any) -> Pairs:
    if not parameter.is_json:
        _checked(write_simple(parameter.name, value, "simple", False, str), parameter.argument)
    return _query(parameter, value)


def _checked(text: str, argument: str) -> str:
    if _CONTROL.search(text):
        raise ToolError(
            f"`{argument}` contains a line break or another control character, which cannot be "
            "sent in a header or cookie"
        )
    return text


# bodies


def _write_body(body: ApiBody, value: Any, documents: ApiDocuments) -> tuple[str, bytes]:
    """Return the media type and the bytes of a body."""
    kind = content_type(body.media_type, body.kind)
    if body.kind == "json":
        return kind, write_json(value).encode()
    if body.kind == "text":
        return kind, write_scalar(value).encode()
    if body.kind == "binary":
        return kind, _decode(value, BODY)
    fields = value if isinstance(value, Mapping) else {}
    if body.kind == "form":
        pairs = [pair for name, one in fields.items() for pair in _form_field(body, name, one)]
        return kind, _join(pairs).encode()
    boundary = token_hex(16)
    files = file_fields(body, documents)
    parts = b"".join(
        _part(boundary, name, item, _part_type(body, name), name in files)
        for name, one in fields.items()
        for item in (one if isinstance(one, list) else [one])
        if item is not None
    )
    return f"{kind}; boundary={boundary}", parts + f"--{boundary}--\r\n".encode()


def _form_field(body: ApiBody, name: str, value: Any) -> Pairs:
    encoding = body.encoding.get(name)
    encoding = encoding if isinstance(encoding, Mapping) else {}
    style = str(encoding.get("style", "form"))
    explode = encoding.get("explode", True) is True
    if isinstance(value, Mapping) and (not encoding or is_json(_part_type(body, name) or "")):
        return [(percent_encode(name), percent_encode(write_json(value)))]
    return write_pairs(name, value, style, explode)


def _part_type(body: ApiBody, name: str) -> str | None:
    """Return the media type that the description gives to a field, if it is a single one."""
    encoding = body.encoding.get(name)
    found = encoding.get("contentType") if isinstance(encoding, Mapping) else None
    if not isinstance(found, str) or "*" in found or "," in found or _CONTROL.search(found):
        return None
    return found


def _part(boundary: str, name: str, value: Any, media: str | None, is_file: bool) -> bytes:
    disposition = f'form-data; name="{_quoted(name)}"'
    if is_file:
        content = _decode(value["content"], name)
        disposition += f'; filename="{_quoted(str(value.get("filename", name)))}"'
        media = media or "application/octet-stream"
    elif isinstance(value, Mapping | list):
        content, media = write_json(value).encode(), media or "application/json"
    else:
        content = write_scalar(value).encode()
    head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\n"
    head += f"Content-Type: {media}\r\n" if media else ""
    return head.encode() + b"\r\n" + content + b"\r\n"


def _quoted(text: str) -> str:
    return _checked(text, "filename").replace("\\", "\\\\").replace('"', "%22")


def _decode(value: Any, argument: str) -> bytes:
    try:
        return b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(f"`{argument}` is not valid base64") from None
