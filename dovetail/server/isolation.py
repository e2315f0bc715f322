"""Tools in a child process: `@server.tool(isolate="process")`.

Each call has an interpreter of its own (`main`), which is never forked. This works the same way on
every system, regardless of the threads and locks in this process. Starting an interpreter takes
about 50 ms plus the time to import the tool's module, so each call leaves a spare behind for the
next one (`spares.py`). In return, a call can always be stopped, and a crash, leak or endless loop
affects nothing else. A child process confines faulty code. It is not a sandbox for hostile code.

**Sandbox.** `isolate=["bwrap", …]` starts the child with your own command, which restricts the
child. The child receives few environment variables. Its answer is not trusted: the answer is JSON,
which is decoded as the tool's return type.

**Threads.** Each child uses a thread from a pool of `Limits.isolated` threads, which limits the
number of children; further calls wait. The thread starts the child, sends it the job, reads the
answer and reaps the child. The event loop only awaits the thread.

**Termination.** A cancellation or a timeout ends the wait and kills the child's process group. When
the child exits normally, its group is also killed, so that no process that a tool starts outlives
the call. The id of a group may be reused once its leader is reaped, so killing and reaping are
mutually exclusive. (On Windows, only the child is killed.)

**Pipes.** Before any user code runs, the child moves its two pipes to other descriptors: stdin
becomes empty, and stdout is redirected to stderr. The job's pipe stays open as a leash: if its
other end closes, the parent has died, and the child kills itself and everything that it started.

**The job** has two parts: the setup, with which the child loads the function, and the arguments,
for which a spare waits. Functions and types are named by module. A module that only the parent can
import by name is loaded from its file. The parent's `__main__` becomes
`__dovetail_main__`, so the code under `if __name__ == "__main__"` does not run. Any other
`server.run()` does nothing while DOVETAIL_ISOLATED is set.

**The answer** is a length followed by a pickle of `(True, result)` or `(False, exception)`. Then
the child exits immediately, so that no remaining thread or exit hook can delay it.

**Time** is counted from the start of the child and does not include the wait for a free thread.
**Memory** is limited only on Linux, as address space.

Modules that only one of the two processes needs are imported inside functions.
"""

import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from queue import SimpleQueue
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..errors import SchemaError, ToolError
from ..logs import get_logger
from .spares import Spares

if TYPE_CHECKING:
    import subprocess

    from ..limits import Limits


BOOT_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; from dovetail.server.isolation import main; main()"
)
# CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP
CREATION_FLAGS = 0x08000000 | 0x00000200 if sys.platform == "win32" else 0

MAIN_MODULE = "__dovetail_main__"
"""The name of the parent's `__main__` in the child."""
ISOLATED_VARIABLE = "DOVETAIL_ISOLATED"
PIPE_BYTES = 60_000
"""A setup of up to this size can be sent before the child reads it."""
END_SECONDS = 5.0
"""How long to wait for the end of a process that was killed."""
LENGTH_BYTES = 8
"""The size, in bytes, of the length field that precedes an answer."""

SANDBOX_CODE = f"import os; os.environ[{ISOLATED_VARIABLE!r}] = '1'; {BOOT_CODE}"
"""The command for a sandbox, which might not pass on our environment variables."""
SANDBOX_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "SYSTEMROOT")
"""The environment variables that a sandbox receives."""

log = get_logger("server")
Outcome = tuple[bool, Any]
_SIGNALS = {number.value: number.name for number in signal.Signals}


class Sandbox(NamedTuple):
    """The settings for a child process that is not trusted."""

    command: tuple[str, ...]
    """The command that runs the interpreter; the interpreter's own command is appended."""
    returns: Any
    """The type of the result."""


def make_sandbox(command: Sequence[str], returns: Any, name: str) -> Sandbox:
    """Return a sandbox. Raise SchemaError if the tool's result cannot be decoded from JSON."""
    from msgspec import json

    try:
        json.Decoder(returns)
    except TypeError as error:
        raise SchemaError(
            f"Tool {name!r} cannot run in a sandbox: its result cannot be read from JSON "
            f"({error}); return plain values, dataclasses or content blocks"
        ) from None
    return Sandbox(tuple(command), returns)


def check_isolatable(function: Callable[..., Any], has_context: bool, name: str) -> None:
    """Raise SchemaError for a tool that cannot run in a child process."""
    problem = _find_problem(function)
    if has_context:
        problem = "a Context cannot be sent to another process; remove this parameter"
    if problem:
        raise SchemaError(f'Tool {name!r} cannot use isolate="process": {problem}')


async def run_isolated(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    limits: "Limits",
    timeout: float | None,
    name: str,
    sandbox: Sandbox | None = None,
) -> Any:
    """Call the function in a child process, and return its result or raise its exception.
    Cancelling the wait kills the child."""
    import asyncio

    from .execution import thread_pool

    loop = asyncio.get_running_loop()
    timer = asyncio.timeout(None)
    child = _Child()
    pool = thread_pool("isolated", limits.isolated, limits.thread_queue)

    def start_timer(seconds: float) -> None:
        if not child.killed:
            timer.reschedule(loop.time() + seconds)

    def work() -> Any:
        start = _prepare_start(function, limits.isolated_memory, name, sandbox)
        arguments = _pickle((args, kwargs), name)
        arguments = len(arguments).to_bytes(LENGTH_BYTES, "big") + arguments
        if timeout is not None:
            loop.call_soon_threadsafe(start_timer, timeout)
        answer, code = child.run(start, arguments, limits)
        if sandbox is not None:
            return _read_sandbox_result(name, answer, code, sandbox.returns)
        return _read_result(name, answer, code)

    try:
        async with timer:
            try:
                return await pool.run(work)
            finally:
                child.kill()
    except TimeoutError:
        if not timer.expired():
            raise  # raised by the function itself
        raise TimeoutError(f"{name} did not finish within {timeout:g} s") from None


class _Child:
    """A child process. One thread calls `run`, and any thread may call `kill`."""

    __slots__ = ("_lock", "_popen", "killed")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self.killed = False

    def run(self, start: "_Start", arguments: bytes, limits: "Limits") -> tuple[bytes, int]:
        """Run the child, and start a spare for the next call meanwhile. Return the child's answer,
        which is empty if there was none, and its exit code."""
        spare = _spares.take(start)
        popen = spare or start()
        with self._lock:
            self._popen = popen
        if self.killed:
            self.kill()  # `kill` was called before the process existed
        try:
            _send(popen, arguments if spare else start.setup + arguments)
            if not self.killed:
                _leave_spare(start, limits.isolated_spares)
            answer = _receive(popen, limits.outgoing, start.name)
        except BaseException:
            self.kill()
            raise
        finally:
            self._reap(popen)
        return answer, popen.returncode

    def kill(self) -> None:
        """Kill the process and everything that it started."""
        with self._lock:
            self.killed = True
            if self._popen is not None:
                _kill(self._popen)

    def _reap(self, popen: "subprocess.Popen[bytes]") -> None:
        if sys.platform != "win32" and hasattr(os, "waitid"):
            try:
                os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:  # other code in this process reaps all children
                pass
        else:  # Windows; macOS before Python 3.13, where the id is unused for a moment
            popen.wait()
        with self._lock:
            _end(popen)
            self._popen = None


class _Start(NamedTuple):
    """How to start a child and load its function. Equal values start equal children."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    folder: str
    setup: bytes
    versions: tuple[int, ...]
    """When the files of the function's modules were changed."""
    name: str

    def __call__(self) -> "subprocess.Popen[bytes]":
        """Start the child, which waits for the setup and then for arguments."""
        import subprocess

        try:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=dict(self.env),
                start_new_session=True,
                creationflags=CREATION_FLAGS,
            )
        except OSError as error:
            raise ToolError(f"Cannot start a child process for {self.name}: {error}") from error


def _prepare_start(
    function: Callable[..., Any], memory: int, name: str, sandbox: Sandbox | None
) -> _Start:
    """Return how to start a child for this function. In the setup, the function is a pickle inside
    the pickle, and is loaded only after the limits are set."""
    path = [entry for entry in sys.path if isinstance(entry, str)]
    command = (sys.executable, "-c", BOOT_CODE, *path)
    env = {**os.environ, ISOLATED_VARIABLE: "1"}
    if sandbox is not None:
        command = (*sandbox.command, sys.executable, "-c", SANDBOX_CODE, *path)
        env = {key: value for key, value in os.environ.items() if key in SANDBOX_VARIABLES}
    files: dict[str, tuple[str, str | None]] = {}
    for module in ("__main__", getattr(function, "__module__", None)):
        if file := _file_of(module):
            files[str(module)] = file, sys.modules[str(module)].__package__
    setup = {
        "name": name,
        "argv": sys.argv,
        "memory": memory,
        "files": files,
        "function": _pickle(function, name),
        "as_json": sandbox is not None,
    }
    versions = tuple(os.stat(file).st_mtime_ns for file, _ in files.values())
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        folder = ""
    return _Start(command, tuple(env.items()), folder, pickle.dumps(setup), versions, name)


def _leave_spare(start: _Start, most: int) -> None:
    """Start a process for the next call. If that is not possible, the next call starts its own."""
    if not most or len(start.setup) > PIPE_BYTES:
        return
    try:
        popen = start()
        _send(popen, start.setup)
        _spares.put(start, popen, most)
    except Exception as error:
        log.debug("No spare process for %s: %s", start.name, error)


def _end(popen: "subprocess.Popen[bytes]") -> None:
    """Kill a process and everything that it started, and wait until it is gone."""
    import subprocess

    for pipe in (popen.stdin, popen.stdout):
        try:
            pipe.close()  # type: ignore[union-attr]  # the end of the leash, if a signal is refused
        except OSError:  # the process died before it had read its job
            pass
    _kill(popen)
    try:
        popen.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("The child process %d does not end", popen.pid)


_spares = Spares(_end)


def _send(popen: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert popen.stdin
    try:
        popen.stdin.write(data)
        popen.stdin.flush()  # not closed, because it is the leash
    except OSError:
        pass  # the process died; its exit code says why


def _receive(popen: "subprocess.Popen[bytes]", max_bytes: int, name: str) -> bytes:
    assert popen.stdout
    size = int.from_bytes(popen.stdout.read(LENGTH_BYTES), "big")
    if size > max_bytes:
        raise ToolError(
            f"{name} returned {size} bytes; the limit is {max_bytes} (`Limits.outgoing`)"
        )
    answer = popen.stdout.read(size)
    return answer if len(answer) == size else b""


def _kill(popen: "subprocess.Popen[bytes]") -> None:
    if popen.returncode is not None:
        return  # it is reaped, so its id may belong to another process
    if sys.platform == "win32":
        popen.kill()
        return
    try:
        os.killpg(popen.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # no process is left, or (macOS) only zombies
        pass


def _pickle(value: Any, name: str) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ToolError(
            f"{name} or its arguments cannot be sent to another process: {error}"
        ) from error


def _read_result(name: str, answer: bytes, code: int) -> Any:
    if not answer:
        raise ToolError(f"{name} {_describe_exit(code)}")
    try:
        # Objects that have another module name in the child are in our `__main__`.
        ok, value = ModuleUnpickler(
            answer, lambda module: "__main__" if module == MAIN_MODULE else module
        ).load()
    except Exception as error:
        raise ToolError(
            f"{name} returned a value that cannot be decoded in this process: {error}"
        ) from error
    if ok:
        return value
    raise value


def _read_sandbox_result(name: str, answer: bytes, code: int, returns: Any) -> Any:
    """Return the result of a child that is not trusted. Nothing in its answer is executed."""
    if not answer:
        raise ToolError(f"{name} {_describe_exit(code)}")
    from msgspec import MsgspecError, Raw, json

    try:
        outcome = json.decode(answer, type=dict[str, Raw])
        if "error" not in outcome:
            return json.decode(outcome["value"], type=returns)
        text = json.decode(outcome["error"], type=str)
    except (MsgspecError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise ToolError(
            f"{name} returned a value that does not match its return type: {error}"
        ) from None
    raise ToolError(text)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code} before returning a result"
    hint = "; the system kills processes when it runs out of memory" if -code == 9 else ""
    return f"was killed by {_SIGNALS.get(-code, f'signal {-code}')}{hint}"


def _find_problem(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None)
    if isinstance(function, FunctionType):
        # While it is being decorated, it has no name in its module yet, so pickling would fail.
        if "<" in function.__qualname__:
            kind = (
                "a lambda" if function.__name__ == "<lambda>" else "defined inside another function"
            )
            return (
                f"it is {kind}, so a child process cannot find it; define it at the top level of "
                "a module"
            )
        if module not in sys.modules:
            return f"its module {module!r} cannot be imported; define the function in a file"
    else:
        try:
            pickle.dumps(function)
        except Exception as error:
            return (
                f"it cannot be sent to another process: {error}; use a function at the top "
                "level of a module"
            )
    if module == "__main__" and not _file_of(module):
        return (
            "it was defined interactively, so a child process cannot find it; define it in a file"
        )
    return ""


def _file_of(module: str | None) -> str | None:
    path = getattr(sys.modules.get(module or ""), "__file__", None)
    return path if path and os.path.isfile(path) else None


# --------------------------------------------------------------------------------------------------
# in the child


def main() -> NoReturn:
    """Run the job that this process was started for."""
    import faulthandler

    leash, answer = _claim_pipes()
    try:
        job = pickle.load(leash)
    except EOFError:
        os._exit(1)  # the parent has died
    arguments: SimpleQueue[bytes | MemoryError] = SimpleQueue()
    limited = threading.Event()
    threading.Thread(
        target=_watch_parent, args=(leash, limited, arguments), name="dovetail-leash", daemon=True
    ).start()
    faulthandler.enable(all_threads=False)  # reports a crash in native code on stderr
    sys.argv = job["argv"]
    name: str = job["name"]
    limit = _limit_memory(job["memory"])
    limited.set()
    # Created in advance, because there is no memory left when it is needed.
    text = f"{name} ran out of memory" + (f" (limit {limit})" if limit else "")
    dump = _dump_json if job["as_json"] else _dump
    out_of_memory = dump(name, (False, ToolError(text)))
    try:
        outcome = dump(name, _run(name, job["function"], job["files"], arguments))
    except MemoryError:
        outcome = out_of_memory
    for stream in (sys.stderr, sys.__stdout__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):  # None, broken, or closed
            pass
    for part in (memoryview(len(outcome).to_bytes(LENGTH_BYTES, "big")), memoryview(outcome)):
        while part:
            part = part[os.write(answer, part) :]
    os._exit(0)


def _claim_pipes() -> tuple[io.BufferedReader, int]:
    null = os.open(os.devnull, os.O_RDWR)
    leash, answer = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    if hasattr(os, "register_at_fork"):
        # A forked copy must not answer instead of this process, or keep the pipe open after it.
        os.register_at_fork(after_in_child=lambda: os.dup2(null, answer, inheritable=False))
    return leash, answer


def _watch_parent(
    leash: io.BufferedReader,
    limited: threading.Event,
    arguments: "SimpleQueue[bytes | MemoryError]",
) -> None:
    """Pass the arguments on when they arrive, and end this process when the parent dies."""
    limited.wait()
    head = leash.read(LENGTH_BYTES)
    if len(head) == LENGTH_BYTES:
        size = int.from_bytes(head, "big")
        try:
            _raise_memory_limit(2 * size)  # the pickle, and the copy that is made to decode it
            arguments.put(leash.read(size))
        except MemoryError as error:
            arguments.put(error)
        leash.read(1)
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _limit_memory(extra: int) -> str:
    """Limit the address space to `extra` bytes more than are currently mapped. Return the limit as
    text, or "" if there is none."""
    # macOS maps too much for this limit to be useful, and Windows has no such limit.
    if sys.platform != "linux":
        return ""
    import resource

    try:
        with open("/proc/self/statm") as sizes:
            mapped = int(sizes.read().split()[0]) * resource.getpagesize()
    except OSError:
        return ""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bounds = (mapped + extra, soft, hard, sys.maxsize)
    resource.setrlimit(
        resource.RLIMIT_AS, (min(each for each in bounds if each != resource.RLIM_INFINITY), hard)
    )
    return f"{extra / 2**20:g} MiB"


def _raise_memory_limit(extra: int) -> None:
    if sys.platform == "linux":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
            resource.setrlimit(resource.RLIMIT_AS, (min(soft + extra, most), hard))


def _run(
    name: str,
    pickled: bytes,
    files: dict[str, tuple[str, str | None]],
    arguments: "SimpleQueue[bytes | MemoryError]",
) -> Outcome:
    find_module = partial(_import_module, files)
    try:
        function = ModuleUnpickler(pickled, find_module).load()
        data = arguments.get()
        if isinstance(data, MemoryError):
            raise data
        args, kwargs = ModuleUnpickler(data, find_module).load()
    except MemoryError:
        raise
    except BaseException as error:
        failure = RuntimeError(f"{name} could not be loaded in a child process: {_describe(error)}")
        failure.__cause__ = error
        return False, _make_portable(failure)
    # From here on, `server.run()` in this process or in a child of it must run the server.
    os.environ.pop(ISOLATED_VARIABLE, None)
    try:
        return True, _call(function, args, kwargs)
    except MemoryError:
        raise
    except Exception as error:
        return False, _make_portable(error)
    except BaseException as error:
        return False, RuntimeError(f"{name} ended with {_describe(error)}")


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = function(*args, **kwargs)
    if not isinstance(value, Coroutine):
        return value
    import asyncio

    return asyncio.run(value)


def _dump(name: str, outcome: Outcome) -> bytes:
    try:
        return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        raise
    except Exception as error:
        text = (
            f"{name} returned a {type(outcome[1]).__name__} that cannot be sent between "
            f"processes: {error}"
        )
        return pickle.dumps((False, ToolError(text)), pickle.HIGHEST_PROTOCOL)


def _dump_json(name: str, outcome: Outcome) -> bytes:
    """Encode the outcome of a call in a sandbox, from which the parent accepts only JSON."""
    from msgspec import json

    ok, value = outcome
    try:
        if ok:
            return json.encode({"value": value})
        return json.encode({"error": str(value) or type(value).__name__})
    except MemoryError:
        raise
    except Exception as error:
        text = f"{name} returned a {type(value).__name__} that cannot be sent as JSON: {error}"
        return json.encode({"error": text})


def _make_portable(error: Exception) -> Exception:
    """Return the exception if it can be pickled, otherwise a ToolError with its text. A traceback
    cannot be pickled, so it is added as a note."""
    import traceback

    try:
        error.add_note(
            "In the child process:\n" + "".join(traceback.format_exception(error)).rstrip()
        )
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    except Exception:
        pass
    return ToolError(str(error) or type(error).__name__)


def _describe(error: BaseException) -> str:
    return type(error).__name__ + (f": {error}" if str(error) else "")


class ModuleUnpickler(pickle.Unpickler):
    """An unpickler for data whose modules have a different name in this process or must be loaded
    first."""

    def __init__(self, data: bytes, find_module: Callable[[str], str]) -> None:
        super().__init__(io.BytesIO(data))
        self._find_module = find_module

    def find_class(self, module: str, name: str) -> Any:
        """Look up a class or function."""
        return super().find_class(self._find_module(module), name)


def _import_module(files: dict[str, tuple[str, str | None]], name: str) -> str:
    """Load a module from its file, on first use, if only the parent could import it by name."""
    from importlib.util import find_spec

    if name not in files:
        return name
    path, package = files.pop(name)
    if name != "__main__" and find_spec(name):
        return name
    module = ModuleType(MAIN_MODULE if name == "__main__" else name)
    module.__file__, module.__package__ = path, package
    sys.modules[name] = sys.modules[module.__name__] = module
    with open(path, "rb") as source:
        code = compile(source.read(), path, "exec")
    exec(code, vars(module))
    return name
