"""What holds of every question, however it is put: by the context, by `InputRequired`, by
`UrlRequired`, in either era."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec import Raw

from dovetail import Context, Server
from dovetail.errors import InternalError, Page, ProtocolError, ToolError, UrlRequired
from dovetail.limits import Limits
from dovetail.ports import Principal
from dovetail.protocol.client_features import CreateMessageParams, ElicitParams, SamplingMessage
from dovetail.protocol.content import TextContent, ToolResultContent, ToolUseContent
from dovetail.protocol.lifecycle import InputRequired
from dovetail.testing import Bare, Tape, bare, pair
from tests.behaviour.test_asking import EVERYTHING, _greeted, called, modern
from tests.transports.http.raw import hosted, request as old_request

OLDER, OLD, NEW = "2025-06-18", "2025-11-25", "2026-07-28"
ERAS = pytest.mark.parametrize("revision", [OLD, NEW])
USE = SamplingMessage("assistant", [ToolUseContent("u", "t", {})])
RESULT = SamplingMessage("user", [ToolResultContent("u", [TextContent("x")])])
HELLO = SamplingMessage("user", TextContent("hi"))


def asking(ask: Any, **options: Any) -> Server:
    """A server with one tool, which asks."""
    server = Server("asks", **options)

    @server.tool
    async def t(ctx: Context) -> Any:
        answer = await ask(ctx)
        return answer if isinstance(answer, InputRequired) else "done"

    return server


def returning(**requests: Any) -> Any:
    """Asks by itself; once it has answers, it is done."""

    async def ask(ctx: Context) -> Any:
        return None if ctx.input_responses else InputRequired(requests)

    return ask


async def reply_of(peer: Bare, revision: str, capabilities: Any = EVERYTHING) -> Any:
    """The first thing that comes of calling the tool: a reply, or the question."""
    if revision == NEW:
        return await peer.ask("tools/call", called("t", capabilities))
    await peer.greet(revision, capabilities)
    peer.send(old_request("tools/call", {"name": "t", "arguments": {}}, 7))
    return await peer.receive()


def refusal(reply: Any) -> str:
    """The words in which a call failed; empty where it did not."""
    failed = reply.get("result", {}).get("isError")
    return str(
        reply["error"]["message"]
        if "error" in reply
        else reply["result"]["content"][0]["text"]
        if failed
        else ""
    )


# the model


@pytest.mark.requirement("sampling-tools-asked")
@pytest.mark.parametrize("revision", [OLDER, OLD, NEW])
async def test_a_conversation_that_speaks_of_tools_is_only_for_who_declared_them(
    revision: str,
) -> None:
    async def ask(ctx: Context) -> Any:
        await ctx.sample([HELLO, USE, RESULT])

    for capabilities in ({"sampling": {}}, {"sampling": {"tools": {}}}):
        async with bare(asking(ask)) as peer:
            refused = refusal(await reply_of(peer, revision, capabilities))
        assert ("sampling/createMessage (tools)" in refused) is (
            revision == OLDER or not capabilities["sampling"]
        )


@ERAS
@pytest.mark.requirement("sampling-tool-balance", "sampling-tool-results", "sampling-roles")
@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize(
    "messages",
    [[HELLO, USE], [USE, HELLO], [HELLO, RESULT], [SamplingMessage("user", USE.content)]],
)
async def test_a_conversation_out_of_balance_is_never_sent(
    messages: Any, by_itself: bool, revision: str
) -> None:
    async def ask(ctx: Context) -> Any:
        await ctx.sample(messages)

    asks = returning(k=CreateMessageParams(messages=messages, max_tokens=5)) if by_itself else ask
    async with bare(asking(asks)) as peer:
        assert "The messages cannot be sent" in refusal(await reply_of(peer, revision))


# what was declared


@pytest.mark.parametrize(("revision", "asked"), [(OLDER, True), (OLD, False)])
async def test_where_there_are_no_modes_whoever_can_be_asked_at_all_takes_forms(
    revision: str, asked: bool
) -> None:
    async def ask(ctx: Context) -> Any:
        await ctx.elicit("Who?", str)

    async with bare(asking(ask)) as peer:
        reply = await reply_of(peer, revision, {"elicitation": {"foo": {}}})
    assert (reply.get("method") == "elicitation/create") is asked


# pages


@ERAS
@pytest.mark.requirement("elicitation-url-valid", "elicitation-url-error")
@pytest.mark.parametrize("how", ["context", "by itself", "error"])
@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https:///x",
        "https://exa mple.com/a b",
        "https://h:99999/",
        "HTTPS://example.com",
    ],
)
async def test_a_page_that_no_browser_can_open_is_never_asked_for(
    how: str, url: str, revision: str
) -> None:
    async def ask(ctx: Context) -> Any:
        if how == "error":
            raise UrlRequired("Pay", url=url)
        await ctx.elicit_url("Pay", url)

    asks = (
        returning(k=ElicitParams(message="Pay", mode="url", url=url)) if how == "by itself" else ask
    )
    async with bare(asking(asks)) as peer:
        reply = await reply_of(peer, revision)
    if url == "HTTPS://example.com":
        assert reply.get("method") == "elicitation/create" or "HTTPS://example.com" in str(reply)
        assert "no page" not in str(reply)
    else:
        assert "is not a URL that a browser can open" in refusal(reply)


@pytest.mark.requirement("elicitation-url-error")
async def test_of_the_pages_of_an_error_those_that_are_none_stay_here() -> None:
    async def ask(ctx: Context) -> Any:
        raise UrlRequired(
            "x", pages=[Page("ok", "https://e.com/", "1"), Page("bad", "javascript:alert(1)", "2")]
        )

    async with bare(asking(ask)) as peer:
        reply = await reply_of(peer, OLD)
    assert [page["url"] for page in reply["error"]["data"]["elicitations"]] == ["https://e.com/"]


@pytest.mark.requirement("elicitation-complete")
async def test_that_a_page_is_done_with_is_told_to_who_was_sent_there_whoever_says_it() -> None:
    server, ours, theirs = Server("s"), Tape(), Tape()

    @server.tool
    async def pay(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", "https://e.com/", id="mine")).action

    @server.tool
    async def done(ctx: Context) -> None:
        ctx.elicitation_complete("mine")

    options: dict[str, Any] = {"revision": OLD, "on_elicit": lambda request: True}
    async with (
        pair(server, record=ours, **options) as client,
        pair(server, record=theirs, **options) as other,
    ):
        await client.call_tool("pay")
        await other.call_tool("done")
        await client.ping()
    assert ours.methods("server").count("notifications/elicitation/complete") == 1
    assert "notifications/elicitation/complete" not in theirs.methods("server")


# forms


@ERAS
@pytest.mark.requirement("elicitation-form-schema", "elicitation-no-secrets")
@pytest.mark.parametrize(
    ("message", "schema"),
    [
        ("m", {"type": "object", "properties": {"password": {"type": "string"}}}),
        ("m", {"type": "object", "properties": {"x": {"type": "object"}}}),
        ("m", {"type": "array"}),
        (
            "Enter your GitHub password",
            {"type": "object", "properties": {"value": {"type": "string"}}},
        ),
    ],
)
async def test_a_form_that_a_handler_gives_by_itself_is_held_to_the_rules(
    message: str, schema: Any, revision: str
) -> None:
    async with bare(
        asking(returning(k=ElicitParams(message=message, requested_schema=schema)))
    ) as peer:
        reply = await reply_of(peer, revision)
    assert "cannot ask the question 'k'" in refusal(reply)


@pytest.mark.requirement("elicitation-no-secrets")
async def test_a_bare_field_is_known_by_the_message_it_comes_with() -> None:
    async def ask(ctx: Context) -> Any:
        await ctx.elicit("Enter your GitHub password", str)

    async with bare(asking(ask)) as peer:
        assert "A form must not ask for secrets" in refusal(await reply_of(peer, OLD))


@ERAS
@pytest.mark.requirement("elicitation-answer-checked")
@pytest.mark.parametrize(
    "answer", [{"bogus": [1]}, {"action": "accept", "content": {"name": 3}}, {"action": "accept"}]
)
async def test_an_answer_that_does_not_fit_never_reaches_a_handler_that_asks_by_itself(
    answer: Any, revision: str
) -> None:
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    async with bare(
        asking(returning(k=ElicitParams(message="Who?", requested_schema=form)))
    ) as peer:
        first = await reply_of(peer, revision)
        if revision == NEW:
            state = first["result"]["requestState"]
            reply = await peer.ask(
                "tools/call", called("t", requestState=state, inputResponses={"k": answer})
            )
            assert reply["error"]["code"] == -32602
            fits = {"k": {"action": "accept", "content": {"name": "Ann"}}}
            reply = await peer.ask(
                "tools/call", called("t", requestState=state, inputResponses=fits)
            )
            assert reply["result"]["content"][0]["text"] == "done"
        else:
            peer.send({"jsonrpc": "2.0", "id": first["id"], "result": answer})
            assert refusal(await peer.receive())


# how often, and how long


@ERAS
async def test_a_handler_that_never_stops_asking_is_stopped_in_either_era(revision: str) -> None:
    async def ask(ctx: Context) -> Any:
        for number in range(50):
            await asyncio.gather(*(ctx.elicit(f"{number} {letter}?", bool) for letter in "ab"))

    asked: list[Any] = []
    server = asking(ask, limits=Limits(asks=3))
    async with pair(
        server,
        revision=revision,
        on_elicit=lambda request: asked.append(request) or {"value": True},
    ) as client:
        with pytest.raises((ProtocolError, ToolError), match="3 times in a row"):
            await client.call_tool("t")
    assert len(asked) == 6, "what is asked at once counts once"


async def test_an_answer_that_never_comes_is_not_waited_for_longer_than_it_may_take() -> None:
    async def ask(ctx: Context) -> Any:
        await ctx.elicit("Who?", str)

    async with bare(asking(ask, limits=Limits(ask_time=0.05))) as peer:
        asked = await reply_of(peer, OLD)
        withdrawn = await peer.receive()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (
            "notifications/cancelled",
            asked["id"],
        )
        assert "did not answer elicitation/create within 0.05 s" in refusal(await peer.receive())


@pytest.mark.requirement("rounds-not-assumed")
async def test_over_http_a_client_that_went_while_it_was_asked_takes_the_call_along() -> None:
    ended = asyncio.Event()

    async def ask(ctx: Context) -> Any:
        try:
            await ctx.elicit("Who?", str)
        finally:
            ended.set()

    async with hosted(asking(ask, limits=Limits(event_life=0.1))) as site:
        stream = await (await _greeted(site, EVERYTHING)).call("t")
        while not (await stream.next()).data:
            pass
        stream.cut()
        await ended.wait()


async def test_when_one_question_comes_to_nothing_the_others_are_taken_back() -> None:
    form = {"type": "object", "properties": {}}
    asks = returning(**{key: ElicitParams(message=key, requested_schema=form) for key in "ab"})
    async with bare(asking(asks)) as peer:
        first, second = await reply_of(peer, OLD), await peer.receive()
        peer.send({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -1, "message": "no"}})
        withdrawn = await peer.receive()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (
            "notifications/cancelled",
            second["id"],
        )
        assert "The client rejected elicitation/create: no" in refusal(await peer.receive())


async def test_a_client_that_leaves_while_it_is_asked_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(ctx: Context) -> Any:
        await ctx.elicit("Who?", str)

    with caplog.at_level(logging.INFO, "dovetail"):
        async with bare(asking(ask)) as peer:
            await reply_of(peer, OLD)
    assert [
        record for record in caplog.records if record.exc_info or record.levelno > logging.INFO
    ] == []


# asking by oneself


@pytest.mark.requirement("rounds-where")
@ERAS
@pytest.mark.parametrize("asked", [InputRequired(state="x"), InputRequired({"k": None})])
async def test_what_may_not_ask_cannot_do_so_by_itself_either(
    asked: InputRequired, revision: str
) -> None:
    async def middleware(call: Any, answer: Any) -> Any:
        return asked if call.name == "tools/list" else await answer(call)

    async with bare(Server("s", middleware=[middleware])) as peer:
        if revision != NEW:
            await peer.greet(revision, EVERYTHING)
        reply = await peer.ask("tools/list", modern() if revision == NEW else {})
    assert reply["error"]["code"] == InternalError.code
    assert "is not allowed to ask its client for input" in reply["error"]["message"]


@ERAS
async def test_neither_a_question_nor_a_state_is_an_error_in_either_era(revision: str) -> None:
    async with bare(asking(returning())) as peer:
        assert "without any questions or state" in refusal(await reply_of(peer, revision))


async def test_a_handler_that_only_wants_to_be_called_again_is_not_called_at_once() -> None:
    times: list[float] = []

    async def ask(ctx: Context) -> Any:
        times.append(asyncio.get_running_loop().time())
        return InputRequired(state="later") if len(times) < 4 else None

    async with bare(asking(ask)) as peer:
        await reply_of(peer, OLD)
    assert times[-1] - times[0] > 0.3


@pytest.mark.parametrize("context", [True, False])
async def test_a_state_that_is_too_long_is_an_error_and_no_crash(context: bool) -> None:
    server = Server("s")

    async def alone() -> Any:
        return InputRequired(state="x" * 300_000)

    async def with_context(ctx: Context) -> Any:
        return InputRequired(state="x" * 300_000)

    server.add_tool(with_context if context else alone, name="t")
    async with bare(server) as peer:
        assert "the limit is" in refusal(await reply_of(peer, NEW))


# what middleware changes on the way


async def _other_arguments(call: Any, answer: Any) -> Any:
    if call.name == "tools/call":
        call.params.arguments = Raw(b'{"a": 1}')
    return await answer(call)


async def _other_user(call: Any, answer: Any) -> Any:
    call.caller.principal = Principal("ann")
    return await answer(call)


@pytest.mark.requirement("rounds-state-principal", "rounds-state-request")
@pytest.mark.parametrize("middleware", [_other_arguments, _other_user])
@pytest.mark.parametrize("how", ["context", "by itself", "error"])
async def test_a_retry_is_known_by_what_came_and_not_by_what_middleware_made_of_it(
    middleware: Any, how: str
) -> None:
    server, visited = Server("s", middleware=[middleware]), []

    @server.tool
    async def t(ctx: Context, a: int = 0) -> Any:
        if how == "error" and not visited:
            raise UrlRequired("Pay", url="https://example.com/")
        if how == "by itself" and not ctx.input_responses:
            return InputRequired({"k": ElicitParams(message="Sure?")})
        return (
            "done"
            if how != "context"
            else f"done{(await ctx.elicit('Sure?', bool)).data or ''}"[:4]
        )

    def on_elicit(request: Any) -> Any:
        visited.append(request)
        return {"value": True} if how == "context" else True

    async with pair(server, revision=NEW, on_elicit=on_elicit) as client:
        assert (await client.call_tool("t")).data == "done"
