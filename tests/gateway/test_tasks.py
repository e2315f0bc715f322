"""Tasks of servers behind a gateway: whose they are, what becomes of them if a server is restarted
or removed, and what a hostile server can do with them. The matrix has what works for every pair.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dovetail import Client, Context, Host, Server
from dovetail.errors import (
    ConfigError,
    ConsentDenied,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    ProtocolError,
)
from dovetail.gateway.consent.policy import read_policy
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.upstreams import read_entry
from dovetail.ports import Call
from dovetail.protocol.raw import RawObject
from dovetail.protocol.tasks import RELATED_TASK, CoreCreateTaskResult, CreateTaskResult
from dovetail.server.audit import AuditRecord, audit

from .serving import ANN, BOB, KEYS, headers_of, post, recorded, served
from .stage import LIMITS, Person, Stage, Upstream

CORE, EXT = "2025-11-25", "2026-07-28"
FORMS = [CORE, EXT]
OPTIONS: dict[str, Any] = {"limits": LIMITS, "rates": None, "store": ":memory:"}
split = msgspec.json.Decoder(dict[str, Raw]).decode


@pytest.fixture(params=FORMS)
def upstream(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=FORMS)
def caller(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_server(revision: str, **options: Any) -> Server:
    """A server with tools that run as tasks."""
    server = Server("up", revisions=[revision], rates=None, **options)

    @server.tool(task="optional")
    async def work(text: str = "done") -> str:
        return text

    @server.tool(task="optional")
    async def work_long(ctx: Context) -> str:
        for step in range(1, 10_000):
            await ctx.progress(step, 10_000, "working")
            await asyncio.sleep(0.05)
        return "never"

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", str)
        return str(answer.data)

    @server.tool
    async def plain() -> str:
        return "plain"

    return server


Connect = Callable[..., Client]


@asynccontextmanager
async def gateway_of(
    revision: str, *names: str, **options: Any
) -> AsyncIterator[tuple[Gateway, Connect]]:
    """A gateway over HTTP in front of servers over HTTP, and a function that returns callers."""
    async with asyncio.timeout(60):
        servers = [recorded(make_server(revision)) for _ in names or ("up",)]
        urls = [(await server.__aenter__())[0] for server in servers]
        entries = dict(zip(names or ("up",), ({"url": url} for url in urls), strict=True))
        source = {"mcpServers": entries}
        try:
            async with served(source, auth=KEYS, **{**OPTIONS, **options}) as (gateway, url):

                def connect(revision: str, key: str = ANN, **more: Any) -> Client:
                    return Client(url, revision=revision, headers=headers_of(key), **more)

                yield gateway, connect
        finally:
            for server in servers:
                await server.__aexit__(None, None, None)


async def state_of(client: Client, id: str) -> dict[str, Any]:
    """The state of a task as it is sent."""
    found: dict[str, Any] = msgspec.json.decode(await client.relay("tasks/get", {"taskId": id}))
    return found


# handles


async def test_a_handle_of_another_user_is_unknown(upstream: str, caller: str) -> None:
    async with gateway_of(upstream) as (_, connect):
        async with connect(caller) as ann, connect(caller, BOB) as bob:
            task = await ann.start_tool("up__work_long")
            assert (await ann.task(task.id).status()).status == "working"
            stolen = bob.task(task.id)
            with pytest.raises(NotFound, match="There is no task"):
                await stolen.status()
            with pytest.raises(NotFound, match="There is no task"):
                await bob.task(task.id).cancel()
            if caller == CORE:
                with pytest.raises(InvalidParams, match="There is no task"):
                    await bob.request("tasks/result", {"taskId": task.id})
            else:
                with pytest.raises(InvalidParams, match="There is no task"):
                    params = {"taskId": task.id, "inputResponses": {}}
                    await bob.request("tasks/update", params)
            assert (await ann.task(task.id).status()).status == "working"
            await task.cancel()


@pytest.mark.parametrize("id", ["", "x", "A" * 200, "\N{SNOWMAN}", "1" * 1_000_000])
async def test_a_handle_that_the_gateway_did_not_make_is_unknown(caller: str, id: str) -> None:
    async with Client(Gateway(make_server(EXT), **OPTIONS), revision=caller) as client:
        with pytest.raises(NotFound, match="There is no task") as refused:
            await client.task(id).status()
        assert len(str(refused.value)) < 1_000_000 + 500


async def test_an_id_of_the_server_is_not_a_handle(upstream: str, caller: str) -> None:
    server = make_server(upstream)
    async with Client(server, revision=upstream) as own:
        id = (await own.start_tool("work_long")).id
        async with Client(Gateway(server, **OPTIONS), revision=caller) as client:
            with pytest.raises(NotFound, match="There is no task"):
                await client.task(id).status()


async def test_a_task_survives_the_session_and_the_gateway(upstream: str, caller: str) -> None:
    async with recorded(make_server(upstream)) as (url, _):
        source = {"mcpServers": {"up": {"url": url}}}
        async with Client(Gateway(source, **OPTIONS), revision=caller) as client:
            id = (await client.start_tool("up__work", {"text": "kept"})).id
        async with Client(Gateway(source, **OPTIONS), revision=caller) as client:
            assert (await client.task(id).result()).text == "kept"


async def test_a_task_of_a_removed_server_is_refused_with_its_name(caller: str) -> None:
    async with gateway_of(EXT, "one", "two") as (gateway, connect), connect(caller) as ann:
        task = await ann.start_tool("one__work_long")
        await gateway.upstreams.remove("one")
        with pytest.raises(InvalidParams, match="'one', which ran this task, was removed"):
            await ann.relay("tasks/get", {"taskId": task.id})


async def test_the_id_of_a_task_does_not_reach_another_server_of_the_same_name(caller: str) -> None:
    async with gateway_of(EXT, "one") as (gateway, connect), connect(caller) as ann:
        task = await ann.start_tool("one__work_long")
        async with recorded(make_server(EXT)) as (url, requests):
            gateway._source = {"mcpServers": {"one": {"url": url}}}
            await gateway.reload()
            with pytest.raises(InvalidParams, match="was removed or changed"):
                await ann.relay("tasks/get", {"taskId": task.id})
            assert "tasks/get" not in str(requests.requests)


async def test_only_the_handle_of_a_task_reaches_its_caller() -> None:
    """In the core form, questions and results name the task that they belong to."""
    related: list[Any] = []

    def answer(request: Any) -> Any:
        related.append(request._call.params.meta[RELATED_TASK])
        return {"value": "large"}

    for revision in FORMS:
        gateway = Gateway(make_server(revision), **OPTIONS)
        async with Client(gateway, revision=CORE, on_elicit=answer) as client:
            task = await client.start_tool("ask")
            result = await task.result()
            assert result.text == "large"
            assert result.meta is not None
            assert [*related, result.meta[RELATED_TASK]] == [{"taskId": task.id}] * 2
            related.clear()


async def test_a_task_continues_when_the_session_of_an_authenticated_caller_ends(
    tmp_path: Path,
) -> None:
    stage = Stage(Upstream("stdio", CORE), tmp_path, auth=KEYS)
    async with stage:
        url = f"http://{stage.address}/mcp"
        options: dict[str, Any] = {"revision": CORE, "on_sample": lambda _: "x"}
        async with Client(url, headers=headers_of(ANN), **options) as ann:
            task = await ann.start_tool("up__work_long")
            await stage.records.event("waiting")
        async with Client(url, headers=headers_of(ANN), **options) as ann:
            assert (await ann.task(task.id).status()).status == "working"
            await ann.task(task.id).cancel()
        await stage.records.event("cancelled")


async def test_times_pass_unchanged(upstream: str, caller: str) -> None:
    """`ttl`, the poll interval and the time of creation are those of the server."""
    answer = {
        "taskId": "1", "status": "working", "createdAt": "2026-01-02T03:04:05Z",
        "lastUpdatedAt": "2026-01-02T03:04:06Z", "statusMessage": "busy",
    }  # fmt: skip
    times = {"ttl": 123456, "pollInterval": 789}
    own = times if upstream == CORE else {f"{name}Ms": value for name, value in times.items()}
    server = scripted(upstream, lambda call: {**answer, **own, "x-new": 2**53 + 1})
    async with Client(Gateway(server, **OPTIONS), revision=caller) as client:
        params = {"name": "work", "task": {}} if caller == CORE else {"name": "work"}
        created = msgspec.json.decode(await client.relay("tools/call", params))
        created = created["task"] if caller == CORE else created
        state = await state_of(client, created["taskId"])
    names = list(times) if caller == CORE else [f"{name}Ms" for name in times]
    for found in (created, state):
        assert [found[name] for name in names] == [123456, 789]
        assert found["createdAt"] == "2026-01-02T03:04:05Z"
        assert found["statusMessage"] == "busy"
    assert state.get("x-new") == (2**53 + 1 if upstream == caller else None)


# servers that are restarted


async def test_a_task_of_a_process_that_was_restarted_has_failed(
    upstream: str, caller: str, tmp_path: Path
) -> None:
    stage = Stage(Upstream("stdio", upstream), tmp_path)
    async with stage, Person(stage, Upstream("memory", caller), "ada").connected() as ada:
        task = await ada.client.start_tool("up__work_long")
        await stage.records.event("waiting")
        for pid in stage.pids():
            os.kill(pid, signal.SIGKILL)
        other = ada.client.task(task.id)
        while (await other.status()).status == "working":
            await asyncio.sleep(0.05)
        assert (await other.status()).status == "failed"
        state = await state_of(ada.client, task.id)
        assert state["statusMessage"] == "up was restarted while this task was running"
        with pytest.raises(ProtocolError, match="up was restarted while this task was running"):
            await ada.client.task(task.id).result()
        if caller == CORE:
            with pytest.raises(InvalidParams, match="cannot be cancelled"):
                await ada.client.request("tasks/cancel", {"taskId": task.id})
        else:
            await ada.client.request("tasks/cancel", {"taskId": task.id})


async def test_a_connection_with_an_open_task_is_neither_closed_nor_lent(tmp_path: Path) -> None:
    """A caller without a session borrows a process of a handshake-era server for each call. The
    process that runs its task stays with it."""
    stage = Stage(
        Upstream("stdio", CORE), tmp_path, limits=msgspec.structs.replace(LIMITS, upstream_idle=0.2)
    )
    async with stage, Person(stage, Upstream("memory", EXT), "ada").connected() as ada:
        task = await ada.client.start_tool("up__work_long")
        await stage.records.event("waiting")
        before = stage.pids()
        await ada.call("add", a=1, b=2)
        assert len(stage.pids()) == len(before) + 1
        await asyncio.sleep(1)
        assert (await task.status()).status == "working"
        await task.cancel()
        await stage.records.event("cancelled")
        while len(stage.server._pool):  # when its task is over, it is closed as usual
            await asyncio.sleep(0.05)


# lists


async def test_the_tasks_of_all_servers_are_one_list_for_each_user(upstream: str) -> None:
    async with gateway_of(upstream, "one", "two") as (_, connect):
        async with connect(CORE) as ann, connect(CORE, BOB) as bob, connect(EXT) as other:
            ids = [
                (await ann.start_tool("one__work_long")).id,
                (await ann.start_tool("two__work")).id,
                (await other.start_tool("one__work_long")).id,
            ]
            await ann.task(ids[1]).result()
            theirs = (await bob.start_tool("one__work_long")).id
            listed = (await ann.request("tasks/list")).tasks
            assert [one.task_id for one in listed] == ids
            assert [one.status for one in listed] == ["working", "completed", "working"]
            assert [one.task_id for one in (await bob.request("tasks/list")).tasks] == [theirs]


async def test_long_lists_have_pages(upstream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.gateway.tasks.gateway_tasks.PAGE_SIZE", 2)
    gateway = Gateway(make_server(upstream), **OPTIONS)
    async with Client(gateway, revision=CORE) as client:
        ids = [(await client.start_tool("work_long")).id for _ in range(5)]
        found, sizes, cursor = [], [], None
        while True:
            page = await client.request("tasks/list", {"cursor": cursor} if cursor else None)
            found += [one.task_id for one in page.tasks]
            sizes.append(len(page.tasks))
            if (cursor := page.next_cursor) is None:
                break
        assert (found, sizes) == (ids, [2, 2, 1])
        with pytest.raises(InvalidParams, match="not a valid cursor"):
            await client.request("tasks/list", {"cursor": "x"})


async def test_a_list_without_authentication_is_that_of_the_session(upstream: str) -> None:
    gateway = Gateway(make_server(upstream), **OPTIONS)
    async with Client(gateway, revision=CORE) as ada, Client(gateway, revision=CORE) as bob:
        task = await ada.start_tool("work_long")
        assert [one.task_id for one in (await ada.request("tasks/list")).tasks] == [task.id]
        assert (await bob.request("tasks/list")).tasks == []


async def test_the_oldest_tasks_of_a_caller_are_forgotten_first() -> None:
    gateway = Gateway(
        make_server(CORE), **{**OPTIONS, "limits": msgspec.structs.replace(LIMITS, tasks_each=3)}
    )
    async with Client(gateway, revision=CORE) as ada, Client(gateway, revision=CORE) as bob:
        theirs = (await bob.start_tool("work_long")).id
        ids = [(await ada.start_tool("work_long")).id for _ in range(5)]
        assert [one.task_id for one in (await ada.request("tasks/list")).tasks] == ids[2:]
        assert [one.task_id for one in (await bob.request("tasks/list")).tasks] == [theirs]
        assert (await ada.task(ids[0]).status()).status == "working"  # its handle still works


# questions and notifications


async def test_a_caller_answers_the_questions_of_a_task_itself(upstream: str) -> None:
    async with gateway_of(upstream, "one", "two") as (_, connect):
        async with connect(EXT, on_elicit=lambda _: None) as ann:
            task = await ann.start_tool("one__ask", manual=True)
            while not (await task.status()).questions:
                await asyncio.sleep(0.02)
            ((key, question),) = (await task.questions()).items()
            assert question.message == "one asks: Which size?"
            wrong = {"taskId": task.id, "inputResponses": {"other": {"action": "accept"}}}
            await ann.request("tasks/update", wrong)  # ignored
            assert (await task.status()).questions == (key,)
            await task.answer(key, {"value": "large"})
            assert (await task.result()).text == "large"


async def test_a_question_of_a_task_that_the_caller_cannot_answer_is_refused(
    upstream: str, caller: str
) -> None:
    async with Client(Gateway(make_server(upstream), **OPTIONS), revision=caller) as client:
        task = await client.start_tool("ask")
        with pytest.raises((ProtocolError, Exception), match="elicitation"):
            await task.result(timeout=20)


async def test_changes_of_a_task_are_announced(upstream: str, caller: str) -> None:
    async with gateway_of(upstream) as (_, connect), connect(caller) as ann:
        seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        on_task = ann._connector.callbacks
        on_task.on_task_notification = (  # type: ignore[method-assign]
            lambda params: (
                seen.put_nowait((params.task_id, params.status))  # type: ignore[arg-type]
                if hasattr(params, "task_id")
                else None
            )
        )
        task = await ann.start_tool("up__work_long")
        listening = None
        if caller == EXT:
            listening = asyncio.ensure_future(ann.remote_tasks.listen([task.id]))
            if upstream == EXT:
                await asyncio.sleep(0.5)  # until the gateway listens, too
        elif upstream == EXT:
            return  # the extension has no notifications without a subscription
        await ann.request("tasks/cancel", {"taskId": task.id})
        while (last := await seen.get()) != (task.id, "cancelled"):
            assert last == (task.id, "working")
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])


async def test_progress_of_a_task_arrives_with_the_token_of_the_caller() -> None:
    async with Client(Gateway(make_server(CORE), **OPTIONS), revision=CORE) as client:
        task = await client.start_tool("work_long")
        async for update in task.updates():
            if update.progress is not None:
                break
        assert (update.total, update.message) == (10_000, "working")
        await task.cancel()


# what a gateway declares


async def test_a_gateway_has_tasks_if_one_of_its_servers_has_them(caller: str) -> None:
    plain = Server("plain", revisions=["2025-06-18"])
    plain.tool(lambda: "x", name="x")
    for server, has_tasks in ((plain, False), (make_server(CORE), True), (make_server(EXT), True)):
        async with Client(Gateway(server, **OPTIONS), revision=caller) as client:
            assert (client.task_form != "") == has_tasks


async def test_the_task_support_of_tools_passes() -> None:
    async def supports(server: Server) -> dict[str, str | None]:
        async with Client(Gateway(server, **OPTIONS), revision=CORE) as client:
            tools = await client.list_tools()
            return {
                one.name: None if one.execution is None else one.execution.task_support
                for one in tools
            }

    assert await supports(make_server(CORE)) == {
        "work": "optional", "work_long": "optional", "ask": "optional", "plain": None,
    }  # fmt: skip
    # With the extension, the server decides for each call.
    assert set((await supports(make_server(EXT))).values()) == {"optional"}


async def test_a_tool_that_cannot_run_as_a_task_is_refused_as_one() -> None:
    async with gateway_of(CORE, "one") as (gateway, connect), connect(CORE) as ann:
        with pytest.raises(MethodNotFound, match="cannot run as a task"):
            await ann.relay("tools/call", {"name": "one__plain", "task": {}})
        async with recorded(make_server("2025-06-18")) as (url, _):
            gateway.upstreams.add(read_entry("old", {"url": url}, gateway.upstreams.options))
            await gateway.upstreams.wait_for_catalogs()
            with pytest.raises(MethodNotFound, match="'work' of old cannot run as a task"):
                await ann.relay("tools/call", {"name": "old__work", "task": {}})
            with pytest.raises(InvalidParams, match="task must be an object"):
                await ann.relay("tools/call", {"name": "old__work", "task": 7})


async def test_a_gateway_without_tasks_ignores_the_wish_for_one() -> None:
    async with Client(Gateway(make_server("2025-06-18"), **OPTIONS), revision=CORE) as client:
        result = await client.relay("tools/call", {"name": "work", "task": {}, "arguments": {}})
        assert b'"done"' in bytes(result)


async def test_a_direct_answer_is_a_task_for_a_caller_that_asked_for_one() -> None:
    async with Client(Gateway(make_server(EXT), **OPTIONS), revision=CORE) as client:
        params = {"name": "plain", "task": {"ttl": 5000}, "arguments": {}}
        created = msgspec.json.decode(await client.relay("tools/call", params))["task"]
        assert (created["status"], created["ttl"]) == ("working", 5000)
        task = client.task(created["taskId"])
        assert (await task.result()).text == "plain"
        assert task.update.status == "completed"
        with pytest.raises(InvalidParams, match="cannot be cancelled: it is already over"):
            await client.request("tasks/cancel", {"taskId": task.id})
        assert [one.task_id for one in (await client.request("tasks/list")).tasks] == [task.id]


# policy, consent and audit


async def test_a_denied_tool_cannot_be_called_as_a_task(upstream: str, caller: str) -> None:
    policy = {"rule": [{"effect": "deny", "name": "work_long"}, {"effect": "allow"}]}
    async with gateway_of(upstream, policy=policy) as (gateway, connect), connect(caller) as ann:
        with pytest.raises(InvalidParams, match="not allowed"):
            await ann.start_tool("up__work_long")
        task = await ann.start_tool("up__work")
        gateway.access.policy = read_policy({"rule": [{"effect": "deny", "name": "work"}]})
        with pytest.raises(InvalidParams, match="not allowed"):
            await ann.relay("tasks/get", {"taskId": task.id})


async def test_a_caller_is_asked_for_consent_before_a_task_is_started(
    upstream: str, caller: str
) -> None:
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(request.message)
        return {"answer": "once" if len(asked) > 1 else "deny"}

    policy = {"ask": "elicit", "rule": [{"effect": "ask"}]}
    async with gateway_of(upstream, policy=policy) as (_, connect):
        async with connect(caller, on_elicit=answer) as ann:
            with pytest.raises(InvalidParams):
                await ann.start_tool("up__work")
            assert (await (await ann.start_tool("up__work")).result()).text == "done"
            assert len(asked) == 2
            assert "work" in asked[0]


async def test_calls_as_tasks_are_audited(upstream: str, caller: str) -> None:
    records: list[AuditRecord] = []
    options = {"middleware": [audit(records.append)]}
    async with gateway_of(upstream, **options) as (_, connect), connect(caller) as ann:
        await (await ann.start_tool("up__work")).result()
    calls = [one for one in records if one.method == "tools/call"]
    assert [(one.user, one.target, one.error) for one in calls] == [("ann", "up__work", None)]
    assert {one.user for one in records if one.method.startswith("tasks/")} == {"ann"}


# hostile servers

Answer = Callable[[Call], dict[str, Any]]


def scripted(revision: str, answer: Answer) -> Server:
    """A server that answers all calls of tools and requests about tasks with this object, as a new
    task or as the state of one."""

    async def intercept(call: Call, call_next: Any) -> Any:
        if call.name not in ("tools/call", "tasks/get", "tasks/result"):
            return await call_next(call)
        fields = {name: Raw(msgspec.json.encode(value)) for name, value in answer(call).items()}
        if call.name != "tools/call":
            return RawObject(call.method.result, fields)  # type: ignore[arg-type]
        if revision == EXT:
            return RawObject(CreateTaskResult, {"resultType": Raw(b'"task"'), **fields})
        return RawObject(CoreCreateTaskResult, {"task": Raw(msgspec.json.encode(fields))})

    return make_server(revision, middleware=[intercept])


def new_task(revision: str, id: str = "1", **more: Any) -> dict[str, Any]:
    times = {"createdAt": "2026-01-02T03:04:05Z", "lastUpdatedAt": "2026-01-02T03:04:06Z"}
    ttl = "ttl" if revision == CORE else "ttlMs"
    return {"taskId": id, "status": "working", **times, ttl: 60000, **more}


async def test_two_callers_whose_tasks_have_the_same_id_do_not_see_each_others(
    upstream: str, caller: str
) -> None:
    numbers = iter(range(100))

    def answer(call: Call) -> dict[str, Any]:
        return new_task(upstream, "1", statusMessage=f"secret {next(numbers)}")

    async with recorded(scripted(upstream, answer)) as (url, _):
        source = {"mcpServers": {"up": {"url": url}}}
        async with served(source, auth=KEYS, **OPTIONS) as (_, at):
            ann = Client(at, revision=caller, headers=headers_of(ANN))
            bob = Client(at, revision=caller, headers=headers_of(BOB))
            async with ann, bob:
                first = await ann.start_tool("up__work")
                assert (await first.status()).status == "working"
                second = await bob.start_tool("up__work")
                assert (await second.status()).status == "working"
                with pytest.raises(NotFound, match="There is no task"):
                    await first.status()
                assert first.id != second.id


async def test_a_caller_without_tasks_cannot_ask_for_one() -> None:
    async with recorded(make_server(CORE)) as (url, _):
        async with served({"mcpServers": {"up": {"url": url}}}, **OPTIONS) as (_, at):
            params = {"name": "up__work", "task": {}, "arguments": {}}
            _, answer = await asyncio.to_thread(post, at, "tools/call", params)
            assert answer["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("length", [0, 1025, 1_000_000])
async def test_an_id_that_is_too_long_or_empty_is_refused(
    upstream: str, caller: str, length: int
) -> None:
    server = scripted(upstream, lambda _: new_task(upstream, "x" * length))
    async with Client(Gateway(server, **OPTIONS), revision=caller) as client:
        with pytest.raises(InvalidRequest, match=f"a task id of {length} characters"):
            await client.start_tool("work")


@pytest.mark.parametrize("status", ["unknown", 7, None])
async def test_a_malformed_task_is_refused(upstream: str, caller: str, status: Any) -> None:
    server = scripted(upstream, lambda _: new_task(upstream, status=status))
    async with Client(Gateway(server, **OPTIONS), revision=caller) as client:
        with pytest.raises(InvalidRequest, match="returned a task that is malformed"):
            await client.start_tool("work")


@pytest.mark.parametrize("revision", ["2025-06-18", CORE, EXT])
async def test_a_task_for_a_call_that_asked_for_none_is_refused(
    upstream: str, revision: str
) -> None:
    server = scripted(upstream, lambda _: new_task(upstream))
    async with Client(Gateway(server, **OPTIONS), revision=revision, tasks=False) as client:
        with pytest.raises(InvalidRequest, match="returned a task for a call that asked for none"):
            await client.call_tool("work")


async def test_times_of_a_hostile_server_do_no_harm(upstream: str, caller: str) -> None:
    ttl = "ttl" if upstream == CORE else "ttlMs"
    for value in (-1, 0, 10**15):
        task_of = partial(new_task, upstream, createdAt="x" * 10_000, **{ttl: value})
        server = scripted(upstream, lambda _, task_of=task_of: task_of())  # type: ignore[misc]
        async with Client(Gateway(server, **OPTIONS), revision=caller) as client:
            task = await client.start_tool("work")
            assert len(task.id) < 1000
            assert (await task.status()).status == "working"


async def test_a_server_cannot_ask_the_caller_of_another_task() -> None:
    """Questions name the task that they belong to. One that names a task of somebody else at
    another server, or none that is known, is not asked."""
    async with gateway_of(CORE, "one", "two") as (gateway, connect):
        async with connect(EXT, on_elicit=lambda _: None) as ann:
            task = await ann.start_tool("one__ask", manual=True)
            while not (await task.status()).questions:
                await asyncio.sleep(0.02)
            known = gateway.tasks._context.known
            ((*_, id),) = known._all
            one, two = (gateway.upstreams.servers[name] for name in ("one", "two"))
            assert gateway.tasks.find_asker(one, one.client, id) is not None
            assert gateway.tasks.find_asker(two, two.client, id) is None


# a host


async def test_a_host_starts_tasks_and_returns_to_them(upstream: str) -> None:
    async with Host(make_server(upstream), policy="allow", store=":memory:") as host:
        assert (await host.call_tool("work")).text == "done"
        task = await host.start_tool("work", {"text": "started"})
        assert (await host.task(task.id, "server").result()).text == "started"
        with pytest.raises(ConfigError, match="no server 'other'"):
            host.task(task.id, "other")


async def test_the_user_is_asked_before_a_host_starts_a_task(upstream: str) -> None:
    asked: list[Any] = []

    def refuse(request: Any) -> str:
        asked.append((request.kind, request.name))
        return "deny"

    async with Host(make_server(upstream), on_consent=refuse, store=":memory:") as host:
        with pytest.raises(ConsentDenied):
            await host.start_tool("work")
    assert asked == [("call", "work")]
