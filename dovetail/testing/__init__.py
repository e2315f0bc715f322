"""The test kit: a server and a client in one process, a recording of their messages, and a bare
peer that sends any bytes.

    async with pair(server) as client:                     # in memory, any revision
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    async with pair(server, revision="handshake", record=(tape := Tape())) as client:
        ...
    assert tape.methods() == [...]                         # every message, both ways, as JSON

    async with bare(server) as peer:                       # no client at all: raw messages
        peer.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert await peer.receive() == {...}
"""

from .bare import Bare, bare
from .pair import pair
from .tape import Tape, Taped

__all__ = ["Bare", "Tape", "Taped", "bare", "pair"]
