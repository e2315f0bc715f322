"""examples/chat.py: a chat with three servers, at a pipe and with a user who decides."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail import ConsentRequest

from .conftest import EXAMPLES, Load, run


def test_the_chat_calls_tools_fills_in_prompts_and_attaches_resources() -> None:
    lines = [
        "What is the weather in Oslo?",
        "Which books by Austen do you have?",
        "/weather__packing city=Oslo days=2",
        "What is in @db://schema?",
        "/weather__packing Oslo",
        "/weather__packing 'Oslo",
        "/",
        "/no_such_prompt",
        "Good bye",
    ]
    done = run(EXAMPLES / "chat.py", typed="\n".join(lines))
    assert done.returncode == 0, done.stderr
    weather, books, packing, *schema, argument, typo, none, unknown, bye = done.stdout.splitlines()
    assert weather.startswith('I found this: {"city":"Oslo","days":[{"day":1,')
    assert '"rows":[["Emma"],["Persuasion"]]' in books
    assert packing.startswith("You said: I am travelling to Oslo for 2 days.")
    assert schema[0] == "You said: What is in @db://schema?"
    assert "db://schema:" in schema
    assert any(line.startswith("CREATE TABLE books") for line in schema)
    assert "city" in argument
    assert typo == "No closing quotation"
    assert "prompt" in none
    assert "no_such_prompt" in unknown
    assert bye == "You said: Good bye"


def test_without_a_terminal_the_chat_changes_nothing() -> None:
    done = run(EXAMPLES / "chat.py", typed="Report: the page is blank\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("I found this: Error: ")
    assert "calling the tool 'create_issue' of 'github'" in done.stdout


@pytest.fixture
def chat(load: Load) -> Iterator[Any]:
    """The module, and the URL of its GitHub."""
    module = load("chat")
    with load("github_stub").make_stub() as stub:
        thread = threading.Thread(target=stub.serve_forever)
        thread.start()
        yield module, f"http://127.0.0.1:{stub.server_port}"
        stub.shutdown()
        thread.join()


@pytest.mark.parametrize("answer", ["once", "deny"])
async def test_the_user_decides_whether_an_issue_is_created(chat: Any, answer: str) -> None:
    module, github = chat
    asked: list[ConsentRequest] = []

    def ask(request: ConsentRequest) -> str:
        if request.kind == "start":
            return "once"
        asked.append(request)
        return answer

    async with module.make_host(github, ask) as host:
        await host.list_tools(fresh=True)
        said = await module.Chat(host, module.stub_model).say("Report: the page is blank")
    (request,) = asked
    assert request.arguments == {"repo": "acme/widgets", "title": "the page is blank"}
    assert ("github.example/acme/widgets/issues/1" in said) == (answer == "once")
    assert ("Error: " in said) == (answer == "deny")


async def test_a_model_that_never_answers_is_stopped(chat: Any) -> None:
    module, github = chat

    def stubborn(messages: list[Any], tools: list[Any]) -> Any:
        return module.stub_model([{"role": "user", "content": "books by Eliot"}], tools)

    async with module.make_host(github, module.allow_reading) as host:
        await host.list_tools(fresh=True)
        assert await module.Chat(host, stubborn).say("Hello") == "No answer after 10 steps."
