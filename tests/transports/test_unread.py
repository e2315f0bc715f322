"""A client that wants to hear of changes and then reads nothing: it is left, before it has filled
the server's memory."""

import asyncio
import io
import json
import os
import sys
from typing import Any

import pytest

from dovetail import Limits, Server
from dovetail.limits import KIB
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.transports.stdio import StdioChannel

URI = "doc://" + "x" * KIB
META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
INFO = {"name": "deaf", "version": "0"}
LISTEN = [
    ("subscriptions/listen", {"notifications": {"resourceSubscriptions": [URI]}, "_meta": META})
]
SUBSCRIBE = [
    ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}),
    ("notifications/initialized", {}),
    ("resources/subscribe", {"uri": URI}),
]


@pytest.mark.skipif(
    sys.platform == "win32", reason="pipes that are read by threads there outlive the test"
)
@pytest.mark.parametrize("requests", [LISTEN, SUBSCRIBE], ids=["stateless", "handshake"])
async def test_a_client_that_listens_and_does_not_read_is_left(
    requests: Any, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(write_buffer=16 * KIB, events=64 * KIB, shutdown=0.1)
    server = Server("noisy", limits=limits)
    server.resource(URI)(lambda: "")
    (stdin, to_server), (from_server, stdout) = os.pipe(), os.pipe()
    streams = io.FileIO(stdin, "r"), io.FileIO(stdout, "w")
    channel = StdioChannel(limits, streams)
    serving = asyncio.create_task(server.serve(channel))
    for id, (method, params) in enumerate(requests):
        named = {} if method.startswith("notifications/") else {"id": id}
        os.write(
            to_server,
            json.dumps({"jsonrpc": "2.0", **named, "method": method, "params": params}).encode()
            + b"\n",
        )
    said = b""
    while said.count(b"\n") < (1 if requests is LISTEN else 2):
        said += await asyncio.to_thread(os.read, from_server, 64 * KIB)
    most = 0
    while not serving.done():
        server.notify_resource_updated(URI)
        await asyncio.sleep(0)
        most = max(most, channel._writer._pending)
    await serving
    assert limits.events < most < limits.events + 2 * limits.write_buffer
    assert "the client is not reading" in caplog.text
    streams[0].close()
    os.close(to_server)
    os.close(from_server)
