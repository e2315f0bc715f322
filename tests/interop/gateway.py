"""Servers from the registries behind one gateway, and the peers' clients in front of it.

The gateway is the command `dovetail gateway mcp.json`, over stdio and over HTTP. Six servers are
its processes, and one of them is also reached over HTTP, as `web`: it asks questions, and its URIs
are those of another server. Steps that call a server come first, so that all servers are started
when they are listed.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from ..node import Trouble
from .cases import PEERS, Case, Peer
from .peers import HOME, NODE
from .reference import EVERYTHING, FILES, PACKAGES, has
from .running import environment, listening
from .steps import Step, call, said

GATEWAY = [sys.executable, "-m", "dovetail", "gateway"]
ASKS = {"capabilities": ["elicitation", "sampling", "roots"]}
"""This server lists some tools only if a client can answer questions."""
NEWEST = {"mcp1": "2025-11-25", "mcp2": "2026-07-28", "ts1": "2025-11-25", "ts2": "2026-07-28"}
"""The peers that are callers, and the revision that each of them agrees on with the gateway."""
SHORT = ("git", "web", "tools", "prompt", "read")
"""The steps for which the Inspector starts a gateway of its own, with all servers."""
DOCUMENT = "demo://resource/static/document/features.md"


class Scene(NamedTuple):
    """What is there before the callers come."""

    page: str
    """The URL of a page on this machine."""
    web: str
    """The URL of server-everything."""
    url: str
    """The URL of the gateway."""


def prepare_gateway(name: str, web: str) -> list[str]:
    """Write the configuration of a gateway, and return the command that starts it."""
    folder = HOME / "gateways" / name
    folder.mkdir(parents=True, exist_ok=True)
    memory = folder / "memory.jsonl"
    memory.unlink(missing_ok=True)
    commands: dict[str, list[Any]] = {
        "everything": [NODE, EVERYTHING],
        "filesystem": [NODE, PACKAGES / "server-filesystem/dist/index.js", FILES],
        "memory": [NODE, PACKAGES / "server-memory/dist/index.js"],
        "git": [HOME / "reference/bin/mcp-server-git", "--repository", FILES],
        "time": [HOME / "reference/bin/mcp-server-time", "--local-timezone", "Europe/Oslo"],
        "fetch": [HOME / "reference/bin/mcp-server-fetch", "--allow-private-ips"],
    }
    servers: dict[str, dict[str, Any]] = {
        name: {"command": str(program), "args": [str(one) for one in arguments]}
        for name, (program, *arguments) in commands.items()
    }
    servers["memory"]["env"] = {"MEMORY_FILE_PATH": str(memory)}
    servers["everything"]["dovetail"] = ASKS
    servers["web"] = {"url": web, "dovetail": ASKS}
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return [*GATEWAY, str(path), "--store", str(folder / "consent.db")]


def steps(page: str) -> list[Step]:
    """What every caller does."""
    return [
        Step("server", "server", {"result": {"name": "gateway"}}),
        *_calls(page),
        *(one for server in ("everything", "web") for one in _questions(server)),
        *_lists(),
    ]


def _calls(page: str) -> Iterator[Step]:
    yield Step("everything", "call", said("Echo: hi"), call("everything__echo", message="hi"))
    yield Step("web", "call", said("The sum of 2 and 3 is 5."), call("web__get-sum", a=2, b=3))
    yield Step(
        "filesystem",
        "call",
        said("hello"),
        call("filesystem__read_text_file", path=str(FILES / "hello.txt")),
    )
    entity = {"name": "CASE", "entityType": "kind", "observations": ["seen"]}
    yield Step("memory", "call", has("kind"), call("memory__create_entities", entities=[entity]))
    yield Step("remembered", "call", has("seen"), call("memory__search_nodes", query="CASE"))
    yield Step("git", "call", has("hello.txt"), call("git__git_status", repo_path=str(FILES)))
    zone = "Europe/Oslo"
    yield Step("time", "call", has(zone), call("time__get_current_time", timezone=zone))
    raw = call("fetch__fetch", url=page, raw=True)  # otherwise, it installs something from npm
    yield Step("fetch", "call", has("A page on this machine"), raw)
    yield Step(
        "structured",
        "call",
        {"result": {"structuredContent": {"conditions": "Cloudy"}}},
        call("everything__get-structured-content", location="New York"),
    )
    links = [{}, {"type": "resource_link", "uri": "~web+demo://resource/dynamic/"}]
    yield Step(
        "links", "call", {"result": {"content": links}}, call("web__get-resource-links", count=1)
    )
    yield Step(
        "progress",
        "call",
        {"progress": [..., {"progress": 3, "total": 3}]},
        call("everything__trigger-long-running-operation", duration=0.3, steps=3),
        {"progress": 3},
    )
    outside = call("filesystem__read_text_file", path="/etc/hostname")
    yield Step("tool error", "call", "failed", outside)
    yield Step("unknown tool", "call", "failed", call("git__nothing_such"))


def _questions(server: str) -> Iterator[Step]:
    yield Step(
        f"sampling for {server}",
        "call",
        has("Godspeed!"),
        call(f"{server}__trigger-sampling-request", prompt="Go", maxTokens=10),
    )
    yield Step(
        f"elicitation for {server}",
        "call",
        {"result": {"content": [{"text": "~provided"}, {"text": "~Ada"}, {}]}},
        call(f"{server}__trigger-elicitation-request"),
    )
    roots = call(f"{server}__get-roots-list")
    yield Step(f"roots for {server}", "call", has("file:///tmp/interop"), roots)


def _lists() -> Iterator[Step]:
    tools = (
        "everything__echo everything__trigger-sampling-request web__get-sum "
        "filesystem__read_text_file memory__create_entities git__git_status "
        "time__get_current_time fetch__fetch"
    )
    yield Step("tools", "tools", {"result": {"tools": f"has {tools}"}})
    both = f"has {DOCUMENT} web+{DOCUMENT}"
    yield Step("resources", "resources", {"result": {"resources": both}})
    template = "demo://resource/dynamic/text/{resourceId}"
    both = f"has {template} web+{template}"
    yield Step("templates", "templates", {"result": {"resourceTemplates": both}})
    for name, uri in (("read", DOCUMENT), ("read web", f"web+{DOCUMENT}")):
        wanted = {"result": {"contents": [{"uri": uri, "text": "~Everything Server"}]}}
        yield Step(name, "read", wanted, {"uri": uri})
    one = {"uri": "web+demo://resource/dynamic/text/1"}
    contents = [{**one, "text": "~Resource 1"}]
    yield Step("read a template", "read", {"result": {"contents": contents}}, one)
    prompts = "has everything__simple-prompt web__args-prompt fetch__fetch"
    yield Step("prompts", "prompts", {"result": {"prompts": prompts}})
    yield Step(
        "prompt",
        "prompt",
        {"result": {"messages": [{"content": {"text": "~Oslo"}}]}},
        {"prompt": "everything__args-prompt", "arguments": {"city": "Oslo"}},
    )
    yield Step(
        "completion",
        "complete",
        {"result": {"completion": {"values": ["Engineering"]}}},
        {"prompt": "web__completable-prompt", "argument": "department", "value": "Eng"},
    )


def callers(peer: Peer, scene: Scene) -> list[Case]:
    """A peer's client in front of the gateway, over stdio and over HTTP."""
    revision = NEWEST[peer.name]
    targets: dict[str, Any] = {
        "stdio": prepare_gateway(peer.name, scene.web),
        "http": scene.url,
    }
    return [
        Case(peer.name, "gateway", transport, revision, target, steps(scene.page), environment())
        for transport, target in targets.items()
    ]


def inspections(scene: Scene) -> list[Case]:
    """The Inspector in front of the gateway. It is a new process for each step, and cannot answer
    questions."""
    known = [
        step
        for step in steps(scene.page)
        if step.do not in ("server", "complete") and not step.awaits and " for " not in step.name
    ]
    command = check_servers(prepare_gateway("inspector", scene.web))
    short = [step for step in known if step.name in SHORT]
    targets: list[tuple[str, str, Any, list[Step]]] = [
        ("http", "2025-11-25", scene.url, known),
        ("http", "2026-07-28", scene.url, known),
        ("stdio", "2026-07-28", command, short),
    ]
    return [Case("inspector", "gateway", *target, environment()) for target in targets]


def check_servers(command: list[str]) -> list[str]:
    """Start each server once, so that later gateways know what it lists before it is started.
    Return the command of the gateway."""
    done = subprocess.run(
        [*command, "--check"], env=environment(), capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise Trouble(f"dovetail gateway --check failed:\n{done.stdout}{done.stderr}")
    return command


class Page(SimpleHTTPRequestHandler):
    """Answers every request with the same page."""

    def do_GET(self) -> None:
        is_page = self.path == "/page.html"
        self.send_response(200 if is_page else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if is_page:
            self.wfile.write(b"<html><body><p>A page on this machine</p></body></html>")

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@contextmanager
def serve_page() -> Iterator[str]:
    """A web server with one page, and the URL of that page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/page.html"
        finally:
            server.shutdown()


def prepare_scene(stack: ExitStack) -> Scene:
    """Start the page, the server that is reached over HTTP, and the gateway over HTTP."""
    page = stack.enter_context(serve_page())
    everything = [NODE, EVERYTHING, "streamableHttp"]
    port = stack.enter_context(listening(everything, "gateway everything", "PORT"))
    web = f"http://127.0.0.1:{port}/mcp"
    command = [*prepare_gateway("http", web), "--http", "--port"]
    port = stack.enter_context(listening(command, "gateway http"))
    return Scene(page, web, f"http://127.0.0.1:{port}/mcp")


CALLERS = [peer for peer in PEERS if peer.name in NEWEST]
