"""Splices change a text, and say which parts of the new text they wrote."""

import pytest
from hypothesis import given, strategies as st

from dovetail.host_configs.splice import Edit, Span, Splice, apply, move_spans, remove_spans


def test_splices_are_applied_in_the_order_of_the_text() -> None:
    edit = apply("abcdef", [Splice(5, 6, "F"), Splice(0, 0, "<"), Splice(2, 4, "")])
    assert edit.text == "<abeF"
    assert edit.is_changed and edit.inserted == ()


def test_a_splice_that_changes_nothing_is_left_out() -> None:
    assert apply("abc", [Splice(1, 2, "b"), Splice(3, 3, "")]) == Edit("abc", ())
    assert not Edit("abc", ()).is_changed


def test_the_parts_that_were_inserted_are_known() -> None:
    edit = apply("abc", [Splice(1, 1, "xx"), Splice(3, 3, "y")])
    assert edit.text == "axxbcy"
    assert edit.inserted == ((1, 3), (5, 6))


@pytest.mark.parametrize(
    ("spans", "splice", "moved"),
    [
        ([(2, 4)], Splice(0, 0, "xx"), [(0, 2), (4, 6)]),
        ([(2, 4)], Splice(2, 2, "xx"), [(2, 6)]),
        ([(2, 4)], Splice(3, 3, "xx"), [(2, 6)]),
        ([(2, 4)], Splice(4, 4, "xx"), [(2, 6)]),
        ([(2, 4)], Splice(6, 6, "xx"), [(2, 4), (6, 8)]),
        ([(2, 6)], Splice(3, 5, "x"), [(2, 5)]),  # replaces what is ours
        ([(2, 6)], Splice(2, 6, "x"), [(2, 3)]),
        ([(2, 6)], Splice(2, 6, ""), []),
        ([(2, 6)], Splice(3, 5, ""), [(2, 4)]),
        ([(2, 4)], Splice(3, 6, "xxxxx"), [(2, 3)]),  # replaces more than what is ours
        ([(2, 4)], Splice(0, 6, "x"), []),
        ([(2, 4)], Splice(0, 1, "xxx"), [(4, 6)]),  # replaces what is not ours
        ([(2, 3), (4, 5)], Splice(2, 5, "x"), []),
        ([(0, 2), (2, 4), (6, 8)], Splice(1, 4, "x"), [(0, 2), (4, 6)]),
    ],
)
def test_what_was_written_is_known_after_another_change(
    spans: list[Span], splice: Splice, moved: list[Span]
) -> None:
    assert move_spans(tuple(spans), (splice,)) == tuple(moved)


@given(st.text("abc", max_size=8), st.data())
def test_insertions_can_always_be_taken_back(text: str, data: st.DataObject) -> None:
    edit, spans = Edit(text, ()), ()
    for _ in range(4):
        at = st.integers(0, len(edit.text))
        places = data.draw(st.lists(at, max_size=3, unique=True))
        edit = apply(edit.text, [Splice(place, place, "xy") for place in places])
        spans = move_spans(spans, edit.splices)
    assert remove_spans(edit.text, spans).text == text
