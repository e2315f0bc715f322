"""Bytes to messages and back over a wire of some kind. Nothing here knows of servers and
clients."""
