"""5,000 tasks through four workers. `make soak` runs 100,000."""

from tests.system import needs_redis

from .tasks import soak

COUNT, WORKERS = 5000, 4


@needs_redis
def test_tasks_through_workers_leave_nothing_behind() -> None:
    verdict, _ = soak(COUNT, WORKERS)
    assert verdict == "flat"
