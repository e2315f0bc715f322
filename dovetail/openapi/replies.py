"""Turn the reply of an API into the result of a tool.

JSON becomes structured content, and text stays text. Images and audio become content that a model
can see or hear, and other bytes a blob. An error status is explained in words, with what the
description and the body of the reply say about it.
"""

from base64 import b64encode
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Raw

from ..net import shown_url
from ..protocol.content import (
    AudioContent,
    BlobResourceContents,
    Content,
    EmbeddedResource,
    ImageContent,
    TextContent,
)
from ..protocol.tools import ToolResult
from ..text import one_line
from .media import essence, is_json, is_text
from .parser import ApiOperation

MAX_EXPLAINED_CHARS: Final = 2000
"""How much of the body of an error is repeated."""
MAX_EXPLAINED_DEPTH: Final = 6
MEANINGS: Final[Mapping[int, str]] = {
    400: "the API could not understand the request",
    401: "the API needs credentials, or does not accept those that were sent",
    403: "the credentials do not allow this",
    404: "there is nothing at this path; check the ids in the arguments",
    405: "this method is not possible here",
    406: "the API cannot answer in a suitable format",
    408: "the API waited too long for the request",
    409: "the request conflicts with the current state; read it again first",
    410: "this existed, but has been removed",
    412: "a condition of the request does not hold; read the current state again first",
    413: "the request is too large",
    415: "the API does not accept this kind of body",
    422: "the API understood the request, but does not accept its values",
    423: "this is locked",
    428: "the API requires a condition, such as the header If-Match",
    429: "there were too many requests",
    500: "the API failed; this is not a mistake in the arguments",
    501: "the API does not support this yet",
    502: "a server behind the API failed",
    503: "the API is not available now; try again later",
    504: "a server behind the API did not answer in time",
}
"""What a status means, as a clause."""


def make_result(
    operation: ApiOperation, url: str, status: int, headers: Mapping[str, str], body: bytes
) -> ToolResult:
    """Return the result for a reply.

    Args:
        operation: The operation that was called.
        url: The URL of the request.
        status: The status of the reply.
        headers: Its headers, with names in lower case.
        body: Its body.
    """
    media = headers.get("content-type", "")
    if status >= 400:
        text = explain(operation, status, headers, _read_text(body, media))
        return ToolResult(content=[TextContent(text)], is_error=True)
    if operation.method == "HEAD":
        return _json_result(msgspec.json.encode({"status": status, "headers": dict(headers)}))
    if not body:
        return ToolResult(content=[TextContent(f"Done ({status_words(status)}, without content).")])
    if is_json(media) or not media:
        try:
            return _json_result(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # it is not JSON, whatever the API calls it
    return ToolResult(content=[_content(body, media, url)])


def _json_result(body: bytes) -> ToolResult:
    msgspec.json.decode(body)  # the other functions do not notice all mistakes
    data = msgspec.json.format(body.decode("utf-8-sig").encode(), indent=-1)
    structured = data if data[:1] == b"{" else b'{"result":' + data + b"}"
    return ToolResult(content=[TextContent(data.decode())], structured_content=Raw(structured))


def _content(body: bytes, media: str, url: str) -> Content:
    kind = essence(media)
    text = _read_text(body, media)
    if text is not None:
        return TextContent(text)
    data = b64encode(body).decode()
    if kind.startswith("image/"):
        return ImageContent(data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return AudioContent(data=data, mime_type=kind)
    contents = BlobResourceContents(
        uri=shown_url(url), mime_type=kind or "application/octet-stream", blob=data
    )
    return EmbeddedResource(resource=contents)


def _read_text(body: bytes, media: str) -> str | None:
    """Return the text of a body, or None if it is not text."""
    kind = essence(media)
    if kind and not is_text(kind) and not is_json(kind):
        return None
    charset = media.lower().partition("charset=")[2].split(";")[0].strip(" \"'") or "utf-8"
    try:
        return body.decode(charset)
    except (LookupError, ValueError):
        return body.decode(errors="replace") if kind else None


# errors


def status_words(status: int) -> str:
    """Return a status with its usual name."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def explain(
    operation: ApiOperation, status: int, headers: Mapping[str, str], text: str | None
) -> str:
    """Return what went wrong, in words for a model.

    Args:
        operation: The operation that was called.
        status: The status of the reply.
        headers: Its headers.
        text: Its body, if it is text.
    """
    general = "the API failed" if status >= 500 else "the API refused the request"
    lines = [
        f"{operation.method} {operation.path} failed with {status_words(status)}: "
        f"{MEANINGS.get(status, general)}."
    ]
    described = operation.replies.get(str(status)) or operation.replies.get(f"{status // 100}XX")
    if described and described.lower().rstrip(".") not in lines[0].lower():
        lines.append(f"The description of the API says: {one_line(described, 500)}")
    if status in (429, 503) and (wait := headers.get("retry-after")):
        unit = " seconds" if wait.strip().isdigit() else ""
        lines.append(f"Try again after {one_line(wait)}{unit}.")
    if text and text.strip():
        lines += _explain_body(text)
    return "\n".join(lines)


def _explain_body(text: str) -> list[str]:
    """Return what the body of an error says, in short."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return [f"Its answer: {_shorten(' '.join(text.split()))}"]
    problems = list(dict.fromkeys(_problems(found)))
    whole = _shorten(msgspec.json.encode(found).decode())
    return [*(f"- {_shorten(problem)}" for problem in problems[:20]), f"Its answer: {whole}"]


def _problems(found: Any, depth: int = 0) -> list[str]:
    """Return the messages in the usual forms of errors: RFC 9457, FastAPI, GitHub, JSON:API."""
    if depth > MAX_EXPLAINED_DEPTH:
        return []
    if isinstance(found, str):
        return [found]
    if isinstance(found, list):
        return [problem for one in found for problem in _problems(one, depth + 1)]
    if not isinstance(found, dict):
        return []
    place = found.get("loc") or found.get("field") or found.get("path") or found.get("param")
    name = ".".join(map(str, place)) if isinstance(place, list) else str(place or "")
    words = [
        f"{name}: {text}" if name else text
        for key in ("msg", "message", "title", "detail", "error_description", "reason")
        if isinstance(text := found.get(key), str) and text
    ]
    for key in ("detail", "errors", "error", "invalid-params"):
        if not isinstance(found.get(key), str) or not words:
            words += _problems(found.get(key), depth + 1) if found.get(key) else []
    return words


def _shorten(text: str) -> str:
    is_long = len(text) > MAX_EXPLAINED_CHARS
    return f"{text[:MAX_EXPLAINED_CHARS]}… ({len(text):,} characters)" if is_long else text
