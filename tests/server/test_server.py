"""The server that a user builds: decorators, components that come and go, lifespan, files,
isolation."""

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail import Context, Limits, NotFound, Server, ToolError
from dovetail.errors import ConfigError, Overloaded, SchemaError
from dovetail.testing import Tape, pair


def test_decorators_return_the_very_function_they_were_given() -> None:
    server = Server("s")

    def plain(x: int) -> int:
        return x

    assert server.tool(plain) is plain
    assert server.tool("other", title="Other")(plain) is plain
    assert server.resource("doc://{x}")(plain) is plain
    assert server.prompt(plain) is plain
    assert server.prompt("second")(plain) is plain
    assert plain(3) == 3


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({"tool": True}, "has no 'tool', only tools, resources, prompts, completions"),
        ({"logging": False}, "Logging is always declared"),
        ({"extensions": {}}, "experimental= and extensions= declare the rest"),
        ({"tools": None}, "use True to declare it"),
        ({"tools": "yes"}, "use True to declare it"),
        ({"tools": {"listChanged": "yes"}}, "use True to declare it"),
    ],
)
def test_a_capability_that_cannot_be_chosen_is_an_error(choice: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Server("s", capabilities=choice)


async def test_methods_callables_and_partials_are_tools() -> None:
    from functools import partial

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def increase(self, by: int = 1) -> int:
            self.count += by
            return self.count

        async def __call__(self, by: int) -> int:
            return self.count + by

    counter = Counter()
    server = Server("s")
    server.tool(counter.increase)
    server.tool("call")(counter)
    server.tool("three")(partial(counter.increase, by=3))
    async with pair(server) as client:
        assert (await client.call_tool("increase")).data == 1
        assert (await client.call_tool("call", {"by": 10})).data == 11
        assert (await client.call_tool("three")).data == 4


def test_a_name_can_be_taken_once() -> None:
    server = Server("s")
    server.add_tool(lambda: 1, name="x")
    with pytest.raises(ConfigError, match="The tool 'x' already exists"):
        server.add_tool(lambda: 2, name="x")
    server.remove_tool("x")
    server.add_tool(lambda: 2, name="x")
    with pytest.raises(ConfigError, match="no tool 'y'"):
        server.remove_tool("y")


@pytest.mark.requirement("tool-names")
@pytest.mark.parametrize("name", ["has space", "x" * 129, "tool/with/slash", "naïve"])
def test_a_name_that_some_clients_refuse_warns_at_registration(name: str) -> None:
    with pytest.warns(UserWarning, match="use 1 to 128 characters") as caught:
        Server("s").add_tool(lambda: 1, name=name)
    assert caught[0].filename == __file__


@pytest.mark.requirement("tool-names")
def test_an_ordinary_name_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Server("s").add_tool(lambda: 1, name="A-ok_1.2")


async def test_of_templates_that_fit_the_one_is_taken_that_says_most_and_else_the_first() -> None:
    server = Server("s")
    for uri in (
        "docs://{+path}",
        "docs://{+path}/b",
        "docs://team/{+path}",
        "docs://team/a{+path}",
    ):
        server.add_resource(lambda path, uri=uri: uri, uri, name=uri)
    expected = {
        "docs://x/b": "docs://{+path}",
        "docs://team/x": "docs://team/{+path}",
        "docs://team/ax": "docs://team/a{+path}",
    }

    async def found() -> dict[str, str | None]:
        async with pair(server) as client:
            return {uri: (await client.read_resource(uri))[0].text for uri in expected}

    assert await found() == expected
    server.remove_resource("docs://team/a{+path}")
    assert (await found())["docs://team/ax"] == "docs://team/{+path}"


@pytest.mark.parametrize(
    ("register", "said"),
    [
        (lambda server: server.resource("no-scheme")(lambda: ""), "is not a valid URI"),
        (lambda server: server.resource("doc://x")(lambda y: ""), "cannot have the parameters y"),
        (lambda server: server.resource("doc://{x}")(lambda: ""), "does not accept"),
        (lambda server: server.resource("doc://{x}")(lambda x, y: ""), "lacks the variables"),
        (lambda server: server.tool(isolate="thread")(len), "process"),
        (lambda server: server.tool("x", schema={"type": "array"})(lambda: 1), '"type": "object"'),
        (lambda server: server.tool(lambda: 1), "lambda has no name"),
        (lambda server: server.run("carrier pigeon"), "Unknown transport"),
        (lambda server: server.add_file("no/such/file"), "The file .*no.such.file does not exist"),
        (
            lambda server: server.add_directory("no/such/folder", uri="docs://"),
            "The directory .*does not exist",
        ),
        (lambda server: Server("s", page_size=0), "page_size"),
        (lambda server: Server("s", revisions=["1999-01-01"]), "1999-01-01"),
        (lambda server: server.resource(lambda: ""), "requires a URI"),
        (
            lambda server: server.tool(titel="x")(len),
            r"@server\.tool has no option titel=; did you mean title=\?",
        ),
        (
            lambda server: server.tool(len, zzz=1),
            "@server.tool has no option zzz=; its options are name, title, ",
        ),
        (
            lambda server: server.resource("doc://x", mimetype="x")(str),
            "@server.resource .* mimetype=; .* mime_type=",
        ),
        (
            lambda server: server.prompt(scope="x")(str),
            "@server.prompt has no option scope=; did you mean scopes=",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(register: Any, said: str) -> None:
    with pytest.raises((ConfigError, SchemaError), match=said):
        register(Server("s"))


async def test_components_come_and_go_from_any_thread_while_clients_call() -> None:
    server = Server("busy")
    server.add_tool(lambda: "here", name="steady")

    def churn(worker: int) -> None:
        for n in range(100):
            server.add_tool(lambda: 1, name=f"t-{worker}-{n}")
            server.remove_tool(f"t-{worker}-{n}")

    tape = Tape()
    async with pair(server, revision="2025-06-18", record=tape) as client:
        threads = [threading.Thread(target=churn, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert (await client.call_tool("steady")).data == "here"
        assert [tool.name for tool in await client.list_tools()] == ["steady"]
    assert 0 < tape.methods("server").count("notifications/tools/list_changed") <= 800


async def test_the_lifespan_surrounds_the_conversation_and_gives_the_state() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan() -> Any:
        events.append("start")
        yield {"db": 42}
        events.append("end")

    server = Server("s", lifespan=lifespan)

    @server.tool
    def db(ctx: Context) -> int:
        events.append("call")
        return ctx.state["db"]

    async with pair(server) as client:
        assert (await client.call_tool("db")).data == 42
    assert events == ["start", "call", "end"]


async def test_one_server_serves_several_clients_at_once() -> None:
    server = Server("s")

    @server.tool
    async def who(ctx: Context) -> str:
        return ctx.revision

    async with (
        pair(server, revision="2024-11-05") as old,
        pair(server, revision="2026-07-28") as new,
    ):
        assert (await old.call_tool("who")).text == "2024-11-05"
        assert (await new.call_tool("who")).text == "2026-07-28"


def test_one_server_runs_on_several_loops_at_once() -> None:
    server = Server("s")

    @server.tool
    def add(a: int) -> int:
        return a + 1

    async def use() -> int:
        async with pair(server) as client:
            return (await client.call_tool("add", {"a": 1})).data

    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(asyncio.run(use()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2, 2, 2, 2]


async def test_more_calls_than_may_wait_for_a_thread_are_refused() -> None:
    server = Server("s", limits=Limits(threads=1, thread_queue=1))
    release = threading.Event()

    @server.tool
    def block() -> str:
        release.wait(20)
        return "done"

    async with pair(server) as client:
        calls = [asyncio.create_task(client.call_tool("block")) for _ in range(6)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(done.pop().exception(), Overloaded)
        release.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [o for o in outcomes if not isinstance(o, Exception)], (
            "those that had a place are answered"
        )


RAW = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "unit": {"enum": ["m", "km"]}},
    "required": ["n"],
}


async def test_a_raw_schema_checks_the_arguments_and_passes_them_on() -> None:
    server = Server("s")

    @server.tool(schema=RAW)
    def measure(**values: Any) -> dict[str, Any]:
        return values

    async with pair(server) as client:
        (tool,) = await client.list_tools()
        assert tool.input_schema == RAW
        assert (await client.call_tool("measure", {"n": 3, "unit": "km"})).data == {
            "n": 3,
            "unit": "km",
        }
        with pytest.raises(ToolError, match="unit"):
            await client.call_tool("measure", {"n": 3, "unit": "mile"})
        with pytest.raises(ToolError, match="n"):
            await client.call_tool("measure", {"n": 0})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"$ref": "https://example.com/x.json"}}},
        {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"},
    ],
)
def test_a_raw_schema_that_cannot_be_used_is_refused_at_once(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Server("s").tool("x", schema=schema)(lambda **values: 1)


async def test_files_and_directories_are_served_and_nothing_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("# A")
    (folder / "50 % off?.txt").write_text("sale")
    (folder / "sub" / "b.bin").write_bytes(b"\x00\x01")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "way-out").symlink_to(tmp_path / "secret.txt")
    server = Server("files")
    server.add_file(folder / "a.md", uri="file:///a.md")
    server.add_directory(folder, uri="docs://")
    async with pair(server) as client:
        listed = {resource.uri: resource for resource in await client.list_resources()}
        assert listed["file:///a.md"].mime_type == "text/markdown"
        assert listed["file:///a.md"].size == 3
        assert listed["docs://"].mime_type == "inode/directory"
        (listing,) = await client.read_resource("docs://")
        assert (listing.text or "").splitlines() == [
            "docs://50%20%25%20off%3F.txt",
            "docs://a.md",
            "docs://sub/b.bin",
        ]
        (sale,) = await client.read_resource("docs://50%20%25%20off%3F.txt")
        assert (sale.uri, sale.text) == ("docs://50%20%25%20off%3F.txt", "sale")
        assert (await client.read_resource("docs://a.md"))[0].text == "# A"
        assert (await client.read_resource("docs://sub/b.bin"))[0].data == b"\x00\x01"
        assert (
            await client.complete(resource="docs://{+path}", argument="path", value="b")
        ).values[0] == "sub/b.bin"
        for way in (
            "../secret.txt",
            "sub/../../secret.txt",
            "%2e%2e/secret.txt",
            "way-out",
            "/etc/passwd",
            "sub%2f..%2f..%2fsecret.txt",
        ):
            with pytest.raises(NotFound) as caught:
                await client.read_resource(f"docs://{way}")
            assert str(tmp_path) not in str(caught.value)


def burn(n: int) -> int:
    return n * 2


def hang() -> None:
    while True:
        pass


async def test_an_isolated_tool_runs_in_a_child_that_can_be_ended() -> None:
    server = Server("s")
    server.tool(isolate="process")(burn)
    server.tool(isolate="process", timeout=0.5)(hang)
    async with pair(server) as client:
        assert (await client.call_tool("burn", {"n": 21})).data == 42
        with pytest.raises(ToolError, match=r"did not finish within 0.5 s"):
            await client.call_tool("hang")


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"threads": 0}, "threads=0.*must be at least 1"),
        ({"incoming": -5}, "incoming=-5.*must be a non-negative integer"),
        ({"timeout": "5"}, "timeout='5'.*must be a non-negative number"),
        ({"in_flight": 1.5}, "in_flight=1.5.*non-negative integer"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"threads": True}, "threads=True"),
        ({"shutdown": None}, "shutdown=None"),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused(bounds: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Limits(**bounds)


def test_bounds_may_be_none_where_that_is_the_default() -> None:
    assert Limits(ping_interval=None, progress_interval=0, timeout=5) == Limits(
        progress_interval=0.0, timeout=5.0
    )


def test_a_generator_is_no_tool() -> None:
    server = Server("s")

    def lines() -> Iterator[str]:
        yield "one"

    async def later() -> AsyncIterator[str]:
        yield "one"

    for function in (lines, later):
        with pytest.raises(ConfigError, match="is a generator; return the result"):
            server.tool(function)


def test_a_context_without_its_annotation_is_warned_of() -> None:
    server = Server("s")
    with pytest.warns(UserWarning, match="write `ctx: Context`"):

        @server.tool
        def careless(ctx) -> None:  # type: ignore[no-untyped-def]
            pass


async def test_errors_of_a_tool_say_whose_they_are() -> None:
    server = Server("s")

    @server.tool
    def missing() -> str:
        return {"a": "b"}["name"]

    @server.tool
    def odd() -> Any:
        return object()

    async with pair(server) as client:
        with pytest.raises(ToolError, match="KeyError: 'name'"):
            await client.call_tool("missing")
        with pytest.raises(
            ToolError,
            match="odd returned a value that cannot be sent: object cannot be converted to JSON",
        ):
            await client.call_tool("odd")
