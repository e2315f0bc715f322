"""The audit log: one record per call, with the caller, the target, the time and the outcome.

    server = Server("shop", middleware=[audit()])

The audit log works on servers and on clients. Records are passed to a function of your choice, or
written as lines of JSON to the logger `dovetail.audit`. By default, a record contains no secrets.
It contains the names of arguments but not their values, unless you pass a function that decides how
much of each value to record. It contains the type and code of an error but not its text, and it
never contains results or tokens. Long values from a caller are truncated.

Decisions that are not calls, such as a user's consent, can be recorded, too (`decision_made`).

The middleware only observes calls (`Observer`), so results are not encoded again. If recording
fails, the failure is logged and the call continues.
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

from ..connection.middleware import Observer
from ..errors import ConfigError, ProtocolError
from ..jsonrpc.messages import Id
from ..logs import get_logger
from ..ports import Call, Caller, CallHandler
from ..protocol.lifecycle import InputRequired
from ..protocol.methods import Method
from ..protocol.utilities import CompletionArgument
from .redaction import HIDDEN, redact_secrets

lines = logging.getLogger("dovetail.audit")
log = get_logger("server")

_parts = msgspec.json.Decoder(dict[str, Raw]).decode

MAX_NAME_CHARS = 256
"""The maximum length of a name, a URI or an id."""
MAX_ARGUMENTS = 64
"""The maximum number of arguments in one record."""
Outcome = Literal["ok", "tool-error", "asked", "error", "refused", "cancelled", "allowed", "denied"]
Show = Callable[[str, Any], Any]
"""A function that is called with the name and value of an argument and returns the value to
record."""


class AuditRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one call, or of one decision."""

    time: datetime
    """When the call began, or when the decision was made, in UTC."""
    method: str
    """The method of the request, or the kind of a decision."""
    target: str | None = None
    """The name of the tool or prompt, or the URI of the resource."""
    outcome: Outcome
    """The outcome of the call. `tool-error` means that the tool failed. `asked` means that the call
    ended with a question to the client. `refused` means that the call never started. A decision is
    `allowed` or `denied`."""
    code: int | None = None
    """The code of the error, if the call failed with an error."""
    error: str | None = None
    """The class of the error, if the call failed with an error."""
    duration: float = 0.0
    """How long the call took, in seconds."""
    user: str | None = None
    """The id of the authenticated caller."""
    client: str | None = None
    """The id of the authenticated caller's OAuth client, if there is one."""
    agent: str | None = None
    """The name and version of the client, as the client reports them."""
    address: str | None = None
    """The network address of the caller."""
    server: str | None = None
    """The name of the server: as the server reports it in a client's records, and as the
    configuration names it in a decision."""
    id: Id | None = None
    """The id of the request; set only in a server's records."""
    arguments: list[str] | dict[str, Any] | None = None
    """The names of the arguments; with `audit(arguments=…)`, also the values that the function
    returned."""
    rule: str | None = None
    """What made a decision, such as `rule 3 of policy.toml`; set only for decisions."""
    digest: str | None = None
    """The digest of what was decided about, such as a tool's definition or a server's
    configuration; set only for decisions."""


Sink = Callable[[AuditRecord], None]


def audit(
    sink: Sink | None = None, *, arguments: Show | None = None, longest: int = 1024
) -> "Audit":
    """Return middleware for `Server(middleware=…)` and `Client(middleware=…)` that records every
    call.

    Args:
        sink: A plain function that is called with each record, in the event loop (default: records
            are written as lines of JSON to the logger `dovetail.audit`).
        arguments: A function that is called with the name and value of an argument and returns the
            value to record (default: only names are recorded).
        longest: The maximum size of a recorded value, in bytes of JSON. Longer values are
            truncated.

    Raises:
        ConfigError: `sink` is an async function, or `arguments` is not a function.
    """
    if iscoroutinefunction(sink):
        raise ConfigError(
            "audit(sink=…) must be a plain function. For async work, put the records in a queue"
        )
    if arguments is not None and not callable(arguments):
        raise ConfigError(
            "audit(arguments=…) must be a function that accepts an argument's name and value"
        )
    return Audit(sink, arguments, longest)


class Audit(Observer):
    """The middleware that `audit` returns."""

    def __init__(self, sink: Sink | None, show: Show | None, max_value_bytes: int) -> None:
        self._sink, self._show, self._max_value_bytes = sink, show, max_value_bytes

    async def __call__(self, call: Call, next: CallHandler) -> Any:
        """Record a call when it ends."""
        began, start, rounds = datetime.now(UTC), perf_counter(), _rounds(call)
        try:
            result = await next(call)
        except BaseException as error:
            self._record_call(call, began, perf_counter() - start, _failure(call, error, rounds))
            raise
        self._record_call(call, began, perf_counter() - start, {"outcome": _outcome(result)})
        return result

    def request_refused(
        self, method: Method, params: Any, caller: Caller, error: ProtocolError
    ) -> None:
        """Record a request that was refused."""
        fields = {"time": datetime.now(UTC), **_error_fields("refused", error)}
        self._record(method, params, caller, caller, fields)

    def decision_made(self, record: AuditRecord) -> None:
        """Record a decision. Its strings are truncated and its arguments described, as those of a
        call are.

        Args:
            record: The record, with the values of its arguments.
        """
        self._emit("decision %r", record.method, lambda: self._sanitize(record))

    def _sanitize(self, record: AuditRecord) -> AuditRecord:
        values = {name: _cut(value) for name, value in msgspec.structs.asdict(record).items()}
        if record.target is not None:
            values["target"] = redact_secrets(values["target"])
        if isinstance(record.arguments, dict):
            values["arguments"] = self._describe_arguments(record.arguments)
        elif record.arguments is not None:
            values["arguments"] = [_cut(name) for name in record.arguments[:MAX_ARGUMENTS]]
        return AuditRecord(**values)

    def _record_call(
        self, call: Call, began: datetime, duration: float, outcome: dict[str, Any]
    ) -> None:
        peer = call.connection
        if hasattr(peer, "server_info"):  # a client, whose request has no id yet
            about = {"server": None if peer.server_info is None else _cut(peer.server_info.name)}
        else:
            about = {"id": _cut(call.id)}
        fields = {"time": began, "duration": round(duration, 6), **outcome, **about}
        self._record(call.method, call.params, call.caller, call, fields)

    def _record(
        self,
        method: Method,
        params: Any,
        caller: Caller,
        asker: Caller | Call,
        fields: dict[str, Any],
    ) -> None:
        def make_record() -> AuditRecord:
            target, arguments = _subject(params)
            return AuditRecord(
                method=method.name,
                target=target,
                arguments=None if arguments is None else self._describe_arguments(arguments),
                **_identity(caller, asker),
                **fields,
            )

        self._emit("call to %s", method.name, make_record)

    def _emit(self, what: str, method: str, make_record: Callable[[], AuditRecord]) -> None:
        """Pass on a record. A failure is only logged."""
        try:
            if self._sink is not None:
                self._sink(make_record())
            elif lines.isEnabledFor(logging.INFO):
                lines.info("%s", msgspec.json.encode(make_record()).decode())
        except Exception:
            log.exception("The %s could not be recorded", what % method)

    def _describe_arguments(self, arguments: dict[str, Any]) -> list[str] | dict[str, Any]:
        names = list(arguments)[:MAX_ARGUMENTS]
        if self._show is None:
            return [_cut(name) for name in names]
        return {_cut(name): self._describe_value(name, arguments[name]) for name in names}

    def _describe_value(self, name: str, value: Any) -> Any:
        assert self._show is not None
        try:
            value = msgspec.json.decode(value) if isinstance(value, Raw) else value
            description = self._show(name, value)
            data = msgspec.json.encode(description)
        except Exception as error:  # its text may contain the value, so it is not logged
            log.error(
                "audit(arguments=…) failed for the argument %r: %s",
                _cut(name),
                type(error).__name__,
            )
            return HIDDEN
        if len(data) <= self._max_value_bytes:
            return description
        return data[: self._max_value_bytes].decode(errors="ignore") + "…"


def _identity(caller: Caller, asker: Caller | Call) -> dict[str, Any]:
    """Return the record fields that describe the caller. The principal and the address are taken
    from the request, because they may differ between requests in one session."""
    info, principal = caller.info, asker.principal
    return {
        "user": None if principal is None else principal.id,
        "client": None if principal is None else principal.client,
        "agent": None if info is None else _cut(f"{info.name} {info.version}"),
        "address": asker.address,
    }


def _subject(params: Any) -> tuple[str | None, dict[str, Any] | None]:
    """Return the target and the arguments of a request. The argument values of a tool call are
    raw."""
    about, arguments = params, getattr(params, "arguments", None)
    if isinstance(getattr(params, "argument", None), CompletionArgument):
        about, arguments = params.ref, {params.argument.name: params.argument.value}
    name, uri = getattr(about, "name", None), getattr(about, "uri", None)
    target = name if uri is None else redact_secrets(_cut(uri))
    if isinstance(arguments, Raw):
        try:
            arguments = _parts(arguments) if bytes(arguments) else None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            arguments = None  # not an object, or malformed: the call itself will fail
    return None if target is None else _cut(target), arguments


def _outcome(result: Any) -> Outcome:
    if isinstance(result, InputRequired):
        return "asked"
    if getattr(result, "result_type", None) == "input_required":
        return "asked"
    return "tool-error" if getattr(result, "is_error", None) else "ok"


def _failure(call: Call, error: BaseException, rounds: int) -> dict[str, Any]:
    if call.abort_error is not None:
        return _error_fields("error", call.abort_error)
    if call.cancelled or isinstance(error, asyncio.CancelledError):
        # A run that waits for answers is cancelled if no answers arrive in time, or if another run
        # gets them.
        return {"outcome": "asked" if _rounds(call) > rounds else "cancelled"}
    return _error_fields("error", error)


def _error_fields(outcome: Outcome, error: BaseException) -> dict[str, Any]:
    return {"outcome": outcome, "error": type(error).__name__, "code": getattr(error, "code", None)}


def _rounds(call: Call) -> int:
    """Return how many rounds of questions the client has been asked so far."""
    return 0 if call.run is None else call.run.rounds


def _cut(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > MAX_NAME_CHARS
    return value[:MAX_NAME_CHARS] + "…" if is_long else value
