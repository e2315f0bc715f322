"""2025-03-26: batching, audio, tool annotations, the completions capability, and messages in
progress notifications.

https://modelcontextprotocol.io/specification/2025-03-26/changelog
"""

from ..protocol.client_features import CreateMessageResult, SamplingMessage
from ..protocol.content import AudioContent
from ..protocol.lifecycle import ProgressParams, ServerCapabilities
from ..protocol.tools import Tool
from . import content_fallback, v2024_11_05
from .revision import evolve

REVISION = evolve(
    v2024_11_05.REVISION,
    "2025-03-26",
    batching=True,
    kinds=(AudioContent, SamplingMessage),
    instead={CreateMessageResult: content_fallback.one_block},
    adds={
        Tool: ("annotations",),
        ServerCapabilities: ("completions",),
        ProgressParams: ("message",),
    },
)
