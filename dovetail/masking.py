r"""Decide what is a secret, and mask it.

Everything that shows or stores what passes between a client and a server asks this module: taps,
recordings, the inspector, exports. There are two tests, and a value that passes either is masked:

    its name    `is_secret_name`: passwords, tokens, keys and cookies. URLs, headers, forms and
                arguments also mask the short names that OAuth and web APIs use there (`code`,
                `key`, `sig`). In messages, such names are ordinary fields.
    its shape   `mask_text`: JWTs, bearer tokens, and the keys of services whose keys have a
                recognisable prefix.

A secret without a telling name or shape cannot be recognised. Masked text keeps everything else
byte for byte, so that a masked message can still be compared with another one. All patterns take
linear time on hostile input.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_plus

import msgspec

MASK: Final = "***"
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SECRET_WORDS: Final = frozenset(
    [
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "secret",
        "secrets",
        "token",
        "credential",
        "credentials",
        "authorization",
        "cookie",
        "jwt",
        "otp",
        "pat",
        "dpop",
        "assertion",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "authtoken",
        "accesstoken",
        "refreshtoken",
        "idtoken",
        "sessiontoken",
        "clientsecret",
    ]
)
"""The last word of the name of a secret."""
PASSWORD_WORDS: Final = frozenset(["password", "passwd", "passphrase", "passcode", "pwd", "otp"])
"""The last word of the name of a secret that may be a number."""
KEY_WORDS: Final = frozenset(
    [
        "api",
        "access",
        "private",
        "secret",
        "auth",
        "subscription",
        "functions",
        "encryption",
        "signing",
        "master",
        "account",
        "service",
        "shared",
        "ssh",
        "session",
    ]
)
"""The words before `key` in the name of a secret."""
CURSOR_WORDS: Final = frozenset(
    ["progress", "page", "continuation", "cancellation", "cancel", "next", "sync"]
)
"""The words before `token` in the name of something that is not a credential."""
SHORT_NAMES: Final = frozenset(
    [
        "code",
        "auth",
        "sig",
        "signature",
        "sid",
        "session",
        "verifier",
        "mcp-session-id",
        "set-cookie",
    ]
)
"""Whole names of secrets in URLs, headers, forms and arguments."""
CODE_WORDS: Final = frozenset(["auth", "authorization", "device", "user", "verification"])
PUBLIC_KEYS: Final = frozenset(["idempotency", "socket", "public"])
"""The words before `key` in the name of something that is not a secret."""
URL_HEADERS: Final = frozenset(["location", "content-location", "referer", "origin", "link"])
_SHAPES: Final = (
    r"eyJ[\w-]{5,}\.eyJ[\w-]{5,}\.[\w-]*",  # a JWT
    r"(?:sk|pk|rk)[-_][\w-]{16,}",  # OpenAI, Anthropic, Stripe
    r"gh[pousr]_\w{16,}",
    r"github_pat_\w{16,}",
    r"glpat-[\w-]{16,}",
    r"xox[abeprs]-[\w-]{10,}",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"AIza[\w-]{35}\b",
    r"ya29\.[\w-]{16,}",
    r"(?:npm|hf|dop_v1|shpat)_\w{16,}",
    r"pypi-[\w-]{16,}",
)
_SHAPE: Final = re.compile(
    rf"(?<![\w-])(?:{'|'.join(_SHAPES)})"
    r"|(?:(?<=\bBearer )|(?<=\bBasic )|(?<=\bDPoP ))"
    r"(?![A-Za-z_]+=(?:\w|\\*\"[^\s\"\\,;:}\]]))"  # a parameter of a challenge, error="…"
    r"[\w.~+/-]{6,}=*"
)
_SHAPE_IN_BYTES: Final = re.compile(_SHAPE.pattern.encode(), re.ASCII)
_AUTHORITY: Final = re.compile(r"((?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{0,30}://)([^/?#\s]*@)")
_PARAMETER: Final = re.compile(r"(^|[?&#;])([^=&#;?]{1,200})=([^&#;]+)")
_OPAQUE: Final = re.compile(r"(?=(?:\D*\d){4})(?=(?:[^A-Za-z]*[A-Za-z]){4})[A-Za-z0-9_=+]{32,}")
"""A long argument of letters and digits, which is more likely a key than a name."""
_HEADER: Final = re.compile(r"([A-Za-z][\w-]{0,100}):\s*(.*)", re.DOTALL)
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_VALUE: Final = re.compile(rb"\s*+:\s*+(-?\d[\d.eE+-]*+)?")
_PAIR_IN_STRING: Final = re.compile(
    rb'(\\"([\w.-]{1,100})\\"(?:\s|\\[nrt])*+:(?:\s|\\[nrt])*+\\")'
    rb'((?:[^"\\]++|\\\\(?:\\["\\]|[^\\"]))++)(?=\\")'
)
"""A pair of a name and a text in JSON that is itself in a JSON string."""
_HINTS: Final = (
    *(
        "pass",
        "pwd",
        "secret",
        "credential",
        "authorization",
        "cookie",
        "jwt",
        "otp",
        "dpop",
        "key",
    ),
    *('pat"', "pat\\", "assertion", "\\u00", "bearer ", "basic ", "eyj", "github_", "glpat", "xox"),
    *(
        "sk-",
        "sk_",
        "pk-",
        "pk_",
        "rk-",
        "rk_",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "akia",
        "asia",
    ),
    *("key", "akia", "asia", "aiza", "ya29", "npm_", "hf_", "dop_v", "shpat", "pypi-"),
)
"""What a message with a secret contains, in lower case, besides `token`."""


@lru_cache(1024)
def is_secret_name(name: str) -> bool:
    """Return whether a field with this name holds a credential, wherever it occurs.

    Args:
        name: The name in any notation: `apiKey`, `API_KEY`, `x-api-key`.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token":
        return before not in CURSOR_WORDS
    return last in SECRET_WORDS or (last == "key" and before in KEY_WORDS)


@lru_cache(1024)
def is_secret_parameter(name: str) -> bool:
    """Return whether a header, a query parameter, a form field or an argument with this name holds
    a credential.

    Args:
        name: The name in any notation.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    last, before = words[-1] if words else "", words[-2] if len(words) > 1 else ""
    return (
        is_secret_name(name)
        or "-".join(words) in SHORT_NAMES
        or last in ("sig", "signature", "verifier")
        or (last == "key" and before not in PUBLIC_KEYS)
        or (last == "code" and before in CODE_WORDS)
    )


def mask_text(text: str) -> str:
    """Mask everything in a text that has the shape of a credential.

    Args:
        text: Any text.
    """
    return _SHAPE.sub(MASK, text)


def mask_line(line: str) -> str:
    """Mask the credentials in a line of a log, which may be JSON.

    Args:
        line: The line. It may contain unpaired surrogates.
    """
    data = line.encode(errors="surrogatepass")
    masked = mask_message(data)
    return mask_text(line if masked is data else masked.decode(errors="surrogatepass"))


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return HTTP headers with their credentials masked. The scheme of an Authorization header and
    the names of cookies are kept.

    Args:
        headers: The headers. Repeated headers are joined.
    """
    return {name: _mask_header(name.lower(), value) for name, value in headers.items()}


def _mask_header(name: str, value: str) -> str:
    if name in ("authorization", "proxy-authorization"):
        scheme, space, _ = value.strip().partition(" ")
        return f"{scheme} {MASK}" if space and scheme.isalnum() else MASK
    if name == "cookie":
        return "; ".join(f"{pair.partition('=')[0].strip()}={MASK}" for pair in value.split(";"))
    if name == "set-cookie":
        return f"{value.partition('=')[0].strip()}={MASK}"
    if name == "www-authenticate" or name.startswith("access-control-"):
        return mask_text(value)
    if is_secret_parameter(name):
        return MASK
    return mask_url(value) if name in URL_HEADERS else mask_text(value)


def mask_url(url: str) -> str:
    """Return a URL without its user and password, and with credentials in its query and fragment
    masked.

    Args:
        url: The URL. It need not be valid.
    """
    return mask_text(_mask_parameters(_AUTHORITY.sub(rf"\g<1>{MASK}@", url)))


def _mask_parameters(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        start, name, _ = found.groups()
        return f"{start}{name}={MASK}" if is_secret_parameter(unquote_plus(name)) else found[0]

    return _PARAMETER.sub(replace, text)


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with credentials masked: `--token=x`, `--api-key x`,
    `API_KEY=x`, `-H "Authorization: Bearer x"`, `-u name:password`, URLs, and long keys.

    Args:
        arguments: The command with its arguments.
    """
    masked: list[str] = []
    is_value = is_user = False
    for argument in arguments:
        is_flag = argument.startswith("-")
        if is_value and not is_flag:
            masked.append(MASK)
        elif is_user and ":" in argument:
            masked.append(f"{argument.partition(':')[0]}:{MASK}")
        else:
            masked.append(_mask_argument(argument))
        is_value = is_flag and "=" not in argument and is_secret_parameter(argument)
        is_user = argument in ("-u", "--user")
    return masked


def _mask_argument(argument: str) -> str:
    parts = argument.split("=")
    last = len(parts) - 1
    for index, name in enumerate(parts):
        if index == last or "://" in name or "?" in name:
            return "=".join([*parts[:index], _mask_value("=".join(parts[index:]))])
        if is_secret_parameter(name) and (index + 1 < last or parts[last]):
            return "=".join([*parts[: index + 1], MASK])
    return argument


def _mask_value(argument: str) -> str:
    header = _HEADER.fullmatch(argument)
    if header is not None and "://" not in argument and is_secret_parameter(header[1]):
        return f"{header[1]}: {_mask_header(header[1].lower(), header[2])}"
    return MASK if _OPAQUE.fullmatch(argument) else mask_url(argument)


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with all their values masked, because any of them may be a
    secret.

    Args:
        env: The variables.
    """
    return dict.fromkeys(env, MASK)


def mask_message(data: bytes) -> bytes:
    """Return a JSON message with its credentials masked. All other bytes are kept.

    Masked are texts in fields with the name of a secret, also in JSON that is itself in a text, and
    texts with the shape of a credential.

    Args:
        data: The message. It need not be valid JSON.
    """
    if not _may_have_secret(data):
        return data
    parts: list[bytes] = []
    end = 0
    is_secret = False
    for found in _STRING.finditer(data):
        if found.start() < end:
            continue
        text = found[0]
        value = _VALUE.match(data, found.end())
        if value is not None:  # the text is a name
            name = _decode(text)
            is_secret = is_secret_name(name) and data[value.end() : value.end() + 1] == b'"'
            if value[1] is not None and _is_password_name(name):
                parts += data[end : value.start(1)], b'"***"'
                end = value.end(1)
            continue
        masked = b'"***"' if is_secret and len(text) > 2 else _mask_string(text)
        is_secret = False
        if masked is not text:
            parts += data[end : found.start()], masked
            end = found.end()
    return b"".join((*parts, data[end:])) if parts else data


def _may_have_secret(data: bytes) -> bool:
    """Return whether a message has to be searched. Most do not; one regular expression for all
    hints would take forty times as long."""
    text = data.lower().decode("latin-1")
    if text.count("token") > text.count('"progresstoken"'):
        return True
    for hint in _HINTS:  # noqa: SIM110 (any() takes twice as long)
        if hint in text:
            return True
    return False


def _mask_string(text: bytes) -> bytes:
    """Mask the secrets in a JSON string. Return the same object if there are none."""
    if not _may_have_secret(text):
        return text

    def replace(found: re.Match[bytes]) -> bytes:
        is_secret = is_secret_name(found[2].decode(errors="replace"))
        return found[1] + MASK.encode() if is_secret else found[0]

    masked = _SHAPE_IN_BYTES.sub(MASK.encode(), _PAIR_IN_STRING.sub(replace, text))
    return text if masked == text else masked


def _is_password_name(name: str) -> bool:
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in PASSWORD_WORDS


def _decode(text: bytes) -> str:
    if b"\\" in text:
        try:
            return str(msgspec.json.decode(text))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
    return text.strip(b'"').decode(errors="replace")


def mask_body(body: bytes, content_type: str) -> bytes:
    """Return the body of an HTTP request or response with its credentials masked.

    Args:
        body: The body.
        content_type: Its Content-Type. Forms and JSON are searched by names and shapes, other
            bodies by shapes.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return mask_text(_mask_parameters(body.decode(errors="replace"))).encode()
    return mask_message(body) if kind.endswith("json") else _SHAPE_IN_BYTES.sub(b"***", body)
