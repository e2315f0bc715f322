"""Valid messages with a few bytes changed, thousands of them: no reply is lost, none comes twice,
and both ends live on."""

import asyncio
import contextlib
import json
import random
from typing import Any

import pytest

from dovetail import Client, DovetailError
from dovetail.protocol.base import CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION
from dovetail.testing import Bare, bare
from dovetail.transports import memory
from tests.behaviour import everything

META = {
    PROTOCOL_VERSION: "2026-07-28",
    CLIENT_CAPABILITIES: {},
    LOG_LEVEL: "debug",
    "progressToken": 1,
}
REFERENCE = {"type": "ref/prompt", "name": "greet"}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("ping", {}),
    ("server/discover", {"_meta": META}),
    ("tools/list", {"_meta": META}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}),
    ("tools/call", {"name": "steps", "arguments": {"count": 3}}),
    ("resources/read", {"uri": "item://5/name"}),
    ("resources/subscribe", {"uri": "doc://text"}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    ("completion/complete", {"ref": REFERENCE, "argument": {"name": "name", "value": "A"}}),
    ("logging/setLevel", {"level": "info"}),
]
RESULTS: list[Any] = [
    {
        "content": [{"type": "text", "text": "hello"}],
        "structuredContent": {"result": [1, 2.5, None]},
        "isError": False,
    },
    {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}], "_meta": {"a/b": 1}},
    {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "x://y", "text": "t", "mimeType": "text/plain"},
            }
        ]
    },
]


def mutated(rng: random.Random, message: Any) -> bytes:
    data = bytearray(json.dumps(message).encode())
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        change = rng.randrange(4)
        if change == 0:
            data[place] = rng.randrange(256)
        elif change == 1:
            del data[place : place + rng.randint(1, 8)]
        elif change == 2:
            data[place:place] = rng.choice(
                [
                    b'"',
                    b"{",
                    b"]",
                    b",",
                    b"null",
                    b"\\",
                    b"\xff",
                    b"-1e999",
                    b"\\ud800",
                    b"[" * 2000,
                ]
            )
        else:
            data[place] = rng.choice(b'0123456789"{}[]:,truefalsn')
    return bytes(data).replace(b"\n", b" ") or b"x"


def replies_of(message: Any) -> list[Any]:
    return message if isinstance(message, list) else [message] if "method" not in message else []


@pytest.mark.parametrize("seed", range(6))
async def test_a_server_answers_each_mutated_request_at_most_once_and_lives_on(seed: int) -> None:
    rng = random.Random(seed)
    async with bare(everything.build()) as peer:
        await peer.greet("2025-03-26" if seed % 2 else "2025-11-25")
        sent = 300
        for id in range(sent):
            method, params = rng.choice(REQUESTS)
            peer.send(
                mutated(rng, {"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            )
        for id in range(sent, sent + 50):
            peer.send(
                {
                    "jsonrpc": "2.0",
                    "id": f"intact {id}",
                    "method": "tools/call",
                    "params": REQUESTS[3][1],
                }
            )
        replies: list[Any] = []
        while sum(str(reply.get("id")).startswith("intact") for reply in replies) < 50:
            replies += replies_of(await peer.receive())
        for _ in range(3):
            await peer.ask("ping", id="flush")
        assert len(replies) <= sent + 50
        assert peer.waiting() == 0


@pytest.mark.parametrize("seed", range(6))
async def test_a_client_makes_of_each_mutated_reply_a_result_or_one_flat_error(seed: int) -> None:
    rng = random.Random(seed)
    ours, theirs = memory.pair()
    peer = Bare(theirs)

    async def serve() -> None:
        while True:
            message = await peer.receive()
            if "id" not in message or "method" not in message:
                continue
            if message["method"] == "initialize":
                info = {"name": "fuzz", "version": "0"}
                result: Any = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            else:
                result = rng.choice(RESULTS)
                peer.send(mutated(rng, {"jsonrpc": "2.0", "id": message["id"], "result": result}))
                progress = {"progressToken": message["id"], "progress": 1}
                peer.send(
                    mutated(
                        rng,
                        {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress},
                    )
                )
            peer.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    serving = asyncio.create_task(serve())
    async with Client(ours, revision="2025-06-18") as client:
        for _ in range(150):
            with contextlib.suppress(DovetailError):
                await client.call_tool("x", on_progress=lambda update: None, timeout=20)
        assert client.state == "connected"
    serving.cancel()
