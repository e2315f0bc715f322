"""Somebody who goes through a login in a browser without eyes: opens pages, fills in their forms,
follows redirects.

    ended = Person(username="ada", password="…").visit(url, "http://127.0.0.1:3777/callback")

It does what the pages say: fields keep their values, hidden ones too, and the last button that is
not a refusal is pressed. The visit ends at the address that begins with the second argument, which
is opened if `arrive`.
"""

import re
import urllib.error
import urllib.request
from html.parser import HTMLParser
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode, urljoin

STEPS = 20
REFUSALS = re.compile(r"deny|cancel|abort|refuse", re.IGNORECASE)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


class Form(HTMLParser):
    """The first form of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._over = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form" and self.action is None:
            self.action = given.get("action", "")
        elif self.action is not None and not self._over and given.get("name"):
            button = tag == "button" or given.get("type") == "submit"
            if button and REFUSALS.search(given.get("value", "")):
                return
            if tag in ("input", "button") and (
                given.get("type") != "checkbox" or "checked" in given
            ):
                self.fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._over |= tag == "form" and self.action is not None


class Person:
    """Knows what to fill in, and keeps cookies."""

    def __init__(self, **answers: str) -> None:
        self._answers = answers
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay, cookies)
        self.pages: list[str] = []
        """The pages that were seen."""

    def _open(self, url: str, fields: dict[str, str] | None) -> tuple[str, str | None]:
        """A page, and where it redirects to."""
        data = None if fields is None else urlencode(fields).encode()
        try:
            reply: HTTPResponse | urllib.error.HTTPError = self._opener.open(url, data, timeout=10)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            page, target = reply.read().decode(), reply.headers.get("Location")
            assert reply.status < 400, f"{url} {reply.status}: {page}"
        return page, None if target is None else urljoin(url, target)

    def visit(self, url: str, end: str, *, arrive: bool = True) -> str:
        """Go through the pages; the address that the visit ended at."""
        fields: dict[str, str] | None = None
        for _ in range(STEPS):
            if url.startswith(end):
                if arrive:
                    self._open(url, None)
                return url
            page, target = self._open(url, fields)
            if target is not None:
                url, fields = target, None
                continue
            self.pages.append(page)
            form = Form(page)
            assert form.action is not None, f"{url} has no form: {page}"
            url = urljoin(url, form.action)
            fields = form.fields | {
                name: value for name, value in self._answers.items() if name in form.fields
            }
        raise AssertionError(f"No end after {STEPS} pages, at {url}")
