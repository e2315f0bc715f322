"""Known catalogs: what a server listed in an earlier run, before it is started again."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dovetail import Client, Host
from dovetail.config import ServerSettings
from dovetail.errors import ConfigError, DovetailError
from dovetail.gateway import known
from dovetail.gateway.catalog import Catalog, Item
from dovetail.gateway.consent.sqlite_store import SqliteConsentStore
from dovetail.gateway.gateway import Gateway
from dovetail.gateway.known import KnownCatalogs, catalog_key
from dovetail.gateway.upstream import UpstreamEntry, UpstreamServer
from dovetail.gateway.upstreams import describe_target, read_source
from dovetail.protocol.base import Implementation
from dovetail.protocol.lifecycle import ServerCapabilities
from tests.gateway.programs import PATIENT, entry, write_server
from tests.transports.http.raw import hosted

BIG = Raw(b"9007199254740993")
CATALOG = Catalog(
    info=Implementation(name="weather", version="1"),
    instructions="Ask for a city.",
    capabilities=ServerCapabilities.lift({"tools": {"listChanged": True}, "x-other": {"a": 1}}),
    tools={"add": Item("tools", "add", {"name": Raw(b'"add"'), "unknown": BIG})},
    templates={"a://{b}": Item("templates", "a://{b}", {"uriTemplate": Raw(b'"a://{b}"')})},
)
ENTRY = describe_target("weather", ["weather"])
OTHER = describe_target("weather", ["weather", "--other"])


# the files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "catalogs"


@pytest.fixture
def catalogs(folder: Path) -> KnownCatalogs:
    return KnownCatalogs(folder)


def test_a_catalog_is_known_as_it_was_received(catalogs: KnownCatalogs) -> None:
    assert catalogs.load(ENTRY) is None
    catalogs.save(ENTRY, CATALOG)
    found = catalogs.load(ENTRY)
    assert found is not None
    assert (found.info, found.instructions) == (CATALOG.info, CATALOG.instructions)
    assert found.capabilities == CATALOG.capabilities
    assert found.tools["add"].fields["unknown"] == BIG
    assert list(found.templates) == ["a://{b}"]
    assert not found.prompts
    assert found.is_from_disk


def test_a_changed_entry_has_no_known_catalog(catalogs: KnownCatalogs) -> None:
    catalogs.save(ENTRY, CATALOG)
    assert catalogs.load(OTHER) is None


def read_entry(**fields: Any) -> UpstreamEntry:
    (found,) = read_source({"mcpServers": {"up": fields}}).entries
    return found


def test_lists_that_depend_on_the_user_are_not_kept(
    catalogs: KnownCatalogs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "ann")
    url = "https://example.com/mcp"
    with_token = {"url": url, "headers": {"X-Key": "${TOKEN}"}}
    for one in (
        read_entry(url=url, auth="oauth"),
        read_entry(url=url, dovetail={"forward": ["X-Tenant"]}),
        describe_target("own", object()),  # in this process
    ):
        assert catalog_key(one) is None
        catalogs.save(one, CATALOG)
        assert catalogs.load(one) is None
    assert not folder.exists()
    catalogs.save(read_entry(**with_token), CATALOG)
    assert catalogs.load(read_entry(**with_token)) is not None
    monkeypatch.setenv("TOKEN", "bob")
    assert catalogs.load(read_entry(**with_token)) is None
    monkeypatch.delenv("TOKEN")
    assert catalogs.load(read_entry(**with_token)) is None


def only_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 2}',
        b'{"format": 1, "tools": [{}]}',
        b'{"format": 1, "capabilities": []}',
        b'{"format": 1, "tools": [{"name": 7}]}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_counts_as_missing(
    catalogs: KnownCatalogs, folder: Path, content: bytes
) -> None:
    catalogs.save(ENTRY, CATALOG)
    only_file(folder).write_bytes(content)
    assert catalogs.load(ENTRY) is None
    catalogs.save(ENTRY, CATALOG)
    assert catalogs.load(ENTRY) is not None


def test_a_folder_in_place_of_a_file_counts_as_missing(
    catalogs: KnownCatalogs, folder: Path
) -> None:
    (folder / f"{catalog_key(ENTRY)}.json" / "kept").mkdir(parents=True)
    catalogs.save(ENTRY, CATALOG)
    assert catalogs.load(ENTRY) is None
    assert [path.name for path in folder.iterdir()] == [f"{catalog_key(ENTRY)}.json"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_nobody_else_can_read_it(catalogs: KnownCatalogs, folder: Path) -> None:
    catalogs.save(ENTRY, CATALOG)
    assert stat.S_IMODE(only_file(folder).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_others_can_write_to_is_not_used(
    catalogs: KnownCatalogs, folder: Path
) -> None:
    catalogs.save(ENTRY, CATALOG)
    folder.chmod(0o777)
    assert catalogs.load(ENTRY) is None
    only_file(folder).unlink()
    catalogs.save(ENTRY, CATALOG)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="links as POSIX has them")
def test_a_link_in_place_of_the_folder_is_not_followed(
    catalogs: KnownCatalogs, folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / "chosen by somebody else"
    target.mkdir(mode=0o700)
    folder.symlink_to(target)
    catalogs.save(ENTRY, CATALOG)
    assert list(target.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    KnownCatalogs(tmp_path / "file").save(ENTRY, CATALOG)
    assert KnownCatalogs(tmp_path / "file").load(ENTRY) is None


def test_the_oldest_are_deleted_and_nothing_else(
    catalogs: KnownCatalogs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "MAX_CATALOGS", 2)
    folder.mkdir(mode=0o700)
    (folder / "notes.json").write_text("of somebody else")
    os.utime(folder / "notes.json", (0, 0))
    entries = [describe_target("one", ["one", str(number)]) for number in range(3)]
    for age, one in enumerate(entries):
        catalogs.save(one, CATALOG)
        if age < 2:
            os.utime(folder / f"{catalog_key(one)}.json", (age, age))
    assert [catalogs.load(one) is not None for one in entries] == [False, True, True]
    assert (folder / "notes.json").read_text() == "of somebody else"


def test_they_are_beside_the_store(tmp_path: Path) -> None:
    assert KnownCatalogs.beside(SqliteConsentStore(":memory:")) is None
    assert KnownCatalogs.beside(object()) is None
    found = KnownCatalogs.beside(SqliteConsentStore(tmp_path / "consent.db"))
    assert found is not None
    found.save(ENTRY, CATALOG)
    assert only_file(tmp_path / "consent.db-catalogs").suffix == ".json"


# hosts and gateways


class Opened(NamedTuple):
    """A host, or a client of a gateway: both have the same methods."""

    user: Any
    servers: Mapping[str, UpstreamServer]

    async def tools(self) -> set[str]:
        return {tool.name for tool in await self.user.list_tools()}


class Servers:
    """The servers of a configuration, and how often each of them was started."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.store = kind, folder, folder / "consent.db"
        self.entries: dict[str, Any] = {}
        self.options: dict[str, Any] = {}

    def write(self, name: str, more: str = "", **settings: Any) -> None:
        """Write the program of a server, and its entry, which does not depend on the program."""
        starts = f"open({str(self.folder / name)!r}, 'a').write('x')\n"
        command = write_server(self.folder, name, more=starts + more)
        self.entries[name] = entry(command, **settings)

    def starts(self, name: str) -> int:
        path = self.folder / name
        return len(path.read_text()) if path.exists() else 0

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Opened]:
        source = {"mcpServers": self.entries, "dovetail": self.options}
        options = {"limits": PATIENT, "store": self.store, **options}
        if self.kind == "host":
            async with Host(source, **{"policy": "allow", **options}) as host:
                yield Opened(host, host.servers)
        else:
            gateway = Gateway(source, **options)
            async with gateway.lifespan(), Client(gateway) as client:
                yield Opened(client, gateway.upstreams.servers)


@pytest.fixture(params=["host", "gateway"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Servers:
    return Servers(request.param, tmp_path)


async def test_a_lazy_server_starts_at_the_first_list_if_it_is_not_known(servers: Servers) -> None:
    servers.write("one", start="lazy")
    async with servers.open() as opened:
        assert servers.starts("one") == 0
        assert opened.servers["one"].state == "configured"
        assert "one__echo" in await opened.tools()
        assert (opened.servers["one"].state, servers.starts("one")) == ("started", 1)


async def test_a_lazy_server_that_is_known_is_started_by_its_first_call(servers: Servers) -> None:
    servers.write("one", start="lazy")
    async with servers.open() as opened:
        listed = await opened.tools()
    async with servers.open() as opened:
        assert await opened.tools() == listed
        assert [one.uri for one in await opened.user.list_resources()] == ["note://one"]
        assert [one.name for one in await opened.user.list_prompts()] == ["one__hello"]
        assert "Use one." in str(opened.user.instructions)
        assert (opened.servers["one"].state, servers.starts("one")) == ("known", 1)
        assert (await opened.user.call_tool("one__echo", {"text": "hello"})).text == "hello"
        assert (opened.servers["one"].state, servers.starts("one")) == ("started", 2)
    async with servers.open() as opened:
        (contents,) = await opened.user.read_resource("note://one")
        assert contents.text == "the note of one"


async def test_a_known_server_delays_no_list(servers: Servers) -> None:
    servers.write("one")
    async with servers.open() as opened:
        listed = await opened.tools()
    servers.write("one", more="import time; time.sleep(3600)")
    async with asyncio.timeout(PATIENT.catalog_wait / 2):
        async with servers.open() as opened:
            assert await opened.tools() == listed


async def test_known_servers_that_hang_do_not_delay_subscriptions_beyond_catalog_wait(
    tmp_path: Path,
) -> None:
    servers, hung = Servers("gateway", tmp_path), ["one", "two", "three"]
    for name in [*hung, "good"]:
        servers.write(name, start="lazy")
    async with servers.open() as opened:
        await opened.tools()
    for name in hung:
        servers.write(name, more="import time; time.sleep(3600)", start="lazy")
    limits = replace(PATIENT, catalog_wait=2, shutdown=0.1)
    gateway = Gateway({"mcpServers": servers.entries}, limits=limits, store=servers.store)
    async with hosted(gateway) as site:
        await gateway.upstreams.servers["good"].start()
        wanted = {"resourceSubscriptions": [f"note://{name}" for name in [*hung, "good"]]}
        async with asyncio.timeout(2.5 * limits.catalog_wait):  # less than one after another
            answer = await site.ask("subscriptions/listen", {"notifications": wanted})
            accepted = (await answer.next()).message["params"]["notifications"]
        answer.cut()
        assert accepted == {"resourceSubscriptions": ["note://good"]}


@pytest.mark.parametrize("start", ["eager", "lazy"])
async def test_what_changed_meanwhile_is_known_after_the_start(
    servers: Servers, start: str
) -> None:
    servers.write("one", start=start, pin="off")
    async with servers.open() as opened:
        assert "one__later" not in await opened.tools()
    servers.write("one", more="server.add_tool(pid, name='later')", start=start, pin="off")
    async with servers.open() as opened:
        await opened.user.call_tool("one__later")  # nobody lists it yet
        assert "one__later" in await opened.tools()
    async with servers.open() as opened:
        assert "one__later" in await opened.tools()


async def test_a_list_that_changed_while_the_server_ran_is_known(servers: Servers) -> None:
    servers.write("one", start="lazy", pin="off")
    async with servers.open() as opened:
        await opened.user.call_tool("one__grow", {"name": "later"})
        async with asyncio.timeout(60):
            while "later" not in opened.servers["one"].catalog.tools:
                await asyncio.sleep(0.05)
    async with servers.open() as opened:
        assert "one__later" in await opened.tools()
        assert servers.starts("one") == 1


@pytest.mark.parametrize("start", ["eager", "lazy"])
async def test_a_known_tool_that_changed_is_not_called(servers: Servers, start: str) -> None:
    policy = {"rule": [{"effect": "deny", "kind": "pin"}, {"effect": "allow"}]}
    options: dict[str, Any] = {"policy": policy} if servers.kind == "host" else {}
    servers.write("one", start=start, pin="ask")
    async with servers.open(**options) as opened:
        assert "one__echo" in await opened.tools()
    changed = "server.add_tool(lambda text: text, name='echo', description='Other')"
    again = f"server.remove_tool('echo')\n{changed}"
    servers.write("one", more=again, start=start, pin="ask")
    async with servers.open(**options) as opened:
        with pytest.raises(DovetailError, match="dovetail consent approve one echo"):
            await opened.user.call_tool("one__echo", {"text": "hello"})
        assert "one__echo" not in await opened.tools()
        assert "one__pid" in await opened.tools()


async def test_a_known_server_that_the_policy_forbids_to_start_is_not_listed(
    servers: Servers,
) -> None:
    servers.write("one", start="lazy")
    async with servers.open() as opened:
        assert await opened.tools()
    policy = {"rule": [{"effect": "deny", "kind": "start"}, {"effect": "allow"}]}
    async with servers.open(policy=policy) as opened:
        assert await opened.tools() == set()
        assert not opened.user.instructions
        with pytest.raises(DovetailError):
            await opened.user.call_tool("one__echo", {"text": "hello"})
        assert opened.servers["one"].state == "refused"
        assert await opened.tools() == set()
    assert servers.starts("one") == 1


async def test_a_file_that_cannot_be_read_loses_nothing(servers: Servers) -> None:
    servers.write("one")
    servers.write("two", start="lazy")
    async with servers.open() as opened:
        listed = await opened.tools()
    folder = Path(f"{servers.store}-catalogs")
    files = list(folder.iterdir())
    assert len(files) == 2
    for path in files:
        path.write_bytes(b'{"format": 99, "tools": "of another version"}')
    async with servers.open() as opened:
        assert await opened.tools() == listed
    for path in files:
        path.unlink()
    folder.rmdir()
    folder.write_text("not a folder")
    async with servers.open() as opened:
        assert await opened.tools() == listed
        assert (await opened.user.call_tool("two__echo", {"text": "hello"})).text == "hello"
    assert folder.read_text() == "not a folder"


async def test_a_server_of_another_user_is_not_known(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.write("one", more="server.add_tool(pid, name='of_' + os.environ['TOKEN'])", pin="off")
    servers.entries["one"]["env"]["TOKEN"] = "${KNOWN_TEST_TOKEN}"
    for user in ("ann", "bob"):
        monkeypatch.setenv("KNOWN_TEST_TOKEN", user)
        async with servers.open() as opened:
            found = {name for name in await opened.tools() if name.startswith("one__of_")}
            assert found == {f"one__of_{user}"}


async def test_a_lazy_server_that_fails_is_tried_again_and_delays_nobody(servers: Servers) -> None:
    servers.write("one")
    servers.write("two", more="sys.exit(3)", start="lazy")
    async with servers.open() as opened:
        assert "one__echo" in await opened.tools()
        assert opened.servers["two"].state == "failed"
        servers.write("two", start="lazy")
        async with asyncio.timeout(60):
            while "two__echo" not in await opened.tools():
                await asyncio.sleep(0.1)


async def test_a_known_server_is_searched_without_being_started(tmp_path: Path) -> None:
    servers = Servers("gateway", tmp_path)
    servers.write("one", start="lazy")
    servers.options = {"search": True}
    async with servers.open() as opened:
        await opened.user.call_tool("find_tools", {"query": "process"})
    async with servers.open() as opened:
        found = await opened.user.call_tool("find_tools", {"query": "the process of this server"})
        assert "one__pid" in found.text
        assert servers.starts("one") == 1
        called = {"name": "one__echo", "arguments": {"text": "hello"}}
        assert (await opened.user.call_tool("call_tool", called)).text == "hello"
        assert servers.starts("one") == 2


async def test_a_host_asks_before_it_starts_a_known_server(tmp_path: Path) -> None:
    servers = Servers("host", tmp_path)
    servers.write("one", start="lazy")
    asked: list[str] = []

    def ask(request: Any) -> str:
        asked.append(request.kind)
        return "once"

    options: dict[str, Any] = {"policy": None, "on_consent": ask}
    async with servers.open(**options) as opened:
        listed = await opened.tools()
        assert asked == ["start"]
    async with servers.open(**options) as opened:
        assert await opened.tools() == listed
        assert asked == ["start"]
        await opened.user.call_tool("one__echo", {"text": "hello"})
        assert asked == ["start", "start", "call"]


def test_a_variable_that_is_not_set_is_an_error_only_at_the_start(tmp_path: Path) -> None:
    server = {"command": "x", "env": {"A": "${KNOWN_TEST_MISSING}"}}
    gateway = Gateway(
        {"mcpServers": {"one": server}}, store=tmp_path / "consent.db", limits=PATIENT
    )
    found = gateway.upstreams.servers["one"]
    assert (found.state, found.settings) == ("configured", ServerSettings())
    with pytest.raises(ConfigError):
        found.entry.find_target()
