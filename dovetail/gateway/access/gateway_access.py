"""Who may use what at a gateway: the policy, the consent of callers, and pins.

Each call is checked in this order. The first three steps also decide what a caller sees in lists.

1. A tool, prompt or resource that the policy or the entry denies is refused, despite any grant.
2. One that is withheld, because it changed and nobody approved that (`pin_checks.py`), is refused.
3. One that the policy allows is called.
4. If a rule says ask, an earlier answer of the same caller decides. If there is none, the gateway
   asks the caller by elicitation, provided that the policy has `ask = "elicit"`.

An answer belongs to one caller, one entry, one tool and its definition. A caller without
authentication is remembered only for its session, and not at all if it has none.

To start or reach a server, and to pass on its questions, nobody is asked: only a deny counts.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ...connection.input_requests import ask, check, decode_answer, typed_view
from ...databases import MEMORY
from ...errors import CannotAsk, ConfigError, ConsentDenied, DovetailError, InvalidParams
from ...logs import get_logger
from ...ports import Call
from ...protocol.client_features import CreateMessageParams, ElicitParams
from ...protocol.raw import RawObject, split_object
from ...text import escape_json, quote
from ..consent.consent import Consent, Decision
from ..consent.policy import ConsentKind, PolicyDecision, PolicyFile, PolicyRequest, decide
from ..consent.request import ConsentRequest, name_shared
from ..consent.shared_store import ConsentRow, SharedConsentStore
from ..naming import Kind
from ..upstream import UpstreamServer
from .access import WATCH_SECONDS, Access, kind_of_start, use_of
from .pin_checks import PinChecks, item_of

log = get_logger("gateway")

ANONYMOUS: Final = "anonymous session "
"""What a caller without authentication is stored as, together with its session."""
SHARED_WATCH_SECONDS: Final = 5.0
"""How often a gateway reads a shared store, in case an announcement on the bus was lost."""
MAX_SHOWN_CHARS: Final = 2000
"""The number of characters of the arguments that a question shows."""
ANSWERS: Final[Mapping[str, str]] = {
    "once": "this time",
    "session": "until the session ends",
    "always": "always",
    "deny": "no",
}


class GatewayAccess(Access):
    """The rules of a gateway.

    Args:
        policy: The policy; None if everything is allowed.
        consent: Where the answers of callers and approved digests are stored.
        on_change: Called if something was approved or revoked.
        is_masked: Returns whether callers may not see details of this machine.
    """

    is_gateway = True

    def __init__(
        self,
        policy: PolicyFile | None,
        consent: Consent,
        on_change: Callable[[], None],
        is_masked: Callable[[], bool],
    ) -> None:
        self._is_masked = is_masked
        pins = PinChecks(consent, "warn", on_change=lambda _: on_change())
        super().__init__(policy, consent, pins)

    @property
    def can_ask(self) -> bool:
        """Whether callers are asked by elicitation."""
        return self.policy is not None and self.policy.ask == "elicit"

    @property
    def depends_on_caller(self) -> bool:
        """Whether two callers may get different answers."""
        return self.policy is not None and self.policy.depends_on_caller

    async def allow_start(self, server: UpstreamServer) -> None:
        """Raise an error if a rule does not allow a server to be started or reached.

        Args:
            server: The server.

        Raises:
            ConsentDenied: It may not be started.
        """
        self._require_not_denied(kind_of_start(server), server)

    def limit_question(
        self, call: Call, server: UpstreamServer, params: RawObject, *, alone: bool
    ) -> None:
        """Raise an error if a server may not ask the question, and limit what it asks of a model.

        Args:
            call: The call that the question belongs to.
            server: The server.
            params: The params of the question, which are changed.
            alone: Whether there is no other server. Otherwise, the context that a caller would add
                is not only that of this server. The context of other servers is never asked for.

        Raises:
            ConsentDenied: A rule or the entry does not allow it.
            ConfigError: The params are malformed.
        """
        if (kind := QUESTION_KINDS.get(params.type)) is None:
            return
        asked = typed_view(params)
        name = asked.url or "" if isinstance(asked, ElicitParams) else ""
        self._require_not_denied(kind, server, name, call)
        if isinstance(asked, CreateMessageParams):
            if asked.max_tokens > server.settings.max_tokens:
                params.max_tokens = server.settings.max_tokens
            passed = (None, "none", "thisServer") if alone else (None, "none")
            if asked.include_context not in passed:
                params.include_context = None

    def _require_not_denied(
        self, kind: ConsentKind, server: UpstreamServer, name: str = "", call: Call | None = None
    ) -> None:
        found = self.check(server, kind, name, None if call is None else _principal_id(call))
        if kind == "sampling" and not server.settings.sampling:
            found = PolicyDecision("deny", '"sampling": false of the entry')
        is_denied = found.effect == "deny"
        if self.policy is None and not is_denied:
            return
        principal = "" if call is None else _caller_key(call)
        request = self.describe(server, kind, name=name, principal=principal)
        reason = f"{found.rule} does not allow {request.doing}" if is_denied else ""
        self.consent.record(
            Decision(allowed=not is_denied, request=request, rule=found.rule, reason=reason)
        )
        if is_denied:
            raise ConsentDenied(reason)

    def is_denied(self, call: Call, kind: Kind, server: UpstreamServer, name: str) -> bool:
        """Return whether a call is refused whatever anybody approved.

        Args:
            call: The call.
            kind: The kind of the item.
            server: The server that it belongs to.
            name: The server's own name of the item.
        """
        return self.check(server, use_of(kind), name, _principal_id(call)).effect == "deny"

    def may_connect(self, server: UpstreamServer, principal: str | None) -> bool:
        """Return whether a user may connect an account at a server. The policy may deny the tool
        `connect`; that the entry does not offer all tools of the server does not matter.

        Args:
            server: The server.
            principal: The id of the user.
        """
        request = PolicyRequest(
            server=server.name, kind="call", name="connect", principal=principal
        )
        is_denied = decide(request, self.policy, is_gateway=True).effect == "deny"
        return not is_denied and self.may_start(server)

    async def require(self, call: Call, kind: Kind, server: UpstreamServer, name: str) -> None:
        """Raise an error unless a call is allowed. Ask the caller if a rule says so.

        Args:
            call: The call.
            kind: The kind of the item.
            server: The server that it belongs to.
            name: The server's own name of the item.

        Raises:
            InvalidParams: The call is not allowed.
        """
        if self._is_open(kind, server):
            return
        if self.policy is None and kind != "tools":
            decision = PolicyDecision("allow", "the default")
        else:
            decision = self.check(server, use_of(kind), name, _principal_id(call))
        describe = partial(self._describe_call, call, kind, server, name)
        if decision.effect == "deny":
            self._refuse(describe(), decision.rule, f"is not allowed by {decision.rule}")
        await self._require_approval(describe, kind, server, name)
        if self.policy is None:
            return
        if decision.effect == "ask" and call.request_state is not None:
            return  # the state is sealed and bound to this call, which was allowed before
        asker = partial(self._ask, call, decision.rule)
        found = await self.consent.decide(
            describe,
            effect=decision.effect,
            rule=decision.rule,
            on_consent=asker if self.can_ask else None,
            durable=call.principal is not None,
            wait=False,
        )
        if not found.allowed:
            raise InvalidParams(found.reason)
        if found.answer is not None:  # it may have changed while the caller was asked
            await self._require_approval(describe, kind, server, name)

    def _is_open(self, kind: Kind, server: UpstreamServer) -> bool:
        """Return whether every caller may use everything of a kind at a server."""
        if self.policy is not None or self.pins.mode(server) == "ask":
            return False
        return kind != "tools" or server.settings.tools.offers_all

    def _describe_call(
        self, call: Call, kind: Kind, server: UpstreamServer, name: str
    ) -> ConsentRequest:
        """Return what a caller wants to do, as it is now."""
        item = server.catalog.items(kind).get(name)
        is_pinned = item is not None and kind in ("tools", "prompts")
        shown, scope = name, ""
        if kind != "tools":
            shown, scope = name_shared("prompt" if kind == "prompts" else "resource", name)
        return self.describe(
            server,
            use_of(kind),
            name=shown,
            scope=scope,
            pin=item.pin if item is not None and is_pinned else "",
            arguments=_decode_arguments(call),
            text=_show_arguments(call),
            principal=_caller_key(call),
        )

    async def _require_approval(
        self, describe: Callable[[], ConsentRequest], kind: Kind, server: UpstreamServer, name: str
    ) -> None:
        """Raise an error if an item is withheld."""
        if self.pins.mode(server) != "ask":
            return
        item = item_of(kind, name)
        if item is None:
            return
        await self.consent.read_items(server.name, server.entry.digest)
        if not self.pins.is_approved(server, item):
            request = replace(describe(), kind="pin", name=item)
            why = self.pins.explain(server, item, name_store=not self._is_masked())
            self._refuse(request, 'pin = "ask"', why, name)

    def _refuse(
        self, request: ConsentRequest, rule: str, why: str, name: str | None = None
    ) -> None:
        text = f"{quote(name or request.name)} of {request.server} {why}"
        self.consent.record(Decision(allowed=False, request=request, rule=rule, reason=text))
        raise InvalidParams(text)

    async def _ask(self, call: Call, rule: str, request: ConsentRequest) -> str:
        """Ask a caller by elicitation, and return the answer."""
        answers = dict(ANSWERS)
        if call.principal is None:
            del answers["always"]
            if not call.caller.session_id:
                del answers["session"]
        schema = {
            "type": "object",
            "properties": {
                "answer": {
                    "type": "string",
                    "title": "Allow it?",
                    "enum": list(answers),
                    "enumNames": list(answers.values()),
                }
            },
            "required": ["answer"],
        }
        params = ElicitParams(message=_question(request, rule), requested_schema=schema)
        try:
            check(call, METHOD, params)
            result = decode_answer(await ask(call, METHOD, params), METHOD)
        except CannotAsk as problem:
            raise InvalidParams(
                f"{request.doing} requires your consent ({rule}), but you cannot be asked: "
                f"{problem}"
            ) from None
        if result.action != "accept":
            return "deny"
        answer = (result.content or {}).get("answer")
        return answer if isinstance(answer, str) and answer in answers else "deny"

    @asynccontextmanager
    async def run(self, servers: Callable[[], Mapping[str, UpstreamServer]]) -> AsyncIterator[None]:
        """Notice what other programs approve or revoke. Forget at the end what was allowed for the
        session.

        Args:
            servers: Returns all servers.
        """

        async def look() -> None:
            for server in list(servers().values()):
                await self._look_at(server)

        store = self.consent.store
        is_shared = isinstance(store, SharedConsentStore)
        if is_shared:
            await asyncio.gather(
                *(self.consent.read_items(one.name, one.entry.digest) for one in servers().values())
            )
        watching = asyncio.create_task(
            self.watch(look, SHARED_WATCH_SECONDS if is_shared else WATCH_SECONDS)
        )
        try:
            yield
        finally:
            watching.cancel()
            if isinstance(store, SharedConsentStore):
                await store.finish()
            if self.can_ask:
                self.consent.close()
            else:
                store.close()

    async def on_announced(
        self, row: ConsentRow, servers: Callable[[], Mapping[str, UpstreamServer]]
    ) -> None:
        """Read a row that another process has changed.

        Args:
            row: The row.
            servers: Returns all servers.
        """
        store = self.consent.store
        if isinstance(store, SharedConsentStore):
            await store.read(row)
        _compare_again(row, servers(), self.pins.refresh)

    def on_stored(self, row: ConsentRow, servers: Mapping[str, UpstreamServer]) -> None:
        """Compare what this process has just stored with what others had stored before.

        Args:
            row: The row.
            servers: All servers.
        """
        _compare_again(row, servers, self.pins.on_stored)

    async def _look_at(self, server: UpstreamServer) -> None:
        if not self.pins.is_settled(server):
            await self.consent.read_items(server.name, server.entry.digest)
        self.pins.refresh(server)

    def end_session(self, session_id: str) -> None:
        """Forget what a caller without authentication allowed in its session.

        Args:
            session_id: The session.
        """
        if self.can_ask and session_id:
            self.consent.end_session(f"{ANONYMOUS}{session_id}")


METHOD: Final = "elicitation/create"
QUESTION_KINDS: Final[Mapping[Any, ConsentKind]] = {
    ElicitParams: "elicitation", CreateMessageParams: "sampling",
}  # fmt: skip
"""What a policy calls the questions of servers, by the type of their params."""


NOBODY_TO_ASK: Final = (
    'To let the gateway ask its callers, its operator sets ask = "elicit" in the policy.'
)


def open_consent(store: Any, on_decision: Callable[[Decision], Any]) -> Consent:
    """Return the consent of a gateway. Nobody is asked at a terminal.

    Args:
        store: A file, a `ConsentStore`, or None for the default file.
        on_decision: Called with each decision.
    """
    open_ = partial(Consent, terminal=False, on_decision=on_decision, advice=NOBODY_TO_ASK)
    try:
        return open_(store)
    except ConfigError as problem:
        if store is not None:
            raise
        log.warning(
            "%s Until then, changes to tools are detected only while the gateway runs.", problem
        )
        return open_(MEMORY)


def _compare_again(
    row: ConsentRow,
    servers: Mapping[str, UpstreamServer],
    compare: Callable[[UpstreamServer], None],
) -> None:
    """Compare the servers whose items are in a row."""
    for server in servers.values():
        if row == ConsentRow(server.name, server.entry.digest):
            try:
                compare(server)
            except DovetailError as problem:
                log.warning("%s: %s", server.name, problem)


def _principal_id(call: Call) -> str | None:
    return None if call.principal is None else call.principal.id


def _caller_key(call: Call) -> str:
    if call.principal is not None:
        return call.principal.id
    return f"{ANONYMOUS}{call.caller.session_id}"


def _arguments(call: Call) -> bytes:
    """Return the arguments that are sent to the server, as they were received."""
    return bytes(split_object(call.raw_params).get("arguments", b"")) if call.raw_params else b""


def _decode_arguments(call: Call) -> dict[str, Any] | None:
    """Return the arguments for the audit log."""
    try:
        decoded = msgspec.json.decode(_arguments(call))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _show_arguments(call: Call) -> str:
    """Return the arguments as a person should see them. They are not decoded, so that a repeated
    key is shown twice."""
    text = _arguments(call)
    try:
        text = msgspec.json.format(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return escape_json(text.decode("utf-8", "backslashreplace"))


def _question(request: ConsentRequest, rule: str) -> str:
    """Return the text of a question. It begins with words that no server's question begins with,
    and shows nothing that could control a terminal."""
    lines = [f"This gateway asks for your consent to {request.doing} ({rule})."]
    if shown := request.text:
        more = len(shown) - MAX_SHOWN_CHARS
        lines += ["Arguments:", shown[:MAX_SHOWN_CHARS]]
        if more > 0:
            lines.append(f"… and {more} more characters")
    return "\n".join(lines)
