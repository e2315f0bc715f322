"""Operations on resources, prompts and completions."""

import json
from typing import Any

from ... import Client
from ...errors import DovetailError, MethodNotFound, SchemaError
from ...protocol.uri_template import UriTemplate
from ..calls import OnUpdate
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation

NO_COMPLETION: dict[str, Any] = {"values": [], "offered": False}


@operation
async def read(state: InspectorState, *, uri: str) -> dict[str, Any]:
    """Read a resource."""

    async def send(client: Client, on_progress: OnUpdate) -> Any:
        return await client.read_resource(uri, fresh=True)

    return {"call": state.start_call("resources/read", uri, json.dumps({"uri": uri}), send)}


@operation
async def prompt(
    state: InspectorState, *, name: str, arguments: dict[str, str] | None = None
) -> dict[str, Any]:
    """Fill in a prompt."""

    async def send(client: Client, on_progress: OnUpdate) -> Any:
        return await client.get_prompt(name, arguments)

    params = json.dumps({"name": name, "arguments": arguments or {}})
    return {"call": state.start_call("prompts/get", name, params, send)}


@operation
async def expand(
    state: InspectorState, *, template: str, values: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the URI that a resource template makes of these values, and the template's variables.

    A variable without a text is left out. `separator` is set if a variable takes a list: its text
    is split there. `problem` says what is wrong with the template.
    """
    variables: list[dict[str, Any]] = []
    given: dict[str, Any] = {name: text for name, text in (values or {}).items() if text}
    try:
        parsed = UriTemplate(template)
        for name in parsed.variables:
            separator = parsed.list_separators.get(name)
            variables.append({"name": name, "separator": separator})
            if separator and name in given:
                given[name] = given[name].split(separator)
        uri = parsed.expand(given)
    except SchemaError as problem:
        return {"uri": "", "variables": variables, "problem": str(problem)}
    return {"uri": uri, "variables": variables}


@operation
async def complete(
    state: InspectorState,
    *,
    argument: str,
    value: str = "",
    prompt: str | None = None,
    template: str | None = None,
    context: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Complete an argument of a prompt, or a variable of a resource template.

    `offered` is false if the server completes nothing. `problem` is the server's error.
    """
    client = state.client
    if not client.offers("completion/complete"):
        return NO_COMPLETION
    try:
        found = await client.complete(
            prompt=prompt, resource=template, argument=argument, value=value, context=context
        )
    except MethodNotFound:
        return NO_COMPLETION
    except DovetailError as problem:
        return {"values": [], "problem": str(problem) or type(problem).__name__}
    return {
        "values": found.values,
        "total": found.total,
        "has_more": found.has_more,
        "offered": True,
    }


@operation
async def subscribe(state: InspectorState, *, uri: str) -> None:
    """Report changes to a resource as `updated` events."""
    await state.subscriptions.add(state.client, uri)


@operation
async def unsubscribe(state: InspectorState, *, uri: str) -> None:
    """Stop reporting changes to a resource."""
    if not await state.subscriptions.remove(uri):
        raise Refused("There is no such subscription.", status=404)
