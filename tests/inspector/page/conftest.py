"""Tests of the page need a browser, axe and the libraries of the page. They are skipped if one is
missing."""

from pathlib import Path

import pytest

from tests import node
from tests.system import needs_browser, needs_npm, needs_vendor

from .harness import SERVER

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for mark in (needs_browser, needs_npm, needs_vendor):
                item.add_marker(mark)


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
