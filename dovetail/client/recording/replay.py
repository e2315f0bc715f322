"""Send to a server what a client has sent in a recording, and compare what the server says.

The recording is followed from its first line to its last. A message of the client is sent. At a
reply of the server, the replay waits for the reply of the new run. So a request is sent only after
the replies that the client had seen when it sent the request. A question of the server is answered
with the answer of the recording as soon as that answer is due.

Values that the server issues, such as cursors and the ids of tasks, differ in each run. The
messages to the server carry those of the new run, and the messages of the server are compared
without what differs between any two runs (`normalise.py`). How often a server reports progress
depends on the time, so only its last report on each request is compared (`progress.py`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import UNSET, Struct

from ...errors import ConnectionClosed, TimedOut
from ...mcplog import Recording
from ...ports import Channel, Incoming, LostReply
from .differences import json_differences
from .normalise import Normaliser, Substitutes
from .progress import METHOD as PROGRESS, ProgressLog
from .script import Step, describe, is_reply, is_request, read_messages, read_steps

TIMEOUT_SECONDS: Final = 60.0
NOTIFICATION_SECONDS: Final = 2.0
"""How long to wait for a notification. If one is missing, later ones of its method are not waited
for."""
NO_ANSWER: Final = {"code": -32601, "message": "The recording has no answer to this question"}

Open = Callable[[], Awaitable[Channel]]
Mask = Callable[[bytes], bytes]


class Difference(Struct, frozen=True):
    """What differs between the recording and the new run."""

    line: int | None
    """The line of the recording, or None if only the new run has the message."""
    message: str
    """What the message is about: `tools/call forecast`."""
    path: str
    """Where in the message: `result.content[0].text`. Empty if the whole message differs."""
    recorded: Any = UNSET
    """The value in the recording, or UNSET if there is none."""
    replayed: Any = UNSET
    """The value in the new run, or UNSET if there is none."""


class ReplayReport(Struct):
    """How a replay went."""

    differences: list[Difference] = []
    compared: int = 0
    """The number of messages of the server that were compared."""
    problem: str | None = None
    """Why the replay ended early, or None."""


async def replay(
    recording: Recording,
    open_channel: Open,
    *,
    strict: bool = False,
    timeout: float = TIMEOUT_SECONDS,
    mask: Mask = bytes,
) -> ReplayReport:
    """Send a recording to a server, and return what differs.

    Args:
        recording: The recording.
        open_channel: Opens a connection to the server.
        strict: Whether to compare everything, including ids, times, tokens and all progress.
        timeout: How long to wait for a reply, in seconds.
        mask: Removes credentials from a message, as it was done in the recording.

    Raises:
        DovetailError: The server cannot be started or reached.
    """
    run = _Run(read_steps(recording), open_channel, strict, timeout, mask)
    try:
        await run.follow()
    except (TimedOut, ConnectionClosed) as problem:
        run.report.problem = str(problem)
    finally:
        await run.close()
    return run.report


class _RecordedQuestion(Struct):
    """A question of the server in the recording."""

    line: int
    message: dict[str, Any]
    new_id: Any = UNSET
    """The id of the same question in the new run, once it was asked."""


class _Run:
    """The state of a replay."""

    def __init__(
        self, steps: list[Step], open_channel: Open, strict: bool, timeout: float, mask: Mask
    ) -> None:
        self.report = ReplayReport()
        self._steps, self._open, self._strict = steps, open_channel, strict
        self._timeout, self._mask = timeout, mask
        self._old, self._new, self._substitutes = Normaliser(), Normaliser(), Substitutes()
        self._channel: Channel | None = None
        self._changed = asyncio.Event()
        self._ended: Exception | None = None
        self._sent: dict[Any, dict[str, Any]] = {}
        """The requests of the client by id."""
        self._answered = {
            message["id"]
            for step in steps
            if not step.is_from_client
            for message in step.messages
            if is_reply(message)
        }
        """The ids of the requests that have a reply in the recording."""
        self._cancelled: set[Any] = set()
        """The ids of the requests that the client has cancelled. Whether the server still says
        something about them depends on the time, so that is not compared."""
        self._replies: dict[Any, dict[str, Any]] = {}
        self._notifications: dict[Any, list[dict[str, Any]]] = {}
        self._progress = ProgressLog()
        self._missing: set[str] = set()
        """The methods of notifications that did not arrive."""
        self._is_open = False
        self._questions = [
            _RecordedQuestion(step.line, message)
            for step in steps
            if not step.is_from_client
            for message in step.messages
            if is_request(message)
        ]

    async def follow(self) -> None:
        for step in self._steps:
            if step.is_from_client:
                await self._send(step)
            else:
                for message in step.messages:
                    await self._expect(step.line, message)
        self._compare_progress()
        self._report_leftovers()

    async def close(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    # what the client says

    async def _send(self, step: Step) -> None:
        is_opening = any(message.get("method") == "initialize" for message in step.messages)
        if self._channel is None or (is_opening and (self._is_open or self._ended)):
            await self._connect()
        changed = [await self._prepare(step.line, message) for message in step.messages]
        if None in changed:
            return  # the question that it answers was not asked
        data = step.data
        if changed != step.messages:
            whole = changed if data.lstrip()[:1] == b"[" else changed[0]
            data = json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
        if self._ended is not None:
            raise ConnectionClosed(f"line {step.line}: {self._ended}")
        assert self._channel is not None
        self._channel.send(data)
        await self._channel.drain()

    async def _connect(self) -> None:
        await self.close()
        self._ended, self._is_open = None, False
        self._channel = channel = await self._open()

        def on_end(reason: Exception | None) -> None:
            if self._channel is channel:
                self._ended = reason or ConnectionClosed("the server has closed the connection")
                self._changed.set()

        channel.start(self._receive, on_end)

    async def _prepare(self, line: int, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return a message of the client as it is sent in the new run."""
        if is_reply(message):
            question = await self._wait_question(line, message["id"])
            return None if question is None else {**message, "id": question.new_id}
        if is_request(message):
            self._sent[message["id"]] = message
            self._replies.pop(message["id"], None)
            self._cancelled.discard(message["id"])
            if not self._strict:
                self._progress.add_request(message)
        self._cancelled |= _cancelled_ids(message)
        if "params" not in message:
            return message
        self._old.normalise(message["params"])
        changed = self._substitutes.apply(message["params"])
        self._new.normalise(changed)
        return {**message, "params": changed}

    async def _wait_question(self, line: int, id: Any) -> _RecordedQuestion | None:
        """Wait until the server asks a question again. It will not do so once it has replied to all
        requests."""
        found = [each for each in self._questions if each.line < line and each.message["id"] == id]
        if not found:
            return None
        question = found[-1]

        def is_decided() -> bool:
            waiting = (self._sent.keys() & self._answered) - self._replies.keys()
            return question.new_id is not UNSET or not waiting

        await self._until(is_decided, f"line {question.line}: the server did not ask")
        return None if question.new_id is UNSET else question

    # what the server says

    async def _expect(self, line: int, message: dict[str, Any]) -> None:
        """Wait for what the server said in the recording, and compare it."""
        if is_request(message) or self._is_cancelled(message):
            return  # a request is compared when it arrives
        if is_reply(message):
            request = self._sent.get(message["id"])
            if request is None:
                return  # the recording began later
            about = describe(request)
            await self._until(
                lambda: message["id"] in self._replies,
                f"line {line}: the server did not answer {about}",
            )
            self._compare(line, about, message, self._replies[message["id"]])
            self._is_open |= request["method"] == "initialize" and "result" in message
            return
        if (progress := self._progress.find(message)) is not None:
            progress.line, progress.recorded = line, message
            return
        received = await self._wait_notification(message)
        if received is None:
            self._differ(line, describe(message), "", recorded=message)
        else:
            self._compare(line, describe(message), message, received)

    async def _wait_notification(self, message: dict[str, Any]) -> dict[str, Any] | None:
        method, key = str(message.get("method")), _key(message)
        if method not in self._missing:
            try:
                await self._until(
                    lambda: bool(self._notifications.get(key)), "", NOTIFICATION_SECONDS
                )
            except (TimedOut, ConnectionClosed):
                self._missing.add(method)
        waiting = self._notifications.get(key)
        return waiting.pop(0) if waiting else None

    def _receive(self, item: Incoming) -> None:
        if isinstance(item, LostReply):
            problem = {"code": None, "message": f"No reply: {item.error}"}
            self._replies[item.id] = {"id": item.id, "error": problem}
        elif isinstance(item, bytes):
            for message in read_messages(self._mask(item)):
                if is_request(message):
                    self._on_question(message)
                elif is_reply(message):
                    self._replies[message["id"]] = message
                elif (progress := self._progress.find(message)) is not None:
                    progress.replayed = message
                elif not self._is_cancelled(message):
                    self._notifications.setdefault(_key(message), []).append(message)
        self._changed.set()

    def _is_cancelled(self, message: dict[str, Any]) -> bool:
        """Return whether a message only ends a request that the client has cancelled."""
        ends = {message["id"]} if is_reply(message) else _cancelled_ids(message)
        return bool(ends & self._cancelled)

    def _on_question(self, message: dict[str, Any]) -> None:
        """Find the question in the recording: the same one, or else the next of its method."""
        similar = [
            question
            for question in self._questions
            if question.new_id is UNSET and question.message["method"] == message["method"]
        ]
        same = [each for each in similar if self._equal(each.message, message)]
        if found := (same or similar)[:1]:
            found[0].new_id = message["id"]
            self._compare(found[0].line, describe(message), found[0].message, message)
            return
        assert self._channel is not None
        reply = {"result": {}} if message["method"] == "ping" else {"error": NO_ANSWER}
        self._channel.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}).encode())
        if message["method"] != "ping":
            self._differ(None, describe(message), "", replayed=message)

    # comparing

    def _equal(self, recorded: dict[str, Any], replayed: dict[str, Any]) -> bool:
        sides = [Normaliser().normalise(side.get("params")) for side in (recorded, replayed)]
        return not [*json_differences(*sides)]

    def _compare(
        self, line: int, about: str, recorded: dict[str, Any], replayed: dict[str, Any]
    ) -> None:
        self.report.compared += 1
        self._substitutes.learn(recorded, replayed)
        if not self._strict:
            recorded = self._old.normalise({**recorded, "id": None})
            replayed = self._new.normalise({**replayed, "id": None})
        for found in json_differences(recorded, replayed):
            self._differ(line, about, found.path, found.recorded, found.replayed)

    def _differ(
        self,
        line: int | None,
        about: str,
        path: str,
        recorded: Any = UNSET,
        replayed: Any = UNSET,
    ) -> None:
        self.report.differences.append(Difference(line, about, path, recorded, replayed))

    def _compare_progress(self) -> None:
        """Compare the last progress of each request that was answered."""
        for one in self._progress.all:
            if one.request_id in self._cancelled or one.request_id not in self._answered:
                continue  # what was the last depends on the time
            if one.recorded is not None and one.replayed is not None:
                self._compare(one.line, PROGRESS, one.recorded, one.replayed)
            elif one.recorded is not None:
                self._differ(one.line, PROGRESS, "", recorded=one.recorded)
            elif one.replayed is not None:
                self._differ(None, PROGRESS, "", replayed=one.replayed)

    def _report_leftovers(self) -> None:
        """Report questions that were not asked, and notifications that were not expected."""
        for question in self._questions:
            if question.new_id is UNSET and question.message["method"] != "ping":
                about = describe(question.message)
                self._differ(question.line, about, "", recorded=question.message)
        for waiting in self._notifications.values():
            for message in waiting:
                self._differ(None, describe(message), "", replayed=message)

    async def _until(
        self, is_true: Callable[[], bool], problem: str, timeout: float | None = None
    ) -> None:
        seconds = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                while not is_true():
                    if self._ended is not None:
                        raise ConnectionClosed(f"{problem}: {self._ended}")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimedOut(f"{problem} within {seconds:g} seconds") from None


def _cancelled_ids(message: dict[str, Any]) -> set[Any]:
    """Return the id of the request that a message cancels, if it cancels one."""
    params = message.get("params")
    if message.get("method") != "notifications/cancelled" or not isinstance(params, dict):
        return set()
    id = params.get("requestId")
    return {id} if isinstance(id, str | int) else set()


def _key(message: dict[str, Any]) -> Any:
    """Return what tells apart the notifications that may arrive in any order."""
    params = message.get("params")
    token = params.get("progressToken") if isinstance(params, dict) else None
    return message.get("method"), token if isinstance(token, str | int) else None
