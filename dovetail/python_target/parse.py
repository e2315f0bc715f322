r"""Parse a string that names a server in Python code, and build the command that starts it.

    server.py               a file; the child runs it as a script
    server.py:orders        an object in a file: a Server, or a function that returns one
    shop.servers:orders     an object in a module that can be imported

`dovetail run` loads the server in its own process (`load.py`). `Client`, and the commands that
accept a TARGET, start a child process instead.
"""

import os
import sys
from typing import NamedTuple

from ..errors import ConfigError

SUFFIX = ".py"
CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")


class PythonTarget(NamedTuple):
    """A file or a module, and the name of an object in it."""

    source: str
    """The path of a file that ends in `.py`, or the dotted name of a module."""
    name: str | None = None
    """The name of the object, which may be an attribute of another object: `Shop.server`."""

    @property
    def is_file(self) -> bool:
        return self.source.endswith(SUFFIX)

    def __str__(self) -> str:
        return self.source if self.name is None else f"{self.source}:{self.name}"

    def check_exists(self) -> None:
        """Raise ConfigError if the file does not exist. Modules are not looked up, because the
        process that loads them may have a different search path."""
        if self.is_file and not os.path.isfile(self.source):
            raise ConfigError(f"The file {self.source} does not exist")

    def absolute(self) -> "PythonTarget":
        """Return the same target with an absolute path if it is a file."""
        return self._replace(source=os.path.abspath(self.source)) if self.is_file else self

    def command(self) -> list[str]:
        """Return the command that serves this target on stdio in a child process."""
        return [sys.executable, "-u", CHILD, str(self.absolute())]


def parse_python_target(text: str) -> PythonTarget | None:
    r"""Return the target that a string names; None if it does not name Python code.

    The colon in `C:\server.py` does not separate an object name.
    """
    source, colon, name = text.rpartition(":")
    if not colon or len(source) < 2 or not _is_dotted_name(name):
        return PythonTarget(text) if text.endswith(SUFFIX) else None
    target = PythonTarget(source, name)
    return target if target.is_file or _is_dotted_name(source) else None


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))
