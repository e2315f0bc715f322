"""The client side of HTTP: a channel to a server of any era, and single requests."""
