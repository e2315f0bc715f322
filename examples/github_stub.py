"""A stand-in for the part of GitHub's API that examples/github.py uses, without a network.

    python examples/github_stub.py 8123

There is one repository, acme/widgets. Reading its issues needs no token; creating one needs the
token "demo". The repository acme/busy always answers that the rate limit is exceeded.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
WEB = "https://github.example/acme/widgets/issues"


class Stub(BaseHTTPRequestHandler):
    numbers = count(1)
    issues: list[Json] = []

    def do_GET(self) -> None:
        if self.find_repository():
            query = parse_qs(urlsplit(self.path).query)
            state = query.get("state", ["open"])[0]
            first = (int(query.get("page", ["1"])[0]) - 1) * 30
            found = [one for one in reversed(self.issues) if state in ("all", one["state"])]
            self.reply(200, found[first : first + 30])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.find_repository():
            return
        if self.headers["authorization"] != "Bearer demo":
            self.reply(401, {"message": "Bad credentials"})
        elif not body["title"].strip():
            problem = {"resource": "Issue", "field": "title", "code": "missing_field"}
            self.reply(422, {"message": "Validation Failed", "errors": [problem]})
        else:
            number = next(self.numbers)
            issue = {"id": 1000 + number, "number": number, "title": body["title"], "state": "open"}
            self.issues.append({**issue, "html_url": f"{WEB}/{number}"})
            self.reply(201, self.issues[-1])

    def find_repository(self) -> bool:
        """Whether the request is about the one repository. If not, refuse it."""
        path = urlsplit(self.path).path
        if path == "/repos/acme/busy/issues":
            self.reply(403, {"message": "API rate limit exceeded"}, {"Retry-After": "60"})
        elif path != "/repos/acme/widgets/issues":
            self.reply(404, {"message": "Not Found"})
        return path == "/repos/acme/widgets/issues"

    def reply(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def make_stub(port: int = 0) -> ThreadingHTTPServer:
    """Return the stub, which listens but does not answer until `serve_forever` is called."""
    handler = type("FreshStub", (Stub,), {"numbers": count(1), "issues": []})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


if __name__ == "__main__":
    with make_stub(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as stub:
        print(f"A stand-in for GitHub listens at http://127.0.0.1:{stub.server_port}", flush=True)
        try:
            stub.serve_forever()
        except KeyboardInterrupt:
            pass
