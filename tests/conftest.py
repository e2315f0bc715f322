"""Settings for all tests.

A coroutine test runs in its own event loop with a time limit, so that a test that hangs fails and
shows where. A property test has no time limit, so that a slow machine cannot fail it. In CI (the
variable CI is set), its examples are the same in every run.
"""

import asyncio
import inspect
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.system import REMEDY

pytest.register_assert_rewrite("tests.auth.storage_contract", "tests.auth.store_contract")

TIMEOUT_SECONDS = 90

# A shell starts background jobs with SIGINT ignored, and programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs under test buffer their output, as they do for a user.
os.environ.pop("PYTHONUNBUFFERED", None)

# Consent, pins and known catalogs of tests stay out of the developer's home.
_state_folder = tempfile.TemporaryDirectory(prefix="dovetail-tests-")
os.environ["XDG_STATE_HOME"] = _state_folder.name

settings.register_profile(
    "dovetail",
    max_examples=100,
    deadline=None,
    database=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
settings.load_profile("dovetail")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(_run_with_timeout(function, arguments))
    return True


async def _run_with_timeout(function: Any, arguments: dict[str, Any]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await function(**arguments)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape lone surrogates, which pytest-xdist cannot send from a worker. Tests log them on
    purpose."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_encodable, value))
    return value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was skipped for want of a program, and how to install it."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if REMEDY in reason:
            reasons[reason.removeprefix("Skipped: ").partition(":")[0]] += 1
    if reasons:
        details = ", ".join(f"{count} because {reason}" for reason, count in reasons.items())
        terminalreporter.line(
            f"Skipped {details}. To install what is missing, {REMEDY}.", yellow=True, bold=True
        )


def named(value: Any) -> str:
    """Return a value as part of a test's id, without its address, which differs between
    processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value) if isinstance(value, str) else repr(value))
