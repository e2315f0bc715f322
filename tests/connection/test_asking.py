"""The engine of asking, by itself: handlers that ask, and a client that comes back, or does not."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dovetail import Server, sealing
from dovetail.connection.input_requests import ask, decode_answer, once
from dovetail.connection.multi_round_trip import MultiRoundTrip, SuspendableCall
from dovetail.errors import (
    CannotAsk,
    ConfigError,
    InternalError,
    InvalidParams,
    ProtocolError,
    UrlRequired,
)
from dovetail.limits import Limits
from dovetail.ports import Call, Caller, Principal
from dovetail.protocol.base import Params
from dovetail.protocol.client_features import ElicitParams
from dovetail.protocol.lifecycle import ClientCapabilities, InputRequired, InputRequiredResult
from dovetail.protocol.methods import METHODS
from dovetail.protocol.prompts import GetPromptParams
from dovetail.protocol.resources import ReadResourceParams
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import BY_NAME
from dovetail.sealing import KeyRing, key_ring

KEY = "a key that is long enough"
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
REFUSAL = "The requestState is not valid; send the request again without it"

Handle = Callable[[Call], Awaitable[Any]]


class Scene:
    """An engine, a handler, and the requests that a client sends."""

    def __init__(
        self, handle: Handle, *, keys: str | KeyRing = KEY, replay: bool = False, **limits: Any
    ) -> None:
        if not isinstance(keys, KeyRing):
            pytest.importorskip("cryptography")
        ring = keys if isinstance(keys, KeyRing) else key_ring([keys])
        server = Server("scene", limits=Limits(**limits), resume="replay" if replay else "live")
        self.engine = MultiRoundTrip(server, lambda: ring)
        self.handle = handle
        self.id = 0

    def call(
        self, state: str | None = None, answers: dict[str, Any] | None = None, *, tool: str = "t",
        arguments: Any = None, user: str | None = None, capabilities: Any = ALL,
    ) -> Call:  # fmt: skip
        self.id += 1
        caller = Caller(BY_NAME["2026-07-28"], None, ClientCapabilities.lift(capabilities))
        caller.principal = Principal(user) if user else None
        given = {key: Raw(msgspec.json.encode(answer)) for key, answer in (answers or {}).items()}
        params = CallToolParams(
            name=tool,
            arguments=Raw(msgspec.json.encode(arguments or {})),
            input_responses=given or None,
            request_state=state,
        )
        return Call(self.id, METHODS["tools/call"], params, caller, None)

    async def send(
        self, state: str | None = None, answers: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        return await self.engine.answer(self.call(state, answers, **options), self.handle)

    @property
    def parked(self) -> dict[str, SuspendableCall]:
        return self.engine._suspended


def questions(result: Any) -> list[str]:
    """What is asked, in words; the keys are the same."""
    assert isinstance(result, InputRequiredResult)
    for question in (result.input_requests or {}).values():
        assert question["method"] == "elicitation/create"
    return list(result.input_requests or {})


def yes(text: str = "yes") -> dict[str, Any]:
    return {"action": "accept", "content": {"value": text}}


def put(call: Call, text: str, key: str | None = "") -> Awaitable[Raw]:
    """A question whose key is its text, unless the test wants another."""
    form = {"type": "object", "properties": {"value": {"type": "string"}}}
    return ask(
        call,
        "elicitation/create",
        ElicitParams(message=text, requested_schema=form),
        text if key == "" else key,
    )


async def said(call: Call, text: str) -> str:
    value: str = msgspec.json.decode(await put(call, text))["content"]["value"]
    return value


async def two(call: Call) -> str:
    return f"{await said(call, 'one')} {await said(call, 'two')}"


@pytest.fixture(params=[False, True], ids=["live", "replay"])
def replay(request: pytest.FixtureRequest) -> bool:
    return request.param


# rounds


@pytest.mark.requirement("rounds-content", "rounds-unique-keys")
async def test_a_question_is_a_reply_and_its_answer_comes_with_the_next_request(
    replay: bool,
) -> None:
    scene = Scene(two, replay=replay)
    first = await scene.send()
    assert questions(first) == ["one"]
    assert first.request_state
    second = await scene.send(first.request_state, {"one": yes("1")})
    assert questions(second) == ["two"]
    assert await scene.send(second.request_state, {"two": yes("2")}) == "1 2"
    assert not scene.parked


async def test_questions_of_one_turn_of_the_loop_go_out_together(replay: bool) -> None:
    async def handle(call: Call) -> Any:
        return await asyncio.gather(*(said(call, text) for text in "abc"))

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    assert questions(first) == ["a", "b", "c"]
    assert await scene.send(first.request_state, {text: yes(text) for text in "cab"}) == [
        "a",
        "b",
        "c",
    ]


@pytest.mark.requirement("rounds-missing")
async def test_what_is_missing_is_asked_again_and_nothing_else(replay: bool) -> None:
    async def handle(call: Call) -> Any:
        return await asyncio.gather(*(said(call, text) for text in "abc"))

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    second = await scene.send(first.request_state, {"b": yes("B")})
    assert questions(second) == ["a", "c"]
    third = await scene.send(second.request_state)
    assert questions(third) == ["a", "c"]
    assert await scene.send(third.request_state, {"a": yes("A"), "c": yes("C")}) == ["A", "B", "C"]


async def test_a_null_is_no_answer(replay: bool) -> None:
    scene = Scene(two, replay=replay)
    first = await scene.send()
    assert questions(await scene.send(first.request_state, {"one": None})) == ["one"]


@pytest.mark.requirement("rounds-extra")
async def test_answers_to_what_was_not_asked_are_ignored(replay: bool) -> None:
    scene = Scene(two, replay=replay)
    first = await scene.send()
    second = await scene.send(
        first.request_state, {"one": yes("1"), "two": yes("forged"), "three": 3}
    )
    assert questions(second) == ["two"], "it was not asked yet"
    assert await scene.send(second.request_state, {"two": yes("2"), "one": yes("forged")}) == "1 2"


async def test_answers_without_a_state_are_those_of_a_first_round(replay: bool) -> None:
    scene = Scene(two, replay=replay)
    second = await scene.send(None, {"one": yes("1"), "unheard of": 3})
    assert questions(second) == ["two"]
    assert await scene.send(second.request_state, {"two": yes("2")}) == "1 2"


async def test_without_keys_a_question_is_known_by_what_it_asks(replay: bool) -> None:
    async def handle(call: Call) -> Any:
        same = [
            await put(call, "same", None),
            await put(call, "same", None),
            await put(call, "other", None),
        ]
        return [msgspec.json.decode(answer)["content"]["value"] for answer in same]

    scene = Scene(handle, replay=replay)
    result: Any = await scene.send()
    keys = []
    for answer in "123":
        [key] = questions(result)
        keys.append(key)
        result = await scene.send(result.request_state, {key: yes(answer)})
    assert result == ["1", "2", "3"]
    assert keys[1] == f"{keys[0]}.2"
    assert keys[2] not in keys[:2]


async def test_the_order_of_concurrent_questions_does_not_matter() -> None:
    order = ["a", "b", "c"]

    async def handle(call: Call) -> Any:
        answers = await asyncio.gather(*(put(call, text, None) for text in order))
        found = dict(
            zip(
                order,
                (msgspec.json.decode(answer)["content"]["value"] for answer in answers),
                strict=True,
            )
        )
        return [found[text] for text in "abc"] + [await said(call, "last")]

    scene = Scene(handle, replay=True)
    first = await scene.send()
    answers = {
        key: yes(question["params"].message.upper())
        for key, question in first.input_requests.items()
    }
    order.reverse()
    second = await scene.send(first.request_state, answers)
    order[:] = ["b", "c", "a"]
    assert await scene.send(second.request_state, {"last": yes("!")}) == ["A", "B", "C", "!"]


async def test_what_is_asked_while_the_run_waits_goes_into_the_next_round() -> None:
    later = asyncio.Event()

    async def second(call: Call) -> str:
        await later.wait()
        return await said(call, "later")

    async def handle(call: Call) -> Any:
        return await asyncio.gather(said(call, "now"), second(call))

    scene = Scene(handle)
    first = await scene.send()
    assert questions(first) == ["now"]
    later.set()
    await asyncio.sleep(0)
    result = await scene.send(first.request_state, {"now": yes("1")})
    assert questions(result) == ["later"]
    assert await scene.send(result.request_state, {"later": yes("2")}) == ["1", "2"]


async def test_the_same_key_twice_at_once_is_kept_apart(replay: bool) -> None:
    async def handle(call: Call) -> Any:
        answers = await asyncio.gather(put(call, "who?", "name"), put(call, "and who?", "name"))
        return [msgspec.json.decode(answer)["content"]["value"] for answer in answers]

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    assert questions(first) == ["name", "name.2"]
    assert await scene.send(first.request_state, {"name": yes("A"), "name.2": yes("B")}) == [
        "A",
        "B",
    ]


@pytest.mark.requirement("sampling-loops")
async def test_a_handler_that_never_stops_asking_is_stopped(replay: bool) -> None:
    async def handle(call: Call) -> Any:
        for number in range(1000):
            await said(call, str(number))

    scene = Scene(handle, replay=replay, asks=3)
    result = await scene.send()
    for number in range(2):
        result = await scene.send(result.request_state, {str(number): yes()})
    with pytest.raises(InternalError, match="3 times in a row"):
        await scene.send(result.request_state, {"2": yes()})
    assert not scene.parked


async def test_a_journal_has_a_size_that_it_does_not_grow_over(replay: bool) -> None:
    scene = Scene(two, replay=replay, journal=1000)
    first = await scene.send()
    with pytest.raises(InternalError, match="the limit is 1000"):
        await scene.send(first.request_state, {"one": yes("x" * 1000)})
    assert not scene.parked


async def test_a_wrong_shape_is_refused_and_the_next_answer_goes_on(replay: bool) -> None:
    done: list[int] = []

    async def handle(call: Call) -> Any:
        await once(call, "charge", lambda: done.append(1))
        return decode_answer(await put(call, "one"), "elicitation/create").action

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    for wrong in ({"action": "perhaps"}, [], 3, "yes"):
        with pytest.raises(InvalidParams, match="elicitation/create"):
            await scene.send(first.request_state, {"one": wrong})
    assert await scene.send(first.request_state, {"one": yes()}) == "accept"
    assert done == [1]


# the state


async def refused(
    scene: Scene, caplog: pytest.LogCaptureFixture, *args: Any, **options: Any
) -> str:
    """The one error that a client gets, and the reason that only the log has."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "dovetail"), pytest.raises(ProtocolError) as refusal:
        await scene.send(*args, **options)
    assert (type(refusal.value), refusal.value.code, refusal.value.message) == (
        InvalidParams,
        -32602,
        REFUSAL,
    )
    assert refusal.value.data == {"parameter": "requestState", "error": str(refusal.value)}
    [record] = caplog.records
    return record.getMessage()


@pytest.mark.requirement("rounds-state-protected")
async def test_a_state_that_was_changed_is_refused(
    caplog: pytest.LogCaptureFixture, replay: bool
) -> None:
    scene = Scene(two, replay=replay)
    state = (await scene.send()).request_state
    changed = [
        state[:20] + ("A" if state[20] != "A" else "B") + state[21:],
        state[:-4],
        state + "AAAA",
        "",
        "x",
        state[::-1],
    ]
    changed += [state + "=", " " + state, "\N{SNOWMAN}" * 40]
    for other in changed:
        assert "not created by this server or has been modified" in await refused(
            scene, caplog, other, {"one": yes("1")}
        )
    assert questions(await scene.send(state, {"one": yes("1")})) == ["two"], (
        "the run has not suffered"
    )


@pytest.mark.requirement("rounds-state-protected")
async def test_a_token_of_another_purpose_or_key_is_no_state(
    caplog: pytest.LogCaptureFixture, replay: bool
) -> None:
    scene, other = Scene(two, replay=replay), Scene(two, keys="another key that is long enough")
    state = (await other.send()).request_state
    assert "not created by this server" in await refused(scene, caplog, state)
    assert "not created by this server" in await refused(
        scene, caplog, key_ring([KEY]).seal("session", b"something")
    )
    assert "not created by this server" in await refused(
        scene, caplog, key_ring([KEY]).seal("state", b"no journal")
    )


@pytest.mark.requirement("rounds-state-expires")
async def test_a_state_lives_for_a_while_only(
    caplog: pytest.LogCaptureFixture, replay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(two, replay=replay, state_life=600)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("1")})
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    for state in (first.request_state, second.request_state):
        assert "expired" in await refused(scene, caplog, state)


@pytest.mark.requirement("rounds-state-principal", "elicitation-bound")
async def test_a_state_belongs_to_whoever_got_it(
    caplog: pytest.LogCaptureFixture, replay: bool
) -> None:
    scene = Scene(two, replay=replay)
    state = (await scene.send(user="ann")).request_state
    for user in ("bob", None):
        assert "another caller" in await refused(scene, caplog, state, {"one": yes("1")}, user=user)
    nobodys = (await scene.send()).request_state
    assert "another caller" in await refused(scene, caplog, nobodys, {"one": yes("1")}, user="ann")
    assert questions(await scene.send(state, {"one": yes("1")}, user="ann")) == ["two"]


@pytest.mark.requirement("rounds-state-request")
async def test_a_state_belongs_to_one_request(
    caplog: pytest.LogCaptureFixture, replay: bool
) -> None:
    scene = Scene(two, replay=replay)
    state = (await scene.send(arguments={"a": 1, "b": {"c": 2, "d": 3}})).request_state
    others: list[dict[str, Any]] = [
        {"tool": "u", "arguments": {"a": 1, "b": {"c": 2, "d": 3}}},
        {},
        {"arguments": {"a": 1}},
    ]
    for other in others:
        assert "another request" in await refused(scene, caplog, state, {"one": yes("1")}, **other)
    same = {"b": {"d": 3, "c": 2}, "a": 1}
    assert questions(await scene.send(state, {"one": yes("1")}, arguments=same)) == ["two"], (
        "the order is nobody's business"
    )


async def test_a_state_of_a_prompt_does_not_open_a_resource_of_that_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(two)
    call = scene.call()
    prompt = Call(1, METHODS["prompts/get"], GetPromptParams(name="x:y"), call.caller, None)
    state = (await scene.engine.answer(prompt, two)).request_state
    read = Call(
        2,
        METHODS["resources/read"],
        ReadResourceParams(uri="x:y", request_state=state),
        call.caller,
        None,
    )
    with pytest.raises(InvalidParams, match="requestState"):
        await scene.engine.answer(read, two)


@pytest.mark.requirement("rounds-state-protected")
async def test_nothing_of_the_answers_can_be_read_in_a_state() -> None:
    scene = Scene(two)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("very private")})
    raw = sealing._from_text(second.request_state)
    assert b"private" not in raw
    assert b"one" not in raw


@pytest.mark.requirement("rounds-not-assumed")
async def test_a_state_sent_twice_gives_an_equal_answer_and_repeats_no_side_effect(
    replay: bool,
) -> None:
    done: list[str] = []

    async def handle(call: Call) -> Any:
        first = await said(call, "one")
        number = await once(call, "charge", lambda: done.append("charge") or len(done))
        return [first, number, await said(call, "two")]

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("1")})
    again = await scene.send(second.request_state)  # an honest retry that lost its answers
    assert questions(second) == questions(again) == ["two"]
    for state in (second.request_state, again.request_state, second.request_state):
        assert await scene.send(state, {"two": yes("2")}) == ["1", 1, "2"]
    assert done == ["charge"]


async def test_two_that_come_back_at_the_same_moment_get_the_same_answer() -> None:
    done: list[str] = []

    async def handle(call: Call) -> Any:
        number = await once(call, "charge", lambda: done.append("charge") or len(done))
        one = await said(call, "one")
        await asyncio.sleep(0.01)
        return [number, one]

    scene = Scene(handle)
    state = (await scene.send()).request_state
    assert (
        await asyncio.gather(*(scene.send(state, {"one": yes("1")}) for _ in range(5)))
        == [[1, "1"]] * 5
    )
    assert done == ["charge"]


async def test_another_process_with_the_same_key_goes_on_where_the_first_one_stood() -> None:
    done: list[str] = []

    async def handle(call: Call) -> Any:
        await once(call, "charge", lambda: done.append("charge"))
        return await two(call)

    one, other = Scene(handle), Scene(handle)
    first = await one.send()
    second = await other.send(first.request_state, {"one": yes("1")})
    assert await one.send(second.request_state, {"two": yes("2")}) == "1 2"
    assert done == ["charge"]


# once


async def test_what_is_done_once_may_be_awaited_and_its_outcome_is_kept_as_json(
    replay: bool,
) -> None:
    done: list[str] = []

    async def work() -> Any:
        await asyncio.sleep(0)
        done.append("async")
        return {"numbers": (1, 2)}

    class Waits:
        def __await__(self) -> Any:
            return work().__await__()

    async def handle(call: Call) -> Any:
        found = [
            await once(call, "a", work),
            await once(call, "b", Waits),
            await once(call, "c", lambda: None),
        ]
        await said(call, "one")
        return [*found, await once(call, "a", work)]

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    same = {"numbers": [1, 2]}
    assert await scene.send(first.request_state, {"one": yes()}) == [same, same, None, same]
    assert done == ["async", "async"]


async def test_what_fails_is_not_done_and_is_tried_again(replay: bool) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "done"

    async def handle(call: Call) -> Any:
        try:
            await once(call, "flaky", flaky)
        except ValueError:
            await said(call, "again?")
        return await once(call, "flaky", flaky)

    scene = Scene(handle)
    first = await scene.send()
    assert await scene.send(first.request_state, {"again?": yes()}) == "done"
    assert len(tries) == 2


async def test_the_same_thing_twice_at_once_is_done_once() -> None:
    done: list[int] = []

    async def work() -> int:
        done.append(1)
        await asyncio.sleep(0)
        return len(done)

    async def handle(call: Call) -> Any:
        return await asyncio.gather(once(call, "a", work), once(call, "a", work))

    assert await Scene(handle).send() == [1, 1]


async def test_what_is_being_done_once_is_in_the_state_of_a_question_asked_meanwhile(
    replay: bool,
) -> None:
    done: list[int] = []

    async def slow() -> int:
        await asyncio.sleep(0.01)
        done.append(1)
        return len(done)

    async def handle(call: Call) -> Any:
        return await asyncio.gather(once(call, "charge", slow), said(call, "one"))

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    await asyncio.sleep(0.02)
    scene.engine.close()
    assert await scene.send(first.request_state, {"one": yes("1")}) == [1, "1"]
    assert done == [1]


async def test_what_is_done_once_may_not_ask() -> None:
    async def handle(call: Call) -> Any:
        with pytest.raises(ConfigError, match="ask them before"):
            await once(call, "work", lambda: said(call, "inside"))
        return await said(call, "after")

    scene = Scene(handle)
    first = await scene.send()
    assert await scene.send(first.request_state, {"after": yes("1")}) == "1"


# divergence


async def test_a_handler_that_no_longer_asks_what_it_asked_fails_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs: list[int] = []

    async def handle(call: Call) -> Any:
        runs.append(1)
        if len(runs) < 3:
            await said(call, "one")
        return await said(call, "two")

    scene = Scene(handle, replay=True)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes()})
    with (
        caplog.at_level(logging.ERROR, "dovetail"),
        pytest.raises(InternalError, match=r"ctx\.once"),
    ):
        await scene.send(second.request_state, {"two": yes()})
    assert "one" in caplog.text


async def test_a_handler_that_asks_something_else_each_time_fails_loudly() -> None:
    runs: list[int] = []

    async def handle(call: Call) -> Any:
        runs.append(1)
        return await said(call, f"it is {len(runs)} o'clock, all right?")

    scene = Scene(handle, replay=True)
    result = await scene.send()
    with pytest.raises(InternalError, match=r"ctx\.once"):
        for _ in range(5):
            [key] = questions(result)
            result = await scene.send(result.request_state, {key: yes()})


async def test_live_nothing_diverges() -> None:
    runs: list[int] = []

    async def handle(call: Call) -> Any:
        runs.append(1)
        return [await said(call, f"{len(runs)}?"), await said(call, f"{len(runs)}!")]

    scene = Scene(handle)
    first = await scene.send()
    second = await scene.send(first.request_state, {"1?": yes("a")})
    assert await scene.send(second.request_state, {"1!": yes("b")}) == ["a", "b"]
    assert runs == [1]


# runs that wait


async def test_ten_thousand_runs_are_bounded_and_the_rest_is_run_again_without_a_wrong_answer() -> (
    None
):
    count, kept = 10_000, 1000
    done: dict[int, int] = {}

    async def handle(call: Call) -> Any:
        number = msgspec.json.decode(call.params.arguments)["n"]

        def charge() -> int:
            done[number] = done.get(number, 0) + 1
            return number

        return [await once(call, "charge", charge), await said(call, "one")]

    scene = Scene(handle, parked=kept)
    before = len(asyncio.all_tasks())
    states = [(await scene.send(arguments={"n": number})).request_state for number in range(count)]
    assert len(scene.parked) == kept
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) - before <= kept
    for number in range(count):
        answer = await scene.send(
            states[number], {"one": yes(str(number))}, arguments={"n": number}
        )
        assert answer == [number, str(number)]
    assert not scene.parked
    assert set(done.values()) == {1}
    assert len(done) == count


async def test_a_run_waits_no_longer_than_it_may() -> None:
    ended = asyncio.Event()

    async def handle(call: Call) -> Any:
        try:
            return await said(call, "one")
        finally:
            if call.cancelled:
                ended.set()

    scene = Scene(handle, parked_time=0.05)
    first = await scene.send()
    assert scene.parked
    await ended.wait()
    assert not scene.parked
    assert await scene.send(first.request_state, {"one": yes("1")}) == "1"


async def test_when_the_server_ends_no_run_is_left() -> None:
    scene = Scene(two)
    for _ in range(3):
        await scene.send()
    tasks = [run.task for run in scene.parked.values()]
    scene.engine.close()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert not scene.parked


async def test_a_request_that_is_cancelled_takes_its_run_along(replay: bool) -> None:
    ended, works = asyncio.Event(), asyncio.Event()

    async def handle(call: Call) -> Any:
        await said(call, "one")
        works.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert call.cancelled
            ended.set()

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    task = asyncio.create_task(scene.send(first.request_state, {"one": yes("1")}))
    await works.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()
    assert not scene.parked


async def test_after_a_cancelled_round_the_same_state_still_works() -> None:
    works = asyncio.Event()

    async def handle(call: Call) -> Any:
        one = await said(call, "one")
        if not works.is_set():
            works.set()
            await asyncio.Event().wait()
        return one

    scene = Scene(handle)
    first = await scene.send()
    task = asyncio.create_task(scene.send(first.request_state, {"one": yes("1")}))
    await works.wait()
    task.cancel()
    await asyncio.wait([task])
    assert await scene.send(first.request_state, {"one": yes("1")}) == "1"


async def test_a_handler_that_gave_up_waiting_is_done_when_its_client_comes_back() -> None:
    gone = asyncio.Event()

    async def handle(call: Call) -> Any:
        try:
            async with asyncio.timeout(0.01):
                return await said(call, "one")
        except TimeoutError:
            gone.set()
            return "too late"

    scene = Scene(handle)
    first = await scene.send()
    await gone.wait()
    assert await scene.send(first.request_state, {"one": yes("1")}) == "too late"


async def test_a_run_goes_on_for_the_new_request(replay: bool) -> None:
    seen: list[Any] = []

    async def handle(call: Call) -> Any:
        for text in ("one", "two"):
            await said(call, text)
            seen.append((call.id, call.connection, call.progress, dict(call.params.meta)))

    scene = Scene(handle, replay=replay)
    result: Any = None
    for number, answers in enumerate([{}, {"one": yes()}, {"two": yes()}], 1):
        call = scene.call(result.request_state if result else None, answers)
        call.connection, call.progress, call.params.meta = (
            f"connection {number}",
            f"progress {number}",
            {"n": number},
        )
        result = await scene.engine.answer(call, handle)
    assert seen[-1] == (3, "connection 3", "progress 3", {"n": 3})
    assert seen[0] == (2, "connection 2", "progress 2", {"n": 2})


async def test_what_a_run_says_while_nobody_waits_belongs_to_nobody() -> None:
    async def handle(call: Call) -> Any:
        await said(call, "one")

    scene = Scene(handle)
    await scene.send()
    [run] = scene.parked.values()
    assert run.call.finished


# without encryption


class Unencrypted(KeyRing):
    """The ring of an installation without `cryptography`."""

    def _load_makers(self) -> Any:
        kinds = super()._load_makers()
        kinds.pop(sealing.ENCRYPTED, None)
        return kinds


def bare_ring() -> KeyRing:
    return Unencrypted([KEY.encode()])


async def test_without_encryption_a_live_run_goes_on_and_nothing_of_it_is_in_the_state() -> None:
    scene = Scene(two, keys=bare_ring())
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("very private")})
    assert b"private" not in sealing._from_text(second.request_state)
    assert await scene.send(second.request_state, {"two": yes("2")}) == "very private 2"


async def test_without_encryption_a_run_that_had_to_go_cannot_be_taken_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(two, keys=bare_ring(), parked=1)
    first = await scene.send()
    await scene.send()
    assert "no longer suspended in this process" in await refused(
        scene, caplog, first.request_state, {"one": yes("1")}
    )
    assert "no longer suspended in this process" in await refused(
        Scene(two, keys=bare_ring()), caplog, first.request_state, {"one": yes("1")}
    )


async def test_without_encryption_a_wrong_shape_does_not_lose_the_run() -> None:
    async def handle(call: Call) -> Any:
        return decode_answer(await put(call, "one"), "elicitation/create").action

    scene = Scene(handle, keys=bare_ring())
    first = await scene.send()
    with pytest.raises(InvalidParams, match="elicitation/create"):
        await scene.send(first.request_state, {"one": 3})
    assert await scene.send(first.request_state, {"one": yes()}) == "accept"


async def test_without_encryption_nothing_that_was_done_once_is_forgotten_in_silence() -> None:
    async def handle(call: Call) -> Any:
        await once(call, "charge", lambda: 1)
        return InputRequired(state="mine")

    with pytest.raises(InternalError, match="cryptography"):
        await Scene(handle, keys=bare_ring()).send()


# what may be asked


def asked(mode: str | None) -> ElicitParams:
    return ElicitParams(
        message="?", mode=mode, url="https://example.com" if mode == "url" else None
    )


@pytest.mark.parametrize(
    ("capabilities", "form", "url"),
    [
        ({}, False, False),
        ({"elicitation": {}}, True, False),
        ({"elicitation": {"form": {}}}, True, False),
        ({"elicitation": {"url": {}}}, False, True),
        ({"elicitation": {"form": {}, "url": {}}}, True, True),
        ({"sampling": {}, "roots": {}}, False, False),
    ],
)
@pytest.mark.requirement("asking-declared", "elicitation-modes-asked")
async def test_each_mode_is_asked_only_where_it_was_declared(
    capabilities: Any, form: bool, url: bool
) -> None:
    for mode, allowed in (("form", form), (None, form), ("url", url)):

        async def handle(call: Call, mode: str | None = mode) -> Any:
            await ask(call, "elicitation/create", asked(mode))

        if allowed:
            assert len((await Scene(handle).send(capabilities=capabilities)).input_requests) == 1
        else:
            with pytest.raises(CannotAsk) as refusal:
                await Scene(handle).send(capabilities=capabilities)
            assert refusal.value.required == {"elicitation": {mode or "form": {}}}


async def test_a_question_that_cannot_be_asked_does_not_stop_the_others() -> None:
    async def handle(call: Call) -> Any:
        try:
            await ask(call, "roots/list", Params())
        except CannotAsk as refusal:
            return [refusal.required, await said(call, "one")]

    scene = Scene(handle)
    capabilities = {"elicitation": {}}
    first = await scene.send(capabilities=capabilities)
    again = await scene.send(first.request_state, {"one": yes("1")}, capabilities=capabilities)
    assert again == [{"roots": {}}, "1"]


# handlers that ask by themselves


def by_hand(**requests: Params | None) -> InputRequired:
    return InputRequired(requests, state="mine")


@pytest.mark.requirement("rounds-content")
async def test_a_handler_may_ask_by_itself(replay: bool) -> None:
    async def handle(call: Call) -> Any:
        if not call.input_responses:
            return by_hand(who=asked("form"), roots=None)
        return [
            call.request_state,
            {key: msgspec.json.decode(answer) for key, answer in call.input_responses.items()},
        ]

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    assert {key: request["method"] for key, request in first.input_requests.items()} == {
        "who": "elicitation/create",
        "roots": "roots/list",
    }
    assert first.request_state != "mine"
    assert not scene.parked
    answers = {"who": yes("Ann"), "roots": {"roots": []}}
    assert await scene.send(first.request_state, answers | {"more": 1}) == ["mine", answers]


async def test_a_handler_may_give_its_client_a_state_and_nothing_to_answer() -> None:
    async def handle(call: Call) -> Any:
        return (
            InputRequired(state=f"{call.request_state or ''}x")
            if call.request_state != "xx"
            else "ready"
        )

    scene = Scene(handle)
    first = await scene.send()
    assert first.input_requests is None
    second = await scene.send(first.request_state)
    assert await scene.send(second.request_state) == "ready"


@pytest.mark.requirement("rounds-content")
async def test_neither_a_question_nor_a_state_is_an_error_of_the_server() -> None:
    async def handle(call: Call) -> Any:
        return InputRequired()

    with pytest.raises(InternalError, match="without any questions or state"):
        await Scene(handle).send()


@pytest.mark.requirement("asking-declared")
async def test_a_handler_that_asks_by_itself_is_held_to_what_was_declared() -> None:
    async def handle(call: Call) -> Any:
        return by_hand(roots=None)

    with pytest.raises(CannotAsk) as refusal:
        await Scene(handle).send(capabilities={"elicitation": {}})
    assert refusal.value.required == {"roots": {}}


async def test_a_handler_that_asks_by_itself_for_ever_is_stopped() -> None:
    async def handle(call: Call) -> Any:
        return by_hand(who=asked("form"))

    scene = Scene(handle, asks=2)
    result = await scene.send()
    result = await scene.send(result.request_state)
    with pytest.raises(InternalError, match="2 times in a row"):
        await scene.send(result.request_state)


async def test_what_a_handler_did_once_before_it_asked_by_itself_is_not_done_again() -> None:
    done: list[int] = []

    async def handle(call: Call) -> Any:
        await once(call, "charge", lambda: done.append(1))
        return "done" if call.input_responses else by_hand(who=asked("form"))

    scene = Scene(handle)
    first = await scene.send()
    assert await scene.send(first.request_state, {"who": yes()}) == "done"
    assert done == [1]


# a client that thinks otherwise


@pytest.mark.requirement("asking-declared")
@pytest.mark.parametrize("capabilities", [{}, {"roots": {}}])
async def test_a_retry_is_not_asked_what_it_no_longer_declares(
    capabilities: Any, replay: bool
) -> None:
    scene = Scene(two, replay=replay)
    first = await scene.send()
    with pytest.raises(CannotAsk, match="did not declare"):
        await scene.send(first.request_state, capabilities=capabilities)


async def test_a_handler_need_not_ask_again_once_its_page_was_visited(replay: bool) -> None:
    signed_in = False

    async def handle(call: Call) -> Any:
        if not signed_in:
            await said(call, "which account?")
            raise UrlRequired("Sign in", url="https://example.com/", id="page")
        return f"{await said(call, 'one')} {await said(call, 'two')}"

    scene = Scene(handle, replay=replay)
    first = await scene.send()
    page = await scene.send(first.request_state, {"which account?": yes()})
    signed_in = True
    second = await scene.send(page.request_state, {"page": {"action": "accept"}})
    assert questions(second) == ["one"]
    third = await scene.send(second.request_state, {"one": yes("1")})
    assert await scene.send(third.request_state, {"two": yes("2")}) == "1 2"


def test_without_encryption_nothing_can_always_be_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealing.KeyRing, "encrypts", False)
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-mcp\[http\]'"):
        Scene(two, replay=True)
