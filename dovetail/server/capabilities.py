"""The capabilities that a server declares. The server declares every registered kind, unless
`Server(capabilities=…)` says otherwise.

A kind is registered if it has any component when the client connects, no matter who may use the
component, so the declaration is the same for every caller. It does not limit the methods that the
server answers: a component that is registered later is also served and announced, although its kind
was not declared to clients that connected earlier.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import ValidationError

from ..errors import ConfigError
from ..protocol.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities

Kind: TypeAlias = Literal["tools", "resources", "prompts", "completions"]
CapabilityChoices: TypeAlias = Mapping[Kind, bool | Mapping[str, Any]]
"""For each kind, whether to declare it (True or False), or the exact options to declare, regardless
of what is registered."""

KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULTS = ServerCapabilities(
    tools=ListCapability(list_changed=True),
    resources=ResourcesCapability(subscribe=True, list_changed=True),
    prompts=ListCapability(list_changed=True),
    completions={},
    logging={},
)


def resolve_choices(choices: CapabilityChoices | None) -> dict[str, Mapping[str, Any] | None]:
    """Return the options to declare for each chosen kind, or None if the kind is not declared;
    raise ConfigError if a choice is not valid."""
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
