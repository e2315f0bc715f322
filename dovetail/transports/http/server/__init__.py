"""The server side of HTTP: one endpoint that supports every era, as a plain ASGI callable."""
