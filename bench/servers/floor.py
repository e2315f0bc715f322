"""The floor: decode, do the work, encode, no protocol at all: a bare loop on stdio, a bare ASGI
application over HTTP."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def opened(params: Any) -> Any:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "floor", "version": "0"},
    }


def listed(params: Any) -> Any:
    tools = int(sys.argv[3])
    return {
        "tools": [
            {"name": f"add_{n}", "description": "Add two numbers.", "inputSchema": SCHEMA}
            for n in range(tools)
        ]
    }


def called(params: Any) -> Any:
    given = params["arguments"]
    if params["name"] == "big":
        return {"content": [{"type": "text", "text": "x" * given["size"]}]}
    value = (
        given["a"] + given["b"]
        if params["name"] == "add"
        else given["text" if params["name"] == "echo" else "times"]
    )
    return {
        "content": [{"type": "text", "text": str(value)}],
        "structuredContent": {"result": value},
        "isError": False,
    }


RESULTS = {"initialize": opened, "tools/list": listed, "tools/call": called}


def answer(line: bytes) -> Iterator[bytes]:
    """The messages that answer one: none to a notification, several where progress is reported."""
    message = decode(line)
    if "id" not in message:
        return
    params = message.get("params", {})
    if params.get("name") == "count":
        token, times = params["_meta"]["progressToken"], params["arguments"]["times"]
        for done in range(times):
            progress = {"progressToken": token, "progress": done, "total": times}
            yield encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
    known = RESULTS.get(message["method"])
    said = (
        {"result": known(params)} if known else {"error": {"code": -32601, "message": "not known"}}
    )
    yield encode({"jsonrpc": "2.0", "id": message["id"], **said})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["method"] != "POST":
        await send({"type": "http.response.start", "status": 405, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part["body"], part.get("more_body", False)
    answers = list(answer(body))
    if len(answers) > 1:
        await stream(answers, send)
        return
    data = b"".join(answers)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(data)),
        (b"mcp-session-id", b"x"),
    ]
    await send({"type": "http.response.start", "status": 200 if data else 202, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def stream(answers: list[bytes], send: Any) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"text/event-stream")],
        }
    )
    for data in answers:
        await send(
            {"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True}
        )
    await send({"type": "http.response.body", "body": b""})


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def loop() -> None:
    chunks: list[bytes] = []
    while chunk := os.read(0, 1 << 16):
        head, found, rest = chunk.rpartition(b"\n")
        chunks.append(head if found else rest)
        if found:
            lines = b"".join(chunks).split(b"\n")
            chunks = [rest]
            write(b"".join(data + b"\n" for line in lines for data in answer(line)))


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        loop()
    else:
        import uvicorn

        uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False, lifespan="off")
