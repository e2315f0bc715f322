"""A ready-made `on_elicit` for a person at a terminal: `Client(target,
on_elicit=terminal_elicit())`.

`form_dialog.py` contains the dialogs, and `run_dialog.py` performs their I/O. Questions are shown
one at a time. Ctrl-C cancels the open question. A page is opened only after the user agrees, and
nothing is fetched before that. The answer is sent when the user returns from the page. Without a
terminal, a question is declined, or a form is answered with its defaults.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TextIO

from ..net import open_in_browser
from ..protocol.client_features import ElicitResult
from .form_dialog import Dialog, answer_unattended, elicit_dialog, return_dialog
from .run_dialog import Interrupted, is_terminal, run_dialog, terminal_turn, write

if TYPE_CHECKING:
    from ..client.callbacks import ElicitRequest


def terminal_elicit(
    stream_in: TextIO | None = None,
    stream_out: TextIO | None = None,
    *,
    defaults: bool = False,
    open_url: Callable[[str], Any] | None = None,
) -> "Callable[[ElicitRequest], Awaitable[ElicitResult]]":
    """Return an `on_elicit` callback that asks the person at the terminal.

    Args:
        stream_in: The stream from which answers are read (default: stdin).
        stream_out: The stream on which questions are shown (default: stderr).
        defaults: Whether to accept a form with its defaults if there is no terminal. If False, the
            form is declined.
        open_url: A function that opens a page and returns False if it fails (default: open the
            system's browser).
    """

    async def elicit(request: "ElicitRequest") -> ElicitResult:
        source, screen = stream_in or sys.stdin, stream_out or sys.stderr
        if not (is_terminal(source) and is_terminal(screen)):
            return answer_unattended(request, defaults)
        async with terminal_turn():
            answer = await _ask(elicit_dialog(request), source, screen)
            if request.mode == "url" and answer.action == "accept":
                opened = await asyncio.to_thread(open_url or open_in_browser, request.url or "")
                if opened is False:
                    write(screen, "Could not open a browser. Open the URL yourself.\n")
                answer = await _ask(return_dialog(), source, screen)
        return answer

    return elicit


async def _ask(dialog: Dialog, source: TextIO, screen: TextIO) -> ElicitResult:
    try:
        return await run_dialog(dialog, source, screen)
    except Interrupted:
        return ElicitResult(action="cancel")
