"""Operations that send requests to the server."""

from typing import Any

from ... import Client
from ..calls import OnUpdate
from ..json_text import parse_json, raw_object
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation


@operation
async def call(
    state: InspectorState,
    *,
    tool: str,
    arguments: str = "{}",
    task: bool = False,
    timeout: float | None = None,
    meta: str | None = None,
) -> dict[str, Any]:
    """Call a tool."""
    given, extra = raw_object(arguments), None if meta is None else parse_json(meta)
    if not isinstance(extra, dict | None):
        raise Refused("_meta must be a JSON object.")
    seconds = _check_timeout(timeout)

    async def send(client: Client, on_progress: OnUpdate) -> Any:
        if task:
            handle = await client.start_tool(tool, given, timeout=seconds, meta=extra)
            return await client.remote_tasks.wait_as_call(handle, seconds, on_progress)
        return await client.call_tool(
            tool,
            given,
            timeout=seconds,
            on_progress=on_progress,
            raise_on_error=False,
            meta=extra,
        )

    return {"call": state.start_call("tools/call", tool, arguments, send)}


@operation
async def send(
    state: InspectorState, *, method: str, params: str = "{}", timeout: float | None = None
) -> dict[str, Any]:
    """Send any request of the protocol, as it is written."""
    given, seconds = raw_object(params), _check_timeout(timeout)

    async def relay(client: Client, on_progress: OnUpdate) -> Any:
        return await client.relay(method, given, timeout=seconds, on_progress=on_progress)

    name = parse_json(params).get("name") or parse_json(params).get("uri") or ""
    return {"call": state.start_call(method, str(name), params, relay)}


@operation
async def cancel(state: InspectorState, *, call: str) -> None:
    """Cancel a call."""
    state.calls.cancel(call)


@operation
async def message(state: InspectorState, *, n: int) -> dict[str, Any]:
    """Return the whole text of a message that was cut."""
    text = state.events.whole_text(n)
    if text is None:
        raise Refused("This message is no longer kept.", "Record the session.", status=404)
    return {"text": text}


def _check_timeout(timeout: float | None) -> float | None:
    if timeout is not None and not 0 < timeout <= 86400:
        raise Refused("timeout must be between 0 and 86400 seconds.")
    return timeout
