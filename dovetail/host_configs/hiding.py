"""Hide the secrets of an entry before it is shown.

The values of variables and headers are always hidden, unless they are references such as `${KEY}`.
What else is a secret, `masking` decides. An entry of another program may have secrets anywhere, so
almost all of its values are hidden.
"""

from collections.abc import Mapping
from typing import Any

from ..masking import is_secret_name, mask_arguments, mask_url

HIDDEN = "********"
_ALWAYS_HIDDEN = ("env", "envs", "environment", "headers", "http_headers")
_ALWAYS_SHOWN = ("type", "command", "cmd")


def hide_values(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without its secrets.

    Args:
        entry: The entry, in the form of any host.
    """
    return {key: _hide_field(key, value) for key, value in entry.items()}


def hide_all(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an entry that Dovetail did not write, with its type and its command.

    Args:
        entry: The entry, in the form of any host.
    """
    return {
        key: hide_all(value)
        if isinstance(value, Mapping)
        else value
        if isinstance(value, bool) or (key in _ALWAYS_SHOWN and isinstance(value, str))
        else _hide(value)
        for key, value in entry.items()
    }


def has_secrets(entry: Any) -> bool:
    """Return whether an entry has values that must not be shown.

    Args:
        entry: The entry, in the form of any host.
    """
    return isinstance(entry, Mapping) and hide_values(entry) != entry


def _hide_field(key: str, value: Any) -> Any:
    if isinstance(value, Mapping) and key in _ALWAYS_HIDDEN:
        return {name: _hide(one) for name, one in value.items()}
    if isinstance(value, Mapping):
        return hide_values(value)
    if is_secret_name(key):
        return _hide(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return mask_arguments(value)
    return mask_url(value) if isinstance(value, str) else value


def _hide(value: Any) -> Any:
    is_reference = isinstance(value, str) and value.startswith(("${", "{env:")) and value[-1] == "}"
    return value if is_reference else HIDDEN
