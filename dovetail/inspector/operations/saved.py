"""Operations on saved calls: the entries of `.dovetail/calls.json`."""

import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from ..expectations import find_failures, read_answer
from ..json_text import parse_json
from ..refusal import Refused
from ..saved import SavedCall, describe_saved, find_call, forget_call, read_calls, save_call
from ..saved_tests import export_tests
from ..state import InspectorState
from .calls import call
from .export import make_request
from .registry import operation

MAX_ANSWER_CHARS = 100_000
"""The length of an answer that is sent to the page with the result of a run."""


@operation
async def saved(state: InspectorState) -> dict[str, Any]:
    """Return the saved calls, and what is wrong with the file if it cannot be read."""
    return describe_saved()


@operation
async def save(
    state: InspectorState,
    *,
    name: str,
    tool: str,
    arguments: str = "{}",
    equals: str | None = None,
    schema: str | None = None,
    under_ms: int | float | None = None,
    replaces: str | None = None,
) -> None:
    """Save a call, or put it in the place of another."""
    texts = {"equals": equals, "schema": schema}
    expect = {key: _parse(text) for key, text in texts.items() if text is not None}
    if under_ms is not None:
        expect["under_ms"] = under_ms
    fields = {"name": name.strip(), "tool": tool, "arguments": _parse(arguments)}
    try:
        found = msgspec.convert(fields | ({"expect": expect} if expect else {}), SavedCall)
    except msgspec.ValidationError as problem:
        raise Refused(f"The call cannot be saved: {problem}") from None
    save_call(found, replaces)
    _report(state)


@operation
async def forget_saved(state: InspectorState, *, name: str) -> None:
    """Remove a saved call."""
    forget_call(name)
    _report(state)


@operation
async def run(state: InspectorState, *, names: list[str] | None = None) -> None:
    """Run saved calls one after another (default: all). `run` events report the outcomes."""
    calls = choose_saved(names)
    start_run(state, partial(_run_all, state, calls))


@operation
async def stop_run(state: InspectorState) -> None:
    """Stop running saved calls. Calls that are running are cancelled."""
    if state.runs is not None:
        state.runs.cancel()


@operation
async def export_saved(state: InspectorState, *, names: list[str] | None = None) -> dict[str, Any]:
    """Return saved calls as a file of tests for pytest (default: all)."""
    return {"text": export_tests(choose_saved(names), await make_request(state, b"", "pytest"))}


def start_run(state: InspectorState, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start to run saved calls, unless others are running.

    Args:
        state: The inspector.
        run: Runs them.

    Raises:
        Refused: There is no open connection, or calls are running.
    """
    state.client  # noqa: B018 (refuses, if nothing is open)
    if state.runs is not None and not state.runs.done():
        raise Refused("Saved calls are running.", "Wait for them, or stop them.", status=409)
    state.runs = state.tasks.start(run())


def choose_saved(names: list[str] | None) -> list[SavedCall]:
    """Return saved calls.

    Args:
        names: Their names, or None for all.

    Raises:
        Refused: There is no such call, or none at all.
    """
    calls = read_calls()
    chosen = calls if names is None else [calls[find_call(calls, name)] for name in names]
    if not chosen:
        raise Refused("There are no saved calls.", "Save one in the Tools panel.")
    return chosen


def _parse(text: str) -> Any:
    return parse_json(text, unique_keys=True)


def _report(state: InspectorState) -> None:
    state.report_changed("saved", describe_saved())


async def _run_all(state: InspectorState, calls: list[SavedCall]) -> None:
    for one in calls:
        state.events.add("run", name=one.name, status="waiting")
    waiting = [one.name for one in calls]
    try:
        for one in calls:
            await _run_one(state, one)
            waiting.remove(one.name)
    finally:
        for name in waiting:
            state.events.add("run", name=name, status="stopped")


async def _run_one(state: InspectorState, one: SavedCall) -> None:
    """Run a call, and report whether its answer is as expected."""
    try:
        started = await call(state, tool=one.tool, arguments=json.dumps(one.arguments))
    except Refused as problem:  # the connection was closed
        state.events.add("run", name=one.name, status="failed", why=[problem.message])
        return
    id = started["call"]
    state.events.add("run", name=one.name, status="running", call=id)
    try:
        record = await state.calls.wait(id)
    except BaseException:
        state.calls.cancel(id)
        raise
    why = find_failures(record, one.expect)
    state.events.add(
        "run",
        name=one.name,
        status="failed" if why else "passed",
        why=why,
        ms=record.ms,
        call=id,
        answer=_answer_text(record.result) if record.status == "done" else None,
    )


def _answer_text(result: str | None) -> str | None:
    """Return the answer as JSON text, unless it is long."""
    try:
        text = json.dumps(read_answer(result or ""))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    return text if len(text) <= MAX_ANSWER_CHARS else None
