"""Consent: ask somebody before a server is started, called or given anything, and remember the
answer.

    the policy allows or denies it ─→ that is all
    the policy says ask ─→ a grant covers it ─→ allow
                        └→ on_consent, or the person at the terminal ─→ once, session, always, deny,
                           or a changed request, which is allowed once
                        └→ nobody can be asked ─→ deny

If what was asked about changes while the person decides, the person is asked again. Everything here
is a string: the digests come from the configuration and from `pins.py`, and the effect from
`policy.py`. The questions are in `request.py`.
"""

import asyncio
import os
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from ...aio import call_maybe_async
from ...errors import ConfigError, ConsentDenied
from ...text import escape_unsafe
from .pins import digest as content_digest
from .policy import Effect
from .request import ConsentRequest, bound_values, check_changed, covers
from .shared_store import SESSION, ConsentRow, SharedConsentStore, grant_rows
from .sqlite_store import SqliteConsentStore, default_store_path
from .store import ConsentGrant, ConsentStore, SeenItem

if TYPE_CHECKING:
    from ...server.audit import AuditRecord

ConsentAnswer: TypeAlias = Literal["once", "session", "always", "deny"]
ANSWERS = get_args(ConsentAnswer)
GRANTED = "a grant"
MAX_QUESTIONS = 3
"""How often one thing is asked if it changes while the person decides."""
OnConsent: TypeAlias = Callable[[ConsentRequest], Any]
"""Returns `"once"`, `"session"`, `"always"` or `"deny"`, or a changed request, which is allowed
once. None means deny."""


class Decision(Struct, frozen=True, kw_only=True):
    """What was decided about a request, and why.

    Attributes:
        allowed: Whether it is allowed.
        request: The request, as the person may have changed it.
        answer: The answer of the person, or of the one who gave the grant; None if the policy
            decided.
        rule: What decided, or why a person was asked.
        reason: Why it is not allowed, as a sentence.
    """

    allowed: bool
    request: ConsentRequest
    answer: ConsentAnswer | None = None
    rule: str = ""
    reason: str = ""

    def require(self) -> ConsentRequest:
        """Return the request if it is allowed.

        Raises:
            ConsentDenied: It is not.
        """
        if not self.allowed:
            raise ConsentDenied(self.reason)
        return self.request

    def audit_record(self) -> "AuditRecord":
        """Return the decision in the form that `audit()` records."""
        from datetime import UTC, datetime

        from ...server.audit import AuditRecord

        request, rule = self.request, self.rule
        if self.answer is not None and rule != GRANTED:
            rule = f"{rule or 'the default'}, answered {self.answer}"
        return AuditRecord(
            time=datetime.now(UTC),
            method=request.kind,
            target=request.name or None,
            outcome="allowed" if self.allowed else "denied",
            user=request.principal or None,
            server=request.server,
            arguments=request.arguments,
            rule=rule,
            digest=request.pin or request.digest,
        )


class ItemChange(Struct, frozen=True):
    """An item whose latest version is not approved.

    Attributes:
        current: The version that was seen last.
        previous: The version that was approved last; None if the item is new.
    """

    current: SeenItem
    previous: SeenItem | None


class Consent:
    """Decides what is allowed: by rules, by what was allowed before, or by asking somebody.

    Args:
        store: Where answers are remembered: a file (default: `$XDG_STATE_HOME/dovetail/consent.db`)
            or a `ConsentStore`.
        on_consent: The function that asks the user. It may be plain or async.
        terminal: Whether to ask at the terminal if there is no `on_consent`.
        on_decision: Called with each `Decision`, for an audit log.
        advice: What to do if nobody can be asked, as a sentence for the error.
    """

    def __init__(
        self,
        store: "str | os.PathLike[str] | ConsentStore | None" = None,
        *,
        on_consent: OnConsent | None = None,
        terminal: bool = True,
        on_decision: Callable[[Decision], Any] | None = None,
        advice: str = "Pass on_consent= to ask the user, or allow it with policy=.",
    ) -> None:
        self.store: ConsentStore
        if store is None or isinstance(store, str | os.PathLike):
            self.store = SqliteConsentStore(store)
        else:
            self.store = store
        self.session = secrets.token_hex(8)
        self._on_consent, self._terminal, self._on_decision = on_consent, terminal, on_decision
        self._advice = advice
        self._asking: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()
        """Held while a question is asked, by what its answer is bound to."""

    # deciding

    async def decide(
        self,
        request: ConsentRequest | Callable[[], ConsentRequest],
        *,
        effect: Effect = "ask",
        rule: str = "",
        on_consent: OnConsent | None = None,
        durable: bool = True,
        wait: bool = True,
    ) -> Decision:
        """Decide about a request, and ask if that is necessary.

        Args:
            request: The request, or a function that describes it as it is now. The function is
                called again after each question. If the answer would be bound to something else by
                then, because the tool or the entry has changed, the question is asked again.
            effect: What the policy says: `"allow"` and `"deny"` decide, `"ask"` looks for a grant
                and asks if there is none.
            rule: What decided that, such as `rule 3 of policy.toml`.
            on_consent: Who is asked about this request (default: as for the others).
            durable: Whether `"always"` is remembered beyond the session.
            wait: Whether the question waits until the same question, asked for another call, is
                answered, because that answer may cover it.

        Raises:
            ConfigError: The store cannot be read, or `on_consent` returned something else.
        """
        describe = (lambda: request) if isinstance(request, ConsentRequest) else request
        decision = await self._decide(describe, effect, rule, on_consent, durable, wait)
        self.record(decision)
        return decision

    def record(self, decision: Decision) -> None:
        """Report a decision that was made elsewhere to `on_decision`.

        Args:
            decision: The decision.
        """
        if self._on_decision is not None:
            self._on_decision(decision)

    async def _decide(
        self,
        describe: Callable[[], ConsentRequest],
        effect: Effect,
        rule: str,
        on_consent: OnConsent | None,
        durable: bool,
        wait: bool,
    ) -> Decision:
        request = describe()
        if effect == "allow":
            return Decision(allowed=True, request=request, rule=rule)
        if effect != "ask":
            reason = f"The policy does not allow {request.doing} ({rule or 'the default'})."
            return Decision(allowed=False, request=request, rule=rule, reason=reason)
        # The same question is asked once at a time: the answer to the first may answer the others.
        turn = self._asking.setdefault(bound_values(request), asyncio.Lock())
        async with turn if wait else nullcontext():
            for _ in range(MAX_QUESTIONS):
                request = describe()
                await self._read_grants(request)
                if (answer := self.find_answer(request)) is not None:
                    return Decision(allowed=True, request=request, answer=answer, rule=GRANTED)
                decision = await self._ask(request, on_consent)
                if not decision.allowed or bound_values(describe()) == bound_values(request):
                    self._remember(decision, durable)
                    await self._write_grants(request)
                    return replace(decision, rule=rule)
        reason = (
            f"Refused {request.doing}: it changed {MAX_QUESTIONS} times while the user was asked."
        )
        return Decision(allowed=False, request=request, answer="deny", reason=reason)

    async def _ask(self, request: ConsentRequest, on_consent: OnConsent | None) -> Decision:
        ask = on_consent or self._on_consent or self._ask_at_terminal()
        if ask is None:
            reason = f"Nobody can be asked about {request.doing}. {self._advice}"
            return Decision(allowed=False, request=request, answer="deny", reason=reason)
        given = await call_maybe_async(ask, self._with_previous(request))
        if isinstance(given, ConsentRequest):
            return Decision(allowed=True, request=check_changed(given, request), answer="once")
        answer: Any = "deny" if given is None else given
        if answer not in ANSWERS:
            raise ConfigError(
                f"on_consent must return one of {', '.join(ANSWERS)}, or a changed "
                f"ConsentRequest, not {given!r}"
            )
        reason = f"The user refused {request.doing}." if answer == "deny" else ""
        return Decision(allowed=answer != "deny", request=request, answer=answer, reason=reason)

    def _ask_at_terminal(self) -> "Callable[[ConsentRequest], Awaitable[Any]] | None":
        from ...terminal.consent_dialog import ask_consent, has_terminal

        return ask_consent if self._terminal and has_terminal() else None

    def _with_previous(self, request: ConsentRequest) -> ConsentRequest:
        """Add the digest of the entry that the same person allowed before, if there is one."""
        if request.kind not in ("start", "reach") or request.previous is not None:
            return request
        earlier = [
            grant.digest
            for kind in ("start", "reach")
            for grant in self.store.find_grants(
                server=request.server, kind=kind, principal=request.principal
            )
            if grant.digest != request.digest
        ]
        return replace(request, previous=earlier[-1]) if earlier else request

    # a store that other processes share

    def use_shared(self, store: SharedConsentStore) -> None:
        """Use a store that other processes share, and their session.

        Args:
            store: The store.
        """
        self.store, self.session = store, SESSION

    async def read_items(self, server: str, digest: str) -> None:
        """Read what is approved of a server, if other processes share the store.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
        """
        if isinstance(self.store, SharedConsentStore):
            await self.store.read(ConsentRow(server, digest))

    async def _read_grants(self, request: ConsentRequest) -> None:
        if isinstance(self.store, SharedConsentStore):
            await self.store.read(*grant_rows(request.server, request.digest, request.principal))

    async def _write_grants(self, request: ConsentRequest) -> None:
        if isinstance(self.store, SharedConsentStore):
            await self.store.write(*grant_rows(request.server, request.digest, request.principal))

    # remembering

    def find_answer(self, request: ConsentRequest) -> ConsentAnswer | None:
        """Return the earlier answer that covers a request, or None. What was revoked, by any
        program, is no longer found.

        Args:
            request: The request.
        """
        if request.kind == "pin" and self.is_approved(
            request.server, request.digest, request.name, request.pin
        ):
            return "always"
        is_share = request.kind == "share"
        for grant in self.store.find_grants(
            server=request.server,
            digest=request.digest,
            kind=request.kind,
            name=None if is_share else request.name,
            principal=request.principal,
        ):
            if grant.session not in ("", self.session) or grant.pin != request.pin:
                continue
            if not is_share or covers(grant.name, request.name):
                return "session" if grant.session else "always"
        return None

    def _remember(self, decision: Decision, durable: bool) -> None:
        request, answer = decision.request, decision.answer
        if answer not in ("session", "always") or request.kind == "elicitation":
            return
        if request.kind == "pin" and answer == "always":
            item = SeenItem(
                server=request.server,
                digest=request.digest,
                item=request.name,
                pin=request.pin,
                content=request.text,
            )
            self.store.approve_items([item])
            return
        self.store.add_grant(
            ConsentGrant(
                kind=request.kind,
                server=request.server,
                digest=request.digest,
                name=(request.scope or request.name) if request.kind == "share" else request.name,
                pin=request.pin,
                principal=request.principal,
                session="" if answer == "always" and durable else self.session,
            )
        )

    def grants(self, server: str | None = None) -> list[ConsentGrant]:
        """Return the grants that hold: those of all programs, and those of this session.

        Args:
            server: The name of a server in the configuration (default: all servers).
        """
        return [
            grant
            for grant in self.store.find_grants(server=server)
            if grant.session in ("", self.session)
        ]

    def revoke(self, server: str | None = None, tool: str | None = None) -> list[ConsentGrant]:
        """Forget what was allowed, from the next question on, in all programs that use the store.
        What was approved of the server's tools is forgotten, too.

        Args:
            server: The name of a server in the configuration (default: all servers).
            tool: The name of a tool, prompt (`prompt:NAME`) or URI (default: all that the server
                was allowed, with the consent to start it).

        Returns:
            The grants that were removed. Close the connections whose start they had allowed.
        """
        names = None if tool is None else {tool, item_key(tool)}
        found = [
            grant
            for grant in self.store.find_grants(server=server)
            if names is None or grant.name in names
        ]
        self.store.remove_grants(found)
        self.store.remove_items(
            item
            for item in self.store.find_items(server=server)
            if item.approved is not None and (names is None or item.item in names)
        )
        return found

    def end_session(self, principal: str) -> None:
        """Forget what a caller of a gateway allowed for its session.

        Args:
            principal: The caller.
        """
        self.store.end_session(self.session, principal)

    def close(self) -> None:
        """Forget what was allowed for this session, and close the store."""
        try:
            self.store.end_session(self.session)
        finally:
            self.store.close()

    # pins

    def record_seen(
        self, server: str, digest: str, items: Mapping[str, str], *, approve_first: bool = False
    ) -> list[SeenItem]:
        """Remember what a server lists, so that it can be compared and approved later.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
            items: The canonical JSON (`pins.pinned_text`) of each item: `tool:NAME`, `prompt:NAME`
                and `instructions`.
            approve_first: Whether to approve it if nothing is known of the server yet.
        """
        seen = [
            SeenItem(
                server=server, digest=digest, item=item, pin=content_digest(text), content=text
            )
            for item, text in items.items()
        ]
        self.store.record_items(seen, approve_first=approve_first)
        return seen

    def approved(self, server: str, digest: str) -> dict[str, set[str]]:
        """Return the pins that are approved for each item of a server.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
        """
        found: dict[str, set[str]] = {}
        for one in self.store.find_items(server=server, digest=digest):
            if one.approved is not None:
                found.setdefault(one.item, set()).add(one.pin)
        return found

    def is_approved(self, server: str, digest: str, item: str, pin: str) -> bool:
        """Return whether a version of an item is approved.

        Args:
            server: The name of the server in the configuration.
            digest: The digest of its entry.
            item: `tool:NAME`, `prompt:NAME` or `instructions`.
            pin: The digest of the version.
        """
        found = self.store.find_items(server=server, digest=digest, item=item)
        return any(one.pin == pin and one.approved is not None for one in found)

    def changes(self, server: str, tool: str | None = None) -> list[ItemChange]:
        """Return the items whose latest version is not approved.

        Args:
            server: The name of the server in the configuration.
            tool: The name of a tool, `prompt:NAME` or `instructions` (default: everything).
        """
        versions = self.versions(server, tool)
        return [change for change in versions if change.current.approved is None]

    def versions(
        self, server: str, tool: str | None = None, *, digest: str | None = None
    ) -> list[ItemChange]:
        """Return the latest version of each item, whether it is approved or not.

        Args:
            server: The name of the server in the configuration.
            tool: The name of a tool, `prompt:NAME` or `instructions` (default: everything).
            digest: The digest of the entry (default: the one that was listed last).
        """
        item = None if tool is None else item_key(tool)
        found = self.store.find_items(server=server, digest=digest)
        if found and digest is None:
            digest = max(found, key=lambda one: one.seen).digest
        versions: dict[str, list[SeenItem]] = {}
        for one in found:
            if one.digest == digest and item in (None, one.item):
                versions.setdefault(one.item, []).append(one)
        return [
            ItemChange(
                listed[-1],
                max(
                    (one for one in listed[:-1] if one.approved is not None),
                    key=lambda one: one.approved or 0.0,
                    default=None,
                ),
            )
            for listed in versions.values()
        ]

    def approve_command(self, server: str, item: str, *, name_store: bool = True) -> str:
        """Return the command with which a user approves an item, for an error message.

        Args:
            server: The name of the server in the configuration.
            item: `tool:NAME`, `prompt:NAME` or `instructions`.
            name_store: Whether the command names the store, unless that is the default one.
        """
        short = item.removeprefix("tool:")
        # A server may give a tool the name of an option, such as `--yes`, or of another item.
        is_clear = item_key(short) == item and not short.startswith("-")
        words = ["dovetail", "consent", "approve", server, short if is_clear else item]
        path = getattr(self.store, "path", None)
        if name_store and isinstance(self.store, SharedConsentStore):
            words += self.store.command
        elif name_store and isinstance(path, str) and path != str(default_store_path()):
            words += ["--store", path]
        return escape_unsafe(shlex.join(words))


def item_key(name: str) -> str:
    """Return the key of an item that a person names: a tool, unless they say otherwise.

    Args:
        name: The name of a tool, `tool:NAME`, `prompt:NAME` or `instructions`.
    """
    is_key = name == "instructions" or name.startswith(("tool:", "prompt:"))
    return name if is_key else f"tool:{name}"
