"""A host that uses three servers as one, with consent.

    python examples/host.py

The host asks before it starts a server, calls a tool or shares data. At a terminal, you decide.
Otherwise, this program allows everything once.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from dovetail import ConsentRequest, Host, HostEvent

HERE = Path(__file__).parent
SERVERS: dict[str, dict[str, Any]] = {
    name: {"command": sys.executable, "args": ["-m", "dovetail", "run", str(HERE / f"{name}.py")]}
    for name in ("weather", "booking")
}
SERVERS["lazy"] = {**SERVERS["weather"], "dovetail": {"start": "lazy"}}


def show_event(event: HostEvent) -> None:
    if event.kind == "state":
        print(f"{event.server} is {event.state}")


def allow_once(request: ConsentRequest) -> str:
    print(f"? {request.doing}: once")
    return "once"


def fill_in(request: Any) -> bool:
    print(f"? {request.message}: the defaults")
    return True


async def main() -> None:
    host = Host(
        {"mcpServers": SERVERS},
        on_consent=None if sys.stdin.isatty() else allow_once,
        on_elicit=fill_in,
        store=":memory:",  # ask again next time
    )
    host.on_event(show_event)
    async with host:
        for tool in await host.list_tools(fresh=True):  # waits for all servers, and for you
            print(f"{tool.name} of {tool.server}: {tool.description}")
        result = await host.call_tool("weather__forecast", {"city": "Oslo", "days": 1})
        print(result.text)
        print((await host.call_tool("booking__book", {"city": "Oslo"})).text)
        print((await host.read_resource("weather://cities"))[0].text)
        await host.call_tool("lazy__forecast", {"city": "Oslo", "days": 1})


if __name__ == "__main__":
    asyncio.run(main())
