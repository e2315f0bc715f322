"""Connect a server to a transport: the code behind `Server.run`, `serve` and `asgi`.

channel     one client over any channel (WebSocket, HTTP+SSE, memory, your own), and over stdin and
            stdout, with signal handling and a watch on the parent process
app         the ASGI application, its lifespan and its state in each event loop; single requests in
            serverless functions
routes      all paths except the endpoint: health, metrics, HTTP+SSE, WebSocket, pages
auth_gate   authentication of requests by the server's guard
http        a server that listens on a port; `uvicorn_server` holds our changes to uvicorn
workers     several worker processes for one server
metrics     Prometheus metrics, collected from all workers
options     the options for serving over HTTP
"""

from .channel import serve_channel

__all__ = ["serve_channel"]
