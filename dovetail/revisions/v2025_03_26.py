"""2025-03-26: batching, audio, tool annotations, completions as a capability, words in progress.
https://modelcontextprotocol.io/specification/2025-03-26/changelog"""

from ..protocol.capabilities import ServerCapabilities
from ..protocol.content import AudioContent
from ..protocol.lifecycle import ProgressParams
from ..protocol.sampling import CreateMessageResult, SamplingMessage
from ..protocol.tools import Tool
from . import nearest, v2024_11_05
from .revision import evolve

REVISION = evolve(
    v2024_11_05.REVISION,
    "2025-03-26",
    batching=True,
    kinds=(AudioContent, SamplingMessage),
    instead={CreateMessageResult: nearest.one_block},
    adds={
        Tool: ("annotations",),
        ServerCapabilities: ("completions",),
        ProgressParams: ("message",),
    },
)
