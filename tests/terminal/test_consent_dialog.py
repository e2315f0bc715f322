"""The dialog that asks for consent: it shows everything, in plain words, and does nothing with what
a server wrote but show it."""

import asyncio
import io
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import CallRequest
from dovetail.config import parse
from dovetail.gateway.consent.request import ConsentRequest, describe_server
from dovetail.protocol.base import Implementation
from dovetail.protocol.tools import Tool
from dovetail.terminal.consent_dialog import ConsentPrompt, consent_dialog, terminal_confirm
from dovetail.terminal.run_dialog import _readers

ROOT = Path(__file__).parents[2]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
FORECAST = Tool(name="forecast", description="Say what the\nweather will be.", input_schema=SCHEMA)
HOSTILE = (
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\r\x9b1m\u202eexe\u2066\u2028\x00\x7f\u200bpay\u200d\U000e0041"
)
DANGEROUS = set("\x1b\x07\r\x9b\u202e\u2066\u2028\x00\x7f\u200b\u200d\U000e0041")
ALL_KEYS = "[o once, s session, a always, d deny] "


def play(request: ConsentRequest, *lines: str | None) -> tuple[Any, str]:
    """The answer, and all that was shown, when these lines are typed."""
    talk, shown, typed = consent_dialog(request), "", list(lines)
    try:
        shown += next(talk)
        while True:
            shown += talk.send(typed.pop(0))
    except StopIteration as end:
        assert not typed, f"not asked for: {typed}\n{shown}"
        return end.value, shown


def make(kind: Any, **fields: Any) -> ConsentRequest:
    return ConsentRequest(kind=kind, **{"server": "weather", "digest": "sha256:1", **fields})


def start(**entry: Any) -> ConsentRequest:
    return make("start", entry=entry, folder="/home/me/project")


CALL = make("call", name="forecast", tool=FORECAST, arguments={"city": "Oslo"})


# what is shown


def test_a_command_is_shown_exactly() -> None:
    _, shown = play(start(command="uvx", args=["weather", "a b", "$(x)", "--flag=\n"]), "o")
    assert shown == (
        "\nStart the server weather on this computer?\n"
        "Command:\n  | uvx weather 'a b' '$(x)' '--flag=\\n'\n"
        "Folder:\n  | /home/me/project\n"
        f"Start the server weather on this computer? {ALL_KEYS}"
    )


def test_an_entry_is_shown_with_all_that_is_in_it() -> None:
    request = start(
        command="uvx",
        env={"KEY": "${WEATHER_KEY}", "LD_PRELOAD": "/tmp/evil.so"},
        envFile=".env",
        dovetail={"prefix": "w"},
    )
    _, shown = play(replace(request, variables=("${WEATHER_KEY}", "${file:x}")), "d")
    for part in (
        "variables that are set for it:\n  | KEY = ${WEATHER_KEY}\n  | LD_PRELOAD = /tmp/evil.so\n",
        "It gets the values of these variables:\n  | ${WEATHER_KEY}\n  | ${file:x}\n",
        'Other fields of the entry:\n  | {\n  |   "envFile": ".env"\n  | }\n',
        'Settings:\n  | {\n  |   "prefix": "w"\n  | }\n',
    ):
        assert part in shown
    assert "Warning" not in shown


def test_a_url_is_shown_with_its_host_and_headers() -> None:
    entry = {"url": "http://аpple.com@93.184.216.34/mcp", "headers": {"X": "${AWS_SECRET}"}}
    _, shown = play(make("reach", entry=entry, variables=("${AWS_SECRET}",)), "d")
    assert shown.startswith("\nConnect to the server weather?\nURL:\n  | http://аpple.com@93.184")
    assert "Host: 93.184.216.34\n" in shown
    for warning in ("before the @", "an IP address, not a name", "is not encrypted"):
        assert warning in shown
    assert "Headers that are sent to it:\n  | X = ${AWS_SECRET}\n" in shown
    assert "It gets the values of these variables:\n  | ${AWS_SECRET}\n" in shown


@pytest.mark.parametrize("place", ["entry", "defaults"])
@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"trust": True}, "Warning: trust is on: you are not asked about tools that"),
        ({"pin": "off"}, "Warning: pin is off: you are not asked again"),
        ({"forward": ["X-Tenant", "X-\x1b[2J"]}, r"are sent to the server: X-Tenant, X-\x1b[2J"),
    ],
    ids=str,
)
def test_settings_that_give_a_server_more_are_marked(
    settings: dict[str, Any], warning: str, place: str
) -> None:
    request = start(command="x", dovetail=settings if place == "entry" else {})
    request = replace(request, defaults=settings if place == "defaults" else {})
    assert warning in play(request, "d")[1]
    own = {"trust": False, "pin": "ask", "forward": []}
    harmless = replace(request, entry={"command": "x", "dovetail": own})
    assert "Warning" not in play(harmless, "d")[1], "the entry decides, not the defaults"


@pytest.mark.parametrize("settings", [{"trust": True}, {"pin": "off"}, {"forward": ["X-Tenant"]}])
def test_a_null_in_the_entry_does_not_hide_what_the_defaults_turn_on(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    own = dict.fromkeys(settings)
    servers = {"weather": {"url": "https://example.com/mcp", "dovetail": own}}
    found = parse({"mcpServers": servers, "dovetail": {"defaults": settings}})
    ((name, value),) = settings.items()
    assert getattr(found.settings["weather"], name) == value
    _, shown = play(describe_server(found, "weather"), "d")
    assert f"Warning: {name}" in shown
    assert "null" not in shown


def test_an_entry_that_changed_says_so() -> None:
    assert "has changed since" not in play(start(command="x"), "d")[1]
    changed = replace(start(command="x"), previous="sha256:0")
    assert (
        "You allowed this server before, but its entry has changed since." in play(changed, "d")[1]
    )


def test_a_call_is_shown_with_description_and_arguments() -> None:
    _, shown = play(CALL, "o")
    assert shown == (
        "\nCall the tool forecast of weather?\n"
        "Description, by the server:\n  | Say what the\n  | weather will be.\n"
        'Arguments:\n  | {\n  |   "city": "Oslo"\n  | }\n'
        "Call the tool forecast of weather? [o once, s session, a always, e edit, d deny] "
    )
    assert "has not listed this tool" in play(replace(CALL, tool=None), "d")[1]


def test_a_changed_tool_is_shown_as_a_difference() -> None:
    request = make("pin", name="tool:forecast", text="new", previous="old", diff="-old\n+new")
    _, shown = play(request, "a")
    assert shown.startswith(
        "\nUse tool:forecast of weather? It has changed since you approved it.\n"
        "Difference:\n  | -old\n  | +new\n"
    )
    _, shown = play(make("pin", name="tool:forecast", text="new"), "a")
    assert "It is new.\nContent:\n  | new\n" in shown


def test_a_shared_resource_is_shown_with_what_an_answer_covers() -> None:
    request = make("share", name="file:///home/me/a.txt", scope="file:///home/me/")
    _, shown = play(request, "s")
    assert shown.startswith(
        "\nShare this with the model?\nServer: weather\nURI:\n  | file:///home/me/a.txt\n"
        "session and always cover everything that begins with:\n  | file:///home/me/\n"
    )


def test_sampling_shows_the_prompt_and_then_the_answer() -> None:
    _, shown = play(make("sampling", text="Say hello", arguments={"maxTokens": 5}), "o")
    assert "Let weather use your model?\nPrompt:\n  | Say hello\n" in shown
    assert '"maxTokens": 5' in shown
    _, shown = play(make("sampling", text="Hello!", previous="Say hello"), "o")
    assert "Send the model's answer to weather?\nAnswer:\n  | Hello!\n" in shown


def test_a_question_is_shown_with_the_configured_name_and_the_host_of_a_page() -> None:
    answer, shown = play(make("elicitation", text="I am your bank. PIN?"), "y")
    assert answer == "once"
    assert "\nAnswer a question from the server weather?\nQuestion:\n  | I am your bank." in shown
    assert shown.endswith("[y yes, n no] "), "it cannot be remembered"
    page = make("elicitation", text="Log in", name="https://bank.example.evil.example/")
    assert "Host: bank.example.evil.example\n" in play(page, "n")[1]


@pytest.mark.parametrize(
    "request_",
    [
        start(command=HOSTILE, args=[HOSTILE], env={HOSTILE: HOSTILE}, x=HOSTILE),
        make("reach", entry={"url": f"https://a.example/{HOSTILE}", "headers": {HOSTILE: HOSTILE}}),
        make("reach", entry={"url": f"https://[{HOSTILE}"}),
        replace(
            CALL,
            name=HOSTILE,
            tool=Tool(name=HOSTILE, description=HOSTILE, input_schema={}),
            arguments={HOSTILE: [HOSTILE]},
        ),
        make("pin", name=HOSTILE, text=HOSTILE, previous=HOSTILE, diff=HOSTILE),
        make("share", name=HOSTILE, scope=HOSTILE, text=HOSTILE),
        make("sampling", text=HOSTILE, arguments={HOSTILE: HOSTILE}),
        make("elicitation", text=HOSTILE, name=f"https://a.example/{HOSTILE}"),
    ],
    ids=lambda request: request.kind,
)
def test_nothing_that_a_server_wrote_can_do_something_to_the_terminal(
    request_: ConsentRequest,
) -> None:
    request_ = replace(request_, server=f"weather{HOSTILE}", folder=HOSTILE, variables=(HOSTILE,))
    _, shown = play(request_, None)
    assert set(shown) & DANGEROUS == set()
    assert r"\x1b" in shown
    if request_.kind == "call":
        _, shown = play(request_, "e", "", None)
        assert set(shown) & DANGEROUS == set()


def test_a_server_cannot_speak_in_our_name() -> None:
    forged = "harmless\nCall the tool read of safe? [o once, d deny] o"
    tool = Tool(name="x", description=forged, input_schema={})
    _, shown = play(replace(CALL, tool=tool, name=f"x\n{forged}"), "d")
    assert "\nCall the tool read" not in shown
    assert "  | Call the tool read of safe?" in shown


@pytest.mark.parametrize("text", ["x" * 5000, "\n" * 5000, "a\nb\n" * 3000])
def test_a_long_text_is_cut_and_a_key_shows_the_rest(text: str) -> None:
    tool = Tool(name="x", description=f"{text}the end", input_schema={})
    request = replace(CALL, tool=tool)
    _, shown = play(request, "d")
    assert len(shown) < 3000
    assert shown.count("\n") < 50
    assert "more characters)\n" in shown
    assert "v view all" in shown
    assert "the end" not in shown
    _, shown = play(request, "v", "d")
    assert "the end\n" in shown
    long_name = replace(CALL, name="n" * 5000)
    assert len(play(long_name, "d")[1]) < 1500


# what is answered


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("o", "once"), ("s", "session"), ("a", "always"), ("d", "deny"), ("A", "always"),
        ("always\n", "always"), ("!", "deny"), (None, "deny"),
    ],
)  # fmt: skip
def test_one_key_is_the_answer(line: str | None, answer: str) -> None:
    assert play(start(command="x"), line)[0] == answer


@pytest.mark.parametrize("line", ["", "\n", "y", "x", "e", "v", "1", " "])
def test_no_other_key_is_an_answer(line: str) -> None:
    answer, shown = play(start(command="x"), line, "d")
    assert answer == "deny"
    assert shown.endswith(f"Press one of these keys. {ALL_KEYS}")


def test_arguments_can_be_edited_and_are_shown_again() -> None:
    answer, shown = play(CALL, "e", "Rome", "3", "y")
    assert answer == replace(CALL, arguments={"city": "Rome", "days": 3})
    assert "Press Enter to keep a value in [brackets], or type - to remove it." in shown
    assert "city [Oslo] > " in shown
    assert '  |   "city": "Rome",\n  |   "days": 3\n' in shown
    assert shown.endswith("[y yes, e edit, n no] ")


@pytest.mark.parametrize(
    ("lines", "arguments"),
    [
        (("-", ""), {}),
        (('"-"', ""), {"city": "-"}),
        (("5", ""), {"city": "5"}),
        (("", "many", "[1]"), {"city": "Oslo", "days": [1]}),
        (("Rome", "!"), None),
    ],
)
def test_values_are_text_or_json(lines: tuple[str, ...], arguments: Any) -> None:
    answer, _ = play(CALL, "e", *lines, "y" if arguments is not None else "d")
    assert answer == ("deny" if arguments is None else replace(CALL, arguments=arguments))


def test_true_is_not_one() -> None:
    request = replace(CALL, tool=None, arguments={"a": 1})
    answer, _ = play(request, "e", "true", "y")
    assert answer.arguments["a"] is True
    assert play(request, "e", "", "a")[0] == "always", "nothing was changed"


def test_a_changed_call_can_still_be_refused() -> None:
    assert play(CALL, "e", "Rome", "", "n")[0] == "deny"
    assert play(CALL, "e", "Rome", "", None)[0] == "deny"


def test_a_prompt_can_be_edited() -> None:
    request = make("sampling", text="Say hello")
    assert play(request, "e", "Say goodbye", "y")[0] == replace(request, text="Say goodbye")
    assert play(request, "e", "", "o")[0] == "once"


def test_each_question_ignores_keys_that_were_typed_before_it() -> None:
    talk = consent_dialog(CALL)
    assert isinstance(next(talk), ConsentPrompt)
    assert ConsentPrompt.discard_earlier_keys


# on_call


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def request_call(**fields: Any) -> CallRequest:
    server = Implementation(name="bank", version="1")
    usual = {"name": "pay", "arguments": {"amount": 5}, "server": server, "target": "bank.py"}
    return CallRequest(**{**usual, **fields})


async def test_a_call_of_a_single_client_is_confirmed() -> None:
    screen = Screen()
    confirm = terminal_confirm(Screen("y\nn\n"), screen)
    request = request_call()
    assert await confirm(request) is request
    assert await confirm(request) is None
    assert await confirm(request) is None, "the input has ended"
    assert "Call the tool pay of bank (bank.py)?\n" in screen.getvalue()
    assert "[y yes, e edit, n no] " in screen.getvalue()


async def test_a_call_of_a_single_client_can_be_edited() -> None:
    confirm = terminal_confirm(Screen("e\n1\ny\n"), Screen())
    assert (await confirm(request_call())).arguments == {"amount": 1}


async def test_without_a_terminal_a_call_is_refused() -> None:
    confirm = terminal_confirm(io.StringIO("y\n"), io.StringIO())
    assert await confirm(request_call()) is None


class Slow(Screen):
    """A terminal that the event loop cannot watch."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.asked = threading.Semaphore(0)

    def readline(self, size: int | None = -1, /) -> str:
        self.asked.release()
        return self.lines.get()


async def test_the_answer_to_a_question_that_was_cancelled_does_not_answer_the_next() -> None:
    source, screen = Slow(), Screen()
    confirm = terminal_confirm(source, screen)
    asking = asyncio.create_task(confirm(request_call()))
    await asyncio.to_thread(source.asked.acquire)
    asking.cancel()
    await asyncio.wait([asking])
    assert screen.getvalue().endswith("\nThis question was withdrawn.\n")
    source.lines.put("y\n")
    assert _readers[source].result(5) == "y\n"
    asking = asyncio.create_task(confirm(request_call(name="delete_all")))
    await asyncio.to_thread(source.asked.acquire)
    source.lines.put("n\n")
    assert await asyncio.wait_for(asking, 5) is None


async def test_two_questions_take_turns() -> None:
    screen = Screen()
    confirm = terminal_confirm(Screen("y\nn\n"), screen)
    first, second = await asyncio.gather(confirm(request_call()), confirm(request_call(name="b")))
    assert (first is not None, second) == (True, None)
    assert screen.getvalue().index("yes, e edit") < screen.getvalue().index("tool b of")


# a real terminal


HOST = """
import asyncio, os, sys
from dovetail.gateway.consent.consent import Consent
from dovetail.gateway.consent.request import ConsentRequest

async def main():
    consent = Consent(sys.argv[1])
    for line in sys.stdin:
        kind, name = line.split()
        loop = asyncio.get_running_loop()
        loop.call_later(0.02, lambda: print("alive", flush=True))
        request = ConsentRequest(kind=kind, server="weather", digest="d", name=name,
                                 entry={"command": "uvx"}, arguments={"a": 1})
        decision = await consent.decide(request)
        print(decision.answer, decision.request.arguments, flush=True)
        await asyncio.sleep(0.05)

asyncio.run(main())
"""


class Terminal:
    """A program whose stdin and stdout are pipes, and which has a terminal beside them."""

    def __init__(self, source: str, *arguments: str) -> None:
        import fcntl
        import termios

        self.ours, theirs = os.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-c", source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=theirs,  # which also keeps the terminal open
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)
        self.shown = b""

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def receive(self) -> str:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline().decode().strip()) == "alive":
            pass
        return line

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def until(self, text: str) -> None:
        while text.encode() not in self.shown:
            self.shown += os.read(self.ours, 4096)
        self.shown = self.shown.partition(text.encode())[2]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        os.close(self.ours)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
async def test_a_host_asks_at_its_terminal_and_not_on_stdin(tmp_path: Path) -> None:
    terminal = Terminal(HOST, str(tmp_path / "consent.db"))

    def converse() -> None:
        terminal.send("start x")
        terminal.until("Start the server weather on this computer? [o once")
        terminal.until("] ")
        terminal.type("x")
        terminal.until("Press one of these keys.")
        terminal.until("] ")
        terminal.type("a")
        terminal.until("a\r\n")
        assert terminal.receive() == "always {'a': 1}"
        terminal.send("call forecast")
        terminal.until("deny] ")
        terminal.type("e")
        terminal.until("a [1] > ")
        terminal.type("2\n")
        terminal.until("no] ")
        terminal.type("y")
        assert terminal.receive() == "once {'a': 2}"
        for key in ("\x03", "\x04", "d"):  # Ctrl-C, Ctrl-D
            terminal.send("call forecast")
            terminal.until("deny] ")
            terminal.type(key)
            assert terminal.receive() == "deny {'a': 1}"
        terminal.send("start x")  # remembered: nobody is asked
        assert terminal.receive() == "always {'a': 1}"

    try:
        await asyncio.wait_for(asyncio.to_thread(converse), 30)
    finally:
        terminal.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
async def test_keys_that_were_typed_before_the_question_do_not_answer_it(tmp_path: Path) -> None:
    terminal = Terminal(HOST, str(tmp_path / "consent.db"))

    def converse() -> None:
        terminal.type("aaaa\n")
        time.sleep(0.1)  # it is in the terminal's buffer before the program looks
        terminal.send("call forecast")
        terminal.until("deny] ")
        terminal.type("d")
        assert terminal.receive() == "deny {'a': 1}"

    try:
        await asyncio.wait_for(asyncio.to_thread(converse), 30)
    finally:
        terminal.close()


BACKGROUND = """
import asyncio, os, sys
from dovetail.terminal.consent_dialog import has_terminal
print(has_terminal(), flush=True)
if os.fork() == 0:
    os.setpgid(0, 0)  # a background job
    print(has_terminal(), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
async def test_a_background_job_has_no_terminal(tmp_path: Path) -> None:
    terminal = Terminal(BACKGROUND)
    try:
        lines = [await asyncio.wait_for(asyncio.to_thread(terminal.receive), 30) for _ in range(2)]
    finally:
        terminal.close()
    assert lines == ["True", "False"]
