"""Several processes behind one port, and processes that die. A connection stays with the worker
that accepted it, so a test that holds one connection to each can say which worker gets what."""

import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest

from tests.faults.raw_http import (
    Connection,
    Program,
    call,
    delete,
    events,
    get,
    listen,
    modern_call,
    opened,
    post,
    running,
    until,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and kills without mercy")

CALLS = 200
UVICORN = [
    sys.executable,
    "-m",
    "uvicorn",
    "--workers",
    "2",
    "--port",
    "PORT",
    "--log-level",
    "critical",
]
KEYS = {"DOVETAIL_KEYS": "a key that all of them are given"}


@pytest.fixture(scope="module")
def workers() -> Iterator[Program]:
    with running(options={"workers": 2}, stream_after=0.2) as program:
        yield program


@pytest.fixture(scope="module")
def uvicorn() -> Iterator[Program]:
    with running(command=[*UVICORN, "tests.faults.http_program:app"], path="/") as program:
        yield program


@contextmanager
def each(program: Program, count: int) -> Iterator[list[Connection]]:
    """A connection to each of the workers."""
    held: dict[int, Connection] = {}
    try:
        until(lambda: _another(program, held) == count, "not all workers take connections")
        yield list(held.values())
    finally:
        for connection in held.values():
            connection.close()


@contextmanager
def both(program: Program) -> Iterator[tuple[Connection, Connection]]:
    """A connection to each of two workers."""
    with each(program, 2) as (one, other):
        yield one, other


def _another(program: Program, held: dict[int, Connection]) -> int:
    batch = [program.connect() for _ in range(8)]
    for connection in batch:
        connection.send(modern_call("pid", path=program.path))
    for connection in batch:
        pid = connection.reply().result
        if held.setdefault(pid, connection) is not connection:
            connection.close()
    return len(held)


@contextmanager
def at(program: Program, pid: int, count: int = 2) -> Iterator[Connection]:
    """One more connection to this worker."""
    with each(program, count) as connections:
        yield next(
            connection
            for connection in connections
            if connection.ask(modern_call("pid")).result == pid
        )


def message(connection: Connection) -> Any:
    """The next message on a stream."""
    return connection.event()[1]


def levels(connection: Connection, session: str) -> list[str]:
    """The levels that the tool `level` is heard on."""
    reply = connection.ask(post(call("level"), session))
    if reply.headers["content-type"] == "application/json":
        return []
    return [said["params"]["level"] for _, said in events(reply.body) if "params" in said]


def heard(connection: Connection) -> tuple[str, Any]:
    """What the next message on a stream is about."""
    said = message(connection)
    return said["method"], said.get("params", {}).get("uri")


def news_arrives(program: Program, pid: int, other: int, count: int = 2) -> None:
    """Wait until all that one worker has told has reached another: so has the end of a session,
    which it tells now."""
    with at(program, pid, count) as teller, at(program, other, count) as hearer:
        session = opened(teller)
        assert teller.ask(delete(session)).status == 204
        until(
            lambda: hearer.ask(post(call("pid"), session)).status == 404, "the news does not arrive"
        )


# no sticky routing


@pytest.mark.parametrize("kind", ["workers", "uvicorn"])
def test_200_of_200_calls_of_one_session_succeed_on_two_workers_without_keep_alive(
    kind: str, request: pytest.FixtureRequest
) -> None:
    program: Program = request.getfixturevalue(kind)
    session = program.session()

    def once(number: int) -> tuple[int, int]:
        with program.connect() as connection:
            reply = connection.ask(
                post(call("pid", number), session, program.path, Connection="close")
            )
            assert connection.ended()
        return reply.status, reply.result

    with both(program):
        pass  # both are up
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(once, range(CALLS)))
    assert [status for status, _ in outcomes] == [200] * CALLS
    assert len({pid for _, pid in outcomes}) == 2


def test_a_call_is_cancelled_through_the_other_worker(workers: Program) -> None:
    with both(workers) as (one, other), workers.connect() as control:
        session = opened(one)
        tag = f"cancelled {session[:20]}"
        one.send(post(call("wait", 7, tag=tag), session))
        assert one.head()[0] == 200
        assert message(one)["params"]["data"] == f"{tag} begins"
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert other.ask(post(cancel, session)).status == 202
        assert one.rest() == []
        assert one.ask(modern_call("outcomes", tag=tag)).result == [1, 0, 1]
        assert control.ask(post(call("pid"), session)).status == 200


def test_a_log_level_set_on_one_worker_holds_on_the_other(workers: Program) -> None:
    with both(workers) as (one, other):
        session = opened(one)
        for number, (level, said) in enumerate(
            [("error", ["error"]), ("debug", ["debug", "error"])]
        ):
            params = {"level": level}
            one.ask(
                post(
                    {
                        "jsonrpc": "2.0",
                        "id": number,
                        "method": "logging/setLevel",
                        "params": params,
                    },
                    session,
                )
            )

            assert levels(one, session) == said
            until(
                lambda said=said: levels(other, session) == said,
                "the level does not reach the other worker",
            )


def test_a_subscription_and_its_updates_cross_workers_and_each_goes_out_once(
    workers: Program,
) -> None:
    with both(workers) as (one, other), workers.connect() as control:
        session = opened(one)
        stream = other.send(get(session))
        assert stream.head()[0] == 200
        subscribe = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "resources/subscribe",
            "params": {"uri": "test://a"},
        }
        assert one.ask(post(subscribe, session)).status == 200
        for number in range(3):
            one.ask(modern_call("touch", uri=f"test://a/{number}"))
            assert heard(stream) == ("notifications/resources/updated", f"test://a/{number}")
        one.ask(modern_call("touch", uri="test://b"))
        one.ask(modern_call("grow", name=f"grown {session[:20]}"))
        assert heard(stream)[0] == "notifications/tools/list_changed"
        control.ask(delete(session))
        assert stream.rest() == []


def test_with_a_stream_on_each_worker_a_change_goes_out_on_the_newest_only(
    workers: Program,
) -> None:
    with both(workers) as (one, other), workers.connect() as control:
        pids = [connection.ask(modern_call("pid")).result for connection in (other, one)]
        session = opened(one)
        assert one.send(get(session)).head()[0] == 200
        assert other.send(get(session)).head()[0] == 200
        news_arrives(workers, *pids)
        for number in range(3):
            control.ask(modern_call("grow", name=f"newest {number} {session[:20]}"))
            assert heard(other)[0] == "notifications/tools/list_changed"
        control.ask(delete(session))
        assert one.rest() == other.rest() == []


def test_when_the_newest_of_three_streams_goes_one_of_the_others_speaks_and_not_both() -> None:
    with (
        running(options={"workers": 3}) as program,
        each(program, 3) as streams,
        program.connect() as control,
    ):
        session = opened(control)
        oldest, older, newest = (stream.ask(modern_call("pid")).result for stream in streams)
        for stream in streams:
            assert stream.send(get(session)).head()[0] == 200
        streams[-1].close()
        with at(program, newest, 3) as connection:
            until(
                lambda: connection.ask(modern_call("figures")).result["EventStream"] == 0,
                "the stream stays",
            )
        for teller, hearer in ((newest, oldest), (newest, older), (older, oldest)):
            news_arrives(program, teller, hearer, 3)
        for number in range(3):
            control.ask(modern_call("grow", name=f"grown {number}"))
            assert heard(streams[1])[0] == "notifications/tools/list_changed"
        control.ask(delete(session))
        assert streams[0].rest() == streams[1].rest() == []


def test_a_stateless_subscription_hears_of_changes_in_the_other_worker(workers: Program) -> None:
    with both(workers) as (one, other):
        stream = one.send(listen("test://a"))
        assert stream.head()[0] == 200
        assert heard(stream)[0] == "notifications/subscriptions/acknowledged"
        other.ask(modern_call("touch", uri="test://a"))
        assert heard(stream) == ("notifications/resources/updated", "test://a")
        other.ask(modern_call("grow", name=f"listened to by {id(stream)}"))
        assert heard(stream)[0] == "notifications/tools/list_changed"


def test_a_deleted_session_is_gone_on_every_worker(workers: Program) -> None:
    with both(workers) as (one, other):
        session = opened(one)
        assert other.ask(post(call("pid"), session)).status == 200
        assert one.ask(delete(session)).status == 204
        assert one.ask(post(call("pid"), session)).status == 404
        until(
            lambda: other.ask(post(call("pid"), session)).status == 404,
            "the other worker does not hear of it",
        )
        for connection in (one, other):
            assert connection.ask(get(session)).status == 404
            assert connection.ask(delete(session)).status == 404


def test_a_broken_stream_is_resumed_on_the_other_worker_without_loss_or_repetition(
    workers: Program,
) -> None:
    with both(workers) as (one, other):
        session = opened(one)
        one.send(post(call("wait", 7, tag="resumed", seconds=0.5), session))
        assert one.head()[0] == 200
        last, said = one.event()
        assert said["params"]["data"] == "resumed begins"
        one.close()
        assert other.send(get(session, last)).head()[0] == 200
        [(_, reply)] = other.rest()
        assert reply["id"] == 7
        assert reply["result"]["structuredContent"] == {"result": "resumed"}


def test_a_stream_that_has_ended_is_resumed_on_the_other_worker_from_any_event(
    workers: Program,
) -> None:
    with both(workers) as (one, other):
        session = opened(one)
        one.send(post(call("speak", 7, tag="ended", times=5), session))
        assert one.head()[0] == 200
        said = one.rest()
        assert len(said) == 6
        for place, (last, _) in enumerate(said, 1):
            assert other.send(get(session, last)).head()[0] == 200
            assert other.rest() == said[place:]


def test_the_stream_of_a_session_is_resumed_on_the_other_worker_and_goes_on_there(
    workers: Program,
) -> None:
    with both(workers) as (one, other), workers.connect() as control:
        session, last = opened(control), None
        subscribe = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "resources/subscribe",
            "params": {"uri": "test://s"},
        }
        for connection in (one, other):
            assert connection.ask(post(subscribe, session)).status == 200
        pids = cycle([connection.ask(modern_call("pid")).result for connection in (one, other)])
        for number in range(6):
            with at(workers, next(pids)) as stream:
                assert stream.send(get(session, last)).head()[0] == 200
                control.ask(modern_call("touch", uri=f"test://s/{number}"))
                last, said = stream.event()
                assert said["params"]["uri"] == f"test://s/{number}"


def test_streams_resumed_elsewhere_leave_nothing_behind(workers: Program) -> None:
    with both(workers) as (one, other):
        session = opened(one)
        before = other.ask(modern_call("figures")).result
        for number in range(50):
            one.send(post(call("speak", number, tag="lent", times=2), session))
            assert one.head()[0] == 200
            last = one.rest()[0][0]
            assert other.send(get(session, last)).head()[0] == 200
            assert len(other.rest()) == 2
        after = other.ask(modern_call("figures")).result
        assert after["EventStream"] - before["EventStream"] <= 1, (
            "more than the last, which may be on its way out"
        )


def test_a_delete_cancels_the_calls_of_the_session_on_every_worker(workers: Program) -> None:
    with both(workers) as (one, other):
        session = opened(one)
        tag = f"deleted {session[:20]}"
        assert one.send(post(call("wait", 7, tag=tag), session)).head()[0] == 200
        assert message(one)["params"]["data"] == f"{tag} begins"
        assert other.ask(delete(session)).status == 204
        assert one.rest() == []
        until(
            lambda: one.ask(modern_call("outcomes", tag=tag)).result == [1, 0, 1],
            "the call goes on",
        )


def test_a_session_in_use_on_one_worker_does_not_go_idle_on_the_other() -> None:
    with (
        running(options={"workers": 2}, session_idle=1.5) as program,
        both(program) as (one, other),
    ):
        session = opened(other)
        assert one.send(get(session)).head()[0] == 200
        for _ in range(2):
            opened(other)  # which nobody uses
            until(
                lambda: other.ask(modern_call("figures")).result["HttpSession"] <= 1,
                "the unused one stays",
            )
        assert other.ask(post(call("pid"), session)).status == 200


# processes that share nothing


@contextmanager
def balancer(ports: list[int]) -> Iterator[int]:
    """One port before several servers: each connection goes to the next of them."""
    listening = socket.create_server(("127.0.0.1", 0))
    turns = cycle(ports)

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=_relay, args=(client, next(turns)), daemon=True).start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        acceptor.join()


def _relay(client: socket.socket, port: int) -> None:
    with (
        client,
        socket.create_connection(("127.0.0.1", port)) as server,
        selectors.DefaultSelector() as selector,
    ):
        selector.register(client, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, client)
        while True:
            for ready, _ in selector.select():
                try:
                    data = ready.fileobj.recv(65536)  # type: ignore[union-attr]
                    ready.data.sendall(data)
                except OSError:
                    data = b""
                if not data:
                    return


def test_without_a_common_key_the_other_process_refuses_the_session_at_once() -> None:
    keys = [{"DOVETAIL_KEYS": f"the key of process number {number}"} for number in range(2)]
    with (
        running(env=keys[0]) as one,
        running(env=keys[1]) as other,
        balancer([one.port, other.port]) as port,
    ):
        with Connection(port) as connection:
            session = opened(connection)
        statuses = []
        for _ in range(20):
            with Connection(port) as connection:
                reply = connection.ask(post(call("pid"), session))
                statuses.append(reply.status)
                if reply.status == 404:
                    assert "Send `initialize` again" in reply.error
        assert statuses == [404, 200] * 10  # whose turn it is
        with Connection(port) as connection:
            assert connection.ask(get(session)).status == 404


def test_with_a_common_key_but_no_bus_calls_succeed_and_resumption_elsewhere_is_refused_with_the_setting() -> (  # noqa: E501
    None
):
    with (
        running(env=KEYS) as one,
        running(env=KEYS) as other,
        balancer([one.port, other.port]) as port,
    ):
        with Connection(port) as connection:
            session = opened(connection)
        pids = []
        for _ in range(20):
            with Connection(port) as connection:
                pids.append(connection.ask(post(call("pid"), session)).result)
        assert set(pids) == {one.popen.pid, other.popen.pid}

        with one.connect() as connection:
            connection.send(post(call("speak", 7, tag="here", times=2), session))
            assert connection.head()[0] == 200
            said = connection.rest()
        refusal = other.ask(get(session, said[0][0]))
        assert refusal.status == 400
        assert "workers=" in refusal.error
        with one.connect() as connection:
            assert connection.send(get(session, said[0][0])).head()[0] == 200
            assert connection.rest() == said[1:]


# sudden death


def test_a_killed_worker_is_replaced_and_the_other_does_not_notice() -> None:
    with running(options={"workers": 2}) as program, both(program) as (one, other):
        victim, survivor = (
            connection.ask(modern_call("pid")).result for connection in (one, other)
        )
        session = opened(one)
        other.send(post(call("wait", 7, tag="through", seconds=0.5), session))
        assert other.head()[0] == 200
        os.kill(victim, signal.SIGKILL)
        assert one.ended()
        assert [said.get("id") for _, said in other.rest()] == [None, 7]
        assert other.ask(post(call("pid"), session)).result == survivor
        with both(program) as pair:
            now = {connection.ask(post(call("pid"), session)).result for connection in pair}
        assert survivor in now
        assert victim not in now
        assert program.terminate() == 0


def test_a_stream_that_is_read_on_the_other_worker_ends_when_the_one_that_runs_its_call_is_killed() -> (  # noqa: E501
    None
):
    with running(options={"workers": 2}) as program, both(program) as (one, other):
        victim, session = one.ask(modern_call("pid")).result, opened(one)
        one.send(post(call("wait", 7, tag="killed"), session))
        assert one.head()[0] == 200
        last, _ = one.event()
        one.close()
        assert other.send(get(session, last)).head()[0] == 200
        os.kill(victim, signal.SIGKILL)
        assert other.rest() == []
        assert other.ask(post(call("pid"), session)).status == 200


def test_a_worker_that_replaces_another_knows_what_the_sessions_subscribed_to() -> None:
    with running(options={"workers": 2}) as program:
        with both(program) as (one, other):
            session = opened(one)
            subscribe = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "resources/subscribe",
                "params": {"uri": "test://a"},
            }
            assert one.ask(post(subscribe, session)).status == 200
            survivor, victim = (
                connection.ask(modern_call("pid")).result for connection in (one, other)
            )
            os.kill(victim, signal.SIGKILL)
            assert other.ended()
        with both(program) as pair:
            one, other = sorted(
                pair, key=lambda connection: connection.ask(modern_call("pid")).result != survivor
            )
            assert other.send(get(session)).head()[0] == 200
            one.ask(modern_call("touch", uri="test://a"))
            one.ask(modern_call("grow", name="one more"))
            assert heard(other) == ("notifications/resources/updated", "test://a")


@pytest.mark.parametrize("env", [KEYS, {}], ids=["with keys", "without keys"])
def test_after_kill_9_and_a_restart_on_the_same_port_a_session_goes_on_if_the_key_is_the_same(
    env: dict[str, str],
) -> None:
    with running(env=env) as first:
        session = first.session()
        assert first.ask(post(call("add", a=1, b=2), session)).result == 3
        first.popen.kill()
        first.popen.wait()
        with running(first.port, env=env) as second:
            reply = second.ask(post(call("add", a=1, b=2), session))
            if env:
                assert (reply.status, reply.result) == (200, 3)
            else:
                assert reply.status == 404
                assert second.ask(post(call("add", a=1, b=2), second.session())).result == 3


def test_workers_end_their_streams_and_themselves_on_sigterm() -> None:
    with running(options={"workers": 2}) as program, both(program) as (one, other):
        pids = [connection.ask(modern_call("pid")).result for connection in (one, other)]
        streams = [one.send(listen("test://a")), other.send(modern_call("wait", tag="last"))]
        for stream in streams:
            assert stream.head()[0] == 200
        assert program.terminate() == 0
        for stream in streams:
            stream.rest()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        with pytest.raises(ConnectionRefusedError):
            program.connect()
