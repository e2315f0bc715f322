"""The current call, for functions that do not receive a context, and FastMCP's `Depends`."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from functools import cached_property, partial, wraps
from importlib import import_module
from inspect import Parameter, isawaitable, signature
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from ..errors import ConfigError
from ..limits import DEFAULT
from ..ports import Call, CallHandler
from ..server.context import Context
from ..server.signature import is_async, is_context, read_hints

if TYPE_CHECKING:
    from .context import CompatContext

CURRENT: ContextVar[tuple[Call, Any] | None] = ContextVar("dovetail_compat_call", default=None)
"""The call that is being answered, and the server."""
ASKING: ContextVar[Any] = ContextVar("dovetail_compat_asking", default=None)
"""The server whose program itself makes that call."""
HIDDEN_HEADERS = {
    "host", "content-length", "connection", "transfer-encoding", "upgrade", "te", "keep-alive",
    "expect", "accept", "content-type", "authorization", "mcp-session-id", "proxy-authenticate",
    "proxy-authorization", "proxy-connection",
}  # fmt: skip
"""The headers that must not be copied into another request."""
TEXT = Annotated[str, Meta(extra_json_schema={"format": "binary"})]
"""What the other libraries accept for bytes."""


def in_context(server: Any, answer: CallHandler) -> CallHandler:
    """Return a handler that makes a call the current one of its task. Each call has a task."""

    def answer_in_context(call: Call) -> Awaitable[Any]:
        CURRENT.set((call, server))
        return answer(call)

    return answer_in_context


def find_context() -> "CompatContext | None":
    """Return the context of the current call, if there is one."""
    found = CURRENT.get()
    return found and found[1].context_type(*found)


def get_context() -> "CompatContext":
    """Return the context of the current call, or raise RuntimeError."""
    if (context := find_context()) is None:
        raise RuntimeError("There is no active context: no call is being answered here")
    return context


def get_server() -> Any:
    """Return the server that answers the current call."""
    return get_context().fastmcp


def get_http_headers(include_all: bool = False, include: Iterable[str] = ()) -> dict[str, str]:
    """Return the headers of the current HTTP request, or an empty dict. Credentials that the
    server's own `auth=` has checked are never included."""
    context = find_context()
    hidden = set() if include_all else HIDDEN_HEADERS - {name.lower() for name in include or ()}
    headers = {} if context is None else context.headers
    return {name: value for name, value in headers.items() if name not in hidden}


def get_http_request() -> Any:
    """Return the current HTTP request as a Starlette request without a body, or raise
    RuntimeError."""
    if (request := make_http_request(get_context())) is None:
        raise RuntimeError("There is no active HTTP request: the call came over another transport")
    return request


def make_http_request(context: "CompatContext") -> Any:
    """Return the HTTP request of a call as a Starlette request, or None on other transports."""
    if not context.headers:
        return None
    from starlette.requests import Request

    headers = context.headers.items()
    identity = getattr(context._call.origin.connection, "identity", None)
    query = getattr(identity, "query", b"")
    scope = {
        "type": "http", "method": "POST", "scheme": "http", "query_string": query, "root_path": "",
        "path": context.fastmcp.settings.streamable_http_path, "user": context.user, "state": {},
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": (context._call.address or "", 0),
    }  # fmt: skip
    return Request(scope)


def get_access_token() -> Any:
    """Return the access token of the current call as an `AccessToken`, or None without one."""
    from .auth import to_access_token

    user = None if (context := find_context()) is None else context.user
    return user and (getattr(user, "access_token", None) or to_access_token("", user))


class Dependency:
    """A parameter that is replaced in each call by what a function returns. If that is a context
    manager, the value is what it yields. In place of a function, the name of an argument."""

    takes_arguments = False
    """Whether the function receives the context and the arguments that its parameters name."""

    def __init__(self, factory: Any) -> None:
        self.factory = factory

    @cached_property
    def needs(self) -> dict[str, "Dependency"]:
        """What the function itself needs, by parameter."""
        return find_dependencies(self.factory, self)

    def typed(self, annotation: Any) -> "Dependency":
        """Return the dependency for a parameter of this type."""
        return self

    async def resolve(self, stack: AsyncExitStack, known: dict[Any, Any]) -> Any:
        """Return the value, and clean up when the stack is closed. Each function is called once;
        what is known is the arguments by name and the values by function."""
        if self.factory not in known:
            given = await resolve_all(self.needs, stack, known)
            known[self.factory] = await self.make(given, stack)
        return known[self.factory]

    async def make(self, given: dict[str, Any], stack: AsyncExitStack) -> Any:
        """Call the function."""
        value = self.factory(**given)
        if isawaitable(value):
            value = await value
        if hasattr(value, "__aenter__"):
            return await stack.enter_async_context(value)
        if hasattr(value, "__enter__") and hasattr(self.factory, "__wrapped__"):
            return stack.enter_context(value)
        return value


def Depends(factory: Callable[..., Any], *, use_cache: bool = True) -> Any:
    """Return the default value of a parameter that receives what a function returns."""
    return Dependency(factory)


CurrentContext = partial(Depends, get_context)
CurrentFastMCP = partial(Depends, get_server)
CurrentRequest = partial(Depends, get_http_request)
CurrentHeaders = partial(Depends, get_http_headers)
CurrentAccessToken = partial(Depends, get_access_token)


def find_dependencies(function: Any, owner: Dependency | None = None) -> dict[str, Dependency]:
    """Return the dependencies of a function by parameter. It is a tool, or makes the value of the
    owner."""
    hints, parameters = _read_hints(function), dict[str, Parameter]()
    with suppress(ValueError):  # a builtin
        parameters = {**signature(function).parameters}
    found = {
        one.name: _find_dependency(one, hints.get(one.name), owner) for one in parameters.values()
    }
    return {name: one for name, one in found.items() if one is not None}


def _read_hints(function: Any) -> dict[str, Any]:
    with suppress(ValueError):  # an annotation that only type checkers know
        return read_hints(function, "", Context)
    return {}


def _find_dependency(parameter: Parameter, hint: Any, owner: Any) -> Dependency | None:
    default = parameter.default
    if isinstance(default, Dependency):
        is_given = default.factory is get_context and parameter.annotation is not Parameter.empty
        return None if is_given and owner is None else default  # a tool receives it anyway
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, Dependency):
            return note.typed(hint.__origin__)
    is_required = default is Parameter.empty and "VAR" not in parameter.kind.name
    if owner is None or not owner.takes_arguments or not is_required:
        return None
    return Dependency(get_context if is_context(hint, Context) else parameter.name)


def check_dependencies(wanted: dict[str, Dependency], arguments: Any, *path: Any) -> None:
    """Raise ConfigError if a dependency needs itself, or something that is not an argument."""
    for one in wanted.values():
        if one.factory in path:
            raise ConfigError(f"The dependency {one.factory.__name__} needs itself")
        if not isinstance(one.factory, str):
            check_dependencies(one.needs, arguments, *path, one.factory)
        elif one.factory not in arguments:
            raise ConfigError(
                f"{path[-1].__name__} has the parameter {one.factory}, which must be the context, "
                "an argument of the tool, or another dependency"
            )


async def resolve_all(wanted: dict[str, Dependency], stack: Any, known: Any) -> dict[str, Any]:
    """Return the values of dependencies, one after the other."""
    return {name: await one.resolve(stack, known) for name, one in wanted.items()}


def inject(function: Callable[..., Any], hidden: Iterable[str] = ()) -> Callable[..., Any]:
    """Return a function without the parameters that are dependencies or hidden. Hidden parameters
    keep their default values, and parameters that are bytes accept text."""
    wanted, hints = find_dependencies(function), _read_hints(function)
    texts = [name for name, hint in hints.items() if hint is bytes and name != "return"]
    if not wanted and not hidden and not texts:
        return function
    own, dropped = signature(function), {*wanted, *hidden}
    kept = own.replace(
        parameters=[one for name, one in own.parameters.items() if name not in dropped]
    )
    check_dependencies(wanted, kept.parameters)
    from ..server.execution import run_function  # loads asyncio

    @wraps(function)
    async def injected(*args: Any, **kwargs: Any) -> Any:
        named = kept.bind(*args, **kwargs).arguments
        named |= {key: named[key].encode() for key in texts if isinstance(named.get(key), str)}
        async with AsyncExitStack() as stack:
            named |= await resolve_all(wanted, stack, {**named})
            return await run_function(function, is_async(function), (), named, DEFAULT)

    injected.__signature__ = kept  # type: ignore[attr-defined]
    if texts:
        injected.__annotations__ = hints | dict.fromkeys(texts, TEXT)
        del injected.__wrapped__
    return injected


def in_anyio_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a plain function in a thread of anyio, for `anyio.from_thread`.
    If the call is cancelled, the function can find out."""
    if is_async(function):
        return function

    @wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        from anyio import CancelScope, to_thread

        with CancelScope() as scope:
            try:
                call = partial(function, *args, **kwargs)
                return await to_thread.run_sync(call, abandon_on_cancel=True)
            finally:
                scope.cancel()

    return run


def get_logger(name: str) -> Any:
    """Return a logger of the standard library."""
    return import_module("logging").getLogger(name)


def configure_logging(level: Any = "INFO", **format: Any) -> None:
    """Log to stderr."""
    import_module("logging").basicConfig(level=level)
