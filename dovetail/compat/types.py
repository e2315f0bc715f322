"""The types of `mcp.types` and the values of FastMCP, made from Dovetail's protocol types.

Each name is made on first use by one factory. It is a subclass of the protocol type that creates
values of the protocol type itself, in either spelling: `TextContent(type="text", text=…)`,
`Tool(inputSchema=…)`. When this module is imported, the protocol types receive the methods of
pydantic models and their camelCase attributes, so values that Dovetail creates have them, too.
"""

from collections.abc import Callable
from functools import cache, partial, reduce
from operator import attrgetter, or_
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct, defstruct

from .. import protocol
from ..errors import (
    ConfigError,
    DovetailError,
    Forbidden,
    NotFound,
    ProtocolError,
    ToolError,
    UrlRequired,
)
from ..protocol.base import Open, Params, Wire, open_hook
from ..protocol.content import ResourceContents as ResourceContents, Role as Role
from ..protocol.methods import METHODS
from ..protocol.prompts import Message as WireMessage
from ..protocol.tools import ToolResult as WireToolResult
from ..protocol.utilities import SEVERITY
from ..revisions import HANDSHAKE, HEADERLESS
from ..server.context import Accepted, Cancelled, Declined
from ..server.media import Audio, File, Image, Media
from ..server.tools import make_any_result

# ------------------------------------------------------------------------------------------------
# the methods of pydantic models, for all protocol types


def model_dump(
    self: Any, *, by_alias: bool | None = None, exclude_none: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a dict, in the spelling of release 1 of the SDK, or in that of release 2 if `by_alias`
    is False."""
    if more.get("exclude_unset") or more.get("exclude_defaults"):
        exclude_none = True
    tag = getattr(self, "__struct_config__", None) and self.__struct_config__.tag
    dumped = {"type": tag} if tag else {}
    for name, wire_name in _spellings(type(self)).items():
        value = getattr(self, name)
        key = name if by_alias is False or (name == "meta" and not by_alias) else wire_name
        if not (value is None and (exclude_none or name in ("result_type", "ttl_ms"))):
            dumped[key] = _dump(value, {**more, "by_alias": by_alias, "exclude_none": exclude_none})
    if isinstance(self, Open):
        dumped |= {key: self[key] for key in self.keys() - type(self).known.values()}
    return {key: value for key, value in dumped.items() if key not in (more.get("exclude") or ())}


def _dump(value: Any, options: dict[str, Any]) -> Any:
    if isinstance(value, Wire | Open):
        return model_dump(value, **options)
    if isinstance(value, list | tuple):
        return [_dump(item, options) for item in value]
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def model_dump_json(self: Any, *, indent: int | None = None, **options: Any) -> str:
    """Return the JSON of `model_dump`."""
    text = msgspec.json.encode(model_dump(self, **options), enc_hook=str)
    return (text if indent is None else msgspec.json.format(text, indent=indent)).decode()


def model_copy(self: Any, *, update: dict[str, Any] | None = None, deep: bool = False) -> Any:
    """Return a copy with some fields changed."""
    from copy import copy, deepcopy

    copied = (deepcopy if deep else copy)(self)
    if hasattr(self, "__dict__"):  # a component
        copied.__dict__.update(self.__dict__)
    for name, value in (update or {}).items():
        setattr(copied, name, value)
    return copied


def _spellings(kind: type) -> dict[str, str]:
    """Return the wire name of each field."""
    if issubclass(kind, Open):
        return kind.known
    return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))  # type: ignore[attr-defined]


def _add_model_methods(kind: Any) -> None:
    for name, wire_name in _spellings(kind).items():
        if name != wire_name != "_meta":
            setattr(kind, wire_name, property(attrgetter(name), partial(_set, name)))
    for each in kind.__subclasses__():
        _add_model_methods(each)


def _set(name: str, owner: Any, value: Any) -> None:
    setattr(owner, name, value)


for _base in (Wire, Open):
    for _method in (model_dump, model_dump_json, model_copy):
        setattr(_base, _method.__name__, _method)
    setattr(_base, "root", property(lambda self: self))  # ServerResult(…).root
    _add_model_methods(_base)

# ------------------------------------------------------------------------------------------------
# the factory


class Spelling(type):
    """The metaclass of the compat types: they accept the fields of pydantic models, and values
    that Dovetail created are their instances."""

    kind: Any
    """The protocol type."""
    make: Callable[..., Any]
    """The function that creates a value."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Create a value, or raise ValueError."""
        if "make" not in cls.__dict__:  # a subclass that somebody else wrote
            return super().__call__(*args, **_to_fields(cls, fields))
        try:
            return cls.make(*args, **_to_fields(cls.kind, fields))
        except (msgspec.ValidationError, TypeError) as error:
            raise ValueError(f"{cls.__name__}: {error}") from None

    def __instancecheck__(cls, value: object) -> bool:
        part = PARTS.get(cls.__name__)
        if part is not None and type(value) is ResourceContents:
            return getattr(value, part) is not None
        return cls.__subclasscheck__(type(value))

    def __subclasscheck__(cls, other: type) -> bool:
        if "make" not in cls.__dict__:
            return super().__subclasscheck__(other)
        return issubclass(other, cls.kind)

    def model_validate(cls, value: Any, **options: Any) -> Any:
        """Return a value from a dict in either spelling."""
        return value if isinstance(value, cls) else cls(**value)

    def model_validate_json(cls, text: str | bytes, **options: Any) -> Any:
        """Return a value from JSON."""
        return cls(**msgspec.json.decode(text))

    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        dump = core_schema.plain_serializer_function_ser_schema(partial(_dump, options={}))
        return core_schema.no_info_plain_validator_function(cls.model_validate, serialization=dump)

    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        names: dict[str, Any] = {name: {} for name in _spellings(cls.kind).values()}
        return {"type": "object", "title": cls.__name__, "properties": names}


PARTS = {"TextResourceContents": "text", "BlobResourceContents": "blob"}
"""The fields that tell resource contents apart, which a client receives as one type."""


class StructSpelling(Spelling, type(Struct)):  # type: ignore[misc]
    """The metaclass of the compat types that are structs."""


def _to_fields(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields by attribute name, with dicts converted to values of the field's type.
    Unknown fields are dropped, as pydantic does."""
    if issubclass(kind, Open):
        return kind.lift(kind(**fields))  # type: ignore[no-any-return]
    types, own = _field_types(kind), dict[str, Any]()
    for name, value in fields.items():
        if name in types:
            name, type_ = types[name]
            own[name] = _convert(value, type_)
    return own


@cache
def _field_types(kind: Any) -> dict[str, tuple[str, Any]]:
    """Return the attribute name and the type of each field, by all its names."""
    fields = [(each, (each.name, each.type)) for each in msgspec.structs.fields(kind)]
    named = {name: found for each, found in fields for name in (each.name, each.encode_name)}
    return named | {
        old: named[new] for old, new in {"parameters": "input_schema"}.items() if new in named
    }


def _convert(value: Any, type_: Any) -> Any:
    if type(value).__module__.startswith("pydantic") and "Url" in type(value).__name__:
        value = str(value)
    try:
        return msgspec.convert(value, type_, strict=False, dec_hook=open_hook)
    except msgspec.ValidationError:
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, Struct) or hasattr(item, "content") for item in items):
            return value  # a value of a subclass, or an Image
        raise


def spelled(name: str, kind: Any, make: Callable[..., Any] | None = None, **more: Any) -> Any:
    """Return a compat type for a protocol type.

    Args:
        name: The name of the type.
        kind: The protocol type.
        make: The function that creates a value (default: the protocol type).
        **more: Static methods of the type.
    """
    methods = {key: staticmethod(each) for key, each in {"make": make or kind, **more}.items()}
    attributes = {"kind": kind, "__doc__": (make or kind).__doc__, **methods}
    metaclass: Any = Spelling if issubclass(kind, Open) else StructSpelling
    return metaclass(name, (kind,), attributes)


# ------------------------------------------------------------------------------------------------
# the names

RENAMED = {
    "CallToolResult": "ToolResult",
    "CacheableResult": "CacheHints",
    "CreateMessageResultWithTools": "CreateMessageResult",
    "ElicitCompleteNotificationParams": "ElicitationCompleteParams",
    "ElicitRequestFormParams": "ElicitParams",
    "ElicitRequestURLParams": "ElicitParams",
    "LoggingMessageNotificationParams": "LogParams",
    "NotificationParams": "Params",
    "PaginatedRequestParams": "ListParams",
    "PaginatedResult": "Result",
    "PromptMessage": "Message",
    "PromptsCapability": "ListCapability",
    "RequestParams": "Params",
    "ResourceTemplateReference": "ResourceReference",
    "ResourceUpdatedNotificationParams": "UriParams",
    "SubscribeRequestParams": "UriParams",
    "ToolsCapability": "ListCapability",
    "UnsubscribeRequestParams": "UriParams",
}
"""The types that Dovetail calls something else; `XRequestParams` and `XNotificationParams` are
`XParams`."""
REQUESTS = {
    "CallTool": "tools/call", "CancelledNotification": "notifications/cancelled",
    "Complete": "completion/complete", "CreateMessage": "sampling/createMessage",
    "Elicit": "elicitation/create", "GetPrompt": "prompts/get", "Initialize": "initialize",
    "InitializedNotification": "notifications/initialized", "ListPrompts": "prompts/list",
    "ListResources": "resources/list", "ListResourceTemplates": "resources/templates/list",
    "ListRoots": "roots/list", "ListTools": "tools/list",
    "LoggingMessageNotification": "notifications/message", "Ping": "ping",
    "ProgressNotification": "notifications/progress",
    "PromptListChangedNotification": "notifications/prompts/list_changed",
    "ReadResource": "resources/read",
    "ResourceListChangedNotification": "notifications/resources/list_changed",
    "ResourceUpdatedNotification": "notifications/resources/updated",
    "RootsListChangedNotification": "notifications/roots/list_changed",
    "SetLevel": "logging/setLevel", "Subscribe": "resources/subscribe",
    "ToolListChangedNotification": "notifications/tools/list_changed",
    "Unsubscribe": "resources/unsubscribe",
}  # fmt: skip
"""The methods of the requests and notifications."""
UNIONS = {
    "ContentBlock": "TextContent ImageContent AudioContent ResourceLink EmbeddedResource",
    "Content": "TextContent ImageContent AudioContent ResourceLink EmbeddedResource",
    "SamplingContent": "TextContent ImageContent AudioContent",
    "SamplingMessageContentBlock":
        "TextContent ImageContent AudioContent ToolUseContent ToolResultContent",
}  # fmt: skip
WireErrorData = defstruct(
    "ErrorData", [("code", int), ("message", str), ("data", Any, None)], bases=(Wire,)
)
OWN = {
    "CallToolParams": defstruct(
        "CallToolRequestParams",
        [("name", str), ("arguments", dict[str, Any] | None, None), ("task", Any, None)],
        bases=(Params,), kw_only=True,
    ),
    "ErrorData": WireErrorData,
}  # fmt: skip
"""The protocol types that differ here."""


def __getattr__(name: str) -> Any:
    found = None if name.startswith("_") else _make_type(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _make_type(name: str) -> Any:
    if name in UNIONS:
        return reduce(or_, map(__getattr__, UNIONS[name].split()))
    method = REQUESTS.get(name) or REQUESTS.get(name.removesuffix("Request"))
    if method is not None:
        return spelled(name, _request_type(name, method))
    stem = RENAMED.get(name)
    for suffix in ("RequestParams", "NotificationParams"):
        if stem is None and name.endswith(suffix):
            stem = name.removesuffix(suffix) + "Params"
    kind = OWN.get(stem or name) or getattr(protocol, stem or name, None)
    return None if kind is None else spelled(name, kind)


def _request_type(name: str, method: str) -> Any:
    params = OWN.get(METHODS[method].params.__name__, METHODS[method].params)
    fields = [("method", str, method), ("params", params | None, None)]
    return defstruct(name, fields, bases=(Wire,))


LoggingLevel = Literal[tuple(SEVERITY)]  # type: ignore[valid-type]
ProgressToken = RequestId = int | str
Cursor = str
ElicitRequestedSchema = dict[str, Any]
LATEST_PROTOCOL_VERSION = HANDSHAKE[-1].name
DEFAULT_NEGOTIATED_VERSION = HEADERLESS.name
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
CONNECTION_CLOSED, REQUEST_TIMEOUT, URL_ELICITATION_REQUIRED = -32000, -32001, -32042
AcceptedElicitation = Accepted
DeclinedElicitation = Declined
CancelledElicitation = Cancelled


def ServerResult(result: Any) -> Any:
    """Return a result, which has itself as `.root`.

    Args:
        result: The result.
    """
    return result


def _make_tool_result(
    content: Any = None, structured_content: Any = None, meta: Any = None, is_error: bool = False
) -> WireToolResult:
    """Create a complete result: content of any type, or only data, which is also sent as text."""
    result = make_any_result(structured_content if content is None else content)
    return WireToolResult(
        content=result.content, structured_content=structured_content, meta=meta, is_error=is_error
    )


def _make_message(content: Any, role: Role = "user") -> WireMessage:
    """Create a prompt message."""
    return WireMessage(role, content)


ToolResult = spelled("ToolResult", WireToolResult, _make_tool_result)
Message = spelled("Message", WireMessage, _make_message)
UserMessage = spelled("UserMessage", WireMessage, partial(_make_message, role="user"))
AssistantMessage = spelled(
    "AssistantMessage", WireMessage, partial(_make_message, role="assistant")
)


def CurrentContext() -> Any:
    """The default value of a Context parameter. This default is never used, because the context is
    always passed."""
    return None


# ------------------------------------------------------------------------------------------------
# media


class CompatMedia(Media):
    """The methods that FastMCP and the SDK have for media."""

    family = ""

    def __init__(
        self, path: Any = None, data: bytes | None = None, format: str | None = None, **more: Any
    ) -> None:
        super().__init__(data, format and f"{self.family}/{format.lower()}", path=path, **more)

    @property
    def _mime_type(self) -> str:
        return self.mime_type

    def to_data_uri(self) -> str:
        """Return the bytes as a `data:` URI."""
        return f"data:{self.mime_type};base64,{self.base64()}"

    def _to_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Create the content block."""
        changes = {"mime_type": mime_type, "annotations": annotations}
        return self.content().model_copy(update={k: v for k, v in changes.items() if v is not None})

    to_image_content = to_audio_content = to_resource_content = _to_content


class CompatImage(CompatMedia, Image):
    """An image: `Image(path="plot.png")` or `Image(data=…, format="png")`.

    Args:
        path: The file, which is read when the result is sent.
        data: The bytes, instead of a path.
        format: The image format, such as "png" (default: from the file name).
        **more: `annotations`, as in `dovetail.Image`.
    """

    family = "image"


class CompatAudio(CompatMedia, Audio):
    """An audio clip: `Audio(path="voice.mp3")` or `Audio(data=…, format="wav")`.

    Args:
        path: The file, which is read when the result is sent.
        data: The bytes, instead of a path.
        format: The audio format, such as "wav" (default: from the file name).
        **more: `annotations`, as in `dovetail.Audio`.
    """

    family = "audio"


class CompatFile(CompatMedia, File):
    """A file: `File(path="report.pdf")` or `File(data=…, format="pdf", name="report")`.

    Args:
        path: The file, which is read when the result is sent.
        data: The bytes, instead of a path.
        format: The format, such as "pdf" (default: from the file name).
        name: The name of the file in its URI (default: from the path).
        **more: `annotations`, as in `dovetail.File`.
    """

    family = "application"

    def __init__(
        self,
        path: Any = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
        **more: Any,
    ) -> None:
        uri = name and f"file:///{name}" + (f".{format.lower()}" if format else "")
        super().__init__(path, data, format, uri=uri, **more)


# ------------------------------------------------------------------------------------------------
# errors

McpError = MCPError = ProtocolError
"""`except McpError` catches every error of the protocol."""
_initialize_error = ProtocolError.__init__


def _initialize(self: Any, *args: Any, error: Any = None, **fields: Any) -> None:
    found = error or (args[0] if args else None)
    if isinstance(found, WireErrorData):
        args = (found.code, found.message, found.data)  # type: ignore[attr-defined]
    _initialize_error(self, *args, **fields)


setattr(ProtocolError, "__init__", _initialize)
setattr(
    ProtocolError, "error", property(lambda self: WireErrorData(self.code, self.message, self.data))
)
FastMCPError = MCPServerError = DovetailError
NotFoundError = ResourceNotFoundError = NotFound
AuthorizationError = Forbidden
UrlElicitationRequiredError = UrlRequired
InvalidSignature = ConfigError


class ResourceError(NotFound):
    """A resource could not be read."""


class PromptError(ToolError):
    """A prompt could not be rendered."""


class ValidationError(ToolError):
    """Arguments or a result are not valid."""


class DisabledError(ToolError):
    """A component is disabled."""


class ReadPart(NamedTuple):
    """One item in the contents of a resource: text or bytes."""

    content: str | bytes
    mime_type: str | None


class ReadParts(list[ReadPart]):
    """The contents of a resource."""

    @property
    def contents(self) -> "ReadParts":
        """This list itself, for code that expects a result with a `contents` attribute."""
        return self
