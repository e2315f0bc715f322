"""Find tools by keywords: an index of their names, titles and descriptions (SQLite FTS5 with BM25).

Gateways and servers of large HTTP APIs offer it, so that a model searches for tools instead of
reading all of them.
"""

import re
import sqlite3
import weakref
from collections.abc import Iterable, Mapping
from typing import Final

from .protocol.tools import Tool

MAX_FOUND: Final = 50
DEFAULT_FOUND: Final = 10
MAX_QUERY_CHARS: Final = 1000
_WORD = re.compile(r"\w+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")


class ToolIndex:
    """An index of tools by the words of their names, titles and descriptions.

    Args:
        tools: The tools, by the names that callers use.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._database.execute(
            "CREATE VIRTUAL TABLE tools USING fts5("
            "name UNINDEXED, words, title, description, tokenize='porter unicode61')"
        )
        self._database.executemany(
            "INSERT INTO tools VALUES (?, ?, ?, ?)",
            (
                (name, _split_name(name), tool.title or "", tool.description or "")
                for name, tool in tools.items()
            ),
        )

    def search(self, query: str, limit: int = DEFAULT_FOUND) -> list[str]:
        """Return the names of the tools that match any word of a query, the best match first.

        Args:
            query: Keywords.
            limit: How many names to return at most.
        """
        words = _WORD.findall(_CAMEL.sub(" ", query[:MAX_QUERY_CHARS]))
        if not words:
            return []
        quoted = " OR ".join(f'"{word}"*' for word in dict.fromkeys(words))
        found: Iterable[tuple[str]] = self._database.execute(
            "SELECT name FROM tools WHERE tools MATCH ? "
            "ORDER BY bm25(tools, 0, 8.0, 4.0, 1.0), rowid LIMIT ?",
            (quoted, max(1, min(limit, MAX_FOUND))),
        )
        return [name for (name,) in found]


def _split_name(name: str) -> str:
    """Return the words of a name, so that `createEvent` and `create_event` are found by both."""
    return f"{name} {_CAMEL.sub(' ', name)}"
