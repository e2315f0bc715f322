"""An agent: a model that uses the tools of all servers in a host.

    python examples/agent_loop.py "Should I take the train to Oslo or to Helsinki?"

With ANTHROPIC_API_KEY in the environment, a real model answers. Otherwise, a stub plays the model:
it asks for the forecast of each city that you mention, and reports the results. At a terminal, you
decide about each call.
"""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail import ConsentRequest, DovetailError, Host, TextContent, ToolResult
from dovetail.client.function_calling import read_calls, results_for

Json = dict[str, Any]
Model = Callable[[str, list[Json], list[Json]], Json]
"""A function of the system prompt, the tools and the messages that returns the reply of the
model, in Anthropic's format."""
WEATHER = Path(__file__).with_name("weather.py")
SERVERS = {
    "weather": {
        "command": sys.executable,
        "args": ["-m", "dovetail", "run", str(WEATHER)],
        "dovetail": {"trust": True},  # so that tools that only read are called without a question
    }
}
MAX_STEPS = 10


def ask_anthropic(system: str, tools: list[Json], messages: list[Json]) -> Json:
    """Ask a real model."""
    body = {
        "model": os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5"),
        "max_tokens": 1024,
        "system": system,
        "tools": tools,
        "messages": messages,
    }
    request = urllib.request.Request(
        "https://api.anthropic.com/v1/messages",
        json.dumps(body).encode(),
        {
            "x-api-key": os.environ["ANTHROPIC_API_KEY"],
            "anthropic-version": "2023-06-01",
            "content-type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as reply:
        return dict(json.load(reply))


def stub_model(system: str, tools: list[Json], messages: list[Json]) -> Json:
    """Call the forecast for each city in the question, then report the results."""
    last = messages[-1]["content"]
    if isinstance(last, str):
        cities = [word.strip("?,.!") for word in last.split() if word[:1].isupper()][1:]
        tool = next((tool["name"] for tool in tools if tool["name"].endswith("forecast")), None)
        if tool is None:
            return {"content": [{"type": "text", "text": "I have no tool for forecasts."}]}
        return {
            "content": [
                {"type": "tool_use", "id": city, "name": tool, "input": {"city": city, "days": 1}}
                for city in cities
            ]
        }
    lines = [f"{one['tool_use_id']}: {one['content'][0]['text']}" for one in last]
    return {"content": [{"type": "text", "text": "\n".join(lines)}]}


async def run_agent(host: Host, model: Model, question: str) -> str:
    """Give the tools to the model, and its calls to the host, until it has an answer."""
    await host.list_tools(fresh=True)  # waits for all servers, and for the user's answers
    system = "\n\n".join(f"# {name}\n{text}" for name, text in host.instructions.items())
    messages: list[Json] = [{"role": "user", "content": question}]
    for _ in range(MAX_STEPS):
        tools = host.tools_for("anthropic")
        reply = await asyncio.to_thread(model, system, tools, messages)
        messages.append({"role": "assistant", "content": reply["content"]})
        calls = read_calls("anthropic", reply)
        if not calls:
            return "".join(one["text"] for one in reply["content"] if one["type"] == "text")
        results = await asyncio.gather(*(call_tool(host, one.name, one.input) for one in calls))
        messages += results_for("anthropic", zip(calls, results, strict=True))
    return f"No answer after {MAX_STEPS} steps."


async def call_tool(host: Host, name: str, arguments: Json) -> ToolResult:
    """Call a tool. The model is told about failures and refusals, so that it can go on."""
    try:
        return await host.call_tool(name, arguments, raise_on_error=False)
    except DovetailError as problem:
        return ToolResult(content=[TextContent(str(problem))], is_error=True)


def allow_start(request: ConsentRequest) -> str:
    """Without a terminal: start the servers, and call nothing that does more than read."""
    return "once" if request.kind == "start" else "deny"


async def main(question: str) -> None:
    model = ask_anthropic if "ANTHROPIC_API_KEY" in os.environ else stub_model
    ask = None if sys.stdin.isatty() else allow_start
    async with Host({"mcpServers": SERVERS}, on_consent=ask, store=":memory:") as host:
        print(await run_agent(host, model, question))


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Is it warmer in Oslo or in Helsinki?"))
