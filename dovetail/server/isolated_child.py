"""The child's side of `isolation.py`: read one job from stdin, run it, answer on stdout, and exit.

**Pipes.** Both are moved out of the way before any user code runs: stdin becomes empty, and stdout
goes to stderr. The pipe of the job stays open as a leash: when its other end closes, the parent is
dead, and this process and all that it started are killed.

**The job** names its function, and the types of its arguments, by module. A module that only the
parent can import by name is loaded from its file. The parent's `__main__` becomes
`__dovetail_main__`: its `if __name__ == "__main__"` stays quiet, and a `server.run()` without one
does nothing while DOVETAIL_ISOLATED is set.

**The answer** is a length and a pickle of `(True, result)` or `(False, exception)`. Then the
process exits at once: no remaining thread and no exit hook can delay it.
"""

import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

from ..errors import ToolError

MAIN_MODULE = "__dovetail_main__"
"""The name of the parent's `__main__` in the child."""
ISOLATED_VARIABLE = "DOVETAIL_ISOLATED"
LENGTH_BYTES = 8
"""The size of the number before an answer."""

Outcome = tuple[bool, Any]


def main() -> NoReturn:
    """Run the job that this process was started for."""
    import faulthandler

    leash, answer = _claim_pipes()
    job = pickle.load(leash)
    threading.Thread(
        target=_watch_parent, args=(leash.fileno(),), name="dovetail-leash", daemon=True
    ).start()
    faulthandler.enable(all_threads=False)  # reports a crash in native code on stderr
    sys.argv = job["argv"]
    name: str = job["name"]
    limit = _limit_memory(job["memory"])
    # Made beforehand, because there is no memory to make it when it is needed.
    text = f"{name} ran out of memory" + (f" (limit {limit})" if limit else "")
    out_of_memory = _dump(name, (False, ToolError(text)))
    try:
        outcome = _dump(name, _run(name, job["work"], job["files"]))
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


def _watch_parent(leash: int) -> None:
    os.read(leash, 1)
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _limit_memory(extra: int) -> str:
    """Limit the address space to `extra` bytes more than are mapped now. Returns the limit as text,
    or "" if there is none."""
    # macOS maps too much for such a limit to be useful, and Windows has none.
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


def _run(name: str, work: bytes, files: dict[str, tuple[str, str | None]]) -> Outcome:
    try:
        function, args, kwargs = ModuleUnpickler(work, partial(_import_module, files)).load()
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


def _make_portable(error: Exception) -> Exception:
    """Return the exception if it can be pickled, else a ToolError with its text. A traceback cannot
    be pickled, so it is added as a note."""
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
    """Unpickles data whose modules have another name in this process, or must be loaded first."""

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
