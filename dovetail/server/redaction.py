"""A ready-made function for `Server(redact=…)` that removes text that looks like a credential.

    server = Server("shop", redact=redact_secrets)

The function looks for patterns that only credentials have (bearer tokens, well-known key prefixes,
private keys, passwords in URLs, `password=…`), so that ordinary text and Base64 data stay
unchanged. The function does not find every secret, so a tool must not return secrets in the first
place.
"""

import re

HIDDEN = "[redacted]"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        HIDDEN,
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9\-._~+/]{8,}=*", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*"), HIDDEN),
    (re.compile(r"\b(?:sk|pk|rk)[-_](?:[A-Za-z]+[-_])*[A-Za-z0-9_\-]{16,}"), HIDDEN),
    (
        re.compile(
            r"\b(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs]|npm|pypi|hf)[-_][A-Za-z0-9_\-]{16,}"
        ),
        HIDDEN,
    ),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), HIDDEN),
    (re.compile(r"\bAIza[A-Za-z0-9_\-]{35}"), HIDDEN),
    (
        re.compile(r"\b([a-z][a-z0-9+.\-]{1,20}://[^\s/:@]{1,256}):[^\s/@]{1,256}@"),
        rf"\1:{HIDDEN}@",
    ),
    (
        re.compile(
            r"""\b((?:api|access|auth|secret|private)[-_ ]?(?:key|token)|password|passwd|pwd|client[-_]secret)"""  # noqa: E501
            r"""(["']?\s*[:=]\s*["']?)[^\s"',;&}]{3,}""",
            re.IGNORECASE,
        ),
        rf"\1\2{HIDDEN}",
    ),
)
_SIGNS = (
    *("-----begin", "bearer", "basic", "eyj", "://", "key", "token", "password", "passwd", "pwd"),
    *("secret", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp", "gho", "ghu", "ghs", "ghr"),
    *("github_pat", "glpat", "xox", "npm", "pypi", "hf-", "hf_", "akia", "aiza"),
)
"""Each credential contains one of these. Most text contains none, so that the rules, which take
longer, are not needed."""
SHORTEST = len("pwd=abc")
"""The length of the shortest credential."""


def redact_secrets(text: str) -> str:
    """Replace text that looks like a credential with "[redacted]".

    Args:
        text: The text.

    Returns:
        The text without credentials.
    """
    if text.isascii():  # other letters may be equal to a sign if case is ignored, such as "ſ"
        lowered = text.lower()
        if len(text) < SHORTEST or not any(sign in lowered for sign in _SIGNS):
            return text
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
