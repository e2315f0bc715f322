"""The parts of a message that a client's transport needs, and the headers that it derives from
them.

The transport decodes only these parts of params and results. The session decodes the rest. In the
stateless era, each request repeats its version, method, name and some arguments in headers. In the
handshake era, each request names the version and the session that `initialize` established.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ....aio import BoundedDict
from ....errors import InvalidParams, SchemaError
from ....jsonrpc.framing import TooLong
from ....jsonrpc.messages import Id
from ....logs import get_logger
from ....protocol.base import PROTOCOL_VERSION, camel
from ....protocol.header_params import HeaderParam, find_header_params
from ....protocol.methods import METHODS, Method
from ....protocol.tools import Tool
from ..headers import (
    encode_params,
    encode_value,
    known_params,
    passes_on_headers,
    with_passed_on,
)
from .http_transport import HttpReply

log = get_logger("transports")

JSON, EVENT_STREAM = "application/json", "text/event-stream"
INITIALIZE = "initialize"
MAX_TOOLS = 10_000
"""The number of tools whose header parameters are remembered."""
HeaderParams = BoundedDict[str, tuple[HeaderParam, ...]]


class OutgoingMessage(Struct):
    """The parts of a message that are needed to send it."""

    id: Id | None = None
    method: str | None = None
    params: dict[str, Raw] = {}

    @property
    def request_id(self) -> Id | None:
        """The id, if this is a request."""
        return self.id if self.method is not None else None

    def get_param(self, name: str) -> Any:
        """Decode one parameter, given its name on the wire."""
        return msgspec.json.decode(self.params.get(name, b"null"))


class PeekedError(Struct):
    """A JSON-RPC error."""

    code: int
    message: str = ""
    data: Any = None


class IncomingMessage(Struct):
    """The parts of a received message that the transport needs."""

    id: Id | None = None
    method: str | None = None
    result: Raw = Raw()
    error: PeekedError | None = None


class _InitializeResult(Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")


_outgoing = msgspec.json.Decoder(OutgoingMessage).decode
_NAMED = {name: camel(method.named) for name, method in METHODS.items() if method.named}
"""The parameter of each method that is repeated in the header `Mcp-Name`."""
_incoming = msgspec.json.Decoder(IncomingMessage).decode
_text = msgspec.json.Decoder(str).decode
_batch = msgspec.json.Decoder(list[IncomingMessage]).decode
_initialize_result = msgspec.json.Decoder(_InitializeResult).decode
split_batch = msgspec.json.Decoder(list[Raw]).decode
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def peek(data: bytes) -> OutgoingMessage:
    """Decode the parts of a message that are needed to send it."""
    try:
        return _outgoing(data)
    except DECODE_ERRORS:
        return OutgoingMessage()  # a batch of responses, or data that only the server can judge


def responses_in(data: bytes) -> list[IncomingMessage]:
    """Return the responses in received data: none, one or a batch."""
    try:
        messages = _batch(data) if data.lstrip()[:1] == b"[" else [_incoming(data)]
    except DECODE_ERRORS:
        return []
    return [message for message in messages if message.id is not None and message.method is None]


def agreed_version(response: IncomingMessage) -> str | None:
    """Return the version in the response to `initialize`."""
    try:
        return _initialize_result(response.result).protocol_version or None
    except DECODE_ERRORS:
        return None  # the session reports this error


def error_in(body: bytes | TooLong) -> PeekedError | None:
    """Return the JSON-RPC error in a body, if any."""
    try:
        return _incoming(body).error if isinstance(body, bytes) else None
    except DECODE_ERRORS:
        return None


class RequestHeaders:
    """The state from which the headers of one session are built."""

    def __init__(self, header_params: HeaderParams) -> None:
        self.version: str | None = None
        self.session: str | None = None
        self.is_stateless = False
        self.find_method: Callable[[str], Method | None] = METHODS.get
        """A function that looks up a method. A client with extensions supports more methods."""
        self._params = header_params

    def for_session(self) -> dict[str, str]:
        """Return the headers that all requests in the session have in common."""
        headers = {}
        if self.version:
            headers["MCP-Protocol-Version"] = self.version
        if self.session is not None:
            headers["Mcp-Session-Id"] = self.session
        return headers

    def for_message(self, message: OutgoingMessage) -> dict[str, str]:
        """Return the headers for the POST that sends a message."""
        headers = {"Accept": f"{JSON}, {EVENT_STREAM}", "Content-Type": JSON}
        meta = message.get_param("_meta")
        version = meta.get(PROTOCOL_VERSION) if isinstance(meta, dict) else None
        if isinstance(version, str) and (self.is_stateless or self.version is None):
            self.is_stateless, self.version = True, version
        elif message.method == INITIALIZE:
            self.is_stateless, self.version = False, None
        if not self.is_stateless:
            return headers | self.for_session()
        method = message.method or ""
        headers |= {**self.for_session(), "Mcp-Method": encode_value(method)}
        try:
            row = self.find_method(method)
            name = message.get_param(camel(row.named)) if row is not None and row.named else None
            if isinstance(name, str):
                headers["Mcp-Name"] = encode_value(name)
                if method == "tools/call":
                    params = self._params.get(name)
                    params = known_params() if params is None else params
                    if params:
                        headers |= encode_params(params, message.get_param("arguments") or {})
                    headers = with_passed_on(headers)
        except ValueError as problem:
            raise InvalidParams(f"{method}: {problem}") from None
        return headers

    def key_for(self, message: OutgoingMessage) -> tuple[Any, ...] | None:
        """Return what the headers of a request depend on. Return None if they depend on more than
        its method and name."""
        if not self.is_stateless:
            return self.version, self.session
        named = _NAMED.get(message.method or "")
        if named is None or passes_on_headers():
            return None
        try:
            name = _text(message.params[named])
        except (KeyError, *DECODE_ERRORS):
            return None
        if message.method == "tools/call" and self._params.get(name):
            return None  # some of its arguments are sent in headers
        return self.version, message.method, name

    def learn_tool(self, tool: Tool) -> bool:
        """Remember which parameters of a tool are sent in headers. Return whether the tool can be
        called: its header parameters must be valid."""
        if self.is_stateless:
            try:
                self._params[tool.name] = find_header_params(tool.input_schema)
            except SchemaError as problem:
                log.warning("Ignoring the tool %r: %s", tool.name, problem)
                return False
        return True

    def begin_session(self, reply: HttpReply) -> None:
        """Use the session id in the response to `initialize`. The id is secret and is never
        logged."""
        self.session = reply.headers.get("mcp-session-id")
        if self.session is not None and not re.fullmatch(r"[\x21-\x7e]+", self.session):
            log.warning(
                "%s: ignoring the session id because it contains invalid characters", reply.url
            )
            self.session = None
