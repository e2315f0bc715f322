"""Clusters for the tests. `cluster` runs for the whole test run, so each test has a tag of its own.
A test that kills or stops members uses `mortal_cluster`; one that stops Redis, or needs other
limits, starts its own cluster."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.backend.conftest import own_redis, shared_redis, start_redis  # noqa: F401
from tests.backend.redis_server import RedisServer, redis_server

from .cluster import Cluster, running

_tags = count(1)

DURABLE = ["--appendonly", "yes", "--appendfsync", "always"]
ERAS = ["handshake", "stateless"]
FORMS = ["2025-11-25", "2026-07-28"]


@pytest.fixture(scope="session")
def cluster(
    shared_redis: RedisServer,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with running(shared_redis, tmp_path_factory.mktemp("cluster")) as one:
        yield one


@pytest.fixture
def mortal_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """The same cluster. Members that have ended are started again after the test."""
    yield cluster
    cluster.repair()


@pytest.fixture
def durable_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that loses nothing that it acknowledged."""
    with redis_server(tmp_path / "redis", *DURABLE) as server:
        yield server


@pytest.fixture
def tag() -> str:
    """A name for the deeds of one test."""
    return f"tag{next(_tags)}"
