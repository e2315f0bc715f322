"""What a tap sees of a login: each step with its request and reply, what is wrong, no secrets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.auth import MemoryStore, OAuth
from dovetail.auth.client.taps import TappedCredentials
from dovetail.errors import ConnectFailed, Unauthorized
from dovetail.ports import HttpResponse
from dovetail.testing import Tape

from .guarded import PASSWORD, USER
from .internet import ISSUER, SERVER, Internet, Issuer, Person, describe
from .test_end_to_end import Robot, guarded

LOGIN = ["resource_metadata", "server_metadata", "registration", "authorize", "token"]
REFUSED = HttpResponse(status=401, headers={"www-authenticate": "Bearer"})


async def test_the_steps_of_a_login_from_the_refusal_to_the_call(tmp_path: Path) -> None:
    tape, robot = Tape(), Robot(username=USER, password=PASSWORD)
    codes: list[str] = []
    go = robot.go

    async def remember(url: str, about: str) -> Mapping[str, str]:
        found = await go(url, about)
        codes.append(found["code"])
        return found

    robot.go = remember  # type: ignore[method-assign]
    async with guarded("embedded", storage=tmp_path / "store.db") as url:
        store = MemoryStore()
        async with Client(url, auth=OAuth(store=store, browser=robot), tap=tape) as client:
            assert (await client.call_tool("whoami")).data == USER
            tokens = client._connector.target.credentials._record.tokens  # type: ignore
    names = [step.name for step in tape.auth_steps]
    assert list(dict.fromkeys(names)) == ["challenge", *LOGIN, "call"]
    first, last = tape.auth_steps[0], tape.auth_steps[-1]
    assert first.reply is not None and first.reply.status == 401
    assert "resource_metadata" in first.reply.headers["www-authenticate"]
    assert last.reply is not None and last.reply.status == 200 and last.request.url == url
    assert all(step.problem is None for step in tape.auth_steps)
    authorize = next(step for step in tape.auth_steps if step.name == "authorize")
    assert authorize.reply is not None
    assert authorize.reply.headers["location"].startswith(robot.redirect_uri + "?code=***&")
    token = next(step for step in tape.auth_steps if step.name == "token")
    assert b"grant_type=authorization_code" in token.request.body
    assert token.reply is not None and b'"access_token":"***"' in token.reply.body
    seen = repr(tape.auth_steps) + repr(tape.exchanges)
    for secret in (*codes, tokens.access_token, tokens.refresh_token):
        assert secret and secret not in seen
    assert any(one.status == 401 for one in tape.exchanges)
    sent = [one.request_headers.get("authorization") for one in tape.exchanges]
    assert "Bearer ***" in sent


class Known(Tape):
    show_secrets = True


def credentials(issuer: Issuer, tape: Tape, **options: Any) -> TappedCredentials:
    oauth = OAuth(store=MemoryStore(), browser=Person(issuer), **options)
    return TappedCredentials(oauth.bind(SERVER, issuer.internet.fetch), tape)


async def log_in(bound: TappedCredentials) -> None:
    with pytest.raises(Unauthorized):
        await bound.headers("POST", SERVER)
        await bound.on_refused("POST", SERVER, REFUSED)
    await bound.authorize()


async def test_a_tap_may_ask_for_the_secrets() -> None:
    tape, issuer = Known(), Issuer(Internet())
    describe(issuer.internet)
    await log_in(credentials(issuer, tape))
    reply = tape.auth_steps[-1].reply
    assert reply is not None and b"access-1" in reply.body


FAULTS: list[tuple[str, Any, str]] = [
    ("resource_metadata", {"resource": "https://other.example.com/mcp"}, "another resource"),
    ("server_metadata", {"issuer": "https://evil.example.com"}, "another issuer"),
    ("registration", ConnectFailed("the registration failed"), "the registration failed"),
    ("authorize", {"state": "forged"}, "another login"),
    ("token", {"error": "invalid_grant", "error_description": "too late"}, "too late"),
]


@pytest.mark.parametrize(("name", "fault", "problem"), FAULTS, ids=[one[0] for one in FAULTS])
async def test_the_step_that_failed_says_what_is_wrong(name: str, fault: Any, problem: str) -> None:
    tape, issuer = Tape(), Issuer(Internet())
    described = describe(issuer.internet)
    if name == "resource_metadata":
        described.update(fault)
    elif name == "server_metadata":
        issuer.metadata.update(fault)
    elif name == "registration":
        issuer.internet.pages[f"POST {ISSUER}/register"] = fault
    elif name == "authorize":
        issuer.came = fault
    else:
        issuer.refuse = fault
    with pytest.raises((Unauthorized, ConnectFailed), match=problem):
        await log_in(credentials(issuer, tape))
    *before, last = tape.auth_steps
    assert last.name == name and problem in (last.problem or "")
    assert all(step.problem is None for step in before)


async def test_a_new_token_that_is_refused_is_a_problem_of_the_call() -> None:
    tape, issuer = Tape(), Issuer(Internet())
    describe(issuer.internet)
    bound = credentials(issuer, tape)
    await log_in(bound)
    await bound.headers("POST", SERVER)
    with pytest.raises(Unauthorized):
        await bound.on_refused("POST", SERVER, REFUSED)
    last = tape.auth_steps[-1]
    assert last.name == "call" and last.problem is not None and last.request.url == SERVER
