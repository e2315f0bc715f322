"""The types of `mcp.types` and the values of FastMCP, made from Dovetail's protocol types.

One factory makes each type on first use: a subclass of the protocol type that accepts either
spelling, `Tool(inputSchema=…)` or `Tool(input_schema=…)`, and creates values of the protocol type
itself. The protocol types receive the methods of pydantic models and camelCase attributes when this
module is imported, so values that Dovetail creates have them, too.
"""

from collections.abc import Callable
from functools import cache, partial, reduce
from operator import attrgetter, or_
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct, defstruct

from .. import errors, protocol
from ..protocol.base import Open, Params, Wire, open_hook
from ..protocol.content import ResourceContents as ResourceContents, Role as Role
from ..protocol.lifecycle import InputRequired
from ..protocol.methods import METHODS
from ..protocol.prompts import Message as WireMessage
from ..protocol.tools import ToolResult as WireToolResult
from ..protocol.utilities import SEVERITY
from ..revisions import HANDSHAKE, HEADERLESS, STATELESS
from ..server.context import Accepted, Cancelled, Declined, Elicited
from ..server.media import Audio, File, Image, Media
from ..server.tools import make_any_result


def _model_dump(
    self: Any, by_alias: bool | None = None, exclude_none: bool = False, **more: Any
) -> dict[str, Any]:
    exclude_none |= bool(more.get("exclude_unset") or more.get("exclude_defaults"))
    tag = getattr(getattr(self, "__struct_config__", None), "tag", None)
    dumped = {"type": tag} if tag else {}
    for name, wire_name in _spellings(type(self)).items():
        value = getattr(self, name)
        if value is not None or not (exclude_none or name in ("result_type", "ttl_ms")):
            # Without by_alias, release 1 has the wire names, except that of `_meta`.
            key = name if by_alias is False or (name == "meta" and not by_alias) else wire_name
            dumped[key] = _dump(value, by_alias=by_alias, exclude_none=exclude_none)
    if isinstance(self, Open):
        dumped |= {key: self[key] for key in self.keys() - self.known.values()}
    return {key: value for key, value in dumped.items() if key not in (more.get("exclude") or ())}


def _dump(value: Any, **options: Any) -> Any:
    if isinstance(value, Wire | Open):
        return _model_dump(value, **options)
    if isinstance(value, list):
        return [_dump(item, **options) for item in value]
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def _model_dump_json(self: Any, indent: int = 0, **options: Any) -> str:
    text = msgspec.json.encode(_model_dump(self, **options), enc_hook=str)
    return msgspec.json.format(text, indent=indent or -1).decode()


def _model_copy(self: Any, update: dict[str, Any] | None = None, deep: bool = False) -> Any:
    from copy import copy, deepcopy

    copied = deepcopy(self) if deep else copy(self)
    for name, value in {**getattr(self, "__dict__", {}), **(update or {})}.items():
        setattr(copied, name, value)
    return copied


def _spellings(kind: Any) -> dict[str, str]:
    """Return the wire name of each field."""
    if not issubclass(kind, Open):
        return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return kind.known  # type: ignore[no-any-return]


def _add_spellings(kind: Any) -> None:
    for name, wire_name in _spellings(kind).items():
        if name != wire_name != "_meta":
            setter = partial(lambda name, owner, value: setattr(owner, name, value), name)
            setattr(kind, wire_name, property(attrgetter(name), setter))
    for each in kind.__subclasses__():
        _add_spellings(each)


for _base in (Wire, Open):
    for _method in (_model_dump, _model_dump_json, _model_copy):
        setattr(_base, _method.__name__[1:], _method)
    setattr(_base, "root", property(lambda self: self))  # ServerResult(…).root
    setattr(_base, "model_extra", property(lambda self: {**self} if isinstance(self, dict) else {}))
    _add_spellings(_base)
setattr(errors.ProtocolError, "error", property(lambda self: __getattr__("ErrorData")(
    code=self.code, message=self.message, data=self.data)))  # fmt: skip


class Spelling(type):
    """The metaclass of the compat types."""

    kind: Any
    make: Callable[..., Any]

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Create a value, or raise ValueError."""
        try:
            if "make" not in cls.__dict__:  # a user's own subclass
                return super().__call__(*args, **_to_fields(cls, fields))
            own = _to_fields(cls.kind, fields) if cls.make is cls.kind else fields
            return cls.make(*args, **own)
        except (msgspec.ValidationError, TypeError) as error:
            raise ValueError(f"{cls.__name__}: {error}") from None

    def __instancecheck__(cls, value: object) -> bool:
        if type(value) is ResourceContents and cls.__name__ in PARTS:
            return getattr(value, PARTS[cls.__name__]) is not None
        return cls.__subclasscheck__(type(value))

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.kind) if "make" in cls.__dict__ else cls in other.__mro__

    def model_validate(cls, value: Any, **ignored: Any) -> Any:
        """Return a value from a dict in either spelling."""
        return value if isinstance(value, cls) else cls(**value)

    def model_validate_json(cls, text: str | bytes, **ignored: Any) -> Any:
        """Return a value from JSON."""
        return cls(**msgspec.json.decode(text))

    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        dump = core_schema.plain_serializer_function_ser_schema(_dump)
        return core_schema.no_info_plain_validator_function(cls.model_validate, serialization=dump)

    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        names: dict[str, Any] = {name: {} for name in _spellings(cls.kind).values()}
        return {"type": "object", "title": cls.__name__, "properties": names}


class StructSpelling(Spelling, type(Struct)):  # type: ignore[misc]
    """The metaclass of the compat types that are structs."""

    def __new__(cls, name: str, bases: Any, namespace: dict[str, Any], **options: Any) -> Any:
        """Create a type. The default of a field may be pydantic's `Field(…)`."""
        hints = namespace.get("__annotations__", {})
        for field in [key for key in hints if type(namespace.get(key)).__name__ == "FieldInfo"]:
            from ..schema.walk import from_default, read_notes

            notes = read_notes(namespace[field].metadata)
            _, default = from_default(hints[field], namespace.pop(field))
            if not isinstance(hints[field], str):
                hints[field] = Annotated[hints[field], msgspec.Meta(**notes)]
            if default is not msgspec.NODEFAULT:
                namespace[field] = default
        return super().__new__(cls, name, bases, namespace, **options)


PARTS = {"TextResourceContents": "text", "BlobResourceContents": "blob"}
"""The fields that tell resource contents apart, which clients receive as one type."""


def _to_fields(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the known fields by attribute name, with dicts converted to values."""
    if issubclass(kind, Open):
        return kind.lift(kind(**fields))  # type: ignore[no-any-return]
    known = _fields(kind)
    return {known[name].name: _convert(value, known[name].type)
            for name, value in fields.items() if name in known}  # fmt: skip


@cache
def _fields(kind: Any) -> dict[str, Any]:
    fields = msgspec.structs.fields(kind)
    named = {name: each for each in fields for name in (each.name, each.encode_name)}
    return {"parameters": named["input_schema"], **named} if "input_schema" in named else named


def _convert(value: Any, type_: Any) -> Any:
    if type(value).__module__.startswith("pydantic") and "Url" in type(value).__name__:
        value = str(value)
    try:
        return msgspec.convert(value, type_, strict=False, dec_hook=open_hook)
    except msgspec.ValidationError:
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, Struct | Media) for item in items):
            return value  # a value of a subclass, or an Image
        raise


def spelled(name: str, kind: Any, make: Any = None, **methods: Any) -> Any:
    """Return a compat type for a protocol type; `make` creates its values."""
    members = {key: staticmethod(each) for key, each in {"make": make or kind, **methods}.items()}
    metaclass: Any = Spelling if issubclass(kind, Open) else StructSpelling
    return metaclass(name, (kind,), {"kind": kind, "__doc__": (make or kind).__doc__, **members})


def _table(text: str) -> dict[str, str]:
    return dict(line.split("=") for line in text.split())


RENAMED = _table("""
    CallToolResult=ToolResult CacheableResult=CacheHints PaginatedResult=Result
    CreateMessageResultWithTools=CreateMessageResult PromptMessage=Message
    ElicitCompleteNotificationParams=ElicitationCompleteParams NotificationParams=Params
    ElicitRequestFormParams=ElicitParams ElicitRequestURLParams=ElicitParams RequestParams=Params
    LoggingMessageNotificationParams=LogParams PaginatedRequestParams=ListParams
    PromptsCapability=ListCapability ToolsCapability=ListCapability
    ResourceTemplateReference=ResourceReference ResourceUpdatedNotificationParams=UriParams
    SubscribeRequestParams=UriParams UnsubscribeRequestParams=UriParams
    SubscriptionsListenRequestParams=ListenParams
""")
"""The types that Dovetail calls something else, besides `XRequestParams`, which is `XParams`."""
REQUESTS = _table("""
    CallToolRequest=tools/call CancelledNotification=notifications/cancelled PingRequest=ping
    CompleteRequest=completion/complete CreateMessageRequest=sampling/createMessage
    ElicitRequest=elicitation/create GetPromptRequest=prompts/get InitializeRequest=initialize
    InitializedNotification=notifications/initialized ListPromptsRequest=prompts/list
    ListResourcesRequest=resources/list ListResourceTemplatesRequest=resources/templates/list
    ListRootsRequest=roots/list ListToolsRequest=tools/list SetLevelRequest=logging/setLevel
    LoggingMessageNotification=notifications/message ProgressNotification=notifications/progress
    PromptListChangedNotification=notifications/prompts/list_changed
    ReadResourceRequest=resources/read
    ResourceListChangedNotification=notifications/resources/list_changed
    ResourceUpdatedNotification=notifications/resources/updated
    RootsListChangedNotification=notifications/roots/list_changed
    SubscribeRequest=resources/subscribe UnsubscribeRequest=resources/unsubscribe
    ToolListChangedNotification=notifications/tools/list_changed
""")
"""The method of each request and notification."""
BLOCKS = ("TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource")
TOOL_BLOCKS = ("ToolUseContent", "ToolResultContent")
JSONRPC = {"JSONRPCRequest": "jsonrpc id method params", "JSONRPCResponse": "jsonrpc id result",
           "JSONRPCNotification": "jsonrpc method params", "JSONRPCError": "jsonrpc id error",
}  # fmt: skip
APPS = {"ResourcePermissions": "camera microphone geolocation clipboard_write",
        "ResourceCsp": "connect_domains resource_domains frame_domains base_uri_domains",
}  # fmt: skip
UNIONS = {"Content": BLOCKS, "ContentBlock": BLOCKS, "SamplingContent": BLOCKS[:3],
          "InputRequest": ("ElicitRequest", "CreateMessageRequest", "ListRootsRequest"),
          "SamplingMessageContentBlock": BLOCKS[:3] + TOOL_BLOCKS, "JSONRPCMessage": JSONRPC,
}  # fmt: skip
_struct = partial(defstruct, bases=(Wire,))
OWN: dict[str, Any] = {
    "ErrorData": _struct("ErrorData", [("code", int), ("message", str), ("data", Any, None)]),
    "CallToolParams": defstruct("CallToolRequestParams", [("name", str),
        ("arguments", dict[str, Any] | None, None), ("input_responses", Any, None),
        ("request_state", str | None, None)], bases=(Params,), kw_only=True),
    **{name: _struct(name, [(each, Any, None) for each in fields.split()])
       for name, fields in {**JSONRPC, **APPS}.items()},
}  # fmt: skip
"""The types that the protocol package lacks, or has with other fields."""


def __getattr__(name: str) -> Any:
    if name in UNIONS:
        found = reduce(or_, map(__getattr__, UNIONS[name]))
    elif isinstance(kind := None if name.startswith("_") else _find_kind(name), type):
        found = spelled(name, kind)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _find_kind(name: str) -> Any:
    if name in REQUESTS:
        params = METHODS[REQUESTS[name]].params
        optional = OWN.get(params.__name__, params) | None
        return _struct(name, [("method", str, REQUESTS[name]), ("params", optional, None)])
    stem = RENAMED.get(name, name)
    for suffix in ("RequestParams", "NotificationParams"):
        stem = stem.removesuffix(suffix) + "Params" if stem.endswith(suffix) else stem
    return OWN.get(stem) or getattr(protocol, stem, None)


LoggingLevel = Literal[tuple(SEVERITY)]  # type: ignore[valid-type]
ProgressToken = RequestId = int | str
Cursor, ElicitRequestedSchema = str, dict[str, Any]
LATEST_PROTOCOL_VERSION, DEFAULT_NEGOTIATED_VERSION = HANDSHAKE[-1].name, HEADERLESS.name
LATEST_MODERN_VERSION = STATELESS[-1].name
MODERN_PROTOCOL_VERSIONS = tuple(revision.name for revision in STATELESS)
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR, URL_ELICITATION_REQUIRED = -32602, -32603, -32042
CONNECTION_CLOSED, REQUEST_TIMEOUT = -32000, -32001
HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY = -32020, -32021
ElicitationResult: Any = Elicited
CallNext = HandlerResult = Any
AcceptedElicitation, DeclinedElicitation, CancelledElicitation = Accepted, Declined, Cancelled

McpError = MCPError = errors.ProtocolError  # so that `except McpError` catches every answer
FastMCPError = MCPServerError = errors.DovetailError
NotFoundError = ResourceNotFoundError = errors.NotFound
ClientError = errors.DovetailError
AuthorizationError, UrlElicitationRequiredError = errors.Forbidden, errors.UrlRequired
InvalidSignature = errors.ConfigError
ResourceError = type("ResourceError", (errors.NotFound,), {"__doc__": "A resource has failed."})
PromptError, ValidationError, DisabledError = (
    type(name, (errors.ToolError,), {"__doc__": "A component has failed."})
    for name in ("PromptError", "ValidationError", "DisabledError")
)


def _make_tool_result(
    content: Any = None, structured_content: Any = None, meta: Any = None, is_error: bool = False
) -> WireToolResult:
    """A complete result: content of any type, or only data, which is also sent as text."""
    blocks = make_any_result(structured_content if content is None else content).content
    fields: Any = {"structured_content": structured_content, "meta": meta, "is_error": is_error}
    return WireToolResult(content=blocks, **fields)


def _make_input_required(
    input_requests: Any = None, request_state: str | None = None, **ignored: Any
) -> InputRequired:
    """Questions to the client, after which the function is called again."""
    asked = {key: one.params for key, one in (input_requests or {}).items()}
    return InputRequired(asked, request_state)


def _make_message(content: Any, role: Role = "user") -> WireMessage:
    """A prompt message."""
    return WireMessage(role, content)


ToolResult = spelled("ToolResult", WireToolResult, _make_tool_result)
InputRequiredResult = spelled("InputRequiredResult", InputRequired, _make_input_required)
Message, UserMessage = (spelled(name, WireMessage, _make_message) for name in ("Message", "User"))
AssistantMessage = spelled("Assistant", WireMessage, partial(_make_message, role="assistant"))
ServerResult = ClientResult = ServerNotification = ClientRequest = staticmethod(lambda value: value)


class CompatMedia(Media):
    """The constructor and the methods of FastMCP and the SDK.

    Args:
        path: The file, which is read when the result is sent.
        data: The bytes, instead of a path.
        format: The format, such as "png" (default: from the file name).
        name: The name of a `File` in its URI (default: from the path).
        **more: `annotations`, as in `dovetail.Image`.
    """

    family = "application"

    def __init__(
        self, path: Any = None, data: Any = None, format: str = "", name: str = "", **more: Any
    ) -> None:
        if name:
            more["uri"] = f"file:///{name}" + (f".{format}" if format else "")
        mime_type = f"{self.family}/{format.lower()}" if format else None
        super().__init__(data, mime_type, path=path, **more)

    @property
    def _mime_type(self) -> str:
        return self.mime_type

    def to_data_uri(self) -> str:
        """Return the bytes as a `data:` URI."""
        return f"data:{self.mime_type};base64,{self.base64()}"

    def to_image_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Create the content block.

        Args:
            mime_type: Another MIME type.
            annotations: The audience and importance of the content.
        """
        changes = {"mime_type": mime_type, "annotations": annotations}
        return self.content().model_copy({key: each for key, each in changes.items() if each})

    to_audio_content = to_resource_content = to_image_content


class CompatImage(CompatMedia, Image):
    """An image: `Image(path="plot.png")` or `Image(data=…, format="png")`."""

    family = "image"


class CompatAudio(CompatMedia, Audio):
    """An audio clip: `Audio(path="voice.mp3")` or `Audio(data=…, format="wav")`."""

    family = "audio"


class CompatFile(CompatMedia, File):
    """A file: `File(path="report.pdf")` or `File(data=…, format="pdf", name="report")`."""


class ReadPart(NamedTuple):
    """One item in the contents of a resource: text or bytes."""

    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None


class ReadParts(list[ReadPart]):
    """The contents of a resource, which are also their own `contents`."""

    @property
    def contents(self) -> "ReadParts":
        """This list itself."""
        return self
