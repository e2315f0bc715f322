"""The steps of a login: what the specifications require of each, and what a server does against
them. Nothing here does I/O.

A login that must not go on fails with a problem, which the client itself reports (`AuthStep`). The
remarks here are about replies that the client accepts although a stricter client would not.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from ..limits import KIB
from ..ports import AuthStep, AuthStepName, HttpRequest, HttpResponse

MAX_BODY_BYTES = 64 * KIB
"""What is shown of a body."""
RFC = "https://www.rfc-editor.org/rfc/rfc{}#section-{}"

StepState: TypeAlias = Literal["waiting", "paused", "running", "done", "failed", "skipped"]


class StepRule(Struct, frozen=True):
    """A step, and what the specifications require of it."""

    title: str
    requirement: str
    rfc: int
    section: str

    @property
    def reference(self) -> dict[str, str]:
        """The name and the URL of the section."""
        return {
            "text": f"RFC {self.rfc}, section {self.section}",
            "url": RFC.format(self.rfc, self.section),
        }


STEPS: dict[AuthStepName, StepRule] = {
    "challenge": StepRule(
        "Challenge",
        "A server that needs a login answers 401. Its WWW-Authenticate header has the scheme "
        "Bearer or DPoP, and names the URL of the server's metadata as resource_metadata.",
        9728,
        "5.1",
    ),
    "resource_metadata": StepRule(
        "Resource metadata",
        "The document is JSON. Its resource is the URL of the server, and authorization_servers "
        "names the issuers whose tokens the server accepts.",
        9728,
        "3.3",
    ),
    "server_metadata": StepRule(
        "Authorization server metadata",
        "The document is JSON, and its issuer is exactly the one that the server named. A login "
        "needs an authorization_endpoint, a token_endpoint, and S256 in "
        "code_challenge_methods_supported.",
        8414,
        "3.3",
    ),
    "registration": StepRule(
        "Registration",
        "The authorization server answers 201 with a client_id. The step is skipped if the client "
        "is registered already, or if you configured its client_id.",
        7591,
        "3.2.1",
    ),
    "authorize": StepRule(
        "Authorization",
        "You log in on a page of the authorization server. It sends the browser back with a code "
        "and the same state. If it sends iss, that is its issuer.",
        9207,
        "2.4",
    ),
    "token": StepRule(
        "Token",
        "The client proves with code_verifier that the code is its own. The authorization server "
        "answers 200 with an access_token and its token_type, and forbids storing the reply "
        "(Cache-Control: no-store).",
        6749,
        "5.1",
    ),
    "call": StepRule(
        "Call",
        "The client sends its request again, with the token in the Authorization header. The "
        "server accepts the token, because it was issued for the server.",
        6750,
        "2.1",
    ),
    "revocation": StepRule(
        "Revocation",
        "The authorization server makes the token invalid, and answers 200.",
        7009,
        "2.2",
    ),
}
"""The steps in their order. `revocation` belongs to a logout."""
ORDER: dict[str, int] = {name: index for index, name in enumerate(STEPS)}


def step_state(
    name: AuthStepName, ended: list[AuthStep], current: AuthStep | None, is_paused: bool
) -> StepState:
    """Return the state of a step.

    Args:
        name: The step.
        ended: All requests that have ended.
        current: The request that is being sent, or that waits to be sent.
        is_paused: Whether it waits.
    """
    if current is not None and current.name == name:
        return "paused" if is_paused else "running"
    own = [step for step in ended if step.name == name]
    if own:
        return "failed" if own[-1].problem else "done"
    later = (*ended, *(() if current is None else (current,)))
    return "skipped" if any(ORDER[step.name] > ORDER[name] for step in later) else "waiting"


def show_step(step: AuthStep) -> dict[str, Any]:
    """Return a request and its reply as the page shows them."""
    reply = step.reply
    return {
        "method": step.request.method,
        "url": step.request.url,
        "request_headers": dict(step.request.headers),
        "request_body": _show_body(step.request),
        "status": None if reply is None else reply.status,
        "reply_headers": {} if reply is None else dict(reply.headers),
        "reply_body": "" if reply is None else _show_body(reply),
        "ms": round(1000 * (step.ended - step.started), 3),
        "problem": step.problem,
        "remarks": find_remarks(step),
    }


def _show_body(sent: HttpRequest | HttpResponse) -> str:
    return sent.body[:MAX_BODY_BYTES].decode(errors="replace")


# remarks


def find_remarks(step: AuthStep) -> list[str]:
    """Return what is not as the specifications require, although the client accepts it.

    Args:
        step: The step. Its credentials may be masked.
    """
    if step.reply is None:
        return []
    reply = step.reply
    return [
        check.remark
        for check in REMARKS
        if step.name in check.steps and check.applies(reply) and not check.passes(reply)
    ]


def _header(reply: HttpResponse, name: str) -> str:
    found = (value for key, value in reply.headers.items() if key.lower() == name)
    return ", ".join(found).lower()


def _document(reply: HttpResponse) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _has_scheme(reply: HttpResponse) -> bool:
    return any(word in _header(reply, "www-authenticate") for word in ("bearer", "dpop"))


def _is_challenge(reply: HttpResponse) -> bool:
    return reply.status == 401 and _has_scheme(reply)


def _is_success(reply: HttpResponse) -> bool:
    return reply.status in (200, 201)


def _is_refusal(reply: HttpResponse) -> bool:
    return reply.status == 401


def _always(reply: HttpResponse) -> bool:
    return True


class StepRemark(NamedTuple):
    """A requirement, the replies that it is for, and what to say about those that do not fulfil
    it."""

    steps: tuple[AuthStepName, ...]
    applies: Callable[[HttpResponse], bool]
    passes: Callable[[HttpResponse], bool]
    remark: str


METADATA: tuple[AuthStepName, ...] = ("resource_metadata", "server_metadata")
REMARKS: tuple[StepRemark, ...] = (
    StepRemark(
        ("challenge",),
        _is_refusal,
        _has_scheme,
        "The reply has no WWW-Authenticate header with the scheme Bearer or DPoP (RFC 6750, "
        "section 3).",
    ),
    StepRemark(
        ("challenge",),
        _is_challenge,
        lambda reply: "resource_metadata=" in _header(reply, "www-authenticate"),
        "WWW-Authenticate does not name the resource_metadata (RFC 9728, section 5.1), so clients "
        "try well-known URLs.",
    ),
    StepRemark(
        METADATA,
        _always,
        lambda reply: reply.status == 200,
        "There is no document at this URL. The client tries the next one, if there is one.",
    ),
    StepRemark(
        METADATA,
        _is_success,
        lambda reply: _header(reply, "content-type").startswith("application/json"),
        "The document is not sent as application/json (RFC 8414 and RFC 9728, section 3.2).",
    ),
    StepRemark(
        ("registration",),
        _is_success,
        lambda reply: reply.status == 201,
        "The status is 200, and must be 201 (RFC 7591, section 3.2.1).",
    ),
    StepRemark(
        ("authorize",),
        _always,
        lambda reply: "iss=" in _header(reply, "location"),
        "The redirect has no iss parameter (RFC 9207), which protects clients that use several "
        "authorization servers.",
    ),
    StepRemark(
        ("token",),
        _is_success,
        lambda reply: "no-store" in _header(reply, "cache-control"),
        "The reply has no Cache-Control: no-store (RFC 6749, section 5.1).",
    ),
    StepRemark(
        ("token",),
        _is_success,
        lambda reply: "expires_in" in _document(reply),
        "The reply has no expires_in (recommended by RFC 6749, section 5.1), so clients cannot "
        "renew the token in time.",
    ),
)
