"""The server side of HTTP: one endpoint for every era, as a plain ASGI callable."""
