"""The tables of each revision, held against the official schema of that revision and against each
other."""

import ast
import inspect
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields

from dovetail.connection.extension import Extensions
from dovetail.protocol.base import Open
from dovetail.protocol.methods import METHODS
from dovetail.revisions import (
    ALL,
    BY_NAME,
    DRAFT_DIALECT,
    HANDSHAKE,
    OFFICIAL,
    STATELESS,
    Revision,
    draft_dialect,
    v2024_11_05,
    v2025_03_26,
    v2025_06_18,
    v2025_11_25,
    v2026_07_28,
)
from tests.spec import Direction, Kind, declared, definitions, methods, needs_spec
from tests.strategies import KINDS

STEPS = [
    (v2024_11_05, v2025_03_26),
    (v2025_03_26, v2025_06_18),
    (v2025_06_18, v2025_11_25),
    (v2025_11_25, v2026_07_28),
    (v2024_11_05, draft_dialect),
]
each = pytest.mark.parametrize("revision", OFFICIAL, ids=lambda revision: revision.name)
each_of_all = pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.name)
each_step = pytest.mark.parametrize(
    ("before", "after"), STEPS, ids=lambda module: module.__name__.rpartition(".")[2]
)


def names_of(kind: type) -> set[str]:
    """The attributes of a type of the vocabulary."""
    if issubclass(kind, Open):
        return set(kind.known)
    assert issubclass(kind, Struct)
    return {field.name for field in fields(kind)}


def wire_names(revision: Revision, kind: type) -> set[str]:
    """The fields of a type that this revision is told, as the wire spells them."""
    absent = next((revision.absent[base] for base in kind.__mro__ if base in revision.absent), ())
    if issubclass(kind, Open):
        return {wire for name, wire in kind.known.items() if name not in absent}
    assert issubclass(kind, Struct)
    tag = kind.__struct_config__.tag_field
    return {field.encode_name for field in fields(kind) if field.name not in absent} | (
        {tag} if tag else set()
    )


# The facts.


def test_the_revisions_are_in_the_order_of_their_dates() -> None:
    assert [revision.name for revision in OFFICIAL] == [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    ]
    assert [revision.version for revision in OFFICIAL] == [revision.name for revision in OFFICIAL]
    assert (*HANDSHAKE, *STATELESS, DRAFT_DIALECT) == ALL
    assert [BY_NAME[revision.name] for revision in ALL] == list(ALL)


@pytest.mark.parametrize(
    ("fact", "true_in"),
    [
        ("stateless", {"2026-07-28"}),
        ("batching", {"2025-03-26"}),
        ("unnamed_errors", {"2025-11-25", "2026-07-28"}),
        ("priming", {"2025-11-25", "2026-07-28"}),
        ("set_level", {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "detailed-draft"}),
        ("progress_by_id", {"detailed-draft"}),
        ("pings", {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}),
        ("tool_errors", {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}),
        ("paging", {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}),
    ],
)
def test_each_fact_holds_where_it_should_and_nowhere_else(fact: str, true_in: set[str]) -> None:
    assert {revision.name for revision in ALL if getattr(revision, fact)} == true_in


def test_only_the_draft_dialect_acknowledges_a_cancelled_call() -> None:
    assert [revision.name for revision in ALL if revision.cancelled_result is not None] == [
        "detailed-draft"
    ]


@each_of_all
def test_no_revision_shares_its_memory_with_another(revision: Revision) -> None:
    others = [other for other in ALL if other is not revision]
    assert all(other.lowerings is not revision.lowerings for other in others)


@each_of_all
def test_every_method_of_a_revision_exists(revision: Revision) -> None:
    assert revision.methods <= METHODS.keys()


@each_of_all
def test_a_method_is_found_by_its_name_on_the_wire(revision: Revision) -> None:
    for name in revision.methods:
        assert Extensions().find_method(revision.wire_name(name), revision) is METHODS[name]
    assert Extensions().find_method("tools/lists", revision) is None


def test_methods_go_by_their_own_name_everywhere_but_in_the_draft_dialect() -> None:
    renamed = {
        (one.name, name) for one in ALL for name in one.methods if one.wire_name(name) != name
    }
    assert {revision for revision, _ in renamed} == {"detailed-draft"}


# The methods and fields, held against the schemas.

SURPLUS = {("2026-07-28", "client", "Notification"): {"notifications/progress"}}
"""What we would take where the schema has it from the other side only: one row of the vocabulary
serves both."""


@needs_spec
@each
@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("kind", ["Request", "Notification"])
def test_a_revision_has_the_methods_of_its_schema(
    revision: Revision, side: Direction, kind: Kind
) -> None:
    place = (revision.name, side, kind)
    rows = [METHODS[name] for name in revision.methods]
    ours = {
        row.name
        for row in rows
        if row.sender in (side, "both") and (row.result is None) == (kind == "Notification")
    }
    theirs = set(methods(revision.name, side, kind))
    assert theirs - ours == set()
    assert ours - theirs == SURPLUS.get(place, set())


@needs_spec
@each
def test_the_params_of_each_method_have_the_fields_of_the_schema(revision: Revision) -> None:
    for side in ("client", "server"):
        for kind in ("Request", "Notification"):
            for method, definition in methods(revision.name, side, kind).items():
                if method in METHODS:
                    theirs = declared(revision.name, f"{definition}.params") | {"_meta"}
                    assert wire_names(revision, METHODS[method].params) == theirs, method


OTHERWISE_NAMED = {
    "Message": "PromptMessage",
    "ToolResult": "CallToolResult",
    "ListenResult": "SubscriptionsListenResult",
    "CacheHints": "CacheableResult",
    "Completion": "CompleteResult.completion",
    "CompletionArgument": "CompleteRequest.params.argument",
    "CompletionContext": "CompleteRequest.params.context",
    "RootsCapability": "ClientCapabilities.roots",
    "SamplingCapability": "ClientCapabilities.sampling",
    "ElicitationCapability": "ClientCapabilities.elicitation",
    "ListCapability": "ServerCapabilities.tools",
    "ResourcesCapability": "ServerCapabilities.resources",
}
EXTENDED = {("2026-07-28", "SubscriptionFilter"): {"taskIds"}} | {
    (revision, kind): {"extensions"}
    for revision in ("2025-06-18", "2025-11-25")
    for kind in ("ClientCapabilities", "ServerCapabilities")
}
"""What we have beyond a definition: what the extension for tasks adds; and SEP-2133 negotiates
extensions in `initialize` too, where these schemas leave capabilities open.
https://modelcontextprotocol.io/seps/2133-extensions#negotiation"""
MERGED = {
    "ResourceContents": {"text", "blob"},
    "TextResourceContents": {"blob"},
    "BlobResourceContents": {"text"},
}
"""One type stands for contents of both kinds; a value has one of the two fields."""


@needs_spec
@each
def test_each_type_has_the_fields_of_its_definition(revision: Revision) -> None:
    compared = set()
    for kind in KINDS:
        place = OTHERWISE_NAMED.get(kind.__name__, kind.__name__)
        if place == "ResourceReference" and place not in definitions(revision.name):
            place = "ResourceTemplateReference"
        definition, _, path = place.partition(".")
        if definition in definitions(revision.name) and (not path or place_exists(revision, place)):
            compared.add(kind.__name__)
            more = MERGED.get(kind.__name__, set()) | EXTENDED.get(
                (revision.name, kind.__name__), set()
            )
            theirs = declared(revision.name, place) | more
            assert wire_names(revision, kind) == theirs, kind.__name__
    assert {
        "Tool",
        "Resource",
        "Prompt",
        "Implementation",
        "TextContent",
        "ToolResult",
        "Completion",
    } <= compared


def place_exists(revision: Revision, place: str) -> bool:
    return place.rpartition(".")[2] in declared(revision.name, place.rpartition(".")[0])


# The tables, held against the vocabulary and against each other.


@each_of_all
def test_every_name_in_a_table_is_a_field_of_its_type(revision: Revision) -> None:
    for kind, names in revision.absent.items():
        assert set(names) <= names_of(kind), kind
    for kind, stamp in revision.stamp.items():
        assert stamp.keys() <= names_of(kind), kind


@each_of_all
def test_only_optional_fields_are_absent(revision: Revision) -> None:
    for kind, names in revision.absent.items():
        if issubclass(kind, Struct):
            required = {field.name for field in fields(kind) if field.required}
            assert not required & set(names), kind


@each_of_all
def test_nothing_is_both_absent_and_stamped(revision: Revision) -> None:
    for kind, stamp in revision.stamp.items():
        absent = next(
            (revision.absent[base] for base in kind.__mro__ if base in revision.absent), ()
        )
        assert not stamp.keys() & set(absent), kind


def said(module: Any, keyword: str) -> Any:
    """The value of a keyword in the module's call of evolve."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "evolve"
        ):
            for given in node.keywords:
                if given.arg == keyword:
                    return eval(
                        compile(ast.Expression(given.value), module.__name__, "eval"), vars(module)
                    )
    return {}


@each_step
def test_what_a_revision_adds_was_absent_before(before: Any, after: Any) -> None:
    for kind, names in said(after, "adds").items():
        assert set(names) <= set(before.REVISION.absent[kind]), kind
        assert not set(names) & set(after.REVISION.absent.get(kind, ())), kind


@each_step
def test_what_a_revision_drops_was_there_before(before: Any, after: Any) -> None:
    for kind, names in said(after, "drops").items():
        inherited = [before.REVISION.absent.get(base, ()) for base in kind.__mro__]
        assert not set(names) & set(before.REVISION.absent.get(kind, ())), (kind, inherited)
        assert set(names) <= set(after.REVISION.absent[kind]), kind


@each_step
def test_the_kinds_that_a_revision_gains_were_replaced_before(before: Any, after: Any) -> None:
    for kind in said(after, "kinds"):
        assert kind in before.REVISION.instead, kind
        assert kind not in after.REVISION.instead, kind


@each_step
def test_methods_come_and_go_only_once(before: Any, after: Any) -> None:
    added, gone = set(said(after, "methods")), set(said(after, "without"))
    assert not added & before.REVISION.methods
    assert gone <= before.REVISION.methods
    assert after.REVISION.methods == (before.REVISION.methods | added) - gone
    assert after.REVISION.methods <= METHODS.keys()
