"""However a stream is cut into chunks, its lines are the same."""

from itertools import pairwise

from hypothesis import given, strategies as st

from dovetail.jsonrpc.framing import LineSplitter, TooLong

PIECES = st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bcd", b"{}", b"x" * 9, b"\xff\x00"])
STREAMS = st.lists(PIECES, max_size=30).map(b"".join)
LIMIT = 10


def simply(stream: bytes) -> list[bytes | type[TooLong]]:
    lines = stream.split(b"\n")[:-1]
    return [TooLong if len(line) > LIMIT else line for line in lines if line not in (b"", b"\r")]


@given(STREAMS, st.lists(st.integers(0, 100), max_size=10))
def test_any_cut_of_any_stream_gives_the_same_lines(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    lines = LineSplitter(LIMIT)
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    fed = [line for chunk in chunks for line in lines.feed(chunk)]
    assert [TooLong if isinstance(line, TooLong) else line for line in fed] == simply(stream)
    last = stream.rpartition(b"\n")[2]
    assert lines.rest() == (last if len(last) <= LIMIT else b"")
