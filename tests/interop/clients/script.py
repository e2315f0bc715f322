"""What the scripts for Python's clients have in common: read cases, take their steps, print what
was seen.

Runs in the environment of a peer, so it imports nothing but the standard library. The cases come as
JSON on stdin; a line goes out for each step. What differs between the peers is `opened(case,
heard)`: an async context manager that gives, for each verb of a step, a coroutine function from the
step to a result in the form of the wire.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

Verbs = dict[str, Callable[[dict[str, Any]], Awaitable[Any]]]
STEP_SECONDS, CASE_SECONDS, LATE_SECONDS = 8, 30, 2
ROOT = "file:///tmp/interop"


class Heard:
    """What came in besides results, since the last step."""

    def __init__(self) -> None:
        self.progress: list[Any] = []
        self.logs: list[Any] = []
        self.changes: list[Any] = []

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]

    async def wait(self, awaited: dict[str, int]) -> None:
        """Until as much has come in as is awaited, or no more will."""
        until = time.monotonic() + LATE_SECONDS
        while (
            any(len(getattr(self, kind)) < count for kind, count in awaited.items())
            and time.monotonic() < until
        ):
            await asyncio.sleep(0.01)


def main(opened: Callable[[dict[str, Any], Heard], AbstractAsyncContextManager[Verbs]]) -> None:
    """Do all the cases."""
    for case in json.load(sys.stdin):
        try:
            asyncio.run(asyncio.wait_for(_case(case, opened), CASE_SECONDS))
        except BaseException as problem:
            say(case, "open", {"error": {"message": told(problem)}})


async def _case(case: dict[str, Any], opened: Any) -> None:
    heard = Heard()
    async with opened(case, heard) as verbs:
        for step in case["steps"]:
            heard.forget()
            try:
                got = {"result": await asyncio.wait_for(verbs[step["do"]](step), STEP_SECONDS)}
            except Exception as problem:
                got = {
                    "error": {
                        "code": getattr(getattr(problem, "error", problem), "code", None),
                        "message": told(problem),
                    }
                }
            await heard.wait(step["awaits"])
            say(case, step["name"], got | vars(heard))


def say(case: dict[str, Any], step: str, got: Any) -> None:
    print(json.dumps({"case": case["id"], "step": step, "got": got}, default=str), flush=True)


def told(problem: BaseException) -> str:
    """An exception in a line; of a group, what is in it."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return f"{type(problem).__name__}: {problem}".replace("\n", " ")[:300]


def plain(result: Any) -> Any:
    """A model as it goes over the wire."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)
