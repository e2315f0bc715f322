"""How credentials go with a request, over HTTP and with the handshake of a WebSocket.

They say what a request carries. Where the server turns it away all the same, they are told, and may
have something better by now: a token that was renewed, the nonce that the server wants to see. A
request that was turned away did nothing, so it may be sent again, but not for ever. While they find
out, which can take some requests of their own, time stands still for whoever waits for an answer
(`pause`). What only a person can settle is raised as Unauthorized, and settled far above.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from ..errors import ConnectFailed, TimedOut, Unauthorized
from ..ports import Credentials, HttpResponse
from ..text import one_line

T = TypeVar("T")
AUTH_STATUSES = (401, 403)
MAX_CHALLENGE_CHARS = 16 * 1024
_API_KEY = re.compile(r"(?:^|,)\s*ApiKey\s", re.IGNORECASE)
_SAID = re.compile(r'\b(error_description|header)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
ATTEMPTS = 4
"""A token that ended, a nonce that is wanted, and a nonce that ended too soon are three
refusals."""


async def send_with_auth(
    auth: Credentials | None,
    method: str,
    url: str,
    send: Callable[[Mapping[str, str]], Awaitable[T]],
    head: Callable[[T], HttpResponse],
    drop: Callable[[T], None],
    pause: Callable[[bool], None] = lambda paused: None,
) -> T:
    """What `send` brings back when it is given the headers that vouch for us. `head` reads status
    and headers of that, and `drop` lets go of one that is of no use."""
    if auth is None:
        return await send({})
    for left in reversed(range(ATTEMPTS)):
        reply = await send(await auth.headers(method, url))
        answer = head(reply)
        if answer.status not in AUTH_STATUSES:
            auth.on_response(answer)
            break
        pause(True)
        try:
            again = await auth.on_refused(method, url, answer) and left > 0
        except BaseException as problem:
            drop(reply)
            if isinstance(
                problem, TimedOut
            ):  # which must not be taken for the silence of the server itself
                raise ConnectFailed(str(problem)) from None
            raise
        finally:
            pause(False)
        if not again:
            break
        drop(reply)
    return reply


def explain_refusal(
    url: str, answer: HttpResponse, given: Iterable[str], said: str = ""
) -> Unauthorized:
    """What a refusal means that nothing was known to do about: `given` are the headers of the
    user's own, `said` is what the server says where its challenge says nothing."""
    challenge = answer.headers.get("www-authenticate", "")[:MAX_CHALLENGE_CHARS]
    told = {
        name.lower(): re.sub(r"\\(.)", r"\1", value) for name, value in _SAID.findall(challenge)
    }
    why = one_line(told.get("error_description", said))
    because = f": {why}" if why else ""
    key = one_line(told.get("header", "")) if _API_KEY.search(challenge) else ""
    if answer.status == 403:
        return Unauthorized(f"{url} refuses access (403){because}")
    sent = next((name for name in given if name.lower() in ("authorization", key.lower())), None)
    if sent is not None:
        return Unauthorized(
            f"{url} refuses the {sent} header that it was given (401){because}; give another one"
        )
    if key:
        return Unauthorized(f"{url} wants an API key (401): give it with headers={{{key!r}: …}}")
    remedy = f"log in with auth=OAuth(), or `dovetail login {url}`, or give a token with auth="
    return Unauthorized(f"{url} needs authorization (401){because}; {remedy}")
