"""Send a request with credentials, over HTTP or as a WebSocket opening handshake.

The credentials provide the headers. If the server still rejects the request, the credentials object
is notified and may provide better headers, with a renewed token or the nonce that the server
expects. A rejected request had no effect, so it may be sent again, up to `MAX_ATTEMPTS` times.
Handling a rejection may require further requests. Meanwhile, the caller's deadline is paused
(`pause`). A rejection that only a person can resolve is raised as `Unauthorized` and handled by the
client.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from ..errors import ConnectFailed, TimedOut, Unauthorized
from ..ports import Credentials, HttpResponse
from ..text import one_line

T = TypeVar("T")
AUTH_STATUSES = (401, 403)
RESTARTING_STATUSES = (500, 502, 503, 504)
"""The statuses that suggest that a server, or a proxy in front of it, may soon be available
again."""
MAX_CHALLENGE_CHARS = 16 * 1024
_API_KEY = re.compile(r"(?:^|,)\s*ApiKey\s", re.IGNORECASE)
_PARAMETER = re.compile(r'\b(error_description|header)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
MAX_ATTEMPTS = 4
"""The maximum number of attempts, which allows for three rejections: an expired token, a missing
nonce, and a nonce that expired too soon."""


async def send_with_auth(
    auth: Credentials | None,
    method: str,
    url: str,
    send: Callable[[Mapping[str, str]], Awaitable[T]],
    head: Callable[[T], HttpResponse],
    drop: Callable[[T], None],
    pause: Callable[[bool], None] = lambda paused: None,
) -> T:
    """Call `send` with the credentials' headers, more than once if necessary, and return its
    result.

    `head` returns the status and headers of a result, and `drop` releases a result that is not
    used.
    """
    if auth is None:
        return await send({})
    for attempts_left in reversed(range(MAX_ATTEMPTS)):
        reply = await send(await auth.headers(method, url))
        answer = head(reply)
        if answer.status not in AUTH_STATUSES:
            auth.on_response(answer)
            break
        pause(True)
        try:
            retry = await auth.on_refused(method, url, answer) and attempts_left > 0
        except BaseException as problem:
            drop(reply)
            if isinstance(problem, TimedOut):  # not a timeout of the request itself
                raise ConnectFailed(str(problem)) from None
            raise
        finally:
            pause(False)
        if not retry:
            break
        drop(reply)
    return reply


def make_head(status: int, headers: Iterable[tuple[str, str]]) -> HttpResponse:
    """Return a response without its body. Repeated headers are joined."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return HttpResponse(status=status, headers=joined)


def explain_refusal(
    url: str, answer: HttpResponse, user_headers: Iterable[str], explanation: str = ""
) -> Unauthorized:
    """Return the error for a 401 or 403 that the credentials could not resolve.

    `user_headers` are the names of the user's own headers. `explanation` is the server's own text,
    used if its challenge contains no description.
    """
    challenge = answer.headers.get("www-authenticate", "")[:MAX_CHALLENGE_CHARS]
    parameters = {
        name.lower(): re.sub(r"\\(.)", r"\1", value)
        for name, value in _PARAMETER.findall(challenge)
    }
    why = one_line(parameters.get("error_description", explanation))
    status = f"{answer.status}: {why}" if why else f"{answer.status}"
    key = one_line(parameters.get("header", "")) if _API_KEY.search(challenge) else ""
    if answer.status == 403:
        return Unauthorized(f"{url} denied access ({status})")
    sent = next(
        (name for name in user_headers if name.lower() in ("authorization", key.lower())), None
    )
    if sent is not None:
        return Unauthorized(f"{url} rejected the {sent} header ({status}). Pass another one.")
    if key:
        return Unauthorized(
            f"{url} requires an API key (401). Pass it with headers={{{key!r}: …}}."
        )
    remedy = f"Log in with auth=OAuth() or `dovetail login {url}`, or pass a token with auth=…"
    return Unauthorized(f"{url} requires authorization ({status}). {remedy}")
