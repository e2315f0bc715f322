"""A request as something to paste elsewhere: a command line, Python, a test, curl, or JSON.

The text may be hostile: a server chooses the names of its tools, and much of what you send to it.
Each form quotes every word, so that a word stays a word, and shows control characters and invisible
characters as escapes. Credentials are masked, unless the terminal said to show them. Where the
server needs one, in its environment or in a header, the text reads an environment variable. Python
uses a saved login; curl reads the token from `$TOKEN`.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from ..errors import ConfigError
from ..masking import mask_arguments, mask_headers, mask_message
from ..mcplog import hide_secrets
from ..text import escape_json, quote
from .shell_words import shell_word

ExportForm: TypeAlias = Literal["command", "python", "pytest", "curl", "json"]

LIST_CALLS: Final = {
    "tools/list": "list_tools()",
    "resources/list": "list_resources()",
    "resources/templates/list": "list_resource_templates()",
    "prompts/list": "list_prompts()",
}
"""The calls that request the lists of a server."""


class ExportedRequest(Struct, frozen=True):
    """A request, and what is known about it."""

    message: bytes
    """The request as it was sent."""
    target: str | list[str]
    """The server: a URL, a file or a command."""
    revision: str | None = None
    """The protocol revision, or None for the newest that the server supports."""
    reply: bytes | None = None
    """The reply, with which a test compares the new one."""
    is_stateless: bool = False
    """Whether HTTP requests repeat the method and the name in headers."""
    server: str | None = None
    """The server to use, if the target is a configuration file."""
    env: Mapping[str, str] = {}
    """The environment variables that the server gets."""
    headers: Mapping[str, str] = {}
    """The HTTP headers that each request has."""
    cwd: str | None = None
    """The folder in which the server is started."""
    needs_login: bool = False
    """Whether the server needs the login that is saved for it."""
    show_secrets: bool = False
    """Whether credentials are written."""

    def shown(self, message: bytes) -> bytes:
        """Return a message as it may be written."""
        return message if self.show_secrets else mask_message(message)

    def shown_target(self) -> str | list[str]:
        """Return the target as it may be written."""
        return self.target if self.show_secrets else hide_secrets(self.target)

    def shown_env(self) -> "dict[str, str | HiddenValue]":
        """Return the environment variables as they may be written."""
        return {
            name: value
            if self.show_secrets or mask_arguments([f"{name}={value}"]) == [f"{name}={value}"]
            else HiddenValue(name)
            for name, value in self.env.items()
        }

    def shown_headers(self) -> "dict[str, str | HiddenValue]":
        """Return the HTTP headers as they may be written."""
        return {
            name: value
            if self.show_secrets or mask_headers({name: value}) == {name: value}
            else HiddenValue(name.upper())
            for name, value in self.headers.items()
        }


class HiddenValue(Struct, frozen=True):
    """A secret. What is exported reads it from an environment variable."""

    name: str

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return re.sub(r"\W|^(?=\d)", "_", self.name, flags=re.ASCII)


def export_request(request: ExportedRequest, form: ExportForm) -> str:
    """Return a request in a form that you can paste elsewhere.

    Args:
        request: The request.
        form: The form.

    Raises:
        ConfigError: The request cannot be written in this form.
    """
    text = request.shown(request.message).decode(errors="replace")
    if form == "json":
        return escape_json(text)
    try:
        message = json.loads(text)
        method, params = message["method"], message.get("params") or {}
        if not isinstance(method, str) or not isinstance(params, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"Only a request can be exported as {form}; use JSON") from None
    return _FORMS[form](request, method, params)


def _command(request: ExportedRequest, method: str, params: dict[str, Any]) -> str:
    shown = request.shown_target()
    target = shown if isinstance(shown, str) else shlex.join(shown)
    name = str(params.get("name", ""))
    arguments = json.dumps(params.get("arguments") or {}, ensure_ascii=False)
    words: dict[str, list[str]] = {
        "tools/call": ["call", f"--args={escape_json(arguments)}", "--", target, name],
        "resources/read": ["read", "--", target, str(params.get("uri", ""))],
        "prompts/get": ["prompt", "--", target, name, *_pairs(params)],
        "ping": ["ping", "--", target],
        **{name: ["inspect", "--", target] for name in LIST_CALLS},
    }
    if method not in words:
        raise ConfigError(f"No command sends {quote(method)}; use Python or JSON")
    verb, *rest = words[method]
    return " ".join(["dovetail", verb, *_options(request), *map(shell_word, rest)])


def _options(request: ExportedRequest) -> list[str]:
    """Return the options that reach the same server in the same way, as words of a shell."""
    given = {"revision": request.revision, "server": request.server, "cwd": request.cwd}
    env, headers = request.shown_env(), request.shown_headers()
    return [
        *(shell_word(f"--{name}={value}") for name, value in given.items() if value),
        *(_word_with(f"--env={name}=", value) for name, value in env.items()),
        *(_word_with(f"--header={name}: ", value) for name, value in headers.items()),
    ]


def _word_with(start: str, value: str | HiddenValue) -> str:
    """Return a word of a shell that ends with a value."""
    if isinstance(value, str):
        return shell_word(start + value)
    return f'{shell_word(start)}"${value.variable}"'


def _pairs(params: dict[str, Any]) -> list[str]:
    """Return the arguments of a prompt. `=` alone would read a file for a value that starts with
    `@`, and a dot in a key would be a path."""
    arguments = params.get("arguments")
    if not isinstance(arguments, dict):
        return []
    if odd := [key for key in arguments if not re.fullmatch(r"[\w-]+", key)]:
        raise ConfigError(f"A command line cannot name the argument {quote(odd[0])}; use Python")
    return [
        f"{key}:={escape_json(json.dumps(value, ensure_ascii=False))}"
        for key, value in arguments.items()
    ]


def _call(method: str, params: dict[str, Any]) -> str:
    """Return the call of a client that sends a request."""
    name, arguments = literal(params.get("name")), literal(params.get("arguments") or {})
    calls = {
        "tools/call": f"call_tool({name}, {arguments})",
        "resources/read": f"read_resource({literal(params.get('uri'))})",
        "prompts/get": f"get_prompt({name}, {arguments})",
        "ping": "ping()",
        **LIST_CALLS,
    }
    own = {key: value for key, value in params.items() if key != "_meta"}
    return calls.get(method, f"request({literal(method)}, {literal(own)})")


def literal(value: Any) -> str:
    """Return a JSON value as Python, in ASCII.

    Args:
        value: The value.
    """
    try:
        return ascii(json.loads(json.dumps(value, allow_nan=False)))
    except ValueError:  # a number that is too large for a float
        return f"json.loads({json.dumps(value)!a})"


def client_code(request: ExportedRequest) -> str:
    """Return Python that creates a client.

    Args:
        request: A request, with its target.
    """
    given = {"server": request.server, "revision": request.revision, "cwd": request.cwd}
    options = [f"{name}={literal(value)}" for name, value in given.items() if value]
    for option, pairs in (("env", request.shown_env()), ("headers", request.shown_headers())):
        if pairs:
            items = (f"{literal(name)}: {_value_code(value)}" for name, value in pairs.items())
            options.append(f"{option}={{{', '.join(items)}}}")
    if request.needs_login:
        options.append("auth=dovetail.auth.OAuth()")
    return f"Client({', '.join([literal(request.shown_target()), *options])})"


def _value_code(value: str | HiddenValue) -> str:
    return literal(value) if isinstance(value, str) else f"os.environ[{value.variable!r}]"


def _python(request: ExportedRequest, method: str, params: dict[str, Any]) -> str:
    call, client = _call(method, params), client_code(request)
    return f"""\
import asyncio
{imports(call + client)}
from dovetail import Client


async def main() -> None:
    async with {client} as client:
        print(await client.{call})


asyncio.run(main())
"""


def imports(code: str) -> str:
    """Return the imports that Python code with values of a request needs.

    Args:
        code: The code.
    """
    needed = {"json": "json.loads(", "os": "os.environ[", "dovetail.auth": "dovetail.auth.OAuth("}
    return "".join(f"import {name}\n" for name, use in needed.items() if use in code)


def _pytest(request: ExportedRequest, method: str, params: dict[str, Any]) -> str:
    call, client = _call(method, params), client_code(request)
    checks = "".join(_checks(request, method))
    about = str(params.get("name") or params.get("uri") or method)
    name = re.sub(r"\W+", "_", about, flags=re.ASCII).strip("_").lower()[:60]
    return f"""\
import asyncio
{imports(call + client + checks)}
from dovetail import Client


def test_{name or "request"}() -> None:
    async def send() -> object:
        async with {client} as client:
            return await client.{call}

    result = asyncio.run(send())
{checks or "    assert result is not None" + chr(10)}"""


def _checks(request: ExportedRequest, method: str) -> list[str]:
    """Return what a test expects of the result: that it is the same as in the reply."""
    try:
        result = json.loads(request.shown(request.reply or b""))["result"]
        checks = {
            "tools/call": {
                "result.structured_content": result.get("structuredContent"),
                "result.text": _text(result.get("content") or []),
            },
            "resources/read": {
                "[part.text for part in result]": [
                    part.get("text") for part in result.get("contents") or []
                ]
            },
        }.get(method, {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    found = {path: value for path, value in checks.items() if value is not None}
    if "result.structured_content" in found:
        found.pop("result.text", None)  # the same again, as text
    return [f"    assert {path} == {literal(value)}\n" for path, value in found.items()]


def _text(content: list[Any]) -> str | None:
    texts = [block["text"] for block in content if block.get("type") == "text"]
    return texts[0] if len(texts) == len(content) == 1 else None


def _curl(request: ExportedRequest, method: str, params: dict[str, Any]) -> str:
    target = request.shown_target()
    if not isinstance(target, str) or not re.match(r"https?://", target):
        raise ConfigError("curl can only send a request to a URL; use the command or Python")
    headers: dict[str, str | HiddenValue] = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    if request.revision is not None:
        headers["MCP-Protocol-Version"] = request.revision
    if request.is_stateless:
        headers["Mcp-Method"] = method
        name = params.get("name", params.get("uri"))
        if isinstance(name, str) and re.fullmatch(r"[!-~](?:[ -~]*[!-~])?", name):
            headers["Mcp-Name"] = name
    headers |= request.shown_headers()
    words = ["curl", "--silent", "--show-error", "--globoff"]
    for name, value in headers.items():
        words += "--header", _word_with(f"{name}: ", value)
    if request.needs_login:
        words += "--header", _word_with("Authorization: Bearer ", HiddenValue("TOKEN"))
    body = escape_json(request.shown(request.message).decode(errors="replace"))
    return " ".join([*words, *map(shell_word, ["--data-binary", body, "--", target])])


_FORMS: Final[dict[str, Callable[[ExportedRequest, str, dict[str, Any]], str]]] = {
    "command": _command,
    "python": _python,
    "pytest": _pytest,
    "curl": _curl,
}
