"""FastMCP's classes for authorization servers: over stdio, and over HTTP."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Client, Gateway, Server, compat
from dovetail.auth import jose
from dovetail.compat import FastMCP
from dovetail.errors import ConfigError, Unauthorized
from tests.behaviour.web import on_a_port
from tests.ports import free_port

REMOTE = {"AuthKitProvider", "KeycloakAuthProvider", "ScalekitProvider"}
LOGINS = sorted({*compat.LAZY["login_providers"].split()} - REMOTE)
OPTIONS = {"client_id": "", "client_secret": "", "base_url": "http://127.0.0.1:8000"}


def make_server(auth: Any) -> FastMCP:
    server = FastMCP("s", auth=auth)

    @server.tool
    def echo(text: str) -> str:
        return text

    return server


@pytest.mark.parametrize("name", LOGINS)
async def test_a_server_that_logs_users_in_runs_only_where_nobody_logs_in(name: str) -> None:
    server = make_server(getattr(compat, name)(**OPTIONS, redirect_path="/auth/callback"))
    async with Client(server) as client:
        assert (await client.call_tool("echo", {"text": "a"})).data == "a"
    with pytest.raises(ConfigError, match=rf"{name} works only over stdio.*Provider\(upstream="):
        server.http_app()
    with pytest.raises(ConfigError, match="only over stdio"):
        await server.run_async("sse")
    with pytest.raises(ConfigError, match="only over stdio"):
        server.asgi()


def test_such_a_server_does_not_start() -> None:
    with pytest.raises(ConfigError, match="GitHubProvider works only over stdio"):
        make_server(compat.GitHubProvider(**OPTIONS)).run(transport="http")


def test_a_class_of_your_own_is_refused_too() -> None:
    class Own(compat.OAuthProvider):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            """Does not call that of the base class."""

    with pytest.raises(ConfigError, match="Own works only over stdio"):
        make_server(Own()).http_app()


async def test_no_request_is_admitted_even_if_such_a_server_is_served() -> None:
    server = make_server(compat.GitHubProvider(**OPTIONS))
    server._refusal = ""
    async with on_a_port(server.http_app()) as site:
        for token in (None, "any"):
            with pytest.raises(Exception, match=r"401|503|token|authenticat"):
                async with Client(f"http://{site}/mcp", auth=token) as client:
                    await client.list_tools()


def make_key() -> tuple[Any, dict[str, Any]]:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private = rsa.generate_private_key(65537, 2048)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return jose.load_private_key(pem, "RS256"), jose.load_public_pem(public, "RS256")


class Issuer:
    """The page with the keys of an authorization server."""

    def __init__(self, path: str, key: Any) -> None:
        self.path, self.body = path, json.dumps({"keys": [key]}).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for state in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{state}.complete"})
            return
        status = 200 if scope["path"] == self.path else 404
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


SERVERS: list[Any] = [
    ("AuthKitProvider", "authkit_domain", "/oauth2/jwks", "", {}),
    ("KeycloakAuthProvider", "realm_url", "/realms/r/protocol/openid-connect/certs", "/realms/r",
     {"audience": "me"}),
    ("ScalekitProvider", "environment_url", "/keys", "", {"resource_id": "res_1"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "option", "keys", "path", "more"), SERVERS)
async def test_tokens_of_an_authorization_server_are_checked(
    name: str, option: str, keys: str, path: str, more: dict[str, Any]
) -> None:
    private, public = make_key()
    own_url = f"http://127.0.0.1:{free_port()}"
    async with on_a_port(Issuer(keys, public)) as site:
        url = f"http://{site}{path}"
        provider = getattr(compat, name)(**{option: f"{url}/", "base_url": f"{own_url}/"}, **more)
        app = make_server(provider).http_app()
        audience = more.get("audience") or more.get("resource_id") or f"{own_url}/mcp"
        claims = {"iss": url, "aud": audience, "sub": "ada", "scope": "openid"}
        async with on_a_port(app, int(own_url.rpartition(":")[2])):

            async def call(**changes: Any) -> Any:
                own = {**claims, "exp": int(time.time()) + 60, **changes}
                token = jose.sign({"alg": "RS256", "typ": "JWT"}, own, private)
                async with Client(f"{own_url}/mcp", auth=token) as client:
                    return (await client.call_tool("echo", {"text": "a"})).data

            assert await call() == "a"
            if name == "ScalekitProvider":
                assert await call(iss=f"{url}/resources/res_1") == "a"
            if name == "KeycloakAuthProvider":
                with pytest.raises(Unauthorized, match="openid"):
                    await call(scope="other")
            for wrong in ({"iss": "https://other.example"}, {"aud": "other"}, {"exp": 1}):
                with pytest.raises(Unauthorized):
                    await call(**wrong)


def test_an_option_that_is_missing_or_unknown_is_named() -> None:
    keycloak = compat.KeycloakAuthProvider
    with pytest.raises(ConfigError, match="KeycloakAuthProvider requires realm_url="):
        keycloak(base_url="http://127.0.0.1:8000")
    with pytest.raises(ConfigError, match="requires base_url="):
        keycloak(realm_url="https://keys.example/realms/r")
    with pytest.raises(ConfigError, match="has no option nonsense="):
        keycloak(realm_url="https://keys.example", base_url="https://a.example", nonsense=1)
    with pytest.raises(ConfigError, match="must use https"):
        keycloak(realm_url="http://keys.example", base_url="https://a.example")


def test_a_verifier_of_your_own_replaces_the_default() -> None:
    verifier = compat.StaticTokenVerifier({"t": {"client_id": "app"}})
    options = {"realm_url": "https://keys.example", "base_url": "https://a.example"}
    provider = compat.KeycloakAuthProvider(**options, token_verifier=verifier)
    assert provider.verify_token == verifier.verify_token
    assert provider.authorization_servers == ["https://keys.example"]


def test_authentication_that_is_set_later_counts() -> None:
    server = make_server(None)
    server.auth = compat.GitHubProvider(**OPTIONS)
    with pytest.raises(ConfigError, match="GitHubProvider works only over stdio"):
        server.http_app()
    server.auth = None
    assert server.auth is None
    server.http_app()
    with pytest.raises(ConfigError, match="auth= must be a guard"):
        server.auth = "github"


async def test_tokens_and_scopes_are_checked_if_authentication_is_set_later() -> None:
    server = make_server(None)
    server.tool("admin", auth=compat.require_scopes("admin"))(lambda: "done")
    server.auth = compat.StaticTokenVerifier({"t": {"client_id": "app", "scopes": []}})
    async with on_a_port(server.http_app()) as site:
        with pytest.raises(Unauthorized):
            async with Client(f"http://{site}/mcp") as client:
                await client.list_tools()
        async with Client(f"http://{site}/mcp", auth="t") as client:
            assert [tool.name for tool in await client.list_tools()] == ["echo"]
            with pytest.raises(Exception, match="scopes: admin"):
                await client.call_tool("admin")


def mount_in_plain_server(child: FastMCP) -> Server:
    server = Server("plain")
    server.mount(child)
    return server


def mount_twice(child: FastMCP) -> FastMCP:
    server, between = FastMCP("outer"), FastMCP("between")
    between.mount(child, "a")
    server.mount(between, "b")
    return server


PARENTS: list[Callable[[FastMCP], Any]] = [
    mount_in_plain_server, mount_twice, FastMCP.as_proxy, compat.create_proxy, Gateway,
    lambda child: FastMCP("parent", providers=[child]), lambda child: Gateway(mount_twice(child)),
]  # fmt: skip


@pytest.mark.parametrize("make_parent", PARENTS)
def test_a_server_that_logs_users_in_is_not_served_openly_by_another(make_parent: Any) -> None:
    parent = make_parent(make_server(compat.GitHubProvider(**OPTIONS)))
    with pytest.raises(ConfigError, match="GitHubProvider works only over stdio"):
        parent.asgi()


def test_such_a_server_is_not_mounted_while_another_is_served() -> None:
    parent, child = FastMCP("parent"), make_server(compat.GitHubProvider(**OPTIONS))
    parent.http_app()
    with pytest.raises(ConfigError, match="GitHubProvider works only over stdio"):
        parent.mount(child)
    protected = FastMCP("protected", auth=compat.StaticTokenVerifier({"t": {"client_id": "a"}}))
    protected.mount(child)
    protected.http_app()
    protected.mount(child, "again")


async def test_authentication_in_the_environment_is_not_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FASTMCP_SERVER_AUTH", "fastmcp.server.auth.providers.jwt.JWTVerifier")
    server = FastMCP("s")
    with pytest.raises(ConfigError, match=r"FASTMCP_SERVER_AUTH=.*JWTVerifier.*auth="):
        server.http_app()
    async with Client(server) as client:
        assert await client.list_tools() == []
    FastMCP("open", auth=None).http_app()
    server.auth = compat.StaticTokenVerifier({"t": {"client_id": "app"}})
    server.http_app()
