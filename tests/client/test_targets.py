"""What a client may be pointed at."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, Server
from dovetail.errors import ConfigError, ConnectFailed

ROOT = Path(__file__).parents[2]
WEATHER = ROOT / "examples" / "weather.py"


def entry(**more: Any) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": [str(WEATHER)],
        "env": {"PYTHONPATH": str(ROOT)},
        **more,
    }


@pytest.mark.parametrize(
    "target",
    [
        str(WEATHER),
        WEATHER,
        [sys.executable, str(WEATHER)],
        (sys.executable, WEATHER),
        {"mcpServers": {"weather": entry()}},
    ],
    ids=["string", "path", "list", "tuple", "dict"],
)
async def test_a_script_a_command_and_a_configuration_are_started(target: Any) -> None:
    async with Client(target, env={"PYTHONPATH": str(ROOT)}) as client:
        assert client.server_info is not None
        assert client.server_info.name == "weather"


async def test_a_file_with_several_servers_needs_a_name(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        json.dumps(
            {"mcpServers": {"weather": entry(), "other": {"url": "https://example.com/mcp"}}}
        )
    )
    with pytest.raises(ConfigError, match="other, weather"):
        Client(path)
    with pytest.raises(ConfigError, match="no server 'third'"):
        Client(path, server="third")
    async with Client(path, server="weather") as client:
        assert [tool.name for tool in await client.list_tools()] == ["forecast"]


async def test_a_server_object_is_a_target() -> None:
    async with Client(Server("here")) as client:
        assert client.server_info is not None
        assert client.server_info.name == "here"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_file.py", "file no_such_file.py does not exist"),
        ("uvx some-server", "as a list"),
        ("python server.py", r"as a list: \['python', 'server.py'\]"),
        ("python server.py:orders", "as a list"),
        ("node server.js", "as a list"),
        ("uvx some-server mcp.json", "as a list"),
        ("", "empty"),
        ([], "empty"),
        (42, "not a target"),
        ({"servers": 1}, "must be an object"),
        ({}, 'no "mcpServers"'),
    ],
)
def test_what_is_no_target_is_said_at_once(target: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Client(target)


async def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConnectFailed, match=r"Could not start `no-such-command --x`"):
        async with Client(["no-such-command", "--x"]):
            pass


async def test_a_child_gets_what_is_given_and_little_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    script = tmp_path / "env.py"
    script.write_text(
        "import os\nfrom dovetail import Server\nserver = Server('env')\n"
        "@server.tool\ndef names() -> list[str]:\n    return sorted(os.environ)\n"
        "@server.tool\ndef where() -> str:\n    return os.getcwd()\nserver.run()\n"
    )
    async with Client(script, env={"PYTHONPATH": str(ROOT), "GIVEN": "1"}, cwd=tmp_path) as client:
        names = (await client.call_tool("names")).data
        assert "GIVEN" in names
        assert "PATH" in names
        assert "SECRET_OF_THE_HOST" not in names
        assert (await client.call_tool("where")).data == str(tmp_path.resolve())
