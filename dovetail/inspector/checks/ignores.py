"""`.dovetail/check.toml`: findings that a project accepts.

[[ignore]]
rule = "default-url"
tool = "fetch"                          # optional: only this tool, prompt, resource or template
reason = "The address is documented."   # optional
"""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ...errors import ConfigError
from ...text import closest_name, quote
from .rules import RULES, Finding

CHECK_FILE: Final = Path(".dovetail", "check.toml")
_KEYS: Final = ("rule", "tool", "reason")
_HEADER: Final = re.compile(r"\s*\[\[\s*ignore\s*\]\]")
_SAFE: Final = re.compile(r"[ !#-\[\]-~]|[^\W]")


class IgnoreEntry(Struct, frozen=True):
    """An entry of `check.toml`.

    Attributes:
        rule: The id of the rule.
        tool: The name of the tool or prompt, or the URI of the resource or template; None for all.
        reason: Why the finding is accepted.
    """

    rule: str
    tool: str | None = None
    reason: str | None = None

    def matches(self, finding: Finding) -> bool:
        """Return whether the entry is about this finding."""
        return self.rule == finding.rule and self.tool in (None, finding.where.name)


def parse_ignores(text: str, file: str = str(CHECK_FILE)) -> list[IgnoreEntry]:
    """Return the entries of a `check.toml` file.

    Args:
        text: The text of the file.
        file: The name of the file, for messages.

    Raises:
        ConfigError: The text is not valid TOML, or has an unknown rule or key.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from None
    lines = text.splitlines()
    for key in document.keys() - {"ignore"}:
        raise _error(file, _find_line(lines, 0, key), f"unknown key {quote(key)}; use [[ignore]]")
    entries = document.get("ignore", [])
    if not isinstance(entries, list):
        raise _error(file, _find_line(lines, 0, "ignore"), "write [[ignore]] in double brackets")
    starts = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    starts += [-1] * (len(entries) - len(starts))
    return [
        _parse_entry(entry, file, lines, start)
        for entry, start in zip(entries, starts, strict=False)
    ]


def _parse_entry(entry: Any, file: str, lines: list[str], start: int) -> IgnoreEntry:
    if not isinstance(entry, dict):
        raise _error(file, start, "an entry of ignore must be a table")
    for key, value in entry.items():
        line = _find_line(lines, start, key)
        if key not in _KEYS:
            raise _error(file, line, f"unknown key {quote(key)}; the keys are {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise _error(file, line, f"{key} must be a string")
    if "rule" not in entry:
        raise _error(file, start, "this [[ignore]] has no rule")
    rule = entry["rule"]
    if rule not in RULES:
        close = closest_name(rule, RULES)
        hint = f"; did you mean {close!r}?" if close else ""
        message = f"there is no rule {quote(rule)}{hint}"
        raise _error(file, _find_line(lines, start, "rule"), message)
    return IgnoreEntry(**entry)


def _find_line(lines: list[str], start: int, key: str) -> int:
    """Return the index of the line that sets a key, or `start` if it cannot be found."""
    pattern = re.compile(rf"\s*\[{{0,2}}\s*[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    rest = range(max(start, 0), len(lines))
    return next((number for number in rest if pattern.match(lines[number])), start)


def _error(file: str, line: int, message: str) -> ConfigError:
    return ConfigError(f"{file}, line {line + 1}: {message}" if line >= 0 else f"{file}: {message}")


def apply_ignores(
    findings: Iterable[Finding], ignores: Iterable[IgnoreEntry]
) -> tuple[list[Finding], list[Finding]]:
    """Return the findings to report, and those that are ignored.

    Args:
        findings: The findings.
        ignores: The entries of `check.toml`.
    """
    entries = list(ignores)
    reported: list[Finding] = []
    ignored: list[Finding] = []
    for finding in findings:
        is_ignored = any(entry.matches(finding) for entry in entries)
        (ignored if is_ignored else reported).append(finding)
    return reported, ignored


def read_ignores(folder: Path | None = None) -> list[IgnoreEntry]:
    """Return the entries of a folder's `.dovetail/check.toml`; none if there is no such file.

    Args:
        folder: The folder (default: the current one).

    Raises:
        ConfigError: The file cannot be read or is not valid.
    """
    file = CHECK_FILE if folder is None else folder / CHECK_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    return parse_ignores(text, str(file))


def add_ignore(entry: IgnoreEntry, folder: Path | None = None) -> None:
    """Add an entry at the end of a folder's `.dovetail/check.toml`; the rest stays as it is. An
    entry that is there already is not added again.

    Args:
        entry: The entry.
        folder: The folder (default: the current one).

    Raises:
        ConfigError: The file cannot be read, is not valid, or would not be valid with the entry,
            so nothing is added.
    """
    if entry in read_ignores(folder):
        return
    file = CHECK_FILE if folder is None else folder / CHECK_FILE
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    added = gap + format_ignore(entry)
    try:
        is_added = entry in parse_ignores(before + added, str(file))
    except ConfigError:
        is_added = False
    if not is_added:
        raise ConfigError(
            f"{file}: the entry cannot be added. Write each entry as [[ignore]], not in a list."
        )
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(added)


def format_ignore(entry: IgnoreEntry) -> str:
    """Return an entry as TOML, to append to a file.

    Args:
        entry: The entry.
    """
    lines = ["[[ignore]]", f"rule = {_quote_toml(entry.rule)}"]
    if entry.tool is not None:
        lines.append(f"tool = {_quote_toml(entry.tool)}")
    if entry.reason:
        lines.append(f"reason = {_quote_toml(entry.reason)}")
    return "\n".join(lines) + "\n"


def _quote_toml(text: str) -> str:
    return '"' + "".join(one if _SAFE.match(one) else f"\\U{ord(one):08X}" for one in text) + '"'
