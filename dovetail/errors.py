"""All errors that Dovetail raises, in one file and one flat tree.

    DovetailError
    ├── ProtocolError            a JSON-RPC error: code, message, data
    │   ├── ParseError           -32700  the bytes are not JSON
    │   ├── InvalidRequest       -32600  the JSON is not a valid message
    │   ├── MethodNotFound       -32601  this side has no such method
    │   ├── InvalidParams        -32602  the params of the method are not valid
    │   │   └── NotFound                 the object that the params name does not exist
    │   ├── InternalError        -32603  the other side failed
    │   ├── HeaderMismatch       -32020  HTTP headers and body disagree
    │   ├── MissingCapability    -32021  the client did not declare a required capability
    │   ├── UnsupportedVersion   -32022  this revision is not supported
    │   ├── UrlRequired          -32042  the user must visit a page first: `.elicitations`
    │   ├── Overloaded           -31001  a limit was reached; try again later
    │   │   └── BackendAway              the shared backend cannot be reached; try again later
    │   ├── TooLarge             -31002  a message exceeds the size limit
    │   ├── Forbidden            -31003  the caller lacks `.scopes`
    │   └── ConsentDenied            -1  the user, a hook or a policy refused; nothing was sent
    ├── ToolError                a tool failed; its text is meant for the model
    ├── RequestCancelled         this client cancelled the request (`Client.cancel_request`)
    ├── TaskCancelled            a task was cancelled before it was done
    ├── CannotAsk                the client does not support this question
    ├── UrlRefused               a page's ticket is forged, expired or for another user
    ├── SkillRefused             a skill differs from its entry; `.what` says how
    ├── InvalidOutput            a tool's result violates its own output schema; see `.result`
    ├── Unauthorized             the server rejected this client's credentials
    ├── ConnectFailed            no connection could be opened
    ├── ConnectionClosed         the connection ended before the answer arrived
    ├── TimedOut                 no answer arrived within the deadline
    ├── NoCommonRevision         the two sides have no revision in common
    ├── SchemaError              a JSON schema or a signature cannot be used
    └── ConfigError              a target, file or setting is not valid

`fault` says which side made the mistake, as seen by the program that catches the error: LOCAL (this
side: the call, the configuration) or REMOTE (the other side, or the network). The code on the wire
depends on the revision (`Revision.codes`). The newest revision uses the codes above. Dovetail's own
codes lie outside -32768…-32000, which JSON-RPC reserves.
"""

from collections.abc import Iterable
from math import ceil
from typing import Any, Literal, NamedTuple

LOCAL: Literal["local"] = "local"
REMOTE: Literal["remote"] = "remote"
DISTRIBUTION = "dovetail-mcp"
"""The name of the distribution. The import name is `dovetail`."""


class DovetailError(Exception):
    """The base class of all errors. `except DovetailError` catches every error that this library
    raises deliberately."""

    fault: Literal["local", "remote"] = REMOTE
    """Which side made the mistake, as seen by the program that catches the error."""


class ProtocolError(DovetailError):
    """A JSON-RPC error.

    Raise a ProtocolError in a handler to send it as the answer. A client raises one when the server
    answers with an error.

    Args:
        first: The code, or the message if it is a string. Every subclass has its own code, so the
            code can be omitted: `InvalidParams("no such prompt")`. An object with `code`, `message`
            and `data` stands for all three.
        message: What happened (default: the first line of the class's docstring).
        data: Details for the other side, as any JSON value.
        code: The code of the error (default: the code of the class). An error whose code is not an
            integer is logged and sent as -32603.
    """

    code = -32603
    """The code on the wire, in the newest revision."""

    def __init__(
        self,
        first: Any = None,
        /,
        message: str | None = None,
        data: Any = None,
        *,
        code: int | None = None,
    ) -> None:
        if isinstance(first, str):
            first, message, data = None, first, message if data is None else data
        elif hasattr(first, "message"):
            first, message, data = first.code, first.message, first.data
        if first is not None:
            code = first
        self.code = type(self).code if code is None else code
        self.message = message or (type(self).__doc__ or "").partition("\n")[0]
        self.data = data
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message, self.data)

    def _detail(self, key: str) -> Any:
        """Return a member of the data, which may come from a peer, or None if it is missing."""
        return self.data.get(key) if isinstance(self.data, dict) else None


class ParseError(ProtocolError):
    """The message is not valid JSON."""

    code = -32700
    fault = LOCAL


class InvalidRequest(ProtocolError):
    """The message is not a valid request."""

    code = -32600
    fault = LOCAL


class MethodNotFound(ProtocolError):
    """There is no such method."""

    code = -32601
    fault = LOCAL


class InvalidParams(ProtocolError):
    """The params are not valid.

    Args:
        first: The message, or the code.
        message: What is wrong.
        data: Details for the other side. If `parameter` is given, it determines the data.
        code: The code (default: -32602).
        parameter: The path of the wrong parameter, such as "arguments" or "ref.name". The data is
            then `{"parameter": …, "error": …}`, with the message as the error.
    """

    code = -32602
    fault = LOCAL

    def __init__(
        self,
        first: int | str | None = None,
        /,
        message: str | None = None,
        data: Any = None,
        *,
        code: int | None = None,
        parameter: str | None = None,
    ) -> None:
        super().__init__(first, message, data, code=code)
        if parameter is not None:
            self.data = {"parameter": parameter, "error": self.message}

    @classmethod
    def from_decoding(cls, method: str, error: Exception) -> "InvalidParams":
        """Return the error for params that do not match their method's type.

        Args:
            method: The method.
            error: The exception that msgspec raised, such as "…, got `int` - at `$.name`" or
                "Object missing required field `name`".
        """
        problem, _, place = str(error).partition(" - at ")
        path = [place.rpartition("$")[2].replace("[...]", "").strip(".`")]
        if problem.startswith("Object missing required field `"):
            path.append(problem.split("`")[1])
        parameter = ".".join(filter(None, path))
        data = {"parameter": parameter, "error": problem} if parameter else None
        return cls(f"{method}: {error}", data=data)


class NotFound(InvalidParams):
    """The tool, prompt, resource or task does not exist."""


class InternalError(ProtocolError):
    """An internal error occurred."""

    code = -32603


class HeaderMismatch(ProtocolError):
    """The HTTP headers and the body of the request do not match."""

    code = -32020
    fault = LOCAL


class MissingCapability(ProtocolError):
    """The client did not declare a capability that this request requires."""

    code = -32021
    fault = LOCAL


class UnsupportedVersion(ProtocolError):
    """The protocol version is not supported."""

    code = -32022
    fault = LOCAL


class Page(NamedTuple):
    """A page that a user has to visit."""

    message: str
    """The reason why the user should visit the page."""
    url: str
    """The URL of the page, which starts with `https://` or `http://`."""
    id: str
    """The id of the elicitation, by which the server recognises the visit."""


class UrlRequired(ProtocolError):
    """The user has to visit a page before this request can be answered.

    Args:
        first: The message, or the code.
        message: What the page is for.
        data: The data of the error. If `url` or `pages` is given, the pages determine it.
        code: The code (default: -32042).
        url: The page to visit.
        id: The id of the elicitation (default: a random id).
        pages: Further pages to visit.
    """

    code = -32042

    def __init__(
        self,
        first: int | str | None = None,
        /,
        message: str | None = None,
        data: Any = None,
        *,
        code: int | None = None,
        url: str | None = None,
        id: str | None = None,
        pages: Iterable[Page] = (),
    ) -> None:
        super().__init__(first, message, data, code=code)
        if url is not None:
            from secrets import token_urlsafe

            pages = (Page(self.message, url, id or token_urlsafe(16)), *pages)
        listed = [
            {"mode": "url", "elicitationId": page.id, "url": page.url, "message": page.message}
            for page in pages
        ]
        if listed:
            self.data = {"elicitations": listed}

    @property
    def elicitations(self) -> list[Page]:
        """The pages to visit, excluding invalid entries and URLs that a browser should not open."""
        listed = self._detail("elicitations")
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        pages = (
            Page(row.get("message", ""), row.get("url", ""), row.get("elicitationId", ""))
            for row in rows
        )
        valid = (page for page in pages if page.id and all(isinstance(part, str) for part in page))
        return [page for page in valid if page.url.lower().startswith(("https://", "http://"))]


class Overloaded(ProtocolError):
    """A limit was reached; try again later."""

    code = -31001

    @property
    def retry_after(self) -> float | None:
        """The number of seconds to wait, if the server specified a time."""
        value = self._detail("retryAfter")
        return float(value) if isinstance(value, int | float) and 0 <= value < 2**31 else None

    @property
    def retry_header(self) -> str:
        """The value of the HTTP header `Retry-After`: whole seconds, at least one."""
        return str(max(1, ceil(self.retry_after or 0.0)))


class BackendAway(Overloaded):
    """The server's shared backend cannot be reached; try again later.

    On the wire this is Overloaded, so a client receives that. Over HTTP, the status is 503.
    """

    sent = True
    """Whether something was sent to the backend, which may have executed it."""


class TooLarge(ProtocolError):
    """The message is too large."""

    code = -31002


class Forbidden(ProtocolError):
    """The caller may not do this."""

    code = -31003
    fault = LOCAL

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the caller lacks."""
        listed = self._detail("scopes")
        if not isinstance(listed, list):
            return ()
        return tuple(scope for scope in listed if isinstance(scope, str))


class ConsentDenied(ProtocolError):
    """The user, a hook or a policy refused this."""

    code = -1  # as in the specification's example of a refused sampling request
    fault = LOCAL


class ToolError(DovetailError):
    """A tool failed. Raise a ToolError in a tool to tell the model why the tool failed.

    Args:
        message: What went wrong. This text is sent to the model unchanged.
        result: The full result of the tool, which only a client sets.
    """

    def __init__(self, message: str = "", result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class RequestCancelled(DovetailError):
    """This client cancelled the request with `Client.cancel_request`."""

    fault = LOCAL


class TaskCancelled(DovetailError):
    """A task was cancelled by the server or by another of its owner's clients."""


class CannotAsk(DovetailError):
    """The client cannot be asked this question, because its revision does not support the question
    or the client did not declare the capability.

    Args:
        message: Which question cannot be asked, and why.
        required: The capabilities that the client would have to declare, as on the wire.
    """

    def __init__(self, message: str = "", required: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.required = required or {}


class UrlRefused(DovetailError):
    """A page was opened by the wrong user, too late, or with a forged ticket."""


class SkillRefused(DovetailError):
    """A skill or one of its files differs from its entry, so the skill must not be used.

    Args:
        message: What differs.
        what: "size", "digest", "frontmatter", "unlisted", "contents" or "entry".
        uri: The URI of the skill or file.
    """

    def __init__(self, message: str, what: str = "entry", uri: str = "") -> None:
        super().__init__(message)
        self.what, self.uri = what, uri


class InvalidOutput(DovetailError):
    """The result of a tool does not match its own output schema.

    Args:
        message: What does not match.
        result: The result as it was received.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class Unauthorized(DovetailError):
    """The server rejected the credentials of this client.

    Args:
        message: Why, and what to do.
        curable: Whether a login may help.
        scopes: The scopes that are missing, if that is the reason.
        key_header: The header for an API key, if the server requires one.
    """

    fault = LOCAL

    def __init__(
        self,
        message: str = "",
        *,
        curable: bool = False,
        scopes: Iterable[str] = (),
        key_header: str = "",
    ) -> None:
        super().__init__(message)
        self.curable, self.scopes, self.key_header = curable, tuple(scopes), key_header


class ConnectFailed(DovetailError):
    """No connection could be opened. The text names the command or URL.

    Args:
        message: What happened, and what to do.
        transient: Whether another attempt may succeed soon, because the server refused or ended the
            connection as it does during a restart.
    """

    def __init__(self, message: str = "", *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class ConnectionClosed(DovetailError):
    """The connection ended before the answer arrived.

    Args:
        message: How the connection ended and, for a process, the last lines of its stderr.
        sent: Whether the request was sent. If not, it is always safe to send the request again.
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(DovetailError, TimeoutError):
    """No answer arrived within the deadline."""


class NoCommonRevision(DovetailError):
    """The two sides have no revision of the protocol in common."""


class SchemaError(DovetailError, ValueError):
    """A JSON schema, type or signature cannot be used. The text says which part and why."""

    fault = LOCAL


class ConfigError(DovetailError, ValueError):
    """A target, file or setting is not valid. The text says what to change."""

    fault = LOCAL


# The class of each received error code. NotFound shares the code of InvalidParams in the newest
# revision; the client recognises it by method and revision (see `revisions.error_from_wire`).
BY_CODE: dict[int, type[ProtocolError]] = {
    cls.code: cls
    for cls in (
        ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError, HeaderMismatch,
        MissingCapability, UnsupportedVersion, UrlRequired, Overloaded, TooLarge, Forbidden,
        ConsentDenied,
    )
}  # fmt: skip


def install_command(extra: str) -> str:
    """Return the command that installs an extra's packages.

    Args:
        extra: The name of the extra, such as "http".
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_extra(feature: str, extra: str) -> ConfigError:
    """Return the error for a feature whose packages are not installed.

    Args:
        feature: The feature that needs the packages, as a singular phrase such as "Serving HTTP".
        extra: The extra that installs the packages, such as "http".
    """
    return ConfigError(
        f"{feature} requires the optional packages in the [{extra}] extra. Run: "
        f"{install_command(extra)}"
    )
