"""From a client that knows nothing but a URL to the answer of a tool: with a real browser, a real
OpenID provider, real processes, and restarts in between."""

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from dovetail import Client
from dovetail.auth import FileStore, LoopbackBrowser, MemoryStore, OAuth
from dovetail.errors import Unauthorized
from tests.inspector.page.pictures import keep_pictures, take_picture
from tests.ports import free_port

from .. import node
from ..browser import browser
from ..person import Person
from ..system import needs_browser, needs_npm
from .guarded import PASSWORD, USER

HERE = Path(__file__).parent


@asynccontextmanager
async def program(*command: str) -> AsyncIterator[str]:
    """A process, once it has said its first line, which is what we get."""
    env = {
        **os.environ,
        "PYTHONPATH": str(HERE.parents[1]),
        "DOVETAIL_KEYS": "a key that outlives the process",
    }
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while (
                line := (await process.stdout.readline()).decode().strip()
            ) and "WARNING" in line:
                pass
        assert line, "It ended at once"
        yield line
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def guarded(
    kind: str, port: int = 0, **given: object
) -> "contextlib._AsyncGeneratorContextManager[str]":
    return program(
        sys.executable,
        "-m",
        "tests.auth.guarded",
        kind,
        str(port),
        *(f"{name}={value}" for name, value in given.items()),
    )


@pytest.fixture(scope="module")
def installed() -> None:
    """Install the identity provider, which takes longer than a test may."""
    node.install()


@asynccontextmanager
async def identity_provider(resource: str, callback: str = "") -> AsyncIterator[str]:
    """A real OpenID provider; its issuer."""
    port = free_port()
    # Node looks for imported packages next to the script; each process has its own copy.
    script = node.CACHE / f"provider-{port}.mjs"
    shutil.copy(HERE / "identity/provider.mjs", script)
    try:
        async with program(str(node.NODE), str(script), str(port), resource, callback) as said:
            assert said == "ready"
            yield f"http://127.0.0.1:{port}"
    finally:
        script.unlink()


class Robot:
    """A browser that logs in by itself. Counts the visits."""

    redirect_uri = "http://127.0.0.1:3999/callback"

    def __init__(self, **answers: str) -> None:
        self.person = Person(**answers)
        self.visits = 0

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Robot"]:
        yield self

    async def go(self, url: str, about: str) -> Mapping[str, str]:
        self.visits += 1
        ended = await asyncio.to_thread(self.person.visit, url, self.redirect_uri, arrive=False)
        return dict(parse_qsl(urlsplit(ended).query))


@needs_browser
async def test_in_a_real_browser_a_user_logs_in_and_consents_and_the_client_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    chosen = LoopbackBrowser(open=False, tell=told.put_nowait)
    async with guarded("embedded", storage=tmp_path / "store.db") as url, browser() as page:
        auth = OAuth(store=MemoryStore(), browser=chosen, client_name="Note taker")

        async def ask() -> object:
            async with Client(url, auth=auth) as client:
                return (await client.call_tool("whoami")).data

        async with asyncio.TaskGroup() as group:
            answer = group.create_task(ask())
            await page.go(re.findall(r"http\S+", await told.get())[-1])
            await page.fill("input[name=username]", USER)
            await page.fill("input[name=password]", PASSWORD)
            await page.click("button[value=login]")
            shown = await page.until(
                "document.querySelector('button[value=approve]') && document.body.innerText"
            )
            assert "Note taker" in shown
            assert "Read your notes" in shown
            assert "127.0.0.1" in shown  # where the browser is sent back to
            await take_picture(page, "consent-page")
            await keep_pictures(page, "consent-page")
            await page.click("button[value=approve]")
            assert "close this window" in await page.until(
                "document.body.innerText.includes('close') && document.body.innerText"
            )
            assert await answer == USER


async def test_neither_a_restart_of_the_client_nor_of_the_server_takes_a_new_login(
    tmp_path: Path,
) -> None:
    port, store = free_port(), FileStore(tmp_path / "client")
    robot = Robot(username=USER, password=PASSWORD)
    for _ in range(
        2
    ):  # each time another server process, and another client that knows only the file
        async with guarded("embedded", port, storage=tmp_path / "store.db") as url:
            for _ in range(2):
                async with Client(
                    url, auth=OAuth(store=FileStore(tmp_path / "client"), browser=robot)
                ) as client:
                    assert (await client.call_tool("whoami")).data == USER
    assert robot.visits == 1
    assert await store.keys()


async def test_two_clients_that_find_their_token_at_its_end_refresh_it_once(tmp_path: Path) -> None:
    robot = Robot(username=USER, password=PASSWORD)

    def client() -> Client:
        return Client(url, auth=OAuth(store=FileStore(tmp_path / "client"), browser=robot))

    async with guarded("embedded", storage=tmp_path / "store.db", access_life=2) as url:
        async with client() as one, client() as two:
            assert (await one.call_tool("whoami")).data == USER
            before = (await two.call_tool("refreshes")).data
            await asyncio.sleep(2.1)  # the token's life, which no event ends
            both = await asyncio.gather(one.call_tool("refreshes"), two.call_tool("refreshes"))
            assert [result.data for result in both] == [before + 1, before + 1]
    assert robot.visits == 1


async def test_a_tool_that_wants_more_leads_to_a_second_consent_and_keeps_what_was_given(
    tmp_path: Path,
) -> None:
    robot = Robot(username=USER, password=PASSWORD)
    async with guarded("embedded", storage=tmp_path / "store.db") as url:
        async with Client(url, auth=OAuth(store=MemoryStore(), browser=robot)) as client:
            assert [tool.name for tool in await client.list_tools()] == ["whoami", "refreshes"]
            assert (await client.call_tool("erase")).data == "erased"
            assert (await client.call_tool("whoami")).data == USER
            assert {tool.name for tool in await client.list_tools()} == {
                "whoami",
                "refreshes",
                "erase",
            }
    assert robot.visits == 2
    assert "Change and delete your notes" in robot.person.pages[-1]


@needs_npm
async def test_a_client_reaches_a_tool_through_a_real_openid_provider(installed: None) -> None:
    port = free_port()
    async with (
        identity_provider(f"http://127.0.0.1:{port}/mcp") as issuer,
        guarded("resource", port, idp=issuer) as url,
    ):
        robot = Robot(login="grace", password="any")
        async with Client(url, auth=OAuth(store=MemoryStore(), browser=robot)) as client:
            assert (await client.call_tool("whoami")).data == "grace"


@needs_npm
async def test_users_of_a_real_openid_provider_log_in_at_the_embedded_authorization_server(
    installed: None,
) -> None:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    async with identity_provider(f"{origin}/mcp", f"{origin}/callback") as issuer:
        async with guarded("upstream", port, idp=issuer) as url:
            robot = Robot(login="grace", password="any")
            async with Client(url, auth=OAuth(store=MemoryStore(), browser=robot)) as client:
                assert "grace" in (await client.call_tool("whoami")).data
            assert "Read your notes" in robot.person.pages[0], (
                "Consent comes before the upstream is visited"
            )


async def test_without_credentials_the_error_says_what_to_do(tmp_path: Path) -> None:
    async with guarded("embedded", storage=tmp_path / "store.db") as url:
        with pytest.raises(Unauthorized, match="login"):
            async with Client(url) as client:
                await client.list_tools()
