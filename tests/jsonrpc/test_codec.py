"""Whatever the bytes are: a message, a batch, or a refusal that can be sent back."""

from typing import Any

import msgspec
import pytest

from dovetail.jsonrpc.messages import (
    INVALID_REQUEST,
    NO_PARAMS,
    PARSE_ERROR,
    Batch,
    Error,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    decode,
    encode,
    peek_id,
)

DEEP = b"[" * 100_000 + b"]" * 100_000


def refused(data: bytes) -> Malformed:
    with pytest.raises(Malformed) as caught:
        decode(data)
    return caught.value


def plain(raw: Any) -> Any:
    return msgspec.json.decode(raw)


# Messages.


def test_a_request_keeps_its_params_raw() -> None:
    request = decode(
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name":  "add"}}'
    )
    assert isinstance(request, Request)
    assert (request.id, request.method, bytes(request.params)) == (
        7,
        "tools/call",
        b'{"name":  "add"}',
    )


def test_a_notification_has_no_id() -> None:
    notification = decode(b'{"jsonrpc":"2.0","method":"exit"}')
    assert isinstance(notification, Notification)
    assert (notification.method, bytes(notification.params)) == ("exit", b"")


def test_a_result_keeps_its_value_raw_even_when_it_is_null() -> None:
    result = decode(b'{"jsonrpc":"2.0","id":"a","result":null}')
    assert isinstance(result, Response)
    assert (result.id, bytes(result.result)) == ("a", b"null")


def test_a_failure_is_decoded_whole() -> None:
    data = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{"uri":"a:b"}}}'
    assert decode(data) == ErrorResponse(1, Error(-32602, "no", {"uri": "a:b"}))


@pytest.mark.parametrize("id", [b"null", None])
def test_a_failure_may_answer_nothing_readable(id: bytes | None) -> None:
    named = b"" if id is None else b'"id":' + id + b","
    assert decode(
        b'{"jsonrpc":"2.0",' + named + b'"error":{"code":-32700,"message":"?"}}'
    ) == ErrorResponse(None, Error(-32700, "?"))


def test_a_failure_needs_nothing_but_a_code() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"error":{"code":5}}') == ErrorResponse(1, Error(5, ""))


def test_a_reply_with_both_result_and_error_is_a_failure() -> None:
    both = b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}'
    assert decode(both) == ErrorResponse(1, Error(1, "x"))


def test_a_null_error_beside_a_result_counts_as_none() -> None:
    assert isinstance(decode(b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}'), Response)
    assert isinstance(
        decode(b'{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1}}'), ErrorResponse
    )


@pytest.mark.parametrize("id", [0, -1, 2**53 + 1, 2**64, 10**30, "", "0", "😀"])
def test_ids_come_back_as_they_were(id: int | str) -> None:
    request = decode(encode({"jsonrpc": "2.0", "id": id, "method": "ping"}))
    assert isinstance(request, Request)
    assert request.id == id
    assert type(request.id) is type(id)
    assert plain(encode(Response(request.id, {})))["id"] == id


def test_whitespace_around_a_message_does_not_matter() -> None:
    assert isinstance(decode(b' \t\r\n{"jsonrpc":"2.0","method":"x"}\r\n '), Notification)


def test_unknown_members_are_ignored_wherever_they_stand() -> None:
    data = b'{"auth":{"deep":[1]},"jsonrpc":"2.0","id":1,"x":null,"error":{"code":1,"message":"m","y":2}}'  # noqa: E501
    assert decode(data) == ErrorResponse(1, Error(1, "m"))


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":"x","method":"a","params":{"b":[1,2.5,null]}}',
        b'{"jsonrpc":"2.0","method":"exit"}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"m","data":{"a":1}}}',
    ],
)
def test_a_message_can_be_sent_on_as_it_came(data: bytes) -> None:
    assert encode(decode(data)) == data


def test_params_that_are_not_there_stay_away_but_null_ones_are_told() -> None:
    assert encode(Request(1, "ping")) == b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert encode(Notification("x", NO_PARAMS)) == b'{"jsonrpc":"2.0","method":"x"}'
    assert encode(Notification("x", None)) == b'{"jsonrpc":"2.0","method":"x","params":null}'


# What is no JSON.


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   ",
        b"{",
        b"nonsense",
        b'{"jsonrpc":"2.0","method":"x"} x',
        b'{"jsonrpc":"2.0","method":"x"}{"jsonrpc":"2.0","method":"x"}',
        b'{"jsonrpc":"2.0","method":"x","params":NaN}',
        b"{'jsonrpc':'2.0','method':'x'}",
        b'{"jsonrpc":"2.0","method":"x","params":"\x01"}',
        b'{"jsonrpc":"2.0","method":"x",}',
        b'[{"jsonrpc":"2.0","method":"x"}',
        # a byte order mark, which RFC 8259 forbids to send
        b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"x"}',
        '{"jsonrpc":"2.0","method":"x"}'.encode("utf-16"),
    ],
)
def test_what_is_no_json_is_a_parse_error(data: bytes) -> None:
    assert refused(data).failure.error.code == PARSE_ERROR
    assert refused(data).failure.id is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","method":"\xff"}',
        # in the part that stays raw
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"raw":"\xe2\x82"}}',
        # a surrogate, encoded as if it were a character
        b'{"jsonrpc":"2.0","id":1,"result":"\xed\xa0\x80"}',
        b'[{"jsonrpc":"2.0","id":1,"method":"x","params":"\xc0\x80"}]',
    ],
)
def test_bytes_that_are_not_utf8_are_a_parse_error_that_says_where(data: bytes) -> None:
    error = refused(data).failure.error
    assert error.code == PARSE_ERROR
    assert "UTF-8 (byte " in error.message


@pytest.mark.parametrize(
    "data",
    [
        rb'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\ud800"}}',
        rb'{"jsonrpc":"2.0","id":"\ud800","method":"x"}',
        rb'{"jsonrpc":"2.0","method":"\udc00\ud800"}',
        rb'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"\ud83d"}}',
        rb'[{"jsonrpc":"2.0","method":"\ud800x"}]',
    ],
)
def test_half_a_surrogate_pair_is_a_parse_error(data: bytes) -> None:
    assert refused(data).failure.error.code == PARSE_ERROR


@pytest.mark.parametrize(
    "data",
    [
        DEEP,
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + DEEP + b"}",
        b'{"jsonrpc":"2.0","id":{},"method":"x","params":' + DEEP + b"}",
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"data":' + DEEP + b"}}",
        b'[{"jsonrpc":"2.0","id":1,"method":"x","params":' + DEEP + b"}]",
        b"[" * 100_000,
    ],
    ids=["alone", "params", "bad id", "error data", "batch", "unclosed"],
)
def test_nesting_without_end_is_refused_and_not_fatal(data: bytes) -> None:
    error = refused(data).failure.error
    assert (error.code, error.message) == (PARSE_ERROR, "The message is nested too deeply")


def test_numbers_beyond_all_bounds_are_refused_where_they_are_looked_at() -> None:
    assert (
        refused(b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"x"}').failure.error.code
        == PARSE_ERROR
    )
    assert isinstance(decode(b'{"jsonrpc":"2.0","id":1,"method":"x","params":[1e999]}'), Request)


# What is JSON, but no message.


@pytest.mark.parametrize("data", [b"null", b"1", b'"hello"', b"true", b"{}"])
def test_json_that_is_no_object_with_a_version_is_an_invalid_request(data: bytes) -> None:
    assert refused(data).failure.error.code == INVALID_REQUEST
    assert refused(data).failure.id is None


@pytest.mark.parametrize(
    "version", [b"", b'"jsonrpc":"1.0",', b'"jsonrpc":2.0,', b'"jsonrpc":null,']
)
def test_another_version_of_json_rpc_is_refused_under_the_id_it_came_with(version: bytes) -> None:
    failure = refused(b"{" + version + b'"id":5,"method":"ping"}').failure
    assert (failure.id, failure.error.code) == (5, INVALID_REQUEST)
    assert "jsonrpc" in failure.error.message


@pytest.mark.parametrize("id", [b"null", b"1.5", b"1.0", b"true", b"[]", b"{}", b"[1]"])
def test_an_id_that_is_no_string_or_integer_is_refused_without_one(id: bytes) -> None:
    failure = refused(b'{"jsonrpc":"2.0","id":' + id + b',"method":"ping"}').failure
    assert (failure.id, failure.error.code) == (None, INVALID_REQUEST)
    assert "string or an integer" in failure.error.message


@pytest.mark.parametrize("method", [b"1", b"null", b"[]", b"{}"])
def test_a_method_that_is_no_string_is_refused_under_its_id(method: bytes) -> None:
    failure = refused(b'{"jsonrpc":"2.0","id":"q","method":' + method + b"}").failure
    assert (failure.id, failure.error.code) == ("q", INVALID_REQUEST)


@pytest.mark.parametrize(
    ("rest", "id"),
    [
        (b'"id":1,"error":"broken"', 1),
        (b'"id":1,"error":{"message":"no code"}', 1),
        (b'"id":1,"error":{"code":"-1","message":"m"}', 1),
        (b'"id":1,"error":{"code":1.5,"message":"m"}', 1),
        (b'"id":1,"error":{"code":1,"message":null}', 1),
        (b'"id":"a","error":[]', "a"),
        (b'"error":[]', None),
    ],
)
def test_a_broken_reply_is_told_apart_so_that_nobody_answers_it(
    rest: bytes, id: int | str | None
) -> None:
    malformed = refused(b'{"jsonrpc":"2.0",' + rest + b"}")
    assert malformed.reply
    assert (malformed.failure.id, malformed.failure.error.code) == (id, INVALID_REQUEST)


@pytest.mark.parametrize("rest", [b"", b',"result":1', b',"id":null,"result":1'])
def test_a_result_that_answers_nothing_is_no_message(rest: bytes) -> None:
    assert "Not a request" in refused(b'{"jsonrpc":"2.0"' + rest + b"}").failure.error.message


def test_a_reply_in_another_version_of_json_rpc_is_a_broken_reply() -> None:
    assert refused(b'{"id":1,"result":{},"error":null}').reply
    assert refused(b'{"jsonrpc":"1.0","id":1,"error":{"code":1,"message":"m"}}').reply


def test_a_broken_request_is_no_reply() -> None:
    assert not refused(b'{"jsonrpc":"2.0","id":1,"method":5}').reply
    assert not refused(b'{"jsonrpc":"1.0","id":1,"method":"x"}').reply
    assert not refused(b"[]").reply


def test_every_refusal_can_be_sent() -> None:
    for data in (b"", b"{}", b'{"jsonrpc":"1","id":%d}' % 10**30, DEEP, b"\xff"):
        reply = plain(encode(refused(data).failure))
        assert reply.keys() == {"jsonrpc", "id", "error"}


# Batches.


REQUEST = b'{"jsonrpc":"2.0","id":4,"method":"a"}'


def batch(*items: bytes) -> Batch:
    decoded = decode(b"[" + b",".join(items) + b"]")
    assert isinstance(decoded, Batch)
    return decoded


def test_a_batch_holds_its_messages_in_order() -> None:
    found = batch(
        REQUEST, b'{"jsonrpc":"2.0","method":"b"}', b'{"jsonrpc":"2.0","id":2,"result":{}}'
    )
    assert [type(message) for message in found.messages] == [Request, Notification, Response]
    assert found.refused == []


def test_an_empty_batch_is_one_invalid_request() -> None:
    assert refused(b"[ ]").failure.error == Error(INVALID_REQUEST, "A batch must not be empty")


def test_garbage_in_a_batch_is_refused_piece_by_piece_and_the_rest_is_kept() -> None:
    found = batch(
        b"1",
        REQUEST,
        b'{"id":7}',
        b"[" + REQUEST + b"]",
        b'{"jsonrpc":"2.0","id":[],"method":"x"}',
        b"null",
    )
    assert [message.id for message in found.messages if isinstance(message, Request)] == [4]
    assert [failure.id for failure in found.refused] == [None, 7, None, None, None]
    assert {failure.error.code for failure in found.refused} == {INVALID_REQUEST}


@pytest.mark.parametrize(
    "broken", [b'"jsonrpc":"2.0","id":9,"error":[]', b'"jsonrpc":2,"id":9', b'"id":9,"result":{}']
)
def test_a_broken_reply_in_a_batch_is_the_failure_of_what_it_answers_and_is_not_answered(
    broken: bytes,
) -> None:
    found = batch(REQUEST, b"{" + broken + b"}")
    assert found.refused == []
    assert isinstance(failure := found.messages[1], ErrorResponse)
    assert (failure.id, failure.error.code) == (9, INVALID_REQUEST)


def test_a_batch_cut_short_is_a_parse_error_as_a_whole() -> None:
    assert refused(b'[{"jsonrpc":"2.0","id":1,"method":"a"},').failure.error.code == PARSE_ERROR


def test_a_message_with_an_id_and_nothing_else_may_have_been_a_reply() -> None:
    with pytest.raises(Malformed) as caught:
        decode(b'{"jsonrpc":"2.0","id":1}')
    assert caught.value.reply is None
    assert caught.value.failure.id == 1


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"xxxx', (7, True)),
        (b'{"jsonrpc":"2.0","id":"a-1","method":"tools/call","params":{"x":"xxxx', ("a-1", False)),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{"x":"xxxx', (None, None)),
        (b'{"id": -3 ,"result', (-3, True)),
        (b'{"id":12', (None, None)),
        (b'{"id":"\x83","result', (None, None)),
        (b'{"id":"a\nb","result', (None, None)),
        (b'{"id":007,"result', (None, None)),
        (b"garbage", (None, None)),
    ],
)
def test_the_beginning_of_a_message_tells_whose_it_is(
    head: bytes, expected: tuple[object, object]
) -> None:
    assert peek_id(head) == expected
