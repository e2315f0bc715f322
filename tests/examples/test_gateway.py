"""examples/gateway: callers need a key, and the policy decides what they may do."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dovetail import Client, ProtocolError
from dovetail.errors import Unauthorized

from .conftest import EXAMPLES, ROOT, SECONDS, environment, run

PROGRAM = EXAMPLES / "gateway" / "gateway.py"
SERVERS = {"weather", "library", "booking"}


class Running(NamedTuple):
    url: str
    keys: dict[str, str]

    def connect(self, name: str, **options: Any) -> Client:
        headers = {"Authorization": f"Bearer {self.keys[name]}"}
        return Client(self.url, headers=headers, **options)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The gateway, as its first lines say to start it."""
    folder = tmp_path_factory.mktemp("gateway")
    made = run(PROGRAM, "ada", "bo")
    assert made.returncode == 0, made.stderr
    (folder / "keys.json").write_text(made.stdout)
    keys = {about["id"]: key for key, about in json.loads(made.stdout).items()}
    variables = {"GATEWAY_KEYS": str(folder / "keys.json"), "XDG_STATE_HOME": str(folder)}
    words = ["run", f"{PROGRAM}:make_gateway", "--http", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "dovetail", *words],
        env=environment(**variables),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        watchdog = threading.Timer(4 * SECONDS, process.kill)
        watchdog.start()
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("Serving gateway on "), first + process.stderr.read()
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        running = Running(first.split()[3], keys)
        asyncio.run(wait_until_complete(running))
        yield running
        process.terminate()
        watchdog.cancel()
        drain.join()


async def wait_until_complete(gateway: Running) -> None:
    """Wait until all servers have started. A list leaves out those that take long."""
    async with asyncio.timeout(SECONDS), gateway.connect("ada", cache=False) as client:
        while {name.partition("__")[0] for name in await names(client)} != SERVERS:
            await asyncio.sleep(0.1)


async def names(client: Client) -> set[str]:
    return {tool.name for tool in await client.list_tools()}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer not-one-of-the-keys"}])
async def test_without_a_key_there_is_nothing(gateway: Running, headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        async with Client(gateway.url, headers=headers) as client:
            await client.list_tools()


@pytest.mark.parametrize("revision", ["stateless", "handshake"])
async def test_bo_may_look_things_up_and_not_book(gateway: Running, revision: str) -> None:
    async with gateway.connect("bo", revision=revision) as client:
        assert await names(client) == {"weather__forecast", "library__query"}
        arguments = {"city": "Oslo", "days": 1}
        assert (await client.call_tool("weather__forecast", arguments)).data["city"] == "Oslo"
        sql = {"sql": "SELECT count(*) FROM books"}
        assert (await client.call_tool("library__query", sql)).data["rows"] == [[5]]
        with pytest.raises(ProtocolError, match="booking"):
            await client.call_tool("booking__book", {"city": "Oslo"})


async def test_ada_is_asked_by_the_gateway_and_then_by_the_server(gateway: Running) -> None:
    asked: list[str] = []

    def on_elicit(request: Any) -> Any:
        asked.append(request.message)
        if "answer" in (request.schema or {}).get("properties", {}):
            return {"answer": "once"}
        return True

    async with gateway.connect("ada", on_elicit=on_elicit) as client:
        assert "booking__book" in await names(client)
        booked = await client.call_tool("booking__book", {"city": "Oslo"})
    assert "is booked for Ada" in booked.text
    assert "book" in asked[0]
    assert asked[1].startswith("booking asks: Who takes the night train to Oslo?")


async def test_if_ada_says_no_the_call_does_not_reach_the_server(gateway: Running) -> None:
    asked: list[str] = []

    def on_elicit(request: Any) -> None:
        asked.append(request.message)

    async with gateway.connect("ada", on_elicit=on_elicit) as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("booking__book", {"city": "Oslo"})
    assert len(asked) == 1


def test_without_keys_the_gateway_says_how_to_make_them(tmp_path: Path) -> None:
    done = run(
        *("-m", "dovetail", "run", f"{PROGRAM}:make_gateway", "--http", "--port", "0"),
        GATEWAY_KEYS=str(tmp_path / "none.json"),
    )
    assert done.returncode != 0
    assert "ada bo >" in done.stderr
