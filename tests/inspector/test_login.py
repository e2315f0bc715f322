"""The steps of a login, run one by one against real authorization servers, good and broken ones."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dovetail import Server
from dovetail.auth import MemoryStore, OAuth
from dovetail.auth.client import browser
from dovetail.auth.client.store import read_record
from dovetail.auth.urls import login_key
from dovetail.inspector.login import LoginTarget
from dovetail.inspector.login_steps import STEPS, find_remarks
from dovetail.inspector.refusal import Refused
from dovetail.mcplog import AuthEvent, read_mcplog
from dovetail.ports import AuthStep, AuthStepName, HttpRequest, HttpResponse
from tests.person import Person
from tests.ports import free_port
from tests.transports.http.raw import on_port

from .guarded_site import (
    ISSUER,
    PASSWORD,
    RESOURCE,
    USER,
    Fault,
    changed,
    guarded_site,
    refused,
    without,
)
from .inspecting import SECONDS, Inspecting, inspecting

LOGIN: tuple[AuthStepName, ...] = tuple(name for name in STEPS if name != "revocation")


class LoggingIn(Inspecting):
    """An inspector whose target needs a login."""

    store: MemoryStore
    url: str

    async def until_login(self, *statuses: str) -> dict[str, Any]:
        """Wait until the login has one of these states, and return it."""
        async with asyncio.timeout(SECONDS):
            while True:
                last = self.state.events.last
                found = self.state.login.fields()
                if found["status"] in statuses:
                    return found
                await self.state.events.wait_after(last, SECONDS)

    async def until_link(self) -> str:
        """Wait for the login page that is offered."""
        async with asyncio.timeout(SECONDS):
            while True:
                last = self.state.events.last
                link: str | None = self.state.login.fields()["link"]
                if link:
                    return link
                await self.state.events.wait_after(last, SECONDS)

    async def visit(self) -> None:
        """Open the login page that is offered, log in, and follow the redirect."""
        link = await self.until_link()
        person = Person(username=USER, password=PASSWORD)
        await asyncio.to_thread(person.visit, link, redirect_of(link))

    async def tokens(self) -> Any:
        return read_record(await self.store.load(login_key(self.url))).tokens


@asynccontextmanager
async def logging_in(
    paths: tuple[str, ...] = (), fault: Fault | None = None, **options: Any
) -> AsyncIterator[LoggingIn]:
    store = MemoryStore()
    async with guarded_site(paths, fault) as url:

        async def describe() -> dict[str, Any] | None:
            tokens = read_record(await store.load(login_key(url))).tokens
            return None if tokens is None else {"user": tokens.user}

        login = LoginTarget(
            make_credentials=lambda browser: OAuth(store=store, browser=browser, fresh=True),
            describe=describe,
        )
        auth = OAuth(store=store, browser=False)

        async with inspecting(url, wait=False, login=login, auth=auth, **options) as one:
            found = LoggingIn(one.state)
            found.store, found.url = store, url
            yield found


def redirect_of(link: str) -> str:
    return parse_qs(urlsplit(link).query)["redirect_uri"][0]


def states(login: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in login["steps"]}


def requests(login: dict[str, Any], name: str) -> list[dict[str, Any]]:
    (step,) = (step for step in login["steps"] if step["name"] == name)
    found: list[dict[str, Any]] = step["requests"]
    return found


async def test_a_login_shows_every_step_and_the_connection_opens_with_it() -> None:
    async with logging_in() as one:
        failed = await one.until("state", status="failed")
        assert "Login panel" in failed["what_to_do"]
        await one.do("login_step")
        await one.visit()
        login = await one.until_login("done")
        assert states(login) == dict.fromkeys(LOGIN, "done")
        assert (login["message"], login["saved"]) == ("Logged in.", {"user": USER})
        assert requests(login, "challenge")[0]["status"] == 401
        assert '"issuer"' in requests(login, "server_metadata")[-1]["reply_body"]
        assert requests(login, "registration")[0]["status"] == 201
        assert requests(login, "call")[0]["url"] == one.url
        assert all(step["requirement"] and step["reference"]["url"] for step in login["steps"])
        await one.until("state", status="open")
        assert (await one.call("whoami"))["status"] == "done"
        ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
        exported = await one.do("export", message=ping, form="python")
        assert "auth=dovetail.auth.OAuth()" in exported["text"], "it uses the saved login"


@pytest.mark.parametrize("show_secrets", [False, True])
async def test_credentials_are_masked_unless_they_are_asked_for(show_secrets: bool) -> None:
    async with logging_in(show_secrets=show_secrets) as one:
        await one.do("login_step", last="authorize")
        await one.visit()
        paused = await one.until_login("paused")
        await one.do("login_step")
        login = await one.until_login("done")
        tokens = await one.tokens()
        code = "".join(requests(login, "authorize")[0]["reply_headers"].values())
        assert ("code=***" in code) is not show_secrets
        waiting = requests(paused, "token")[0]["request_body"]
        assert ("code_verifier=***" in waiting) is not show_secrets
        seen = json.dumps([one.events(), paused, login])
        for secret in (tokens.access_token, tokens.refresh_token):
            assert (secret in seen) is show_secrets


async def test_the_steps_are_recorded_and_the_messages_of_the_login_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with logging_in() as one:
        await one.until("state", status="failed")
        await one.do("record", on=True)
        await one.do("login_step", last="token")
        await one.visit()
        await one.until_login("paused")
        file = (await one.do("snapshot"))["recording"]["file"]
        tokens = await one.tokens()
    found = read_mcplog(file)
    names = [event.step["name"] for event in found.events if isinstance(event, AuthEvent)]
    assert set(names) == set(LOGIN) - {"call"}
    assert not found.wire()
    assert tokens.access_token not in Path(file).read_text()


async def test_a_login_that_fails_unexpectedly_says_so() -> None:
    def make_credentials(browser: Any) -> Any:
        raise RuntimeError("the keyring is broken")

    async def describe() -> None:
        return None

    login = LoginTarget(make_credentials=make_credentials, describe=describe)
    async with inspecting(Server("small"), login=login) as one:
        await one.do("login_step")
        await one.until("changed", what="login")
        async with asyncio.timeout(SECONDS):
            while (found := one.state.login.fields())["status"] == "running":
                await one.state.events.wait_after(one.state.events.last, SECONDS)
        assert (found["status"], found["message"]) == ("failed", "the keyring is broken")


@pytest.mark.parametrize(("last", "following"), list(pairwise(LOGIN)))
async def test_a_login_runs_to_a_step_and_shows_the_next_request_before_it_is_sent(
    last: AuthStepName, following: AuthStepName
) -> None:
    async with logging_in() as one:
        await one.do("login_step", last=last)
        if last in ("authorize", "token"):
            await one.visit()
        login = await one.until_login("paused")
        assert login["message"] == f"Paused before: {STEPS[following].title}."
        at = LOGIN.index(following)
        assert states(login) == {
            **dict.fromkeys(LOGIN[:at], "done"),
            following: "paused",
            **dict.fromkeys(LOGIN[at + 1 :], "waiting"),
        }
        assert requests(login, following)[-1]["status"] is None
        assert (await one.tokens() is None) is (last != "token")


async def test_a_login_that_is_run_again_starts_over_and_keeps_the_saved_one_until_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The registration names the port. If another test takes it in between, there is a new one.
    monkeypatch.setattr(browser, "DEFAULT_PORT", free_port())
    async with logging_in() as one:
        await one.do("login_step")
        await one.visit()
        await one.until_login("done")
        first = await one.tokens()
        await one.do("login_step", last="server_metadata", again=True)
        login = await one.until_login("paused")
        # The client is registered already, so its next request is the authorization.
        assert states(login)["authorize"] == "paused"
        assert states(login)["registration"] == "skipped"
        assert (await one.tokens()).access_token == first.access_token
        await one.do("login_step", again=True)
        await one.visit()
        await one.until_login("done")
        assert (await one.tokens()).access_token != first.access_token


async def test_a_cancelled_login_withdraws_its_link_and_frees_its_port() -> None:
    async with logging_in() as one:
        await one.do("login_step")
        port = urlsplit(redirect_of(await one.until_link())).port
        await one.do("login_cancel")
        login = await one.until_login("cancelled")
        assert (login["link"], states(login)["authorize"]) == (None, "failed")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await one.do("login_cancel")  # nothing is running


async def test_forgetting_a_login_deletes_and_revokes_it() -> None:
    async with logging_in() as one:
        await one.do("login_step")
        await one.visit()
        await one.until_login("done")
        opened = await one.until("state", status="open")
        await one.do("login_forget")
        login = one.state.login.fields()
        assert login["message"] == "The saved login was deleted. Its tokens were revoked."
        assert login["saved"] is None and await one.tokens() is None
        assert states(login)["revocation"] == "done"
        restarted = await one.until("state", status="opening", connection=opened["connection"] + 2)
        assert restarted["n"] > opened["n"]
        await one.do("login_forget")
        assert one.state.login.fields()["message"] == "No login was saved."


FAULTS: list[tuple[str, tuple[str, ...], Fault, AuthStepName, str]] = [
    ("no metadata", ISSUER, refused(404), "server_metadata", "publishes no metadata"),
    (
        "wrong issuer",
        ISSUER,
        changed(issuer="https://evil.example"),
        "server_metadata",
        "for another issuer",
    ),
    (
        "wrong resource",
        RESOURCE,
        changed(resource="https://evil.example/mcp"),
        "resource_metadata",
        "for another resource",
    ),
    (
        "no PKCE",
        ISSUER,
        without("code_challenge_methods_supported"),
        "server_metadata",
        "S256 in code_challenge_methods_supported",
    ),
    (
        "no registration",
        ISSUER,
        without("registration_endpoint"),
        "server_metadata",
        "does not let clients register themselves",
    ),
    (
        "refused registration",
        ("/register",),
        refused(403, error="access_denied", error_description="Ask the operator"),
        "registration",
        "Ask the operator",
    ),
    ("refused token", ("/token",), refused(400, error="invalid_grant"), "token", "invalid_grant"),
]


@pytest.mark.parametrize(
    ("paths", "fault", "name", "problem"),
    [fault[1:] for fault in FAULTS],
    ids=[fault[0] for fault in FAULTS],
)
async def test_the_step_at_which_a_broken_server_fails_says_why(
    paths: tuple[str, ...], fault: Fault, name: AuthStepName, problem: str
) -> None:
    async with logging_in(paths, fault) as one:
        await one.do("login_step")
        if name == "token":
            await one.visit()
        login = await one.until_login("failed")
        assert problem in login["message"]
        assert problem in requests(login, name)[-1]["problem"]
        at = LOGIN.index(name)
        assert states(login)[name] == "failed"
        assert all(states(login)[later] == "waiting" for later in LOGIN[at + 1 :])
        assert await one.tokens() is None


async def test_a_server_that_cannot_be_reached_fails_at_the_first_step() -> None:
    login = LoginTarget(lambda browser: OAuth(store=MemoryStore(), browser=browser), _nothing)
    async with inspecting("http://127.0.0.1:9/mcp", wait=False, login=login) as one:
        found = LoggingIn(one.state)
        await found.do("login_step")
        shown = await found.until_login("failed")
        assert states(shown)["challenge"] == "failed"
        assert requests(shown, "challenge")[0]["problem"] == shown["message"]


async def _nothing() -> None:
    return None


async def test_a_server_without_a_login_says_so() -> None:
    async with on_port(Server("open").asgi(path="/mcp")) as site:
        login = LoginTarget(lambda browser: OAuth(store=MemoryStore(), browser=browser), _nothing)
        url = f"http://127.0.0.1:{site.port}/mcp"
        async with inspecting(url, login=login) as one:
            found = LoggingIn(one.state)
            await found.do("login_step")
            shown = await found.until_login("done")
            assert shown["message"] == "The server does not require a login."


@pytest.mark.parametrize("name", ["login_step", "login_forget"])
async def test_a_process_has_no_login(name: str) -> None:
    async with inspecting(Server("plain")) as one:
        await one.do("login")
        (event,) = one.events("changed")
        assert "Only servers at a URL" in event["value"]["why_not"]
        with pytest.raises(Refused, match="Only servers at a URL"):
            await one.do(name)


@pytest.mark.parametrize(
    "fields", [{"url": "http://evil.example"}, {"last": "revocation"}, {"path": "/etc/passwd"}]
)
async def test_the_page_can_name_a_step_and_nothing_else(fields: dict[str, str]) -> None:
    async with logging_in() as one:
        with pytest.raises(Refused) as refusal:
            await one.do("login_step", **fields)
        assert refusal.value.status == 400


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("name", "status", "headers", "body", "remark"),
    [
        ("challenge", 401, {}, b"", "no WWW-Authenticate"),
        ("challenge", 401, {"www-authenticate": "Bearer"}, b"", "does not name"),
        ("resource_metadata", 404, {}, b"", "no document"),
        ("server_metadata", 200, {"content-type": "text/plain"}, b"{}", "application/json"),
        ("registration", 200, JSON, b"{}", "must be 201"),
        ("authorize", 302, {"location": "http://127.0.0.1/?code=1"}, b"", "no iss"),
        ("token", 200, JSON, b'{"expires_in": 1}', "no-store"),
        ("token", 200, {"cache-control": "no-store"}, b"{}", "no expires_in"),
    ],
)
def test_a_reply_that_only_a_lenient_client_accepts_gets_a_remark(
    name: AuthStepName, status: int, headers: dict[str, str], body: bytes, remark: str
) -> None:
    reply = HttpResponse(status=status, headers=headers, body=body)
    step = AuthStep(name=name, request=HttpRequest(), reply=reply, started=0, ended=0)
    (found,) = find_remarks(step)
    assert remark in found


@pytest.mark.parametrize(
    ("name", "status", "headers", "body"),
    [
        ("challenge", 401, {"www-authenticate": 'DPoP, Bearer resource_metadata="u"'}, b""),
        ("resource_metadata", 200, JSON, b"{}"),
        ("server_metadata", 200, JSON, b"\xff"),
        ("registration", 201, JSON, b"{}"),
        ("registration", 400, JSON, b"{}"),
        ("authorize", 302, {"location": "http://127.0.0.1/?code=1&iss=x"}, b""),
        ("token", 200, {"cache-control": "no-store"}, b'{"expires_in": 1}'),
        ("token", 400, {}, b"[]"),
        ("call", 200, {}, b""),
    ],
)
def test_a_reply_that_fulfils_the_requirements_gets_none(
    name: AuthStepName, status: int, headers: dict[str, str], body: bytes
) -> None:
    reply = HttpResponse(status=status, headers=headers, body=body)
    step = AuthStep(name=name, request=HttpRequest(), reply=reply, started=0, ended=0)
    assert find_remarks(step) == []
