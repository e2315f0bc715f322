"""The `dovetail` objects: what they may contain, and what an error about them says."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.config import (
    AuthConfig,
    FileSettings,
    ServerSettings,
    ToolFilter,
    choose,
    parse,
    read,
    write,
)
from dovetail.errors import ConfigError

ALL = {
    "prefix": "gh",
    "tools": {"allow": ["issue_*"], "deny": ["*_delete"]},
    "trust": True,
    "share": "user",
    "start": "lazy",
    "timeout": 30,
    "pin": "ask",
    "forward": ["X-Tenant"],
    "stateful": True,
    "sampling": False,
    "maxTokens": 100,
    "capabilities": ["elicitation"],
}


def settings(own: Any, file: Any = None, **entry: Any) -> ServerSettings:
    entry = {"url": "https://example.com/mcp", **entry, "dovetail": own}
    servers = parse({"mcpServers": {"gh": entry}, "dovetail": file}, "mcp.json")
    choose(servers, "gh", "mcp.json")  # raises if the entry is not valid
    return servers.settings["gh"]


def error(own: Any, file: Any = None, **entry: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(own, file, **entry)
    return str(caught.value)


def test_every_setting_is_read() -> None:
    assert settings(ALL) == ServerSettings(
        prefix="gh",
        tools=ToolFilter(allow=["issue_*"], deny=["*_delete"]),
        trust=True,
        share="user",
        start="lazy",
        timeout=30.0,
        pin="ask",
        forward=["X-Tenant"],
        stateful=True,
        sampling=False,
        max_tokens=100,
        capabilities=["elicitation"],
    )


@pytest.mark.parametrize("own", [None, {}, {"prefix": None, "tools": None}])
def test_an_entry_needs_no_settings(own: Any) -> None:
    assert settings(own) == ServerSettings()


@pytest.mark.parametrize("key", ["mcpServers", "servers", "mcp_servers", "context_servers", "mcp"])
def test_the_files_of_other_hosts_may_contain_settings_and_keys_of_their_own(key: str) -> None:
    entry = {"command": "x", "gallery": True, "autoApprove": ["a"], "dovetail": {"prefix": "y"}}
    servers = parse({key: {"x": entry}, "theme": "dark"})
    assert servers.settings["x"].prefix == "y"
    assert choose(servers, "x").command == "x"


def test_a_toml_file_has_the_same_keys(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text(
        '[servers.github]\nurl = "https://example.com/mcp"\ntimeout = 5000\n'
        '[servers.github.headers]\nX-Team = "a"\n'
        '[servers.github.auth]\ngrantType = "client_credentials"\nclientId = "a"\n'
        'clientSecret = "${SECRET}"\n'
        '[servers.github.dovetail]\nprefix = "gh"\nforward = ["X-Tenant"]\n'
        '[servers.local]\ncommand = "uvx"\nargs = ["x"]\n'
        '[dovetail]\nsearch = true\nalways = ["gh__*"]\n[dovetail.defaults]\nstart = "lazy"\n'
    )
    servers = read(path)
    assert list(servers) == ["github", "local"]
    assert servers["github"].timeout == 5.0 and servers["github"].headers == {"X-Team": "a"}
    assert isinstance(servers["github"].auth, AuthConfig) and servers["github"].auth.is_for_program
    assert servers.settings["github"].prefix == "gh"
    assert servers.settings["local"].start == "lazy"
    assert servers.options.search and servers.options.always == ["gh__*"]


CHANGED_TOOL = {
    "servers.json": """{"mcpServers": {"x": {"command": "x", "dovetail": {"tools": {"with": {"a": {
        "name": "b", "hide": {"key": "${KEY}", "n": 20}, "rename": {"q": "query"}}}}}}}}""",
    "servers.toml": """
[servers.x]
command = "x"
[servers.x.dovetail.tools.with.a]
name = "b"
hide = {key = "${KEY}", n = 20}
rename = {q = "query"}
""",
    "servers.yaml": """
extensions:
  x:
    type: stdio
    cmd: x
    enabled: true
    dovetail:
      tools:
        with:
          a:
            name: b
            hide: {key: "${KEY}", n: 20}
            rename: {q: query}
""",
}


@pytest.mark.parametrize("name", CHANGED_TOOL)
def test_changes_to_tools_are_the_same_in_every_format(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(CHANGED_TOOL[name])
    servers = read(tmp_path / name)
    assert servers.problems == {}
    change = servers.settings["x"].tools.changes["a"]
    assert (change.name, change.rename, change.defaults) == ("b", {"q": "query"}, {})
    assert change.hide == {"key": "${KEY}", "n": 20}  # as it is written
    filled = servers.variables.fill_all(change.hide, {"KEY": "secret"})
    assert filled == {"key": "secret", "n": 20}
    assert servers.variables.find(servers["x"], change.hide) == ["${KEY}"]


def test_a_hidden_value_is_not_part_of_what_settings_show() -> None:
    servers = parse(
        {
            "mcpServers": {
                "x": {
                    "command": "x",
                    "dovetail": {"tools": {"with": {"a": {"hide": {"key": "s3cret"}}}}},
                }
            }
        }
    )
    assert "key" in repr(servers.settings) and "s3cret" not in repr(servers.settings)


def test_the_order_of_the_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"b": {"command": "x"}, /**/ "a": {"command": "x"}}}')
    assert list(read(path)) == ["b", "a"]


def test_writing_a_file_keeps_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    entry = {"command": "x", "dovetail": {"prefix": "y"}}
    path.write_text(json.dumps({"mcpServers": {"x": entry}, "dovetail": {"search": True}}))
    write(path, read(path))
    assert json.loads(path.read_text()) == {
        "mcpServers": {"x": entry},
        "dovetail": {"search": True},
    }


# Defaults.


def test_the_defaults_of_the_file_apply_where_an_entry_says_nothing() -> None:
    file = {"defaults": {"start": "lazy", "pin": "warn", "tools": {"deny": ["*_delete"]}}}
    merged = settings({"pin": "ask", "start": None, "tools": {"allow": ["a*"]}}, file)
    assert (merged.start, merged.pin) == ("lazy", "ask")
    assert merged.tools == ToolFilter(allow=["a*"], deny=["*_delete"])
    assert settings(None, file).pin == "warn"
    nulls = settings({"pin": None, "tools": {"allow": None, "deny": None}}, file)
    assert nulls == settings(None, file), "a null counts as absent"


def test_a_default_that_does_not_fit_an_entry_is_an_error_of_that_entry() -> None:
    file = {"defaults": {"forward": ["X-Tenant"]}}
    assert 'the entry sets it in "headers"' in error({}, file, headers={"x-tenant": "a"})
    assert error({"share": "all"}, file).startswith(
        "mcp.json: server 'gh' is not valid: \"dovetail\" with the defaults of the file: "
    )


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ([], '"dovetail" must be an object'),
        ({"serch": True}, '"dovetail" has the unknown key "serch". Did you mean "search"?'),
        ({"search": "yes"}, '"dovetail" is not valid: Expected `bool`, got `str` - at `$.search`'),
        ({"defaults": {"stat": "lazy"}}, '"dovetail.defaults" has the unknown key "stat". Did you'),
        ({"defaults": {"prefix": "x"}}, '"dovetail.defaults" has a "prefix", but each server'),
        ({"defaults": []}, '"dovetail" is not valid: Expected `object`'),
    ],
)
def test_an_error_in_the_settings_of_the_file_concerns_all_servers(file: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"mcpServers": {}, "dovetail": file}, "mcp.json")
    assert str(caught.value).startswith(f"mcp.json: {message}")


def test_a_file_without_settings_has_the_defaults() -> None:
    assert parse({"mcpServers": {}}).options == FileSettings()


# Errors.


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ([], '"dovetail" must be an object'),
        ({"prefx": "gh"}, '"dovetail" has the unknown key "prefx". Did you mean "prefix"?'),
        (
            {"max_tokens": 1},
            '"dovetail" has the unknown key "max_tokens". Did you mean "maxTokens"',
        ),
        (
            {"zzz\x1b": 1},
            '"dovetail" has the unknown key "zzz". Use one of "prefix", "tools", "trust"',
        ),
        ({"share": "al"}, '"dovetail" has an unknown "share". Did you mean "all"?'),
        ({"share": 3}, '"dovetail" has an unknown "share". Use one of "all", "user", "caller".'),
        ({"start": "x"}, '"dovetail" has an unknown "start". Use one of "eager", "lazy".'),
        ({"pin": True}, '"dovetail" has an unknown "pin". Use one of "ask", "warn", "off".'),
        ({"trust": "yes"}, '"dovetail" is not valid: Expected `bool`, got `str` - at `$.trust`'),
        ({"tools": {"alow": []}}, '"dovetail": tools has the unknown key "alow". Did you mean "al'),
        ({"tools": []}, '"dovetail": tools must be an object'),
        ({"tools": {"with": []}}, '"dovetail": tools is not valid: Expected `object`, got `array`'),
        ({"tools": {"with": {"a": 1}}}, '"dovetail": tools: with: "a" must be an object'),
        (
            {"tools": {"with": {"a\x1b": {"hid": {}}}}},
            '"dovetail": tools: with: "a" has the unknown key "hid". Did you mean "hide"?',
        ),
        (
            {"tools": {"with": {"a": {"wrap": "x"}}}},
            '"dovetail": tools: with: "a" has the unknown key "wrap". Use one of "name"',
        ),
        (
            {"tools": {"with": {"a": {"rename": {"q": 1}}}}},
            '"dovetail": tools: with: "a" is not valid: Expected `str`, got `int`',
        ),
        ({"timeout": 0}, '"dovetail": "timeout" must be a positive number of seconds'),
        ({"timeout": float("inf")}, '"dovetail": "timeout" must be a positive number of seconds'),
        ({"maxTokens": 0}, '"dovetail": "maxTokens" must be at least 1'),
        ({"prefix": "a b"}, '"dovetail": "prefix" must have at most 32 letters, digits, _ and -'),
        ({"prefix": "1a"}, '"dovetail": "prefix" must have at most 32 letters'),
        ({"prefix": "a\n"}, '"dovetail": "prefix" must have at most 32 letters'),
        ({"prefix": "x" * 33}, '"dovetail": "prefix" must have at most 32 letters'),
        ({"forward": ["Cookie"]}, '"dovetail": "forward" must not contain \'Cookie\': it carries'),
        ({"forward": ["X"], "share": "all"}, '"dovetail": "forward" requires "share": "user" or'),
        ({"capabilities": ["x"]}, '"dovetail" is not valid: Invalid enum value'),
    ],
)
def test_an_error_in_an_entry_says_what_to_write_instead(own: Any, message: str) -> None:
    said = error(own)
    assert said.startswith(f"mcp.json: server 'gh' is not valid: {message}")
    assert "\x1b" not in said


@pytest.mark.parametrize("prefix", ["", "a", "_a", "A-b_1", "x" * 32])
def test_other_prefixes_are_accepted(prefix: str) -> None:
    assert settings({"prefix": prefix}).prefix == prefix


def test_an_entry_with_an_error_does_not_affect_the_others() -> None:
    entries = {"bad": {"command": "x", "dovetail": {"x": 1}}, "good": {"command": "x"}}
    servers = parse({"mcpServers": entries})
    assert list(servers) == ["good"] == list(servers.settings)
    assert list(servers.problems) == ["bad"]


# Tools.


@pytest.mark.parametrize(
    ("filter", "name", "expected"),
    [
        (ToolFilter(), "anything", None),
        (ToolFilter(allow=["issue_*"]), "issue_get", None),
        (ToolFilter(allow=["issue_*"]), "Issue_get", "tools.allow"),
        (ToolFilter(allow=[]), "x", "tools.allow"),
        (ToolFilter(deny=["*_delete"]), "issue_delete", "tools.deny"),
        (ToolFilter(allow=["issue_*"], deny=["*_delete"]), "issue_delete", "tools.deny"),
    ],
)
def test_a_filter_names_the_setting_that_excludes_a_tool(
    filter: ToolFilter, name: str, expected: str | None
) -> None:
    assert filter.why_refused(name) == expected


# Authorization.


def test_client_credentials_are_read_with_all_that_they_take() -> None:
    auth = {"grantType": "client_credentials", "clientId": "a", "clientSecret": "${S}",
            "scopes": ["x"], "issuer": "https://i"}  # fmt: skip
    server = parse({"mcpServers": {"gh": {"url": "https://x", "auth": auth}}})["gh"]
    assert isinstance(server.auth, AuthConfig) and server.auth.is_for_program
    assert server.auth.options == {
        "client_id": "a", "client_secret": "${S}", "scopes": ["x"], "issuer": "https://i",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({"clientID": "a"}, '"auth" has the unknown key "clientID". Did you mean "clientId"?'),
        (
            {"grantType": "client_credential"},
            '"auth" has an unknown "grantType". Did you mean "client_cred',
        ),
        ({"grantType": "password"}, '"auth" has an unknown "grantType". Use one of "authoriz'),
        ({"grantType": "client_credentials"}, '"auth" requires a "clientId" and a "clientSecret"'),
        (
            {"grantType": "client_credentials", "clientId": "a"},
            '"auth" requires a "clientId" and a "clientSecret"',
        ),
    ],
)
def test_an_error_in_auth_says_what_to_write_instead(auth: Any, message: str) -> None:
    assert error(None, auth=auth).startswith(f"mcp.json: server 'gh' is not valid: {message}")
