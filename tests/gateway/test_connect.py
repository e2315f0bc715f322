"""Users of a gateway who log in to servers themselves."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from json import dumps
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from dovetail import Client, Gateway
from dovetail.auth import (
    ApiKeys,
    Bearer,
    KnownClient,
    OAuth,
    Provider,
    SqliteStorage,
    static_tokens,
)
from dovetail.auth.client.store import TokenSet, read_record
from dovetail.auth.urls import login_key
from dovetail.errors import ConfigError, InvalidParams, ToolError, UrlRequired
from dovetail.gateway.connect.pages import Link, RefusedPage, callback_path
from dovetail.gateway.connect.tokens import LOCK_SECONDS, LOCK_WAIT_SECONDS, UserTokens
from dovetail.ports import HttpRequest, HttpResponse, PublicUrl
from dovetail.sealing import KeyRing
from dovetail.testing import Tape
from tests.auth.provider_kit import Clock
from tests.behaviour.web import TapedApp, on_a_port
from tests.browser import browser
from tests.clock import awake_time
from tests.gateway.connecting import (
    HASHES,
    KEYS,
    PASSWORDS,
    SCOPES,
    Browser,
    CountingProvider,
    Robot,
    Served,
    gateway_for,
    notes_gateway,
    notes_server,
    serve_gateway,
    serve_notes,
)
from tests.person import Form
from tests.ports import free_port
from tests.system import needs_browser


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "consent.db"


def visiting(robot: Robot) -> Callable[[Any], Any]:
    """What a host does that opens the page of an elicitation in a browser."""
    tasks = set()

    async def visit(request: Any) -> bool:
        tasks.add(asyncio.get_running_loop().create_task(robot.connect(request.url)))
        return True

    return visit


async def connect(served: Served, user: str) -> None:
    await Robot(user).connect(await served.link(user))


# calls


async def test_in_the_stateless_era_the_call_goes_on_after_the_user_has_connected(
    store: Path,
) -> None:
    async with notes_gateway(store) as served:
        visit = visiting(Robot("ann"))
        async with served.client("ann", on_elicit=visit, revision="2026-07-28") as client:
            assert [tool.name for tool in await client.list_tools()] == ["notes__connect"]
            result = await client.call_tool("notes__connect")
            assert "is connected" in result.content[0].text
            assert "is connected" in (await client.call_tool("notes__connect")).content[0].text
            listed = [tool.name for tool in await client.list_tools()]
            assert listed == ["notes__whoami", "notes__confirm"]
            assert (await client.call_tool("notes__whoami")).data == "ann at notes"


async def test_calls_that_wait_for_the_same_user_look_together(store: Path) -> None:
    async with notes_gateway(store) as served:
        waiting = served.gateway._connections._waiting  # type: ignore[union-attr]
        most = 0
        agreed = 0
        links: list[str] = []

        def agree(request: Any) -> bool:
            nonlocal agreed
            agreed += 1
            links.append(request.url)
            return True

        async with served.client("ann", on_elicit=agree) as client:
            calls = [asyncio.ensure_future(client.call_tool("notes__connect")) for _ in range(5)]
            async with asyncio.timeout(30):
                while agreed < 5 or not waiting:
                    most = max(most, len(waiting))
                    await asyncio.sleep(0.02)
            connecting = asyncio.ensure_future(Robot("ann").connect(links[0]))
            while not connecting.done():
                most = max(most, len(waiting))
                await asyncio.sleep(0.02)
            await connecting
            for call in calls:
                assert "is connected" in (await call).text
    assert most == 1


async def test_a_caller_of_2025_11_25_gets_the_error_with_the_page_and_is_told_when_it_is_done(
    store: Path,
) -> None:
    tape, port = Tape(), free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with serve_notes() as notes:
        gateway = gateway_for({"notes": {"url": notes, "auth": "oauth"}}, store)
        app = TapedApp(gateway.asgi("/mcp", public_url=url), tape)
        async with (
            on_a_port(app, port),
            Served(gateway, url).client(
                "ann", on_elicit=lambda _: True, revision="2025-11-25"
            ) as client,
        ):
            with pytest.raises(UrlRequired) as problem:
                await client.call_tool("notes__connect")
            (page,) = problem.value.elicitations
            assert page.message == "Connect your account at notes first"
            await Robot("ann").connect(page.url)
            async with asyncio.timeout(60):
                while "notifications/elicitation/complete" not in tape.methods("server"):
                    await asyncio.sleep(0.02)
            assert (await client.call_tool("notes__whoami")).data == "ann at notes"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_caller_that_cannot_be_sent_to_a_page_gets_an_error_with_the_link(
    store: Path, revision: str
) -> None:
    async with notes_gateway(store) as served:
        async with served.client("ann", revision=revision) as client:
            with pytest.raises(
                ToolError, match=r"open (http\S+/connect/\S+) in a browser"
            ) as error:
                await client.call_tool("notes__connect")
            await Robot("ann").connect(str(error.value).partition("open ")[2].partition(" ")[0])
            assert (await client.call_tool("notes__whoami")).data == "ann at notes"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_question_of_the_server_reaches_its_user(store: Path, revision: str) -> None:
    async with notes_gateway(store) as served:
        await connect(served, "ann")
        yes = {"value": True}
        async with served.client("ann", on_elicit=lambda _: yes, revision=revision) as client:
            assert (await client.call_tool("notes__confirm")).data == "answered True"


@pytest.mark.parametrize("share", ["user", "caller"])
async def test_each_user_has_their_own_account_and_sees_only_their_own_lists(
    store: Path, share: str
) -> None:
    async with serve_notes() as url:
        entry = {"url": url, "auth": "oauth", "dovetail": {"share": share}}
        async with serve_gateway({"notes": entry}, store) as served:
            await connect(served, "ann")
            async with served.client("ann") as ann, served.client("bob") as bob:
                assert (await ann.call_tool("notes__whoami")).data == "ann at notes"
                assert [tool.name for tool in await bob.list_tools()] == ["notes__connect"]
                with pytest.raises(ToolError, match="Connect your account at notes first"):
                    await bob.call_tool("notes__whoami")
                await connect(served, "bob")
                both = await asyncio.gather(
                    *(one.call_tool("notes__whoami") for one in (ann, bob) * 5)
                )
                assert [result.data for result in both] == ["ann at notes", "bob at notes"] * 5


def demanding(app: Any) -> Any:
    """A server that wants another scope for one of its tools, and then another token."""
    refused: set[bytes] = set()

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        token = headers.get(b"authorization", b"")
        is_confirm = headers.get(b"mcp-name") == b"confirm" and token
        if not is_confirm or (refused and token not in refused):
            await app(scope, receive, send)
            return
        refused.add(token)
        challenge = b'Bearer error="insufficient_scope", scope="notes:read notes:write"'
        start = {"type": "http.response.start", "status": 403}
        await send({**start, "headers": [(b"www-authenticate", challenge)]})
        await send({"type": "http.response.body", "body": b""})

    return wrapped


async def test_a_tool_that_needs_more_scopes_sends_the_user_to_the_page_again(store: Path) -> None:
    async with on_a_port(demanding(notes_server().asgi("/mcp"))) as place:
        entries = {"notes": {"url": f"http://{place}/mcp", "auth": "oauth"}}
        async with serve_gateway(entries, store) as served:
            await connect(served, "ann")
            robot = Robot("ann")
            visit = visiting(robot)
            answers = {"url": visit, "form": lambda _: {"value": True}}

            async def answer(request: Any) -> Any:
                result = answers[request.mode](request)
                return await result if asyncio.iscoroutine(result) else result

            async with served.client("ann", on_elicit=answer) as client:
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"
                assert (await client.call_tool("notes__confirm")).data == "answered True"
            tokens = await stored_tokens(served, "ann")
    assert "notes:write" in tokens.granted_scopes
    assert any("It will ask for: notes:write" in page for page in robot.pages)


async def test_results_for_one_user_are_private(store: Path) -> None:
    async with notes_gateway(store) as served:
        await connect(served, "ann")
        async with served.client("ann", revision="2026-07-28") as client:
            listed = await client.request("tools/list", {})
            assert listed.cache_scope != "public"


async def test_a_policy_can_deny_to_connect_and_a_filter_of_tools_does_not(store: Path) -> None:
    async with serve_notes() as url:
        settings = {"tools": {"allow": ["whoami"]}}
        entries = {"notes": {"url": url, "auth": "oauth", "dovetail": settings}}
        rules = [{"effect": "deny", "principal": "bob", "server": "notes"}, {"effect": "allow"}]
        async with serve_gateway(entries, store, policy={"rule": rules}) as served:
            await connect(served, "ann")
            async with served.client("bob") as bob:
                assert await bob.list_tools() == []
                for tool in ("connect", "whoami"):
                    with pytest.raises(InvalidParams, match=r"may not connect|not allowed"):
                        await bob.call_tool(f"notes__{tool}")
            async with served.client("ann") as ann:
                assert [tool.name for tool in await ann.list_tools()] == ["notes__whoami"]
                with pytest.raises(InvalidParams, match="Unknown tool"):
                    await ann.call_tool("notes__confirm")


async def test_a_name_that_is_not_listed_yet_leads_to_the_page_too(store: Path) -> None:
    async with notes_gateway(store) as served:
        async with served.client("ann", on_elicit=visiting(Robot("ann"))) as client:
            assert (await client.call_tool("notes__whoami")).data == "ann at notes"
            with pytest.raises(InvalidParams, match="Unknown tool"):
                await client.call_tool("notes__nothing")


async def test_a_task_of_a_user_survives_the_gateway(store: Path) -> None:
    server = notes_server()

    @server.tool(task="optional")
    async def count() -> str:
        return "3 notes"

    async with on_a_port(server.asgi("/mcp")) as place:
        entries = {"notes": {"url": f"http://{place}/mcp", "auth": "oauth"}}
        async with serve_gateway(entries, store) as served:
            await connect(served, "ann")
            async with served.client("ann") as client:
                task = await client.start_tool("notes__count")
        async with serve_gateway(entries, store) as served, served.client("ann") as client:
            assert (await client.task(task.id).result()).text == "3 notes"


# tokens


async def stored_tokens(served: Served, user: str) -> TokenSet:
    found = await served.notes.store(user).find(login_key(served.notes.url))
    assert found is not None
    return found


async def expire_tokens(served: Served, user: str) -> None:
    store, key = served.notes.store(user), login_key(served.notes.url)
    record = read_record(await store.load(key))
    assert record.tokens is not None
    record.tokens = replace(record.tokens, issued_at=0.0, expires_at=1.0)
    await store.save(key, encode(record))


async def test_tokens_are_sealed_and_survive_a_restart(store: Path) -> None:
    async with serve_notes() as url:
        entries = {"notes": {"url": url, "auth": "oauth"}}
        async with serve_gateway(entries, store) as served:
            await connect(served, "ann")
            tokens = await stored_tokens(served, "ann")
        files = [path.read_bytes() for path in store.parent.iterdir() if path.is_file()]
        assert files
        for secret in (tokens.access_token, tokens.refresh_token or "", "ann"):
            assert not any(secret.encode() in data for data in files)
        async with serve_gateway(entries, store) as served:
            async with served.client("ann") as client:
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"


async def test_tokens_of_another_entry_with_the_same_name_are_not_used(store: Path) -> None:
    async with serve_notes() as url:
        entry = {"url": url, "auth": "oauth"}
        async with serve_gateway({"notes": entry}, store) as served:
            await connect(served, "ann")
        changed = {**entry, "headers": {"X-Changed": "yes"}}
        async with serve_gateway({"notes": changed}, store) as served:
            assert await served.connected() == []


async def test_a_row_of_one_user_cannot_be_opened_as_that_of_another(store: Path) -> None:
    async with notes_gateway(store) as served:
        await connect(served, "ann")
        storage = served.notes.entry.tokens.storage  # type: ignore[union-attr]
        rows = storage._do("SELECT key, data FROM rows WHERE key LIKE 'token:%'").fetchall()
        await served.notes.store("bob").save(login_key(served.notes.url), b"{}")
        for _, data in rows:
            storage._do("UPDATE rows SET data = ? WHERE key LIKE 'token:%'", (data,))
            assert not await served.notes.is_connected("bob")


async def test_an_expired_token_is_renewed_once_for_all_connections(store: Path) -> None:
    server = notes_server()
    assert isinstance(server.guard, CountingProvider)
    async with on_a_port(server.asgi("/mcp")) as place:
        entry = {"url": f"http://{place}/mcp", "auth": "oauth", "dovetail": {"share": "caller"}}
        async with serve_gateway({"notes": entry}, store) as served:
            await connect(served, "ann")
            stores = [served.notes.credentials("ann") for _ in range(4)]
            before, renewals = await stored_tokens(served, "ann"), server.guard.renewals
            await expire_tokens(served, "ann")
            clients = [served.gateway.make_login_client(served.notes, one) for one in stores]
            try:
                answers = await asyncio.gather(*(one.call_tool("whoami") for one in clients))
            finally:
                await asyncio.gather(*(one.close() for one in clients))
            assert [result.data for result in answers] == ["ann at notes"] * 4
            assert server.guard.renewals == renewals + 1
            assert (await stored_tokens(served, "ann")).access_token != before.access_token
            async with served.client("ann") as client:
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"


class WatchedStorage(SqliteStorage):
    """Tells when somebody tries to get a lock."""

    def __init__(self, path: Path, on_lock: Callable[[], None]) -> None:
        super().__init__(path)
        self._on_lock = on_lock

    async def add(self, key: str, *args: Any) -> bool:
        if key.startswith("lock:"):
            self._on_lock()
        return await super().add(key, *args)


class SlowProvider(CountingProvider):
    """Answers the first renewal after a second program has tried to begin one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.attempts, self.second = 0, asyncio.Event()

    def count(self) -> None:
        self.attempts += 1
        if self.attempts == 2:
            self.second.set()

    async def respond(self, request: HttpRequest, public_url: PublicUrl) -> HttpResponse | None:
        if b"grant_type=refresh_token" in request.body:
            if self.renewals:
                self.second.set()
            self.renewals += 1
            await self.second.wait()
        return await Provider.respond(self, request, public_url)


async def test_two_programs_use_a_refresh_token_once(store: Path) -> None:
    provider = SlowProvider(
        users=HASHES, storage=":memory:", scopes=SCOPES, required=["notes:read"]
    )
    server = notes_server(provider)
    async with on_a_port(server.asgi("/mcp")) as place:
        entries = {"notes": {"url": f"http://{place}/mcp", "auth": "oauth"}}
        async with serve_gateway(entries, store) as served:
            await connect(served, "ann")
            notes, key = served.notes, login_key(served.notes.url)
            record = read_record(await notes.store("ann").load(key))
            assert record.tokens is not None
            record.tokens.issued_at, record.tokens.expires_at = 1, 2
            await notes.store("ann").save(key, record.encode())
            path, ring = store.with_suffix(".tokens.db"), notes.entry.tokens.ring  # type: ignore[union-attr]
            clients = []
            for _ in range(2):  # programs that share only the file
                tokens = UserTokens(WatchedStorage(path, provider.count), lambda: ring)
                own = tokens.store("ann", "notes", notes.entry.digest)
                clients.append(Client(notes.url, auth=OAuth(store=own, browser=False)))
            try:
                async with asyncio.timeout(30):
                    answers = await asyncio.gather(*(one.call_tool("whoami") for one in clients))
            finally:
                await asyncio.gather(*(one.close() for one in clients))
    assert [result.data for result in answers] == ["ann at notes"] * 2
    assert provider.renewals == 1


async def test_a_lock_of_a_program_that_crashed_holds_for_seconds(tmp_path: Path) -> None:
    clock = Clock()
    storage = SqliteStorage(tmp_path / "tokens.db", now=clock)
    tokens = UserTokens(storage, lambda: KeyRing([b"a key"]))
    tokens.now = clock
    crashed = tokens.lock("ann")
    await crashed.__aenter__()
    clock.time += LOCK_SECONDS + 0.1
    assert LOCK_SECONDS < LOCK_WAIT_SECONDS
    async with asyncio.timeout(LOCK_WAIT_SECONDS / 2), tokens.lock("ann"):
        pass


async def test_a_lock_holds_as_long_as_its_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.gateway.connect.tokens.LOCK_SECONDS", 2.0)
    storage = SqliteStorage(tmp_path / "tokens.db", now=awake_time)
    tokens = UserTokens(storage, lambda: KeyRing([b"a key"]))
    tokens.now = awake_time
    async with tokens.lock("ann"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4), tokens.lock("ann"):
                pass
    async with asyncio.timeout(60), tokens.lock("ann"):
        pass


async def test_a_user_whose_tokens_were_revoked_is_asked_to_connect_again(store: Path) -> None:
    port = free_port()
    async with serve_notes(port) as url:
        entries = {"notes": {"url": url, "auth": "oauth"}}
        async with serve_gateway(entries, store) as served:
            await connect(served, "ann")
            notes = served.notes
            access = await stored_tokens(served, "ann")
            assert access.refresh_token
            # What the provider does when a grant is revoked, from the point of view of a client.
            await revoke(url, access)
            async with served.client("ann", on_elicit=visiting(Robot("ann"))) as client:
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"
            assert await notes.is_connected("ann")


async def test_a_user_whose_tokens_are_refused_at_the_start_sees_the_tool_to_connect(
    store: Path,
) -> None:
    async with serve_notes() as url:
        entries = {"notes": {"url": url, "auth": "oauth"}}
        async with serve_gateway(entries, store) as served:
            await connect(served, "ann")
            await revoke(url, await stored_tokens(served, "ann"))
        async with serve_gateway(entries, store) as served:
            async with served.client("ann") as client:
                assert [tool.name for tool in await client.list_tools()] == ["notes__connect"]


async def revoke(url: str, tokens: TokenSet) -> None:
    base = url.removesuffix("/mcp")
    fields = {"token": tokens.refresh_token or "", "client_id": tokens.registration.client_id}
    status, page, _ = await Browser().open(f"{base}/revoke", fields)
    assert status == 200, page


async def test_the_gateway_registers_once_for_all_users(store: Path) -> None:
    async with notes_gateway(store) as served:
        ids = set()
        for user in PASSWORDS:
            await connect(served, user)
            ids.add((await stored_tokens(served, user)).registration.client_id)
    assert len(ids) == 1


# the pages


async def test_the_page_says_what_will_be_connected_only_to_its_user(store: Path) -> None:
    async with notes_gateway(store) as served:
        link = await served.link("ann")
        window = Browser()
        _, page, headers = await window.open(link)
        assert "notes" not in page
        page = await window.sign_in(link, "ann")
        assert "Connect your account at notes?" in page
        assert urlsplit(served.notes.url).netloc in page
        status, _, headers = await window.open(link)
        assert status == 200
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy


async def test_what_a_page_shows_is_escaped(store: Path) -> None:
    async with serve_notes() as url:
        name = '<img src=x onerror="alert(1)">\u202e'
        async with serve_gateway({name: {"url": url, "auth": "oauth"}}, store) as served:
            server = served.gateway.upstreams.servers[name]
            link = Link("id", "ann", name, server.entry.digest, time.time() + 60)
            address = served.gateway._connections.pages.make_url(link)  # type: ignore[union-attr]
            page = await Browser().sign_in(address, "ann")
    assert "<img" not in page
    assert "\u202e" not in page
    assert "&lt;img" in page


async def test_another_user_cannot_complete_a_link(store: Path) -> None:
    async with notes_gateway(store) as served:
        link = await served.link("ann")
        window = Browser()
        page = await window.sign_in(link, "bob")
        assert "This link is for another user" in page
        assert "notes" not in page
        status, _, _ = await window.open(link, {"action": "connect", "csrf": "x"})
        assert status == 403
        assert await served.connected() == []
        await Robot("ann").connect(link)  # it is still good for its user
        assert await served.connected() == ["ann"]


async def test_a_link_can_be_used_once(store: Path) -> None:
    async with notes_gateway(store) as served:
        link = await served.link("ann")
        window = Browser()
        page = await window.sign_in(link, "ann")
        form = Form(page).fields
        both = await asyncio.gather(window.open(link, form), window.open(link, form))
        assert sorted(status for status, _, _ in both) == [303, 400]
        assert (await window.open(link))[0] == 400


async def test_two_workers_cannot_use_a_link_at_the_same_time(store: Path) -> None:
    async with notes_gateway(store) as served:
        pages = served.gateway._connections.pages  # type: ignore[union-attr]
        link = Link("id", "ann", "notes", served.notes.entry.digest, time.time() + 60)
        await pages._begin(link, served.notes, "cookie")
        with pytest.raises(RefusedPage, match="was used before"):  # both have seen that it is good
            await pages._begin(link, served.notes, "cookie")


async def test_a_form_that_was_not_shown_in_this_browser_does_nothing(store: Path) -> None:
    async with notes_gateway(store) as served:
        link = await served.link("ann")
        window = Browser()
        page = await window.sign_in(link, "ann")
        form = Form(page).fields
        assert (await window.open(link, {**form, "csrf": "0" * 48}))[0] == 403
        assert (await window.open(link, form))[0] == 303  # the link was not used


async def test_a_link_expires(store: Path) -> None:
    async with notes_gateway(store) as served:
        link = await served.link("ann")
        tokens = served.notes.entry.tokens
        assert tokens is not None
        tokens.now = lambda: time.time() + 601
        assert (await Browser().open(link))[0] == 400


@pytest.mark.parametrize("what", ["server", "digest", "forged", "other keys"])
async def test_a_link_for_another_server_is_refused(store: Path, what: str) -> None:
    async with serve_notes() as url:
        entries = {
            "notes": {"url": url, "auth": "oauth"},
            "plain": {"url": "http://127.0.0.1:9/mcp", "dovetail": {"start": "lazy"}},
        }
        async with serve_gateway(entries, store) as served:
            pages = served.gateway._connections.pages  # type: ignore[union-attr]
            link = Link("id", "ann", "notes", served.notes.entry.digest, time.time() + 60)
            changed = {
                "server": Link("id", "ann", "plain", link.digest, link.expires),
                "digest": Link("id", "ann", "notes", "sha256:other", link.expires),
            }
            good = pages.make_url(link)
            bad = pages.make_url(changed.get(what, link))
            if what == "forged":
                bad = good[:-3] + ("aaa" if not good.endswith("aaa") else "bbb")
            if what == "other keys":
                served.gateway._keys = ["another key for the gateway"]
                del pages._tokens.ring
            window = Browser()
            assert (await window.open(bad))[0] == 400
            if what != "other keys":
                assert (await window.open(good))[0] == 200


# the callback


async def test_a_callback_with_a_foreign_or_missing_state_is_refused(store: Path) -> None:
    async with notes_gateway(store) as served:
        window = Browser()
        url = await window.begin(await served.link("ann"), "ann")
        callback = f"{served.base}/connect/callback/notes"
        for query in ("", "?code=x", "?code=x&state=foreign", "?state=", "?code=x&state=a&state=b"):
            status, _, headers = await window.open(callback + query)
            assert status == 400
            assert "location" not in headers
        assert (await window.open(await window.log_in(url, "ann")))[0] == 200
        assert await served.connected() == ["ann"]


async def test_a_callback_in_another_browser_is_refused(store: Path) -> None:
    async with notes_gateway(store) as served:
        link = await served.link("ann")
        window, other = Browser(), Browser()
        callback = await window.log_in(await window.begin(link, "ann"), "ann")
        second = await served.link("ann")
        await other.sign_in(second, "ann")  # the same user in another browser
        assert (await other.open(callback))[0] == 400
        assert await served.connected() == []
        both = await asyncio.gather(window.open(callback), window.open(callback))
        assert sorted(status for status, _, _ in both) == [200, 400]  # it is accepted only once
        assert await served.connected() == ["ann"]


async def test_a_user_cannot_have_somebody_else_finish_their_login(store: Path) -> None:
    """Bob begins, and sends ann the response with a code for his account."""
    async with notes_gateway(store) as served:
        bob, ann = Browser(), Browser()
        callback = await bob.log_in(await bob.begin(await served.link("bob"), "bob"), "bob")
        await ann.begin(await served.link("ann"), "ann")
        assert (await ann.open(callback))[0] == 400
        assert await served.connected() == []


async def test_a_browser_that_changed_its_user_meanwhile_is_refused(store: Path) -> None:
    async with notes_gateway(store) as served:
        window = Browser()
        url = await window.begin(await served.link("ann"), "ann")
        callback = await window.log_in(url, "ann")
        await switch_user(window, served, "bob")
        assert (await window.open(callback))[0] == 400
        assert await served.connected() == []


async def switch_user(window: Browser, served: Served, user: str) -> None:
    """Sign in as somebody else in the same browser."""
    link = await served.link(user)
    guard = served.gateway.guard
    assert isinstance(guard, Provider)
    guard._pages.storage._do("DELETE FROM rows WHERE key LIKE 'session:%'")  # type: ignore[attr-defined]
    await window.sign_in(link, user)


@pytest.mark.parametrize("change", [{"iss": "https://evil.example"}, {"iss": None}])
async def test_the_issuer_in_the_response_is_checked(
    store: Path, change: dict[str, str | None]
) -> None:
    async with notes_gateway(store) as served:
        window = Browser()
        url = await window.log_in(await window.begin(await served.link("ann"), "ann"), "ann")
        fields = {**dict(parse_qsl(urlsplit(url).query)), **change}
        query = urlencode({name: value for name, value in fields.items() if value is not None})
        status, page, _ = await window.open(f"{served.base}/connect/callback/notes?{query}")
        assert status == 502
        assert "could not be connected" in page
        assert await served.connected() == []


async def test_a_user_who_denies_at_the_authorization_server_is_not_connected(store: Path) -> None:
    async with notes_gateway(store) as served:
        window = Browser()
        url = await window.begin(await served.link("ann"), "ann")
        state = dict(parse_qsl(urlsplit(url).query))["state"]
        issuer = served.notes.url.removesuffix("/mcp")
        answer = urlencode({"state": state, "error": "access_denied", "iss": issuer})
        status, page, _ = await window.open(f"{served.base}/connect/callback/notes?{answer}")
        assert (status, "access_denied" in page) == (502, True)
        assert await served.connected() == []


@pytest.mark.parametrize("name", ["error", "error_description", "iss"])
async def test_what_the_response_of_an_authorization_server_says_is_escaped(
    store: Path, name: str
) -> None:
    async with notes_gateway(store) as served:
        window = Browser()
        url = await window.begin(await served.link("ann"), "ann")
        state = dict(parse_qsl(urlsplit(url).query))["state"]
        issuer = served.notes.url.removesuffix("/mcp")
        text = "<script>alert(1)</script>\u202e"
        answer = {"state": state, "error": "access_denied", "iss": issuer, name: text}
        query = urlencode(answer)
        status, page, headers = await window.open(f"{served.base}/connect/callback/notes?{query}")
        assert status == 502
        assert "<script" not in page
        assert "\u202e" not in page
        assert "&lt;script" in page
        assert_strict(headers)


def assert_strict(headers: Mapping[str, str]) -> None:
    """The page cannot be framed, kept, or run scripts, and tells no other site its address."""
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_all_pages_have_strict_headers(store: Path) -> None:
    async with notes_gateway(store) as served:
        link, window = await served.link("ann"), Browser()
        pages = [await window.open(link)]
        page = await window.sign_in(link, "ann")
        pages.append(await window.open(link))
        pages.append(await window.open(link, {**Form(page).fields, "csrf": "wrong"}))
        pages.append(await window.open(link, {**Form(page).fields, "action": "deny"}))
        other = Browser()
        await other.sign_in(link, "bob")
        pages.append(await other.open(link))
        pages.append(await window.open(f"{served.base}/connect/x"))
        pages.append(await window.open(f"{served.base}/connect/callback/notes?state=x"))
        callback = await window.log_in(
            (await window.open(link, Form(page).fields))[2]["location"], "ann"
        )
        pages.append(await window.open(callback))
        assert [status for status, _, _ in pages] == [200, 200, 403, 200, 403, 400, 400, 200]
        for _, _, headers in pages:
            assert_strict(headers)
        cookies = [headers.get("set-cookie", "") for _, _, headers in pages]
        assert any(cookies)
        for cookie in filter(None, cookies):
            assert "HttpOnly" in cookie
            assert "SameSite=Lax" in cookie


async def test_no_page_redirects_to_another_site(store: Path) -> None:
    async with notes_gateway(store) as served:
        link = await served.link("ann")
        evil = "https://evil.example/"
        window = Browser()
        for url in (
            f"{link}?next={evil}&redirect_uri={evil}",
            f"{served.base}/connect/callback/notes?redirect_uri={evil}&state={evil}",
            f"{served.base}/connect//evil.example/",
            f"{served.base}/connect/{evil}",
        ):
            _, page, headers = await window.open(url)
            assert "location" not in headers
            fields = {**Form(page).fields, "username": "ann", "password": PASSWORDS["ann"]}
            _, _, headers = await window.open(url, fields)
            assert headers.get("location", served.base).startswith(served.base)


# hostile servers


def hostile(make_client_id: Callable[[], str] = lambda: "x", **metadata: Any) -> Any:
    """A server whose authorization server has this metadata, and chooses the ids of clients."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        base = "http://" + dict(scope["headers"])[b"host"].decode()
        status, body, headers = 404, "{}", [(b"content-type", b"application/json")]
        if scope["path"] == "/mcp":
            status = 401
            where = f'Bearer resource_metadata="{base}/.well-known/oauth-protected-resource/mcp"'
            headers.append((b"www-authenticate", where.encode()))
        elif "oauth-protected-resource" in scope["path"]:
            status, body = 200, dumps({"resource": f"{base}/mcp", "authorization_servers": [base]})
        elif "oauth-authorization-server" in scope["path"]:
            known = {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "registration_endpoint": f"{base}/register",
                "code_challenge_methods_supported": ["S256"],
            }
            status, body = 200, dumps({**known, **metadata})
        elif scope["path"] == "/register":
            status, body = 201, dumps({"client_id": make_client_id()})
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})

    return app


@pytest.mark.parametrize(
    "metadata",
    [
        {"authorization_endpoint": "javascript:alert(1)//"},
        {"authorization_endpoint": "data:text/html,<script>alert(1)</script>"},
        {"authorization_endpoint": "http://evil.example/authorize"},
        {"authorization_endpoint": "https://evil.example/\r\nSet-Cookie: a=b\r\n\r\n<script>"},
        {"token_endpoint": "http://evil.example/token"},
        {"issuer": "https://evil.example"},
        {"code_challenge_methods_supported": ["plain"]},
    ],
    ids=["javascript", "data", "http", "header", "token over http", "issuer", "no PKCE"],
)
async def test_hostile_metadata_leads_nowhere(store: Path, metadata: dict[str, Any]) -> None:
    async with on_a_port(hostile(**metadata)) as place:
        entries = {"notes": {"url": f"http://{place}/mcp", "auth": "oauth"}}
        async with serve_gateway(entries, store) as served:
            link = await served.link("ann")
            window = Browser()
            page = await window.sign_in(link, "ann")
            status, page, headers = await window.open(link, Form(page).fields)
            assert status == 502
            assert "location" not in headers
            assert "<script" not in page


async def test_a_server_cannot_get_the_code_of_a_login_at_another(store: Path) -> None:
    """A mix-up: the authorization server of the hostile server sends the user to that of the notes,
    in the name of the gateway's own client there. Its token endpoint would get the code."""
    async with serve_notes() as url:
        endpoint, clients = f"{url.removesuffix('/mcp')}/authorize", list[str]()
        evil = hostile(clients.pop, authorization_endpoint=endpoint)
        async with on_a_port(evil) as place:
            entries = {
                "evil": {"url": f"http://{place}/mcp", "auth": "oauth"},
                "notes": {"url": url, "auth": "oauth"},
            }
            async with serve_gateway(entries, store) as served:
                await connect(served, "ann")
                clients.append((await stored_tokens(served, "ann")).registration.client_id)
                server = served.gateway.upstreams.servers["evil"]
                link = Link("id", "ann", "evil", server.entry.digest, time.time() + 60)
                pages = served.gateway._connections.pages  # type: ignore[union-attr]
                window = Browser()
                there = await window.begin(pages.make_url(link), "ann")
                assert there.startswith(endpoint)
                status, page, headers = await window.open(there)
                assert status == 400, page
                assert "The redirect URI is not registered" in page
                assert "location" not in headers


async def test_a_response_is_accepted_only_at_the_callback_of_its_server(store: Path) -> None:
    async with notes_gateway(store) as served:
        window = Browser()
        url = await window.log_in(await window.begin(await served.link("ann"), "ann"), "ann")
        for path in ("/connect/callback/other", "/connect/callback/", "/connect/callback/notes/x"):
            wrong = url.replace("/connect/callback/notes", path)
            assert (await window.open(wrong))[0] == 400
        assert (await window.open(url))[0] == 200
        assert await served.connected() == ["ann"]


def test_each_server_has_a_callback_of_its_own() -> None:
    names = ["notes", "Notes", "my notes", "my=20notes", "my%20notes", "a/b", "a", "ä", "..", "a?b"]
    paths = [callback_path(name) for name in names]
    assert len(set(paths)) == len(names)
    assert paths[0] == "/connect/callback/notes"
    for path in paths:
        assert re.fullmatch(r"/connect/callback/[A-Za-z0-9_.~=-]+", path)


# users who were removed


async def test_a_user_who_was_removed_can_neither_connect_nor_call(store: Path) -> None:
    users = dict(HASHES)
    guard = Provider(users=users, storage=":memory:", name="The gateway")
    async with notes_gateway(store, auth=guard) as served:
        begun, window = Browser(), Browser()
        callback = await begun.log_in(await begun.begin(await served.link("ann"), "ann"), "ann")
        link = await served.link("ann")
        form = Form(await window.sign_in(link, "ann")).fields
        async with served.client("ann") as client:
            assert [tool.name for tool in await client.list_tools()] == ["notes__connect"]
            del users["ann"]
            with pytest.raises(AssertionError, match="password is incorrect"):  # a new login fails
                await client.call_tool("notes__connect")
        for page in (await window.open(link), await begun.open(callback)):
            assert "password" in Form(page[1]).fields  # the user has to sign in
        _, _, headers = await window.open(link, form)
        assert "location" not in headers
        assert await served.notes.token_digest("ann") == b""


# users who begin often


async def test_a_user_who_begins_many_logins_does_not_keep_others_from_one(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.gateway.connect.pages.MAX_LOGINS", 2)
    async with notes_gateway(store) as served:
        windows = [Browser() for _ in range(3)]
        urls = [await window.begin(await served.link("ann"), "ann") for window in windows]
        await Browser().begin(await served.link("bob"), "bob")
        found = []
        for window, url in zip(windows, urls, strict=True):
            status, _, _ = await window.open(await window.log_in(url, "ann"))
            found.append(status)
        assert found == [400, 400, 200]  # a later login replaces an earlier one
        assert await served.connected() == ["ann"]


# workers


async def test_the_callback_may_reach_another_worker_than_the_page(
    store: Path, tmp_path: Path
) -> None:
    first, second = free_port(), free_port()
    url = f"http://127.0.0.1:{first}/mcp"
    async with serve_notes() as notes:
        entries = {"notes": {"url": notes, "auth": "oauth"}}

        def worker() -> Any:
            guard = Provider(users=HASHES, storage=tmp_path / "provider.db")
            gateway = gateway_for(entries, store, auth=guard)
            return gateway, gateway.asgi("/mcp", public_url=url, hosts="*", keys=KEYS)

        (gateway, app), (_, other_app) = worker(), worker()
        async with on_a_port(app, first), on_a_port(other_app, second):
            served, window = Served(gateway, url), Browser()
            link = await served.link("ann")
            page = await window.sign_in(link.replace(str(first), str(second)), "ann", back=link)
            status, page, headers = await window.open(link, Form(page).fields)
            callback = await window.log_in(headers["location"], "ann")
            status, page, _ = await window.open(callback.replace(str(first), str(second)))
            assert status == 200, page
            assert "notes is connected" in page
            async with Served(gateway, url).client("ann") as client:
                assert (await client.call_tool("notes__whoami")).data == "ann at notes"


# settings

ENTRY = {"url": "https://example.com/mcp", "auth": "oauth"}
CLIENTS = [KnownClient(id="robot", secret="a long secret of a robot")]


@pytest.mark.parametrize(
    ("guard", "missing"),
    [
        (None, "auth= is missing"),
        (ApiKeys({"ann-has-a-long-key": "ann"}), "ApiKeys cannot sign in a browser"),
        (Bearer(static_tokens({"x" * 20: "ann"})), "Bearer cannot sign in a browser"),
        (Provider(clients=CLIENTS, storage=":memory:"), "Provider cannot sign in a browser"),
    ],
)
def test_without_a_way_to_sign_in_a_browser_there_is_an_error_at_the_start(
    guard: Any, missing: str
) -> None:
    with pytest.raises(ConfigError, match=missing):
        Gateway({"mcpServers": {"notes": ENTRY}}, auth=guard)


def test_without_a_public_url_there_is_an_error_at_the_start(store: Path) -> None:
    gateway = gateway_for({"notes": ENTRY}, store)
    with pytest.raises(ConfigError, match="public_url is missing"):
        gateway.asgi("/mcp")
    with pytest.raises(ConfigError, match="public_url is missing"):
        gateway.run("http", port=0)


async def test_on_stdio_there_is_an_error_at_the_start(store: Path) -> None:
    gateway = gateway_for({"notes": ENTRY}, store)
    with pytest.raises(ConfigError, match="Serve the gateway over HTTP"):
        async with gateway.lifespan():
            pass


async def test_an_entry_that_is_added_later_is_refused_if_the_gateway_has_no_public_url(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(dumps({"mcpServers": {}}))
    guard = Provider(users=HASHES, storage=":memory:")
    gateway = Gateway(file, auth=guard, store=tmp_path / "consent.db")
    gateway.asgi("/mcp")
    async with gateway.lifespan():
        file.write_text(dumps({"mcpServers": {"notes": ENTRY}}))
        with pytest.raises(ConfigError, match="Serve the gateway over HTTP"):
            await gateway.reload()
        file.write_text(dumps({"mcpServers": {}}))
        await gateway.reload()  # nothing is left of it


def test_a_connection_for_all_callers_is_refused_at_the_start(store: Path) -> None:
    with pytest.raises(ConfigError, match='"share": "user" or "caller"'):
        gateway_for({"notes": {**ENTRY, "dovetail": {"share": "all"}}}, store)


def test_workers_need_a_file(store: Path) -> None:
    gateway = gateway_for({"notes": ENTRY}, ":memory:")
    with pytest.raises(ConfigError, match="store= with a file"):
        gateway.run("http", port=0, workers=2, public_url="https://example.com/mcp")


async def test_the_health_check_does_not_name_users(store: Path) -> None:
    async with notes_gateway(store) as served:
        await connect(served, "ann")
        assert "ann" not in str(served.gateway.health())
        assert served.gateway.health()["servers"]["notes"]["state"] == "configured"


@needs_browser
async def test_in_a_real_browser_a_user_connects_and_the_call_goes_on(store: Path) -> None:
    async with notes_gateway(store) as served, browser() as page:
        asked: asyncio.Queue[str] = asyncio.Queue()

        def visit(request: Any) -> bool:
            asked.put_nowait(request.url)
            return True

        async with served.client("ann", on_elicit=visit, revision="2026-07-28") as client:
            async with asyncio.TaskGroup() as group:
                answer = group.create_task(client.call_tool("notes__connect"))
                await page.go(await asked.get())
                for button in ("login", "connect", "login"):
                    if button == "login":
                        await page.until("document.querySelector('input[name=password]') !== null")
                        await page.fill("input[name=username]", "ann")
                        await page.fill("input[name=password]", PASSWORDS["ann"])
                    await page.click(f"button[value={button}]")
                await page.click("button[value=approve]")
                shown = await page.until(
                    "document.body.innerText.includes('close') && document.body.innerText"
                )
                assert "notes is connected" in shown
            assert "is connected" in answer.result().content[0].text
            assert (await client.call_tool("notes__whoami")).data == "ann at notes"
