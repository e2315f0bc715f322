"""A guarded server in a process of its own: `python -m tests.auth.guarded KIND PORT [KEY=VALUE …]`.
Prints its URL.

embedded   the authorization server is its own; storage=FILE, access_life=SECONDS
upstream   … and its users log in at the OpenID provider idp=URL
resource   the OpenID provider idp=URL is the authorization server
"""

import sys
from typing import Any

from dovetail import Context, HttpRequest, HttpResponse, Server
from dovetail.auth import Bearer, Provider, Upstream, hash_password, jwt
from dovetail.auth.provider import login
from dovetail.ports import Guard, PublicUrl

login.COST = 16  # nobody guesses here
USER, PASSWORD = "ada", "correct horse battery staple"
SCOPES = {"notes:read": "Read your notes", "notes:write": "Change and delete your notes"}


def guard(kind: str, given: dict[str, Any]) -> Guard:
    if kind == "resource":
        return Bearer(jwt(given["idp"]), scopes=["notes:read"])
    if kind == "upstream":
        upstream = Upstream(given["idp"], client_id="upstream", client_secret="upstream-secret")
        return Provider(
            upstream=upstream, scopes=SCOPES, required=["notes:read"], storage=":memory:"
        )
    life = float(given.get("access_life", 3600))
    users = {USER: hash_password(PASSWORD)}
    return Counted(
        users=users,
        scopes=SCOPES,
        required=["notes:read"],
        storage=given["storage"],
        access_life=life,
        name="Notes",
    )


class Counted(Provider):
    """Counts how often somebody refreshes a token."""

    refreshes = 0

    async def respond(self, request: HttpRequest, site: PublicUrl) -> HttpResponse | None:
        self.refreshes += b"grant_type=refresh_token" in request.body
        return await super().respond(request, site)


def main(kind: str, port: str, *given: str) -> None:
    guarding = guard(kind, dict(pair.split("=", 1) for pair in given))
    server = Server("notes", auth=guarding)

    @server.tool
    async def whoami(ctx: Context) -> str:
        """Say who is calling."""
        return ctx.user.id if ctx.user else "nobody"

    @server.tool
    async def refreshes() -> int:
        """Say how often a token was refreshed."""
        return guarding.refreshes if isinstance(guarding, Counted) else 0

    @server.tool(scopes=["notes:write"])
    async def erase() -> str:
        """Delete all notes."""
        return "erased"

    server.run("http", port=int(port), ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
