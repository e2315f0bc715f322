"""What the servers of a host may do: by the policy, by what the user allowed before, or by asking.

This is where a host asks, for each kind of question (`consent/consent.py` describes them):

    start, reach   before a server is started or reached, and before its entry has any effect
    call           in `on_call` of the server's client, so that no way of calling a tool avoids it
    share          before a resource or prompt is read, and before a root is sent to a server
    sampling       before the model sees a prompt, and before the server sees the answer
    elicitation    before the user sees a server's question

A refusal raises ConsentDenied, or leaves out what was refused.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from ...aio import call_maybe_async
from ...client.call_hook import CallRequest
from ...client.callbacks import AnyRequest, ElicitRequest, SampleRequest
from ...errors import ConfigError, ConsentDenied
from ...protocol.base import Result
from ...protocol.client_features import CreateMessageResult, ListRootsResult
from ...text import quote
from ..consent.consent import GRANTED, MAX_QUESTIONS, Consent, Decision
from ..consent.policy import PolicyFile
from ..consent.request import ConsentRequest, name_shared
from ..input_requests import name_text
from ..upstream import UpstreamServer
from .access import Access
from .pin_checks import PinChecks
from .sampling_review import (
    answer_text,
    limit_request,
    parameters,
    prompt_text,
    with_answer,
    with_prompt,
)

OnContext = Callable[[str], Any]
"""Returns the text to add to a server's prompt, or None. It is called with the name of the
server."""


class HostAccess(Access):
    """The rules of a host, and its questions to the user.

    Args:
        policy: The policy; None if there is none.
        consent: Asks, and remembers the answers.
        on_context: Returns the context of a server.
        on_approval: Called with a server after a change of its tools was approved or revoked.
        name_of: Returns the name to put before a server's questions; empty for none.
    """

    def __init__(
        self,
        policy: PolicyFile | None,
        consent: Consent,
        *,
        on_context: OnContext | None,
        on_approval: Callable[[UpstreamServer], None],
        name_of: Callable[[UpstreamServer], str],
    ) -> None:
        pins = PinChecks(consent, "ask", on_change=on_approval, decide=self._decide)
        super().__init__(policy, consent, pins)
        self._on_context, self._name_of = on_context, name_of
        self._granted: WeakKeyDictionary[UpstreamServer, ConsentRequest] = WeakKeyDictionary()
        """The servers that were started with a grant, and what it was for."""

    async def _decide(
        self, server: UpstreamServer, describe: Callable[[], ConsentRequest], name: str
    ) -> Decision:
        """Decide about a request; `name` is what the policy sees."""
        found = self.check(server, describe().kind, name)
        is_durable = server.entry.describe is not None  # a server in this process ends with it
        return await self.consent.decide(
            describe, effect=found.effect, rule=found.rule, durable=is_durable
        )

    # starting

    async def allow_start(self, server: UpstreamServer) -> None:
        """Ask whether a server may be started or reached.

        Args:
            server: The server.

        Raises:
            ConsentDenied: It may not.
        """
        if (describe := server.entry.describe) is not None:
            self._granted.pop(server, None)
            decision = await self._decide(server, describe, "")
            # The files that an entry refers to may have changed since the entry was read.
            request = decision.require()
            server.entry = replace(server.entry, digest=request.digest)
            if decision.answer in ("session", "always"):
                self._granted[server] = request
            if decision.answer is not None and decision.rule != GRANTED:
                self.pins.on_server_approved(server)

    def is_revoked(self, server: UpstreamServer) -> bool:
        """Return whether the consent with which a server was started has been revoked since, by any
        program. An answer that was not stored cannot be revoked by others.

        Args:
            server: The server.

        Raises:
            ConfigError, Overloaded: The store cannot be used.
        """
        request = self._granted.get(server)
        return request is not None and self.consent.find_answer(request) is None

    def forget(self, server: UpstreamServer, *, is_stopped: bool) -> None:
        """Forget what the user accepted or refused, so that it is asked again.

        Args:
            server: The server.
            is_stopped: Whether this includes the consent to start the server.
        """
        self.pins.forget(server)
        if is_stopped:
            self._granted.pop(server, None)

    # calls

    async def allow_call(self, server: UpstreamServer, call: CallRequest) -> CallRequest:
        """Return a tool call as the user allows it.

        Args:
            server: The server.
            call: The call, with the server's own name of the tool.

        Raises:
            ConsentDenied: The user or the policy refused it, or the tool is not approved.
        """
        item = f"tool:{call.name}"

        def describe() -> ConsentRequest:
            return self.describe(
                server,
                "call",
                name=call.name,
                pin=self.pins.pin(server, item),
                tool=server.catalog.find_tool(call.name),
                arguments=call.arguments,
            )

        if self.check(server, "call", call.name).effect != "deny":
            await self.pins.require(server, item)
        for _ in range(MAX_QUESTIONS):
            request = (await self._decide(server, describe, call.name)).require()
            await self.pins.require(server, item)  # it may have changed while the user was asked
            if request.pin == self.pins.pin(server, item):
                return replace(call, arguments=request.arguments or {})
        raise ConsentDenied(
            f"Refused to call {quote(call.name)} of {quote(server.name)}: it changed "
            f"{MAX_QUESTIONS} times while the user was asked."
        )

    # resources, prompts and roots

    async def share(
        self, server: UpstreamServer, name: str, *, is_prompt: bool = False, with_: str = ""
    ) -> None:
        """Ask whether a resource or prompt may be given to the model, or a root to a server.

        Args:
            server: The server.
            name: The server's own name of the prompt, or the URI.
            is_prompt: Whether it is a prompt, whose definition must be approved as well.
            with_: Who gets it (default: the model).

        Raises:
            ConsentDenied: It may not.
        """
        kind: Literal["prompt", "resource", "root"] = "root" if with_ else "resource"
        shown, scope = name_shared("prompt" if is_prompt else kind, name)
        if is_prompt:
            await self.pins.require(server, shown)
        request = self.describe(server, "share", name=shown, scope=scope, text=with_)
        (await self._decide(server, lambda: request, name)).require()

    # questions from servers

    async def on_ask(self, server: UpstreamServer, request: AnyRequest) -> AnyRequest | None:
        """Return a server's question as the user allows it; None to refuse it."""
        request = replace(request, target=server.name)
        if isinstance(request, ElicitRequest):
            return await self._allow_elicitation(server, request)
        if isinstance(request, SampleRequest):
            return await self._allow_sampling(server, request)
        return request  # roots are shared one by one, in on_answer

    async def _allow_elicitation(
        self, server: UpstreamServer, request: ElicitRequest
    ) -> ElicitRequest | None:
        asked = self.describe(server, "elicitation", text=request.message, name=request.url or "")
        if not (await self._decide(server, lambda: asked, asked.name)).allowed:
            return None
        name = self._name_of(server)
        return replace(request, message=name_text(request.message, name)) if name else request

    async def _allow_sampling(
        self, server: UpstreamServer, request: SampleRequest
    ) -> SampleRequest | None:
        context = None
        if request.include_context == "thisServer" and self._on_context is not None:
            context = await call_maybe_async(self._on_context, server.name)
            if not isinstance(context, str | None):
                raise ConfigError(f"on_context must return text or None, not {context!r}")
        request = limit_request(request, server.settings.max_tokens, context)
        asked = self.describe(
            server, "sampling", text=prompt_text(request), arguments=parameters(request)
        )
        decision = await self._decide(server, lambda: asked, "")
        return with_prompt(request, decision.request.text) if decision.allowed else None

    async def on_answer(
        self, server: UpstreamServer, request: AnyRequest, answer: Result
    ) -> Result | None:
        """Return an answer to a server's question as the user allows it; None to refuse it."""
        if isinstance(request, SampleRequest) and isinstance(answer, CreateMessageResult):
            asked = self.describe(
                server, "sampling", text=answer_text(answer), previous=prompt_text(request)
            )
            decision = await self._decide(server, lambda: asked, "")
            return with_answer(answer, decision.request.text) if decision.allowed else None
        if isinstance(answer, ListRootsResult):
            with_ = f"the server {server.name}"
            allowed = [
                root for root in answer.roots if await self._may_share(server, root.uri, with_)
            ]
            return replace(answer, roots=allowed)
        return answer

    async def _may_share(self, server: UpstreamServer, uri: str, with_: str) -> bool:
        try:
            await self.share(server, uri, with_=with_)
        except ConsentDenied:
            return False
        return True

    def hooks(self, server: UpstreamServer) -> dict[str, Any]:
        """Return the hooks of a server's client."""
        return {
            "on_call": partial(self.allow_call, server),
            "on_ask": partial(self.on_ask, server),
            "on_answer": partial(self.on_answer, server),
        }
