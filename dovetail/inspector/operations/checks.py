"""Operations of the Checks panel: what `dovetail check` reports, and what the project accepts."""

from typing import Any

from ...errors import ConfigError
from ..checks import (
    RULES,
    IgnoreEntry,
    add_ignore,
    apply_ignores,
    check_server,
    read_ignores,
)
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation


@operation
async def check(state: InspectorState) -> dict[str, Any]:
    """Check the server, and return the findings, the worst first, and how many are ignored."""
    try:
        ignores = read_ignores()
    except ConfigError as error:
        raise Refused(str(error), "Correct the file, and check again.") from None
    findings = await check_server(state.client, state.settings.target)
    reported, ignored = apply_ignores(findings, ignores)
    return {"findings": reported, "ignored": len(ignored)}


@operation
async def ignore(
    state: InspectorState, *, rule: str, tool: str | None = None, reason: str | None = None
) -> None:
    """Add one entry to `.dovetail/check.toml`."""
    if rule not in RULES:
        raise Refused(f"There is no rule {rule!r}.")
    try:
        add_ignore(IgnoreEntry(rule, tool, reason))
    except (ConfigError, OSError) as error:
        raise Refused(str(error), "Correct the file, and try again.") from None
