"""The page's own files, and the headers with which they are sent.

The files are read once, when the command starts, and served by their name: a path is looked up and
never joined, so no path leads anywhere else.
"""

import base64
import hashlib
import json
import re
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError, install_command

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
"""The files that are served, by their suffix. Others, such as licences, are not."""
CSP = (
    "default-src 'none'; script-src 'self'{hash}; style-src 'self'; img-src 'self' data: blob:; "
    "media-src blob: data:; connect-src 'self'; frame-src {frames}; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_IMPORT_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)

HeaderList = list[tuple[bytes, bytes]]


class PageFiles(Struct, frozen=True):
    """The files by their path in a URL, and the headers of every response."""

    paths: dict[str, tuple[bytes, bytes]]
    """The contents of each file and its media type."""
    headers: HeaderList


def load_files(folder: Path = STATIC, frames: str = "'none'") -> PageFiles:
    """Return the files of the page.

    Args:
        folder: The folder of the page.
        frames: The origin of frames that the page may show.

    Raises:
        ConfigError: The page, or a library that it uses, is missing.
    """
    _check_complete(folder)
    paths = {
        f"/static/{path.relative_to(folder).as_posix()}": (
            path.read_bytes(),
            MEDIA_TYPES[path.suffix].encode(),
        )
        for path in folder.rglob("*")
        if path.suffix in MEDIA_TYPES and path.is_file()
    }
    index = (folder / "index.html").read_bytes()
    paths["/"] = (index, MEDIA_TYPES[".html"].encode())
    found = _IMPORT_MAP.search(index)
    digest = "" if found is None else base64.b64encode(hashlib.sha256(found[1]).digest()).decode()
    policy = CSP.format(hash=f" 'sha256-{digest}'" if digest else "", frames=frames)
    return PageFiles(paths, [(b"content-security-policy", policy.encode()), *SAFE_HEADERS])


def _check_complete(folder: Path) -> None:
    try:
        rows = json.loads((folder / "vendor.json").read_bytes())
        missing = [
            row["saved_as"] for row in rows if not (folder / "vendor" / row["saved_as"]).is_file()
        ]
    except FileNotFoundError:
        missing = ["vendor.json"]
    if missing or not (folder / "index.html").is_file():
        raise ConfigError(
            "This installation does not contain the inspector's page. In a checkout, run: make "
            "assets. Otherwise, install a wheel from PyPI: "
            f"{install_command('http')} --force-reinstall"
        )
