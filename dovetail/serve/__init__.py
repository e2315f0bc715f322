"""Composition: a server and a transport. What `Server.run`, `Server.serve` and `Server.asgi` call.

`conversation.py` holds one conversation over a channel; `stdio.py` and `http.py` bring the
transports, `workers.py` several processes of one server. `app.py` is the ASGI application,
`here.py` what it is in one event loop, `beside.py` what it has beside its endpoint.
"""

from .conversation import serve

__all__ = ["serve"]
