"""A read-only SQL database: its schema as a resource, and a tool that answers queries in pages.

    dovetail read examples/database.py db://schema
    dovetail call examples/database.py query sql="SELECT title FROM books ORDER BY year" limit=2
    dovetail call examples/database.py query sql="DROP TABLE books"

The server reads the SQLite file that the variable DATABASE names, or a small sample. SQLite itself
refuses everything but reading, whatever the statement looks like. A statement that takes too long
is stopped.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from dovetail import Context, NotFound, Server, ToolError

DATABASE = os.environ.get("DATABASE")
SECONDS = float(os.environ.get("QUERY_SECONDS", "5"))
STEPS_BETWEEN_CHECKS = 10_000
SAMPLE = """
CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, author TEXT, year INTEGER);
INSERT INTO books (title, author, year) VALUES
    ('Emma', 'Jane Austen', 1815), ('Middlemarch', 'George Eliot', 1871),
    ('Dracula', 'Bram Stoker', 1897), ('Kim', 'Rudyard Kipling', 1901),
    ('Persuasion', 'Jane Austen', 1817);
"""
READING = {
    *(sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ),
    *(sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE),
}

server = Server("database", version="1.0.0", instructions="Read db://schema before you query.")


class Page(Struct):
    columns: list[str]
    rows: list[list[Any]]
    next_offset: int | None = None
    """The offset of the next page; None if this is the last one."""


def allow_reading(action: int, *details: object) -> int:
    """Decide about one action of a statement, before the statement runs."""
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


@contextmanager
def open_database() -> Iterator[sqlite3.Connection]:
    """Open the database for one call, so that no call waits for another."""
    if DATABASE is None:
        connection = sqlite3.connect(":memory:")
        connection.executescript(SAMPLE)
    else:
        uri = f"{Path(DATABASE).resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True)
    connection.set_authorizer(allow_reading)
    try:
        yield connection
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise ToolError(
            f"SQLite refused this: {error}. The database is read-only; write one SELECT."
        ) from None
    finally:
        connection.close()


@server.tool(annotations={"readOnlyHint": True}, timeout=SECONDS)
def query(
    sql: str,
    ctx: Context,
    limit: Annotated[int, Meta(ge=1, le=500)] = 50,
    offset: Annotated[int, Meta(ge=0)] = 0,
) -> Page:
    """Run a SELECT statement, and return one page of its rows.

    Args:
        sql: The statement. Add ORDER BY if you read more than one page.
        limit: The number of rows per page.
        offset: The first row to return: `next_offset` of the page before.
    """
    with open_database() as connection:
        # A thread cannot be stopped from outside. SQLite asks here whether to go on.
        connection.set_progress_handler(lambda: ctx.cancelled, STEPS_BETWEEN_CHECKS)
        found = connection.execute(sql)
        rows = [list(row) for row in islice(found, offset, offset + limit + 1)]
        columns = [column[0] for column in found.description or ()]
    is_last = len(rows) <= limit
    return Page(columns, rows[:limit], None if is_last else offset + limit)


def read_schema(condition: str = "", *values: str) -> list[str]:
    """Return the statements that created the tables and views."""
    with open_database() as connection:
        sql = f"SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL {condition} ORDER BY name"
        return [statement for (statement,) in connection.execute(sql, values)]


@server.resource("db://schema", mime_type="application/sql")
def schema() -> str:
    """Return the schema of all tables."""
    return ";\n\n".join(read_schema()) + ";"


@server.resource("db://schema/{table}", mime_type="application/sql")
def table_schema(table: str) -> str:
    """Return the schema of one table."""
    found = read_schema("AND name = ?", table)
    if not found:
        raise NotFound(f"There is no table {table!r}")
    return found[0]


if __name__ == "__main__":
    server.run()
