"""Calls that must not run twice: what happens to one while its client answers, or does not."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from dovetail import Limits, Server
from dovetail.connection.input_requests import ask, once
from dovetail.connection.multi_round_trip import MultiRoundTrip
from dovetail.errors import InternalError, InvalidParams, Overloaded, ToolError, UrlRequired
from dovetail.ports import Call
from dovetail.protocol.base import Params
from dovetail.protocol.client_features import ElicitParams
from dovetail.protocol.lifecycle import InputRequired, InputRequiredResult
from dovetail.sealing import KeyRing, key_ring
from tests.connection.test_asking import KEY, Handle, Scene, bare_ring, questions, said, yes

EXPIRED = "The call may have taken effect"


class OneRun(Server):
    """A server whose calls must not run twice."""

    def can_replay(self, call: Call) -> bool:
        return False


class Held(Scene):
    """A scene with such a server, which counts how often its handler is started."""

    def __init__(self, handle: Handle, *, keys: str | KeyRing = KEY, **limits: Any) -> None:
        super().__init__(handle, keys=keys)
        self.runs = 0
        ring = keys if isinstance(keys, KeyRing) else key_ring([keys])
        resume = limits.pop("resume", "live")
        server = OneRun("scene", limits=Limits(**limits), resume=resume)
        self.engine = MultiRoundTrip(server, lambda: ring)

        async def counted(call: Call) -> Any:
            self.runs += 1
            return await handle(call)

        self.handle = counted

    async def refuse(self, state: str | None, answers: Any = None, **options: Any) -> str:
        with pytest.raises(InvalidParams, match=EXPIRED) as refusal:
            await self.send(state, answers, **options)
        assert refusal.value.data["parameter"] == "requestState"
        return refusal.value.message


@pytest.fixture(params=["encrypted", "signed"])
def keys(request: pytest.FixtureRequest) -> str | KeyRing:
    """With and without `cryptography`."""
    if request.param == "signed":
        return bare_ring()
    pytest.importorskip("cryptography")
    return KEY


async def one(call: Call) -> str:
    return await said(call, "one")


async def two(call: Call) -> str:
    return f"{await said(call, 'one')} {await said(call, 'two')}"


class Slow:
    """A handler that asks, works until it may go on, and knows how it ended."""

    def __init__(self) -> None:
        self.works, self.may_end = asyncio.Event(), asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, call: Call) -> str:
        try:
            answer = await said(call, "one")
            self.works.set()
            await self.may_end.wait()
            return answer
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


# a call that goes on


@pytest.mark.parametrize("resume", ["live", "replay"])
async def test_a_call_that_is_held_runs_once_from_the_first_request_to_the_last(
    keys: str | KeyRing, resume: str
) -> None:
    if resume == "replay" and isinstance(keys, KeyRing):
        pytest.skip("replay needs encryption")
    scene = Held(two, keys=keys, resume=resume)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("1")})
    assert questions(second) == ["two"]
    assert await scene.send(second.request_state, {"two": yes("2")}) == "1 2"
    assert scene.runs == 1


async def test_the_answers_of_a_held_call_are_not_in_its_state() -> None:
    scene = Held(two, journal=2000)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("x" * 3000)})
    assert questions(second) == ["two"], "they do not count against the size of a state"
    assert len(second.request_state) < 1000


async def test_a_call_that_asks_nothing_is_not_held() -> None:
    async def handle(call: Call) -> str:
        return "done"

    scene = Held(handle, parked=0, parked_each=0)
    assert await scene.send() == "done"


async def test_messages_go_to_the_newest_request_that_waits(keys: str | KeyRing) -> None:
    slow, seen = Slow(), []

    async def handle(call: Call) -> str:
        answer = await slow(call)
        seen.append((call.id, call.connection, call.finished))
        return answer

    scene = Held(handle, keys=keys)
    state = (await scene.send()).request_state
    older = asyncio.create_task(scene.send(state, {"one": yes("1")}))
    await slow.works.wait()
    call = scene.call(state, {"one": yes("1")})
    call.connection = "newest"
    newer = asyncio.create_task(scene.engine.answer(call, scene.handle))
    await asyncio.sleep(0)
    slow.may_end.set()
    assert await asyncio.gather(older, newer) == ["1", "1"]
    assert seen == [(call.id, "newest", False)]


# the same handle again


async def test_the_same_handle_twice_at_once_joins_the_same_call(keys: str | KeyRing) -> None:
    slow = Slow()
    scene = Held(slow, keys=keys)
    state = (await scene.send()).request_state
    waiting = [
        asyncio.create_task(scene.send(state, {"one": yes(text)})) for text in ("first", "other")
    ]
    await slow.works.wait()
    waiting.append(asyncio.create_task(scene.send(state)))
    await asyncio.sleep(0)
    slow.may_end.set()
    assert await asyncio.gather(*waiting) == ["first"] * 3, "the answer that came first counts"
    assert scene.runs == 1


async def test_the_same_handle_again_afterwards_has_the_same_result(keys: str | KeyRing) -> None:
    scene = Held(two, keys=keys)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("1")})
    assert await scene.send(second.request_state, {"two": yes("2")}) == "1 2"
    for state in (first.request_state, second.request_state):
        for answers in ({}, {"one": yes("3"), "two": yes("4")}):
            assert await scene.send(state, answers) == "1 2"
    assert scene.runs == 1


async def test_an_older_handle_gets_the_questions_that_are_open_now(keys: str | KeyRing) -> None:
    scene = Held(two, keys=keys)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("1")})
    again = await scene.send(first.request_state, {"one": yes("forged")})
    assert questions(again) == ["two"]
    assert again.request_state == second.request_state
    assert await scene.send(again.request_state, {"two": yes("2")}) == "1 2"
    assert scene.runs == 1


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ToolError("no seats"), InvalidParams, "no seats"),
        (ValueError("secret"), InternalError, "tools/call failed: ValueError"),
    ],
)
async def test_an_error_stays_too_and_is_logged_once(
    error: Exception, kind: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(call: Call) -> str:
        await said(call, "one")
        raise error

    scene = Held(handle)
    state = (await scene.send()).request_state
    for _ in range(3):
        with pytest.raises(kind, match=text):
            await scene.send(state, {"one": yes()})
    failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(failed) == (kind is InternalError)
    assert scene.runs == 1


async def test_a_result_stays_no_longer_than_it_may(keys: str | KeyRing) -> None:
    scene = Held(one, keys=keys, parked_time=0.1)
    state = (await scene.send()).request_state
    assert await scene.send(state, {"one": yes("1")}) == "1"
    assert await scene.send(state, {"one": yes("1")}) == "1"
    while state_is_known(scene, state):
        await asyncio.sleep(0.02)
    await scene.refuse(state, {"one": yes("1")})
    assert scene.runs == 1


def state_is_known(scene: Held, state: str) -> bool:
    journal = scene.engine._open_state(call := scene.call(state), identify(call))
    assert journal is not None
    return journal.call_id in scene.engine._held


def identify(call: Call) -> Any:
    from dovetail.connection.input_requests import identify_request

    return identify_request(call)


async def test_results_that_are_kept_are_bounded_for_each_caller() -> None:
    scene = Held(one, parked_each=2)
    states = [(await finish(scene, user="ann")) for _ in range(3)]
    other = await finish(scene, user="bob")
    await scene.refuse(states[0], user="ann")
    for state, user in ((states[1], "ann"), (states[2], "ann"), (other, "bob")):
        assert await scene.send(state, user=user) == "1"


async def test_results_that_are_kept_are_bounded_in_number_and_size() -> None:
    scene = Held(one, parked=2)
    states = [(await finish(scene, user=user)) for user in "abc"]
    await scene.refuse(states[0], user="a")
    assert await scene.send(states[2], user="c") == "1"

    scene = Held(one, events_kept=1000)
    big = await finish(scene, "x" * 600)
    assert await scene.send(big) == "x" * 600
    bigger = await finish(scene, "y" * 700)
    await scene.refuse(big)
    assert await scene.send(bigger) == "y" * 700
    biggest = await finish(scene, "z" * 2000)
    await scene.refuse(biggest)


async def finish(scene: Held, text: str = "1", **options: Any) -> str:
    state: str = (await scene.send(**options)).request_state
    assert await scene.send(state, {"one": yes(text)}, **options) == text
    return state


# a call that is lost


async def test_a_handle_that_this_process_does_not_know_never_starts_the_call_again(
    keys: str | KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    here, elsewhere = Held(one, keys=keys), Held(one, keys=keys)
    state = (await here.send()).request_state
    await elsewhere.refuse(state, {"one": yes("1")})
    assert elsewhere.runs == 0
    assert "not held in this process" in caplog.text
    assert await here.send(state, {"one": yes("1")}) == "1"


async def test_a_client_that_never_returns_has_its_call_cancelled(keys: str | KeyRing) -> None:
    slow = Slow()
    scene = Held(slow, keys=keys, parked_time=0.05)
    state = (await scene.send()).request_state
    await slow.cancelled.wait()
    await scene.refuse(state, {"one": yes("1")})
    assert scene.runs == 1


async def test_a_call_that_works_for_its_client_does_not_expire() -> None:
    slow = Slow()
    scene = Held(slow, parked_time=0.05)
    state = (await scene.send()).request_state
    waiting = asyncio.create_task(scene.send(state, {"one": yes("1")}))
    await slow.works.wait()
    await asyncio.sleep(0.2)
    slow.may_end.set()
    assert await waiting == "1"


async def test_every_state_that_is_not_accepted_warns_of_the_effect(
    keys: str | KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Held(one, keys=keys, state_life=0.0)
    state = (await scene.send()).request_state
    texts = {
        await scene.refuse(state, {"one": yes()}),
        await scene.refuse("forged"),
        await scene.refuse(state[:-4] + "AAAA"),
        await scene.refuse(state, user="ann"),
    }
    assert len(texts) == 1, "they do not tell a stranger why"


async def test_a_held_call_belongs_to_its_caller_its_tool_and_its_arguments(
    keys: str | KeyRing,
) -> None:
    scene = Held(one, keys=keys)
    own = {"user": "ann", "tool": "t", "arguments": {"n": 1}}
    state = (await scene.send(**own)).request_state
    for other in (
        {"user": "bob"},
        {"user": None},
        {"tool": "u"},
        {"arguments": {"n": 2}},
        {"arguments": {}},
    ):
        await scene.refuse(state, {"one": yes("forged")}, **(own | other))
    assert await scene.send(state, {"one": yes("1")}, **own) == "1"
    assert scene.runs == 1
    await scene.refuse(state, **(own | {"user": "bob"}))


async def test_when_its_last_request_is_cancelled_so_is_the_call(keys: str | KeyRing) -> None:
    slow = Slow()
    scene = Held(slow, keys=keys)
    state = (await scene.send()).request_state
    waiting = [asyncio.create_task(scene.send(state, {"one": yes("1")})) for _ in range(2)]
    await slow.works.wait()
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    assert not slow.cancelled.is_set()
    waiting[1].cancel()
    await slow.cancelled.wait()
    await asyncio.wait(waiting)
    assert all(task.cancelled() for task in waiting)
    await scene.refuse(state, {"one": yes("1")})
    assert scene.runs == 1


async def test_when_one_of_two_requests_is_cancelled_the_other_has_the_result() -> None:
    slow = Slow()
    scene = Held(slow)
    state = (await scene.send()).request_state
    waiting = [asyncio.create_task(scene.send(state, {"one": yes("1")})) for _ in range(2)]
    await slow.works.wait()
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    slow.may_end.set()
    assert await waiting[1] == "1"


async def test_when_the_first_request_is_cancelled_the_call_is_too() -> None:
    slow = Slow()

    async def handle(call: Call) -> str:
        slow.works.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            slow.cancelled.set()
            raise
        return ""

    scene = Held(handle)
    request = asyncio.create_task(scene.send())
    await slow.works.wait()
    request.cancel()
    await slow.cancelled.wait()


async def test_when_the_server_ends_its_held_calls_are_cancelled() -> None:
    slow = Slow()
    scene = Held(slow)
    state = (await scene.send()).request_state
    scene.engine.close()
    await slow.cancelled.wait()
    await scene.refuse(state)


async def test_a_call_that_asks_too_often_is_ended_and_says_so_again() -> None:
    async def handle(call: Call) -> None:
        for number in range(1000):
            await said(call, str(number))

    scene = Held(handle, asks=2)
    first = await scene.send()
    second = await scene.send(first.request_state, {"0": yes()})
    for _ in range(2):
        with pytest.raises(InternalError, match="2 times in a row"):
            await scene.send(second.request_state, {"1": yes()})
    assert scene.runs == 1


# too many


async def test_the_newest_call_of_a_caller_is_refused_and_nobody_elses_is_evicted(
    keys: str | KeyRing,
) -> None:
    ended: list[str] = []

    async def handle(call: Call) -> str:
        try:
            return await one(call)
        except asyncio.CancelledError:
            ended.append(call.caller.principal.id)  # type: ignore[union-attr]
            raise

    scene = Held(handle, keys=keys, parked_each=2)
    states = [(await scene.send(user="ann")).request_state for _ in range(2)]
    other = (await scene.send(user="bob")).request_state
    for _ in range(3):
        with pytest.raises(Overloaded, match=r"2 of your calls \(Limits.parked_each\)") as refusal:
            await scene.send(user="ann")
        assert "may have taken effect" in str(refusal.value)
        assert refusal.value.retry_after is None, "a client must not repeat it by itself"
    await asyncio.sleep(0)
    assert ended == ["ann"] * 3
    for state in states:
        assert await scene.send(state, {"one": yes("1")}, user="ann") == "1"
    assert await scene.send(other, {"one": yes("1")}, user="bob") == "1"


async def test_the_newest_call_is_refused_if_all_callers_have_too_many() -> None:
    scene = Held(one, parked=3)
    states = {user: (await scene.send(user=user)).request_state for user in "abc"}
    with pytest.raises(Overloaded, match=r"3 calls \(Limits.parked\)"):
        await scene.send(user="d")
    for user, state in states.items():
        assert await scene.send(state, {"one": yes("1")}, user=user) == "1"
    assert questions(await scene.send(user="d")) == ["one"]


@pytest.mark.parametrize(
    ("first", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:1::1", False),
    ],
)
async def test_anonymous_callers_are_told_apart_by_their_network(
    first: str, other: str, is_same: bool
) -> None:
    scene = Held(one, parked_each=1)

    async def send_from(address: str) -> Any:
        call = scene.call()
        call.caller.address = address
        return await scene.engine.answer(call, scene.handle)

    await send_from(first)
    if is_same:
        with pytest.raises(Overloaded):
            await send_from(other)
    else:
        assert isinstance(await send_from(other), InputRequiredResult)


async def test_a_call_keeps_its_place_until_it_ends_and_then_makes_room() -> None:
    scene = Held(two, parked_each=1)
    for _ in range(3):
        first = await scene.send()
        with pytest.raises(Overloaded):
            await scene.send()
        second = await scene.send(first.request_state, {"one": yes("1")})
        with pytest.raises(Overloaded):
            await scene.send()
        assert await scene.send(second.request_state, {"two": yes("2")}) == "1 2"


# calls that end with questions


async def test_a_handler_that_returns_its_questions_is_called_again_with_the_answers(
    keys: str | KeyRing,
) -> None:
    async def handle(call: Call) -> Any:
        if call.request_state == "upstream":
            return [bytes(answer) for answer in call.input_responses.values()]
        await said(call, "one")
        return InputRequired({"roots": None}, state="upstream")

    scene = Held(handle, keys=keys)
    first = await scene.send()
    second = await scene.send(first.request_state, {"one": yes("1")})
    assert list(second.input_requests) == ["roots"]
    answers = {"roots": {"roots": []}}
    expected = [msgspec.json.encode(answers["roots"])]
    for _ in range(2):
        assert await scene.send(second.request_state, answers) == expected
    assert await scene.send(first.request_state, {"one": yes("1")}) == second
    assert scene.runs == 3, "twice with the state of the handler, which is not a replay"


async def test_a_handler_that_asks_for_a_visit_first_is_called_again_after_it() -> None:
    visited = False

    async def handle(call: Call) -> str:
        nonlocal visited
        if not visited:
            visited = True
            raise UrlRequired("Log in first", url="https://example.com/login")
        return await one(call)

    scene = Held(handle)
    first = await scene.send()
    [key] = first.input_requests
    second = await scene.send(first.request_state, {key: {"action": "accept"}})
    assert questions(second) == ["one"]
    assert await scene.send(second.request_state, {"one": yes("1")}) == "1"


async def test_other_questions_and_once_work_in_a_held_call(keys: str | KeyRing) -> None:
    done: list[int] = []

    async def handle(call: Call) -> Any:
        await once(call, "charge", lambda: done.append(1))
        roots, form = await asyncio.gather(
            ask(call, "roots/list", Params(), "roots"),
            ask(call, "elicitation/create", ElicitParams(message="?"), "form"),
        )
        return [bytes(roots), bytes(form)]

    scene = Held(handle, keys=keys)
    first = await scene.send()
    assert set(first.input_requests) == {"roots", "form"}
    second = await scene.send(first.request_state, {"roots": {"roots": []}})
    assert set(second.input_requests) == {"form"}, "what is missing is asked again"
    last = await scene.send(second.request_state, {"form": {"action": "decline"}})
    assert last == [b'{"roots":[]}', b'{"action":"decline"}']
    assert done == [1]
