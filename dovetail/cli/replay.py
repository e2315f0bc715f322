"""`dovetail replay FILE TARGET`: send a recording to a server again, and show what differs."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from .options import add_connect_options, add_timeout_option, parse_target
from .output import AlreadyPrinted, StatusLine, bold, print_error, print_json, print_line
from .session import connect_options, explained_refusals

if TYPE_CHECKING:
    from ..client.recording import Recording
    from ..client.recording.replay import Difference, ReplayReport

MAX_VALUE_CHARS = 300
"""How much of a value is shown. `--json` shows all of it."""


class ReplayDiffers(AlreadyPrinted):
    """The server behaves differently, or the replay ended early; the differences were printed."""


def add_replay_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the recording (.mcplog)")
    add_connect_options(parser)
    add_timeout_option(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        help="compare everything, including ids, times, tokens and all progress",
    )


def run_replay(options: Namespace) -> None:
    """Replay the recording, and print the differences."""
    import asyncio

    from ..client.recording import read_mcplog

    recording = read_mcplog(options.file)
    if recording.note is not None:
        print_error(f"dovetail: {recording.note}")
    report = asyncio.run(_replay(recording, options))
    _show(report, options)


async def _replay(recording: "Recording", options: Namespace) -> "ReplayReport":
    from ..client.recording.replay import TIMEOUT_SECONDS, replay
    from ..client.targets import resolve_target
    from ..masking import mask_message

    settings = connect_options(options, StatusLine(options).on_stderr)
    target = resolve_target(parse_target(options), settings)
    with explained_refusals(options):
        return await replay(
            recording,
            target.open,
            strict=options.strict,
            timeout=options.timeout or TIMEOUT_SECONDS,
            mask=mask_message,
        )


def _show(report: "ReplayReport", options: Namespace) -> None:
    if options.json:
        print_json(_to_document(report))
    else:
        for difference in report.differences:
            _print_difference(difference)
    count = len(report.differences)
    found = f"{count} difference{'s' if count != 1 else ''}"
    if report.problem is not None:
        raise ReplayDiffers(f"{report.problem} ({found} before that)")
    if count:
        raise ReplayDiffers(f"{found} in {report.compared} messages of the server")
    if not options.json:
        print_line(f"No differences in {report.compared} messages of the server")


def _print_difference(difference: "Difference") -> None:
    where = "not in the recording" if difference.line is None else f"line {difference.line}"
    print_line(bold(difference.message), f" ({where})", f" {difference.path}".rstrip())
    print_line("  - ", _shorten(difference.recorded))
    print_line("  + ", _shorten(difference.replayed))


def _shorten(value: Any) -> str:
    import json

    from msgspec import UNSET

    text = "(nothing)" if value is UNSET else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


def _to_document(report: "ReplayReport") -> dict[str, Any]:
    import msgspec

    return {
        "compared": report.compared,
        "differences": [msgspec.to_builtins(each) for each in report.differences],
        "problem": report.problem,
    }
