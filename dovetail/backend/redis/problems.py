"""What an error of Redis means, and what to do about it, for logs and `dovetail backend check`."""

ADVICE = {
    "connect call failed": "Check that Redis is running, and the host and port in the URL",
    "connection refused": "Check that Redis is running, and the host and port in the URL",
    "not known": "Check the host in the URL",
    "without any password configured": "This Redis has no password. Remove it from the URL",
    "authentication required": "Add the password to the URL: redis://:PASSWORD@host",
    "invalid username-password pair": "Check the user and the password in the URL",
    "certificate_verify_failed": "Set SSL_CERT_FILE to the certificate of its authority",
    "connection closed by server": "If it expects TLS, write rediss:// in the URL",
    "no permissions": "Check its rights: dovetail backend check --name NAME",
    "used memory > 'maxmemory'": "Redis is full. Raise maxmemory",
    "misconf": "Redis cannot write to its disk",
}
"""What to do, by a part of the error in lower case."""


def describe_problem(error: Exception) -> str:
    """Return the text of an error and some advice, without a full stop."""
    text = str(error).partition(" script: ")[0]  # the digest of a script, and a line in it
    text = text.removesuffix(" Are you sure your configuration is correct?").strip().rstrip(".")
    advice = next((say for part, say in ADVICE.items() if part in text.lower()), "")
    return ". ".join(filter(None, (text or type(error).__name__, advice)))


def describe_silence(seconds: float, *, tls: bool) -> str:
    """Return the text for a Redis that has not answered for some seconds, without a full stop."""
    advice = ". If it does not use TLS, write redis:// in the URL" if tls else ""
    return f"no answer within {seconds:g} s{advice}"
