"""Digests of the descriptions that a server had at its last check, in the state folder.

There is one file for each target. It holds digests only, no text of the server, and nothing of the
target but its digest.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from ...config.state_folder import state_folder
from ...errors import ConfigError
from .listing import ServerListing
from .rules import Finding, FindingPlace, found
from .safety import model_texts

Digests = dict[str, str]
"""The digest of the texts of each item, by `tool:name`, and of the instructions."""


def describe_texts(listing: ServerListing) -> Digests:
    """Return the digests of what a model reads.

    Args:
        listing: What the server listed.
    """
    texts = {
        f"{item.source.kind}:{item.name}": list(model_texts(item)) for item in listing.items
    } | {"server:": [("instructions", listing.instructions)]}
    return {
        name: sha256(msgspec.json.encode(sorted(pairs))).hexdigest()
        for name, pairs in texts.items()
    }


def check_changes(before: Digests, listing: ServerListing) -> Iterator[Finding]:
    """Report descriptions that changed. What is new is not reported.

    Args:
        before: The digests of the last check; empty if there was none.
        listing: What the server lists now.
    """
    for name, digest in describe_texts(listing).items():
        if before.get(name, digest) != digest:
            kind, _, item = name.partition(":")
            place = msgspec.convert({"kind": kind, "name": item}, FindingPlace)
            what = "instructions" if kind == "server" else "description"
            yield found("description-changed", place, f"The {what} changed since the last check")


def target_key(command: str | Sequence[str], server: str | None, cwd: str | None) -> str:
    """Return what identifies a server: the same for the terminal and for the page, and different
    for servers with the same name in two folders.

    Args:
        command: The target as `Client` accepts it.
        server: The server to use, if the target is a configuration file.
        cwd: The folder in which the server is started (default: the current one).
    """
    words = [command] if isinstance(command, str) else list(command)
    is_url = isinstance(command, str) and "://" in command
    return "\0".join(["" if is_url else os.path.abspath(cwd or "."), *words, server or ""])


def history_file(target: str) -> Path | None:
    """Return the file with the digests of a target; None if there is no state folder.

    Args:
        target: What identifies the server, such as its command or its URL.
    """
    try:
        folder = state_folder()
    except ConfigError:
        return None
    return folder / "checks" / f"{sha256(target.encode()).hexdigest()[:40]}.json"


def read_history(file: Path | None) -> Digests:
    """Return the digests of the last check; nothing if there was none or the file is damaged.

    Args:
        file: The file.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Digests) if file else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def write_history(file: Path | None, digests: Digests) -> None:
    """Store the digests of a check, in a file that only its owner can read. A folder that cannot be
    written to is ignored: a check must work on a read-only machine.

    Args:
        file: The file.
        digests: The digests.
    """
    if file is None:
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent)  # mode 0600
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.json.encode(digests))
        os.replace(temporary, file)
    except OSError:
        return
