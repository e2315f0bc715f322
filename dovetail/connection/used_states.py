"""The request states that were used, if a state may be used only once (`Server(single_use=True)`).

A process remembers the states that it accepted until they expire. The number of states is bounded:
if the oldest has to be forgotten before it expires, states that expire no later are refused, too,
so no state is ever accepted twice. Processes that share a backend remember the states there. A
state that cannot be looked up is refused.
"""

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..backend.protocols import Rows

MAX_USED = 100_000
"""The number of states that a process remembers."""


class UsedStates:
    """The states that were used.

    Args:
        rows: The rows that the processes share, or None to remember states in this process.
        life: How long a state is valid, in seconds.
    """

    def __init__(self, rows: "Rows | None", life: float) -> None:
        self._rows, self._life = rows, life
        self._expires: OrderedDict[str, float] = OrderedDict()
        """When each state expires, in the order of use."""
        self._floor = 0.0
        """States that expire no later than this may have been used."""

    async def use(self, id: str, expires: float) -> bool:
        """Use a state. Return False if it was used before.

        Args:
            id: The id of the state.
            expires: When it expires, by the clock of this process.

        Raises:
            BackendAway: The state cannot be looked up.
        """
        if self._rows is not None:
            return await self._rows.add(id, b"", self._life)
        used, now = self._expires, time.time()
        while used and (next(iter(used.values())) < now or len(used) >= MAX_USED):
            self._floor = max(self._floor, used.popitem(last=False)[1])
        if id in used or expires <= self._floor:
            return False
        used[id] = expires
        return True
