"""Servers as child processes: real children, each a few lines of Python."""

import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import ConnectFailed, ConnectionClosed
from dovetail.jsonrpc.framing import TooLong
from dovetail.limits import Limits
from dovetail.transports import _posix, _windows, process
from dovetail.transports.process import ProcessChannel, safe_environment, spawn

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the children are written for POSIX"
)

SLEEPER = "import time; print('ready', flush=True); time.sleep(100)"
HASTY = Limits(shutdown=0.1)
CALM = Limits(shutdown=2)
"""Time enough for a process to react, on a machine that is busy."""
ECHO = (
    "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); "
    "sys.stdout.buffer.flush()"
)


@pytest.fixture(params=["polled", "threads", "no pidfd"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipes polled by the loop, served by the threads that Windows needs, and the exit awaited
    by a thread."""
    threads = {**vars(_posix), "read": _windows.read, "PipeWriter": _windows.WindowsPipeWriter}
    if request.param == "threads":
        monkeypatch.setattr(process, "system", types.SimpleNamespace(**threads))
    elif request.param == "no pidfd":
        monkeypatch.setattr(_posix, "_open_pidfd", lambda pid: None)


every_way = pytest.mark.usefixtures("way")


class Peer:
    """A server process and all that was heard from it."""

    def __init__(self, process: ProcessChannel) -> None:
        self.process = process
        self.lines: list[bytes | TooLong] = []
        self.reasons: list[Exception | None] = []
        self.slow = 0.0
        self._news = asyncio.Event()
        process.start(self._receive, self._ended)

    def _receive(self, line: bytes | TooLong) -> None:
        time.sleep(self.slow)
        self.lines.append(line)
        self._news.set()

    def _ended(self, reason: Exception | None) -> None:
        self.reasons.append(reason)
        self._news.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def line(self, number: int = 0) -> bytes:
        await self.until(lambda: len(self.lines) > number)
        line = self.lines[number]
        assert isinstance(line, bytes)
        return line

    async def end(self) -> str:
        """How it ended by itself."""
        await self.until(lambda: self.reasons)
        assert isinstance(self.reasons[0], ConnectionClosed)
        return str(self.reasons[0])


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


async def peer(code: str, **options: Any) -> Peer:
    return Peer(await spawn(python(code), **options))


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(bounded())


class ends:
    """In this block a process ends, which may be nobody's child here."""

    def __init__(self, pid: int) -> None:
        self.pid, self.descriptor = pid, os.pidfd_open(pid)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure: Any) -> None:
        try:
            assert failure[0] or select.select([self.descriptor], [], [], 10)[0], (
                f"{self.pid} is still alive"
            )
        finally:
            os.close(self.descriptor)

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *failure: Any) -> None:
        await asyncio.to_thread(self.__exit__, *failure)


def is_reaped(pid: int) -> bool:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


# messages


@every_way
def test_messages_come_back_in_order() -> None:
    async def test() -> None:
        echo = await peer(ECHO)
        sent = [b'{"n":%d,"text":"%s"}' % (n, b"\xc3\xa9" * (n % 50)) for n in range(5000)]
        for message in sent:
            echo.process.send(message)
            await echo.process.drain()
        await echo.line(len(sent) - 1)
        assert echo.lines == sent
        await echo.process.close()
        assert echo.reasons == [None]

    run(test)


@every_way
def test_what_was_sent_before_closing_still_arrives_and_is_answered() -> None:
    async def test() -> None:
        server = await peer("import sys; print(len(sys.stdin.read()), flush=True)")
        for _ in range(100):
            server.process.send(b"x" * 9_999)
        await server.process.close()
        assert server.lines == [b"1000000"]

    run(test)


def test_the_first_send_of_a_turn_leaves_at_once_and_the_others_in_one_write() -> None:
    count = (
        "n = size = 0\nwhile size < 20000: size += len(os.read(0, 65536)); n += "
        "1\nprint(n, flush=True)"
    )

    async def test() -> None:
        server = await peer(f"import os; print('ready', flush=True)\n{count}")
        await server.line()
        for _ in range(1000):
            server.process.send(b"x" * 19)
        assert int(await server.line(1)) <= 2
        await server.process.close()

    run(test)


def test_an_answer_of_64_mib_costs_little() -> None:
    async def test() -> None:
        server = await peer("import sys; print('x' * (64 << 20), flush=True); sys.stdin.read()")
        before = time.process_time()
        answer = await server.line()
        print(f"64 MiB in one line: {time.process_time() - before:.2f} s of CPU")
        assert len(answer) == 64 << 20
        await server.process.close()

    run(test)


@every_way
def test_a_large_message_goes_both_ways_while_others_wait() -> None:
    async def test() -> None:
        echo = await peer(ECHO)
        sent = [b"a" * (8 << 20), b"b", b"c" * (8 << 20), b"d"]
        for message in sent:
            echo.process.send(message)
        await echo.line(3)
        assert echo.lines == sent
        await echo.process.close()

    run(test)


@every_way
def test_drain_waits_for_a_server_that_does_not_read() -> None:
    async def test() -> None:
        code = """
            import signal, sys
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            print("ready", flush=True)
            signal.sigwait([signal.SIGUSR1])
            print(len(sys.stdin.read()), flush=True)
        """
        server = await peer(code, limits=Limits(write_buffer=1000))
        await server.line()
        await server.process.drain()
        server.process.send(b"x" * 999_999)
        drained = asyncio.create_task(server.process.drain())
        await asyncio.wait([drained], timeout=0.05)
        assert not drained.done()
        os.kill(server.process.pid, signal.SIGUSR1)
        await drained
        await server.process.close()
        assert server.lines[1:] == [b"1000000"]

    run(test)


@every_way
def test_drain_ends_with_the_server() -> None:
    async def test() -> None:
        server = await peer(SLEEPER, limits=Limits(write_buffer=1000))
        await server.line()
        server.process.send(b"x" * 1_000_000)
        drained = asyncio.create_task(server.process.drain())
        os.kill(server.process.pid, signal.SIGKILL)
        await drained
        assert "SIGKILL" in await server.end()

    run(test)


def test_a_line_over_the_bound_is_marked_and_the_next_one_comes() -> None:
    async def test() -> None:
        server = await peer("print('x' * 5000); print('short')", limits=Limits(incoming=1000))
        await server.end()
        assert server.lines == [TooLong(b"x" * 256), b"short"]

    run(test)


@every_way
def test_a_last_line_without_newline_counts() -> None:
    async def test() -> None:
        server = await peer("print('first'); print('last', end='')")
        await server.end()
        assert server.lines == [b"first", b"last"]

    run(test)


# the end


@every_way
def test_a_server_that_dies_at_once_leaves_its_last_words() -> None:
    async def test() -> None:
        server = await peer(
            "import sys; print('no database here', file=sys.stderr); sys.exit(3)",
            on_stderr=[].append,
        )
        text = await server.end()
        assert text.startswith(f"`{sys.executable[:30]}")
        assert text.endswith("exited with code 3; last lines of stderr: no database here")
        assert is_reaped(server.process.pid)

    run(test)


def test_last_words_are_the_end_of_a_long_speech() -> None:
    async def test() -> None:
        heard: list[str] = []
        code = (
            "import sys; [print(n, 'x' * 90, file=sys.stderr) for n in range(5000)]; raise "
            "SystemExit('the end')"
        )
        text = await (await peer(code, on_stderr=heard.append)).end()
        assert text.endswith("\nthe end")
        assert len(text) < 9000
        words = text.partition("last lines of stderr:\n")[2]
        assert words.splitlines() == heard[-len(words.splitlines()) :]

    run(test)


@every_way
def test_a_killed_server_is_told_by_its_signal() -> None:
    async def test() -> None:
        server = await peer(
            "import os, signal; print('hello', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
        )
        assert (await server.end()).endswith("was killed by SIGKILL")
        assert server.lines == [b"hello"]

    run(test)


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    async def test() -> None:
        server = await peer("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)")
        assert (await server.end()).endswith(f"was killed by signal {signal.SIGRTMIN + 3}")

    run(test)


@every_way
def test_a_server_that_closes_its_output_has_ended_and_is_stopped() -> None:
    async def test() -> None:
        server = await peer("import os, time; os.close(1); time.sleep(100)", limits=HASTY)
        async with ends(server.process.pid):
            assert (await server.end()).endswith("closed its output")
        await server.process.close()
        assert is_reaped(server.process.pid)
        assert len(server.reasons) == 1

    run(test)


@every_way
def test_a_server_that_closes_its_input_has_ended_and_is_stopped() -> None:
    async def test() -> None:
        code = """
            import os, signal
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            os.close(0)
            print("deaf", flush=True)
            signal.sigwait([signal.SIGTERM])
            print("what?", flush=True)
        """
        server = await peer(code, limits=HASTY)
        await server.line()
        async with ends(server.process.pid):
            server.process.send(b"hello?")
            assert (await server.end()).endswith("closed its input")
            server.process.send(b"hello??")
            await server.process.drain()
        await server.process.close()
        assert server.lines == [b"deaf"], "what comes after the end is not delivered"

    run(test)


@every_way
def test_sending_to_a_dead_server_is_not_an_error() -> None:
    async def test() -> None:
        server = await peer("")
        assert (await server.end()).endswith("exited with code 0")
        server.process.send(b"anybody?")
        await server.process.drain()
        await server.process.close()
        assert len(server.reasons) == 1

    run(test)


@every_way
def test_a_helper_that_holds_the_pipes_of_a_dead_server_is_killed_with_it() -> None:
    async def test() -> None:
        code = """
            import os, subprocess, sys
            helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
            print(helper.pid, flush=True)
            os._exit(7)
        """
        server = await peer(code)
        async with ends(int(await server.line())):
            assert (await server.end()).endswith("exited with code 7")

    run(test)


@every_way
def test_a_helper_that_left_the_group_does_not_keep_a_dead_server_alive() -> None:
    async def test() -> None:
        code = """
            import os, subprocess, sys
            helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
            print(helper.pid, flush=True)
            os._exit(7)
        """  # noqa: E501
        server = await peer(code)
        helper = int(await server.line())
        assert (await server.end()).endswith("exited with code 7")
        os.kill(helper, signal.SIGKILL)

    run(test)


def test_all_that_a_dead_server_said_is_heard_even_by_the_slow() -> None:
    async def test() -> None:
        code = """
            import os, subprocess, sys
            print("ready", flush=True)
            sys.stdin.readline()
            subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], start_new_session=True)
            for n in range(3): os.write(1, b"%d" % n * 65_535 + b"\\n")
            os._exit(7)
        """  # noqa: E501
        server = await peer(code)
        await server.line()
        with ends(server.process.pid):  # blocks the loop, as a busy program does
            server.process.send(b"go")
            await asyncio.sleep(0)
        server.slow = process.GRACE_SECONDS * 1.2
        await server.end()
        assert server.lines[1:] == [b"%d" % n * 65_535 for n in range(3)]

    run(test)


# closing


@pytest.mark.requirement("stdio-shutdown")
@every_way
def test_closing_ends_a_server_that_reads_its_input_and_reaps_it() -> None:
    async def test() -> None:
        server = await peer("import sys; sys.stdin.read(); print('bye', flush=True)")
        await server.process.close()
        assert server.lines == [b"bye"]
        assert server.reasons == [None]
        assert is_reaped(server.process.pid)

    run(test)


@pytest.mark.requirement("stdio-shutdown")
@every_way
def test_a_server_deaf_to_the_end_of_its_input_is_asked_by_term() -> None:
    async def test() -> None:
        code = """
            import signal
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            print("ready", flush=True)
            signal.sigwait([signal.SIGTERM])
            print("tidied up", flush=True)
        """
        server = await peer(code, limits=CALM)
        await server.line()
        await server.process.close()
        assert server.lines[1:] == [b"tidied up"]
        assert server.reasons == [None]

    run(test)


@every_way
def test_a_server_that_ignores_term_is_killed() -> None:
    async def test() -> None:
        code = """
            import signal, time
            signal.signal(signal.SIGTERM, lambda *_: print("never", flush=True))
            print("ready", flush=True)
            while True: time.sleep(100)
        """
        server = await peer(code, limits=CALM)
        await server.line()
        async with ends(server.process.pid):
            await server.process.close()
        assert server.lines[1:] == [b"never"]
        assert is_reaped(server.process.pid)

    run(test)


@every_way
def test_helpers_of_a_server_do_not_survive_its_close() -> None:
    async def test() -> None:
        code = """
            import subprocess, sys
            null = subprocess.DEVNULL
            code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(100)"
            print(subprocess.Popen([sys.executable, "-c", code], stdin=null, stdout=null, stderr=null).pid, flush=True)
            sys.stdin.read()
        """  # noqa: E501
        server = await peer(code)
        async with ends(int(await server.line())):
            await server.process.close()

    run(test)


@every_way
def test_closing_may_be_done_by_many_at_once_again_and_by_the_impatient() -> None:
    async def test() -> None:
        server = await peer(SLEEPER, limits=HASTY)
        await server.line()
        first = asyncio.create_task(server.process.close())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert server.reasons == []
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(server.process.close())
        await server.process.close()
        assert server.reasons == [None]
        assert is_reaped(server.process.pid)

    run(test)


@every_way
def test_a_cancelled_close_goes_on_alone() -> None:
    async def test() -> None:
        server = await peer(SLEEPER, limits=HASTY)
        await server.line()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.process.close(), 0.01)
        await server.until(lambda: server.reasons)
        assert server.reasons == [None]

    run(test)


@every_way
def test_a_server_may_be_closed_before_it_was_started() -> None:
    async def test() -> None:
        process = await spawn(python(ECHO), limits=Limits(shutdown=60))
        process.send(b"hello")
        await process.close()
        assert is_reaped(process.pid)

    run(test)


def test_closing_while_the_loop_shuts_down_raises_nothing() -> None:
    servers: list[Peer] = []

    async def main() -> None:
        async def hold() -> None:
            servers.append(await peer(ECHO))
            try:
                started.set()
                await asyncio.Event().wait()
            finally:
                await servers[0].process.close()

        started = asyncio.Event()
        held = asyncio.create_task(hold())
        await started.wait()
        assert not held.done()

    asyncio.run(main())
    assert servers[0].reasons == [None]
    assert is_reaped(servers[0].process.pid)


def test_a_server_whose_loop_is_closed_can_be_closed_from_another() -> None:
    async def opened() -> Peer:
        return await peer("import time; time.sleep(100)")

    server = asyncio.run(opened())
    with ends(server.process.pid):
        asyncio.run(server.process.close())
    assert is_reaped(server.process.pid)


def test_a_forgotten_server_is_killed() -> None:
    async def opened() -> int:
        server = await peer(SLEEPER)
        await server.line()
        return server.process.pid

    pid = asyncio.run(opened())
    gc.collect()
    assert is_reaped(pid)


def test_no_server_outlives_the_interpreter_but_a_fork_of_it_kills_none() -> None:
    code = """
        import asyncio, os, sys
        from dovetail.transports.process import spawn

        async def main():
            global server, got
            got = asyncio.Event()
            server = await spawn([sys.executable, "-c", "import time; print('alive', flush=True); time.sleep(100)"])
            server.start(lambda line: got.set(), print)
            await got.wait()

        asyncio.run(main())
        if (fork := os.fork()) == 0:
            sys.exit()
        os.waitpid(fork, 0)
        server._popen.poll()
        print(server.pid, server._popen.returncode, flush=True)
        sys.stdin.read()
    """  # noqa: E501
    with subprocess.Popen(
        python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout and parent.stdin
        pid, returncode = parent.stdout.readline().split()
        assert returncode == "None"
        with ends(int(pid)):
            parent.stdin.close()
            assert parent.wait(10) == 0


def test_fifty_servers_leave_no_descriptor_behind() -> None:
    async def test() -> None:
        def descriptors() -> list[str]:
            return os.listdir("/proc/self/fd")

        before = descriptors()
        for n in range(50):
            server = await peer(ECHO)
            server.process.send(b"x")
            if n % 2:
                await server.line()
            await server.process.close()
        assert len(descriptors()) == len(before)

    run(test)


def test_a_server_can_be_used_in_the_loop_of_a_thread() -> None:
    answers: list[bytes] = []

    async def test() -> None:
        echo = await peer(ECHO)
        echo.process.send(b"from a thread")
        answers.append(await echo.line())
        await echo.process.close()

    thread = threading.Thread(target=run, args=(test,))
    thread.start()
    thread.join()
    assert answers == [b"from a thread"]


# stderr


@pytest.mark.requirement("stdio-stderr")
@every_way
def test_lines_of_stderr_are_handed_over_decoded() -> None:
    async def test() -> None:
        heard: list[str] = []
        code = r"import os; os.write(2, b'one\r\n\ntw\xc3\xa9\xff\nlast')"
        await (await peer(code, on_stderr=heard.append)).end()
        assert heard == ["one", "", "twé�", "last"]

    run(test)


def test_a_line_of_stderr_without_end_comes_in_pieces() -> None:
    async def test() -> None:
        heard: list[str] = []
        await (await peer("import os; os.write(2, b'x' * 1_000_000)", on_stderr=heard.append)).end()
        assert len(heard) > 1
        assert "".join(heard) == "x" * 1_000_000

    run(test)


def test_a_failing_listener_of_stderr_is_reported_and_disturbs_nothing() -> None:
    async def test() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: reported.append(context)
        )
        server = await peer(
            "import sys; print('a\\nb', file=sys.stderr, flush=True); print('answer')",
            on_stderr=int,
        )
        assert "last lines of stderr:\na\nb" in await server.end()
        assert server.lines == [b"answer"]
        assert [type(context["exception"]) for context in reported] == [ValueError, ValueError]

    run(test)


def test_stderr_goes_to_ours_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        await (await peer("import sys; print('I am here', file=sys.stderr)")).end()

    run(test)
    assert capfd.readouterr().err == "I am here\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_stderr_cannot_control_our_terminal() -> None:
    """The user may be asked for consent there."""
    code = """
        import asyncio, sys
        from dovetail.transports.process import spawn

        async def main():
            server = await spawn([sys.executable, "-c", sys.argv[1]])
            ended = asyncio.Event()
            server.start(print, lambda reason: ended.set())
            await ended.wait()

        asyncio.run(main())
    """
    evil = "import sys; print('a\\tb\\x1b[2K\\r\\x9b\\u202eAllow it? y', file=sys.stderr)"
    ours, theirs = os.openpty()
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    words = [sys.executable, "-c", textwrap.dedent(code), evil]
    done = subprocess.run(words, stderr=theirs, timeout=60, env=environment)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == 0, shown
    assert r"b\x1b[2K\x0d" in shown and "Allow it?" in shown
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)


def test_stderr_goes_to_what_took_the_place_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        await (await peer("import sys; print('I am here', file=sys.stderr)")).end()

    run(test)
    assert capsys.readouterr().err == "I am here\n"


def test_a_flood_of_stderr_does_not_starve_the_answers() -> None:
    async def test() -> None:
        code = """
            import os, sys, threading
            def flood():
                while True: os.write(2, b"x" * 9999 + b"\\n")
            threading.Thread(target=flood, daemon=True).start()
            for line in sys.stdin: print(line, end="", flush=True)
        """
        flood: list[str] = []
        server = await peer(code, on_stderr=flood.append)
        for n in range(100):
            server.process.send(b"%d" % n)
            await server.line(n)
        await server.process.close()
        assert flood

    run(test)


def test_a_stuck_stderr_of_ours_stops_neither_server_nor_loop() -> None:
    code = """
        import asyncio, sys
        from dovetail.transports.process import spawn

        async def main():
            got = asyncio.Event()
            flood = "import sys; [print('x' * 999, file=sys.stderr) for n in range(1000)]; print('done', flush=True)"
            server = await spawn([sys.executable, "-c", flood])
            server.start(lambda line: got.set(), lambda reason: None)
            await got.wait()
            await server.close()
            print("through", flush=True)

        asyncio.run(main())
    """  # noqa: E501
    pipe = subprocess.PIPE
    with subprocess.Popen(python(code), stdout=pipe, stderr=pipe, text=True) as parent:
        assert parent.stdout and parent.stderr
        assert select.select([parent.stdout], [], [], 20)[0], "stuck"
        assert parent.stdout.readline() == "through\n"
        assert parent.stderr.readline() == "x" * 999 + "\n"


# starting


def test_the_environment_of_a_server_holds_nothing_of_ours_but_the_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    monkeypatch.setenv("SHELL", "() { :; }")
    monkeypatch.setenv("TERM", "dumb")

    async def test() -> None:
        code = "import os; print(dict(os.environ))"
        server = await peer(code, env={"TOKEN": "given", "TERM": "given too"})
        seen = eval(await server.line())
        await server.process.close()
        assert (
            seen.items()
            >= {
                "TOKEN": "given",
                "TERM": "given too",
                "LC_TIME": "C",
                "XDG_DATA_HOME": "/data",
            }.items()
        )
        assert seen["PATH"] == os.environ["PATH"]
        assert not seen.keys() & {"AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "SHELL"}
        assert seen.keys() <= safe_environment().keys() | {"TOKEN", "TERM", "LC_CTYPE"}

    run(test)


def test_a_server_runs_where_it_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        server = await peer("import os; print(os.getcwd())", cwd=tmp_path)
        assert await server.line() == os.fsencode(tmp_path.resolve())
        await server.process.close()

    run(test)


def test_a_server_is_no_part_of_our_session() -> None:
    async def test() -> None:
        server = await peer("import os; print(os.getsid(0), os.getpgrp())")
        assert await server.line() == b"%d %d" % (server.process.pid, server.process.pid)
        await server.process.close()

    run(test)


def refusal(*command: str, **options: Any) -> str:
    async def test() -> None:
        await spawn(command, **options)

    with pytest.raises(ConnectFailed) as caught:
        run(test)
    assert caught.value.__cause__ is None
    return str(caught.value)


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_program_that_is_not_installed_is_named_without_the_whole_path() -> None:
    assert refusal("no-such-server", "--x", env={"PATH": "/bin:/opt"}) == (
        "Could not start `no-such-server --x`: no such file or directory ('no-such-server' "
        "was not found in PATH). Install it, or use its full path."
    )


def test_a_relative_program_is_named_with_the_directory_it_was_sought_in(tmp_path: Path) -> None:
    assert f"('./server' was not found in '{tmp_path}')" in refusal("./server", cwd=tmp_path)


def test_a_working_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    text = refusal(sys.executable, cwd=tmp_path / "gone")
    where, remedy = (
        f"the working directory '{tmp_path}/gone' is not accessible",
        "Create it, or change `cwd`.",
    )
    assert text.endswith(f"{where} (no such file or directory). {remedy}")
    (tmp_path / "gone").touch()
    assert refusal(sys.executable, cwd=tmp_path / "gone").endswith(
        f"{where} (not a directory). {remedy}"
    )


@pytest.mark.parametrize("name", [".", "sub", "./sub"])
def test_a_directory_is_not_called_a_program_without_permission(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    assert refusal(name, cwd=tmp_path).endswith(
        ": it is a directory. Name a file in it, or a command."
    )


def test_a_script_that_may_not_be_executed_says_how_to_help(tmp_path: Path) -> None:
    text = refusal(script(tmp_path / "server", "#!/bin/sh\n", mode=0o644))
    assert "permission denied; make it executable (`chmod +x`)" in text


def test_a_script_without_first_line_says_how_to_help(tmp_path: Path) -> None:
    assert "exec format error; add a `#!` line to the script" in refusal(
        script(tmp_path / "server", "print()\n")
    )


def test_a_script_whose_interpreter_is_missing_says_so(tmp_path: Path) -> None:
    path = script(tmp_path / "server", "#!/no/such/python\n")
    expected = (
        f"the interpreter in the first line of '{path}' does not exist. Install it, or "
        "change that line."
    )
    assert refusal(path).endswith(expected)
    assert refusal("server", env={"PATH": str(tmp_path)}).endswith(expected)


def test_an_empty_or_impossible_command_is_refused() -> None:
    assert refusal() == (
        "Could not start ``: the command is empty. Pass at least the name of a program."
    )
    assert refusal("a\0b").endswith("embedded null byte")


def test_a_long_command_line_is_shortened_in_messages() -> None:
    async def test() -> None:
        server = await peer("pass\n" * 1000)
        assert len(server.process.command) == 120
        assert "\n" not in server.process.command
        await server.process.close()

    run(test)
