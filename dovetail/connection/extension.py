"""What an extension is: a value that a server or a client is given, one for each side.

    say = Method("greetings/say", "client", SayParams, SayResult)
    greetings = Extension(id="com.example/greetings", methods=[say], handlers={"greetings/say": answer})
    server = Server("demo", extensions=[greetings])
    client = Client(server, extensions=[Extension(id="com.example/greetings", methods=[say])])

It is declared by its identifier and `settings` in the capabilities; the other side does the same,
and what it said can be asked for with `settings_of`. It may bring

    methods     of its own, requests and notifications, with their params and results as types
    handlers    what answers or hears those that come to this side
    around      wrappers around calls of the core, by method: middleware for that one alone, nearer to the core than the
                middleware of a server, and nearer to the caller than that of a client. The first extension is the outermost
    instead     wrappers of the same shape that let a call through, or answer it with something else, as a task is. They
                are outside of all that is `around`, which so gets what the core gives, whoever came first; and they do
                not look into what they let through, so that it need not be opened for them
    kinds       further kinds of result (`resultType`) that a call of the core may be answered with, on the client's side,
                and what makes the result out of them that the caller is waiting for

A method of an extension is for those only who declared it too, unless it is not `mutual`: others
are told which extension it takes. Everything else falls back by itself: a wrapper that finds the
extension undeclared calls the next one.

Which methods there are in a revision is asked for by each request. So it is worked out once per
revision, the extensions' methods included, and then costs one lookup, whether there are extensions
or not.
https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#extension-negotiation
"""  # noqa: E501

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import ConfigError, MethodNotFound, MissingCapability
from ..ports import Call, Caller, CallHandler
from ..protocol.base import Result
from ..protocol.lifecycle import ClientCapabilities, ServerCapabilities
from ..protocol.methods import METHODS, Method
from ..revisions import STATELESS, Revision
from .middleware import Middleware

Finish: TypeAlias = Callable[[Any, Any, Any], Awaitable[Any]]
"""Takes the client, the params of the request and the result of that kind; gives the result that
the caller gets."""
# Labels in front, and behind the slash what a key of `_meta` may be called:
# https://modelcontextprotocol.io/specification/2026-07-28/basic#meta
_LABEL = r"[a-z]([a-z0-9-]*[a-z0-9])?"
_ID = re.compile(rf"{_LABEL}(\.{_LABEL})*/[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.IGNORECASE)
UNWRAPPABLE = ("initialize", "ping")
"""What the connection answers by itself, before there is a call."""
OF_THE_CORE = ("complete", "input_required")
"""The kinds of result that are not for extensions to define."""


class ResultKind(Struct, frozen=True, eq=False):
    """A further kind of result."""

    type: type[Result]
    finish: Finish
    of: tuple[str, ...] = ()
    """The methods that may be answered so; where none is named, any."""


class Extension(Struct, frozen=True, kw_only=True, eq=False):
    """One side's part of an extension."""

    id: str
    settings: Mapping[str, Any] = {}
    methods: Sequence[Method] = ()
    handlers: Mapping[str, CallHandler] = {}
    around: Mapping[str, Middleware] = {}
    instead: Mapping[str, Middleware] = {}
    kinds: Mapping[str, ResultKind] = {}
    mutual: bool = True
    """Whether its methods are for those only who declare it too."""
    handshake: bool = True
    """Whether there is such a thing in the handshake era."""
    silent: bool = False
    """Whether this side does not declare it: where only the other side is to."""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise ConfigError(
                f"{self.id!r} is no identifier of an extension; write it like 'com.example/name'"
            )
        named, wrapped = {method.name for method in self.methods}, {*self.around, *self.instead}
        wrong = (
            (
                "belongs to the core; wrap it with around=",
                (name for name in named if _of_the_core(name, self.handshake)),
            ),
            ("has a handler, but is no method in methods=", self.handlers.keys() - named),
            (
                "cannot be wrapped: it is no request of the core that is seen as a call",
                filter(_unwrappable, wrapped),
            ),
            ("is a kind of result that the core defines", self.kinds.keys() & OF_THE_CORE),
        )
        for what, names in wrong:
            if found := sorted(names):
                raise ConfigError(f"{self.id}: {', '.join(found)} {what}")

    def is_for(self, peer: ClientCapabilities | ServerCapabilities) -> bool:
        """Whether it is for this peer: one that declared it, or anybody."""
        return not self.mutual or settings_of(self.id, peer) is not None


class Extensions:
    """The extensions of one side."""

    def __init__(self, given: Iterable[Extension] = ()) -> None:
        self._all: tuple[Extension, ...] = ()
        self._methods: dict[str, tuple[Method, Extension]] = {}
        self._around: dict[str, tuple[Middleware, ...]] = {}
        self._instead: dict[str, tuple[Middleware, ...]] = {}
        self.layers: dict[str, tuple[Middleware, ...]] = {}
        """All that wraps a method of the core, the outermost first."""
        self.kinds: dict[str, ResultKind] = {}
        self._rows: dict[Revision | None, dict[str, Method]] = {}
        for extension in given:
            self.add(extension)

    def add(self, extension: Extension) -> None:
        """One more; ConfigError where it clashes with another."""
        for other in self._all:
            if other.id == extension.id:
                raise ConfigError(
                    f"The extension {extension.id} is given twice; a server brings those of "
                    "its tasks, skills and apps along"
                )
            for kind in sorted(other.kinds.keys() & extension.kinds.keys()):
                raise ConfigError(
                    f"{kind} is a kind of result of two extensions: {other.id} and {extension.id}"
                )
        own = {method.name: (method, extension) for method in extension.methods}
        for name in sorted(own.keys() & self._methods.keys()):
            raise ConfigError(
                f"{name} is a method of two extensions: {self._methods[name][1].id} and "
                f"{extension.id}"
            )
        self._all += (extension,)
        self._methods |= own
        self.kinds |= extension.kinds
        for layers, more in ((self._around, extension.around), (self._instead, extension.instead)):
            layers |= {name: (*layers.get(name, ()), layer) for name, layer in more.items()}
        names = {*self._instead, *self._around}
        self.layers = {
            name: self._instead.get(name, ()) + self._around.get(name, ()) for name in names
        }
        self._rows = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._all)

    # negotiation

    @property
    def declared(self) -> dict[str, Any] | None:
        """What goes into the capabilities."""
        return self.declared_for(stateless=True)

    def declared_for(self, stateless: bool) -> dict[str, Any] | None:
        """What of it goes to a peer of this era."""
        declared = (one for one in self._all if not one.silent and (stateless or one.handshake))
        return {one.id: dict(one.settings) for one in declared} or None

    def admit(self, method: Method, params: Any, caller: Caller) -> None:
        """Raises where this is a method of an extension that the caller did not declare."""
        if self.is_offered_to(method, caller.capabilities):
            return
        refusal = missing_extension(method.name, self._methods[method.name][1].id)
        if caller.revision.stateless:
            raise refusal
        # The handshake era has no such code: what was not agreed on at its beginning is not there.
        raise MethodNotFound(refusal.message, data=refusal.data)

    def check(self, method: Method, peer: ServerCapabilities) -> None:
        """MethodNotFound where this is a method of an extension that the server did not declare."""
        _, extension = self._methods[method.name]
        if not extension.is_for(peer):
            raise MethodNotFound(
                f"{method.name}: the server does not offer the extension {extension.id}"
            )

    def is_offered_to(self, method: Method, peer: ClientCapabilities | ServerCapabilities) -> bool:
        """Whether this peer wants to hear of a method, which it does of all that are no
        extension's."""
        found = self._methods.get(method.name)
        return found is None or found[0] is not method or found[1].is_for(peer)

    # methods

    def find_method(self, name: str, revision: Revision | None) -> Method | None:
        """The method that goes by this name: in a revision with the extensions that its era has, or
        else anywhere."""
        try:
            return self._rows[revision].get(name)
        except KeyError:
            return self._rows.setdefault(revision, self._table(revision)).get(name)

    def all_methods(self) -> Iterable[Method]:
        """All methods that there are, in any revision or extension."""
        return [*METHODS.values(), *(method for method, _ in self._methods.values())]

    def _table(self, revision: Revision | None) -> dict[str, Method]:
        if revision is None:
            return METHODS | {name: method for name, (method, _) in self._methods.items()}
        own = {
            called: METHODS[name]
            for name in revision.methods
            for called in (name, revision.wire_name(name))
        }
        return own | {
            name: row
            for name in self._methods
            if (row := self.extension_method(name, revision.stateless)) is not None
        }

    def extension_method(self, name: str, stateless: bool) -> Method | None:
        """The method of that name, where an extension has it in this era."""
        found = self._methods.get(name)
        return found[0] if found is not None and (stateless or found[1].handshake) else None

    def find_handler(
        self, method: Method, peer: ClientCapabilities | ServerCapabilities
    ) -> CallHandler | None:
        """What an extension answers or hears this method with, where it is for that peer, and
        theirs to send."""
        found = self._methods.get(method.name)
        ours = "server" if isinstance(peer, ClientCapabilities) else "client"
        if found is None or method.sender == ours or not self.is_offered_to(method, peer):
            return None
        return found[1].handlers.get(method.name)

    def layers_inside(self, extension: Extension, name: str) -> tuple[Middleware, ...]:
        """What a call still goes through once an extension that may answer something `instead` has
        let it through."""
        layers = self.layers[name]
        return layers[layers.index(extension.instead[name]) + 1 :]

    def find_kind(self, name: str | None, method: Method) -> ResultKind | None:
        """The kind of that name, where this method may be answered so."""
        kind = self.kinds.get(name) if name is not None else None
        return kind if kind is not None and (not kind.of or method.name in kind.of) else None

    def kind_of(self, result: Any) -> ResultKind | None:
        """The kind that a result is of, where it is not of the core."""
        kind = (
            self.kinds.get(result.result_type or "")
            if self.kinds and isinstance(result, Result)
            else None
        )
        return kind if kind is not None and isinstance(result, kind.type) else None


NONE = Extensions()
"""No extensions."""


def settings_of(id: str, peer: ClientCapabilities | ServerCapabilities) -> dict[str, Any] | None:
    """What the other side declared of an extension; None where it did not."""
    declared = peer.extensions
    found = declared.get(id) if isinstance(declared, dict) else None
    return found if isinstance(found, dict) else None


def missing_extension(what: str, id: str) -> MissingCapability:
    """The refusal of what only those get who declare the extension."""
    return MissingCapability(
        f"{what} is for clients that declare the extension {id}",
        data={"requiredCapabilities": {"extensions": {id: {}}}},
    )


def has_declared(call: Call, id: str) -> bool:
    """Whether the other side declared an extension: on a server the caller, on a client the
    server."""
    return settings_of(id, call.caller.capabilities) is not None


def notify(call: Call, method: str, params: Any) -> None:
    """On a server: send a notification of an extension that belongs to a call, as long as somebody
    waits for it. Callers who did not declare the extension are not told."""
    call.connection.notify(call, method, params)


def _of_the_core(name: str, handshake: bool) -> bool:
    """Whether the core has this method where the extension would have it too."""
    return name in METHODS if handshake else any(name in revision.methods for revision in STATELESS)


def _unwrappable(name: str) -> bool:
    row = METHODS.get(name)
    return row is None or row.result is None or name in UNWRAPPABLE
