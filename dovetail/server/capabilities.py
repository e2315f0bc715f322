"""What a server declares: what is registered at that moment, unless `Server(capabilities=…)` says
otherwise.

A kind is registered if there is any component of it, no matter who may use it: all callers are told
the same. What is declared does not limit what is served. A component that is registered later is
served and announced too, although earlier clients were not told that there is such a kind.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import ValidationError

from ..errors import ConfigError
from ..protocol.lifecycle import ServerCapabilities

Kind: TypeAlias = Literal["tools", "resources", "prompts", "completions"]
CapabilityChoices: TypeAlias = Mapping[Kind, bool | Mapping[str, Any]]
"""Which kinds to declare (True, or exactly these options) or not to declare (False), whatever is
registered."""

KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULTS = ServerCapabilities.lift(
    {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
    }
)


def resolve_choices(choices: CapabilityChoices | None) -> dict[str, Mapping[str, Any] | None]:
    """Return what to declare of each chosen kind, or None to declare nothing; raise ConfigError if
    a choice is not valid."""
    resolved: dict[str, Mapping[str, Any] | None] = {}
    for kind, choice in (choices or {}).items():
        if kind not in KINDS:
            raise ConfigError(
                f"capabilities= has no {kind!r}, only {', '.join(KINDS)}. Logging is always "
                "declared, and experimental= and extensions= declare the rest"
            )
        if isinstance(choice, bool):
            resolved[kind] = DEFAULTS[kind] if choice else None
            continue
        try:
            resolved[kind] = ServerCapabilities.lift({kind: choice})[kind]
        except (ValidationError, KeyError):
            raise ConfigError(
                f"capabilities={{{kind!r}: {choice!r}}}: use True to declare it, False not to "
                'declare it, or its options, such as {"listChanged": True}'
            ) from None
    return resolved
