"""Report the steps of a login to a tap.

A login is a generator of requests (`flow.py`). `tap_flow` wraps such a generator in another one
that passes everything on, and reports each step when the login has judged its response: it goes on,
or it fails with a problem. `TappedCredentials` adds the two steps outside the flow: the request
that the server refused, and the first one that it accepted afterwards.
"""

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import urlencode

from msgspec.structs import replace

from ...errors import DovetailError
from ...masking import mask_body, mask_headers, mask_text, mask_url
from ...ports import AuthStep, Credentials, Fetch, HttpRequest, HttpResponse, Tap
from ..wire import ErrorReply
from .flow import Flow, OpenPage
from .steps import StepRequest

R = TypeVar("R")
OnStep = Callable[[AuthStep], None]
CANCELLED = "The login was cancelled before this step ended"

_sent: ContextVar[tuple[str, str, float]] = ContextVar("dovetail_auth_sent", default=("", "", 0.0))
"""The method, the URL and the time of the request that this task has sent."""


def tap_flow(steps: Flow[R], on_step: OnStep, redirect_uri: str) -> Flow[R]:
    """Return the same flow, whose steps are reported."""
    answer: Any = None
    error: DovetailError | None = None
    last: AuthStep | None = None
    try:
        while True:
            try:
                request = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                result: R = end.value
                _report(on_step, last, result.text if isinstance(result, ErrorReply) else None)
                return result
            except DovetailError as problem:
                _report(on_step, last, str(problem))
                raise
            _report(on_step, last, None)
            answer = error = last = None
            started = time.time()
            try:
                answer = yield request
            except DovetailError as problem:
                error = problem
            except GeneratorExit:
                on_step(_make_step(request, None, CANCELLED, started, redirect_uri))
                raise
            failure = None if error is None else str(error)
            last = _make_step(request, answer, failure, started, redirect_uri)
    finally:
        steps.close()


def _report(on_step: OnStep, step: AuthStep | None, problem: str | None) -> None:
    if step is not None:
        on_step(replace(step, problem=step.problem or problem))


def _make_step(
    request: HttpRequest | OpenPage,
    answer: Any,
    problem: str | None,
    started: float,
    redirect_uri: str,
) -> AuthStep:
    times = {"started": started, "ended": time.time()}
    if isinstance(request, OpenPage):
        page = HttpRequest(method="GET", url=request.url)
        reply = None if answer is None else _redirect(redirect_uri, answer)
        return AuthStep(name="authorize", request=page, reply=reply, problem=problem, **times)
    name = request.step if isinstance(request, StepRequest) else "token"
    return AuthStep(name=name, request=request, reply=answer, problem=problem, **times)


def _redirect(redirect_uri: str, parameters: Mapping[str, str]) -> HttpResponse:
    return HttpResponse(status=302, headers={"location": f"{redirect_uri}?{urlencode(parameters)}"})


def mask_step(step: AuthStep) -> AuthStep:
    """Return a step with its credentials masked."""
    request, reply = step.request, step.reply
    headers = request.headers
    kind = headers.get("content-type", "")
    return replace(
        step,
        request=HttpRequest(
            method=request.method,
            path=mask_url(request.path),
            url=mask_url(request.url),
            headers=mask_headers(headers),
            body=mask_body(request.body, kind),
        ),
        reply=reply
        and HttpResponse(
            status=reply.status,
            headers=mask_headers(reply.headers),
            body=mask_body(reply.body, reply.headers.get("content-type", "application/json")),
        ),
        problem=step.problem and mask_text(step.problem),
    )


class TappedCredentials:
    """Credentials that report the steps of their logins to a tap."""

    def __init__(self, credentials: Credentials, tap: Tap) -> None:
        self._credentials, self._tap = credentials, tap
        self._awaits_call = False
        """Whether there is a new token that the server has not accepted yet."""
        set_on_step: Callable[[OnStep], None] | None = getattr(credentials, "set_on_step", None)
        if set_on_step is not None:
            set_on_step(self._on_step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._credentials, name)  # what only some credentials have

    def bind(self, url: str, fetch: Fetch) -> "TappedCredentials":
        """Return these credentials for one server."""
        return TappedCredentials(self._credentials.bind(url, fetch), self._tap)

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers to send with a request."""
        found = await self._credentials.headers(method, url)
        _sent.set((method, url, time.time()))
        return found

    async def on_refused(self, method: str, url: str, answer: HttpResponse) -> bool:
        """Report a 401 or 403, and handle it."""
        if self._awaits_call:
            self._report_sent("call", answer, "The server refused the request with the new token")
        else:
            self._report_sent("challenge", answer)
        return await self._credentials.on_refused(method, url, answer)

    def on_response(self, answer: HttpResponse) -> None:
        """Report the first accepted request after a login, and process the response."""
        if self._awaits_call:
            self._awaits_call = False
            self._report_sent("call", answer)
        self._credentials.on_response(answer)

    async def authorize(self) -> None:
        """Perform an interactive login."""
        await self._credentials.authorize()

    def _report_sent(self, name: Any, answer: HttpResponse, problem: str | None = None) -> None:
        method, url, started = _sent.get()
        self._on_step(
            AuthStep(
                name=name,
                request=HttpRequest(method=method, url=url),
                reply=HttpResponse(status=answer.status, headers=answer.headers),
                problem=problem,
                started=started,
                ended=time.time(),
            )
        )

    def _on_step(self, step: AuthStep) -> None:
        if step.name == "token" and step.problem is None:
            self._awaits_call = True
        shows_secrets = getattr(self._tap, "show_secrets", False)
        self._tap.auth_step(step if shows_secrets else mask_step(step))
