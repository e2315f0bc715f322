"""A server that requires a login. Each user has their own notes.

    dovetail run examples/notes.py --http

In another terminal, log in as `ada` with the password "engine":

    dovetail login http://127.0.0.1:8000/mcp --scope notes:write
    dovetail call http://127.0.0.1:8000/mcp add text="Call Charles"
    dovetail call http://127.0.0.1:8000/mcp show

Reading notes requires one scope, and adding notes requires another. Users do not see tools that
they lack the scope for. Users log in to this server itself, because a `Provider` is an
authorization server. If you already have one, use `Bearer(jwt("https://…"))` instead.
"""

from dovetail import Context, Server, ToolError
from dovetail.auth import Provider, hash_password

USERS = {
    "ada": hash_password("engine"),
    "bo": hash_password("violin"),
}  # in production, store only the hashes

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
        raise ToolError("No user is logged in. Serve this over HTTP.")
    return NOTES.setdefault(ctx.user.id, [])


@server.tool
async def show(ctx: Context) -> list[str]:
    """Show your notes."""
    return notes_of(ctx)


@server.tool(scopes=["notes:write"])
async def add(text: str, ctx: Context) -> str:
    """Add to your notes.

    Args:
        text: The text of the note.
    """
    notes = notes_of(ctx)
    notes.append(text)
    return f"Noted. You have {len(notes)}."


if __name__ == "__main__":
    server.run("http")
