"""A server with a skill: how to write release notes, and a tool that says what there is to write
about.

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
    """What was merged since a version."""
    return [
        "Settings can be read from YAML",
        "Names with spaces are cut off no more",
        f"Tests of {since} run faster",
    ]


if __name__ == "__main__":
    server.run()
