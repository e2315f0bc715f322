"""For any bytes at all: a message, a batch or a refusal, and nothing else."""

from typing import Any

import msgspec
from hypothesis import given, strategies as st

from dovetail.jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    decode,
    encode,
)
from tests.strategies import JSON, TEXT

IDS = st.integers() | TEXT
ERRORS = st.fixed_dictionaries({"code": st.integers(), "message": TEXT}, optional={"data": JSON})
VERSION = {"jsonrpc": st.just("2.0")}
MESSAGES = st.one_of(
    st.fixed_dictionaries(
        VERSION | {"id": IDS, "method": TEXT}, optional={"params": JSON, "x": JSON}
    ),
    st.fixed_dictionaries(VERSION | {"method": TEXT}, optional={"params": JSON}),
    st.fixed_dictionaries(VERSION | {"id": IDS, "result": JSON}),
    st.fixed_dictionaries(VERSION | {"id": IDS | st.none(), "error": ERRORS}),
)
MEMBERS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])
NEARLY = st.dictionaries(MEMBERS, JSON | st.just("2.0") | ERRORS, max_size=6)


def outcome(data: bytes) -> Any:
    """What comes of these bytes, having checked that it is one of the three."""
    try:
        decoded = decode(data)
    except Malformed as malformed:
        assert type(malformed.failure) is ErrorResponse
        assert malformed.failure.error.code in (-32700, -32600)
        assert msgspec.json.decode(encode(malformed.failure))["error"]["message"]
        return malformed
    assert type(decoded) in (Request, Notification, Response, ErrorResponse, Batch)
    if isinstance(decoded, Batch):
        assert all(type(refused) is ErrorResponse for refused in decoded.refused)
        assert decoded.messages or decoded.refused
    return decoded


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    outcome(data)


@given(JSON | NEARLY | st.lists(NEARLY, max_size=3))
def test_any_json_is_a_message_or_refused(value: Any) -> None:
    outcome(encode(value))


@given(MESSAGES, st.data())
def test_a_message_with_bytes_changed_is_a_message_or_refused(
    message: Any, data: st.DataObject
) -> None:
    mutated = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated)))
        mutated[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    outcome(bytes(mutated))


@given(MESSAGES)
def test_any_message_is_decoded_and_sent_on_without_loss(message: dict[str, Any]) -> None:
    decoded = outcome(encode(message))
    assert not isinstance(decoded, Malformed)
    expected = {key: value for key, value in message.items() if key != "x"}
    if "error" in expected and expected["error"].get("data", 0) is None:
        del expected["error"]["data"]
    assert msgspec.json.decode(encode(decoded)) == expected


@given(st.lists(MESSAGES | JSON | NEARLY, min_size=1, max_size=5))
def test_a_batch_loses_no_item(items: list[Any]) -> None:
    batch = outcome(encode(items))
    assert isinstance(batch, Batch)
    assert len(batch.messages) + len(batch.refused) == len(items)
