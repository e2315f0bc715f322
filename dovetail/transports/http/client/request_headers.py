"""The headers of a client's requests, which depend on the era of the session.

In the stateless era each request repeats its version, method, name and some arguments in headers.
In the handshake era it names the version and the session that `initialize` has agreed on.
"""

import logging
import re
from collections.abc import Callable

import msgspec

from ....aio import BoundedDict
from ....errors import InvalidParams, SchemaError
from ....protocol.base import PROTOCOL_VERSION
from ....protocol.header_params import HeaderParam, find_header_params
from ....protocol.methods import METHODS, Method
from ....protocol.tools import Tool
from ..headers import encode_params, encode_value
from .http_transport import HttpReply
from .peek import OutgoingMessage, get_param

log = logging.getLogger("dovetail.transports")

JSON, EVENT_STREAM = "application/json", "text/event-stream"
INITIALIZE = "initialize"
MAX_TOOLS = 10_000
"""Tools whose header parameters are remembered."""
HeaderParams = BoundedDict[str, tuple[HeaderParam, ...]]


class RequestHeaders:
    """What the headers of one session consist of."""

    def __init__(self, header_params: HeaderParams | None = None) -> None:
        self.version: str | None = None
        self.session: str | None = None
        self.is_stateless = False
        self.find_method: Callable[[str], Method | None] = METHODS.get
        """Finds the row of a method; a client with extensions has more of them."""
        self._params = HeaderParams(MAX_TOOLS) if header_params is None else header_params

    def for_session(self) -> dict[str, str]:
        """Return the headers that every request of the session has."""
        headers = {}
        if self.version:
            headers["MCP-Protocol-Version"] = self.version
        if self.session is not None:
            headers["Mcp-Session-Id"] = self.session
        return headers

    def for_message(self, message: OutgoingMessage, data: bytes) -> dict[str, str]:
        """Return the headers of the POST that sends a message."""
        headers = {"Accept": f"{JSON}, {EVENT_STREAM}", "Content-Type": JSON}
        version = (message.params.meta or {}).get(PROTOCOL_VERSION)
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
            name = get_param(message, data, row.named) if row is not None and row.named else None
            if isinstance(name, str):
                headers["Mcp-Name"] = encode_value(name)
            if method == "tools/call" and (params := self._params.get(message.params.name)):
                arguments = msgspec.json.decode(message.params.arguments or b"{}")
                headers |= encode_params(params, arguments)
        except ValueError as problem:
            raise InvalidParams(f"{method}: {problem}") from None
        return headers

    def learn_tools(self, tools: list[Tool]) -> list[Tool]:
        """Remember which parameters go into headers. Returns the tools that can be called: a tool
        whose header parameters are not valid is left out."""
        if not self.is_stateless:
            return tools
        callable_tools: list[Tool] = []
        for tool in tools:
            try:
                self._params[tool.name] = find_header_params(tool.input_schema)
            except SchemaError as problem:
                log.warning("The tool %r is left out: %s", tool.name, problem)
                continue
            callable_tools.append(tool)
        return callable_tools

    def begin_session(self, reply: HttpReply) -> None:
        """Use the session of the response to `initialize`. Its id is a secret, and never logged."""
        self.session = reply.headers.get("Mcp-Session-Id")
        if self.session is not None and not re.fullmatch(r"[\x21-\x7e]+", self.session):
            log.warning("%s: the session id has invalid characters and is not used", reply.url)
            self.session = None
