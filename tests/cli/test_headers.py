"""`--header` of the client verbs."""

import socket
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import SECONDS, WEATHER, dovetail


@pytest.mark.parametrize("text", ["Authorization", ": value", "Name:", "Name: "])
def test_a_header_must_be_a_name_and_a_value(text: str) -> None:
    done = dovetail("ping", "http://127.0.0.1:1/mcp", "--header", text)
    assert done.code == 2
    assert done.failure.startswith(f"argument --header: {text!r} is not 'NAME: VALUE'")


@pytest.mark.parametrize("target", [WEATHER, "uvx some-server", "proxy http://127.0.0.1:1/mcp"])
def test_a_server_that_is_started_takes_no_header(target: str) -> None:
    done = dovetail("ping", target, "--header", "A: b")
    assert (done.code, done.failure) == (2, f"--header is for a URL, but the target is {target}")


def test_headers_reach_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heads: list[str] = []
        refusing = threading.Thread(target=refuse, args=(listener, heads))
        refusing.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        done = dovetail("ping", url, "--header", "Authorization: Bearer a:b", "--header", "X-Tenant:acme")
        refusing.join(SECONDS)
    assert done.code == 1
    assert "authorization: bearer a:b\r\n" in heads[0].lower()
    assert "x-tenant: acme\r\n" in heads[0].lower()


def refuse(listener: socket.socket, heads: list[str]) -> None:
    """Take the head of one request, and refuse it."""
    listener.settimeout(SECONDS)
    connection, _ = listener.accept()
    with connection:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        heads.append(head.decode())
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_headers_go_with_an_mcp_json(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"far": {"url": "http://127.0.0.1:1/mcp"}}}')
    done = dovetail("ping", str(path), "--header", "A: b")
    assert done.code == 1  # nobody listens there; the header was taken
    assert "127.0.0.1:1" in done.failure
