"""Extensions of the protocol: what anyone needs to write one, and those that come with Dovetail,
written with the same.

    from dovetail.extensions import Extension, Kind, Method, Params, Result

What an extension is stands in `connection/extension.py`; how to write one, in
docs/guides/extensions.md.
"""

from ..connection.extension import (
    Extension,
    ResultKind,
    has_declared,
    missing_extension,
    notify,
    settings_of,
)
from ..connection.middleware import Observer
from ..ports import Call
from ..protocol.base import EmptyResult, Params, Result
from ..protocol.methods import Method

__all__ = [
    "Call",
    "EmptyResult",
    "Extension",
    "Method",
    "Observer",
    "Params",
    "Result",
    "ResultKind",
    "has_declared",
    "missing_extension",
    "notify",
    "settings_of",
]  # fmt: skip
