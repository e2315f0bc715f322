"""Connect a server to a transport: the code behind `Server.run`, `serve` and `asgi`.

channel     serves one client over any channel (WebSocket, HTTP+SSE, memory, your own) or over stdin
            and stdout, where it also handles signals and watches the parent process
app         the ASGI application with its lifespan and its state in each event loop, and individual
            requests in serverless functions
routes      all paths except the endpoint: health, metrics, HTTP+SSE, WebSocket and pages
auth_gate   authenticates requests with the server's guard
http        a server that listens on a port (`uvicorn_server` contains our changes to uvicorn)
workers     several worker processes for one server
metrics     Prometheus metrics, collected from all workers
options     the options for serving over HTTP
"""

from .channel import serve_channel

__all__ = ["serve_channel"]
