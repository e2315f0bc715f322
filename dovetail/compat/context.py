"""The context by the names of both peers: a coat over the one that there is."""

from typing import TYPE_CHECKING, Any, Literal

from ..protocol.client_features import CreateMessageResult, ListRootsResult
from ..protocol.utilities import SEVERITY
from ..server.context import Context as Plain
from ..server.context import Room
from ..server.unawaited import unawaited
from .instead import lacks
from .values import Part, Parts

if TYPE_CHECKING:
    from ..server.forms import Elicited
    from ..server.sampling import Sampled


LEVELS: tuple[Any, ...] = (*SEVERITY,)
"""No dict: a message is looked for in it, and may be anything."""


class Context(Plain):
    """One call, as its handler sees it. What `dovetail.Context` has is here too."""

    __slots__ = ()

    def __class_getitem__(cls, item: Any) -> "type[Context]":
        return cls  # Context[ServerSession, AppContext], which says nothing at run time

    def __getattr__(self, name: str) -> Any:
        raise lacks("Context", name)

    @property
    def fastmcp(self) -> Any:
        """The server."""
        return self._server

    mcp_server = fastmcp

    @property
    def request_id(self) -> str:
        """The id of the request, as text."""
        return str(super().request_id)

    @property
    def client_id(self) -> str | None:
        """What the client calls itself in the `_meta` of its request, if anything."""
        return self.meta.get("client_id")

    @property
    def protocol_version(self) -> str:
        """The revision of the protocol that the client speaks."""
        return self.revision

    @property
    def lifespan_context(self) -> Any:
        """What the server's lifespan gave."""
        return self.state

    @property
    def request_context(self) -> "Context":
        """The same: what is looked up there (lifespan_context, session, request_id, meta) is
        here."""
        return self

    @property
    def session(self) -> "Session":
        """What a server can say to its client outside of the answer."""
        return Session(self)

    def log(
        self, *said: Any, level: Any = None, data: Any = None, message: Any = None, **more: Any
    ) -> Room:
        """Send a log message: `log("info", text)`, or `log(text, "info")`; the logger and what is
        `extra` may follow."""
        words = [*said[:2], *(text for text in (data, message) if text is not None)]
        text = words.pop()
        more |= dict(zip(("logger_name", "extra"), said[2:], strict=False))
        named = [more.pop(key, None) for key in ("logger_name", "logger")]
        extra = more.pop("extra", None) or more
        level = level or (words[0] if words else "info")
        if level not in LEVELS and text in (
            None,
            *LEVELS,
        ):  # FastMCP has the message first, and may have no level
            level, text = text or "info", level
        return super().log(
            level, {"message": text, **extra} if extra else text, named[0] or named[1]
        )

    def debug(self, data: Any, logger: str | None = None, **more: Any) -> Room:
        """Log in detail."""
        return self.log("debug", data, logger=logger, **more)

    def info(self, data: Any, logger: str | None = None, **more: Any) -> Room:
        """Log what is going on."""
        return self.log("info", data, logger=logger, **more)

    def warning(self, data: Any, logger: str | None = None, **more: Any) -> Room:
        """Log what may become a problem."""
        return self.log("warning", data, logger=logger, **more)

    def error(self, data: Any, logger: str | None = None, **more: Any) -> Room:
        """Log what went wrong."""
        return self.log("error", data, logger=logger, **more)

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Room:
        """Tell how far the work has come."""
        return self.progress(progress, total, message)

    @unawaited
    async def read_resource(self, uri: Any) -> Parts:  # type: ignore[override]
        """Read a resource of this very server: parts with `.content` and `.mime_type`."""
        found = await super().read_resource(str(uri))
        return Parts(
            Part(one.data if one.text is None else one.text, one.mime_type) for one in found
        )

    @unawaited
    async def elicit(  # type: ignore[override]
        self, message: str, response_type: Any = None, *, schema: Any = None, **more: Any
    ) -> "Elicited[Any]":
        """Ask the user to fill in a form: a class, one plain type, or a list of choices."""
        wanted = response_type if schema is None else schema
        return await super().elicit(
            message, Literal[tuple(wanted)] if isinstance(wanted, list) else wanted, **more
        )

    @unawaited
    async def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, **more: Any
    ) -> "Elicited[None]":
        """Ask the user to visit a page."""
        return await super().elicit_url(message, url, id=elicitation_id, **more)

    @unawaited
    async def sample(self, messages: Any, *, max_tokens: int = 512, **options: Any) -> "Sampled":
        """Ask the client's model to go on from here; its words are `.text`."""
        wanted = options.get("model_preferences")
        if isinstance(wanted, str | list):
            names = [wanted] if isinstance(wanted, str) else wanted
            options["model_preferences"] = {"hints": [{"name": name} for name in names]}
        return await super().sample(messages, max_tokens=max_tokens, **options)


class Session:
    """What a server can say to its client outside of the answer, by the names of the official
    SDK."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        raise lacks("ServerSession", name)

    async def create_message(
        self, messages: Any, *, max_tokens: int, **options: Any
    ) -> CreateMessageResult:
        """Ask the client's model."""
        return (await self._context.sample(messages, max_tokens=max_tokens, **options)).result

    async def list_roots(self) -> ListRootsResult:
        """The directories that the client lets servers know of."""
        return ListRootsResult(roots=await self._context.list_roots())

    async def send_log_message(
        self, level: Any, data: Any, logger: str | None = None, **_: Any
    ) -> None:
        """Send a log message."""
        await self._context.log(level, data, logger=logger)

    async def send_resource_updated(self, uri: Any) -> None:
        """Tell all who subscribed to a resource that it changed."""
        await self._context.notify_resource_updated(str(uri))

    async def send_tool_list_changed(self) -> None:
        """Tell that the tools changed. Adding and removing them does so by itself."""
        self._context.fastmcp.tell_changed("tools")

    async def send_resource_list_changed(self) -> None:
        """Tell that the resources changed. Adding and removing them does so by itself."""
        self._context.fastmcp.tell_changed("resources")

    async def send_prompt_list_changed(self) -> None:
        """Tell that the prompts changed. Adding and removing them does so by itself."""
        self._context.fastmcp.tell_changed("prompts")
