"""Who called what, when, and what came of it: one record for each call, on a server or on a client.

    server = Server("shop", middleware=[audit()])

It goes to a function of your choice, else as one line of JSON to the logger `dovetail.audit`. A
record holds no secret by itself: of arguments only the names, unless a function says what may be
seen of each value; of errors the kind and the code, never the text; of results nothing; and no
token ever, for no caller carries one. All that a stranger can make long is cut.

It only looks (`Observer`), so results go out as they were encoded. Whatever goes wrong here is
logged, and the call goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from ...connection.middleware import Observer
from ...errors import ConfigError, ProtocolError
from ...jsonrpc.messages import Id
from ...ports import Call, Caller, CallHandler
from ...protocol.lifecycle import InputRequired, InputRequiredResult
from ...protocol.methods import Method
from ...protocol.utilities import CompleteParams
from .redaction import HIDDEN, redact_secrets

lines = logging.getLogger("dovetail.audit")
log = logging.getLogger("dovetail.server")

_parts = msgspec.json.Decoder(dict[str, Raw]).decode

LONGEST = 256
"""Characters of a name, a URI or an id."""
MOST = 64
"""Arguments of one call."""
Outcome = Literal["ok", "tool-error", "asked", "error", "refused", "cancelled"]
Show = Callable[[str, Any], Any]
"""Takes the name of an argument and its value, and gives back what may be seen of it."""


class AuditRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call."""

    time: datetime
    """When it began, in UTC."""
    method: str
    target: str | None = None
    """The tool or prompt by its name, the resource by its URI."""
    outcome: Outcome
    """`tool-error`: the tool said that it failed. `asked`: with a question to the client.
    `refused`: it never began."""
    code: int | None = None
    """The code of the error that it was answered with."""
    error: str | None = None
    """… and its kind."""
    duration: float = 0.0
    """Seconds."""
    user: str | None = None
    """Who asked, as it was proved: the principal's id …"""
    client: str | None = None
    """… and the client's, where they have one."""
    agent: str | None = None
    """The name and version of the client, as it says itself."""
    address: str | None = None
    server: str | None = None
    """Who was asked, in the records of a client: the server's name, as it says itself."""
    id: Id | None = None
    """The id of the request, in the records of a server."""
    arguments: list[str] | dict[str, Any] | None = None
    """The names of its arguments; with what may be seen of their values, where `arguments=` says
    that."""


Sink = Callable[[AuditRecord], None]


def audit(
    sink: Sink | None = None, *, arguments: Show | None = None, longest: int = 1024
) -> "Audit":
    """Middleware that records every call, for `Server(middleware=…)` and `Client(middleware=…)`.
    `sink` takes the records, in the event loop; `arguments` says what may be seen of an argument; a
    value is cut after so many bytes of JSON."""
    if iscoroutinefunction(sink):
        raise ConfigError(
            "audit(sink=…) takes a plain function; let it put the record into a queue"
        )
    if arguments is not None and not callable(arguments):
        raise ConfigError("audit(arguments=…) takes a function of an argument's name and value")
    return Audit(sink, arguments, longest)


class Audit(Observer):
    """What `audit` makes."""

    def __init__(self, sink: Sink | None, show: Show | None, longest: int) -> None:
        self._sink, self._show, self._longest = sink, show, longest

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Record a call when it has ended."""
        began, start, rounds = datetime.now(UTC), perf_counter(), _rounds(call)
        try:
            result = await next(call)
        except BaseException as error:
            self._ended(call, began, perf_counter() - start, _failure(call, error, rounds))
            raise
        self._ended(call, began, perf_counter() - start, {"outcome": _outcome(result)})
        return result

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """Record a request that was not let in."""
        came = {"time": datetime.now(UTC), **_error("refused", error)}
        self._record(method, params, caller, caller, came)

    def _ended(self, call: Call, began: datetime, duration: float, came: dict[str, Any]) -> None:
        peer = call.connection
        if hasattr(
            peer, "server_info"
        ):  # the client itself, which knows the server; the request has no id yet
            about = {"server": None if peer.server_info is None else _cut(peer.server_info.name)}
        else:
            about = {"id": _cut(call.id)}
        came = {"time": began, "duration": round(duration, 6), **came, **about}
        self._record(call.method, call.params, call.caller, call, came)

    def _record(
        self,
        method: Method,
        params: Any,
        caller: Caller,
        asker: Caller | Call,
        came: dict[str, Any],
    ) -> None:
        try:
            if self._sink is None and not lines.isEnabledFor(logging.INFO):
                return
            target, arguments = _asked(params)
            shown = None if arguments is None else self._shown(arguments)
            record = AuditRecord(
                method=method.name, target=target, arguments=shown, **_who(caller, asker), **came
            )
            if self._sink is None:
                lines.info("%s", msgspec.json.encode(record).decode())
            else:
                self._sink(record)
        except Exception:
            log.exception("A call of %s could not be recorded", method.name)

    def _shown(self, arguments: dict[str, Any]) -> list[str] | dict[str, Any]:
        names = list(arguments)[:MOST]
        if self._show is None:
            return [_cut(name) for name in names]
        return {_cut(name): self._value(name, arguments[name]) for name in names}

    def _value(self, name: str, value: Any) -> Any:
        assert self._show is not None
        try:
            seen = self._show(name, msgspec.json.decode(value) if isinstance(value, Raw) else value)
            data = msgspec.json.encode(seen)
        except Exception as error:  # whose text may well name the value
            log.error(
                "What may be seen of the argument %r could not be said: %s",
                _cut(name),
                type(error).__name__,
            )
            return HIDDEN
        return (
            seen
            if len(data) <= self._longest
            else data[: self._longest].decode(errors="ignore") + "…"
        )


def _who(caller: Caller, asker: Caller | Call) -> dict[str, Any]:
    """Who asked. What was proved, and from where, is the call's: the caller of a session has many,
    each its own."""
    info, principal = caller.info, asker.principal
    return {
        "user": None if principal is None else principal.id,
        "client": None if principal is None else principal.client,
        "agent": None if info is None else _cut(f"{info.name} {info.version}"),
        "address": asker.address,
    }


def _asked(params: Any) -> tuple[str | None, dict[str, Any] | None]:
    """What a request is about, and its arguments; values of a tool call are still raw."""
    about, arguments = params, getattr(params, "arguments", None)
    if isinstance(params, CompleteParams):
        about, arguments = params.ref, {params.argument.name: params.argument.value}
    name, uri = getattr(about, "name", None), getattr(about, "uri", None)
    target = name if uri is None else redact_secrets(_cut(uri))
    if isinstance(arguments, Raw):
        try:
            arguments = _parts(arguments) if bytes(arguments) else None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            arguments = None  # no object, or broken: which the call itself will find out
    return None if target is None else _cut(target), arguments


def _outcome(result: Any) -> Outcome:
    if isinstance(result, InputRequired | InputRequiredResult):
        return "asked"
    return "tool-error" if getattr(result, "is_error", None) else "ok"


def _failure(call: Call, error: BaseException, rounds: int) -> dict[str, Any]:
    if call.abort_error is not None:
        return _error("error", call.abort_error)
    if call.cancelled or isinstance(error, asyncio.CancelledError):
        # A run that waited for answers is ended when nobody came back with them, or when they come
        # to another run.
        return {"outcome": "asked" if _rounds(call) > rounds else "cancelled"}
    return _error("error", error)


def _error(outcome: Outcome, error: BaseException) -> dict[str, Any]:
    return {"outcome": outcome, "error": type(error).__name__, "code": getattr(error, "code", None)}


def _rounds(call: Call) -> int:
    """How often the client was asked so far."""
    return 0 if call.run is None else call.run.rounds


def _cut(text: Any) -> Any:
    return text if not isinstance(text, str) or len(text) <= LONGEST else text[:LONGEST] + "…"
