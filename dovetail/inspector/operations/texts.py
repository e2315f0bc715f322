"""Operations on JSON that the user writes."""

import asyncio
from typing import Any

from ..json_text import find_problems
from ..state import InspectorState
from .registry import operation


@operation
async def check_json(
    state: InspectorState, *, text: str, schema: str | None = None
) -> dict[str, Any]:
    """Return what is wrong with a JSON text."""
    return {"errors": await asyncio.to_thread(find_problems, text, schema)}
