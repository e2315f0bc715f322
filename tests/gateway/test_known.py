"""Known catalogs: what a server listed in an earlier run."""

import os
import stat
from pathlib import Path

import pytest
from msgspec import Raw

from dovetail.gateway import known
from dovetail.gateway.catalog import Catalog, Item
from dovetail.gateway.known import KnownCatalogs
from dovetail.protocol.base import Implementation
from dovetail.protocol.lifecycle import ServerCapabilities

DIGEST = "sha256:" + "ab" * 32
BIG = Raw(b"9007199254740993")
CATALOG = Catalog(
    info=Implementation(name="weather", version="1"),
    instructions="Ask for a city.",
    capabilities=ServerCapabilities.lift({"tools": {"listChanged": True}, "x-other": {"a": 1}}),
    tools={"add": Item("tools", "add", {"name": Raw(b'"add"'), "unknown": BIG})},
    templates={"a://{b}": Item("templates", "a://{b}", {"uriTemplate": Raw(b'"a://{b}"')})},
)


@pytest.fixture
def catalogs(tmp_path: Path) -> KnownCatalogs:
    return KnownCatalogs(tmp_path / "catalogs")


def test_a_catalog_is_known_as_it_was_received(catalogs: KnownCatalogs) -> None:
    assert catalogs.load(DIGEST) is None
    catalogs.save(DIGEST, CATALOG)
    found = catalogs.load(DIGEST)
    assert found is not None
    assert (found.info, found.instructions) == (CATALOG.info, CATALOG.instructions)
    assert found.capabilities == CATALOG.capabilities
    assert found.tools["add"].fields["unknown"] == BIG
    assert list(found.templates) == ["a://{b}"]
    assert not found.prompts


def test_a_changed_entry_has_no_known_catalog(catalogs: KnownCatalogs) -> None:
    catalogs.save(DIGEST, CATALOG)
    assert catalogs.load("sha256:" + "cd" * 32) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "tools": [{}]}', b"\xff\xfe"],
)
def test_a_damaged_file_counts_as_missing(catalogs: KnownCatalogs, content: bytes) -> None:
    catalogs.save(DIGEST, CATALOG)
    catalogs._path(DIGEST).write_bytes(content)
    assert catalogs.load(DIGEST) is None
    catalogs.save(DIGEST, CATALOG)
    assert catalogs.load(DIGEST) is not None


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_nobody_else_can_read_it(catalogs: KnownCatalogs) -> None:
    catalogs.save(DIGEST, CATALOG)
    path = catalogs._path(DIGEST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    KnownCatalogs(tmp_path / "file").save(DIGEST, CATALOG)


def test_the_oldest_are_deleted(catalogs: KnownCatalogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MAX_CATALOGS", 2)
    digests = [f"sha256:{number:064}" for number in range(3)]
    for age, digest in enumerate(digests):
        catalogs.save(digest, CATALOG)
        os.utime(catalogs._path(digest), (age, age))
    catalogs.save(digests[2], CATALOG)
    assert [catalogs.load(digest) is not None for digest in digests] == [False, True, True]
