"""How many questions a server may ask per minute (`Limits.questions`)."""

from collections import deque
from time import monotonic
from typing import Final

from ..errors import Overloaded

MINUTE_SECONDS: Final = 60.0


class QuestionLimit:
    """Counts the questions of one server.

    Args:
        per_minute: The number of questions that are allowed in a minute.
    """

    __slots__ = ("recent",)

    def __init__(self, per_minute: int) -> None:
        self.recent = deque[float](maxlen=per_minute)
        """When the newest questions arrived."""

    @property
    def is_in_use(self) -> bool:
        """Whether there was a question in the last minute."""
        return bool(self.recent) and monotonic() - self.recent[-1] < MINUTE_SECONDS

    def count(self, method: str) -> None:
        """Count a question.

        Args:
            method: The method of the question, for the error.

        Raises:
            Overloaded: The server asked too many questions in the last minute.
        """
        now, recent = monotonic(), self.recent
        is_full = len(recent) == recent.maxlen
        if is_full and (not recent.maxlen or now - recent[0] < MINUTE_SECONDS):
            raise Overloaded(
                f"{method}: this client answers at most {recent.maxlen} questions per minute "
                "(Limits.questions)"
            )
        recent.append(now)
