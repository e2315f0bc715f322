"""A server whose tools do what no tool should. Run as a script it serves on stdio, with the limits
in $LIMITS."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from dovetail import Context, Limits, ProtocolError, Server, TextContent, ToolResult


class Strange(BaseException):
    """No Exception, and nobody expects it."""


class Unspeakable(Exception):
    """Cannot even be turned into text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


WRONG_CODES: list[Any] = ["x", None, 1.5, True, [], {}, object]


def _coded(code: Any, message: Any = "odd") -> ProtocolError:
    error = ProtocolError(1, "odd", {"of": "no use"})
    error.code, error.message = code, message
    return error


RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration,
    "MemoryError": MemoryError,
    "TimeoutError": TimeoutError,
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [SystemExit(1), ValueError("x")]),
    "Strange": lambda: Strange("odd"),
    "Unspeakable": Unspeakable,
    "surrogate": lambda: ValueError("half a \ud83d smile"),
    **{f"code {code!r}": partial(_coded, code) for code in WRONG_CODES},
    "no message": lambda: _coded(1, None),
}


def _knot() -> Any:
    knot: dict[str, Any] = {}
    knot["self"] = [knot]
    return knot


def _deep() -> Any:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


def _broken_result() -> Any:
    return ToolResult(content=[TextContent("fine"), object()], structured_content={"x": object()})  # type: ignore[list-item]


RETURNED: dict[str, Callable[[], Any]] = {
    "object": object,
    "function": lambda: len,
    "module": lambda: sys,
    "generator": lambda: (number for number in range(3)),
    "knot": _knot,
    "deep": _deep,
    "broken result": _broken_result,
    "odd keys": lambda: {(1, 2): 3, None: 4},
    "exception": lambda: ValueError("returned, not raised"),
    "surrogate": lambda: {"half \ud83d": ["a \udc00 smile"]},
    "nan": lambda: [float("nan"), float("inf"), -float("inf")],
    "huge integer": lambda: 10**400,
    "too large": lambda: "x" * 3_000_000,
}


def build(limits: Limits | None = None) -> Server:
    server = Server("misbehaving", limits=limits or Limits(), capabilities={"prompts": True})
    released, opened = threading.Event(), asyncio.Event()
    leaked: list[Any] = []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.resource("x://{number}")
    def page(number: str) -> str:
        return number

    # raising and returning

    @server.tool
    async def raises(what: str) -> None:
        raise RAISED[what]()

    @server.tool
    def raises_in_a_thread(what: str) -> None:
        raise RAISED[what]()

    @server.tool
    async def returns(what: str) -> Any:
        return RETURNED[what]()

    @server.tool
    def returns_in_a_thread(what: str) -> Any:
        return RETURNED[what]()

    @server.tool
    async def awaits_the_cancelled() -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    @server.tool
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    @server.tool
    async def recurses() -> None:
        await recurses()

    # waiting

    @server.tool
    async def waits(ctx: Context) -> str:
        ctx.info("waiting")
        while not released.is_set():
            await asyncio.sleep(0.01)
        return "released"

    @server.tool
    def blocks() -> str:
        released.wait()
        return "released"

    @server.tool
    async def clings(ctx: Context) -> str:
        """Swallows every cancellation."""
        ctx.info("clinging")
        while not released.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                ctx.info("not leaving")
        return "released"

    @server.tool
    async def blocks_an_executor(ctx: Context) -> None:
        ctx.info("blocking")
        await asyncio.to_thread(released.wait)

    @server.tool
    async def blocks_the_loop(ctx: Context) -> None:
        ctx.info("blocking")
        await asyncio.sleep(0)
        time.sleep(60)

    @server.tool
    async def releases() -> None:
        """Lets go of all that waits, and waits for all that was leaked."""
        released.set()
        for leak in leaked:
            if isinstance(leak, threading.Thread):
                leak.join()
            else:
                await leak

    @server.tool
    async def closes_the_gate() -> None:
        """Keeps everybody at the gate until it is cancelled."""
        opened.clear()
        try:
            await asyncio.Future()
        finally:
            opened.set()

    @server.tool
    async def passes_the_gate(number: int, padding: str = "") -> int:
        await opened.wait()
        return number

    @server.tool
    async def counts_roots(ctx: Context) -> int:
        return len(await ctx.list_roots())

    # leaking

    @server.tool
    async def leaks(ctx: Context) -> str:
        """Leaves a task and a thread behind, which talk long after the answer."""

        async def talk() -> None:
            while not released.is_set():
                await asyncio.sleep(0.01)
            ctx.progress(2, 2)
            await ctx.info("still here")

        def talk_in_a_thread() -> None:
            released.wait()
            ctx.progress(3, 3)
            ctx.info("here too")

        thread = threading.Thread(target=talk_in_a_thread)
        thread.start()
        leaked.extend([asyncio.create_task(talk()), thread])
        ctx.progress(1, 2)
        return "done"

    @server.tool
    async def leaks_a_failure() -> str:
        async def fail() -> None:
            raise SystemError("nobody waits for this")

        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        del task
        return "done"

    @server.tool
    async def chatters(count: int, size: int, ctx: Context) -> int:
        for _ in range(count):
            await ctx.info("x" * size)
        return count

    @server.tool
    async def touches(uri: str) -> None:
        server.notify_resource_updated(uri)

    # the registry

    @server.tool
    def rebuilds(ctx: Context) -> str:
        """Replaces itself, from a thread, while it runs."""
        server.remove_tool("rebuilds")
        for number in range(50):
            server.add_tool(echo, name=f"extra_{number}")
        return "rebuilt"

    # the process

    @server.tool
    def prints() -> str:
        print("printed")
        print("flushed", flush=True)
        os.write(1, b"written to 1\n")
        assert sys.__stdout__ is not None
        sys.__stdout__.write("written to __stdout__\n")
        sys.__stdout__.flush()
        return "quiet"

    @server.tool
    def reads_stdin() -> str:
        return repr((sys.stdin.read(), os.read(0, 10)))

    @server.tool
    def starts_a_child() -> str:
        code = (
            "import sys; print('from a child', flush=True); "
            "sys.stderr.write(repr(sys.stdin.read()))"
        )
        child = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=20)
        return child.stderr.decode()

    @server.tool
    def starts_a_helper() -> int:
        """A child that holds on to everything it inherited."""
        return subprocess.Popen(["sleep", "60"], close_fds=False).pid

    @server.tool
    async def forks() -> int:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        return child

    @server.tool
    def kills_itself() -> None:
        os._exit(7)

    return server


if __name__ == "__main__":
    build(msgspec.json.decode(os.environ.get("LIMITS", "{}"), type=Limits)).run()
