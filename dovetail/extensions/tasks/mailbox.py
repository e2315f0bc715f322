"""Messages to tasks in other processes: answers, refusals and cancellations."""

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import InvalidParams, Overloaded, ToolError
from ...logs import get_logger
from .running_task import TaskLeft, background, fitting_answers
from .signals import ANY, MESSAGE, TaskWaiter
from .store import TaskMessage, TaskRecord, TaskStoreBroken
from .wire import MAX_MESSAGE_LENGTH, describe

if TYPE_CHECKING:
    from .manager import TaskManager

log = get_logger("tasks")


class Mailbox:
    """The exchange of messages with tasks in other processes.

    A message waits in the store until the process that runs the task has read it, even after a
    crash. A process that runs tasks reads its messages when it receives a signal, and periodically.
    An answer is checked as far as possible before it is sent, because its sender receives no reply.
    If the task still refuses the answer, the question is treated as refused by the client, because
    nobody will answer it again.
    """

    def __init__(self, manager: "TaskManager") -> None:
        self._manager = manager
        self._readers: dict[asyncio.AbstractEventLoop, TaskWaiter | None] = {}
        """What wakes the reader of each event loop; None if it has not begun yet."""

    async def send(self, record: TaskRecord, message: TaskMessage) -> None:
        """Send a message, without the parts about questions that were not asked; raise
        InvalidParams if an answer does not fit its question."""
        limit = self._manager.limits.journal
        answers = fitting_answers(record, message.answers, self._manager.service.make_form)
        if (size := sum(map(len, answers.values()))) > limit:
            raise InvalidParams(
                f"The answers use {size} bytes; the limit is {limit}", parameter="inputResponses"
            )
        refused = {
            key: reason[:MAX_MESSAGE_LENGTH]
            for key, reason in message.refused.items()
            if key in record.questions
        }
        if answers or refused or message.cancel:
            message = replace(message, answers=answers, refused=refused)
            await self._manager.store.send_message(message)
            self._manager.signals.send(MESSAGE, record.id)

    def start(self, loop: asyncio.AbstractEventLoop, *, is_new: bool) -> None:
        """Read messages as long as a task runs in this loop.

        Args:
            loop: The event loop.
            is_new: Whether the task has just been created, so that there are no messages to it yet.
                Otherwise, messages are read now. A read lists all tasks that run here, so with 1000
                of them it took a quarter of the time in which a new task begins.
        """
        if loop not in self._readers:
            if self._manager.store.shared:
                self._readers[loop] = None
                background.start(self._read(loop))
        elif not is_new and (reader := self._readers[loop]) is not None:
            reader.wake()

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        manager = self._manager
        with manager.signals.waiting(MESSAGE, ANY) as signal:
            self._readers[loop] = signal
            try:
                while ids := [task.record.id for task in manager.running_in(loop)]:
                    try:
                        for number, message in await manager.store.receive_messages(ids):
                            await self._deliver(number, message)
                    except (Overloaded, TaskStoreBroken):
                        pass  # the messages are still there next time
                    except Exception as error:
                        log.warning("Messages to tasks cannot be read: %s", error)
                    await signal.wait()
            finally:
                del self._readers[loop]

    async def _deliver(self, number: int, message: TaskMessage) -> None:
        task = self._manager.running.get(message.id)
        if task is None:
            return  # it has just finished
        try:
            await task.receive(message)
        except TaskLeft:
            return  # the next run of the task reads it
        except Overloaded:
            raise
        except Exception as error:  # the next message may be valid
            log.warning("A message to task %s was refused: %s", describe(task.record), error)
            for key in message.answers:
                task.refuse(key, ToolError(f"The answer to this question was refused: {error}"))
        await self._manager.store.delete_message(message.id, number)
