"""`dovetail login`, `logout` and `whoami`, against a server that lets nobody in without a token,
and its own login page."""

import base64
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.auth.guarded import PASSWORD, USER
from tests.cli.conftest import SECONDS, WEATHER, Done, command, dovetail, environment
from tests.transports.http.scripted import DISCOVERED

Run = Callable[..., Done]
NO_TOOLS = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}


class Guarded(ThreadingHTTPServer):
    """An MCP server of the stateless era and its authorization server, in one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.origin}/mcp"
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: set[str] = set()
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.open, self.says_no, self.revokes = False, False, False
        self.id_token: str | None = None
        self.takes = ""
        """The scope that a tool takes which is not listed."""

    def grant(self) -> dict[str, Any]:
        token = "access-" + secrets.token_urlsafe(8)
        self.tokens.add(token)
        renewal = "refresh-" + secrets.token_urlsafe(8)
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": 3600,
            "refresh_token": renewal,
            "scope": "read write",
            "id_token": self.id_token,
        }

    def saw(self, path: str) -> list[dict[str, str]]:
        return [given for asked, given in self.asked if asked == path]


class Handler(BaseHTTPRequestHandler):
    server: Guarded

    def log_message(self, *words: object) -> None:
        pass

    def reply(self, status: int, value: Any = None, **headers: str) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        server, target = self.server, urlsplit(self.path)
        given = dict(parse_qsl(target.query))
        server.asked.append((target.path, given))
        if target.path == "/.well-known/oauth-protected-resource/mcp":
            self.reply(
                200,
                {
                    "resource": server.url,
                    "authorization_servers": [server.origin],
                    "scopes_supported": ["read"],
                },
            )
        elif target.path == "/.well-known/oauth-authorization-server":
            names = {
                "authorization_endpoint": "/authorize",
                "token_endpoint": "/token",
                "registration_endpoint": "/register",
            }
            if server.revokes:
                names["revocation_endpoint"] = "/revoke"
            known = {name: server.origin + path for name, path in names.items()}
            lists = {
                "code_challenge_methods_supported": ["S256"],
                "response_types_supported": ["code"],
                "token_endpoint_auth_methods_supported": [
                    "none",
                    "client_secret_post",
                    "client_secret_basic",
                ],
                "authorization_response_iss_parameter_supported": True,
            }
            self.reply(200, {"issuer": server.origin, **known, **lists})
        elif target.path == "/authorize":
            back = {"state": given["state"], "iss": server.origin}
            if server.says_no:
                back |= {"error": "access_denied", "error_description": "not \x1b[31mtoday"}
            else:
                back["code"] = secrets.token_urlsafe(8)
                server.codes[back["code"]] = given
            self.reply(302, Location=f"{given['redirect_uri']}?{urlencode(back)}")
        else:
            self.reply(404)

    def do_POST(self) -> None:
        server, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/mcp":
            token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
            if not server.open and token not in server.tokens:
                where = (
                    "Bearer "
                    f'resource_metadata="{server.origin}/.well-known/oauth-protected-resource/mcp"'
                )
                self.reply(401, WWW_Authenticate=where)
                return
            message = json.loads(body)
            if message["method"] == "tools/call":
                self.reply(
                    403,
                    WWW_Authenticate=f'Bearer error="insufficient_scope", scope="{server.takes}"',
                )
                return
            result = NO_TOOLS if message["method"] == "tools/list" else DISCOVERED
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif self.path == "/revoke":
            server.asked.append(("/revoke", dict(parse_qsl(body.decode()))))
            self.reply(200)
        elif self.path == "/register":
            server.asked.append(("/register", json.loads(body)))
            self.reply(201, {**json.loads(body), "client_id": "registered-1"})
        elif self.path == "/token":
            given = dict(parse_qsl(body.decode()))
            server.asked.append(("/token", given))
            code = server.codes.pop(given.get("code", ""), None)
            if given["grant_type"] == "authorization_code" and code is not None:
                digest = base64.urlsafe_b64encode(
                    hashlib.sha256(given["code_verifier"].encode()).digest()
                ).rstrip(b"=")
                assert digest.decode() == code["code_challenge"]
            self.reply(200, server.grant())


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with Guarded() as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(0.01,)
        )  # how often it looks whether to end
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The command, with a browser that says yes at once, and a home of its own."""
    browser = tmp_path / "browser"
    browser.write_text(
        f"#!{sys.executable}\nimport sys, "
        "urllib.request\nurllib.request.urlopen(sys.argv[1]).read()\n"
    )
    browser.chmod(0o755)

    def home(*words: str, **more: str) -> Done:
        return dovetail(
            *words,
            **{
                "BROWSER": str(browser),
                "XDG_DATA_HOME": str(tmp_path),
                "DOVETAIL_KEYS": "",
                **more,
            },
        )

    return home


def secretless(*done: Done) -> None:
    for one in done:
        assert "access-" not in one.out + one.err and "refresh-" not in one.out + one.err


def test_a_login_lets_every_other_verb_in(guarded: Guarded, run: Run) -> None:
    done = run("login", guarded.url)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == f"Logged in to {guarded.url}"
    assert (
        f"issuer   {guarded.origin}" in done.out
        and "scopes   read write" in done.out
        and "renewed automatically" in done.out
    )
    assert done.err.startswith("Opening your browser to log in to ")
    for _ in range(2):
        again = run("ping", guarded.url)
        assert (again.code, again.err) == (0, "")
    assert len(guarded.saw("/authorize")) == 1
    secretless(done, again)


def test_without_a_login_the_command_is_named_and_no_browser_opens(
    guarded: Guarded, run: Run
) -> None:
    done = run("ping", guarded.url)
    assert (done.code, done.failure) == (
        1,
        f"{guarded.url} requires you to log in. Run: dovetail login {guarded.url}",
    )
    assert guarded.saw("/authorize") == []


def test_who_is_logged_in_already_is_not_asked_again(guarded: Guarded, run: Run) -> None:
    run("login", guarded.url)
    done = run("login", guarded.url, "--json")
    assert done.code == 0 and done.json["server"] == guarded.url and done.err == ""
    told = run("login", guarded.url)
    assert (
        told.out.startswith(f"Already logged in to {guarded.url}\n")
        and told.err == "Use --force to log in again\n"
    )
    assert len(guarded.saw("/authorize")) == 1


def test_who_insists_logs_in_anew(guarded: Guarded, run: Run) -> None:
    run("login", guarded.url)
    done = run("login", guarded.url, "--force")
    assert done.out.startswith(f"Logged in to {guarded.url}\n")
    assert len(guarded.saw("/authorize")) == 2


@pytest.mark.parametrize("option", ["--force", "--scope=more", "--client-id=other"])
def test_a_login_that_does_not_come_to_its_end_costs_nobody_the_one_before(
    guarded: Guarded, run: Run, option: str
) -> None:
    run("login", guarded.url)
    guarded.says_no = True
    assert run("login", guarded.url, option).code == 1
    assert run("ping", guarded.url).code == run("whoami", guarded.url).code == 0


def test_scopes_that_were_not_granted_are_named(guarded: Guarded, run: Run) -> None:
    done = run("login", guarded.url, "--scope", "nonsense read", "--scope", "more")
    assert done.code == 0 and "refused  nonsense more\n" in done.out
    assert run("login", guarded.url, "--scope", "more", "--json").json["refused"] == ["more"]
    assert "refused" not in run("login", guarded.url, "--scope", "write").out


def test_a_tool_that_is_not_listed_is_called_and_the_scopes_that_it_takes_are_named(
    guarded: Guarded, run: Run
) -> None:
    run("login", guarded.url)
    guarded.takes = "notes:read no$(id)"
    done = run("call", guarded.url, "add", "text=x")
    remedy = f"dovetail login {guarded.url} --scope notes:read --scope 'no$(id)'"
    assert (done.code, done.failure) == (
        1,
        f"This tool needs the scopes notes:read no$(id). Run: {remedy}",
    )
    assert len(guarded.saw("/authorize")) == 1


def test_the_help_of_a_login_says_what_its_target_is(run: Run) -> None:
    told = " ".join(run("login", "--help").out.split())
    assert (
        "TARGET the URL of a server, or an mcp.json file that names it" in told
        and "uvx" not in told
    )
    assert "the saved login" in run("whoami", "--help").out


def test_a_login_says_who_it_is_and_what_it_wants(guarded: Guarded, run: Run) -> None:
    run("login", guarded.url)
    done = run(
        "login",
        guarded.url,
        "--client-id",
        "mine",
        "--scope",
        "admin",
        "--scope",
        "read",
        DOVETAIL_CLIENT_SECRET="hush",
    )
    assert done.code == 0, done.err
    asked = guarded.saw("/authorize")[-1]
    assert asked["client_id"] == "mine" and {"admin", "read"} <= set(asked["scope"].split())
    assert "client   mine" in done.out and "hush" not in done.out + done.err


def test_a_client_id_is_used_at_its_issuer_and_nowhere_else(guarded: Guarded, run: Run) -> None:
    done = run("login", guarded.url, "--client-id", "mine", "--issuer", "https://elsewhere.example")
    assert (
        done.code == 1 and "The client_id was issued by https://elsewhere.example" in done.failure
    )
    assert not guarded.saw("/authorize")
    issuer = run("login", guarded.url, "--json").json["issuer"]
    assert (
        run("login", guarded.url, "--client-id", "mine", "--issuer", issuer, "--json").json[
            "client"
        ]
        == "mine"
    )


def test_a_refused_login_is_one_line(guarded: Guarded, run: Run) -> None:
    guarded.says_no = True
    done = run("login", guarded.url)
    assert (
        done.code == 1 and "access_denied" in done.err.splitlines()[-1] and "\x1b" not in done.err
    )
    assert run("whoami", guarded.url).code == 1


def test_a_server_that_lets_everybody_in_needs_no_login(guarded: Guarded, run: Run) -> None:
    guarded.open = True
    done = run("login", guarded.url)
    assert (done.code, done.out) == (
        0,
        f"{guarded.url} does not require you to log in.\n",
    )
    assert run("login", guarded.url, "--json").json is None


def test_whoami_tells_all_but_the_token(guarded: Guarded, run: Run) -> None:
    run("login", guarded.url)
    done = run("whoami", f"{guarded.url}?query#fragment", "--json")
    found = done.json
    assert found.pop("expires").endswith("Z")
    assert found == {
        "server": guarded.url,
        "user": None,
        "issuer": guarded.origin,
        "client": "registered-1",
        "scopes": ["read", "write"],
        "expired": False,
        "renews": True,
    }
    plain = run("whoami", guarded.url)
    assert plain.out.splitlines()[0] == guarded.url
    secretless(done, plain)


def test_whoami_without_a_login_says_how_to_get_one(run: Run) -> None:
    done = run("whoami", "https://example.com/mcp")
    expected = "You are not logged in to https://example.com/mcp. Run: dovetail login https://example.com/mcp"
    assert (done.code, done.failure) == (1, expected)


def test_logout_forgets_the_login_and_asking_twice_is_fine(guarded: Guarded, run: Run) -> None:
    run("login", guarded.url)
    done = run("logout", guarded.url)
    assert (done.code, done.out) == (0, f"Logged out of {guarded.url}.\n")
    assert run("logout", guarded.url, "--json").json == {
        "server": guarded.url,
        "forgotten": False,
        "revoked": False,
    }
    assert run("whoami", guarded.url).code == run("ping", guarded.url).code == 1


def test_a_logout_has_the_tokens_ended_where_that_can_be_asked_for(
    guarded: Guarded, run: Run
) -> None:
    guarded.revokes = True
    run("login", guarded.url)
    done = run("logout", guarded.url)
    assert (done.code, done.out) == (
        0,
        f"Logged out of {guarded.url}. Its tokens were revoked.\n",
    )
    (asked,) = guarded.saw("/revoke")
    assert asked.pop("token").startswith("refresh-")
    assert asked == {"token_type_hint": "refresh_token", "client_id": "registered-1"}
    assert run("whoami", guarded.url).code == 1


def test_whoami_says_who_where_the_authorization_server_does(guarded: Guarded, run: Run) -> None:
    claims = base64.urlsafe_b64encode(
        json.dumps({"sub": "17", "preferred_username": "ada\x1b[31m"}).encode()
    )
    guarded.id_token = f"e30.{claims.rstrip(b'=').decode()}.c2ln"
    run("login", guarded.url)
    assert run("whoami", guarded.url).out.splitlines()[1] == "user     ada [31m"


def test_a_server_of_an_mcp_json_is_logged_in_to_by_its_name(
    guarded: Guarded, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    entry = {"url": guarded.url, "auth": {"clientId": "configured"}}
    path.write_text(json.dumps({"mcpServers": {"far": entry, "other": {"command": "x"}}}))
    target = (str(path), "--server", "far")
    assert run("ping", *target).failure.endswith(f"dovetail login {path} --server far")
    assert run("login", *target).code == 0
    assert guarded.saw("/authorize")[0]["client_id"] == "configured"
    assert run("ping", *target).code == run("ping", guarded.url).code == 0
    assert run("whoami", *target, "--json").json["client"] == "configured"
    assert "choose one with --server" in run("whoami", str(path)).failure


def test_a_token_of_the_configuration_or_a_header_goes_first(
    guarded: Guarded, run: Run, tmp_path: Path
) -> None:
    guarded.tokens.add("given")
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"far": {"url": guarded.url, "auth": "given"}}}))
    assert run("ping", str(path)).code == 0
    assert run("ping", guarded.url, "--header", "Authorization: Bearer given").code == 0
    assert "do not need to log in" in run("login", str(path)).failure


def test_client_credentials_of_the_configuration_need_no_login(
    guarded: Guarded, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    auth = {"grantType": "client_credentials", "clientId": "cron", "clientSecret": "hush"}
    path.write_text(json.dumps({"mcpServers": {"far": {"url": guarded.url, "auth": auth}}}))
    assert run("ping", str(path)).code == 0
    assert [asked["grant_type"] for asked in guarded.saw("/token")] == ["client_credentials"]
    assert "already has client credentials" in run("login", str(path)).failure


@pytest.mark.parametrize("verb", ["login", "logout", "whoami"])
@pytest.mark.parametrize("target", [WEATHER, "uvx some-server", "http://", "nonsense"])
def test_what_is_no_server_on_the_web_has_no_login(verb: str, target: str, run: Run) -> None:
    done = run(verb, target)
    assert done.code == 2
    assert (
        done.failure
        == f"{target} is not a login target; use the URL of a server, or an mcp.json file that "
        "names it"
    )


def test_a_login_does_not_go_over_plain_http_to_another_host(run: Run) -> None:
    done = run("login", "http://example.com/mcp")
    assert done.code == 2 and "requires an https URL" in done.failure


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_no_browser_prints_the_address_and_takes_what_is_pasted(
    guarded: Guarded, tmp_path: Path
) -> None:
    """The page is visited on another machine, where nobody listens at the address that it ends
    at."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        command("login", guarded.url, "--no-browser"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(XDG_DATA_HOME=str(tmp_path), DOVETAIL_KEYS="", BROWSER="/bin/false"),
    )
    os.close(theirs)
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        screen = b""
        while b"press Enter" not in screen:
            screen += terminal.read(4096)
        page = re.search(rb"http://\S+/authorize\S+", screen)
        assert page is not None
        assert b" \rOpen this page to log in to " in screen  # the status line is erased first
        asked = urlsplit(page[0].decode())
        reply = HTTPConnection(asked.netloc)
        reply.request("GET", f"{asked.path}?{asked.query}")
        ended = reply.getresponse().getheader("Location") or ""
        reply.close()
        terminal.write(f"{ended}\n".encode())
        out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and out.decode().startswith(f"Logged in to {guarded.url}\n")


def test_with_our_own_provider_whoami_says_who_you_are(tmp_path: Path, run: Run) -> None:
    browser = tmp_path / "person"
    browser.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from urllib.parse import parse_qs, urlsplit\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.person import Person\n"
        "end = parse_qs(urlsplit(sys.argv[1]).query)['redirect_uri'][0]\n"
        f"Person(username={USER!r}, password={PASSWORD!r}).visit(sys.argv[1], end)\n"
    )
    browser.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.auth.guarded", "embedded", "0", "storage=:memory:"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        done = run("login", url, BROWSER=str(browser))
        assert done.code == 0, done.err
        assert f"user     {USER}" in done.out
        for spelling in (url, f"{url}/"):
            assert run("whoami", spelling, "--json").json["user"] == USER
            assert run("ping", spelling).code == 0
        assert run("logout", f"{url}/").out == f"Logged out of {url}. Its tokens were revoked.\n"
        assert run("whoami", url).code == 1
    finally:
        process.kill()
        process.communicate()
