"""Everything that the page can do, one topic per file."""

from . import calls, checks, connection, features, questions, settings, skills, texts  # noqa: F401
from .registry import OPERATIONS, run_operation

__all__ = ["OPERATIONS", "run_operation"]
