"""Messages that are too long for the bus: both sides learn what happened, and what the limit is."""

import asyncio
import re

import msgspec
import pytest
from msgspec import Struct

from dovetail import Context
from dovetail.backend.redis.bus import MAX_MESSAGE_BYTES
from dovetail.errors import TooLarge
from tests.system import needs_redis
from tests.transports.http.raw import request, text

from .conftest import MakeBackend
from .replicas import Replica, replicas

pytestmark = needs_redis
LONG = "x" * MAX_MESSAGE_BYTES
REFUSAL = re.compile(
    r"The message to another process of this server is \d{7} bytes long; the limit is 8388608\. "
    "Send less, for example a link to the data"
)


class Essay(Struct):
    text: str


def add_question(replica: Replica) -> None:
    @replica.stage.server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("What do you think?", Essay)
        return str(len(answer.data.text)) if answer else "nothing"


async def test_an_answer_that_is_too_long_for_the_bus_is_refused_and_the_handler_learns_it(
    make_backend: MakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(50), replicas(make_backend) as both:
        for one in both:
            add_question(one)
        here, there = both
        session = await here.open(capabilities={"elicitation": {}})
        stream = await session.call("ask")
        question = await stream.next_message()
        content = {"action": "accept", "content": {"text": LONG}}
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": content}
        refused = await there.at(session).post(answer)
        assert refused.status == 413
        error = await refused.error()
        assert error["code"] == TooLarge.code and REFUSAL.fullmatch(error["message"])
        assert error["data"]["limit"] == MAX_MESSAGE_BYTES < error["data"]["size"]
        outcome = text(await stream.next_message())
        assert outcome == f"The client rejected elicitation/create: {error['message']}"
        assert "Cannot send 'session/response' over the bus" in caplog.text
        # In the process that asked, there is no such limit.
        stream = await session.call("ask")
        answer["id"] = (await stream.next_message())["id"]
        assert (await session.post(answer)).status == 202
        assert text(await stream.next_message()) == str(len(LONG))
        # Nobody waits for this one.
        assert (await there.at(session).post(answer)).status == 400


async def test_a_long_message_to_an_sse_session_of_another_replica_is_refused(
    make_backend: MakeBackend,
) -> None:
    async with asyncio.timeout(50), replicas(make_backend) as (here, there):
        stream = await here.site.send("GET", {"Accept": "text/event-stream"}, path="/sse")
        endpoint = (await stream.next()).data
        message = msgspec.json.encode(request("tools/call", {"name": LONG}))
        headers = {"Content-Type": "application/json"}
        refused = await there.site.send("POST", headers, message, endpoint)
        assert refused.status == 413 and REFUSAL.fullmatch((await refused.body()).decode())
        assert (await here.site.send("POST", headers, message, endpoint)).status == 202
        stream.cut()
