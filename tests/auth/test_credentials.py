"""Credentials at work: what goes with a request, what a refusal leads to, and what is kept."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail.auth import (
    BearerToken,
    ClientCredentials,
    EnterpriseManaged,
    FileStore,
    MemoryStore,
    OAuth,
    WorkloadIdentity,
)
from dovetail.auth.client import bound_credentials as bound
from dovetail.auth.client.bound_credentials import MAX_OPERATIONS, BoundCredentials
from dovetail.auth.client.store import ServerRecord, read_record
from dovetail.auth.jose import decode_unverified
from dovetail.errors import ConfigError, ConnectFailed, TimedOut, Unauthorized
from dovetail.ports import Credentials, HttpRequest, HttpResponse

from .internet import ISSUER, SERVER, Internet, Issuer, Person, describe, form, reply

OTHER = "https://other.example.com"
IDP = "https://idp.example.com/token"


class Guarded:
    """A server that lets in whoever has a good token, and a client's way of asking it."""

    def __init__(self, *issuers: Issuer) -> None:
        self.bad: set[str] = set()
        self.needs: tuple[str, ...] = ()
        self.has: tuple[str, ...] = ()
        self.challenge = "Bearer"
        self.seen: list[Mapping[str, str]] = []
        self.stubborn = 0
        """How many more times it refuses whatever comes."""

    def answer(self, headers: Mapping[str, str]) -> HttpResponse:
        self.seen.append(headers)
        _, _, token = headers.get("authorization", "").partition(" ")
        if not token or token in self.bad or self.stubborn:
            self.stubborn -= bool(self.stubborn and token)
            return HttpResponse(
                status=401, headers={"www-authenticate": f'{self.challenge} error="invalid_token"'}
            )
        if self.needs:
            scope = " ".join(self.needs)
            return HttpResponse(
                status=403,
                headers={"www-authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
            )
        return HttpResponse(status=200)

    async def ask(self, credentials: Credentials, url: str = SERVER) -> int:
        """One request, as a transport makes it: refused, cured, asked again."""
        for _ in range(20):
            answer = self.answer(await credentials.headers("POST", url))
            if answer.status not in (401, 403):
                credentials.on_response(answer)
                return answer.status
            try:
                if not await credentials.on_refused("POST", url, answer):
                    return answer.status
            except Unauthorized as error:
                if not error.curable:
                    raise
                await credentials.authorize()
        raise AssertionError("a loop")


class World:
    """A server, its issuer, somebody at the browser, and a clock."""

    def __init__(self) -> None:
        self.internet = Internet()
        self.issuer = Issuer(self.internet)
        self.described = describe(self.internet)
        self.server = Guarded()
        self.person = Person(self.issuer)
        self.store = MemoryStore()
        self.now = 1_000_000.0

    def client(self, **settings: Any) -> BoundCredentials:
        bound = OAuth(store=self.store, browser=self.person, **settings).bind(
            SERVER, self.internet.fetch
        )
        return self.on_time(bound)

    def on_time(self, bound: BoundCredentials) -> BoundCredentials:
        bound._now = lambda: self.now
        return bound

    async def kept(self) -> ServerRecord:
        return read_record(await self.store.load(SERVER))


@pytest.fixture
def world() -> World:
    return World()


def grants_what_it_needs(world: World) -> None:
    """A server that is content once somebody has consented."""
    go = world.person.go

    async def and_then(url: str, about: str) -> Mapping[str, str]:
        world.server.needs = ()
        return await go(url, about)

    world.person.go = and_then  # type: ignore[method-assign]


async def test_a_client_logs_in_once_and_goes_on_by_itself(world: World) -> None:
    client = world.client()
    assert await world.server.ask(client) == 200
    assert await world.server.ask(client) == 200
    assert len(world.issuer.visits) == 1
    assert world.server.seen[-1] == {"authorization": "Bearer access-1"}


async def test_a_client_that_comes_back_needs_no_login(world: World) -> None:
    await world.server.ask(world.client())
    assert await world.server.ask(world.client()) == 200
    assert len(world.issuer.visits) == 1


async def test_the_end_of_a_token_is_still_known_after_a_restart(world: World) -> None:
    await world.server.ask(world.client())
    world.now += 3590
    assert await world.server.ask(world.client()) == 200
    assert world.server.seen[-1] == {"authorization": "Bearer access-2"}
    assert len(world.issuer.visits) == 1


async def test_a_token_is_renewed_ahead_of_its_end_and_not_before(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.now += 3500
    await world.server.ask(client)
    assert world.issuer.given == 1
    world.now += 45
    await world.server.ask(client)
    assert world.server.seen[-1] == {"authorization": "Bearer access-2"}
    assert all("401" not in str(seen) for seen in world.server.seen)


async def test_a_short_life_is_not_spent_on_renewals(world: World) -> None:
    world.issuer.lifetime = 30
    client = world.client()
    for _ in range(5):
        await world.server.ask(client)
    assert world.issuer.given == 1


async def test_many_requests_at_once_make_one_renewal(world: World) -> None:
    first, second = world.client(), world.client()
    await world.server.ask(first)
    await second.headers("POST", SERVER)
    world.now += 3590
    answers = await asyncio.gather(
        *(world.server.ask(client) for client in (first, second) for _ in range(5))
    )
    assert set(answers) == {200}
    assert world.issuer.given == 2


async def test_two_programs_with_one_file_make_one_renewal(world: World, tmp_path: Path) -> None:
    world.store = FileStore(tmp_path / "kept")  # type: ignore[assignment]
    await world.server.ask(world.client())
    world.now += 3590
    clients = []
    for _ in range(2):
        world.store = FileStore(tmp_path / "kept")  # type: ignore[assignment]
        clients.append(world.client())
    assert await asyncio.gather(*(world.server.ask(client) for client in clients)) == [200, 200]
    assert world.issuer.given == 2


async def test_many_refusals_at_once_make_one_login(world: World) -> None:
    first, second = world.client(), world.client()
    assert set(
        await asyncio.gather(
            *(world.server.ask(client) for client in (first, second) for _ in range(5))
        )
    ) == {200}
    assert len(world.issuer.visits) == 1


async def test_a_refusal_of_a_token_that_was_replaced_meanwhile_is_no_reason_to_replace_it_again(
    world: World,
) -> None:
    client = world.client()
    await world.server.ask(client)
    late = world.server.answer({})
    world.server.bad.add("access-1")

    async def slow() -> bool:
        await client.headers("POST", SERVER)
        await asyncio.sleep(0)
        await replaced.wait()
        return await client.on_refused("POST", SERVER, late)

    replaced = asyncio.Event()
    waiting = asyncio.create_task(slow())
    await asyncio.sleep(0)
    assert await world.server.ask(client) == 200
    replaced.set()
    assert await waiting is True
    assert world.issuer.given == 2


async def test_a_token_that_is_refused_early_is_renewed_without_a_login(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.server.bad.add("access-1")
    assert await world.server.ask(client) == 200
    assert (world.issuer.given, len(world.issuer.visits)) == (2, 1)


async def test_what_another_program_renewed_is_taken_up_when_the_old_one_is_refused(
    world: World,
) -> None:
    client, other = world.client(), world.client()
    await world.server.ask(client)
    await other.headers("POST", SERVER)
    world.server.bad.add("access-1")
    assert await world.server.ask(client) == 200
    assert await world.server.ask(other) == 200
    assert world.issuer.given == 2


async def test_where_renewal_does_not_help_a_login_does(world: World) -> None:
    await world.server.ask(world.client())
    world.server.bad.update({"access-1", "access-2"})
    assert await world.server.ask(world.client()) == 200
    assert (world.issuer.given, len(world.issuer.visits)) == (3, 2)


async def test_a_server_that_refuses_what_was_just_given_out_is_given_up(world: World) -> None:
    world.server.stubborn = 1000
    with pytest.raises(Unauthorized, match="just issued"):
        await world.server.ask(world.client())
    assert len(world.issuer.visits) == 1


async def test_a_server_that_was_given_up_may_change_its_mind(world: World) -> None:
    client = world.client()
    world.server.bad.add("access-1")
    with pytest.raises(Unauthorized, match="just issued"):
        await world.server.ask(client)
    assert await world.server.ask(client) == 200


async def test_a_refresh_token_that_is_no_longer_good_leads_to_a_login(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.issuer.refreshable.clear()
    world.now += 3590
    assert await world.server.ask(client) == 200
    assert len(world.issuer.visits) == 2
    assert len(world.issuer.registered) == 1


@pytest.mark.requirement("auth-refresh-not-assumed")
async def test_an_issuer_need_not_give_out_refresh_tokens(world: World) -> None:
    world.issuer.extra = {"refresh_token": None}
    client = world.client()
    await world.server.ask(client)
    world.now += 3590
    assert await world.server.ask(client) == 200, "what is still good is used"
    assert len(world.issuer.visits) == 1
    world.now += 100
    world.server.bad.add("access-1")
    assert await world.server.ask(client) == 200
    assert len(world.issuer.visits) == 2
    assert {form["grant_type"] for form in world.issuer.forms} == {"authorization_code"}


async def test_a_client_that_was_forgotten_registers_anew(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.issuer.clients.clear()
    world.now += 3590
    assert await world.server.ask(client) == 200
    assert (len(world.issuer.registered), len(world.issuer.visits)) == (2, 2)


@pytest.mark.parametrize(
    "problem",
    [HttpResponse(status=500), HttpResponse(status=429), ConnectFailed("no way"), TimedOut("late")],
)
async def test_an_issuer_in_trouble_costs_nobody_their_login(world: World, problem: Any) -> None:
    client = world.client()
    await world.server.ask(client)
    token, world.internet.pages[f"POST {ISSUER}/token"] = (
        world.internet.pages[f"POST {ISSUER}/token"],
        problem,
    )
    world.now += 3590
    assert await world.server.ask(client) == 200, "what is still good is used"
    world.now += 100
    with pytest.raises((ConnectFailed, TimedOut)):
        await world.server.ask(client)
    kept = await world.kept()
    assert kept.tokens is not None and kept.tokens.refresh_token == "refresh-1"
    world.internet.pages[f"POST {ISSUER}/token"] = token
    assert await world.server.ask(client) == 200
    assert len(world.issuer.visits) == 1


class Full(MemoryStore):
    """A store that has no room left."""

    full = False

    async def save(self, key: str, data: bytes) -> None:
        if self.full:
            raise ConfigError("logins cannot be kept there: No space left on device")
        await super().save(key, data)


async def test_a_login_that_was_renewed_is_not_lost_where_it_cannot_be_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.store = store = Full()
    client = world.client()
    await world.server.ask(client)
    store.full = True
    for _ in range(3):  # each time the refresh token before is used up
        world.now += 3700
        assert await world.server.ask(client) == 200
    assert "No space left on device. The new tokens will be lost when this program" in caplog.text
    store.full = False
    world.now += 3700
    assert await world.server.ask(client) == 200
    assert len(world.issuer.visits) == 1
    kept = await world.kept()
    assert (
        kept.tokens is not None
        and kept.tokens.access_token == world.server.seen[-1]["authorization"].split()[1]
    )


async def test_a_login_that_cannot_be_kept_says_so_to_who_logs_in(world: World) -> None:
    world.store = store = Full()
    store.full = True
    with pytest.raises(ConfigError, match="No space left on device"):
        await world.server.ask(world.client())


async def test_what_was_not_kept_is_forgotten_with_a_logout(world: World) -> None:
    world.store = store = Full()
    client = world.client()
    await world.server.ask(client)
    store.full = True
    world.now += 3700
    assert await world.server.ask(client) == 200
    await client.forget()
    assert "authorization" not in await client.headers("POST", SERVER)


async def test_an_issuer_in_trouble_is_not_asked_again_with_every_request(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.internet.pages[f"POST {ISSUER}/token"] = HttpResponse(status=503)
    world.now += 3590
    before = len(world.internet.asked)
    for _ in range(10):
        await world.server.ask(client)
    assert len(world.internet.asked) == before + 1


async def test_a_renewal_that_is_answered_with_rubbish_leads_to_a_login(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.issuer.check = lambda request: (
        reply({}, 404) if form(request)["grant_type"] == "refresh_token" else None
    )
    world.now += 3700
    world.server.bad.add("access-1")
    assert await world.server.ask(client) == 200
    assert len(world.issuer.visits) == 2


async def test_who_gives_up_during_a_renewal_costs_nobody_their_login(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.now += 3590
    fetch, renewing, go = world.internet.fetch, asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> HttpResponse:
        answer = await fetch(request)  # from here on the old refresh token is used up
        renewing.set()
        await go.wait()
        return answer

    client._fetch = slow
    hasty = asyncio.create_task(world.server.ask(client))
    await renewing.wait()
    hasty.cancel()
    await asyncio.wait([hasty])
    go.set()
    world.now += 100
    assert await world.server.ask(client) == 200
    assert len(world.issuer.visits) == 1


async def test_a_secret_that_was_changed_is_used_for_the_next_renewal(world: World) -> None:
    world.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    world.issuer.clients["mine"] = {"client_secret": "old"}
    await world.server.ask(world.client(client_id="mine", client_secret="old"))
    assert b'"old"' not in (await world.store.load(SERVER) or b"")
    world.issuer.clients["mine"] = {"client_secret": "new"}
    world.now += 3590
    assert await world.server.ask(world.client(client_id="mine", client_secret="new")) == 200
    assert len(world.issuer.visits) == 1


# scopes


@pytest.mark.requirement("auth-step-up")
async def test_missing_scopes_are_asked_for_in_addition(world: World) -> None:
    client = world.client(scopes="basic")
    await world.server.ask(client)
    world.server.needs = ("write",)
    go = world.person.go

    async def and_then(url: str, about: str) -> Mapping[str, str]:
        world.server.needs = ()
        return await go(url, about)

    world.person.go = and_then  # type: ignore[method-assign]
    assert await world.server.ask(client) == 200
    assert world.issuer.visits[1]["scope"] == "basic write"


@pytest.mark.requirement("auth-step-up-limit")
async def test_scopes_that_asking_does_not_bring_are_given_up(world: World) -> None:
    world.server.needs = ("admin",)
    client = world.client()
    with pytest.raises(Unauthorized, match="admin"):
        await world.server.ask(client)
    assert len(world.issuer.visits) <= 3
    visits = len(world.issuer.visits)
    with pytest.raises(Unauthorized, match="admin"):
        await world.server.ask(client)
    assert len(world.issuer.visits) == visits


async def test_a_server_that_wants_ever_other_scopes_is_given_up(world: World) -> None:
    class Greedy(tuple[str, ...]):
        count = 0

        def __iter__(self) -> Any:
            Greedy.count += 1
            return iter((f"scope-{Greedy.count}",))

    world.server.needs = Greedy(("x",))
    with pytest.raises(Unauthorized, match="scopes"):
        await world.server.ask(world.client())
    assert len(world.issuer.visits) <= 6


async def test_what_was_asked_for_is_not_remembered_without_end(world: World) -> None:
    client = world.client()
    for number in range(MAX_OPERATIONS + 10):
        asked = f'Bearer error="insufficient_scope", scope="scope-{number}"'
        with pytest.raises(Unauthorized):
            await client.on_refused(
                "POST", SERVER, HttpResponse(status=403, headers={"www-authenticate": asked})
            )
        client.on_response(HttpResponse())
    assert len(client._step_ups) == MAX_OPERATIONS


async def test_calls_that_lack_the_same_scope_at_once_are_all_helped_by_one_login(
    world: World,
) -> None:
    client = world.client()
    await world.server.ask(client)
    world.server.needs = ("write",)
    await client.headers("POST", SERVER)
    refusal = world.server.answer(await client.headers("POST", SERVER))

    async def refused() -> bool:
        await client.headers("POST", SERVER)
        try:
            return await client.on_refused("POST", SERVER, refusal)
        except Unauthorized as problem:
            return problem.curable

    assert await asyncio.gather(*(refused() for _ in range(6))) == [True] * 6


async def test_a_scope_that_was_got_may_be_asked_for_again_another_day(world: World) -> None:
    client = world.client()
    grants_what_it_needs(world)
    for _ in range(6):
        world.server.needs = ("write",)
        assert await world.server.ask(client) == 200
        world.server.bad.add(f"access-{world.issuer.given}")
        await world.store.delete(SERVER)  # somebody logs out elsewhere
        assert await world.server.ask(client) == 200


async def test_a_login_after_the_end_of_a_refresh_token_asks_for_what_was_asked_before(
    world: World,
) -> None:
    client = world.client()
    grants_what_it_needs(world)
    await world.server.ask(client)
    world.server.needs = ("write",)
    await world.server.ask(client)
    world.issuer.refreshable.clear()
    world.now += 3700
    await world.server.ask(client)
    assert world.issuer.visits[-1].get("scope") == "write"


async def test_a_403_that_is_not_about_scopes_is_nobodys_business_here(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    assert await client.on_refused("POST", SERVER, HttpResponse(status=403)) is False


# another authorization server


@pytest.mark.requirement("auth-server-moved", "auth-own-tokens-only")
async def test_a_server_that_moved_to_another_issuer_is_logged_in_to_there(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    other = Issuer(world.internet, OTHER)
    world.person.issuers = (world.issuer, other)
    world.described["authorization_servers"] = [OTHER]
    world.server.bad.add("access-1")
    other.given = 100
    forms = len(world.issuer.forms)
    assert await world.server.ask(client) == 200
    assert world.server.seen[-1] == {"authorization": "Bearer access-101"}
    assert len(world.issuer.forms) == forms, "the old one is not asked any more"
    seen = b" ".join(
        request.url.encode() + request.body for request in world.internet.to("other.example.com")
    )
    assert b"client-1-as" not in seen and b"refresh-1" not in seen


async def test_a_name_that_was_given_stays_with_its_issuer_when_that_does_not_know_it_any_more(
    world: World,
) -> None:
    world.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    world.issuer.clients["mine"] = {"client_secret": "hidden"}
    client = world.client(client_id="mine", client_secret="hidden")
    await world.server.ask(client)
    evil = Issuer(
        world.internet, OTHER, token_endpoint_auth_methods_supported=["client_secret_post"]
    )
    world.person.issuers = (world.issuer, evil)
    world.issuer.clients.clear()
    world.now += 3700
    await client.headers("POST", SERVER)
    world.described["authorization_servers"] = [OTHER]
    with pytest.raises(Unauthorized, match="client_id was issued by"):
        await world.server.ask(client)
    assert not evil.forms and not evil.visits


def hidden(world: World) -> None:
    """Let the server's metadata be where only its challenge says."""
    del world.internet.pages["GET https://mcp.example.com/.well-known/oauth-protected-resource/mcp"]
    describe(world.internet, well="https://mcp.example.com/custom.json")
    world.server.challenge = 'Bearer resource_metadata="https://mcp.example.com/custom.json",'


async def test_where_the_metadata_is_need_not_be_said_again(world: World) -> None:
    hidden(world)
    client = world.client()
    grants_what_it_needs(world)
    await world.server.ask(client)
    world.server.needs = ("write",)
    assert await world.server.ask(client) == 200


async def test_a_program_that_comes_back_after_the_end_of_its_token_asks_where_to_get_another(
    world: World,
) -> None:
    hidden(world)
    world.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    world.issuer.clients["me"] = {"client_secret": "s"}
    for _ in range(2):
        program = ClientCredentials("me", "s", store=world.store).bind(SERVER, world.internet.fetch)
        assert await world.server.ask(world.on_time(program)) == 200
        world.now += 3700


# where a token goes


@pytest.mark.requirement("auth-token-in-header")
async def test_a_token_goes_to_its_server_only_and_never_in_the_clear(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    assert await client.headers("GET", "https://evil.example/mcp") == {}
    assert await client.headers("GET", "https://mcp.example.com:8443/mcp") == {}
    assert await client.headers("GET", "http://mcp.example.com/mcp") == {}
    assert (await client.headers("GET", "wss://mcp.example.com/ws"))[
        "authorization"
    ] == "Bearer access-1"
    token = BearerToken("abc").bind("http://mcp.example.com/mcp", world.internet.fetch)
    with pytest.raises(Unauthorized, match="https"):
        await token.headers("GET", "http://mcp.example.com/mcp")


async def test_a_refusal_from_elsewhere_ends_nothing_here(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    asked = len(world.internet.asked)
    elsewhere = HttpResponse(
        status=401,
        headers={"www-authenticate": 'Bearer resource_metadata="https://evil.example/x"'},
    )
    assert await client.on_refused("POST", "https://evil.example/mcp", elsewhere) is False
    assert await world.server.ask(client) == 200
    assert (len(world.internet.asked), len(world.issuer.visits)) == (asked, 1)


async def test_a_server_without_encryption_is_not_logged_in_to(world: World) -> None:
    url = "http://mcp.example.com/mcp"
    describe(world.internet, url)
    client = OAuth(store=world.store, browser=world.person).bind(url, world.internet.fetch)
    with pytest.raises(Unauthorized, match="https"):
        await world.server.ask(client, url)
    assert not world.internet.asked and not world.person.pages


async def test_a_token_that_was_kept_is_not_sent_in_the_clear_either(world: World) -> None:
    url = "http://mcp.example.com/mcp"
    await world.server.ask(world.client())
    await world.store.save(url, await world.store.load(SERVER) or b"")
    with pytest.raises(Unauthorized, match="https"):
        await (
            OAuth(store=world.store, browser=world.person)
            .bind(url, world.internet.fetch)
            .headers("POST", url)
        )


async def test_no_credentials_show_a_secret(world: World) -> None:
    client = world.client(client_id="mine", client_secret="hidden", issuer=ISSUER)
    world.issuer.clients["mine"] = {"client_secret": "hidden"}
    world.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    await world.server.ask(client)
    others = [
        BearerToken("hidden"),
        ClientCredentials("a", "hidden"),
        WorkloadIdentity("a", "hidden"),
        OAuth(client_id="hidden"),
    ]
    for one in (client, client._record, client._options, *others):
        assert "hidden" not in repr(one) and "access-1" not in repr(one)
    kept = await world.kept()
    assert all(known.client_secret is None for known in kept.registrations.values())


async def test_credentials_at_no_server_cannot_be_used(world: World) -> None:
    with pytest.raises(ConfigError, match="bind"):
        await OAuth().headers("GET", SERVER)


# the user


async def test_a_login_that_is_given_up_costs_nothing(world: World) -> None:
    client = world.client()
    await world.server.ask(client)
    world.server.needs = ("write",)
    world.person.closed = True
    with pytest.raises(Unauthorized, match="cancelled"):
        await world.server.ask(client)
    world.server.needs = ()
    assert await world.server.ask(client) == 200
    kept = await world.kept()
    assert kept.tokens is not None and kept.tokens.access_token == "access-1"


async def test_who_wants_a_fresh_login_has_the_old_one_until_then(world: World) -> None:
    await world.server.ask(world.client())
    anew = world.client(fresh=True)
    world.person.closed = True
    with pytest.raises(Unauthorized, match="cancelled"):
        await world.server.ask(anew)
    assert await world.server.ask(world.client()) == 200
    world.person.closed = False
    assert await world.server.ask(anew) == await world.server.ask(anew) == 200
    assert len(world.issuer.visits) == 2
    kept = await world.kept()
    assert kept.tokens is not None and kept.tokens.access_token == "access-2"


async def test_without_a_browser_a_login_that_is_there_is_used_and_none_is_made(
    world: World,
) -> None:
    nobody = OAuth(store=world.store, browser=False).bind(SERVER, world.internet.fetch)
    with pytest.raises(Unauthorized, match="no user is available to log in") as refused:
        await world.server.ask(nobody)
    assert refused.value.curable and refused.value.scopes == ()
    await world.server.ask(world.client())
    later = world.on_time(
        OAuth(store=world.store, browser=False).bind(SERVER, world.internet.fetch)
    )
    assert await world.server.ask(later) == 200
    world.server.needs = ("read", "write")
    with pytest.raises(Unauthorized) as lacking:
        await world.server.ask(later)
    assert lacking.value.scopes == ("read", "write") and len(world.issuer.visits) == 1


async def test_somebody_may_log_in_before_anybody_asks(world: World) -> None:
    client = world.client()
    await client.authorize()
    await client.authorize()
    assert len(world.issuer.visits) == 2
    assert await world.server.ask(client) == 200


async def test_a_logout_forgets_and_has_the_tokens_ended(world: World) -> None:
    revoked: list[dict[str, str]] = []

    def revoke(request: HttpRequest) -> HttpResponse:
        revoked.append(form(request))
        return HttpResponse(status=200)

    world.issuer.metadata["revocation_endpoint"] = f"{ISSUER}/revoke"
    world.internet.pages[f"POST {ISSUER}/revoke"] = revoke
    client = world.client()
    assert not await client.forget() and revoked == []
    await world.server.ask(client)
    tokens = (await world.kept()).tokens
    assert tokens is not None and await client.forget()
    assert [one["token"] for one in revoked] == [tokens.refresh_token]
    assert await world.store.load(SERVER) is None and await client.headers("POST", SERVER) == {}
    assert not await client.forget()


@pytest.mark.parametrize("endpoint", [None, "http://auth.example.com/revoke", "silent", "broken"])
async def test_a_logout_forgets_whatever_the_issuer_does(
    world: World, endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound, "LOGOUT_SECONDS", 0.01)
    fetch = world.internet.fetch

    async def lame(request: HttpRequest) -> HttpResponse:
        if not request.url.endswith("/revoke"):
            return await fetch(request)
        assert request.url.startswith("https:"), "a token went in the clear"
        await asyncio.sleep(60 if endpoint == "silent" else 0)
        return HttpResponse(status=503)

    world.issuer.metadata["revocation_endpoint"] = (
        f"{ISSUER}/revoke" if endpoint in ("silent", "broken") else endpoint
    )
    client = world.on_time(OAuth(store=world.store, browser=world.person).bind(SERVER, lame))
    await world.server.ask(client)
    assert not await client.forget()
    assert await world.store.load(SERVER) is None


async def test_what_was_renewed_during_a_login_that_failed_is_kept(world: World) -> None:
    client, other = world.client(), world.client()
    await world.server.ask(client)
    await other.headers("POST", SERVER)

    async def meanwhile(url: str, about: str) -> Mapping[str, str]:
        world.now += 3590
        await other.headers("POST", SERVER)
        raise Unauthorized("The login was cancelled")

    world.person.go = meanwhile  # type: ignore[method-assign]
    with pytest.raises(Unauthorized):
        await client.authorize()
    kept = await world.kept()
    assert kept.tokens is not None and kept.tokens.refresh_token == "refresh-2"


# proof of possession


async def test_bound_tokens_come_with_a_fresh_proof_each(world: World) -> None:
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    world.issuer.extra = {"token_type": "DPoP"}
    world.server.challenge = "DPoP"
    client = world.client()
    assert await world.server.ask(client) == 200
    assert await world.server.ask(world.client()) == 200
    (first, one), (second, two) = (
        decode_unverified(seen["dpop"]) for seen in world.server.seen[-2:]
    )
    assert world.server.seen[-1]["authorization"] == "DPoP access-1"
    assert first["jwk"] == second["jwk"], "a restart keeps the key"
    assert one["jti"] != two["jti"] and one["ath"] == two["ath"] and one["htu"] == SERVER
    assert len(world.issuer.visits) == 1


async def test_the_servers_nonce_goes_into_the_next_proof(world: World) -> None:
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    world.issuer.extra = {"token_type": "DPoP"}
    client = world.client(dpop=True)
    assert await world.server.ask(client) == 200
    wanted = {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": "n-1"}
    await client.headers("POST", SERVER)
    assert await client.on_refused("POST", SERVER, HttpResponse(status=401, headers=wanted)) is True
    assert decode_unverified((await client.headers("POST", SERVER))["dpop"])[1]["nonce"] == "n-1"
    client.on_response(HttpResponse(headers={"dpop-nonce": "n-2"}))
    assert decode_unverified((await client.headers("POST", SERVER))["dpop"])[1]["nonce"] == "n-2"
    with pytest.raises(Unauthorized):
        for number in range(100):
            await client.headers("POST", SERVER)
            await client.on_refused(
                "POST",
                SERVER,
                HttpResponse(status=401, headers={**wanted, "dpop-nonce": f"m-{number}"}),
            )
    assert world.issuer.given <= 2


async def test_more_scopes_do_not_cost_the_binding_to_a_key(world: World) -> None:
    world.issuer.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    world.issuer.check = lambda request: world.issuer.extra.update(
        token_type="DPoP" if "dpop" in request.headers else "Bearer"
    )
    world.server.challenge = "DPoP"
    client = world.client()
    grants_what_it_needs(world)
    await world.server.ask(client)
    world.server.needs = ("write",)
    await world.server.ask(client)
    assert world.server.seen[-1]["authorization"].startswith("DPoP ")


# without anybody's help


async def test_a_program_gets_in_with_its_secret_and_renews_by_itself(world: World) -> None:
    world.issuer.clients["me"] = {"client_secret": "s"}
    world.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
    world.issuer.extra = {"refresh_token": None}
    client = world.on_time(
        ClientCredentials("me", "s", scopes=["a"]).bind(SERVER, world.internet.fetch)
    )
    assert await world.server.ask(client) == 200
    world.now += 3590
    assert await world.server.ask(client) == 200
    assert (
        world.issuer.forms
        == [{"grant_type": "client_credentials", "resource": SERVER, "scope": "a"}] * 2
    )
    assert world.server.seen[-1] == {"authorization": "Bearer access-2"}


async def test_a_program_needs_no_pkce_and_no_login_page(world: World) -> None:
    world.issuer.clients["me"] = {"client_secret": "s"}
    world.issuer.metadata["scopes_supported"] = ["a", "offline_access"]
    world.described["scopes_supported"] = ["a"]
    del (
        world.issuer.metadata["code_challenge_methods_supported"],
        world.issuer.metadata["authorization_endpoint"],
    )
    client = ClientCredentials("me", "s").bind(SERVER, world.internet.fetch)
    assert await world.server.ask(client) == 200
    assert world.issuer.forms[0]["scope"] == "a", "nobody has to be spared a login"


async def test_a_program_gets_in_with_its_key(world: World) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    world.issuer.clients["me"] = {}
    client = ClientCredentials("me", private_key=pem.decode()).bind(SERVER, world.internet.fetch)
    assert await world.server.ask(client) == 200
    (asked,) = world.issuer.forms
    header, claims = decode_unverified(asked["client_assertion"])
    assert header["alg"] == "ES256"
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("me", "me", ISSUER)
    assert claims["exp"] - claims["iat"] <= 300 and claims["jti"]
    assert (
        asked["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    )


async def test_a_program_whose_token_is_refused_asks_no_more_than_once(world: World) -> None:
    world.issuer.clients["me"] = {"client_secret": "s"}
    world.server.stubborn = 1000
    with pytest.raises(Unauthorized, match="just issued"):
        await world.server.ask(ClientCredentials("me", "s").bind(SERVER, world.internet.fetch))
    assert len(world.issuer.forms) == 1


async def test_a_workload_is_vouched_for_by_its_platform(world: World) -> None:
    world.issuer.clients["job"] = {}

    async def assertion() -> str:
        return "the.signed.word"

    client = WorkloadIdentity("job", assertion, scopes="a b").bind(SERVER, world.internet.fetch)
    assert await world.server.ask(client) == 200
    assert world.issuer.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": "the.signed.word",
            "resource": SERVER,
            "scope": "a b",
            "client_id": "job",
        }
    ]


async def test_a_workload_that_is_refused_does_not_try_again_or_otherwise(world: World) -> None:
    world.issuer.refuse = {"error": "invalid_grant", "error_description": "expired"}
    with pytest.raises(Unauthorized, match="invalid_grant: expired") as caught:
        await world.server.ask(
            WorkloadIdentity("job", "the.signed.word").bind(SERVER, world.internet.fetch)
        )
    assert not caught.value.curable
    assert len(world.issuer.forms) == 1 and not world.issuer.registered


def enterprise(**changed: Any) -> EnterpriseManaged:
    settings = {
        "id_token": "id.tok.en",
        "idp_token_endpoint": IDP,
        "idp_client_id": "at-idp",
        **changed,
    }
    return EnterpriseManaged("me", "s", **settings)


async def test_an_enterprises_login_is_passed_on(world: World) -> None:
    exchanged: list[dict[str, str]] = []

    def exchange(request: Any) -> HttpResponse:
        exchanged.append(form(request))
        kind = "urn:ietf:params:oauth:token-type:id-jag"
        return reply({"access_token": "the-grant", "issued_token_type": kind, "token_type": "N_A"})

    world.internet.pages[f"POST {IDP}"] = exchange
    world.issuer.clients["me"] = {"client_secret": "s"}
    world.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
    assert await world.server.ask(enterprise().bind(SERVER, world.internet.fetch)) == 200
    assert exchanged == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token": "id.tok.en",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": ISSUER,
            "resource": SERVER,
            "client_id": "at-idp",
        }
    ]
    assert world.issuer.forms[0]["assertion"] == "the-grant"


@pytest.mark.parametrize(
    "answer",
    [
        reply({"error": "access_denied"}, 400),
        reply({"access_token": "x", "issued_token_type": "other", "token_type": "N_A"}),
    ],
)
async def test_an_enterprise_that_says_no_is_not_argued_with(
    world: World, answer: HttpResponse
) -> None:
    world.internet.pages[f"POST {IDP}"] = answer
    with pytest.raises(Unauthorized, match="identity provider"):
        await world.server.ask(enterprise().bind(SERVER, world.internet.fetch))
    assert not world.issuer.forms


def test_an_enterprises_token_never_goes_in_the_clear() -> None:
    with pytest.raises(ConfigError, match="https"):
        enterprise(idp_token_endpoint="http://idp.example.com/token")


@pytest.mark.requirement("auth-given-per-issuer", "auth-given-moved")
async def test_a_programs_secret_is_shown_to_one_issuer_only(world: World) -> None:
    world.issuer.clients["me"] = {"client_secret": "s"}
    client = ClientCredentials("me", "s").bind(SERVER, world.internet.fetch)
    await world.server.ask(client)
    evil = Issuer(world.internet, OTHER)
    world.described["authorization_servers"] = [OTHER]
    world.server.bad.add("access-1")
    with pytest.raises(Unauthorized, match="client_id was issued by"):
        await world.server.ask(client)
    assert not evil.forms


# tokens from elsewhere


async def test_a_token_from_elsewhere_goes_along(world: World) -> None:
    client = BearerToken("abc").bind(SERVER, world.internet.fetch)
    assert await client.headers("POST", SERVER) == {"authorization": "Bearer abc"}
    assert await client.headers("POST", "https://evil.example") == {}
    with pytest.raises(Unauthorized, match="Pass another one") as caught:
        await client.on_refused("POST", SERVER, HttpResponse(status=401))
    assert not caught.value.curable and "abc" not in str(caught.value)


async def test_a_token_that_is_got_is_got_again_when_it_is_refused(world: World) -> None:
    tokens = iter(["one", "two", "two", "two"])
    client = BearerToken(lambda: next(tokens)).bind(SERVER, world.internet.fetch)
    world.server.bad.add("one")
    assert await world.server.ask(client) == 200
    assert await client.on_refused("POST", SERVER, HttpResponse(status=403)) is False


async def test_a_token_that_was_replaced_meanwhile_is_not_the_one_that_was_refused(
    world: World,
) -> None:
    tokens = ["one"]
    client = BearerToken(lambda: tokens[-1]).bind(SERVER, world.internet.fetch)

    async def early() -> bool:
        await client.headers("POST", SERVER)
        await replaced.wait()
        return await client.on_refused("POST", SERVER, HttpResponse(status=401))

    replaced = asyncio.Event()
    waiting = asyncio.create_task(early())
    await asyncio.sleep(0)
    tokens.append("two")
    await client.headers("POST", SERVER)
    replaced.set()
    assert await waiting is True


@pytest.mark.parametrize("wrong", ["", "a b", "a\r\nX-Evil: 1", "é", None, b"abc"])
async def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(
    world: World, wrong: Any
) -> None:
    with pytest.raises(ConfigError) as caught:
        await BearerToken(lambda: wrong).bind(SERVER, world.internet.fetch).headers("GET", SERVER)
    assert "Evil" not in str(caught.value)


def test_what_is_kept_says_nothing_that_cannot_be_written(world: World) -> None:
    assert json.loads(ServerRecord().encode()) == {}
