"""`dovetail init`: names that cannot work, and lines that one can paste."""

from pathlib import Path

import pytest

from tests.cli.conftest import dovetail


@pytest.mark.parametrize("name", ["pytest", "msgspec", "jsonschema-rs", "dovetail-mcp", "asyncio"])
def test_a_name_that_hides_a_package_of_the_project_is_refused(tmp_path: Path, name: str) -> None:
    done = dovetail("init", name, cwd=tmp_path)
    assert done.code == 2
    assert "Choose another" in done.failure
    assert not (tmp_path / name).exists()


def test_a_name_starts_with_a_letter(tmp_path: Path) -> None:
    assert "start with a letter" in dovetail("init", "3d", cwd=tmp_path).failure


def test_a_folder_with_a_space_is_quoted(tmp_path: Path) -> None:
    done = dovetail("init", "my weather", cwd=tmp_path)
    assert "  cd 'my weather'\n" in done.out
    assert (tmp_path / "my weather" / "my_weather.py").is_file()
