"""`dovetail call`."""

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import WEATHER, dovetail, says, tool

PIXEL = base64.b64encode(b"\x89PNG" + bytes(12_000)).decode()
ECHO = """
from typing import Any
@server.tool
def echo(text: str = "", number: int | None = None, values: list[str] = [], extra: dict[str, Any] = {}) -> str:
    return repr((text, number, values, extra))
"""  # noqa: E501


@pytest.mark.parametrize(
    ("words", "got"),
    [
        ([], ("", None, [], {})),
        (["text=3"], ("3", None, [], {})),
        (["text=a b", "number=3"], ("a b", 3, [], {})),
        (["number=null", 'values=["a"]'], ("", None, ["a"], {})),
        (["text=a", "--json", "number=2"], ("a", 2, [], {})),
        (["--timeout", "9", "text=a"], ("a", None, [], {})),
        (["--args", '{"number": 1, "text": "x"}', "text=y"], ("y", 1, [], {})),
        (['extra:={"deep": [1]}'], ("", None, [], {"deep": [1]})),
        (["values=a", "values=3"], ("", None, ["a", "3"], {})),
        (["values=a"], ("", None, ["a"], {})),
        (["extra.deep=1", "extra.er=x"], ("", None, [], {"deep": 1, "er": "x"})),
    ],
)
def test_arguments_arrive_as_the_tool_wants_them(
    server: Callable[..., str], words: list[str], got: tuple[object, ...]
) -> None:
    done = dovetail("call", server(ECHO), "echo", *words)
    assert (done.code, done.err) == (0, "")
    text = done.json["content"][0]["text"] if "--json" in words else done.out.removesuffix("\n")
    assert text == repr(got)


def test_a_file_is_an_argument(server: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "note").write_text("from a file\n")
    assert (
        dovetail("call", server(ECHO), "echo", f"text=@{tmp_path}/note").out
        == repr(("from a file\n", None, [], {})) + "\n"
    )


def test_the_result_is_a_document_with_json() -> None:
    found = dovetail("call", WEATHER, "forecast", "city=Oslo", "days=1", "--json").json
    assert found["structuredContent"] == {
        "city": "Oslo",
        "days": [{"day": 1, "sky": "clear", "celsius": 8.1}],
    }
    assert json.loads(found["content"][0]["text"]) == found["structuredContent"]


BLOCKS: list[tuple[dict[str, Any], str]] = [
    ({"type": "image", "data": PIXEL, "mimeType": "image/png"}, "[image/png, 12 kB]"),
    ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "[audio/wav, 3 B]"),
    ({"type": "image", "data": "", "mimeType": "image/png"}, "[image/png, 0 B]"),
    ({"type": "image", "data": "AAA", "mimeType": "image/png"}, "[image/png, invalid base64]"),
    ({"type": "resource_link", "uri": "a://b", "name": "Bee"}, "[Bee: a://b]"),
    ({"type": "resource", "resource": {"uri": "a://b", "text": "inside"}}, "inside"),
    (
        {"type": "resource", "resource": {"uri": "a://b", "blob": "AAAA"}},
        "[application/octet-stream, 3 B]",
    ),
    ({"type": "hologram", "depth": 3}, "[hologram: use --json to see it]"),
    ({"type": "text", "text": "two\nlines\n"}, "two\nlines"),
]


def test_text_is_printed_and_what_is_no_text_summed_up(scripted: Callable[..., str]) -> None:
    path = scripted(tool(), says(*(block for block, _ in BLOCKS)))
    assert dovetail("call", path, "go") == (0, "".join(f"{shown}\n" for _, shown in BLOCKS), "")
    assert dovetail("call", path, "go", "--json").json == {
        "content": [block for block, _ in BLOCKS],
        "isError": False,
    }


def test_structured_content_without_any_other_is_printed(scripted: Callable[..., str]) -> None:
    assert dovetail(
        "call", scripted(tool(), says(result={"structuredContent": {"a": 1}})), "go"
    ).json == {"a": 1}


def test_pictures_sounds_and_blobs_are_saved_under_our_names(
    scripted: Callable[..., str], tmp_path: Path
) -> None:
    blob = {"uri": "file:///../../etc/passwd", "blob": "AQID", "mimeType": "../../x"}
    path = scripted(
        tool(),
        says(
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "resource", "resource": blob},
        ),
    )
    folder = tmp_path / "new" / "folder"
    done = dovetail("call", path, "go", "--output", str(folder))
    image, other = f"{folder}/image-1.png", f"{folder}/blob-1.bin"
    assert done.out == f"[image/png, 12 kB, saved as {image}]\n[../../x, 3 B, saved as {other}]\n"
    assert Path(image).read_bytes() == base64.b64decode(PIXEL)
    assert Path(other).read_bytes() == b"\x01\x02\x03"
    assert "image-2.png" in dovetail("call", path, "go", "--output", str(folder)).out
    assert sorted(one.name for one in folder.iterdir()) == [
        "blob-1.bin",
        "blob-2.bin",
        "image-1.png",
        "image-2.png",
    ]


def test_a_folder_that_cannot_be_written_to_is_a_failure(
    scripted: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    path = scripted(tool(), says({"type": "image", "data": PIXEL, "mimeType": "image/png"}))
    done = dovetail("call", path, "go", "--output", f"{tmp_path}/file/folder")
    assert (done.code, done.failure) == (
        1,
        f"Cannot save to {tmp_path}/file/folder: Not a directory",
    )


def test_a_tool_that_fails_says_so_on_stderr() -> None:
    done = dovetail("call", WEATHER, "forecast", "city=Atlantis")
    assert (done.code, done.out) == (1, "")
    assert done.failure.startswith("No forecast for 'Atlantis'")


def test_a_failure_of_many_lines_is_told_in_full(scripted: Callable[..., str]) -> None:
    done = dovetail("call", scripted(tool(), says("one\ntwo", result={"isError": True})), "go")
    assert (done.code, done.err) == (1, "dovetail: error: one\ntwo\n")
    silent = dovetail("call", scripted(tool(), says(result={"isError": True})), "go")
    assert silent.failure == "The tool go failed without a message"


def test_a_failed_result_is_a_document_too(scripted: Callable[..., str]) -> None:
    done = dovetail("call", scripted(tool(), says("bad", result={"isError": True})), "go", "--json")
    assert (done.code, done.failure) == (1, "bad")
    assert done.json == {"content": [{"type": "text", "text": "bad"}], "isError": True}


@pytest.mark.parametrize(
    ("words", "code", "failure"),
    [
        (["forcast"], 1, "The server has no tool 'forcast'. Did you mean forecast?"),
        (["zzz"], 1, "The server has no tool 'zzz'. It has: forecast"),
        (["forecast", "city"], 2, "'city' is not an argument; write key=value or key:=json"),
        (["forecast", "days=many"], 2, "Argument days: 'many' is not an integer"),
        (["forecast", "days=3"], 1, "city"),
        (["forecast", "ctiy=Oslo"], 1, "it accepts city, days (did you mean city?)"),
        (["forecast", "ctiy=Oslo", "dsys=3"], 1, "(did you mean city, days?)"),
        (["forecast", "city=Oslo", "zzz=3"], 1, "`zzz` is not an argument of forecast"),
        (["forecast", "city=Oslo", "--args", "[]"], 2, "--args must be a JSON object, not '[]'"),
    ],
)
def test_a_call_that_cannot_be_made_fails_in_one_line(
    words: list[str], code: int, failure: str
) -> None:
    done = dovetail("call", WEATHER, *words)
    assert (done.code, done.out) == (code, "")
    assert failure in done.failure


def test_all_arguments_can_come_from_stdin(server: Callable[..., str]) -> None:
    done = dovetail("call", server(ECHO), "echo", "--args", "-", "text=y", stdin='{"number": 1}')
    assert (done.code, done.out) == (0, repr(("y", 1, [], {})) + "\n")


NESTED = """
from msgspec import Struct

class Author(Struct):
    name: str
    year: int | None = None

class Note(Struct):
    title: str
    tags: list[int] = []
    author: Author | None = None

@server.tool
def add(note: Note) -> str:
    return repr(note)
"""


def test_nested_arguments_have_the_types_of_the_schema(server: Callable[..., str]) -> None:
    words = ["note.title=3", "note.tags=1", "note.tags=2", "note.author.name=7"]
    done = dovetail("call", server(NESTED), "add", *words, "note.author.year=1815")
    assert (done.code, done.err) == (0, "")
    author = "Author(name='7', year=1815)"
    assert done.out == f"Note(title='3', tags=[1, 2], author={author})\n"


def test_a_field_of_what_is_no_object_is_refused(server: Callable[..., str]) -> None:
    done = dovetail("call", server(NESTED), "add", 'note="x"', "note.title=y")
    assert (done.code, done.failure) == (2, "Argument note.title: note is not an object")


LONG = {"words": ["word"] * 30}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a":[1,"\\u001b",true]}', '{"a": [1, "\\u001b", true]}'),
        ("[1]", "[1]"),
        (json.dumps(LONG), json.dumps(LONG, indent=2)),
        ("{not json}", "{not json}"),
        ("[1] and more", "[1] and more"),
    ],
)
def test_json_is_printed_readably(scripted: Callable[..., str], text: str, shown: str) -> None:
    assert dovetail("call", scripted(tool(), says(text)), "go").out == f"{shown}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_json_has_colours_on_a_terminal(scripted: Callable[..., str]) -> None:
    from tests.cli.screen import on_screen

    path = scripted(tool(), says('{"a": [-1.5, "b\\": 1", null, true]}'))
    _, out, _ = on_screen("call", path, "go", screen="stdout")
    key, number, string = '\x1b[34m"a"\x1b[0m', "\x1b[36m-1.5\x1b[0m", '\x1b[32m"b\\": 1"\x1b[0m'
    null, true = "\x1b[35mnull\x1b[0m", "\x1b[35mtrue\x1b[0m"
    items = ", ".join((number, string, null, true))
    assert out == f"{{{key}: [{items}]}}\n"
    _, plain, _ = on_screen("call", path, "go", screen="stdout", NO_COLOR="1")
    assert "\x1b" not in plain
