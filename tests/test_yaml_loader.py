"""The YAML loader, beyond what tests/extensions/test_frontmatter.py says of it."""

import subprocess
import sys

import pytest

from dovetail.yaml_loader import YamlError, YamlNode, load_yaml, scan_yaml


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("%YAML 1.1\n---\na: 012", "line 2, column 1: directives are not supported"),
        ("%TAG ! tag:example.com,2000:\n---\na: 1", "directives are not supported"),
        ("a: 1\n---\nb: 2", "line 2, column 1: there is more than one document"),
        ("a: 1\n---\na: 1\n---\n", "more than one document"),
        ("x" * 70_000, "longer than 65,536 characters"),
    ],
)
def test_what_is_not_one_plain_document_is_refused(text: str, problem: str) -> None:
    with pytest.raises(YamlError, match=problem):
        load_yaml(text)


def test_a_document_may_be_any_json_value() -> None:
    assert load_yaml("--- text") == "text"
    assert load_yaml("[1, null]") == [1, None]
    assert load_yaml("") is load_yaml("---\n...\n") is None


def test_lines_are_counted_from_where_the_text_was_taken() -> None:
    with pytest.raises(YamlError, match="line 11, column 4: anchors"):
        load_yaml("a: 1\nb: &x 1", first_line=10)


@pytest.mark.parametrize(("function", "extra"), [("load_yaml", "skills"), ("scan_yaml", "install")])
def test_the_parser_is_loaded_when_it_is_needed_and_its_absence_is_explained(
    function: str, extra: str
) -> None:
    code = (
        "import sys, dovetail.yaml_loader, dovetail.errors\n"
        "assert 'ruamel.yaml' not in sys.modules; sys.modules['ruamel.yaml'] = None\n"
        f"try: dovetail.yaml_loader.{function}('a: 1')\n"
        "except dovetail.errors.ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'dovetail-mcp[{extra}]'" in done.stdout


TEXT = """\
# settings
model: "m"  # mine
servers: &all
  a: {x: 1, y: [1]}
  b:
    - one
    -      # nothing
  c: |
    text

    more

  d: # nothing
# end
"""


def written(*path: str) -> tuple[str, str]:
    """How the value at a path is written, and in which style."""
    node = scan_yaml(TEXT)
    for key in path:
        assert node is not None and node.entries is not None
        entry = node.entries[key]
        assert TEXT[entry.key.start : entry.key.end] == key
        node = entry.value
    assert node is not None
    return TEXT[node.start : node.end], node.style


def test_each_value_is_found_where_it_is_written() -> None:
    assert written("model") == ('"m"', "scalar")
    assert written("servers", "a") == ("{x: 1, y: [1]}", "flow")
    assert written("servers", "a", "y") == ("[1]", "flow")
    assert written("servers", "b") == ("- one\n    -", "block")
    assert written("servers", "c") == ("|\n    text\n\n    more", "scalar")
    whole, style = written()
    assert style == "block" and whole == TEXT[len("# settings\n") : TEXT.index(" # nothing\n# end")]


def test_a_value_that_is_not_written_is_after_its_colon() -> None:
    node = scan_yaml(TEXT)
    assert node is not None and node.entries is not None
    servers = node.entries["servers"].value
    assert servers.has_properties and servers.entries is not None
    nothing = servers.entries["d"].value
    assert TEXT[: nothing.end].endswith("  d:") and nothing.start == nothing.end
    assert nothing.value is None


def test_positions_come_with_the_same_values_that_are_loaded() -> None:
    node = scan_yaml(TEXT)
    assert node is not None
    assert node.value == load_yaml(TEXT.replace("&all", ""))


def test_anchors_aliases_and_tags_are_accepted_where_only_positions_matter() -> None:
    node = scan_yaml("a: &x [1]\nb: *x\nc: !t 5\n1: null")
    assert isinstance(node, YamlNode) and node.entries is not None
    assert node.value == {"a": [1], "b": [1], "c": "5", "1": None}
    assert node.entries["b"].value.style == "alias"
    assert scan_yaml("# nothing") is None
