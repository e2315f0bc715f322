"""The auth classes of FastMCP and the official SDK, over HTTP."""

import time
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client
from dovetail.auth import Bearer, jose
from dovetail.compat import (
    AccessToken,
    AuthSettings,
    Context,
    FastMCP,
    JWTVerifier,
    MCPServer,
    RemoteAuthProvider,
    StaticTokenVerifier,
    TokenVerifier,
    get_access_token,
    get_http_headers,
    parse_scopes,
    require_scopes,
)
from dovetail.errors import ConfigError, Unauthorized
from dovetail.extensions.tasks import SqliteStore
from tests.behaviour.web import on_a_port


class Known(TokenVerifier):
    """Knows one token."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if token != "token-of-ada":
            return None
        return AccessToken(
            token=token,
            client_id="app",
            scopes=["read"],
            resource="http://other.example",
            claims={"sub": "ada"},
        )


def whoami(server: FastMCP) -> FastMCP:
    @server.tool()
    async def who(ctx: Context) -> list[Any]:
        token = get_access_token()
        assert ctx.user is not None
        return [ctx.user.id, token.token, token.client_id, token.scopes, get_http_headers(True)]

    return server


async def called(server: FastMCP, token: str) -> Any:
    async with on_a_port(server.http_app()) as site:
        async with Client(f"http://{site}/mcp", auth=token) as client:
            return (await client.call_tool("who")).data


def with_fastmcp() -> FastMCP:
    return FastMCP("s", auth=Known(required_scopes=["read"]))


async def test_a_task_in_a_file_has_the_caller_but_not_the_token(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    server = FastMCP("s", auth=Known(), tasks=SqliteStore(file))

    @server.tool(task=True)
    async def who(ctx: Context) -> str:
        assert ctx.user is not None
        return ctx.user.id

    async with on_a_port(server.http_app()) as site:
        async with Client(f"http://{site}/mcp", auth="token-of-ada") as client:
            handle = await client.start_tool("who")
            assert (await handle.result()).text == "ada"
            stored = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert b"ada" in stored
    assert b"token-of-ada" not in stored


def with_the_sdk() -> FastMCP:
    settings = AuthSettings(
        issuer_url="https://login.example",
        resource_server_url="http://127.0.0.1/mcp",
        required_scopes=["read"],
    )
    return MCPServer("s", auth=settings, token_verifier=Known())


def with_a_provider() -> FastMCP:
    issuers = ["https://login.example"]
    return FastMCP("s", auth=RemoteAuthProvider(Known(required_scopes=["read"]), issuers))


@pytest.mark.parametrize("make", [with_fastmcp, with_the_sdk, with_a_provider])
async def test_a_token_that_is_verified_is_admitted_and_others_are_not(make: Any) -> None:
    id, token, client, scopes, headers = await called(whoami(make()), "token-of-ada")
    assert (id, token, client, scopes) == ("ada", "token-of-ada", "app", ["read"])
    assert "authorization" not in headers  # it is for the guard
    with pytest.raises(Unauthorized, match="unknown"):
        await called(whoami(make()), "forged")


async def test_a_token_without_the_required_scopes_is_refused() -> None:
    with pytest.raises(Unauthorized, match="write"):
        await called(whoami(FastMCP("s", auth=Known(required_scopes=["write"]))), "token-of-ada")


async def test_a_token_for_another_resource_is_refused_if_resources_are_checked() -> None:
    settings = AuthSettings(
        issuer_url="https://login.example",
        resource_server_url="http://127.0.0.1/mcp",
        validate_token_resource=True,
    )
    with pytest.raises(Unauthorized, match="another server"):
        await called(whoami(MCPServer("s", auth=settings, token_verifier=Known())), "token-of-ada")


async def test_clients_learn_where_to_log_in() -> None:
    from urllib.request import urlopen

    async with on_a_port(with_the_sdk().http_app()) as site:
        import asyncio
        import json

        url = f"http://{site}/.well-known/oauth-protected-resource/mcp"
        found = json.loads(await asyncio.to_thread(lambda: urlopen(url, timeout=10).read()))
    assert found["authorization_servers"] == ["https://login.example"]
    assert found["resource"] == "http://127.0.0.1/mcp"


async def test_static_tokens_may_expire() -> None:
    tokens = {
        "good": {"client_id": "app", "scopes": ["read"]},
        "old": {"client_id": "app", "scopes": ["read"], "expires_at": time.time() - 1},
    }
    server = whoami(FastMCP("s", auth=StaticTokenVerifier(tokens, required_scopes=["read"])))
    assert (await called(server, "good"))[:3] == ["app", "good", "app"]
    with pytest.raises(Unauthorized, match="expired"):
        await called(server, "old")


# signed tokens


def signed(key: Any, **claims: Any) -> str:
    now = int(time.time())
    own = {"iss": "my-issuer", "aud": "my-server", "sub": "ada", "exp": now + 60, "scope": "read"}
    return jose.sign({"alg": "ES256", "typ": "JWT"}, {**own, **claims}, key)


def key_pair() -> tuple[Any, str]:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return jose.load_private_key(pem, "ES256"), public.decode()


async def test_signed_tokens_are_checked() -> None:
    key, pem = key_pair()
    verifier = JWTVerifier(
        public_key=pem,
        issuer="my-issuer",
        audience="my-server",
        algorithm="ES256",
        required_scopes=["read"],
    )
    server = whoami(FastMCP("s", auth=verifier))
    token = signed(key)
    assert (await called(server, token))[:2] == ["ada", token]
    for wrong, said in (
        ({"iss": "another"}, "another issuer"),
        ({"aud": "another"}, "another server"),
        ({"exp": 1}, "expired"),
        ({"scope": ""}, "read"),
    ):
        with pytest.raises(Unauthorized, match=said):
            await called(server, signed(key, **wrong))
    with pytest.raises(Unauthorized, match="signature"):
        await called(server, signed(key_pair()[0]))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"public_key": "secret", "issuer": "i", "algorithm": "HS256"}, "Shared secrets"),
    ({"public_key": "nonsense", "issuer": "i"}, "not a public key"),
    ({"jwks_uri": "https://a.example/jwks"}, "requires issuer="),
    ({"issuer": "i"}, "either public_key= or jwks_uri="),
    ({"jwks_uri": "http://a.example/jwks", "issuer": "i"}, "must use https"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_a_verifier_that_would_be_unsafe_is_refused(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        JWTVerifier(**options)


def test_half_of_the_settings_are_refused() -> None:
    settings = AuthSettings(issuer_url="https://login.example", resource_server_url=None)
    with pytest.raises(ConfigError, match="token_verifier="):
        MCPServer("s", auth=settings)
    with pytest.raises(ConfigError, match="AuthSettings"):
        MCPServer("s", token_verifier=Known())
    with pytest.raises(ConfigError, match="auth=Provider"):
        MCPServer("s", auth_server_provider=object())


async def test_a_component_may_require_scopes() -> None:
    server = FastMCP("s", auth=Known())
    server.tool(lambda: 1, name="read", auth=require_scopes("read"))
    server.tool(lambda: 1, name="write", auth=[require_scopes("read"), require_scopes("write")])
    async with on_a_port(server.http_app()) as site:
        async with Client(f"http://{site}/mcp", auth="token-of-ada") as client:
            assert [tool.name for tool in await client.list_tools()] == ["read"]
    with pytest.raises(ConfigError, match="require_scopes"):
        server.tool(lambda: 1, name="other", auth=print)


def test_a_token_does_not_show_itself() -> None:
    assert "secret" not in repr(AccessToken(token="secret", client_id="a"))


async def test_a_guard_of_dovetail_is_taken_as_it_is() -> None:
    from dovetail.auth import static_tokens

    server = whoami(FastMCP("s", auth=Bearer(static_tokens({"tok": "ada"}))))
    assert (await called(server, "tok"))[:3] == ["ada", "", "ada"]


@pytest.mark.parametrize("value", ["a b", "a, b", '["a", "b"]', ["a", " b "]])
def test_scopes_are_parsed_from_settings(value: Any) -> None:
    assert parse_scopes(value) == ["a", "b"]


def test_a_setting_that_is_not_set_has_no_scopes() -> None:
    assert parse_scopes(None) is None
