"""The program behind `make demo`: a client and the servers that it starts communicate over stdio,
then over HTTP in both eras.

At the end, a server asks questions. At a terminal, you answer them; otherwise, their defaults are
the answers.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any
from urllib.parse import urlsplit

from dovetail import Client, TextContent, terminal_elicit
from dovetail.protocol import ElicitParams, ProgressParams

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ
HERE = Path(__file__).parent
SERVER = HERE / "weather.py"
BOOKING = HERE / "booking.py"
bar_is_open = False  # whether the cursor is at the end of a progress bar


def paint(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def chapter(text: str) -> None:
    print(paint("Dovetail", "1;36"), text)


def step(title: str) -> None:
    print(f"\n{paint('●', '36')} {paint(title, '1')}")


def show(text: object) -> None:
    end_bar()
    print(f"  {text}")


def bar(update: ProgressParams) -> None:
    global bar_is_open
    message = update.message or ""
    filled = int(24 * update.progress / (update.total or 1))
    line = f"  {paint('█' * filled, '32')}{paint('░' * (24 - filled), '90')} {message}"
    print(f"\r{line}" if COLOUR else line, end="" if COLOUR else "\n", flush=True)
    bar_is_open = COLOUR


def end_bar() -> None:
    """Start a new line if the last one is a progress bar."""
    global bar_is_open
    if bar_is_open:
        print()
    bar_is_open = False


async def introduce(client: Client) -> None:
    info = client.server_info
    if info is not None:
        show(f"{info.name} {info.version}, revision {client.revision}: {client.instructions}")


async def forecast(client: Client, city: str, days: int) -> None:
    result = await client.call_tool("forecast", {"city": city, "days": days}, on_progress=bar)
    for day in result.data["days"]:
        show(f"day {day['day']}: {day['sky']:<6} {day['celsius']:>5} °C")


async def over_stdio() -> None:
    chapter(
        f"starts {paint('examples/weather.py', '1')} and talks to it over {paint('stdio', '1')}."
    )

    async with Client(
        SERVER, on_log=lambda entry: show(paint(f"the server logs: {entry.data}", "90"))
    ) as client:
        step("Which server is this?")
        await introduce(client)

        step("What can it do?")
        for tool in await client.list_tools():
            show(f"tool      {paint(tool.name, '33')}  {(tool.description or '').splitlines()[0]}")
        for resource in await client.list_resources():
            show(f"resource  {paint(resource.uri, '33')}  {resource.description}")
        for template in await client.list_resource_templates():
            show(f"template  {paint(template.uri_template, '33')}  {template.description}")
        for prompt in await client.list_prompts():
            show(f"prompt    {paint(prompt.name, '33')}  {prompt.description}")

        step("Call a tool, with live progress")
        await forecast(client, "Oslo", 5)

        step("Read a resource")
        (contents,) = await client.read_resource("weather://Reykjavik/place")
        show(f"{contents.uri} → {contents.text}")

        step("Complete an argument")
        completion = await client.complete(prompt="packing", argument="city", value="h")
        show(f"cities that match “h” → {', '.join(completion.values)}")

        step("Get a prompt")
        filled = await client.get_prompt("packing", {"city": "Helsinki", "days": 2})
        for message in filled.messages:
            if isinstance(message.content, TextContent):
                show(f"{message.role}: {message.content.text}")


async def over_http() -> None:
    with serving(SERVER) as url:
        chapter(
            f"serves the same file at {paint(url, '1')} and talks to it over {paint('HTTP', '1')}."
        )

        step("Without a session: progress arrives on the stream of the response")
        async with Client(url) as client:
            await introduce(client)
            await forecast(client, "Stockholm", 3)

        step("With a handshake and a session, at the same URL")
        async with Client(url, revision="handshake") as client:
            await introduce(client)
            await forecast(client, "Helsinki", 3)


async def asked_back() -> None:
    with serving(BOOKING) as url:
        chapter(
            f"serves {paint('examples/booking.py', '1')} at {paint(url, '1')}: a tool that "
            f"asks {paint('you', '1')}."
        )

        if sys.stdin.isatty():
            show("Answer y to the last question to book the trip.")

        step("Without a session: the client calls again with the answers")
        await book(url, "stateless", "Oslo")

        step("With a session: the questions are requests to the client")
        await book(url, "handshake", "Helsinki")


async def book(url: str, revision: str, city: str) -> None:
    def answered(question: Any, answer: Any) -> Any:
        if isinstance(question, ElicitParams):
            show(paint(f"{question.message} → {answer.content or answer.action}", "90"))
        return answer

    ask, interrupted = terminal_elicit(defaults=True), False

    async def elicit(question: Any) -> Any:
        nonlocal interrupted
        answer = await ask(question)
        interrupted = answer.action == "cancel"  # Ctrl-C, which cancels only this question
        return answer

    async with Client(
        url,
        revision=revision,
        timeout=600,
        on_elicit=elicit,
        on_sample=lambda question: "Sleep well, wake up there.",  # in place of a model
        # At a terminal, the user already sees the answers.
        on_answer=None if sys.stdin.isatty() else answered,
    ) as client:
        await introduce(client)
        result = await client.call_tool("book", {"city": city})
        if interrupted:
            raise KeyboardInterrupt
        show(result.text)


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """Run `dovetail run … --http` on a free port until the block ends, and yield the URL."""
    command = [sys.executable, "-m", "dovetail", "run", str(path), "--http", "--port", "0"]
    # In its own session, so that Ctrl-C reaches only this process, which then stops the server.
    with Popen(
        command, stdin=DEVNULL, stderr=PIPE, encoding="utf-8", start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline().strip()
            if not said.startswith("Serving "):
                raise SystemExit(f"The server did not start: {said}\n{process.stderr.read()}")
            url = said.rpartition(" ")[2]
            wait_for(url)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except TimeoutExpired:
                process.kill()
    if process.returncode:
        raise SystemExit(f"The server exited with code {process.returncode}")


def wait_for(url: str) -> None:
    """Wait until the server listens; it prints its URL a moment before that."""
    address = urlsplit(url)
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection((address.hostname, address.port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise SystemExit(f"No server is listening at {url}") from None
            time.sleep(0.05)


async def main() -> None:
    await over_stdio()
    print()
    await over_http()
    print()
    await asked_back()
    print(f"\n{paint('Done.', '32')} All servers have been stopped.")


def interrupt(number: int, frame: object) -> None:
    """Handle a signal like Ctrl-C, so that the servers are stopped."""
    signal.signal(number, signal.SIG_IGN)  # a closed terminal may send it more than once
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    for name in ("SIGHUP", "SIGTERM"):  # Windows has no SIGHUP
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), interrupt)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print(f"\n{paint('Stopped.', '33')} All servers have been stopped.")
        sys.exit(130)
