"""The clock with which tests measure that nothing waits."""

import os
import signal
import subprocess
import sys
import time

import pytest

from .clock import awake_time

PROGRAM = """
from tests.clock import awake_time
began = awake_time()
print("begun", flush=True)
input()
print(awake_time() - began)
"""


def test_a_busy_second_is_a_second() -> None:
    began, end = awake_time(), time.process_time() + 1
    while time.process_time() < end:
        pass
    assert awake_time() - began > 0.5


@pytest.mark.skipif(os.name != "posix", reason="stops a process with a signal")
def test_time_in_which_the_process_is_stopped_does_not_count() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.close()
        assert float(process.stdout.readline()) < 1
