"""Lines out of chunks: nothing lost, nothing kept too long, nothing searched twice."""

import pytest

from dovetail.jsonrpc.framing import HEAD_BYTES, LineSplitter, TooLong

KIB = 1024


def feed(chunks: list[bytes], limit: int = 100) -> list[bytes | TooLong]:
    lines = LineSplitter(limit)
    return [line for chunk in chunks for line in lines.feed(chunk)]


def test_a_line_is_given_out_once_its_newline_came() -> None:
    lines = LineSplitter(100)
    assert lines.feed(b"abc") == []
    assert lines.feed(b"def\ngh") == [b"abcdef"]
    assert lines.feed(b"i\n") == [b"ghi"]


def test_several_lines_in_one_chunk_come_in_order() -> None:
    assert feed([b"a\nb\nc\nd"]) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "chunks", [[b"\n\n\na\n\n"], [b"\n", b"\n", b"a", b"\n", b"\n"], [b"\r\n\r\na\n\r\n"]]
)
def test_blank_lines_are_left_out(chunks: list[bytes]) -> None:
    assert feed(chunks) == [b"a"]


def test_a_carriage_return_stays_for_the_decoder_which_takes_it_for_space() -> None:
    assert feed([b'{"a":1}\r\n{}\r\n']) == [b'{"a":1}\r', b"{}\r"]


def test_a_blank_line_split_between_its_return_and_its_newline_is_left_out() -> None:
    assert feed([b"\r", b"\n", b"a\r", b"\n"]) == [b"a\r"]


def test_an_empty_chunk_changes_nothing() -> None:
    assert feed([b"", b"a", b"", b"\n", b""]) == [b"a"]


def test_a_line_over_the_limit_is_dropped_and_its_neighbours_live() -> None:
    assert feed([b"before\n" + b"x" * 101 + b"\nafter\n"]) == [
        b"before",
        TooLong(b"x" * 101),
        b"after",
    ]


def test_a_line_over_the_limit_is_dropped_while_it_streams_in() -> None:
    lines = LineSplitter(10)
    assert lines.feed(b"before\nxxxxx") == [b"before"]
    assert [lines.feed(b"x" * 4) for _ in range(50)] == [[]] * 50
    assert lines._parts == []
    (dropped, after) = lines.feed(b"x\nafter\n")
    assert isinstance(dropped, TooLong)
    assert set(dropped.head) == {ord("x")}
    assert after == b"after"


@pytest.mark.parametrize("split", range(1, 12))
def test_the_limit_counts_the_line_without_its_newline_wherever_it_is_split(split: int) -> None:
    fits, over = b"0123456789\n", b"0123456789x\n"
    assert feed([fits[:split], fits[split:]], limit=10) == [b"0123456789"]
    (dropped,) = feed([over[:split], over[split:]], limit=10)
    assert isinstance(dropped, TooLong)
    assert over.startswith(dropped.head)


def test_the_head_of_a_dropped_line_is_kept() -> None:
    line = b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 10_000 + b'"}'
    for size in (1, 100, 5000, 20_000):
        chunks = [line[at : at + size] for at in range(0, len(line), size)]
        (dropped,) = feed([*chunks, b"\n"], limit=1000)
        assert isinstance(dropped, TooLong)
        assert dropped.head == line[:HEAD_BYTES]


def test_the_next_line_has_the_whole_limit_again() -> None:
    assert feed([b"12345", b"67890\n12345", b"67890\n"], limit=10) == [b"1234567890"] * 2


def test_what_comes_after_the_last_newline_is_the_rest_and_only_once() -> None:
    lines = LineSplitter(100)
    lines.feed(b"a\nlast ")
    lines.feed(b"words")
    assert lines.rest() == b"last words"
    assert lines.rest() == b""
    assert lines.feed(b"next\n") == [b"next"]


def test_a_rest_over_the_limit_is_gone() -> None:
    lines = LineSplitter(10)
    lines.feed(b"x" * 11)
    assert lines.rest() == b""
    assert lines.feed(b"a\n") == [b"a"]


class Counted(bytes):
    """A chunk that counts the bytes looked at in it."""

    looked_at = 0

    def rfind(self, *args: object) -> int:
        Counted.looked_at += len(self)
        return bytes(self).rfind(*args)  # type: ignore[arg-type]

    def split(self, *args: object) -> list[bytes]:
        Counted.looked_at += len(self)
        return bytes(self).split(*args)  # type: ignore[arg-type]


def test_a_line_of_64_mib_costs_one_look_at_each_byte_and_one_join() -> None:
    Counted.looked_at = 0
    chunk = Counted(b"x" * (64 * KIB))
    lines = LineSplitter(128 * KIB * KIB)
    for fed in range(1, 1025):
        assert lines.feed(chunk) == []
        assert len(lines._parts) == fed  # kept as they came: nothing is joined before the end
    assert all(part is chunk for part in lines._parts)
    assert Counted.looked_at == 64 * KIB * KIB
    (line,) = lines.feed(b"\n")
    assert isinstance(line, bytes)
    assert len(line) == 64 * KIB * KIB
