"""`key=value`, read by a tool's schema."""

from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.arguments import parse_arguments, schema_types
from dovetail.errors import ConfigError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "yes": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "choice": {"enum": ["1", "2"]},
        "number_choice": {"enum": [1, 2]},
        "constant": {"const": "7"},
        "referred": {"$ref": "#/$defs/some~1thing"},
        "bytes": {"type": "string", "contentEncoding": "base64"},
        "anything": {},
        "true": True,
    },
    "$defs": {"some/thing": {"type": "object"}},
}


@pytest.mark.parametrize(
    ("pair", "key", "value"),
    [
        ("text=Oslo", "text", "Oslo"),
        ("text=3", "text", "3"),
        ("text=true", "text", "true"),
        ('text="quoted"', "text", '"quoted"'),
        ("text=", "text", ""),
        ("text=a=b", "text", "a=b"),
        ("text=two\nlines", "text", "two\nlines"),
        ("whole=3", "whole", 3),
        ("whole=-3", "whole", -3),
        ("whole=3.5", "whole", 3.5),
        ("yes=true", "yes", True),
        ('list=["a"]', "list", ["a"]),
        ("maybe=null", "maybe", None),
        ("maybe=3", "maybe", "3"),
        ("maybe=word", "maybe", "word"),
        ("either=3", "either", 3),
        ("either=3x", "either", "3x"),
        ("either=true", "either", "true"),
        ("choice=1", "choice", "1"),
        ("number_choice=1", "number_choice", 1),
        ("constant=7", "constant", "7"),
        ('referred={"a": 1}', "referred", {"a": 1}),
        ("anything=3", "anything", 3),
        ("anything=word", "anything", "word"),
        ("true=3", "true", 3),
        ("unknown=3", "unknown", 3),
        ("unknown=[", "unknown", "["),
        ("text:=3", "text", 3),
        ('text:="3"', "text", "3"),
        ("name:space=3", "name:space", 3),
    ],
)
def test_the_schema_says_how_a_value_is_meant(pair: str, key: str, value: object) -> None:
    assert parse_arguments([pair], SCHEMA) == {key: value}


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        ("nothing", "'nothing' is not an argument; write key=value"),
        ("=3", "'=3' is not an argument"),
        ("whole=three", "Argument whole: 'three' is not an integer"),
        ("text:=Oslo", "Argument text: 'Oslo' is not valid JSON"),
        ("text=@no/such/file", "Argument text: cannot read 'no/such/file': No such file"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(pair: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments([pair], SCHEMA)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("pair", "failure"),
    [
        ("whole=three", "Argument whole: 'three' is not an integer"),
        ("yes=ye", "Argument yes: 'ye' is not a boolean"),
        ("whole=", "Argument whole: '' is not an integer"),
        (
            'referred={"a": 1',
            "Argument referred: '{\"a\": 1' is not an object (Input data was truncated)",
        ),
    ],
)
def test_only_a_json_value_is_refused_with_the_decoders_reason(pair: str, failure: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments([pair], SCHEMA)
    assert str(caught.value) == failure


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        (["text=a", "text=b"], "it accepts a string, not an array"),
        (["maybe=a", "text=b", "maybe=a"], "it accepts a string, not an array"),
        (["referred.a=1", "referred={}", "referred={}"], "it accepts an object, not an array"),
        (["list:=[1]", "list:=[2]"], "list:=json sets the whole value"),
        (["list=a", "list:=[2]"], "list:=json sets the whole value"),
    ],
)
def test_only_an_array_can_be_given_more_than_once(pairs: list[str], why: str) -> None:
    key = pairs[-1].partition("=")[0].rstrip(":")
    with pytest.raises(ConfigError) as caught:
        parse_arguments(pairs, SCHEMA)
    assert str(caught.value) == f"Argument {key} is given more than once, but {why}"


def test_values_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("grüße\n")
    (tmp_path / "numbers").write_text("[1, 2]")
    (tmp_path / "photo").write_bytes(b"\xff\xfe")
    pairs = [f"text=@{tmp_path}/note", f"list:=@{tmp_path}/numbers", f"bytes=@{tmp_path}/photo"]
    assert parse_arguments(pairs, SCHEMA) == {"text": "grüße\n", "list": [1, 2], "bytes": "//4="}
    with pytest.raises(ConfigError, match="photo' is not UTF-8 text"):
        parse_arguments([f"text=@{tmp_path}/photo"], SCHEMA)


def test_pairs_lie_on_top_of_a_given_object(tmp_path: Path) -> None:
    (tmp_path / "all").write_text('{"text": "a"}')
    assert parse_arguments(["whole=2"], SCHEMA, '{"text": "a", "whole": 1}') == {
        "text": "a",
        "whole": 2,
    }
    assert parse_arguments([], SCHEMA, f"@{tmp_path}/all") == {"text": "a"}


@pytest.mark.parametrize("given", ["[]", "3", "{", "@no/such/file"])
def test_args_that_are_no_object_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="--args"):
        parse_arguments([], {}, given)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/properties/loop"},
        {"$ref": "https://elsewhere/schema"},
        {"$ref": "#/no/such"},
        {"$ref": 3},
        {"type": [3, {}]},
        {"enum": []},
        {"anyOf": [{"anyOf": [3]}]},
        {"anyOf": "text"},
        {"enum": 3},
        {"type": 3},
        [],
        None,
    ],
)
def test_a_schema_that_makes_no_sense_says_nothing(schema: object) -> None:
    root = {"properties": {"loop": {"$ref": "#/properties/loop"}, "odd": schema}}
    assert schema_types(schema, root) == set()
    assert parse_arguments(["odd=3", "loop=word"], root) == {"odd": 3, "loop": "word"}


def test_a_schema_that_branches_without_end_is_left_after_a_while() -> None:
    root = {"properties": {"x": {"anyOf": [{"$ref": "#/properties/x"}] * 8}}}
    assert schema_types(root["properties"]["x"], root) == set()


@pytest.mark.parametrize("properties", [None, 3, ["a"]])
def test_properties_that_are_no_object_say_nothing(properties: object) -> None:
    assert parse_arguments(["a=3"], {"properties": properties}) == {"a": 3}
