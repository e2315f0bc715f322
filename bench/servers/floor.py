"""The floor: decode, add, encode, and no protocol at all."""

import os
import sys

import msgspec

decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode


def answer(line: bytes) -> bytes:
    message = decode(line)
    if "id" not in message:
        return b""
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "floor", "version": "0"}}
    else:
        total = message["params"]["arguments"]["a"] + message["params"]["arguments"]["b"]
        result = {"content": [{"type": "text", "text": str(total)}], "structuredContent": {"result": total}}
    return encode({"jsonrpc": "2.0", "id": message["id"], "result": result}) + b"\n"


if __name__ == "__main__":
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        os.write(sys.stdout.fileno(), b"".join(answer(line) for line in lines if line))
