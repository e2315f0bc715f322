"""Mistakes of the first hour: each is refused at once, and the message says what to write."""

import asyncio
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail import Audio, Client, File, Image, Server
from dovetail.errors import ConfigError, SchemaError
from dovetail.testing import pair

DECORATORS = ["tool", "prompt"]


@pytest.mark.parametrize("kind", DECORATORS)
@pytest.mark.parametrize("first", ["self", "cls"])
def test_a_method_in_a_class_body_is_refused(kind: str, first: str) -> None:
    server = Server("x")
    source = f"class Box:\n    @server.{kind}\n    def add({first}, a: str) -> str: return a"
    with pytest.raises(SchemaError) as raised:
        exec(source, {"server": server})
    assert str(raised.value) == (
        "Box.add is a method and cannot be called without an object. Register the method of an "
        "object instead: box = Box(…), and then, for a tool, server.tool(box.add). Or make it a "
        "static method"
    )


def test_a_resource_that_is_a_method_is_refused() -> None:
    server = Server("x")
    with pytest.raises(SchemaError, match=r"Box\.read is a method"):

        class Box:
            @server.resource("a://b")
            def read(self) -> str:
                return ""


async def test_static_methods_bound_methods_and_functions_are_tools() -> None:
    server = Server("x")

    class Box:
        @staticmethod
        @server.tool
        def inner(a: int) -> int:
            return a

        @server.tool
        @staticmethod
        def outer(a: int) -> int:
            return a

        def bound(self, a: int) -> int:
            return a

        @classmethod
        def of_class(cls, a: int) -> int:
            return a

    server.tool(Box().bound)
    server.tool(Box.of_class)

    @server.tool
    def local(self: int) -> int:
        return self

    async with pair(server) as client:
        for name in ("inner", "outer", "bound", "of_class"):
            assert (await client.call_tool(name, {"a": 3})).data == 3
        assert (await client.call_tool("local", {"self": 3})).data == 3


@pytest.mark.parametrize(("kind", "name", "mime_type"), [
    (Image, "a.jpg", "image/jpeg"), (Audio, "a.mp3", "audio/mpeg"), (File, "a.txt", "text/plain"),
])  # fmt: skip
def test_a_path_may_come_first(tmp_path: Path, kind: Any, name: str, mime_type: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"bytes")
    for given in (kind(str(path)), kind(path), kind(path=path)):
        assert (given.path, given.data, given.mime_type) == (path, b"bytes", mime_type)


@pytest.mark.parametrize(
    "data", [b"x", bytearray(b"x"), memoryview(b"x")], ids=["bytes", "bytearray", "memoryview"]
)
def test_bytes_may_be_of_any_type(data: Any) -> None:
    assert Image(data).content().data == "eA=="


@pytest.mark.parametrize("kind", [Image, Audio, File])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"data": 3}, "data=…) must be bytes, not an int"),
        ({"data": io.BytesIO}, "data=…) must be bytes, not a type"),
        ({"path": b"a.png"}, "path=…) must be a file path, not a bytes"),
        ({"data": b"", "mime_type": 3}, "mime_type=…) must be a string, not an int"),
        ({"data": "a.png", "path": "b.png"}, " requires either data= or path="),
        ({}, " requires either data= or path="),
    ],
    ids=str,
)
def test_a_wrong_type_is_refused_in_the_constructor(
    kind: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        kind(**options)
    assert problem in str(raised.value)
    assert str(raised.value).startswith(kind.__name__)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_run_in_a_running_loop_names_run_async(transport: Any) -> None:
    with pytest.raises(ConfigError, match=r"`await server\.run_async\(\)`"):
        Server("x").run(transport)


def test_with_client_names_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"async with Client.*blocking\(\)"), Client(Server("x")):  # type: ignore[attr-defined]
        pass


def define(server: Server, text: str) -> None:
    @server.tool
    def say() -> str:
        return text

    @server.prompt
    def ask() -> str:
        return text

    @server.resource("a://b")
    def read() -> str:
        return text

    @server.resource("a://{c}/d")
    def template(c: str) -> str:
        return text


@pytest.mark.parametrize("prompt", ["python", "ipython"])
async def test_at_a_prompt_a_component_is_replaced_with_a_note(
    prompt: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if prompt == "python":
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        shell = SimpleNamespace(get_ipython=lambda: object())
        monkeypatch.setitem(sys.modules, "IPython", shell)  # type: ignore[arg-type]
    server = Server("x")
    define(server, "old")
    async with pair(server) as client:
        assert (await client.call_tool("say")).text == "old"
        define(server, "new")
        assert (await client.call_tool("say")).text == "new"
        assert len(await client.list_tools(fresh=True)) == 1
        assert (await client.read_resource("a://b"))[0].text == "new"
        assert (await client.read_resource("a://x/d"))[0].text == "new"
    notes = capsys.readouterr().err
    for what in ("tool 'say'", "prompt 'ask'", "resource 'a://b'", "template 'a://{c}/d'"):
        assert notes.count(f"Note: the {what} was replaced\n") == 1


def test_in_a_program_it_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(get_ipython=lambda: None)  # IPython is imported, but does not run
    monkeypatch.setitem(sys.modules, "IPython", shell)  # type: ignore[arg-type]
    server = Server("x")
    define(server, "old")
    with pytest.raises(ConfigError, match="The tool 'say' already exists"):
        define(server, "new")


def test_run_outside_of_a_loop_does_not_mind_that_one_ran() -> None:
    asyncio.run(asyncio.sleep(0))
    with pytest.raises(ConfigError, match="port"):
        Server("x").run("http", port=-1)
