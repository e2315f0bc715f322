"""Operations on resources, prompts and completions."""

import json
from typing import Any

from ... import Client
from ..calls import OnUpdate
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation


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
async def complete(
    state: InspectorState,
    *,
    argument: str,
    value: str = "",
    prompt: str | None = None,
    template: str | None = None,
    context: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Complete an argument of a prompt, or a variable of a resource template."""
    found = await state.client.complete(
        prompt=prompt, resource=template, argument=argument, value=value, context=context
    )
    return {"values": found.values, "total": found.total, "has_more": found.has_more}


@operation
async def subscribe(state: InspectorState, *, uri: str) -> None:
    """Report changes to a resource as `updated` events."""
    client = state.client
    if uri in state.subscriptions:
        return
    state.subscriptions[uri] = await client.subscribe(
        uri, lambda changed: state.events.add("updated", uri=changed)
    )
    state.report_changed("subscriptions", [*state.subscriptions])


@operation
async def unsubscribe(state: InspectorState, *, uri: str) -> None:
    """Stop reporting changes to a resource."""
    subscription = state.subscriptions.pop(uri, None)
    if subscription is None:
        raise Refused("There is no such subscription.", status=404)
    await subscription.close()
    state.report_changed("subscriptions", [*state.subscriptions])
