"""uvicorn's HTTP protocol, with bounds for what is no body, and a short way for the usual request.

A connection that does not finish its request's headers, or finds no end of them, is closed; so is
one whose client does not read what it asked for. What comes behind a body (trailers) is dropped: a
header there would be one that no gateway has seen. Whoever would rather speak HTTP/2 is answered in
what they can speak already. And where a connection is lost, all that was begun on it hears of it,
not only what came last.

The usual request comes whole, in one piece, by itself on its connection, and is answered one turn
of the loop later with one JSON body. It needs nothing that ASGI is for: no task that waits for a
body, no events for what comes next. So it is held back from uvicorn until all of it is here, begun
by the application directly (`App.begin`), and where it is done when we look again, its reply is
written in one piece. Anything else, at whatever point it turns out to be so, is handed over to
uvicorn as if it came now, with what was begun in its scope. `python -m bench.costs`: 36 µs of CPU
for a call, not 59.
"""

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..limits import Limits
from ..transports.http.server.endpoint import BEGUN, Begun
from .app import App

LONGEST_HEAD, MOST_HEADERS = 64 * 1024, 200
"""What the head of a request may have, in bytes (not counting those that come at once) and in
lines."""


WISHES = (b"upgrade", b"http2-settings")


class _Held:
    """What the parser said of a request that was held back; it may be at the next one by now."""

    get_method = staticmethod(lambda: b"POST")
    get_http_version = staticmethod(lambda: "1.1")
    should_keep_alive = staticmethod(lambda: True)
    should_upgrade = staticmethod(lambda: False)


class UvicornProtocol(HttpToolsProtocol):
    """One connection; `protocol` says of which application, and with which bounds."""

    served: App
    bounds: Limits
    slow: asyncio.TimerHandle | None = None
    """Closes a connection whose request does not arrive, or does not end."""
    unread: asyncio.TimerHandle | None = None
    """Ends a connection whose client does not read."""
    came = 0
    """Bytes of a request that had begun before they came, since there was a piece of its body."""
    heading = arriving = False
    """Whether a head, and a request, has begun to arrive and not ended."""
    wishing = False
    """Whether the request would rather have another protocol, which we do not speak."""
    cycles: tuple[Any, ...] = ()
    """What uvicorn has begun here, or has yet to begin, and not ended."""
    held: bytes | None = None
    """The body of a request that is held back, as far as it is here."""
    begun: Begun | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody is here, and has to say what they want in time."""
        super().connection_made(transport)
        self.slow = self.loop.call_later(self.bounds.body_timeout, transport.close)

    def data_received(self, data: bytes) -> None:
        """Parse a piece, then see what there is to do about it."""
        self.came += len(data) if self.arriving else 0
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._stay(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self.logger.warning("A request could not be read")
            self.send_400_response("The request could not be read.")
            return
        if self.held is not None:
            self._begin()
        if self.arriving:
            self._unfinished()

    def _unfinished(self) -> None:
        """Something came that is no request yet, or the rest of one that was refused, or no end of
        one."""
        if self.transport.is_closing():
            return
        refused = self.cycle is not None and self.cycle.response_complete
        if self.slow is None and (self.heading or refused):
            self.slow = self.loop.call_later(self.bounds.body_timeout, self.transport.close)
        if self.came <= LONGEST_HEAD:
            return
        if self.heading:
            self.send_400_response(f"The head of a request may have {LONGEST_HEAD} bytes.")
        else:
            self.transport.abort()

    def _stay(self, rest: bytes) -> None:
        """The same request, without the wish for another protocol, which a server may ignore.
        https://www.rfc-editor.org/rfc/rfc9110#section-7.8"""
        parser = self.parser
        if not any(
            name == b"upgrade" for name, _ in self.headers
        ):  # CONNECT, of which nothing is left then
            self.send_400_response("There are no tunnels here.")
            return
        lines = [b"%b: %b\r\n" % (name, _without_wish(value) if name == b"connection" else value)
                 for name, value in self.headers if name not in WISHES]  # fmt: skip
        start = b"%b %b HTTP/%b\r\n" % (
            parser.get_method(),
            self.url,
            parser.get_http_version().encode(),
        )
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join([start, *lines, b"\r\n", rest]))

    # what the parser says

    def on_message_begin(self) -> None:
        """A request begins, and with it nothing before it may be held any longer."""
        if self.held is not None or self.begun is not None:
            self._hand_over()
        self.heading = self.arriving = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; or a trailer, which is none."""
        if not self.heading:
            return
        headers, name = self.headers, name.lower()
        if len(headers) >= MOST_HEADERS:
            raise ValueError(f"more than {MOST_HEADERS} headers")  # to which the answer is 400
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is here: hold the request back, or let uvicorn begin."""
        if self.slow is not None:
            self.slow.cancel()
            self.slow = None
        self.came, self.heading = 0, False
        self.wishing = self.parser.should_upgrade() and not self._should_upgrade()
        if self.wishing:
            return
        if self._usual():
            self.held = b""
        else:
            self._let_uvicorn()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self.came = 0
        if self.held is None:
            super().on_body(body)
        else:
            self.held += body

    def on_message_complete(self) -> None:
        """All of the request is here."""
        self.arriving = False
        if self.held is None and not self.wishing:
            super().on_message_complete()

    def _let_uvicorn(self) -> None:
        super().on_headers_complete()
        self.cycles = tuple(
            one
            for one in {*self.cycles, self.cycle}
            if one is not None and not one.response_complete
        )

    # the short way

    def _usual(self) -> bool:
        """Whether a request may take the short way, as far as its head tells, and nothing else is
        going on here."""
        parser = self.parser
        return (
            self.url == self.served.fast_path
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and parser.get_method() == b"POST"
            and parser.should_keep_alive()
            and parser.get_http_version() == "1.1"
        )

    def _begin(self) -> None:
        """All that there is of it for now has come."""
        body = self.held
        begun = (
            None
            if self.arriving or not body
            else self.served.begin(self.headers, self.server, self.client, body)
        )
        if begun is None:
            self._hand_over()
            return
        self.held, self.begun = None, begun
        self.loop.call_soon(self._look, begun)

    def _look(self, begun: Begun) -> None:
        """Most calls are done now."""
        if self.begun is not begun:
            return  # it was handed over
        answer = begun.answer
        if answer is None:
            self._hand_over()
            return
        self.begun = None
        self.transport.write(answer)
        self.served.count_success()
        self.on_response_complete()

    def _hand_over(self) -> None:
        """Let uvicorn have the request that was held back."""
        body, begun, self.held, self.begun = self.held, self.begun, None, None
        if begun is not None:
            cast(dict[str, Any], self.scope)[BEGUN] = begun
        parser, self.parser = self.parser, cast(Any, _Held)
        try:
            self._let_uvicorn()
        finally:
            self.parser = parser
        if body:
            super().on_body(body)
        if not self.arriving:
            super().on_message_complete()

    # the end

    def shutdown(self) -> None:
        """The server ends; what was begun is still answered."""
        if self.begun is not None:
            self._hand_over()
        super().shutdown()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write. It has some time to read anything at
        all."""
        super().pause_writing()
        self._look_again()

    def _look_again(self, before: int | None = None) -> None:
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
        else:
            self.unread = self.loop.call_later(self.bounds.body_timeout, self._look_again, left)

    def resume_writing(self) -> None:
        """The client reads."""
        if self.unread is not None:
            self.unread.cancel()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more is asked for; nor do we wait until the last answer is read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, error: Exception | None) -> None:
        """They are gone; what was begun hears of it."""
        # uvicorn leaves its timer to run out where there was an error, and tells only what came
        # last
        for timer in (self.slow, self.unread, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        if self.begun is not None:
            self._hand_over()
        for cycle in self.cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(error)


def _without_wish(value: bytes) -> bytes:
    """A Connection header without what goes with an Upgrade."""
    return b", ".join(word for word in value.split(b",") if word.strip().lower() not in WISHES)


def make_protocol_class(app: App, limits: Limits) -> type[UvicornProtocol]:
    """The protocol for the connections of this application."""
    return type("Protocol", (UvicornProtocol,), {"served": app, "bounds": limits})
