"""Another page in the same browser, at another port or at the origin of an app: whatever it sends
to the inspector has no effect, and it can read nothing, not even with the token."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.behaviour.web import on_a_port
from tests.browser import Page, browser

from .harness import inspector

SERVER = '''
from pathlib import Path

from dovetail import Server

server = Server("victim")


@server.tool
def delete() -> str:
    """Delete everything."""
    Path("deleted").write_text("")
    return "deleted"


if __name__ == "__main__":
    server.run()
'''
BODY = json.dumps({"tool": "delete"})
HELP = """
const soon = (promise) => Promise.race([promise, new Promise((end) => setTimeout(end, 3000, ""))]);
const fail = () => "";
const text = (reply) => (reply.type === "opaque" ? "" : reply.text());
const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
const post = { method: "POST", body };
const get = (path, sent) => fetch(base + path, sent).then(text, fail);
const element = (name, fields) => new Promise((end) => {
  const one = Object.assign(document.createElement(name), fields);
  one.onload = () => end(`loaded ${name}`);
  one.onerror = () => end("");
  document.body.append(one);
});
const request = (method, path, sent) => new Promise((end) => {
  const one = new XMLHttpRequest();
  one.open(method, base + path);
  for (const [name, value] of Object.entries(sent)) one.setRequestHeader(name, value);
  one.onloadend = () => end(one.responseText);
  one.send(method === "POST" ? body : null);
});
"""
ATTACKS = {
    "fetch": "get('/api/call', { ...post, headers })",
    "fetch without the token": "get('/api/call', post)",
    "fetch of what it shows": "get('/api/snapshot', { ...post, body: '{}', headers })",
    "fetch of events": "get('/api/events?after=0', { headers })",
    "fetch of a file": "get('/static/app.js')",
    "fetch without CORS": "get('/api/call', { ...post, mode: 'no-cors' })",
    "fetch with cookies": "get('/api/call', { ...post, mode: 'no-cors', credentials: 'include' })",
    "beacon": "navigator.sendBeacon(base + '/api/call', new Blob([body])) && ''",
    "XHR": "request('POST', '/api/call', headers)",
    "XHR without the token": "request('POST', '/api/call', {})",
    "XHR of events": "request('GET', '/api/events?after=0', headers)",
    "event stream": """new Promise((end) => {
      const one = new EventSource(base + "/api/events?after=0");
      one.onmessage = (event) => end(event.data);
      one.onerror = () => (one.close(), end(""));
    })""",
    "WebSocket": """new Promise((end) => {
      const one = new WebSocket(base.replace("http", "ws") + "/api/events?after=0");
      one.onopen = () => end("open");
      one.onerror = () => end("");
    })""",
    "script": "element('script', { src: base + '/static/app.js' })",
    "module": "import(base + '/static/store.js').then((one) => Object.keys(one).join(), fail)",
    "script of the API": "element('script', { src: base + '/api/snapshot' })",
    "style sheet": "element('link', { rel: 'stylesheet', href: base + '/static/app.css' })",
    "image": "element('img', { src: base + '/api/snapshot' })",
    "object": "element('object', { data: base + '/' }).then(() => '')",
    "form": r"""new Promise((end) => {
      const make = (name, fields) => Object.assign(document.createElement(name), fields);
      const sink = make("iframe", { name: `sink ${base}` });
      const form = make("form", { method: "post", enctype: "text/plain", target: sink.name });
      form.action = base + "/api/call";
      const name = '{"tool": "delete", "arguments": "{\\"x'; // with the value, this is JSON
      form.append(make("input", { name, value: '\\": 1}"}' }));
      document.body.append(sink, form);
      sink.onload = () => end("");
      form.submit();
    })""",
    "window": """(async () => {
      const one = open(base + "/");
      await new Promise((end) => setTimeout(end, 500));
      try {
        return one && !one.closed ? one.document.body.innerText : "";
      } catch { return ""; }
    })()""",
}
FRAME = """new Promise((end) => {
  const one = document.createElement("iframe");
  one.src = `${base}/#${token}`;
  one.onload = () => end(true);
  document.body.append(one);
})"""


async def page_app(scope: Any, receive: Any, send: Any) -> None:
    """Serve the page of somebody else."""
    while scope["type"] == "lifespan":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
    headers = [(b"content-type", b"text/html")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"<!doctype html><title>Evil</title><body>"})


@asynccontextmanager
async def victim(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Provide the origin and the token of an inspector."""
    path = folder / "server.py"
    path.write_text(SERVER)
    async with inspector(str(path), folder=folder) as running:
        address = urlsplit(running.url)
        yield f"{address.scheme}://{address.netloc}", address.fragment


async def calls_so_far(origin: str, token: str) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as web,
        web.post(f"{origin}/api/snapshot", data="{}", headers=headers) as reply,
    ):
        assert reply.status == 200
        return (await reply.json())["calls"]


async def shown_frames(page: Page) -> list[str]:
    """Return what the frames of a page show: an error page, if a URL may not be framed."""
    tree = (await page.command("Page.getFrameTree"))["frameTree"].get("childFrames", [])
    found = [one["frame"]["url"] for one in tree]
    for id in await page.frames():  # those that run in a process of their own
        attached = await page.command("Target.attachToTarget", targetId=id, flatten=True)
        found.append(await Page(page._devtools, attached["sessionId"]).says("location.href"))
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_another_origin_has_no_effect_and_reads_nothing(tmp_path: Path, host: str) -> None:
    async with (
        victim(tmp_path) as (origin, token),
        on_a_port(page_app) as address,
        browser() as page,
    ):
        await page.go(f"http://{host}:{urlsplit('//' + address).port}/")
        await page.until("document.title === 'Evil'")
        bases = [origin, origin.replace("127.0.0.1", "localhost")]
        for base in bases:
            given = f"const [base, token, body] = {json.dumps([base, token, BODY])}; {HELP}"
            for name, attack in ATTACKS.items():
                script = f"(async () => {{ {given} return await soon({attack}); }})()"
                assert await page.says(script, userGesture=True) in ("", None), (base, name)
            framed = f"(async () => {{ {given} return await soon({FRAME}); }})()"
            await page.says(framed)
        assert {url for url in await shown_frames(page) if url.startswith("http")} == set()
        assert await calls_so_far(origin, token) == []
        assert not (tmp_path / "deleted").exists()


async def test_the_page_itself_may_do_what_the_others_may_not(tmp_path: Path) -> None:
    async with victim(tmp_path) as (origin, token), browser() as page:
        await page.go(f"{origin}/#{token}")
        await page.until("document.querySelector('.left .row')")
        given = f"const [base, token, body] = {json.dumps([origin, token, BODY])}; {HELP}"
        for name in ("fetch", "XHR", "fetch of what it shows"):
            script = f"(async () => {{ {given} return await soon({ATTACKS[name]}); }})()"
            assert await page.says(script), name
        assert len(await calls_so_far(origin, token)) == 2
