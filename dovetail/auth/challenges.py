"""The `WWW-Authenticate` header: what a server requires before it answers.

One header may hold several challenges, and one challenge several parameters, all separated by
commas. A word is a parameter if `=` follows, else it begins the next challenge:
https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1

The parser takes the header apart with one pattern and stops at the first part that does not fit;
what came before still counts. Unquoted values are read up to the next comma, as many servers do not
quote URLs.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from ..ports import HttpResponse
from .documents import ErrorReply, parse_scopes

MAX_HEADER_LENGTH = 16 * 1024
MAX_PARTS = 64

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PART = re.compile(
    rf"""[\s,]*(?:
        (?P<name>{_TOKEN})[ \t]*=[ \t]*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"=][^\s,"]*))
      | (?P<scheme>{_TOKEN})(?:[ \t]+(?P<token68>[A-Za-z0-9._~+/-]+=*)(?=[ \t]*(?:,|$)))?(?=[\s,]|$)
    )""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")


class Challenge(Struct, frozen=True):
    """One challenge. Its scheme and the names of its parameters are in lower case."""

    scheme: str
    parameters: Mapping[str, str] = {}
    token68: str | None = None


class AccessRequirements(Struct, frozen=True):
    """What a 401 or 403 response asks of an OAuth client."""

    metadata_url: str | None = None
    """Where the server's metadata is."""
    scopes: tuple[str, ...] = ()
    error: str = ""
    description: str = ""
    schemes: frozenset[str] = frozenset()
    """The schemes of the challenges that OAuth can answer: `bearer`, `dpop`."""
    api_key: str = ""
    """The header for an API key, if the server accepts no tokens."""

    @property
    def reason(self) -> str:
        """The server's error in parentheses, safe to display; empty if it gave none."""
        reply = ErrorReply(error=self.error, error_description=self.description or None)
        return f" ({reply.text})" if self.error else ""


def parse_challenges(headers: Mapping[str, str]) -> list[Challenge]:
    """Return the challenges of these headers, in order. Header names must be in lower case."""
    text = headers.get("www-authenticate", "")[:MAX_HEADER_LENGTH]
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    position = 0
    for _ in range(MAX_PARTS):
        part = _PART.match(text, position)
        if part is None:
            break
        position = part.end()
        name, scheme = part["name"], part["scheme"]
        if scheme is not None:
            parameters = {}
            found.append(Challenge(scheme.lower(), parameters, part["token68"]))
        elif found:  # parameters before the first scheme are ignored; the first of a name counts
            value = part["bare"] if part["quoted"] is None else _ESCAPED.sub(r"\1", part["quoted"])
            parameters.setdefault(name.lower(), value)
    return found


def read_requirements(answer: HttpResponse) -> AccessRequirements:
    """Return what a response requires: its Bearer and DPoP challenges, taken together."""
    challenges = parse_challenges(answer.headers)
    usable = [challenge for challenge in challenges if challenge.scheme in ("bearer", "dpop")]
    key_headers = (
        challenge.parameters.get("header", "")
        for challenge in challenges
        if challenge.scheme == "apikey"
    )

    def first(name: str) -> str:
        values = (challenge.parameters.get(name) for challenge in usable)
        return next((value for value in values if value), "")

    return AccessRequirements(
        metadata_url=first("resource_metadata") or None,
        scopes=parse_scopes(first("scope")),
        error=first("error"),
        description=first("error_description"),
        schemes=frozenset(challenge.scheme for challenge in usable),
        api_key="" if usable else next(key_headers, ""),
    )


def format_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """Return the value of a header with one challenge, without characters headers cannot carry."""
    formatted = (f'{name}="{_quote(value)}"' for name, value in parameters.items())
    return " ".join(filter(None, (scheme, ", ".join(formatted))))


def _quote(value: str) -> str:
    printable = "".join(char for char in value if " " <= char <= "~")
    return printable.replace("\\", "\\\\").replace('"', '\\"')
