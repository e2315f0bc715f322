"""Everything that the page can do, one topic per file."""

from . import (  # noqa: F401
    apps,
    calls,
    checks,
    compare,
    connection,
    export,
    features,
    load,
    login,
    questions,
    recording,
    saved,
    settings,
    skills,
    tasks,
    texts,
)
from .registry import OPERATIONS, run_operation

__all__ = ["OPERATIONS", "run_operation"]
