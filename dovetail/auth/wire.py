"""The wire formats of OAuth: JSON documents and the `WWW-Authenticate` header.

**Documents** are Structs with the fields that this package uses. Reading is tolerant:
`read_document` drops an invalid field rather than the whole document, and accepts numbers that were
sent as strings. Only required fields must be valid. Writing is strict: fields without a value are
omitted, and all other fields have the names that the RFC defines. Structs that hold secrets do not
show them in their `repr`.

**The header** states what a server requires of a request. The header may contain several
challenges, each with several parameters, all separated by commas. A word followed by `=` is a
parameter; any other word begins the next challenge:
https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1. The parser splits the header with one regular
expression and stops at the first part that does not match, but keeps the parts before it. Unquoted
values end at the next comma, because many servers do not quote URLs.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec import DecodeError, Struct, ValidationError, convert
from msgspec.json import decode
from msgspec.structs import FieldInfo, fields

from ..ports import HttpResponse
from ..text import one_line

MAX_DOCUMENT_BYTES = 256 * 1024
"""The maximum size of a document. Longer documents are not parsed."""

T = TypeVar("T", bound=Struct)


class SecretStruct(Struct):
    """A Struct whose `repr` shows none of its fields."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class ResourceMetadata(Struct, kw_only=True, omit_defaults=True):
    """Protected resource metadata: https://www.rfc-editor.org/rfc/rfc9728#section-2"""

    resource: str
    authorization_servers: list[str] = []
    scopes_supported: list[str] | None = None
    bearer_methods_supported: list[str] | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool = False


class ServerMetadata(Struct, kw_only=True, omit_defaults=True):
    """Authorization server metadata: https://www.rfc-editor.org/rfc/rfc8414#section-2 and OpenID
    Connect Discovery 1.0"""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    jwks_uri: str | None = None
    scopes_supported: list[str] | None = None
    response_types_supported: list[str] | None = None
    response_modes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    revocation_endpoint_auth_methods_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False
    dpop_signing_alg_values_supported: list[str] | None = None


class ClientMetadata(Struct, kw_only=True, omit_defaults=True):
    """Client metadata: https://www.rfc-editor.org/rfc/rfc7591#section-2"""

    redirect_uris: list[str] = []
    client_name: str | None = None
    client_uri: str | None = None
    application_type: str | None = None
    grant_types: list[str] | None = None
    response_types: list[str] | None = None
    token_endpoint_auth_method: str | None = None
    scope: str | None = None
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None


class ClientInformation(SecretStruct, kw_only=True, omit_defaults=True):
    """A registration response: https://www.rfc-editor.org/rfc/rfc7591#section-3.2.1"""

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


class TokenReply(SecretStruct, kw_only=True, omit_defaults=True):
    """A token response: https://www.rfc-editor.org/rfc/rfc6749#section-5.1"""

    access_token: str
    token_type: str
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None
    id_token: str | None = None
    username: str | None = None
    """The name to display for the user who logged in. Our own `Provider` sends this field, which is
    named as in https://www.rfc-editor.org/rfc/rfc7662#section-2.2."""


class ErrorReply(Struct, kw_only=True, omit_defaults=True):
    """An error response: https://www.rfc-editor.org/rfc/rfc6749#section-5.2"""

    error: str
    error_description: str | None = None

    @property
    def text(self) -> str:
        """The error code and description, safe to display."""
        return one_line(
            f"{self.error}: {self.error_description}" if self.error_description else self.error
        )


def decode_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in these bytes, or None if they contain anything else."""
    try:
        found = decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_document(data: bytes, kind: type[T]) -> T | None:
    """Parse a document. Returns None if the document is not of this type or is longer than
    MAX_DOCUMENT_BYTES."""
    found = decode_object(data) if len(data) <= MAX_DOCUMENT_BYTES else None
    return None if found is None else convert_document(found, kind)


def convert_document(raw: dict[str, Any], kind: type[T]) -> T | None:
    """Convert an object to a document of this type. Invalid fields are dropped."""
    try:
        return convert(raw, kind, strict=False)
    except ValidationError:
        pass
    valid = {
        field.encode_name: raw[field.encode_name] for field in fields(kind) if _is_valid(raw, field)
    }
    try:
        return convert(valid, kind, strict=False)
    except ValidationError:
        return None


def _is_valid(raw: dict[str, Any], field: FieldInfo) -> bool:
    try:
        convert(raw[field.encode_name], field.type, strict=False)
    except (KeyError, ValidationError):
        return False
    return True


def parse_scopes(scopes: Iterable[str] | str | None) -> tuple[str, ...]:
    """Return the scopes in a list or a space-separated string as a tuple."""
    return tuple(dict.fromkeys(scopes.split()) if isinstance(scopes, str) else scopes or ())


def basic_authorization(client_id: str, client_secret: str) -> str:
    """Return the Authorization header for a client with a secret. The id and the secret are
    form-encoded first (https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1), with %20 for a space,
    because not every server decodes a plus sign as a space.
    """
    pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


# the WWW-Authenticate header

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
    """One challenge, with its scheme and parameter names in lower case."""

    scheme: str
    parameters: Mapping[str, str] = {}
    token68: str | None = None


class AccessRequirements(Struct, frozen=True):
    """The requirements that a 401 or 403 response states for an OAuth client."""

    metadata_url: str | None = None
    """The URL of the server's metadata."""
    scopes: tuple[str, ...] = ()
    error: str = ""
    description: str = ""
    schemes: frozenset[str] = frozenset()
    """The OAuth schemes in the challenges: `bearer`, `dpop` or both."""
    api_key: str = ""
    """The header for an API key, if the server does not accept tokens."""

    @property
    def reason(self) -> str:
        """The server's error in parentheses, safe to display, or empty if there is no error."""
        reply = ErrorReply(error=self.error, error_description=self.description or None)
        return f" ({reply.text})" if self.error else ""


def parse_challenges(headers: Mapping[str, str]) -> list[Challenge]:
    """Return the challenges in these headers, in order. Header names must be in lower case."""
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
        elif found:  # parameters before the first scheme are ignored, as are duplicates
            value = part["bare"] if part["quoted"] is None else _ESCAPED.sub(r"\1", part["quoted"])
            parameters.setdefault(name.lower(), value)
    return found


def read_requirements(answer: HttpResponse) -> AccessRequirements:
    """Return the requirements in a response, combined from its Bearer and DPoP challenges."""
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
    """Return a header value with one challenge. Characters that headers cannot contain are
    dropped."""
    formatted = (f'{name}="{_quote(value)}"' for name, value in parameters.items())
    return " ".join(filter(None, (scheme, ", ".join(formatted))))


def _quote(value: str) -> str:
    printable = "".join(char for char in value if " " <= char <= "~")
    return printable.replace("\\", "\\\\").replace('"', '\\"')
