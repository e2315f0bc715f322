"""Servers in Python code, named by a string: what the string means, and how to load the server."""
