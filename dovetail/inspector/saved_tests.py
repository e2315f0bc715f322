"""Saved calls as a file of tests for pytest.

Each test opens the server itself, so that no test depends on another. The text of the file is
ASCII, and every value from elsewhere is a literal, so that a name or an answer cannot become code.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from .export import ExportedRequest, client_code, imports, literal
from .saved import SavedCall

MAX_NAME_CHARS: Final = 60
HEAD: Final = '''\
"""Calls that were saved with the inspector. Run them with pytest in the same folder."""

import asyncio
{imports}import time
from typing import Any

{schemas}from dovetail import Client, ToolResult


def call(tool: str, arguments: dict[str, Any]) -> tuple[ToolResult, float]:
    """Return the result of a tool, and how long it took in milliseconds."""

    async def send() -> tuple[ToolResult, float]:
        async with {client} as client:
            started = time.perf_counter()
            result = await client.call_tool(tool, arguments)
            return result, (time.perf_counter() - started) * 1000

    return asyncio.run(send())
'''


def export_tests(calls: Sequence[SavedCall], request: ExportedRequest) -> str:
    """Return a Python file with a test for each call.

    Args:
        calls: The calls.
        request: What is known about the server. The message in it is not used.
    """
    taken: set[str] = set()
    tests = "".join(_test(call, _name(call, taken)) for call in calls)
    client = client_code(request)
    needs_schema = "import jsonschema_rs\n\n" if "jsonschema_rs." in tests else ""
    head = HEAD.format(imports=imports(client + tests), schemas=needs_schema, client=client)
    return head + tests


def _name(call: SavedCall, taken: set[str]) -> str:
    """Return a name for a test that no other test has."""
    word = re.sub(r"\W+", "_", call.name, flags=re.ASCII).strip("_").lower()[:MAX_NAME_CHARS]
    name, number = word or "call", 1
    while name in taken:
        number += 1
        name = f"{word or 'call'}_{number}"
    taken.add(name)
    return name


def _test(call: SavedCall, name: str) -> str:
    expect, checks = call.expect, ["assert not result.is_error"]
    if expect.equals is not UNSET:
        is_word = expect.equals is None or isinstance(expect.equals, bool)
        same = "is" if is_word else "=="
        checks.append(f"assert result.data {same} {literal(expect.equals)}")
    if expect.schema is not UNSET:
        checks.append(f"jsonschema_rs.validate({literal(expect.schema)}, result.data)")
    if expect.under_ms is not UNSET:
        checks.append(f"assert ms < {expect.under_ms:g}")
    body = "".join(f"    {line}\n" for line in checks)
    ms = "ms" if expect.under_ms is not UNSET else "_"
    return f"""

def test_{name}() -> None:
    result, {ms} = call({literal(call.tool)}, {literal(call.arguments)})
{body}"""
