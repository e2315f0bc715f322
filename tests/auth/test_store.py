"""Where logins are kept: what survives, who may read it, and who waits for whom."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dovetail.auth.client import store as stores
from dovetail.auth.client.store import (
    FileStore,
    KeychainStore,
    MemoryStore,
    Store,
    data_folder,
    default_store,
)
from dovetail.errors import ConfigError

from .store_contract import *  # noqa: F403
from .store_contract import HERE, THERE

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="the system has no such permissions")


@pytest.fixture(autouse=True)
def no_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_KEYS", raising=False)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return (
        MemoryStore()
        if request.param == "memory"
        else FileStore(tmp_path / "kept" / "grants.sealed")
    )


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# the file


async def test_a_login_survives_a_restart(tmp_path: Path) -> None:
    await FileStore(tmp_path / "grants").save(HERE, b"token")
    program = f"""
        import asyncio
        from dovetail.auth import FileStore
        print(asyncio.run(FileStore({str(tmp_path / "grants")!r}).load({HERE!r})).decode())
    """
    assert run(program) == "token\n"


@pytest.mark.requirement("auth-token-storage", "auth-refresh-confidential")
async def test_nothing_that_is_kept_can_be_read_in_the_file(tmp_path: Path) -> None:
    await FileStore(tmp_path / "grants").save(HERE, b"s3cret-token")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert (
                b"s3cret" not in path.read_bytes() and b"here.example" not in path.read_bytes()
            ), path


@posix
@pytest.mark.requirement("auth-token-storage")
async def test_only_the_owner_may_read_what_is_kept(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        await FileStore(tmp_path / "new" / "grants").save(HERE, b"token")
        async with FileStore(tmp_path / "new" / "grants").lock(HERE):
            pass
    finally:
        os.umask(umask)
    found = list((tmp_path / "new").rglob("*"))
    assert {path.name for path in found} >= {"grants", "grants.key", "grants.locks"}
    assert mode(tmp_path / "new") == 0o700
    assert all(mode(path) == (0o700 if path.is_dir() else 0o600) for path in found)


@posix
@pytest.mark.parametrize("name", ["grants", "grants.key"])
async def test_a_file_that_others_may_read_is_made_private(name: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "grants")
    await store.save(HERE, b"token")
    (tmp_path / name).chmod(0o644)
    assert await store.load(HERE) == b"token"
    assert mode(tmp_path / name) == 0o600


@posix
async def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"other users can write to this folder.*chmod 700"):
        await FileStore(tmp_path / "grants").save(HERE, b"token")
    assert list(tmp_path.iterdir()) == []


@posix
async def test_the_folder_that_is_ours_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "dovetail").mkdir()
    (tmp_path / "dovetail").chmod(0o777)
    await FileStore().save(HERE, b"token")
    assert mode(tmp_path / "dovetail") == 0o700


@posix
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    await FileStore(tmp_path / "grants").save(HERE, b"token")
    os.chown(tmp_path / "grants", 12345, -1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        await FileStore(tmp_path / "grants").load(HERE)


@posix
async def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    await FileStore(tmp_path / "real").save(HERE, b"token")
    (tmp_path / "grants").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="symbolic links are not followed"):
        await FileStore(tmp_path / "grants").load(HERE)


async def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Cannot store logins in"):
        await FileStore(tmp_path / "file" / "grants").save(HERE, b"token")


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\xff\xfe", b"AAAA" * 100])
async def test_a_damaged_file_is_set_aside_and_harms_nothing(damage: bytes, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "grants")
    await store.save(HERE, b"token")
    (tmp_path / "grants").write_bytes(damage)
    assert await store.load(HERE) is None and await store.keys() == []
    assert (tmp_path / "grants").read_bytes() == damage, "reading changes nothing"
    await store.save(THERE, b"new")
    assert (tmp_path / "grants.damaged").read_bytes() == damage
    assert await store.keys() == [THERE]


async def test_a_key_that_is_lost_loses_the_logins_but_no_more(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "grants")
    await store.save(HERE, b"token")
    (tmp_path / "grants.key").unlink()
    assert await store.load(HERE) is None
    await store.save(HERE, b"again")
    assert await store.load(HERE) == b"again"


async def test_a_file_that_was_changed_by_one_byte_is_not_believed(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "grants")
    await store.save(HERE, b"token")
    sealed = bytearray((tmp_path / "grants").read_bytes())
    sealed[30] ^= 1
    (tmp_path / "grants").write_bytes(sealed)
    assert await store.load(HERE) is None


async def test_the_key_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_KEYS", "a key of the environment")
    store = FileStore(tmp_path / "grants")
    await store.save(HERE, b"token")
    assert not (tmp_path / "grants.key").exists()
    monkeypatch.setenv("DOVETAIL_KEYS", "another key of the environment")
    assert await store.load(HERE) is None
    monkeypatch.setenv("DOVETAIL_KEYS", "a new key of the environment,a key of the environment")
    assert await store.load(HERE) == b"token"


async def test_a_key_of_the_environment_opens_what_the_other_one_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path / "grants")
    await store.save(HERE, b"token")
    monkeypatch.setenv("DOVETAIL_KEYS", "a key of the environment")
    assert await store.load(HERE) == b"token"


async def test_a_store_shows_no_secret(tmp_path: Path) -> None:
    await (store := FileStore(tmp_path / "grants")).save(HERE, b"s3cret")
    assert repr(store) == f"FileStore({str(tmp_path / 'grants')!r})"


async def test_tasks_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"https://{number}.example" for number in range(20)]
    await asyncio.gather(*(FileStore(tmp_path / "grants").save(name, b"x") for name in names))
    assert await FileStore(tmp_path / "grants").keys() == sorted(names)
    assert not list(tmp_path.glob("*.new"))


# several processes

SAVING = """
    import asyncio, sys
    from dovetail.auth import FileStore
    async def main():
        for number in range(10):
            await FileStore({path!r}).save(f"{{sys.argv[1]}}-{{number}}", b"x")
    asyncio.run(main())
"""
HOLDING = """
    import asyncio
    from dovetail.auth import FileStore
    async def main():
        async with FileStore({path!r}).lock({name!r}):
            print("held", flush=True)
            await asyncio.sleep(60)
    asyncio.run(main())
"""


def run(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    program = SAVING.format(path=str(tmp_path / "grants"))
    await asyncio.gather(*(asyncio.to_thread(run, program, name) for name in "abc"))
    assert len(await FileStore(tmp_path / "grants").keys()) == 30


@posix
async def test_a_lock_ends_with_the_process_that_held_it_and_blocks_nothing_else(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path / "grants")
    program = textwrap.dedent(HOLDING.format(path=str(tmp_path / "grants"), name=HERE))
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None and await holder.stdout.readline() == b"held\n"
    waiting = asyncio.create_task(store.lock(HERE).__aenter__())
    await store.save(THERE, b"meanwhile")
    assert not waiting.done()
    holder.send_signal(signal.SIGKILL)
    await asyncio.wait_for(waiting, 5)
    await holder.wait()


# the keychain


class Keychain(ModuleType):
    """A stand-in for the library, which is not installed everywhere: it keeps passwords in
    memory."""

    priority = 5.0

    def __init__(self) -> None:
        super().__init__("keyring")
        self.passwords: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_keyring(self) -> Any:
        return self

    def get_password(self, service: str, user: str) -> str | None:
        if self.locked:
            raise RuntimeError("locked, and the password is hunter2")
        return self.passwords.get((service, user))

    def set_password(self, service: str, user: str, password: str) -> None:
        self.passwords[service, user] = password


@pytest.fixture
def keychain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Keychain]:
    found = Keychain()
    monkeypatch.setitem(sys.modules, "keyring", found)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield found


async def test_the_keychain_keeps_the_key_and_the_file_the_logins(
    keychain: Keychain, tmp_path: Path
) -> None:
    store = KeychainStore(tmp_path / "grants")
    await store.save(HERE, b"x" * 10_000)  # more than some keychains take
    assert await KeychainStore(tmp_path / "grants").load(HERE) == b"x" * 10_000
    assert len(keychain.passwords) == 1 and not (tmp_path / "grants.key").exists()
    keychain.passwords.clear()
    assert await store.load(HERE) is None


async def test_a_keychain_that_refuses_is_said_without_what_it_said(
    keychain: Keychain, tmp_path: Path
) -> None:
    store = KeychainStore(tmp_path / "grants")
    await store.save(HERE, b"token")
    keychain.locked = True
    with pytest.raises(
        ConfigError, match=r"The keychain refused access \(RuntimeError\)\. Unlock the keychain"
    ) as refused:
        await store.load(HERE)
    assert "hunter2" not in str(refused.value)


async def test_the_keychain_is_the_default_where_there_is_one(
    keychain: Keychain, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(default_store()) is KeychainStore
    keychain.priority = 0.5
    assert type(default_store()) is FileStore
    keychain.priority = 5
    monkeypatch.setenv("DOVETAIL_KEYS", "a key of the environment")
    assert type(default_store()) is FileStore


async def test_without_a_keychain_the_file_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert type(default_store()) is FileStore
    with pytest.raises(ConfigError, match="No keychain is available"):
        KeychainStore()


@pytest.mark.parametrize(
    ("platform", "environment", "place"),
    [
        ("linux", {}, ".local/share/dovetail"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/dovetail"),
        ("darwin", {}, "Library/Application Support/dovetail"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/dovetail"),
    ],
)
def test_each_system_has_its_place(
    platform: str, environment: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert data_folder(environment) == Path.home() / place


@pytest.mark.parametrize(
    ("platform", "variable"), [("linux", "XDG_DATA_HOME"), ("win32", "APPDATA"), ("darwin", "HOME")]
)
def test_a_user_without_a_home_is_told_what_to_set(
    platform: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match=f"no home folder.*Set {variable}, or pass a store"):
        data_folder({})
    if variable != "HOME":
        assert data_folder({variable: str(tmp_path)}) == tmp_path / "dovetail"


@pytest.mark.parametrize(("posix", "patient"), [(False, True), (True, False)])
async def test_a_file_that_somebody_is_reading_is_replaced_a_moment_later(
    posix: bool, patient: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows has it: who reads a file keeps it."""
    replace, readers = os.replace, [1, 2, 3]

    def refusing(old: Any, new: Any) -> None:
        if readers and not str(new).endswith(".key"):
            raise PermissionError(13, "in use", str(new), readers.pop())
        replace(old, new)

    monkeypatch.setattr(os, "replace", refusing)
    monkeypatch.setattr(stores, "POSIX", posix)
    store = FileStore(tmp_path / "grants")
    if not patient:
        with pytest.raises(ConfigError, match="in use"):
            await store.save(HERE, b"a")
        return
    await store.save(HERE, b"a")
    assert await store.load(HERE) == b"a" and not readers


def test_the_file_needs_encryption(tmp_path: Path) -> None:
    program = f"""
        import sys, asyncio, json
        sys.modules["cryptography"] = None
        sys.modules["cryptography.exceptions"] = None
        from dovetail.auth import FileStore
        from dovetail.errors import ConfigError
        store = FileStore({str(tmp_path / "grants")!r})
        for attempt in (lambda: store.save("a", b"b"), lambda: store.lock("a#login").__aenter__()):
            try:
                asyncio.run(attempt())
            except ConfigError as problem:
                print(json.dumps(str(problem)))
    """
    when_kept, before_a_login = run(program).splitlines()
    assert when_kept == before_a_login and "pip install 'dovetail-mcp[auth]'" in when_kept
    assert not (tmp_path / "grants").exists()
