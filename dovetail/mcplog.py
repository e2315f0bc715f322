"""Recordings of MCP sessions: files in the format `.mcplog`.

A recording is text in UTF-8: a header line, then one line for each event, each of them a JSON
object. A line is written as soon as its event happens, so the recording of a process that was
killed can be read up to that moment.

    {"mcplog":1,"dovetail":"0.2.0","revision":"…","started":"…","target":["uvx","weather"]}
    {"kind":"wire","at":0.012,"direction":"to_server","message":"{\"jsonrpc\":…}"}
    {"kind":"http","at":0.034,"exchange":{"method":"POST","url":"https://…","status":200,…}}

`at` is in seconds since `started`. The kinds are `wire` (a message), `http` (an HTTP request and
the head of its reply), `auth` (a step of a login), `lost` (a message that was not delivered) and
`stderr` (a line that the server wrote there). A message that is not UTF-8 is in `base64` instead of
`message`.

A recording contains what people said to a server, so only its owner may read the file. Credentials
are masked before they are written.
"""

import json
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from . import __version__
from .errors import ConfigError
from .limits import MIB
from .logs import get_logger
from .masking import mask_arguments, mask_line, mask_message
from .net import shown_url
from .ports import AuthStep, Tap
from .text import one_line

log = get_logger("mcplog")

VERSION: Final = 1
SUFFIX: Final = ".mcplog"
MAX_LINE_BYTES: Final = 256 * MIB
"""The longest line that is read. Quotes in a message are escaped, so its line may be twice as
long."""
MAX_FILE_BYTES: Final = 1024 * MIB
"""The size of the largest recording that is read."""
FOLDER: Final = Path(".dovetail", "recordings")
"""The folder for recordings without a name, in the current folder."""

Direction: TypeAlias = Literal["to_server", "to_client"]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
Mask: TypeAlias = Callable[[bytes], bytes]
"""A function that returns a message without its credentials."""


class McplogHeader(Struct, frozen=True):
    """The first line of a recording."""

    mcplog: int
    """The version of the format."""
    dovetail: str = ""
    """The version of Dovetail that made the recording."""
    revision: str | None = None
    """The protocol revision, or None if it was not known when the recording began."""
    started: str = ""
    """When the recording began, as an ISO 8601 time in UTC."""
    target: str | list[str] = ""
    """The command or the URL of the server, without secrets."""


class WireEvent(Struct, frozen=True, tag_field="kind", tag="wire", omit_defaults=True):
    """A message."""

    at: Seconds
    direction: Direction
    message: str | None = None
    """The message as sent, with credentials masked."""
    base64: str | None = None
    """The same for a message that is not UTF-8."""

    @property
    def data(self) -> bytes:
        """The bytes of the message."""
        if self.base64 is not None:
            return b64decode(self.base64)
        return (self.message or "").encode()


class HttpEvent(Struct, frozen=True, tag_field="kind", tag="http"):
    """An HTTP request and the head of its reply."""

    at: Seconds
    exchange: dict[str, Any]
    """The fields of `ports.HttpExchange`."""


class AuthEvent(Struct, frozen=True, tag_field="kind", tag="auth"):
    """A step of a login."""

    at: Seconds
    step: dict[str, Any]
    """The fields of `ports.AuthStep`. A body that is UTF-8 is in `text` instead of `body`."""


class LostEvent(Struct, frozen=True, tag_field="kind", tag="lost"):
    """A message that was not delivered."""

    at: Seconds
    lost: dict[str, Any]
    """The fields of `ports.LostMessage`."""


class StderrEvent(Struct, frozen=True, tag_field="kind", tag="stderr"):
    """A line that the server wrote to stderr."""

    at: Seconds
    text: str


McplogEvent: TypeAlias = WireEvent | HttpEvent | AuthEvent | LostEvent | StderrEvent


class Recording(Struct, frozen=True):
    """A recording that was read from a file."""

    header: McplogHeader
    events: list[McplogEvent]
    note: str | None = None
    """What is missing, if the file was cut off."""

    def wire(self) -> list[WireEvent]:
        """Return the messages."""
        return [event for event in self.events if isinstance(event, WireEvent)]


class McplogWriter(Tap):
    """A tap that writes everything it sees to a new recording.

    An existing file is never overwritten: `night.mcplog` becomes `night-2.mcplog`. If writing fails
    later, for example because the disk is full, the recording ends there and the session goes on.

    Args:
        path: The file to create. Its folder must exist. Only its owner may read the file.
        target: The command or the URL of the server. Secrets in it are not written.
        revision: The protocol revision, or None if it is not known yet.
        mask: Removes credentials from a message (default: `mask_message`).
        mask_stderr: Removes credentials from a line of stderr (default: `mask_line`).
        on_problem: Called once with a sentence if the recording ends because writing failed
            (default: a warning is logged).
        started: When the recording began, as `time.time()` (default: now).

    Attributes:
        path: The file that was created.
        problem: Why the recording ended early, or None.

    Raises:
        ConfigError: The file cannot be created.
    """

    def __init__(
        self,
        path: str | Path,
        target: str | Sequence[str],
        revision: str | None = None,
        *,
        mask: Mask = mask_message,
        mask_stderr: Callable[[str], str] = mask_line,
        on_problem: Callable[[str], None] = log.warning,
        started: float | None = None,
    ) -> None:
        self.problem: str | None = None
        self._mask, self._mask_stderr, self._on_problem = mask, mask_stderr, on_problem
        self._started = time.time() if started is None else started
        self.path, self._file = _create(Path(path))
        self._write(
            McplogHeader(
                VERSION, __version__, revision, _iso_time(self._started), hide_secrets(target)
            )
        )

    def __enter__(self) -> "McplogWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def message(self, direction: Direction, data: bytes, at: float) -> None:
        """Write a message.

        Args:
            direction: Where the message goes.
            data: The message.
            at: When it was sent, as `time.time()`.
        """
        data = self._mask(data)
        try:
            self._write(WireEvent(self._since(at), direction, data.decode()))
        except UnicodeDecodeError:
            text = b64encode(data).decode()
            self._write(WireEvent(self._since(at), direction, base64=text))

    def exchange(self, exchange: Any) -> None:
        """Write an HTTP request and the head of its reply.

        Args:
            exchange: The exchange, with credentials masked.
        """
        self._write(
            HttpEvent(self._since(getattr(exchange, "ended", time.time())), _fields(exchange))
        )

    def auth_step(self, step: Any) -> None:
        """Write a step of a login.

        Args:
            step: The step, with credentials masked.
        """
        fields = _fields(step)
        for part in (fields.get("request"), fields.get("reply")):
            if part and part.get("body"):
                _show_text(part)
        self._write(AuthEvent(self._since(getattr(step, "ended", time.time())), fields))

    def lost(self, lost: Any) -> None:
        """Write that a message was not delivered.

        Args:
            lost: The message, and why.
        """
        fields = _fields(lost)
        if isinstance(data := fields.get("data"), str):
            fields["data"] = b64encode(self._mask(b64decode(data))).decode()
        self._write(LostEvent(self._since(getattr(lost, "at", time.time())), fields))

    def stderr(self, text: str, at: float) -> None:
        """Write a line that the server wrote to stderr.

        Args:
            text: The line.
            at: When it was received, as `time.time()`.
        """
        self._write(StderrEvent(self._since(at), self._mask_stderr(text)))

    def close(self) -> None:
        """Close the file. Later events are ignored."""
        self._file.close()

    def _since(self, at: float) -> float:
        return round(max(0.0, at - self._started), 6)

    def _write(self, line: McplogHeader | McplogEvent) -> None:
        if self._file.closed:
            return
        view = memoryview(_encode(line) + b"\n")
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self._file.close()
            self.problem = f"{self.path}: the recording ends here: {error.strerror or error}"
            self._on_problem(self.problem)


def hide_secrets(target: str | Sequence[str]) -> str | list[str]:
    """Return a target without its secrets: a URL without user, query and fragment, and a
    command with masked arguments.

    Args:
        target: A URL, a file, or a command with its arguments.
    """
    if not isinstance(target, str):
        return mask_arguments(target)
    return shown_url(target).partition("#")[0] if "://" in target else target


def new_recording_path() -> Path:
    """Return a path for a new recording in `.dovetail/recordings`, and create that folder.

    Only its owner may open the folder, and git ignores what is in it.

    Raises:
        ConfigError: The folder cannot be created.
    """
    try:
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        FOLDER.chmod(0o700)
        if not (ignore := FOLDER / ".gitignore").exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise ConfigError(
            f"The folder {FOLDER} cannot be created: {error.strerror}. Name a file for the "
            "recording."
        ) from None
    return FOLDER / f"{time.strftime('%Y-%m-%dT%H-%M-%SZ', time.gmtime())}{SUFFIX}"


def read_mcplog(path: str | Path) -> Recording:
    """Read a recording.

    A file that ends in the middle of a line is read up to there, and `note` says so.

    Args:
        path: The file.

    Raises:
        ConfigError: The file cannot be read, is not a recording, has another version, or contains
            a line that is not an event.
    """
    try:
        with open(path, "rb") as file:
            return _read(file, one_line(str(path)))
    except OSError as error:
        raise ConfigError(f"{one_line(str(path))} cannot be read: {error.strerror}") from None


def _read(file: IO[bytes], name: str) -> Recording:
    lines = _lines(file, name)
    header = _read_header(next(lines, b""), name)
    events: list[McplogEvent] = []
    note = None
    for number, line in enumerate(lines, 2):
        try:
            events.append(_read_event(line))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                raise ConfigError(
                    f"{name}, line {number} is not an event of a recording: {one_line(str(error))}"
                ) from None
            note = f"{name} ends in the middle of line {number}. It was read up to there."
    return Recording(header, events, note)


def _read_event(line: bytes) -> McplogEvent:
    event: McplogEvent = _decode_event(line)
    if isinstance(event, WireEvent):
        if (event.message is None) == (event.base64 is None):
            raise ValueError("a message needs either `message` or `base64`")
        if event.base64 is not None:
            b64decode(event.base64, validate=True)
    return event


_decode_event = msgspec.json.Decoder(McplogEvent).decode


def _read_header(line: bytes, name: str) -> McplogHeader:
    try:
        version = msgspec.json.decode(line, type=dict[str, Any]).get("mcplog")
        if isinstance(version, int) and version != VERSION:
            raise ConfigError(
                f"{name} is a recording of version {version}, and this Dovetail reads version "
                f"{VERSION}. Update Dovetail: pip install --upgrade dovetail-mcp"
            )
        return msgspec.json.decode(line, type=McplogHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ConfigError(
            f"{name} is not a recording: its first line is not the header of an {SUFFIX} file"
        ) from None


def _lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines with their newlines, without more than one line in memory at a time."""
    size = number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        size, number = size + len(line), number + 1
        if len(line) > MAX_LINE_BYTES:
            raise ConfigError(f"{name}, line {number} is longer than {MAX_LINE_BYTES // MIB} MiB")
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{name} is larger than {MAX_FILE_BYTES // MIB} MiB")
        yield line


def _create(path: Path) -> tuple[Path, IO[bytes]]:
    """Create a file that only its owner may read, under the first free name."""
    free, number = path, 1
    while True:
        try:
            descriptor = os.open(free, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            return free, os.fdopen(descriptor, "wb", buffering=0)
        except FileExistsError:
            number += 1
            free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"The recording {free} cannot be created: {why}") from None


def _fields(value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(value, builtin_types=(), str_keys=True)
    return fields


def _show_text(part: dict[str, Any]) -> None:
    """Replace the `body` of a request or a response with its `text`, if it is UTF-8."""
    try:
        part["text"] = b64decode(part["body"]).decode()
        del part["body"]
    except UnicodeDecodeError:
        pass


def to_auth_step(event: AuthEvent) -> AuthStep:
    """Return the step of a login that was recorded.

    Args:
        event: The event.

    Raises:
        msgspec.ValidationError: The event does not describe a step.
    """
    fields = dict(event.step)
    for name in ("request", "reply"):
        part = fields.get(name)
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            fields[name] = {**part, "body": text.encode()}
    return msgspec.convert(fields, AuthStep)


def _encode(line: McplogHeader | McplogEvent) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:  # half a surrogate pair in a header or in stderr
        text = json.dumps(msgspec.to_builtins(line), ensure_ascii=False)
        return text.encode(errors="replace")


def _iso_time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03}Z"
