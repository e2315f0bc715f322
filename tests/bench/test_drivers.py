"""The drivers measure what they claim: all processes of a server, and delays that a closed loop
would hide."""

import asyncio
import sys
import threading
import time

from bench.implementations import Process, started
from bench.open_loop import latencies
from bench.web import ID, Site

BURN = "import time\nwhile time.process_time() < 0.3: pass"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
print(flush=True)
sys.stdin.read()
"""


def test_cpu_time_of_all_processes_includes_children_that_have_ended() -> None:
    with started([sys.executable, "-c", PARENT], stdio=True) as process:
        assert process.popen.stdout
        process.popen.stdout.readline()
        own, everything = process.cpu(), process.cpu_of_all()
        assert own is not None
        assert everything is not None
        assert everything >= own + 0.25
        assert process.descendants() == []


async def answer_late(port: "asyncio.Future[int]", stop: asyncio.Event) -> None:
    """Serve HTTP, but do nothing for 0.2 s when the first request arrives."""
    delays = [0.2]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            time.sleep(delays.pop() if delays else 0)  # the loop serves nothing else meanwhile
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port.set_result(server.sockets[0].getsockname()[1])
    await stop.wait()
    server.close()


def test_a_request_that_could_not_be_sent_in_time_counts_from_the_time_it_was_due() -> None:
    async def main() -> list[float]:
        port, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        loop = asyncio.get_running_loop()
        found: list[list[float]] = []

        def drive(number: int) -> None:
            with started([sys.executable, "-c", ""]) as process:
                site = Site(Process(process.popen), number)
                found.append(latencies(site, b"GET %d HTTP/1.1\r\n\r\n" % ID, 2000, 800))
            loop.call_soon_threadsafe(stop.set)

        serving = asyncio.create_task(answer_late(port, stop))
        thread = threading.Thread(target=drive, args=(await port,))
        thread.start()
        await serving
        await asyncio.to_thread(thread.join)
        return found[0]

    took = asyncio.run(main())
    assert len(took) == 800
    # 200 requests were due in the first half of the delay, but only one for each of the 64
    # connections could be sent.
    assert sum(one >= 0.1 for one in took) >= 150
