"""Words of a command line that a shell reads as they are meant, whatever characters they have."""

import shlex

from ..errors import ConfigError
from ..text import escape_unsafe


def shell_word(word: str) -> str:
    """Return a word in quotes for a POSIX shell. Characters that cannot be seen are written as
    escapes, which bash and zsh understand.

    Args:
        word: The word.

    Raises:
        ConfigError: The word contains a NUL, which no command line can.
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ConfigError("The text is not Unicode; use JSON") from None
    if "\0" in word:
        raise ConfigError("A command line cannot contain the character NUL; use JSON or Python")
    if escape_unsafe(word) == word:
        return shlex.quote(word)
    return f"$'{''.join(map(_escape, word))}'"


def _escape(char: str) -> str:
    """Return a character for `$'…'`."""
    if char in "\\'":
        return f"\\{char}"
    if escape_unsafe(char) == char:
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
