"""What a server asks while it works is put to the person at the terminal: the questions on stderr,
the answers from stdin.

Where there is no terminal nobody can be asked, and with `--yes` nobody is: then the answer is no,
or the defaults that the question came with, and a line on stderr says so. Pages are never visited
unseen.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .output import one_line, print_error
from .status_line import StatusLine

if TYPE_CHECKING:
    from ..client.callbacks import ElicitRequest
    from ..protocol.client_features import ElicitResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The option of every verb that a server may ask back."""
    parser.add_argument(
        "--yes",
        "--defaults",
        action="store_true",
        dest="defaults",
        help="answer questions with their defaults, unasked",
    )


def make_on_elicit(
    options: argparse.Namespace, aside: StatusLine
) -> "Callable[[ElicitRequest], Awaitable[ElicitResult]]":
    """The `on_elicit` of these options."""
    from msgspec.structs import replace

    from ..terminal.elicit import terminal_elicit
    from ..terminal.form_dialog import answer_unattended

    ask = terminal_elicit()
    alone = options.defaults or not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())

    async def elicit(request: "ElicitRequest") -> "ElicitResult":
        request = replace(
            request, target=options.server or options.target
        )  # as it was typed, not what was made of it
        with aside.paused():
            if not alone:
                return await ask(request)
            answer = answer_unattended(request, options.defaults)
            _report_unattended(request, answer, options.defaults)
            return answer

    return elicit


def _report_unattended(request: "ElicitRequest", answer: "ElicitResult", defaults: bool) -> None:
    if answer.action == "accept":
        told = "answered with the defaults"
    elif request.mode == "url":
        told = "declined: a page needs somebody at a terminal"
    elif defaults:
        told = "declined: it has fields without a default"
    else:
        told = "declined: no terminal; --yes answers with the defaults"
    print_error(f"{one_line(request.asked_by)} asks: {one_line(request.message)} ({told})")
