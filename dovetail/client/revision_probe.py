"""Find out in which revisions a server answers.

A server of the stateless era lists its revisions in its answer to `server/discover`. If there is no
such answer, or if it lists no revision of the handshake era, each of those revisions is tried:
`initialize` is sent on a new connection, which is closed again at once. A server that is started by
a command is then started once for each of them. The client's own connection is not used, except for
what it has already discovered.
"""

import asyncio
from collections.abc import Sequence

from ..errors import DovetailError, Unauthorized
from ..revisions import ALL, BY_NAME, DRAFT_DIALECT, HANDSHAKE, OFFICIAL, Revision
from .reconnect import Connector

Found = frozenset[Revision]


async def find_revisions(
    connector: Connector, *, draft: bool, timeout: float | None, probe: bool
) -> list[str]:
    """Return the names of the revisions in which a server answers, newest first. Raise the reason
    if it does not answer at all. Without `probe`, return nothing unless all of it is known."""
    seconds = connector.open_timeout if timeout is None else timeout
    if not connector.target.can_reopen and probe:
        await connector.get_session(seconds)
    found = _known_from(connector)
    if not probe:
        found = found if _is_complete(found, connector) else frozenset()
    elif connector.target.can_reopen:
        if not found:
            found = await _probe(connector, OFFICIAL, seconds)
        if not _is_complete(found, connector):
            found |= await _try_each(connector, [r for r in HANDSHAKE if r not in found], seconds)
        if draft and DRAFT_DIALECT not in found:
            found |= await _try_each(connector, [DRAFT_DIALECT], seconds)
    wanted = ALL if draft else OFFICIAL
    return [revision.name for revision in reversed(wanted) if revision in found]


def _is_complete(found: Found, connector: Connector) -> bool:
    """Return whether the server has listed revisions of both eras, or nothing more can be known."""
    has_both = not found.isdisjoint(HANDSHAKE) and any(one.stateless for one in found)
    return has_both or not connector.target.can_reopen


def _known_from(connector: Connector) -> Found:
    """Return what the session of a connector has discovered. If it cannot be opened again, its own
    revision is all that can be known of a server that lists none."""
    session = connector.session
    if session is None:
        return frozenset()
    listed = frozenset(BY_NAME[name] for name in session.supported_versions if name in BY_NAME)
    is_only_source = not connector.target.can_reopen
    return listed | {session.agreed_revision} if listed or is_only_source else listed


async def _try_each(connector: Connector, revisions: Sequence[Revision], seconds: float) -> Found:
    """Return those of the revisions in which the server answers."""

    async def attempt(revision: Revision) -> Found:
        try:
            return await _probe(connector, (revision,), seconds)
        except Unauthorized:
            raise
        except DovetailError:
            return frozenset()

    return frozenset().union(*await asyncio.gather(*map(attempt, revisions)))


async def _probe(connector: Connector, revisions: tuple[Revision, ...], seconds: float) -> Found:
    """Open a connection of its own in one of these revisions, and return what is known then."""
    probe = connector.for_revisions(revisions, seconds)
    try:
        session = await probe.get_session()
        return _known_from(probe) | {session.agreed_revision}
    finally:
        await probe.close()
