"""Whether the answer to a saved call is what was expected.

The answer of a tool is what `ToolResult.data` is: its structured content, or otherwise its text.
"""

import json
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ..errors import SchemaError
from ..schema.validation import compile
from ..text import one_line
from .calls import CallRecord
from .json_diff import JsonDifference, compare_json
from .saved import Expectations

MAX_REASONS: Final = 5
MAX_VALUE_CHARS: Final = 200


def read_answer(result: str) -> Any:
    """Return the answer in the result of a tool: structured content, or text, or None.

    Args:
        result: The result, as JSON text.
    """
    found = json.loads(result)
    structured = found.get("structuredContent")
    if structured is not None:
        is_wrapped = isinstance(structured, dict) and structured.keys() == {"result"}
        return structured["result"] if is_wrapped else structured
    content = found.get("content") or []
    if content and all(block.get("type") == "text" for block in content):
        return "\n".join(str(block.get("text", "")) for block in content)
    return None


def find_failures(record: CallRecord, expect: Expectations) -> list[str]:
    """Return why a call that has ended is not as expected, in words; nothing if it is.

    Args:
        record: The call.
        expect: What was expected.
    """
    if record.status != "done" or record.result is None:
        return [_describe_failure(record)]
    try:
        answer = read_answer(record.result)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return ["The result is not that of a tool."]
    reasons = [] if expect.equals is UNSET else _compare(expect.equals, answer)
    if expect.schema is not UNSET:
        reasons += _match(expect.schema, answer)
    if expect.under_ms is not UNSET and record.ms is not None and record.ms >= expect.under_ms:
        reasons.append(f"It took {record.ms:.0f} ms, not under {expect.under_ms:g} ms.")
    return reasons


def _describe_failure(record: CallRecord) -> str:
    if record.status == "cancelled":
        return "The call was cancelled."
    if record.error is not None:
        return one_line(f"{record.error['type']}: {record.error['message']}")
    try:
        return one_line(f"The tool failed: {read_answer(record.result or '')}")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return "The tool failed."


def _compare(expected: Any, answer: Any) -> list[str]:
    if _canonical(expected) == _canonical(answer):
        return []
    try:
        found = compare_json(json.dumps(expected), json.dumps(answer))
    except (OverflowError, msgspec.MsgspecError, RecursionError):
        found = []
    reasons = [_describe_difference(one) for one in found[:MAX_REASONS]]
    return reasons or ["The answer is different."]


def _canonical(value: Any) -> str:
    """Return a text that is equal for values that JSON Schema calls equal."""
    return json.dumps(_with_integers(value), sort_keys=True)


def _with_integers(value: Any) -> Any:
    """Replace numbers such as 1.0, which JSON does not tell from 1."""
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _describe_difference(one: JsonDifference) -> str:
    texts = {
        "changed": f"expected {_cut(one.before)}, got {_cut(one.after)}",
        "lost": f"expected {_cut(one.before)}, but it is missing",
        "added": f"did not expect {_cut(one.after)}",
    }
    return f"{one.path}: {texts[one.kind]}"


def _cut(text: str | None) -> str:
    return one_line(text or "", MAX_VALUE_CHARS)


def _match(schema: Any, answer: Any) -> list[str]:
    try:
        return [problem.replace("`", "") for problem in compile(schema).problems(answer)]
    except SchemaError as problem:
        return [f"The expected schema cannot be used: {problem}"]
