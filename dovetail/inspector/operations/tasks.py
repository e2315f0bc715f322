"""Operations on the server's tasks. What the server says about them arrives as `task` events."""

import json
from typing import Any, Literal

from ... import Client
from ..calls import OnUpdate
from ..lists import read_list
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation

TaskAction = Literal["get", "result", "cancel", "list"]


@operation
async def task(state: InspectorState, *, action: TaskAction, task: str = "") -> dict[str, Any]:
    """Ask for the state of a task, wait for its result (a call), cancel it, or list all tasks."""
    client = state.client
    if action == "list":
        return await _list_tasks(client)
    if not task:
        raise Refused("The id of the task is missing.")
    handle = client.task(task)
    if action == "result":
        return {"call": _wait_for_result(state, task)}
    if action == "cancel":
        await handle.cancel()
    await handle.status()
    return {}


async def _list_tasks(client: Client) -> dict[str, Any]:
    if client.task_form != "core" or not client.offers("tasks/list"):
        raise Refused("This server does not list its tasks.")
    await read_list(client, "tasks/list", "tasks")
    return {}


def _wait_for_result(state: InspectorState, task: str) -> str:
    """Start a call that ends with the task. If the call is cancelled, the task continues."""

    async def send(client: Client, on_progress: OnUpdate) -> Any:
        return await client.task(task).result(raise_on_error=False)

    known = state.task_board.records.get(task)
    name = task if known is None or known.tool is None else known.tool
    return state.start_call("tasks/result", name, json.dumps({"taskId": task}), send)
