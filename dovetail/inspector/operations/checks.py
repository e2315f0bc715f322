"""Operations of the Checks panel: what `dovetail check` reports, and what the project accepts."""

from typing import Any

from ...errors import ConfigError
from ..checks import (
    RULES,
    IgnoreEntry,
    add_ignore,
    apply_ignores,
    check_server,
    history_file,
    read_history,
    read_ignores,
    target_key,
)
from ..refusal import Refused
from ..state import InspectorState
from .registry import operation


@operation
async def check(state: InspectorState, *, again: bool = False) -> dict[str, Any]:
    """Check the server, and return the findings, the worst first, and how many are ignored.
    Descriptions that changed are reported until the user checks again."""
    try:
        ignores = read_ignores()
    except ConfigError as error:
        raise Refused(str(error), "Correct the file, and check again.") from None
    client, settings = state.client, state.settings
    key = target_key(settings.command or settings.target, settings.server, settings.cwd)
    file = history_file(key)
    before = read_history(file) if again or state.checked is None else state.checked
    findings = await check_server(client, key, before)
    state.checked = read_history(file) | before  # with what is new
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
