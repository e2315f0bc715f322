"""A server for those who log in. Each of them has notes of their own.

    dovetail run examples/notes.py --http

In another terminal; `ada` has the password "engine":

    dovetail login http://127.0.0.1:8000/mcp --scope notes:write
    dovetail call http://127.0.0.1:8000/mcp add text="Call Charles"
    dovetail call http://127.0.0.1:8000/mcp show

To see notes takes one scope, to add one takes another, and nobody sees a tool that is not for them.
Users log in at this very server, since a `Provider` is an authorization server. Where there is one
already, `Bearer(jwt("https://…"))` does it.
"""

from dovetail import Context, Server, ToolError
from dovetail.auth import Provider, hash_password

USERS = {
    "ada": hash_password("engine"),
    "bo": hash_password("violin"),
}  # in earnest only the hashes would be here

server = Server(
    "notes",
    version="1.0.0",
    auth=Provider(
        users=USERS,
        name="Notes",
        scopes={"notes:read": "See your notes", "notes:write": "Add to your notes"},
        required=["notes:read"],
    ),
)

NOTES: dict[str, list[str]] = {}


def notes_of(ctx: Context) -> list[str]:
    """Return the notes of the caller."""
    if ctx.user is None:
        raise ToolError("Nobody has logged in: serve this over HTTP.")
    return NOTES.setdefault(ctx.user.id, [])


@server.tool
async def show(ctx: Context) -> list[str]:
    """Show your notes."""
    return notes_of(ctx)


@server.tool(scopes=["notes:write"])
async def add(text: str, ctx: Context) -> str:
    """Add to your notes.

    Args:
        text: What to remember.
    """
    notes = notes_of(ctx)
    notes.append(text)
    return f"Noted. You have {len(notes)}."


if __name__ == "__main__":
    server.run("http")
