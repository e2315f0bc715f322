"""The API for writing protocol extensions, and the extensions that come with Dovetail and use the
same API.

    from dovetail.extensions import Extension, Method, Params, Result, ResultKind

`connection/extension.py` defines what an extension is; docs/guides/extensions.md shows how to write
one.
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
    "Call", "EmptyResult", "Extension", "Method", "Observer", "Params", "Result", "ResultKind",
    "has_declared", "missing_extension", "notify", "settings_of",
]  # fmt: skip
