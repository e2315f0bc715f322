"""The names of tools: stable, unique, and short enough for every model.

A name is the `operationId`, or the method and the path if there is none, with `_` for characters
that names should not have. It depends on nothing else, so a new operation does not rename the
others. A name that is too long, or that two operations have in common, ends in a digest of the
method and the path.
"""

from collections import Counter
from collections.abc import Sequence

from ..protocol.tools import MAX_NAME_CHARS
from ..text import add_digest, legal_name, shorten_name


def tool_names(operations: Sequence[tuple[str | None, str, str]]) -> list[str]:
    """Return the name of each operation.

    Args:
        operations: The id, the method and the path of each operation.
    """
    wanted = [_wanted_name(*operation) for operation in operations]
    clashes = Counter(name.lower() for name in wanted)
    return [
        name if clashes[name.lower()] == 1 else add_digest(name, f"{method} {path}", MAX_NAME_CHARS)
        for name, (_, method, path) in zip(wanted, operations, strict=True)
    ]


def _wanted_name(identifier: str | None, method: str, path: str) -> str:
    whole = f"{method} {path}"
    if identifier:
        return shorten_name(legal_name(identifier), whole, MAX_NAME_CHARS)
    words = [method.lower(), *legal_name(path).split("_")]
    return shorten_name("_".join(word for word in words if word), whole, MAX_NAME_CHARS)
