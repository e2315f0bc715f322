"""The comparison that runs, or the last one. There is one at a time.

It runs here, so that it survives a reload of the page. An event says that an outcome is known,
and the page then asks for it, because outcomes may be long. A new comparison replaces the one that
runs.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import NoCommonRevision
from ..revisions import OFFICIAL
from .calls import CallRecord
from .compare import (
    ComparedRequest,
    ComparedRevision,
    Comparison,
    add_differences,
    compare_revisions,
)
from .events import to_fields
from .refusal import Refused

if TYPE_CHECKING:
    from .. import Client
    from .state import InspectorState


class RunningComparison:
    """A request, and what is known of its outcome in each revision."""

    def __init__(self, number: int, request: ComparedRequest, revisions: Sequence[str]) -> None:
        self.number, self.request = number, request
        self.status = "running"
        self.outcomes = {name: ComparedRevision(name, "running") for name in revisions}
        """In the order of the revisions."""
        self.task: asyncio.Task[None] | None = None

    def fields(self) -> dict[str, Any]:
        """Return what the page shows while it runs."""
        return {
            "comparison": self.number,
            "method": self.request.method,
            "params": bytes(self.request.params).decode(),
            "status": self.status,
            "revisions": {name: one.status for name, one in self.outcomes.items()},
        }

    def is_not_answered(self, revision: str) -> bool:
        """Return whether the server has said that it does not use a revision."""
        error = self.outcomes[revision].error
        return error is not None and error.type == NoCommonRevision.__name__


class Comparisons:
    """The comparisons of one inspector.

    Args:
        state: The inspector.
    """

    def __init__(self, state: "InspectorState") -> None:
        self._state = state
        self.last: RunningComparison | None = None

    def fields(self) -> dict[str, Any] | None:
        """Return what the page shows of the last comparison, if there is one."""
        return None if self.last is None else self.last.fields()

    def start(self, request: ComparedRequest, revisions: Sequence[str]) -> RunningComparison:
        """Send a request in many revisions. A comparison that is running is cancelled.

        Args:
            request: The request.
            revisions: The revisions, newest first.
        """
        self.cancel()
        number = 1 if self.last is None else self.last.number + 1
        comparison = self.last = RunningComparison(number, request, revisions)
        comparison.task = self._state.tasks.start(self._run(comparison))
        self._report(comparison)
        return comparison

    def cancel(self) -> None:
        """Cancel the comparison, if one is running."""
        comparison = self.last
        if comparison is None or comparison.task is None or comparison.status != "running":
            return
        comparison.status = "cancelled"
        for name, one in comparison.outcomes.items():
            if one.status == "running":
                comparison.outcomes[name] = ComparedRevision(name, "cancelled")
        comparison.task.cancel()
        self._report(comparison)

    async def read(self) -> Comparison:
        """Return what is known so far.

        Raises:
            Refused: There was no comparison.
        """
        if self.last is None:
            raise Refused("Nothing was compared yet.", status=404)
        params = bytes(self.last.request.params).decode()
        return await self._add_differences(list(self.last.outcomes.values()), params)

    async def compare_calls(self, before: str, after: str | None) -> Comparison:
        """Compare the outcomes of two calls, as if they were two revisions.

        Args:
            before: The id of the first call.
            after: The id of the second call; None if there is none yet.

        Raises:
            Refused: There is no such call.
        """
        first = self._state.calls.find(before)
        outcomes = [_to_outcome("before", first)]
        if after is not None:
            outcomes.append(_to_outcome("after", self._state.calls.find(after)))
        return await self._add_differences(outcomes, first.params)

    async def _add_differences(self, outcomes: list[ComparedRevision], params: str) -> Comparison:
        mask = not self._state.settings.show_secrets
        return await asyncio.to_thread(add_differences, outcomes, params, mask=mask)

    async def _run(self, comparison: RunningComparison) -> None:
        def on_outcome(outcome: ComparedRevision) -> None:
            if comparison.status == "running":
                comparison.outcomes[outcome.revision] = outcome
                self._report(comparison)

        await compare_revisions(
            self._make_client,
            list(comparison.outcomes),
            comparison.request,
            on_outcome,
            show_secrets=self._state.settings.show_secrets,
        )
        comparison.status = "done"
        self._learn_revisions(comparison)
        self._report(comparison)

    def _make_client(self, **options: Any) -> "Client":
        session = self._state.session
        common = {} if session is None else session.client_options()
        return self._state.settings.make_client(**common, **options)

    def _learn_revisions(self, comparison: RunningComparison) -> None:
        """If it is clear in which of all revisions the server answers, remember that."""
        outcomes = comparison.outcomes
        answered = {name for name, one in outcomes.items() if one.is_connected}
        is_clear = all(name in answered or comparison.is_not_answered(name) for name in outcomes)
        if is_clear and answered and outcomes.keys() >= {one.name for one in OFFICIAL}:
            self._state.revisions.set([name for name in outcomes if name in answered])

    def _report(self, comparison: RunningComparison) -> None:
        if comparison is self.last:
            self._state.report_changed("comparison", comparison.fields())


def _to_outcome(name: str, call: CallRecord) -> ComparedRevision:
    """Return a call in the form of a revision with this name."""
    return msgspec.convert(to_fields(call) | {"revision": name}, ComparedRevision)
