"""What every `Storage` does. A module imports these tests, and has a fixture `make_storage`."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import pytest

from dovetail.auth.provider.storage import Storage
from dovetail.errors import Overloaded

from .provider_kit import Clock

Elapse: TypeAlias = Callable[[float], None]
"""Lets some seconds pass for a storage and its provider."""


class MakeStorage(Protocol):
    def __call__(self, clock: Clock, **options: Any) -> tuple[Storage, Elapse]: ...


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(make_storage: MakeStorage, clock: Clock) -> Storage:
    return make_storage(clock)[0]


LATER = Clock().time + 100


async def test_a_row_is_added_once_read_and_deleted(storage: Storage) -> None:
    assert await storage.get("a:1") is None
    assert await storage.add("a:1", b"one", LATER)
    assert not await storage.add("a:1", b"two", LATER)
    assert await storage.get("a:1") == b"one"
    await storage.delete("a:1")
    assert await storage.get("a:1") is None
    await storage.delete("a:1")


async def test_of_many_who_add_a_row_one_succeeds(storage: Storage) -> None:
    added = await asyncio.gather(*(storage.add("a:1", b"%d" % n, LATER) for n in range(20)))
    assert added.count(True) == 1
    assert await storage.get("a:1") == b"%d" % added.index(True)


async def test_a_row_is_changed_only_by_who_knows_what_is_in_it(storage: Storage) -> None:
    await storage.add("a:1", b"one", LATER)
    assert not await storage.change("a:1", b"other", b"two", LATER)
    assert await storage.change("a:1", b"one", b"two", LATER)
    assert await storage.get("a:1") == b"two"
    assert not await storage.change("a:2", b"", b"two", LATER)


async def test_of_many_who_change_a_row_one_succeeds(storage: Storage) -> None:
    await storage.add("a:1", b"", LATER)
    changed = await asyncio.gather(
        *(storage.change("a:1", b"", b"%d" % n, LATER) for n in range(20))
    )
    assert changed.count(True) == 1
    assert await storage.get("a:1") == b"%d" % changed.index(True)


async def test_a_row_is_taken_by_one(storage: Storage) -> None:
    await storage.add("a:1", b"one", LATER)
    taken = await asyncio.gather(*(storage.take("a:1") for _ in range(5)))
    assert sorted(filter(None, taken)) == [b"one"]
    assert await storage.add("a:1", b"two", LATER)


async def test_children_go_with_their_parent_and_need_one(storage: Storage) -> None:
    await storage.add("grant:1", b"", LATER)
    assert await storage.add("access:1", b"", LATER, "grant:1")
    await storage.delete("grant:1")
    assert await storage.get("access:1") is None
    assert not await storage.add("access:2", b"", LATER, "grant:1")


async def test_children_go_with_a_parent_that_is_taken_and_so_do_theirs(storage: Storage) -> None:
    await storage.add("grant:1", b"", LATER)
    await storage.add("other:1", b"", LATER)
    await storage.add("access:1", b"", LATER, "grant:1")
    await storage.add("more:1", b"", LATER, "access:1")
    await storage.add("access:2", b"stays", LATER, "other:1")
    await storage.take("grant:1")
    assert await storage.get("access:1") is None
    assert await storage.get("more:1") is None
    assert await storage.get("access:2") == b"stays"
    assert await storage.add("access:1", b"new", LATER)


async def test_a_parent_survives_its_children(storage: Storage) -> None:
    await storage.add("grant:1", b"parent", LATER)
    await storage.add("access:1", b"", LATER, "grant:1")
    await storage.delete("access:1")
    assert await storage.get("grant:1") == b"parent"
    assert await storage.add("access:2", b"", LATER, "grant:1")


async def test_what_has_expired_is_not_there(make_storage: MakeStorage, clock: Clock) -> None:
    storage, elapse = make_storage(clock)
    await storage.add("a:1", b"one", clock.time + 10)
    elapse(10)
    assert await storage.get("a:1") is None
    assert await storage.take("a:1") is None
    assert not await storage.change("a:1", b"one", b"two", clock.time + 10)
    assert not await storage.add("b:1", b"", clock.time + 10, "a:1")
    await storage.add("a:2", b"late", clock.time)
    assert await storage.get("a:2") is None


async def test_a_change_sets_when_a_row_expires(make_storage: MakeStorage, clock: Clock) -> None:
    storage, elapse = make_storage(clock)
    for key in ("a:1", "a:2"):
        await storage.add(key, b"one", clock.time + 50)
    assert await storage.change("a:1", b"one", b"two", clock.time + 100)
    assert await storage.change("a:2", b"one", b"two", clock.time + 10)
    elapse(60)
    assert await storage.get("a:1") == b"two"
    assert await storage.get("a:2") is None


async def test_a_parent_that_lives_longer_keeps_its_children(
    make_storage: MakeStorage, clock: Clock
) -> None:
    storage, elapse = make_storage(clock)
    await storage.add("grant:1", b"one", clock.time + 10)
    await storage.add("access:1", b"child", clock.time + 100, "grant:1")
    assert await storage.change("grant:1", b"one", b"two", clock.time + 200)
    elapse(50)
    assert await storage.get("access:1") == b"child"
    await storage.delete("grant:1")
    assert await storage.get("access:1") is None


async def test_what_has_expired_does_not_keep_a_new_row_out(
    make_storage: MakeStorage, clock: Clock
) -> None:
    storage, elapse = make_storage(clock)
    assert await storage.add("a:1", b"one", clock.time + 10)
    assert await storage.add("b:1", b"child", LATER, "a:1")
    elapse(11)  # before the next sweep
    assert await storage.add("a:1", b"two", LATER)
    assert await storage.get("a:1") == b"two"
    assert await storage.get("b:1") is None


async def test_each_kind_is_bounded_and_there_is_room_again_when_rows_expire(
    make_storage: MakeStorage, clock: Clock
) -> None:
    storage, elapse = make_storage(clock, rows=3)
    with pytest.raises(Overloaded):
        for number in range(10):
            await storage.add(f"a:{number}", b"", clock.time + 10)
    assert await storage.add("b:1", b"", clock.time + 10)
    elapse(100)
    assert await storage.add("a:new", b"", clock.time + 10)


@pytest.mark.parametrize("kind", ["client", "visit"])
async def test_rows_that_anyone_can_add_make_room_for_each_other(
    make_storage: MakeStorage, clock: Clock, kind: str
) -> None:
    storage, _ = make_storage(clock, rows=10)
    for number in range(50):
        assert await storage.add(f"{kind}:{number}", b"", clock.time + 10 + number)
    assert await storage.get(f"{kind}:0") is None
    assert await storage.get(f"{kind}:49") == b""
    left = [await storage.get(f"{kind}:{number}") for number in range(50)]
    assert 0 < len(left) - left.count(None) <= 20
