"""Tools in a process of their own: `@server.tool(isolate="process")`.

Each call starts a fresh interpreter (`isolated_child.py`), never a fork: it works the same on every
system, whatever threads and locks this process has. That costs some 50 ms and what the tool's
module takes to import; in return the call can be ended for good, and a crash, a leak or an endless
loop in it harms nobody. It is a bound for code that goes astray, not a sandbox for code that is
hostile.

**A thread per child**, from a pool of `Limits.isolated`: that is the bound on children, and calls
beyond it wait. The thread starts the child, hands it the job, reads the answer and reaps it; the
event loop only awaits the thread.

**The end.** Whatever ends the wait, be it a cancellation or a timeout, kills the child's process
group. When the child ends by itself the group is killed too: what a tool starts does not outlive
its call. The number of a group may become another's once its leader is reaped, so killing and
reaping exclude each other. (On Windows only the child is killed.)

**Time** is counted from the start of the child: the wait for a free place is not the tool's fault.
**Memory** is bounded as address space, on Linux.
"""

import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..errors import SchemaError, ToolError
from ..limits import Limits
from .context import Context
from .isolated_child import FLAG, LENGTH, MAIN

# The modules that only a call needs are imported by it: the child, too, imports this one, for
# `check_isolatable`.
if TYPE_CHECKING:
    import subprocess

BOOT = (
    "import sys; sys.path[:] = sys.argv[1:]; from dovetail.server.isolated_child import "
    "main; main()"
)
# CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP
CREATION = 0x08000000 | 0x00000200 if sys.platform == "win32" else 0

_SIGNALS = {number.value: number.name for number in signal.Signals}


def check_isolatable(function: Callable[..., Any], has_context: bool, name: str) -> None:
    """Refuse, at registration, a tool that could not run in a process of its own."""
    why = _why_not(function)
    if has_context:
        why = "it takes a Context, which cannot leave this process; remove the parameter"
    if why:
        raise SchemaError(f'Tool {name!r} cannot have isolate="process": {why}')


async def run_isolated(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    limits: Limits,
    timeout: float | None,
    name: str,
) -> Any:
    """Call the function in a child process; its result, or its exception. Ending the wait ends the
    child."""
    import asyncio

    from .execution import thread_pool

    if any(isinstance(value, Context) for value in (*args, *kwargs.values())):
        raise ToolError(f"{name}: an isolated tool cannot take a Context")
    loop = asyncio.get_running_loop()
    timer = asyncio.timeout(None)
    child = _Child()
    pool = thread_pool("isolated", limits.isolated, limits.thread_queue)

    def begin(seconds: float) -> None:
        if not child.killed:
            timer.reschedule(loop.time() + seconds)

    def work() -> Any:
        job = _job(function, args, kwargs, limits.isolated_memory, name)
        if timeout is not None:
            loop.call_soon_threadsafe(begin, timeout)
        return _result(name, *child.run(job, limits.outgoing, name))

    try:
        async with timer:
            try:
                return await pool.run(work)
            finally:
                child.kill()
    except TimeoutError:
        if not timer.expired():
            raise  # the function's own
        raise TimeoutError(f"{name} did not finish within {timeout:g} s") from None


class _Child:
    """A process from start to end. `run` belongs to one thread, `kill` to any."""

    __slots__ = ("_lock", "_popen", "killed")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self.killed = False

    def run(self, job: bytes, bound: int, name: str) -> tuple[bytes, int]:
        """Its answer, empty if there was none, and its exit code."""
        popen = _start(name)
        with self._lock:
            self._popen = popen
        if self.killed:
            self.kill()  # which came too early to find it
        try:
            answer = _talk(popen, job, bound, name)
        except BaseException:
            self.kill()
            raise
        finally:
            self._reap(popen)
        return answer, popen.returncode

    def kill(self) -> None:
        """End it, with all that it started."""
        with self._lock:
            self.killed = True
            if self._popen is not None:
                _kill(self._popen)

    def _reap(self, popen: "subprocess.Popen[bytes]") -> None:
        if sys.platform != "win32" and hasattr(os, "waitid"):
            try:
                os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:  # somebody in this process reaps all children
                pass
        else:  # Windows; macOS before Python 3.13, with a moment in which the number is free
            popen.wait()
        with self._lock:
            _kill(popen)
            popen.wait()
            self._popen = None
        for pipe in (popen.stdin, popen.stdout):
            try:
                pipe.close()  # type: ignore[union-attr]
            except OSError:  # it died before it had read its job
                pass


def _start(name: str) -> "subprocess.Popen[bytes]":
    import subprocess

    path = [entry for entry in sys.path if isinstance(entry, str)]
    try:
        return subprocess.Popen(
            [sys.executable, "-c", BOOT, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, FLAG: "1"},
            start_new_session=True,
            creationflags=CREATION,
        )
    except OSError as error:
        raise ToolError(f"{name} could not get a process of its own: {error}") from error


def _talk(popen: "subprocess.Popen[bytes]", job: bytes, bound: int, name: str) -> bytes:
    assert popen.stdin and popen.stdout
    try:
        popen.stdin.write(job)
        popen.stdin.flush()  # and not closed: it is the leash
    except OSError:
        pass  # it died; what it died of is told by its exit code
    size = int.from_bytes(popen.stdout.read(LENGTH), "big")
    if size > bound:
        raise ToolError(f"{name} returned {size} bytes; the limit is {bound} (`Limits.outgoing`)")
    answer = popen.stdout.read(size)
    return answer if len(answer) == size else b""


def _kill(popen: "subprocess.Popen[bytes]") -> None:
    if sys.platform == "win32":
        popen.kill()
        return
    try:
        os.killpg(popen.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # nobody is left, or (macOS) only the dead
        pass


def _job(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    memory: int,
    name: str,
) -> bytes:
    """What the child is told. The work is a pickle in the pickle: it is opened when the bounds are
    in place."""
    try:
        work = pickle.dumps((function, args, kwargs), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ToolError(
            f"{name} or its arguments cannot be sent to another process: {error}"
        ) from error
    files: dict[str, tuple[str, str | None]] = {}
    for module in ("__main__", getattr(function, "__module__", None)):
        if path := _file(module):
            files[str(module)] = path, sys.modules[str(module)].__package__
    return pickle.dumps(
        {"name": name, "argv": sys.argv, "memory": memory, "files": files, "work": work}
    )


def _result(name: str, answer: bytes, code: int) -> Any:
    if not answer:
        raise ToolError(f"{name} {_end(code)}")
    try:
        ok, value = _Unpickler(io.BytesIO(answer)).load()
    except Exception as error:
        raise ToolError(f"{name} returned what cannot be read in this process: {error}") from error
    if ok:
        return value
    raise value


def _end(code: int) -> str:
    if code >= 0:
        return f"exited with code {code} before it returned"
    hint = "; the system does that when it runs out of memory" if -code == 9 else ""
    return f"was killed by {_SIGNALS.get(-code, f'signal {-code}')}{hint}"


class _Unpickler(pickle.Unpickler):
    """What the child had to call by another name is found in our `__main__`."""

    def find_class(self, module: str, name: str) -> Any:
        """What pickle looks up by name."""
        return super().find_class("__main__" if module == MAIN else module, name)


def _why_not(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None)
    if isinstance(function, FunctionType):
        # It has no name in its module yet, while it is being decorated, so pickle cannot be asked.
        if "<" in function.__qualname__:
            kind = (
                "a lambda" if function.__name__ == "<lambda>" else "defined inside another function"
            )
            return (
                f"it is {kind}, where a child process cannot find it; define it at the top "
                "level of a module"
            )
        if module not in sys.modules:
            return f"its module {module!r} cannot be imported; define it in a file"
    else:
        try:
            pickle.dumps(function)
        except Exception as error:
            return (
                f"it cannot be sent to another process: {error}; use a function at the top "
                "level of a module"
            )
    if module == "__main__" and not _file(module):
        return "it was typed in, and a child process has no file to find it in; define it in a file"
    return ""


def _file(module: str | None) -> str | None:
    path = getattr(sys.modules.get(module or ""), "__file__", None)
    return path if path and os.path.isfile(path) else None
