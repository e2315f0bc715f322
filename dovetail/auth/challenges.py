"""`WWW-Authenticate`: what a server wants to see before it answers.

One header may hold several challenges, and one challenge several parameters, all separated by
commas; a word is a parameter where `=` follows, else it begins the next challenge:
https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1

The parser takes that apart with one pattern, and stops at what fits it nowhere: what came before
still counts. Values that should have been quoted are taken up to the next comma, as URLs often come
bare.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from ..ports import HttpResponse
from .documents import ErrorReply, words

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
    """One challenge: scheme and parameter names in lower case."""

    scheme: str
    parameters: Mapping[str, str] = {}
    token68: str | None = None


class AccessRequirements(Struct, frozen=True):
    """What a refusal asks for, seen from a client with OAuth."""

    metadata_url: str | None = None
    """Where the server's metadata is."""
    scopes: tuple[str, ...] = ()
    error: str = ""
    description: str = ""
    schemes: frozenset[str] = frozenset()
    """Those of the challenges that OAuth can answer: `bearer`, `dpop`."""
    api_key: str = ""
    """The header that an API key is wanted in, where no token is."""

    @property
    def reason(self) -> str:
        """What the server says is wrong, in brackets, fit to be shown; empty where it says
        nothing."""
        said = ErrorReply(error=self.error, error_description=self.description or None)
        return f" ({said.text})" if self.error else ""


def parse_challenges(headers: Mapping[str, str]) -> list[Challenge]:
    """The challenges of these headers, in order; header names are lower case."""
    text = headers.get("www-authenticate", "")[:MAX_HEADER_LENGTH]
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    at = 0
    for _ in range(MAX_PARTS):
        part = _PART.match(text, at)
        if part is None:
            break
        at = part.end()
        name, scheme = part["name"], part["scheme"]
        if scheme is not None:
            parameters = {}
            found.append(Challenge(scheme.lower(), parameters, part["token68"]))
        elif (
            found
        ):  # a parameter before any scheme belongs to nobody; of two alike, the first counts
            value = part["bare"] if part["quoted"] is None else _ESCAPED.sub(r"\1", part["quoted"])
            parameters.setdefault(name.lower(), value)
    return found


def read_requirements(answer: HttpResponse) -> AccessRequirements:
    """What this refusal asks for: the Bearer and DPoP challenges taken together."""
    challenges = parse_challenges(answer.headers)
    asked = [challenge for challenge in challenges if challenge.scheme in ("bearer", "dpop")]
    keys = (
        challenge.parameters.get("header", "")
        for challenge in challenges
        if challenge.scheme == "apikey"
    )

    def first(name: str) -> str:
        return next(
            (challenge.parameters[name] for challenge in asked if challenge.parameters.get(name)),
            "",
        )

    return AccessRequirements(
        metadata_url=first("resource_metadata") or None,
        scopes=words(first("scope")),
        error=first("error"),
        description=first("error_description"),
        schemes=frozenset(challenge.scheme for challenge in asked),
        api_key="" if asked else next(keys, ""),
    )


def format_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """A challenge as a header has it. What a header cannot carry is left out of the values."""
    written = (f'{name}="{_quoted(value)}"' for name, value in parameters.items())
    return " ".join(filter(None, (scheme, ", ".join(written))))


def _quoted(value: str) -> str:
    plain = "".join(letter for letter in value if " " <= letter <= "~")
    return plain.replace("\\", "\\\\").replace('"', '\\"')
