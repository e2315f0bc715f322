"""`dovetail move`: the imports of other libraries become those of `dovetail.compat`."""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

from dovetail import Client
from dovetail.cli.import_rewriter import rewrite
from tests.cli.conftest import ROOT, dovetail, environment

SERVER = """\
# A server.
from mcp.server.fastmcp import FastMCP  # from the SDK

mcp = FastMCP("moved")


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    mcp.run()
"""
FASTMCP, COMPAT = "mcp.server.fastmcp", "dovetail.compat"
REWRITTEN = [
    (
        f"from {FASTMCP} import FastMCP, Context",
        f"from {COMPAT} import SDKFastMCP as FastMCP, Context",
    ),
    (f"from {FASTMCP} import (\n FastMCP as F\n)", f"from {COMPAT} import (\n SDKFastMCP as F\n)"),
    ("from mcp.server import Server", f"from {COMPAT} import LowLevelServer as Server"),
    ("from fastmcp import FastMCP, Context", f"from {COMPAT} import FastMCP, Context"),
    ("from fastmcp import FastMCP as F  # noqa", f"from {COMPAT} import FastMCP as F  # noqa"),
    ("from  mcp.types  import  TextContent", f"from  {COMPAT}  import  TextContent"),
    ("from mcp.types import Tool", f"from {COMPAT}.types import Tool"),
    ("from fastmcp.tools import Tool", f"from {COMPAT} import Tool"),
    ("from mcp import Client", f"from {COMPAT}.client import Client"),
    ("from fastmcp import Client", f"from {COMPAT} import Client"),
    (
        "from mcp_types import (\n    ImageContent,  # one\n\n    TextContent\n)",
        f"from {COMPAT} import (\n    ImageContent,  # one\n\n    TextContent\n)",
    ),
    (
        "from mcp.types import TextContent, \\\n    ImageContent",
        f"from {COMPAT} import TextContent, \\\n    ImageContent",
    ),
    ("from fastmcp import *", f"from {COMPAT} import *"),
    ("import mcp.types as types", f"import {COMPAT}.types as types"),
    ("import os, mcp.types as t, sys", f"import os, {COMPAT}.types as t, sys"),
    ("from mcp import types\ntypes.Tool", f"from {COMPAT} import types\ntypes.Tool"),
    ("import mcp\nmcp.types.TextContent", f"import {COMPAT} as mcp\nmcp.TextContent"),
    ("import mcp.types\nmcp.types.Tool", f"import {COMPAT} as mcp\nmcp.types.Tool"),
    (
        f"import {FASTMCP}\nx = {FASTMCP}.FastMCP('x').name",
        f"import {COMPAT} as mcp\nx = mcp.SDKFastMCP('x').name",
    ),
    ("import mcp.server as s\ns.fastmcp.FastMCP(1)", f"import {COMPAT} as s\ns.SDKFastMCP(1)"),
    ("import fastmcp\nfastmcp.FastMCP(1)", f"import {COMPAT} as fastmcp\nfastmcp.FastMCP(1)"),
    ("from mcp.server import fastmcp", f"import {COMPAT} as fastmcp"),
    ("if 1:\n\tfrom mcp.server import fastmcp as g", f"if 1:\n\timport {COMPAT} as g"),
    (
        "try:\n    import fastmcp\nexcept ImportError: pass",
        f"try:\n    import {COMPAT} as fastmcp\nexcept ImportError: pass",
    ),
    (
        "if TYPE_CHECKING: from fastmcp import Context; x = 1",
        f"if TYPE_CHECKING: from {COMPAT} import Context; x = 1",
    ),
    (
        "'é', '😀'; from fastmcp import Context; 'é'",
        f"'é', '😀'; from {COMPAT} import Context; 'é'",
    ),
]


@pytest.mark.parametrize(("before", "after"), REWRITTEN)
def test_only_the_import_changes(before: str, after: str) -> None:
    assert rewrite(before) == (after, [])
    assert rewrite(after) == (after, [])


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_stay_and_names_that_are_missing_get_their_own_line(newline: str) -> None:
    lines = [
        "if True:",
        "    from mcp.types import (",
        "        TextContent,  # text",
        "        NoSuchThing,",
        "        OtherThing,  # other",
        "        ImageContent",
        "    )",
    ]
    text, places = rewrite(newline.join(lines))
    assert text.split(newline) == [
        "if True:",
        "    from mcp.types import NoSuchThing, OtherThing",
        "    from dovetail.compat import (",
        "        TextContent,  # text",
        "        # other",
        "        ImageContent",
        "    )",
    ]
    assert [(place.line, place.name) for place in places] == [(4, "NoSuchThing"), (5, "OtherThing")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "from fastmcp import A1, FastMCP, B1, C1",
            f"from fastmcp import A1, B1, C1\nfrom {COMPAT} import FastMCP",
        ),
        (
            "x = 1; from fastmcp import A1, FastMCP",
            f"x = 1; from fastmcp import A1; from {COMPAT} import FastMCP",
        ),
        ("from fastmcp import server as s, A1", f"import {COMPAT} as s\nfrom fastmcp import A1"),
        ("from fastmcp import A1", "from fastmcp import A1"),
        ("from mcp . types import TextContent", "from mcp . types import TextContent"),
    ],
)
def test_what_cannot_be_rewritten_stays_and_is_listed(before: str, after: str) -> None:
    text, places = rewrite(before)
    assert text == after
    assert places
    assert rewrite(text)[0] == text


CREATED = "from fastmcp import FastMCP as F\nm = F('x')\n"


@pytest.mark.parametrize(
    ("program", "line", "name", "instead"),
    [
        (f"{CREATED}n = F('y',\n  uvicorn_config=1)", 4, "F(uvicorn_config=)", "uvicorn.run"),
        (
            "import fastmcp\nfastmcp.FastMCP('x', max_sessions=1)",
            2,
            "FastMCP(max_sessions=)",
            "Lim",
        ),
        (f"{CREATED}@m.tool(serializer=f)\ndef f(): ...", 3, "tool(serializer=)", "the text"),
        (f"{CREATED}m.run('http', uvicorn_config=1)", 3, "run(uvicorn_config=)", "uvicorn.run"),
        (f"{CREATED}m.from_fastapi(1)", 3, "m.from_fastapi", "write the tools"),
        ("import mcp\nmcp = 1", 1, "mcp", "also a variable"),
    ],
)
def test_what_is_refused_is_found_where_it_is_used(
    program: str, line: int, name: str, instead: str
) -> None:
    (place,) = rewrite(program)[1]
    assert (place.line, place.name) == (line, name)
    assert instead in place.instead


def test_what_is_supported_is_not_listed() -> None:
    program = f"{CREATED}F('x', serializer=None, version='1')\nm.run(host='::1')\n"
    assert rewrite(f"{program}client.from_fastapi(1)\nf(serializer=1)")[1] == []


def test_a_moved_server_runs_and_is_not_changed_again(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    done = dovetail("move", str(path))
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{path}: imports rewritten\n"
    assert path.read_text() == SERVER.replace(
        "mcp.server.fastmcp import FastMCP", "dovetail.compat import SDKFastMCP as FastMCP"
    )
    assert dovetail("move", str(path)).out == f"{path}: nothing to rewrite\n"
    call = dovetail("call", str(path), "add", "a=1", "b=2")
    assert (call.code, call.out) == (0, "3\n")


@pytest.mark.parametrize("name", ["calculator", "notes", "gallery", "oracle"])
async def test_the_servers_of_the_interop_tests_run_when_moved(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.py"
    shutil.copy(ROOT / "tests/interop/servers" / f"{name}.py", path)
    done = await asyncio.to_thread(dovetail, "move", str(path))
    assert (done.code, done.err) == (0, ""), done.out
    assert "from mcp" not in path.read_text() and "from fastmcp" not in path.read_text()
    async with Client(str(path), env={"PYTHONPATH": environment()["PYTHONPATH"]}) as client:
        assert await client.list_tools()


def test_a_dry_run_prints_the_difference_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    done = dovetail("move", str(path), "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "-from mcp.server.fastmcp import FastMCP  # from the SDK\n" in done.out
    assert "+from dovetail.compat import SDKFastMCP as FastMCP  # from the SDK\n" in done.out
    assert path.read_text() == SERVER


def test_places_are_printed_as_editors_read_them_and_lead_to_exit_status_1(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("from fastmcp import FastMCP, NoSuchThing\n")
    done = dovetail("move", "s.py", cwd=tmp_path)
    assert (done.code, done.failure) == (1, "1 place needs a change by hand")
    assert done.out.splitlines()[1].startswith("s.py:1: NoSuchThing: ")
    document = dovetail("move", "s.py", "--json", cwd=tmp_path)
    assert document.code == 1
    assert document.json[0]["places"][0]["name"] == "NoSuchThing"
    assert document.json[0]["changed"] is False


def test_encodings_and_missing_line_ends_are_kept(tmp_path: Path) -> None:
    files = {
        "cookie.py": b"# -*- coding: latin-1 -*-\r\nfrom fastmcp import FastMCP\r\nx = '\xe9'",
        "bom.py": b"\xef\xbb\xbffrom fastmcp import FastMCP\nx = '\xc3\xa9'",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert dovetail("move", *files, cwd=tmp_path).code == 0
    for name, data in files.items():
        assert (tmp_path / name).read_bytes() == data.replace(b"fastmcp", b"dovetail.compat")


@pytest.mark.skipif(os.name == "nt", reason="modes and links as POSIX has them")
def test_the_mode_is_kept_and_a_link_is_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "server.py", tmp_path / "link.py"
    path.write_text(SERVER)
    path.chmod(0o750)
    link.symlink_to(path)
    assert dovetail("move", str(link)).code == 0
    assert link.is_symlink()
    assert "dovetail.compat" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def f(:\n", "bad.py is not valid Python in line 1"),
        (b"x = 1\n\n\ny = '\xe9'\n", "bad.py is not utf-8 text: save it as UTF-8"),
        (b"\0\0", "bad.py is not valid Python"),
        (None, "bad.py cannot be read: No such file"),
    ],
)
def test_if_one_file_cannot_be_read_no_file_is_written(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    (tmp_path / "good.py").write_text(SERVER)
    if content is not None:
        (tmp_path / "bad.py").write_bytes(content)
    done = dovetail("move", "good.py", "bad.py", cwd=tmp_path)
    assert done.code == 2
    assert done.failure.startswith(message)
    assert (tmp_path / "good.py").read_text() == SERVER


def test_a_folder_and_a_file_that_is_read_only_are_refused(tmp_path: Path) -> None:
    assert "is a directory; name its files" in dovetail("move", str(tmp_path)).failure
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(SERVER)
    (tmp_path / "b.py").chmod(0o444)
    done = dovetail("move", "a.py", "b.py", cwd=tmp_path)
    assert (done.code, done.failure) == (2, "b.py is read-only, so no file was changed")
    assert (tmp_path / "a.py").read_text() == SERVER
