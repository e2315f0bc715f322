"""Isolated tools, each in a real child process. The functions up here are the tools: a child
imports them by name."""

import asyncio
import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from dovetail import Server
from dovetail.client.tool_results import TypedToolResult
from dovetail.errors import ConfigError, InvalidParams, SchemaError, ToolError
from dovetail.limits import KIB, MIB, Limits
from dovetail.server.context import Context
from dovetail.server.isolation import check_isolatable, run_isolated
from dovetail.testing import pair

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups")
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory bounds, pidfd and /proc")

hoard: list[Any] = []


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Awkward(Exception):
    """Pickles, but its copy cannot be made: the constructor wants two arguments."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}, because {why}")


class Vague(Exception):
    """Pickles, but its copy says something else."""

    def __init__(self, what: str) -> None:
        super().__init__(f"<{what}>")


class Shop:
    def __init__(self, price: int) -> None:
        self.price = price

    def total(self, count: int) -> int:
        return self.price * count

    def __call__(self, count: int) -> int:
        return self.total(count)


class Unreadable:
    """Leaves the child, but cannot enter the parent."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


def mirror(point: Point) -> Point:
    return Point(point.y, point.x)


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def say(text: str) -> None:
    print(text, end="")
    os.write(1, b"and again " + text.encode())


def say_and_crash(text: str) -> None:
    print(text)
    os._exit(1)


def fail(kind: Callable[..., BaseException], *args: Any) -> NoReturn:
    raise kind(*args)


async def fail_later(kind: type[BaseException]) -> NoReturn:
    raise kind()


def read_stdin() -> str:
    return sys.stdin.read()


def keep_everything(size: int) -> None:
    while True:
        hoard.append(bytes(size))


def signal_itself(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(100)


def tell_pids(fifo: str, *pids: int) -> None:
    with open(fifo, "w") as out:
        out.write(" ".join(map(str, (os.getpid(), *pids))))


def hang(fifo: str) -> None:
    tell_pids(fifo)
    while True:
        pass


def hang_with_helper(fifo: str) -> None:
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    tell_pids(fifo, helper.pid)
    helper.wait()


def leave_helper() -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]).pid


def fork_and_crash() -> None:
    if os.fork() == 0:
        time.sleep(100)
    signal_itself(signal.SIGSEGV)


def fork_and_return() -> str:
    copy = os.fork()
    if copy == 0:
        return "the copy"
    os.waitpid(copy, 0)
    return "the original"


def leave_thread() -> str:
    threading.Thread(target=time.sleep, args=(100,)).start()
    return "done"


def hold(lock: str) -> None:
    with open(lock, "x"):
        time.sleep(0.2)
    os.unlink(lock)


def environment(name: str) -> str | None:
    return os.environ.get(name)


shop = Shop(3)

SPIN = "import os; os.write(os.open(fifo, os.O_WRONLY), b'%d' % os.getpid())\nwhile True: pass"
"""The same as `hang`, but starts in no time."""


def run(
    function: Callable[..., Any],
    *args: Any,
    limits: Limits | None = None,
    timeout: float | None = 60,
    **kwargs: Any,
) -> Any:
    return asyncio.run(run_isolated(function, args, kwargs, limits or Limits(), timeout, "tool"))


def has_ended(pid: int) -> bool:
    """Wait for the end of any process, ours or not; a zombie counts as ended."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watch], [], [], 10)[0])
    finally:
        os.close(watch)


def is_reaped(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


@contextlib.contextmanager
def mailbox(path: Path) -> Iterator[tuple[str, Callable[[], Awaitable[list[int]]]]]:
    """A named pipe: its path for the tool, and how to wait for the pids that the tool tells."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def pids() -> list[int]:
        ready = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, ready.set)
        await asyncio.wait_for(ready.wait(), 60)
        asyncio.get_running_loop().remove_reader(descriptor)
        return [int(word) for word in os.read(descriptor, KIB).split()]

    yield str(path), pids
    os.close(descriptor)


# what comes back


def test_the_result_comes_back_from_another_process() -> None:
    assert run(os.getpid) != os.getpid()


def test_arguments_and_results_keep_their_types() -> None:
    assert run(mirror, point=Point(1, 2)) == Point(2, 1)


def test_an_async_function_runs_on_a_loop_of_the_child() -> None:
    assert run(add_later, 1, b=2) == 3


@pytest.mark.parametrize(
    "function", [shop, shop.total, partial(Shop.total, shop)], ids=["object", "method", "partial"]
)
def test_other_callables_are_sent_as_they_are(function: Callable[..., Any]) -> None:
    assert run(function, 4) == 12


def test_a_result_larger_than_a_pipe_comes_back_whole() -> None:
    assert run(bytes, 3 * MIB) == bytes(3 * MIB)


def test_arguments_larger_than_a_pipe_arrive_whole() -> None:
    assert run(len, bytes(3 * MIB)) == 3 * MIB


def test_a_result_over_the_bound_of_a_message_is_refused() -> None:
    with pytest.raises(
        ToolError, match=r"tool returned \d+ bytes; the limit is 1024 \(`Limits.outgoing`\)"
    ):
        run(bytes, 8 * MIB, limits=Limits(outgoing=1 * KIB))


def test_what_is_printed_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    run(say, "hello")
    out, err = capfd.readouterr()
    assert out == ""
    assert "hello" in err.replace("and again hello", "", 1)
    assert "and again hello" in err


def test_what_is_printed_is_not_lost_in_a_crash(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ToolError):
        run(say_and_crash, "last words")
    assert "last words" in capfd.readouterr().err


def test_the_child_has_an_empty_stdin() -> None:
    assert run(read_stdin) == ""


def test_the_child_has_our_environment_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SETTING", "on")
    assert run(environment, "SOME_SETTING") == "on"
    assert run(environment, "DOVETAIL_ISOLATED") is None, "a server that the tool starts must run"


def test_it_works_on_a_loop_in_another_thread() -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(add_later, 1, 2)))
    thread.start()
    thread.join()
    assert results == [3]


# what fails


@pytest.mark.parametrize(
    "error", [KeyError("city"), ToolError("no such city"), InvalidParams(None, "bad", {"field": 1})]
)
def test_an_exception_keeps_its_type_and_text(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run(fail, type(error), *error.__reduce__()[1])
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)


def test_an_exception_brings_the_traceback_of_the_child_along() -> None:
    with pytest.raises(ValueError, match="wrong") as caught:
        run(fail, ValueError, "wrong")
    assert "in fail\n" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("kind", "args", "text"),
    [(Awkward, ("closed", "it is late"), "closed, because it is late"), (Vague, ("hm",), "<hm>")],
)
def test_an_exception_that_does_not_survive_pickling_becomes_a_tool_error(
    kind: type[Exception], args: tuple[str, ...], text: str
) -> None:
    with pytest.raises(ToolError) as caught:
        run(fail, kind, *args)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("function", "args", "text"),
    [
        (sys.exit, (3,), "tool ended with SystemExit: 3"),
        (fail, (KeyboardInterrupt,), "tool ended with KeyboardInterrupt"),
        (fail_later, (asyncio.CancelledError,), "tool ended with CancelledError"),
    ],
)
def test_what_would_end_a_process_is_an_ordinary_error(
    function: Any, args: tuple[Any, ...], text: str
) -> None:
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        run(function, *args)


def test_a_timeout_error_of_the_function_is_its_own() -> None:
    with pytest.raises(TimeoutError, match="upstream is slow"):
        run(fail, TimeoutError, "upstream is slow")


def test_a_result_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(
        ToolError,
        match=r"tool returned a lock that cannot be sent between processes: cannot pickle",
    ):
        run(threading.Lock)


def test_a_result_that_cannot_be_unpickled_is_an_error() -> None:
    with pytest.raises(
        ToolError,
        match="a value that cannot be decoded in this process: invalid literal",
    ):
        run(Unreadable)


def test_arguments_that_cannot_be_pickled_are_an_error() -> None:
    with pytest.raises(
        ToolError, match="tool or its arguments cannot be sent to another process: cannot pickle"
    ):
        run(mirror, threading.Lock())


def test_a_context_cannot_be_sent() -> None:
    with pytest.raises(ToolError, match="a Context cannot be sent to another process"):
        run(mirror, point=Context.__new__(Context))


def test_exiting_behind_pythons_back_is_told_with_the_code() -> None:
    for code in (0, 3):
        with pytest.raises(
            ToolError, match=f"^tool exited with code {code} before returning a result$"
        ):
            run(os._exit, code)


@posix
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SIGSEGV", "tool was killed by SIGSEGV"),
        (
            "SIGKILL",
            "tool was killed by SIGKILL; the system kills processes when it runs out of memory",
        ),
    ],
)
def test_a_deadly_signal_is_named(name: str, text: str) -> None:
    with pytest.raises(ToolError, match=f"^{text}$"):
        run(signal_itself, getattr(signal, name))


@linux
@pytest.mark.parametrize(
    ("function", "argument"),
    [(bytes, 1024 * MIB), (keep_everything, 8 * MIB), (keep_everything, 100)],
)
def test_running_out_of_memory_is_told_with_the_limit(
    function: Callable[..., Any], argument: int
) -> None:
    with pytest.raises(ToolError, match=r"^tool ran out of memory \(limit 256 MiB\)$"):
        run(function, argument, limits=Limits(isolated_memory=256 * MIB))


@linux
def test_memory_within_the_limit_is_there() -> None:
    assert len(run(bytes, 64 * MIB, limits=Limits(isolated_memory=256 * MIB))) == 64 * MIB


def test_a_limit_beyond_all_memory_is_no_limit() -> None:
    assert run(abs, -1, limits=Limits(isolated_memory=sys.maxsize)) == 1


def test_an_interpreter_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(
        ToolError, match=r"Cannot start a child process for tool: .*'/nowhere/python'"
    ):
        run(os.getpid)


# how it ends


@linux
def test_a_timeout_kills_and_reaps_the_child_and_leaks_nothing(tmp_path: Path) -> None:
    # With one place, the next call starts when the thread is done with the last one.
    alone = Limits(isolated=1, isolated_spares=0)

    async def scenario() -> int:
        with mailbox(tmp_path / "pids") as (fifo, pids):
            with pytest.raises(TimeoutError, match=r"^tool did not finish within 1\.5 s$"):
                await run_isolated(exec, (SPIN, {"fifo": fifo}), {}, alone, 1.5, "tool")
            (pid,) = await pids()
        await asyncio.wait_for(run_isolated(abs, (1,), {}, alone, None, "tool"), 60)
        return pid

    run(abs, 1, limits=alone)
    before = os.listdir("/proc/self/fd")
    pid = asyncio.run(scenario())
    assert is_reaped(pid)
    assert os.listdir("/proc/self/fd") == before


@linux
def test_cancellation_kills_the_child_and_what_it_started(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        with mailbox(tmp_path / "pids") as (fifo, pids):
            task = asyncio.create_task(
                run_isolated(hang_with_helper, (fifo,), {}, Limits(), None, "tool")
            )
            heard = await pids()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return heard

    child, helper = asyncio.run(scenario())
    assert has_ended(child)
    assert has_ended(helper)


def test_cancellation_at_any_moment_of_the_start_frees_the_place() -> None:
    alone = Limits(isolated=1, isolated_spares=0)

    async def scenario() -> None:
        for turns in range(40):
            task = asyncio.create_task(run_isolated(time.sleep, (100,), {}, alone, None, "tool"))
            for _ in range(1 + turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.wait_for(run_isolated(abs, (1,), {}, alone, None, "tool"), 60)

    asyncio.run(scenario())


@linux
def test_what_a_tool_started_ends_with_it() -> None:
    assert has_ended(run(leave_helper))


@linux
def test_a_crash_is_noticed_while_a_forked_copy_lives_on() -> None:
    with pytest.raises(ToolError, match="tool was killed by SIGSEGV"):
        run(fork_and_crash)


@posix
def test_a_forked_copy_does_not_answer_in_place_of_the_tool() -> None:
    assert run(fork_and_return) == "the original"


def test_a_thread_left_behind_does_not_hold_up_the_answer() -> None:
    assert run(leave_thread) == "done"


@linux
def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    script = f"""
        import asyncio, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from dovetail.limits import Limits
        from dovetail.server.isolation import run_isolated
        from test_isolation import hang_with_helper
        asyncio.run(run_isolated(hang_with_helper, (sys.argv[1],), {{}}, Limits(), None, "tool"))
    """

    async def scenario() -> list[int]:
        with mailbox(tmp_path / "pids") as (fifo, pids):
            parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), fifo])
            try:
                return await pids()
            finally:
                parent.kill()
                parent.wait()

    child, helper = asyncio.run(scenario())
    assert has_ended(child)
    assert has_ended(helper)


# how many


def test_no_more_children_run_at_once_than_the_limit_allows(tmp_path: Path) -> None:
    async def scenario() -> None:
        alone = Limits(isolated=1, isolated_spares=0)
        lock = str(tmp_path / "lock")
        await asyncio.gather(
            *(run_isolated(hold, (lock,), {}, alone, None, "tool") for _ in range(3))
        )

    asyncio.run(scenario())


@posix
def test_as_many_children_run_at_once_as_the_limit_allows(tmp_path: Path) -> None:
    async def scenario() -> None:
        with (
            mailbox(tmp_path / "one") as (one, heard_one),
            mailbox(tmp_path / "two") as (two, heard_two),
        ):
            tasks = [
                asyncio.create_task(run_isolated(hang, (fifo,), {}, pair, None, "tool"))
                for fifo in (one, two)
            ]
            await asyncio.gather(heard_one(), heard_two())
            for task in tasks:
                task.cancel()

    pair = Limits(isolated=2)
    asyncio.run(scenario())


def test_waiting_for_a_place_takes_nothing_from_the_time() -> None:
    async def scenario() -> int:
        alone = Limits(isolated=1, isolated_spares=0)
        first = asyncio.create_task(run_isolated(time.sleep, (2.5,), {}, alone, None, "first"))
        await asyncio.sleep(0)
        second: int = await run_isolated(abs, (-2,), {}, alone, 2, "second")
        await first
        return second

    assert asyncio.run(scenario()) == 2


@posix
def test_a_call_cancelled_while_it_waits_is_never_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        alone = Limits(isolated=1, isolated_spares=0)
        with mailbox(tmp_path / "pids") as (fifo, pids):
            first = asyncio.create_task(run_isolated(hang, (fifo,), {}, alone, None, "first"))
            await pids()
            second = asyncio.create_task(
                run_isolated(Path.touch, (tmp_path / "second",), {}, alone, None, "second")
            )
            await asyncio.sleep(0)
            for task in (second, first):
                task.cancel()
            await asyncio.wait_for(run_isolated(abs, (1,), {}, alone, None, "third"), 60)

    asyncio.run(scenario())
    assert not (tmp_path / "second").exists()


# a server's own file

SERVER = """
    import asyncio
    import msgspec
    from dovetail.limits import Limits
    from dovetail.server.isolation import check_isolatable, run_isolated

    class City(msgspec.Struct):
        name: str

    class Unknown(Exception):
        pass

    def twin(city: City) -> City:
        if city.name == "Atlantis":
            raise Unknown("sunk")
        return City(city.name + __name__)

    check_isolatable(twin, False, "twin")
    print("loaded as", __name__, file=__import__("sys").stderr)

    async def scenario():
        city = await run_isolated(twin, (City("Oslo"),), {}, Limits(), 60, "twin")
        assert type(city) is City
        print(city.name)
        try:
            await run_isolated(twin, (City("Atlantis"),), {}, Limits(), 60, "twin")
        except Unknown as error:
            print(error)

    if __name__ == "__main__":
        asyncio.run(scenario())
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_a_tool_of_the_main_file_runs_without_its_main_part(how: str, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sibling.py").touch()
    source = textwrap.dedent(SERVER)
    (package / "main.py").write_text(
        source if how == "script" else "from . import sibling\n" + source
    )
    words = [str(package / "main.py")] if how == "script" else ["-m", "package.main"]
    path = os.pathsep.join([os.getcwd(), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "Oslo__dovetail_main__\nsunk\n", done.stderr
    assert done.stderr.split("\n")[:2] == ["loaded as __main__", "loaded as __dovetail_main__"]


def test_the_main_file_is_loaded_with_the_flag_that_keeps_servers_from_running(
    tmp_path: Path,
) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent("""
            import asyncio, os
            from dovetail.limits import Limits
            from dovetail.server.isolation import run_isolated

            flag = os.environ.get("DOVETAIL_ISOLATED")

            def tool():
                return flag

            if flag is None:  # as `server.run()` asks
                print(asyncio.run(run_isolated(tool, (), {}, Limits(), 60, "tool")))
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "1\n", done.stderr


def load(name: str, path: Path, source: str) -> Any:
    """Load a module as a program may that was given a path: under a name that nobody else can
    import."""
    from importlib.util import module_from_spec, spec_from_file_location

    path.write_text(textwrap.dedent(source))
    spec = spec_from_file_location(name, path)
    assert spec and spec.loader
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def loaded(tmp_path: Path) -> Any:
    yield partial(load, "loaded_from_a_path", tmp_path / "server.py")
    sys.modules.pop("loaded_from_a_path", None)


def test_a_module_that_was_loaded_from_a_path_is_found_by_its_path(loaded: Any) -> None:
    module = loaded("def tool(): return __name__")
    assert run(module.tool) == "loaded_from_a_path"


def test_a_module_that_fails_in_the_child_is_named_with_its_error(loaded: Any) -> None:
    module = loaded("""
        import os
        def tool(): pass
        if "DOVETAIL_ISOLATED" in os.environ:
            raise SystemExit("usage: server PORT")
    """)
    text = "tool could not be loaded in a child process: SystemExit: usage: server PORT"
    with pytest.raises(RuntimeError, match=text) as caught:
        run(module.tool)
    assert "server.py" in caught.value.__notes__[0]


def test_a_name_that_means_something_else_by_now_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = mirror
    monkeypatch.setitem(globals(), "mirror", partial(mirror))
    with pytest.raises(
        ToolError, match=r"tool or its arguments cannot be sent .*: .*not the same object"
    ):
        run(original, Point(1))


# what is refused at registration


def test_what_can_be_isolated_is_let_through() -> None:
    for function in (mirror, add_later, shop, shop.total, partial(mirror, Point(1)), os.getpid):
        check_isolatable(function, False, "tool")


def local() -> Callable[..., Any]:
    def inner() -> None: ...

    return inner


def stray() -> None: ...


stray.__module__ = "no_such_module"


@pytest.mark.parametrize(
    ("function", "has_context", "text"),
    [
        (mirror, True, "a Context cannot be sent to another process; remove this parameter"),
        (
            lambda: 1,
            False,
            "it is a lambda, so a child process cannot find it; define it at the top level "
            "of a module",
        ),
        (
            local(),
            False,
            "it is defined inside another function, so a child process cannot find it; "
            "define it at",
        ),
        (partial(lambda: 1), False, "it cannot be sent to another process: "),
        (threading.Lock().acquire, False, "it cannot be sent to another process: cannot pickle"),
        (
            stray,
            False,
            "its module 'no_such_module' cannot be imported; define the function in a file",
        ),
    ],
    ids=["context", "lambda", "local", "partial", "method", "stray"],
)
def test_what_cannot_be_isolated_is_refused_with_the_reason(
    function: Callable[..., Any], has_context: bool, text: str
) -> None:
    with pytest.raises(
        SchemaError, match=re.escape(f"Tool 'tool' cannot use isolate=\"process\": {text}")
    ):
        check_isolatable(function, has_context, "tool")


def test_a_function_typed_at_a_prompt_is_refused() -> None:
    code = """
        from dovetail.server.isolation import check_isolatable
        def tool(): pass
        check_isolatable(tool, False, "tool")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert "SchemaError: Tool 'tool' cannot use isolate=\"process\": it was defined" in done.stderr


# in a sandbox

WRAPPER = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can be written
os.environ["IN_SANDBOX"] = "yes"
os.execv(sys.argv[1], sys.argv[1:])
"""


def wrapped(tmp_path: Path) -> list[str]:
    """The command of a small sandbox that every system with POSIX has."""
    script = tmp_path / "wrapper.py"
    script.write_text(WRAPPER)
    return [sys.executable, str(script)]


def look_around(path: str) -> dict[str, Any]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        Path(path).write_text("written")
    except OSError as error:
        return {"error": type(error).__name__, "env": dict(os.environ), "pid": os.getpid()}
    return {}


def find(x: int) -> Point:
    return Point(x, 1)


def fail_hard() -> str:
    raise Awkward("no luck", "it is dark")


def answer_with_a_pickle() -> str:
    """Answer as hostile code would: by itself, on the pipe."""
    import pickle

    class Escape:
        def __reduce__(self) -> Any:
            return os.system, ("touch " + os.environ["TZ"],)

    data = pickle.dumps((True, Escape()))
    for descriptor in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(descriptor, len(data).to_bytes(8, "big") + data)
    os._exit(0)


async def call_in_sandbox(
    function: Callable[..., Any], tmp_path: Path, **arguments: Any
) -> TypedToolResult[Any]:
    server = Server("s")
    server.add_tool(function, name="tool", isolate=wrapped(tmp_path), timeout=60)
    async with pair(server) as client:
        return await client.call_tool("tool", arguments, raise_on_error=False)


@posix
async def test_a_tool_runs_in_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "hunter2")
    seen = (await call_in_sandbox(look_around, tmp_path, path=str(tmp_path / "out"))).data
    assert seen["error"] == "OSError"
    assert not (tmp_path / "out").exists() or not (tmp_path / "out").read_text()
    assert seen["pid"] != os.getpid()
    assert seen["env"]["IN_SANDBOX"] == "yes"
    assert "A_SECRET" not in seen["env"]


@posix
async def test_a_sandbox_returns_typed_results_and_the_text_of_errors(tmp_path: Path) -> None:
    assert (await call_in_sandbox(find, tmp_path, x=3)).data == {"x": 3, "y": 1}
    failed = await call_in_sandbox(fail_hard, tmp_path)
    assert failed.is_error and failed.text == "no luck, because it is dark"


@posix
async def test_nothing_that_a_sandbox_answers_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", str(tmp_path / "escaped"))
    failed = await call_in_sandbox(answer_with_a_pickle, tmp_path)
    assert failed.is_error and "does not match its return type" in failed.text
    assert not (tmp_path / "escaped").exists()


async def test_a_sandbox_that_cannot_be_started_is_a_tool_error() -> None:
    server = Server("s")
    server.add_tool(find, name="tool", isolate=["no-such-sandbox"])
    async with pair(server) as client:
        failed = await client.call_tool("tool", {"x": 1}, raise_on_error=False)
    assert failed.is_error and "Cannot start a child process for tool" in failed.text


@pytest.mark.parametrize("isolate", ["thread", [], [1]])
def test_a_sandbox_that_is_not_a_command_is_refused(isolate: Any) -> None:
    with pytest.raises(ConfigError, match="the command of a sandbox"):
        Server("s").add_tool(find, isolate=isolate)
