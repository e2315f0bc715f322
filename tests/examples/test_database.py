"""examples/database.py, on its sample and on an SQLite file."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dovetail import Client, NotFound, ToolError
from dovetail.testing import pair

from .conftest import EXAMPLES, Load

SERVER = EXAMPLES / "database.py"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop #1.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT);"
        "INSERT INTO users (name) VALUES ('Ada'), ('Bo'), ('Cy');"
        "CREATE VIEW names AS SELECT name FROM users;"
    )
    connection.close()
    return path


def connect(database: Path) -> Client:
    return Client(SERVER, env={"DATABASE": str(database)})


async def test_without_a_file_there_is_a_sample() -> None:
    async with Client(SERVER) as client:
        sql = "SELECT title FROM books WHERE author LIKE '%Austen' ORDER BY year"
        page = (await client.call_tool("query", {"sql": sql})).data
        assert page == {
            "columns": ["title"],
            "rows": [["Emma"], ["Persuasion"]],
            "next_offset": None,
        }


async def test_the_schema_is_a_resource(database: Path) -> None:
    async with connect(database) as client:
        (contents,) = await client.read_resource("db://schema")
        assert contents.text is not None
        assert "CREATE TABLE users" in contents.text
        assert "CREATE VIEW names" in contents.text
        (one,) = await client.read_resource("db://schema/users")
        assert one.text == "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)"
        with pytest.raises(NotFound, match="There is no table 'orders'"):
            await client.read_resource("db://schema/orders")


async def test_a_query_is_answered_in_pages(database: Path) -> None:
    async with connect(database) as client:
        arguments: dict[str, Any] = {"sql": "SELECT name FROM names ORDER BY name", "limit": 2}
        first = (await client.call_tool("query", arguments)).data
        assert (first["rows"], first["next_offset"]) == ([["Ada"], ["Bo"]], 2)
        arguments["offset"] = first["next_offset"]
        second = (await client.call_tool("query", arguments)).data
        assert (second["rows"], second["next_offset"]) == ([["Cy"]], None)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM users",
        "DROP TABLE users",
        "INSERT INTO users (name) VALUES ('Eve')",
        "UPDATE users SET name = 'Eve'",
        "WITH x AS (SELECT 1) DELETE FROM users",
        "PRAGMA writable_schema = 1",
        "ATTACH 'stolen.db' AS stolen",
        "VACUUM INTO 'stolen.db'",
        "CREATE TEMP TABLE x (y)",
        "SELECT load_extension('x')",
        "SELECT 1; DELETE FROM users",
        "EXPLAIN QUERY",
    ],
)
@pytest.mark.parametrize("source", ["file", "sample"])
async def test_only_reading_is_allowed(database: Path, source: str, sql: str) -> None:
    before = database.read_bytes()
    if source == "sample":
        sql = sql.replace("users", "books").replace("name", "title")
    client = connect(database) if source == "file" else Client(SERVER)
    async with client:
        with pytest.raises(ToolError, match="The database is read-only; write one SELECT"):
            await client.call_tool("query", {"sql": sql})
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]


async def test_a_statement_that_takes_too_long_is_stopped(database: Path, load: Load) -> None:
    module = load("database", DATABASE=str(database), QUERY_SECONDS="0.2")
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT id FROM users UNION ALL SELECT i + 1 FROM n) "
        "SELECT count(*) FROM n"
    )
    async with pair(module.server) as client:
        with pytest.raises(ToolError, match=r"query did not finish within 0\.2 s"):
            await client.call_tool("query", {"sql": endless})
    # While a statement reads, nobody gets the file for themselves.
    connection = sqlite3.connect(database, timeout=20)
    connection.execute("BEGIN EXCLUSIVE")
    connection.close()


async def test_a_file_that_is_missing_is_not_created(tmp_path: Path) -> None:
    async with connect(tmp_path / "none.db") as client:
        with pytest.raises(ToolError, match="unable to open database file"):
            await client.call_tool("query", {"sql": "SELECT 1"})
    assert not (tmp_path / "none.db").exists()
