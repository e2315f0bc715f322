"""examples/github.py, against the stand-in of examples/github_stub.py on loopback."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dovetail import Client, ToolError

from .conftest import EXAMPLES, Load

SERVER = EXAMPLES / "github.py"


def address(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def github(load: Load) -> Iterator[str]:
    """The URL of the stand-in."""
    with load("github_stub").make_stub() as stub:
        thread = threading.Thread(target=stub.serve_forever)
        thread.start()
        yield address(stub)
        stub.shutdown()
        thread.join()


def connect(url: str, token: str = "demo", **options: Any) -> Client:
    return Client(SERVER, env={"GITHUB_API": url, "GITHUB_TOKEN": token}, **options)


async def test_an_issue_is_created_and_listed(github: str) -> None:
    async with connect(github, validate="strict") as client:
        arguments = {"repo": "acme/widgets", "title": "Bug in checkout flow"}
        issue = (await client.call_tool("create_issue", arguments)).data
        assert issue == {
            "id": 1001,
            "number": 1,
            "title": "Bug in checkout flow",
            "state": "open",
            "url": "https://github.example/acme/widgets/issues/1",
        }
        await client.call_tool("create_issue", {"repo": "acme/widgets", "title": "Another"})
        listed = (await client.call_tool("list_issues", {"repo": "acme/widgets"})).data
        assert [one["number"] for one in listed] == [2, 1]
        closed = {"repo": "acme/widgets", "state": "closed"}
        assert (await client.call_tool("list_issues", closed)).data == []


async def test_the_output_schema_is_listed(github: str) -> None:
    async with connect(github) as client:
        (tool,) = [one for one in await client.list_tools() if one.name == "create_issue"]
        assert tool.title == "Create GitHub Issue"
        assert tool.output_schema is not None
        assert {"id", "number", "url"} <= tool.output_schema["properties"].keys()


@pytest.mark.parametrize(
    ("repo", "title", "token", "words"),
    [
        ("acme/nothing", "x", "demo", "There is no repository acme/nothing"),
        ("acme/busy", "x", "demo", "rate limit of GitHub is exceeded. Try again in 60 seconds"),
        ("acme/widgets", "x", "stale-token", "Ask the user to set GITHUB_TOKEN"),
        ("acme/widgets", " ", "demo", "GitHub refused the values: .*missing_field"),
    ],
)
async def test_a_refusal_is_explained_in_words(
    github: str, repo: str, title: str, token: str, words: str
) -> None:
    async with connect(github, token) as client:
        with pytest.raises(ToolError, match=words) as failure:
            await client.call_tool("create_issue", {"repo": repo, "title": title})
    assert token not in str(failure.value)


@pytest.mark.parametrize(
    "repo", ["widgets", "acme/..", "../acme/widgets", "acme/widgets?x=", "a/b/c"]
)
async def test_a_repository_is_a_part_of_the_path_and_nothing_else(github: str, repo: str) -> None:
    async with connect(github) as client:
        with pytest.raises(ToolError, match="`repo` must"):
            await client.call_tool("list_issues", {"repo": repo})


async def test_an_api_that_cannot_be_reached_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with connect(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ToolError, match="GitHub cannot be reached"):
            await client.call_tool("list_issues", {"repo": "acme/widgets"})


async def test_the_token_does_not_follow_a_redirect() -> None:
    asked: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["authorization"])
            self.send_response(301)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        async with connect(address(server)) as client:
            with pytest.raises(ToolError, match="acme/widgets has moved"):
                await client.call_tool("list_issues", {"repo": "acme/widgets"})
        server.shutdown()
        thread.join()
    assert asked == ["Bearer demo"]
