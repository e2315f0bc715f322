"""The documents of OAuth as the RFCs have them, one Struct each.

Tolerant in: `read` drops a field that makes no sense instead of the document it stands in, and
takes numbers that came as strings; only what a document is useless without has to be right. Exact
out: a field that says nothing is left out, the rest is named as the RFC names it.

What a server says goes through `plain` before a person sees it: bounded, and without characters
that move a cursor. Structs that carry secrets show none of them.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import DecodeError, Struct, ValidationError, convert
from msgspec.json import decode
from msgspec.structs import FieldInfo, fields

from ..text import one_line

MAX_DOCUMENT_BYTES = 256 * 1024
"""Bytes of a document that are read at all."""

T = TypeVar("T", bound=Struct)


class SecretStruct(Struct):
    """Something whose fields are nobody's business."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class ResourceMetadata(Struct, kw_only=True, omit_defaults=True):
    """A protected resource: https://www.rfc-editor.org/rfc/rfc9728#section-2"""

    resource: str
    authorization_servers: list[str] = []
    jwks_uri: str | None = None
    scopes_supported: list[str] | None = None
    bearer_methods_supported: list[str] | None = None
    resource_name: str | None = None
    resource_documentation: str | None = None
    resource_policy_uri: str | None = None
    resource_tos_uri: str | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool = False


class ServerMetadata(Struct, kw_only=True, omit_defaults=True):
    """An authorization server: https://www.rfc-editor.org/rfc/rfc8414#section-2 and OpenID Connect
    Discovery 1.0"""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    introspection_endpoint: str | None = None
    userinfo_endpoint: str | None = None
    jwks_uri: str | None = None
    scopes_supported: list[str] | None = None
    response_types_supported: list[str] | None = None
    response_modes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    revocation_endpoint_auth_methods_supported: list[str] | None = None
    introspection_endpoint_auth_methods_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    service_documentation: str | None = None
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False
    dpop_signing_alg_values_supported: list[str] | None = None


class ClientMetadata(Struct, kw_only=True, omit_defaults=True):
    """What a client says of itself: https://www.rfc-editor.org/rfc/rfc7591#section-2"""

    client_id: str | None = None
    redirect_uris: list[str] = []
    client_name: str | None = None
    client_uri: str | None = None
    logo_uri: str | None = None
    tos_uri: str | None = None
    policy_uri: str | None = None
    application_type: str | None = None
    grant_types: list[str] | None = None
    response_types: list[str] | None = None
    token_endpoint_auth_method: str | None = None
    scope: str | None = None
    jwks_uri: str | None = None
    jwks: dict[str, Any] | None = None
    software_id: str | None = None
    software_version: str | None = None


class ClientInformation(SecretStruct, kw_only=True, omit_defaults=True):
    """What a registration is answered with: https://www.rfc-editor.org/rfc/rfc7591#section-3.2.1"""

    client_id: str
    client_secret: str | None = None
    client_id_issued_at: float | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None
    redirect_uris: list[str] | None = None
    client_name: str | None = None
    application_type: str | None = None
    grant_types: list[str] | None = None
    response_types: list[str] | None = None
    scope: str | None = None


class TokenReply(SecretStruct, kw_only=True, omit_defaults=True):
    """What a token request is answered with: https://www.rfc-editor.org/rfc/rfc6749#section-5.1"""

    access_token: str
    token_type: str
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None
    id_token: str | None = None


class ErrorReply(Struct, kw_only=True, omit_defaults=True):
    """Why it was refused: https://www.rfc-editor.org/rfc/rfc6749#section-5.2"""

    error: str
    error_description: str | None = None
    error_uri: str | None = None

    @property
    def text(self) -> str:
        """Code and description, fit to be shown."""
        return one_line(
            f"{self.error}: {self.error_description}" if self.error_description else self.error
        )


def read_document(data: bytes, kind: type[T]) -> T | None:
    """The document in these bytes; None where they are none of this kind, or too many."""
    if len(data) > MAX_DOCUMENT_BYTES:
        return None
    try:
        raw = decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return convert_document(raw, kind) if isinstance(raw, dict) else None


def convert_document(raw: dict[str, Any], kind: type[T]) -> T | None:
    """What these fields say as a document of this kind, without those that make no sense."""
    try:
        return convert(raw, kind, strict=False)
    except ValidationError:
        pass
    try:
        return convert(
            {
                field.encode_name: raw[field.encode_name]
                for field in fields(kind)
                if _fits(raw, field)
            },
            kind,
            strict=False,
        )
    except ValidationError:
        return None


def _fits(raw: dict[str, Any], field: FieldInfo) -> bool:
    try:
        convert(raw[field.encode_name], field.type, strict=False)
    except (KeyError, ValidationError):
        return False
    return True


def parse_scopes(scopes: Iterable[str] | str | None) -> tuple[str, ...]:
    """Scopes as a user gives them: a list, or words in a string."""
    return words(scopes) if isinstance(scopes, str) else tuple(scopes or ())


def words(text: str | None) -> tuple[str, ...]:
    """A list of scopes as its parts, each once, in order."""
    return tuple(dict.fromkeys((text or "").split()))
