"""Everything that the page can do, one topic per file."""

from . import calls, connection, questions, texts
from .registry import OPERATIONS, run_operation

__all__ = ["OPERATIONS", "calls", "connection", "questions", "run_operation", "texts"]
