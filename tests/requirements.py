"""What the specification demands, a row for each demand: an id, the demand in our own words, how
strictly it is meant, where it stands, and in which revisions it holds.

A test names what it shows by `@pytest.mark.requirement("id")`, and `test_requirements.py` holds the
two lists together: no demand without a test, no test of a demand that nobody made. What no test
here can show says why (`untested`).

In this table: messages, opening, stdio, HTTP, patterns, utilities, tools, resources, prompts,
asking, and a client's part in all of them, authorization, tasks, skills, apps and telemetry.
"""

from typing import Literal

from msgspec import Struct

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
ALL = REVISIONS
HANDSHAKE = REVISIONS[:4]
STATELESS = REVISIONS[4:]
BATCHES = REVISIONS[1:2]
SESSIONS = REVISIONS[1:4]
"""Those that have sessions over HTTP."""
SITE = "https://modelcontextprotocol.io/specification/"
EXTENSIONS = "https://modelcontextprotocol.io/seps/2133-extensions"
TASKS = "https://modelcontextprotocol.io/seps/2663-tasks-extension"
APPS = (
    "https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx"
)
TELEMETRY = (
    "https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md"
)
SKILLS = (
    "https://github.com/modelcontextprotocol/ext-skills/blob/main/specification/stable/skills.mdx"
)


def since(revision: str) -> tuple[str, ...]:
    """This revision and all that followed."""
    return REVISIONS[REVISIONS.index(revision) :]


APPS_SINCE = since("2025-06-18")
"""Those that have a `_meta` for tools."""


class Requirement(Struct, frozen=True):
    """One demand."""

    level: Literal["MUST", "SHOULD"]
    text: str
    page: str
    """Below `SITE`, of the newest revision that has the demand; or where an extension is
    specified."""
    revisions: tuple[str, ...] = ALL
    untested: str = ""

    @property
    def link(self) -> str:
        """Where it stands."""
        return self.page if self.page.startswith("https:") else SITE + self.page


def must(text: str, page: str, revisions: tuple[str, ...] = ALL, untested: str = "") -> Requirement:
    """A MUST, a MUST NOT, or what a table or type of the specification leaves no choice about."""
    return Requirement("MUST", text, page, revisions, untested)


def should(
    text: str, page: str, revisions: tuple[str, ...] = ALL, untested: str = ""
) -> Requirement:
    """A SHOULD or SHOULD NOT."""
    return Requirement("SHOULD", text, page, revisions, untested)


BASIC = "2026-07-28/basic"
CORE_TASKS = "2025-11-25/basic/utilities/tasks"
CORE = REVISIONS[3:4]
"""The one whose core has tasks."""
MESSAGES = f"{BASIC}#messages"
META = f"{BASIC}#meta"
SCHEMAS = f"{BASIC}#json-schema-usage"
ICONS = f"{BASIC}#icons"
VERSIONS = f"{BASIC}/versioning"
CANCELLATION = f"{BASIC}/patterns/cancellation"
PROGRESS = f"{BASIC}/patterns/progress"
SUBSCRIPTIONS = f"{BASIC}/patterns/subscriptions"
ROUNDS = f"{BASIC}/patterns/mrtr"
STDIO = f"{BASIC}/transports/stdio"
HTTP = f"{BASIC}/transports/streamable-http"
HTTP_SESSIONS = "2025-11-25/basic/transports"
HTTP_BATCHES = "2025-03-26/basic/transports#sending-messages-to-the-server"
HTTP_SECURITY = "2025-11-25/basic/security_best_practices#session-hijacking"
HTTP_PAIR = "2024-11-05/basic/transports#http-with-sse"
TRANSPORTS = f"{BASIC}/transports"
DISCOVER = "2026-07-28/server/discover"
TOOLS = "2026-07-28/server/tools"
RESOURCES = "2026-07-28/server/resources"
PROMPTS = "2026-07-28/server/prompts"
CACHING = "2026-07-28/server/utilities/caching"
COMPLETION = "2026-07-28/server/utilities/completion"
LOGGING = "2026-07-28/server/utilities/logging"
PAGINATION = "2026-07-28/server/utilities/pagination"
LIFECYCLE = "2025-11-25/basic/lifecycle"
PING = "2025-11-25/basic/utilities/ping"
BATCHING = "2025-03-26/basic#batching"
SAMPLING = "2026-07-28/client/sampling"
ELICITATION = "2026-07-28/client/elicitation"
ROOTS = "2026-07-28/client/roots"
AUTH_OVERVIEW = f"{BASIC}/authorization"
AUTH_DISCOVERY = f"{AUTH_OVERVIEW}/authorization-server-discovery"
AUTH_REGISTRATION = f"{AUTH_OVERVIEW}/client-registration"
AUTH_SECURITY = f"{AUTH_OVERVIEW}/security-considerations"
AUTH_OF_OLD = "2025-03-26/basic/authorization"
AUTH_PRACTICE = "2025-11-25/basic/security_best_practices"
AUTH = since("2025-03-26")
"""Those that have authorization."""
FORMS = since("2025-06-18")
"""Those in which a user can be asked."""

EXTENDED = since("2025-06-18")
"""Those that can carry a declaration of an extension."""

AUTHOR = "the choice of who writes the tool"
HOST = "a duty of the application that shows things to its user"

REQUIREMENTS: dict[str, Requirement] = {
    # messages
    "jsonrpc": must(
        "Each message is JSON-RPC 2.0, of the shape that the schema of its revision gives it.",
        MESSAGES,
    ),
    "request-id-type": must("A request's id is a string or an integer, never null.", MESSAGES),
    "request-id-unique": must(
        "A sender uses an id once in a session.", "2025-11-25/basic#requests", HANDSHAKE
    ),
    "request-id-in-flight": must(
        "No two open requests of a sender share an id.", MESSAGES, STATELESS
    ),
    "response-id": must("A reply carries the id of its request, unchanged.", MESSAGES),
    "response-one-outcome": must(
        "A reply holds a result or an error, never both or neither.", MESSAGES
    ),
    "result-type": must("Each result says of which type it is.", f"{BASIC}#resulttype", STATELESS),
    "result-type-unknown": must(
        "A result of a type that the client does not know is invalid.",
        f"{BASIC}#resulttype",
        STATELESS,
    ),
    "result-type-absent": must(
        "A result without a type is a complete one.", f"{BASIC}#resulttype", STATELESS
    ),
    "error-shape": must("An error has an integer code and a message.", f"{BASIC}#error-responses"),
    "error-unreadable-id": must(
        "An error answers under the request's id, except where that could not be read.",
        f"{BASIC}#error-responses",
    ),
    "error-codes-reserved": must(
        "Of the range that MCP reserves, only defined codes are sent, as they are meant.",
        f"{BASIC}#error-codes",
        STATELESS,
    ),
    "error-codes-retired": must(
        "Codes of earlier revisions are not sent any more.", f"{BASIC}#error-codes", STATELESS
    ),
    "error-codes-own": should(
        "Codes of our own lie outside what JSON-RPC reserves.", f"{BASIC}#error-codes", STATELESS
    ),
    "notification-silent": must(
        "A notification is never answered, whatever it says.", f"{BASIC}#notifications"
    ),
    "notification-no-id": must("A notification has no id.", f"{BASIC}#notifications"),
    "method-unknown": must(
        "A request for a method that is not there is refused as such.", f"{BASIC}#error-codes"
    ),
    "batching": must("Batches are received in the one revision that has them.", BATCHING, BATCHES),
    "batching-initialize": must(
        "`initialize` is not part of a batch.", "2025-03-26/basic/lifecycle", BATCHES
    ),
    "stateless-independent": must(
        "A request is judged by what it carries, not by requests before it.",
        f"{BASIC}#statelessness",
        STATELESS,
    ),
    # _meta, icons, schemas
    "meta-key-format": must(
        "Keys of `_meta` are a name with an optional prefix of dotted labels.",
        META,
        since("2025-06-18"),
    ),
    "meta-no-assumptions": must(
        "Odd values at reserved keys of `_meta` disturb nobody.", META, since("2025-06-18")
    ),
    "meta-trace-context": must("Trace context in `_meta` is passed on as it is.", META, STATELESS),
    "meta-trace-format": must(
        "Trace context that is sent has the form that W3C gave it.", META, STATELESS
    ),
    "stateless-meta": must("Each request carries version and capabilities.", META, STATELESS),
    "stateless-client-info": should(
        "Each request says which client it comes from.", META, STATELESS
    ),
    "stateless-missing-meta": must(
        "A request without these is refused as invalid params.", META, STATELESS
    ),
    "stateless-missing-capability": must(
        "What needs an undeclared capability is refused with the one that is missing.",
        META,
        STATELESS,
    ),
    "stateless-server-info": should(
        "Each result says which server it comes from.", META, STATELESS
    ),
    "icons-safe": must(
        "Icons are shown from safe URIs only, without credentials, in known formats.",
        ICONS,
        since("2025-11-25"),
        HOST,
    ),
    "icons-formats": must(
        "Who shows icons can show PNG and JPEG.", ICONS, since("2025-11-25"), HOST
    ),
    "schema-default-dialect": must(
        "A schema that names no dialect is of 2020-12.", SCHEMAS, since("2025-11-25")
    ),
    "schema-dialect": must(
        "A schema is read in the dialect it names; an unsupported one is refused by name.",
        SCHEMAS,
        since("2025-11-25"),
    ),
    "schema-valid": must("Schemas that are announced are valid.", SCHEMAS, since("2025-11-25")),
    "schema-no-network": must("A reference into the network is not followed.", SCHEMAS, STATELESS),
    "schema-reference-refused": should(
        "A schema with a reference that leads nowhere is refused, not taken as permissive.",
        SCHEMAS,
        STATELESS,
    ),
    "schema-bounded": should("Depth, size and work of a schema are bounded.", SCHEMAS, STATELESS),
    # opening with a handshake
    "lifecycle-open": must(
        "A session opens with version, capabilities and identity of both sides.",
        LIFECYCLE,
        HANDSHAKE,
    ),
    "lifecycle-initialize-once": must(
        "The greeting is the first thing that is said, and is said once.", LIFECYCLE, HANDSHAKE
    ),
    "lifecycle-initialized": must(
        "After the answer the client says that it is ready.", LIFECYCLE, HANDSHAKE
    ),
    "lifecycle-negotiation": must(
        "The version asked for is answered where it is served, else another that is.",
        LIFECYCLE,
        HANDSHAKE,
    ),
    "lifecycle-latest": should(
        "Client and server each offer the latest version they speak.", LIFECYCLE, HANDSHAKE
    ),
    "lifecycle-disconnect": should(
        "A client that does not speak the version it was answered with leaves.",
        LIFECYCLE,
        HANDSHAKE,
    ),
    "lifecycle-before-initialize": must(
        "Before the greeting only pings are answered.", LIFECYCLE, HANDSHAKE
    ),
    "lifecycle-client-quiet": should(
        "Before the answer a client asks nothing but pings.", LIFECYCLE, HANDSHAKE
    ),
    "lifecycle-quiet-before-initialized": should(
        "Before the client is ready a server asks and tells nothing but pings and logs.",
        LIFECYCLE,
        HANDSHAKE,
    ),
    "lifecycle-version-respected": must(
        "Both sides keep to the version agreed on.", LIFECYCLE, HANDSHAKE
    ),
    "capabilities-client": must(
        "A client asks for nothing that the server did not declare.", LIFECYCLE
    ),
    "capabilities-server": must("A client answers nothing that it did not declare.", LIFECYCLE),
    "lifecycle-handshake-only-client": should(
        "A server without handshake names its versions to a greeting.", VERSIONS, STATELESS
    ),
    # opening without
    "stateless-version-error": must(
        "A version that is not served is refused with those that are.", VERSIONS, STATELESS
    ),
    "stateless-version-retry": should(
        "A client so refused takes a version both speak, or says that there is none.",
        VERSIONS,
        STATELESS,
    ),
    "stateless-discover": must(
        "Each server tells on request what it speaks and offers.", DISCOVER, STATELESS
    ),
    "stateless-removed-methods": must(
        "Methods that the stateless era dropped do not exist there.",
        "2026-07-28/changelog",
        STATELESS,
    ),
    "stateless-extensions": must(
        "An extension that only one side has leaves the core as it is.",
        f"{VERSIONS}#extension-negotiation",
        STATELESS,
    ),
    "stateless-extension-names": must(
        "An extension is named like a key of `_meta`, with a prefix.",
        f"{VERSIONS}#extension-negotiation",
        STATELESS,
    ),
    "extensions-opt-in": must(
        "An extension is off until somebody turns it on. A client departs from this for tasks "
        "alone, which it has unless "
        "they are turned off: `Client(tasks=False)`.",
        f"{EXTENSIONS}#sdk-implementation",
        since("2025-06-18"),
    ),
    "extensions-untrusted": should(
        "What an extension brings is checked before it is used.",
        f"{EXTENSIONS}#security-implications",
        since("2025-06-18"),
    ),
    "dual-era": must("How a client opens decides in which era it is served.", VERSIONS, STATELESS),
    "dual-era-probe": should(
        "A client of both eras probes with a discovery first.",
        f"{STDIO}#backward-compatibility",
        STATELESS,
    ),
    "dual-era-any-error": must(
        "Any error that is not of the stateless era means a handshake, whatever its code; so "
        "does silence.",
        f"{STDIO}#backward-compatibility",
        STATELESS,
    ),
    "dual-era-modern-error": must(
        "A refusal of the stateless era is no reason for a handshake.",
        f"{STDIO}#backward-compatibility",
        STATELESS,
    ),
    "dual-era-remembered": should("The era of a server is found out once.", VERSIONS, STATELESS),
    # stdio and other transports
    "stdio-newlines": must("A message is one line.", STDIO),
    "stdio-utf8": must("Messages are UTF-8.", TRANSPORTS),
    "stdio-stdout-clean": must("Nothing but messages is written to a server's output.", STDIO),
    "stdio-stdin-clean": must("Nothing but messages is written to a server's input.", STDIO),
    "stdio-stderr": should("What a server writes to stderr is not taken for failure.", STDIO),
    "stdio-no-responses": must(
        "A client of the stateless era writes no replies.", STDIO, STATELESS
    ),
    "stdio-no-requests": must(
        "A server of the stateless era writes no requests.", STDIO, STATELESS
    ),
    "stdio-shutdown": should(
        "A client closes the input, waits, and only then ends the process by force.",
        f"{STDIO}#shutdown",
    ),
    "stdio-exit": should("A server ends soon after its input did.", f"{STDIO}#shutdown"),
    "stdio-restart": should(
        "A server that ends unexpectedly is started again.",
        f"{STDIO}#unexpected-termination",
        STATELESS,
    ),
    "transport-custom": must(
        "Another transport changes neither messages nor patterns.",
        f"{TRANSPORTS}#custom-transports",
    ),
    # HTTP, a server's part
    "http-endpoint": must("One path takes every POST.", HTTP, since("2025-03-26")),
    "http-origin": must(
        "A request from a page of another origin is refused with 403.",
        f"{HTTP}#security-&-endpoint",
        since("2025-03-26"),
    ),
    "http-localhost": should(
        "A server that runs locally listens on this machine only.", f"{HTTP}#security-&-endpoint"
    ),
    "http-authentication": should("Connections are authenticated.", f"{HTTP}#security-&-endpoint"),
    "http-notification-accepted": must(
        "What asks for no reply and is accepted gets 202 and no body.",
        f"{HTTP}#sending-messages",
        since("2025-03-26"),
    ),
    "http-notification-refused": must(
        "What asks for no reply and cannot be accepted gets the status of an error.",
        f"{HTTP}#sending-messages",
        since("2025-03-26"),
    ),
    "http-response-type": must(
        "A request is answered with one JSON object or an event stream.",
        f"{HTTP}#sending-messages",
        since("2025-03-26"),
    ),
    "http-own-notifications": must(
        "What comes on the stream of a request belongs to that request.",
        f"{HTTP}#receiving-messages",
        since("2025-03-26"),
    ),
    "http-no-requests": must(
        "No requests come on a stream.", f"{HTTP}#receiving-messages", STATELESS
    ),
    "http-response-ends-stream": should(
        "The reply ends the stream of its request.",
        f"{HTTP}#receiving-messages",
        since("2025-03-26"),
    ),
    "http-accel-buffering": should(
        "Proxies are told not to hold streams back.", f"{HTTP}#receiving-messages", STATELESS
    ),
    "http-disconnect-cancels": must(
        "A client that leaves the stream of a request has cancelled it.",
        f"{HTTP}#cancellation",
        STATELESS,
    ),
    "http-cancelled-silent": must(
        "Nothing more is sent for a request that was so cancelled.",
        f"{HTTP}#cancellation",
        STATELESS,
    ),
    "http-version-mismatch": must(
        "A version header that is not that of the body is refused with 400 and a header mismatch.",
        f"{HTTP}#protocol-version-header",
        STATELESS,
    ),
    "http-version-unsupported": must(
        "A version that is not served is refused with 400 and those that are.",
        f"{HTTP}#protocol-version-header",
        STATELESS,
    ),
    "http-version-missing": must(
        "Where older clients are not served, a request without the header is refused.",
        f"{HTTP}#protocol-version-header",
        STATELESS,
    ),
    "http-meta-missing": must(
        "A request that lacks version or capabilities is refused with 400.", META, STATELESS
    ),
    "http-capability-missing": must(
        "What needs an undeclared capability is refused with 400.", META, STATELESS
    ),
    "http-method-unknown": must(
        "A method that is not there is refused with 404 and an error that says so.",
        f"{HTTP}#protocol-version-header",
        STATELESS,
    ),
    "http-header-missing": must(
        "A request without the standard headers is refused with 400 and a header mismatch.",
        f"{HTTP}#server-validation",
        STATELESS,
    ),
    "http-header-mismatch": must(
        "A header that is not as the body says is refused with 400 and a header mismatch.",
        f"{HTTP}#server-validation",
        STATELESS,
    ),
    "http-header-invalid": must(
        "A header with characters that may not stand there is refused.",
        f"{HTTP}#server-validation",
        STATELESS,
    ),
    "http-header-encoded": must(
        "An encoded header is decoded before it is compared.", f"{HTTP}#value-encoding", STATELESS
    ),
    "http-header-case": must(
        "Names of headers are compared without case.", f"{HTTP}#case-sensitivity", STATELESS
    ),
    "http-param-validated": must(
        "The header of a parameter is compared with its argument.",
        f"{HTTP}#server-behavior-for-custom-headers",
        STATELESS,
    ),
    "http-param-missing": must(
        "An argument whose header is missing is refused.",
        f"{HTTP}#server-behavior-for-custom-headers",
        STATELESS,
    ),
    "http-param-null": must(
        "No header is expected for an argument that is null or absent.",
        f"{HTTP}#server-behavior-for-custom-headers",
        STATELESS,
    ),
    "http-param-numeric": should(
        "Integers are compared as numbers.", f"{HTTP}#server-validation", STATELESS
    ),
    "http-param-forwarded": must(
        "Headers of parameters that nobody here knows are passed on.",
        f"{HTTP}#server-behavior-for-custom-headers",
        STATELESS,
        "a duty of intermediaries; a server ignores them",
    ),
    "http-modern-only-methods": should(
        "A server of this revision alone answers GET and DELETE with 405.",
        f"{HTTP}#earlier-streamable-http-revisions",
        STATELESS,
    ),
    "http-modern-only-session": should(
        "A session id is ignored, and none is given.",
        f"{HTTP}#earlier-streamable-http-revisions",
        STATELESS,
    ),
    "http-modern-only-resume": should(
        "The id of a last event is ignored.", f"{HTTP}#earlier-streamable-http-revisions", STATELESS
    ),
    "http-get": must(
        "A GET is answered with an event stream, or with 405.",
        f"{HTTP_SESSIONS}#listening-for-messages-from-the-server",
        SESSIONS,
    ),
    "http-get-unrelated": should(
        "What comes on that stream belongs to no request.",
        f"{HTTP_SESSIONS}#listening-for-messages-from-the-server",
        SESSIONS,
    ),
    "http-get-no-responses": must(
        "No replies come on it, except where it resumes the stream of a request.",
        f"{HTTP_SESSIONS}#listening-for-messages-from-the-server",
        SESSIONS,
    ),
    "http-priming": should(
        "A stream begins with an empty event that has an id.",
        f"{HTTP_SESSIONS}#sending-messages-to-the-server",
        REVISIONS[3:4],
    ),
    "http-retry": should(
        "A client is told how long to wait before its connection is closed on it.",
        f"{HTTP_SESSIONS}#sending-messages-to-the-server",
        REVISIONS[3:4],
    ),
    "http-stream-response": should(
        "The stream of a request holds its reply in the end.",
        f"{HTTP_SESSIONS}#sending-messages-to-the-server",
        SESSIONS,
    ),
    "http-disconnect-no-cancel": should(
        "A client that goes away has cancelled nothing.",
        f"{HTTP_SESSIONS}#sending-messages-to-the-server",
        SESSIONS,
    ),
    "http-one-stream": must(
        "Each message goes out on one stream only.",
        f"{HTTP_SESSIONS}#multiple-connections",
        SESSIONS,
    ),
    "http-event-ids-unique": must(
        "No two events of a session have the same id.",
        f"{HTTP_SESSIONS}#resumability-and-redelivery",
        SESSIONS,
    ),
    "http-event-ids-stream": should(
        "The id of an event tells its stream.",
        f"{HTTP_SESSIONS}#resumability-and-redelivery",
        SESSIONS,
    ),
    "http-resume-own-stream": must(
        "Who resumes a stream hears nothing of another.",
        f"{HTTP_SESSIONS}#resumability-and-redelivery",
        SESSIONS,
    ),
    "http-session-visible": must(
        "A session id is made of visible ASCII.", f"{HTTP_SESSIONS}#session-management", SESSIONS
    ),
    "http-session-random": should(
        "A session id is unique and cannot be guessed.",
        f"{HTTP_SESSIONS}#session-management",
        SESSIONS,
    ),
    "http-session-required": should(
        "A request that lacks its session id is refused with 400.",
        f"{HTTP_SESSIONS}#session-management",
        SESSIONS,
    ),
    "http-session-ended": must(
        "A request of a session that has ended is answered with 404.",
        f"{HTTP_SESSIONS}#session-management",
        SESSIONS,
    ),
    "http-session-no-proof": must(
        "A session id proves nobody's identity: each request is verified.",
        HTTP_SECURITY,
        REVISIONS[2:4],
    ),
    "http-session-bound": should(
        "A session belongs to the user who opened it.", HTTP_SECURITY, REVISIONS[2:4]
    ),
    "http-version-assumed": should(
        "Where nothing tells the version, 2025-03-26 is assumed.",
        f"{HTTP_SESSIONS}#protocol-version-header",
        SESSIONS,
    ),
    "http-version-invalid": must(
        "An invalid or unsupported version header is refused with 400.",
        f"{HTTP_SESSIONS}#protocol-version-header",
        REVISIONS[2:4],
    ),
    "http-batch": must(
        "A batch that holds requests is answered as a request is.", HTTP_BATCHES, BATCHES
    ),
    "http-batch-responses": should(
        "The stream of a batch holds a reply to each of its requests before it ends.",
        HTTP_BATCHES,
        BATCHES,
    ),
    # HTTP, a client's part
    "http-client-post": must(
        "Each message is a POST of its own to the endpoint.",
        f"{HTTP}#sending-messages",
        since("2025-03-26"),
    ),
    "http-client-accept": must(
        "With each POST a client accepts both JSON and event streams.",
        f"{HTTP}#sending-messages",
        since("2025-03-26"),
    ),
    "http-client-no-responses": must(
        "A client posts no replies.", f"{HTTP}#sending-messages", STATELESS
    ),
    "http-client-both-replies": must(
        "A reply is taken as JSON and from an event stream.",
        f"{HTTP}#sending-messages",
        since("2025-03-26"),
    ),
    "http-client-comments": must(
        "Comments in a stream are ignored.", f"{HTTP}#receiving-messages", since("2025-03-26")
    ),
    "http-client-cancel": must(
        "A client cancels by closing the stream of its request, without a word.",
        f"{HTTP}#cancellation",
        STATELESS,
    ),
    "http-client-version": must(
        "Each POST names the version, the same in header and body.",
        f"{HTTP}#protocol-version-header",
        STATELESS,
    ),
    "http-client-standard-headers": must(
        "Each request repeats its method in a header, and what it is about.",
        f"{HTTP}#standard-request-headers",
        STATELESS,
    ),
    "http-client-params": must(
        "The values of marked parameters are repeated in headers.",
        f"{HTTP}#custom-headers-from-tool-parameters",
        STATELESS,
    ),
    "http-client-params-null": must(
        "A parameter that is null or absent has no header.",
        f"{HTTP}#server-behavior-for-custom-headers",
        STATELESS,
    ),
    "http-client-params-safe": must(
        "Integers that not every reader keeps are not sent in headers.",
        f"{HTTP}#schema-extension",
        STATELESS,
    ),
    "http-client-encoded": must(
        "What is not plain ASCII, or looks encoded, is encoded in a header.",
        f"{HTTP}#value-encoding",
        STATELESS,
    ),
    "http-client-tool-rejected": must(
        "A tool whose marks break the rules is left out of the list, and no other.",
        f"{HTTP}#schema-extension",
        STATELESS,
    ),
    "http-client-tool-warning": should(
        "That is logged, with the tool's name and the reason.",
        f"{HTTP}#schema-extension",
        STATELESS,
    ),
    "http-client-mismatch": should(
        "A call refused for its headers is made again once the tools were listed.",
        f"{HTTP}#client-behavior",
        STATELESS,
    ),
    "http-client-header-case": must(
        "Names of headers are compared without case.", f"{HTTP}#case-sensitivity", STATELESS
    ),
    "http-client-modern-error": should(
        "A refusal that only a stateless server has is no reason for a handshake.",
        f"{HTTP}#backward-compatibility",
        STATELESS,
    ),
    "http-client-fallback": should(
        "Any other refusal of the first request is followed by a handshake.",
        f"{HTTP}#backward-compatibility",
        STATELESS,
    ),
    "http-client-get-accept": must(
        "With a GET a client accepts event streams.",
        f"{HTTP_SESSIONS}#listening-for-messages-from-the-server",
        SESSIONS,
    ),
    "http-client-poll": should(
        "A stream whose connection is closed before the reply is taken up again.",
        f"{HTTP_SESSIONS}#sending-messages-to-the-server",
        REVISIONS[3:4],
    ),
    "http-client-retry": must(
        "Not before the time that the server asked for.",
        f"{HTTP_SESSIONS}#sending-messages-to-the-server",
        REVISIONS[3:4],
    ),
    "http-client-resume": should(
        "A stream is resumed by a GET with the id of its last event.",
        f"{HTTP_SESSIONS}#resumability-and-redelivery",
        SESSIONS,
    ),
    "http-client-cancel-told": should(
        "A client cancels by a notification.",
        f"{HTTP_SESSIONS}#sending-messages-to-the-server",
        SESSIONS,
    ),
    "http-client-session": must(
        "The session id goes with every request after the greeting.",
        f"{HTTP_SESSIONS}#session-management",
        SESSIONS,
    ),
    "http-client-session-secret": must(
        "A session id is neither logged nor given to another origin.",
        f"{HTTP_SESSIONS}#session-management",
        REVISIONS[3:4],
    ),
    "http-client-session-gone": must(
        "A session that is gone is followed by a new greeting, without its id.",
        f"{HTTP_SESSIONS}#session-management",
        SESSIONS,
    ),
    "http-client-session-deleted": should(
        "A client that leaves ends its session.", f"{HTTP_SESSIONS}#session-management", SESSIONS
    ),
    "http-client-version-agreed": must(
        "Every request after the greeting names the version agreed on.",
        f"{HTTP_SESSIONS}#protocol-version-header",
        REVISIONS[2:4],
    ),
    # HTTP, the old pair
    "sse-origin": must(
        "A request from a page of another origin is refused.", HTTP_PAIR, REVISIONS[:1]
    ),
    "sse-endpoints": must(
        "One path has the stream, another takes every POST.", HTTP_PAIR, REVISIONS[:1]
    ),
    "sse-endpoint-event": must(
        "The stream begins with the address to post to.", HTTP_PAIR, REVISIONS[:1]
    ),
    "sse-messages": must(
        "What the server says comes as `message` events.", HTTP_PAIR, REVISIONS[:1]
    ),
    "sse-client-post": must(
        "A client posts every message to that address.", HTTP_PAIR, REVISIONS[:1]
    ),
    "sse-client-found": should(
        "A refused greeting that is no error of a stateless server is followed by a GET, "
        "which may find the pair.",
        f"{HTTP}#http-sse-transport-2024-11-05",
    ),
    # cancellation and deadlines
    "cancellation": should(
        "A request that is no longer waited for is cancelled, stops, and is not answered.",
        CANCELLATION,
    ),
    "cancel-stdio": must(
        "On stdio a client cancels by a notification that names the request.",
        f"{STDIO}#cancellation",
    ),
    "cancel-no-messages-after": must(
        "Nothing more is sent for a cancelled request.", f"{STDIO}#cancellation", STATELESS
    ),
    "cancel-own-and-open": must(
        "Only a request of one's own that is still open is cancelled.", CANCELLATION
    ),
    "cancel-initialize": must(
        "A client does not cancel the greeting.",
        "2025-11-25/basic/utilities/cancellation",
        HANDSHAKE,
    ),
    "cancel-race": must("A cancellation that crosses the answer harms neither side.", CANCELLATION),
    "cancel-unknown-ignored": should(
        "A cancellation of nothing, or one that makes no sense, is ignored.", CANCELLATION
    ),
    "cancel-late-reply": should("An answer to what was cancelled is ignored.", CANCELLATION),
    "cancel-reason-logged": should("The reason of a cancellation is logged.", CANCELLATION),
    "cancel-server-only-streams": must(
        "A server of the stateless era cancels nothing but subscription streams.",
        CANCELLATION,
        STATELESS,
    ),
    "cancel-stream-heard": must(
        "A client whose stream is cancelled by the server takes it as ended.",
        CANCELLATION,
        STATELESS,
    ),
    "cancel-stream-told": must(
        "A server that tears down a stream says so by a cancellation.",
        CANCELLATION,
        STATELESS,
        "the page on subscriptions has the result of the request say it, and so do the SDKs: "
        "https://github.com/modelcontextprotocol/modelcontextprotocol/issues/3348",
    ),
    "timeout": should(
        "Each request has a deadline, and is cancelled when it passes.", f"{CANCELLATION}#timeouts"
    ),
    "timeout-per-request": should(
        "A deadline can be set for each request.", f"{CANCELLATION}#timeouts", since("2025-03-26")
    ),
    "timeout-max": should(
        "Progress may extend a deadline, but not for ever.",
        f"{CANCELLATION}#timeouts",
        since("2025-03-26"),
    ),
    # ping
    "ping": must("A ping is answered at once, with an empty result.", PING, HANDSHAKE),
    "ping-interval": should(
        "Pings can be sent at an interval that can be chosen.", PING, HANDSHAKE
    ),
    "ping-dead": should(
        "A ping without an answer means that the connection is dead.", PING, HANDSHAKE
    ),
    # progress
    "progress": must("Progress only ever rises.", PROGRESS),
    "progress-token": must(
        "Progress is told only where a token was given, and under that token.", PROGRESS
    ),
    "progress-token-type": must("A token is a string or an integer.", PROGRESS),
    "progress-token-unique": must("No two open requests share a token.", PROGRESS),
    "progress-stops": must("After the answer there is no more progress.", PROGRESS),
    "progress-rate": should("A flood of progress is thinned out.", PROGRESS),
    # subscriptions
    "subscriptions-ack-first": must(
        "The first word on a stream is the acknowledgement.",
        f"{SUBSCRIPTIONS}#acknowledgment",
        STATELESS,
    ),
    "subscriptions-ack-filter": must(
        "The acknowledgement repeats what will be told.",
        f"{SUBSCRIPTIONS}#acknowledgment",
        STATELESS,
    ),
    "subscriptions-ack-checked": should(
        "A client looks at what was granted.", f"{SUBSCRIPTIONS}#acknowledgment", STATELESS
    ),
    "subscriptions-only-requested": must(
        "Nothing is told that was not asked for.", SUBSCRIPTIONS, STATELESS
    ),
    "subscriptions-id": must("All that comes on a stream carries its id.", META, STATELESS),
    "subscriptions-correlated": must(
        "A client tells streams apart by that id.", f"{STDIO}#receiving-messages", STATELESS
    ),
    "subscriptions-graceful": should(
        "A server that ends a stream answers its request.",
        f"{SUBSCRIPTIONS}#graceful-closure",
        STATELESS,
    ),
    "subscriptions-cancelled": must(
        "A client ends a stream by cancelling its request.",
        f"{SUBSCRIPTIONS}#cancellation",
        STATELESS,
    ),
    "subscriptions-renewed": must(
        "After a reconnect a client asks for its streams again.",
        f"{SUBSCRIPTIONS}#graceful-closure",
        STATELESS,
    ),
    # rounds of questions, as far as a client goes
    "rounds-answers-first": must(
        "A client asks again with all that it was asked for.", ROUNDS, STATELESS
    ),
    "rounds-state-echoed": must("The state comes back exactly as it was.", ROUNDS, STATELESS),
    "rounds-state-absent": must("Where no state was given none is sent.", ROUNDS, STATELESS),
    "rounds-new-id": must("The next round has an id of its own.", ROUNDS, STATELESS),
    "rounds-apart": must("Answers and state go with no other request.", ROUNDS, STATELESS),
    "rounds-where": must(
        "Only tool calls, reads and prompts are answered with questions.", ROUNDS, STATELESS
    ),
    "asking-undeclared": must(
        "A question that the client did not declare is not answered.", ROUNDS
    ),
    "sampling-tools-undeclared": must(
        "Sampling with tools is refused where tools were not declared.",
        SAMPLING,
        since("2025-11-25"),
    ),
    "elicitation-mode-undeclared": must(
        "A mode that was not declared is refused as invalid params.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-mode-default": must(
        "A question without a mode is a form.", ELICITATION, since("2025-11-25")
    ),
    "roots-file-uris": must("Roots are `file://` URIs.", ROOTS),
    "roots-list-changed": must(
        "A client that said so tells when its roots change.", "2025-11-25/client/roots", HANDSHAKE
    ),
    # asking, a client's part
    "sampling-declared": must(
        "A client that has a model for servers declares it, and tools if it can use them.", SAMPLING
    ),
    "sampling-approval": should(
        "A user can refuse or change what a model is asked, and what it answers.", SAMPLING
    ),
    "sampling-validated": should("What a model is to go on with is checked.", SAMPLING),
    "sampling-tool-choice": must(
        "A model uses the tools that it was given, and none where it must not.",
        SAMPLING,
        since("2025-11-25"),
    ),
    "sampling-max-tokens": must("A model says no more than it is asked for.", SAMPLING),
    "sampling-model-hints": should("A server's wishes for a model are heeded.", SAMPLING),
    "sampling-not-retained": should(
        "The messages of one question are not part of the next.", SAMPLING, STATELESS
    ),
    "sampling-rate-limit": should("Questions to a model are limited in number.", SAMPLING),
    "sampling-sensitive": must(
        "What is confidential about a model stays with the client.", SAMPLING
    ),
    "sampling-errors": should(
        "A refusal is error -1, and what makes no sense is invalid params.",
        "2025-11-25/client/sampling",
        HANDSHAKE,
    ),
    "roots-declared": must("A client that has roots declares it.", ROOTS),
    "roots-traversal": must("No root leads elsewhere than it seems, whoever named it.", ROOTS),
    "roots-accessible": must(
        "A client keeps an eye on its roots; one that is gone is not shown.", ROOTS
    ),
    "roots-consent": should("A user can keep roots from a server.", ROOTS),
    "roots-errors": should(
        "A client without roots says that it has no such method.",
        "2025-11-25/client/roots",
        HANDSHAKE,
    ),
    "elicitation-declares": must(
        "A client whose user can be asked declares how.", ELICITATION, FORMS
    ),
    "elicitation-approval": should(
        "The application can refuse in the user's stead.", ELICITATION, FORMS
    ),
    "elicitation-rate-limit": should(
        "Questions to a user are limited in number.", "2025-11-25/client/elicitation", FORMS[:2]
    ),
    "elicitation-ui-server": must("A user is shown who asks.", ELICITATION, FORMS),
    "elicitation-ui-decline": must(
        "A user can decline or cancel at any point.", ELICITATION, FORMS
    ),
    "elicitation-ui-review": must(
        "A user sees an answer again, and can change it, before it is sent.", ELICITATION, FORMS
    ),
    "elicitation-defaults-shown": should(
        "A form begins with its defaults.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-client-checks": should(
        "A client checks an answer against the form.", ELICITATION, FORMS
    ),
    "elicitation-url-consent": must(
        "No page is opened without the user's consent.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-url-shown": must(
        "A user sees the whole URL before consenting.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-url-no-prefetch": must(
        "Nothing of a page is fetched by the client.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-url-opened-safely": must(
        "A page is opened where the client sees nothing of it: in the user's browser.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-url-domain": should(
        "The host of a URL is shown by itself.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-url-suspicious": should(
        "A user is warned of odd URLs.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-links-inert": should(
        "Nothing else that a server says becomes a link to click on.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-manual-retry": should(
        "A user who was sent to a page says when to go on, or that they gave up.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-complete-unknown": must(
        "News of a page that nobody was sent to is ignored.",
        "2025-11-25/client/elicitation",
        REVISIONS[3:4],
    ),
    "deprecated-features": should(
        "New implementations do without sampling and roots.",
        SAMPLING,
        STATELESS,
        "they are part of every revision served here; whoever does without them leaves "
        "on_sample= and roots= out",
    ),
    # asking, a server's part
    "rounds-no-requests": must(
        "What a server asks is part of its replies, never a request.", ROUNDS, STATELESS
    ),
    "rounds-unique-keys": must(
        "The keys of questions are unique in their request.", ROUNDS, STATELESS
    ),
    "rounds-content": must(
        "A reply that asks has questions or a state; questions are of the three kinds.",
        ROUNDS,
        STATELESS,
    ),
    "rounds-state-protected": must(
        "A state is protected against changes, and refused where it was changed.", ROUNDS, STATELESS
    ),
    "rounds-state-principal": should(
        "A state is refused from anybody but the one who was given it.", ROUNDS, STATELESS
    ),
    "rounds-state-expires": should("A state is refused after a while.", ROUNDS, STATELESS),
    "rounds-state-request": should(
        "A state is refused with any other request than its own.", ROUNDS, STATELESS
    ),
    "rounds-state-once": must(
        "What may be redeemed once is kept track of by the server.",
        ROUNDS,
        STATELESS,
        "what that is, its author decides",
    ),
    "rounds-not-assumed": must(
        "A server does not count on answers, nor on a client that comes back.", ROUNDS, STATELESS
    ),
    "rounds-malformed": should(
        "Answers that cannot be read are refused with an error.", ROUNDS, STATELESS
    ),
    "rounds-extra": should("Answers to what was not asked are ignored.", ROUNDS, STATELESS),
    "rounds-missing": should("What was not answered is asked again.", ROUNDS, STATELESS),
    "asking-declared": must("A server asks nothing that the client did not declare.", ROUNDS),
    "elicitation-modes-asked": must(
        "A user is asked in no mode that the client did not declare.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-message": must("A question says in words what it is about.", ELICITATION, FORMS),
    "elicitation-form-schema": must("A form has a schema, of one flat object.", ELICITATION, FORMS),
    "elicitation-no-secrets": must("Secrets are not asked for by form.", ELICITATION, FORMS),
    "elicitation-url": must(
        "A page to visit is named as such, with a message.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-url-valid": must("Its URL is a valid one.", ELICITATION, since("2025-11-25")),
    "elicitation-url-secrets": must(
        "Its URL tells nothing of the user, and opens nothing by itself.",
        ELICITATION,
        since("2025-11-25"),
        AUTHOR,
    ),
    "elicitation-url-https": should(
        "Its URL is of https outside of development.", ELICITATION, since("2025-11-25"), AUTHOR
    ),
    "elicitation-url-same-user": must(
        "Who opens the page is verified to be the one who was asked.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-url-changed": must(
        "To change the URL does not make anybody pass for another user.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-state-user": must(
        "What is kept of a user is kept safe, under who they are, and not under a session alone.",
        ELICITATION,
        since("2025-11-25"),
        AUTHOR,
    ),
    "elicitation-url-credentials": must(
        "What a user gives away on that page never reaches the client, nor stands in for "
        "authorization.",
        ELICITATION,
        since("2025-11-25"),
        AUTHOR,
    ),
    "elicitation-no-links": should(
        "A form has no links to click on.", ELICITATION, since("2025-11-25"), AUTHOR
    ),
    "elicitation-complete": must(
        "That a page is done with is told to the client that was asked, by the id of the question.",
        "2025-11-25/client/elicitation",
        REVISIONS[3:4],
    ),
    "elicitation-url-error": must(
        "The error that wants pages visited first lists them, each with its id.",
        "2025-11-25/client/elicitation",
        REVISIONS[3:4],
    ),
    "elicitation-url-error-only": must(
        "That error is sent where pages have to be visited, and nowhere else.",
        "2025-11-25/client/elicitation",
        REVISIONS[3:4],
    ),
    "elicitation-declined": must(
        "A user may decline or cancel, and a client may fail.", ELICITATION, FORMS
    ),
    "elicitation-bound": must(
        "A question belongs to one client and one user.", ELICITATION, since("2025-11-25")
    ),
    "elicitation-identity": must(
        "Who the user is, is never taken from what the client says.",
        ELICITATION,
        since("2025-11-25"),
    ),
    "elicitation-answer-checked": should(
        "A form is checked against the schema that was sent.", ELICITATION, FORMS
    ),
    "sampling-tools-asked": must(
        "A model is given tools only where the client declared that.", SAMPLING, since("2025-11-25")
    ),
    "sampling-context-asked": should(
        "Context is asked for only where the client declared that.", SAMPLING, since("2025-11-25")
    ),
    "sampling-roles": must("Each message to a model is of the user or of the assistant.", SAMPLING),
    "sampling-tool-balance": must(
        "Each use of a tool is followed at once by its result.", SAMPLING, since("2025-11-25")
    ),
    "sampling-tool-results": must(
        "A message with results of tools has nothing else.", SAMPLING, since("2025-11-25")
    ),
    "sampling-loops": should("Loops of questions to a model end.", SAMPLING, since("2025-11-25")),
    "roots-consulted": should(
        "Roots are asked for where they were declared, and cached as long as they hold.", ROOTS
    ),
    "roots-changes-heard": should(
        "Roots that changed are asked for again.", "2025-11-25/client/roots", HANDSHAKE
    ),
    "roots-bounds": should(
        "Paths are checked against the roots, also against those that are gone.", ROOTS
    ),
    # caching
    "cache-hints": must("Discovery, lists and reads carry hints for caches.", CACHING, STATELESS),
    "cache-hints-elsewhere": must("Other results carry none.", CACHING, STATELESS),
    "cache-ttl": must("A lifetime is not negative.", CACHING, STATELESS),
    "cache-scope-of-pages": must("All pages of a list have one scope.", CACHING, STATELESS),
    "cache-ttl-odd": should(
        "A lifetime that is missing or negative counts as none.", CACHING, STATELESS
    ),
    "cache-key": must(
        "No answer is served for another request than its own, and none that came of a round.",
        CACHING,
        STATELESS,
    ),
    "cache-input-required": must("A question to the client carries no hints.", CACHING, STATELESS),
    "cache-fresh": should(
        "A result is fresh for as long as its lifetime, from when it came.", CACHING, STATELESS
    ),
    "cache-stale": should(
        "One that is fresh no more is asked for again when it is needed.", CACHING, STATELESS
    ),
    "cache-no-polling": should(
        "And not before: a lifetime is no interval for polling.", CACHING, STATELESS
    ),
    "cache-private": must(
        "What is private is not shared between callers of different authorization.",
        CACHING,
        STATELESS,
    ),
    "cache-notifications": should(
        "News of a change ends the lifetime of what changed.", CACHING, STATELESS
    ),
    "cache-pages": should(
        "Each page has a lifetime of its own, and is asked for again by its own cursor.",
        CACHING,
        STATELESS,
    ),
    "cache-pages-invalid": should(
        "Where a cursor is not good any more, all pages are dropped and asked for from the "
        "beginning.",
        CACHING,
        STATELESS,
    ),
    "cache-snapshot": should(
        "Who needs a list as it is at one time asks from its beginning.", CACHING, STATELESS
    ),
    "cache-poll-jitter": must(
        "Who polls does so with jitter and patience.", CACHING, STATELESS, "nothing here polls"
    ),
    "cache-access-control": must(
        "Access is controlled for each thing by itself, whatever its scope.", CACHING, STATELESS
    ),
    # pagination
    "pagination": should("Lists come in pages, and a missing cursor is the end.", PAGINATION),
    "pagination-opaque": must(
        "A client sends cursors back as they came, whatever they are.", PAGINATION
    ),
    "pagination-page-size": must("A client takes pages of any size.", PAGINATION),
    "pagination-stable": should("Cursors hold while the list changes.", PAGINATION),
    "pagination-invalid-cursor": should(
        "A cursor that is none is refused as invalid params.", PAGINATION
    ),
    # tools
    "tools-capability": must("A server with tools declares them.", f"{TOOLS}#capabilities"),
    "tools-list": must(
        "Tools are listed, with what the revision knows of them.", f"{TOOLS}#listing-tools"
    ),
    "tools-list-same": must(
        "The list is the same on each connection and whatever was asked before.",
        f"{TOOLS}#capabilities",
        STATELESS,
    ),
    "tools-list-order": should(
        "The list comes in the same order each time.", f"{TOOLS}#capabilities", STATELESS
    ),
    "tools-list-changed": should(
        "Changes of the list are told.", f"{TOOLS}#list-changed-notification"
    ),
    "tools-call": must(
        "A tool is called by name and answers with content.", f"{TOOLS}#calling-tools"
    ),
    "tools-content-kinds": must(
        "Content is of the kinds that the revision has.", f"{TOOLS}#tool-result"
    ),
    "tools-structured-content": must(
        "Structured content is any JSON value; an object, before the stateless era.",
        f"{TOOLS}#structured-content",
        since("2025-06-18"),
    ),
    "tools-structured-text": should(
        "Structured content is there as text too.",
        f"{TOOLS}#structured-content",
        since("2025-06-18"),
    ),
    "tools-output-conforms": must(
        "Structured content matches the schema that the tool announced.",
        f"{TOOLS}#output-schema",
        since("2025-06-18"),
    ),
    "tools-output-checked": should(
        "A client checks that.", f"{TOOLS}#output-schema", since("2025-06-18")
    ),
    "tools-input-schema": must(
        "The schema of a tool's input is a valid one of an object.", f"{TOOLS}#tool"
    ),
    "tools-input-checked": must(
        "Input is checked before the tool sees it.", f"{TOOLS}#security-considerations"
    ),
    "tools-unknown": must(
        "A call of no tool is an error of the protocol.", f"{TOOLS}#error-handling"
    ),
    "tools-errors": must(
        "What goes wrong in a tool is a result that a model can read.", f"{TOOLS}#error-handling"
    ),
    "tool-names": should(
        "Names are 1 to 128 letters, digits, `_`, `-`, `.`, case-sensitive and unique.",
        f"{TOOLS}#tool-names",
        since("2025-11-25"),
    ),
    "tools-annotations-untrusted": must(
        "Annotations count for nothing unless the server is trusted.",
        f"{TOOLS}#tool",
        since("2025-03-26"),
    ),
    "tools-output-sane": must(
        "Whatever a tool returns is sent as valid content or refused.",
        f"{TOOLS}#security-considerations",
    ),
    "tools-access": must("Access to tools is controlled.", f"{TOOLS}#security-considerations"),
    "tools-human": should(
        "A human can see and deny calls.", f"{TOOLS}#user-interaction-model", untested=HOST
    ),
    "rate-limit": must(
        "Calls and completions of one client are bounded.", f"{TOOLS}#security-considerations"
    ),
    # resources
    "resources-capability": must(
        "A server with resources declares them.", f"{RESOURCES}#capabilities"
    ),
    "resources-list": must("Resources and templates are listed.", f"{RESOURCES}#listing-resources"),
    "resources-list-changed": should(
        "Changes of the list are told.", f"{RESOURCES}#list-changed-notification"
    ),
    "resources-read": must(
        "A resource is read as text or bytes.", f"{RESOURCES}#reading-resources"
    ),
    "resources-binary": must("Bytes are sent as base64.", f"{RESOURCES}#security-considerations"),
    "resources-not-found": must(
        "What is not there is refused with the code of the revision.", f"{RESOURCES}#error-handling"
    ),
    "resources-not-found-empty": must(
        "What is not there is never an empty answer.", f"{RESOURCES}#error-handling", STATELESS
    ),
    "resources-not-found-old": should(
        "A client takes the old code for it too.", f"{RESOURCES}#error-handling", STATELESS
    ),
    "resources-internal-error": should(
        "A read that fails inside is an internal error.", f"{RESOURCES}#error-handling"
    ),
    "resources-subscribe": must(
        "Updates are told to those who subscribed, and only to them.", f"{RESOURCES}#subscriptions"
    ),
    "resources-uris": must(
        "URIs are checked before anything is read.", f"{RESOURCES}#security-considerations"
    ),
    "resources-schemes": must(
        "The scheme of a URI is one by RFC 3986.",
        f"{RESOURCES}#custom-uri-schemes",
        since("2025-06-18"),
    ),
    "resources-traversal": must(
        "No path leads out of a directory that is served.",
        f"{RESOURCES}#security-considerations",
        STATELESS,
    ),
    "resources-access": should(
        "Permissions are looked at before a read.", f"{RESOURCES}#security-considerations"
    ),
    # prompts
    "prompts-capability": must("A server with prompts declares them.", f"{PROMPTS}#capabilities"),
    "prompts-list": must("Prompts are listed with their arguments.", f"{PROMPTS}#listing-prompts"),
    "prompts-list-changed": should(
        "Changes of the list are told.", f"{PROMPTS}#list-changed-notification"
    ),
    "prompts-get": must("A prompt is filled in.", f"{PROMPTS}#getting-a-prompt"),
    "prompts-media": must(
        "Pictures and sounds in prompts are base64 and say their type.", f"{PROMPTS}#promptmessage"
    ),
    "prompts-embedded": must(
        "A resource in a prompt has its URI, its type, and text or bytes.",
        f"{PROMPTS}#embedded-resources",
    ),
    "prompts-errors": should(
        "Unknown prompts, and arguments that are missing or wrong, are refused as invalid params.",
        f"{PROMPTS}#error-handling",
    ),
    "prompts-validated": must(
        "Arguments are checked before the prompt sees them.", f"{PROMPTS}#security"
    ),
    # completion
    "completion-capability": must(
        "A server that completes declares it, where the revision has a word for it.",
        f"{COMPLETION}#capabilities",
        since("2025-03-26"),
    ),
    "completion": should("Completions come best first.", COMPLETION),
    "completion-limit": must(
        "At most 100 values are sent, with the total.", f"{COMPLETION}#completion-results"
    ),
    "completion-context": must(
        "Arguments chosen before are taken into account.", COMPLETION, since("2025-06-18")
    ),
    "completion-errors": should(
        "Unknown references and arguments are refused as invalid params.",
        f"{COMPLETION}#error-handling",
    ),
    "completion-disclosure": must(
        "Completions give nothing away to those who may not see it.",
        f"{COMPLETION}#security",
        untested="what a completer gives away is its author's choice",
    ),
    # logging
    "logging-capability": must(
        "A server that logs to its client declares it.", f"{LOGGING}#capabilities"
    ),
    "logging": must("Log messages are of the eight levels of syslog.", f"{LOGGING}#log-levels"),
    "logging-level": must("Nothing below the level asked for is sent.", LOGGING),
    "logging-level-invalid": should(
        "A level that is none is refused as invalid params.", f"{LOGGING}#error-handling"
    ),
    "logging-opt-in": must(
        "A request without a level is not logged to.", f"{LOGGING}#per-request-log-level", STATELESS
    ),
    "logging-own-request": must(
        "Log messages never come on a subscription stream.",
        f"{LOGGING}#per-request-log-level",
        STATELESS,
    ),
    "logging-secrets": must("Credentials can be kept out of log messages.", f"{LOGGING}#security"),
    # authorization, a client's part: where a token comes from
    "auth-http": should(
        "Over HTTP, authorization is done as specified.",
        AUTH_OVERVIEW,
        AUTH,
        "what that takes is each of these rows",
    ),
    "auth-stdio-environment": should(
        "A server that is started gets its secrets from its environment, and no login.",
        AUTH_OVERVIEW,
        AUTH,
    ),
    "auth-other-transports": must(
        "Other transports carry credentials as is good practice for them: in the headers of a "
        "WebSocket's handshake.",
        AUTH_OVERVIEW,
        AUTH,
    ),
    "auth-challenge-parsed": must(
        "A client takes `WWW-Authenticate` apart and acts on a 401.",
        AUTH_DISCOVERY,
        since("2025-06-18"),
    ),
    "auth-resource-metadata": must(
        "Authorization servers are found by what a server publishes about itself.",
        AUTH_DISCOVERY,
        since("2025-06-18"),
    ),
    "auth-metadata-from-challenge": must(
        "Where a challenge says where the metadata is, that is where it is asked for.",
        AUTH_DISCOVERY,
        since("2025-06-18"),
    ),
    "auth-metadata-well-known": must(
        "Else it is asked for at the well-known path of the endpoint, then of the root.",
        AUTH_DISCOVERY,
        since("2025-11-25"),
    ),
    "auth-discovery-both": must(
        "Metadata of OAuth and of OpenID Connect are both understood.",
        AUTH_DISCOVERY,
        since("2025-11-25"),
    ),
    "auth-server-metadata-order": must(
        "An issuer's metadata is looked for in all its places, in their order.",
        f"{AUTH_DISCOVERY}#authorization-server-metadata-discovery",
        since("2025-11-25"),
    ),
    "auth-issuer-identical": must(
        "Metadata that names another issuer than the one that was asked is not used.",
        f"{AUTH_DISCOVERY}#authorization-server-metadata-discovery",
        AUTH,
    ),
    "auth-origin-metadata": must(
        "The metadata of a server of old is at its origin, whatever its path.", AUTH_OF_OLD, BATCHES
    ),
    "auth-version-header": should(
        "Who asks a server of old for it says which revision is spoken.", AUTH_OF_OLD, BATCHES
    ),
    "auth-metadata-first": must(
        "Metadata is asked for before anything is assumed.", AUTH_OF_OLD, BATCHES
    ),
    "auth-default-endpoints": must(
        "Without any, there are `/authorize`, `/token` and `/register` at the origin.",
        AUTH_OF_OLD,
        BATCHES,
    ),
    # authorization, a client's part: its name
    "auth-client-id-first": must("No login begins without a client id.", AUTH_OVERVIEW, STATELESS),
    "auth-registration-order": should(
        "A name that was given goes first, then a document, then registering.",
        AUTH_REGISTRATION,
        since("2025-11-25"),
    ),
    "auth-client-given": should(
        "A user can give the name and secret of a client.", AUTH_REGISTRATION, since("2025-11-25")
    ),
    "auth-client-document": should(
        "A client can be known by a document about it.", AUTH_REGISTRATION, since("2025-11-25")
    ),
    "auth-client-document-https": must(
        "The address of that document is https and has a path.",
        AUTH_REGISTRATION,
        since("2025-11-25"),
    ),
    "auth-client-document-contents": must(
        "The document names its own address, the client and its redirect URIs.",
        AUTH_REGISTRATION,
        since("2025-11-25"),
        "the application publishes it; the library only has its address",
    ),
    "auth-client-document-advertised": should(
        "It is used only where the issuer says that it reads such documents.",
        AUTH_REGISTRATION,
        since("2025-11-25"),
    ),
    "auth-registration-dynamic": should(
        "A client can register itself.",
        "2025-06-18/basic/authorization",
        ("2025-03-26", "2025-06-18"),
    ),
    "auth-application-type": must(
        "Who registers says what type of application it is.", AUTH_REGISTRATION, STATELESS
    ),
    "auth-application-type-fits": should(
        "It is native where the login ends on this machine, else web.", AUTH_REGISTRATION, STATELESS
    ),
    "auth-registration-failure": must(
        "A client expects its registration to be refused.", AUTH_REGISTRATION, STATELESS
    ),
    "auth-registration-failure-told": should(
        "Its user hears why it was.", AUTH_REGISTRATION, STATELESS
    ),
    "auth-registration-per-issuer": must(
        "Registrations and tokens are kept for each issuer by itself, and never tried at another.",
        f"{AUTH_REGISTRATION}#authorization-server-binding",
        STATELESS,
    ),
    "auth-server-moved": must(
        "Where the authorization server has changed, a client registers anew.",
        f"{AUTH_REGISTRATION}#authorization-server-binding",
        STATELESS,
    ),
    "auth-given-per-issuer": must(
        "A name that was given belongs to one issuer.",
        f"{AUTH_REGISTRATION}#authorization-server-binding",
        STATELESS,
    ),
    "auth-given-moved": should(
        "Where that is not the server's any more, the user hears so.",
        f"{AUTH_REGISTRATION}#authorization-server-binding",
        STATELESS,
    ),
    # authorization, a client's part: scopes
    "auth-scope-authoritative": must(
        "The scopes of a challenge are those that the request needs.",
        AUTH_OVERVIEW,
        since("2025-11-25"),
    ),
    "auth-scope-no-relation": must(
        "They need not be among those that the server lists.", AUTH_OVERVIEW, since("2025-11-25")
    ),
    "auth-scope-selection": should(
        "The scopes of the challenge are asked for, else those of the metadata, else none.",
        f"{AUTH_OVERVIEW}#scope-selection-strategy",
        since("2025-11-25"),
    ),
    "auth-scope-least": should(
        "Nothing more is asked for than is needed.",
        f"{AUTH_OVERVIEW}#scope-selection-strategy",
        since("2025-11-25"),
    ),
    "auth-step-up": should(
        "A client that lacks scopes asks for them.",
        f"{AUTH_OVERVIEW}#step-up-authorization-flow",
        since("2025-11-25"),
    ),
    "auth-step-up-union": should(
        "It asks for them together with those of before.",
        f"{AUTH_OVERVIEW}#step-up-authorization-flow",
        STATELESS,
    ),
    "auth-step-up-limit": should(
        "It remembers what it asked for, and gives up after a few times.",
        f"{AUTH_OVERVIEW}#step-up-authorization-flow",
        since("2025-11-25"),
    ),
    # authorization, a client's part: the login
    "auth-oauth-security": must(
        "What OAuth 2.1 says about security is done.",
        AUTH_SECURITY,
        AUTH,
        "what that takes of a client is each of these rows",
    ),
    "auth-pkce": must(
        "Each login has a secret of its own, of which the browser sees the hash.",
        AUTH_SECURITY,
        AUTH,
    ),
    "auth-pkce-s256": must("That hash is S256.", AUTH_SECURITY, since("2025-11-25")),
    "auth-pkce-verified": must(
        "An issuer whose metadata does not promise S256 is not logged in at.",
        AUTH_SECURITY,
        since("2025-11-25"),
    ),
    "auth-state-verified": should(
        "An answer without the state of the question is dropped.",
        f"{AUTH_SECURITY}#open-redirection",
        since("2025-06-18"),
    ),
    "auth-issuer-recorded": must(
        "Whose answer is expected is noted with the secret of the login.",
        f"{AUTH_OVERVIEW}#authorization-response-validation",
        STATELESS,
    ),
    "auth-iss-verified": must(
        "An answer says whose it is, where that was promised, and is dropped where it is "
        "another's.",
        f"{AUTH_OVERVIEW}#authorization-response-validation",
        STATELESS,
    ),
    "auth-iss-letter-by-letter": must(
        "Names of issuers are compared as they are written.",
        f"{AUTH_OVERVIEW}#authorization-response-validation",
        STATELESS,
    ),
    "auth-iss-on-errors": must(
        "An error that is another's is neither acted on nor shown.",
        f"{AUTH_OVERVIEW}#authorization-response-validation",
        STATELESS,
    ),
    "auth-redirect-loopback": must(
        "A login ends on this machine or at an https address.",
        f"{AUTH_SECURITY}#communication-security",
        AUTH,
    ),
    "auth-redirect-registered": must(
        "It ends where the client was registered to.",
        f"{AUTH_SECURITY}#open-redirection",
        since("2025-06-18"),
    ),
    "auth-endpoints-https": must(
        "An authorization server is asked over https only.",
        f"{AUTH_SECURITY}#communication-security",
        AUTH,
    ),
    # authorization, a client's part: its tokens
    "auth-resource-parameter": must(
        "A token is asked for by the name of the server it is for, in the browser and at the "
        "token endpoint.",
        f"{AUTH_OVERVIEW}#resource-parameter-implementation",
        since("2025-06-18"),
    ),
    "auth-resource-is-the-server": must(
        "That name is the name of the server that is talked to.",
        f"{AUTH_OVERVIEW}#resource-parameter-implementation",
        since("2025-06-18"),
    ),
    "auth-resource-always": must(
        "It is sent whether or not the issuer heeds it.",
        f"{AUTH_OVERVIEW}#canonical-server-uri",
        since("2025-06-18"),
    ),
    "auth-resource-canonical": must(
        "It is a canonical URI: with a scheme, without a fragment.",
        f"{AUTH_OVERVIEW}#canonical-server-uri",
        since("2025-06-18"),
    ),
    "auth-resource-specific": should(
        "It is as specific as it can be.",
        f"{AUTH_OVERVIEW}#canonical-server-uri",
        since("2025-06-18"),
    ),
    "auth-resource-slash": should(
        "It has no slash that means nothing.",
        f"{AUTH_OVERVIEW}#canonical-server-uri",
        since("2025-06-18"),
    ),
    "auth-resource-case": should(
        "Scheme and host may be written in capitals.",
        f"{AUTH_OVERVIEW}#canonical-server-uri",
        since("2025-06-18"),
    ),
    "auth-token-in-header": must(
        "A token goes in the Authorization header.", f"{AUTH_OVERVIEW}#token-requirements", AUTH
    ),
    "auth-every-request": must(
        "It goes with each request.", f"{AUTH_OVERVIEW}#token-requirements", AUTH
    ),
    "auth-token-not-in-query": must(
        "It is never part of a URL.", f"{AUTH_OVERVIEW}#token-requirements", AUTH
    ),
    "auth-own-tokens-only": must(
        "A server is sent tokens of its own authorization server only.",
        f"{AUTH_OVERVIEW}#token-handling",
        since("2025-06-18"),
    ),
    "auth-token-storage": must("Tokens are kept safely.", f"{AUTH_SECURITY}#token-theft", AUTH),
    "auth-refresh-confidential": must(
        "Refresh tokens are confidential on their way and where they lie.",
        f"{AUTH_OVERVIEW}#refresh-tokens",
        STATELESS,
    ),
    "auth-refresh-grant-type": should(
        "Who wants refresh tokens registers for them.", f"{AUTH_OVERVIEW}#refresh-tokens", STATELESS
    ),
    "auth-refresh-not-assumed": must(
        "There may be no refresh token.", f"{AUTH_OVERVIEW}#refresh-tokens", STATELESS
    ),
    "auth-offline-access": must(
        "`offline_access` is asked for only where the issuer has it.",
        f"{AUTH_OVERVIEW}#refresh-tokens",
        STATELESS,
    ),
    # authorization, a server's part: who is let in
    "authorization-not-on-stdio": should(
        "Nobody is asked for a token on stdio.", AUTH_OVERVIEW, AUTH
    ),
    "authorization-other-transports": must(
        "A WebSocket is opened with a token in the headers of its handshake, or not at all.",
        AUTH_OVERVIEW,
        AUTH,
    ),
    "authorization-401": must(
        "Without a token, or with one that is not good, the answer is 401.",
        f"{AUTH_OVERVIEW}#error-handling",
        AUTH,
    ),
    "authorization-400": must(
        "What cannot be read is answered 400.", f"{AUTH_OVERVIEW}#error-handling", AUTH
    ),
    "authorization-403": must(
        "Who lacks scopes is answered 403.", f"{AUTH_OVERVIEW}#error-handling", AUTH
    ),
    "authorization-expired": must(
        "A token that has expired is not good.", f"{AUTH_OVERVIEW}#token-handling", AUTH
    ),
    "authorization-every-request": must(
        "Each request needs the token, those of a session too.",
        f"{AUTH_OVERVIEW}#token-requirements",
        AUTH,
    ),
    "authorization-no-query-token": must(
        "A token in a URL is not taken.", f"{AUTH_OVERVIEW}#token-requirements", AUTH
    ),
    "authorization-token-validated": must(
        "A token is taken after its signature, issuer, time and kind were looked at.",
        f"{AUTH_OVERVIEW}#token-handling",
        AUTH,
    ),
    "authorization-audience": must(
        "A token has to be for this server.",
        f"{AUTH_SECURITY}#token-audience-binding-and-validation",
        since("2025-06-18"),
    ),
    "authorization-no-other-tokens": must(
        "Tokens of others, and for others, are refused.",
        f"{AUTH_SECURITY}#access-token-privilege-restriction",
        since("2025-06-18"),
    ),
    "authorization-before-anything": must(
        "A token is looked at before anything is done for its bearer.",
        f"{AUTH_SECURITY}#access-token-privilege-restriction",
        since("2025-06-18"),
    ),
    "authorization-no-passthrough": must(
        "A client's token is not passed on.",
        f"{AUTH_SECURITY}#access-token-privilege-restriction",
        since("2025-06-18"),
        AUTHOR,
    ),
    "authorization-token-storage": must(
        "A server keeps no tokens, only digests, and logs none.",
        f"{AUTH_SECURITY}#token-theft",
        since("2025-06-18"),
    ),
    "authorization-session-binding": should(
        "What a user began is of no use to another: sessions, streams, states.",
        f"{AUTH_PRACTICE}#session-hijacking",
        AUTH,
    ),
    "authorization-resource-spelling": should(
        "Scheme and host of a server's name may be written in capitals, also in a token.",
        f"{AUTH_OVERVIEW}#canonical-server-uri",
        since("2025-06-18"),
    ),
    "authorization-resource-slash": should(
        "A server's name has no slash at its end.",
        f"{AUTH_OVERVIEW}#canonical-server-uri",
        since("2025-06-18"),
    ),
    # authorization, a server's part: what it says of itself
    "authorization-resource-metadata": must(
        "A server publishes what a client has to know (RFC 9728).",
        AUTH_DISCOVERY,
        since("2025-06-18"),
    ),
    "authorization-servers-named": must(
        "That names at least one authorization server.", AUTH_DISCOVERY, since("2025-06-18")
    ),
    "authorization-metadata-header": must(
        "A challenge says where that is, or it is at the well-known path.",
        AUTH_DISCOVERY,
        since("2025-06-18"),
    ),
    "authorization-challenge-scope": should(
        "A challenge names the scopes that it takes.",
        f"{AUTH_OVERVIEW}#scope-selection-strategy",
        since("2025-11-25"),
    ),
    "authorization-scope-consistent": should(
        "Challenges are made of scopes in the same way each time.",
        f"{AUTH_OVERVIEW}#scope-challenge-handling",
        since("2025-11-25"),
    ),
    "authorization-insufficient-scope": should(
        "Who lacks scopes is told `insufficient_scope`, which ones, and where the metadata is.",
        f"{AUTH_OVERVIEW}#scope-challenge-handling",
        since("2025-11-25"),
    ),
    "authorization-scopes-at-once": should(
        "All scopes that an operation takes are named at once.",
        f"{AUTH_OVERVIEW}#scope-challenge-handling",
        STATELESS,
    ),
    "authorization-scope-friction": should(
        "Scopes are cut so that users are not asked over and over.",
        f"{AUTH_OVERVIEW}#scope-challenge-handling",
        since("2025-11-25"),
        AUTHOR,
    ),
    "authorization-scopes-minimal": should(
        "The metadata names few scopes: those that are needed in any case.",
        f"{AUTH_OVERVIEW}#scope-selection-strategy",
        since("2025-11-25"),
    ),
    "authorization-scope-hierarchy": must(
        "A scope that has others in it counts for them.",
        f"{AUTH_OVERVIEW}#step-up-authorization-flow",
        STATELESS,
    ),
    "authorization-no-offline-access": should(
        "A server never asks for `offline_access`.", f"{AUTH_OVERVIEW}#refresh-tokens", STATELESS
    ),
    # authorization, an authorization server's part
    "provider-oauth": must(
        "OAuth 2.1 is spoken, with public and confidential clients.", AUTH_OVERVIEW, AUTH
    ),
    "provider-metadata": must(
        "It publishes its metadata (RFC 8414 or OpenID Connect).", AUTH_OVERVIEW, AUTH
    ),
    "provider-default-endpoints": must(
        "Its endpoints are where clients of old look for them.", AUTH_OF_OLD, BATCHES
    ),
    "provider-openid-pkce": must(
        "What it publishes for OpenID Connect says that PKCE is understood.",
        AUTH_SECURITY,
        since("2025-11-25"),
    ),
    "provider-https": must(
        "All its endpoints are https.", f"{AUTH_SECURITY}#communication-security", AUTH
    ),
    "provider-registration": should(
        "Clients may register themselves.",
        "2025-06-18/basic/authorization",
        ("2025-03-26", "2025-06-18"),
    ),
    "provider-cimd": should(
        "A client whose id is a URL is known by the document there.",
        AUTH_REGISTRATION,
        since("2025-11-25"),
    ),
    "provider-cimd-identical": must(
        "That document names its own URL, letter by letter.", AUTH_REGISTRATION, since("2025-11-25")
    ),
    "provider-cimd-fields": must(
        "It is JSON and has all that it must have.", AUTH_REGISTRATION, since("2025-11-25")
    ),
    "provider-cimd-redirect": must(
        "Redirect URIs are those of the document.", AUTH_REGISTRATION, since("2025-11-25")
    ),
    "provider-cimd-cache": should(
        "It is kept for as long as its server allows.", AUTH_REGISTRATION, since("2025-11-25")
    ),
    "provider-ssrf": should(
        "Nobody makes an authorization server ask what only it can reach.",
        f"{AUTH_SECURITY}#client-id-metadata-document-security",
        since("2025-11-25"),
    ),
    "provider-pkce": must(
        "There is no code without PKCE.", f"{AUTH_SECURITY}#authorization-code-protection", AUTH
    ),
    "provider-code-once": must(
        "A code is good once; used twice, what it gave is taken back.",
        f"{AUTH_SECURITY}#authorization-code-protection",
        AUTH,
    ),
    "provider-iss": should(
        "Answers and errors say whose they are.",
        f"{AUTH_OVERVIEW}#authorization-response-validation",
        STATELESS,
    ),
    "provider-iss-advertised": must(
        "Its metadata says that they do.",
        f"{AUTH_OVERVIEW}#authorization-response-validation",
        STATELESS,
    ),
    "provider-redirect-exact": must(
        "A redirect URI is one that was registered, letter by letter.",
        f"{AUTH_SECURITY}#open-redirection",
        AUTH,
    ),
    "provider-redirect-kinds": must(
        "It is https or on the user's own machine, but for schemes that were named.",
        f"{AUTH_SECURITY}#communication-security",
        AUTH,
    ),
    "provider-redirect-precautions": must(
        "A browser is not sent where an attacker wants it.",
        f"{AUTH_SECURITY}#open-redirection",
        since("2025-06-18"),
    ),
    "provider-redirect-trusted": should(
        "It is not sent to a site that nobody knows before a person had a word in it.",
        f"{AUTH_SECURITY}#open-redirection",
        since("2025-06-18"),
    ),
    "provider-consent-shows": must(
        "The user sees which client asks for what, and which host they return to.",
        f"{AUTH_SECURITY}#localhost-redirect-uri-risks",
        since("2025-11-25"),
    ),
    "provider-loopback-warning": should(
        "Of a client on the user's own machine they are warned.",
        f"{AUTH_SECURITY}#localhost-redirect-uri-risks",
        since("2025-11-25"),
    ),
    "provider-consent-csrf": must(
        "A consent is given on a page that was shown in this browser.",
        f"{AUTH_PRACTICE}#confused-deputy-problem",
        AUTH,
    ),
    "provider-consent-framing": must(
        "No other page can show that page within itself.",
        f"{AUTH_PRACTICE}#confused-deputy-problem",
        AUTH,
    ),
    "provider-cookie": must(
        "Its cookie is `__Host-`, `Secure`, `HttpOnly` and `SameSite=Lax`.",
        f"{AUTH_PRACTICE}#confused-deputy-problem",
        AUTH,
    ),
    "provider-short-lived": should(
        "Access tokens live for a short time.", f"{AUTH_SECURITY}#token-theft", since("2025-06-18")
    ),
    "provider-rotates": must(
        "Refresh tokens change with each use.", f"{AUTH_SECURITY}#token-theft", AUTH
    ),
    "provider-expiry": should("Tokens expire.", AUTH_OF_OLD, BATCHES),
    # authorization, a server that has its users log in elsewhere
    "provider-consent-first": must(
        "A user consents to each client before being sent on.",
        f"{AUTH_SECURITY}#confused-deputy-problem",
        AUTH,
    ),
    "provider-upstream-state": must(
        "The state of such a login is made after that, is good once, soon over, and for that "
        "browser only.",
        f"{AUTH_PRACTICE}#confused-deputy-problem",
        AUTH,
    ),
    "provider-session-binding": must(
        "What is granted ends with the login elsewhere.", AUTH_OF_OLD, BATCHES
    ),
    "provider-upstream-secrets": must(
        "The tokens of others are kept safely.", AUTH_OF_OLD, BATCHES
    ),
    "provider-upstream-errors": must(
        "A login elsewhere that fails is told the client.", AUTH_OF_OLD, BATCHES
    ),
    "provider-login-timeout": must("A login here ends after a time.", AUTH_OF_OLD, BATCHES),
    # apps
    "apps-uri": must(
        "The URI of an app begins with `ui://`.", f"{APPS}#content-requirements", APPS_SINCE
    ),
    "apps-mime-type": must(
        "An app says its type, listed and read.", f"{APPS}#content-requirements", APPS_SINCE
    ),
    "apps-document": must(
        "What an app holds is an HTML document.", f"{APPS}#content-requirements", APPS_SINCE
    ),
    "apps-csp": must(
        "A view reaches the domains that it declared, and no others.",
        f"{APPS}#host-behavior",
        APPS_SINCE,
    ),
    "apps-log": should(
        "The policy of a view, and the calls that it makes, are logged.",
        f"{APPS}#2-auditable-communication",
        APPS_SINCE,
    ),
    "apps-origins": should(
        "Users are told which domains a view reaches.",
        f"{APPS}#4-content-security-policy-enforcement",
        APPS_SINCE,
    ),
    "apps-csp-default": must(
        "A view that declares nothing reaches nothing.", f"{APPS}#host-behavior", APPS_SINCE
    ),
    "apps-resource": must(
        "The app that a tool points to exists.", f"{APPS}#resource-discovery", APPS_SINCE
    ),
    "apps-visibility-model": must(
        "A model is shown the tools only that are for it.", f"{APPS}#visibility", APPS_SINCE
    ),
    "apps-visibility-app": must(
        "A view calls the tools only that are for apps.", f"{APPS}#visibility", APPS_SINCE
    ),
    "apps-sandbox": must(
        "A view is shown in a frame that holds it.", f"{APPS}#1-iframe-sandboxing", APPS_SINCE
    ),
    "apps-proxy": must(
        "Between a web page and a view is a proxy of another origin, which passes on what is "
        "not for itself.",
        f"{APPS}#sandbox-proxy",
        APPS_SINCE,
    ),
    "apps-initialized": must(
        "A view is told nothing before it is ready.", f"{APPS}#sandbox-proxy", APPS_SINCE
    ),
    "apps-data": must(
        "A view is told the arguments of its call, once, and then the result.",
        f"{APPS}#notifications-host--view",
        APPS_SINCE,
    ),
    "apps-cancelled": must(
        "A view is told of a call that was cancelled.",
        f"{APPS}#notifications-host--view",
        APPS_SINCE,
    ),
    "apps-teardown": must(
        "A view is told before it ends.", f"{APPS}#notifications-host--view", APPS_SINCE
    ),
    "apps-display-mode": must(
        "A view is shown only in modes that it has, and told the mode in any case.",
        f"{APPS}#display-modes",
        APPS_SINCE,
    ),
    "apps-size": must(
        "A host hears what size a view has.", f"{APPS}#container-dimensions", APPS_SINCE
    ),
    "apps-mime-types": must(
        "A client says which types it shows.", f"{APPS}#client-host-capabilities", APPS_SINCE
    ),
    "apps-fallback": should(
        "A client that shows no apps gets plain tools.", f"{APPS}#server-behavior", APPS_SINCE
    ),
    "apps-content": must(
        "A tool with a view answers with text too.", f"{APPS}#server-behavior", APPS_SINCE
    ),
    # skills
    "skills-methods": must(
        "A server that declares skills lists them and gives each by its URI.",
        f"{SKILLS}#capability-negotiation",
        EXTENDED,
    ),
    "skills-manifest": must(
        "An entry names every file of its skill once, with digest and size.",
        f"{SKILLS}#resources",
        EXTENDED,
    ),
    "skills-frontmatter": must(
        "An entry has the front matter of its SKILL.md as it is.", f"{SKILLS}#frontmatter", EXTENDED
    ),
    "skills-names": must(
        "A skill's name keeps to the rules, and ends its path.",
        f"{SKILLS}#resource-mapping",
        EXTENDED,
    ),
    "skills-resources": should(
        "SKILL.md is a resource with the name and description of its skill.",
        f"{SKILLS}#resource-metadata",
        EXTENDED,
    ),
    "skills-limits": should(
        "A skill has at most 512 files and 16 MiB.", f"{SKILLS}#limits", EXTENDED
    ),
    "skills-pages": must(
        "The list of skills has pages and hints for caches.", f"{SKILLS}#listing-skills", STATELESS
    ),
    "skills-unknown": must(
        "What is no skill is refused as invalid params.", f"{SKILLS}#getting-a-skill", EXTENDED
    ),
    "skills-dynamic": must(
        "A skill without stable digests says that it is dynamic.", f"{SKILLS}#resources", EXTENDED
    ),
    "skills-directories": must(
        "A directory is listed with its direct children; what is none is refused.",
        f"{SKILLS}#reading-directories",
        EXTENDED,
    ),
    "skills-directories-empty": must(
        "An empty directory is listed with nothing in it.",
        f"{SKILLS}#reading-directories",
        EXTENDED,
    ),
    "skills-directories-declared": must(
        "A client lists directories only where the server says that it does.",
        f"{SKILLS}#capability-negotiation",
        EXTENDED,
    ),
    "skills-nested": must(
        "A skill within another is listed by itself, and its files belong to both.",
        f"{SKILLS}#nested-skills",
        EXTENDED,
    ),
    "skills-lazy": must(
        "No file is fetched before it is wanted.", f"{SKILLS}#lazy-retrieval", EXTENDED
    ),
    "skills-verify": must(
        "What is read is used only if size, digest and front matter are the entry's.",
        f"{SKILLS}#verification-on-read",
        EXTENDED,
    ),
    "skills-unlisted": must(
        "A file that the entry does not list is not read.",
        f"{SKILLS}#the-acting-window-and-the-held-entry",
        EXTENDED,
    ),
    "skills-approval": must(
        "An approval that is kept is bound to every file of the skill, and is void when one "
        "comes, goes or changes.",
        f"{SKILLS}#security-considerations",
        EXTENDED,
    ),
    "skills-consent": must(
        "Users approve each skill, and are shown where it comes from.",
        f"{SKILLS}#security-considerations",
        EXTENDED,
        HOST,
    ),
    "skills-identity": must(
        "A skill is known by its server and its URI together.",
        f"{SKILLS}#skill-uris",
        EXTENDED,
        HOST,
    ),
    "skills-execution": must(
        "Nothing that a skill brings along or asks for is run without consent to that.",
        f"{SKILLS}#security-considerations",
        EXTENDED,
        HOST,
    ),
    "tasks-client-either": must(
        "A client that declares tasks takes a result or a task for an answer.",
        f"{TASKS}#capability-negotiation",
        STATELESS,
    ),
    "tasks-client-unsupported": must(
        "A task for an answer to what cannot be one is no valid answer.",
        f"{TASKS}#capability-negotiation",
        STATELESS,
    ),
    "tasks-client-interval": should(
        "A client looks at a task no more often than the server proposes.",
        f"{TASKS}#task-polling",
        STATELESS,
    ),
    "tasks-client-until-over": should(
        "A client looks at a task until it is over, or was cancelled.",
        f"{TASKS}#task-polling",
        STATELESS,
    ),
    "tasks-client-answers": must(
        "A question of a task is treated like any other question.",
        f"{TASKS}#task-update-requests",
        STATELESS,
    ),
    "tasks-client-once": should(
        "A question is answered once, however often a task shows it.",
        f"{TASKS}#task-update-requests",
        STATELESS,
    ),
    "tasks-client-cancel": must(
        "A task is cancelled by `tasks/cancel`, not by the notification.",
        f"{TASKS}#task-cancellation",
        STATELESS,
    ),
    "tasks-core-capability": must(
        "No tool is called as a task where the server did not declare that.",
        f"{CORE_TASKS}#tool-level-negotiation",
        CORE,
    ),
    "tasks-core-forbidden": must(
        "A tool that does not allow it is not called as a task.",
        f"{CORE_TASKS}#tool-level-negotiation",
        CORE,
    ),
    "tasks-core-required": must(
        "A tool that demands it is called as a task.", f"{CORE_TASKS}#tool-level-negotiation", CORE
    ),
    "tasks-core-input": should(
        "A client that sees `input_required` has `tasks/result` open.",
        f"{CORE_TASKS}#input-required-status",
        CORE,
    ),
    "tasks-host-declared": must(
        "A client declares what it can be asked as a task.", f"{CORE_TASKS}#capabilities", CORE
    ),
    "tasks-host-created": must(
        "A request as a task is answered with the task.", f"{CORE_TASKS}#result-retrieval", CORE
    ),
    "tasks-host-ignored": must(
        "Who did not declare tasks answers as if none had been asked for.",
        f"{CORE_TASKS}#task-support-and-handling",
    ),
    "tasks-host-result": must(
        "`tasks/result` waits until the task is over, and gives what the request would have given.",
        f"{CORE_TASKS}#result-retrieval",
        CORE,
    ),
    "tasks-client-related": must(
        "The answer to a question that names a task names it too, and so does its withdrawal.",
        f"{CORE_TASKS}#associating-task-related-messages",
        CORE,
    ),
    "tasks-host-related": must(
        "The result of a task names its task.",
        f"{CORE_TASKS}#associating-task-related-messages",
        CORE,
    ),
    "tasks-host-unknown": must(
        "A task that is not there is -32602.", f"{CORE_TASKS}#protocol-errors", CORE
    ),
    "tasks-host-cancel": must(
        "A task is cancelled before that is answered, and stays so.",
        f"{CORE_TASKS}#task-cancellation",
        CORE,
    ),
    "tasks-host-cancel-over": must(
        "To cancel what is over is -32602.", f"{CORE_TASKS}#task-cancellation", CORE
    ),
    "tasks-host-ttl": must(
        "A task says for how long it is kept.", f"{CORE_TASKS}#ttl-and-resource-management", CORE
    ),
    "tasks-undeclared": must(
        "Who does not declare tasks on a request gets none, and -32021 where there is nothing "
        "else.",
        f"{TASKS}#capability-negotiation",
        STATELESS,
    ),
    "tasks-flat": must(
        "A task for an answer is flat, and says `task` for its type.",
        f"{TASKS}#polymorphic-results",
        STATELESS,
    ),
    "tasks-durable": must(
        "A task can be looked at before its caller hears of it.",
        f"{TASKS}#task-creation",
        STATELESS,
    ),
    "tasks-before": should(
        "What is asked before there is a task is asked in rounds of the call itself.",
        f"{TASKS}#task-creation",
        STATELESS,
    ),
    "tasks-details": must(
        "A task shows its open questions, its result or its error, by its status.",
        f"{TASKS}#task-polling",
        STATELESS,
    ),
    "tasks-failed": must(
        "A task fails by an error of the protocol only; a tool that fails completes it.",
        f"{TASKS}#task-status",
        STATELESS,
    ),
    "tasks-keys": must(
        "No key of a question is used twice in the life of a task.",
        f"{TASKS}#task-update-requests",
        STATELESS,
    ),
    "tasks-ack": must(
        "Answers are acknowledged with an empty result.", f"{TASKS}#task-update-requests", STATELESS
    ),
    "tasks-unknown-keys": should(
        "Answers to what nobody asked are ignored.", f"{TASKS}#task-update-requests", STATELESS
    ),
    "tasks-cancel-ack": must(
        "To cancel is acknowledged, whatever the task's status is.",
        f"{TASKS}#task-cancellation",
        STATELESS,
    ),
    "tasks-listen": must(
        "To listen to tasks without having declared them is -32021.",
        f"{TASKS}#task-status-notifications",
        STATELESS,
    ),
    "tasks-listen-same": must(
        "What is told of a task is what `tasks/get` would say.",
        f"{TASKS}#task-status-notifications",
        STATELESS,
    ),
    "tasks-quiet": must(
        "No progress and no log is sent for a task.",
        f"{TASKS}#task-status-notifications",
        STATELESS,
    ),
    "tasks-header": must(
        "The header `Mcp-Name` repeats the id of a task.",
        f"{TASKS}#streamable-http-routing-headers",
        STATELESS,
    ),
    "tasks-unknown": must(
        "A task that is not there is -32602; it SHOULD be for answers and cancellations too.",
        f"{TASKS}#protocol-errors",
        STATELESS,
    ),
    "tasks-internal": must("An internal error is -32603.", f"{TASKS}#protocol-errors", STATELESS),
    "tasks-refused": must(
        "Who does not declare tasks may not look at one, answer or cancel it: -32021.",
        f"{TASKS}#protocol-errors",
        STATELESS,
    ),
    "tasks-complete": must(
        "What `tasks/get`, `tasks/update` and `tasks/cancel` give says `complete` for its type.",
        f"{TASKS}#task-polling",
        STATELESS,
    ),
    "tasks-all-questions": must(
        "A task shows all of its open questions.", f"{TASKS}#task-polling", STATELESS
    ),
    "tasks-no-result": must(
        "There is no `tasks/result`: -32601.", f"{TASKS}#backward-compatibility", STATELESS
    ),
    "tasks-param-ignored": must(
        "What a call says as `task` is ignored, whatever it is.",
        f"{TASKS}#backward-compatibility",
        STATELESS,
    ),
    "tasks-no-legacy": must(
        "Where there is the extension, nothing is declared of the core's tasks.",
        f"{TASKS}#backward-compatibility",
        STATELESS,
    ),
    "tasks-not-before": must(
        "Where the core has tasks of its own, to declare the extension makes none.",
        f"{TASKS}#backward-compatibility",
        CORE,
    ),
    "tasks-ids": must(
        "The id of a task cannot be guessed.", f"{TASKS}#security-implications", STATELESS
    ),
    "tasks-owner": must(
        "Each request about a task is checked for who sends it: to others it is not there.",
        f"{TASKS}#security-implications",
        STATELESS,
    ),
    "tasks-core-ids": must(
        "A task has an id of its own, which cannot be guessed.",
        f"{CORE_TASKS}#task-id-requirements",
        CORE,
    ),
    "tasks-core-begins": must(
        "A task begins as working, and goes from status to status as it may.",
        f"{CORE_TASKS}#task-status-lifecycle",
        CORE,
    ),
    "tasks-core-over": must(
        "What is over stays as it is.", f"{CORE_TASKS}#task-status-lifecycle", CORE
    ),
    "tasks-core-unknown": must(
        "A task that is not there is -32602.", f"{CORE_TASKS}#protocol-errors", CORE
    ),
    "tasks-core-cursor": must(
        "A cursor that is none is -32602.", f"{CORE_TASKS}#protocol-errors", CORE
    ),
    "tasks-core-bare": should(
        "What has the id of its task anyway does not name it in `_meta`: looks, lists, "
        "cancellations, statuses.",
        f"{CORE_TASKS}#associating-task-related-messages",
        CORE,
    ),
    "tasks-core-ttl-max": should(
        "No task is kept longer than the server's maximum.",
        f"{CORE_TASKS}#resource-management",
        CORE,
    ),
    "tasks-core-audit": should(
        "That a task began, ended and was fetched is logged, with who did it.",
        f"{CORE_TASKS}#audit-and-logging",
        CORE,
    ),
    "tasks-core-augment": must(
        "A tool that must be a task is -32601 without, and one that cannot be one SHOULD be "
        "-32601 with.",
        f"{CORE_TASKS}#tool-level-negotiation",
        CORE,
    ),
    "tasks-core-created": must(
        "A call as a task is answered with the task, which is working.",
        f"{CORE_TASKS}#result-retrieval",
        CORE,
    ),
    "tasks-core-result": must(
        "`tasks/result` waits until the task is over, and gives what the call would have given.",
        f"{CORE_TASKS}#result-retrieval",
        CORE,
    ),
    "tasks-core-related": must(
        "Whatever belongs to a task names it, but for what has its id anyway.",
        f"{CORE_TASKS}#associating-task-related-messages",
        CORE,
    ),
    "tasks-core-cancel": must(
        "A task is cancelled before that is answered, and stays so; what is over is -32602.",
        f"{CORE_TASKS}#task-cancellation",
        CORE,
    ),
    "tasks-core-failed": must(
        "A tool that fails is a task that failed, with its result.",
        f"{CORE_TASKS}#task-execution-errors",
        CORE,
    ),
    "tasks-core-ttl": must(
        "A task says for how long it is really kept.",
        f"{CORE_TASKS}#ttl-and-resource-management",
        CORE,
    ),
    "tasks-core-list": must(
        "A list has all tasks of its caller and no others, page by page. Where nobody is "
        "known this departs from the "
        "specification: it has those of its session, and `tasks/get` finds the others too.",
        f"{CORE_TASKS}#task-listing",
        CORE,
    ),
    "tasks-core-listless": should(
        "Where callers cannot be told apart, there is no list.",
        f"{CORE_TASKS}#task-isolation-and-access-control",
        CORE,
    ),
    "tasks-core-owner": must(
        "A task belongs to who began it, and is not there for others.",
        f"{CORE_TASKS}#task-isolation-and-access-control",
        CORE,
    ),
    "tasks-core-bounds": should(
        "There are bounds for the number of tasks and for their age.",
        f"{CORE_TASKS}#resource-management",
        CORE,
    ),
    "tasks-core-progress": must(
        "Progress goes on under the token of the call.",
        f"{CORE_TASKS}#task-progress-notifications",
        CORE,
    ),
    # telemetry
    "telemetry-names": should(
        "Spans, attributes and metrics go by the names of the conventions.", TELEMETRY
    ),
    "telemetry-parent": should(
        "A server's span is a child of what the request names in `_meta`, linked to what is "
        "around it.",
        f"{TELEMETRY}#context-propagation",
    ),
    "telemetry-cardinality": should(
        "What names a span or a series is one of few, whatever callers and servers send.",
        f"{TELEMETRY}#spans",
    ),
    "telemetry-errors": should(
        "A failure goes by its code, that of a tool as `tool_error`; a caller's mistake is no "
        "failure of the server.",
        f"{TELEMETRY}#server",
    ),
    "telemetry-metrics": should(
        "Operations and sessions are counted on either side, by seconds in the given buckets.",
        f"{TELEMETRY}#metrics",
    ),
    "telemetry-session": must(
        "Only where there is a session is one named, and never by what lets others in.",
        f"{TELEMETRY}#server",
    ),
}
