"""The authorization server that the official conformance suite tests: one that is embedded in a
server.

    python tests/conformance/authorization.py --port 8000

Nothing here but the public API.
"""

import argparse

from dovetail import Server
from dovetail.auth import KnownClient, Provider, hash_password

USER, PASSWORD = "ada", "correct horse battery staple"
CLIENT = "conformance"
CALLBACK_PORT = 3777

server = Server(
    "guarded",
    auth=Provider(
        users={USER: hash_password(PASSWORD)},
        clients=[
            KnownClient(id=CLIENT, redirect_uris=(f"http://127.0.0.1:{CALLBACK_PORT}/callback",))
        ],
        scopes={"mcp:use": "Use its tools"},
        storage=":memory:",
    ),
)

if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    server.run("http", port=options.parse_args().port)
