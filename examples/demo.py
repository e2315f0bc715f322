"""What `make demo` shows: a client and a server that it starts, talking over stdio."""

import asyncio
import os
import sys
from pathlib import Path

from dovetail import Client, TextContent
from dovetail.protocol.lifecycle import ProgressParams

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def step(title: str) -> None:
    print(f"\n{paint('●', '36')} {paint(title, '1')}")


def show(text: object) -> None:
    print(f"  {text}")


def bar(update: ProgressParams) -> None:
    message = update.message or ""
    filled = int(24 * update.progress / (update.total or 1))
    line = f"  {paint('█' * filled, '32')}{paint('░' * (24 - filled), '90')} {message}"
    print(f"\r{line}" if COLOUR else line, end="" if COLOUR else "\n", flush=True)


async def main() -> None:
    server = Path(__file__).with_name("weather.py")
    print(paint("Dovetail", "1;36"), "starts", paint(f"examples/{server.name}", "1"), "and talks to it over stdio.")

    async with Client(server, on_log=lambda entry: show(paint(f"the server logs: {entry.data}", "90"))) as client:
        step("Who is there?")
        info = client.server_info
        if info is not None:
            show(f"{info.name} {info.version}, revision {client.revision}: {client.instructions}")

        step("What can it do?")
        for tool in await client.list_tools():
            show(f"tool      {paint(tool.name, '33')}  {(tool.description or '').splitlines()[0]}")
        for resource in await client.list_resources():
            show(f"resource  {paint(resource.uri, '33')}  {resource.description}")
        for template in await client.list_resource_templates():
            show(f"template  {paint(template.uri_template, '33')}  {template.description}")
        for prompt in await client.list_prompts():
            show(f"prompt    {paint(prompt.name, '33')}  {prompt.description}")

        step("Call a tool, with live progress")
        result = await client.call_tool("forecast", {"city": "Oslo", "days": 5}, on_progress=bar)
        if COLOUR:
            print()
        for day in result.data["days"]:
            show(f"day {day['day']}: {day['sky']:<6} {day['celsius']:>5} °C")

        step("Read a resource")
        (contents,) = await client.read_resource("weather://Reykjavik/place")
        show(f"{contents.uri} → {contents.text}")

        step("Complete an argument")
        completion = await client.complete(prompt="packing", argument="city", value="h")
        show(f"city starting with “h”, or nearly → {', '.join(completion.values)}")

        step("Get a prompt")
        filled = await client.get_prompt("packing", {"city": "Helsinki", "days": 2})
        for message in filled.messages:
            if isinstance(message.content, TextContent):
                show(f"{message.role}: {message.content.text}")

    print(f"\n{paint('Done.', '32')} The server has been stopped.")


if __name__ == "__main__":
    asyncio.run(main())
