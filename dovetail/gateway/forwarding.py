"""The headers of a caller that reach a server.

No header of a caller leaves the gateway, with two exceptions. The headers that the server's entry
names in `forward` are sent on a connection of the caller's own: their values are part of its key.
`Mcp-Param-*` headers repeat arguments of one call. The client side writes them again from the
arguments, by the schema of the tool, and those that the schema does not mention pass unchanged.
"""

from collections.abc import Iterable, Mapping

from ..config import ServerSettings
from ..config.forward import check_forward, is_safe_value
from ..errors import ConfigError, InvalidParams
from ..ports import Call, Guard
from ..text import quote


def check_forwarding(settings: Mapping[str, ServerSettings], guard: Guard | None) -> None:
    """Raise ConfigError if a server would get a header in which callers send their credentials for
    the gateway.

    Args:
        settings: The settings of each server, by name.
        guard: The guard of the gateway.
    """
    secrets = getattr(guard, "secrets", ())
    for name, one in settings.items():
        try:
            check_forward(one.forward, secrets=secrets)
        except ConfigError as error:
            raise ConfigError(f"server {name!r}: {error}") from None


def forwarded_headers(names: Iterable[str], call: Call) -> tuple[tuple[str, str], ...]:
    """Return the headers of a caller that its connection to a server carries.

    Args:
        names: The names in `forward`.
        call: The call of the caller.

    Raises:
        InvalidParams: A value cannot be sent, because it contains control characters.
    """
    sent = call.connection.headers
    return tuple(
        (name, _check_value(name, sent[name.lower()]))
        for name in sorted(names)
        if name.lower() in sent
    )


def header_params_of(call: Call) -> dict[str, str]:
    """Return the `Mcp-Param-*` headers with which a call arrived.

    The HTTP endpoint has refused values that are not printable.

    Args:
        call: The call of the caller.
    """
    return dict(getattr(call.connection, "header_params", {}))


def _check_value(name: str, value: str) -> str:
    if not is_safe_value(value):
        raise InvalidParams(f"The header {quote(name)} contains control characters")
    return value
