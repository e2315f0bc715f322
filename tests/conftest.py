"""Coroutine tests run in a loop of their own, with a bound in time: a test that hangs fails, and
says where."""

import asyncio
import inspect
import re
import signal
from typing import Any

import pytest

SECONDS = 30

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started in the background: programs that are tested would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(_bounded(function, arguments))
    return True


async def _bounded(function: Any, arguments: dict[str, Any]) -> None:
    async with asyncio.timeout(SECONDS):
        await function(**arguments)


def named(value: Any) -> str:
    """A value in the name of a test, without its address, which would be another in each
    process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value) if isinstance(value, str) else repr(value))
