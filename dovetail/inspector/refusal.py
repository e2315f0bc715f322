"""The error of an operation that cannot be done as requested."""

from ..errors import DovetailError
from .events import encode_event


class Refused(DovetailError):
    """An operation was refused.

    Args:
        message: What is wrong.
        what_to_do: What to do about it.
        status: The HTTP status of the answer.
        line: The line of the problem in a text that the user wrote, from 1.
        column: Its column, from 1.
    """

    def __init__(
        self,
        message: str,
        what_to_do: str = "",
        *,
        status: int = 400,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.what_to_do, self.status = message, what_to_do, status
        self.line, self.column = line, column

    def document(self) -> bytes:
        """Return the body of the answer."""
        error = {
            "message": self.message,
            "what_to_do": self.what_to_do,
            "line": self.line,
            "column": self.column,
        }
        return encode_event(
            {"error": {key: value for key, value in error.items() if value is not None}}
        )
