"""Join a server to a transport: what `Server.run`, `Server.serve` and `Server.asgi` call.

channel     one client over any channel: WebSocket, HTTP+SSE, memory, your own; and over stdin and
            stdout, with signals and a parent that may die
app         the ASGI application, its lifespan and its state in one event loop; a single request
            of a serverless function
routes      all paths but the endpoint: health, metrics, HTTP+SSE, WebSocket, pages
auth_gate   between the server's guard and the requests
http        a server that listens on a port; `uvicorn_server` is what we change in uvicorn
workers     several processes of one server
metrics     what they have counted, for Prometheus
options     how a server is served over HTTP
"""

from .channel import serve_channel

__all__ = ["serve_channel"]
