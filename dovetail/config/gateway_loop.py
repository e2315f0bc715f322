"""Entries that run `dovetail gateway` on a file, and files that would serve themselves that way."""

from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError
from ..text import quote
from .files import SUFFIXES, read
from .servers import ServerConfig

_PROGRAMS = ("dovetail", "dovetail-mcp")
_OTHER_FILES = ("--policy", "--store")
"""The options of `dovetail gateway` whose value is another file."""


def served_file(server: ServerConfig) -> Path | None:
    """Return the file whose servers an entry serves through `dovetail gateway`. None if the entry
    is anything else, such as a gateway of one URL.

    Args:
        server: The entry.
    """
    words = [server.command or "", *server.args]
    for at in range(1, len(words)):
        if words[at] == "gateway" and Path(words[at - 1]).stem in _PROGRAMS:
            pairs = zip(words[at:], words[at + 1 :], strict=False)
            for before, word in pairs:
                is_file = "://" not in word and Path(word).suffix.lower() in SUFFIXES
                if is_file and not word.startswith("-") and before not in _OTHER_FILES:
                    return Path(server.cwd or "", word)
    return None


def refuse_loop(
    servers: Mapping[str, ServerConfig], file: Path, above: tuple[Path, ...] = ()
) -> None:
    """Refuse a file if one of its servers is a gateway that serves the same file, directly or
    through other files. Each gateway would start the next one, without an end.

    Args:
        servers: The servers of the file.
        file: The file.
        above: The files whose gateways lead to this one.

    Raises:
        ConfigError: There is such a server. The message names it.
    """
    files = (*above, file.resolve())
    for name, server in servers.items():
        served = None if server.disabled else served_file(server)
        if served is None:
            continue
        if served.resolve() in files:
            raise ConfigError(
                f"{file}: server {quote(name)} is a gateway that serves {served}, so it would "
                "start itself again and again. Remove the entry."
            )
        try:
            nested = read(served)
        except ConfigError:
            continue  # that gateway will say so itself
        refuse_loop(nested, served, files)
