"""The page's files: where its libraries come from, that sdist and wheel have them, and that our own
files need nothing that the page's policy forbids."""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hatch_build import ROOT, STATIC, find_lacking, read_rows
from tests.system import needs_vendor

MAX_GROWTH_BYTES = 120 * 1024
VENDOR = f"{STATIC}/vendor"
TOP_FILES = [
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "hatch_build.py",
    "pyproject.toml",
]
SAVED = {f"{VENDOR}/{row['saved_as']}": row for row in read_rows(ROOT)}
FORBIDDEN = {
    "innerHTML": r"innerHTML|outerHTML|insertAdjacentHTML",
    "eval": r"\beval\s*\(",
    "new Function": r"\bFunction\s*\(",
    "an inline handler": r"""(?<![\w$.-])on[a-z]+\s*=\s*["']""",
    "a foreign URL": r"//(?!127\.0\.0\.1|example\.com)(?=[\w-]+\.[\w-])",
}


def checkout(folder: Path) -> Path:
    """Copy what a build reads, without the fetched libraries."""
    folder.mkdir()
    for name in TOP_FILES:
        shutil.copy(ROOT / name, folder / name)
    ignored = shutil.ignore_patterns("vendor", "__pycache__")
    shutil.copytree(ROOT / "dovetail", folder / "dovetail", ignore=ignored)
    return folder


def build(source: Path, target: str, path: Path) -> "subprocess.CompletedProcess[str]":
    """Build with hatchling, with only the programs of one folder on PATH."""
    path.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target],
        cwd=source,
        env={**os.environ, "PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def built(source: Path, pattern: str) -> Path:
    (found,) = (source / "dist").glob(pattern)
    return found


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def fake_npm(folder: Path, text: str) -> None:
    """Put an `npm` into a folder that runs a few lines of Python."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
    (folder / "npm").chmod(stat.S_IRWXU)


@needs_vendor
def test_the_fetched_files_are_those_that_vendor_json_names() -> None:
    for path, row in SAVED.items():
        assert hashlib.sha512((ROOT / path).read_bytes()).hexdigest() == row["sha512"], path


def test_each_library_comes_with_its_licence() -> None:
    files: dict[str, list[str]] = {}
    for row in SAVED.values():
        files.setdefault(row["name"], []).append(row["file"])
    assert sorted(files) == ["@preact/signals", "@preact/signals-core", "htm", "preact"]
    assert all("LICENSE" in of_package for of_package in files.values())


def test_git_ignores_the_fetched_files() -> None:
    assert f"{VENDOR}/" in (ROOT / ".gitignore").read_text().splitlines()


@needs_vendor
def test_a_wheel_from_the_sdist_has_the_page_without_npm(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    shutil.copytree(ROOT / VENDOR, source / VENDOR)
    assert build(source, "sdist", tmp_path / "nothing").returncode == 0
    with tarfile.open(built(source, "*.tar.gz")) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    done = build(unpacked, "wheel", tmp_path / "nothing")
    assert done.returncode == 0 and "npm" not in done.stderr, done.stderr
    wheel = built(unpacked, "*.whl")
    assert names_in(wheel) >= {*SAVED, f"{STATIC}/vendor.json"}
    assert find_lacking(wheel) == []
    with zipfile.ZipFile(wheel) as files:
        sizes = [
            one.compress_size for one in files.infolist() if one.filename.startswith(f"{STATIC}/")
        ]
    assert sum(sizes) <= MAX_GROWTH_BYTES


@pytest.mark.skipif(sys.platform == "win32", reason="the fake npm is a script with a #! line")
@pytest.mark.parametrize(
    ("npm", "problem"),
    [
        (None, "npm is not installed"),
        (
            "sys.exit('npm error request to https://registry.invalid/htm failed\\nENOTFOUND')",
            "ENOTFOUND",
        ),
    ],
    ids=["without npm", "without its registry"],
)
def test_a_checkout_without_the_libraries_warns_and_builds(
    tmp_path: Path, npm: str | None, problem: str
) -> None:
    source = checkout(tmp_path / "checkout")
    if npm is not None:
        fake_npm(tmp_path / "bin", npm)
    done = build(source, "wheel", tmp_path / "bin")
    assert done.returncode == 0, done.stderr
    assert problem in done.stderr + done.stdout
    assert "run: python hatch_build.py" in done.stderr + done.stdout
    assert "registry.invalid" not in done.stderr + done.stdout
    wheel = built(source, "*.whl")
    assert "dovetail/cli/main.py" in names_in(wheel)
    assert find_lacking(wheel) == [*SAVED]


@pytest.mark.skipif(sys.platform == "win32", reason="the fake npm is a script with a #! line")
def test_a_published_file_with_the_wrong_hash_fails_the_build(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    fake_npm(
        tmp_path / "bin",
        "import io, tarfile\n"
        "(folder,) = [one[19:] for one in sys.argv if one.startswith('--pack-destination=')]\n"
        f"rows = {list(SAVED.values())!r}\n"
        "for name, version in {(row['name'], row['version']) for row in rows}:\n"
        "    saved = name.lstrip('@').replace('/', '-') + '-' + version\n"
        "    with tarfile.open(f'{folder}/{saved}.tgz', 'w:gz') as tar:\n"
        "        for row in rows:\n"
        "            tar.addfile(tarfile.TarInfo('package/' + row['file']), io.BytesIO())\n",
    )
    done = build(source, "wheel", tmp_path / "bin")
    assert done.returncode != 0
    assert "does not have the SHA-512 that vendor.json gives it" in done.stderr + done.stdout
    assert not (source / VENDOR).exists() and not [*(source / "dist").glob("*.whl")]


@needs_vendor
def test_an_altered_file_fails_a_build_that_cannot_fetch_it_again(tmp_path: Path) -> None:
    source = checkout(tmp_path / "checkout")
    shutil.copytree(ROOT / VENDOR, source / VENDOR)
    with (source / VENDOR / "htm.mjs").open("a") as file:
        file.write("//")
    done = build(source, "wheel", tmp_path / "nothing")
    assert done.returncode != 0
    assert "htm.mjs does not have the SHA-512" in done.stderr + done.stdout


@needs_vendor
def test_nothing_is_fetched_if_all_is_there(tmp_path: Path) -> None:
    fake_npm(tmp_path / "bin", "raise SystemExit('fetched')")
    command = [sys.executable, str(ROOT / "hatch_build.py")]
    done = subprocess.run(command, env={**os.environ, "PATH": str(tmp_path / "bin")}, timeout=60)
    assert done.returncode == 0


def test_the_release_checks_that_its_wheel_has_every_library(tmp_path: Path) -> None:
    release = (ROOT / ".github/workflows/release.yml").read_text()
    assert release.index("run: make assets") < release.index("run: pipx run build")
    assert "run: python hatch_build.py --check dist/*.whl" in release
    wheel = tmp_path / "empty.whl"
    zipfile.ZipFile(wheel, "w").close()
    command = [sys.executable, str(ROOT / "hatch_build.py"), "--check", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "preact.mjs" in done.stderr


def static_files() -> list[Path]:
    return sorted(
        path
        for path in (ROOT / STATIC).rglob("*")
        if path.is_file() and "vendor" not in path.relative_to(ROOT / STATIC).parts
    )


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_of_the_page_contains(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in static_files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(FORBIDDEN[what], line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("node.innerHTML = text;", "innerHTML"),
        ("eval(text)", "eval"),
        ("new Function('return 1')", "new Function"),
        ('<button onclick="go()">', "an inline handler"),
        ('<script src="https://cdn.example.com/x.js"></script>', "a foreign URL"),
        ("@import url(//fonts.example.com/a.css);", "a foreign URL"),
    ],
)
def test_what_is_forbidden_is_recognised(line: str, what: str) -> None:
    assert re.search(FORBIDDEN[what], line)


@pytest.mark.parametrize(
    "line",
    [
        "html`<button onClick=${go}>`",
        "button.onclick = go; // go away",
        "const evaluate = (text) => check(text);",
        "function Function_() {}",
        "const url = `http://127.0.0.1:${port}/`;",
        'const samples = { uri: "https://example.com/" };',
        "if (/^https?:\\/\\//.test(text)) open(text);",
    ],
)
def test_what_is_allowed_passes(line: str) -> None:
    assert [what for what, pattern in FORBIDDEN.items() if re.search(pattern, line)] == []


def test_vendor_json_names_no_address() -> None:
    text = (ROOT / STATIC / "vendor.json").read_text()
    assert "://" not in text and json.loads(text)
