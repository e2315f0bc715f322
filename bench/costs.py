"""What a call costs, and what each thing around it adds: processor time of one request, without any
network.

    python -m bench.costs          in the environment that `make check` makes

A connection is driven by hand: the bytes of a request go into the protocol, and those of the
response come out of it. The best of several rounds that take turns counts. The guides and the
design notes have their figures from here; absolute ones are those of the machine. An isolated tool
is the exception: it takes a process, and its time is that on the clock.
"""

import asyncio
import json
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from dovetail import Client, Rates, Server, telemetry
from dovetail.auth import ApiKeys, Bearer, KnownClient, Provider, jose, jwt
from dovetail.ports import HttpRequest, HttpResponse, PublicUrl
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from dovetail.revisions import STATELESS
from dovetail.sealing import KeyRing
from dovetail.serve.uvicorn_server import make_protocol_class

from .servers import apart, floor
from .words import duration

CONNECTIONS, TIMES, ROUNDS = 32, 50, 12
KEY = "k" * 32
BASE = "http://127.0.0.1"
URL = f"{BASE}/mcp"


class Wire(asyncio.Transport):
    """A connection that leads nowhere."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 80)})
        self.answers = 0

    def write(self, data: Any) -> None:
        """Count the responses, if they say what they should."""
        if data.startswith(b"HTTP/") and b" 200 " not in data[:16]:
            raise SystemExit(data.decode())
        self.answers += b'"result":42' in data

    def is_closing(self) -> bool:
        """It is open as long as it is there."""
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """Do nothing: there is no other side."""

    pause_reading = resume_reading = close


class Way:
    """One way to serve, and its connections."""

    def __init__(
        self, app: Any, http: Callable[..., Any] = HttpToolsProtocol, token: str = KEY
    ) -> None:
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
        config.load()
        state = ServerState()
        self.request = request(token)
        self.ends = [(http(config, state, {}), Wire()) for _ in range(CONNECTIONS)]
        for end, wire in self.ends:
            end.connection_made(wire)

    async def round(self) -> float:
        """Microseconds of the processor for one request."""
        begun = time.process_time()
        for _ in range(TIMES):
            for end, wire in self.ends:
                wire.answers = 0
                end.data_received(self.request)
            while not all(wire.answers for _, wire in self.ends):  # noqa: ASYNC110, turns of the loop are what is measured
                await asyncio.sleep(0)
        return (time.process_time() - begun) / TIMES / CONNECTIONS * 1e6


def request(token: str) -> bytes:
    """A call of a tool, in the stateless era."""
    version = STATELESS[-1].version
    meta = {PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: {}}
    params = {"name": "add", "arguments": {"a": 40, "b": 2}, "_meta": meta}
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()
    headers = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "add",
        "MCP-Protocol-Version": version,
        "Authorization": f"Bearer {token}",
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def served(
    short: bool = True, metrics: str | None = None, token: str = KEY, **options: Any
) -> Way:
    """A server of ours: as `run` serves it, or as any ASGI server does."""
    server = Server("costs", rates=Rates(calls=None), **options)
    server.tool(add)
    app = server.asgi("/mcp", metrics=metrics, public_url=URL)
    await app.start()
    return Way(app, make_protocol_class(app), token) if short else Way(app)


async def offline(request: HttpRequest) -> HttpResponse:
    raise SystemExit(f"nothing should be fetched, not {request.url}")


async def provided(storage: str) -> Way:
    """A server behind a provider of its own, which has issued the token."""
    client = KnownClient(id="ada", secret=KEY)
    provider = Provider(clients=[client], storage=storage)
    form = {"grant_type": "client_credentials", "client_id": client.id, "client_secret": KEY}
    reply = await provider.respond(
        HttpRequest(
            method="POST",
            path="/token",
            url=f"{BASE}/token",
            headers={"content-type": "application/x-www-form-urlencoded"},
            body=urlencode(form).encode(),
        ),
        PublicUrl(url=URL, base=BASE, ring=KeyRing([KEY.encode()]), fetch=offline),
    )
    assert reply is not None and reply.status == 200, reply
    return await served(auth=provider, token=json.loads(reply.body)["access_token"])


async def signed() -> Way:
    """A server that verifies JWTs."""
    key = jose.generate_key()
    claims = {"iss": BASE, "sub": "ada", "aud": URL, "exp": time.time() + 3600}
    verifier = jwt(BASE, keys=[jose.public_jwk(key)])
    token = jose.sign({"alg": "ES256"}, claims, jose.load_key(key))
    return await served(auth=Bearer(verifier), token=token)


def recorded() -> Any:
    """Telemetry with an SDK, that keeps nothing."""
    from opentelemetry.sdk.trace import TracerProvider

    return telemetry(tracer_provider=TracerProvider())


async def isolated() -> float:
    """Microseconds of the clock for a call that has a process of its own."""
    server = Server("costs")
    server.tool(isolate="process")(apart.add)
    async with Client(server) as client:
        took = []
        for _ in range(8):
            begun = time.perf_counter()
            assert (await client.call_tool("add", {"a": 40, "b": 2})).data == 42
            took.append(time.perf_counter() - begun)
    return min(took) * 1e6


async def main(folder: str) -> None:
    ways = {
        "a bare ASGI application": Way(floor.app),
        "a server, by `run`": await served(),
        "as an ASGI application": await served(short=False),
        "with `metrics`": await served(metrics="/metrics"),
        "behind `ApiKeys`": await served(auth=ApiKeys({KEY: "ada"})),
        "behind `Bearer(jwt(…))`": await signed(),
        "behind `Provider`, a file": await provided(f"{folder}/provider.sqlite"),
        "behind `Provider`, in memory": await provided(":memory:"),
        "with `telemetry()`, no SDK": await served(middleware=[telemetry()]),
        "with `telemetry()` and its SDK": await served(middleware=[recorded()]),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            best[name] = min(best[name], await way.round())
    for name, cost in (best | {'a tool with `isolate="process"`': await isolated()}).items():
        print(f"{name:34}{duration(cost):>10}")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(folder))
