"""Connect a server to a transport: the code behind `Server.run`, `serve` and `asgi`.

channel     the connection to one client, over any channel (WebSocket, HTTP+SSE, memory, your own)
            or over stdin and stdout (with signal handling and monitoring of the parent process)
app         the ASGI application, with its lifespan and its state in each event loop, and `handle`,
            which answers a single request in a serverless function
routes      all paths except the endpoint: health, metrics, HTTP+SSE, WebSocket and pages
auth_gate   authentication of requests with the server's guard
http        a server that listens on a port (`uvicorn_server` contains our changes to uvicorn)
workers     several worker processes for one server
metrics     Prometheus metrics, collected from all workers
options     the options for serving over HTTP
"""

from .channel import serve_channel

__all__ = ["serve_channel"]
