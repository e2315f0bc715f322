"""The YAML loader, beyond what tests/extensions/test_frontmatter.py says of it."""

import subprocess
import sys

import pytest

from dovetail.yaml_loader import YamlError, load_yaml


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


def test_the_parser_is_loaded_when_it_is_needed_and_its_absence_is_explained() -> None:
    code = (
        "import sys, dovetail.yaml_loader, dovetail.errors\n"
        "assert 'ruamel.yaml' not in sys.modules; sys.modules['ruamel.yaml'] = None\n"
        "try: dovetail.yaml_loader.load_yaml('a: 1')\n"
        "except dovetail.errors.ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'dovetail-mcp[skills]'" in done.stdout
