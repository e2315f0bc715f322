"""Find out which revision a server speaks, and open the session in it.

The probe is `server/discover`. A result or a version error means that the server is stateless;
*any* other error, regardless of its code, means that the server expects `initialize`.

**Silence** proves nothing, because the server may still be starting. After `probe_timeout`, the
client sends `initialize` on the same channel and waits for both answers. The probe's result wins if
it arrives before the answer to `initialize` or shortly after it, because a server that reads both
requests together may answer them in any order. If the server dies, the caller restarts it and sends
only `initialize`, unless the server has not even read the probe.
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#backward-compatibility
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ..errors import (
    ConnectionClosed,
    DovetailError,
    HeaderMismatch,
    InvalidRequest,
    MissingCapability,
    NoCommonRevision,
    Overloaded,
    ProtocolError,
    TimedOut,
    UnsupportedVersion,
)
from ..logs import get_logger
from ..ports import HTTP
from ..protocol.base import Params
from ..protocol.lifecycle import DiscoverResult, InitializeResult
from ..protocol.methods import METHODS
from ..revisions import (
    BY_NAME,
    DRAFT_DIALECT,
    HANDSHAKE,
    STATELESS,
    Revision,
    decode,
    error_from_wire,
)
from . import handshake
from .connection import PeerError

if TYPE_CHECKING:
    from .client_session import ClientSession

log = get_logger("connection")

MODERN = {HeaderMismatch.code, MissingCapability.code, UnsupportedVersion.code, Overloaded.code}
"""The errors that only a stateless server sends, or that say nothing about the era."""
PROBE_GRACE_SECONDS = 0.8
"""How long to wait for the probe's result after the answer to `initialize`."""
Discovery = tuple[Revision, DiscoverResult]
"""The revision agreed on through discovery, and the server's answer."""


class ProbeFailed(DovetailError):
    """The era probe got no answer, and `initialize` needs a new connection.

    Args:
        message: What happened.
        died: Whether the server exited because of the probe, which shows that it uses the
            handshake.
    """

    def __init__(self, message: str, *, died: bool) -> None:
        super().__init__(message)
        self.died = died


class EraDetection:
    """The detection of one server's era.

    Args:
        session: The session that is being opened.
        wanted: The revisions to use, oldest first.

    Attributes:
        handshake_revisions: The wanted revisions of the handshake era.
        is_certain: Whether the server's answers determined its era. If the server did not answer,
            the next connection has to probe again.
    """

    def __init__(self, session: "ClientSession", wanted: tuple[Revision, ...]) -> None:
        self._session, self._wanted = session, wanted
        self.handshake_revisions = tuple(one for one in wanted if not one.stateless)
        self._accepts_dialect = len(self.handshake_revisions) > 1
        """Whether to use the draft dialect if the server turns out to speak it: unless the user
        has chosen a revision."""
        self.is_certain = True

    async def run(
        self, *, probe: bool, probe_timeout: float, timeout: float
    ) -> Discovery | InitializeResult:
        """Return the server's answer in a revision that both sides support. Raise ProbeFailed if a
        new connection is required."""
        newest = self._wanted[-1]
        if not self.handshake_revisions:
            self._session.use_revision(newest)
            answer: Discovery | InitializeResult | None = await self._discover(timeout)
        elif probe and newest.stateless:
            self._session.use_revision(newest)
            detect = (
                self._detect_era_over_http
                if getattr(self._session.connection.channel, "network", None) is HTTP
                else self._detect_era
            )
            answer = await detect(min(probe_timeout, timeout / 2), timeout)
        else:
            answer = await self._initialize(timeout)
        if answer is None:
            names = ", ".join(revision.version for revision in self._wanted)
            raise NoCommonRevision(f"The server does not support {names}")
        return answer

    async def _detect_era(
        self, probe_timeout: float, timeout: float
    ) -> "Discovery | InitializeResult":
        """Return the server's answer to the probe or, if the server belongs to the handshake era,
        its answer to `initialize`."""
        deadline = asyncio.get_running_loop().time() + timeout
        discovery = asyncio.create_task(self._discover(timeout))
        greeting: asyncio.Task[InitializeResult] | None = None
        try:
            await asyncio.wait([discovery], timeout=probe_timeout)
            if not discovery.done():
                log.info(
                    "%s has not answered server/discover within %g s; also sending initialize",
                    self._session.connection.peer,
                    probe_timeout,
                )
                greeting = asyncio.create_task(self._initialize(timeout - probe_timeout))
                await asyncio.wait([discovery, greeting], return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait([discovery], timeout=PROBE_GRACE_SECONDS)
            if discovery.done():
                return await discovery or await (greeting or self._initialize(timeout))
            assert greeting is not None
            try:
                result = await greeting
            except (NoCommonRevision, UnsupportedVersion):  # it is stateless after all
                left = deadline - asyncio.get_running_loop().time()
                found = await self._discover(left)
                if found is None:
                    raise
                return found
            self.is_certain = False
            log.warning(
                "%s answered initialize, but not server/discover. If it never answers "
                'server/discover, set revision="handshake" to avoid the delay.',
                self._session.connection.peer,
            )
            return result
        except ConnectionClosed as problem:
            if discovery.done() and discovery.exception() is None:
                raise  # it died after its answer to the probe, so not because of the probe
            channel = self._session.connection.channel
            if greeting is None and getattr(channel, "died_unread", False):
                raise  # it died before it read the probe
            raise ProbeFailed(str(problem), died=True) from None
        finally:
            for task in (discovery, greeting):
                if task is not None and not task.cancel() and not task.cancelled():
                    task.exception()  # mark it as retrieved

    async def _detect_era_over_http(
        self, probe_timeout: float, timeout: float
    ) -> "Discovery | InitializeResult":
        """Detect the era over HTTP, where a session and a request without a session do not share a
        channel."""
        try:
            found = await self._discover(probe_timeout)
        except (TimedOut, ConnectionClosed) as problem:
            raise ProbeFailed(str(problem), died=False) from None
        return found or await self._initialize(timeout)

    async def _discover(self, timeout: float) -> "Discovery | None":
        """Return the stateless revision agreed on through discovery and the server's answer, or
        None if the server belongs to the handshake era."""
        method, newest = METHODS["server/discover"], self._wanted[-1]
        revision = newest
        for _ in range(2):
            params = Params(meta=self._session.describe(revision))
            try:
                raw = await self._session.connection.request(
                    revision, method, params, timeout=timeout, cancellable=False
                )
                found: DiscoverResult = decode(raw, DiscoverResult)
            except PeerError as refusal:
                supported = _supported(refusal)
                if supported is None:
                    if refusal.code in MODERN:
                        raise _refused(refusal, newest) from None
                    return None
                if not supported:
                    return None  # it speaks no published revision, but perhaps the draft dialect
                revision = self._common(supported)
                if not revision.stateless:
                    return None
                continue
            except Overloaded:
                raise  # this error says nothing about the era
            except (msgspec.MsgspecError, ProtocolError):
                return None
            revision = self._common(found.supported_versions)
            return (revision, found) if revision.stateless else None
        raise NoCommonRevision(
            f"The server rejected revision {newest.version}, although it claims to support it"
        )

    def _common(self, supported: list[str]) -> Revision:
        for revision in reversed(self._wanted):
            if revision.version in supported:
                return revision
        raise NoCommonRevision(
            f"The server supports {', '.join(supported)}; this client supports "
            f"{', '.join(one.version for one in self._wanted)}"
        )

    async def _initialize(self, timeout: float) -> InitializeResult:
        """Return the answer to `initialize`. If the server seems to speak the draft dialect, send
        `initialize` again in that dialect."""
        newest = self.handshake_revisions[-1]
        try:
            return await self._greet(newest, timeout)
        except PeerError as refusal:
            if self._accepts_dialect and handshake.may_speak_dialect(refusal.code, refusal.message):
                try:
                    return await self._greet(DRAFT_DIALECT, timeout)
                except (PeerError, TimedOut, msgspec.MsgspecError) as problem:
                    log.debug("The server does not support the draft dialect either: %s", problem)
            raise _refused(refusal, newest) from None
        except msgspec.MsgspecError as problem:
            raise InvalidRequest(
                f"The server's answer to initialize is malformed: {problem}"
            ) from None

    async def _greet(self, revision: Revision, timeout: float) -> InitializeResult:
        params = self._session.begin_handshake(revision)
        method = METHODS["initialize"]
        raw = await self._session.connection.request(
            revision, method, params, timeout=timeout, cancellable=False
        )
        if self._accepts_dialect and handshake.is_dialect_answer(raw):
            self._session.revision = revision = DRAFT_DIALECT
        result: InitializeResult = revision.lift_result(method, raw)
        return result


def choose_revisions(choice: str | None) -> tuple[Revision, ...]:
    """Return the revisions that a `revision=` argument selects, oldest first."""
    groups = {None: HANDSHAKE + STATELESS, "handshake": HANDSHAKE, "stateless": STATELESS}
    if choice in groups:
        return groups[choice]
    revision = BY_NAME.get(choice or "")
    if revision is None:
        known = ", ".join(BY_NAME)
        raise NoCommonRevision(
            f"Unknown revision {choice!r}; use {known}, 'handshake' or 'stateless'"
        )
    return (revision,)


def _supported(refusal: PeerError) -> list[str] | None:
    """Return the versions that a stateless server offers instead of the requested one, or None if
    it rejected the request for another reason."""
    if refusal.code != UnsupportedVersion.code or not isinstance(refusal.data, dict):
        return None
    supported = refusal.data.get("supported")
    return [str(version) for version in supported] if isinstance(supported, list) else None


def _refused(refusal: PeerError, requested: Revision) -> DovetailError:
    supported = _supported(refusal)
    if supported is not None:
        names = ", ".join(supported) or "no published revision"
        return NoCommonRevision(
            f"The server supports {names}; this client requested {requested.version}"
        )
    opening = "server/discover" if requested.stateless else "initialize"
    return error_from_wire(
        opening, refusal.code, f"The server rejected {opening}: {refusal.message}", refusal.data
    )
