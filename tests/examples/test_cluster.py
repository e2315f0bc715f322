"""examples/cluster.py: two replicas and a worker are one server."""

import re
from pathlib import Path

from tests.backend.redis_server import redis_server
from tests.ports import free_port
from tests.system import needs_redis

from .conftest import EXAMPLES, run


@needs_redis
def test_a_task_goes_on_after_its_replica_has_stopped(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as redis:
        done = run(EXAMPLES / "cluster.py", DOVETAIL_BACKEND=redis.url)
    assert done.returncode == 0, done.stderr
    worker, first, second, stopped, result = done.stdout.splitlines()
    assert worker == "Running the tasks of shop"
    processes = [re.fullmatch(r"(http://\S+) is \S+:(\d+)", line) for line in (first, second)]
    assert processes[0] is not None
    assert processes[1] is not None
    assert processes[0][2] != processes[1][2]
    assert stopped == f"{processes[0][1]} started a task, and has stopped"
    ordered = re.fullmatch(
        rf"{re.escape(processes[1][1])} says: ordered 3 boxes of tea at \S+:(\d+)", result
    )
    assert ordered is not None
    assert ordered[1] not in (processes[0][2], processes[1][2])  # the worker did it


def test_without_redis_the_program_says_so() -> None:
    done = run(EXAMPLES / "cluster.py", DOVETAIL_BACKEND=f"redis://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "redis://127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr
