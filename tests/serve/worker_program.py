"""A program of several workers. Each tells its parent's tester on a connection who it is, and then
does as it is told.

worker_program.py CONTROL_PORT COUNT GRACE HOW
"""

import asyncio
import atexit
import json
import os
import signal
import socket
import sys
from typing import Any

from dovetail.connection.bus import join
from dovetail.sealing import key_ring
from dovetail.serve.workers import run_workers

handlers: list[Any] = []
CONTROL, COUNT, GRACE, HOW = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]


async def serve(path: str) -> None:
    bus = await join(path)
    heard: asyncio.Queue[Any] = asyncio.Queue()
    bus.on("news", heard.put_nowait)
    bus.on("pid", lambda payload: os.getpid() if payload in (None, os.getpid()) else None)
    reader, writer = await asyncio.open_connection("127.0.0.1", CONTROL)

    async def ask_patiently(topic: str, payload: Any) -> Any:
        while (answer := await bus.ask(topic, payload)) is None:
            await asyncio.sleep(0.01)
        return answer

    async def publish(payload: Any) -> None:
        bus.publish("news", payload)

    async def seal() -> str:
        return key_ring().seal("test", b"sealed by a worker")

    async def unseal(token: str) -> str:
        return key_ring().open("test", token).decode()

    commands: dict[str, Any] = {
        "ask": bus.ask,
        "ask_patiently": ask_patiently,
        "publish": publish,
        "heard": heard.get,
        "seal": seal,
        "open": unseal,
    }
    if HOW == "orderly":
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, os._exit, 99)
        ending = asyncio.create_task(stop.wait())
    hello = {
        "pid": os.getpid(), "path": path, "handlers": handlers,
        "group": os.getpgid(0), "parent": os.getppid(),
    }  # fmt: skip
    writer.write(json.dumps(hello).encode() + b"\n")
    while line := await reader.readline():
        name, *arguments = json.loads(line)
        if name == "orderly":
            await ending
            await bus.close()
            writer.write(b'"orderly"\n')
            await writer.drain()
            return
        writer.write(json.dumps(await commands[name](*arguments)).encode() + b"\n")


def work(path: str) -> None:
    if HOW == "broken":
        raise RuntimeError("this worker is broken")
    if HOW == "exits":
        sys.exit("cannot go on")
    if HOW == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("worker says hello")
    handlers.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD))
    asyncio.run(serve(path))


if __name__ == "__main__":
    atexit.register(print, "at exit")
    print("parent says hello")
    listening = socket.create_server(("127.0.0.1", 0))
    code = run_workers(COUNT, [listening], work, grace=GRACE)
    print("closed" if listening.fileno() == -1 else "open", signal.getsignal(signal.SIGTERM).name)
    sys.exit(code)
