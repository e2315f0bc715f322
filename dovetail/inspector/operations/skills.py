"""Operations on skills: their entries, and files that are verified against them."""

import json
from typing import Any

import msgspec

from ... import Client
from ...errors import MethodNotFound
from ..calls import OnUpdate
from ..state import InspectorState
from .registry import operation


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
async def read_skill(state: InspectorState, *, uri: str, path: str = "SKILL.md") -> dict[str, Any]:
    """Read a file of a skill, and verify it. The call fails if the file differs from its entry.

    `digest` in the result is the verified digest; null if the skill is dynamic, and has none.
    """

    async def send(client: Client, on_progress: OnUpdate) -> Any:
        skill = await client.read_skill(uri)
        contents = await skill.read(path)
        file = skill.entry.files.get(path)
        return {"digest": None if file is None else file.digest, "contents": contents}

    params = json.dumps({"uri": uri, "path": path})
    return {"call": state.start_call("read_skill", uri, params, send)}
