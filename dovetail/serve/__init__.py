"""Join a server to a transport: what `Server.run`, `Server.serve` and `Server.asgi` call.

channel     one client over any channel: stdio, WebSocket, HTTP+SSE, memory, your own
stdio       a server on stdin and stdout, with signals and a parent that may die
app         the ASGI application, and its state in one event loop
routes      all paths but the endpoint: health, metrics, HTTP+SSE, WebSocket, pages
auth_gate   between the server's guard and the requests
http        uvicorn around the application; `uvicorn_protocol` bounds its connections
workers     several processes of one server
serverless  a single request, with nothing left running
"""

from .channel import serve_channel

__all__ = ["serve_channel"]
