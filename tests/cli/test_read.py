"""`dovetail read`."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import WEATHER, dovetail

CONTENTS = (
    {"uri": "a://1", "text": "one\r\n"},
    {"uri": "a://2", "blob": "AAAA", "mimeType": "image/png"},
)


def test_a_resource_is_printed() -> None:
    assert dovetail("read", WEATHER, "weather://Oslo/place") == (
        0,
        '{"latitude": 59.9, "longitude": 10.7}\n',
        "",
    )


def test_several_contents_are_printed_under_their_uris(scripted: Callable[..., str]) -> None:
    path = scripted({"resources/read": {"result": {"contents": CONTENTS}}})
    assert dovetail("read", path, "a://") == (0, "a://1\none\na://2\n[image/png, 3 B]\n", "")


def test_contents_are_saved(scripted: Callable[..., str], tmp_path: Path) -> None:
    path = scripted({"resources/read": {"result": {"contents": CONTENTS}}})
    dovetail("read", path, "a://", "--output", str(tmp_path))
    assert (tmp_path / "blob-1.png").read_bytes() == bytes(3)


def test_the_document_has_every_character(scripted: Callable[..., str]) -> None:
    path = scripted({"resources/read": {"result": {"contents": CONTENTS}}})
    assert dovetail("read", path, "a://", "--json").json == {"contents": list(CONTENTS)}


def test_what_does_not_exist_fails_in_one_line() -> None:
    done = dovetail("read", WEATHER, "weather://Atlantis/place", "--json")
    assert (done.code, done.failure) == (1, "No such city: Atlantis")
    assert done.json["error"]["type"] == "NotFound"
    assert done.json["error"]["message"] == "No such city: Atlantis"


def test_a_uri_that_is_close_is_suggested() -> None:
    done = dovetail("read", WEATHER, "weather://citis")
    assert (done.code, done.out) == (1, "")
    assert done.failure.endswith("weather://citis. Did you mean weather://cities?")
