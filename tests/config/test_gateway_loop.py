"""A file must not serve itself through `dovetail gateway`."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail import config
from dovetail.config import ServerConfig
from dovetail.errors import ConfigError
from dovetail.gateway.gateway import Gateway


def write(path: Path, **servers: Any) -> Path:
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def gateway_of(file: Path | str, *more: str) -> dict[str, Any]:
    return {"command": "/usr/bin/python3", "args": ["-m", "dovetail", "gateway", *more, str(file)]}


@pytest.mark.parametrize(
    "words",
    [
        ["/usr/bin/python3", "-m", "dovetail", "gateway", "/srv/mcp.json"],
        ["/usr/bin/dovetail", "gateway", "--policy", "/srv/policy.toml", "/srv/mcp.json"],
        [
            "/usr/bin/uvx",
            "--from",
            "dovetail-mcp",
            "dovetail",
            "gateway",
            "/srv/mcp.json",
            "--watch",
        ],
    ],
)
def test_an_entry_that_serves_a_file_is_recognised(words: list[str]) -> None:
    server = ServerConfig(command=words[0], args=words[1:])
    assert config.served_file(server) == Path("/srv/mcp.json")


@pytest.mark.parametrize(
    "words",
    [
        ["dovetail", "gateway", "https://example.com/mcp.json"],
        ["dovetail", "run", "gateway", "mcp.json"],
        ["other", "gateway", "mcp.json"],
        ["dovetail", "gateway"],
    ],
)
def test_other_entries_serve_no_file(words: list[str]) -> None:
    assert config.served_file(ServerConfig(command=words[0], args=words[1:])) is None


def test_a_gateway_of_its_own_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    write(file, fine={"command": "/bin/true"}, again=gateway_of(file))
    with pytest.raises(ConfigError, match=r"server 'again' is a gateway that serves .*mcp\.json"):
        Gateway(str(file))


def test_a_circle_of_two_files_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write(first, other=gateway_of(second))
    write(second, back=gateway_of(first))
    with pytest.raises(ConfigError, match="server 'back' is a gateway that serves"):
        Gateway(str(first))


def test_a_gateway_of_another_file_is_fine(tmp_path: Path) -> None:
    inner = write(tmp_path / "inner.json", fine={"command": "/bin/true"})
    outer = write(
        tmp_path / "outer.json", inner=gateway_of(inner), gone=gateway_of(tmp_path / "gone.json")
    )
    Gateway(str(outer))
