"""The operation that turns a request into something to paste elsewhere."""

from typing import Any

from ...errors import ConfigError
from ...revisions import BY_NAME
from ..export import ExportedRequest, ExportForm, export_request
from ..login import LoginTarget
from ..state import InspectorState
from .registry import operation


@operation
async def export(
    state: InspectorState, *, message: str, form: ExportForm, reply: str | None = None
) -> dict[str, Any]:
    """Return a request of the wire as a command line, Python, a test, curl or JSON, or why it
    cannot be written in that form."""
    request = await make_request(state, message.encode(), form, (reply or "").encode())
    try:
        return {"text": export_request(request, form)}
    except ConfigError as problem:
        return {"text": "", "problem": str(problem)}


async def make_request(
    state: InspectorState, message: bytes, form: ExportForm, reply: bytes = b""
) -> ExportedRequest:
    """Return a request with what is known about its server.

    Args:
        state: The inspector.
        message: The request.
        form: The form to export it in. Only curl names the revision that was agreed on; the other
            forms agree on one themselves, unless the user has chosen one.
        reply: The reply to it.
    """
    settings, status, login = state.settings, state.status, state.settings.login
    agreed: str | None = status.get("revision")
    revision = BY_NAME.get(agreed or "")
    return ExportedRequest(
        message,
        settings.command or settings.target,
        agreed if form == "curl" else status.get("chosen") or settings.revision,
        reply or None,
        is_stateless=revision is not None and revision.stateless,
        server=settings.server,
        env=settings.env,
        headers=settings.headers,
        cwd=settings.cwd,
        needs_login=isinstance(login, LoginTarget) and await login.describe() is not None,
        show_secrets=settings.show_secrets,
    )
