"""The matrix: everything that a gateway relays, from each kind of server to each kind of caller.

Every test runs for every pair of a server and a caller. `make test` takes callers of the oldest,
the newest and the same revision, over one transport; `make matrix` takes all of them. Where one of
the two revisions does not define what a test needs, the test asserts that it is refused with a
clear reason, and that nobody is asked.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from dovetail.client.task_handle import TaskHandle
from dovetail.errors import InvalidParams, NotFound, ProtocolError
from tests.behaviour.conftest import REVISIONS
from tests.gateway.recording_server import NEW
from tests.gateway.stage import SECRETS, Pair, Person, Stage, Upstream, for_each_pair

UPSTREAMS = [
    Upstream("stdio", "2024-11-05"),
    Upstream("stdio", "2025-11-25"),
    Upstream("stdio", "2026-07-28"),
    Upstream("http", "2025-03-26"),
    Upstream("http", "2025-11-25"),
    Upstream("http", "2026-07-28"),
    Upstream("sse", "2024-11-05"),
]
CALLERS = [
    Upstream(kind, revision)
    for kind in ("memory", "http")
    for revision in REVISIONS
    if "MATRIX" in os.environ or (kind == "http") == (revision in REVISIONS[-2:])
]
PAIRS = [
    *(
        (upstream, caller)
        for upstream in UPSTREAMS
        for caller in CALLERS
        if "MATRIX" in os.environ
        or caller.revision in (REVISIONS[0], upstream.revision, REVISIONS[-1])
    ),
    (Upstream("http", "2025-11-25"), Upstream("sse", "2024-11-05")),
    (Upstream("http", "2025-11-25"), Upstream("websocket", "2025-11-25")),
    (Upstream("http", "2026-07-28"), Upstream("websocket", "2026-07-28")),
    (Upstream("websocket", "2025-11-25"), Upstream("http", "2025-11-25")),
    (Upstream("websocket", "2026-07-28"), Upstream("http", "2026-07-28")),
]
PAIRS.sort(key=lambda pair: pair[0])  # so that each server is started once
split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Upstream], Stage]]:
    """Returns the stage with a server. The one before it is closed."""
    current: list[Stage] = []

    def choose(upstream: Upstream) -> Stage:
        if current and current[0].upstream != upstream:
            current.pop().__exit__()
        if not current:
            # Callers of the stateless era share connections, so that requests can be counted.
            entry = {"dovetail": {"stateful": False}}
            folder = tmp_path_factory.mktemp("stage")
            current.append(Stage(upstream, folder, entry=entry).__enter__())
        return current[0]

    yield choose
    for stage in current:
        stage.__exit__()


@pytest.fixture(
    scope="module", params=PAIRS, ids=lambda pair: f"{' '.join(pair[0])} to {' '.join(pair[1])}"
)
def pair(stages: Callable[[Upstream], Stage], request: pytest.FixtureRequest) -> Iterator[Pair]:
    upstream, caller = request.param
    with Pair(stages(upstream), caller) as pair:
        yield pair


@for_each_pair
async def test_a_call_is_one_request_to_the_server(pair: Pair) -> None:
    for expected in (3, 4):
        assert (await pair.ada.call("add", a=1, b=expected - 1)).text == str(expected)
    assert pair.records.requests() == ["tools/call", "tools/call"]
    over_http = pair.upstream.transport in ("http", "sse")
    assert pair.records.events() == (["POST", "POST"] if over_http else [])


@for_each_pair
async def test_reads_prompts_and_completions_are_one_request_each(pair: Pair) -> None:
    client = pair.ada.client
    assert [one.text for one in await client.read_resource("note://one", fresh=True)] == ["text"]
    prompt = await client.get_prompt("up__hello", {"name": "Ada"})
    assert prompt.messages[0].content.text == "hello Ada"  # type: ignore[union-attr]
    found = await client.complete(prompt="up__hello", argument="name", value="Al")
    assert list(found.values) == ["Alan"]
    assert pair.records.requests() == ["resources/read", "prompts/get", "completion/complete"]


@for_each_pair
async def test_lists_come_from_the_gateway(pair: Pair) -> None:
    assert "up__add" in [tool.name for tool in await pair.ada.client.list_tools(fresh=True)]
    assert [one.name for one in await pair.ada.client.list_prompts(fresh=True)] == ["up__hello"]
    assert pair.records.requests() == []


@for_each_pair
async def test_a_structured_result_passes(pair: Pair) -> None:
    result = await pair.ada.call("point", x=1, y=2)
    assert msgspec.json.decode(result.text) == {"x": 1, "y": 2}
    expected = {"x": 1, "y": 2} if pair.both_have("2025-06-18") else None
    assert result.structured_content == expected


@for_each_pair
async def test_errors_pass_with_their_codes(pair: Pair) -> None:
    failed = await pair.ada.call("fail", kind="tool")
    assert (failed.is_error, failed.text) == (True, "as it is")
    with pytest.raises(ProtocolError) as refused:
        await pair.ada.call("fail", kind="protocol")
    assert (refused.value.code, refused.value.message) == (1234, "closed on Sundays")
    assert refused.value.data == {"open": "Monday"}
    with pytest.raises(InvalidParams, match="Unknown tool: up__nothing"):
        await pair.ada.call("nothing")
    for uri in ("item://7", "nothing://"):  # by the server, and by the gateway
        with pytest.raises(NotFound) as missing:
            await pair.ada.client.read_resource(uri)
        assert missing.value.code == (-32602 if pair.caller.is_stateless else -32002)
    assert pair.records.requests() == ["tools/call", "tools/call", "resources/read"]


@for_each_pair
async def test_unknown_fields_and_large_numbers_pass_unchanged(pair: Pair) -> None:
    params = {
        "name": "up__raw",
        "arguments": {"n": 2**53 + 1, "x-new": NEW},
        "x-new": NEW,
        "_meta": {"example.com/new": NEW},
    }
    result = split(await pair.ada.client.relay("tools/call", params))
    assert bytes(result["x-new"]) == bytes(NEW)
    assert b'"x-new":%b' % bytes(NEW) in bytes(result["content"])
    if pair.both_have("2025-06-18"):
        assert bytes(result["structuredContent"]) == bytes(NEW)
    received = pair.records.raw()
    assert b'"n":9007199254740993,"x-new":%b' % bytes(NEW) in received
    assert b'"example.com/new":%b' % bytes(NEW) in received
    assert received.count(bytes(NEW)) == 3


@for_each_pair
async def test_progress_passes(pair: Pair) -> None:
    updates: list[Any] = []
    result = await pair.ada.client.call_tool(
        "up__steps", {"count": 3}, on_progress=lambda update: updates.append(update)
    )
    assert result.text == "done"
    assert [(one.progress, one.total) for one in updates] == [(1, 3), (2, 3), (3, 3)]
    if pair.both_have("2025-03-26"):
        assert updates[-1].message == "step 3"


@for_each_pair
async def test_logs_pass_to_the_caller_who_wants_them(pair: Pair) -> None:
    async def talk(*expected: str) -> None:
        pair.ada.logs.clear()
        assert (await pair.ada.call("talk")).text == "said"
        await until(lambda: len(pair.ada.logs) >= len(expected))
        assert pair.ada.logs == [(level, f"a {level}") for level in expected]

    await talk("debug", "info", "error")
    await pair.ada.client.set_log_level("error")
    try:
        await talk("error")
    finally:
        await pair.ada.client.set_log_level("debug")
    assert pair.bob.logs == []


@for_each_pair
async def test_cancelling_a_call_cancels_it_at_the_server(pair: Pair) -> None:
    call = asyncio.ensure_future(pair.ada.call("wait"))
    await pair.records.event("waiting")
    call.cancel()
    await pair.records.event("cancelled")
    assert (await pair.ada.call("add", a=1, b=1)).text == "2"


@for_each_pair
async def test_a_changed_list_is_announced_and_read_once(pair: Pair) -> None:
    changed: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]
    before = {tool.name for tool in await pair.ada.client.list_tools(fresh=True)}
    async with (
        pair.ada.client.on_change("tools", lambda _: changed[0].set()),
        pair.bob.client.on_change("tools", lambda _: changed[1].set()),
    ):
        pair.records.start()
        send_signal(pair, signal.SIGUSR1)
        await asyncio.gather(*(one.wait() for one in changed))
        after = {tool.name for tool in await pair.ada.client.list_tools(fresh=True)}
    assert len(after - before) == 1
    assert pair.records.requests().count("tools/list") == 1


@for_each_pair
async def test_callers_share_one_subscription_at_the_server(pair: Pair) -> None:
    updated: list[asyncio.Queue[str]] = [asyncio.Queue(), asyncio.Queue()]
    opening = "subscriptions/listen" if pair.upstream.is_stateless else "resources/subscribe"
    async with await pair.ada.client.subscribe("note://one", updated[0].put_nowait):
        async with await pair.bob.client.subscribe("note://one", updated[1].put_nowait):
            await pair.records.until(lambda records: opening in records.requests())
            await settle(pair)
            send_signal(pair, signal.SIGUSR2)
            assert [await one.get() for one in updated] == ["note://one", "note://one"]
            assert pair.records.requests().count(opening) == 1
    if not pair.upstream.is_stateless:
        await pair.records.until(lambda records: "resources/unsubscribe" in records.requests())
    assert [one.qsize() for one in updated] == [0, 0]


@for_each_pair
async def test_a_form_passes_to_the_caller(pair: Pair) -> None:
    result = await outcome(pair, "order")
    if pair.both_have("2025-06-18"):
        assert result == "ordered the size of ada"
        assert [one.message for one in pair.ada.asked] == ["Which size?"]
    else:
        assert_refused(pair, result)


@for_each_pair
async def test_a_url_passes_to_the_caller(pair: Pair) -> None:
    result = await outcome(pair, "visit")
    if pair.both_have("2025-11-25"):
        assert result == "accept"
        assert pair.ada.asked[0].url.startswith("https://example.com/sign-in")
    else:
        assert_refused(pair, result)


@for_each_pair
async def test_a_question_to_the_model_passes_to_the_caller(pair: Pair) -> None:
    assert await outcome(pair, "ask_model", text="Who?") == "the model says hello ada"
    assert len(pair.ada.asked) == 1


@for_each_pair
async def test_the_server_sees_the_roots_of_the_caller(pair: Pair) -> None:
    assert await outcome(pair, "show_roots") == "file:///ada"


@for_each_pair
async def test_two_callers_who_are_asked_at_once_answer_their_own_call(pair: Pair) -> None:
    together = asyncio.Barrier(2)
    pair.ada.before_answer = pair.bob.before_answer = together.wait
    results = await asyncio.gather(
        pair.ada.call("ask_model", text="one"), pair.bob.call("ask_model", text="two")
    )
    assert [one.text for one in results] == [
        "the model says hello ada",
        "the model says hello bob",
    ]
    assert [len(pair.ada.asked), len(pair.bob.asked)] == [1, 1]


@for_each_pair
async def test_a_question_that_was_answered_does_not_repeat_the_call(pair: Pair) -> None:
    await outcome(pair, "ask_model", text="Who?")
    calls = pair.records.messages("tools/call")
    if pair.upstream.is_stateless:  # the second request has the answer
        assert ["inputResponses" in one["params"] for one in calls] == [False, True]
    else:
        assert len(calls) == 1


@for_each_pair
async def test_callers_see_the_instructions_of_the_server(pair: Pair) -> None:
    assert pair.ada.client.instructions == "Use it with care."


@for_each_pair
async def test_no_header_of_a_caller_reaches_the_server(pair: Pair) -> None:
    await pair.ada.call("add", a=1, b=1)
    if pair.caller.transport != "memory":
        kind = "websocket" if pair.caller.transport == "websocket" else "POST"
        sent = pair.stage.caller_headers[kind][-1]
        assert {name.lower(): sent.get(name.lower()) for name in SECRETS} == {
            name.lower(): value for name, value in SECRETS.items()
        }
    headers = pair.records.headers()
    assert bool(headers) == (pair.upstream.transport != "stdio")
    for one in headers:
        assert "secret" not in str(one)
        assert not {"authorization", "cookie", "x-api-key", "x-tenant"} & set(one)


@for_each_pair
async def test_a_task_returns_the_result_of_its_tool(pair: Pair) -> None:
    task = await start_task(pair, "work", text="done")
    assert (await task.result()).text == "done"
    assert task.update.status == "completed"
    failed = await start_task(pair, "work", text="broken", fail=True)
    result = await failed.result(raise_on_error=False)
    assert (result.is_error, result.text) == (True, "broken")
    assert len(pair.records.messages("tools/call")) == 2


@for_each_pair
async def test_a_task_that_is_cancelled_is_cancelled_at_the_server(pair: Pair) -> None:
    if not pair.has_tasks:
        call = asyncio.ensure_future(pair.ada.client.start_tool("up__work_long"))
        await pair.records.event("waiting")
        call.cancel()
        await pair.records.event("cancelled")
        return
    task = await start_task(pair, "work_long")
    await pair.records.event("waiting")
    assert (await task.status()).status == "working"
    await task.cancel()
    await pair.records.event("cancelled")
    assert (await task.status()).status == "cancelled"


@for_each_pair
async def test_a_task_asks_the_caller_who_started_it(pair: Pair) -> None:
    tasks = [await start_task(pair, "work_asking", person) for person in (pair.ada, pair.bob)]
    results = await asyncio.gather(*(task.result() for task in tasks))
    assert [one.text for one in results] == [
        "the model says hello ada",
        "the model says hello bob",
    ]
    assert [len(pair.ada.asked), len(pair.bob.asked)] == [1, 1]


@for_each_pair
async def test_a_tool_that_runs_only_as_a_task_can_be_called_by_everyone(pair: Pair) -> None:
    if not pair.upstream.has("2025-11-25"):  # the server itself has no tasks
        assert "runs only as a task" in await outcome(pair, "work_alone")
        return
    assert (await pair.ada.call("work_alone")).text == "alone: hello ada"
    assert len(pair.ada.asked) == 1


async def start_task(
    pair: Pair, tool: str, person: Person | None = None, **arguments: Any
) -> TaskHandle:
    """Start a task. Its id is a handle, not the id that the server chose."""
    task = await (person or pair.ada).client.start_tool(f"up__{tool}", arguments)
    assert bool(task.id) == pair.has_tasks
    assert task.id == "" or task.id not in str(pair.records.messages())
    return task


async def outcome(pair: Pair, tool: str, **arguments: Any) -> str:
    """The text of a result or of an error."""
    try:
        result = await pair.ada.call(tool, **arguments)
    except ProtocolError as refusal:
        return str(refusal)
    return result.text  # type: ignore[no-any-return]


def assert_refused(pair: Pair, reason: str) -> None:
    assert "does not define" in reason or "did not declare" in reason
    assert pair.ada.asked == []


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def settle(pair: Pair) -> None:
    """Wait until the gateway's subscription is open at the server."""
    await until(lambda: pair.stage.gateway.subscriptions._open)
    await asyncio.gather(*pair.stage.gateway.subscriptions._open.values())


def send_signal(pair: Pair, number: int) -> None:
    for pid in pair.stage.pids():
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
