"""Pages that a user has to visit before a call can be answered, in every era, and what happens at
them."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec import Struct

from dovetail import Context, Limits, Server, ToolError
from dovetail.errors import (
    InternalError,
    MissingCapability,
    Page,
    ProtocolError,
    UrlRefused,
    UrlRequired,
)
from dovetail.ports import MAX_ELICITATION_IDS, Call, Principal
from dovetail.protocol.client_features import ElicitResult
from dovetail.sealing import KeyRing
from dovetail.testing import Tape, bare, pair
from tests.spec import check_tape
from tests.transports.http.raw import INFO, Session, Site, hosted, request

OLD, NEW = "2025-11-25", "2026-07-28"
URL = "https://example.com/connect"
FORM_ONLY = {"elicitation": {}}


class Office(Struct):
    """A server whose tools want a page visited first, and how often the user has to be asked until
    they have."""

    server: Server
    visits_left: int = 1
    runs: int = 0

    def check(self) -> None:
        self.runs += 1
        if self.visits_left > 0:
            raise UrlRequired("Sign in to Example Co first", url=URL, id=f"sign-in-{self.runs}")


def office(visits: int = 1, **options: Any) -> Office:
    made = Office(Server("office", **options), visits)
    server = made.server

    @server.tool
    async def files(ctx: Context) -> str:
        made.check()
        return "files"

    @server.tool
    def plain() -> str:
        made.check()
        return "plain files"

    @server.tool
    async def named(ctx: Context) -> str:
        name = await ctx.elicit("Who are you?", str)
        made.check()
        return f"files of {name.data}"

    @server.tool
    async def both() -> str:
        raise UrlRequired(
            "Two pages", pages=[Page("One", f"{URL}/1", "1"), Page("Two", f"{URL}/2", "2")]
        )

    @server.tool
    async def nowhere() -> str:
        raise UrlRequired("Visit nothing")

    @server.resource("office://files")
    async def resource(ctx: Context) -> str:
        made.check()
        return "files"

    @server.prompt
    async def prompt() -> str:
        made.check()
        return "files"

    return made


# the error of 2025-11-25


@pytest.mark.requirement("elicitation-url-error")
@pytest.mark.parametrize("tool", ["files", "plain"])
async def test_the_error_lists_the_pages_and_the_client_raises_it_as_it_was_raised(
    tool: str,
) -> None:
    tape = Tape()
    async with pair(
        office().server, revision=OLD, record=tape, on_elicit=lambda request: True
    ) as client:
        with pytest.raises(UrlRequired, match="Sign in to Example Co first") as caught:
            await client.call_tool(tool)
    [page] = caught.value.elicitations
    assert page == ("Sign in to Example Co first", URL, "sign-in-1")
    error = tape.messages("server")[-1]["error"]
    wire = {
        "mode": "url",
        "elicitationId": "sign-in-1",
        "url": URL,
        "message": "Sign in to Example Co first",
    }
    assert error == {
        "code": -32042,
        "message": "Sign in to Example Co first",
        "data": {"elicitations": [wire]},
    }
    check_tape(tape, OLD)


@pytest.mark.requirement("elicitation-url-error")
async def test_an_error_may_list_several_pages() -> None:
    async with pair(office().server, revision=OLD, on_elicit=lambda request: True) as client:
        with pytest.raises(UrlRequired) as caught:
            await client.call_tool("both")
    assert [(page.message, page.id) for page in caught.value.elicitations] == [
        ("One", "1"),
        ("Two", "2"),
    ]


async def test_resources_and_prompts_may_want_a_page_visited_too() -> None:
    async with pair(office().server, revision=OLD, on_elicit=lambda request: True) as client:
        with pytest.raises(UrlRequired):
            await client.read_resource("office://files")
        with pytest.raises(UrlRequired):
            await client.get_prompt("prompt")


@pytest.mark.requirement("elicitation-url-error-only")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", OLD])
async def test_a_client_that_shows_no_pages_gets_a_failed_tool_in_place_of_the_error(
    revision: str,
) -> None:
    async with bare(office().server) as peer:
        await peer.greet(revision, FORM_ONLY)
        reply = await peer.ask("tools/call", {"name": "files", "arguments": {}}, id=2)
        assert reply["result"]["isError"]
        assert reply["result"]["content"][0]["text"].startswith("Sign in to Example Co first (")
        reply = await peer.ask("resources/read", {"uri": "office://files"}, id=3)
        assert reply["error"]["code"] == (
            MissingCapability.code if revision == OLD else InternalError.code
        )


@pytest.mark.requirement("elicitation-url-error-only")
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_an_error_without_a_page_is_a_mistake_of_the_server(revision: str) -> None:
    async with pair(office().server, revision=revision, on_elicit=lambda request: True) as client:
        with pytest.raises(InternalError, match="UrlRequired without a page to visit"):
            await client.call_tool("nowhere")


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        {},
        {"elicitations": None},
        {"elicitations": [1, None, {}]},
        {"elicitations": {"url": URL}},
        {
            "elicitations": [
                {"url": URL},
                {"elicitationId": "1"},
                {"url": 1, "elicitationId": "1", "message": "m"},
            ]
        },
        {"elicitations": [{"url": "javascript:alert(1)", "elicitationId": "1", "message": "m"}]},
        {"elicitations": [{"url": URL, "elicitationId": ["1"], "message": "m"}]},
    ],
)
def test_pages_that_make_no_sense_are_left_out(data: Any) -> None:
    assert UrlRequired(-32042, "m", data).elicitations == []


def test_a_page_without_an_id_is_given_one() -> None:
    one, two = (UrlRequired("m", url=URL).elicitations[0].id for _ in range(2))
    assert one != two
    assert len(one) > 16


# a round, in the stateless era


def accepting(made: Office) -> Any:
    """A user who does what the page wants."""
    seen: list[Any] = []

    def on_elicit(request: Any) -> Any:
        seen.append(request)
        if request.mode == "url":
            made.visits_left -= 1
            return ElicitResult(action="accept")
        return {"value": "Ann"}

    on_elicit.seen = seen  # type: ignore[attr-defined]
    return on_elicit


@pytest.mark.requirement("elicitation-url")
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("visits", [1, 3])
@pytest.mark.parametrize("tool", ["files", "plain"])
async def test_in_the_stateless_era_the_page_is_a_question_and_the_handler_is_run_again(
    tool: str, visits: int, replay: bool
) -> None:
    made, tape = office(visits), Tape()
    on_elicit = accepting(made)
    async with pair(
        made.server, revision=NEW, record=tape, replay=replay, on_elicit=on_elicit
    ) as client:
        assert (await client.call_tool(tool)).data.endswith("files")
    assert (made.runs, len(on_elicit.seen)) == (visits + 1, visits)
    results = [
        message["result"]
        for message in tape.messages("server")
        if "inputRequests" in message.get("result", {})
    ]
    page = {"mode": "url", "url": URL, "message": "Sign in to Example Co first"}
    first = {"sign-in-1": {"method": "elicitation/create", "params": page}}
    assert results[0]["inputRequests"] == first
    assert "error" not in str(tape.messages("server"))
    check_tape(tape, NEW)


async def test_resources_and_prompts_ask_in_rounds_too() -> None:
    made = office()
    async with pair(made.server, revision=NEW, on_elicit=accepting(made)) as client:
        assert (await client.read_resource("office://files"))[0].text == "files"
        made.visits_left = 1
        assert (await client.get_prompt("prompt")).messages[0].content.text == "files"


@pytest.mark.parametrize("replay", [False, True])
async def test_what_was_answered_before_is_not_asked_again(replay: bool) -> None:
    made = office(2)
    on_elicit = accepting(made)
    async with pair(made.server, revision=NEW, replay=replay, on_elicit=on_elicit) as client:
        assert (await client.call_tool("named")).data == "files of Ann"
    assert [request.mode for request in on_elicit.seen] == ["form", "url", "url"]


@pytest.mark.requirement("elicitation-declined")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_does_not_want_to_go_there_ends_the_call(action: Any) -> None:
    made = office(100)
    async with pair(
        made.server, revision=NEW, on_elicit=lambda request: ElicitResult(action=action)
    ) as client:
        with pytest.raises(ToolError, match="declined to visit a required page"):
            await client.call_tool("files")
        with pytest.raises(ProtocolError, match="declined to visit a required page"):
            await client.read_resource("office://files")
    assert made.runs == 2


async def test_a_page_that_is_never_done_with_does_not_go_on_for_ever() -> None:
    made = office(10_000, limits=Limits(asks=3))
    async with pair(made.server, revision=NEW, on_elicit=lambda request: True) as client:
        with pytest.raises(ProtocolError, match="asked the client 3 times in a row"):
            await client.call_tool("files")
    assert made.runs == 4


@pytest.mark.requirement("elicitation-modes-asked")
@pytest.mark.parametrize("tool", ["files", "plain"])
async def test_a_client_of_the_stateless_era_that_shows_no_pages_is_told_what_is_missing(
    tool: str,
) -> None:
    async with pair(office().server, revision=NEW) as client:
        with pytest.raises(MissingCapability, match="Sign in to Example Co first") as caught:
            await client.call_tool(tool)
    assert caught.value.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}


async def test_without_encryption_the_handler_is_run_again_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KeyRing, "encrypts", False)
    made = office()
    async with pair(made.server, revision=NEW, on_elicit=accepting(made)) as client:
        assert (await client.call_tool("files")).data == "files"


# who opens the page


def as_user(name: str) -> Any:
    async def sign_in(call: Call, answer: Any) -> Any:
        call.caller.principal = Principal(name)
        return await answer(call)

    return sign_in


def bank(**options: Any) -> Server:
    server = Server("bank", **options)

    @server.tool
    async def link(ctx: Context) -> str:
        return ctx.bind_url(URL, "payment-1")

    return server


@pytest.mark.requirement("elicitation-url-same-user")
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_a_bound_url_is_for_the_user_who_was_calling(revision: str) -> None:
    server = bank(middleware=[as_user("ann")])
    async with pair(server, revision=revision) as client:
        url = (await client.call_tool("link")).data
    assert url.startswith(f"{URL}?ticket=")
    assert server.check_url(url, "ann") == "payment-1"
    for other in ("bob", None):
        with pytest.raises(UrlRefused):
            server.check_url(url, other)


async def test_a_bound_url_of_nobody_in_particular_is_not_for_somebody() -> None:
    server = bank()
    async with pair(server) as client:
        url = (await client.call_tool("link")).data
    assert server.check_url(url, None) == "payment-1"
    with pytest.raises(UrlRefused):
        server.check_url(url, "ann")


async def test_a_bound_url_expires_with_the_state_of_its_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = bank(limits=Limits(state_life=0))
    async with pair(server) as client:
        url = (await client.call_tool("link")).data
    with caplog.at_level(logging.WARNING), pytest.raises(UrlRefused):
        server.check_url(url, None)
    assert "expired" in caplog.text


async def test_the_keys_that_a_server_is_served_with_seal_its_tickets() -> None:
    one, two, other = bank(), bank(), bank()
    for server, key in (
        (one, "a key of one server"),
        (two, "a key of one server"),
        (other, "one of another server"),
    ):
        server.asgi(keys=[key])
    async with pair(one) as client:
        url = (await client.call_tool("link")).data
    assert two.check_url(url, None) == "payment-1"
    with pytest.raises(UrlRefused):
        other.check_url(url, None)


async def test_a_bound_url_is_the_same_question_when_the_handler_is_run_again() -> None:
    server = Server("bank")
    urls: list[str] = []

    @server.tool
    async def pay(ctx: Context) -> str:
        urls.append(ctx.bind_url(URL))
        visited = await ctx.elicit_url("Pay", urls[-1])
        sure = await ctx.elicit("Sure?", bool)
        return f"{visited.action} {sure.data}"

    def on_elicit(request: Any) -> Any:
        return ElicitResult(action="accept") if request.mode == "url" else {"value": True}

    async with pair(server, revision=NEW, replay=True, on_elicit=on_elicit) as client:
        assert (await client.call_tool("pay")).data == "accept True"
    assert len(set(urls)) == 3


# that it is done


def teller() -> Server:
    server = Server("teller")

    @server.tool
    async def pay(id: str, ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", URL, id=id)).action

    @server.tool
    async def must_pay(id: str) -> str:
        raise UrlRequired("Pay first", url=URL, id=id)

    return server


@pytest.mark.requirement("elicitation-complete", "elicitation-bound")
async def test_that_a_page_is_done_with_is_told_to_the_client_that_was_asked_and_to_nobody_else() -> (  # noqa: E501
    None
):
    server, ours, theirs = teller(), Tape(), Tape()
    async with (
        pair(server, revision=OLD, record=ours, on_elicit=lambda request: True) as client,
        pair(server, revision=OLD, record=theirs, on_elicit=lambda request: True) as other,
        pair(server, revision=NEW, on_elicit=lambda request: True) as newer,
    ):
        await client.call_tool("pay", {"id": "ours"})
        await newer.call_tool("pay", {"id": "newer"})
        with pytest.raises(UrlRequired):
            await client.call_tool("must_pay", {"id": "ours too"})
        await other.call_tool("pay", {"id": "theirs"})
        await asyncio.to_thread(server.elicitation_complete, "ours")
        for id in ("ours too", "theirs", "newer", "nobody's"):
            server.elicitation_complete(id)
        await asyncio.gather(client.ping(), other.ping(), newer.ping())
    assert completed(ours) == ["ours", "ours too"]
    assert completed(theirs) == ["theirs"]


def completed(tape: Tape) -> list[str]:
    told = [
        one
        for one in tape.messages("server")
        if one.get("method") == "notifications/elicitation/complete"
    ]
    return [one["params"]["elicitationId"] for one in told]


async def greeted(site: Site) -> Session:
    """A session whose client shows pages."""
    said = {
        "protocolVersion": OLD,
        "capabilities": {"elicitation": {"url": {}}},
        "clientInfo": INFO,
    }
    answer = await site.post(request("initialize", said, 0))
    session = Session(site, answer.headers["mcp-session-id"], OLD, await answer.json())
    await session.tell("notifications/initialized")
    return session


@pytest.mark.requirement("elicitation-complete")
async def test_over_http_the_session_that_was_asked_is_told_on_its_stream() -> None:
    server = teller()
    async with hosted(server) as site:
        ours, theirs = await greeted(site), await greeted(site)
        stream, other = await ours.listen(), await theirs.listen()
        refused = await (await ours.call("must_pay", id="ours")).json()
        assert refused["error"]["code"] == -32042
        await theirs.call("must_pay", id="theirs")
        server.elicitation_complete("ours")
        server.elicitation_complete("theirs")
        assert (await stream.next()).message["params"] == {"elicitationId": "ours"}
        assert (await other.next()).message["params"] == {"elicitationId": "theirs"}


async def test_the_pages_that_are_remembered_of_a_caller_are_bounded() -> None:
    server, tape = teller(), Tape()
    async with pair(server, revision=OLD, record=tape, on_elicit=lambda request: True) as client:
        for number in range(MAX_ELICITATION_IDS + 1):
            await client.call_tool("pay", {"id": f"{number}"})
        server.elicitation_complete("0")
        server.elicitation_complete("1")
        await client.ping()
    assert completed(tape) == ["1"]
