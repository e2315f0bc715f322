"""Apps on a server: the functions behind `server.add_app` and `@server.tool(ui=…)`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..extensions.apps.settings import MIME_TYPE, app_meta, is_document, resource_uri
from .tools import RegisteredTool

SETTINGS = (
    "connect_domains", "resource_domains", "frame_domains", "base_uri_domains", "permissions",
    "domain", "prefers_border",
)  # fmt: skip
"""The options of an app that a resource does not have."""


def app_resource(
    uri: str, html: str | Path | Callable[..., Any], given: dict[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function that gives an app's document, and the options of its resource."""
    settings = {name: value for name, value in given.items() if name in SETTINGS}
    options = {name: value for name, value in given.items() if name not in SETTINGS}
    if "mime_type" in options:
        raise ConfigError(f"App {uri}: an app is of type {MIME_TYPE}; leave mime_type= out")
    meta = {**(options.pop("meta", None) or {}), **app_meta(uri, **settings)}
    about: dict[str, Any] = {"mime_type": MIME_TYPE, "meta": meta or None}
    if not callable(html):
        about |= {"name": uri.rpartition("/")[2], "description": None}
        html = _document(uri, html)
    return html, about | options


def _document(uri: str, html: str | Path) -> Callable[[], str]:
    """A document that is given as it is, or as a file, which is read anew each time."""
    place = html.resolve() if isinstance(html, Path) else html
    if isinstance(place, Path) and not place.is_file():
        raise ConfigError(f"App {uri}: there is no file {place}")

    def read() -> str:
        return place if isinstance(place, str) else place.read_text(encoding="utf-8")

    if not is_document(read()):
        what = (
            str(html)
            if isinstance(html, Path)
            else repr(html if len(html) <= 40 else html[:40] + "…")
        )
        raise ConfigError(
            f"App {uri}: {what} is no HTML document, which begins with <!doctype html>; a "
            "file is given as Path(…)"
        )
    return read


def check_unused(uri: str, known: Iterable[RegisteredTool], shows: Callable[[str], bool]) -> None:
    """ConfigError where one of these tools has its view there, which "MUST exist on the server"."""
    for tool in known:
        view = resource_uri(tool.listed)
        if view is not None and shows(view):
            raise ConfigError(
                f"{uri} is the view of the tool {tool.listed.name!r}; remove the tool before it"
            )
