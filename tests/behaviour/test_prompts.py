"""Prompts and completions."""

import pytest

from dovetail.errors import InvalidParams
from tests.behaviour.conftest import Talk


@pytest.mark.requirement("prompts-list")
async def test_prompts_are_listed_with_their_arguments(talk: Talk) -> None:
    async with talk() as client:
        prompts = {prompt.name: prompt for prompt in await client.list_prompts()}
    greet = prompts["greet"]
    assert greet.description == "Say hello."
    arguments = {one.name: one for one in greet.arguments or []}
    assert (arguments["name"].required, arguments["name"].description) == (True, "Whom to greet.")
    assert not arguments["times"].required


@pytest.mark.requirement("prompts-get")
async def test_a_prompt_is_filled_in(talk: Talk) -> None:
    async with talk() as client:
        greeting = await client.get_prompt("greet", {"name": "Ada", "times": 2})
        conversation = await client.get_prompt("talk_about", {"topic": "joints"})
    assert greeting.description == "Say hello."
    assert [(one.role, one.content.text) for one in greeting.messages] == [
        ("user", "Hello Ada! Hello Ada!")
    ]
    assert [one.role for one in conversation.messages] == ["user", "assistant"]


@pytest.mark.requirement("prompts-validated")
@pytest.mark.requirement("prompts-errors")
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("nothing", {}, "Unknown prompt: nothing"),
        ("greet", {}, "`name` is missing"),
        ("greet", {"name": "Ada", "times": "often"}, "`times` must be an integer"),
        ("greet", {"name": "Ada", "loud": "yes"}, "`loud` is not an argument"),
    ],
)
async def test_a_prompt_refuses_what_it_cannot_take(
    in_memory: Talk, name: str, arguments: dict[str, str], said: str
) -> None:
    async with in_memory() as client:
        with pytest.raises(InvalidParams, match=said) as caught:
            await client.get_prompt(name, arguments)
        assert caught.value.code == -32602


@pytest.mark.requirement("completion")
async def test_arguments_are_completed_best_first(talk: Talk) -> None:
    async with talk() as client:
        names = await client.complete(prompt="greet", argument="name", value="a")
        assert names.values == ["Ada", "Alan", "Barbara", "Grace"]
        assert (await client.complete(prompt="greet", argument="name", value="ar")).values == [
            "Barbara"
        ]


@pytest.mark.requirement("completion-limit")
async def test_at_most_a_hundred_values_are_sent_with_the_total(in_memory: Talk) -> None:
    async with in_memory() as client:
        numbers = await client.complete(
            resource="item://{number}/name", argument="number", value=""
        )
    assert (len(numbers.values), numbers.total, numbers.has_more) == (100, 300, True)


@pytest.mark.requirement("completion-context")
async def test_arguments_chosen_before_are_the_context(in_memory: Talk) -> None:
    async with in_memory() as client:
        topic = await client.complete(
            prompt="talk_about", argument="topic", value="x", context={"kind": "wood"}
        )
    assert topic.values == (["wood-x"] if in_memory.at_least("2025-06-18") else ["any-x"])


@pytest.mark.requirement("completion-errors")
async def test_what_cannot_be_completed_is_refused(in_memory: Talk) -> None:
    async with in_memory() as client:
        with pytest.raises(InvalidParams, match="Unknown prompt"):
            await client.complete(prompt="nothing", argument="x")
        with pytest.raises(InvalidParams, match="no argument named 'x'"):
            await client.complete(prompt="greet", argument="x")
