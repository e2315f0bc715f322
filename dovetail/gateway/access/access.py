"""Who may use what: what a host and a gateway decide alike, from the policy and the pins.

host_access.py      a host, which asks its user
gateway_access.py   a gateway, which asks its callers
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ...aio import call_maybe_async
from ...errors import DovetailError
from ...logs import get_logger
from ..consent.consent import Consent
from ..consent.policy import (
    ConsentKind,
    PolicyDecision,
    PolicyFile,
    PolicyRequest,
    decide,
)
from ..consent.request import ConsentRequest
from ..naming import Kind
from ..upstream import UpstreamServer
from .pin_checks import INSTRUCTIONS, PinChecks, item_of

log = get_logger("gateway")

WATCH_SECONDS: Final = 1.0
"""How often a host or gateway looks for what other programs approved or revoked."""


class Access:
    """The rules of a host or a gateway.

    Args:
        policy: The policy; None if there is none.
        consent: Asks, and remembers the answers.
        pins: What is approved of the servers' tools.
    """

    is_gateway = False
    """Whether the defaults are those of a gateway, not of a host."""

    def __init__(self, policy: PolicyFile | None, consent: Consent, pins: PinChecks) -> None:
        self.policy, self.consent, self.pins = policy, consent, pins

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask before something is used."""
        return True

    def check(
        self, server: UpstreamServer, kind: ConsentKind, name: str, principal: str | None = None
    ) -> PolicyDecision:
        """Return what the policy and the server's entry say, without asking.

        Args:
            server: The server.
            kind: What is to be done.
            name: The server's own name of the tool or prompt, or the URI.
            principal: The caller; None without authentication.
        """
        request = PolicyRequest(
            server=server.name,
            kind=kind,
            name=name,
            principal=principal,
            trusted_read=kind == "call" and _is_trusted_read(server, name),
        )
        return decide(
            request,
            self.policy,
            tools=server.settings.tools,
            is_gateway=self.is_gateway,
        )

    def is_visible(
        self, server: UpstreamServer, kind: Kind, name: str, principal: str | None = None
    ) -> bool:
        """Return whether an item is listed.

        Args:
            server: The server that it belongs to.
            kind: The kind of the item.
            name: The server's own name of the item.
            principal: The caller; None without authentication.
        """
        if self.pins.is_withheld(server, item_of(kind, name)) or not self._may_be_listed(server):
            return False
        effect = self.check(server, use_of(kind), name, principal).effect
        return effect == "allow" or (effect == "ask" and self.can_ask)

    def instructions_of(self, server: UpstreamServer) -> str | None:
        """Return the instructions of a server, unless they are withheld."""
        text = server.catalog.instructions
        if not text or not self._may_be_listed(server):
            return None
        return None if self.pins.is_withheld(server, INSTRUCTIONS) else text

    def _may_be_listed(self, server: UpstreamServer) -> bool:
        """Return False for a server that is known from an earlier run, but must not be started."""
        return server.state != "known" or self.may_start(server)

    def may_start(self, server: UpstreamServer) -> bool:
        """Return whether the rules allow a server to be started or reached."""
        return self.check(server, kind_of_start(server), "").effect != "deny"

    async def watch(self, look: Callable[[], Any], seconds: float = WATCH_SECONDS) -> None:
        """Notice what other programs approve or revoke, until this is cancelled.

        Args:
            look: Compares the consent store with what is in use. It may be plain or async, and
                raise DovetailError.
            seconds: How often it is called (default: `WATCH_SECONDS`).
        """
        logged = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                await call_maybe_async(look)
                logged = ""
            except DovetailError as problem:
                if str(problem) != logged:  # it may last for days
                    logged = str(problem)
                    log.warning("%s", logged)

    def describe(self, server: UpstreamServer, kind: ConsentKind, **fields: Any) -> ConsentRequest:
        """Return the request for consent to do something with a server.

        Args:
            server: The server.
            kind: What is asked.
            fields: The other fields of the request.
        """
        return ConsentRequest(kind=kind, server=server.name, digest=server.entry.digest, **fields)


def kind_of_start(server: UpstreamServer) -> ConsentKind:
    """Return what is done to a server first: a local one is started, and a remote one reached."""
    return "reach" if server.entry.is_remote else "start"


def use_of(kind: Kind) -> ConsentKind:
    """Return what is done with the items of a list: tools are called, all others are shared with
    the model."""
    return "call" if kind == "tools" else "share"


def _is_trusted_read(server: UpstreamServer, name: str) -> bool:
    """Return whether a tool only reads, according to a server that is trusted."""
    tool = server.catalog.find_tool(name) if server.settings.trust else None
    return bool(tool and tool.annotations and tool.annotations.read_only_hint)
