"""What the programs of the frameworks share: they import `mcp` and get `dovetail.compat`.

    program.py TRANSPORT TARGET ...     "stdio" and a command, or "http" or "sse" and a URL

A program loads the tools of the server with the framework's own function, calls `add`, and prints
what it saw as one line of JSON. No model is involved.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
sys.path.insert(0, str(Path(__file__).parents[3]))
import_module("dovetail.compat.imports").install()

TRANSPORT, TARGET = sys.argv[1], sys.argv[2:]
ARGUMENTS = {"a": 2, "b": 3}


def transport() -> AbstractAsyncContextManager[Any]:
    """The transport of the SDK that reaches the server."""
    client = import_module("dovetail.compat.client")
    if TRANSPORT == "stdio":
        parameters = client.StdioServerParameters(command=TARGET[0], args=TARGET[1:])
        return client.stdio_client(parameters)  # type: ignore[no-any-return]
    connect = client.sse_client if TRANSPORT == "sse" else client.streamablehttp_client
    return connect(TARGET[0])  # type: ignore[no-any-return]


def run(program: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    """Print what a program saw, and whether the real SDK was imported."""
    seen = asyncio.run(program())  # type: ignore[arg-type]
    roots = {name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types")}
    seen["real"] = sorted(name for name in roots if getattr(sys.modules[name], "__file__", None))
    print(json.dumps(seen))
