"""Registration of apps: the functions behind `server.add_app`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..extensions.apps.settings import MIME_TYPE, app_meta, get_view_uri, is_document
from .tools import RegisteredTool

SETTINGS = (
    "connect_domains", "resource_domains", "frame_domains", "base_uri_domains", "permissions",
    "domain", "prefers_border",
)  # fmt: skip
"""The options of an app that a resource does not have."""


def app_resource(
    uri: str, html: str | Path | Callable[..., Any], given: dict[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function that provides an app's document, and the options of its resource."""
    settings = {name: value for name, value in given.items() if name in SETTINGS}
    options = {name: value for name, value in given.items() if name not in SETTINGS}
    if "mime_type" in options:
        raise ConfigError(f"App {uri}: the type of an app is always {MIME_TYPE}; remove mime_type=")
    meta = {**(options.pop("meta", None) or {}), **app_meta(uri, **settings)}
    about: dict[str, Any] = {"mime_type": MIME_TYPE, "meta": meta or None}
    if not callable(html):
        about |= {"name": uri.rpartition("/")[2], "description": None}
        html = _document(uri, html)
    return html, about | options


def _document(uri: str, html: str | Path) -> Callable[[], str]:
    """Return a function that provides the document; a file is read again each time."""
    place = html.resolve() if isinstance(html, Path) else html
    if isinstance(place, Path) and not place.is_file():
        raise ConfigError(f"App {uri}: the file {place} does not exist")

    def read() -> str:
        return place if isinstance(place, str) else place.read_text(encoding="utf-8")

    if not is_document(read()):
        what = (
            str(html)
            if isinstance(html, Path)
            else repr(html if len(html) <= 40 else html[:40] + "…")
        )
        raise ConfigError(
            f"App {uri}: {what} is not an HTML document, which starts with <!doctype html>; for "
            "a file, pass Path(…)"
        )
    return read


def check_unused(uri: str, known: Iterable[RegisteredTool], shows: Callable[[str], bool]) -> None:
    """Raise ConfigError if a tool has its view at `uri`, which "MUST exist on the server"."""
    for tool in known:
        view = get_view_uri(tool.listed)
        if view is not None and shows(view):
            raise ConfigError(
                f"{uri} is the view of the tool {tool.listed.name!r}; remove the tool first"
            )
