"""Redis servers for the tests.

`shared_redis` runs for the whole test run (one for each process of pytest-xdist); tests keep apart
by the names of their backends. A test that stops or configures Redis uses its own (`own_redis`). If
Valkey is installed, the tests run for it, too.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dovetail.backend import Backend
from dovetail.limits import Limits

from .redis_server import RedisServer, redis_server

KEY = "a key for the tests of the backend"
PATIENT = Limits(backend_timeout=20)
"""A deadline that a busy machine meets, for tests that are not about deadlines."""
PROGRAMS = ["redis-server", *filter(shutil.which, ["valkey-server"])]
_names = count(1)

MakeBackend = Callable[..., Backend]


StartRedis = Callable[[str], RedisServer]


@pytest.fixture(scope="session")
def start_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRedis]:
    """A function that starts a server program when a test first needs it."""
    with ExitStack() as servers:

        @cache
        def start(program: str) -> RedisServer:
            folder = tmp_path_factory.mktemp("redis")
            return servers.enter_context(redis_server(folder, program=program))

        yield start


@pytest.fixture(scope="session", params=PROGRAMS)
def shared_redis(request: pytest.FixtureRequest, start_redis: StartRedis) -> RedisServer:
    return start_redis(request.param)


@pytest.fixture(params=PROGRAMS)
def own_redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", program=request.param) as server:
        yield server


@pytest.fixture
def make_backend(shared_redis: RedisServer) -> MakeBackend:
    """A function that makes backends of one server, as its processes would."""
    return backends_of(shared_redis)


def backends_of(redis: RedisServer) -> MakeBackend:
    name = f"test {next(_names)}"

    def make(**options: Any) -> Backend:
        settings = {"name": name, "keys": [KEY], "limits": PATIENT, **options}
        return Backend(redis.url, **settings)

    return make
