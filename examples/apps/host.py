"""A small host: a web page that calls a tool and shows its view.

`pip install "dovetail-mcp[http]"`, run `python examples/apps/host.py`, and open http://127.0.0.1:8000.
The host uses the server in the same folder, or any other server with a tool `forecast(city)` that
has a view: `python examples/apps/host.py my_server.py`.

The host serves two origins on one port. The host's page is at 127.0.0.1. The proxies that show the
views are at localhost, so the views cannot access the host's page. For each view, the page opens a
WebSocket, and passes on the messages that the view's window posts:

    page to host    {"message": …}              a message from the view
                    {"allow": true}             whether the user allows a link to be opened
    host to page    {"open": …}                 show a view: the URL of its proxy, and the permissions of its frame
                    {"post": …}                 a message for the view
                    {"size" | "link" | "said" | "result": …}
"""  # noqa: E501

import argparse
import asyncio
import json
import socket
from contextlib import suppress
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs

from dovetail import Client, DovetailError, HttpResponse
from dovetail.extensions.apps import APPS, PROXY_SANDBOX, Bridge, View, ViewHost

HERE = Path(__file__).parent
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src {}; frame-src {}"
)


class Website:
    """The host as an ASGI application."""

    def __init__(self, client: Client, port: int) -> None:
        self.client = client
        self.page, self.proxies = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        self.views: dict[str, View] = {}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope.get("headers", ())}
        if scope["type"] == "http":
            reply = self.get(f"http://{headers.get('host')}", scope["path"])
            lines = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
            await send({"type": "http.response.start", "status": reply.status, "headers": lines})
            await send({"type": "http.response.body", "body": reply.body})
        elif scope["type"] == "websocket":
            await receive()
            if headers.get("origin") != self.page:  # another page of this browser, perhaps a view
                await send({"type": "websocket.close"})
                return
            await send({"type": "websocket.accept"})
            query = parse_qs(scope["query_string"].decode())
            await self.show(query["tool"][0], json.loads(query["arguments"][0]), receive, send)

    def get(self, origin: str, path: str) -> HttpResponse:
        """Return the host's page at one origin, or a view's proxy at the other."""
        if (origin, path) == (self.page, "/"):
            policy = PAGE_POLICY.format(self.page.replace("http", "ws"), self.proxies)
            headers = {
                "content-type": "text/html; charset=utf-8",
                "content-security-policy": policy,
            }
            return HttpResponse(headers=headers, body=(HERE / "host.html").read_bytes())
        if origin == self.proxies and (view := self.views.get(path.removeprefix("/"))):
            return view.proxy(self.page)
        return HttpResponse(status=404)

    async def show(self, tool: str, arguments: dict[str, Any], receive: Any, send: Any) -> None:
        """Call a tool and show its view, until the page closes the socket."""
        outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        answers: asyncio.Queue[bool] = asyncio.Queue()

        def tell(**message: Any) -> None:
            outbox.put_nowait(message)

        async def ask(url: str) -> bool:
            tell(link=url)
            return await answers.get()

        def said(role: str, content: Any) -> bool:
            parts = [content] if "text" in content else content  # one block, or a list of them
            tell(said=" ".join(part["text"] for part in parts))
            return True

        async def write() -> None:
            while True:
                await send({"type": "websocket.send", "text": json.dumps(await outbox.get())})

        async def answer(message: Any) -> None:
            if (reply := await bridge.handle(message)) is not None:
                tell(post=reply)

        async def call() -> None:
            try:
                tell(result=(await bridge.call(arguments)).text)
            except DovetailError as error:
                tell(result=str(error))

        id = token_urlsafe()
        view = self.views[id] = await self.client.read_app(tool)
        host = ViewHost(
            name="a-small-host",
            context={"theme": "light", "containerDimensions": {"maxHeight": 800}},
            on_link=ask,
            on_message=said,
            on_size=lambda width, height: tell(size=height),
        )
        bridge = Bridge(self.client, view, lambda message: tell(post=message), host)
        frame = {"src": f"{self.proxies}/{id}", "sandbox": PROXY_SANDBOX, "allow": view.allow}
        tell(
            open={
                **frame,
                "border": view.prefers_border,
                "origins": view.origins,
                "resource": view.resource_ready(),
            }
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(write()), tasks.create_task(call())]
                while (event := await receive())["type"] == "websocket.receive":
                    came = json.loads(event["text"])
                    if "allow" in came:
                        answers.put_nowait(came["allow"])
                    else:
                        working = [task for task in working if not task.done()]
                        working.append(tasks.create_task(answer(came["message"])))
                for task in working:
                    task.cancel()
        finally:
            del self.views[id]


async def main(server: Path, port: int) -> None:
    """Start the server and the website."""
    import uvicorn

    async with Client(server, extensions=[APPS]) as client:
        with socket.create_server(("127.0.0.1", port)) as listening:
            port = listening.getsockname()[1]
            print(f"http://127.0.0.1:{port}", flush=True)
            config = uvicorn.Config(
                Website(client, port), lifespan="off", log_level="warning", ws="websockets-sansio"
            )
            await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show the views of a server in a browser.")
    parser.add_argument(
        "server",
        nargs="?",
        type=Path,
        default=HERE / "server.py",
        help="the server's file (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8000,
        help="the port of the page (default: %(default)s); 0 chooses a free port",
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(main(**vars(parser.parse_args())))
