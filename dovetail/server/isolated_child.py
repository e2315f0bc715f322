"""The child's side of `isolation.py`: takes one job from stdin, runs it, answers on what was
stdout, and is gone.

**Pipes.** Both are moved out of the way before any code of the user runs: stdin becomes empty, and
what is printed goes to stderr. The job's pipe stays open as a leash: when its other end closes, the
parent is dead, and this process and all that it started follow.

**The job** names its function, and the types of its arguments, by module. A module that only the
parent can import by name is loaded from its file. The parent's `__main__` becomes
`__dovetail_main__`: its `if __name__ == "__main__"` stays quiet, and a `server.run()` without one
does nothing while DOVETAIL_ISOLATED is set.

**The answer** is a length and a pickle of `(True, result)` or `(False, exception)`. Then the
process stops dead: no thread that is left and no hook at exit can hold it up.
"""

import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any, NoReturn

from ..errors import ToolError

MAIN = "__dovetail_main__"
FLAG = "DOVETAIL_ISOLATED"
LENGTH = 8
"""Bytes of the number that stands before an answer."""

Outcome = tuple[bool, Any]


def main() -> NoReturn:
    """Run the one job this process was started for."""
    import faulthandler

    leash, answer = _claim_pipes()
    job = pickle.load(leash)
    threading.Thread(
        target=_watch, args=(leash.fileno(),), name="dovetail-leash", daemon=True
    ).start()
    faulthandler.enable(all_threads=False)  # a crash in native code says where, on stderr
    sys.argv = job["argv"]
    name: str = job["name"]
    bounded = _bound_memory(job["memory"])
    # Made beforehand: when it is needed, there is no memory to make it.
    starved = _dumped(
        name,
        (
            False,
            ToolError(f"{name} ran out of memory" + (f" (limit {bounded})" if bounded else "")),
        ),
    )
    try:
        outcome = _dumped(name, _outcome(name, job["work"], job["files"]))
    except MemoryError:
        outcome = starved
    for stream in (sys.stderr, sys.__stdout__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):  # None, broken, or closed
            pass
    for part in (memoryview(len(outcome).to_bytes(LENGTH, "big")), memoryview(outcome)):
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
        # A forked copy must neither answer in our place nor keep the pipe open when we are gone.
        os.register_at_fork(after_in_child=lambda: os.dup2(null, answer, inheritable=False))
    return leash, answer


def _watch(leash: int) -> None:
    os.read(leash, 1)
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _bound_memory(extra: int) -> str:
    """Allow that much address space on top of what is mapped now. Returns it as text, or nothing
    where it cannot be."""
    if (
        sys.platform != "linux"
    ):  # macOS maps too much for such a bound to mean anything, Windows has none
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
        resource.RLIMIT_AS, (min(one for one in bounds if one != resource.RLIM_INFINITY), hard)
    )
    return f"{extra / 2**20:g} MiB"


def _outcome(name: str, work: bytes, files: dict[str, tuple[str, str | None]]) -> Outcome:
    try:
        function, args, kwargs = _Unpickler(work, files).load()
    except MemoryError:
        raise
    except BaseException as error:
        failure = RuntimeError(
            f"{name} could not be loaded in a process of its own: {_text(error)}"
        )
        failure.__cause__ = error
        return False, _portable(failure)
    os.environ.pop(
        FLAG, None
    )  # from here on a server that is run, by us or by a child, is meant to run
    try:
        return True, _call(function, args, kwargs)
    except MemoryError:
        raise
    except Exception as error:
        return False, _portable(error)
    except BaseException as error:
        return False, RuntimeError(f"{name} ended with {_text(error)}")


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = function(*args, **kwargs)
    if not isinstance(value, Coroutine):
        return value
    import asyncio

    return asyncio.run(value)


def _dumped(name: str, outcome: Outcome) -> bytes:
    try:
        return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        raise
    except Exception as error:
        what = (
            f"{name} returned a {type(outcome[1]).__name__} that cannot be sent between "
            f"processes: {error}"
        )
        return pickle.dumps((False, ToolError(what)), pickle.HIGHEST_PROTOCOL)


def _portable(error: Exception) -> Exception:
    """The exception, if a copy of it says the same; else its text. The traceback cannot travel: a
    note tells it."""
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


def _text(error: BaseException) -> str:
    return type(error).__name__ + (f": {error}" if str(error) else "")


class _Unpickler(pickle.Unpickler):
    """Loads a module from its file when it is first asked for, if only the parent could import
    it."""

    def __init__(self, data: bytes, files: dict[str, tuple[str, str | None]]) -> None:
        super().__init__(io.BytesIO(data))
        self._files = files

    def find_class(self, module: str, name: str) -> Any:
        """What pickle looks up by name."""
        if module in self._files:
            _load(module, *self._files.pop(module))
        return super().find_class(module, name)


def _load(name: str, path: str, package: str | None) -> None:
    from importlib.util import find_spec

    if name != "__main__" and find_spec(name):
        return
    module = ModuleType(MAIN if name == "__main__" else name)
    module.__file__, module.__package__ = path, package
    sys.modules[name] = sys.modules[module.__name__] = module
    with open(path, "rb") as source:
        code = compile(source.read(), path, "exec")
    exec(code, vars(module))
