"""Files as resources: what is read, what is listed, and that there is no way out of a directory."""

import base64
import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dovetail import Audio
from dovetail.errors import ConfigError, NotFound, TooLarge
from dovetail.server import files
from dovetail.server.files import Directory, contents_of, mime_of, read_file

posix_only = pytest.mark.skipif(os.name == "nt", reason="pipes, modes and free links are of POSIX")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with something beside it that nobody may see."""
    root = tmp_path / "served"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "readme.md").write_text("# Hi")
    (root / "docs" / "a.txt").write_text("alpha")
    (root / "docs" / "deep" / "b.py").write_text("b = 1")
    (root / ".env").write_text("key")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("x")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "served-too").mkdir()
    (tmp_path / "served-too" / "secret.txt").write_text("secret")
    return root


# --------------------------------------------------------------------------------------------------
# files


def test_text_is_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "grüße.md"
    path.write_bytes("Grüße\r\n".encode())
    contents = read_file(path, "x://y")
    assert (contents.uri, contents.mime_type, contents.text, contents.blob) == (
        "x://y",
        "text/markdown",
        "Grüße\r\n",
        None,
    )


@pytest.mark.parametrize("data", [b"\xff\xfe", b"text\0", "ü".encode("latin-1"), "ü".encode()[:1]])
def test_what_is_not_text_is_read_as_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(data)
    contents = read_file(path, "x://y")
    assert contents.text is None
    assert contents.blob == base64.b64encode(data).decode()
    assert contents.data == data


def test_an_empty_file_is_empty_text(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert read_file(path, "x://y").text == ""


def test_the_type_can_be_given() -> None:
    assert contents_of(b"{}", "x://y", "application/json").mime_type == "application/json"


def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txt"
    path.write_text("12345")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 5)
    assert read_file(path, "x://y").text == "12345"
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 4)
    with pytest.raises(TooLarge, match=r"^x://y is larger than 4 bytes"):
        read_file(path, "x://y")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_that_hides_its_size_is_read_and_bounded_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "Pid:" in (read_file(Path("/proc/self/status"), "x://y").text or "")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    with pytest.raises(TooLarge):
        read_file(Path("/proc/self/status"), "x://y")


@pytest.mark.parametrize("name", ["missing.txt", "", "a\0b", "x" * 5000])
def test_a_file_that_cannot_be_read_is_not_found_and_its_path_not_told(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(NotFound) as caught:
        read_file(tmp_path / name, "x://y")
    assert str(caught.value) == "Resource not found: x://y"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.md", "text/markdown"),
        ("x.py", "text/x-python"),
        ("x.toml", "application/toml"),
        ("x.yaml", "application/yaml"),
        ("x.YML", "application/yaml"),
        ("x.ts", "text/typescript"),
        ("x.js", "text/javascript"),
        ("x.json", "application/json"),
        ("x.html", "text/html"),
        ("x.csv", "text/csv"),
        ("x.png", "image/png"),
        ("x.PDF", "application/pdf"),
        ("x.svg", "image/svg+xml"),
        ("x.tar.gz", "application/gzip"),
        ("data:text,x.zip", "application/zip"),
        ("x.unheard-of", "application/octet-stream"),
        ("Makefile", "application/octet-stream"),
    ],
)
def test_the_type_goes_by_the_name_also_where_there_is_no_file(name: str, kind: str) -> None:
    assert mime_of(Path("/nowhere") / name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.ogg", "audio/ogg"),
        ("x.oga", "audio/ogg"),
        ("x.opus", "audio/ogg"),
        ("x.FLAC", "audio/flac"),
        ("x.m4a", "audio/mp4"),
        ("x.wav", "audio/wav"),
        ("x.mp3", "audio/mpeg"),
        ("x.aac", "audio/aac"),
        ("x.aiff", "audio/aiff"),
        ("x.weba", "audio/webm"),
    ],
)
def test_audio_files_have_audio_types(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\0\1")
    assert Audio(path=path).content().mime_type == kind
    assert read_file(path, "x://y").mime_type == kind


def test_the_type_goes_by_content_where_the_name_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ü" * 4095 + "x")  # the first 4096 bytes end amid a character
    (tmp_path / "odd").write_text("x" + "ü" * 4095)
    (tmp_path / "bytes.unheard-of").write_bytes(b"\x00\x01")
    (tmp_path / "half").write_bytes("ü".encode()[:1])
    (tmp_path / "later").write_bytes(b"x" * 4095 + b"\0")
    assert mime_of(tmp_path / "text") == mime_of(tmp_path / "odd") == "text/plain"
    for name in ("bytes.unheard-of", "half", "later"):
        assert mime_of(tmp_path / name) == "application/octet-stream"
        assert read_file(tmp_path / name, "x://y").mime_type == "application/octet-stream"
    assert read_file(tmp_path / "odd", "x://y").mime_type == "text/plain"


# --------------------------------------------------------------------------------------------------
# a listing


def test_a_listing_has_the_path_and_status_of_each_file_in_order(root: Path) -> None:
    assert Directory(root).names() == ["docs/a.txt", "docs/deep/b.py", "readme.md"]
    assert [(name, status.st_size) for name, status in Directory(root).states()] == [
        ("docs/a.txt", 5),
        ("docs/deep/b.py", 5),
        ("readme.md", 4),
    ]


def test_hidden_files_are_listed_and_read_on_request_only(root: Path) -> None:
    names = Directory(root, hidden=True).names()
    assert names == [".env", ".git/config", "docs/a.txt", "docs/deep/b.py", "readme.md"]
    assert Directory(root, hidden=True).read(".git/config", "x://y").text == "x"
    for name in (".env", ".git/config", ".git"):
        with pytest.raises(NotFound):
            Directory(root).resolve(name, name)


def test_a_listing_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LISTED_FILES", 2)
    assert Directory(root).names() == ["docs/a.txt", "docs/deep/b.py"]


def test_a_listing_looks_at_a_bounded_number_of_entries(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MAX_SCANNED", 5)  # .env, .git, docs, readme.md; docs/a.txt
    assert Directory(root).names() == ["docs/a.txt", "readme.md"]


@posix_only
def test_what_cannot_be_read_is_not_listed(root: Path) -> None:
    os.mkfifo(root / "pipe")
    for name in ("back\\slash.txt", "a:b.txt", "end.", "nul.txt"):
        (root / name).touch()
    (root / os.fsdecode(b"\xff.txt")).touch()
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    (root / "out.txt").symlink_to(root.parent / "secret.txt")
    (root / "up").symlink_to(root.parent)
    (root / "round").symlink_to(root)
    (root / "in.txt").symlink_to("docs/a.txt")
    assert Directory(root).names() == ["docs/a.txt", "docs/deep/b.py", "in.txt", "readme.md"]
    assert {name: status.st_size for name, status in Directory(root).states()}["in.txt"] == 5


def test_all_that_is_listed_can_be_read(root: Path) -> None:
    directory = Directory(root, hidden=True)
    for name, status in directory.states():
        contents = directory.read(name, f"x://{name}")
        kind = mime_of(root / name)
        assert (len(contents.data), contents.mime_type) == (status.st_size, kind)
        assert contents.uri == f"x://{name}"


def test_a_directory_reads_as_the_uris_of_its_files(root: Path) -> None:
    (root / "docs" / "50% of it.txt").touch()
    contents = Directory(root).read("docs", "x://docs")
    assert contents.mime_type == "inode/directory"
    assert contents.text == "x://docs/50%25%20of%20it.txt\nx://docs/a.txt\nx://docs/deep/b.py"
    assert Directory(root).read("", "x://").text.splitlines()[-1] == "x://readme.md"


def test_a_root_that_is_no_directory_is_a_mistake(root: Path) -> None:
    for path in (root / "missing", root / "readme.md"):
        with pytest.raises(ConfigError, match="does not exist"):
            Directory(path)


# --------------------------------------------------------------------------------------------------
# no way out

DOTS = [
    "..",
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%252e%252e",
    "%25252e%25252e",
    "..%c0%af",
    "．．",
    ".. ",
    "...",
    "..;",
]
SLASHES = ["/", "\\", "%2f", "%5c", "%252F", "%255c"]
ELSEWHERE = [
    *(dots + slash + "secret.txt" for dots in DOTS for slash in SLASHES),
    *(
        "docs" + slash + dots + slash + dots + slash + "secret.txt"
        for dots in DOTS
        for slash in SLASHES
    ),
    *(f"docs/{dots}" for dots in DOTS),
    *DOTS,
    ".",
    "./readme.md",
    "docs/./a.txt",
    "docs/../readme.md",
    "../served/readme.md",
    "../served-too/secret.txt",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "docs//a.txt",
    "docs/",
    "%2fetc%2fpasswd",
    "~/x",
    "readme.md\0",
    "readme.md%00",
    "readme.md%2500.txt",
    "\0",
    "C:",
    "C:/Windows/win.ini",
    "c:readme.md",
    "C%3A/readme.md",
    "\\\\host\\share\\x",
    "//host/share/x",
    "\\\\?\\C:\\x",
    "readme.md:stream",
    "readme.md::$DATA",
    "readme.md.",
    "readme.md ",
    "readme.md%20",
    "docs./a.txt",
    "docs /a.txt",
    "CON",
    "nul",
    "docs/aux.txt",
    "COM1",
    "lpt9.log",
    "COM¹",
    "nul .txt",
    "CONIN$",
    "%25%32%35%25%32%35" * 3,
    "%" + "25" * 2000,
    "missing.txt",
    "readme.md/x",
    "docs/a.txt/..",
    "x" * 300,
    "x/" * 3000,
    "x" * 1_000_000,
    "\ud800",
    "file:///etc/passwd",
]


@pytest.mark.requirement("resources-traversal")
@pytest.mark.parametrize("name", ELSEWHERE, ids=lambda name: ascii(name[:40]))
def test_no_name_leads_out_and_no_error_tells_where_it_was(root: Path, name: str) -> None:
    directory = Directory(root, hidden=True)
    for attempt in (
        lambda: directory.resolve(name, name),
        lambda: directory.read(name, f"x://{name}"),
    ):
        with pytest.raises(NotFound) as caught:
            attempt()
        told = str(caught.value) + ascii(caught.value.data)
        assert str(root) not in told
        assert len(told) < 5000


@pytest.mark.parametrize("name", ["readme.md", "docs/a.txt", "docs/deep/b.py"])
def test_a_name_within_is_resolved(root: Path, name: str) -> None:
    assert Directory(root).resolve(name, name) == root / name


@pytest.mark.parametrize(
    "name", ["50%.txt", "100%25.txt", "a b.txt", "..a", "a..b", "ünï", "console.log", "com10", "~x"]
)
def test_odd_but_harmless_names_are_served(root: Path, name: str) -> None:
    (root / name).write_text("x")
    directory = Directory(root, hidden=True)
    assert directory.read(name, "x://y").text == "x"
    assert name in directory.names()


@posix_only
@pytest.mark.parametrize(
    "name",
    [
        "%2e%2e",
        "%252e%252e",
        "..%2fx",
        "a%5cb",
        "a%00b",
        "c%3a",
        "nul%2etxt",
        "end%20",
        "%2525252525",
    ],
)
def test_a_name_that_turns_harmful_when_decoded_is_not_served_even_if_it_is_that_of_a_file(
    root: Path, name: str
) -> None:
    (root / name).touch()
    with pytest.raises(NotFound):
        Directory(root, hidden=True).resolve(name, name)
    assert name not in Directory(root, hidden=True).names()


@given(
    name=st.lists(
        st.sampled_from(
            [
                "..",
                ".",
                "/",
                "\\",
                "%2e",
                "%2f",
                "%25",
                "docs",
                "a.txt",
                "secret.txt",
                "%5c",
                " ",
                ":",
            ]
        )
    )
)
def test_whatever_the_name_is_made_of_the_path_is_within(
    tmp_path_factory: pytest.TempPathFactory, name: list[str]
) -> None:
    base = tmp_path_factory.getbasetemp() / "within"
    (base / "served" / "docs").mkdir(parents=True, exist_ok=True)
    (base / "served" / "docs" / "a.txt").touch()
    (base / "secret.txt").touch()
    try:
        path = Directory(base / "served").resolve("".join(name), "x://y")
    except NotFound:
        return
    assert path.is_relative_to((base / "served").resolve())


@pytest.mark.requirement("resources-traversal")
@posix_only
def test_a_link_is_followed_within_and_never_out(root: Path) -> None:
    (root / "within.txt").symlink_to("docs/a.txt")
    (root / "below").symlink_to("docs/deep")
    (root / "around.txt").symlink_to(root.parent / "served" / "readme.md")
    (root / "secret.txt").symlink_to("../secret.txt")
    (root / "up").symlink_to("..")
    (root / "twice.txt").symlink_to("up/secret.txt")
    (root / "etc").symlink_to("/etc")
    (root / "loop").symlink_to("loop")
    directory = Directory(root)
    assert directory.read("within.txt", "x://y").text == "alpha"
    assert directory.read("below/b.py", "x://y").text == "b = 1"
    assert directory.read("around.txt", "x://y").text == "# Hi"
    for name in (
        "secret.txt",
        "up",
        "up/secret.txt",
        "up/served-too/secret.txt",
        "twice.txt",
        "etc/passwd",
        "loop",
        "loop/x",
    ):
        with pytest.raises(NotFound):
            directory.read(name, "x://y")


@posix_only
def test_a_link_must_lead_to_what_may_be_seen_itself(root: Path) -> None:
    (root / "public.md").symlink_to(".env")
    with pytest.raises(NotFound):
        Directory(root).resolve("public.md", "x://y")
    assert Directory(root, hidden=True).read("public.md", "x://y").text == "key"


def test_the_root_may_be_a_link_itself(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root, target_is_directory=True)
    assert Directory(link).read("docs/a.txt", "x://y").text == "alpha"


@posix_only
def test_pipes_sockets_and_devices_are_never_opened(root: Path) -> None:
    os.mkfifo(root / "pipe.txt")
    (root / "device").symlink_to("/dev/zero")
    directory = Directory(root)
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.getcwd()
        os.chdir(root)  # the path of a socket is bounded
        try:
            listener.bind("socket")
        finally:
            os.chdir(before)
        for name in ("pipe.txt", "socket", "device"):
            with pytest.raises(NotFound):
                directory.resolve(name, name)
            with pytest.raises(NotFound):
                read_file(root / name, "x://y")
            assert mime_of(root / name) in ("text/plain", "application/octet-stream")


@posix_only
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_not_found(root: Path) -> None:
    (root / "readme.md").chmod(0)
    with pytest.raises(NotFound):
        Directory(root).read("readme.md", "x://y")


def test_a_file_over_the_limit_is_refused_by_its_uri(root: Path) -> None:
    with pytest.raises(TooLarge, match=r"^x://y is larger than 3 bytes"):
        Directory(root, limit=3).read("readme.md", "x://y")


# Between resolving and opening: each exchange is made after the path was resolved.
EXCHANGES = {
    "the file for a link": lambda root: (
        (root / "docs/a.txt").unlink(),
        (root / "docs/a.txt").symlink_to(root.parent / "secret.txt"),
    ),
    "the file for a link within": lambda root: (
        (root / "docs/a.txt").unlink(),
        (root / "docs/a.txt").symlink_to(root / ".env"),
    ),
    "the directory for a link": lambda root: (
        (root / "docs").rename(root.parent / "docs"),
        (root.parent / "a.txt").write_text("secret"),
        (root / "docs").symlink_to(root.parent),
    ),
    "the file for a pipe": lambda root: (
        (root / "docs/a.txt").unlink(),
        os.mkfifo(root / "docs/a.txt"),
    ),
    "the file for nothing": lambda root: ((root / "docs/a.txt").unlink(),),
    "the file for a directory": lambda root: (
        (root / "docs/a.txt").unlink(),
        (root / "docs/a.txt").mkdir(),
    ),
}


@posix_only
@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_what_was_exchanged_after_it_was_resolved_is_not_read(
    root: Path, exchange: str, stepwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_STEPWISE", stepwise)
    path = Directory(root).resolve("docs/a.txt", "x://y")
    EXCHANGES[exchange](root)
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else []
    with pytest.raises(NotFound):
        descriptor = files._open_below(root.resolve(), path, "x://y")
        files._read_bytes(descriptor, "x://y", 100)
    after = os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else []
    assert len(after) == len(before)


@pytest.mark.parametrize("stepwise", [True, False])
def test_both_ways_of_opening_read_the_same(
    root: Path, stepwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stepwise and not files._STEPWISE:
        pytest.skip("not on this system")
    monkeypatch.setattr(files, "_STEPWISE", stepwise)
    assert Directory(root).read("docs/deep/b.py", "x://y").text == "b = 1"


@pytest.mark.bare_interpreter
def test_the_table_of_types_is_loaded_when_it_is_needed() -> None:
    import subprocess

    code = (
        "import sys, dovetail.server.files; assert not {'mimetypes', 'base64'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
