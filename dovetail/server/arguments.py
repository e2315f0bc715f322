"""What is said of arguments before any function is looked at. Kept apart from `signature.py`, which
is heavy to load and is loaded when the first function is registered."""

from typing import Any, Final


class ArgumentError(ValueError):
    """Arguments that a function does not take; the text tells a model all that is wrong with
    them."""


class _Empty:
    """No annotation."""


EMPTY: Final[Any] = _Empty
"""Stands for a return annotation that is not there."""
