"""Recordings: what is written when, and what is read from a file that somebody else has made."""

import errno
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Struct

import dovetail
from dovetail import mcplog
from dovetail.errors import ConfigError
from dovetail.mcplog import McplogWriter, WireEvent, hide_secrets, new_recording_path, read_mcplog
from dovetail.ports import AuthStep, HttpRequest, HttpResponse

HEADER = '{"mcplog":1,"target":"server.py"}\n'
PING = '{"kind":"wire","at":0.5,"direction":"to_server","message":"{}"}\n'

posix = pytest.mark.skipif(sys.platform == "win32", reason="file modes as POSIX has them")


class Exchange(Struct, frozen=True):
    method: str
    headers: tuple[tuple[str, str], ...] = ()


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def create(tmp_path: Path) -> Path:
    with McplogWriter(tmp_path / "night.mcplog", "server.py") as writer:
        return writer.path


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "given.mcplog"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_each_event_is_in_the_file_as_soon_as_it_happens(tmp_path: Path) -> None:
    path = tmp_path / "night.mcplog"
    with McplogWriter(path, ["uvx", "weather"], "some-revision") as writer:
        (header,) = lines_of(path)
        writer.message("to_server", b'{"id": 1}', time.time() + 5)
        assert lines_of(path)[1].items() >= {"kind": "wire", "message": '{"id": 1}'}.items()
        assert 4 < lines_of(path)[1]["at"] < 60
        writer.message("to_client", b"\xff\xfe", time.time())
        assert lines_of(path)[2]["base64"] == "//4=" and "message" not in lines_of(path)[2]
    assert header["mcplog"] == 1 and header["dovetail"] == dovetail.__version__
    assert header["revision"] == "some-revision" and header["target"] == ["uvx", "weather"]
    assert time.strptime(header["started"], "%Y-%m-%dT%H:%M:%S.%fZ")


def test_http_and_logins_are_written_too_and_can_be_read_again(tmp_path: Path) -> None:
    with McplogWriter(tmp_path / "night.mcplog", "https://example.com/mcp") as writer:
        writer.exchange(Exchange("POST", (("accept", "*/*"),)))
        writer.auth_step(Exchange("GET"))
        writer.lost(Exchange("DELETE"))
    http, auth, lost = read_mcplog(writer.path).events
    assert isinstance(http, mcplog.HttpEvent)
    assert http.exchange == {"method": "POST", "headers": [["accept", "*/*"]]}
    assert isinstance(auth, mcplog.AuthEvent) and auth.step["method"] == "GET"
    assert isinstance(lost, mcplog.LostEvent) and lost.lost["method"] == "DELETE"


@pytest.mark.parametrize("body", [b'{"issuer": "\xc3\xa9"}', b"\xff\xfe", b""])
def test_the_bodies_of_a_login_are_text_if_they_can_be(tmp_path: Path, body: bytes) -> None:
    step = AuthStep(
        name="token", request=HttpRequest(method="POST", url="https://x/", body=b"grant=code"),
        reply=HttpResponse(status=200, body=body), started=1.0, ended=2.0,
    )  # fmt: skip
    with McplogWriter(tmp_path / "night.mcplog", "https://example.com/mcp") as writer:
        writer.auth_step(step)
    (event,) = read_mcplog(writer.path).events
    assert isinstance(event, mcplog.AuthEvent)
    assert event.step["request"]["text"] == "grant=code"
    assert ("text" in event.step["reply"]) is body.startswith(b"{")
    assert mcplog.to_auth_step(event) == step


@given(st.lists(st.tuples(st.sampled_from(["to_server", "to_client"]), st.binary() | st.text())))
def test_messages_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[Any, bytes | str]]
) -> None:
    messages = [
        (direction, data if isinstance(data, bytes) else data.encode("utf-8", "replace"))
        for direction, data in sent
    ]
    with McplogWriter(tmp_path_factory.mktemp("given") / "a.mcplog", "server.py") as writer:
        for direction, data in messages:
            writer.message(direction, data, time.time())
    recording = read_mcplog(writer.path)
    assert [(event.direction, event.data) for event in recording.wire()] == messages
    assert recording.note is None


@posix
def test_only_the_owner_may_read_a_recording(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = create(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "night.mcplog").write_text("precious")
    assert [create(tmp_path).name for _ in range(2)] == ["night-2.mcplog", "night-3.mcplog"]
    assert (tmp_path / "night.mcplog").read_text() == "precious"


@posix
def test_a_link_that_somebody_has_laid_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "night.mcplog").symlink_to(tmp_path / "elsewhere")
    assert create(tmp_path).name == "night-2.mcplog"
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"night\.mcplog cannot be created: No such file"):
        McplogWriter(tmp_path / "no" / "night.mcplog", "server.py")


def test_a_recording_without_a_name_is_kept_from_git_and_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = new_recording_path()
    assert path.parent == Path(".dovetail/recordings") and path.suffix == ".mcplog"
    assert (path.parent / ".gitignore").read_text() == "*\n"
    if sys.platform != "win32":
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.parent.chmod(0o755)
        new_recording_path()
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_folder_for_recordings_may_be_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dovetail").write_text("a file")
    with pytest.raises(ConfigError, match="Name a file for the recording"):
        new_recording_path()


def test_a_full_disk_ends_the_recording_but_not_the_session(tmp_path: Path) -> None:
    problems: list[str] = []
    writer = McplogWriter(tmp_path / "night.mcplog", "server.py", on_problem=problems.append)
    writer.message("to_server", b"{}", time.time())

    class Full:
        closed = False

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            self.closed = True

    writer._file.close()
    writer._file = Full()  # type: ignore[assignment]
    writer.message("to_server", b"{}", time.time())
    writer.message("to_server", b"{}", time.time())
    assert problems == [writer.problem]
    assert problems[0].endswith("the recording ends here: No space left on device")
    assert len(read_mcplog(writer.path).events) == 1


def test_after_closing_nothing_is_written(tmp_path: Path) -> None:
    with McplogWriter(tmp_path / "night.mcplog", "server.py") as writer:
        pass
    writer.message("to_server", b"{}", time.time())
    assert read_mcplog(writer.path).events == []


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("server.py", "server.py"),
        (["uvx", "weather", "--units", "metric"], ["uvx", "weather", "--units", "metric"]),
        (["uvx", "weather", "--token", "s3cret"], ["uvx", "weather", "--token", "***"]),
        ("https://me:pw@example.com/mcp?key=s3cret#s3cret", "https://example.com/mcp"),
        ("https://example.com/mcp#s3cret", "https://example.com/mcp"),
    ],
)
def test_the_header_names_the_target_without_secrets(
    tmp_path: Path, target: str | list[str], shown: str | list[str]
) -> None:
    assert hide_secrets(target) == shown
    with McplogWriter(tmp_path / "night.mcplog", target) as writer:
        assert read_mcplog(writer.path).header.target == shown


def test_messages_are_masked_before_they_are_written(tmp_path: Path) -> None:
    with McplogWriter(tmp_path / "night.mcplog", "server.py") as writer:
        writer.message("to_server", b'{"password": "s3cret", "city": "Oslo"}', time.time())
    assert read_mcplog(writer.path).wire()[0].data == b'{"password": "***", "city": "Oslo"}'


@pytest.mark.parametrize("cut", range(1, len(PING) - 1))
def test_a_file_that_is_cut_in_a_line_is_read_up_to_there(tmp_path: Path, cut: int) -> None:
    recording = read_mcplog(written(tmp_path, HEADER + PING + PING[:cut]))
    assert len(recording.events) == 1
    assert recording.note is not None
    assert recording.note.endswith("ends in the middle of line 3. It was read up to there.")


def test_a_last_line_that_only_lacks_its_newline_is_complete(tmp_path: Path) -> None:
    recording = read_mcplog(written(tmp_path, HEADER + PING.strip()))
    assert recording.note is None
    assert recording.events == [WireEvent(0.5, "to_server", "{}")]


def test_another_version_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"of version 2, and this Dovetail reads version 1") as at:
        read_mcplog(written(tmp_path, '{"mcplog":2,"target":{"new":"shape"}}\n'))
    assert "\n" not in str(at.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "{}\n", "[]\n", "hello\n", b"\xff\n", "[" * 100_000),
        *('{"mcplog":', '{"mcplog":"1"}\n', '{"mcplog":1,"target":3}\n'),
    ],
)
def test_a_file_that_is_not_a_recording_is_refused(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(ConfigError, match="is not a recording: its first line") as caught:
        read_mcplog(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hello", "malformed"),
        ("", "truncated"),
        ("{}", "missing required field `kind`"),
        ('{"kind":"rm -rf","at":1}', "Invalid value 'rm -rf'"),
        ('{"kind":"wire","at":1,"direction":"up","message":""}', "Invalid enum value 'up'"),
        ('{"kind":"wire","at":-1,"direction":"to_server","message":""}', "`float` >= 0"),
        ('{"kind":"wire","at":1e400,"direction":"to_server","message":""}', "range"),
        ('{"kind":"wire","at":1,"direction":"to_server"}', "either `message` or `base64`"),
        ('{"kind":"wire","at":1,"direction":"to_server","message":"","base64":""}', "either"),
        ('{"kind":"wire","at":1,"direction":"to_server","base64":"%%"}', "base64"),
        ('{"kind":"http","at":1,"exchange":[]}', "Expected `object`"),
        ('{"kind":"http","at":1,"exchange":' + "[" * 100_000, "nest"),
        ("\x1b]0;title\x07", "malformed"),
    ],
)
def test_a_line_that_is_not_an_event_is_named(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(ConfigError, match=r"given\.mcplog, line 3 is not an event") as caught:
        read_mcplog(written(tmp_path, f"{HEADER}{PING}{line}\n{PING}"))
    assert why in str(caught.value) or why == "nest"
    assert str(caught.value).isprintable()


@given(st.binary())
def test_no_file_raises_any_other_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("given") / "a.mcplog"
    path.write_bytes(HEADER.encode() + data)
    try:
        read_mcplog(path)
    except ConfigError as error:
        assert "\n" not in str(error)


def test_a_line_without_an_end_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcplog, "MAX_LINE_BYTES", 1024 * 1024)
    path = written(tmp_path, HEADER + " " * (2 * 1024 * 1024))
    with pytest.raises(ConfigError, match="line 2 is longer than 1 MiB"):
        read_mcplog(path)
    monkeypatch.setattr(mcplog, "MAX_FILE_BYTES", 1024 * 1024)
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        read_mcplog(written(tmp_path, HEADER + PING * 20_000))


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.mcplog cannot be read: No such file"):
        read_mcplog(tmp_path / "none.mcplog")
