"""Operations on skills: their entries, and files that are verified against them."""

import json
from typing import TYPE_CHECKING, Any

import msgspec

from ... import Client
from ...errors import MethodNotFound
from ..calls import OnUpdate
from ..state import InspectorState
from .registry import operation

if TYPE_CHECKING:
    from ...extensions.skills import SkillFile

MAIN_FILE = "SKILL.md"


@operation
async def skills(state: InspectorState) -> dict[str, Any]:
    """List the skills. The list is null if the server does not offer any."""
    try:
        entries = await state.client.list_skills(fresh=True)
    except MethodNotFound:
        return {"skills": None}
    return {
        "skills": [
            {
                "uri": entry.uri,
                "name": entry.name,
                "description": entry.description,
                "frontmatter": msgspec.json.encode(entry.frontmatter).decode(),
                "files": [
                    {"path": path, "uri": file.uri, "digest": file.digest, "size": file.size}
                    for path, file in entry.files.items()
                ],
                "dynamic": entry.resources == "dynamic",
                "fingerprint": entry.fingerprint,
                "problem": entry.problem,
            }
            for entry in entries
        ]
    }


@operation
async def read_skill(state: InspectorState, *, uri: str, path: str = MAIN_FILE) -> dict[str, Any]:
    """Read a file of a skill, and verify it. The call fails if the file differs from its entry.

    `digest` in the result is the verified digest; null if the skill is dynamic, and has none.
    """

    async def send(client: Client, on_progress: OnUpdate) -> Any:
        skill = await client.read_skill(uri)
        _add_verified(state, skill.entry.files.get(MAIN_FILE))
        contents = await skill.read(path)
        file = skill.entry.files.get(path)
        _add_verified(state, file)
        return {"digest": None if file is None else file.digest, "contents": contents}

    params = json.dumps({"uri": uri, "path": path})
    return {"call": state.start_call("read_skill", uri, params, send)}


def _add_verified(state: InspectorState, file: "SkillFile | None") -> None:
    """Remember that a file was read and verified; None is a file without a digest."""
    found = "" if file is None else f"{file.uri} {file.digest}"
    if found and found not in state.verified:
        state.verified.append(found)
        state.report_changed("verified", state.verified)
