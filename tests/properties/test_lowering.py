"""For any value of the vocabulary and any revision: what lowering makes of it is right, stays right
and can be read back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Struct
from msgspec.structs import fields

from dovetail.jsonrpc.messages import Notification, Request, Response, encode
from dovetail.protocol.base import Open
from dovetail.protocol.lifecycle import InputRequiredResult
from dovetail.protocol.methods import METHODS, Method
from dovetail.protocol.raw import RawObject
from dovetail.protocol.tools import CallToolParams
from dovetail.revisions import ALL, DRAFT_DIALECT, OFFICIAL, STATELESS, Revision, decode
from tests.spec import Direction, needs_spec, problems
from tests.strategies import JSON, models, said_in

SPOKEN = frozenset().union(*(revision.methods for revision in OFFICIAL))
CALLS = sorted(SPOKEN)
ANSWERED = [name for name in CALLS if METHODS[name].result]
NEW = "x-new"
TYPES = st.sampled_from(["text", "audio", "resource", "resource_link", "tool_use", "tool_result"])
NESTED_JUNK = st.recursive(
    JSON,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {}, optional={"type": TYPES | inner, "content": inner, "oneOf": inner, "items": inner}
        )
    ),
    max_leaves=6,
)
few = settings(max_examples=20)


def plain(value: Any) -> Any:
    return json.loads(encode(value))


def lowered(row: Method, params: Any) -> Iterator[tuple[Revision, Any]]:
    """These params in each revision that can say them."""
    for revision in OFFICIAL:
        if row.name in revision.methods and (said := said_in(revision, row, params)) is not None:
            yield revision, revision.lower_params(row, said)


@needs_spec
@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data())
def test_any_params_are_valid_in_each_revision_they_are_lowered_to(
    method: str, data: st.DataObject
) -> None:
    row = METHODS[method]
    for revision, params in lowered(row, data.draw(models(row.params))):
        message = Request(1, method, params) if row.result else Notification(method, params)
        sender: Direction = "client" if row.sender == "client" else "server"
        assert problems(revision.name, encode(message), direction=sender) == []


@needs_spec
@pytest.mark.parametrize("method", ANSWERED)
@few
@given(data=st.data())
def test_any_result_is_valid_in_each_revision_it_is_lowered_to(
    method: str, data: st.DataObject
) -> None:
    row = METHODS[method]
    result = data.draw(models(row.result))
    for revision in OFFICIAL:
        if method in revision.methods:
            message = encode(Response(1, revision.lower_result(row, result)))
            assert problems(revision.name, message, direction="server", method=method) == []


@needs_spec
@few
@given(asking=models(InputRequiredResult))
def test_any_question_is_a_valid_answer_where_a_handler_may_ask(
    asking: InputRequiredResult,
) -> None:
    for revision in STATELESS:
        for row in METHODS.values():
            if row.asks:
                message = encode(Response(1, revision.lower_result(row, asking)))
                assert problems(revision.name, message, direction="server", method=row.name) == []


@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data())
def test_params_are_read_back_as_they_went_out(method: str, data: st.DataObject) -> None:
    row = METHODS[method]
    for revision, params in lowered(row, data.draw(models(row.params))):
        assert plain(revision.lift_params(row, encode(params))) == plain(params)


@pytest.mark.parametrize("method", ANSWERED)
@few
@given(data=st.data())
def test_results_are_read_back_as_they_went_out(method: str, data: st.DataObject) -> None:
    row = METHODS[method]
    result = data.draw(models(row.result))
    for revision in OFFICIAL:
        wire = encode(revision.lower_result(row, result))
        assert plain(revision.lift_result(row, wire)) == json.loads(wire)


@few
@given(asking=models(InputRequiredResult))
def test_questions_are_read_back_as_they_went_out(asking: InputRequiredResult) -> None:
    for revision in STATELESS:
        wire = encode(revision.lower(asking))
        assert plain(decode(wire, InputRequiredResult)) == json.loads(wire)


@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data())
def test_lowering_twice_changes_nothing_and_never_the_value_it_was_given(
    method: str, data: st.DataObject
) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        value = data.draw(models(kind))
        before = encode(value)
        for revision in OFFICIAL:
            once = revision.lower(value)
            assert revision.lower(once) is once
        assert encode(value) == before


# A raw value is lowered as its typed twin is, and keeps what no revision knows.


@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data(), extra=JSON)
def test_a_raw_value_is_lowered_as_the_typed_one(
    method: str, data: st.DataObject, extra: Any
) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        value = data.draw(models(kind))
        raw = RawObject.parse(kind, encode(value))
        noisy = RawObject.parse(kind, encode(wired(value, {NEW: extra})))
        for revision in ALL:
            expected = plain(revision.lower(value))
            assert plain(revision.lower(raw)) == expected
            after = plain(revision.lower(noisy))
            assert without(after, NEW) == without(expected, NEW)
            assert after[NEW] == extra


@pytest.mark.parametrize("method", ANSWERED)
@few
@given(data=st.data())
def test_a_raw_result_reaches_the_draft_dialect_as_the_typed_one(
    method: str, data: st.DataObject
) -> None:
    row = METHODS[method]
    if method in DRAFT_DIALECT.methods:
        result = data.draw(models(row.result))
        raw = RawObject.parse(row.result, encode(result))
        before = plain(DRAFT_DIALECT.lower_result(row, result))
        assert plain(DRAFT_DIALECT.lower_result(row, raw)) == before


@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data())
def test_attributes_of_a_raw_value_are_those_of_the_typed_one(
    method: str, data: st.DataObject
) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        wire = encode(data.draw(models(kind)))
        raw, typed = RawObject.parse(kind, wire), decode(wire, kind)
        for name in typed.__struct_fields__:
            assert getattr(raw, name) == getattr(typed, name)
        assert raw.decode() == typed


@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data())
def test_a_raw_value_that_is_not_valid_is_lowered_without_an_error(
    method: str, data: st.DataObject
) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        names = [one.encode_name for one in fields(kind)]
        junk = data.draw(st.dictionaries(st.sampled_from(names), NESTED_JUNK))
        raw = RawObject.parse(kind, encode(junk | {NEW: 1}))
        for revision in ALL:
            assert plain(revision.lower(raw))[NEW] == 1


# What peers add, and the nulls they send, must not matter.


def wired(value: Any, noise: dict[str, Any], nulls: bool = False) -> Any:
    """A value in wire form, with `noise` added to each declared object, and null for each field
    that is not there."""
    if isinstance(value, Struct):
        given = [(one, getattr(value, one.name)) for one in fields(value)]
        told = {
            one.encode_name: wired(item, noise, nulls)
            for one, item in given
            if nulls or item is not one.default
        }
        tag = value.__struct_config__.tag_field
        present = {key: item for key, item in told.items() if item is not NO_ARGUMENTS}
        return noise | present | ({tag: value.__struct_config__.tag} if tag else {})
    if isinstance(value, Open):
        return noise | {key: wired(item, noise, nulls) for key, item in value.items()}
    return [wired(item, noise, nulls) for item in value] if isinstance(value, list) else value


NO_ARGUMENTS = CallToolParams(name="").arguments


@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data(), extra=JSON)
def test_unknown_fields_anywhere_break_nothing(
    method: str, data: st.DataObject, extra: Any
) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        value = data.draw(models(kind))
        lifted = decode(encode(wired(value, {NEW: extra})), kind)
        assert without(plain(lifted), NEW) == without(plain(value), NEW)


@pytest.mark.parametrize("method", CALLS)
@few
@given(data=st.data())
def test_a_null_is_as_good_as_nothing(method: str, data: st.DataObject) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        value = data.draw(models(kind))
        assert plain(decode(encode(wired(value, {}, nulls=True)), kind)) == plain(value)


def without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: without(item, name) for key, item in value.items() if key != name}
    return [without(item, name) for item in value] if isinstance(value, list) else value
