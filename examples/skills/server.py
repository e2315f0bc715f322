"""A server with a skill that explains how to write release notes, and a tool that lists the changes
to describe.

Run it with `dovetail run examples/skills/server.py`.
"""

from pathlib import Path

from dovetail import Server

server = Server(
    "releases",
    version="1.0.0",
    instructions="To write release notes, follow skill://release-notes/SKILL.md.",
)
server.add_skill(Path(__file__).parent / "release-notes")


@server.tool
def merged_changes(since: str) -> list[str]:
    """Return the changes that were merged since a version."""
    return [
        "Settings can be read from YAML",
        "Names with spaces are no longer cut off",
        f"The tests run faster than in {since}",
    ]


if __name__ == "__main__":
    server.run()
