"""A page of another origin, as its browser would send it: nothing happens, and nothing can be
read."""

import json
from pathlib import Path

import pytest

from dovetail import Server

from .inspecting import POST, inspecting, make_app, page_folder, request

server = Server("victim")
called: list[str] = []


@server.tool
def delete() -> str:
    """Delete everything."""
    called.append("delete")
    return "deleted"


ATTACKS = {
    "a form": {"content-type": "text/plain", "origin": "http://127.0.0.1:9999"},
    "a fetch without CORS": {"content-type": "text/plain", "sec-fetch-site": "same-site"},
    "a fetch that needs a preflight": POST | {"origin": "http://127.0.0.1:9999"},
    "a page on localhost": POST | {"origin": "http://localhost:4711"},
    "a page in a sandbox": POST | {"origin": "null", "sec-fetch-site": "cross-site"},
    "a name that resolves to us": POST | {"host": "evil.example:4711"},
    "a page that knows the token": POST | {"sec-fetch-site": "cross-site"},
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_another_page_has_no_effect_and_reads_nothing(tmp_path: Path, attack: str) -> None:
    async with inspecting(server) as one:
        app = make_app(one.state, page_folder(tmp_path / "static"))
        body = json.dumps({"tool": "delete"}).encode()
        for method, path in (
            ("POST", "/api/call"),
            ("GET", "/api/events"),
            ("OPTIONS", "/api/call"),
        ):
            reply = await request(app, method, path, body, ATTACKS[attack])
            assert reply.status >= 400
            assert not any(name.startswith("access-control-") for name in reply.headers)
            assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
            assert b"victim" not in reply.body
        assert called == [] and one.events("call") == []
