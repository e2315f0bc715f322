"""Whether a path lies inside a client's roots, whatever way it is written."""

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dovetail import Context, Server
from dovetail.errors import MissingCapability, ToolError
from dovetail.protocol.client_features import Root
from dovetail.server.root_paths import is_inside, local_path, resolve
from dovetail.testing import pair

posix = pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A root with a file and a directory in it, and a neighbour whose name starts as its own."""
    for name in ("home/in", "home2", "a b#c%41"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/in/file", "home2/file", "file"):
        (tmp_path / name).write_text("")
    return tmp_path / "home"


def root(path: Path) -> Root:
    return Root(path.as_uri())


@pytest.mark.parametrize(
    "path", [".", "in", "in/file", "in/../in/file", "not/there/yet", "./in//file", "../home/in"]
)
def test_a_path_in_a_root_is_inside(home: Path, path: str) -> None:
    assert is_inside([root(home)], f"{home}/{path}")
    assert resolve([root(home)], home / path) == (home / path).resolve()


@pytest.mark.parametrize(
    "path", ["..", "../home2/file", "../home2", "in/../../file", "../..", "../file", "../nothing"]
)
def test_a_path_beside_a_root_is_outside(home: Path, path: str) -> None:
    assert not is_inside([root(home)], f"{home}/{path}")
    with pytest.raises(ToolError, match=r"is outside the client's roots; use a path in .*home"):
        resolve([root(home)], f"{home}/{path}")


def test_a_link_is_where_it_leads(home: Path) -> None:
    (home / "out").symlink_to(home.parent / "home2")
    (home.parent / "way").symlink_to(home / "in")
    assert not is_inside([root(home)], home / "out" / "file")
    assert is_inside([root(home)], home.parent / "way" / "file")
    assert resolve([root(home)], home.parent / "way" / "file") == (home / "in" / "file").resolve()


def test_a_root_that_is_a_link_means_what_it_leads_to(home: Path) -> None:
    (home.parent / "link").symlink_to(home)
    assert is_inside([root(home.parent / "link")], home / "in" / "file")


def test_links_that_lead_in_a_circle_are_no_trouble(home: Path) -> None:
    (home / "a").symlink_to(home / "b")
    (home / "b").symlink_to(home / "a")
    (home / "c").symlink_to(home.parent)
    assert is_inside([root(home)], home / "a") in (True, False)
    assert not is_inside([root(home)], home / "c" / "file")


def test_a_root_that_is_a_file_holds_itself_only(home: Path) -> None:
    file = home / "in" / "file"
    assert is_inside([root(file)], file)
    assert not is_inside([root(file)], file / "more")
    assert not is_inside([root(file)], file.parent)
    assert not is_inside([root(file)], file.with_name("file2"))


def test_a_root_that_is_gone_holds_nothing(home: Path) -> None:
    assert not is_inside([root(home / "gone")], home / "gone" / "file")


@posix
def test_the_root_of_all_holds_all(home: Path) -> None:
    assert is_inside([Root("file:///")], home)
    assert is_inside([Root("file:///")], "/")


def test_a_relative_path_counts_from_where_the_server_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert is_inside([root(home)], "in/file")
    assert resolve([root(home)], "in/file").is_absolute()
    assert not is_inside([root(home)], "../file")


def test_any_of_several_roots_will_do(home: Path) -> None:
    roots = [
        Root("https://example.com/"),
        Root("nonsense"),
        root(home.parent / "home2"),
        root(home),
    ]
    assert is_inside(iter(roots), home / "in")
    assert resolve(iter(roots), home / "in") == home / "in"


@pytest.mark.parametrize(
    "uri",
    [
        "https://example.com/",
        "nonsense",
        "file:",
        "file://",
        "file://etc",
        "file://other.example/x",
        "file:///%00",
        "",
    ],
)
def test_roots_that_are_no_files_here_hold_nothing(uri: str) -> None:
    assert not is_inside([Root(uri)], "/")
    with pytest.raises(ToolError, match="has not listed any files or directories"):
        resolve([Root(uri)], "/")


def test_a_path_that_cannot_be_is_outside(home: Path) -> None:
    assert not is_inside([root(home)], f"{home}/a\0b")
    with pytest.raises(ToolError):
        resolve([root(home)], f"{home}/a\0b")


@posix
def test_a_uri_is_decoded_once_and_nothing_is_cut_off(home: Path) -> None:
    strange = home.parent / "a b#c%41"
    assert is_inside([root(strange)], strange)
    assert not is_inside([Root(f"file://{home.parent}/a#b")], home.parent / "a")


@posix
@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("FILE://LOCALHOST/a", "/a"),
        ("file:/a", "/a"),
        ("file:///a%20b", "/a b"),
        ("file:///%2e%2e", "/.."),
        ("file:///a?b#c", "/a?b#c"),
        ("file:///a%2541", "/a%41"),
        ("file:///%C3%A4", "/ä"),
        ("file:///%FF", "/\udcff"),
        ("file://host/a", None),
        ("file:a", None),
        ("file://", None),
        ("file://a", None),
        ("http://localhost/a", None),
    ],
)
def test_a_uri_means_a_path(uri: str, path: str | None) -> None:
    assert local_path(uri, windows=False) == path


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///C:/Users/Ada", r"C:\Users\Ada"),
        ("file:///c%3A/Users", r"c:\Users"),
        ("file:///C|/Users", r"C:\Users"),
        ("file://localhost/C:/a%20b", r"C:\a b"),
        ("file:///C:", "C:\\"),
        ("file://server/share/a", None),
        ("file:////server/share", None),
        ("file:///%5Cserver/share", None),
        ("file:///a", r"\a"),
        ("file:///a/b:/c", r"\a\b:\c"),
    ],
)
def test_a_uri_means_a_path_of_windows_too(uri: str, path: str | None) -> None:
    assert local_path(uri, windows=True) == path


@posix
@given(st.lists(st.sampled_from(["..", ".", "a", "b", "a/b", ""]), max_size=8))
def test_dots_never_lead_out(steps: list[str]) -> None:
    base = os.path.realpath("/usr")
    path = "/".join([base, *steps])
    expected = os.path.normpath(path)
    assert is_inside([Root("file:///usr")], path) == (
        expected == base or expected.startswith(f"{base}/")
    )


# asked for in a handler


@pytest.mark.requirement("roots-bounds")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_handler_asks_whether_a_path_is_inside_of_the_roots_of_its_client(
    home: Path, revision: str
) -> None:
    server = Server("files")

    @server.tool
    async def where(path: str, ctx: Context) -> str:
        return f"{await ctx.inside_roots(path)} {await ctx.resolve_in_roots(path)}"

    async with pair(server, revision=revision, roots=[home]) as client:
        within = await client.call_tool("where", {"path": f"{home}/in/../in/file"})
        assert within.text == f"True {(home / 'in/file').resolve()}"
        with pytest.raises(ToolError, match="is outside the client's roots"):
            await client.call_tool("where", {"path": f"{home}/../home2/file"})
    async with pair(server, revision=revision) as client:
        with pytest.raises((ToolError, MissingCapability), match="roots/list"):
            await client.call_tool("where", {"path": str(home)})
