"""The inspector's application through ASGI: files, operations, event streams, and who gets them."""

import asyncio
import base64
import hashlib
import json
from pathlib import Path

import pytest

from dovetail import Server
from dovetail.errors import ConfigError
from dovetail.inspector.app import MAX_BODY_BYTES
from dovetail.inspector.files import load_files

from .inspecting import BEARER, POST, inspecting, make_app, page_folder, request

server = Server("small")


@server.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return page_folder(tmp_path / "static")


async def test_the_page_and_its_files_are_served_without_a_token(folder: Path) -> None:
    async with inspecting(server) as one:
        app = make_app(one.state, folder)
        page = await request(app, "GET", "/")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        script = await request(app, "GET", "/static/panels/tools.js")
        assert (script.status, script.headers["content-type"]) == (
            200,
            "text/javascript; charset=utf-8",
        )
        assert (await request(app, "GET", "/static/vendor/lib.mjs")).status == 200


async def test_every_response_forbids_frames_sniffing_referrers_and_caches(folder: Path) -> None:
    async with inspecting(server) as one:
        app = make_app(one.state, folder)
        replies = [
            await request(app, "GET", "/"),
            await request(app, "GET", "/nothing"),
            await request(app, "POST", "/api/snapshot", b"{}", POST),
            await request(app, "POST", "/api/snapshot", b"{}"),
        ]
        for reply in replies:
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["referrer-policy"] == "no-referrer"
            assert reply.headers["cross-origin-opener-policy"] == "same-origin"
            assert reply.headers["cross-origin-resource-policy"] == "same-origin"
            assert reply.headers["cache-control"] == "no-store"
            assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
            assert not any(name.startswith("access-control-") for name in reply.headers)
        digest = base64.b64encode(hashlib.sha256(b'{"imports": {}}').digest()).decode()
        policy = replies[0].headers["content-security-policy"]
        assert f"script-src 'self' 'sha256-{digest}';" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/",
        "/static/vendor",
        "/app.py",
        "/static/panels/../index.htm",
        "/index.html",
    ],
)
async def test_no_other_path_is_a_file(folder: Path, path: str) -> None:
    async with inspecting(server) as one:
        assert (await request(make_app(one.state, folder), "GET", path)).status == 404


async def test_an_operation_takes_and_returns_json(folder: Path) -> None:
    async with inspecting(server) as one:
        app = make_app(one.state, folder)
        body = json.dumps({"tool": "add", "arguments": '{"a": 1, "b": 2}'}).encode()
        reply = await request(app, "POST", "/api/call", body, POST)
        assert (reply.status, reply.json) == (200, {"call": "1"})
        ended = await one.finish("1")
        assert json.loads(ended["result"])["structuredContent"] == {"result": 3}


@pytest.mark.parametrize(
    ("status", "operation", "body"),
    [
        (404, "nothing", b"{}"),
        (400, "snapshot", b""),
        (400, "snapshot", b"[]"),
        (400, "snapshot", b"{"),
        (400, "snapshot", b'{"a": "\xff"}'),
        (400, "open", b'{"target": "other.py"}'),
        (400, "open", b'{"command": ["sh"]}'),
        (400, "restart", b'{"env": {"A": "b"}}'),
        (400, "open", b'{"revision": "1999-01-01"}'),
        (400, "call", b'{"tool": 1}'),
        (400, "call", b'{"tool": "add", "timeout": -1}'),
        (404, "cancel", b'{"call": "99"}'),
        (404, "message", b'{"n": 99999}'),
        (404, "answer", b'{"question": "9", "action": "accept"}'),
        (413, "snapshot", b" " * (MAX_BODY_BYTES + 1)),
    ],
)
async def test_a_request_that_is_wrong_is_answered_with_what_is_wrong(
    folder: Path, status: int, operation: str, body: bytes
) -> None:
    async with inspecting(server) as one:
        reply = await request(make_app(one.state, folder), "POST", f"/api/{operation}", body, POST)
        assert reply.status == status
        assert set(reply.json) == {"error"} and reply.json["error"]["message"]


async def test_json_that_the_user_wrote_wrongly_has_a_line_and_a_column(folder: Path) -> None:
    async with inspecting(server) as one:
        body = json.dumps({"tool": "add", "arguments": '{"a": 1,\n "b" 2}'}).encode()
        reply = await request(make_app(one.state, folder), "POST", "/api/call", body, POST)
        assert (reply.json["error"]["line"], reply.json["error"]["column"]) == (2, 6)


@pytest.mark.parametrize(
    ("status", "method", "path", "headers"),
    [
        (421, "GET", "/", {"host": "localhost:4711"}),
        (403, "GET", "/", {"origin": "http://127.0.0.1:9"}),
        (401, "POST", "/api/snapshot", {"content-type": "application/json"}),
        (401, "GET", "/api/events", {}),
        (403, "POST", "/api/snapshot", POST | {"sec-fetch-site": "cross-site"}),
        (415, "POST", "/api/snapshot", BEARER),
        (403, "OPTIONS", "/api/snapshot", POST),
    ],
)
async def test_every_request_passes_the_checks(
    folder: Path, status: int, method: str, path: str, headers: dict[str, str]
) -> None:
    async with inspecting(server) as one:
        app = make_app(one.state, folder)
        reply = await request(app, method, path, b"{}", headers)
        assert reply.status == status and reply.json["error"]["what_to_do"]


async def test_events_stream_from_where_the_page_is_until_it_leaves(folder: Path) -> None:
    async with inspecting(server) as one:
        app = make_app(one.state, folder)
        seen = b""

        def on_chunk(data: bytes) -> bool:
            nonlocal seen
            seen += data
            if b'"text":"hello"' not in seen:
                one.state.events.add("stderr", text="hello")
            return b'"text":"hello"' in seen

        reply = await request(app, "GET", "/api/events?after=2", b"", BEARER, on_chunk)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        numbers = [
            json.loads(line.removeprefix(b"data: "))["n"]
            for line in seen.split(b"\n")
            if line.startswith(b"data: ")
        ]
        assert numbers[:3] == [3, 4, 5] and numbers == sorted(numbers)


async def test_all_streams_end_when_the_inspector_does(folder: Path) -> None:
    async with inspecting(server) as one:
        app = make_app(one.state, folder)
        streams = [
            asyncio.ensure_future(request(app, "GET", "/api/events", b"", BEARER)) for _ in range(2)
        ]
        await asyncio.sleep(0)
        one.state.events.close()
        assert [reply.status for reply in await asyncio.gather(*streams)] == [200, 200]


async def test_after_must_be_a_number(folder: Path) -> None:
    async with inspecting(server) as one:
        reply = await request(
            make_app(one.state, folder), "GET", "/api/events?after=x", b"", BEARER
        )
        assert reply.status == 400


@pytest.mark.parametrize("missing", ["index.html", "vendor.json", "vendor/lib.mjs"])
def test_a_page_that_is_not_complete_names_the_command_to_run(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ConfigError, match="make assets"):
        load_files(folder)
