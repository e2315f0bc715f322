"""Operations that answer the server's questions."""

from ..questions import Action, Answer
from ..state import InspectorState
from .registry import operation


@operation
async def answer(
    state: InspectorState,
    *,
    question: str,
    action: Action,
    content: str | None = None,
    always: bool = False,
) -> None:
    """Answer a question."""
    state.questions.answer(question, Answer(action, content), always)


@operation
async def forget_answer(state: InspectorState, *, key: str) -> None:
    """Stop answering questions with this key by themselves."""
    state.questions.forget(key)
