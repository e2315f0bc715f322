"""`dovetail inspect TARGET --web`: serve the inspector's page, and open it in the browser.

The URL contains the token of the page. It is printed, and never passed to another program: the
browser opens a file that only the user can read, which redirects to the page. Otherwise, every user
of the machine could read the token in the list of processes.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..net import is_loopback
from .options import URL, integer, parse_target
from .output import print_error
from .session import make_client

if TYPE_CHECKING:
    from ..inspector import Background
    from ..inspector.state import InspectorSettings

LOOPBACK = "127.0.0.1"
WEB_ONLY = ("port", "no_open", "host", "allow_remote", "root", "show_secrets", "record")
"""The options that need `--web`."""
SERVER_ONLY = ("server", "cwd", "header", "revision", "record", "root")
"""The options that make no sense for a recording."""
REMOTE_REFUSED = (
    "--host {host} would let other machines open the page, call every tool and read every message. "
    "Add --allow-remote if you want that, in a network that you trust."
)
REMOTE_WARNING = (
    "Warning: everyone who can reach {host} and has the URL can call every tool and read every "
    "message. The connection is not encrypted, so everyone on the way can read the URL's token."
)
REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>Inspector</title>
<p><a href="{url}">Open the inspector</a></p>
"""


def add_web_options(parser: ArgumentParser) -> None:
    """Add the options of the page."""
    group = parser.add_argument_group("page")
    add = group.add_argument
    add("--port", type=integer(1, 65535), help="port of the page (default: a free one)")
    add("--no-open", action="store_true", help="do not open the browser")
    add("--host", metavar="HOST", help=f"address to listen on (default: {LOOPBACK})")
    add("--allow-remote", action="store_true", help="allow a --host that other machines can reach")
    add("--record", metavar="FILE", help="record the session to this new file")
    add("--root", metavar="DIR", action="append", help="a folder to offer as a root; repeatable")
    add("--show-secrets", action="store_true", help="show credentials instead of masking them")


def check_web_options(options: Namespace) -> None:
    """Refuse options of the page without `--web`."""
    for name in WEB_ONLY:
        if getattr(options, name):
            raise ConfigError(f"--{name.replace('_', '-')} requires --web")


def serve_page(
    options: Namespace,
    connect: "Callable[..., Any] | None" = None,
    background: "Background | None" = None,
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        options: The command line.
        connect: Returns a client for the target; called with options of `Client` (default: that of
            the command line).
        background: Work that runs as long as the page.
    """
    host = _check_host(options)
    settings = _make_settings(options, connect or (lambda **more: make_client(options, **more)))
    settings.make_client()  # reports a wrong command line before anything is started
    _serve(options, settings, host, background)


def is_recording(options: Namespace) -> bool:
    """Return whether TARGET is a recording."""
    from ..mcplog import SUFFIX

    target: str = options.target
    return target.endswith(SUFFIX) and URL.fullmatch(target) is None and os.path.isfile(target)


def serve_recording(options: Namespace) -> None:
    """Serve the page of a recording until Ctrl-C. No server is needed."""
    from ..mcplog import read_mcplog

    for name in SERVER_ONLY:
        if getattr(options, name):
            raise ConfigError(f"--{name} requires a server, but {options.target} is a recording")
    host = _check_host(options)
    recording = read_mcplog(options.target)
    from ..inspector.recorded import recorded_settings

    settings = recorded_settings(recording, Path(options.target), options.show_secrets)
    if recording.note is not None:
        print_error(recording.note)
    _serve(options, settings, host)


def _serve(
    options: Namespace,
    settings: "InspectorSettings",
    host: str,
    background: "Background | None" = None,
) -> None:
    from ..serve.plain_app import open_port

    memory = _PortMemory(options)
    listening = open_port(host, options.port, memory.read())
    from ..inspector import serve

    with _browser(options) as open_page, listening:
        memory.write(listening.getsockname()[1])

        def on_ready(url: str) -> None:
            shown = options.target if settings.recording else settings.target
            _print_url(options, shown, url)
            open_page(url)

        serve(settings, listening, host=host, on_ready=on_ready, background=background)


def _check_host(options: Namespace) -> str:
    host: str = options.host or LOOPBACK
    if host.lower() == "localhost":
        raise ConfigError(
            f"--host localhost: pages of other programs share this name. Use {LOOPBACK}"
        )
    if not is_loopback(host):
        if not options.allow_remote:
            raise ConfigError(REMOTE_REFUSED.format(host=host))
        print_error(REMOTE_WARNING.format(host=host))
    return host


def _make_settings(options: Namespace, connect: "Callable[..., Any]") -> "InspectorSettings":
    from ..inspector.state import InspectorSettings
    from .login import find_inspector_login

    roots = tuple(Path(root).resolve() for root in options.root or ())
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"--root {root}: there is no such folder")
    return InspectorSettings(
        target=_show_target(options),
        make_client=connect,
        command=parse_target(options),
        server=options.server,
        revision=options.revision,
        env=dict(options.env),
        headers=dict(options.header),
        cwd=options.cwd,
        roots=roots,
        show_secrets=options.show_secrets,
        login=find_inspector_login(options),
        on_stderr=(lambda line: print_error(f"server: {line}")) if options.verbose else None,
        on_notice=print_error,
        record_to=None if options.record is None else Path(options.record),
    )


def _show_target(options: Namespace) -> str:
    """Return the target without secrets, as messages show it."""
    from ..mcplog import hide_secrets

    text: str = options.server or options.target
    words = text if URL.fullmatch(text) else parse_target(options)
    shown = hide_secrets(words)
    return shown if isinstance(shown, str) else " ".join(shown)


def _print_url(options: Namespace, target: str, url: str) -> None:
    if options.json:
        import json

        print(json.dumps({"url": url}), flush=True)
        return
    hint = " (press Ctrl-C to stop)" if sys.stderr.isatty() else ""
    print_error(f"Inspecting {target} on {url}{hint}")


# the browser


@contextmanager
def _browser(options: Namespace) -> "Iterator[Callable[[str], None]]":
    """Provide a function that opens the page in the browser. Its file is removed at the end."""
    if options.no_open:
        yield lambda url: None
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:  # mode 0700
        path = Path(folder, "inspector.html")

        def open_page(url: str) -> None:
            import webbrowser

            from ..aio import run_in_daemon_thread

            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(REDIRECT.format(url=url))
            run_in_daemon_thread(lambda: webbrowser.open(path.as_uri()), "browser")

        yield open_page


# the port


class _PortMemory:
    """Remembers the port of each target, so that a page that is still open finds the next run. It
    is a convenience: whatever goes wrong, a free port is used."""

    def __init__(self, options: Namespace) -> None:
        from hashlib import sha256

        key = "\0".join((os.getcwd(), options.verb, options.target, options.server or ""))
        self._key = sha256(key.encode(errors="surrogateescape")).hexdigest()[:16]

    def read(self) -> int | None:
        try:
            return int(self._path().read_text())
        except (OSError, ValueError):
            return None

    def write(self, port: int) -> None:
        try:
            path = self._path()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(str(port))
        except (OSError, ValueError):
            pass

    def _path(self) -> Path:
        from ..config.state_folder import state_folder

        return state_folder() / "ports" / self._key
