"""The inspector: a local web page that shows what a server offers and every message to and from it.

`dovetail inspect TARGET --web` and `dovetail dev` serve it. State lives here, in Python; the page
(`static/`) is a view of it. See docs/design/inspector.md.
"""

import secrets
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import AccessPolicy
    from .state import InspectorSettings, InspectorState
    from .view_listener import ViewListener

TOKEN_BYTES = 24
Background = Callable[["InspectorState"], Coroutine[Any, Any, None]]
"""Work that runs as long as the page, such as watching files."""


def serve(
    settings: "InspectorSettings",
    listening: socket.socket,
    *,
    host: str,
    on_ready: Callable[[str], None],
    background: Background | None = None,
) -> None:
    """Serve the page of one target until a signal arrives.

    Args:
        settings: The target, and what the page may do.
        listening: The socket to listen on.
        host: The host that the socket is bound to.
        on_ready: Called with the URL of the page, which contains its token, once it can be opened.
        background: Work that runs as long as the page (default: none).

    Raises:
        ConfigError: The page or one of its libraries is missing.
    """
    from ..serve.plain_app import Asgi, PlainApp, run_plain_app
    from .files import load_files
    from .recorded import make_state

    views = open_view_listener(host)
    files = load_files() if isinstance(views, str) else load_files(frames=views.origin)
    state = make_state(settings)
    policy = make_policy(host, listening.getsockname()[1], secrets.token_urlsafe(TOKEN_BYTES))
    state.apps.use(views, page_url(policy).partition("/#")[0])

    def start() -> None:
        state.start()
        if background is not None:
            state.tasks.start(background(state))

    def load() -> Asgi:
        from .app import InspectorApp
        from .view_listener import route_by_port

        page = InspectorApp(state, policy, files)
        return page if isinstance(views, str) else route_by_port(views, page)

    def open() -> None:
        on_ready(page_url(policy))

    sockets = [listening] if isinstance(views, str) else [listening, *views.sockets]
    run_plain_app(PlainApp(start, load, open, state.close), sockets)


def open_view_listener(host: str) -> "ViewListener | str":
    """Return the listener for the views of apps, or why there is none: a browser on another machine
    would look for `localhost` there, or no port can be used.

    Args:
        host: The host that the page is bound to.
    """
    from ..net import is_loopback
    from .apps import NO_PORT, NOT_SHOWN
    from .view_listener import ViewListener

    if not is_loopback(host):
        return NOT_SHOWN
    try:
        return ViewListener()
    except OSError as problem:
        return NO_PORT.format(reason=problem.strerror or problem)


def make_policy(host: str, port: int, token: str) -> "AccessPolicy":
    """Return who may use a page.

    Args:
        host: The host that the page is bound to.
        port: Its port.
        token: Its token.
    """
    from .access import AccessPolicy

    if host in ("", "0.0.0.0", "::"):
        name = socket.gethostname().lower()
        return AccessPolicy(token, port, (name,), any_address=True)
    return AccessPolicy(token, port, (f"[{host}]" if ":" in host else host.lower(),))


def page_url(policy: "AccessPolicy") -> str:
    """Return the URL of a page, with its token in the fragment.

    Args:
        policy: Who may use it.
    """
    return f"http://{policy.hosts[0]}:{policy.port}/#{policy.token}"
