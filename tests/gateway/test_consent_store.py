"""The file in which consent is remembered: for its owner only, for several programs at once, and
closed if it is damaged."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dovetail.errors import ConfigError, Overloaded
from dovetail.gateway.consent import sqlite_store
from dovetail.gateway.consent.consent import Consent
from dovetail.gateway.consent.request import ConsentRequest
from dovetail.gateway.consent.sqlite_store import (
    SESSION_SECONDS,
    SqliteConsentStore,
    default_store_path,
)
from dovetail.gateway.consent.store import ConsentGrant, SeenItem

ROOT = Path(__file__).parents[2]
GRANT = ConsentGrant(kind="call", server="weather", digest="d", name="forecast", pin="p")
REQUEST = ConsentRequest(kind="call", server="weather", digest="d", name="forecast", pin="p")


def test_the_default_file_is_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = SqliteConsentStore()
    store.add_grant(GRANT)
    assert store.path == str(tmp_path / "state" / "dovetail" / "consent.db")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    if sys.platform == "linux":
        expected = tmp_path / ".local" / "state" / "dovetail" / "consent.db"
        assert default_store_path() == expected
    monkeypatch.delenv("XDG_STATE_HOME")
    if sys.platform == "linux":
        assert default_store_path() == expected
    assert SqliteConsentStore("~/mine.db").path == str(tmp_path / "mine.db")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_versions_that_nobody_approves_do_not_fill_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "MAX_UNAPPROVED", 10)
    store = SqliteConsentStore(tmp_path / "consent.db")

    def item(name: str) -> SeenItem:
        return SeenItem(server="s", digest="d", item=f"tool:{name}", pin=name, content="{}")

    store.approve_items([item("kept")])
    for turn in range(5):
        store.record_items([item("kept"), *(item(f"{turn}-{each}") for each in range(8))])
    found = [one.item for one in store.find_items(server="s")]
    assert "tool:kept" in found and len(found) == 11
    assert {f"tool:4-{each}" for each in range(8)} <= set(found)


def test_only_its_owner_can_read_or_write_the_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "consent.db"
    store = SqliteConsentStore(path)
    store.add_grant(GRANT)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    store.close()
    path.chmod(0o666)
    assert SqliteConsentStore(path).find_grants(server="weather")[0].name == "forecast"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to give a file away")
def test_a_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "consent.db"
    SqliteConsentStore(path).add_grant(GRANT)
    os.chown(path, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user, who could allow anything"):
        SqliteConsentStore(path).find_grants()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to give a file away")
def test_a_write_ahead_log_of_another_user_is_not_believed(tmp_path: Path) -> None:
    """SQLite would read it and then write what it says into the file."""
    path, forged = tmp_path / "consent.db", tmp_path / "forged.db"
    SqliteConsentStore(path).find_grants()
    store = SqliteConsentStore(forged)
    store.add_grant(GRANT)
    log = path.with_name("consent.db-wal")
    log.write_bytes(forged.with_name("forged.db-wal").read_bytes())
    store.close()
    os.chown(log, 12345, 12345)
    with pytest.raises(ConfigError, match=r"consent\.db-wal belongs to another user"):
        SqliteConsentStore(path).find_grants()
    os.chown(log, os.geteuid(), os.getegid())
    assert SqliteConsentStore(path).find_grants() != [], "the attack would work"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to give a file away")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    path, target = tmp_path / "consent.db", tmp_path / "chosen"
    path.symlink_to(target)
    os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(ConfigError, match=r"consent\.db belongs to another user"):
        SqliteConsentStore(path).find_grants()
    assert not target.exists()
    path.unlink()
    path.symlink_to(target)
    assert SqliteConsentStore(path).find_grants() == []


async def test_a_damaged_file_allows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "consent.db"
    store = SqliteConsentStore(path)
    store.add_grant(GRANT)
    store.record_items(
        SeenItem(server="s", digest="d", item=f"tool:{n}", pin="p", content="x" * 500)
        for n in range(100)
    )
    assert await allowed(str(path))
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:-4096] = os.urandom(len(data) - 8192)
    path.write_bytes(data)
    for content in (bytes(data), b"not a database at all" * 100, data[:100]):
        path.write_bytes(content)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with pytest.raises(ConfigError, match=r"is damaged .* Nothing is allowed until then"):
            await allowed(str(path))


async def allowed(path: str) -> bool:
    consent = Consent(path, on_consent=lambda request: pytest.fail("asked"))
    return (await consent.decide(REQUEST)).allowed


def test_a_file_that_becomes_damaged_while_it_is_open_allows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "consent.db"
    store = SqliteConsentStore(path)
    store.add_grant(GRANT)
    assert store._connection is not None
    store._connection.execute("DROP TABLE grants")
    with pytest.raises(ConfigError, match="Nothing is allowed until then"):
        store.find_grants()
    with pytest.raises(ConfigError, match="Nothing is allowed until then"):
        store.add_grant(GRANT)


def test_another_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE photos (name TEXT)")
    other.close()
    with pytest.raises(ConfigError, match="is not a consent store"):
        SqliteConsentStore(path).add_grant(GRANT)
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]
    other.close()


def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "consent.db", tmp_path):
        with pytest.raises(ConfigError, match="Choose a file that this user can write to"):
            SqliteConsentStore(path).add_grant(GRANT)


def test_a_file_that_another_program_locks_is_waited_for_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.05)
    path = tmp_path / "consent.db"
    store = SqliteConsentStore(path)
    store.add_grant(GRANT)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Overloaded, match="locked by another program"):
        store.remove_grants([GRANT])
    assert len(store.find_grants()) == 1, "reading waits for nobody"
    other.execute("ROLLBACK")
    other.close()
    store.remove_grants([GRANT])
    assert store.find_grants() == []


WRITER = """
import sys
from dovetail.gateway.consent.sqlite_store import SqliteConsentStore
from dovetail.gateway.consent.store import ConsentGrant, SeenItem
store, who = SqliteConsentStore(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    store.add_grant(ConsentGrant(kind="call", server=who, digest="d", name=str(number)))
    store.record_items([SeenItem(server="same", digest="d", item="tool:x", pin=f"{who}{number}",
                                 content="{}")])
    store.approve_items([SeenItem(server="same", digest="d", item="tool:x", pin=f"{who}{number}",
                                  content="{}")])
"""


def test_several_programs_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "consent.db"
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"program {number}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        )
        for number in range(3)
    ]  # fmt: skip
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
        for program in programs:  # and all begin at once, with a file that does not exist yet
            assert program.stdin is not None
            program.stdin.write(b"go\n")
            program.stdin.close()
        assert [program.wait(60) for program in programs] == [0, 0, 0]
    finally:
        for program in programs:
            program.kill()
            program.wait()
            assert program.stdout is not None
            program.stdout.close()
    store = SqliteConsentStore(path)
    for number in range(3):
        assert len(store.find_grants(server=f"program {number}")) == 10
    pinned = store.find_items(server="same")
    assert len(pinned) == 8
    assert all(one.approved is not None for one in pinned)


OTHER_PROGRAM = """
import asyncio, sys
from dovetail.gateway.consent.consent import Consent
from dovetail.gateway.consent.request import ConsentRequest

async def main():
    consent = Consent(sys.argv[1], on_consent=lambda request: "deny")
    request = ConsentRequest(kind="call", server="weather", digest="d", name="forecast", pin="p")
    for line in sys.stdin:
        print((await consent.decide(request)).allowed, flush=True)

asyncio.run(main())
"""


async def test_what_one_program_allows_or_revokes_holds_for_the_other_at_its_next_call(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "consent.db")
    consent = Consent(path, on_consent=lambda request: "always")
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER_PROGRAM, path, cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip

    async def is_allowed_there() -> str:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(b"?\n")
        return (await asyncio.wait_for(program.stdout.readline(), 30)).decode().strip()

    try:
        for _ in range(3):
            assert await is_allowed_there() == "False"
            await consent.decide(REQUEST)
            assert await is_allowed_there() == "True"
            consent.revoke("weather")
        assert await is_allowed_there() == "False"
    finally:
        program.kill()
        await program.wait()


def test_the_grants_of_a_program_that_crashed_are_deleted_later(tmp_path: Path) -> None:
    path, now = tmp_path / "consent.db", time.time()
    store = SqliteConsentStore(path)
    for session, age in (("old", SESSION_SECONDS + 1), ("new", 1.0), ("", SESSION_SECONDS + 1)):
        store.add_grant(
            ConsentGrant(kind="start", server="s", digest="d", session=session, created=now - age)
        )
    store.close()
    assert {grant.session for grant in SqliteConsentStore(path).find_grants()} == {"new", ""}


def test_a_store_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteConsentStore(":memory:")
    store.add_grant(GRANT)
    assert len(store.find_grants()) == 1
    assert list(tmp_path.iterdir()) == []


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = SqliteConsentStore(tmp_path / "consent.db")

    def write(number: int) -> None:
        for count in range(10):
            store.add_grant(
                ConsentGrant(kind="call", server=str(number), digest="d", name=str(count))
            )

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.find_grants()) == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_opens_the_file_for_itself(tmp_path: Path) -> None:
    script = f"""
import os
from dovetail.gateway.consent.sqlite_store import SqliteConsentStore
from dovetail.gateway.consent.store import ConsentGrant
store = SqliteConsentStore({str(tmp_path / "consent.db")!r})
store.add_grant(ConsentGrant(kind="start", server="parent", digest="d"))
child = os.fork()
store.add_grant(ConsentGrant(kind="start", server="child" if not child else "later", digest="d"))
if not child:
    os._exit(0)
os.waitpid(child, 0)
print(sorted(grant.server for grant in store.find_grants()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=30
    )
    assert done.stdout == "['child', 'later', 'parent']\n", done.stderr


def test_nothing_of_an_entry_is_written_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "consent.db"

    async def decide() -> None:
        consent = Consent(str(path), on_consent=lambda request: "always")
        entry = {"command": "uvx", "env": {"TOKEN": "hunter2"}, "headers": {"X": "hunter2"}}
        request = ConsentRequest(kind="start", server="s", digest="d", entry=entry)
        assert (await consent.decide(request)).allowed
        call = ConsentRequest(
            kind="call", server="s", digest="d", name="t", arguments={"secret": "hunter2"}
        )
        assert (await consent.decide(call)).allowed
        consent.close()

    asyncio.run(decide())
    assert b"hunter2" not in path.read_bytes()
