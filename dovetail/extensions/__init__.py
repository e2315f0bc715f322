"""Extensions of the protocol: what anyone needs to write one, and those that come with Dovetail,
written with the same.

    from dovetail.extensions import Extension, Kind, Method, Params, Result

What an extension is stands in `connection/extension.py`; how to write one, in
docs/guides/extensions.md.
"""

from ..connection.extension import Extension, Kind, declares, notify, settings_of, undeclared
from ..connection.middleware import Observer
from ..ports import Call
from ..protocol.base import EmptyResult, Params, Result
from ..protocol.methods import Method

__all__ = [
    "Call", "EmptyResult", "Extension", "Kind", "Method", "Observer", "Params", "Result",
    "declares", "notify", "settings_of", "undeclared",
]  # fmt: skip
