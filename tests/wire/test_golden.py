"""What is on the wire, to the byte: `golden/<revision>.jsonl` holds the rows of messages.py as each
revision says them.

After a change that was meant, write the files anew with

    DOVETAIL_REWRITE=1 python -m pytest tests/wire/test_golden.py

and read the difference: it is what peers will see. Each line is also held against the official
schema of its revision.
"""

import os
from pathlib import Path

import pytest

from dovetail.jsonrpc.messages import Batch, decode, encode
from dovetail.protocol.methods import METHODS
from dovetail.revisions import ALL, DRAFT_DIALECT, OFFICIAL, Revision
from tests.spec import needs_spec, problems
from tests.wire.messages import ROWS, UNKNOWN_KIND, Answer, messages

GOLDEN = Path(__file__).parent / "golden"
each = pytest.mark.parametrize("revision", OFFICIAL, ids=lambda revision: revision.name)
each_of_all = pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.name)


@each_of_all
def test_the_wire_is_as_it_was(revision: Revision) -> None:
    lines = [encode(message) for _, _, message in messages(revision)]
    path = GOLDEN / f"{revision.name}.jsonl"
    if "DOVETAIL_REWRITE" in os.environ:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert path.read_bytes().splitlines() == lines


@pytest.mark.requirement("jsonrpc", "lifecycle-version-respected")
@needs_spec
@each
def test_each_golden_message_is_right_by_the_schema_of_its_revision(revision: Revision) -> None:
    for sender, method, message in messages(revision):
        assert problems(revision.name, encode(message), direction=sender, method=method) == []  # type: ignore[arg-type]


@each_of_all
def test_each_golden_message_is_decoded_and_sent_on_as_it_is(revision: Revision) -> None:
    for line in (GOLDEN / f"{revision.name}.jsonl").read_bytes().splitlines():
        message = decode(line)
        assert not isinstance(message, Batch)
        assert encode(message) == line


def test_every_method_is_among_the_rows_with_its_params_and_its_result() -> None:
    called = {name for _, name, said in ROWS if not isinstance(said, Answer)}
    answered = {name for _, name, said in ROWS if isinstance(said, Answer)}
    listed_alike = {"resources/templates/list"}  # its params are those of every list
    emptily = {"resources/unsubscribe", "logging/setLevel"}  # answered as resources/subscribe is
    assert METHODS.keys() - called == listed_alike
    assert {name for name, row in METHODS.items() if row.result} - answered == emptily


def test_every_golden_file_belongs_to_a_revision() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {revision.name for revision in ALL}


@each_of_all
def test_content_of_an_unknown_kind_is_on_the_wire_as_it_came(revision: Revision) -> None:
    if revision is not DRAFT_DIALECT:
        lowered = encode(revision.lower_result(METHODS["tools/call"], UNKNOWN_KIND))
        assert b'"content":[{"type":"video","url":"https://example.com"}]' in lowered
