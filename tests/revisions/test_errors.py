"""Which code an error carries in which revision, and which exception a code becomes."""

from typing import Any

import pytest

from dovetail.errors import (
    BY_CODE,
    DovetailError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    NotFound,
    ProtocolError,
    ToolError,
)
from dovetail.revisions import ALL, BY_NAME, error_from_wire


@pytest.mark.parametrize(
    ("revision", "code"),
    [
        ("2024-11-05", -32002),
        ("2025-03-26", -32002),
        ("2025-06-18", -32002),
        ("2025-11-25", -32002),
        ("2026-07-28", -32602),
        ("detailed-draft", -32002),
    ],
)
def test_a_missing_resource_has_the_code_of_its_revision(revision: str, code: int) -> None:
    assert BY_NAME[revision].code(NotFound("no such resource")) == code


def test_wrong_params_are_an_application_error_in_the_draft_dialect() -> None:
    codes = {revision.name: revision.code(InvalidParams("wrong")) for revision in ALL}
    assert codes.pop("detailed-draft") == 4001
    assert set(codes.values()) == {-32602}


def test_other_errors_carry_their_own_code_everywhere() -> None:
    for revision in ALL:
        assert revision.code(MethodNotFound()) == -32601
        assert revision.code(ProtocolError(7)) == 7
        assert revision.code(ProtocolError(0, "zero")) == 0


@pytest.mark.requirement("error-codes-retired")
@pytest.mark.parametrize(("code", "now"), [(-32002, -32602), (-32042, -32603)])
def test_codes_that_are_retired_are_not_sent_any_more_whoever_raised_them(
    code: int, now: int
) -> None:
    sent = {revision.name: revision.code(ProtocolError(code, "as it was")) for revision in ALL}
    assert sent.pop("2026-07-28") == now
    assert set(sent.values()) == {code}


@pytest.mark.parametrize(
    ("method", "code", "data", "kind"),
    [
        ("resources/read", -32002, None, NotFound),
        ("resources/read", -32001, None, NotFound),
        ("resources/read", -32602, {"uri": "a:b"}, NotFound),
        ("resources/read", -32602, {"other": 1}, InvalidParams),
        ("resources/read", -32602, None, InvalidParams),
        ("resources/read", -32602, ["uri"], InvalidParams),
        ("tools/call", -32602, {"uri": "a:b"}, InvalidParams),
        ("tools/call", -32002, None, ToolError),
        ("prompts/get", -32002, None, ProtocolError),
        ("tools/call", 4001, None, InvalidParams),
        ("ping", -32601, None, MethodNotFound),
        ("ping", -32603, None, InternalError),
        ("ping", 0, None, ProtocolError),
        ("ping", 12345, None, ProtocolError),
    ],
)
def test_a_code_becomes_the_exception_that_means_it(
    method: str, code: int, data: Any, kind: type[DovetailError]
) -> None:
    raised = error_from_wire(method, code, "said", data)
    assert type(raised) is kind
    assert str(raised) == "said"
    if isinstance(raised, ProtocolError):
        assert (raised.code, raised.message, raised.data) == (code, "said", data)


def test_every_code_that_has_a_class_comes_back_as_it() -> None:
    for code, kind in BY_CODE.items():
        raised = error_from_wire("ping", code, "", {"a": 1})
        assert type(raised) is kind
        assert isinstance(raised, ProtocolError)
        assert (raised.code, raised.data) == (code, {"a": 1})


def test_what_one_revision_says_is_what_the_peer_of_it_catches() -> None:
    for revision in ALL:
        sent = NotFound("no such resource", data={"uri": "a:b"})
        assert (
            type(error_from_wire("resources/read", revision.code(sent), sent.message, sent.data))
            is NotFound
        )
