"""The pages about hosts show the files and entries of the tests, and no host is missing."""

import json
import re
from pathlib import Path

import pytest

from dovetail.host_configs.edit import parse
from dovetail.host_configs.hosts import HOSTS, HostApp, Machine
from tests.docs.pages import ROOT
from tests.host_configs.test_host_files import stored

GUIDES = ROOT / "docs" / "guides"
INSTALL = (GUIDES / "install.md").read_text("utf-8")
HOME = Path("/home/ada")
each_host = pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.id)


def section_of(host: HostApp) -> str:
    found = re.search(rf"^### {re.escape(host.title)}\n(.*?)(?=^###? )", INSTALL, re.M | re.S)
    assert found is not None, f"there is no section {host.title}"
    return found[1]


def shown_path(host: HostApp, system: str) -> str:
    """The path of the user's file, as people write it on the system."""
    path = host.file(Machine(system, {}, HOME, HOME)).relative_to(HOME).as_posix()
    if system != "win32":
        return f"`~/{path}`"
    folder = "%APPDATA%" if path.startswith("AppData/Roaming/") else "%USERPROFILE%"
    below = path.removeprefix("AppData/Roaming/").replace("/", "\\")
    return f"`{folder}\\{below}`"


@each_host
def test_each_host_has_a_section_with_its_files_and_its_command(host: HostApp) -> None:
    section = section_of(host)
    assert f"`dovetail install {host.id} SERVER`" in section
    project = f"`{host.project[0]}`" if host.project else "none"
    paths = [*(shown_path(host, system) for system in ("linux", "darwin", "win32")), project]
    assert f"| {' | '.join(paths)} |" in section


@each_host
def test_each_section_shows_the_entry_that_is_written(host: HostApp) -> None:
    block = re.search(rf"^```{host.format}\n(.*?)^```$", section_of(host), re.M | re.S)
    assert block is not None
    after = parse(stored(host, "after-command"), host.format)
    assert parse(block[1], host.format) == {host.key: {"weather": after[host.key]["weather"]}}


@each_host
def test_the_entry_for_a_url_is_that_of_the_tests(host: HostApp) -> None:
    row = re.search(rf"^\| {re.escape(host.title)} \| `({{.*}})` \|$", INSTALL, re.M)
    assert row is not None
    after = parse(stored(host, "after-url"), host.format)
    assert json.loads(row[1]) == after[host.key]["weather"]


@each_host
def test_the_page_about_failures_says_where_the_log_of_each_host_is(host: HostApp) -> None:
    page = (GUIDES / "not-showing-up.md").read_text("utf-8")
    assert f"\n| {host.title} | " in page.partition("## The logs of the hosts")[2]
