"""Tests of the page need a browser, axe and the libraries of the page. They are skipped if one is
missing. `make test` runs a test that has several revisions in one of them; `make matrix` in all."""

import os
from pathlib import Path

import pytest

from tests import node
from tests.system import needs_browser, needs_npm, needs_vendor

from .harness import SERVER

HERE = Path(__file__).parent
NEWEST = "2026-07-28"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    own = [item for item in items if item.path.is_relative_to(HERE)]
    for item in own:
        for mark in (needs_browser, needs_npm, needs_vendor):
            item.add_marker(mark)
    if "MATRIX" not in os.environ:
        others = {item for item in own if _revision(item) not in (None, NEWEST)}
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


def _revision(item: pytest.Item) -> str | None:
    """Return the revision that a test was parametrised with."""
    return item.callspec.params.get("revision") if hasattr(item, "callspec") else None


@pytest.fixture(scope="session", autouse=True)
def axe_installed() -> None:
    """Install axe before the time limit of a test begins. `make test` has done so already."""
    node.install()


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Return the path of a small server, in a folder of its own."""
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path
