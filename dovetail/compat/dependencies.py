"""The current call, for functions that do not receive a context, and FastMCP's `Depends`."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial, wraps
from importlib import import_module
from inspect import Parameter, isawaitable, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any

from ..limits import DEFAULT
from ..ports import Call, CallHandler

if TYPE_CHECKING:
    from .context import CompatContext

CURRENT: ContextVar[tuple[Call, Any] | None] = ContextVar("dovetail_compat_call", default=None)
"""The call that is being answered, and the server."""
HIDDEN_HEADERS = {
    "host", "content-length", "connection", "transfer-encoding", "upgrade", "te", "keep-alive",
    "expect", "accept", "content-type", "authorization", "mcp-session-id", "proxy-authenticate",
    "proxy-authorization", "proxy-connection",
}  # fmt: skip
"""The headers that must not be copied into another request."""


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
    scope = {
        "type": "http", "method": "POST", "scheme": "http", "query_string": b"", "root_path": "",
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
    """A default value that is replaced in each call by what a function returns. If that is a
    context manager, the value is what it yields."""

    def __init__(self, factory: Callable[..., Any]) -> None:
        self.factory = factory

    async def resolve(self, stack: AsyncExitStack, known: dict[Any, Any]) -> Any:
        """Return the value, and clean up when the stack is closed. Each factory is called once."""
        if self.factory not in known:
            value = self.factory(**await resolve_all(self.factory, stack, known))
            if isawaitable(value):
                value = await value
            if hasattr(value, "__aenter__"):
                value = await stack.enter_async_context(value)
            elif hasattr(value, "__enter__") and hasattr(self.factory, "__wrapped__"):
                value = stack.enter_context(value)
            known[self.factory] = value
        return known[self.factory]


def Depends(factory: Callable[..., Any], *, use_cache: bool = True) -> Any:
    """Return the default value of a parameter that receives what a function returns."""
    return Dependency(factory)


CurrentContext = partial(Depends, get_context)
CurrentFastMCP = partial(Depends, get_server)
CurrentRequest = partial(Depends, get_http_request)
CurrentHeaders = partial(Depends, get_http_headers)
CurrentAccessToken = partial(Depends, get_access_token)


def find_dependencies(function: Callable[..., Any]) -> dict[str, Dependency]:
    """Return the dependencies of a function by parameter. A parameter that is annotated as a
    context receives it anyway."""
    return {
        name: parameter.default
        for name, parameter in signature(function).parameters.items()
        if isinstance(parameter.default, Dependency)
        and (
            parameter.default.factory is not get_context or parameter.annotation is Parameter.empty
        )
    }


async def resolve_all(function: Any, stack: AsyncExitStack, known: Any) -> dict[str, Any]:
    """Return the values of a function's dependencies."""
    wanted = find_dependencies(function)
    return {name: await one.resolve(stack, known) for name, one in wanted.items()}


def inject(function: Callable[..., Any], hidden: Iterable[str] = ()) -> Callable[..., Any]:
    """Return a function without the parameters that are dependencies or hidden. Hidden parameters
    keep their default values."""
    wanted = find_dependencies(function)
    if not wanted and not hidden:
        return function
    from ..server.execution import run_function

    own, dropped = signature(function), {*wanted, *hidden}
    kept = own.replace(
        parameters=[one for name, one in own.parameters.items() if name not in dropped]
    )

    @wraps(function)
    async def injected(*args: Any, **kwargs: Any) -> Any:
        named = kept.bind(*args, **kwargs).arguments
        async with AsyncExitStack() as stack:
            named |= await resolve_all(function, stack, {})
            return await run_function(function, iscoroutinefunction(function), (), named, DEFAULT)

    injected.__signature__ = kept  # type: ignore[attr-defined]
    return injected


def get_logger(name: str) -> Any:
    """Return a logger of the standard library."""
    return import_module("logging").getLogger(name)


def configure_logging(level: Any = "INFO", **format: Any) -> None:
    """Log to stderr."""
    import_module("logging").basicConfig(level=level)
