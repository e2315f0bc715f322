r"""Ask the person at the terminal for consent, and before a tool is called.

    ask_consent        the answer of a `Host` without `on_consent`
    terminal_confirm   a ready-made `on_call`: `Client(target, on_call=terminal_confirm())`

The dialog says in plain words what will happen, shows everything that the decision is about, and
takes one key as the answer. No key is a default, and a key that was typed before the question was
shown is ignored. Ctrl-C and the end of input deny.

The question goes to the terminal of the process (`/dev/tty`), not to stdin and stdout, which may
carry messages. All that a server or a model wrote is shown as `prompts.py` describes: with escapes
for what could control the terminal or cannot be seen, after a bar, and cut if it is long. A key
shows the rest. The question itself comes last, so that no text can move it off the screen.
"""

import shlex
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..text import escape_unsafe
from .prompts import KeyPrompt, UserDeclined, prompt, quote_lines, url_warnings
from .run_dialog import Interrupted, is_terminal, open_terminal, run_dialog, terminal_turn

if TYPE_CHECKING:
    from ..client.call_hook import CallRequest
    from ..gateway.consent.request import ConsentRequest

MAX_SHOWN_CHARS, MAX_SHOWN_LINES = 1500, 20
"""How much of one text is shown at first."""
MAX_LABEL_CHARS = 200
SHOWN_FIELDS: dict[str, type] = {
    "command": str, "args": list, "env": dict, "url": str, "headers": dict, "dovetail": Mapping
}  # fmt: skip
"""The fields of an entry that have lines of their own, and their types. Everything else is shown as
JSON."""
WARNINGS: dict[str, Callable[[Any], str | None]] = {
    "trust": lambda value: (
        "trust is on: you are not asked about tools that, according to the server, only read"
        if value
        else None
    ),
    "pin": lambda value: (
        "pin is off: you are not asked again if the server changes its tools"
        if value == "off"
        else None
    ),
    "forward": lambda value: (
        f"forward: these headers of callers are sent to the server: {_words(value)}"
        if value
        else None
    ),
}
"""Settings that give a server more than usual, and what to say about them."""
KEY_LABELS = {
    "o": "once",
    "s": "session",
    "a": "always",
    "y": "yes",
    "e": "edit",
    "v": "view all",
    "n": "no",
    "d": "deny",
}
ANSWERS = {"o": "once", "s": "session", "a": "always", "y": "once", "n": "deny", "d": "deny"}
ConsentDialog = Generator[str, str | None, "str | ConsentRequest"]


class ConsentPrompt(KeyPrompt):
    """Text that asks for a key that allows something."""

    discard_earlier_keys = True


class _Page:
    """The text of a question, and whether some of it was left out."""

    def __init__(self, whole: bool) -> None:
        self.text, self.question, self.is_cut, self._whole = "\n", "", False, whole

    def line(self, text: str) -> None:
        self.text += f"{text}\n"

    def ask(self, question: str) -> None:
        """Begin the page with the question, which is repeated at its end."""
        self.question = question
        self.line(question)

    def quote(self, text: str, label: str) -> None:
        """Add text that somebody else wrote."""
        self.line(f"{label}:")
        shown = text if self._whole else _cut(text)
        self.text += quote_lines(shown)
        if len(shown) < len(text):
            self.line(f"  ({len(text) - len(shown):,} more characters)")
            self.is_cut = True

    def warn(self, text: str) -> None:
        self.line(f"  Warning: {text}")


def _cut(text: str) -> str:
    lines = text[:MAX_SHOWN_CHARS].split("\n")
    return "\n".join(lines[:MAX_SHOWN_LINES])


# what is shown


def _label(text: str) -> str:
    """Return a name for use in a line of our own text."""
    name = escape_unsafe(text[: MAX_LABEL_CHARS + 1])
    return name if len(text) <= MAX_LABEL_CHARS else f"{name[:MAX_LABEL_CHARS]}…"


def _words(values: Any) -> str:
    listed = values if isinstance(values, list | tuple) else [values]
    return ", ".join(_label(str(value)) for value in listed)


def _to_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def _show_start(page: _Page, request: "ConsentRequest") -> None:
    entry: dict[str, Any] = dict(request.entry or {})
    shown = {
        name: entry.pop(name)
        for name, type_ in SHOWN_FIELDS.items()
        if isinstance(entry.get(name), type_)
    }
    server = _label(request.server)
    if request.kind == "start":
        page.ask(f"Start the server {server} on this computer?")
        words = [shown.get("command", ""), *map(str, shown.get("args", ()))]
        page.quote(escape_unsafe(shlex.join(words)), "Command")
        page.quote(escape_unsafe(request.folder or "."), "Folder")
    else:
        page.ask(f"Connect to the server {server}?")
        url = shown.get("url", "")
        page.quote(escape_unsafe(url), "URL")
        _show_host(page, url)
    for name, label in (
        ("env", "Environment variables that are set for it"),
        ("headers", "Headers that are sent to it"),
    ):
        if values := shown.get(name):
            page.quote("\n".join(_pair(*item) for item in values.items()), label)
    if request.variables:
        variables = "\n".join(map(escape_unsafe, request.variables))
        page.quote(variables, "It gets the values of these variables")
    if entry:
        page.quote(_to_json(entry), "Other fields of the entry")
    if settings := request.settings:
        page.quote(_to_json(settings), "Settings")
    for name, warning in WARNINGS.items():
        if text := warning(settings.get(name)):
            page.warn(text)
    if request.previous is not None:
        page.line("You allowed this server before, but its entry has changed since.")


def _pair(name: Any, value: Any) -> str:
    shown = value if isinstance(value, str) else _to_json(value)
    return f"{escape_unsafe(str(name))} = {escape_unsafe(shown)}"


def _show_host(page: _Page, url: str) -> None:
    try:
        host, warnings = urlsplit(url).hostname or "", url_warnings(url)
    except ValueError:
        host, warnings = "", ["the URL is not valid"]
    page.line(f"Host: {_label(host)}")
    for warning in warnings:
        page.warn(warning)


def _show_call(page: _Page, request: "ConsentRequest") -> None:
    page.ask(f"Call the tool {_label(request.name)} of {_label(request.server)}?")
    if request.tool is None:
        page.line("The server has not listed this tool.")
    elif request.tool.description:
        page.quote(request.tool.description, "Description, by the server")
    page.quote(_to_json(request.arguments or {}), "Arguments")


def _show_pin(page: _Page, request: "ConsentRequest") -> None:
    change = "is new" if request.previous is None else "has changed since you approved it"
    page.ask(f"Use {_label(request.name)} of {_label(request.server)}? It {change}.")
    if request.diff is not None:
        page.quote(request.diff, "Difference")
    else:
        page.quote(request.text, "Content")


def _show_share(page: _Page, request: "ConsentRequest") -> None:
    page.ask(f"Share this with {_label(request.text or 'the model')}?")
    page.line(f"Server: {_label(request.server)}")
    page.quote(escape_unsafe(request.name), "URI" if ":" in request.name else "Name")
    if request.scope and request.scope != request.name:
        page.quote(
            escape_unsafe(request.scope), "session and always cover everything that begins with"
        )


def _show_sampling(page: _Page, request: "ConsentRequest") -> None:
    server = _label(request.server)
    if request.previous is None:
        page.ask(f"Let {server} use your model?")
        page.quote(request.text, "Prompt")
        if request.arguments:
            page.quote(_to_json(request.arguments), "Parameters")
    else:
        page.ask(f"Send the model's answer to {server}?")
        page.quote(request.text, "Answer")


def _show_elicitation(page: _Page, request: "ConsentRequest") -> None:
    page.ask(f"Answer a question from the server {_label(request.server)}?")
    page.quote(request.text, "Question")
    if request.name:
        page.quote(escape_unsafe(request.name), "It asks you to visit this page")
        _show_host(page, request.name)


class _Kind(Struct, frozen=True):
    """How a kind of question is shown and answered."""

    show: "Callable[[_Page, ConsentRequest], None]"
    keys: str = "osad"
    edit: "Callable[[ConsentRequest], Generator[str, str | None, ConsentRequest]] | None" = None


# editing


def _edit_arguments(request: "ConsentRequest") -> Generator[str, str | None, "ConsentRequest"]:
    """Let the user change the arguments one by one."""
    arguments = dict(request.arguments or {})
    schema = (request.tool.input_schema if request.tool is not None else None) or {}
    declared = schema.get("properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    lead = "Press Enter to keep a value in [brackets], or type - to remove it.\n"
    for name in [*arguments, *(name for name in properties if name not in arguments)]:
        current = f"[{_label(_to_line(arguments[name]))}] " if name in arguments else ""
        text = f"{lead}{_label(name)} {current}> "
        lead = ""
        while line := (yield from prompt(text)).strip():
            if line == "-":
                arguments.pop(name, None)
                break
            is_text = _is_text(properties.get(name), arguments.get(name))
            try:
                is_plain = is_text and not line.startswith('"')
                arguments[name] = line if is_plain else msgspec.json.decode(line)
                break
            except msgspec.MsgspecError:
                text = f"  This is not valid JSON.\n{_label(name)} > "
    # 1 and true are equal in Python, but not in JSON
    is_same = _to_json(arguments) == _to_json(request.arguments or {})
    return request if is_same else replace(request, arguments=arguments)


def _is_text(schema: Any, current: Any) -> bool:
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    return declared == "string" if declared else isinstance(current, str)


def _to_line(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _edit_text(request: "ConsentRequest") -> Generator[str, str | None, "ConsentRequest"]:
    line = yield from prompt("Type the new text on one line, or press Enter to keep it.\n> ")
    return replace(request, text=line) if line.strip() else request


KINDS: dict[str, _Kind] = {
    "start": _Kind(_show_start),
    "reach": _Kind(_show_start),
    "call": _Kind(_show_call, "osad", _edit_arguments),
    "pin": _Kind(_show_pin),
    "share": _Kind(_show_share),
    "sampling": _Kind(_show_sampling, "osad", _edit_text),
    "elicitation": _Kind(_show_elicitation, "yn"),
}


# asking


def consent_dialog(request: "ConsentRequest", keys: str = "") -> ConsentDialog:
    """Show a request and return the answer: `"once"`, `"session"`, `"always"`, `"deny"`, or the
    request as the user changed it.

    Args:
        request: The request.
        keys: The keys that the user may press (default: those of its kind).
    """
    kind, asked, whole = KINDS[request.kind], request, False
    keys = keys or kind.keys
    try:
        while True:
            page = _Page(whole)
            kind.show(page, request)
            is_changed = request is not asked
            allowed = "yn" if is_changed else keys
            allowed += "e" if kind.edit else ""
            allowed += "v" if page.is_cut else ""
            key = yield from _press(page, allowed)
            if key == "v":
                whole = True
            elif key == "e" and kind.edit is not None:
                request = yield from _edit(kind.edit, request)
            elif is_changed and key == "y":
                return request
            else:
                return ANSWERS[key]
    except UserDeclined:
        return "deny"


def _edit(
    edit: "Callable[[ConsentRequest], Generator[str, str | None, ConsentRequest]]",
    request: "ConsentRequest",
) -> Generator[str, str | None, "ConsentRequest"]:
    try:
        return (yield from edit(request))
    except UserDeclined:  # ! ends the editing
        return request


def _press(page: _Page, keys: str) -> Generator[str, str | None, str]:
    choices = ", ".join(f"{key} {KEY_LABELS[key]}" for key in KEY_LABELS if key in keys)
    text, question = f"{page.text}{page.question} ", f"[{choices}] "
    while True:
        key = (yield from prompt(ConsentPrompt(text + question))).strip().lower()[:1]
        if key and key in keys:
            return key
        text = "Press one of these keys. "


def has_terminal() -> bool:
    """Return whether the person at the terminal of this process can be asked."""
    return open_terminal() is not None


async def ask_consent(request: "ConsentRequest") -> "str | ConsentRequest":
    """Ask the person at the terminal of this process; deny if there is no terminal.

    Args:
        request: What to ask.
    """
    return await _ask(consent_dialog(request), open_terminal())


def terminal_confirm(
    stream_in: TextIO | None = None, stream_out: TextIO | None = None
) -> "Callable[[CallRequest], Any]":
    """Return an `on_call` hook that shows each tool call to the person at the terminal, who may
    change its arguments. Without a terminal, every call is refused.

    Args:
        stream_in: The stream from which answers are read. Pass both streams or none (default: the
            terminal of the process, even if stdin is redirected).
        stream_out: The stream on which questions are shown.
    """

    async def confirm(request: "CallRequest") -> "CallRequest | None":
        given = stream_in is not None and stream_out is not None
        streams = (stream_in, stream_out) if given else open_terminal()
        shown: Any = ShownCall(
            kind="call",
            server=_describe_server(request),
            name=request.name,
            tool=request.tool,
            arguments=request.arguments,
        )
        answer = await _ask(consent_dialog(shown, "yn"), streams)
        if isinstance(answer, str):
            return request if answer == "once" else None
        return replace(request, arguments=answer.arguments or {})

    return confirm


class ShownCall(Struct, kw_only=True):
    """A tool call of a single client, with the fields that the dialog shows."""

    kind: str
    server: str
    name: str
    tool: Any
    arguments: Any


def _describe_server(request: "CallRequest") -> str:
    name = (request.server.title or request.server.name) if request.server is not None else ""
    return f"{name} ({request.target})" if name and request.target else name or request.target


async def _ask(talk: ConsentDialog, streams: Any) -> "str | ConsentRequest":
    if streams is None or not (is_terminal(streams[0]) and is_terminal(streams[1])):
        talk.close()
        return "deny"
    async with terminal_turn():
        try:
            return await run_dialog(talk, *streams)
        except Interrupted:
            return "deny"
