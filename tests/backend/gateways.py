"""Replicas of a gateway: several gateways in one process that share a Redis, each on a port."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from dovetail.backend import Backend
from dovetail.gateway.gateway import Gateway
from tests.behaviour.web import on_a_port
from tests.gateway.stage import LIMITS

from .conftest import KEY


class Replica(NamedTuple):
    gateway: Gateway
    url: str


@asynccontextmanager
async def gateway_replica(
    source: Mapping[str, Any], backend: Backend, **options: Any
) -> AsyncIterator[Replica]:
    settings = {"limits": LIMITS, "rates": None, **options}
    gateway = Gateway(source, backend=backend, **settings)
    async with on_a_port(gateway.asgi("/mcp", hosts="*", keys=[KEY])) as place:
        yield Replica(gateway, f"http://{place}/mcp")


@asynccontextmanager
async def gateway_replicas(
    count: int, source: Mapping[str, Any], make: Callable[..., Backend], **options: Any
) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:

        def enter(one: AbstractAsyncContextManager[Replica]) -> Any:
            return stack.enter_async_context(one)

        yield [await enter(gateway_replica(source, make(), **options)) for _ in range(count)]
