"""Skills of the servers behind a gateway, as its callers see them.

The list is merged like all others. The URIs of a skill and of its files always have the prefix of
their server, because a client derives the URIs of other files from them: from
`up+skill://notes/SKILL.md`, it gets `up+skill://notes/data.csv`, which nobody has to list. An
answer has the form of URI that the caller used.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ..connection.extension import Extension
from ..errors import InvalidRequest
from ..extensions.skills import GET, ID, LIST, METHODS, READ_DIRECTORY
from ..ports import Call, CallHandler
from ..protocol.raw import RawObject, encode_raw, split_object
from .naming import Kind, UpstreamName
from .uris import rename_list, rename_skill

Find = Callable[[Call, Kind, str], Awaitable[UpstreamName]]
Relay = Callable[[Call, Kind, UpstreamName, Mapping[str, Any]], Awaitable[Any]]


def relayed_skills(list_: CallHandler, find: Find, relay: Relay) -> Extension:
    """Return the skills extension of a gateway.

    Args:
        list_: Answers a request for a list.
        find: Returns what a URI of a caller stands for.
        relay: Sends a call to the server, with the params that differ.
    """

    async def relay_uri(call: Call) -> Any:
        asked = call.params.uri
        found = await find(call, "resources", asked)
        result = await relay(call, "resources", found, {"uri": encode_raw(found.name)})
        form = asked.removesuffix(found.name)
        return _with_form(result, form) if form and type(result) is RawObject else result

    return Extension(
        id=ID,
        settings={"directoryRead": True},
        methods=METHODS,
        handlers={LIST.name: list_, GET.name: relay_uri, READ_DIRECTORY.name: relay_uri},
        mutual=False,
    )


def _with_form(result: RawObject, form: str) -> RawObject:
    """Return the entry of a skill, or a directory, with this text before each URI."""
    try:
        if result.type is READ_DIRECTORY.result:
            renamed: Any = {"resources": rename_list(result.fields["resources"], form.__add__)}
        else:
            skill = split_object(result.fields["skill"])
            renamed = {"skill": encode_raw(rename_skill(skill, form.__add__))}
    except (KeyError, msgspec.MsgspecError) as problem:
        raise InvalidRequest(f"The answer about a skill is malformed: {problem}") from None
    return RawObject(result.type, {**result.fields, **renamed})
