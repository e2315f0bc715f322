"""The state of an upstream server: when it is tried again, and what resets the count."""

import math

import pytest

from dovetail.gateway.health import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    TRIP_AFTER,
    Health,
)


def failed(times: int) -> tuple[Health, float]:
    """A server that failed this often in a row, and the time."""
    health, now = Health(), 0.0
    for _ in range(times):
        now += health.wait(now)
        assert health.admit(now)
        health.on_failure("exit status 1", now)
    return health, now


def test_a_new_server_may_be_started_by_everyone() -> None:
    health = Health()
    assert health.state == "configured"
    assert all(health.admit(0.0) for _ in range(3))


def test_a_catalog_from_disk_makes_a_server_known_but_does_not_hide_a_failure() -> None:
    health = Health()
    health.on_known()
    assert health.state == "known" and health.admit(0.0)
    health.on_failure("exit status 1", 0.0)
    health.on_known()
    assert health.state == "failed"


def test_a_failure_says_why_and_refuses_calls_until_the_next_attempt() -> None:
    health, now = failed(1)
    assert (health.state, health.error, health.failures) == ("failed", "exit status 1", 1)
    assert FIRST_PAUSE_SECONDS / 2 <= health.wait(now) <= FIRST_PAUSE_SECONDS
    assert not health.admit(now)


def test_one_call_goes_through_per_pause_and_the_others_are_refused() -> None:
    health, now = failed(1)
    now += health.wait(now)
    assert [health.admit(now) for _ in range(4)] == [True, False, False, False]
    now += health.wait(now)
    assert [health.admit(now) for _ in range(2)] == [True, False]


def test_the_pause_doubles_with_each_failure_has_jitter_and_a_limit() -> None:
    for times in range(1, 20):
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (times - 1))
        health, now = failed(times)
        assert longest / 2 <= health.wait(now) <= longest
    pauses = {failed(3)[0].wait(0.0) for _ in range(10)}
    assert len(pauses) > 1


def test_a_server_that_keeps_failing_is_tried_for_ever() -> None:
    health, now = failed(500)
    assert health.failures == 500
    assert 0 < health.wait(now) <= LONGEST_PAUSE_SECONDS
    assert health.admit(now + LONGEST_PAUSE_SECONDS)


def test_all_calls_that_fail_with_one_connection_are_one_failure() -> None:
    health = Health()
    health.on_started()
    for _ in range(20):
        health.on_failure("the connection was lost", 1.0)
    assert health.failures == 1


def test_a_restart_admits_all_calls_unless_the_breaker_is_open() -> None:
    health, now = failed(TRIP_AFTER - 1)
    health.on_started()
    assert health.state == "started" and health.error is None
    assert all(health.admit(now) for _ in range(3))

    health, now = failed(TRIP_AFTER)
    now += health.wait(now)
    assert health.admit(now)
    health.on_started()
    assert health.is_tripped and health.state == "started"
    assert not health.admit(now)


def test_only_an_answer_resets_the_count() -> None:
    health, now = failed(TRIP_AFTER)
    health.on_started()
    assert health.failures == TRIP_AFTER
    health.on_success()
    assert (health.failures, health.next_attempt, health.state) == (0, None, "started")
    assert all(health.admit(now) for _ in range(3))
    health.on_failure("exit status 1", now)
    assert health.wait(now) <= FIRST_PAUSE_SECONDS


def test_after_an_attempt_to_start_that_succeeded_a_call_may_follow_at_once() -> None:
    health, now = failed(TRIP_AFTER)
    now += health.wait(now)
    assert health.admit(now)
    health.on_started(now)
    assert health.is_tripped
    assert [health.admit(now) for _ in range(3)] == [True, False, False]


def test_lost_connections_of_single_callers_open_the_breaker_but_do_not_stop_the_server() -> None:
    health = Health()
    health.on_started()
    now = 0.0
    for number in range(TRIP_AFTER):
        assert health.failures == number and health.admit(now)
        now += FIRST_PAUSE_SECONDS
        for _ in range(20):  # at the same time
            health.on_call_failed(now)
    assert health.state == "started" and not health.admit(now)
    now += health.wait(now)
    assert [health.admit(now) for _ in range(3)] == [True, False, False]
    health.on_success()
    assert health.failures == 0 and health.admit(now)


@pytest.mark.parametrize("event", ["success", "failure"])
def test_a_refused_server_is_never_tried_whatever_arrives_late(event: str) -> None:
    health = Health()
    health.on_started()
    health.on_refused("you denied it")
    if event == "success":
        health.on_success()
    else:
        health.on_failure("exit status 1", 0.0)
    assert (health.state, health.error) == ("refused", "you denied it")
    assert health.wait(0.0) == math.inf and not health.admit(1e9)


def test_a_person_may_restart_a_server_at_once() -> None:
    health, now = failed(TRIP_AFTER)
    health.reset()
    assert health.state == "configured" and health.admit(now)
    assert repr(health) == "<Health configured, 0 failures>"
