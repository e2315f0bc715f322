"""The classes with which FastMCP uses an authorization server. Those in `REMOTE` issue signed
tokens, which Dovetail checks. All others log users in, which they do not do here: a server with one
of them runs over stdio, which has no authentication, and refuses to be served over HTTP."""

from functools import partial
from typing import Any

from ..errors import ConfigError
from . import LAZY
from .auth import JWTVerifier, RemoteAuthProvider, TokenVerifier
from .instead import GUIDE, refuse_options

REMOTE = {
    "AuthKitProvider": ("{authkit_domain}", "{authkit_domain}/oauth2/jwks", {}),
    "KeycloakAuthProvider": ("{realm_url}", "{realm_url}/protocol/openid-connect/certs",
                             {"required_scopes": "openid"}),
    "ScalekitProvider": ("{environment_url} {environment_url}/resources/{resource_id}",
                         "{environment_url}/keys", {"audience": "{resource_id}"}),
}  # fmt: skip
"""The issuers (clients are referred to the last), their keys, and other options of JWTVerifier."""
USED = """authkit_domain realm_url environment_url resource_id client_id resource_name
    resource_documentation scopes_supported""".split()  # noqa: SIM905
"""The options that are in the URLs, describe the server, or have no effect in FastMCP either."""
REFUSAL = (
    "works only over stdio, where there are no logins. Over HTTP, use auth=Provider(upstream=…) to "
    f"log users in with this service, or RemoteAuthProvider if it issues signed tokens: {GUIDE}"
)


class LoginProvider(TokenVerifier):
    """Takes the place of a class that logs users in. No token is valid."""

    def __init__(self, *args: Any, **options: Any) -> None: ...

    @property
    def refusal(self) -> str:
        """Why a server with this provider is not served over HTTP."""
        return f"{type(self).__name__} {REFUSAL}"

    async def verify_token(self, token: str) -> None:
        """Return None."""


def make_remote(name: str, /, **options: Any) -> RemoteAuthProvider:
    """Return the provider for an authorization server in `REMOTE`."""
    given = {key: value for key, value in options.items() if value is not None}
    issuers, keys, more = REMOTE[name]
    try:
        urls = {key: str(value).rstrip("/") for key, value in given.items()}
        own: Any = {key: text.format(**urls) for key, text in {**more, "jwks_uri": keys}.items()}
        own["issuer"] = issuers.format(**urls).split()
        base_url = given.pop("base_url", None) or given.pop("mcp_url", None) or given["base_url"]
    except KeyError as missing:
        raise ConfigError(f"{name} requires {missing.args[0]}=") from None
    own |= {key: given.pop(key) for key in ("audience", "required_scopes") if key in given}
    verifier, resource = given.pop("token_verifier", None), given.pop("resource_base_url", None)
    refuse_options({key: value for key, value in given.items() if key not in USED}, name)
    verifier = verifier or JWTVerifier(**own)
    return RemoteAuthProvider(verifier, own["issuer"][-1:], base_url, resource)


for _name in LAZY["login_providers"].split():
    _remote: Any = partial(make_remote, _name) if _name in REMOTE else None
    globals()[_name] = _remote or type(_name, (LoginProvider,), {})
