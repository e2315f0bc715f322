"""The way to a login page and back: what counts as the answer, and what everything else gets."""

import asyncio
import os
import pty
import re
import sys
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dovetail.auth.client import browser as browsers
from dovetail.auth.client.browser import LoopbackBrowser, Visit
from dovetail.errors import ConfigError, Unauthorized

LOGIN = "https://login.example/authorize?client_id=me&state=s1"


class Said(list[str]):
    """What the browser told the user; a test can wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.append(text)
        self.came.set()


async def request(
    visit: Visit,
    target: str,
    method: str = "GET",
    host: str | None = None,
    raw: bytes | None = None,
) -> bytes:
    """Everything that one request is answered with."""
    port = urlsplit(visit.redirect_uri).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\nAccept: */*\r\n\r\n"
    )
    writer.write(head.encode() if raw is None else raw)
    try:
        return await reader.read()
    finally:
        writer.close()


def quiet(**options: object) -> LoopbackBrowser:
    return LoopbackBrowser(open=False, tell=lambda text: None, **options)  # type: ignore[arg-type]


@pytest.mark.requirement("auth-redirect-loopback")
async def test_the_parameters_that_come_back_are_the_answer() -> None:
    async with quiet().session() as visit:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", visit.redirect_uri)
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        page = await request(visit, "/callback?code=c%2B1&state=s1&iss=https%3A%2F%2Flogin.example")
        assert await going == {"code": "c+1", "state": "s1", "iss": "https://login.example"}
    assert page.startswith(b"HTTP/1.1 200 ") and b"close this window" in page and b"example" in page


async def test_the_login_ends_at_the_same_port_each_time_where_that_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with quiet().session() as visit:
        monkeypatch.setattr(browsers, "DEFAULT_PORT", urlsplit(visit.redirect_uri).port)
        async with quiet().session() as other:
            assert other.redirect_uri != visit.redirect_uri
    async with quiet().session() as again:
        assert again.redirect_uri == visit.redirect_uri


@pytest.mark.requirement("auth-iss-on-errors")
async def test_a_refusal_is_an_answer_too_but_nothing_that_it_says_is_shown() -> None:
    """Whether it is from who was asked is not known yet."""
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        evil = "iss=https://evil.example&error=access_denied&error_description=Call+555-1234&error_uri=https://evil.example"
        page = await request(visit, f"/callback?{evil}&state=s1")
        assert (await going)["error"] == "access_denied"
    assert b"Not logged in" in page and b"example was refused" in page
    assert b"evil" not in page and b"555" not in page and b"access_denied" not in page


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 404),
        ("/favicon.ico", 404),
        ("/callback/?code=c&state=s1", 404),
        ("/callback/../callback?code=c&state=s1", 404),
        ("//callback?code=c&state=s1", 404),
        ("http://127.0.0.1/callback?code=c&state=s1", 404),
        ("/callback", 400),
        ("/callback?state=s1", 400),
        ("/callback?code=c", 400),
        ("/callback?code=c&state=other", 400),
        ("/callback?error=access_denied", 400),
        ("/callback?code=c&state=s1&state=other", 400),
        ("/callback?code=c&code=d&state=s1", 400),
        ("/callback?code=%ff&state=s1", 400),
        ("/callback?" + "&".join(f"p{number}=1" for number in range(60)) + "&code=c&state=s1", 400),
    ],
)
async def test_what_is_not_the_answer_is_turned_away_and_ends_nothing(
    target: str, status: int
) -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        assert (await request(visit, target)).startswith(b"HTTP/1.1 %d " % status)
        assert not going.done()
        await request(visit, "/callback?code=right&state=s1")
        assert (await going)["code"] == "right"


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "get", "OPTIONS"])
async def test_only_get_is_answered(method: str) -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        assert (await request(visit, "/callback?code=c&state=s1", method)).startswith(
            b"HTTP/1.1 404 "
        )
        assert not going.done()
        going.cancel()


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:80\r\nHost: evil.example"],
)
async def test_a_name_that_leads_here_is_not_ours(host: str) -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        assert (await request(visit, "/callback?code=c&state=s1", host=host)).startswith(
            b"HTTP/1.1 404 "
        )
        assert not going.done()
        going.cancel()


async def test_two_hosts_are_none() -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        ours = urlsplit(visit.redirect_uri).netloc
        both = (
            f"GET /callback?code=c&state=s1 HTTP/1.1\r\nHost: {ours}\r\nHost: evil.example\r\n\r\n"
        ).encode()
        assert (await request(visit, "", raw=both)).startswith(b"HTTP/1.1 404 ")
        going.cancel()


async def test_the_first_answer_wins_and_a_second_finds_nobody() -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        await request(visit, "/callback?code=first&state=s1")
        assert (await going)["code"] == "first"
        assert (await request(visit, "/callback?code=second&state=s1")).startswith(b"HTTP/1.1 404 ")


async def test_nothing_is_taken_before_the_user_was_sent() -> None:
    async with quiet().session() as visit:
        assert (await request(visit, "/callback?code=c&state=")).startswith(b"HTTP/1.1 404 ")


async def test_what_is_shown_cannot_become_part_of_the_page() -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "<script>alert(1)</script>\0"))
        await asyncio.sleep(0)
        page = (await request(visit, "/callback?code=c&state=s1")).decode()
        await going
    head, _, body = page.partition("\r\n\r\n")
    assert "<script" not in body and "&lt;script&gt;" in body and "\x00" not in body
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
    policy = headers["Content-Security-Policy"]
    assert (
        policy.startswith("default-src 'none'; style-src 'sha256-")
        and "frame-ancestors 'none'" in policy
    )
    assert "script" not in policy and "unsafe" not in policy
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff" and int(headers["Content-Length"]) == len(
        body.encode()
    )


@pytest.mark.parametrize(
    "raw",
    [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /callback?code=c&state=s1\r\n\r\n", b"\r\n\r\n"],
)
async def test_what_is_no_http_is_turned_away(raw: bytes) -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
        assert (await request(visit, "", raw=raw)).startswith(b"HTTP/1.1 404 ")
        assert not going.done()
        going.cancel()


async def test_a_request_that_is_too_long_is_hung_up_on() -> None:
    async with quiet().session() as visit:
        try:
            said = await request(visit, "/callback?code=" + "c" * 2 * browsers.MAX_REQUEST_BYTES)
        except ConnectionResetError:
            said = b""
        assert said == b""


async def test_a_request_that_never_ends_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsers, "REQUEST_TIMEOUT_SECONDS", 0.05)
    async with quiet().session() as visit:
        assert await request(visit, "", raw=b"GET /callback?code=c HTTP/1.1\r\n") == b""


async def test_connections_beyond_the_bound_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsers, "MAX_CONNECTIONS", 2)
    async with quiet().session() as visit:
        port = urlsplit(visit.redirect_uri).port
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), browsers.REQUEST_TIMEOUT_SECONDS / 2) == b""
        for _, one in [*idle, (reader, writer)]:
            one.close()


async def test_a_login_that_nobody_completes_is_given_up() -> None:
    async with quiet(timeout=0.05).session() as visit:
        with pytest.raises(
            Unauthorized,
            match=r"The login at login\.example was not completed within 0\.05 s. Try again",
        ):
            await visit.go(LOGIN, "example")


async def test_a_visit_that_is_closed_ends_whoever_waits() -> None:
    async with quiet().session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await asyncio.sleep(0)
    with pytest.raises(Unauthorized, match="cancelled"):
        await going
    with pytest.raises(Unauthorized, match="cancelled"):
        await visit.go(LOGIN, "example")


async def test_nobody_listens_once_the_visit_is_over() -> None:
    async with quiet().session() as visit:
        pass
    with pytest.raises(ConnectionRefusedError):
        await request(visit, "/callback")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "calc.exe",
        "-flag",
        "https://a b",
        "https://a\nb",
        "ftp://a",
        "https://é",
        "",
    ],
)
async def test_only_web_pages_are_opened(url: str) -> None:
    async with quiet().session() as visit:
        with pytest.raises(Unauthorized, match="not opened because its URL does not use http"):
            await visit.go(url, "example")


async def test_a_port_that_is_taken_is_named() -> None:
    async with quiet().session() as visit:
        port = urlsplit(visit.redirect_uri).port or 0
        with pytest.raises(ConfigError, match=rf"Cannot listen on 127\.0\.0\.1:{port}"):
            async with quiet(port=port, timeout=0).session():
                pass


async def test_a_login_waits_for_another_that_ends_at_the_same_port() -> None:
    said = Said()
    async with quiet().session() as first:
        port = urlsplit(first.redirect_uri).port or 0
        second = LoopbackBrowser(port, open=False, tell=said).session()
        entering = asyncio.create_task(second.__aenter__())
        await said.came.wait()
        assert said == [f"127.0.0.1:{port} is in use, possibly by another login. Waiting for it."]
    assert (await entering).redirect_uri == first.redirect_uri
    await second.__aexit__(None, None, None)


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a program the browser of this system: it is given the URL."""

    def choose(source: str) -> None:
        path = tmp_path / "browser"
        path.write_text(f"#!{sys.executable}\nimport sys\n{source}\n")
        path.chmod(0o755)
        monkeypatch.setenv("BROWSER", str(path))
        monkeypatch.setattr(webbrowser, "_tryorder", None)  # where that was looked up before
        monkeypatch.setattr(webbrowser, "_browsers", {})

    return choose


@pytest.mark.skipif(os.name != "posix", reason="BROWSER is a thing of Unix")
async def test_the_browser_is_opened_without_a_shell(
    tmp_path: Path, browser: Callable[[str], None]
) -> None:
    """A URL full of what a shell would make something of arrives as one word, and the answer comes
    back."""
    browser(
        "import urllib.request, urllib.parse\n"
        f"open({str(tmp_path / 'given')!r}, 'w').write(repr(sys.argv[1:]))\n"
        "asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(sys.argv[1]).query))\n"
        "urllib.request.urlopen(asked['redirect_uri'] + '?code=c&state=' + asked['state']).read()",
    )
    said = Said()
    async with LoopbackBrowser(tell=said).session() as visit:
        url = f"https://login.example/a;touch$IFS{tmp_path}/pwned`id`?redirect_uri={visit.redirect_uri}&state=s&x=$(id)|'\""
        assert (await visit.go(url, "example"))["code"] == "c"
    assert (tmp_path / "given").read_text() == repr([url])
    assert not (tmp_path / "pwned").exists()
    assert said == [f"Opening your browser to log in to example:\n{url}"]


@pytest.mark.skipif(os.name != "posix", reason="BROWSER is a thing of Unix")
async def test_a_browser_that_stays_open_holds_nobody_up(browser: Callable[[str], None]) -> None:
    browser("import time; time.sleep(20)")
    async with (
        LoopbackBrowser(timeout=0.2, tell=lambda text: None).session() as visit,
        asyncio.timeout(15),
    ):
        with pytest.raises(Unauthorized, match="not completed"):
            await visit.go(LOGIN, "example")


async def test_where_no_window_can_appear_the_address_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    async with LoopbackBrowser(timeout=0.01).session() as visit:
        with pytest.raises(Unauthorized):
            await visit.go(LOGIN, "evil\x1b[2Jname")
    out, err = capsys.readouterr()
    assert out == "" and err == f"Open this page to log in to evil\\x1b[2Jname:\n{LOGIN}\n"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    """stdin as a terminal; what types into it."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as screen, os.fdopen(ours, "wb", buffering=0) as keyboard:
        monkeypatch.setattr(sys, "stdin", screen)
        yield lambda text: keyboard.write(text.encode())


async def test_the_address_that_the_login_ended_at_can_be_pasted(
    terminal: Callable[[str], int],
) -> None:
    said = Said()
    async with LoopbackBrowser(open=False, tell=said).session() as visit:
        going = asyncio.create_task(visit.go(LOGIN, "example"))
        await said.came.wait()
        assert "paste it here" in said[-1]
        said.came.clear()
        terminal("\nhttp://127.0.0.1:1/callback?code=c&state=wrong\n")
        await said.came.wait()
        assert (
            said[-1] == "This is not the URL of the final page, which starts with "
            f"{visit.redirect_uri}"
        )
        terminal("http://127.0.0.1:1/callback?code=pas")
        terminal("ted&state=s1\r\n")
        assert (await going)["code"] == "pasted"


async def test_typing_is_heard_only_while_it_is_waited_for(terminal: Callable[[str], int]) -> None:
    async with LoopbackBrowser(open=False, tell=lambda text: None, timeout=0.01).session() as visit:
        with pytest.raises(Unauthorized):
            await visit.go(LOGIN, "example")
        terminal("meant for somebody else\n")
        assert await asyncio.to_thread(sys.stdin.readline) == "meant for somebody else\n"
