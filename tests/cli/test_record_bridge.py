"""A host and a server at a URL, between which `dovetail record` passes messages."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.client.recording.bridge import _Bridge
from dovetail.errors import TooLarge
from dovetail.jsonrpc.framing import TooLong
from dovetail.mcplog import LostEvent, McplogWriter, read_mcplog
from dovetail.ports import OnClose, Receive


class Pipe:
    """A channel whose messages come from the test."""

    request_id: int | None = None

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def start(self, receive: Receive, ended: OnClose) -> None:
        self.receive, self.ended = receive, ended

    def send(self, data: bytes) -> None:
        self.sent.append(json.loads(data))

    async def drain(self) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("head", "request_id", "is_answered"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"text":"xx', None, True),
        (b'{"result":{"text":"xxxxxxx', 1, True),
        (b'{"result":{"text":"xxxxxxx', None, False),
        (b'{"jsonrpc":"2.0","id":2,"result":{"text":"xx', None, False),
        (b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{', None, False),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{', 1, False),
    ],
)
async def test_a_reply_that_is_too_long_becomes_an_error(
    tmp_path: Path, head: bytes, request_id: int | None, is_answered: bool
) -> None:
    host, server = Pipe(), Pipe()
    with McplogWriter(tmp_path / "a.mcplog", "https://a.example/mcp") as writer:
        running = asyncio.ensure_future(_Bridge(host, server, writer).run())
        await asyncio.sleep(0)
        host.receive(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
        server.request_id = request_id
        server.receive(TooLong(head))
        answers = [(one["id"], one["error"]["code"]) for one in host.sent]
        assert answers == ([(1, TooLarge.code)] if is_answered else [])
        running.cancel()
        await asyncio.wait([running])
    found = read_mcplog(writer.path)
    assert any(isinstance(event, LostEvent) for event in found.events)
    assert [event.direction for event in found.wire()] == ["to_server", "to_client"][
        : 1 + is_answered
    ]
