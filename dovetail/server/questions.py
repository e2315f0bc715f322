"""What a handler may ask its client: the user (a form, or a page to visit), the model, the roots. A
part of `Context`.

    answer = await ctx.elicit("Who are you?", Person)        # answer.action, answer.data
    said = await ctx.sample("Summarise this: …")             # said.text
    roots = await ctx.list_roots()

It is the same in every revision that has the question; elsewhere, and towards a client that did not
declare it, CannotAsk is raised. In the stateless era a handler that asks may be run again from its
beginning in another process, with the answers so far: what it does before it asks is done again,
unless `await ctx.once("charge", fn)` did it. Asking needs `async def`.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from ..ports import Call
from ..protocol.base import Params
from ..protocol.client_features import (
    CreateMessageResult,
    ElicitationCompleteParams,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    Root,
)
from .unawaited import unawaited

if TYPE_CHECKING:
    from pathlib import Path

    from .forms import Elicited
    from .sampling import Sampled

T = TypeVar("T")


class Questions:
    """What a context can ask."""

    __slots__ = ()
    _call: Call
    _server: Any

    @overload
    async def elicit(
        self, message: str, wanted: type[T], *, key: str | None = None
    ) -> "Elicited[T]": ...
    @overload
    async def elicit(
        self, message: str, wanted: Any = None, *, key: str | None = None
    ) -> "Elicited[Any]": ...
    @unawaited
    async def elicit(
        self, message: str, wanted: Any = None, *, key: str | None = None
    ) -> "Elicited[Any]":
        """Ask the user to fill in a form: a class with plain fields, one plain type, or a JSON
        schema. Without one, for their consent. `key` names the question across rounds; by default
        what it asks does."""
        from .forms import Form, answered

        form = Form.of(wanted).labelled(message)
        params = ElicitParams(message=message, mode="form", requested_schema=form.schema)
        result: ElicitResult = await self._ask("elicitation/create", params, key)
        return answered(form, result)

    @unawaited
    async def elicit_url(
        self, message: str, url: str, *, id: str | None = None, key: str | None = None
    ) -> "Elicited[None]":
        """Ask the user to visit a page, where what is secret stays between them and it. Accepted
        means that they were willing, not that they are done: `elicitation_complete(id)` says
        that."""
        from .forms import answered

        if id is None:
            from secrets import token_urlsafe

            id = token_urlsafe(16)
        params = ElicitParams(message=message, mode="url", url=url, elicitation_id=id)
        result: ElicitResult = await self._ask("elicitation/create", params, key)
        return answered(None, result)

    def bind_url(self, url: str, id: str | None = None) -> str:
        """The URL of a page with a ticket for the user who is calling, and nobody else:
        `server.check_url` says at the page whether it is them, and gives back `id`, the one of
        `elicit_url`. Good for `Limits.state_life` seconds."""
        from secrets import token_urlsafe

        from ..connection.visiting import bind

        server, principal = self._server, self._call.caller.principal
        user = None if principal is None else principal.id
        return bind(
            server.ring, url, server.name, user, id or token_urlsafe(16), server.limits.state_life
        )

    def elicitation_complete(self, id: str) -> None:
        """Tell the client whose user was sent to a page that they are done there, where its
        revision has a word for that."""
        if id in self._call.caller.pages:
            self._emit(
                "notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id=id)
            )
        else:
            self._server.elicitation_complete(id)

    @unawaited
    async def sample(self, messages: Any, *, key: str | None = None, **options: Any) -> "Sampled":
        """Ask the client's model to go on from here. Options: system_prompt, max_tokens,
        model_preferences, temperature, stop_sequences, metadata, include_context, tools,
        tool_choice."""
        from .sampling import Sampled, create

        result: CreateMessageResult = await self._ask(
            "sampling/createMessage", create(messages, **options), key
        )
        return Sampled(result)

    @unawaited
    async def list_roots(self) -> list[Root]:
        """The directories that the client lets servers know of. Kept until the client says that
        they changed, if it does."""
        caller = self._call.caller
        if caller.roots is not None:
            return list(caller.roots)
        told = caller.roots_told
        result: ListRootsResult = await self._ask("roots/list", Params())
        declared = caller.capabilities.roots
        hears = (
            not caller.revision.stateless and declared is not None and declared.get("listChanged")
        )
        if hears and caller.roots_told == told:
            caller.roots = tuple(result.roots)
        return result.roots

    @unawaited
    async def inside_roots(self, path: "str | os.PathLike[str]") -> bool:
        """Whether a path lies inside of the client's roots, links and `..` resolved."""
        from .rooted import inside

        return inside(await self.list_roots(), path)

    @unawaited
    async def resolve_in_roots(self, path: "str | os.PathLike[str]") -> "Path":
        """The real path that a path leads to, to go on with; ToolError where that is outside of the
        client's roots."""
        from .rooted import resolve

        return resolve(await self.list_roots(), path)

    @unawaited
    async def once(self, key: str, function: Callable[[], Awaitable[T] | T]) -> T:
        """Do something once, however often this handler is run again for its questions. Its outcome
        is kept as JSON; it cannot ask anything itself."""
        from ..connection.asking import once

        return await once(self._call, key, function)  # type: ignore[no-any-return]

    # for handlers that ask by themselves, and return InputRequired

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """The answers to what InputRequired asked, by key, as plain JSON; empty the first time."""
        return {key: msgspec.json.decode(answer) for key, answer in self._call.given.items()}

    @property
    def request_state(self) -> str | None:
        """The state that came with InputRequired, unchanged."""
        return self._call.own or None

    async def _ask(self, method: str, params: Any, key: str | None = None) -> Any:
        from ..connection.asking import (
            ask,
            typed,
        )  # which brings asyncio along; kept out of the import of Server

        return typed(await ask(self._call, method, params, key), method)

    def _emit(self, method: str, params: Any) -> None:
        raise NotImplementedError
