"""GitHub issues: tools with output schemas, for an API that may refuse what it is asked.

    python examples/github_stub.py 8123      # in another terminal: a stand-in for GitHub
    dovetail call examples/github.py create_issue repo=acme/widgets title="It squeaks" \\
        --env GITHUB_API=http://127.0.0.1:8123 --env GITHUB_TOKEN=demo

Without GITHUB_API, the server uses GitHub itself. Every failure becomes a sentence that a model can
act on. The token is sent to the API only, and never to another host or to the model.
"""

import os
from http.client import HTTPException, HTTPMessage
from typing import IO, Annotated, Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
from msgspec import Meta, Struct

from dovetail import Server, ToolError, redact_secrets

API = os.environ.get("GITHUB_API", "https://api.github.com").rstrip("/")
TOKEN = os.environ.get("GITHUB_TOKEN", "")
Repository = Annotated[
    str,
    # A part of the path of a URL, so neither `..` nor other separators are possible.
    Meta(pattern=r"^[A-Za-z0-9-]+/\.?[\w-][\w.-]*$", description="The repository, as owner/name."),
]

server = Server("github", version="1.0.0", redact=redact_secrets)


class Issue(Struct):
    id: int
    number: int
    title: str
    state: str
    url: str


class Found(Struct):
    """An issue in the format of the API."""

    id: int
    number: int
    title: str
    state: str
    html_url: str
    pull_request: Any = None

    def to_issue(self) -> Issue:
        return Issue(self.id, self.number, self.title, self.state, self.html_url)


class NoRedirects(HTTPRedirectHandler):
    """Refuse redirects, which would send the token to another host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


OPENER = build_opener(NoRedirects)
REFUSALS = {
    301: "{repo} has moved. Ask the user for its new name.",
    401: "GitHub does not accept the token. Ask the user to set GITHUB_TOKEN.",
    403: "The token does not allow this in {repo}. Ask the user for another token.",
    404: "There is no repository {repo}, or the token cannot see it.",
    410: "{repo} has no issues: they are disabled.",
}


def send(method: str, repo: str, query: dict[str, Any], body: object = None) -> bytes:
    """Send a request about the issues of a repository, and return the body of the reply."""
    headers = {"Accept": "application/vnd.github+json", "User-Agent": "dovetail-example"}
    if TOKEN:
        headers["Authorization"] = f"Bearer {TOKEN}"
    data = None if body is None else msgspec.json.encode(body)
    url = f"{API}/repos/{repo}/issues?{urlencode(query)}"
    try:
        with OPENER.open(Request(url, data, headers, method=method), timeout=20) as reply:
            return bytes(reply.read())
    except HTTPError as error:
        with error:
            raise ToolError(explain(error, repo)) from None
    except (OSError, HTTPException) as error:
        raise ToolError(f"GitHub cannot be reached ({error}). Try again later.") from None


def explain(error: HTTPError, repo: str) -> str:
    """Say what a refusal means, and what to do."""
    if error.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in error.headers:
        seconds = error.headers.get("retry-after", "3600")
        return f"The rate limit of GitHub is exceeded. Try again in {seconds} seconds."
    if error.code == 422:
        return f"GitHub refused the values: {error.read(1000).decode(errors='replace')}"
    unknown = f"GitHub answered with status {error.code}. Try again later."
    return REFUSALS.get(error.code, unknown).format(repo=repo)


def read_reply(reply: bytes, type: Any) -> Any:
    try:
        return msgspec.json.decode(reply, type=type)
    except msgspec.MsgspecError:
        raise ToolError("GitHub sent a reply that this server does not understand.") from None


@server.tool(title="List GitHub Issues", annotations={"readOnlyHint": True, "openWorldHint": True})
def list_issues(
    repo: Repository,
    state: Literal["open", "closed", "all"] = "open",
    page: Annotated[int, Meta(ge=1)] = 1,
) -> list[Issue]:
    """List the issues of a GitHub repository, newest first, at most 30 per page.

    Args:
        state: Whether to list open issues, closed issues, or both.
        page: The number of the page.
    """
    reply = send("GET", repo, {"state": state, "page": page, "per_page": 30})
    found: list[Found] = read_reply(reply, list[Found])
    return [one.to_issue() for one in found if one.pull_request is None]


@server.tool(
    title="Create GitHub Issue", annotations={"destructiveHint": False, "openWorldHint": True}
)
def create_issue(
    repo: Repository, title: Annotated[str, Meta(min_length=1, max_length=256)], body: str = ""
) -> Issue:
    """Create a new issue in a GitHub repository.

    Args:
        title: The title of the issue.
        body: The text of the issue, in Markdown.
    """
    reply = send("POST", repo, {}, {"title": title, "body": body})
    found: Found = read_reply(reply, Found)
    return found.to_issue()


if __name__ == "__main__":
    server.run()
