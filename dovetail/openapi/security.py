"""Credentials for an API, by the `securitySchemes` of its description.

The caller gives a value for each scheme to use. A value is added only to requests to the base URL,
and shows in no schema, error or list. Each operation names the schemes that it needs, as
alternatives: the first one for which there are values is used. If the description does not say what
its operations need, all values are used.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..errors import ConfigError
from ..text import closest_name, quote
from .documents import ApiDocuments
from .parser import ApiOperation
from .styles import Pairs, percent_encode

BEARER_TYPES: Final = ("oauth2", "openIdConnect")
"""The types of schemes whose value is an access token."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class AppliedCredentials(NamedTuple):
    """What to add to a request."""

    headers: Mapping[str, str] = {}
    query: Pairs = []
    cookies: Pairs = []


class ApiCredentials:
    """The values for the security schemes of an API.

    Args:
        documents: The description of the API.
        values: The value for each scheme, by its name.

    Raises:
        ConfigError: There is no such scheme, it is not supported, or a value cannot be sent.
    """

    def __init__(self, documents: ApiDocuments, values: Mapping[str, str]) -> None:
        schemes = documents.root.get("components").get("securitySchemes")
        self._added: dict[str, tuple[str, str, str]] = {}
        """The place, name and value of each credential, by scheme."""
        for name, value in values.items():
            if name not in schemes.fields:
                raise ConfigError(_unknown(name, schemes.fields))
            if not isinstance(value, str) or not value or _CONTROL.search(value):
                raise ConfigError(
                    f"The credential for {quote(name)} must be a text without line breaks"
                )
            self._added[name] = _locate(name, documents.follow(schemes.get(name)).fields, value)

    def apply(self, operation: ApiOperation) -> AppliedCredentials:
        """Return what to add to the requests of an operation."""
        headers: dict[str, str] = {}
        query: Pairs = []
        cookies: Pairs = []
        for place, name, value in self._used(operation):
            if place == "header":
                headers[name.lower()] = value
            else:
                pairs = query if place == "query" else cookies
                pairs.append((percent_encode(name), percent_encode(value)))
        return AppliedCredentials(headers, query, cookies)

    def replaced(self, operation: ApiOperation) -> frozenset[str]:
        """Return the arguments that credentials replace, so that they are not inputs."""
        used = {(place, name.lower()) for place, name, _ in self._used(operation)}
        return frozenset(
            one.argument for one in operation.parameters if (one.place, one.name.lower()) in used
        )

    def missing(self, operation: ApiOperation) -> tuple[str, ...]:
        """Return the schemes of which an operation needs one, if there is a value for none."""
        if not operation.security or self._chosen(operation) is not None:
            return ()
        return tuple(dict.fromkeys(name for one in operation.security for name in one))

    def _chosen(self, operation: ApiOperation) -> tuple[str, ...] | None:
        if operation.security is None:
            return tuple(self._added)
        usable = [one for one in operation.security if all(name in self._added for name in one)]
        return max(usable, key=bool, default=None)

    def _used(self, operation: ApiOperation) -> Iterator[tuple[str, str, str]]:
        return (self._added[name] for name in self._chosen(operation) or ())


def _unknown(name: str, schemes: Mapping[str, Any]) -> str:
    close = closest_name(name, map(str, schemes))
    known = ", ".join(map(str, schemes)) or "none"
    hint = f"did you mean {quote(close)}?" if close else f"it has: {known}"
    return f"The API has no security scheme {quote(name)}; {hint}"


def _locate(name: str, scheme: Mapping[str, Any], value: str) -> tuple[str, str, str]:
    """Return the place, the name and the text of a credential."""
    kind, http = scheme.get("type"), str(scheme.get("scheme", "")).lower()
    if kind == "apiKey" and scheme.get("in") in ("header", "query", "cookie"):
        return str(scheme["in"]), str(scheme.get("name", "")), value
    if kind in BEARER_TYPES or (kind == "http" and http == "bearer"):
        return "header", "authorization", f"Bearer {value}"
    if kind == "http" and http == "basic":
        if ":" not in value:
            raise ConfigError(
                f'The credential for {quote(name)} must have the form "user:password"'
            )
        return "header", "authorization", f"Basic {b64encode(value.encode()).decode()}"
    raise ConfigError(
        f"The security scheme {quote(name)} is not supported (type {quote(str(kind))}); supported "
        "are API keys, HTTP basic and bearer, and access tokens of OAuth 2 and OpenID Connect"
    )
