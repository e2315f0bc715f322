"""The revisions in which the target answers.

A server of the stateless era lists them, so they are known as soon as it is open. Otherwise each
revision has to be tried, for which a command is started up to five times. That happens only when
the user is about to choose a revision. A comparison in all revisions shows the same.
"""

from typing import TYPE_CHECKING

from ..errors import DovetailError
from ..logs import get_logger
from ..revisions import OFFICIAL

if TYPE_CHECKING:
    from .. import Client
    from .state import InspectorState

log = get_logger("inspector")

PROBE_SECONDS = 15.0
"""How long the server may take to answer in a revision."""


class KnownRevisions:
    """The revisions in which the target answers, newest first: all official ones, until it is known
    which of them it uses.

    Args:
        state: The inspector.
    """

    def __init__(self, state: "InspectorState") -> None:
        self._state = state
        self.names = [revision.name for revision in reversed(OFFICIAL)]
        self._is_known = self._is_trying = False

    def set(self, names: list[str]) -> None:
        """Remember the revisions, and tell the page."""
        self._is_known = True
        if names != self.names:
            self.names = names
            self._state.report_changed("revisions", names)

    async def read_listed(self, client: "Client") -> None:
        """Remember what the server lists, if it lists its revisions. This sends nothing."""
        if names := await client.revisions(probe=False):
            self.set(names)

    def find(self) -> None:
        """Start to find out which revisions the server uses, unless that is known."""
        session = self._state.session
        if self._is_known or self._is_trying or session is None or session.client is None:
            return
        self._is_trying = True
        self._state.tasks.start(self._try_all(session.client))

    async def _try_all(self, client: "Client") -> None:
        try:
            self.set(await client.revisions(timeout=PROBE_SECONDS))
        except DovetailError as problem:
            log.debug("The revisions of the server are not known: %s", problem)
        finally:
            self._is_trying = False
