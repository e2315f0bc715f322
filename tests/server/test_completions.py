"""Completions: plain lists are filtered and ranked, functions are trusted and ranked."""

import pytest

from dovetail import Server
from dovetail.protocol.utilities import Completion
from dovetail.server.prompts import rank
from dovetail.testing import pair


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", ["Python", "PyTorch", "Cython", "Perl", "Ruby"]),
        ("py", ["Python", "PyTorch"]),
        ("TH", ["Python", "Cython", "PyTorch"]),
        ("pr", ["PyTorch", "Perl"]),
        ("xyz", []),
    ],
)
def test_prefix_comes_before_substring_before_letters_in_order(
    typed: str, expected: list[str]
) -> None:
    assert rank(["Python", "PyTorch", "Cython", "Perl", "Ruby", "Perl"], typed) == expected


async def test_a_list_is_filtered_and_a_function_is_only_ordered() -> None:
    server = Server("s")

    @server.prompt
    def ask(listed: str, made: str, counted: str, nothing: str = "") -> str:
        return listed + made + counted + nothing

    ask.complete("listed", ["alpha", "beta"])
    ask.complete("made")(lambda value: ["alpha", "beta"])
    ask.complete("counted")(
        lambda value: Completion(values=[str(n) for n in range(150)], total=9000)
    )

    async with pair(server) as client:

        async def values(argument: str) -> Completion:
            return await client.complete(prompt="ask", argument=argument, value="b")

        assert (await values("listed")).values == ["beta"]
        assert (await values("made")).values == ["beta", "alpha"]
        counted = await values("counted")
        assert (len(counted.values), counted.total, counted.has_more) == (100, 9000, True)
        assert await values("nothing") == Completion(values=[], total=0, has_more=False)


async def test_a_completer_that_fails_is_an_internal_error_and_nothing_more() -> None:
    server = Server("s")

    @server.prompt
    def ask(name: str) -> str:
        return name

    @ask.complete("name")
    def broken(value: str) -> list[str]:
        raise ValueError("no names today")

    async with pair(server) as client:
        from dovetail.errors import InternalError

        with pytest.raises(InternalError):
            await client.complete(prompt="ask", argument="name", value="x")
        await client.ping()


ROWS = [{"value": "beta", "description": "The second"}, {"value": "alpha"}, "gamma"]


@pytest.mark.parametrize("kind", ["function", "list", "Completion"])
async def test_a_completer_may_return_values_with_descriptions(kind: str) -> None:
    server = Server("s")

    @server.prompt
    def ask(name: str) -> str:
        return name

    if kind == "list":
        ask.complete("name", ROWS)
    elif kind == "function":
        ask.complete("name")(lambda value: ROWS)
    else:
        ask.complete("name")(lambda value: Completion(values=ROWS))  # type: ignore[arg-type]

    async with pair(server) as client:
        found = await client.complete(prompt="ask", argument="name", value="a")
    assert sorted(found.values) == ["alpha", "beta", "gamma"]


async def test_a_completion_without_a_value_is_explained(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from dovetail.errors import InternalError

    server = Server("s")

    @server.prompt
    def ask(name: str) -> str:
        return name

    ask.complete("name")(lambda value: [{"label": "beta"}])

    async with pair(server) as client:
        with pytest.raises(InternalError):
            await client.complete(prompt="ask", argument="name", value="a")
    assert "dicts with the key 'value'" in caplog.text
