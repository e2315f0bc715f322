"""Links that add a server with one click hold a URL or a package, and nothing of this machine."""

import json
from base64 import b64decode
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from dovetail.errors import ConfigError
from dovetail.host_configs.hosts import HOSTS, find_host
from dovetail.host_configs.links import make_link

PACKAGE = {"command": "uvx", "args": ["weather", "--units", "m & s"]}
LINKED = ("cursor", "vscode", "goose", "lm-studio")


def link_to(host: str, url: str | None = None) -> tuple[str, str]:
    command = None if url else [str(PACKAGE["command"]), *PACKAGE["args"]]
    link = make_link(find_host(host), "my weather", url=url, command=command)
    return link.url, link.button


@pytest.mark.parametrize(("host", "scheme"), [("cursor", "cursor"), ("lm-studio", "lmstudio")])
def test_some_hosts_take_the_entry_in_base64(host: str, scheme: str) -> None:
    url, button = link_to(host)
    fields = parse_qs(urlsplit(url).query)
    assert urlsplit(url).scheme == scheme
    assert fields["name"] == ["my weather"]
    assert json.loads(b64decode(fields["config"][0])) == PACKAGE
    assert urlsplit(url).query in button


def test_vs_code_takes_the_entry_as_json() -> None:
    url, button = link_to("vscode", "https://example.com/mcp")
    assert json.loads(unquote(url.removeprefix("vscode:mcp/install?"))) == {
        "name": "my weather",
        "type": "http",
        "url": "https://example.com/mcp",
    }
    query = parse_qs(urlsplit(button[button.index("(") + 1 : -1]).query)
    assert json.loads(query["config"][0]) == {"type": "http", "url": "https://example.com/mcp"}


def test_goose_takes_the_command_and_each_argument() -> None:
    fields = parse_qs(urlsplit(link_to("goose")[0]).query)
    assert (fields["cmd"], fields["arg"]) == (["uvx"], PACKAGE["args"])
    fields = parse_qs(urlsplit(link_to("goose", "https://example.com/mcp")[0]).query)
    assert (fields["url"], fields["type"]) == (["https://example.com/mcp"], ["streamable_http"])


@pytest.mark.parametrize("host", LINKED)
def test_a_button_in_a_readme_leads_to_a_web_page(host: str) -> None:
    _, button = link_to(host)
    assert button.startswith(f"[Add to {find_host(host).title}](https://")
    assert " " not in button[button.index("(") :]


def test_other_hosts_say_which_hosts_have_links() -> None:
    for host in HOSTS:
        if host.id not in LINKED:
            with pytest.raises(ConfigError, match="Hosts with links: cursor, vscode"):
                link_to(host.id)


@pytest.mark.parametrize(
    "command",
    [
        "uvx --from /home/ada/weather weather",
        "uvx --from=../weather weather",
        "uvx --from . weather",
        "uvx --from dist/weather-1.0-py3-none-any.whl weather",
        "uvx --from git+file:///srv/weather weather",
        "npx C:\\Users\\ada\\weather",
        "npx ~/weather",
        "pipx run weather --config $HOME/weather.toml",
        "docker run -v /home/ada:/data weather",
        "docker run -v data:/data weather",
        "docker run --mount type=bind,src=data,dst=/x weather",
    ],
)
def test_a_link_with_a_path_is_refused(command: str) -> None:
    with pytest.raises(ConfigError, match=r"A link would contain (a path|folders) of this machine"):
        make_link(find_host("cursor"), "weather", command=command.split())


@pytest.mark.parametrize(
    "command",
    [
        "docker run -e API_KEY=hunter2 weather",
        "docker run -eUNITS=metric weather",
        "docker run --env=UNITS=metric weather",
        "docker run --env UNITS=metric weather",
        "docker run --env-file variables weather",
        "uvx weather --api-key hunter2",
        "uvx weather --token=hunter2",
        "npx weather ghp_0123456789abcdefghij",
    ],
)
def test_a_link_with_a_value_or_a_secret_is_refused(command: str) -> None:
    with pytest.raises(ConfigError, match="must not contain values") as caught:
        make_link(find_host("cursor"), "weather", command=command.split())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:hunter2@x.example/mcp",
        "https://x.example/mcp?api_key=hunter2",
        "https://x.example/mcp?units=m&token=hunter2",
    ],
)
def test_a_link_to_a_url_with_a_secret_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must not contain a secret") as caught:
        make_link(find_host("vscode"), "weather", url=url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        "uvx weather@1.2 --units metric -v",
        "uvx --from weather[all]==1 weather",
        "uvx --from git+https://github.com/ada/weather weather",
        "npx -y @scope/server-files",
        "docker run -i --rm -e API_KEY ghcr.io/ada/weather:1.0",
    ],
)
def test_a_published_package_may_have_arguments(command: str) -> None:
    assert make_link(find_host("cursor"), "weather", command=command.split()).url


def test_a_url_may_have_a_query() -> None:
    assert make_link(find_host("cursor"), "weather", url="https://x.example/mcp?units=metric").url
