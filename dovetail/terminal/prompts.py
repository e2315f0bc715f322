r"""The parts that dialogs with a person share. This module does no I/O.

Text from a server may be hostile. Characters that could affect a terminal are shown as escapes
(`\x1b`). Names and titles stay on one line. Each line of a longer text is printed after a vertical
bar, so that it cannot be mistaken for Dovetail's own text.
"""

import re
from collections.abc import Generator
from urllib.parse import urlsplit

from ..net import is_ip_address, is_loopback
from ..text import escape_unsafe


class KeyPrompt(str):
    """Text that asks for a single key, such as y, n, Enter or !."""

    discard_earlier_keys = False
    """Whether keys that were typed before the text was shown are discarded."""


QUOTE_PREFIX = "  | "
"""Printed before every line of the server's text."""

YES_OR_NO = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class UserDeclined(Exception):
    """The user declines."""


def quote_lines(text: str) -> str:
    """Return text from a server with a bar before each line."""
    return "".join(
        f"{QUOTE_PREFIX}{line}\n" for line in escape_unsafe(text, keep_newlines=True).split("\n")
    )


def prompt(text: str) -> Generator[str, str | None, str]:
    """Show text and return the line that the user types."""
    line = yield text
    if line is None or line.strip() == "!":
        raise UserDeclined
    return line.rstrip("\r\n")


def confirm(text: str, otherwise: bool | None) -> Generator[str, str | None, bool]:
    """Ask a yes-or-no question; an empty line means `otherwise`, or repeats the question if
    `otherwise` is None."""
    while True:
        word = (yield from prompt(KeyPrompt(text))).strip().lower()
        answer = YES_OR_NO.get(word, None if word else otherwise)
        if answer is not None:
            return answer
        text = "  Please answer y or n: "


def require_yes(text: str) -> Generator[str, str | None, None]:
    """Ask a yes-or-no question; raise UserDeclined unless the answer is yes."""
    if not (yield from confirm(text, otherwise=False)):
        raise UserDeclined


def describe_url(url: str) -> str:
    """Return a URL, its host on a line of its own, and warnings if it is suspicious."""
    host = urlsplit(url).hostname or ""
    warned = "".join(f"Warning: {warning}\n" for warning in url_warnings(url))
    return f"URL:  {escape_unsafe(url)}\nHost: {escape_unsafe(host)}\n{warned}"


def url_warnings(url: str) -> list[str]:
    """Return warnings for the user about a URL that will be opened."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    warnings = []
    if any(label.startswith("xn--") for label in host.split(".")):
        warnings.append(
            "the host is written in Punycode and may imitate another host; it is displayed as "
            f"{_from_punycode(host)}"
        )
    if not host.isascii():
        warnings.append(
            "the host contains letters that may look like other letters; its real name is "
            f"{_to_punycode(host)}"
        )
    if "@" in parts.netloc:
        warnings.append("the text before the @ is not the host")
    if not is_loopback(host):
        if is_ip_address(host) or not re.search(r"[^\W\d_]", host) or host.startswith("0x"):
            warnings.append("the host is an IP address, not a name")
        if parts.scheme == "http":
            warnings.append("data sent to this page is not encrypted (http, not https)")
    return warnings


def _from_punycode(host: str) -> str:
    try:
        return escape_unsafe(host.encode().decode("idna"))
    except UnicodeError:
        return "an invalid name"


def _to_punycode(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return "an invalid name"
