"""Messages and lists that cannot be decoded, for example because they are nested too deeply."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from msgspec import Raw

from dovetail import Client
from dovetail.errors import InvalidRequest
from dovetail.inspector.events import EventBuffer
from dovetail.inspector.lists import decode_lists, read_list
from dovetail.inspector.tap import EventTap
from dovetail.inspector.task_board import TaskBoard

DEEP = b"[" * 3000 + b"]" * 3000


class ListingClient:
    """A client whose server answers every request with this result."""

    def __init__(self, result: bytes) -> None:
        self._result = result

    def __getattr__(self, name: str) -> Callable[..., Awaitable[bytes]]:
        async def relay(*_: Any, **__: Any) -> bytes:
            return self._result

        return relay


def test_a_message_that_is_nested_deeply_is_on_the_wire() -> None:
    events = EventBuffer()
    board = TaskBoard(events, lambda task: None)
    EventTap(events, 1, show_secrets=False, tasks=board).message(
        "to_client", b'{"id":1,"result":{"taskId":"1","x":' + DEEP + b"}}", 0
    )
    assert events.last == 1


@pytest.mark.parametrize(
    "result", [DEEP, b'{"tools":' + DEEP + b"}", b'{"tools":[],"nextCursor":"\xff"}', b"[]"]
)
async def test_a_list_that_cannot_be_read_is_an_error(result: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not valid"):
        await read_list(cast(Client, ListingClient(result)), "tools/list", "tools")


@pytest.mark.parametrize("item", [DEEP, b'{"name":"\xff"}', b'{"name":"\\ud800"}'])
def test_an_item_that_cannot_be_decoded_does_not_hide_the_others(item: bytes) -> None:
    lists = {"tools": [Raw(item), Raw(b'{"name":"add"}')], "prompts": None}
    assert decode_lists(lists) == {"tools": [None, {"name": "add"}], "prompts": None}
