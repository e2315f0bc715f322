"""What a server offers, as its client knows it."""

import pytest

from dovetail import Client, Server
from dovetail.errors import MethodNotFound


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_client_knows_what_its_server_offers(revision: str) -> None:
    server = Server("s")
    server.tool(lambda: "x", name="x")
    client = Client(server, revision=revision)
    assert not client.offers("tools/list")
    async with client:
        assert client.offers("tools/list")
        assert not client.offers("prompts/list")
        # the first revision has completion, but no capability for it
        assert client.offers("completion/complete") is (revision == "2024-11-05")
        with pytest.raises(MethodNotFound):
            client.offers("no/such")
