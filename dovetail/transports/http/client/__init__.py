"""The client side of HTTP: a channel to a server from any era, and individual requests."""
