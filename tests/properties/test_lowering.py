"""For any value of the vocabulary and any revision: what lowering makes of it is right, stays right, and is read back whole."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

from dovetail.jsonrpc.codec import encode
from dovetail.jsonrpc.messages import Notification, Request, Result
from dovetail.protocol.base import Open
from dovetail.protocol.lifecycle import InputRequiredResult
from dovetail.protocol.methods import METHODS
from dovetail.revisions import BY_NAME, OFFICIAL, STATELESS, decode
from tests.spec import needs_spec, problems
from tests.strategies import JSON, models, params, results

CALLS = [(revision.name, name) for revision in OFFICIAL for name in sorted(revision.methods)]
ANSWERED = [(revision, name) for revision, name in CALLS if METHODS[name].result]
every_call = pytest.mark.parametrize(("revision", "method"), CALLS)
every_answer = pytest.mark.parametrize(("revision", "method"), ANSWERED)
few = settings(max_examples=20)


def plain(value: Any) -> Any:
    return json.loads(encode(value))


@needs_spec
@every_call
@few
@given(data=st.data())
def test_any_params_lowered_are_valid_in_the_revision(revision: str, method: str, data: st.DataObject) -> None:
    speak, row = BY_NAME[revision], METHODS[method]
    lowered = speak.lower_params(row, data.draw(params(speak, row)))
    message = Request(1, method, lowered) if row.result else Notification(method, lowered)
    sender = "client" if row.sender == "client" else "server"
    assert problems(revision, encode(message), direction=sender) == []


@needs_spec
@every_answer
@few
@given(data=st.data())
def test_any_result_lowered_is_valid_in_the_revision(revision: str, method: str, data: st.DataObject) -> None:
    speak, row = BY_NAME[revision], METHODS[method]
    message = encode(Result(1, speak.lower_result(row, data.draw(results(row)))))
    assert problems(revision, message, direction="server", method=method) == []


@needs_spec
@pytest.mark.parametrize("method", sorted(name for name, row in METHODS.items() if row.asks))
@given(asking=models(InputRequiredResult))
def test_any_question_lowered_is_a_valid_answer(method: str, asking: InputRequiredResult) -> None:
    for revision in STATELESS:
        message = encode(Result(1, revision.lower_result(METHODS[method], asking)))
        assert problems(revision.name, message, direction="server", method=method) == []


@every_call
@few
@given(data=st.data())
def test_params_are_read_back_as_they_went_out(revision: str, method: str, data: st.DataObject) -> None:
    speak, row = BY_NAME[revision], METHODS[method]
    wire = encode(speak.lower_params(row, data.draw(params(speak, row))))
    assert plain(speak.lift_params(row, wire)) == json.loads(wire)


@every_answer
@few
@given(data=st.data())
def test_results_are_read_back_as_they_went_out(revision: str, method: str, data: st.DataObject) -> None:
    speak, row = BY_NAME[revision], METHODS[method]
    wire = encode(speak.lower_result(row, data.draw(results(row))))
    assert plain(speak.lift_result(row, wire)) == json.loads(wire)


@every_answer
@few
@given(data=st.data())
def test_what_is_lowered_already_stays_the_same_object(revision: str, method: str, data: st.DataObject) -> None:
    speak, row = BY_NAME[revision], METHODS[method]
    for value in (data.draw(params(speak, row)), data.draw(results(row))):
        lowered = speak.lower(value)
        assert speak.lower(lowered) is lowered


@every_answer
@few
@given(data=st.data())
def test_lowering_leaves_the_value_it_was_given_alone(revision: str, method: str, data: st.DataObject) -> None:
    speak, row = BY_NAME[revision], METHODS[method]
    value = data.draw(results(row))
    before = encode(value)
    speak.lower(value)
    assert encode(value) == before


# What peers add, and the nulls they send, must not matter. Values are written out by hand here, with noise on the way.


def noisy(value: Any, noise: Any) -> Any:
    """The wire form of a value, with `noise` (a dict) added to each object that the vocabulary declares."""
    if isinstance(value, Struct):
        pairs = {one.encode_name: getattr(value, one.name) for one in fields(value)}
        kept = {key: noisy(item, noise) for key, item in pairs.items() if item is not None and item != msgspec.Raw()}
        config = value.__struct_config__
        return noise | kept | ({config.tag_field: config.tag} if config.tag_field else {})
    if isinstance(value, Open):
        return noise | {key: noisy(item, noise) for key, item in value.items()}
    return [noisy(item, noise) for item in value] if isinstance(value, list) else value


def nulls(value: Any) -> Any:
    """The wire form of a value, with null for each optional field that is not there."""
    if isinstance(value, Struct):
        pairs = {one.encode_name: nulls(getattr(value, one.name)) for one in fields(value)}
        config = value.__struct_config__
        given = {key: item for key, item in pairs.items() if item != msgspec.Raw()}
        return given | ({config.tag_field: config.tag} if config.tag_field else {})
    return [nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("method", sorted(METHODS))
@few
@given(data=st.data(), extra=JSON)
def test_unknown_fields_anywhere_break_nothing(method: str, data: st.DataObject, extra: Any) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        value = data.draw(models(kind))
        lifted = decode(encode(noisy(value, {"x-new": extra})), kind)
        assert without(plain(lifted), "x-new") == without(plain(value), "x-new")


@pytest.mark.parametrize("method", sorted(METHODS))
@few
@given(data=st.data())
def test_a_null_is_as_good_as_nothing(method: str, data: st.DataObject) -> None:
    row = METHODS[method]
    for kind in filter(None, (row.params, row.result)):
        value = data.draw(models(kind))
        assert plain(decode(encode(nulls(value)), kind)) == plain(value)


def without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: without(item, name) for key, item in value.items() if key != name}
    return [without(item, name) for item in value] if isinstance(value, list) else value
