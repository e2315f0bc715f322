"""`--header` of the client verbs."""

import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import WEATHER, dovetail


@pytest.mark.parametrize("text", ["Authorization", ": value", "Name:", "Name: "])
def test_a_header_must_be_a_name_and_a_value(text: str) -> None:
    done = dovetail("ping", "http://127.0.0.1:1/mcp", "--header", text)
    assert done.code == 2
    assert done.failure.startswith(f"argument --header: {text!r} is not in the form 'NAME: VALUE'")


@pytest.mark.parametrize("target", [WEATHER, "uvx some-server", "proxy http://127.0.0.1:1/mcp"])
def test_a_server_that_is_started_takes_no_header(target: str) -> None:
    done = dovetail("ping", target, "--header", "A: b")
    assert (done.code, done.failure) == (
        2,
        f"--header applies only to a URL, but the target is {target}",
    )


def test_headers_reach_the_server() -> None:
    seen: list[Message] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers)
            self.send_error(403)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as listener:
        threading.Thread(target=listener.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{listener.server_port}/mcp"
        done = dovetail(
            "ping", url, "--header", "Authorization: Bearer a:b", "--header", "X-Tenant:acme"
        )
        listener.shutdown()
    assert done.code == 1
    assert (
        [(head["authorization"], head["x-tenant"]) for head in seen]
        == [("Bearer a:b", "acme")] * len(seen)
        != []
    )


def test_headers_go_with_an_mcp_json(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"far": {"url": "http://127.0.0.1:1/mcp"}}}')
    done = dovetail("ping", str(path), "--header", "A: b")
    assert done.code == 1  # nobody listens there; the header was taken
    assert "127.0.0.1:1" in done.failure


def test_a_server_that_requires_an_api_key_is_explained_with_the_option_to_pass() -> None:
    class Locked(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'ApiKey header="X-Api-Key"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Locked) as listener:
        threading.Thread(target=listener.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{listener.server_port}/mcp"
        done = dovetail("ping", url)
        listener.shutdown()
    expected = f"{url} requires an API key, not a login. Pass --header 'X-Api-Key: …'"
    assert (done.code, done.failure) == (1, expected)
