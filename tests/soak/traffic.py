"""What the clients do: conversations over every transport, each some deeds picked by dice, and each
ended in some way.

A deed checks what comes back: that a soak stays flat means nothing if its calls fail. A
conversation ends in good order, in the middle of a call, or, by hand over a bare socket, without a
word.
"""

import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from dovetail import Client, Limits, NotFound, Server, ToolError
from dovetail.testing import pair
from tests.faults.raw_http import INITIALIZE, INITIALIZED, call, get, listen, modern_call, post

COMMAND = [sys.executable, "-m", "tests.soak.server"]
Open = Callable[[], AbstractAsyncContextManager[Client]]
Deed = Callable[[Client, random.Random], Awaitable[None]]
ANSWERS: dict[str, Any] = {
    "on_elicit": lambda _: {"value": "Ann"},
    "on_sample": lambda _: "Good day",
    "on_log": lambda _: None,
    "limits": Limits(questions=100_000),
}

# deeds


async def adds(client: Client, dice: random.Random) -> None:
    a, b = dice.randrange(1000), dice.randrange(1000)
    assert (await client.call_tool("add", {"a": a, "b": b})).data == a + b


async def adds_many(client: Client, dice: random.Random) -> None:
    """Many at once, on the loop and on threads."""
    names = [dice.choice(["add", "on_a_thread"]) for _ in range(50)]
    results = await asyncio.gather(*(client.call_tool(name, {"a": 3, "b": 4}) for name in names))
    assert [result.data for result in results] == [7 if name == "add" else 12 for name in names]


async def fails(client: Client, dice: random.Random) -> None:
    for name, arguments in (("fail", {"text": "no"}), ("add", {"a": "x"})):
        with contextlib.suppress(ToolError):
            await client.call_tool(name, arguments)
            raise AssertionError(f"{name} should have failed")


async def echoes(client: Client, dice: random.Random) -> None:
    text = "x" * dice.choice([10, 10_000, 1_000_000])
    assert (await client.call_tool("echo", {"text": text})).data == text


async def cancels(client: Client, dice: random.Random) -> None:
    waiting = [asyncio.ensure_future(client.call_tool("wait")) for _ in range(5)]
    await asyncio.sleep(dice.random() / 20)
    for one in waiting:
        one.cancel()
    assert {type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)} == {
        asyncio.CancelledError
    }


async def times_out(client: Client, dice: random.Random) -> None:
    with contextlib.suppress(TimeoutError):
        await client.call_tool("wait", timeout=0.05)
        raise AssertionError("it should have timed out")


async def counts(client: Client, dice: random.Random) -> None:
    seen: list[Any] = []
    assert (await client.call_tool("count", {"times": 50}, on_progress=seen.append)).data == 50


async def asks(client: Client, dice: random.Random) -> None:
    assert (await client.call_tool("ask")).data == "Hello Ann: Good day"


async def subscribes(client: Client, dice: random.Random) -> None:
    uri, heard = f"note://{dice.random()}", asyncio.Event()
    async with await client.subscribe(uri, lambda _: heard.set()):
        await client.call_tool("touch", {"uri": uri})
        async with asyncio.timeout(20):
            await heard.wait()


async def hears_changes(client: Client, dice: random.Random) -> None:
    heard = asyncio.Event()
    async with client.on_change("tools", lambda _: heard.set()):
        await client.call_tool("change", {"name": f"tool_{dice.randrange(10**9)}"})
        async with asyncio.timeout(20):
            await heard.wait()


async def lists(client: Client, dice: random.Random) -> None:
    assert any(tool.name == "add" for tool in await client.list_tools(fresh=True))
    assert (await client.read_resource("note://x"))[0].text == "About x"
    assert (await client.get_prompt("letter", {"to": "Ann"})).messages
    assert (await client.complete(prompt="letter", argument="to", value="A")).values == ["Ann"]


async def begins_a_task(client: Client, dice: random.Random) -> None:
    task = await client.start_tool("work", {"seconds": dice.choice([0.01, 30])})
    if dice.random() < 0.5:
        with contextlib.suppress(NotFound):  # on a slow machine it has already lived its life
            await task.cancel()


DEEDS: list[Deed] = [
    adds,
    adds_many,
    fails,
    echoes,
    cancels,
    times_out,
    counts,
    asks,
    subscribes,
    hears_changes,
    lists,
    begins_a_task,
]

# transports


def transports(server: Server, port: int, lasting: Client) -> dict[str, Open]:
    """How a client is opened, over each of them; `lasting` is one on stdio that stays."""
    web = f"127.0.0.1:{port}"

    @asynccontextmanager
    async def stays() -> AsyncIterator[Client]:
        yield lasting

    return {
        "stdio": lambda: Client(COMMAND, **ANSWERS),
        "stdio that stays": stays,
        "HTTP stateless": lambda: Client(f"http://{web}/mcp", revision="stateless", **ANSWERS),
        "HTTP handshake": lambda: Client(f"http://{web}/mcp", revision="handshake", **ANSWERS),
        "SSE": lambda: Client(f"http://{web}/sse", **ANSWERS),
        "WebSocket": lambda: Client(f"ws://{web}/ws", **ANSWERS),
        "memory stateless": lambda: pair(server, revision="stateless", **ANSWERS),
        "memory handshake": lambda: pair(server, revision="handshake", **ANSWERS),
    }


class Traffic:
    """All conversations, and what came of them. It flows while `flow` is set; `rested` says that
    none is left."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.flow, self._open = asyncio.Event(), 0
        self.done, self.failed = Counter[str](), Counter[str]()

    async def conversations(self, name: str, opened: Open) -> None:
        """One after the other, for ever."""
        while True:
            await self.flow.wait()
            await self.counted(name, self.conversation(opened, name == "stdio that stays"))

    async def disturbances(self, port: int) -> None:
        """Clients that are no clients, for ever."""
        while True:
            await self.flow.wait()
            await self.counted("vanished", vanish(port, self.dice))

    async def counted(self, name: str, doing: Awaitable[None]) -> None:
        self._open += 1
        try:
            await doing
            self.done[name] += 1
        except Exception as problem:
            self.failed[f"{name}: {type(problem).__name__}: {problem}"[:200]] += 1
            await asyncio.sleep(0.1)
        finally:
            self._open -= 1

    async def conversation(self, opened: Open, stays: bool) -> None:
        hanging = None
        async with opened() as client:
            for deed in self.dice.choices(DEEDS, k=self.dice.randrange(1, 8)):
                try:
                    await deed(client, self.dice)
                except Exception as problem:
                    raise AssertionError(
                        f"{deed.__name__}: {type(problem).__name__}: {problem}"
                    ) from problem
            if not stays and self.dice.random() < 0.5:
                hanging = asyncio.ensure_future(client.call_tool("wait"))
                await asyncio.sleep(self.dice.random() / 20)
        if hanging is not None:  # whoever left it is told that the conversation is over
            await asyncio.wait([hanging], timeout=10)
            assert hanging.done() and hanging.exception() is not None, (
                "a call outlives its conversation"
            )

    async def rest(self, seconds: float) -> None:
        """Let every conversation end, and what the server keeps of them as well."""
        self.flow.clear()
        while self._open:
            await asyncio.sleep(0.05)
        await asyncio.sleep(seconds)


async def vanish(port: int, dice: random.Random) -> None:
    """Open a session by hand, begin something, and be gone without a word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post(INITIALIZE))
    head = await reader.readuntil(b"\r\n\r\n")
    session = next(
        line.split()[1].decode()
        for line in head.splitlines()
        if line.lower().startswith(b"mcp-session-id:")
    )
    await reader.readexactly(
        next(
            int(line.split()[1])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length")
        )
    )
    writer.write(post(INITIALIZED, session))
    await reader.readuntil(b"\r\n\r\n")
    begun = [
        post(call("wait"), session),
        get(session),
        listen("note://x"),
        modern_call("wait"),
        post(call("ask"), session)[:-20],
    ]
    writer.write(dice.choice(begun))
    await writer.drain()
    await asyncio.sleep(dice.random() / 10)
    writer.transport.abort()
