"""The tree in the docstring is the tree in the code."""

import copy
import inspect
import pickle
import re
from typing import Any

import pytest

from dovetail import errors
from dovetail.errors import (
    BY_CODE,
    LOCAL,
    REMOTE,
    CannotAsk,
    ConfigError,
    DovetailError,
    InvalidOutput,
    InvalidParams,
    NotFound,
    Overloaded,
    ProtocolError,
    SchemaError,
    TimedOut,
    ToolError,
)

CLASSES: dict[str, Any] = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, Exception)
}
RESERVED = range(-32768, -31999)
OWN = {"BackendAway", "ConsentDenied", "Forbidden", "Overloaded", "TooLarge"}


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """The tree in the docstring: each class with its parent, and its code where one is given."""
    assert errors.__doc__ is not None
    rows = re.findall(r"^ {4}([│ ├└─]*)(\w+)(?: {2,}(-\d+))?", errors.__doc__, re.MULTILINE)
    path: list[str] = []
    tree: dict[str, tuple[str | None, str | None]] = {}
    for branch, name, code in rows:
        del path[len(branch) // 4 :]
        tree[name] = (path[-1] if path else None, code or None)
        path.append(name)
    return tree


def test_the_tree_drawn_in_the_docstring_is_the_tree_of_the_classes() -> None:
    parents = {
        name: next(base.__name__ for base in kind.__bases__) for name, kind in CLASSES.items()
    }
    parents["DovetailError"] = None
    assert {name: parent for name, (parent, _) in drawn().items()} == parents


def test_the_codes_in_the_docstring_are_the_codes_of_the_classes() -> None:
    told = {name: int(code) for name, (_, code) in drawn().items() if code}
    own = {
        name: kind.code
        for name, kind in CLASSES.items()
        if "code" in vars(kind) and kind is not ProtocolError
    }
    assert told == own


def test_every_class_has_a_docstring_of_its_own() -> None:
    assert all(vars(kind).get("__doc__") for kind in CLASSES.values())


def test_codes_of_our_own_lie_outside_what_json_rpc_reserves() -> None:
    codes = {name: kind.code for name, kind in CLASSES.items() if issubclass(kind, ProtocolError)}
    assert {name for name, code in codes.items() if code not in RESERVED} == OWN


def test_every_code_has_one_class() -> None:
    with_code = [
        kind for kind in CLASSES.values() if "code" in vars(kind) and kind is not ProtocolError
    ]
    assert sorted(BY_CODE.values(), key=str) == sorted(with_code, key=str)
    assert all(kind.code == code for code, kind in BY_CODE.items())


def test_every_error_says_whose_fault_it_is() -> None:
    local = {name for name, kind in CLASSES.items() if kind.fault == LOCAL}
    assert local == {
        "ParseError",
        "InvalidRequest",
        "MethodNotFound",
        "InvalidParams",
        "NotFound",
        "HeaderMismatch",
        "MissingCapability",
        "UnsupportedVersion",
        "Forbidden",
        "ConsentDenied",
        "RequestCancelled",
        "Unauthorized",
        "SchemaError",
        "ConfigError",
    }
    assert all(kind.fault in (LOCAL, REMOTE) for kind in CLASSES.values())


# Making them.


def test_a_subclass_knows_its_code() -> None:
    error = InvalidParams("no such prompt")
    assert (error.code, error.message, error.data, str(error)) == (
        -32602,
        "no such prompt",
        None,
        "no such prompt",
    )


def test_data_may_follow_the_message_by_position_or_by_name() -> None:
    assert InvalidParams("wrong", {"a": 1}).data == {"a": 1}  # type: ignore[arg-type]
    assert InvalidParams("wrong", data={"a": 1}).data == {"a": 1}


def test_a_code_may_be_given_and_wins() -> None:
    error = ProtocolError(-32042, "visit this", {"url": "x:y"})
    assert (error.code, error.message, error.data) == (-32042, "visit this", {"url": "x:y"})
    assert ProtocolError(0, "zero").code == 0
    assert NotFound(-32002, "gone").code == -32002


def test_without_words_the_class_speaks_for_itself() -> None:
    assert Overloaded().message == "A limit was reached; try again later."
    assert ProtocolError().code == -32603


def test_giving_one_error_a_code_leaves_the_class_alone() -> None:
    InvalidParams(4001, "x")
    assert InvalidParams.code == -32602


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(TimedOut, TimeoutError)
    assert issubclass(SchemaError, ValueError)
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(
    "again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"]
)
def test_every_error_survives_a_trip_to_another_process(
    kind: type[DovetailError], again: Any
) -> None:
    error = kind("said")
    twin = again(error)
    assert type(twin) is kind
    assert (str(twin), vars(twin)) == (str(error), vars(error))


@pytest.mark.parametrize(
    "error",
    [
        ProtocolError(7, "m", {"a": 1}),
        NotFound(-32002, "gone", {"uri": "a:b"}),
        ToolError("failed", {"content": []}),
        CannotAsk("no", {"sampling": {}}),
        InvalidOutput("bad", {"content": []}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_an_error_carries_survives_too(error: DovetailError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert (str(twin), vars(twin)) == (str(error), vars(error))
