"""Server-sent events: what is written can be read, however the stream is cut and whatever else is
in it."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from dovetail.jsonrpc.framing import HEAD_BYTES, TooLong
from dovetail.transports.http.event_stream import (
    COMMENT,
    MAX_ID_BYTES,
    Event,
    EventStreamParser,
    event,
)


def parse(*chunks: bytes, limit: int = 1000) -> list[Event]:
    events = EventStreamParser(limit)
    return [one for chunk in chunks for one in events.feed(chunk)]


def test_an_event_is_written_as_the_standard_has_it() -> None:
    assert event(b"{}") == b"data: {}\n\n"
    assert (
        event(b"/m", id="7", name="endpoint", retry=5)
        == b"event: endpoint\nid: 7\nretry: 5\ndata: /m\n\n"
    )


@pytest.mark.parametrize(
    "written",
    [
        Event(b"{}"),
        Event(b"{}", "endpoint"),
        Event(b"x", id="a/1"),
        Event(b" lead", "message", "é", 0),
        Event(b"", id="1", retry=9),
    ],
)
def test_what_is_written_can_be_read(written: Event) -> None:
    assert isinstance(written.data, bytes)
    name = None if written.name == "message" else written.name
    assert parse(event(written.data, id=written.id, name=name, retry=written.retry)) == [written]


def test_a_priming_event_has_an_id_and_no_data() -> None:
    assert parse(event(b"", id="p", retry=500)) == [Event(b"", id="p", retry=500)]


def test_a_comment_is_no_event() -> None:
    assert parse(COMMENT, b": words\n\n", b":\r\r", event(b"1")) == [Event(b"1")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_ending_will_do(end: bytes) -> None:
    stream = end.join([b"id: 1", b"data: a", b"data: b", b"", b"data: c", b"", b""])
    assert parse(stream) == [Event(b"a\nb", id="1"), Event(b"c")]
    assert parse(*(stream[at : at + 1] for at in range(len(stream)))) == parse(stream)


def test_a_return_and_a_newline_in_two_chunks_are_one_ending() -> None:
    assert parse(b"data: a\r", b"\ndata: b\r", b"", b"\n\r", b"\n") == [Event(b"a\nb")]


def test_an_event_is_given_out_with_the_return_that_ends_it() -> None:
    assert parse(b"data: a\r\n\r") == [Event(b"a")]


@pytest.mark.parametrize("cut", range(5))
def test_a_byte_order_mark_at_the_start_is_skipped(cut: int) -> None:
    stream = b"\xef\xbb\xbfdata: a\n\n"
    assert parse(stream[:cut], stream[cut:]) == [Event(b"a")]


def test_a_byte_order_mark_later_on_is_not() -> None:
    assert parse(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [Event(b"a")]


@pytest.mark.parametrize(
    ("lines", "data"),
    [
        (b"data:a", b"a"),
        (b"data: a", b"a"),
        (b"data:  a", b" a"),
        (b"data: a:b", b"a:b"),
        (b"data\ndata", b"\n"),
        (b"data:\ndata: a", b"\na"),
        (b"unknown: 1\ndata: a\nnoise", b"a"),
        (b"DATA: x\n data: x\ndata: a", b"a"),
    ],
)
def test_fields_are_read_as_the_standard_has_them(lines: bytes, data: bytes) -> None:
    assert parse(lines + b"\n\n") == [Event(data)]


def test_what_brings_nothing_is_no_event() -> None:
    assert parse(b"\n\n\nevent: x\n\ndata\n\ndata:\n\n") == []


def test_the_name_does_not_outlive_its_event() -> None:
    assert parse(b"event: x\n\ndata: a\n\nevent:\ndata: b\n\n") == [Event(b"a"), Event(b"b")]


@pytest.mark.parametrize("id", [b"a\0b", b"x" * (MAX_ID_BYTES + 1)])
def test_an_id_that_cannot_go_back_is_ignored(id: bytes) -> None:
    assert parse(b"id: " + id + b"\ndata: a\n\n", limit=10_000) == [Event(b"a")]


@pytest.mark.parametrize("retry", [b"1.5", b"-1", b"", b"soon", b"1 ", b"9" * 10, b"9" * 4000])
def test_a_retry_that_is_no_number_is_ignored(retry: bytes) -> None:
    assert parse(b"retry: " + retry + b"\ndata: a\n\n") == [Event(b"a")]


def test_an_event_that_the_stream_ends_in_is_lost() -> None:
    assert parse(b"data: a\n\ndata: b\n") == [Event(b"a")]


def test_data_over_the_limit_is_replaced_and_its_neighbours_live() -> None:
    over = b'{"id":7,' + b"x" * 200
    before, dropped, after = parse(event(b"a") + event(over, id="2") + event(b"b"), limit=100)
    assert (before, after) == (Event(b"a"), Event(b"b"))
    assert dropped.id == "2"
    assert isinstance(dropped.data, TooLong)
    assert dropped.data.head.startswith(b'{"id":7,')


def test_data_of_exactly_the_limit_is_taken() -> None:
    assert parse(event(b"x" * 100), limit=100) == [Event(b"x" * 100)]
    assert (
        parse(b"data:" + b"x" * 60 + b"\ndata:" + b"y" * 39 + b"\n\n", limit=100)[0].data
        == b"x" * 60 + b"\n" + b"y" * 39
    )
    assert isinstance(parse(event(b"x" * 101), limit=100)[0].data, TooLong)
    assert isinstance(parse(b"data:" + b"x" * 101 + b"\n\n", limit=100)[0].data, TooLong)
    assert isinstance(
        parse(b"data:" + b"x" * 60 + b"\ndata:" + b"y" * 40 + b"\n\n", limit=100)[0].data, TooLong
    )


def test_data_over_the_limit_is_not_kept_while_it_streams_in() -> None:
    events = EventStreamParser(1000)
    events.feed(b"data: ")
    for _ in range(100):
        assert events.feed(b"x" * 999) == []
        assert len(events._line) < 1100 + MAX_ID_BYTES
    for _ in range(100):
        assert events.feed(b"\ndata: " + b"y" * 999) == []
        assert sum(map(len, events._data)) <= HEAD_BYTES
    (dropped,) = events.feed(b"\n\n")
    assert dropped.data == TooLong(b"x" * HEAD_BYTES)


def test_an_endless_line_that_is_no_data_is_not_kept() -> None:
    events = EventStreamParser(100)
    for _ in range(100):
        events.feed(b": noise" * 100)
    assert len(events._line) < 200 + MAX_ID_BYTES
    assert events.feed(b"\ndata: a\n\n") == [Event(b"a")]


def test_many_megabytes_in_small_chunks_take_linear_time() -> None:
    def cost(size: int) -> float:
        events = EventStreamParser(size)
        began = time.process_time()
        events.feed(b"data: ")
        for _ in range(size // 1024):
            events.feed(b"x" * 1024)
        (one,) = events.feed(b"\n\n")
        assert len(one.data) == size  # type: ignore[arg-type]
        return time.process_time() - began

    small = min(cost(2**20) for _ in range(3))
    assert min(cost(2**24) for _ in range(2)) < 16 * small * 8


PIECES = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"data: a",
        b"data:bb",
        b"data",
        b"id: 1",
        b"id:\0",
        b"event: e",
        b"retry: 3",
        b":",
        b": c",
        b"x" * 9,
        b"data: " + b"y" * 12,
        b"\xef\xbb\xbf",
        b"\xff",
        b"nonsense",
    ]
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


def simply(stream: bytes, limit: int) -> list[Event]:
    """The standard, word by word, for a stream that is all there."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events = []
    for block in _blocks(text.split(b"\n")[:-1]):
        data, name, id, retry = [], "message", None, None
        for line in block:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"id" and b"\0" not in value:
                id = value.decode(errors="replace")
            elif field == b"event":
                name = value.decode(errors="replace") or "message"
            elif field == b"retry" and value.isdigit():
                retry = int(value)
        whole = b"\n".join(data)
        if whole or id is not None or retry is not None:
            events.append(
                Event(
                    whole if len(whole) <= limit else TooLong(whole[:HEAD_BYTES]), name, id, retry
                )
            )
    return events


def _blocks(lines: list[bytes]) -> list[list[bytes]]:
    blocks: list[list[bytes]] = [[]]
    for line in lines:
        if line:
            blocks[-1].append(line)
        else:
            blocks.append([])
    return blocks[:-1]


@given(STREAMS, st.lists(st.integers(0, 200), max_size=20))
def test_any_cut_of_any_stream_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    assert parse(*chunks) == simply(stream, 1000)


@given(STREAMS, st.lists(st.integers(0, 200), max_size=20))
def test_any_cut_of_any_stream_finds_the_same_events_too_long(
    stream: bytes, cuts: list[int]
) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    assert _shape(parse(*chunks, limit=10)) == _shape(simply(stream, 10))


def _shape(events: list[Event]) -> list[object]:
    """How much of the data is kept of what is too long depends on the cut; nothing else does."""
    return [(isinstance(one.data, TooLong) or one.data, one.id) for one in events]
