"""Representative messages of the vocabulary, fuller than any one revision: what each revision makes
of them is golden.

A row is who sends it, the method, and what: params for a call, `Answer` for the result of one, an
error for a refusal. Add a row where the vocabulary grows; a row never changes without a reason to
change the wire.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from dovetail.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    NotFound,
    Overloaded,
    ParseError,
    ProtocolError,
    UnsupportedVersion,
)
from dovetail.jsonrpc.messages import Error, ErrorResponse, Notification, Request, Response
from dovetail.protocol import base
from dovetail.protocol.base import (
    EmptyResult,
    Icon,
    Implementation,
    ListChangedParams,
    ListParams,
    Params,
)
from dovetail.protocol.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitationCompleteParams,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    ModelHint,
    ModelPreferences,
    Root,
    SamplingMessage,
    ToolChoice,
)
from dovetail.protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
)
from dovetail.protocol.lifecycle import (
    CancelledParams,
    ClientCapabilities,
    DiscoverResult,
    ElicitationCapability,
    InitializeParams,
    InitializeResult,
    InputRequiredResult,
    ListCapability,
    ProgressParams,
    ResourcesCapability,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    ShutdownResult,
)
from dovetail.protocol.methods import METHODS
from dovetail.protocol.prompts import (
    GetPromptParams,
    GetPromptResult,
    ListPromptsResult,
    Message,
    Prompt,
    PromptArgument,
)
from dovetail.protocol.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourcesChangedParams,
    ResourceTemplate,
    UriParams,
)
from dovetail.protocol.tasks import (
    RELATED_TASK,
    CoreCreateTaskResult,
    CoreTask,
    CoreTaskResult,
    ListTasksResult,
    TaskParams,
    TaskStatusParams,
)
from dovetail.protocol.tools import (
    CallToolParams,
    ListToolsResult,
    Tool,
    ToolAnnotations,
    ToolExecution,
    ToolResult,
)
from dovetail.protocol.utilities import (
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    ListenParams,
    ListenResult,
    LogParams,
    PromptReference,
    ResourceReference,
    SetLevelParams,
    SubscriptionFilter,
)
from dovetail.revisions import STATELESS, Revision


class Answer(NamedTuple):
    """Marks what answers a method, where the bare value would be its params."""

    result: Any


ICONS = [Icon("https://example.com/icon.png", mime_type="image/png", sizes=["48x48"], theme="dark")]
ANNOTATIONS = Annotations.of(
    {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z", "x-kept": True}
)
META = {"example.com/key": {"nested": [1, None]}}
CLIENT = Implementation(
    name="client",
    version="1.0",
    title="Client",
    description="Asks",
    website_url="https://example.com",
    icons=ICONS,
)
SERVER = Implementation(name="server", version="2.0", title="Server", description="Answers")
CLIENT_CAN = ClientCapabilities(
    experimental={"x": {"y": 1}},
    roots=RootsCapability(list_changed=True),
    sampling=SamplingCapability(tools={}, context={}),
    elicitation=ElicitationCapability(form={}, url={}),
    tasks={"list": {}},
    extensions={"com.example/ext": {"level": 1}},
)
SERVER_CAN = ServerCapabilities(
    experimental={"x": {}},
    logging={},
    completions={},
    prompts=ListCapability(list_changed=True),
    resources=ResourcesCapability(subscribe=True, list_changed=False),
    tools=ListCapability(),
    tasks={"cancel": {}},
    extensions={"com.example/ext": {}},
)
ADD_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = Tool(
    name="add",
    input_schema=ADD_SCHEMA,
    title="Add",
    description="Adds numbers.",
    output_schema={"type": "object", "properties": {"result": {"type": "integer"}}},
    annotations=ToolAnnotations.of({"title": "Add", "readOnlyHint": True, "x-kept": 1}),
    icons=ICONS,
    execution=ToolExecution("optional"),
    meta=META,
)
TEXT = TextContent("Grüße, 世界 🌍\n\u2028", ANNOTATIONS, META)
IMAGE = ImageContent("iVBORw0=", "image/png", ANNOTATIONS, META)
AUDIO = AudioContent("UklGRg==", "audio/wav", ANNOTATIONS, META)
LINK = ResourceLink(
    "file:///a.txt", "a.txt", "A", "A file", "text/plain", 12, ICONS, ANNOTATIONS, META
)
CONTENTS = TextResourceContents(
    uri="file:///a.txt", mime_type="text/plain", text="inside", meta=META
)
EMBEDDED = EmbeddedResource(CONTENTS, ANNOTATIONS, META)
CALLED = ToolUseContent("use-1", "add", {"a": 1}, META)
GAVE = ToolResultContent(
    "use-1", [TextContent("1"), LINK], structured_content={"result": 1}, is_error=False, meta=META
)
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "title": "Name"}},
    "required": ["name"],
}
REQUEST_META = {
    base.PROTOCOL_VERSION: STATELESS[-1].version,
    base.CLIENT_INFO: {"name": "client", "version": "1.0"},
    base.CLIENT_CAPABILITIES: {},
}

ABOUT_TASK: dict[str, Any] = {
    "task_id": "t1",
    "status": "working",
    "created_at": "2026-01-01T00:00:00Z",
    "last_updated_at": "2026-01-01T00:00:01Z",
    "ttl": 60_000,
    "status_message": "half way",
    "poll_interval": 500,
}
ENDLESS = {"ttl": None, "poll_interval": None}
TASK = CoreTask(**ABOUT_TASK)
ROWS: list[tuple[str, str, Any]] = [
    # opening
    (
        "client",
        "initialize",
        InitializeParams(
            protocol_version="2025-06-18", capabilities=CLIENT_CAN, client_info=CLIENT
        ),
    ),
    (
        "server",
        "initialize",
        Answer(
            InitializeResult(
                protocol_version="2025-06-18",
                capabilities=SERVER_CAN,
                server_info=SERVER,
                instructions="Be kind.",
                meta=META,
            )
        ),
    ),
    ("client", "notifications/initialized", Params()),
    ("client", "server/discover", Params()),
    (
        "server",
        "server/discover",
        Answer(
            DiscoverResult(
                supported_versions=["2026-07-28"],
                capabilities=SERVER_CAN,
                instructions="Hi.",
                ttl_ms=60_000,
                cache_scope="public",
            )
        ),
    ),
    ("client", "ping", Params(meta={"progressToken": "p"})),
    ("server", "ping", Answer(EmptyResult())),
    ("server", "ping", Params()),
    # tools
    ("client", "tools/list", ListParams(cursor="")),
    (
        "server",
        "tools/list",
        Answer(ListToolsResult(tools=[TOOL, Tool("bare", {"type": "object"})], next_cursor="2")),
    ),
    (
        "server",
        "tools/list",
        Answer(ListToolsResult(tools=[Tool("any", ADD_SCHEMA, output_schema={"type": "array"})])),
    ),
    (
        "client",
        "tools/call",
        CallToolParams(
            name="add",
            arguments=Raw(b'{"a":1}'),
            task={"ttl": 1000},
            request_state="sealed",
            meta={"progressToken": 7},
            input_responses={"name": Raw(b'{"action":"accept","content":{"name":"Ada"}}')},
        ),
    ),
    ("client", "tools/call", CallToolParams(name="bare")),
    (
        "server",
        "tools/call",
        Answer(ToolResult(content=[TEXT, IMAGE, AUDIO, LINK, EMBEDDED], meta=META)),
    ),
    (
        "server",
        "tools/call",
        Answer(ToolResult(content=[TextContent('{"result":1}')], structured_content={"result": 1})),
    ),
    (
        "server",
        "tools/call",
        Answer(ToolResult(content=[TextContent("[1]")], structured_content=[1])),
    ),
    ("server", "tools/call", Answer(ToolResult(content=[TextContent("It broke.")], is_error=True))),
    (
        "server",
        "tools/call",
        Answer(
            InputRequiredResult(
                request_state="sealed",
                input_requests={
                    "name": {
                        "method": "elicitation/create",
                        "params": {"message": "Who?", "requestedSchema": FORM},
                    },
                },
            )
        ),
    ),
    (
        "server",
        "notifications/tools/list_changed",
        ListChangedParams(added=[TOOL], removed=["old"]),
    ),
    # tasks, of the one revision that has them in its core
    ("server", "tools/call", Answer(CoreCreateTaskResult(task=TASK))),
    ("client", "tasks/get", TaskParams(task_id="t1")),
    ("server", "tasks/get", Answer(CoreTaskResult(**ABOUT_TASK))),
    ("client", "tasks/result", TaskParams(task_id="t1")),
    (
        "server",
        "tasks/result",
        Answer(ToolResult(content=[TEXT], meta={RELATED_TASK: {"taskId": "t1"}})),
    ),
    ("client", "tasks/list", ListParams(cursor="2")),
    ("server", "tasks/list", Answer(ListTasksResult(tasks=[TASK], next_cursor="3"))),
    ("client", "tasks/cancel", TaskParams(task_id="t1")),
    (
        "server",
        "tasks/cancel",
        Answer(CoreTaskResult(**ABOUT_TASK | ENDLESS | {"status": "cancelled"})),
    ),
    ("server", "notifications/tasks/status", TaskStatusParams(**ABOUT_TASK)),
    # resources
    ("client", "resources/list", ListParams()),
    (
        "server",
        "resources/list",
        Answer(
            ListResourcesResult(
                resources=[
                    Resource(
                        "file:///a.txt",
                        "a.txt",
                        "A",
                        "A file",
                        "text/plain",
                        12,
                        ICONS,
                        ANNOTATIONS,
                        META,
                    ),
                    Resource("x:y", "y"),
                ]
            )
        ),
    ),
    (
        "server",
        "resources/templates/list",
        Answer(
            ListResourceTemplatesResult(
                resource_templates=[
                    ResourceTemplate(
                        "file:///{path}",
                        "files",
                        "Files",
                        "Any file",
                        "text/plain",
                        ICONS,
                        ANNOTATIONS,
                        META,
                    ),
                ]
            )
        ),
    ),
    ("client", "resources/read", ReadResourceParams(uri="file:///a.txt", request_state="sealed")),
    (
        "server",
        "resources/read",
        Answer(
            ReadResourceResult(
                contents=[
                    CONTENTS,
                    BlobResourceContents(uri="file:///b", blob="AAE=", meta=META),
                ],
                ttl_ms=5,
            )
        ),
    ),
    ("client", "resources/subscribe", UriParams(uri="file:///a.txt")),
    ("server", "resources/subscribe", Answer(EmptyResult())),
    ("client", "resources/unsubscribe", UriParams(uri="file:///a.txt")),
    ("server", "notifications/resources/updated", UriParams(uri="file:///a.txt")),
    ("server", "notifications/resources/list_changed", ListChangedParams()),
    # prompts and completion
    ("client", "prompts/list", ListParams(cursor="2")),
    (
        "server",
        "prompts/list",
        Answer(
            ListPromptsResult(
                prompts=[
                    Prompt(
                        "review",
                        "Review",
                        "Reviews code.",
                        [PromptArgument("code", "Code", "What to review", True)],
                        ICONS,
                        META,
                    ),
                ]
            )
        ),
    ),
    (
        "client",
        "prompts/get",
        GetPromptParams(name="review", arguments={"code": "x = 1"}, request_state="sealed"),
    ),
    (
        "server",
        "prompts/get",
        Answer(
            GetPromptResult(
                description="A review.",
                messages=[
                    Message("user", TEXT),
                    Message("assistant", AUDIO),
                    Message("user", LINK),
                    Message("user", EMBEDDED),
                ],
            )
        ),
    ),
    ("server", "notifications/prompts/list_changed", ListChangedParams()),
    (
        "client",
        "completion/complete",
        CompleteParams(
            ref=PromptReference("review", "Review"),
            argument=CompletionArgument("language", "py"),
            context=CompletionContext({"code": "x = 1"}),
        ),
    ),
    (
        "client",
        "completion/complete",
        CompleteParams(
            ref=ResourceReference("file:///{path}"),
            argument=CompletionArgument("path", ""),
        ),
    ),
    (
        "server",
        "completion/complete",
        Answer(CompleteResult(completion=Completion(["python", "pyret"], 2, False))),
    ),
    # logging, progress, cancelling
    ("client", "logging/setLevel", SetLevelParams(level="warning")),
    ("server", "notifications/message", LogParams(level="error", data={"why": None}, logger="db")),
    (
        "server",
        "notifications/progress",
        ProgressParams(progress_token=7, progress=0.5, total=1, message="half"),
    ),
    ("server", "notifications/progress", ProgressParams(progress_token="p", progress=3)),
    ("client", "notifications/cancelled", CancelledParams(request_id=7, reason="too slow")),
    # asking the client
    (
        "server",
        "sampling/createMessage",
        CreateMessageParams(
            messages=[
                SamplingMessage("user", TEXT, META),
                SamplingMessage("user", [IMAGE, AUDIO, CALLED, GAVE]),
            ],
            max_tokens=100,
            model_preferences=ModelPreferences([ModelHint("small")], 0.1, 0.2, 1.0),
            system_prompt="Be brief.",
            include_context="none",
            temperature=0.7,
            stop_sequences=["END"],
            metadata={"vendor": 1},
            tools=[TOOL],
            tool_choice=ToolChoice("auto"),
            task={"ttl": 1000},
        ),
    ),
    (
        "client",
        "sampling/createMessage",
        Answer(
            CreateMessageResult(
                role="assistant",
                content=[TextContent("one"), CALLED],
                model="m",
                stop_reason="toolUse",
            )
        ),
    ),
    (
        "client",
        "sampling/createMessage",
        Answer(CreateMessageResult(role="assistant", content=AUDIO, model="m")),
    ),
    (
        "server",
        "elicitation/create",
        ElicitParams(message="Who are you?", mode="form", requested_schema=FORM, task={}),
    ),
    (
        "server",
        "elicitation/create",
        ElicitParams(message="Go.", mode="url", url="https://example.com", elicitation_id="e"),
    ),
    (
        "client",
        "elicitation/create",
        Answer(ElicitResult(action="accept", content={"name": "Ada", "age": 36})),
    ),
    ("client", "elicitation/create", Answer(ElicitResult(action="decline"))),
    ("server", "notifications/elicitation/complete", ElicitationCompleteParams(elicitation_id="e")),
    ("server", "roots/list", Params()),
    (
        "client",
        "roots/list",
        Answer(ListRootsResult(roots=[Root("file:///home", "home", META), Root("file:///tmp")])),
    ),
    ("client", "notifications/roots/list_changed", Params()),
    # one stream
    (
        "client",
        "subscriptions/listen",
        ListenParams(notifications=SubscriptionFilter(True, None, False, ["file:///a.txt"])),
    ),
    (
        "server",
        "notifications/subscriptions/acknowledged",
        ListenParams(notifications=SubscriptionFilter(True)),
    ),
    ("server", "subscriptions/listen", Answer(ListenResult(meta={base.SUBSCRIPTION_ID: 9}))),
    # changes and the end, in the draft dialect
    ("server", "resources/changed", ResourcesChangedParams(updated=["file:///a.txt"])),
    ("client", "shutdown", Params()),
    ("server", "shutdown", Answer(ShutdownResult())),
    ("client", "exit", Params()),
    # refusals
    ("server", "", ParseError("The message is not valid JSON")),
    ("server", "", InvalidRequest("Not a valid message")),
    ("server", "", MethodNotFound("There is no 'x' here")),
    ("server", "", InvalidParams("Missing 'a'", data={"field": "a"})),
    ("server", "", NotFound("No such resource", data={"uri": "file:///none"})),
    ("server", "", InternalError("It broke")),
    (
        "server",
        "",
        MissingCapability(
            "The client cannot be asked", data={"requiredCapabilities": {"sampling": {}}}
        ),
    ),
    (
        "server",
        "",
        UnsupportedVersion(
            "Not spoken here", data={"supported": ["2026-07-28"], "requested": "1999"}
        ),
    ),
    ("server", "", Overloaded("Try again later")),
    ("server", "", ProtocolError(-1, "Something else")),
]
UNKNOWN_KIND = ToolResult(content=[OtherContent({"type": "video", "url": "https://example.com"})])
"""Content that no schema knows, which goes through all the same."""


def messages(revision: Revision) -> Iterator[tuple[str, str, Any]]:
    """Who sends it, the method, and the message: each row that this revision has words for, lowered
    to it."""
    for sender, name, said in ROWS:
        if isinstance(said, ProtocolError):
            yield (
                sender,
                name,
                ErrorResponse(1, Error(revision.code(said), said.message, said.data)),
            )
        elif name in revision.methods and _can_say(revision, said):
            yield sender, name, _message(revision, name, said)


def _can_say(revision: Revision, said: Any) -> bool:
    by_url = isinstance(said, ElicitParams) and said.url is not None
    asking = isinstance(said, Answer) and isinstance(said.result, InputRequiredResult)
    if isinstance(said, Answer) and isinstance(said.result, CoreCreateTaskResult):
        return "tasks/get" in revision.methods
    return not (by_url and "url" in revision.absent.get(ElicitParams, ())) and (
        revision.stateless or not asking
    )


def _message(revision: Revision, name: str, said: Any) -> Any:
    method = METHODS[name]
    if isinstance(said, Answer):
        return Response(1, revision.lower_result(method, said.result))
    if method.result is None:
        return Notification(revision.wire_name(name), revision.lower_params(method, said))
    if revision.stateless:
        said = replace(said, meta={**REQUEST_META, **(said.meta or {})})
    return Request(1, revision.wire_name(name), revision.lower_params(method, said))
