"""The keys of `_meta` that the protocol itself uses.
https://modelcontextprotocol.io/specification/2026-07-28/basic#meta"""

PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = PREFIX + "protocolVersion"
CLIENT_INFO = PREFIX + "clientInfo"
CLIENT_CAPABILITIES = PREFIX + "clientCapabilities"
SERVER_INFO = PREFIX + "serverInfo"
LOG_LEVEL = PREFIX + "logLevel"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"
PROGRESS_TOKEN = "progressToken"
TRACE_CONTEXT = ("traceparent", "tracestate", "baggage")
"""The only other keys without a prefix: W3C's, by their own names."""
