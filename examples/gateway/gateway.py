"""A gateway for a team: three servers at one address, for callers that have a key.

    python examples/gateway/gateway.py ada bo > keys.json      # makes a key for each of them
    dovetail run examples/gateway/gateway.py:make_gateway --http

In another terminal, with a key from keys.json:

    dovetail inspect http://127.0.0.1:8000/mcp --header "Authorization: Bearer KEY"

Run the commands at the top of a checkout. mcp.json lists the servers, and policy.toml says who may
use them. Bo does not see the tool that books trains, and Ada is asked before it is called. Keys and
questions are checked at the gateway; the servers know nothing about them.
"""

import json
import os
import secrets
import sys
from pathlib import Path

from dovetail import Gateway, audit
from dovetail.auth import ApiKeys

HERE = Path(__file__).parent
KEYS = Path(os.environ.get("GATEWAY_KEYS", "keys.json"))


def make_gateway() -> Gateway:
    """Return the gateway. Its log records who called what, without arguments and results."""
    if not KEYS.is_file():
        raise SystemExit(f"There is no {KEYS}. Run: python {HERE / 'gateway.py'} ada bo > {KEYS}")
    return Gateway(
        HERE / "mcp.json",
        policy=HERE / "policy.toml",
        auth=ApiKeys(json.loads(KEYS.read_text(encoding="utf-8"))),
        middleware=[audit()],
    )


if __name__ == "__main__":
    print(json.dumps({secrets.token_urlsafe(32): {"id": name} for name in sys.argv[1:]}, indent=2))
