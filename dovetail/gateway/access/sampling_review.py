"""A server's request for a completion, within the limits of a host, and as text that a person can
review and change.

A server gets at most `maxTokens` of its settings at once. It does not decide what its prompt is
combined with: `includeContext` counts as `none`, except that `thisServer` adds the text of the
host's `on_context`. The context of other servers is never added.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from ...client.callbacks import SampleRequest
from ...client.function_calling import content_text, result_text
from ...protocol.client_features import CreateMessageResult, SamplingMessage
from ...protocol.content import SamplingContent, TextContent, ToolResultContent, ToolUseContent


def limit_request(request: SampleRequest, max_tokens: int, context: str | None) -> SampleRequest:
    """Return a request within the limits of the host.

    Args:
        request: The request as the server wrote it.
        max_tokens: The most tokens that the server may request.
        context: The context to add to the system prompt, if there is any.
    """
    prompts = [text for text in (request.system_prompt, context) if text]
    return replace(
        request,
        max_tokens=min(request.max_tokens, max_tokens),
        include_context=None,
        system_prompt="\n\n".join(prompts) or None,
    )


def prompt_text(request: SampleRequest) -> str:
    """Return a prompt as text: one message as it is, several with their roles."""
    if request.system_prompt is None and len(request.messages) == 1:
        return _join(request.messages[0].blocks)
    parts = [("system", request.system_prompt or "")] if request.system_prompt else []
    parts += [(message.role, _join(message.blocks)) for message in request.messages]
    return "\n\n".join(f"{role}: {text}" for role, text in parts)


def parameters(request: SampleRequest) -> dict[str, Any]:
    """Return what else a person should know about a request."""
    hints = (request.model_preferences and request.model_preferences.hints) or ()
    shown = {
        "maxTokens": request.max_tokens,
        "models": [hint.name for hint in hints if hint.name],
        "tools": [tool.name for tool in request.tools or ()],
    }
    return {name: value for name, value in shown.items() if value}


def with_prompt(request: SampleRequest, text: str) -> SampleRequest:
    """Return a request with the prompt that a person changed: one message of the user, in place of
    the whole conversation.

    Args:
        request: The request.
        text: The new prompt.
    """
    if text == prompt_text(request):
        return request
    return replace(
        request, messages=[SamplingMessage("user", TextContent(text))], system_prompt=None
    )


def answer_text(answer: CreateMessageResult) -> str:
    """Return the answer of the model as text."""
    return _join(answer.content if isinstance(answer.content, list) else [answer.content])


def with_answer(answer: CreateMessageResult, text: str) -> CreateMessageResult:
    """Return the answer with the text that a person changed.

    Args:
        answer: The answer of the model.
        text: The new text.
    """
    if text == answer_text(answer):
        return answer
    return replace(answer, content=TextContent(text), stop_reason="endTurn")


def _join(blocks: list[SamplingContent]) -> str:
    return "\n".join(map(_show, blocks))


def _show(block: Any) -> str:
    if isinstance(block, ToolUseContent):
        return f"[calls {block.name} with {msgspec.json.encode(block.input).decode()}]"
    if isinstance(block, ToolResultContent):
        return f"[result of a tool: {result_text(block)}]"
    return content_text(block)
