"""A chat application with three servers. It needs no network: the model and GitHub are stubs.

    python examples/chat.py

A chat uses a server in three ways:

    What is the weather in Oslo?        the model calls a tool, if you allow it
    /weather__packing city=Oslo         you choose a prompt
    What is in @db://schema?            the application attaches a resource

Also try "Which books by Austen do you have?" and "Report: the page is blank". An empty line ends
the chat. Without a terminal, the program allows what only reads, and nothing else.
"""

import asyncio
import json
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from github_stub import make_stub

from dovetail import ConsentRequest, DovetailError, Host, TextContent, ToolResult
from dovetail.client.function_calling import read_calls, results_for

Json = dict[str, Any]
Model = Callable[[list[Json], list[Json]], Json]
"""A function of the messages and the tools that returns the next message, in OpenAI's format."""
HERE = Path(__file__).parent
MAX_STEPS = 10


def entry(name: str, **env: str) -> Json:
    """Return the entry of a server, as in an mcp.json file."""
    args = ["-m", "dovetail", "run", str(HERE / f"{name}.py")]
    return {"command": sys.executable, "args": args, "env": env}


def make_host(github: str, on_consent: Callable[[ConsentRequest], str] | None) -> Host:
    servers = {
        "weather": entry("weather"),
        "database": entry("database"),
        "github": entry("github", GITHUB_API=github, GITHUB_TOKEN="demo"),
    }
    return Host({"mcpServers": servers}, on_consent=on_consent, store=":memory:")


class Chat:
    """A conversation between a user and a model that uses the servers of a host."""

    def __init__(self, host: Host, model: Model) -> None:
        self.host, self.model = host, model
        self.messages: list[Json] = []

    async def say(self, line: str) -> str:
        """Return the model's answer to what the user typed."""
        try:
            self.messages.append({"role": "user", "content": await self.expand(line)})
        except (DovetailError, ValueError) as problem:  # no such prompt, refused, or a typo
            return str(problem)
        for _ in range(MAX_STEPS):
            message = self.model(self.messages, self.host.tools_for("openai"))
            self.messages.append(message)
            calls = read_calls("openai", {"choices": [{"message": message}]})
            if not calls:
                return str(message["content"])
            results = [await self.call(one.name, one.input) for one in calls]
            self.messages += results_for("openai", zip(calls, results, strict=True))
        return f"No answer after {MAX_STEPS} steps."

    async def expand(self, line: str) -> str:
        """Replace a prompt by its text, and attach the resources that the user names."""
        if line.startswith("/"):
            name, *pairs = shlex.split(line[1:]) or [""]
            arguments = {key: value for key, _, value in (one.partition("=") for one in pairs)}
            filled = await self.host.get_prompt(name, arguments)
            return "\n\n".join(message.text for message in filled.messages)
        for uri in re.findall(r"@(\w+://[\w/.%-]+)", line):
            for contents in await self.host.read_resource(uri):
                line += f"\n\n{contents.uri}:\n{contents.text}"
        return line

    async def call(self, name: str, arguments: Json) -> ToolResult:
        """Call a tool. The model is told about failures and refusals, so that it can go on."""
        try:
            return await self.host.call_tool(name, arguments, raise_on_error=False)
        except DovetailError as problem:
            return ToolResult(content=[TextContent(str(problem))], is_error=True)


RULES: list[tuple[str, str, Callable[[str], Json]]] = [
    (r"weather in (\w+)", "weather__forecast", lambda city: {"city": city, "days": 1}),
    (
        r"books by (\w+)",
        "database__query",
        lambda name: {"sql": f"SELECT title FROM books WHERE author LIKE '%{name}' ORDER BY 1"},
    ),
    (
        r"Report: (.+)",
        "github__create_issue",
        lambda title: {"repo": "acme/widgets", "title": title},
    ),
]


def stub_model(messages: list[Json], tools: list[Json]) -> Json:
    """Call the tool whose rule matches what the user said, then repeat its result."""
    text, names = messages[-1]["content"], {tool["function"]["name"] for tool in tools}
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": f"I found this: {text}"}
    for pattern, name, make_arguments in RULES:
        if name in names and (found := re.search(pattern, text)):
            function = {"name": name, "arguments": json.dumps(make_arguments(found[1]))}
            call = {"id": f"call-{len(messages)}", "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": f"You said: {text}"}


def allow_reading(request: ConsentRequest) -> str:
    """Without a terminal: start the servers, and allow what only reads."""
    hints = request.tool.annotations if request.tool is not None else None
    reads = request.kind == "call" and hints is not None and hints.read_only_hint
    return "once" if reads or request.kind in ("start", "share") else "deny"


def read_lines() -> Iterator[str]:
    """Yield what the user types, until an empty line or the end of the input."""
    with suppress(EOFError, KeyboardInterrupt):
        while line := input("> " if sys.stdin.isatty() else "").strip():
            yield line


def main() -> None:
    # The event loop runs only while the chat works on a line, so that `input` blocks nothing.
    with make_stub() as stub, asyncio.Runner() as runner:
        threading.Thread(target=stub.serve_forever, daemon=True).start()
        ask = None if sys.stdin.isatty() else allow_reading
        host, stack = make_host(f"http://127.0.0.1:{stub.server_port}", ask), AsyncExitStack()
        runner.run(stack.enter_async_context(host))
        try:
            runner.run(host.list_tools(fresh=True))  # waits for all servers, and for the user
            chat = Chat(host, stub_model)
            for line in read_lines():
                print(runner.run(chat.say(line)), flush=True)
        finally:
            runner.run(stack.aclose())
            stub.shutdown()


if __name__ == "__main__":
    main()
