"""Composition: a server and a transport. What `Server.run`, `Server.serve` and `Server.asgi` call.

`conversation.py` holds one conversation over a channel; `stdio.py` and `http.py` bring the transports, `workers.py` several
processes of one server.
"""

from .conversation import serve

__all__ = ["serve"]
