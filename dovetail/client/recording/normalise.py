"""Replace what differs between any two runs, so that only real differences are left.

    ids, cursors, tokens    are numbered by their first use: the same value keeps its number
    times                   become `<time>`
    tracing keys of `_meta` are removed

Each run has its own numbers. So two runs are equal if the same values are equal in both, whatever
the values are.
"""

import json
import re
from typing import Any, Final

from ...protocol.base import SUBSCRIPTION_ID, TRACE_CONTEXT

KINDS: Final = {
    "cursor": "cursor",
    "nextCursor": "cursor",
    "taskId": "task",
    "requestState": "state",
    "elicitationId": "elicitation",
    "progressToken": "progress",
    "requestId": "request",
    SUBSCRIPTION_ID: "subscription",
}
"""The fields whose values belong to one run, and what each identifies. A value that was issued in
one field may be used in another of the same kind."""
KEYED: Final = {"inputRequests", "inputResponses"}
"""The objects whose keys the server chooses."""
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class Normaliser:
    """The numbers of one run."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Any], int] = {}
        self._counts: dict[str, int] = {}

    def normalise(self, value: Any, name: str = "") -> Any:
        """Return a JSON value without what belongs to its run.

        Args:
            value: The value.
            name: The name of the field that holds it.
        """
        if isinstance(value, dict):
            return self._normalise_object(value, name)
        if isinstance(value, list):
            return [self.normalise(item) for item in value]
        if name in KINDS and isinstance(value, str | int):
            return self._number(KINDS[name], value)
        if isinstance(value, str):
            return self._normalise_text(value, name)
        return value

    def _normalise_object(self, value: dict[str, Any], name: str) -> dict[str, Any]:
        if name in KEYED:
            return {self._number("input", key): self.normalise(value[key]) for key in value}
        ignored = TRACE_CONTEXT if name == "_meta" else ()
        return {key: self.normalise(item, key) for key, item in value.items() if key not in ignored}

    def _normalise_text(self, text: str, name: str) -> Any:
        if _TIME.fullmatch(text):
            return "<time>"
        if _UUID.fullmatch(text):
            return self._number("id", text)
        if name == "text" and text[:1] in ("{", "["):  # structured content, repeated as text
            try:
                return self.normalise(json.loads(text))
            except (ValueError, RecursionError):
                pass
        return text

    def _number(self, kind: str, value: Any) -> str:
        number = self._numbers.get((kind, value))
        if number is None:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[kind, value] = number
        return f"<{kind} {number}>"


class Substitutes:
    """The values that the server has issued in the new run, by those of the recording."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Any], Any] = {}

    def learn(self, recorded: Any, replayed: Any, name: str = "") -> None:
        """Compare two messages of the server, and remember the values that it has issued.

        Args:
            recorded: The message in the recording, or a part of it.
            replayed: The same of the new run.
            name: The name of the field that holds it.
        """
        if isinstance(recorded, dict) and isinstance(replayed, dict):
            if name in KEYED:
                self._values |= {
                    ("input", old): new for old, new in zip(recorded, replayed, strict=False)
                }
            for key, value in recorded.items():
                if key in replayed:
                    self.learn(value, replayed[key], key)
        elif isinstance(recorded, list) and isinstance(replayed, list):
            for old, new in zip(recorded, replayed, strict=False):
                self.learn(old, new)
        elif name in KINDS and isinstance(recorded, str | int) and recorded != replayed:
            self._values[KINDS[name], recorded] = replayed

    def apply(self, value: Any, name: str = "") -> Any:
        """Return a message of the client with the values of the new run.

        Args:
            value: The message in the recording, or a part of it.
            name: The name of the field that holds it.
        """
        if not self._values:
            return value
        if isinstance(value, dict):
            keyed = name in KEYED
            return {
                self._values.get(("input", key), key) if keyed else key: self.apply(item, key)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.apply(item) for item in value]
        if name in KINDS and isinstance(value, str | int):
            return self._values.get((KINDS[name], value), value)
        return value
