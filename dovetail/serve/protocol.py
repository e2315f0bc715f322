"""uvicorn's HTTP protocol, with bounds for the head of a request, and a short way for the usual one.

A connection that does not finish its request's headers, or finds no end of them, is closed.

The usual request comes whole, in one piece, by itself on its connection, and is answered one turn of the loop later with
one JSON body. It needs nothing that ASGI is for: no task that waits for a body, no events for what comes next. So it is
held back from uvicorn until all of it is here, begun by the application directly (`App.begin`), and where it is done when
we look again, its reply is written in one piece. Anything else, at whatever point it turns out to be so, is handed over to
uvicorn as if it came now, with what was begun in its scope. `python -m bench.costs`: 36 µs of CPU for a call, not 59.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..limits import Limits
from ..transports.http.server import BEGUN, Begun
from .app import App

LONGEST_HEAD, MOST_HEADERS = 64 * 1024, 200
"""What the head of a request may have, in bytes (not counting those that come at once) and in lines."""


class _Held:
    """What the parser said of a request that was held back; it may be at the next one by now."""

    get_method = staticmethod(lambda: b"POST")
    get_http_version = staticmethod(lambda: "1.1")
    should_keep_alive = staticmethod(lambda: True)
    should_upgrade = staticmethod(lambda: False)


class Protocol(HttpToolsProtocol):
    """One connection; `protocol` says of which application, and with which bounds."""

    served: App
    bounds: Limits
    slow: asyncio.TimerHandle | None = None
    """Closes a connection whose request does not arrive, or does not end."""
    came = 0
    """Bytes of a head that had begun before they came."""
    heading = arriving = False
    """Whether a head, and a request, has begun to arrive and not ended."""
    held: bytes | None = None
    """The body of a request that is held back, as far as it is here."""
    begun: Begun | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody is here, and has to say what they want in time."""
        super().connection_made(transport)
        self.slow = self.loop.call_later(self.bounds.body_timeout, transport.close)

    def data_received(self, data: bytes) -> None:
        """Parse a piece, then see what there is to do about it."""
        self.came += len(data) if self.heading else 0
        super().data_received(data)
        if self.held is not None:
            self._begin()
        if self.heading or (self.arriving and self.cycle is not None and self.cycle.response_complete):
            self._unfinished()

    def _unfinished(self) -> None:
        """Something came that is no request yet, or the rest of one that was refused."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self.slow is None:
            self.slow = self.loop.call_later(self.bounds.body_timeout, self.transport.close)
        if self.came > LONGEST_HEAD:
            self.send_400_response(f"The head of a request may have {LONGEST_HEAD} bytes.")

    # what the parser says

    def on_message_begin(self) -> None:
        """A request begins, and with it nothing before it may be held any longer."""
        if self.held is not None or self.begun is not None:
            self._hand_over()
        self.heading = self.arriving = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is here: hold the request back, or let uvicorn begin."""
        if len(self.headers) > MOST_HEADERS:
            raise ValueError(f"{len(self.headers)} headers")  # to which uvicorn says 400
        if self.slow is not None:
            self.slow.cancel()
            self.slow = None
        self.came, self.heading = 0, False
        if self._usual():
            self.held = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self.held is None:
            super().on_body(body)
        else:
            self.held += body

    def on_message_complete(self) -> None:
        """All of the request is here."""
        self.arriving = False
        if self.held is None:
            super().on_message_complete()

    # the short way

    def _usual(self) -> bool:
        """Whether a request may take the short way, as far as its head tells, and nothing else is going on here."""
        parser = self.parser
        return (
            self.url == self.served.usual
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and parser.get_method() == b"POST"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and parser.get_http_version() == "1.1"
        )

    def _begin(self) -> None:
        """All that there is of it for now has come."""
        body = self.held
        begun = None if self.arriving or not body else self.served.begin(self.headers, self.server, self.client, body)
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
        self.served.answered()
        self.on_response_complete()

    def _hand_over(self) -> None:
        """Let uvicorn have the request that was held back."""
        body, begun, self.held, self.begun = self.held, self.begun, None, None
        if begun is not None:
            cast(dict[str, Any], self.scope)[BEGUN] = begun
        parser, self.parser = self.parser, cast(Any, _Held)
        try:
            super().on_headers_complete()
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

    def connection_lost(self, error: Exception | None) -> None:
        """They are gone; what was begun hears of it."""
        for timer in (self.slow, self.timeout_keep_alive_task):  # uvicorn leaves its own to run out where there was an error
            if timer is not None:
                timer.cancel()
        if self.begun is not None:
            self._hand_over()
        super().connection_lost(error)


def protocol(app: App, limits: Limits) -> type[Protocol]:
    """The protocol for the connections of this application."""
    return type("Protocol", (Protocol,), {"served": app, "bounds": limits})
