"""Programs that some tests need and pip cannot install: a browser, npm, Redis and its Sentinel.

`make setup` installs them. Without one, the tests that need it are skipped, and the test run ends
with a line that says so (`tests/conftest.py`).
"""

import shutil

import pytest

from hatch_build import ROOT, STATIC, read_rows
from scripts.system_packages import find_browser

REMEDY = "run `make setup`"
"""Part of the reason of each skip that `make setup` cures."""

needs_browser = pytest.mark.skipif(
    find_browser() is None, reason=f"no browser is installed: {REMEDY}"
)
needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason=f"redis-server is not installed: {REMEDY}"
)
needs_sentinel = pytest.mark.skipif(
    shutil.which("redis-sentinel") is None, reason=f"redis-sentinel is not installed: {REMEDY}"
)
needs_npm = pytest.mark.skipif(
    shutil.which("npm") is None, reason=f"npm is not installed: {REMEDY}"
)
needs_vendor = pytest.mark.skipif(
    not all((ROOT / STATIC / "vendor" / row["saved_as"]).is_file() for row in read_rows(ROOT)),
    reason=f"the libraries of the inspector's page were not fetched: {REMEDY}, then `make assets`",
)
