"""The server side of HTTP: the endpoint for every era, as a plain ASGI callable."""
