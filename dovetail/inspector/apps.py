"""The view of an MCP App, shown on the page in its sandbox.

The page holds the view's window and passes on its messages; everything that a view may do is
decided here, by the library's `Bridge`. One view is open at a time. It is shown at the origin of
`view_listener.py`, with the policy that the library makes of what the app requests.

A small script at the beginning of the view's document reports what the policy blocked. The rest of
the document is as the server sent it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigError, DovetailError
from ..jsonrpc.messages import encode
from ..masking import mask_message
from .events import cut_text
from .refusal import Refused
from .view_listener import ViewListener

if TYPE_CHECKING:
    from ..extensions.apps import Bridge, View, ViewHost
    from .state import InspectorState

NOT_SHOWN = (
    "Apps are shown at http://localhost, which is another machine for a browser that opened this "
    "page over the network. To see them, run the command without --allow-remote."
)
NO_PORT = "Apps need a port of their own, and none can be opened: {reason}."
NO_VIEW = "This view is no longer open."
VIOLATION = "dovetail/csp-violation"
MAX_VIOLATION_CHARS = 500
MAX_DOCTYPE_CHARS = 4096
PROBE = (
    '<script>addEventListener("securitypolicyviolation",(e)=>parent.postMessage({jsonrpc:"2.0",'
    f'method:"{VIOLATION}",params:{{directive:e.effectiveDirective,blocked:e.blockedURI,'
    'source:e.sourceFile??"",line:e.lineNumber}},"*"),true)</script>'
)


class _OpenApp(Struct, frozen=True, eq=False):
    id: int
    bridge: "Bridge"


class _ShownCall(Struct, frozen=True, eq=False):
    """A tool call whose result can be shown again."""

    tool: str
    arguments: dict[str, Any]
    result: Any


class _Violation(Struct):
    directive: str = ""
    blocked: str = ""
    source: str = ""
    line: int = 0


class _PostedMessage(Struct):
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Apps:
    """The app that the page shows.

    Args:
        state: The inspector.
    """

    def __init__(self, state: "InspectorState") -> None:
        self._state = state
        self._listener: ViewListener | str = NOT_SHOWN
        """Where views are shown, or why they are not."""
        self._page_origin = ""
        self._open: _OpenApp | None = None
        self._last: _ShownCall | None = None
        self._count = 0

    @property
    def why_not(self) -> str | None:
        """Why views cannot be shown; None if they can."""
        return self._listener if isinstance(self._listener, str) else None

    def use(self, listener: ViewListener | str, page_origin: str) -> None:
        """Show views at a listener.

        Args:
            listener: Where the views are, or why they cannot be shown.
            page_origin: The origin of the inspector's page, which may contain them.
        """
        self._listener, self._page_origin = listener, page_origin

    # what the page does

    async def show(
        self, tool: str, arguments: dict[str, Any], context: dict[str, Any], again: bool
    ) -> dict[str, Any]:
        """Open the view of a tool, and call the tool for it. Return what the page needs to show it.

        Args:
            tool: The name of the tool.
            arguments: The arguments of the call.
            context: The view's host context.
            again: Whether to show the last result again, without a call.
        """
        from ..extensions.apps import PROXY_SANDBOX, Bridge

        if isinstance(self._listener, str):
            raise Refused(self._listener, status=409)
        last = self._last if again else None
        if again and (last is None or last.tool != tool):
            raise Refused("There is no result to show again.", "Show the view first.", status=409)
        client = self._state.client
        view: View = await client.read_app(tool)
        self._count += 1
        id = self._count
        host = _make_host(context)
        bridge = Bridge(client, view, lambda message: self._send(id, message), host)
        self._open = _OpenApp(id, bridge)
        probed = replace(view, html=add_probe(view.html))
        self._state.tasks.start(self._feed(self._open, tool, arguments, last))
        return {
            "app": id,
            "src": self._listener.show(view.proxy(self._page_origin)),
            "sandbox": PROXY_SANDBOX,
            "allow": view.allow,
            "uri": view.uri,
            "policy": view.content_security_policy,
            "origins": view.origins,
            "permissions": view.permissions,
            "border": view.prefers_border,
            "resource": encode(probed.resource_ready()).decode(),
        }

    async def _feed(
        self, app: _OpenApp, tool: str, arguments: dict[str, Any], last: _ShownCall | None
    ) -> None:
        """Give the view its tool's input and result."""
        try:
            if last is None:
                result = await app.bridge.call(arguments)
                self._last = _ShownCall(tool, arguments, result)
            else:
                app.bridge.tool_input(last.arguments)
                app.bridge.tool_result(last.result)
        except DovetailError as problem:
            self._state.events.add("app", app=app.id, problem=str(problem))

    async def receive(self, app: int, text: str) -> None:
        """Handle a message that the view posted.

        Args:
            app: The number of the view.
            text: The message, as JSON text.
        """
        opened = self._require(app)
        try:
            parts = msgspec.json.decode(text, type=_PostedMessage)
        except (msgspec.DecodeError, UnicodeError):
            parts = _PostedMessage()
        if parts.method == VIOLATION:
            self._report_violation(app, parts.params)
            return
        self._report(app, "to_host", text.encode(errors="replace"))
        self._state.tasks.start(self._answer(opened, _decode(text)))

    async def _answer(self, app: _OpenApp, message: Any) -> None:
        reply = await app.bridge.handle(message)
        if reply is not None:
            self._send(app.id, reply)

    def change_context(self, app: int, changes: dict[str, Any]) -> None:
        """Change the host context of the view, and tell the view.

        Args:
            app: The number of the view.
            changes: The fields that change.
        """
        try:
            self._require(app).bridge.change_context(**changes)
        except ConfigError as problem:
            raise Refused(str(problem)) from None

    def hide(self, app: int) -> None:
        """Close a view, if it is still the one that is open."""
        if self._open is not None and self._open.id == app:
            self._open = None
            if not isinstance(self._listener, str):
                self._listener.hide()

    def _require(self, app: int) -> _OpenApp:
        if self._open is None or self._open.id != app:
            raise Refused(NO_VIEW, "Show it again.", status=409)
        return self._open

    # events

    def _send(self, app: int, message: Mapping[str, Any]) -> None:
        self._report(app, "to_view", encode(message))

    def _report(self, app: int, direction: str, data: bytes) -> None:
        """Add an `app` event. What is shown may be masked or cut; what the view gets is not."""
        masked = data if self._state.settings.show_secrets else mask_message(data)
        text, whole = cut_text(masked)
        raw = data.decode(errors="replace")
        self._state.events.add(
            "app",
            whole=whole,
            app=app,
            direction=direction,
            text=text,
            bytes=len(data),
            more=None if whole is None else True,
            post=raw if direction == "to_view" and raw != text else None,
        )

    def _report_violation(self, app: int, params: msgspec.Raw) -> None:
        try:
            found = msgspec.json.decode(params, type=_Violation)
        except (msgspec.DecodeError, UnicodeError):
            return
        texts = (found.directive, found.blocked, found.source)
        directive, blocked, source = (text[:MAX_VIOLATION_CHARS] for text in texts)
        violation = {
            "directive": directive,
            "blocked": blocked,
            "source": source,
            "line": found.line,
        }
        self._state.events.add("app", app=app, violation=violation)


def _make_host(context: dict[str, Any]) -> "ViewHost":
    """Return a host that accepts what a view asks for, because the page shows it."""
    from .. import __version__
    from ..extensions.apps import ViewHost

    def accept(*given: Any) -> bool:
        return True

    return ViewHost(
        name="dovetail-inspector",
        version=__version__,
        context=context,
        on_link=accept,
        on_message=accept,
        on_model_context=accept,
        on_log=accept,
    )


def add_probe(html: str) -> str:
    """Return a document that reports what its policy blocks.

    Args:
        html: The document. The script comes after its doctype, on the same line.
    """
    start = html[:MAX_DOCTYPE_CHARS].lower().find("<!doctype")
    end = html.find(">", start) + 1 if start >= 0 else 0
    return html[:end] + PROBE + html[end:]


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
